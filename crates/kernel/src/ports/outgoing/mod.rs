//! Requests to URLs that users chose. They reach the public internet only, never the internal network: the host is
//! resolved, every IP address is checked, and the connection goes to a checked one. Redirects are not followed,
//! proxies of the environment are not used, and the time and size of the response are bounded.
mod client;
mod idle;
mod special;

use std::{
    error::Error,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::Full;
use ipnet::IpNet;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use url::{Host, Position, Url};

use self::client::Client;
pub use self::special::is_public;
use super::dns::Resolver;
use crate::config::{Config, is_loopback};

/// One request.
#[derive(Debug, Clone)]
pub struct Call {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub limits: Limits,
    pub reach: Reach,
}

/// Where a request may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// To the public internet, and where permits allow it.
    Public,
    /// To this machine as well, if nobody but its own programs reach the server ([`Config::is_local`]): a developer's
    /// receiver. The URL must name the machine; a name that a name server sends there does not count.
    Receiver,
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For everything together: looking the name up, connecting, sending, reading the answer.
    pub time: Duration,
    /// How much of the answer is read; the rest is left unread, and the connection closed.
    pub bytes: usize,
}

/// The answer of the other side, with any status.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether there was more of it than the limit allows.
    pub is_cut: bool,
}

/// The reason why there is no answer. Its text may be shown to the user who chose the URL; it names no IP address of
/// ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoReply {
    #[error("must start with https://")]
    NotHttps,
    #[error("must not carry a user name or password")]
    Credentials,
    #[error("must not have a fragment")]
    Fragment,
    /// Read in another way than it is written.
    #[error("{0}")]
    OddForm(String),
    #[error("there is no such host")]
    NoSuchHost,
    #[error("leads to a private or reserved IP address")]
    Inside(IpAddr),
    #[error("no name server answered")]
    NoNameServer,
    #[error("took too long")]
    TooSlow,
    /// Could not connect, or the connection broke.
    #[error("{0}")]
    Broken(String),
}

impl NoReply {
    /// Whether the URL itself is refused: nothing was sent, and nothing will be unless the URL changes.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::NotHttps
                | Self::Credentials
                | Self::Fragment
                | Self::OddForm(_)
                | Self::NoSuchHost
                | Self::Inside(_)
        )
    }
}

/// Parses a URL for requests, as a user wrote it. The request goes to exactly that text: other programs, and people,
/// may read the odd forms (backslashes, user parts, dots in paths, numbers for hosts) as another place than we do. A
/// host in capitals, a port that goes without saying and a missing first slash mean the same to all.
pub fn endpoint(text: &str) -> Result<Url, NoReply> {
    let odd = |why: &str| NoReply::OddForm(why.to_owned());
    let url = Url::parse(text).map_err(|_| odd("must be a URL"))?;
    if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        return Err(odd("must not contain spaces, control characters or backslashes"));
    }
    if text.contains('#') {
        return Err(NoReply::Fragment);
    }
    let (_, rest) = text.split_once("://").ok_or_else(|| odd("must be a whole URL"))?;
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err(NoReply::Credentials);
    }
    let port = match url.scheme() {
        "https" => ":443",
        "http" => ":80",
        _ => return Err(NoReply::NotHttps),
    };
    if url.port() == Some(0) {
        return Err(odd("must not have port 0"));
    }
    let authority = authority.to_ascii_lowercase();
    let host = &url[Position::BeforeHost..Position::AfterPort];
    let is_same_host = authority == host || authority.strip_suffix(port) == Some(host);
    let is_same_path =
        path == &url[Position::BeforePath..] || (path.is_empty() && &url[Position::BeforePath..] == "/");
    if is_same_host && is_same_path { Ok(url) } else { Err(odd(&format!("must be written as {url}"))) }
}

/// The host of a URL as it is compared: of two spellings of a name there is one.
pub fn host_of(url: &Url) -> String {
    url.host_str().unwrap_or_default().trim_end_matches('.').to_owned()
}

/// Where a feature's settings let requests go beside the public internet; for development. Declared by the feature.
#[derive(Debug, Clone, Default)]
pub struct Permit {
    pub networks: Vec<IpNet>,
    pub plain_http: bool,
}

/// Where requests may go beside the public internet; for development.
#[derive(Debug, Clone, Default)]
pub struct Allowed {
    pub networks: Vec<IpNet>,
    pub plain_http: bool,
    /// Authorities that are trusted beside the system's.
    pub authorities: Vec<CertificateDer<'static>>,
    /// Receivers on this machine, over http too.
    pub loopback: bool,
}

/// The way out. One for a node: it keeps connections alive.
pub struct Outgoing {
    guard: Arc<Guard>,
    authorities: Vec<CertificateDer<'static>>,
    /// Made at the first request: reading the system's authorities takes a while, and many servers send no requests.
    made: OnceLock<Client>,
}

impl Outgoing {
    /// `permits` are what features allow beside the public internet.
    pub fn from_config(config: &Config, permits: &[Permit]) -> Result<Self, String> {
        let authorities = match &config.outgoing_ca {
            Some(file) => {
                read_authorities(file).map_err(|error| format!("outgoing_ca: {}: {error}", file.display()))?
            }
            None => vec![],
        };
        let allowed = Allowed {
            networks: permits.iter().flat_map(|permit| permit.networks.clone()).collect(),
            plain_http: permits.iter().any(|permit| permit.plain_http),
            authorities,
            loopback: config.is_local(),
        };
        Ok(Self::new(Resolver::new(&config.dns_servers), allowed))
    }

    pub fn new(resolver: Resolver, allowed: Allowed) -> Self {
        let Allowed { networks, plain_http, authorities, loopback } = allowed;
        let guard = Guard { resolver, networks, plain_http, loopback };
        Self { guard: Arc::new(guard), authorities, made: OnceLock::new() }
    }

    /// The IP addresses of a host, each of which may be connected to: public ones, and where permits allow it.
    pub async fn addresses_of(&self, host: &str) -> Result<Vec<IpAddr>, NoReply> {
        self.guard.look_up(host).await
    }

    /// The authorities that are trusted beside the system's, in DER.
    pub fn authorities(&self) -> Vec<Vec<u8>> {
        self.authorities.iter().map(|one| one.to_vec()).collect()
    }

    /// Whether a request could go there right now. The answer may be another one when it does.
    pub async fn check(&self, url: &Url, reach: Reach) -> Result<(), NoReply> {
        self.guard.addresses(url, reach).await.map(drop)
    }

    /// Sends it, once. Any status is an answer, a redirect too.
    pub async fn send(&self, call: Call) -> Result<Reply, NoReply> {
        let limit = call.limits.time;
        tokio::time::timeout(limit, self.exchange(call)).await.unwrap_or(Err(NoReply::TooSlow))
    }

    async fn exchange(&self, call: Call) -> Result<Reply, NoReply> {
        // A connection that is still open would not ask where its name leads to now.
        self.guard.addresses(&call.url, call.reach).await?;
        let url = &call.url;
        let mut request = Request::new(Full::new(call.body));
        *request.uri_mut() = url[Position::BeforePath..Position::AfterQuery].parse().map_err(|e| broken(&e))?;
        *request.method_mut() = call.method;
        *request.headers_mut() = call.headers;
        let host = HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort]).map_err(|e| broken(&e))?;
        request.headers_mut().insert(header::HOST, host);
        let origin = &url[..Position::BeforePath];
        let exchanged = self.client()?.exchange(origin, request, call.limits.bytes).await;
        let (head, body, is_cut) = exchanged.map_err(|error| broken(&*error))?;
        Ok(Reply { status: head.status, headers: head.headers, body, is_cut })
    }

    fn client(&self) -> Result<&Client, NoReply> {
        if let Some(made) = self.made.get() {
            return Ok(made);
        }
        let made = Client::make(self.guard.clone(), &self.authorities).map_err(|error| broken(&error))?;
        Ok(self.made.get_or_init(|| made))
    }
}

/// The check between a name and a connection: the client gets its IP addresses from here and from nowhere else.
struct Guard {
    resolver: Resolver,
    networks: Vec<IpNet>,
    plain_http: bool,
    loopback: bool,
}

impl Guard {
    async fn addresses(&self, url: &Url, reach: Reach) -> Result<Vec<IpAddr>, NoReply> {
        let is_here = self.loopback && reach == Reach::Receiver && is_loopback(url);
        match url.scheme() {
            "https" => {}
            "http" if self.plain_http || is_here => {}
            _ => return Err(NoReply::NotHttps),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(NoReply::Credentials);
        }
        // Numbers in any spelling are addresses by now: 127.1, 0x7f000001 and 2130706433 are all the same one.
        match url.host().ok_or(NoReply::NoSuchHost)? {
            Host::Ipv4(address) if is_here => Ok(vec![address.into()]),
            Host::Ipv6(address) if is_here => Ok(vec![address.into()]),
            Host::Domain(_) if is_here => Ok(LOOPBACK.to_vec()),
            Host::Ipv4(address) => self.permit(vec![address.into()]),
            Host::Ipv6(address) => self.permit(vec![address.into()]),
            Host::Domain(name) => Box::pin(self.look_up(name)).await,
        }
    }

    /// For the client when it connects, after [`Self::addresses`] let the request pass.
    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, NoReply> {
        // No name server is asked where this machine is.
        if self.loopback && (name == "localhost" || name.ends_with(".localhost")) {
            return Ok(LOOPBACK.to_vec());
        }
        self.look_up(name).await
    }

    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, NoReply> {
        let found = self.resolver.addresses(name).await.map_err(|error| {
            tracing::debug!(%error, name, "cannot look up where a request is to go");
            NoReply::NoNameServer
        })?;
        if found.is_empty() { Err(NoReply::NoSuchHost) } else { self.permit(found) }
    }

    /// One bad IP address refuses all: a name server must not choose which of them is taken.
    fn permit(&self, addresses: Vec<IpAddr>) -> Result<Vec<IpAddr>, NoReply> {
        let is_bad = |address: &&IpAddr| !is_public(**address) && !special::is_in(&self.networks, **address);
        match addresses.iter().find(is_bad) {
            Some(address) => Err(NoReply::Inside(*address)),
            None => Ok(addresses),
        }
    }
}

const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// The certificates in a file, each of which could be trusted.
fn read_authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, Box<dyn Error>> {
    let found = CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>()?;
    let mut trusted = RootCertStore::empty();
    for certificate in &found {
        trusted.add(certificate.clone())?;
    }
    if found.is_empty() { Err("there is no certificate in it".into()) } else { Ok(found) }
}

/// The failure by its innermost cause. Nothing in it names the URL, which may hold a user's secret.
fn broken(error: &(dyn Error + 'static)) -> NoReply {
    let mut cause = error;
    loop {
        if let Some(ours) = cause.downcast_ref::<NoReply>() {
            return ours.clone();
        }
        match cause.source() {
            Some(deeper) => cause = deeper,
            None => return NoReply::Broken(cause.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_requested_as_it_is_written_or_refused() {
        for (good, requested) in [
            ("https://example.com", "https://example.com/"),
            ("https://Example.COM:443/a?b=c%20d", "https://example.com/a?b=c%20d"),
            ("http://127.0.0.1:8080/hook", "http://127.0.0.1:8080/hook"),
            ("https://[2001:db8::1]/", "https://[2001:db8::1]/"),
            ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/"),
            ("https://example.com/a@b", "https://example.com/a@b"),
        ] {
            assert_eq!(endpoint(good).map(String::from), Ok(requested.to_owned()), "{good}");
        }
        for bad in [
            "https://93.184.216.34\\@127.0.0.1/",
            "https:\\\\example.com/",
            "https:/example.com/",
            "https:example.com",
            "https:///example.com/",
            "https://@example.com/",
            "https://user@example.com/",
            "https://user:pw@example.com/",
            "https://:@example.com/",
            "https://example.com/#",
            "https://example.com/#x",
            "https://example.com#@evil.example/",
            "https://exa\tmple.com/",
            "https://example.com/a\nb",
            " https://example.com/",
            "https://example.com/\u{0}",
            "https://example.com/a b",
            "https://ex%61mple.com/",
            "https://\u{ff45}xample.com/",
            "https://b\u{fc}cher.example/",
            "https://example.com/a/../b",
            "https://example.com/%2e%2e/b",
            "https://example.com/./b",
            "https://example.com/\u{fc}",
            "https://127.1/",
            "https://0x5db8d822/",
            "https://1572395042/",
            "https://[2001:DB8:0::1]/",
            "https://example.com:0443/",
            "https://example.com:0/",
            "https://example.com?x",
            "ftp://example.com/",
            "javascript:alert(1)",
            "example.com",
            "",
        ] {
            assert!(endpoint(bad).is_err_and(|why| why.is_refusal()), "{bad}");
        }
    }

    #[test]
    fn a_host_has_one_spelling() {
        for same in ["https://example.com/", "https://EXAMPLE.com./x", "https://example.com:8443/"] {
            assert_eq!(host_of(&Url::parse(same).unwrap()), "example.com");
        }
    }
}
