//! Usage events: single ones of 64 clients and batches of a hundred, against raw SQLite that runs the same statements and
//! commits as many at a time as can share a commit.
use std::{path::Path, time::Instant};

use anyhow::Result;
use rusqlite::{Connection, params};
use serde_json::json;

use crate::{
    client::{self, Who},
    entry,
    figure::{Figure, Goal, Unit},
    ground::{Ground, database},
    identity::{both_ways, side},
    load::{self, Ask},
    process::Core,
    rounds::{self, Rounds, Side, Tally},
    servers::JanuaBinary,
};

const SERVER: Core = Core::Only(0);
const GENERATOR: Core = Core::Only(1);
const CLIENTS: usize = 64;
const APP_CLIENTS: usize = 8;
const BATCH: u64 = 100;

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let settings = [("JANUA_RATE_LIMITS", "off")];
    let ground = Ground::lay(janua, &rounds.folder()?, SERVER, &settings)?;
    // The limit has the same tables with the same indexes, in a folder of its own.
    let other = rounds.folder()?;
    drop(Ground::lay(janua, &other, SERVER, &settings)?);
    let event = json!({ "meter": "api_calls", "customer": "customer-1" });
    let ask = |body: &serde_json::Value| {
        Ask::again(client::request(
            "POST",
            "/usage/track",
            &Who::through(&ground.secret),
            &body.to_string(),
            "keep-alive",
        ))
    };
    let (single, hundred) = (ask(&event), ask(&json!({ "events": vec![event.clone(); 100] })));
    let (address, pid) = (ground.address(), ground.server.pid());
    let asked = |ask: &Ask, slice| anyhow::Ok(load::timed(address, slice, GENERATOR, ask, CLIENTS)?.answered);
    let path = database(&other);
    let limit = || raw_events(&path, CLIENTS);
    let ours = || side(pid, |slice| asked(&single, slice));
    let singles = rounds::interleave_short("usage", rounds.turn, limit, ours)?;
    let what = "POST /usage/track by processor time, 64 clients; same statements raw, 64 a commit";
    let mut figures = both_ways("usage", what, &singles, Some(Goal::Ratio(0.6)));
    let per_commit = CLIENTS * usize::try_from(BATCH)?;
    let limit = || raw_events(&path, per_commit);
    let ours = || side(pid, |slice| Ok(asked(&hundred, slice)? * BATCH));
    let batches = rounds::interleave_short("usage", rounds.turn, limit, ours)?;
    let what = "events in batches of 100 by processor time; same statements raw, as many a commit";
    figures.extend(both_ways("usage in batches", what, &batches, Some(Goal::Ratio(0.8))));
    figures.push(quota(rounds, janua)?);
    Ok(figures)
}

/// `POST /apps` by processor time where a plan limits apps, so that the plan is looked up and the counter asked for; and where
/// no plan does, so that the counter only rises.
fn quota(rounds: &Rounds, janua: &JanuaBinary) -> Result<Figure> {
    let folder = rounds.folder()?;
    let plans = folder.join("plans.toml");
    std::fs::write(&plans, "[plans.free.limits]\napps = 1_000_000_000\n")?;
    let plans = plans.to_string_lossy();
    let off = ("JANUA_RATE_LIMITS", "off");
    let limited = Ground::lay(janua, &rounds.folder()?, SERVER, &[off, ("JANUA_PLANS_FILE", &*plans)])?;
    let free = Ground::lay(janua, &rounds.folder()?, SERVER, &[off])?;
    let apps = |ground: &Ground| {
        let body = json!({ "name": "App", "orgId": ground.org }).to_string();
        let ask = Ask::again(client::request("POST", "/apps", &Who::with(&ground.token), &body, "keep-alive"));
        let (address, pid) = (ground.address(), ground.server.pid());
        side(pid, move |slice| Ok(load::timed(address, slice, GENERATOR, &ask, APP_CLIENTS)?.answered))
    };
    let sides = rounds::interleave_short("quota", rounds.turn, || apps(&free), || apps(&limited))?;
    let samples = sides.only(|rate| rate.per_cpu_second);
    let what = "POST /apps by processor time with a limit on apps; without one";
    Ok(Figure { scenario: "quota", what, unit: Unit::PerCpuSecond, samples, goal: Some(Goal::Ratio(0.95)) })
}

/// An event, its id, two totals and the quota, again and again.
fn raw_events(path: &Path, per_commit: usize) -> Result<Side<'static>> {
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let (app, org): (String, String) =
        connection.query_row("SELECT id, org_id FROM app LIMIT 1", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut last: i64 = connection.query_row("SELECT COUNT(*) FROM usage_event", [], |row| row.get(0))?;
    Ok(Box::new(move |slice| {
        Tally::here(SERVER, || {
            let (first, until) = (last, Instant::now() + slice);
            while Instant::now() < until {
                let tx = connection.transaction()?;
                {
                    let mut seen = tx.prepare_cached(
                        "INSERT INTO usage_seen (generation, digest, content, event) SELECT 2, ?1, ?1, ?2
                         WHERE NOT EXISTS (SELECT 1 FROM usage_seen WHERE generation = 1 AND digest = ?1)
                         ON CONFLICT (generation, digest) DO NOTHING",
                    )?;
                    let mut quota = tx.prepare_cached(
                        "INSERT INTO quota (org_id, meter, period, used) VALUES (?1, 'api_calls', 1, 1)
                         ON CONFLICT (org_id, meter, period) DO UPDATE SET used = quota.used + 1",
                    )?;
                    let mut event = tx.prepare_cached(
                        "INSERT INTO usage_event (id, app_id, environment, meter, at, received_at, value, customer,
                                                  event_id, properties, request_id)
                         VALUES (?1, ?2, 'live', 'api_calls', ?3, ?3, 1, 'customer-1', ?1, '{}', ?1)",
                    )?;
                    let mut total = tx.prepare_cached(
                        "INSERT INTO usage_total (app_id, environment, meter, span, property, customer, choice, slot,
                                                  total, events, most, latest, latest_at)
                         VALUES (?1, 'live', 'api_calls', 'q', '', ?2, '', ?3, 1, 1, 1, 1, ?3)
                         ON CONFLICT (app_id, environment, meter, span, property, customer, choice, slot)
                         DO UPDATE SET total = usage_total.total + 1, events = usage_total.events + 1",
                    )?;
                    for _ in 0..per_commit {
                        last += 1;
                        // Digests come in no order.
                        let digest = format!("{:032x}", last.wrapping_mul(0x09e3_779b_97f4_a7c1));
                        let id = entry::id(last);
                        seen.execute(params![digest, id])?;
                        quota.execute(params![org])?;
                        event.execute(params![id, app, last])?;
                        for customer in ["", "customer-1"] {
                            total.execute(params![app, customer, last / 100_000])?;
                        }
                    }
                }
                tx.commit()?;
            }
            Ok(last.abs_diff(first))
        })
    }))
}
