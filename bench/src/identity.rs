//! People at the door: signing in, and being sent away, against raw password hashes; refreshing against raw signatures;
//! asking who one is, and for our keys, against a bare handler that says the same.
use std::{
    cell::RefCell,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use aws_lc_rs::{
    rand::SystemRandom,
    rsa::KeySize,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use kernel::pages;
use serde_json::{Value, json};

use crate::{
    client,
    figure::{Figure, Goal, Unit},
    ground::Ground,
    load::{self, Ask},
    process::{Core, Server},
    rounds::{self, Rate, Rounds, Side, Sides, Tally},
    servers::{self, JanuaBinary},
};

const SERVER: Core = Core::Only(0);
const GENERATOR: Core = Core::Only(1);
const WARM_UP: Duration = Duration::from_millis(500);
pub const EMAIL: &str = "bench@example.com";
pub const PASSWORD: &str = "correct horse battery staple";

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let folder = rounds.folder()?;
    let server = janua.serve(&folder, SERVER)?;
    register(&server, &folder)?;
    let signed_in = post(server.address, "/auth/login", &login())?;
    let token = signed_in["accessToken"].as_str().context("no access token")?.to_owned();
    let me =
        Page { scenario: "me", what: "GET /auth/me by processor time; bare axum", path: "/auth/me", token: &token };
    let what = "GET jwks.json by processor time; bare axum";
    let jwks = Page { scenario: "jwks", what, path: "/.well-known/jwks.json", token: "" };
    let figures = [
        sign_in(rounds, &server)?,
        sent_away(rounds, janua)?,
        refresh(rounds, &server)?,
        against_bare(rounds, &server, &folder, &me, Some(Goal::Ratio(0.6)))?,
        introspection(rounds, janua)?,
        against_bare(rounds, &server, &folder, &jwks, None)?,
    ];
    Ok(figures.into_iter().flatten().collect())
}

/// An app asks whether a token of its own is good.
fn introspection(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let folder = rounds.folder()?;
    let ground = Ground::lay(janua, &folder, SERVER, &[("JANUA_RATE_LIMITS", "off")])?;
    let answer = client::send(ground.address(), &ground.introspection("close"))?;
    ensure!(answer.contains("\"active\":true"), "the token is not known: {answer}");
    let ask = ground.introspection("keep-alive");
    let what = "POST /oauth/introspect by processor time; bare axum";
    both_bare(rounds, &ground.server, &folder, ("introspect", what), (&answer, ask), None)
}

pub fn login() -> Value {
    json!({ "email": EMAIL, "password": PASSWORD, "options": { "tokenDelivery": "body" } })
}

/// Signs up, and confirms by the mail in the outbox.
pub fn register(server: &Server, data: &Path) -> Result<()> {
    post(server.address, "/auth/register", &json!({ "email": EMAIL, "password": PASSWORD, "name": "Bench" }))?;
    let started = Instant::now();
    let token = loop {
        if let Some(token) = token_in_outbox(&data.join("outbox")) {
            break token;
        }
        ensure!(started.elapsed() < Duration::from_secs(10), "the mail does not come");
        thread::sleep(Duration::from_millis(20));
    };
    post(server.address, "/auth/verify-email", &json!({ "token": token })).map(|_| ())
}

fn token_in_outbox(outbox: &Path) -> Option<String> {
    let file = std::fs::read_dir(outbox).ok()?.filter_map(Result::ok).find(|f| f.path().extension().is_some())?;
    let text = std::fs::read_to_string(file.path()).ok()?;
    let rest = text.split_once("?token=")?.1;
    Some(rest.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect())
}

pub fn post(address: SocketAddr, path: &str, body: &Value) -> Result<Value> {
    post_as(address, "", path, body)
}

pub fn post_as(address: SocketAddr, token: &str, path: &str, body: &Value) -> Result<Value> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(&load::request("POST", path, token, &body.to_string(), "close"))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    Ok(serde_json::from_str(body)?)
}

/// What a second of the server's processor buys, against the hash alone with its memory at hand: as the library gives it,
/// and in huge pages as the server has it.
fn sign_in(rounds: &Rounds, server: &Server) -> Result<Vec<Figure>> {
    let ask = Ask::again(load::request("POST", "/auth/login", "", &login().to_string(), "keep-alive"));
    let what = "POST /auth/login by processor time; raw argon2id";
    let ours = |slice| load::asleep(server.address, slice, GENERATOR, &ask);
    let sides = beside_hashes(rounds, server, ours, raw_hash()?)?;
    let mut figures = both_ways("sign-in", what, &sides, Some(Goal::Ratio(0.95)));
    let sides = beside_hashes(rounds, server, ours, raw_hash_in(pages::vec_of)?)?;
    let samples = sides.only(|rate| rate.per_cpu_second);
    let what = "the same by processor time; raw argon2id in huge pages";
    figures.push(Figure { scenario: "sign-in", what, unit: Unit::PerCpuSecond, samples, goal: None });
    Ok(figures)
}

/// Who asks too often is to cost next to nothing.
fn sent_away(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let (server, ask) = refused(rounds, janua)?;
    let what = "429 for a sign-in by processor time; raw argon2id";
    let ours = |slice| load::with(server.address, slice, GENERATOR, &ask);
    Ok(both_ways("refusal", what, &beside_hashes(rounds, &server, ours, raw_hash()?)?, Some(Goal::Ratio(2000.0))))
}

/// A server at which somebody has asked too often, and goes on.
pub fn refused(rounds: &Rounds, janua: &JanuaBinary) -> Result<(Server, Ask)> {
    let server = janua.serve_with(&rounds.folder()?, SERVER, &[("JANUA_RATE_LIMIT_PER_MINUTE", "1")])?;
    let ask = Ask::Refused(load::request("POST", "/auth/login", "", &login().to_string(), "keep-alive"));
    load::with(server.address, WARM_UP, GENERATOR, &ask)?;
    Ok((server, ask))
}

fn beside_hashes(
    rounds: &Rounds,
    server: &Server,
    ours: impl Fn(Duration) -> Result<u64>,
    hash: impl Fn() -> Result<()>,
) -> Result<Sides<Rate>> {
    let limit = || repeat(&hash);
    rounds::interleave("hashes", rounds.turn, limit, || side(server.pid(), &ours))
}

/// One hash of a password with its memory at hand, and nothing around it.
pub fn raw_hash() -> Result<impl Fn() -> Result<()>> {
    raw_hash_in(|count, block| vec![*block; count])
}

fn raw_hash_in(memory: fn(usize, &Block) -> Vec<Block>) -> Result<impl Fn() -> Result<()>> {
    let params = Params::new(19_456, 2, 1, Some(32)).map_err(|e| anyhow::anyhow!("{e}"))?;
    let memory = RefCell::new(memory(params.block_count(), &Block::default()));
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    Ok(move || {
        let mut tag = [0; 32];
        let memory = &mut memory.borrow_mut()[..];
        let hashed = argon2.hash_password_into_with_memory(PASSWORD.as_bytes(), &[7; 16], &mut tag, memory);
        hashed.map_err(|e| anyhow::anyhow!("{e}"))
    })
}

/// Each connection has a session of its own and goes on with the token it was given.
fn refresh(rounds: &Rounds, server: &Server) -> Result<Vec<Figure>> {
    let ours = || -> Result<Side<'_>> {
        Ok(Box::new(|slice| {
            // Signed in anew for each slice, before anything is counted.
            let sessions: Result<Vec<String>> = (0..load::CONNECTIONS)
                .map(|_| {
                    let person = post(server.address, "/auth/login", &login())?;
                    Ok(person["refreshToken"].as_str().context("no refresh token")?.to_owned())
                })
                .collect();
            let ask = Ask::chain(sessions?);
            Tally::of(server.pid(), || load::asleep(server.address, slice, GENERATOR, &ask))
        }))
    };
    let pair = aws_lc_rs::rsa::KeyPair::generate(KeySize::Rsa2048)?;
    let der: aws_lc_rs::encoding::Pkcs8V1Der<'_> = aws_lc_rs::encoding::AsDer::as_der(&pair)?;
    let key = RsaKeyPair::from_pkcs8(der.as_ref()).map_err(|e| anyhow::anyhow!("{e}"))?;
    let sign = || {
        let mut signature = vec![0; key.public_modulus_len()];
        Ok(key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), &[7; 400], &mut signature)?)
    };
    let limit = || repeat(sign);
    let sides = rounds::interleave("refresh", rounds.turn, limit, ours)?;
    let what = "POST /auth/refresh by processor time; raw RS256";
    Ok(both_ways("refresh", what, &sides, Some(Goal::Ratio(0.8))))
}

/// Something that is asked for again and again.
struct Page<'a> {
    scenario: &'static str,
    what: &'static str,
    path: &'a str,
    token: &'a str,
}

fn against_bare(
    rounds: &Rounds,
    server: &Server,
    folder: &Path,
    page: &Page<'_>,
    goal: Option<Goal>,
) -> Result<Vec<Figure>> {
    let answer = client::send(server.address, &load::request("GET", page.path, page.token, "", "close"))?;
    let ask = load::request("GET", page.path, page.token, "", "keep-alive");
    both_bare(rounds, server, folder, (page.scenario, page.what), (&answer, ask), goal)
}

/// A request, and a bare server that gives the same answer to it.
pub fn both_bare(
    rounds: &Rounds,
    server: &Server,
    folder: &Path,
    (scenario, what): (&'static str, &'static str),
    (answer, ask): (&str, Vec<u8>),
    goal: Option<Goal>,
) -> Result<Vec<Figure>> {
    let bare = servers::bare(answer, folder, SERVER)?;
    // The bare server has one route; it is asked with the same headers and body, so that both read as much.
    let text = String::from_utf8(ask.clone())?;
    let path = text.split(' ').nth(1).context("a request of another form")?.to_owned();
    let bare_ask = Ask::again(text.replacen(&path, "/health", 1).into_bytes());
    let ask = Ask::again(ask);
    for (server, ask) in [(&bare, &bare_ask), (server, &ask)] {
        load::with(server.address, WARM_UP, GENERATOR, ask)?;
    }
    let limit = || side(bare.pid(), |slice| load::with(bare.address, slice, GENERATOR, &bare_ask));
    let ours = || side(server.pid(), |slice| load::with(server.address, slice, GENERATOR, &ask));
    Ok(both_ways(scenario, what, &rounds::interleave(scenario, rounds.turn, limit, ours)?, goal))
}

/// By processor time, which is judged because machines are shared, and by the clock.
pub fn both_ways(scenario: &'static str, what: &'static str, sides: &Sides<Rate>, goal: Option<Goal>) -> Vec<Figure> {
    let by_processor = sides.only(|rate| rate.per_cpu_second);
    let by_clock = sides.only(|rate| rate.per_second);
    vec![
        Figure { scenario, what, unit: Unit::PerCpuSecond, samples: by_processor, goal },
        Figure { scenario, what: "the same by the clock", unit: Unit::PerSecond, samples: by_clock, goal: None },
    ]
}

/// One side that counts what `work` did in a slice, by the processor time of a process.
#[expect(clippy::unnecessary_wraps, reason = "sides may fail to be made")]
pub fn side<'a>(pid: u32, mut work: impl FnMut(Duration) -> Result<u64> + 'a) -> Result<Side<'a>> {
    Ok(Box::new(move |slice| Tally::of(pid, || work(slice))))
}

/// The limit's side: the same work again and again, where the server does its own.
#[expect(clippy::unnecessary_wraps, reason = "sides may fail to be made")]
pub fn repeat<'a>(mut work: impl FnMut() -> Result<()> + 'a) -> Result<Side<'a>> {
    Ok(Box::new(move |slice| {
        Tally::here(SERVER, || {
            let until = Instant::now() + slice;
            let mut count = 0;
            while Instant::now() < until {
                work()?;
                count += 1;
            }
            Ok(count)
        })
    }))
}
