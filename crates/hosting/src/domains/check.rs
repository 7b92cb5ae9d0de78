//! Looking at a domain from outside: its records in DNS, and a request to it.
use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use db::{FromValue, Value};
use kernel::{
    Janua,
    ports::{
        dns::{Caa, NoAnswer, Resolver, Trace},
        outgoing::is_public,
    },
    recent::Recent,
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{
    model::{Domain, Reason, Status},
    names,
};
use crate::{edge, settings::Settings};

/// How much of what is found is kept.
const MOST_SEEN: usize = 20;
const LONGEST_SEEN: usize = 255;
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_REPLY: u64 = 4096;

/// Where domains of an app are to lead.
#[derive(Debug, Clone, Default)]
pub struct Target {
    pub name: String,
    pub addresses: Vec<IpAddr>,
}

impl Target {
    /// The addresses come from the settings or, without one, from the edge's own name.
    pub async fn new(janua: &Janua, label: &str) -> Self {
        let settings = janua.config.of::<edge::Settings>();
        let name = format!("{label}.{}", settings.edge_domain.to_lowercase());
        let mut addresses = settings.edge_addresses.clone();
        if addresses.is_empty() {
            addresses = janua.own::<EdgeAddresses>().find(janua, &settings.edge_domain).await;
        }
        Self { name, addresses }
    }

    /// Whether a name leads here with every one of its answers; if not, why not.
    pub fn is_reached_by(&self, trace: &Trace) -> Result<(), Reason> {
        let is_ours = |address: &&IpAddr| self.addresses.contains(address);
        if !trace.exists {
            return Err(Reason::Nxdomain);
        }
        if trace.aliases.contains(&self.name) {
            return Ok(());
        }
        if trace.addresses.is_empty() {
            return Err(if trace.aliases.is_empty() { Reason::NoRecords } else { Reason::PointsElsewhere });
        }
        let ours = trace.addresses.iter().filter(is_ours).count();
        let (v4, v6): (Vec<&IpAddr>, Vec<&IpAddr>) = trace.addresses.iter().partition(|address| address.is_ipv4());
        match ours {
            0 => Err(Reason::PointsElsewhere),
            all if all == trace.addresses.len() => Ok(()),
            _ if !v4.is_empty() && v4.iter().all(&is_ours) && !v6.iter().any(is_ours) => Err(Reason::Ipv6Elsewhere),
            _ => Err(Reason::MixedAnswers),
        }
    }
}

/// The addresses of the edge's own name, looked up now and then.
pub struct EdgeAddresses(Recent<(), Vec<IpAddr>>);

impl Default for EdgeAddresses {
    fn default() -> Self {
        Self(Recent::new(16, Duration::from_mins(1)))
    }
}

impl EdgeAddresses {
    async fn find(&self, janua: &Janua, edge: &str) -> Vec<IpAddr> {
        if edge == "localhost" || edge.ends_with(".localhost") {
            return vec![Ipv4Addr::LOCALHOST.into()];
        }
        if let Some(found) = self.0.get(&()) {
            return found;
        }
        // Without an answer a name is still recognised by its alias.
        let found = janua.own::<Resolver>().addresses(edge).await.unwrap_or_default();
        self.0.insert((), found.clone());
        found
    }
}

/// What was found at a name, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Seen {
    pub exists: bool,
    pub aliases: Vec<String>,
    pub addresses: Vec<IpAddr>,
    /// CAA records in the form of a zone file.
    pub caa: Vec<String>,
    pub caa_allows: bool,
}

impl From<&Seen> for Value {
    fn from(seen: &Seen) -> Self {
        serde_json::to_string(seen).unwrap_or_default().into()
    }
}

impl FromValue for Seen {
    fn from_value(value: Value) -> Option<Self> {
        serde_json::from_str(&String::from_value(value)?).ok()
    }
}

/// One check of a domain. A part that nobody answered for is none, and changes nothing.
pub struct Look {
    pub texts: Vec<String>,
    /// Whether it leads here; for names of a site alone.
    pub route: Option<Result<(), Reason>>,
    pub seen: Option<Seen>,
}

/// Looks at the records of a domain. An error when nobody answers for its proof.
pub async fn look(janua: &Janua, domain: &Domain, target: &Target) -> Result<Look, NoAnswer> {
    let resolver = janua.own::<Resolver>();
    let texts = resolver.texts(&names::record_name(&domain.domain)).await?;
    if !domain.is_listed {
        return Ok(Look { texts, route: None, seen: None });
    }
    let (trace, caa) = tokio::join!(resolver.trace(&domain.domain), resolver.authorities(&domain.domain));
    let (route, seen) = match (trace, caa) {
        // What has led here stays so: the way may go on to us where nobody answers. For a domain that never did, the alias
        // that was found is what its owner must change.
        (Ok(trace), _) if trace.is_cut_off && has_led_here(domain) && target.is_reached_by(&trace).is_err() => {
            tracing::debug!(domain = domain.domain, ?trace, "no name server answers where an alias leads");
            (None, None)
        }
        (Ok(trace), caa) => {
            let route = target.is_reached_by(&trace);
            (Some(route), Some(seen(janua, trace, &caa.unwrap_or_default())))
        }
        (Err(error), _) => {
            tracing::debug!(%error, domain = domain.domain, "no name server answers where a domain leads");
            (None, None)
        }
    };
    Ok(Look { texts, route, seen })
}

fn has_led_here(domain: &Domain) -> bool {
    matches!(domain.status, Status::Issuing | Status::Active | Status::Misconfigured)
}

fn seen(janua: &Janua, trace: Trace, caa: &[Caa]) -> Seen {
    let short = |text: &String| text.replace('\0', "\u{fffd}").chars().take(LONGEST_SEEN).collect::<String>();
    let lines: Vec<String> = caa
        .iter()
        .take(MOST_SEEN)
        .map(|record| format!("{} {} \"{}\"", u8::from(record.is_critical) << 7, record.tag, record.value))
        .collect();
    Seen {
        exists: trace.exists,
        aliases: trace.aliases.iter().map(short).collect(),
        addresses: trace.addresses.into_iter().take(MOST_SEEN).collect(),
        caa: lines.iter().map(short).collect(),
        caa_allows: caa_allows(caa, &janua.config.of::<Settings>().caa_identity()),
    }
}

/// Whether CAA records let an authority issue for the name itself (RFC 8659). Without `issue` records everybody may.
pub fn caa_allows(records: &[Caa], authority: &str) -> bool {
    let knows = |tag: &str| {
        ["issue", "issuewild", "iodef", "contactemail", "contactphone", "issuemail", "issuevmc"].contains(&tag)
    };
    if records.iter().any(|record| record.is_critical && !knows(&record.tag)) {
        return false;
    }
    let issuers: Vec<&str> = records
        .iter()
        .filter(|record| record.tag == "issue")
        .map(|record| record.value.split(';').next().unwrap_or_default().trim())
        .collect();
    // Without a name to compare with, the authority decides.
    issuers.is_empty() || authority.is_empty() || issuers.iter().any(|issuer| issuer.eq_ignore_ascii_case(authority))
}

/// The path of the request that a domain is asked with, below that of ACME: whatever lets a certificate authority through lets
/// this through.
const PROBE: &str = "janua-probe";

/// What a node of this installation answers on the path of a challenge when asked as this host; none for other paths.
pub fn probe_answer(janua: &Janua, host: &str, token: &str) -> Option<String> {
    (token == PROBE).then(|| janua.vault.mac("domain_probe", host.as_bytes()))
}

/// Whether a request to the domain arrives here. Only addresses that the domain leads to and that are ours, or public, are
/// asked, and no redirect is followed.
pub async fn reaches_us(janua: &Janua, domain: &str, addresses: &[IpAddr], target: &Target) -> bool {
    let may_ask = |address: &&IpAddr| target.addresses.contains(address) || is_public(**address);
    let port = janua.config.of::<Settings>().edge_probe_port.0;
    let expected = janua.vault.mac("domain_probe", domain.as_bytes());
    let asked: Vec<&IpAddr> = addresses.iter().filter(may_ask).collect();
    if asked.len() != addresses.len() || asked.is_empty() {
        return false;
    }
    for address in asked {
        match timeout(PATIENCE, ask(*address, port, domain)).await {
            Ok(Ok(reply)) if reply.starts_with("HTTP/1.1 200") && reply.ends_with(&expected) => {}
            outcome => {
                tracing::debug!(domain, %address, ?outcome, "a request to a domain did not arrive here");
                return false;
            }
        }
    }
    true
}

async fn ask(address: IpAddr, port: u16, domain: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((address, port)).await?;
    let request = format!(
        "GET /.well-known/acme-challenge/{PROBE} HTTP/1.1\r\nHost: {domain}\r\nUser-Agent: Janua\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut reply = String::new();
    stream.take(LONGEST_REPLY).read_to_string(&mut reply).await?;
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caa(tag: &str, value: &str, is_critical: bool) -> Caa {
        Caa { is_critical, tag: tag.into(), value: value.into() }
    }

    #[test]
    fn caa_records_allow_the_authorities_they_name() {
        let ours = "letsencrypt.org";
        assert!(caa_allows(&[], ours));
        assert!(caa_allows(&[caa("iodef", "mailto:a@example.com", false)], ours), "says nothing about who may");
        assert!(caa_allows(&[caa("issue", "LetsEncrypt.org; validationmethods=http-01", false)], ours));
        assert!(caa_allows(&[caa("issue", "other.example", false), caa("issue", "letsencrypt.org", true)], ours));
        for forbidden in [
            vec![caa("issue", ";", false)],
            vec![caa("issue", "other.example", false)],
            vec![caa("issue", "", false)],
            vec![caa("issue", "letsencrypt.org", false), caa("tbs", "unknown", true)],
        ] {
            assert!(!caa_allows(&forbidden, ours), "{forbidden:?}");
        }
    }

    #[test]
    fn a_name_leads_here_by_its_alias_or_by_every_address() {
        let target = Target {
            name: "abc.edge.test".into(),
            addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
        };
        let leads = |exists: bool, aliases: &[&str], addresses: &[&str]| {
            target.is_reached_by(&Trace {
                exists,
                aliases: aliases.iter().map(|&alias| alias.to_owned()).collect(),
                addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
                is_cut_off: false,
            })
        };
        assert_eq!(leads(true, &["abc.edge.test"], &["192.0.2.1"]), Ok(()));
        assert_eq!(leads(true, &["www.other.test", "abc.edge.test"], &[]), Ok(()));
        assert_eq!(leads(true, &[], &["192.0.2.1"]), Ok(()), "an apex, or a flattened alias");
        assert_eq!(leads(true, &[], &["192.0.2.1", "2001:db8::1"]), Ok(()));
        assert_eq!(leads(false, &[], &[]), Err(Reason::Nxdomain));
        assert_eq!(leads(true, &[], &[]), Err(Reason::NoRecords));
        assert_eq!(leads(true, &["gone.other.test"], &[]), Err(Reason::PointsElsewhere));
        assert_eq!(leads(true, &[], &["198.51.100.7"]), Err(Reason::PointsElsewhere));
        assert_eq!(leads(true, &[], &["192.0.2.1", "198.51.100.7"]), Err(Reason::MixedAnswers));
        assert_eq!(leads(true, &[], &["192.0.2.1", "2001:db8::9"]), Err(Reason::Ipv6Elsewhere));
    }
}
