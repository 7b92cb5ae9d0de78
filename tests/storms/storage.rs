//! Files of an app's users, and sites, while the server dies at each step or its disk is full.
use std::{
    fs,
    io::Read as _,
    net::TcpListener,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    deploys::send,
    support::{
        JANUA, SERVE, Server, allow_open_files,
        clock::Wound,
        crash::{Before, Heard},
        extent,
        people::{self, Owner, owner, text, well},
        wait,
    },
};

// The address is part of every URL, so it must outlive the port.
const SETTINGS: &[(&str, &str)] = &[("JANUA_RATE_LIMITS", "off"), ("JANUA_BASE_URL", "http://localhost:9")];

/// Somebody who may store files in an app.
struct User {
    owner: Owner,
    key: String,
}

impl User {
    fn of(server: &Server, folder: &Path) -> Self {
        let owner = owner(server, &[folder], "ada@example.com");
        let wanted = json!({ "type": "publishable", "environment": "live" });
        let key = text(&well(people::ask(server, "POST", &owner.keys(), &owner.access, &wanted))["value"]);
        Self { owner, key }
    }

    /// None when the server died.
    fn asks(&self, server: &Server, request: &str, more: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        let head = format!(
            "{request} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nX-Service-App-Key: {}{more}",
            self.owner.access, self.key
        );
        send(server.address, &head, body).ok()
    }

    fn json(&self, server: &Server, request: &str, body: &Value) -> Option<(u16, Value)> {
        let (status, said) =
            self.asks(server, request, "\r\nContent-Type: application/json", body.to_string().as_bytes())?;
        Some((status, serde_json::from_slice(&said).unwrap_or_default()))
    }

    fn presigns(&self, server: &Server, size: usize) -> Option<Value> {
        let body = json!({ "name": "a.txt", "contentType": "text/plain", "size": size });
        let (status, offer) = self.json(server, "POST /storage/presign-upload", &body)?;
        assert_eq!(status, 200, "{offer}");
        Some(offer)
    }

    /// The status of the answer; 0 when the server died.
    fn puts(server: &Server, offer: &Value, bytes: &[u8]) -> u16 {
        let head =
            format!("PUT {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain", path_of(&offer["uploadUrl"]));
        send(server.address, &head, bytes).map_or(0, |(status, _)| status)
    }

    fn finalizes(&self, server: &Server, offer: &Value) -> Option<(u16, Value)> {
        self.json(server, &format!("POST /storage/finalize/{}", text(&offer["objectId"])), &json!({}))
    }

    fn reads(&self, server: &Server, id: &Value) -> (Value, Vec<u8>) {
        let (status, object) =
            self.json(server, &format!("GET /storage/objects/{}", text(id)), &json!({})).expect("an answer");
        assert_eq!((status, &object["status"]), (200, &json!("ready")), "{object}");
        let (status, bytes) =
            self.asks(server, &format!("GET {}", path_of(&object["downloadUrl"])), "", b"").unwrap();
        assert_eq!(status, 200);
        (object, bytes)
    }

    /// As a member of the organization, without the app's key.
    fn deploys(&self, server: &Server, archive: &[u8]) -> Option<(u16, Value)> {
        let head = format!(
            "POST /apps/{}/deploy HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/gzip",
            self.owner.app, self.owner.access
        );
        let (status, said) = send(server.address, &head, archive).ok()?;
        Some((status, serde_json::from_slice(&said).unwrap_or_default()))
    }
}

fn path_of(url: &Value) -> String {
    let url = text(url);
    url.strip_prefix("http://localhost:9").unwrap_or(&url).to_owned()
}

fn words() -> Vec<u8> {
    b"one word after the other, ".repeat(4000)
}

fn count(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
}

/// Some hours later, in a process that began anew: only files of objects are left, and nothing that was half written.
pub fn is_swept(wound: &Wound, hours: i64, folder: &Path, server: &Server, (within, files): (&str, usize)) {
    server.signal("KILL");
    wait("it is gone", || std::net::TcpStream::connect(server.address).is_err().then_some(()));
    wound.by(hours * 3600);
    let _later = wound.start(folder, SETTINGS);
    let objects = folder.join("data/objects").join(within);
    wait(&format!("{files} files are left of {}", count(&objects)), || (count(&objects) == files).then_some(()));
}

#[test]
fn f_w2_an_upload_that_is_killed_at_any_step_loses_nothing_and_leaves_nothing() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Server::start(folder.path(), SETTINGS);
    let (user, words, wound) = (User::of(&server, folder.path()), words(), Wound::new());
    drop(server);
    let before = Before { folder: folder.path(), settings: SETTINGS, room: env!("CARGO_TARGET_TMPDIR").into() };
    before.sweep(
        |server| {
            let offer = user.presigns(server, words.len())?;
            let put = User::puts(server, &offer, &words);
            let ready = (put == 204).then(|| user.finalizes(server, &offer)).flatten();
            Some((put, json!({ "offer": offer, "ready": ready.map(|(status, _)| status) })))
        },
        |folder, server, heard| {
            let mut files = 0;
            if let Some((put, acknowledged)) = heard {
                let offer = &acknowledged["offer"];
                assert!([0, 204].contains(put), "{heard:?}");
                // What was acknowledged is there; from anywhere else the client goes on.
                if acknowledged["ready"] != 200 {
                    if *put != 204 {
                        let again = User::puts(server, offer, &words);
                        assert_eq!(again, 204, "{heard:?}");
                    }
                    let (status, said) = user.finalizes(server, offer).expect("an answer");
                    assert_eq!(status, 200, "{heard:?}: {said}");
                }
                let (object, bytes) = user.reads(server, &offer["objectId"]);
                assert!(bytes == words, "byte for byte: {object}");
                files = 1;
            }
            is_swept(&wound, 8, folder, server, ("o", files));
        },
    );
}

#[test]
fn f_w2_a_resumable_upload_that_is_killed_goes_on_where_it_was() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Server::start(folder.path(), SETTINGS);
    let (user, words, wound) = (User::of(&server, folder.path()), words(), Wound::new());
    let length = format!("\r\nTus-Resumable: 1.0.0\r\nUpload-Length: {}", words.len());
    assert_eq!(user.asks(&server, "POST /storage/uploads", &length, b"").unwrap().0, 201);
    let list = user.json(&server, "GET /storage/objects?status=pending", &json!({})).unwrap().1;
    let id = &list["objects"][0]["id"];
    let upload = format!("/storage/uploads/{}", text(id));
    drop(server);
    let patch = |server: &Server, from: usize| {
        let head = format!(
            "\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: {from}\r\nContent-Type: application/offset+octet-stream"
        );
        user.asks(server, &format!("PATCH {upload}"), &head, &words[from..]).map(|(status, _)| status)
    };
    let before = Before { folder: folder.path(), settings: SETTINGS, room: env!("CARGO_TARGET_TMPDIR").into() };
    before.sweep(
        |server| -> Heard { patch(server, 0).map(|status| (status, Value::Null)) },
        |folder, server, heard| {
            assert!(matches!(heard, None | Some((204, _))), "{heard:?}");
            // A client asks how far it was; a look at what is complete completes it.
            let asked = user.asks(server, &format!("GET {upload}"), "\r\nTus-Resumable: 1.0.0", b"").unwrap();
            assert_eq!(asked.0, 204, "{heard:?}");
            let object = user.json(server, &format!("GET /storage/objects/{}", text(id)), &json!({})).unwrap().1;
            if object["status"] == "pending" {
                assert!(heard.is_none(), "what was acknowledged is done");
                assert_eq!(patch(server, 0), Some(204), "one piece is there or it is not");
            }
            let (object, bytes) = user.reads(server, id);
            assert!(bytes == words, "byte for byte: {object}");
            // A piece is kept for as long as its upload may go on.
            is_swept(&wound, 28, folder, server, ("o", 1));
        },
    );
}

/// A gzip-compressed tar with one page and, if wanted, so much that cannot be made smaller.
fn archive(room: &Path, words: &str, ballast: u64) -> Vec<u8> {
    let folder = room.join("site");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("index.html"), words).unwrap();
    if ballast > 0 {
        let mut bytes = vec![];
        fs::File::open("/dev/urandom").unwrap().take(ballast).read_to_end(&mut bytes).unwrap();
        fs::write(folder.join("ballast.bin"), bytes).unwrap();
    }
    let packed = Command::new("tar").args(["-czf", "-", "-C"]).arg(&folder).arg(".").output().expect("tar runs");
    packed.stdout
}

/// The store in a file system of its own of four megabytes, which only a mount namespace can give without being root.
#[test]
fn f_w4_a_full_store_refuses_with_507_serves_what_it_has_and_heals() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let objects = folder.path().join("data/objects");
    fs::create_dir_all(&objects).unwrap();
    let edge = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c"]);
    command.arg("mount -t tmpfs -o size=4m tmpfs data/objects && exec \"$0\" \"$@\"").arg(JANUA).args(SERVE);
    command.current_dir(folder.path()).envs(SETTINGS.iter().copied()).env("JANUA_EDGE_LISTEN", edge.to_string());
    let server = Server::of(command);
    let user = User::of(&server, folder.path());
    let named = json!({ "slug": "shop" });
    well(people::ask(&server, "PATCH", &format!("/apps/{}", user.owner.app), &user.owner.access, &named));
    let shown = || send(edge, "GET / HTTP/1.1\r\nHost: shop.localhost", b"").expect("an answer");
    let (status, said) = user.deploys(&server, &archive(folder.path(), "old", 0)).unwrap();
    assert_eq!(status, 200, "{said}");
    let (words, large) = (words(), vec![b'x'; 1 << 20]);
    let kept = user.presigns(&server, words.len()).unwrap();
    assert_eq!(User::puts(&server, &kept, &words), 204);
    assert_eq!(user.finalizes(&server, &kept).unwrap().0, 200);

    // The file system is seen by the server alone, and through it.
    let ballast = format!("/proc/{}/root{}/ballast", server.child.id(), objects.display());
    fs::write(&ballast, vec![1; (7 << 20) / 2]).unwrap();
    let offer = user.presigns(&server, large.len()).unwrap();
    let began = Instant::now();
    assert_eq!(User::puts(&server, &offer, &large), 507);
    assert!(began.elapsed() < Duration::from_secs(2), "at once: {:?}", began.elapsed());
    let began = Instant::now();
    let (status, said) = user.deploys(&server, &archive(folder.path(), "new", 1 << 20)).unwrap();
    assert_eq!((status, &said["code"]), (507, &json!("storage_full")), "{said}");
    assert!(began.elapsed() < Duration::from_secs(2), "at once: {:?}", began.elapsed());
    assert_eq!(shown(), (200, b"old".to_vec()), "what was live is");
    assert!(user.reads(&server, &kept["objectId"]).1 == words, "what was stored is");

    fs::remove_file(&ballast).unwrap();
    assert_eq!(User::puts(&server, &offer, &large), 204, "it heals without a restart");
    assert_eq!(user.finalizes(&server, &offer).unwrap().0, 200);
    let (status, said) = user.deploys(&server, &archive(folder.path(), "new", 1 << 20)).unwrap();
    assert_eq!(status, 200, "{said}");
    assert_eq!(shown(), (200, b"new".to_vec()));
}

#[test]
fn f_w2_a_deployment_that_is_killed_is_whole_or_nothing() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let edge = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let listen = edge.to_string();
    let settings = [SETTINGS, &[("JANUA_EDGE_LISTEN", listen.as_str())]].concat();
    let server = Server::start(folder.path(), &settings);
    let user = User::of(&server, folder.path());
    let named = json!({ "slug": "shop" });
    well(people::ask(&server, "PATCH", &format!("/apps/{}", user.owner.app), &user.owner.access, &named));
    assert_eq!(user.deploys(&server, &archive(folder.path(), "old", 0)).unwrap().0, 200);
    drop(server);
    let (second, third) = (archive(folder.path(), "new", 100_000), archive(folder.path(), "newer", 100_000));
    let shown = || send(edge, "GET / HTTP/1.1\r\nHost: shop.localhost", b"").expect("an answer");
    let before = Before { folder: folder.path(), settings: &settings, room: env!("CARGO_TARGET_TMPDIR").into() };
    before.sweep(
        |server| user.deploys(server, &second),
        |_, server, heard| {
            let (status, page) = shown();
            assert_eq!(status, 200);
            assert!(page == b"old" || page == b"new", "{heard:?}");
            let is_acknowledged = matches!(heard, Some((200, _)));
            assert!(!is_acknowledged || page == b"new", "what was acknowledged is live");
            if page == b"new" {
                let (status, whole) = send(edge, "GET /ballast.bin HTTP/1.1\r\nHost: shop.localhost", b"").unwrap();
                assert_eq!((status, whole.len()), (200, 100_000), "every file of it");
            }
            let list =
                people::ask(server, "GET", "/deployments?status=processing", &user.owner.access, &Value::Null).1;
            assert_eq!(list["deployments"], json!([]), "what was interrupted is said to be");
            let (status, said) = user.deploys(server, &third).expect("an answer");
            assert_eq!(status, 200, "{said}");
            assert_eq!(shown(), (200, b"newer".to_vec()));
        },
    );
}

/// Resident memory of a server, in megabytes.
fn megabytes(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn f_w11_slow_uploads_and_silent_connections_harm_nobody_and_are_cut_off() {
    let room = tempfile::tempdir().unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x"])
        .arg("-keyout")
        .arg(room.path().join("key.pem"))
        .arg("-out")
        .arg(room.path().join("cert.pem"))
        .output()
        .unwrap();
    assert!(made.status.success());
    let file = |name: &str| room.path().join(name).display().to_string();
    let (certificate, key) = (file("cert.pem"), file("key.pem"));
    let edge = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listen = edge.to_string();
    let more = [
        ("JANUA_EDGE_DOMAIN", "sites.example"),
        ("JANUA_EDGE_LISTEN", "127.0.0.1:0"),
        ("JANUA_EDGE_TLS_LISTEN", listen.as_str()),
        ("JANUA_EDGE_CERTIFICATE", certificate.as_str()),
        ("JANUA_EDGE_KEY", key.as_str()),
    ];
    let (uploads, silent) = (500, extent(400, 4000, "connections that say nothing to the edge"));
    allow_open_files(uploads + silent + 1_000);
    let server = Server::start(room.path(), &[SETTINGS, &more].concat());
    let user = User::of(&server, room.path());
    let offers: Vec<Value> = (0..10).map(|_| user.presigns(&server, 1_000_000).unwrap()).collect();
    let before = megabytes(&server);
    // Each at a thousand bytes a second. More than half of all places for uploads nobody gets from one network.
    let mut slow: Vec<_> = (0..uploads)
        .map(|number| {
            let mut stream = server.connect();
            let path = path_of(&offers[number % offers.len()]["uploadUrl"]);
            let head = format!(
                "PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 1000000\r\n\r\n"
            );
            std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
            stream
        })
        .collect();
    let mut mute: Vec<_> = (0..silent).map(|_| std::net::TcpStream::connect(edge).unwrap()).collect();
    let mut took = vec![];
    for _ in 0..4 {
        for stream in &mut slow {
            // Those that were refused are closed.
            let _ = std::io::Write::write_all(stream, &[b'x'; 1000]);
        }
        let second = Instant::now();
        while second.elapsed() < Duration::from_secs(1) {
            let asked = Instant::now();
            let (status, said) = people::ask(&server, "GET", "/auth/me", &user.owner.access, &Value::Null);
            assert_eq!(status, 200, "{said}");
            took.push(asked.elapsed());
        }
    }
    took.sort();
    let slowest = took[took.len() * 99 / 100];
    assert!(slowest < Duration::from_millis(500), "the slowest hundredth of {} took {slowest:?}", took.len());
    let grown = megabytes(&server).saturating_sub(before);
    assert!(grown < 96, "{grown} MB more for {uploads} uploads and {silent} connections");
    eprintln!("{} requests meanwhile, p99 {slowest:?}; {grown} MB more", took.len());
    // Then nothing comes any more.
    let stopped = Instant::now();
    for stream in slow.iter_mut().chain(&mut mute) {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut heard = vec![];
        let ended = stream.read_to_end(&mut heard);
        let is_reset = ended.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset);
        assert!(ended.is_ok() || is_reset, "{ended:?} after {:?}", stopped.elapsed());
    }
    assert!(stopped.elapsed() < Duration::from_secs(40), "cut off after {:?}", stopped.elapsed());
    let offer = user.presigns(&server, words().len()).unwrap();
    assert_eq!(User::puts(&server, &offer, &words()), 204, "there is room again");
}
