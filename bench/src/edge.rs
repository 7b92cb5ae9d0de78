//! Files of deployed sites: a small one, one that has not changed, and one of ten thousand sites, against a bare handler that
//! answers the same bytes; the small one against Caddy, where it is installed; a large one against a bare socket; and
//! deploying them, against the disk.
use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{
    client,
    figure::{Figure, Goal, Unit},
    ground::Ground,
    identity::{both_ways, side},
    load::{self, Ask},
    process::{self, Core},
    rounds::{self, Rounds, Sides, Tally},
    servers::{self, JanuaBinary},
};

const SERVER: Core = Core::Only(0);
const GENERATOR: Core = Core::Only(1);
const SMALL: usize = 1024;
const LARGE: usize = 10 << 20;
const SITES: usize = 10_000;
/// Files of a deployment that is measured, and the bytes of each.
const FILES: usize = 2_000;
const FILE: usize = 5_000;

/// A server with an edge, and an app with a site.
struct Edge {
    ground: Ground,
    address: SocketAddr,
    host: String,
}

impl Edge {
    fn start(rounds: &Rounds, janua: &JanuaBinary) -> Result<Self> {
        let folder = rounds.folder()?;
        let address = process::free_address()?;
        let listen = address.to_string();
        let settings = [("JANUA_RATE_LIMITS", "off"), ("JANUA_EDGE_LISTEN", listen.as_str())];
        let ground = Ground::lay(janua, &folder, SERVER, &settings)?;
        let slug = client::text(&ground.asks("GET", &format!("/apps/{}", ground.app), &Value::Null)?, "slug")?;
        Ok(Self { ground, address, host: format!("{slug}.localhost") })
    }

    fn get(&self, path: &str, more: &str, connection: &str) -> Vec<u8> {
        get(&self.host, path, more, connection)
    }
}

fn get(host: &str, path: &str, more: &str, connection: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{more}connection: {connection}\r\n\r\n").into_bytes()
}

/// Bytes that do not become fewer when they are packed: an archive that unpacks to far more than its size is refused.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Some(state.to_le_bytes())
    };
    std::iter::from_fn(next).flatten().take(length).collect()
}

/// Caddy with the same files on the server's core.
struct Caddy {
    child: Child,
    address: SocketAddr,
}

impl Caddy {
    /// None where it is not installed. `scripts/setup` unpacks it into `.tools`.
    fn start(site: &Path, folder: &Path) -> Result<Option<Self>> {
        let address = process::free_address()?;
        let config = format!(
            "{{\n\tadmin off\n\tauto_https off\n}}\n\
             http://:{} {{\n\tbind {}\n\troot * {}\n\tfile_server\n}}\n",
            address.port(),
            address.ip(),
            site.display()
        );
        let file = folder.join("Caddyfile");
        fs::write(&file, config)?;
        let child = ["caddy", ".tools/caddy/usr/bin/caddy"].into_iter().find_map(|program| {
            let mut command = Command::new(program);
            command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&file);
            command.env("GOMAXPROCS", "1").env("HOME", folder).env("XDG_DATA_HOME", folder);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            process::spawn(&mut command, SERVER).ok()
        });
        let Some(child) = child else { return Ok(None) };
        let mut caddy = Self { child, address };
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            ensure!(caddy.child.try_wait()?.is_none() && started.elapsed() < Duration::from_secs(10), "Caddy failed");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(caddy))
    }
}

impl Drop for Caddy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let edge = Edge::start(rounds, janua)?;
    let site = rounds.folder()?;
    fs::write(site.join("small.txt"), "x".repeat(SMALL))?;
    fs::write(site.join("large.bin"), noise(LARGE))?;
    deploy(&edge.ground, &edge.ground.app, &packed(&site)?)?;
    let answer = client::send(edge.address, &edge.get("/small.txt", "", "close"))?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let limit = servers::bare(&answer.replace("\r\nconnection: close", ""), &rounds.folder()?, SERVER)?;
    let file = Ask::again(edge.get("/small.txt", "", "keep-alive"));
    let pid = edge.ground.server.pid();
    let bare = || side(limit.pid(), |slice| load::against(limit.address, slice, GENERATOR));
    let ours = || side(pid, |slice| load::with(edge.address, slice, GENERATOR, &file));
    let sides = rounds::interleave("edge", rounds.turn, bare, ours)?;
    let what = "a file of 1 KiB by processor time; bare axum, same bytes";
    let mut figures = both_ways("edge", what, &sides, Some(Goal::Ratio(0.8)));

    let tag = answer.lines().find_map(|line| line.strip_prefix("etag: ")).context("an ETag")?;
    let unchanged = edge.get("/small.txt", &format!("if-none-match: {tag}\r\n"), "keep-alive");
    let unchanged = Ask::Unchanged(unchanged);
    let ours = || side(pid, |slice| load::with(edge.address, slice, GENERATOR, &unchanged));
    let sides = rounds::interleave("304", rounds.turn, bare, ours)?;
    let what = "304 for a file of 1 KiB by processor time; bare axum, the whole file";
    figures.extend(both_ways("edge 304", what, &sides, Some(Goal::Ratio(0.8))));
    match Caddy::start(&site, &rounds.folder()?)? {
        Some(caddy) => {
            let theirs = get("localhost", "/small.txt", "", "keep-alive");
            let said = client::send(caddy.address, &get("localhost", "/small.txt", "", "close"))?;
            ensure!(said.starts_with("HTTP/1.1 200") && said.ends_with(&"x".repeat(SMALL)), "{said}");
            let theirs = Ask::again(theirs);
            let limit = || side(caddy.child.id(), |slice| load::with(caddy.address, slice, GENERATOR, &theirs));
            let ours = || side(pid, |slice| load::with(edge.address, slice, GENERATOR, &file));
            let sides = rounds::interleave("caddy", rounds.turn, limit, ours)?;
            let what = "a file of 1 KiB by processor time; the same file by Caddy";
            figures.extend(both_ways("edge caddy", what, &sides, Some(Goal::Ratio(2.3))));
        }
        None => println!("edge: Caddy is not installed, nothing is compared with it"),
    }
    figures.push(large(rounds, &edge)?);
    figures.extend(deploys(rounds, &edge)?);
    drop(limit);
    drop(edge);
    figures.extend(sites(rounds, janua)?);
    Ok(figures)
}

/// Ten mebibytes over one connection, by the clock; the same from memory by a bare socket.
fn large(rounds: &Rounds, edge: &Edge) -> Result<Figure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let bare = listener.local_addr()?;
    thread::spawn(move || {
        let _ = process::stay_on(SERVER);
        let (head, body) = (format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n"), vec![7; LARGE]);
        while let Ok((mut stream, _)) = listener.accept() {
            let mut request = [0; 4096];
            while stream.read(&mut request).is_ok_and(|read| read > 0) {
                if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).is_err() {
                    break;
                }
            }
        }
    });
    let fetch = |address: SocketAddr| {
        let request = edge.get("/large.bin", "", "keep-alive");
        let mut stream = TcpStream::connect(address)?;
        anyhow::Ok(Box::new(move |slice: Duration| {
            let started = Instant::now();
            let mut count = 0;
            process::on(GENERATOR, || {
                while started.elapsed() < slice {
                    stream.write_all(&request)?;
                    receive(&mut stream)?;
                    count += 1;
                }
                Ok(())
            })?;
            Ok(Tally::done(count, started.elapsed()))
        }) as rounds::Side<'_>)
    };
    let sides = rounds::interleave("large", rounds.turn, || fetch(bare), || fetch(edge.address))?;
    let what = "files of 10 MiB over one connection; a bare socket";
    let samples = sides.only(|rate| rate.per_second);
    Ok(Figure { scenario: "edge large", what, unit: Unit::PerSecond, samples, goal: None })
}

/// Reads one answer with a length to its end.
fn receive(stream: &mut TcpStream) -> Result<()> {
    let mut part = vec![0; 256 * 1024];
    let mut head = vec![];
    let (length, mut got) = loop {
        let read = stream.read(&mut part)?;
        ensure!(read > 0, "the server hung up");
        head.extend_from_slice(&part[..read]);
        let Some(end) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(&head[..end]).to_lowercase();
        ensure!(text.starts_with("http/1.1 200"), "{text}");
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).context("a length")?;
        break (length.trim().parse::<usize>()?, head.len() - end - 4);
    };
    while got < length {
        let read = stream.read(&mut part)?;
        ensure!(read > 0, "the server hung up");
        got += read;
    }
    Ok(())
}

/// Two thousand files, from the first byte of the archive to the answer; the same bytes written to the disk as one file. And
/// making an earlier deployment live again.
fn deploys(rounds: &Rounds, edge: &Edge) -> Result<Vec<Figure>> {
    let disk = rounds.folder()?;
    let mut round = 0;
    let limit = || {
        let started = Instant::now();
        let mut file = File::create(disk.join("all"))?;
        for _ in 0..FILES {
            file.write_all(&[7; FILE])?;
        }
        file.sync_all()?;
        Ok(millis(started.elapsed()))
    };
    let mut last = String::new();
    let ours = || {
        round += 1;
        let site = rounds.folder()?;
        for number in 0..FILES {
            // New contents each time, of digits that compress as text does.
            let line = format!("{round} {number} {}\n", number * 7919 + round);
            fs::write(site.join(format!("f{number}.txt")), line.repeat(FILE / line.len()))?;
        }
        let archive = packed(&site)?;
        let started = Instant::now();
        last = deploy(&edge.ground, &edge.ground.app, &archive)?;
        let took = millis(started.elapsed());
        fs::remove_dir_all(site)?;
        Ok(took)
    };
    let samples = rounds::alternate("deploy", rounds::ROUNDS, limit, ours)?;
    let what = "a deployment of 2,000 files, 10 MB; the disk alone, one fsync";
    let deployed =
        Figure { scenario: "deploy", what, unit: Unit::Milliseconds, samples, goal: Some(Goal::Below(300.0)) };
    // Files are compressed after a deployment, which is another story.
    edge.ground.server.rest()?;
    let again = || {
        let started = Instant::now();
        edge.ground.asks("POST", &format!("/deployments/{last}/redeploy"), &json!({}))?;
        Ok(millis(started.elapsed()))
    };
    let nothing = || {
        let started = Instant::now();
        edge.ground.asks("GET", &format!("/deployments/{last}"), &Value::Null)?;
        Ok(millis(started.elapsed()))
    };
    let samples = rounds::alternate("redeploy", rounds::ROUNDS, nothing, again)?;
    let what = "the same files live again; looking at the deployment";
    let redeployed =
        Figure { scenario: "redeploy", what, unit: Unit::Milliseconds, samples, goal: Some(Goal::Below(20.0)) };
    Ok(vec![deployed, redeployed])
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1000.0
}

/// A small file of each of ten thousand sites in turn; always that of one. And what a site costs that was asked for once.
fn sites(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let edge = Edge::start(rounds, janua)?;
    let site = rounds.folder()?;
    fs::write(site.join("small.txt"), "x".repeat(SMALL))?;
    let archive = packed(&site)?;
    let mut requests = vec![];
    let bar = rounds::bar("sites", SITES / 2);
    for number in 0..SITES {
        let slug = format!("bench-{number}");
        let wish = json!({ "name": slug, "slug": slug, "orgId": edge.ground.org });
        let app = client::text(&edge.ground.asks("POST", "/apps", &wish)?, "id")?;
        deploy(&edge.ground, &app, &archive)?;
        requests.push(get(&format!("{slug}.localhost"), "/small.txt", "", "keep-alive"));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let before = edge.ground.server.resident_mb()?;
    let (one, all) = (Ask::again(requests[0].clone()), Ask::Many(requests));
    // Every site once, or more often, before anything is measured.
    load::with(edge.address, Duration::from_secs(20), GENERATOR, &all)?;
    #[expect(clippy::cast_precision_loss, reason = "ten thousand")]
    let each = (edge.ground.server.resident_mb()? - before).max(0.0) * 1000.0 / SITES as f64;
    let pid = edge.ground.server.pid();
    let limit = || side(pid, |slice| load::with(edge.address, slice, GENERATOR, &one));
    let ours = || side(pid, |slice| load::with(edge.address, slice, GENERATOR, &all));
    let sides = rounds::interleave("sites", rounds.turn, limit, ours)?;
    let what = "a file of 1 KiB by processor time of 10,000 sites; of one";
    let mut figures = both_ways("edge sites", what, &sides, Some(Goal::Ratio(0.9)));
    figures.push(Figure {
        scenario: "edge sites",
        what: "memory of a site that was asked for; of the file itself",
        unit: Unit::Kilobytes,
        samples: Sides { limit: vec![1.0], ours: vec![each] },
        goal: Some(Goal::Below(4.0)),
    });
    Ok(figures)
}

/// A folder, packed by the shell's own tools.
fn packed(site: &Path) -> Result<Vec<u8>> {
    let packed = Command::new("tar").args(["-czf", "-", "-C"]).arg(site).arg(".").output().context("tar runs")?;
    ensure!(packed.status.success(), "tar failed");
    Ok(packed.stdout)
}

/// Answers the deployment's ID.
fn deploy(ground: &Ground, app: &str, archive: &[u8]) -> Result<String> {
    let head = format!(
        "POST /apps/{app}/deploy HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
         content-type: application/gzip\r\ncontent-length: {}\r\n\r\n",
        ground.token,
        archive.len()
    );
    let answer = client::send(ground.address(), &[head.as_bytes(), archive].concat())?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    client::text(&serde_json::from_str(body)?, "id")
}
