//! The settings of the edge, and the URLs that follow from them.
use std::net::{IpAddr, SocketAddr};

use kernel::{
    Janua,
    config::{Config, Switch},
};
use url::Url;

kernel::settings! {
    /// The edge, which serves deployed sites on hosts of their own.
    pub struct Settings {
        /// IP address and port of the edge. Port 0 chooses a free one; empty switches the edge off.
        edge_listen: Option<SocketAddr> = "127.0.0.1:8081";
        /// The domain below which sites have their hosts: {slug}.{edge_domain}. It must not share its registrable domain with
        /// base_url: pages of sites are written by others.
        edge_domain: String = "localhost";
        /// How browsers reach the edge, if a proxy stands in front of it: scheme and port, such as https://sites.example. Its
        /// host is that of edge_domain.
        edge_url: Option<Url> = "";
        /// The IP addresses that custom domains point to; empty where edge_domain has them.
        edge_addresses: Vec<IpAddr> = "";
        /// Memory for files that are served often, in bytes.
        edge_cache_bytes: usize = "67108864";
        /// Disk for files that come from a bucket, in bytes. They are served while the bucket is away.
        edge_disk_bytes: usize = "1073741824";
        /// How many connections the edge accepts at once.
        edge_max_connections: usize = "10000";
        /// Allows an edge_domain that shares its registrable domain with base_url. Pages of sites can then set cookies that
        /// reach the console.
        edge_same_site: Switch = "off";
    }
}

/// Where sites are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeUrl {
    pub scheme: &'static str,
    pub domain: String,
    /// None where it is that of the scheme.
    pub port: Option<u16>,
}

impl EdgeUrl {
    pub fn of(config: &Config) -> Self {
        let settings = config.of::<Settings>();
        let domain = settings.edge_domain.to_lowercase();
        match &settings.edge_url {
            Some(url) => {
                let scheme = if url.scheme() == "https" { "https" } else { "http" };
                Self { scheme, domain, port: url.port() }
            }
            None => {
                let port = settings.edge_listen.map(|address| address.port()).filter(|port| *port != 80);
                Self { scheme: "http", domain, port }
            }
        }
    }

    /// `label` is a slug, or that of a deployment and a slug.
    pub fn host(&self, label: &str) -> String {
        format!("{label}.{}", self.domain)
    }

    pub fn url(&self, label: &str) -> String {
        self.url_of(&self.host(label))
    }

    pub fn url_of(&self, host: &str) -> String {
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{host}{port}", self.scheme)
    }

    /// Whether browsers reach sites by TLS, so that cookies can say so.
    pub fn is_secure(&self) -> bool {
        self.scheme == "https"
    }
}

/// The port at which browsers reach sites by TLS; none where the edge does not listen for it. Where `edge_url` says how they
/// reach it without TLS, a proxy or the system maps the usual ports.
pub fn tls_port(config: &Config) -> Option<u16> {
    let listens = config.of::<crate::Settings>().edge_tls_listen?;
    match &config.of::<Settings>().edge_url {
        Some(url) if url.scheme() == "https" => url.port_or_known_default(),
        Some(url) if url.port().is_none() => Some(443),
        _ => Some(listens.port()).filter(|port| *port != 0).or(Some(443)),
    }
}

/// `https://` and the host, with the port where it is not the usual one.
pub fn https_of(host: &str, port: u16) -> String {
    if port == 443 { format!("https://{host}") } else { format!("https://{host}:{port}") }
}

/// Refuses a domain on which pages of sites could reach cookies of the console.
pub fn check(janua: &Janua) -> Result<(), String> {
    let settings = janua.config.of::<Settings>();
    let domain = settings.edge_domain.to_lowercase();
    let is_label = |label: &str| {
        !label.is_empty() && label.len() <= 63 && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    if !domain.split('.').all(is_label) {
        return Err(format!("edge_domain: {domain} is not a domain"));
    }
    if let Some(url) = &settings.edge_url {
        let is_base = matches!(url.scheme(), "http" | "https") && url.path() == "/" && url.query().is_none();
        if !is_base || url.host_str() != Some(&domain) {
            return Err(format!(
                "edge_url: must be http or https, the host {domain}, a port if it is not the usual one"
            ));
        }
    }
    let base = Url::parse(&janua.config.base_url()).map_err(|wrong| format!("base_url: {wrong}"))?;
    let host = base.host_str().unwrap_or_default().to_lowercase();
    if settings.edge_same_site.is_on() || !shares_cookies(&host, &domain) {
        return Ok(());
    }
    Err(format!(
        "edge_domain: pages of sites on {domain} could set cookies of {host}. Choose a domain that is registered apart \
         from {host}, or set edge_same_site if every site is yours"
    ))
}

/// Whether a page below `domain` could set a cookie that a browser sends to `host`.
fn shares_cookies(host: &str, domain: &str) -> bool {
    // Browsers take each name below localhost for a site of its own.
    if domain == "localhost" {
        return false;
    }
    let registrable = |name: &str| psl::domain_str(name).unwrap_or(name).to_owned();
    host == domain || host.ends_with(&format!(".{domain}")) || registrable(host) == registrable(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w10_a_domain_that_shares_cookies_with_the_console_is_found() {
        for (host, domain, shares) in [
            ("localhost", "localhost", false),
            ("127.0.0.1", "localhost", false),
            ("janua.example.com", "sites.example.com", true),
            ("janua.example.com", "example.com", true),
            ("janua.example.com", "janua.example.com", true),
            ("example.com", "example.net", false),
            ("a.example.co.uk", "b.example.co.uk", true),
            ("a.co.uk", "b.co.uk", false),
            ("me.github.io", "you.github.io", false),
        ] {
            assert_eq!(shares_cookies(host, domain), shares, "{host} {domain}");
        }
    }
}
