//! Usage events of a server that is killed again and again: what was acknowledged is counted, and counted once.
use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{
    Server, extent,
    people::{PASSWORD, ask, login, owner, text, well},
};

const EMAIL: &str = "ada@example.com";
const SETTINGS: &[(&str, &str)] = &[("JANUA_RATE_LIMITS", "off"), ("JANUA_BASE_URL", "http://localhost:9")];
const WRITERS: u64 = 16;

/// One request on a connection of its own. An error means that nobody knows what became of it.
pub fn track(address: SocketAddr, key: &str, body: &Value) -> io::Result<Value> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let body = body.to_string();
    write!(
        stream,
        "POST /usage/track HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         X-Service-App-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    if head.starts_with("HTTP/1.1 503") {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).map_err(|_| io::ErrorKind::UnexpectedEof.into())
}

/// FC5: sixteen writers, alone and in batches, and SIGKILL whenever it pleases. Who was not answered sends the same again.
#[test]
fn usage_events_survive_kills_and_are_counted_once() {
    let cycles = extent(3, 100, "kills") as u64;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut server = Server::start(folder.path(), SETTINGS);
    let owner = owner(&server, &[folder.path()], EMAIL);
    let key = json!({ "type": "secret", "environment": "live" });
    let key = text(&well(ask(&server, "POST", &owner.keys(), &owner.access, &key))["value"]);
    // By id, what each event is worth; and what nobody was answered about.
    let mut sent: BTreeMap<String, u64> = BTreeMap::new();
    let mut unanswered: Vec<Vec<Value>> = vec![];
    let next = AtomicU64::new(0);
    let mut busy = Duration::ZERO;
    for cycle in 0..cycles {
        let (address, key, next) = (server.address, &key, &next);
        let open = std::mem::take(&mut unanswered);
        let outcomes = thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let mut again: Vec<Vec<Value>> =
                        open.iter().enumerate().filter(|(n, _)| *n as u64 % WRITERS == writer).map(|(_, one)| one.clone()).collect();
                    scope.spawn(move || {
                        let mut made = vec![];
                        loop {
                            let events = again.pop().unwrap_or_else(|| {
                                let many = if writer % 4 == 0 { 100 } else { 1 };
                                let events = (0..many).map(|_| {
                                    let number = next.fetch_add(1, SeqCst);
                                    json!({ "meter": "api_calls", "value": 1 + number % 7, "eventId": format!("e{number}"),
                                        "customer": format!("c{}", number % 3) })
                                });
                                let events: Vec<Value> = events.collect();
                                made.extend(events.iter().cloned());
                                events
                            });
                            match track(address, key, &json!({ "events": events })) {
                                Ok(said) => assert_eq!(said["rejected"], json!([]), "{said}"),
                                Err(_) => {
                                    again.push(events);
                                    return (made, again);
                                }
                            }
                        }
                    })
                })
                .collect();
            let while_alive = Duration::from_millis(200 + cycle * 37 % 400);
            thread::sleep(while_alive);
            busy += while_alive;
            server.signal("KILL");
            writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
        });
        for (made, again) in outcomes {
            sent.extend(made.iter().map(|event| (text(&event["eventId"]), event["value"].as_u64().unwrap())));
            unanswered.extend(again);
        }
        server.child.wait().unwrap();
        server = Server::start(folder.path(), SETTINGS);
    }
    let (open, mut duplicates) = (unanswered.len(), 0);
    for events in unanswered {
        let said = track(server.address, &key, &json!({ "events": events })).unwrap();
        duplicates += said["duplicates"].as_u64().unwrap();
    }
    let access = text(&well(login(&server, EMAIL, PASSWORD))["accessToken"]);
    let path = format!("/usage?appId={}&meter=api_calls", owner.app);
    let row = well(ask(&server, "GET", &path, &access, &Value::Null))["usage"][0].clone();
    let expected: u64 = sent.values().sum();
    assert_eq!((row["events"].as_u64(), row["value"].as_u64()), (Some(sent.len() as u64), Some(expected)), "{row}");
    let meters = well(ask(&server, "GET", &format!("/usage/meters?appId={}", owner.app), &access, &Value::Null));
    let used = meters["meters"].as_array().unwrap().iter().find(|meter| meter["name"] == "api_calls").unwrap();
    assert_eq!(used["used"].as_u64(), Some(expected), "the quota counts the same");
    #[expect(clippy::cast_precision_loss, reason = "thousands of events")]
    let rate = sent.len() as f64 / busy.as_secs_f64();
    println!(
        "{cycles} kills, {} events counted once, {rate:.0} a second; {open} requests were sent again, {duplicates} events of them \
         were counted before",
        sent.len()
    );
}
