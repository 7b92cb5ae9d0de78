//! Backups of the running binary: made while it is written to, brought back, and nothing that ended since comes along.
use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use db::{Db, Durability, params};
use serde_json::{Value, json};

use crate::support::{
    Server, janua, mail_with,
    people::{ALLOW_HOOKS, NEW_HOOK, Owner, PASSWORD, all_hooks, ask, id_in, login, owner, text, well, with_key},
    run, token_in, wait,
};

const EMAIL: &str = "ada@example.com";
const NEW: &str = "staple battery horse correct";
// The address is part of every token, so it must outlive the port.
const SETTINGS: &[(&str, &str)] =
    &[("JANUA_RATE_LIMITS", "off"), ("JANUA_BASE_URL", "http://localhost:9"), ALLOW_HOOKS];
const WRITERS: usize = 4;

fn backup(folder: &Path, file: &str) -> (bool, String) {
    let mut command = janua(folder, &["backup", file]);
    command.envs(SETTINGS.iter().copied());
    run(command)
}

/// A folder beside, with the same master key, and what the backup held.
fn restore(from: &Path, file: &str, to: &Path, more: &[&str]) -> (bool, String) {
    if from != to {
        fs::create_dir_all(to.join("data")).unwrap();
        fs::copy(from.join("data/master.key"), to.join("data/master.key")).unwrap();
    }
    let file = from.join(file);
    let mut command = janua(to, &[&["restore", file.to_str().unwrap()], more].concat());
    command.envs(SETTINGS.iter().copied());
    run(command)
}

/// Does something while writers go on all the time; answers what was acknowledged, and when.
fn while_written_to<T>(server: &Server, owner: &Owner, work: impl FnOnce() -> T) -> (Vec<(Instant, String)>, T) {
    let (ledger, done) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let outcome = thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                let mut visit = server.visit();
                while !done.load(SeqCst) {
                    let (status, said) = visit.ask("POST", &owner.hooks(), &owner.access, NEW_HOOK);
                    assert_eq!(status, 200, "{said}");
                    ledger.lock().unwrap().push((Instant::now(), id_in(&said)));
                }
            });
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, SeqCst);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    (ledger.into_inner().unwrap(), outcome)
}

/// F19: everything that was acknowledged before it began, and nothing that ended after it.
#[test]
fn f19_a_backup_under_load_holds_what_was_acknowledged_and_nothing_comes_back_to_life() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Server::start(folder.path(), SETTINGS);
    let owner = owner(&server, &[folder.path()], EMAIL);
    let kept = well(login(&server, EMAIL, PASSWORD));
    let outbox = folder.path().join("data/outbox");
    well(ask(&server, "POST", "/auth/forgot-password", "", &json!({ "email": EMAIL })));
    let reset = token_in(&wait("the mail", || mail_with(&outbox, "Choose a new password")));
    let keys = owner.keys();
    let secret = json!({ "type": "secret", "environment": "live" });
    let secret = text(&well(ask(&server, "POST", &keys, &owner.access, &secret))["value"]);
    let tokens = format!("/org/{}/scim-tokens", owner.org);
    let scim = text(&well(ask(&server, "POST", &tokens, &owner.access, &json!({ "name": "Entra" })))["value"]);
    let picture = folder.path().join("data/objects/pictures/0123456789abcdef.png");
    fs::create_dir_all(picture.parent().unwrap()).unwrap();
    fs::write(&picture, b"not looked at").unwrap();
    fs::write(picture.with_file_name(".7"), b"half written").unwrap();

    let (ledger, (began, ended, said)) = while_written_to(&server, &owner, || {
        thread::sleep(Duration::from_millis(700));
        let began = Instant::now();
        let (made, said) = backup(folder.path(), "one.backup");
        let ended = Instant::now();
        thread::sleep(Duration::from_millis(200));
        assert!(made, "{said}");
        (began, ended, said)
    });
    assert!(said.contains("1 pictures") && said.contains("master key is not in it"), "{said}");
    let file = folder.path().join("one.backup");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "its owner's alone");
    assert!(
        !fs::read(&file)
            .unwrap()
            .windows(64)
            .any(|part| part == fs::read(folder.path().join("data/master.key")).unwrap())
    );
    let before: BTreeSet<&String> = ledger.iter().filter(|(at, _)| *at < began).map(|(_, id)| id).collect();
    let during = ledger.iter().filter(|(at, _)| *at >= began && *at < ended).count();
    assert!(before.len() > 20 && during > 0, "{} before, {during} while it was made", before.len());

    // After the backup: a session ends, the link is used, a password changes, keys are deleted.
    assert_eq!(ask(&server, "POST", "/auth/logout", &text(&kept["accessToken"]), &Value::Null).0, 204);
    let used = json!({ "token": reset, "password": NEW });
    assert_eq!(ask(&server, "POST", "/auth/reset-password", "", &used).0, 204);
    drop(server);

    let beside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let started = Instant::now();
    let (restored, said) = restore(folder.path(), "one.backup", beside.path(), &[]);
    assert!(restored, "{said}");
    assert!(said.contains("2 sessions") && said.contains("1 secret app keys, 1 SCIM tokens"), "{said}");
    let left: Vec<_> =
        fs::read_dir(beside.path().join("data")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("restoring")), "{left:?}");
    let server = Server::start(beside.path(), SETTINGS);
    let took = started.elapsed();

    let person = json!({ "refreshToken": kept["refreshToken"] });
    assert_eq!(ask(&server, "POST", "/auth/refresh", "", &person).0, 401, "ended after the backup, and still ended");
    assert_eq!(ask(&server, "GET", "/auth/me", &text(&kept["accessToken"]), &Value::Null).0, 401);
    let other = json!({ "refreshToken": owner.refresh });
    assert_eq!(ask(&server, "POST", "/auth/refresh", "", &other).0, 401, "nobody knows which ended");
    assert_eq!(ask(&server, "POST", "/auth/reset-password", "", &used).0, 410, "a used link stays used");
    let now = well(login(&server, EMAIL, PASSWORD));
    let access = text(&now["accessToken"]);
    assert_eq!(login(&server, EMAIL, NEW).0, 401, "the password is the one of that moment");

    assert_eq!(with_key(&server, &secret), 401, "a key that may have been deleted");
    assert_eq!(ask(&server, "GET", "/scim/v2/Users", &scim, &Value::Null).0, 401);
    let picture = beside.path().join("data/objects/pictures/0123456789abcdef.png");
    assert_eq!(fs::read(&picture).unwrap(), b"not looked at");
    assert!(!picture.with_file_name(".7").exists());

    let there = all_hooks(&server, &owner, &access);
    let lost: Vec<_> = before.iter().filter(|id| !there.contains(**id)).collect();
    assert!(lost.is_empty(), "{} of {} acknowledged before the backup are lost", lost.len(), before.len());
    println!(
        "{} acknowledged before the backup and {during} while it was made; {} in it; lost: 0; restored in {took:.1?}",
        before.len(),
        there.len()
    );

    let beside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (restored, said) = restore(folder.path(), "one.backup", beside.path(), &["--keep-keys"]);
    assert!(restored && said.contains("may have been deleted since") && said.contains("scim_"), "{said}");
    let server = Server::start(beside.path(), SETTINGS);
    assert_eq!(with_key(&server, &secret), 200, "kept because somebody said so");
    assert_eq!(ask(&server, "GET", "/scim/v2/Users", &scim, &Value::Null).0, 200);
}

#[test]
fn a_backup_replaces_nothing_and_a_restore_neither() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (made, said) = backup(folder.path(), "none.backup");
    assert!(!made && said.contains("nothing to back up"), "{said}");
    assert!(!folder.path().join("data/janua.db").exists(), "looking makes nothing");
    let server = Server::start(folder.path(), SETTINGS);
    assert!(backup(folder.path(), "one.backup").0);
    let (made, said) = backup(folder.path(), "one.backup");
    assert!(!made && said.contains("is there already"), "{said}");
    let (restored, said) = restore(folder.path(), "one.backup", folder.path(), &[]);
    assert!(!restored && said.contains("another janua is running"), "{said}");
    assert_eq!(server.get("/health").0, 200);
    drop(server);
    let (restored, said) = restore(folder.path(), "one.backup", folder.path(), &[]);
    assert!(!restored && said.contains("is there already: move it away"), "{said}");

    // A log left behind by another database would be read as part of the new one.
    fs::rename(folder.path().join("data/janua.db"), folder.path().join("data/old.db")).unwrap();
    fs::remove_file(folder.path().join("data/janua.db-shm")).unwrap();
    let (restored, said) = restore(folder.path(), "one.backup", folder.path(), &[]);
    assert!(!restored && said.contains("janua.db-wal is there already"), "{said}");
    fs::remove_file(folder.path().join("data/janua.db-wal")).unwrap();
    let (restored, said) = restore(folder.path(), "one.backup", folder.path(), &[]);
    assert!(restored, "{said}");
    assert_eq!(Server::start(folder.path(), SETTINGS).get("/health").0, 200);
}

#[test]
fn what_is_no_whole_backup_of_ours_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    drop(Server::start(folder.path(), SETTINGS));
    assert!(backup(folder.path(), "one.backup").0);
    let whole = fs::read(folder.path().join("one.backup")).unwrap();
    let refused = |name: &str, expected: &str| {
        let to = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (restored, said) = restore(folder.path(), name, to.path(), &[]);
        assert!(!restored && said.contains(expected) && !said.contains("panicked"), "{name}: {said}");
        assert!(!to.path().join("data/janua.db").exists(), "{name}");
        assert!(!to.path().join("data/janua.db.restoring").exists(), "{name}");
    };
    refused("nowhere.backup", "nowhere.backup");
    fs::write(folder.path().join("text.backup"), "Dear diary").unwrap();
    refused("text.backup", "is not a backup made by janua");
    fs::copy(folder.path().join("data/janua.db"), folder.path().join("copy.backup")).unwrap();
    refused("copy.backup", "is not a backup made by janua");
    fs::write(folder.path().join("cut.backup"), &whole[..whole.len() * 2 / 3]).unwrap();
    refused("cut.backup", "is damaged");
    let mut changed = whole.clone();
    let middle = whole.len() / 2 / 4096 * 4096;
    changed[middle..middle + 4096].fill(0xa5);
    fs::write(folder.path().join("changed.backup"), &changed).unwrap();
    refused("changed.backup", "is damaged");

    fs::write(folder.path().join("newer.backup"), &whole).unwrap();
    let url = format!("sqlite:{}", folder.path().join("newer.backup").display());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let db = Db::open(&url, 1, Durability::Full).await.unwrap();
        let sql = "INSERT INTO schema_migration (number, name, checksum, applied_at) VALUES (9999, 'later', 'x', 1)";
        db.exec(sql, params![]).await.unwrap();
    });
    refused("newer.backup", "used by a newer janua");

    let to = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = folder.path().join("one.backup");
    let mut command = janua(to.path(), &["restore", file.to_str().unwrap()]);
    command.env("JANUA_MASTER_KEY", "ab".repeat(32));
    let (restored, said) = run(command);
    assert!(!restored && said.contains("does not open this database"), "{said}");
    let (restored, said) = run(janua(to.path(), &["restore", file.to_str().unwrap()]));
    assert!(!restored && said.contains("master.key is missing"), "{said}");
    assert!(!to.path().join("data/janua.db").exists());
}

/// A database that was put back by hand, as after `pg_restore` or a copy of the file.
#[test]
fn after_restore_does_the_same_for_a_database_put_back_by_hand() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Server::start(folder.path(), SETTINGS);
    let owner = owner(&server, &[folder.path()], EMAIL);
    let after = |folder: &Path| {
        let mut command = janua(folder, &["after-restore"]);
        command.envs(SETTINGS.iter().copied());
        run(command)
    };
    let (ran, said) = after(folder.path());
    assert!(!ran && said.contains("another janua is running"), "{said}");
    drop(server);
    let (ran, said) = after(folder.path());
    assert!(ran && said.contains("1 sessions"), "{said}");
    let server = Server::start(folder.path(), SETTINGS);
    assert_eq!(ask(&server, "GET", "/auth/me", &owner.access, &Value::Null).0, 401);
    assert_eq!(login(&server, EMAIL, PASSWORD).0, 200);
}

/// One request on a connection of its own, wherever it goes: the status and everything that came back.
fn send(to: SocketAddr, head: &str, body: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!("{head}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut answer = vec![];
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    (answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), answer)
}

/// F-W12: what a backup brings back is served, byte for byte: every kept deployment, and files of users.
#[test]
fn f_w12_sites_and_files_come_back_with_a_backup() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let edge = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).unwrap();
    let listen = edge.to_string();
    let settings = [SETTINGS, &[("JANUA_EDGE_LISTEN", listen.as_str())]].concat();
    let server = Server::start(folder.path(), &settings);
    let owner = owner(&server, &[folder.path()], EMAIL);
    well(ask(&server, "PATCH", &format!("/apps/{}", owner.app), &owner.access, &json!({ "slug": "shop" })));
    let json_in = |said: &str| -> Value { serde_json::from_str(said.split("\r\n\r\n").nth(1).unwrap()).unwrap() };
    let deploy = |words: &str| {
        let site = folder.path().join("site");
        fs::create_dir_all(&site).unwrap();
        fs::write(site.join("index.html"), words).unwrap();
        let packed = Command::new("tar").args(["-czf", "-", "-C"]).arg(&site).arg(".").output().unwrap().stdout;
        let head = format!(
            "POST /apps/{}/deploy HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/gzip",
            owner.app, owner.access
        );
        let (status, said) = send(server.address, &head, &packed);
        assert_eq!(status, 200, "{said}");
        let url = text(&json_in(&said)["previewUrl"]);
        url.split("//").nth(1).unwrap().split(':').next().unwrap().to_owned()
    };
    let (first, second) = (deploy("the first page"), deploy("the second page"));
    let key = json!({ "type": "publishable", "environment": "live" });
    let key = text(&well(ask(&server, "POST", &owner.keys(), &owner.access, &key))["value"]);
    let stores = |request: &str, body: &Value| {
        let head = format!(
            "{request} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nX-Service-App-Key: {key}\r\n\
             Content-Type: application/json",
            owner.access
        );
        let (status, said) = send(server.address, &head, body.to_string().as_bytes());
        assert_eq!(status, 200, "{said}");
        json_in(&said)
    };
    let new = json!({ "name": "a.txt", "contentType": "text/plain", "size": 13, "visibility": "public" });
    let offer = stores("POST /storage/presign-upload", &new);
    let path = |url: &Value| text(url).replace("http://localhost:9", "");
    let head = format!("PUT {} HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain", path(&offer["uploadUrl"]));
    assert_eq!(send(server.address, &head, b"words of users").0, 403, "one byte more");
    assert_eq!(send(server.address, &head, b"words of user").0, 204);
    let object = stores(&format!("POST /storage/finalize/{}", text(&offer["objectId"])), &json!({}));
    let (made, said) = backup(folder.path(), "sites.backup");
    assert!(made, "{said}");
    drop(server);

    let beside = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (restored, said) = restore(folder.path(), "sites.backup", beside.path(), &[]);
    assert!(restored, "{said}");
    fs::remove_dir_all(folder.path().join("data")).unwrap();
    let server = Server::start(beside.path(), &settings);
    for (host, words) in [
        ("shop.localhost", "the second page"),
        (second.as_str(), "the second page"),
        (first.as_str(), "the first page"),
    ] {
        let (status, said) = send(edge, &format!("GET / HTTP/1.1\r\nHost: {host}"), b"");
        assert!(status == 200 && said.ends_with(words), "{host}: {said}");
    }
    let (status, said) = send(server.address, &format!("GET {} HTTP/1.1\r\nHost: x", path(&object["url"])), b"");
    assert!(status == 200 && said.ends_with("words of user"), "{said}");
}
