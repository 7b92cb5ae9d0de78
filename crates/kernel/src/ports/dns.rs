//! Looking names up: by the system's resolver, or by the servers the settings name.
use std::{
    net::{IpAddr, SocketAddr},
    sync::OnceLock,
};

use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::rr::RData,
};

/// Nobody answered; nothing is known of the name.
#[derive(Debug, thiserror::Error)]
#[error("no name server answered: {0}")]
pub struct NoAnswer(String);

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
        // With the dot at its end it is a whole name, and the system's own domain is not tried after it.
        let found = self.resolver()?.txt_lookup(format!("{}.", name.trim_end_matches('.'))).await;
        match found {
            Ok(answer) => Ok(answer
                .answers()
                .iter()
                .filter_map(|record| match &record.data {
                    RData::TXT(text) => {
                        Some(text.txt_data.iter().map(|part| String::from_utf8_lossy(part)).collect())
                    }
                    _ => None,
                })
                .collect()),
            Err(error) if error.is_no_records_found() => Ok(vec![]),
            Err(error) => Err(NoAnswer(error.to_string())),
        }
    }

    /// The addresses of a name, of both kinds; none when there is no such name.
    pub async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, NoAnswer> {
        let found = self.resolver()?.lookup_ip(format!("{}.", name.trim_end_matches('.'))).await;
        match found {
            Ok(answer) => Ok(answer.iter().collect()),
            Err(error) if error.is_no_records_found() => Ok(vec![]),
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

fn options(options: &mut ResolverOpts) {
    // Whoever has just added a record and asks again must see it.
    options.cache_size = 0;
    // Who checks where a name leads wants to know all of it.
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.attempts = 2;
    options.timeout = std::time::Duration::from_secs(3);
}
