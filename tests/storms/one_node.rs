//! The running binary in bad weather: killed in the middle of everything, a full disk, a clock that jumps, a mail server
//! in a mood, more connections than anybody needs, keys that turn over. Each against a ledger of what was acknowledged.
//!
//! `FAULT_SEED` changes where the dice fall in f01; the same seed repeats a run.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use janua_client::Verifier;
use serde_json::{Value, json};

use crate::support::{
    JANUA, SERVE, Server, Visit, allow_open_files,
    clock::Wound,
    extent, janua, mail_with,
    people::{ALLOW_HOOKS, NEW_HOOK, Owner, PASSWORD, all_hooks, ask, id_in, login, member, owner, text, well},
    run,
    smtp::Moody,
    token_in, wait,
};

const EMAIL: &str = "ada@example.com";
// The address is part of every token, so it must outlive the port.
const SETTINGS: &[(&str, &str)] =
    &[("JANUA_RATE_LIMITS", "off"), ("JANUA_BASE_URL", "http://localhost:9"), ALLOW_HOOKS];

/// Chance that repeats (`SplitMix64`).
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

/// What one writer was told, and what must therefore be so.
#[derive(Default)]
struct Ledger {
    /// By the list they are in: those that must be there, and those that must not.
    there: BTreeMap<&'static str, BTreeSet<String>>,
    gone: BTreeMap<&'static str, BTreeSet<String>>,
    /// The last number written to a place of the writer's own; a later one may have been written without an answer.
    counter: u64,
    refresh: String,
    ended: Vec<String>,
    signed_up: Vec<String>,
    told: usize,
}

impl Ledger {
    /// Nothing was made where there are as many as may be: those that nobody was told of count, too.
    fn add(&mut self, list: &'static str, made: &Value) {
        self.there.entry(list).or_default().extend(made["id"].as_str().map(str::to_owned));
    }

    fn take(&mut self, list: &'static str) -> Option<String> {
        self.there.get_mut(list)?.pop_last()
    }
}

const KINDS: u64 = 12;

/// Does something, as the dice fall; an error means that the server is gone, and nobody knows what it did last.
fn act(visit: &mut Visit, owner: &Owner, name: &str, dice: &mut Dice, ledger: &mut Ledger) -> std::io::Result<()> {
    let mut send = |method: &str, path: &str, token: &str, body: &Value| -> std::io::Result<Value> {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let answer = visit.attempt(method, path, token, &text)?;
        assert!(matches!(answer.status, 200..300 | 409), "{method} {path}: {} {}", answer.status, answer.body);
        Ok(serde_json::from_str(&answer.body).unwrap_or_default())
    };
    let access = owner.access.as_str();
    match dice.roll(KINDS) {
        0 => {
            let made = send("POST", &owner.hooks(), access, &serde_json::from_str(NEW_HOOK).unwrap())?;
            ledger.add("hooks", &made);
        }
        1 => {
            if let Some(id) = ledger.take("hooks") {
                send("DELETE", &format!("{}/{id}", owner.hooks()), access, &Value::Null)?;
                ledger.gone.entry("hooks").or_default().insert(id);
            }
        }
        2 if ledger.there.get("keys").is_none_or(BTreeSet::is_empty) => {
            let made = send("POST", &owner.keys(), access, &json!({ "type": "secret", "environment": "live" }))?;
            ledger.add("keys", &made);
        }
        2 | 3 => {
            if let Some(id) = ledger.take("keys") {
                send("DELETE", &format!("{}/{id}", owner.keys()), access, &Value::Null)?;
                ledger.gone.entry("keys").or_default().insert(id);
            }
        }
        4 => {
            let made = send("POST", "/apps", access, &json!({ "name": name, "orgId": owner.org }))?;
            ledger.add("apps", &made);
        }
        5 => {
            if let Some(id) = ledger.take("apps") {
                send("DELETE", &format!("/apps/{id}"), access, &Value::Null)?;
                ledger.gone.entry("apps").or_default().insert(id);
            }
        }
        6 => {
            let made = send("POST", "/org", access, &json!({ "name": name }))?;
            ledger.add("orgs", &made);
        }
        7 => {
            if let Some(id) = ledger.take("orgs") {
                send("DELETE", &format!("/org/{id}"), access, &Value::Null)?;
                ledger.gone.entry("orgs").or_default().insert(id);
            }
        }
        8 => {
            let next = ledger.counter + 1;
            send("PATCH", &format!("/orgs/{}/metadata", owner.org), access, &json!({ name: next }))?;
            ledger.counter = next;
        }
        9 => {
            let turned = send("POST", "/auth/refresh", "", &json!({ "refreshToken": ledger.refresh }))?;
            ledger.refresh = text(&turned["refreshToken"]);
        }
        10 => {
            let body = json!({ "email": EMAIL, "password": PASSWORD, "options": { "tokenDelivery": "body" } });
            let entered = text(&send("POST", "/auth/login", "", &body)?["accessToken"]);
            send("POST", "/auth/logout", &entered, &Value::Null)?;
            ledger.ended.push(entered);
        }
        _ => {
            let email = format!("{name}-{}-{}@example.com", ledger.told, dice.roll(u64::MAX));
            send("POST", "/auth/register", "", &json!({ "email": email, "password": PASSWORD, "name": "P" }))?;
            ledger.signed_up.push(email);
        }
    }
    ledger.told += 1;
    Ok(())
}

/// F01: sixteen writers, twelve kinds of things to do, and SIGKILL whenever it pleases.
#[test]
fn f01_whatever_was_acknowledged_before_a_kill_is_so_after_it() {
    const WRITERS: usize = 16;
    let cycles = extent(4, 300, "kills") as u64;
    let seed: u64 = std::env::var("FAULT_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    println!("FAULT_SEED={seed}");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut server = Server::start(folder.path(), SETTINGS);
    let mut owner = owner(&server, &[folder.path()], EMAIL);
    let mut ledgers: Vec<Ledger> = (0..WRITERS).map(|_| Ledger::default()).collect();
    for ledger in &mut ledgers {
        ledger.refresh = text(&well(login(&server, EMAIL, PASSWORD))["refreshToken"]);
    }
    let mut slowest = Duration::ZERO;
    for cycle in 0..cycles {
        let mut moment = Dice(seed ^ cycle << 32);
        let lives = Duration::from_millis(50 + moment.roll(800));
        // An access token lives for a quarter of an hour, a long run for more.
        owner.access = text(&well(login(&server, EMAIL, PASSWORD))["accessToken"]);
        let (address, owner) = (server.address, &owner);
        thread::scope(|scope| {
            for (writer, ledger) in ledgers.iter_mut().enumerate() {
                scope.spawn(move || {
                    let mut dice = Dice(seed ^ cycle << 32 ^ (writer as u64 + 1) << 16);
                    let Ok(mut visit) = Visit::try_to(address, Duration::from_secs(20)) else { return };
                    while act(&mut visit, owner, &format!("writer-{writer}"), &mut dice, ledger).is_ok() {}
                });
            }
            thread::sleep(lives);
            server.signal("KILL");
        });
        server.child.wait().unwrap();
        let started = Instant::now();
        server = Server::start(folder.path(), SETTINGS);
        slowest = slowest.max(started.elapsed());
    }
    // Two seconds on a machine that does nothing else; `startup` measures that.
    assert!(slowest < Duration::from_secs(5), "a start took {slowest:?}");

    let access = text(&well(login(&server, EMAIL, PASSWORD))["accessToken"]);
    let metadata = well(ask(&server, "GET", &format!("/orgs/{}/metadata", owner.org), &access, &Value::Null));
    let keys = listed(&server, &owner.keys(), "keys", &access);
    let hooks = all_hooks(&server, &owner, &access);
    let mut told = 0;
    for (writer, ledger) in ledgers.iter().enumerate() {
        told += ledger.told;
        let is_there = |list: &str, id: &str| match list {
            "keys" => keys.contains(id),
            "hooks" => hooks.contains(id),
            "apps" => ask(&server, "GET", &format!("/apps/{id}"), &access, &Value::Null).0 == 200,
            _ => ask(&server, "GET", &format!("/org/{id}"), &access, &Value::Null).0 == 200,
        };
        let missing = ledger.there.iter().flat_map(|(list, ids)| ids.iter().filter(|id| !is_there(list, id)));
        assert_eq!(missing.count(), 0, "lost");
        let back = ledger.gone.iter().flat_map(|(list, ids)| ids.iter().filter(|id| is_there(list, id)));
        assert_eq!(back.count(), 0, "came back");
        let counter = metadata[format!("writer-{writer}")].as_u64().unwrap_or_default();
        assert!(counter >= ledger.counter, "{counter} after {}", ledger.counter);
        // Who was not answered asks again with what they have.
        let (status, said) = ask(&server, "POST", "/auth/refresh", "", &json!({ "refreshToken": ledger.refresh }));
        assert!(status == 200 || cycles > 4, "a session is lost: {said}");
        for ended in &ledger.ended {
            assert_eq!(ask(&server, "GET", "/auth/me", ended, &Value::Null).0, 401, "an ended session");
        }
        for email in &ledger.signed_up {
            let mail = wait("the mail", || mail_with(&folder.path().join("data/outbox"), &format!("To: {email}")));
            let (status, said) = ask(&server, "POST", "/auth/verify-email", "", &json!({ "token": token_in(&mail) }));
            assert_eq!(status, 200, "{email}: {said}");
        }
    }
    println!("{cycles} kills, {told} acknowledged, lost: 0; slowest start {slowest:.1?}");
}

fn listed(server: &Server, path: &str, list: &str, access: &str) -> BTreeSet<String> {
    let (mut there, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let page = well(ask(server, "GET", &format!("{path}?limit=200{cursor}"), access, &Value::Null));
        there.extend(page[list].as_array().into_iter().flatten().map(|one| text(&one["id"])));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return there,
        }
    }
}

/// F05: a file system of its own of 24 megabytes, which only a mount namespace can give without being root.
#[test]
fn f05_a_full_disk_refuses_soon_serves_reads_and_heals() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    let script = "mount -t tmpfs -o size=24m,mode=700 tmpfs \"$PWD/data\" && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", script, JANUA]).args(SERVE);
    command.args(["--data-dir", folder.path().join("data").to_str().unwrap()]);
    command.current_dir(folder.path()).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.envs(SETTINGS.iter().copied());
    let server = Server::of(command);
    let inside = Path::new("/proc").join(server.child.id().to_string()).join("root");
    let inside = inside.join(folder.path().strip_prefix("/").unwrap());
    let owner = owner(&server, &[&inside], EMAIL);
    let mut visit = server.visit();
    let mut acknowledged = BTreeSet::new();
    let mut write = |acknowledged: &mut BTreeSet<String>| {
        let started = Instant::now();
        let (status, said) = visit.ask("POST", &owner.hooks(), &owner.access, NEW_HOOK);
        assert!(started.elapsed() < Duration::from_secs(1), "{status} after {:?}", started.elapsed());
        if status == 200 {
            acknowledged.insert(id_in(&said));
        }
        status
    };
    assert_eq!(write(&mut acknowledged), 200);

    let ballast = inside.join("data/ballast");
    let mut file = fs::File::create(&ballast).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    let refused = (0..5_000).map(|_| write(&mut acknowledged)).find(|status| *status != 200).expect("it is full");
    assert!(matches!(refused, 503 | 507), "{refused}");
    for _ in 0..20 {
        let status = write(&mut acknowledged);
        assert!(matches!(status, 200 | 503 | 507), "{status}");
    }
    assert_eq!(ask(&server, "GET", "/auth/me", &owner.access, &Value::Null).0, 200, "reads go on");
    assert_eq!(ask(&server, "GET", &owner.hooks(), &owner.access, &Value::Null).0, 200);
    fs::remove_file(&ballast).unwrap();
    drop(file);
    let freed = Instant::now();
    while write(&mut acknowledged) != 200 {
        assert!(freed.elapsed() < Duration::from_secs(10), "it does not heal");
        thread::sleep(Duration::from_millis(50));
    }
    let there = all_hooks(&server, &owner, &owner.access);
    assert!(acknowledged.is_subset(&there), "lost");
    println!("{} acknowledged, lost: 0; healed after {:.1?}", acknowledged.len(), freed.elapsed());
}

/// F10: away, refusing, hanging; nobody who signs up notices, and each mail arrives once.
#[test]
fn f10_a_mail_server_in_a_mood_delays_mails_and_nothing_else() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut smtp = Moody::new();
    let url = format!("smtp://127.0.0.1:{}", smtp.port);
    let settings = [SETTINGS, &[("JANUA_SMTP_URL", url.as_str())]].concat();
    let mut server = Server::start(folder.path(), &settings);
    let mut people = Vec::new();
    let mut slowest = Duration::ZERO;
    let mut sign_up = |server: &Server| {
        let email = format!("person-{}@example.com", people.len());
        let body = json!({ "email": email, "password": PASSWORD, "name": "P" });
        let started = Instant::now();
        assert_eq!(ask(server, "POST", "/auth/register", "", &body).0, 200);
        slowest = slowest.max(started.elapsed());
        people.push(email);
    };
    sign_up(&server);
    sign_up(&server);
    for mood in ["451", "hang", "ok"] {
        smtp.mood(mood);
        if smtp.child.is_none() {
            smtp.start();
        }
        sign_up(&server);
        sign_up(&server);
        thread::sleep(Duration::from_millis(700));
        if mood == "hang" {
            // What hangs is let go of when the server is restarted; the mails are still there.
            server.signal("KILL");
            server.child.wait().unwrap();
            server = Server::start(folder.path(), &settings);
        }
    }
    for email in &people {
        wait(&format!("the mail to {email}"), || (smtp.mails(email) > 0).then_some(()));
    }
    thread::sleep(Duration::from_secs(1));
    let twice: usize = people.iter().map(|email| smtp.mails(email) - 1).sum();
    assert!(twice <= 1, "{twice} came again after one kill");
    assert!(slowest < Duration::from_millis(1500), "signing up took {slowest:?}");
    println!("{} mails, lost: 0, twice: {twice}; slowest sign-up {slowest:.1?}", people.len());
}

/// F12: an hour and a day forward, a day and five minutes back.
#[test]
fn f12_a_clock_that_jumps_brings_nothing_back_to_life() {
    const HOUR: i64 = 3600;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let clock = Wound::new();
    let server = clock.start(folder.path(), SETTINGS);
    member(&server, &[folder.path()], EMAIL);
    let status = |path: &str, token: &str| ask(&server, "GET", path, token, &Value::Null).0;
    let refresh = |token: &Value| ask(&server, "POST", "/auth/refresh", "", &json!({ "refreshToken": token }));
    let ended = well(login(&server, EMAIL, PASSWORD));
    assert_eq!(ask(&server, "POST", "/auth/logout", &text(&ended["accessToken"]), &Value::Null).0, 204);
    well(ask(&server, "POST", "/auth/forgot-password", "", &json!({ "email": EMAIL })));
    let outbox = folder.path().join("data/outbox");
    let reset = token_in(&wait("the mail", || mail_with(&outbox, "Choose a new password")));
    let reset = json!({ "token": reset, "password": "staple battery horse correct" });
    assert_eq!(ask(&server, "POST", "/auth/reset-password", "", &reset).0, 204);
    let mut alive = well(login(&server, EMAIL, "staple battery horse correct"));

    let mut jumps = 0;
    for offset in [HOUR, 24 * HOUR, -24 * HOUR, -300, 0] {
        clock.by(offset);
        jumps += 1;
        let old = text(&alive["accessToken"]);
        if offset >= HOUR {
            assert_eq!(status("/auth/me", &old), 401, "{offset}: a token of a quarter of an hour has run out");
        }
        assert_eq!(status("/auth/me", &text(&ended["accessToken"])), 401, "{offset}: ended");
        assert_eq!(refresh(&ended["refreshToken"]).0, 401, "{offset}: ended");
        assert_eq!(ask(&server, "POST", "/auth/reset-password", "", &reset).0, 410, "{offset}: used");
        let (went_on, said) = refresh(&alive["refreshToken"]);
        assert_eq!(went_on, 200, "{offset}: a session goes on: {said}");
        alive = said;
        let now = status("/auth/me", &text(&alive["accessToken"]));
        assert_eq!(now, 200, "{offset}: with a token of that time");
        within_a_moment("being well", || server.get("/health").0 == 200);
    }
    member(&server, &[folder.path()], "bob@example.com");
    println!("{jumps} jumps, back to life: 0; work goes on after the last");
}

fn within_a_moment(what: &str, is_so: impl Fn() -> bool) {
    wait(what, || is_so().then_some(()));
}

/// F14: ten thousand who say nothing are in nobody's way (in the short set three). `p74` has those who say it slowly.
#[test]
fn f14_ten_thousand_connections_cost_little_and_delay_nobody() {
    let most = extent(3_000, 10_000, "connections");
    allow_open_files(most + 1_000);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Server::start(folder.path(), SETTINGS);
    member(&server, &[folder.path()], EMAIL);
    let access = text(&well(login(&server, EMAIL, PASSWORD))["accessToken"]);
    let request = b"GET /robots.txt HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut idle = Vec::with_capacity(most);
    // No faster than they are taken, in order: what waits to be accepted is in the system's queue, which is short.
    while idle.len() < most {
        idle.extend((0..250).map(|_| server.connect()));
        let last = idle.last_mut().unwrap();
        last.write_all(request).unwrap();
        let mut head = [0; 15];
        last.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK", "none is refused");
    }
    let mut visit = server.visit();
    let mut waits: Vec<_> = (0..400)
        .map(|_| {
            let started = Instant::now();
            assert_eq!(visit.ask("GET", "/auth/me", &access, "").0, 200);
            thread::sleep(Duration::from_millis(1));
            started.elapsed()
        })
        .collect();
    waits.sort();
    assert!(waits[395] < Duration::from_millis(250), "{:?}", waits[395]);
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let megabytes = resident.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024;
    assert!(megabytes < 600, "{megabytes} MB");
    println!("{most} connections, refused: 0; {megabytes} MB; p99 {:.1?}", waits[395]);
}

/// F16: everybody who knows the keys of a moment ago goes on knowing every token.
#[test]
fn f16_keys_turn_over_under_load_and_no_token_is_refused() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let base = format!("http://localhost:{port}");
    let listen = format!("127.0.0.1:{port}");
    let settings = [("JANUA_RATE_LIMITS", "off"), ("JANUA_BASE_URL", base.as_str())];
    let mut command = janua(folder.path(), &["serve", "--listen", &listen]);
    command.envs(settings);
    let server = Server::of(command);
    member(&server, &[folder.path()], EMAIL);
    let (done, verified) = (AtomicBool::new(false), AtomicUsize::new(0));
    let rotations = extent(5, 20, "rotations");
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Runtime::new().unwrap();
                // Keeps the keys for minutes, as verifiers do.
                let verifier = Verifier::new(&base).unwrap();
                let mut person = well(login(&server, EMAIL, PASSWORD));
                let mut visit = server.visit();
                while !done.load(SeqCst) {
                    let body = json!({ "refreshToken": person["refreshToken"] }).to_string();
                    let (status, said) = visit.ask("POST", "/auth/refresh", "", &body);
                    assert_eq!(status, 200, "{said}");
                    let old = text(&person["accessToken"]);
                    person = serde_json::from_str(&said).unwrap();
                    for token in [&old, &text(&person["accessToken"])] {
                        runtime.block_on(verifier.verify(token)).expect("a token of ours");
                        assert_eq!(visit.ask("GET", "/auth/me", token, "").0, 200);
                        verified.fetch_add(1, SeqCst);
                    }
                }
            });
        }
        for _ in 0..rotations {
            thread::sleep(Duration::from_millis(200));
            let mut rotate = janua(folder.path(), &["keys", "rotate"]);
            rotate.envs(settings);
            let (rotated, said) = run(rotate);
            // A key waits until verifiers can have seen it, and one rotation waits at a time.
            assert!(rotated || said.contains("a rotation is under way"), "{said}");
        }
        done.store(true, SeqCst);
    });
    let verified = verified.into_inner();
    assert!(verified > 50, "only {verified} were verified");
    println!("{rotations} rotations, {verified} tokens verified twice, refused: 0");
}
