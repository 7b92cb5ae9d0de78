//! A storm of sign-ins: what it does to somebody who is signed in already, to memory, and to those past the queue's end.
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    figure::{Figure, Goal, Unit},
    identity::{login, post, register},
    load,
    process::Core,
    rounds::{Rounds, Sides},
    servers::JanuaBinary,
};

const PEOPLE: usize = 512;
const QUEUE: usize = 64;
const STACK: usize = 64 * 1024;
/// What a hash holds on to, and what else a storm may.
const HASH_MB: f64 = 19.0 * 1.048_576;
const REST_MB: f64 = 16.0;

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let folder = rounds.folder()?;
    let server = janua.serve(&folder, Core::Any)?;
    register(&server, &folder)?;
    let token =
        post(server.address, "/auth/login", &login())?["accessToken"].as_str().context("no token")?.to_owned();
    let calm = AtomicBool::new(true);
    let turn = Instant::now();
    let idle = waits(server.address, &token, || turn.elapsed() < rounds.turn)?;
    let idle_mb = server.resident_mb()?;
    calm.store(false, Relaxed);
    let mut most_mb = idle_mb;
    let (during, answers) = thread::scope(|scope| {
        let storm = scope.spawn(|| {
            let answers = storm(server.address);
            calm.store(true, Relaxed);
            answers
        });
        let during = waits(server.address, &token, || {
            most_mb = most_mb.max(server.resident_mb().unwrap_or(f64::NAN));
            !calm.load(Relaxed)
        })?;
        anyhow::Ok((during, storm.join().map_err(|_| anyhow::anyhow!("the storm failed"))??))
    })?;
    ensure!(answers.iter().all(|(status, _)| *status == 200), "a queued sign-in was refused");

    let folder = rounds.folder()?;
    let queue = QUEUE.to_string();
    let settings = [("JANUA_RATE_LIMITS", "off"), ("JANUA_PASSWORD_QUEUE", queue.as_str())];
    let server = janua.serve_with(&folder, Core::Any, &settings)?;
    register(&server, &folder)?;
    let answers = storm(server.address)?;
    let one = answers.iter().filter(|(status, _)| *status == 200).map(|(_, took)| *took).min().unwrap_or_default();
    let mut refused: Vec<Duration> =
        answers.iter().filter(|(status, _)| *status == 503).map(|(_, took)| *took).collect();
    refused.sort();
    // While they arrive some are served, and others take their places.
    ensure!(refused.len() >= PEOPLE / 2, "only {} of {PEOPLE} were refused", refused.len());

    #[expect(clippy::cast_precision_loss, reason = "a few cores")]
    let allowed_mb = idle_mb + REST_MB + HASH_MB * thread::available_parallelism()?.get() as f64;
    let figure = |what, unit, ours, limit, goal| Figure {
        scenario: "storm",
        what,
        unit,
        samples: Sides { limit: vec![limit], ours: vec![ours] },
        goal: Some(goal),
    };
    Ok(vec![
        figure(
            "p99 of /auth/me while 512 sign in; idle",
            Unit::Milliseconds,
            millis(p99(during)),
            millis(p99(idle)),
            Goal::RatioAtMost(2.0),
        ),
        figure("resident meanwhile; what it may be", Unit::Megabytes, most_mb, allowed_mb, Goal::RatioAtMost(1.0)),
        figure(
            "503 past the queue, the median; one sign-in",
            Unit::Milliseconds,
            millis(refused[refused.len() / 2]),
            millis(one),
            Goal::Below(100.0),
        ),
    ])
}

/// How long each of the requests for /auth/me took, one after the other on one connection.
fn waits(address: SocketAddr, token: &str, mut go_on: impl FnMut() -> bool) -> Result<Vec<Duration>> {
    let request = load::request("GET", "/auth/me", token, "", "keep-alive");
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut waits = vec![];
    while go_on() {
        let started = Instant::now();
        stream.write_all(&request)?;
        let mut answer = [0; 4096];
        // Short enough to come in one piece.
        let read = stream.read(&mut answer)?;
        ensure!(answer[..read].starts_with(b"HTTP/1.1 200 "), "somebody signed in was refused");
        waits.push(started.elapsed());
    }
    Ok(waits)
}

/// All at once: the status each one got, and after how long.
fn storm(address: SocketAddr) -> Result<Vec<(u16, Duration)>> {
    let request = load::request("POST", "/auth/login", "", &login().to_string(), "close");
    let sign_in = || {
        let mut stream = TcpStream::connect(address)?;
        let started = Instant::now();
        stream.write_all(&request)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer.split_whitespace().nth(1).context("no answer")?.parse()?;
        anyhow::Ok((status, started.elapsed()))
    };
    thread::scope(|scope| {
        let people: Vec<_> =
            (0..PEOPLE).map(|_| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, sign_in)).collect();
        people.into_iter().map(|one| one?.join().map_err(|_| anyhow::anyhow!("a person failed"))?).collect()
    })
}

fn p99(mut waits: Vec<Duration>) -> Duration {
    waits.sort();
    waits.get(waits.len().saturating_sub(1) * 99 / 100).copied().unwrap_or_default()
}

fn millis(wait: Duration) -> f64 {
    wait.as_secs_f64() * 1000.0
}
