//! `janua doctor`: checks everything an installation needs and says how to fix what is wrong.
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::ExitCode, time::Duration};

use db::{
    Db,
    migrate::{self, ALL, Version},
    params, sqlite_path,
};
use kernel::{
    clock::{Clock, Timestamp},
    config::{Config, Section as _},
    crypto::{MasterKey, Vault},
    entropy::Entropy,
    ports::{mail, objects, sms},
};

use crate::{Out, say, start};

/// Clocks this far apart make tokens look expired or not yet valid.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(5);
/// A commit slower than this makes every write slow.
const SLOW_COMMIT: Duration = Duration::from_millis(100);

/// Less free space than this is worth a thought; with less than the second one writes fail soon.
const LITTLE_SPACE: u64 = 2 * 1024 * MIB;
const NO_SPACE: u64 = 200 * MIB;
const MIB: u64 = 1024 * 1024;

/// One finding: fine, worth a thought, or wrong. The last two say what to do.
enum Finding {
    Fine(String),
    Odd(String),
    Wrong(String),
}
use Finding::{Fine, Odd, Wrong};

impl From<hosting::doctor::Finding> for Finding {
    fn from(finding: hosting::doctor::Finding) -> Self {
        match finding {
            hosting::doctor::Finding::Fine(text) => Fine(text),
            hosting::doctor::Finding::Odd(text) => Odd(text),
            hosting::doctor::Finding::Wrong(text) => Wrong(text),
        }
    }
}

pub async fn run(config: &Config) -> ExitCode {
    let mut findings = vec![("settings", Fine(format!("valid; the base URL is {}", config.base_url())))];
    findings.push(("listener", listener(config)));
    findings.push(("proxy", proxy(config)));
    findings.push(("operator", operator(config)));
    findings.extend(permissions(config).into_iter().map(|finding| ("permissions", finding)));
    findings.push(("disk", disk(&config.data_dir)));
    let mut hosting = vec![];
    match start::open(config).await {
        Err(error) => {
            findings.push(("database", Wrong(format!("{error:#}"))));
            hosting = hosting::doctor::run(config, None).await;
        }
        Ok(db) => {
            findings.push(("database", database(&db).await));
            findings.push(("schema", schema(&db).await));
            findings.push(("clock", clock(&db).await));
            findings.push(("master key", master_key(config, &db).await));
            hosting = hosting::doctor::run(config, Some(&db)).await;
            findings.push(("payments", payments(config, &db).await));
        }
    }
    findings.extend(hosting.into_iter().map(|(what, finding)| (what, Finding::from(finding))));
    findings.push(("mail", mail(config).await));
    findings.push(("text messages", text_messages(config)));
    findings.push(("pictures", pictures(config).await));
    findings.push(("providers", providers(config)));

    let mut wrong = 0;
    for (what, finding) in findings {
        let (mark, text) = match finding {
            Fine(text) => ("ok   ", text),
            Odd(text) => ("note ", text),
            Wrong(text) => {
                wrong += 1;
                ("WRONG", text)
            }
        };
        say(&format!("{mark} {what}: {text}"), Out::Plain);
    }
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Which processor takes payments, and whether it is heard of.
async fn payments(config: &Config, db: &Db) -> Finding {
    match commerce::commands::state(config, db).await {
        Ok(standing) if standing.is_odd => Odd(standing.says),
        Ok(standing) => Fine(standing.says),
        Err(wrong) => Wrong(wrong),
    }
}

/// Whether the installation is for others than its developer: its base URL is neither on this machine nor plain http.
fn is_production(config: &Config) -> bool {
    config.is_https() || !config.is_trusted_place()
}

fn listener(config: &Config) -> Finding {
    if config.is_https() || config.listen.ip().is_loopback() {
        Fine(format!("listens on {}", config.listen))
    } else {
        Odd(format!(
            "listens on {} with a plain http base URL: cookies and passwords can be read on the network. Put a proxy \
             with TLS in front and set JANUA_BASE_URL=https://…",
            config.listen
        ))
    }
}

/// TLS ends at a proxy. If the proxy is not named, all callers have its IP address.
fn proxy(config: &Config) -> Finding {
    let networks: Vec<String> = config.trusted_proxies.iter().map(ToString::to_string).collect();
    match (config.is_https(), networks.is_empty()) {
        (true, true) => Odd(
            "the base URL is https, but trusted_proxies is empty: rate limits, lockouts and the audit log see the IP \
             address of the proxy instead of the client's. Set JANUA_TRUSTED_PROXIES to the IP address of the proxy, \
             such as 127.0.0.1"
                .into(),
        ),
        (_, true) => Fine("none; clients connect directly".into()),
        (_, false) if config.trusted_proxies.iter().any(|net| net.prefix_len() == 0) => Wrong(
            "trusted_proxies contains every IP address, so any caller can claim any IP address. Name the IP addresses \
             of the proxies only"
                .into(),
        ),
        (_, false) => Fine(format!("X-Forwarded-For is accepted from {}", networks.join(", "))),
    }
}

/// The legal documents and security.txt name the operator.
fn operator(config: &Config) -> Finding {
    let (set, defaults) = (config.of::<site::Operator>(), site::Operator::defaults());
    let mut missing = Vec::new();
    if set.operator_name == defaults.operator_name {
        missing.push("JANUA_OPERATOR_NAME");
    }
    if set.operator_email == defaults.operator_email {
        missing.push("JANUA_OPERATOR_EMAIL");
    }
    if set.operator_address.is_empty() {
        missing.push("JANUA_OPERATOR_ADDRESS");
    }
    if missing.is_empty() {
        return Fine(format!("{} <{}>", set.operator_name, set.operator_email));
    }
    let advice = format!("the legal documents and security.txt have placeholders. Set {}", missing.join(", "));
    Odd(if is_production(config) { advice } else { format!("{advice} before others use this server") })
}

fn disk(folder: &Path) -> Finding {
    let stat = match rustix::fs::statvfs(folder) {
        Ok(stat) => stat,
        Err(error) => return Odd(format!("cannot read the free space of {}: {error}", folder.display())),
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let said = format!("{} MiB free in {}", free / MIB, folder.display());
    match free {
        free if free < NO_SPACE => {
            Wrong(format!("{said}: writes will fail soon. Free space, or move the folder to a larger disk"))
        }
        free if free < LITTLE_SPACE => Odd(format!("{said}. Free space before the disk is full; writes fail then")),
        _ => Fine(said),
    }
}

fn permissions(config: &Config) -> Vec<Finding> {
    let folder = &config.data_dir;
    if let Err(error) = start::make_folder(folder) {
        return vec![Wrong(format!("{error:#}. Choose another folder with JANUA_DATA_DIR"))];
    }
    let probe = folder.join(".doctor");
    if let Err(error) = fs::write(&probe, b"").and_then(|()| fs::remove_file(&probe)) {
        return vec![Wrong(format!(
            "cannot write in {}: {error}. Give it to the user that runs janua",
            folder.display()
        ))];
    }
    let mut found = vec![private(folder, 0o700)];
    for name in ["master.key", "janua.db"] {
        let path = folder.join(name);
        if path.exists() {
            found.push(private(&path, 0o600));
        }
    }
    found
}

fn private(path: &Path, mode: u32) -> Finding {
    match fs::metadata(path).map(|meta| meta.permissions().mode() & 0o777) {
        Ok(found) if found & 0o077 == 0 => Fine(format!("{} is its owner's alone", path.display())),
        Ok(found) => Wrong(format!("{0} can be read by others ({found:o}). Run: chmod {mode:o} {0}", path.display())),
        Err(error) => Wrong(format!("{}: {error}", path.display())),
    }
}

async fn database(db: &Db) -> Finding {
    if let Err(error) = db.ping(PATIENCE).await {
        return Wrong(format!("does not answer: {error}"));
    }
    let started = tokio::time::Instant::now();
    // Written for good and taken back: what every acknowledged request waits for.
    let outcome = async {
        db.exec("CREATE TABLE IF NOT EXISTS doctor_probe (id BIGINT PRIMARY KEY)", params![]).await?;
        db.exec("DROP TABLE doctor_probe", params![]).await
    };
    match outcome.await {
        Err(error) => Wrong(format!("cannot be written: {error}")),
        Ok(_) => {
            let commit = started.elapsed() / 2;
            let said = format!("{} answers; a durable commit takes about {commit:.1?}", db.engine());
            if commit > SLOW_COMMIT {
                Odd(format!("{said}, which is slow: put it on a faster disk"))
            } else {
                Fine(said)
            }
        }
    }
}

async fn schema(db: &Db) -> Finding {
    let known = ALL.last().map_or(0, |step| step.number);
    match migrate::version(db).await {
        Ok(Some(Version { number: found, .. })) if found == known => Fine(format!("version {found}, up to date")),
        Ok(Some(Version { number: found, .. })) if found > known => {
            Wrong(format!("version {found} is newer than this binary ({known}): run a newer janua"))
        }
        Ok(found) => Odd(format!(
            "version {} of {known}: `janua migrate` or the next start applies the rest",
            found.map_or(0, |found| found.number)
        )),
        Err(_) => Odd("nothing is there yet: `janua migrate` or the first start makes it".into()),
    }
}

/// The clock must agree with the database server's, and must not be behind what was written already.
async fn clock(db: &Db) -> Finding {
    let now = Clock::System.now();
    if db.engine() == "postgres" {
        let sql = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) AS now";
        if let Ok((theirs,)) = db.one::<(Timestamp,)>(sql, params![]).await {
            let apart = now.since(theirs).max(theirs.since(now));
            if apart > CLOCK_TOLERANCE {
                return Wrong(format!(
                    "{apart:.1?} away from the database server's clock: run a time service (NTP) on both"
                ));
            }
        }
    }
    let version = migrate::version(db).await.ok().flatten();
    match version.map(|version| Timestamp(version.applied_at)) {
        Some(newest) if newest > now.plus(CLOCK_TOLERANCE) => {
            Wrong(format!("it is {now} here, but the database was changed at {newest}: set the clock"))
        }
        _ => Fine(format!("it is {now}")),
    }
}

async fn master_key(config: &Config, db: &Db) -> Finding {
    // Looking must not make a key, nor tie the database to one.
    if !Vault::is_claimed(db).await.unwrap_or(false) {
        return Fine("made at the first start, or taken from JANUA_MASTER_KEY".into());
    }
    match start::vault(config, db).await {
        Ok(_) => Fine("opens this database".into()),
        Err(error) => Wrong(format!("{error:#}")),
    }
}

/// The master key signs addresses, and none is given out here: any will do.
async fn pictures(config: &Config) -> Finding {
    let vault = match MasterKey::parse(&Entropy::system().secret()) {
        Ok(any) => Vault::new(any),
        Err(error) => return Wrong(error.to_string()),
    };
    match objects::from_config(config, &vault, &Clock::System) {
        Err(wrong) => Wrong(wrong),
        Ok(objects) => match objects.check().await {
            Ok(()) if config.s3_url.is_none() && is_shared(config) => Odd(format!(
                "lie in {}, which other nodes on this database do not see; set JANUA_S3_URL if there are any",
                objects.describe()
            )),
            Ok(()) => Fine(format!("lie in {}", objects.describe())),
            Err(error) => Wrong(format!("{}: {error}. Check the JANUA_S3_ settings", objects.describe())),
        },
    }
}

fn is_shared(config: &Config) -> bool {
    sqlite_path(config.database_url().expose()).is_none()
}

/// Not tried: a message costs money.
fn text_messages(config: &Config) -> Finding {
    match sms::from_config(config) {
        Err(wrong) => Wrong(wrong),
        Ok(sms) if config.sms_url.is_none() => {
            Odd(format!("go to {}; set JANUA_SMS_URL to send them to people", sms.describe()))
        }
        Ok(sms) => Fine(format!("go to {}", sms.describe())),
    }
}

fn providers(config: &Config) -> Finding {
    match identity::providers(config) {
        Err(wrong) => Wrong(wrong),
        Ok(names) if names.is_empty() => Fine("none; people sign in with an account of this service".into()),
        Ok(names) => Fine(format!("people can sign in with {}", names.join(", "))),
    }
}

/// Relays and receivers refuse mail from a domain that is not the sender's.
fn sender(config: &Config) -> Option<String> {
    let email = config.mail_from.trim_end_matches('>').rsplit('<').next().unwrap_or_default();
    let domain = email.rsplit('@').next().unwrap_or_default().to_lowercase();
    if domain == "localhost" || !domain.contains('.') {
        return Some(format!("mail_from is {}. Set JANUA_MAIL_FROM to an email of your domain", config.mail_from));
    }
    let url = config.base_url();
    let host = url.split("://").nth(1)?.split(':').next()?.to_lowercase();
    let is_related = host == domain || host.ends_with(&format!(".{domain}")) || domain.ends_with(&format!(".{host}"));
    // The last two labels: mail.example.com and id.example.com belong together.
    let base = |name: &str| name.rsplit('.').take(2).map(str::to_owned).collect::<Vec<_>>();
    if is_related || !is_production(config) || base(&host) == base(&domain) {
        return None;
    }
    Some(format!(
        "mail_from is at {domain} and the base URL at {host}. Check that SPF, DKIM and DMARC of {domain} allow your \
         relay, or set JANUA_MAIL_FROM to an email at your own domain"
    ))
}

async fn mail(config: &Config) -> Finding {
    match mail::from_config(config) {
        Err(wrong) => Wrong(wrong),
        Ok(mail) => match mail.check().await {
            Ok(()) if config.smtp_url.is_none() && is_production(config) => Wrong(format!(
                "goes to {} and reaches no user: sign-up and recovery cannot work. Set JANUA_SMTP_URL",
                mail.describe()
            )),
            Ok(()) if config.smtp_url.is_none() => {
                Odd(format!("goes to {}; set JANUA_SMTP_URL to send it to users", mail.describe()))
            }
            Ok(()) => match sender(config) {
                Some(advice) => Odd(format!("goes to {}, but {advice}", mail.describe())),
                None => Fine(format!("goes to {}, from {}", mail.describe(), config.mail_from)),
            },
            Err(error) => Wrong(format!(
                "{} does not work: {error}. Check the host, port, user and password in JANUA_SMTP_URL",
                mail.describe()
            )),
        },
    }
}
