//! Machines: their tokens against raw signatures, lookups and introspection against a bare handler, and what they spend against
//! raw SQLite that runs the same statements.
use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use aws_lc_rs::{
    rand::SystemRandom,
    rsa::KeySize,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use k256::ecdsa::{RecoveryId, Signature, SigningKey, VerifyingKey};
use rusqlite::{Connection, params};
use serde_json::{Value, json};
use sha3::{Digest as _, Keccak256};

use crate::{
    client::{self, Who, text},
    entry,
    figure::{Figure, Goal},
    ground::{Ground, database},
    identity::{both_bare, both_ways, repeat, side},
    load::{self, Ask},
    process::Core,
    rounds::{self, Rounds, Side, Tally},
    servers::JanuaBinary,
};

const SERVER: Core = Core::Only(0);
const GENERATOR: Core = Core::Only(1);
const CLIENTS: usize = 64;
const MANY: usize = 1000;
/// How many signed challenges are prepared for a slice: more than fit into it.
const CHALLENGES: usize = 4_000;
const OFF: [(&str, &str); 1] = [("JANUA_RATE_LIMITS", "off")];

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let folder = rounds.folder()?;
    let ground = Ground::lay(janua, &folder, SERVER, &OFF)?;
    let figures = [
        agent_tokens(rounds, &ground)?,
        framework_tokens(rounds, &ground)?,
        mcp_tokens(rounds, &ground, &folder)?,
        lookups(rounds, &ground, &folder)?,
        introspection(rounds, &ground, &folder)?,
        spending(rounds, janua, "spend", 1, Goal::Ratio(0.2))?,
        spending(rounds, janua, "spend of many", MANY, Goal::Ratio(0.4))?,
    ];
    Ok(figures.into_iter().flatten().collect())
}

/// A wallet of an EVM chain.
pub struct Wallet(SigningKey);

impl Wallet {
    pub fn new(seed: u64) -> Result<Self> {
        let mut bytes = [7; 32];
        bytes[24..].copy_from_slice(&seed.to_be_bytes());
        Ok(Self(SigningKey::from_slice(&bytes)?))
    }

    fn address(&self) -> String {
        let point = self.0.verifying_key().to_sec1_point(false);
        let hash = Keccak256::digest(&point.as_bytes()[1..]);
        hash[12..].iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"))
    }

    fn digest(text: &str) -> [u8; 32] {
        let whole = format!("\x19Ethereum Signed Message:\n{}{text}", text.len());
        Keccak256::digest(whole.as_bytes()).into()
    }

    fn sign(&self, text: &str) -> (Signature, RecoveryId) {
        self.0.sign_prehash_recoverable(&Self::digest(text))
    }
}

/// A raw RS256 signature, as every token has one.
fn signer() -> Result<impl Fn() -> Result<()>> {
    let pair = aws_lc_rs::rsa::KeyPair::generate(KeySize::Rsa2048)?;
    let der: aws_lc_rs::encoding::Pkcs8V1Der<'_> = aws_lc_rs::encoding::AsDer::as_der(&pair)?;
    let key = RsaKeyPair::from_pkcs8(der.as_ref()).map_err(|e| anyhow::anyhow!("{e}"))?;
    Ok(move || {
        let mut signature = vec![0; key.public_modulus_len()];
        Ok(key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), &[7; 400], &mut signature)?)
    })
}

pub fn agent(ground: &Ground, wallet: &Wallet, more: &Value) -> Result<String> {
    let mut body =
        json!({ "name": "Bench", "wallet": wallet.address(), "scopes": ["orders:read"], "orgId": ground.org });
    more.as_object().into_iter().flatten().for_each(|(name, value)| body[name] = value.clone());
    let made = ground.asks("POST", "/agent/register", &body)?;
    text(&made["agent"], "id")
}

/// A request that redeems a signed challenge.
fn redemption(ground: &Ground, wallet: &Wallet, id: &str) -> Result<Vec<u8>> {
    let wanted = json!({ "wallet": wallet.address(), "agentId": id });
    let asked = client::ask(ground.address(), "POST", "/agent/challenge", &Who::default(), &wanted)?;
    let (signature, recovery) = wallet.sign(asked["message"].as_str().context("no message")?);
    let bytes = [signature.to_bytes().to_vec(), vec![27 + recovery.to_byte()]].concat();
    let hex = bytes.iter().fold("0x".to_owned(), |text, byte| format!("{text}{byte:02x}"));
    let body = json!({ "challenge": asked["challenge"], "signature": hex }).to_string();
    Ok(client::request("POST", "/agent/token", &Who::default(), &body, "keep-alive"))
}

/// The first token proves the wallet, which happens once.
pub fn proves(ground: &Ground, wallet: &Wallet, id: &str) -> Result<()> {
    let proven = client::send(ground.address(), &close(&redemption(ground, wallet, id)?)?)?;
    ensure!(proven.starts_with("HTTP/1.1 200"), "{proven}");
    Ok(())
}

/// A token for a signature: one signature of ours, and the recovery of the wallet's.
fn agent_tokens(rounds: &Rounds, ground: &Ground) -> Result<Vec<Figure>> {
    let wallet = Wallet::new(1)?;
    let id = agent(ground, &wallet, &json!({}))?;
    proves(ground, &wallet, &id)?;
    let ours = || -> Result<Side<'_>> {
        Ok(Box::new(|slice| {
            // Each challenge counts once: made and signed before anything is counted.
            let asks: Result<Vec<_>> = (0..CHALLENGES).map(|_| redemption(ground, &wallet, &id)).collect();
            let ask = Ask::Many(asks?);
            Tally::of(ground.server.pid(), || load::asleep(ground.address(), slice, GENERATOR, &ask))
        }))
    };
    let sign = signer()?;
    let message = "id.example.com wants you to sign in with your Ethereum account:\n".repeat(5);
    let (signature, recovery) = wallet.sign(&message);
    let limit = || {
        repeat(|| {
            VerifyingKey::recover_from_prehash(&Wallet::digest(&message), &signature, recovery)?;
            sign()
        })
    };
    let sides = rounds::interleave("agent token", rounds.turn, limit, ours)?;
    let what = "POST /agent/token by processor time; raw recovery and RS256";
    Ok(both_ways("agent token", what, &sides, Some(Goal::Ratio(0.75))))
}

/// A framework agent of the organization: its id and secret.
fn framework(ground: &Ground, more: &Value) -> Result<(String, String)> {
    let mut body = json!({ "name": "Bench", "framework": "bench", "scopes": ["orders:read"], "orgId": ground.org });
    more.as_object().into_iter().flatten().for_each(|(name, value)| body[name] = value.clone());
    let made = ground.asks("POST", "/framework-agent/register", &body)?;
    Ok((text(&made, "clientId")?, text(&made, "clientSecret")?))
}

fn framework_tokens(rounds: &Rounds, ground: &Ground) -> Result<Vec<Figure>> {
    let (id, secret) = framework(ground, &json!({}))?;
    let what = "POST /framework-agent/token by processor time; raw RS256";
    tokens(rounds, ground, ("framework token", what), "/framework-agent/token", (&id, &secret))
}

fn mcp_tokens(rounds: &Rounds, ground: &Ground, folder: &Path) -> Result<Vec<Figure>> {
    let server = json!({ "name": "bench", "domain": "example.com", "scopes": ["orders:read"], "orgId": ground.org });
    let made = ground.asks("POST", "/mcp/register", &server)?;
    let (id, secret) = (text(&made, "clientId")?, text(&made, "clientSecret")?);
    // As if its domain were proven, for which no name server is at hand.
    let connection = Connection::open(database(folder))?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.execute("UPDATE machine SET state = 'active' WHERE id = ?1", params![id])?;
    let what = "POST /mcp/token by processor time; raw RS256";
    tokens(rounds, ground, ("mcp token", what), "/mcp/token", (&id, &secret))
}

/// Tokens for a secret, in a session.
fn tokens(
    rounds: &Rounds,
    ground: &Ground,
    (scenario, what): (&'static str, &'static str),
    path: &str,
    (id, secret): (&str, &str),
) -> Result<Vec<Figure>> {
    let body = json!({ "clientId": id, "clientSecret": secret }).to_string();
    let request = |connection: &str| client::request("POST", path, &Who::with(&ground.token), &body, connection);
    let answer = client::send(ground.address(), &request("close"))?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let ask = Ask::again(request("keep-alive"));
    let sign = signer()?;
    let limit = || repeat(&sign);
    let ours = || side(ground.server.pid(), |slice| load::asleep(ground.address(), slice, GENERATOR, &ask));
    let sides = rounds::interleave(scenario, rounds.turn, limit, ours)?;
    Ok(both_ways(scenario, what, &sides, Some(Goal::Ratio(0.8))))
}

fn lookups(rounds: &Rounds, ground: &Ground, folder: &Path) -> Result<Vec<Figure>> {
    let wallet = Wallet::new(2)?;
    let id = agent(ground, &wallet, &json!({}))?;
    proves(ground, &wallet, &id)?;
    let mut figures = vec![];
    for (scenario, what, path) in [
        (
            "verify agent",
            "GET /verify/agent by processor time; bare axum",
            format!("/verify/agent/{}", wallet.address()),
        ),
        ("verify mcp", "GET /verify/mcp by processor time; bare axum", "/verify/mcp/example.com".to_owned()),
    ] {
        let request = |connection: &str| client::request("GET", &path, &Who::default(), "", connection);
        let answer = client::send(ground.address(), &request("close"))?;
        ensure!(answer.contains("\"verified\":"), "{answer}");
        let asked = (answer.as_str(), request("keep-alive"));
        figures.extend(both_bare(rounds, &ground.server, folder, (scenario, what), asked, Some(Goal::Ratio(0.7)))?);
    }
    Ok(figures)
}

fn close(request: &[u8]) -> Result<Vec<u8>> {
    Ok(String::from_utf8(request.to_vec())?.replacen("keep-alive", "close", 1).into_bytes())
}

fn introspection(rounds: &Rounds, ground: &Ground, folder: &Path) -> Result<Vec<Figure>> {
    let (id, secret) = framework(ground, &json!({}))?;
    let token = token_of(ground, &id, &secret)?;
    let body = json!({ "token": token }).to_string();
    let request = |connection: &str| {
        client::request("POST", "/oauth/introspect", &Who::through(&ground.secret), &body, connection)
    };
    let answer = client::send(ground.address(), &request("close"))?;
    ensure!(answer.contains("\"active\":true"), "the token is not known: {answer}");
    let what = "POST /oauth/introspect of a machine's token by processor time; bare axum";
    let asked = (answer.as_str(), request("keep-alive"));
    both_bare(rounds, &ground.server, folder, ("introspect machine", what), asked, Some(Goal::Ratio(0.55)))
}

fn token_of(ground: &Ground, id: &str, secret: &str) -> Result<String> {
    let body = json!({ "clientId": id, "clientSecret": secret });
    text(&ground.asks("POST", "/framework-agent/token", &body)?, "accessToken")
}

/// Spendings of one machine, or of many, against the same statements by raw SQLite.
fn spending(
    rounds: &Rounds,
    janua: &JanuaBinary,
    scenario: &'static str,
    machines: usize,
    goal: Goal,
) -> Result<Vec<Figure>> {
    let ground = Ground::lay(janua, &rounds.folder()?, SERVER, &OFF)?;
    let limits = json!({ "limits": [{ "meter": "spend", "max": 9_000_000_000_000_000_i64, "per": "month" }] });
    // An organization has at most a hundred machines.
    let mut asks = vec![];
    let mut org = ground.org.clone();
    for number in 0..machines {
        if number > 0 && number % 100 == 0 {
            org = text(&ground.asks("POST", "/org", &json!({ "name": format!("Bench {number}") }))?, "id")?;
        }
        let mut more = limits.clone();
        more["orgId"] = json!(org);
        let (id, secret) = framework(&ground, &more)?;
        let token = token_of(&ground, &id, &secret)?;
        let key = if org == ground.org { ground.secret.clone() } else { key_of(&ground, &org)? };
        let body = json!({ "token": token, "meter": "spend", "amount": 1 }).to_string();
        asks.push(client::request("POST", "/machine/spend", &Who::through(&key), &body, "keep-alive"));
    }
    let ask = if machines == 1 { Ask::again(asks.remove(0)) } else { Ask::Many(vec![asks; 40].concat()) };
    let path = {
        // The limit has the same tables with the same indexes, in a folder of its own.
        let other = rounds.folder()?;
        let ground = Ground::lay(janua, &other, SERVER, &OFF)?;
        framework(&ground, &limits)?;
        drop(ground);
        database(&other)
    };
    let limit = || raw_spendings(&path);
    let ours = || {
        side(
            ground.server.pid(),
            |slice| Ok(load::timed(ground.address(), slice, GENERATOR, &ask, CLIENTS)?.answered),
        )
    };
    let sides = rounds::interleave_short(scenario, rounds.turn, limit, ours)?;
    let what = if machines == 1 {
        "POST /machine/spend of one machine, 64 clients; same statements raw, 64 a commit"
    } else {
        "POST /machine/spend of 1000 machines, 64 clients; same statements raw, 64 a commit"
    };
    Ok(both_ways(scenario, what, &sides, Some(goal)))
}

/// A secret key of an app of an organization.
fn key_of(ground: &Ground, org: &str) -> Result<String> {
    let app = ground.asks("POST", "/apps", &json!({ "name": "Bench", "orgId": org }))?;
    let wanted = json!({ "type": "secret", "environment": "live" });
    text(&ground.asks("POST", &format!("/apps/{}/keys", text(&app, "id")?), &wanted)?, "value")
}

/// A spending and its counter, again and again.
fn raw_spendings(path: &Path) -> Result<Side<'static>> {
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let machine: String = connection.query_row("SELECT id FROM machine LIMIT 1", [], |row| row.get(0))?;
    let app: String = connection.query_row("SELECT id FROM app LIMIT 1", [], |row| row.get(0))?;
    let mut last: i64 = connection.query_row("SELECT COUNT(*) FROM machine_spending", [], |row| row.get(0))?;
    Ok(Box::new(move |slice| {
        Tally::here(SERVER, || {
            let (first, until) = (last, Instant::now() + slice);
            while Instant::now() < until {
                let tx = connection.transaction()?;
                {
                    let mut counter = tx.prepare_cached(
                        "INSERT INTO machine_meter (machine_id, meter, per, since, used, told)
                         VALUES (?1, 'spend', 'month', 0, ?2, 0)
                         ON CONFLICT (machine_id, meter, per, since) DO UPDATE SET used = ?2, told = 0",
                    )?;
                    let mut ledger = tx.prepare_cached(
                        "INSERT INTO machine_spending (id, machine_id, app_id, meter, amount, at)
                         VALUES (?1, ?2, ?3, 'spend', 1, ?4)",
                    )?;
                    for _ in 0..CLIENTS {
                        last += 1;
                        counter.execute(params![machine, last])?;
                        ledger.execute(params![entry::id(last), machine, app, last])?;
                    }
                }
                tx.commit()?;
            }
            Ok(last.abs_diff(first))
        })
    }))
}
