//! Settings: `janua.toml`, overridden by `JANUA_*` variables, overridden by flags.
//!
//! Each setting is one row of a table: its name, its type, its default and what it does. The file's key, the variable's
//! name, the reference that `janua config` prints and every error message come out of that row, which is why these are
//! tables of our own and not a generic loader: a loader cannot say which variable was wrong. The table below holds what
//! every installation has. A feature has a table beside its code, a [`Section`], and lists it in its `Part`.
mod effective;
mod parse;
mod section;

use std::{
    any::type_name,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

pub use ipnet::IpNet;
use url::{Host, Url};

use crate::{crypto::Secret, settings};
pub use effective::Effective;
pub use parse::{Origin, Setting, Switch};
use section::Source;
pub use section::{Described, Given, Listed, Section, Sections};

pub const PREFIX: &str = "JANUA_";

settings! {
    /// Every setting of the ground, with its default where nothing was said, and the sections of features.
    pub struct Config + sections: Sections {
        /// The IP address and port that the server listens on.
        listen: SocketAddr = "127.0.0.1:8080";
        /// The URL at which users and apps reach the service; links, cookies and tokens contain it.
        /// Empty: http:// and `listen`.
        base_url: Option<Url> = "";
        /// The folder of the embedded database, the keys, the outbox and uploaded files.
        data_dir: PathBuf = "./data";
        /// `sqlite:PATH` or `postgres://user:password@host/database`, several hosts with commas.
        /// Empty: SQLite in the data folder.
        database_url: Option<Secret> = "";
        /// The maximum number of connections to PostgreSQL, per node.
        database_connections: usize = "16";
        /// 64 hexadecimal characters: the key that encrypts secrets in the database.
        /// Empty: read from `master.key` in the data folder, which is created at the first start.
        master_key: Option<Secret> = "";
        /// IP addresses or networks of the proxies in front of the server; X-Forwarded-For is accepted from these only.
        trusted_proxies: Vec<IpNet> = "";
        /// Other origins whose pages may call the API with cookies, besides the base URL.
        allowed_origins: Vec<Origin> = "";
        /// `off` disables rate limits, for tests and benchmarks.
        rate_limits: Switch = "on";
        /// The maximum number of requests per minute from one IPv4 address or IPv6 /64.
        rate_limit_per_minute: u32 = "1200";
        /// A bearer token for /metrics. Empty: only this machine can read them.
        metrics_token: Option<Secret> = "";
        /// The maximum duration of a request.
        request_timeout: Duration = "30s";
        /// How long a client may take to send headers, keep a connection idle, or not read an answer.
        client_timeout: Duration = "30s";
        /// How long the server still accepts requests after SIGTERM, while /health answers 503. With several nodes behind a
        /// proxy: longer than the proxy takes to notice.
        leave_delay: Duration = "0s";
        /// How long running requests, and then running jobs, may continue after SIGTERM.
        drain_timeout: Duration = "10s";
        /// The maximum number of open connections.
        max_connections: usize = "20000";
        /// The maximum number of concurrent requests; further ones are answered with 503 immediately.
        max_in_flight: usize = "2048";
        /// The maximum number of concurrent background jobs, per node.
        workers: usize = "8";
        /// The log level, or directives such as `info,kernel::jobs=debug`.
        log: String = "info";
        /// `text`, `json`, or `auto`: text on a terminal, JSON otherwise.
        log_format: LogFormat = "auto";
        /// Which requests get a line in the log: `off`, `errors` (status 400 and above) or `all`. Lines have the target `access`.
        log_requests: LogRequests = "off";
        /// `smtp://user:password@host:587` (STARTTLS) or `smtps://…` (TLS from the start).
        /// Empty: mails are written to `outbox/` in the data folder.
        smtp_url: Option<Secret> = "";
        /// The URL of a text message service with Twilio's API, such as `https://api.twilio.com`.
        /// Empty: messages are written to `outbox/` in the data folder.
        sms_url: Option<Url> = "";
        /// The account of the text message service.
        sms_account: Option<Secret> = "";
        /// The token of the text message service.
        sms_token: Option<Secret> = "";
        /// The sender of text messages: a phone number or a name.
        sms_from: String = "";
        /// The name servers for domains and hosts that users name, such as `9.9.9.9:53`.
        /// Empty: the system's.
        dns_servers: Vec<SocketAddr> = "";
        /// A PEM file with further certificate authorities for requests to URLs that users chose.
        outgoing_ca: Option<PathBuf> = "";
        /// The URL of an S3-compatible server for uploaded files, such as `https://s3.eu-central-1.amazonaws.com`.
        /// Empty: they are files in `objects/` in the data folder.
        s3_url: Option<Url> = "";
        /// The bucket; it can be private.
        s3_bucket: String = "";
        /// The region of the bucket; most self-hosted servers ignore it.
        s3_region: String = "us-east-1";
        /// The access key; it needs to read, write and delete objects in the bucket.
        s3_access_key: Option<Secret> = "";
        /// The secret of the access key.
        s3_secret_key: Option<Secret> = "";
        /// The public URL of the bucket, such as a CDN. Empty: browsers read pictures through this server.
        s3_public_url: Option<Url> = "";
        /// `on` for server/bucket/object, `off` for bucket.server/object.
        s3_path_style: Switch = "on";
        /// The sender of mails.
        mail_from: String = "Janua <no-reply@localhost>";
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Auto,
    Text,
    Json,
}

/// Which requests the access log lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogRequests {
    Off,
    /// Status 400 and above.
    Errors,
    All,
}

/// All errors in the settings, a line each.
#[derive(Debug)]
pub struct ConfigError(Vec<String>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.join("\n"))
    }
}
impl std::error::Error for ConfigError {}

impl Config {
    /// `file` is the text of `janua.toml`; `variables` are all of the environment; `flags` are names and values. All
    /// errors are reported together.
    pub fn load(
        file: Option<&str>,
        variables: impl IntoIterator<Item = (String, String)>,
        flags: impl IntoIterator<Item = (String, String)>,
        sections: &[Listed],
    ) -> Result<Self, ConfigError> {
        Self::load_with_sources(file, variables, flags, sections).map(|(config, _)| config)
    }

    /// As [`load`](Self::load); also answers the value in effect of every setting and its source.
    pub fn load_with_sources(
        file: Option<&str>,
        variables: impl IntoIterator<Item = (String, String)>,
        flags: impl IntoIterator<Item = (String, String)>,
        sections: &[Listed],
    ) -> Result<(Self, Vec<Effective>), ConfigError> {
        let mut given = Given::default();
        for (name, text) in parse::file(file.unwrap_or_default()).map_err(|e| ConfigError(vec![e]))? {
            given.put(name, text, Source::File);
        }
        for (name, text) in variables {
            if sections.iter().any(|section| section.bare.contains(&name.as_str())) {
                given.put(name.to_lowercase(), text, Source::BareVariable);
            } else if let Some(name) = name.strip_prefix(PREFIX) {
                given.put(name.to_lowercase(), text, Source::Variable);
            }
        }
        for (name, text) in flags {
            given.put(name, text, Source::Flag);
        }
        let (config, mut found) = (Self::read(&mut given), Sections::default());
        found.are_complete = !sections.is_empty();
        for section in sections {
            (section.read)(&mut given, &mut found);
        }
        let (mut effective, wrong) = given.finish(&Self::reference(sections));
        match config {
            Some(config) if wrong.is_empty() => {
                config.fits_together()?;
                effective::derive(&mut effective, &config);
                Ok((Self { sections: found, ..config }, effective))
            }
            _ => Err(ConfigError(wrong)),
        }
    }

    /// All settings with their descriptions, for `janua config`.
    pub fn reference(sections: &[Listed]) -> Vec<&'static Described> {
        let features = sections.iter().flat_map(|section| section.reference);
        Self::REFERENCE.iter().chain(features).collect()
    }

    /// The settings of a feature; their defaults in tests that set none.
    pub fn of<T: Section>(&self) -> Arc<T> {
        self.sections.get().unwrap_or_else(|| {
            let may_be_missing = !self.sections.are_complete;
            debug_assert!(may_be_missing, "{} is in the `settings` of no `PART`: it cannot be set", type_name::<T>());
            Arc::new(T::defaults())
        })
    }

    /// Changes the settings of a feature; for tests.
    pub fn change<T: Section>(&mut self, change: impl FnOnce(&mut T)) {
        let mut section = T::clone(&self.of::<T>());
        change(&mut section);
        self.sections.put(section);
    }

    /// Returns the configuration with settings of a feature changed; for tests.
    #[must_use]
    pub fn with<T: Section>(mut self, change: impl FnOnce(&mut T)) -> Self {
        self.change(change);
        self
    }

    /// Checks rules that involve several settings.
    fn fits_together(&self) -> Result<(), ConfigError> {
        let mut wrong = Vec::new();
        if let Some(url) = &self.base_url {
            if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
                wrong.push("base_url: must start with http:// or https://".to_owned());
            }
            if url.path() != "/" || url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() {
                wrong.push("base_url: must be an origin alone, such as https://id.example.com".to_owned());
            }
        }
        for (name, number) in [
            ("database_connections", self.database_connections),
            ("max_connections", self.max_connections),
            ("max_in_flight", self.max_in_flight),
            ("workers", self.workers),
            ("rate_limit_per_minute", self.rate_limit_per_minute as usize),
        ] {
            if number == 0 {
                wrong.push(format!("{name}: must be at least 1"));
            }
        }
        for (name, length) in [("request_timeout", self.request_timeout), ("client_timeout", self.client_timeout)] {
            if length.is_zero() {
                wrong.push(format!("{name}: must be longer than nothing"));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(ConfigError(wrong)) }
    }

    /// The issuer and the start of every link, without a slash at its end.
    pub fn base_url(&self) -> String {
        if let Some(url) = &self.base_url {
            return url.origin().ascii_serialization();
        }
        let (ip, port) = (self.listen.ip(), self.listen.port());
        if ip.is_loopback() || ip.is_unspecified() {
            format!("http://localhost:{port}")
        } else {
            format!("http://{}", self.listen)
        }
    }

    pub fn is_https(&self) -> bool {
        self.base_url.as_ref().is_some_and(|url| url.scheme() == "https")
    }

    /// Whether browsers treat the base URL as a secure context: https, or localhost.
    pub fn is_trusted_place(&self) -> bool {
        self.is_https() || self.has_loopback_url()
    }

    /// Whether the base URL leads to the machine it is read on: for development.
    pub fn has_loopback_url(&self) -> bool {
        Url::parse(&self.base_url()).is_ok_and(|url| is_loopback(&url))
    }

    /// Whether only programs on this machine reach the server. The base URL alone does not say so, because it may be
    /// wrong: the server must listen on loopback too, and no proxy may stand in front of it.
    pub fn is_local(&self) -> bool {
        self.has_loopback_url() && self.listen.ip().is_loopback() && self.trusted_proxies.is_empty()
    }

    pub fn database_url(&self) -> Secret {
        let embedded = || format!("sqlite:{}", self.data_dir.join("janua.db").display()).into();
        self.database_url.clone().unwrap_or_else(embedded)
    }

    /// The defaults, listening on a port the system chooses.
    pub fn for_tests() -> Self {
        #[expect(clippy::expect_used, reason = "the defaults are checked by a test")]
        let defaults = Self::load(None, [], [], &[]).expect("the defaults are right");
        Self { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..defaults }
    }
}

/// Whether a URL leads to the machine it is read on, by its host alone: a name that a name server sends there does not.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn flags_win_over_variables_and_variables_over_the_file() {
        let file = "listen = \"127.0.0.1:1\"\nworkers = 1\ntrusted_proxies = [\"10.0.0.0/8\", \"::1\"]";
        let variables = [pair("JANUA_WORKERS", "2"), pair("JANUA_LOG", "debug"), pair("HOME", "/root")];
        let config = Config::load(Some(file), variables, [pair("log", "warn")], &[]).unwrap();
        assert_eq!((config.listen.port(), config.workers, config.log.as_str()), (1, 2, "warn"));
        assert_eq!(config.trusted_proxies.len(), 2);
        assert_eq!(config.base_url(), "http://localhost:1");
    }

    #[test]
    fn everything_wrong_is_said_at_once_by_the_name_it_was_given_under() {
        let variables =
            [pair("JANUA_LISTN", "x"), pair("JANUA_WORKERS", "many"), pair("JANUA_REQUEST_TIMEOUT", "1x")];
        let said = Config::load(Some("colour = \"red\""), variables, [pair("log_format", "xml")], &[])
            .unwrap_err()
            .to_string();
        for part in [
            "JANUA_LISTN: there is no such setting; did you mean JANUA_LISTEN?",
            "JANUA_WORKERS: must be a whole number",
            "JANUA_REQUEST_TIMEOUT: must be a length of time such as 30s",
            "janua.toml: colour: there is no such setting",
            "--set log_format: must be auto, text or json",
        ] {
            assert!(said.contains(part), "{part}\nis not in\n{said}");
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        for (name, value) in [("base_url", "ftp://x"), ("base_url", "https://x/path"), ("workers", "0")] {
            let said = Config::load(None, [], [pair(name, value)], &[]).unwrap_err().to_string();
            assert!(said.contains(name), "{said}");
        }
        assert!(Config::load(Some("listen = {"), [], [], &[]).unwrap_err().to_string().starts_with("janua.toml"));
    }

    #[test]
    fn a_secret_setting_is_never_printed() {
        let config = Config::load(None, [], [pair("database_url", "postgres://u:hunter2@h/d")], &[]).unwrap();
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn a_server_is_local_only_if_nobody_else_reaches_it() {
        let load = |pairs: &[(&str, &str)]| {
            let flags = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Config::load(None, [], flags, &[]).unwrap()
        };
        for local in [
            &[][..],
            &[("base_url", "http://localhost:3000")],
            &[("base_url", "http://127.0.0.1:8080"), ("listen", "127.0.0.1:8080")],
            &[("base_url", "http://id.localhost"), ("listen", "[::1]:8080")],
        ] {
            assert!(load(local).is_local(), "{local:?}");
        }
        for public in [
            &[("listen", "0.0.0.0:8080")][..],
            &[("base_url", "http://localhost:8080"), ("listen", "0.0.0.0:8080")],
            &[("base_url", "http://localhost:8080"), ("listen", "[::]:8080")],
            &[("base_url", "http://localhost:8080"), ("listen", "10.0.0.1:8080")],
            &[("base_url", "http://localhost:8080"), ("trusted_proxies", "127.0.0.1")],
            &[("base_url", "https://id.example.com")],
            &[("base_url", "http://localhost.example.com")],
        ] {
            assert!(!load(public).is_local(), "{public:?}");
        }
    }
}
