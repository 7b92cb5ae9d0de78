//! What the acts need: PostgreSQL, nodes at it, and people of an app.
use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{CONNECTIONS, database::Database, wire::Wire};
use crate::{
    client::{self, Who, ask, text},
    ground::Ground,
    identity::PASSWORD,
    process::{Core, Server},
    rounds::Rounds,
    servers::JanuaBinary,
    webhooks::Receiver,
};

/// As many as ask at once.
pub const PEOPLE: usize = 32;
const MASTER_KEY: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

pub struct Person {
    pub email: String,
    /// An IP address of the person's own: limits are counted by address.
    pub ip: String,
    /// A session of the person's own, and one in the app.
    pub token: String,
    pub in_app: String,
}

pub struct Stage {
    pub wire: Wire,
    pub people: Vec<Person>,
    pub app: String,
    pub key: String,
    pub secret: String,
    /// An app of the same organization whose events a webhook hears.
    pub heard: HeardApp,
    pub database: Database,
    plans: String,
}

pub struct HeardApp {
    pub receiver: Receiver,
    /// A session of the owner's in it.
    pub token: String,
}

impl Stage {
    pub fn set(rounds: &Rounds, janua: &JanuaBinary) -> Result<Self> {
        let database = Database::start(&rounds.folder()?)?;
        let wire = Wire::lay(database.port)?;
        let plans = rounds.folder()?.join("plans.toml");
        std::fs::write(&plans, PLANS)?;
        let (plans, folder) = (plans.to_string_lossy().into_owned(), rounds.folder()?);
        let settings = settings(&database.url(), &plans);
        let ground = Ground::lay(janua, &folder, Core::Any, &borrowed(&settings))?;
        let (owner, address) = (Who::with(&ground.token), ground.address());
        let key = |app: &str| {
            let wanted = json!({ "type": "publishable", "environment": "live" });
            text(&ask(address, "POST", &format!("/apps/{app}/keys"), &owner, &wanted)?, "value")
        };
        let publishable = key(&ground.app)?;
        let mut people = enroll(&ground.server, &folder, &publishable)?;
        let last = people.pop().context("there is no account")?;
        let heard = {
            let receiver = Receiver::start()?;
            let body = json!({ "name": "Heard", "orgId": ground.org });
            let app = text(&ask(address, "POST", "/apps", &owner, &body)?, "id")?;
            let wanted = json!({ "url": receiver.url(), "events": ["audit.*"] });
            ask(address, "POST", &format!("/apps/{app}/webhooks"), &owner, &wanted)?;
            HeardApp { receiver, token: sign_in(&ground.server, &last, &key(&app)?)?.0 }
        };
        let Ground { app, secret, .. } = ground;
        Ok(Self { wire, people, app, key: publishable, secret, heard, database, plans })
    }

    /// A node, perhaps one whose way to PostgreSQL leads over the wire.
    pub fn serve(&self, rounds: &Rounds, janua: &JanuaBinary, is_counted: bool) -> Result<Server> {
        let url = if is_counted { Database::url_at(self.wire.address.port()) } else { self.database.url() };
        let mut settings = settings(&url, &self.plans);
        if is_counted {
            // The first use of a statement on a connection is a round trip more. Few connections have soon used them all.
            settings.retain(|(name, _)| *name != POOL);
            settings.push((POOL, "3".to_owned()));
        }
        janua.serve_with(&rounds.folder()?, Core::Any, &borrowed(&settings))
    }

    pub fn audited(&self) -> Result<f64> {
        self.database.number("SELECT COUNT(*) FROM audit_event")
    }

    /// Sessions in the app, one for each client.
    pub fn sessions(&self, node: &Server, count: usize) -> Result<Vec<String>> {
        (0..count).map(|number| Ok(sign_in(node, &self.people[number % PEOPLE], &self.key)?.1)).collect()
    }
}

fn settings(url: &str, plans: &str) -> Vec<(&'static str, String)> {
    vec![
        ("JANUA_DATABASE_URL", url.to_owned()),
        (POOL, CONNECTIONS.to_string()),
        ("JANUA_MASTER_KEY", MASTER_KEY.to_owned()),
        ("JANUA_BASE_URL", "http://localhost:9".to_owned()),
        // On, because what protects a sign-in writes, too; but not for as many requests as these.
        ("JANUA_RATE_LIMIT_PER_MINUTE", "4000000000".to_owned()),
        ("JANUA_TRUSTED_PROXIES", "127.0.0.0/8".to_owned()),
        ("JANUA_PLANS_FILE", plans.to_owned()),
        ("JANUA_WEBHOOK_ALLOW_NETS", "127.0.0.0/8".to_owned()),
        ("WEBHOOK_ALLOW_HTTP", "1".to_owned()),
    ]
}

fn borrowed<'a>(settings: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    settings.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

const POOL: &str = "JANUA_DATABASE_CONNECTIONS";
const PLANS: &str = "[meters.api_calls]\naggregation = \"sum\"\nunit = \"calls\"\nkeys = \"secret\"\n\n\
                     [plans.free.limits]\napi_calls = 1_000_000_000_000\n";

/// The access token and the refresh token of a session in an app.
fn sign_in(server: &Server, person: &Person, key: &str) -> Result<(String, String)> {
    let body =
        json!({ "email": person.email, "password": PASSWORD, "options": { "tokenDelivery": "body" } }).to_string();
    let request = from(&client::request("POST", "/auth/login", &Who::through(key), &body, "close"), &person.ip);
    let answer = client::send(server.address, &request)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.starts_with("HTTP/1.1 2"), "{answer}");
    let session = serde_json::from_str(body)?;
    Ok((text(&session, "accessToken")?, text(&session, "refreshToken")?))
}

/// A request as a proxy passes it on, with the address of its client.
pub fn from(request: &[u8], ip: &str) -> Vec<u8> {
    String::from_utf8_lossy(request)
        .replacen("\r\n\r\n", &format!("\r\nx-forwarded-for: {ip}\r\n\r\n"), 1)
        .into_bytes()
}

/// Signs people up, confirms their emails by the mails in the outbox, and signs them in. One more than ask: the last one is
/// heard by the webhook.
fn enroll(server: &Server, folder: &Path, key: &str) -> Result<Vec<Person>> {
    let anonymous = Who::default();
    for number in 0..=PEOPLE {
        let body = json!({ "email": email(number), "password": PASSWORD, "name": "Bench" });
        let request = client::request("POST", "/auth/register", &anonymous, &body.to_string(), "close");
        let answer = client::send(server.address, &from(&request, &ip(number)))?;
        ensure!(answer.starts_with("HTTP/1.1 2"), "{answer}");
    }
    let outbox = folder.join("outbox");
    (0..=PEOPLE)
        .map(|number| {
            let token = mailed_token(&outbox, &email(number))?;
            ask(server.address, "POST", "/auth/verify-email", &anonymous, &json!({ "token": token }))?;
            let mut person =
                Person { email: email(number), ip: ip(number), token: String::new(), in_app: String::new() };
            (person.token, _) = sign_in(server, &person, "")?;
            (person.in_app, _) = sign_in(server, &person, key)?;
            Ok(person)
        })
        .collect()
}

fn email(number: usize) -> String {
    format!("person-{number}@example.com")
}

fn ip(number: usize) -> String {
    format!("198.18.{number}.1")
}

fn mailed_token(outbox: &Path, email: &str) -> Result<String> {
    let started = Instant::now();
    let wanted = format!("To: {email}");
    loop {
        let files: Vec<PathBuf> = std::fs::read_dir(outbox)?.filter_map(|file| Some(file.ok()?.path())).collect();
        let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
        let found = texts.filter(|text| text.contains(&wanted)).find_map(|text| {
            let rest = text.split_once("?token=")?.1;
            Some(rest.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect())
        });
        if let Some(token) = found {
            return Ok(token);
        }
        ensure!(started.elapsed() < Duration::from_secs(20), "no mail to {email}");
        thread::sleep(Duration::from_millis(50));
    }
}
