//! What `janua doctor` looks at here: the edge's name in DNS, the certificate authority, certificates that fail or expire,
//! domains of apps that do not lead here, the registrar and the code host.
use std::time::Duration;

use db::{Db, params, row};
use kernel::{
    clock::{Clock, Timestamp},
    config::Config,
    ports::dns::Resolver,
};
use url::Url;

use crate::settings::{DnsDriver, RegistrarKind, Settings, TlsSource};

const PATIENCE: Duration = Duration::from_secs(10);
/// Certificates of a clock that is further off look expired, or not valid yet.
const CLOCK_TOLERANCE: Duration = Duration::from_mins(5);

/// One finding: fine, worth a thought, or wrong. The last two say what to do.
#[derive(Debug)]
pub enum Finding {
    Fine(String),
    Odd(String),
    Wrong(String),
}
use Finding::{Fine, Odd, Wrong};

pub async fn run(config: &Config, db: Option<&Db>) -> Vec<(&'static str, Finding)> {
    let settings = config.of::<Settings>();
    let mut findings = vec![
        ("edge", edge(config).await),
        ("certificate authority", authority(&settings).await),
        ("tls", tls(config, &settings)),
        ("wildcard", wildcard(config, &settings)),
        ("registrar", registrar(&settings)),
        ("code host", crate::codehost::doctor::check(config).await),
    ];
    if let Some(db) = db {
        findings.push(("certificates", certificates(db).await));
        findings.push(("domains", domains(config, db).await));
    }
    findings
}

async fn edge(config: &Config) -> Finding {
    let settings = config.of::<crate::edge::Settings>();
    let name = &settings.edge_domain;
    if name == "localhost" || name.ends_with(".localhost") {
        return Fine("sites are served below localhost: for development on this machine".into());
    }
    let base =
        Url::parse(&config.base_url()).ok().and_then(|url| url.domain().map(str::to_owned)).unwrap_or_default();
    if psl::domain_str(&base).is_some_and(|registered| psl::domain_str(name) == Some(registered)) {
        return Odd(format!(
            "sites below {name} share a registered domain with the base URL: their pages can set cookies for it. Use another \
             domain, and ask for it to be put on the Public Suffix List"
        ));
    }
    // Any name below it must lead here.
    let below = format!("janua-doctor.{name}");
    match Resolver::new(&config.dns_servers).addresses(&below).await {
        Err(error) => Wrong(format!("cannot look up {below}: {error}")),
        Ok(found) if found.is_empty() => Wrong(format!(
            "{below} leads nowhere: add a wildcard record *.{name} with the IP addresses of this server"
        )),
        Ok(found) => {
            let wanted = &settings.edge_addresses;
            let is_other = !wanted.is_empty() && found.iter().any(|address| !wanted.contains(address));
            let said = found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            if is_other {
                Wrong(format!("*.{name} leads to {said}, which is not what edge_addresses says"))
            } else {
                Fine(format!("*.{name} leads to {said}"))
            }
        }
    }
}

async fn authority(settings: &Settings) -> Finding {
    let Some(directory) = &settings.acme.0 else {
        return Fine("none; a proxy in front has the certificates of domains".into());
    };
    let mut client = reqwest::Client::builder().timeout(PATIENCE).no_proxy();
    if let Some(file) = &settings.acme_ca {
        match std::fs::read(file).map(|pem| reqwest::Certificate::from_pem_bundle(&pem)) {
            Ok(Ok(roots)) => client = client.tls_certs_only(roots),
            Ok(Err(error)) => return Wrong(format!("acme_ca: {}: {error}", file.display())),
            Err(error) => return Wrong(format!("acme_ca: {}: {error}", file.display())),
        }
    }
    let answer = match client.build() {
        Ok(client) => client.get(directory.clone()).send().await,
        Err(error) => return Wrong(error.to_string()),
    };
    match answer {
        Err(error) => Wrong(format!("{directory} does not answer: {}", error.without_url())),
        Ok(answer) if !answer.status().is_success() => Wrong(format!("{directory} answers {}", answer.status())),
        Ok(answer) => {
            let date = answer.headers().get("date").and_then(|date| date.to_str().ok()).map(str::to_owned);
            let theirs = date.and_then(|date| jiff::fmt::rfc2822::parse(&date).ok());
            let (now, theirs) = (Clock::System.now(), theirs.map(|at| Timestamp(at.timestamp().as_millisecond())));
            match theirs.map(|theirs| now.since(theirs).max(theirs.since(now))) {
                Some(apart) if apart > CLOCK_TOLERANCE => {
                    Wrong(format!("its clock and ours are {apart:.0?} apart: run a time service (NTP)"))
                }
                _ => Fine(format!("{directory} answers")),
            }
        }
    }
}

fn tls(config: &Config, settings: &Settings) -> Finding {
    match settings.tls {
        TlsSource::Off if config.is_https() => Fine("ends at a proxy".into()),
        TlsSource::Off => Fine("off".into()),
        _ if !config.is_https() => Wrong("tls is on, but the base URL is not https://. Set JANUA_BASE_URL".into()),
        TlsSource::Acme if settings.acme.0.is_none() => {
            Wrong("tls=acme needs a certificate authority: set JANUA_ACME".into())
        }
        TlsSource::Acme
            if config.listen.port() != 80 && settings.acme_challenge == crate::settings::Challenge::Http01 =>
        {
            Odd(format!(
                "the certificate authority asks on port 80, and this server listens on {}. Set JANUA_LISTEN=0.0.0.0:80, lead port \
             80 here, or set JANUA_ACME_CHALLENGE=tls-alpn-01",
                config.listen
            ))
        }
        TlsSource::Acme => Fine(format!("ordered by itself; listens on {}", settings.tls_listen)),
        TlsSource::Files => Fine(format!("from files; listens on {}", settings.tls_listen)),
    }
}

/// Sites on the edge's own domain need one certificate with a wildcard, from files or by DNS.
fn wildcard(config: &Config, settings: &Settings) -> Finding {
    let edge = config.of::<crate::edge::Settings>();
    let is_public = crate::domains::host(&edge.edge_domain).is_some();
    match (settings.acme_dns, settings.edge_tls_listen) {
        _ if settings.edge_certificate.is_some() => Fine(format!("*.{} from files", edge.edge_domain)),
        (DnsDriver::Route53 | DnsDriver::Rfc2136, _) if settings.acme.0.is_none() => {
            Wrong("acme_dns needs a certificate authority: set JANUA_ACME".into())
        }
        (DnsDriver::Route53 | DnsDriver::Rfc2136, _) => Fine(format!("*.{} is ordered by itself", edge.edge_domain)),
        (DnsDriver::Off, Some(_)) if is_public => Odd(format!(
            "sites on *.{} have no certificate. Set JANUA_EDGE_CERTIFICATE and JANUA_EDGE_KEY, or JANUA_ACME_DNS",
            edge.edge_domain
        )),
        (DnsDriver::Off, _) => Fine("none needed".into()),
    }
}

fn registrar(settings: &Settings) -> Finding {
    match settings.registrar {
        RegistrarKind::Sandbox => Fine("sandbox: domains are registered in play".into()),
        RegistrarKind::Route53
            if settings.registrar_access_key.is_none() || settings.registrar_secret_key.is_none() =>
        {
            Wrong("route53 needs JANUA_REGISTRAR_ACCESS_KEY and JANUA_REGISTRAR_SECRET_KEY".into())
        }
        RegistrarKind::Route53 => Fine("Amazon Route 53 Domains".into()),
    }
}

struct Failing {
    name: String,
    error: Option<String>,
}
row!(Failing { name, error });

/// How many domains are looked up.
const MOST_LOOKED_UP: u32 = 50;

/// Looks up active domains of apps: each must lead here.
async fn domains(config: &Config, db: &Db) -> Finding {
    let sql = "SELECT domain FROM app_domain WHERE status = 'active' ORDER BY checked_at, id LIMIT $1";
    let Ok(active) = db.all::<(String,)>(sql, params![MOST_LOOKED_UP]).await else { return Fine("none yet".into()) };
    let sql = "SELECT domain FROM app_domain WHERE status = 'misconfigured' ORDER BY domain LIMIT 5";
    let lost = db.all::<(String,)>(sql, params![]).await.unwrap_or_default();
    let resolver = Resolver::new(&config.dns_servers);
    let ours = &config.of::<crate::edge::Settings>().edge_addresses;
    let mut astray: Vec<String> = lost.into_iter().map(|(name,)| format!("{name} leads elsewhere")).collect();
    for (name,) in &active {
        match resolver.addresses(name).await {
            Ok(found) if found.is_empty() => astray.push(format!("{name} leads nowhere")),
            Ok(found) if !ours.is_empty() && found.iter().any(|address| !ours.contains(address)) => {
                astray.push(format!("{name} leads elsewhere"));
            }
            Ok(_) => {}
            Err(error) => astray.push(format!("{name} cannot be looked up: {error}")),
        }
    }
    let count = active.len();
    if astray.is_empty() {
        return Fine(format!("{count} active"));
    }
    astray.truncate(5);
    Odd(format!("{count} active; {}. The console shows the records", astray.join("; ")))
}

async fn certificates(db: &Db) -> Finding {
    let now = Clock::System.now();
    let count = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM certificate WHERE not_after > $1";
    let Ok((live,)) = db.one::<(i64,)>(count, params![now]).await else {
        return Fine("none yet".into());
    };
    let expired = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM certificate WHERE chain IS NOT NULL AND not_after <= $1";
    if let Ok((expired @ 1..,)) = db.one::<(i64,)>(expired, params![now]).await {
        return Wrong(format!(
            "{live} valid, {expired} expired: see above whether the certificate authority answers"
        ));
    }
    let failing = "SELECT name, error FROM certificate WHERE error IS NOT NULL ORDER BY name LIMIT 5";
    match db.all::<Failing>(failing, params![]).await {
        Ok(failing) if !failing.is_empty() => {
            let said = |one: &Failing| format!("{} ({})", one.name, one.error.as_deref().unwrap_or_default());
            let said = failing.iter().map(said).collect::<Vec<_>>().join("; ");
            Odd(format!("{live} valid; the last order failed for {said}. The console shows what to do"))
        }
        _ => Fine(format!("{live} valid")),
    }
}
