//! The settings of domains, certificates and the registrar.
use std::{net::SocketAddr, path::PathBuf, time::Duration};

use kernel::{config::Setting, crypto::Secret};
use url::Url;

kernel::settings! {
    /// Domains, certificates and the registrar.
    pub struct Settings {
        /// The IP address and port of the edge over TLS. Empty: a proxy has it.
        edge_tls_listen: Option<SocketAddr> = "";
        /// The port at which a domain is asked whether it leads here; 80 unless in tests.
        edge_probe_port: Port = "80";
        /// The directory URL of the certificate authority for domains of apps, such as
        /// `https://acme-v02.api.letsencrypt.org/directory`. `off`: a proxy in front has the certificates.
        acme: Directory = "off";
        /// Where the certificate authority writes to; optional.
        acme_email: String = "";
        /// A PEM file with the root of the authority's own certificate, for private authorities and tests.
        acme_ca: Option<PathBuf> = "";
        /// The name of the authority in CAA records. Empty: known for Let's Encrypt, otherwise not checked.
        acme_caa: String = "";
        /// The key identifier of an external account, if the authority asks for one.
        acme_eab_kid: String = "";
        /// The key of the external account, in base64url.
        acme_eab_key: Option<Secret> = "";
        /// A profile of the authority, such as `tlsserver` or `shortlived`. Empty: its default.
        acme_profile: String = "";
        /// How certificates are validated: `http-01` (port 80) or `tls-alpn-01` (port 443).
        acme_challenge: Challenge = "http-01";
        /// Who answers for `edge_domain` in DNS, so that a certificate of `*.edge_domain` can be ordered: `rfc2136` (a name
        /// server that takes updates, such as BIND, Knot or PowerDNS), `route53` (a zone at Amazon Route 53), or `off`.
        acme_dns: DnsDriver = "off";
        /// The zone: its name, such as `example.net`, or at Route 53 its ID, such as `Z0123456789ABC`.
        acme_dns_zone: String = "";
        /// The IP address and port of the name server that takes updates of the zone, such as `192.0.2.53:53`.
        acme_dns_server: Option<SocketAddr> = "";
        /// The name of the key (TSIG) that signs updates.
        acme_dns_key_name: String = "";
        /// Its algorithm: `hmac-sha256`, `hmac-sha384` or `hmac-sha512`.
        acme_dns_algorithm: Tsig = "hmac-sha256";
        /// How long the zone's other name servers may take to get an updated record.
        acme_dns_wait: Duration = "5s";
        /// The URL of the zone's API at Route 53. Empty: Amazon's.
        acme_dns_url: Option<Url> = "";
        /// The access key of Route 53 that may change records of the zone.
        acme_dns_access_key: Option<Secret> = "";
        /// The secret of the access key, or of the key that signs updates, in base64.
        acme_dns_secret_key: Option<Secret> = "";
        /// A PEM file with the certificate chain of `*.edge_domain`, read again when it changes.
        edge_certificate: Option<PathBuf> = "";
        /// A PEM file with its private key.
        edge_key: Option<PathBuf> = "";
        /// Where TLS of the API itself comes from: `off` (a proxy), `files` or `acme`.
        tls: TlsSource = "off";
        /// The IP address and port of the API over TLS.
        tls_listen: SocketAddr = "0.0.0.0:443";
        /// A PEM file with the certificate chain of the API, read again when it changes.
        tls_certificate: Option<PathBuf> = "";
        /// A PEM file with the private key of the API.
        tls_key: Option<PathBuf> = "";
        /// How many registered domains may ask for passkeys of this service; browsers accept five at most. 0: none.
        passkey_domains: PasskeyDomains = "5";
        /// `sandbox`: domains are registered in play, nothing leaves the machine. `route53`: by Amazon Route 53 Domains.
        registrar: RegistrarKind = "sandbox";
        /// The URL of the registrar's API. Empty: Amazon's.
        registrar_url: Option<Url> = "";
        /// The region in requests to the registrar.
        registrar_region: String = "us-east-1";
        /// The access key of the registrar's API.
        registrar_access_key: Option<Secret> = "";
        /// The secret of the access key.
        registrar_secret_key: Option<Secret> = "";
    }
}

impl Settings {
    /// Whether certificates of domains are ordered here.
    pub fn orders_certificates(&self) -> bool {
        self.acme.0.is_some()
    }

    /// The authority's name in CAA records; empty when it is not known.
    pub fn caa_identity(&self) -> String {
        if !self.acme_caa.is_empty() {
            return self.acme_caa.clone();
        }
        let host = self.acme.0.as_ref().and_then(Url::host_str).unwrap_or_default();
        if host.ends_with("letsencrypt.org") { "letsencrypt.org".into() } else { String::new() }
    }
}

/// A port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port(pub u16);

impl Setting for Port {
    fn parse(text: &str) -> Result<Self, String> {
        text.trim().parse().ok().filter(|port| *port > 0).map(Self).ok_or_else(|| "must be a port such as 80".into())
    }
}

/// How many registered domains may ask for passkeys of this service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PasskeyDomains(pub usize);

impl Setting for PasskeyDomains {
    fn parse(text: &str) -> Result<Self, String> {
        text.trim()
            .parse()
            .ok()
            .filter(|most| *most <= 5)
            .map(Self)
            .ok_or_else(|| "must be a number from 0 to 5".into())
    }
}

/// The directory of a certificate authority, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory(pub Option<Url>);

impl Setting for Directory {
    fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "off" | "" => Ok(Self(None)),
            "letsencrypt" => Self::parse("https://acme-v02.api.letsencrypt.org/directory"),
            text => match Url::parse(text) {
                Ok(url) if url.scheme() == "https" => Ok(Self(Some(url))),
                _ => Err("must be off, letsencrypt or the https URL of a directory".into()),
            },
        }
    }
}

macro_rules! choices { ($($(#[$about:meta])* $type:ident { $($variant:ident = $word:literal),+ })+) => { $(
    $(#[$about])*
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum $type { $($variant),+ }

    impl Setting for $type {
        fn parse(text: &str) -> Result<Self, String> {
            match text.trim() {
                $($word => Ok(Self::$variant),)+
                _ => Err(concat!("must be one of", $(" ", $word),+).into()),
            }
        }
    }
)+ } }
choices! {
    /// How a certificate authority checks a name.
    Challenge { Http01 = "http-01", TlsAlpn01 = "tls-alpn-01" }
    /// Who answers for the edge's own domain in DNS.
    DnsDriver { Off = "off", Route53 = "route53", Rfc2136 = "rfc2136" }
    /// How updates of a zone are signed.
    Tsig { Sha256 = "hmac-sha256", Sha384 = "hmac-sha384", Sha512 = "hmac-sha512" }
    /// Where TLS of the API comes from.
    TlsSource { Off = "off", Files = "files", Acme = "acme" }
    /// Who registers domains.
    RegistrarKind { Sandbox = "sandbox", Route53 = "route53" }
}
