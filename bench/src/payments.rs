//! Events of the payment processor: verified and stored before they are acknowledged, against raw SQLite that runs the same
//! statements; and what verifying alone costs.
use std::{
    hint::black_box,
    path::Path,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use aws_lc_rs::hmac;
use data_encoding::HEXLOWER;
use rusqlite::{Connection, params};
use serde_json::json;

use crate::{
    entry,
    figure::{Figure, Goal},
    ground::{Ground, database},
    identity::{both_ways, side},
    load::{self, Ask},
    process::Core,
    rounds::{self, Rounds, Side, Tally},
    servers::JanuaBinary,
};

const SERVER: Core = Core::Only(0);
const GENERATOR: Core = Core::Only(1);
const CLIENTS: usize = 32;
const SECRET: &str = "whsec_bench";
/// More than a server answers in a slice.
const EVENTS: i64 = if cfg!(debug_assertions) { 1000 } else { 10_000 };
const SETTINGS: [(&str, &str); 5] = [
    ("JANUA_RATE_LIMITS", "off"),
    ("JANUA_PAYMENTS", "stripe"),
    ("JANUA_STRIPE_SECRET_KEY", "sk_test_bench"),
    ("JANUA_BILLING_WEBHOOK_SECRETS", SECRET),
    // Nobody is there, and nobody is asked: the events are of a kind that leads to nothing.
    ("JANUA_STRIPE_API_URL", "http://127.0.0.1:9"),
];

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let ground = Ground::lay(janua, &rounds.folder()?, SERVER, &SETTINGS)?;
    // The limit has the same tables with the same indexes, in a folder of its own.
    let other = rounds.folder()?;
    drop(Ground::lay(janua, &other, SERVER, &SETTINGS)?);
    let (address, pid, path) = (ground.address(), ground.server.pid(), database(&other));
    let mut last = 0_i64;
    let ours = || {
        let first = last;
        last += 100 * EVENTS;
        let mut next = first;
        side(pid, move |slice| {
            let requests = (0..EVENTS).map(|_| {
                next += 1;
                request(next)
            });
            let ask = Ask::Many(requests.collect::<Result<Vec<_>>>()?);
            Ok(load::timed(address, slice, GENERATOR, &ask, CLIENTS)?.answered)
        })
    };
    let accepted = rounds::interleave_short("payments", rounds.turn, || raw_events(&path), ours)?;
    let what = "POST /billing/webhook by processor time, 32 senders, handled too; same statements raw, 32 a commit";
    let mut figures = both_ways("payments", what, &accepted, Some(Goal::Ratio(0.6)));
    // The limit is the digest alone.
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let text = format!("1700000000.{}", "x".repeat(2048));
    let digest = || {
        spin(|| {
            black_box(hmac::sign(&key, text.as_bytes()));
        })
    };
    let verified = rounds::interleave_short("payments", rounds.turn, digest, || {
        let tag = hmac::sign(&key, text.as_bytes());
        let (key, text) = (key.clone(), text.clone());
        spin(move || {
            black_box(hmac::verify(&key, text.as_bytes(), tag.as_ref())).ok();
        })
    })?;
    figures.extend(both_ways("payments", "2 KiB verified; signed", &verified, None));
    Ok(figures)
}

/// About two kilobytes, as events of subscriptions are.
fn event(number: i64) -> String {
    let object = json!({ "id": format!("obj_{number}"), "object": "plan", "padding": "x".repeat(1800) });
    json!({ "id": format!("evt_{number}"), "object": "event", "type": "plan.created", "livemode": false,
            "created": 1_700_000_000, "data": { "object": object } })
    .to_string()
}

fn request(number: i64) -> Result<Vec<u8>> {
    let (body, at) = (event(number), SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs());
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let tag = hmac::sign(&key, format!("{at}.{body}").as_bytes());
    let hex = HEXLOWER.encode(tag.as_ref());
    let head =
        "POST /billing/webhook HTTP/1.1\r\nhost: bench\r\nconnection: keep-alive\r\ncontent-type: application/json";
    let head = format!("{head}\r\nstripe-signature: t={at},v1={hex}\r\ncontent-length: {}", body.len());
    Ok(format!("{head}\r\n\r\n{body}").into_bytes())
}

#[expect(clippy::unnecessary_wraps, reason = "sides may fail to be made")]
fn spin<'a>(mut work: impl FnMut() + 'a) -> Result<Side<'a>> {
    Ok(Box::new(move |slice| {
        Tally::here(SERVER, || {
            let (until, mut count) = (Instant::now() + slice, 0);
            while Instant::now() < until {
                for _ in 0..100 {
                    work();
                }
                count += 100;
            }
            Ok(count)
        })
    }))
}

/// An event and its job, what it did, and the end of the job.
fn raw_events(path: &Path) -> Result<Side<'static>> {
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let mut last: i64 = connection.query_row("SELECT COUNT(*) FROM processor_event", [], |row| row.get(0))?;
    Ok(Box::new(move |slice| {
        Tally::here(SERVER, || {
            let (first, until) = (last, Instant::now() + slice);
            while Instant::now() < until {
                let from = last;
                let tx = connection.transaction()?;
                for _ in 0..CLIENTS {
                    last += 1;
                    let (id, body) = (entry::id(last), event(last));
                    tx.prepare_cached(
                        "INSERT INTO processor_event (id, source, event_id, type, livemode, account, object_id, digest,
                                                      body, received_at, came_by, outcome)
                         VALUES (?1, 'billing', ?1, 'plan.created', 0, NULL, ?1, ?1, ?2, ?3, 'received', 'waiting')
                         ON CONFLICT (source, event_id) DO NOTHING",
                    )?
                    .execute(params![id, body, last])?;
                    tx.prepare_cached(
                        "INSERT INTO job (id, kind, payload, unique_key, created_at, ready_at, is_claimed, attempts, fence)
                         VALUES (?1, 'bench', '{}', NULL, ?2, ?2, 0, 0, 0)",
                    )?
                    .execute(params![id, last])?;
                }
                tx.commit()?;
                let tx = connection.transaction()?;
                for number in from + 1..=last {
                    let id = entry::id(number);
                    tx.prepare_cached(
                        "UPDATE processor_event SET outcome = 'ignored', handled_at = ?2 WHERE id = ?1",
                    )?
                    .execute(params![id, number])?;
                    tx.prepare_cached("DELETE FROM job WHERE id = ?1")?.execute(params![id])?;
                }
                tx.commit()?;
            }
            Ok(last.abs_diff(first))
        })
    }))
}
