//! Settings: `janua.toml`, overridden by `JANUA_*` variables, overridden by flags.
//!
//! Each setting is one row of a table: its name, its type, its default and what it does. The file's key, the variable's
//! name, the reference that `janua config` prints and every error message come out of that row, which is why these are
//! tables of our own and not a generic loader: a loader cannot say which variable was wrong. The table below holds what
//! every installation has. A feature has a table beside its code, a [`Section`], and lists it in its `Part`.
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
pub use parse::{Origin, Setting, Switch};
use section::Source;
pub use section::{Described, Given, Listed, Section, Sections};

pub const PREFIX: &str = "JANUA_";

settings! {
    /// Every setting of the ground, with its default where nothing was said, and the sections of features.
    pub struct Config + sections: Sections {
        /// Where the server listens.
        listen: SocketAddr = "127.0.0.1:8080";
        /// The address people and apps reach the service at; links, cookies and tokens carry it.
        /// Left empty: http:// and the address it listens on.
        base_url: Option<Url> = "";
        /// Where the embedded database, the keys, the outbox and uploaded pictures live.
        data_dir: PathBuf = "./data";
        /// `sqlite:PATH` or `postgres://user:password@host/database`, several hosts with commas.
        /// Left empty: SQLite in the data folder.
        database_url: Option<Secret> = "";
        /// How many connections to PostgreSQL a node opens at most.
        database_connections: usize = "16";
        /// 64 hexadecimal characters that seal what the server must read back.
        /// Left empty: kept in `master.key` in the data folder, made at first start.
        master_key: Option<Secret> = "";
        /// Networks of the proxies in front of the server; only their X-Forwarded-For is believed.
        trusted_proxies: Vec<IpNet> = "";
        /// Other origins whose pages may call the API with cookies, beside the base URL.
        allowed_origins: Vec<Origin> = "";
        /// `off` lets tests and benchmarks call as often as they like.
        rate_limits: Switch = "on";
        /// How many requests a minute one address may make.
        rate_limit_per_minute: u32 = "1200";
        /// A bearer token for /metrics; without it only this machine may read them.
        metrics_token: Option<Secret> = "";
        /// How long a request may take before it is stopped.
        request_timeout: Duration = "30s";
        /// How long a client may take to send its headers, sit on an idle connection, or leave an answer lying.
        client_timeout: Duration = "30s";
        /// How long the server goes on taking requests after it was told to stop, while /health sends them elsewhere. Behind
        /// a proxy with several nodes, longer than the proxy takes to notice.
        leave_delay: Duration = "0s";
        /// How long requests under way, and then jobs under way, may go on after the server was told to stop.
        drain_timeout: Duration = "10s";
        /// How many connections may be open at once.
        max_connections: usize = "20000";
        /// How many requests are worked on at once; past that the server answers 503 at once.
        max_in_flight: usize = "2048";
        /// How many jobs a node works on at once.
        workers: usize = "8";
        /// What is logged: a level, or directives such as `info,kernel::jobs=debug`.
        log: String = "info";
        /// `text` for people, `json` for machines, `auto` to choose by whether the output is a terminal.
        log_format: LogFormat = "auto";
        /// `smtp://user:password@host:587` (STARTTLS) or `smtps://…` (TLS from the start).
        /// Left empty: mails are written to `outbox/` in the data folder.
        smtp_url: Option<Secret> = "";
        /// The address of a service that takes text messages as Twilio does, such as `https://api.twilio.com`.
        /// Left empty: messages are written to `outbox/` in the data folder.
        sms_url: Option<Url> = "";
        /// The account at that service.
        sms_account: Option<Secret> = "";
        /// Its token.
        sms_token: Option<Secret> = "";
        /// The number or name text messages come from.
        sms_from: String = "";
        /// The name servers that are asked for the proof of a domain and where a webhook's name leads, such as `9.9.9.9:53`.
        /// Left empty: the system's.
        dns_servers: Vec<SocketAddr> = "";
        /// A file with certificates (PEM) of authorities that are trusted beside the system's when the server calls addresses
        /// that others chose: webhooks, and what OAuth clients say about themselves.
        outgoing_ca: Option<PathBuf> = "";
        /// The address of an S3-compatible server that keeps pictures, such as `https://s3.eu-central-1.amazonaws.com`.
        /// Left empty: they are files in `objects/` in the data folder.
        s3_url: Option<Url> = "";
        /// The bucket at that server; nobody else needs to be able to read it.
        s3_bucket: String = "";
        /// The region the bucket is in; servers of your own rarely care.
        s3_region: String = "us-east-1";
        /// The name of a key that may read, write and delete in the bucket.
        s3_access_key: Option<Secret> = "";
        /// Its secret.
        s3_secret_key: Option<Secret> = "";
        /// Where browsers read the bucket, such as the address of a delivery network. Left empty: through this server.
        s3_public_url: Option<Url> = "";
        /// `on` for server/bucket/object, `off` for bucket.server/object.
        s3_path_style: Switch = "on";
        /// Who mails come from.
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
        let mut given = Given::default();
        for (name, text) in parse::file(file.unwrap_or_default()).map_err(|e| ConfigError(vec![e]))? {
            given.put(name, text, Source::File);
        }
        for (name, text) in variables {
            let is_bare = sections.iter().any(|section| section.bare.contains(&name.as_str()));
            if let Some(name) = if is_bare { Some(name.as_str()) } else { name.strip_prefix(PREFIX) } {
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
        let wrong = given.wrong(&Self::reference(sections));
        match config {
            Some(config) if wrong.is_empty() => {
                config.fits_together()?;
                Ok(Self { sections: found, ..config })
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
        let is_here = |url: Url| match url.host() {
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback(),
            None => false,
        };
        self.is_https() || Url::parse(&self.base_url()).is_ok_and(is_here)
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
}
