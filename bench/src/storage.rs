//! Files of an app's users: upload URLs, finished uploads, what is asked about an object, a large upload beside the disk alone,
//! and a list among a million objects beside a thousand.
use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rusqlite::{Connection, params};
use serde_json::{Value, json};

use crate::{
    client::{self, Who, text},
    figure::{Figure, Goal, Unit},
    ground::{Ground, database},
    identity::{both_bare, both_ways, side},
    load::{self, Ask},
    process::{self, Core},
    rounds::{self, Rounds, Sides},
    servers::{self, JanuaBinary},
};

const SERVER: Core = Core::Only(0);
const GENERATOR: Core = Core::Only(1);
const CLIENTS: usize = 32;
/// Uploads that are finished in one round.
const UPLOADS: usize = 400;
const SMALL: usize = 4096;
const LARGE: u64 = 1 << 30;
const PIECE: usize = 1 << 20;
const FEW: u64 = 1_000;
const MANY: u64 = 1_000_000;

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let folder = rounds.folder()?;
    let ground = Ground::lay(janua, &folder, SERVER, &[("JANUA_RATE_LIMITS", "off")])?;
    let first = presigned(&ground, SMALL as u64)?;
    allow_many(&folder)?;
    let mut figures = presign(rounds, &ground, &folder)?;
    figures.push(finalize(rounds, &ground)?);
    let object = text(&first, "objectId")?;
    let path = format!("/storage/objects/{object}");
    let ask = |connection: &str| client::request("GET", &path, &who(&ground), "", connection);
    let answer = client::send(ground.address(), &ask("close"))?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let what = ("storage read", "GET /storage/objects/{id} by processor time; bare axum");
    let read =
        both_bare(rounds, &ground.server, &folder, what, (&answer, ask("keep-alive")), Some(Goal::Ratio(0.5)))?;
    figures.extend(read);
    figures.extend(large(&ground, &folder)?);
    drop(ground);
    figures.extend(lists(rounds, janua)?);
    Ok(figures)
}

fn who(ground: &Ground) -> Who<'_> {
    Who { token: &ground.in_app, app_key: &ground.secret }
}

fn wish(size: u64) -> Value {
    json!({ "name": "a.bin", "contentType": "application/octet-stream", "size": size })
}

fn presigned(ground: &Ground, size: u64) -> Result<Value> {
    client::ask(ground.address(), "POST", "/storage/presign-upload", &who(ground), &wish(size))
}

/// A user has twenty uploads open at most, and an app a thousand: here both may have as many as there are.
fn allow_many(folder: &Path) -> Result<()> {
    let raw = Connection::open(database(folder))?;
    raw.busy_timeout(Duration::from_secs(10))?;
    raw.execute("UPDATE storage_usage SET pending = pending - 1000000000", [])?;
    Ok(())
}

/// Each is a row and two counters. The limit says the same without them.
fn presign(rounds: &Rounds, ground: &Ground, folder: &Path) -> Result<Vec<Figure>> {
    let request = |connection: &str| {
        let body = wish(SMALL as u64).to_string();
        client::request("POST", "/storage/presign-upload", &who(ground), &body, connection)
    };
    let answer = client::send(ground.address(), &request("close"))?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let limit = servers::bare(&answer.replace("\r\nconnection: close", ""), folder, SERVER)?;
    let (ask, pid) = (Ask::again(request("keep-alive")), ground.server.pid());
    let bare = || side(limit.pid(), |slice| load::against(limit.address, slice, GENERATOR));
    let ours = || side(pid, |slice| load::with(ground.address(), slice, GENERATOR, &ask));
    let sides = rounds::interleave("presign", rounds.turn, bare, ours)?;
    let what = "POST /storage/presign-upload by processor time; bare axum, same answer";
    Ok(both_ways("presign", what, &sides, Some(Goal::AtLeast(5_000.0))))
}

/// Uploads that have arrived are copied to their place and checked. The limit writes as many files of the same length, each with
/// an fsync.
fn finalize(rounds: &Rounds, ground: &Ground) -> Result<Figure> {
    let pid = ground.server.pid();
    let folder = rounds.folder()?;
    let limit = || {
        let started = process::cpu_time(std::process::id())?;
        process::on(SERVER, || {
            for number in 0..UPLOADS {
                let mut file = File::create(folder.join(number.to_string()))?;
                file.write_all(&[7; SMALL])?;
                file.sync_all()?;
            }
            Ok(())
        })?;
        Ok(per_second(UPLOADS, process::cpu_time(std::process::id())?.saturating_sub(started)))
    };
    let ours = || {
        let mut requests = vec![];
        for _ in 0..UPLOADS {
            let slot = presigned(ground, SMALL as u64)?;
            put(&slot, &mut |stream| Ok(stream.write_all(&[7; SMALL])?))?;
            let path = format!("/storage/finalize/{}", text(&slot, "objectId")?);
            requests.push(client::request("POST", &path, &who(ground), "{}", "keep-alive"));
        }
        let before = process::cpu_time(pid)?;
        each(ground.address(), &requests)?;
        Ok(per_second(UPLOADS, process::cpu_time(pid)?.saturating_sub(before)))
    };
    let samples = rounds::alternate("finalize", rounds::ROUNDS, limit, ours)?;
    let what = "POST /storage/finalize by processor time; files of 4 KiB, an fsync each";
    Ok(Figure { scenario: "finalize", what, unit: Unit::PerCpuSecond, samples, goal: Some(Goal::AtLeast(2_000.0)) })
}

fn per_second(count: usize, took: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let count = count as f64;
    count / took.as_secs_f64().max(0.001)
}

/// Sends each request once, by several connections.
fn each(address: SocketAddr, requests: &[Vec<u8>]) -> Result<()> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let work = || -> Result<()> {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            while let Some(request) = requests.get(next.fetch_add(1, Relaxed)) {
                stream.write_all(request)?;
                let (mut heard, mut part) = (vec![], [0; 8192]);
                while !load::is_whole(&heard, '2')? {
                    let read = stream.read(&mut part)?;
                    ensure!(read > 0, "the server hung up");
                    heard.extend_from_slice(&part[..read]);
                }
            }
            Ok(())
        };
        let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|one| one.join().map_err(|_| anyhow::anyhow!("a client failed"))?)
    })
}

/// Uploads to a signed address of this server.
fn put(slot: &Value, write: &mut dyn FnMut(&mut TcpStream) -> Result<()>) -> Result<()> {
    let url: url::Url = text(slot, "uploadUrl")?.parse()?;
    let address = format!("127.0.0.1:{}", url.port().context("a port")?);
    let path = &url[url::Position::BeforePath..];
    let mut head = format!("PUT {path} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n");
    for (name, value) in slot["headers"].as_object().context("headers")? {
        head.extend([name.as_str(), ": ", value.as_str().unwrap_or_default(), "\r\n"]);
    }
    if !head.to_lowercase().contains("content-length") {
        head.extend(["content-length: ", slot["object"]["size"].to_string().as_str(), "\r\n"]);
    }
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_mins(2)))?;
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    write(&mut stream)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 2"), "{answer}");
    Ok(())
}

/// A gibibyte, from the first byte to the finished object; the disk alone with one fsync. And how much memory it takes.
fn large(ground: &Ground, folder: &Path) -> Result<Vec<Figure>> {
    let piece = vec![7; PIECE];
    let pieces = LARGE / PIECE as u64;
    let (idle, mut most) = (ground.server.resident_mb()?, 0.0_f64);
    let limit = || {
        let (path, started) = (folder.join("dd"), Instant::now());
        let mut file = File::create(&path)?;
        for _ in 0..pieces {
            file.write_all(&piece)?;
        }
        file.sync_all()?;
        let took = started.elapsed().as_secs_f64() * 1000.0;
        fs::remove_file(path)?;
        Ok(took)
    };
    let ours = || {
        let slot = presigned(ground, LARGE)?;
        let (is_over, started) = (AtomicBool::new(false), Instant::now());
        let seen = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = 0.0_f64;
                while !is_over.load(Relaxed) {
                    most = most.max(ground.server.resident_mb().unwrap_or_default());
                    thread::sleep(Duration::from_millis(20));
                }
                most
            });
            let sent = put(&slot, &mut |stream| Ok((0..pieces).try_for_each(|_| stream.write_all(&piece))?));
            let sent = sent.and_then(|()| {
                let path = format!("/storage/finalize/{}", text(&slot, "objectId")?);
                client::ask(ground.address(), "POST", &path, &who(ground), &json!({}))
            });
            is_over.store(true, Relaxed);
            let most = watch.join().map_err(|_| anyhow::anyhow!("nobody watched"))?;
            sent.map(|_| most)
        })?;
        most = most.max(seen);
        let took = started.elapsed().as_secs_f64() * 1000.0;
        let path = format!("/storage/objects/{}", text(&slot, "objectId")?);
        client::ask(ground.address(), "DELETE", &path, &who(ground), &Value::Null)?;
        Ok(took)
    };
    let samples = rounds::alternate("upload", rounds::ROUNDS, limit, ours)?;
    let what = "an upload of 1 GiB until it is finished; the disk alone, one fsync";
    let took = Figure {
        scenario: "upload",
        what,
        unit: Unit::Milliseconds,
        samples,
        goal: Some(Goal::RatioAtMost(1.0 / 0.7)),
    };
    let memory = Figure {
        scenario: "upload",
        what: "more resident memory meanwhile; when idle",
        unit: Unit::Megabytes,
        samples: Sides { limit: vec![idle], ours: vec![(most - idle).max(0.0)] },
        goal: Some(Goal::Below(32.0)),
    };
    Ok(vec![took, memory])
}

/// The first page of a user's objects.
fn lists(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let lay = |count| -> Result<Ground> {
        let folder = rounds.folder()?;
        let ground = Ground::lay(janua, &folder, SERVER, &[("JANUA_RATE_LIMITS", "off")])?;
        presigned(&ground, SMALL as u64)?;
        fill(&folder, count)?;
        Ok(ground)
    };
    let (few, many) = (lay(FEW)?, lay(MANY)?);
    let ask = |ground: &Ground| {
        let request = client::request("GET", "/storage/objects?limit=50", &who(ground), "", "keep-alive");
        let (ask, address, pid) = (Ask::again(request), ground.address(), ground.server.pid());
        side(pid, move |slice| load::with(address, slice, GENERATOR, &ask))
    };
    let sides = rounds::interleave("list", rounds.turn, || ask(&few), || ask(&many))?;
    let what = "a page of 50 objects by processor time among 1,000,000; among 1,000";
    Ok(both_ways("storage list", what, &sides, Some(Goal::Ratio(0.83))))
}

/// Ready objects of the one user, beside the one that is there.
fn fill(folder: &Path, count: u64) -> Result<()> {
    let raw = Connection::open(database(folder))?;
    raw.busy_timeout(Duration::from_mins(1))?;
    raw.execute(
        "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?1)
         INSERT INTO storage_object (id, app_id, org_id, owner_id, environment, name, name_start, content_type, size, status,
                                     visibility, metadata, slot, created_at, updated_at, finalized_at)
         SELECT printf('0198c6a2-7d1e-7000-8000-%012x', n), app_id, org_id, owner_id, environment, 'n' || n,
                CAST('n' || n AS BLOB), 'text/plain', 1, 'ready', 'private', '{}', 'uploads/bench-' || n, n, n, n
         FROM number, (SELECT app_id, org_id, owner_id, environment FROM storage_object LIMIT 1)",
        params![i64::try_from(count)?],
    )?;
    raw.execute(
        "UPDATE storage_usage SET objects = objects + ?1, bytes = bytes + ?1",
        params![i64::try_from(count)?],
    )?;
    Ok(())
}
