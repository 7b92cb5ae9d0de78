//! The server dies at every place where it writes or syncs, one after the other (F02): what was not acknowledged is
//! there as a whole or not at all, and a one-time secret works once, crash or no crash.
//!
//! `CRASH_STEP=1` visits every place; without it every fourth.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test on the real clock that fails when it must"
)]
mod binary;

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use binary::{Server, mail_with, token_in, wait};
use serde_json::{Value, json};

const EMAIL: &str = "ada@example.com";
const OLD: &str = "correct horse battery staple";
const NEW: &str = "staple battery horse correct";
// The address is part of every token, so it must outlive the port.
const SETTINGS: &[(&str, &str)] = &[("JANUA_RATE_LIMITS", "off"), ("JANUA_BASE_URL", "http://localhost:9")];
/// What the server does to the world outside.
const PLACES: &str = "write,pwrite64,writev,sendto,fsync,fdatasync,openat,rename,unlink";
/// Past so many places in a row at which it lived, it has done all it had to do.
const QUIET: usize = 3;
const LAST: usize = 400;

/// What a request did, as far as its sender knows: the answer, or nothing because the server died.
type Heard = Option<(u16, Value)>;

fn post(server: &Server, path: &str, body: &Value) -> Heard {
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n");
    let mut stream = std::net::TcpStream::connect(server.address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split_whitespace().nth(1)?.parse().ok()?;
    let body = answer.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
    Some((status, body.unwrap_or_default()))
}

fn status(heard: &Heard) -> u16 {
    heard.as_ref().map_or(0, |(status, _)| *status)
}

fn login(server: &Server, password: &str) -> Heard {
    let body = json!({ "email": EMAIL, "password": password, "options": { "tokenDelivery": "body" } });
    post(server, "/auth/login", &body)
}

fn outbox(folder: &Path) -> std::path::PathBuf {
    folder.join("data/outbox")
}

/// A folder with a person in it who has confirmed their address.
fn with_a_person(folder: &Path) -> Server {
    let server = Server::start(folder, SETTINGS);
    let body = json!({ "email": EMAIL, "password": OLD, "name": "Ada" });
    assert_eq!(status(&post(&server, "/auth/register", &body)), 200);
    let mail = wait("the mail", || mail_with(&outbox(folder), "Confirm your email"));
    assert_eq!(status(&post(&server, "/auth/verify-email", &json!({ "token": token_in(&mail) }))), 200);
    server
}

/// Lets the server die at the `place`th write of one of its threads while it works on `request`. Answers what the
/// sender heard, and whether the server died.
fn die_at(place: usize, folder: &Path, request: impl Fn(&Server) -> Heard) -> (Heard, bool) {
    let mut server = Server::start(folder, SETTINGS);
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o", "/dev/null", "-e", &format!("trace={PLACES}")]);
    strace.args(["-e", &format!("inject={PLACES}:signal=SIGKILL:when={place}")]);
    strace.args(["-p", &server.child.id().to_string()]).stderr(Stdio::piped());
    let mut strace = strace.spawn().expect("strace is there");
    let mut said = BufReader::new(strace.stderr.take().unwrap());
    said.read_line(&mut String::new()).expect("it says that it is attached");
    let heard = request(&server);
    // What is left to be done in the background counts too.
    let started = Instant::now();
    let mut died = false;
    while !died && started.elapsed() < Duration::from_millis(300) {
        died = server.child.try_wait().unwrap().is_some();
        thread::sleep(Duration::from_millis(10));
    }
    drop(server);
    let _ = strace.kill();
    let _ = strace.wait();
    (heard, died)
}

/// Visits the places of one request. Each time the folder is as it was, and afterwards `check` looks at what is left.
fn sweep(before: &Path, request: impl Fn(&Server) -> Heard, check: impl Fn(&Path, &Heard)) -> usize {
    let step = std::env::var("CRASH_STEP").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let (mut deaths, mut quiet) = (0, 0);
    for place in (1..LAST).step_by(step) {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let copied = Command::new("cp").arg("-r").arg(before.join("data")).arg(folder.path()).status();
        assert!(copied.unwrap().success());
        let (heard, died) = die_at(place, folder.path(), &request);
        check(folder.path(), &heard);
        deaths += usize::from(died);
        quiet = if died { 0 } else { quiet + 1 };
        if quiet == QUIET {
            return deaths;
        }
    }
    panic!("it never came to an end");
}

fn mails(folder: &Path, words: &str) -> usize {
    let files = fs::read_dir(outbox(folder)).into_iter().flatten().filter_map(Result::ok);
    files.filter(|file| fs::read_to_string(file.path()).is_ok_and(|text| text.contains(words))).count()
}

#[test]
fn f02_a_sign_up_is_whole_or_nothing() {
    let before = tempfile::tempdir().unwrap();
    drop(with_a_person(before.path()));
    let body = json!({ "email": "new@example.com", "password": OLD, "name": "New" });
    let deaths = sweep(
        before.path(),
        |server| post(server, "/auth/register", &body),
        |folder, heard| {
            let server = Server::start(folder, SETTINGS);
            if status(heard) != 200 {
                // Who was not told does it again, which is what the rest must allow.
                assert_eq!(status(&post(&server, "/auth/register", &body)), 200);
            }
            let mail = wait("the mail", || mail_with(&outbox(folder), "To: new@example.com"));
            let verify = json!({ "token": token_in(&mail) });
            assert_eq!(status(&post(&server, "/auth/verify-email", &verify)), 200);
            assert_eq!(status(&post(&server, "/auth/verify-email", &verify)), 410, "once");
            let body = json!({ "email": "new@example.com", "password": OLD });
            assert_eq!(status(&post(&server, "/auth/login", &body)), 200);
        },
    );
    assert!(deaths > 0, "nothing was tried");
}

#[test]
fn f02_a_password_is_the_old_or_the_new_one() {
    let before = tempfile::tempdir().unwrap();
    let server = with_a_person(before.path());
    post(&server, "/auth/forgot-password", &json!({ "email": EMAIL }));
    let mail = wait("the mail", || mail_with(&outbox(before.path()), "Choose a new password"));
    drop(server);
    let reset = json!({ "token": token_in(&mail), "password": NEW });
    let deaths = sweep(
        before.path(),
        |server| post(server, "/auth/reset-password", &reset),
        |folder, heard| {
            let server = Server::start(folder, SETTINGS);
            let (old, new) = (status(&login(&server, OLD)), status(&login(&server, NEW)));
            assert!(matches!((old, new), (200, 401) | (401, 200)), "old {old}, new {new}");
            assert!(status(heard) != 204 || new == 200, "what was acknowledged is done");
            let again = status(&post(&server, "/auth/reset-password", &reset));
            assert_eq!(again, if new == 200 { 410 } else { 204 }, "the link is used up with it, and not before");
            wait("the person is told", || (mails(folder, "password was changed") == 1).then_some(()));
        },
    );
    assert!(deaths > 0, "nothing was tried");
}

#[test]
fn f02_a_refreshed_session_goes_on() {
    let before = tempfile::tempdir().unwrap();
    let server = with_a_person(before.path());
    let (_, person) = login(&server, OLD).unwrap();
    drop(server);
    let token = json!({ "refreshToken": person["refreshToken"] });
    let deaths = sweep(
        before.path(),
        |server| post(server, "/auth/refresh", &token),
        |folder, heard| {
            let server = Server::start(folder, SETTINGS);
            let next = match heard {
                Some((200, turned)) => turned.clone(),
                // Who was not answered asks again with what they have.
                _ => post(&server, "/auth/refresh", &token).filter(|(status, _)| *status == 200).expect("a retry").1,
            };
            let next = json!({ "refreshToken": next["refreshToken"] });
            assert_eq!(status(&post(&server, "/auth/refresh", &next)), 200);
        },
    );
    assert!(deaths > 0, "nothing was tried");
}
