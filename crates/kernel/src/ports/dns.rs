//! Looking names up: by the system's resolver, or by the servers the settings name. Never by servers that a zone names, which
//! anybody can choose.
use std::{
    net::{IpAddr, SocketAddr},
    sync::OnceLock,
};

use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::rr::{RData, RecordType},
};

use crate::fault::Code;

/// For routes that look a name up.
pub const DNS_UNAVAILABLE: Code =
    Code::new(502, "dns_unavailable", "No name server answered for this domain. Try again shortly.");

/// No server answered; nothing is known of the name.
#[derive(Debug, thiserror::Error)]
#[error("no name server answered: {0}")]
pub struct NoAnswer(String);

/// The records of one type at a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Records<T> {
    /// Whether there is such a name at all (`NXDOMAIN` otherwise), with records of this type or without.
    pub exists: bool,
    pub found: Vec<T>,
}

/// The targets of a name: the names of its CNAME records, in order, and the IP addresses at their end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    pub exists: bool,
    pub aliases: Vec<String>,
    pub addresses: Vec<IpAddr>,
    /// The name has an alias, and no server answered for a name further on: there may be more aliases, and IP
    /// addresses.
    pub is_cut_off: bool,
}

/// A record that says which authorities may issue certificates for a name (RFC 8659).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caa {
    pub is_critical: bool,
    /// In lower case: `issue`, `issuewild`, `iodef` or another one.
    pub tag: String,
    pub value: String,
}

/// A chain of aliases that is longer leads nowhere.
const LONGEST_CHAIN: usize = 8;

pub struct Resolver {
    servers: Vec<SocketAddr>,
    /// Made at the first question: the system's settings are read then, and a server that asks nothing needs none.
    made: OnceLock<TokioResolver>,
}

impl Resolver {
    pub fn new(servers: &[SocketAddr]) -> Self {
        Self { servers: servers.to_vec(), made: OnceLock::new() }
    }

    /// The texts at a name; none when there is no such name.
    pub async fn texts(&self, name: &str) -> Result<Vec<String>, NoAnswer> {
        let text = |data: &RData| match data {
            RData::TXT(text) => Some(text.txt_data.iter().map(|part| String::from_utf8_lossy(part)).collect()),
            _ => None,
        };
        self.records(name, RecordType::TXT, text).await.map(|records| records.found)
    }

    /// The IP addresses of a name, of both kinds; none when there is no such name.
    pub async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, NoAnswer> {
        let found = self.resolver()?.lookup_ip(whole(name)).await;
        match found {
            Ok(answer) => Ok(answer.iter().collect()),
            Err(error) if error.is_no_records_found() => Ok(vec![]),
            Err(error) => Err(NoAnswer(error.to_string())),
        }
    }

    /// The name that this one is another name of, without the dot at its end; none when there is no such record.
    pub async fn canonical_name(&self, name: &str) -> Result<Option<String>, NoAnswer> {
        let alias = |data: &RData| match data {
            RData::CNAME(target) => Some(target.0.to_ascii().trim_end_matches('.').to_lowercase()),
            _ => None,
        };
        Ok(self.records(name, RecordType::CNAME, alias).await?.found.into_iter().next())
    }

    /// The servers that take mail for a name, the preferred ones first. The empty name stands for a domain that takes none.
    pub async fn exchanges(&self, name: &str) -> Result<Records<(u16, String)>, NoAnswer> {
        let exchange = |data: &RData| match data {
            RData::MX(mx) => Some((mx.preference, mx.exchange.to_ascii().trim_end_matches('.').to_lowercase())),
            _ => None,
        };
        let mut exchanges = self.records(name, RecordType::MX, exchange).await?;
        exchanges.found.sort();
        Ok(exchanges)
    }

    /// Where a name leads. Aliases are followed one by one, so that one whose target is gone is still seen. An error when nobody
    /// answers for the name itself.
    pub async fn trace(&self, name: &str) -> Result<Trace, NoAnswer> {
        let mut trace = Trace::default();
        let mut here = plain(name);
        loop {
            match self.follow(&mut trace, &here).await {
                Ok(Some(target)) => here = target,
                Ok(None) => return Ok(trace),
                // An alias is a name that exists, wherever it leads, and says more than that nobody answers there.
                Err(_) if !trace.aliases.is_empty() => {
                    (trace.exists, trace.is_cut_off) = (true, true);
                    return Ok(trace);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One step of a trace: the next name, or the addresses at its end.
    async fn follow(&self, trace: &mut Trace, here: &str) -> Result<Option<String>, NoAnswer> {
        let alias = |data: &RData| match data {
            RData::CNAME(target) => Some(plain(&target.0.to_utf8())),
            _ => None,
        };
        let Records { exists, found } = self.records(here, RecordType::CNAME, alias).await?;
        trace.exists |= exists || !trace.aliases.is_empty();
        if let Some(target) = found.into_iter().next()
            && trace.aliases.len() < LONGEST_CHAIN
            && !trace.aliases.contains(&target)
        {
            trace.aliases.push(target.clone());
            return Ok(Some(target));
        }
        let v4 = |data: &RData| match data {
            RData::A(address) => Some(IpAddr::V4(address.0)),
            _ => None,
        };
        let v6 = |data: &RData| match data {
            RData::AAAA(address) => Some(IpAddr::V6(address.0)),
            _ => None,
        };
        let (v4, v6) =
            tokio::try_join!(self.records(here, RecordType::A, v4), self.records(here, RecordType::AAAA, v6))?;
        trace.exists |= v4.exists || v6.exists;
        trace.addresses = [v4.found, v6.found].concat();
        Ok(None)
    }

    /// The CAA records that count for a name: its own, or those of the nearest name above that has some.
    pub async fn authorities(&self, name: &str) -> Result<Vec<Caa>, NoAnswer> {
        let caa = |data: &RData| match data {
            RData::CAA(record) => Some(Caa {
                is_critical: record.issuer_critical,
                tag: record.tag.to_lowercase(),
                value: String::from_utf8_lossy(&record.value).into_owned(),
            }),
            _ => None,
        };
        let name = plain(name);
        let mut here = Some(name.as_str());
        // Top-level names are not asked: they have no such records, and a server that answers for one zone refuses them.
        while let Some(at) = here.filter(|at| at.contains('.')) {
            let records = self.records(at, RecordType::CAA, caa).await?;
            if !records.found.is_empty() {
                return Ok(records.found);
            }
            here = at.split_once('.').map(|(_, above)| above);
        }
        Ok(vec![])
    }

    async fn records<T>(
        &self,
        name: &str,
        kind: RecordType,
        read: impl Fn(&RData) -> Option<T>,
    ) -> Result<Records<T>, NoAnswer> {
        match self.resolver()?.lookup(whole(name), kind).await {
            Ok(answer) => {
                let found = answer.answers().iter().filter_map(|record| read(&record.data)).collect();
                Ok(Records { exists: true, found })
            }
            Err(error) if error.is_no_records_found() => Ok(Records { exists: !error.is_nx_domain(), found: vec![] }),
            Err(error) => Err(NoAnswer(error.to_string())),
        }
    }

    fn resolver(&self) -> Result<&TokioResolver, NoAnswer> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let made = self.make().map_err(|error| NoAnswer(error.to_string()))?;
        Ok(self.made.get_or_init(|| made))
    }

    fn make(&self) -> Result<TokioResolver, NetError> {
        let mut builder = if self.servers.is_empty() {
            TokioResolver::builder_tokio()?
        } else {
            let servers = self.servers.iter().map(|server| {
                let mut connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
                for connection in &mut connections {
                    connection.port = server.port();
                }
                NameServerConfig::new(server.ip(), true, connections.into())
            });
            let config = ResolverConfig::from_parts(None, vec![], servers.collect());
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        options(builder.options_mut());
        builder.build()
    }
}

/// With the dot at its end it is a whole name, and the system's own domain is not tried after it.
fn whole(name: &str) -> String {
    format!("{}.", name.trim_end_matches('.'))
}

fn plain(name: &str) -> String {
    name.trim_end_matches('.').to_lowercase()
}

fn options(options: &mut ResolverOpts) {
    // Whoever has just added a record and asks again must see it.
    options.cache_size = 0;
    // Who checks where a name leads wants to know all of it.
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.attempts = 2;
    options.timeout = std::time::Duration::from_secs(3);
}
