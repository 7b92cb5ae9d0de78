//! Delivery to the servers of the recipients' own domains: by MX records, encrypted where that is offered, and as the domain's
//! MTA-STS policy demands. Addresses come from the guarded way out, because anybody can point an MX record anywhere.
use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use kernel::{
    Janua,
    clock::Timestamp,
    ports::{
        SendError,
        mail::Mail as _,
        outgoing::NoReply,
        smtp::{Patience, Security, Smtp},
    },
};
use lettre::address::Envelope;
use tokio::time::Instant;

use super::policy::{self, Policy};
use crate::{Settings, domains::MailDns, sending::content::own_host};

/// How long the servers of a domain are remembered.
const KEPT: Duration = Duration::from_mins(5);
const MOST_KEPT: usize = 10_000;
const MOST_SERVERS: usize = 8;
const MOST_ADDRESSES: usize = 2;
/// Afterwards no other server is tried.
const PATIENCE: Duration = Duration::from_mins(1);
const CONNECT: Duration = Duration::from_secs(10);
/// After the end of a message. Servers look at what is in it, but one that says nothing takes a connection from all others.
const MESSAGE: Duration = Duration::from_mins(2);

/// Where mail for a domain goes.
struct Route {
    servers: Vec<String>,
    /// Whether they stand for the domain itself, which has no MX records.
    is_implicit: bool,
    /// Whether they must prove who they are.
    is_enforced: bool,
}

type Line = (SocketAddr, Option<String>);

/// What this node knows of domains, and its connections to their servers.
#[derive(Default)]
pub struct Routes {
    routes: Mutex<HashMap<String, (Timestamp, Arc<Route>)>>,
    lines: Mutex<HashMap<Line, Arc<Smtp>>>,
}

/// Hands a mail over to a server of the recipient's domain; answers what it said.
pub async fn deliver(janua: &Janua, envelope: &Envelope, bytes: &[u8]) -> Result<String, SendError> {
    let domain = envelope.to().first().map(|to| to.domain().to_lowercase()).unwrap_or_default();
    if domain.starts_with('[') {
        return Err(SendError::Never("550 5.1.2 mail is delivered to domains, not to IP addresses".into()));
    }
    let (routes, settings) = (janua.own::<Routes>(), janua.config.of::<Settings>());
    let route = routes.of(janua, &domain).await?;
    let hello = settings.email_hello.clone().unwrap_or_else(|| own_host(janua));
    let (began, mut last) = (Instant::now(), "no server could be reached".to_owned());
    for server in &route.servers {
        let addresses = match janua.outgoing.addresses_of(server).await {
            Ok(addresses) => addresses,
            Err(NoReply::NoSuchHost) if route.is_implicit => {
                return Err(SendError::Never(format!("550 5.1.2 {domain} has no mail server")));
            }
            Err(why) => {
                last = format!("{server}: {why}");
                continue;
            }
        };
        for address in addresses.into_iter().take(MOST_ADDRESSES) {
            if began.elapsed() > PATIENCE {
                return Err(SendError::Later(last));
            }
            let line = routes.line(janua, address, server, &hello, route.is_enforced).map_err(SendError::Later)?;
            match line.deliver("", envelope, bytes).await {
                // Nothing was handed over: the next one may be better.
                Err(SendError::Away(words)) => last = format!("{server}: {words}"),
                outcome => return outcome,
            }
        }
    }
    Err(SendError::Later(last))
}

impl Routes {
    async fn of(&self, janua: &Janua, domain: &str) -> Result<Arc<Route>, SendError> {
        let now = janua.clock.now();
        let known = db::lock(&self.routes).get(domain).filter(|(until, _)| *until > now).cloned();
        if let Some((_, route)) = known {
            return Ok(route);
        }
        let route = Arc::new(look_up(janua, domain).await?);
        let mut known = db::lock(&self.routes);
        if known.len() >= MOST_KEPT {
            known.clear();
        }
        known.insert(domain.to_owned(), (now.plus(KEPT), route.clone()));
        Ok(route)
    }

    /// The connections to one address. They close by themselves when nothing more is to send.
    fn line(
        &self,
        janua: &Janua,
        address: IpAddr,
        server: &str,
        hello: &str,
        is_enforced: bool,
    ) -> Result<Arc<Smtp>, String> {
        let port =
            u16::try_from(janua.config.of::<Settings>().email_direct_port).map_err(|error| error.to_string())?;
        let at = SocketAddr::new(address, port);
        let key = (at, is_enforced.then(|| server.to_owned()));
        let mut lines = db::lock(&self.lines);
        if let Some(line) = lines.get(&key) {
            return Ok(line.clone());
        }
        let security = if is_enforced {
            Security::Verified { name: server.to_owned(), authorities: janua.outgoing.authorities() }
        } else {
            Security::IfOffered
        };
        let patience = Patience { connect: CONNECT, message: MESSAGE, ..Patience::default() };
        let made = Arc::new(Smtp::to_exchange(at, hello, &security, patience)?);
        if lines.len() >= MOST_KEPT {
            lines.clear();
        }
        lines.insert(key, made.clone());
        Ok(made)
    }
}

async fn look_up(janua: &Janua, domain: &str) -> Result<Route, SendError> {
    let dns = &janua.own::<MailDns>().resolver;
    let unknown = |_| SendError::Later(format!("no name server answered for {domain}"));
    let records = dns.exchanges(domain).await.map_err(unknown)?;
    if !records.exists {
        return Err(SendError::Never(format!("550 5.1.2 there is no domain {domain}")));
    }
    let is_implicit = records.found.is_empty();
    let mut servers: Vec<(u16, u64, String)> = records
        .found
        .into_iter()
        .map(|(rank, name)| (rank, janua.entropy.up_to(u64::from(u32::MAX)), name))
        .collect();
    if servers.iter().any(|(.., name)| name.is_empty()) {
        if servers.len() == 1 {
            return Err(SendError::Never(format!("556 5.1.10 {domain} takes no mail")));
        }
        servers.retain(|(.., name)| !name.is_empty());
    }
    // Those of the same rank in any order, so that they share the work.
    servers.sort();
    let mut servers: Vec<String> = servers.into_iter().map(|(.., name)| name).collect();
    if is_implicit {
        servers.push(domain.to_owned());
    }
    let policy = policy::of(janua, dns, domain).await.map_err(|error| SendError::Later(error.to_string()))?;
    let is_enforced = policy.as_ref().is_some_and(Policy::is_enforced);
    if let Some(policy) = policy.filter(|_| is_enforced) {
        servers.retain(|server| policy.names(server));
        if servers.is_empty() {
            return Err(SendError::Later(format!("no server of {domain} is in its MTA-STS policy")));
        }
    }
    servers.truncate(MOST_SERVERS);
    Ok(Route { servers, is_implicit, is_enforced })
}
