//! Mail of a server that is killed while it sends: nothing that was acknowledged is lost, and what comes twice bears the same
//! Message-ID.
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::support::{
    Server, Visit, extent,
    people::{PASSWORD, login, owner, text, well},
    smtp::Moody,
};

const EMAIL: &str = "ada@example.com";
const WRITERS: u64 = 4;
/// How many mails are under way at once, at most.
const CONNECTIONS: usize = 4;

/// The Message-ID of every mail that the server received, with how often it came.
pub fn received(smtp: &Moody) -> BTreeMap<String, usize> {
    let mut ids = BTreeMap::new();
    for mail in smtp.all() {
        if let Some(id) = mail.lines().find_map(|line| line.strip_prefix("Message-ID: <")) {
            let id = id.split('@').next().unwrap_or_default().to_owned();
            *ids.entry(id).or_default() += 1;
        }
    }
    ids
}

#[test]
fn m4_mail_survives_kills_and_comes_twice_only_under_its_id() {
    let cycles = extent(3, 60, "kills");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut smtp = Moody::new();
    smtp.mood("ok");
    smtp.start();
    let base =
        [("JANUA_RATE_LIMITS", "off"), ("JANUA_BASE_URL", "http://localhost:9"), ("JANUA_PLATFORM_OWNERS", EMAIL)];
    // The account's own mails go to the outbox, where they are read.
    let server = Server::start(folder.path(), &base);
    owner(&server, &[folder.path()], EMAIL);
    let access = text(&well(login(&server, EMAIL, PASSWORD))["accessToken"]);
    drop(server);
    let url = format!("smtp://127.0.0.1:{}", smtp.port);
    let settings = [&base[..], &[("JANUA_SMTP_URL", url.as_str())]].concat();
    let mut server = Server::start(folder.path(), &settings);
    let (next, mut acknowledged) = (AtomicU64::new(0), BTreeSet::new());
    let mut open: Vec<u64> = vec![];
    for cycle in 0..cycles {
        let (address, access, next) = (server.address, &access, &next);
        let again = std::mem::take(&mut open);
        let outcomes = thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let mut mine: Vec<u64> =
                        again.iter().copied().filter(|number| number % WRITERS == writer).collect();
                    scope.spawn(move || {
                        let mut done = vec![];
                        loop {
                            let number = mine.pop().unwrap_or_else(|| next.fetch_add(1, SeqCst));
                            match send(address, access, number) {
                                Ok(id) => done.push(id),
                                Err(_) => {
                                    mine.push(number);
                                    return (done, mine);
                                }
                            }
                        }
                    })
                })
                .collect();
            thread::sleep(Duration::from_millis(400 + cycle as u64 * 131 % 700));
            server.signal("KILL");
            writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
        });
        for (done, mine) in outcomes {
            acknowledged.extend(done);
            open.extend(mine);
        }
        server.child.wait().unwrap();
        server = Server::start(folder.path(), &settings);
    }
    for number in open {
        acknowledged.insert(send(server.address, &access, number).unwrap());
    }
    // What a dead process held is sent again when its lease has ended.
    let began = Instant::now();
    loop {
        let there = received(&smtp);
        let missing = acknowledged.iter().filter(|id| !there.contains_key(*id)).count();
        if missing == 0 {
            break;
        }
        assert!(began.elapsed() < Duration::from_mins(5), "{missing} of {} never came", acknowledged.len());
        thread::sleep(Duration::from_millis(500));
    }
    let there = received(&smtp);
    let strangers = there.keys().filter(|id| !acknowledged.contains(*id)).count();
    assert_eq!(strangers, 0, "each under the Message-ID that was answered");
    let twice: usize = there.values().map(|times| times - 1).sum();
    // A batch is written down when all of it was tried.
    assert!(twice <= cycles * 8 * CONNECTIONS, "{twice} came again");
    println!("{cycles} kills, {} mails acknowledged and there, {twice} of them once more", acknowledged.len());
}

/// Under a key of its own, so that who was not answered asks again.
pub fn send(address: std::net::SocketAddr, access: &str, number: u64) -> std::io::Result<String> {
    let mut visit = Visit::try_to(address, Duration::from_secs(20))?;
    let body = json!({ "to": format!("zoe{number}@d{}.test", number % 5), "subject": "Storm", "text": "It rains." });
    let key = format!("mail-{number}");
    let answer = visit.attempt_with(&key, "POST", "/email/send", access, &body.to_string())?;
    if answer.status == 503 {
        return Err(std::io::ErrorKind::WouldBlock.into());
    }
    assert_eq!(answer.status, 200, "{}", answer.body);
    Ok(text(&serde_json::from_str::<Value>(&answer.body).unwrap_or_default()["messageId"]))
}
