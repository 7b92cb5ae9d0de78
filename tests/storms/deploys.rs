//! Deployments while the server is killed: what is served is one whole deployment, and never an older one than was
//! acknowledged.
use std::{
    fs, io,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    Server, extent, mail_with,
    people::{self, well},
    postgres::Postgres,
    token_in, wait,
};

const PASSWORD: &str = "correct horse battery staple";

/// One request on a connection of its own: the status and the body.
pub fn send(to: SocketAddr, head: &str, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    exchange(&mut stream, head, body)
}

/// The same on a connection that is there.
pub fn exchange(mut stream: impl io::Read + io::Write, head: &str, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    stream.write_all(format!("{head}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes())?;
    stream.write_all(body)?;
    let mut answer = vec![];
    stream.read_to_end(&mut answer)?;
    let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "cut off");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(cut)?;
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut)?;
    let body = answer.split_off(end + 4);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    if length.is_some_and(|length| length != body.len()) {
        return Err(cut());
    }
    Ok((status, body))
}

fn ask(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> Value {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let (status, said) = server.visit().ask(method, path, token, &text);
    assert!((200..300).contains(&status), "{method} {path}: {status} {said}");
    serde_json::from_str(&said).unwrap_or_default()
}

/// What the long file of a deployment says: its number, for several pieces.
fn long(number: u64) -> String {
    let line = format!("{number}\n");
    line.repeat((1 << 20) / line.len() + 9)
}

/// A site whose every file says its number, long enough for several pieces.
fn archive(room: &Path, number: u64) -> Vec<u8> {
    let folder = room.join("site");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("index.html"), format!("{number}\n")).unwrap();
    fs::write(folder.join("long.txt"), long(number)).unwrap();
    for n in 0..20 {
        fs::write(folder.join(format!("{n}.txt")), format!("{number}-{n}\n")).unwrap();
    }
    let packed = Command::new("tar").args(["-czf", "-", "-C"]).arg(&folder).arg(".").output().expect("tar runs");
    assert!(packed.status.success());
    packed.stdout
}

/// Reads as long as it goes on, and counts how often it got the whole file. What it got is compared as a whole, because a test
/// is built without optimisation and a look at each line would take longer than the answer.
fn reader(edge: SocketAddr, acknowledged: &AtomicU64, is_over: &AtomicBool, reads: &AtomicU64, path: &str) {
    let mut last = 0;
    while !is_over.load(SeqCst) {
        let known = acknowledged.load(SeqCst);
        let Ok((status, body)) = send(edge, &format!("GET {path} HTTP/1.1\r\nHost: shop.localhost"), b"") else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        let text = String::from_utf8(body).unwrap();
        let line = text.lines().next().expect("a line");
        let number: u64 = line.parse().unwrap();
        let whole = if path == "/" { format!("{number}\n") } else { long(number) };
        assert!(text == whole, "one deployment, from its first line to its last");
        assert!(number >= known, "{number} is served, and {known} was acknowledged before");
        assert!(number >= last, "{number} is served after {last}");
        last = number;
        reads.fetch_add(1, SeqCst);
    }
}

#[test]
fn killed_again_and_again_the_edge_serves_one_whole_deployment() {
    let deploys = extent(24, 300, "deployments") as u64;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let edge = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let listen = edge.to_string();
    let settings = [
        ("JANUA_EDGE_LISTEN", listen.as_str()),
        ("JANUA_RATE_LIMITS", "off"),
        ("JANUA_BASE_URL", "http://localhost"),
    ];
    let mut server = Server::start(folder.path(), &settings);
    let person = json!({ "email": "ada@example.com", "password": PASSWORD, "name": "Ada" });
    ask(&server, "POST", "/auth/register", "", &person);
    let outbox = folder.path().join("data/outbox");
    let mail = wait("the mail", || mail_with(&outbox, "ada@example.com").filter(|mail| mail.contains("?token=")));
    ask(&server, "POST", "/auth/verify-email", "", &json!({ "token": token_in(&mail) }));
    let login = json!({ "email": "ada@example.com", "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    let token = ask(&server, "POST", "/auth/login", "", &login)["accessToken"].as_str().unwrap().to_owned();
    let app = ask(&server, "POST", "/apps", &token, &json!({ "name": "Shop", "slug": "shop" }));
    let app = app["id"].as_str().unwrap().to_owned();
    let wanted = json!({ "type": "secret", "environment": "live" });
    let key =
        ask(&server, "POST", &format!("/apps/{app}/keys"), &token, &wanted)["value"].as_str().unwrap().to_owned();

    let deploy = |server: &Server, archive: &[u8]| {
        let head = format!(
            "POST /apps/{app}/deploy HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/gzip"
        );
        send(server.address, &head, archive)
    };
    let (status, said) = deploy(&server, &archive(folder.path(), 1)).expect("an answer");
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&said));
    let (acknowledged, is_over) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicBool::new(false)));
    let reads = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
    let readers: Vec<_> = ["/", "/long.txt"]
        .into_iter()
        .zip(reads.clone())
        .map(|(path, reads)| {
            let (acknowledged, is_over) = (acknowledged.clone(), is_over.clone());
            thread::spawn(move || reader(edge, &acknowledged, &is_over, &reads, path))
        })
        .collect();
    let counted = || reads.each_ref().map(|count| count.load(SeqCst));
    let (mut killed, mut unknown) = (0, 0);
    for number in 2..=deploys {
        let archive = archive(folder.path(), number);
        // Every third one is killed somewhere on the way; the moment moves through all of its stages.
        if number % 3 == 0 {
            let pid = server.child.id().to_string();
            let wait = Duration::from_micros(number * 7919 % 60_000);
            let killer = thread::spawn(move || {
                thread::sleep(wait);
                Command::new("kill").args(["-9", &pid]).status().expect("kill runs");
            });
            let answer = deploy(&server, &archive);
            killer.join().unwrap();
            server.child.wait().unwrap();
            killed += 1;
            match answer {
                Ok((200, _)) => _ = acknowledged.fetch_max(number, SeqCst),
                _ => unknown += 1,
            }
            server = Server::start(folder.path(), &settings);
        } else {
            let (status, said) = deploy(&server, &archive).expect("an answer");
            assert_eq!(status, 200, "{}", String::from_utf8_lossy(&said));
            acknowledged.fetch_max(number, SeqCst);
        }
        // However slow the machine, both read between any two; a reader that ended or gets nothing is seen here.
        let before = counted();
        wait("both read after a deployment", || {
            let now = counted();
            (now[0] > before[0] && now[1] > before[1]).then_some(())
        });
    }
    let began = Instant::now();
    is_over.store(true, SeqCst);
    for reader in readers {
        reader.join().expect("a reader saw only whole ones");
    }
    let list = ask(&server, "GET", "/deployments?status=processing", &token, &Value::Null);
    assert_eq!(list["deployments"], json!([]), "what was interrupted is said to be, {:?} later", began.elapsed());
    println!("{deploys} deployments, {killed} kills, {unknown} not acknowledged, reads {:?}", counted());
}

const MASTER: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

/// A node of an installation on PostgreSQL, and where its edge listens. All nodes share the folder of objects, as they would
/// share a bucket.
fn node(database: &str, objects: &Path) -> (tempfile::TempDir, Server, SocketAddr) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir_all(folder.path().join("data")).unwrap();
    fs::create_dir_all(objects).unwrap();
    std::os::unix::fs::symlink(objects, folder.path().join("data/objects")).unwrap();
    let edge = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let listen = edge.to_string();
    let settings = [
        ("JANUA_MASTER_KEY", MASTER),
        ("JANUA_BASE_URL", "http://localhost:9"),
        ("JANUA_RATE_LIMITS", "off"),
        ("JANUA_EDGE_LISTEN", listen.as_str()),
        ("JANUA_DATABASE_URL", database),
    ];
    let server = Server::start(folder.path(), &settings);
    (folder, server, edge)
}

/// A site with one line.
fn small(room: &Path, number: u64) -> Vec<u8> {
    let folder = room.join(format!("small-{number}"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("index.html"), number.to_string()).unwrap();
    let packed = Command::new("tar").args(["-czf", "-", "-C"]).arg(&folder).arg(".").output().expect("tar runs");
    packed.stdout
}

#[test]
fn an_activation_reaches_the_other_node_within_a_second_and_sites_survive_the_database() {
    let activations = extent(20, 200, "activations") as u64;
    let postgres = Postgres::start();
    let (database, room) = (postgres.database("sites"), tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let objects = room.path().join("objects");
    let (one, first, edge) = node(&database, &objects);
    let (two, second, other) = node(&database, &objects);
    let owner = people::owner(&first, &[one.path(), two.path()], "ada@example.com");
    let named = json!({ "slug": "shop" });
    well(people::ask(&first, "PATCH", &format!("/apps/{}", owner.app), &owner.access, &named));
    let read = |edge| send(edge, "GET / HTTP/1.1\r\nHost: shop.localhost", b"");
    let mut slowest = Duration::ZERO;
    for number in 1..=activations {
        let head = format!(
            "POST /apps/{}/deploy HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/gzip",
            owner.app, owner.access
        );
        let (status, said) = send(first.address, &head, &small(room.path(), number)).expect("an answer");
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&said));
        let acknowledged = Instant::now();
        assert_eq!(read(edge).expect("an answer"), (200, number.to_string().into_bytes()), "at once on its own node");
        while read(other).expect("an answer").1 != number.to_string().into_bytes() {
            assert!(
                acknowledged.elapsed() < Duration::from_secs(1),
                "deployment {number} is not seen within a second"
            );
            thread::sleep(Duration::from_millis(2));
        }
        slowest = slowest.max(acknowledged.elapsed());
    }

    postgres.stop();
    let away = Instant::now();
    let mut longest = Duration::ZERO;
    while away.elapsed() < Duration::from_secs(extent(5, 60, "seconds without a database") as u64) {
        let asked = Instant::now();
        for edge in [edge, other] {
            let (status, body) = read(edge).expect("an answer");
            assert_eq!((status, body), (200, activations.to_string().into_bytes()), "known hosts are served");
        }
        longest = longest.max(asked.elapsed());
    }
    let unknown = send(edge, "GET / HTTP/1.1\r\nHost: nobody-asked.localhost", b"").expect("an answer");
    assert_eq!(unknown.0, 503, "a host that this node never served");
    postgres.again();
    wait("the database", || read(other).ok().filter(|(status, _)| *status == 200));
    drop(second);
    println!(
        "{activations} activations, the other node saw them within {slowest:?}; without a database reads took {longest:?}"
    );
}
