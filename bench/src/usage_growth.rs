//! Usage among ten million events and among a thousand: what an event costs, and how long the total of the month takes.
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use rusqlite::{Connection, params};
use serde_json::json;

use crate::{
    client::{self, Who},
    figure::{Figure, Goal, Unit},
    ground::{Ground, database},
    growth::{Cost, cost, thousands},
    identity::side,
    load::{self, Ask},
    process::{Core, cpu_time},
    rounds::{self, Rounds, SHORT_ROUNDS, Sides},
    servers::JanuaBinary,
};

const SERVER: Core = Core::Only(0);
const GENERATOR: Core = Core::Only(1);
const CLIENTS: usize = 64;
const FEW: u64 = 1000;
const SETTINGS: [(&str, &str); 1] = [("JANUA_RATE_LIMITS", "off")];
const QUARTER: i64 = 15 * 60 * 1000;
const DAY: i64 = 24 * 3600 * 1000;

#[derive(clap::Args)]
pub struct Options {
    /// How many events there are already
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    events: u64,
}

pub fn measure(rounds: &Rounds, janua: &JanuaBinary, options: &Options) -> Result<Vec<Figure>> {
    let (few, many) = (settle(rounds, janua, FEW)?, settle(rounds, janua, options.events)?);
    rustix::fs::sync();
    let event = json!({ "meter": "api_calls", "customer": "customer-1" }).to_string();
    let track = |ground: &Ground| {
        let who = Who::through(&ground.secret);
        let ask = Ask::again(client::request("POST", "/usage/track", &who, &event, "keep-alive"));
        let (address, pid) = (ground.address(), ground.server.pid());
        side(pid, move |slice| Ok(load::timed(address, slice, GENERATOR, &ask, CLIENTS)?.answered))
    };
    let sides = rounds::interleave_short("track", rounds.turn, || track(&few), || track(&many))?;
    let (many_events, few_events) = (thousands(options.events), thousands(FEW));
    let say =
        |what: &str| -> &'static str { format!("{what} among {many_events} events; among {few_events}").leak() };
    let (scenario, unit) = ("usage growth", Unit::PerCpuSecond);
    let samples = sides.only(|rate| rate.per_cpu_second);
    let what = say("POST /usage/track by processor time");
    let mut figures = vec![Figure { scenario, what, unit, samples, goal: Some(Goal::Ratio(0.8)) }];
    let totals = |ground: &Ground| -> Result<Cost> {
        let path = format!("/usage?appId={}&meter=api_calls", ground.app);
        let ask = Ask::again(client::request("GET", &path, &Who::with(&ground.token), "", "keep-alive"));
        let before = cpu_time(ground.server.pid())?;
        let mut heard = load::timed(ground.address(), rounds.turn / 3, GENERATOR, &ask, 1)?;
        Ok(cost(&mut heard.micros, cpu_time(ground.server.pid())?.saturating_sub(before)))
    };
    let sides: Sides<Cost> = rounds::alternate("totals", SHORT_ROUNDS, || totals(&few), || totals(&many))?;
    let figure = |what, pick: fn(&Cost) -> f64, goal| Figure {
        scenario,
        what: say(what),
        unit: Unit::Milliseconds,
        samples: sides.only(pick),
        goal: Some(goal),
    };
    figures.push(figure("p50 of the month's total", |cost| cost.p50_ms, Goal::RatioAtMost(1.3)));
    figures.push(figure("p99 of the month's total", |cost| cost.p99_ms, Goal::Below(5.0)));
    Ok(figures)
}

/// A server with an app that has so many events of this month, of a thousand customers.
fn settle(rounds: &Rounds, janua: &JanuaBinary, events: u64) -> Result<Ground> {
    let folder = rounds.folder()?;
    let ground = Ground::lay(janua, &folder, SERVER, &SETTINGS)?;
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    // Over five days, so that as many slots have totals however many events there are.
    let first = now - 5 * DAY;
    let mut connection = Connection::open(database(&folder))?;
    connection.busy_timeout(Duration::from_mins(10))?;
    let generation = now / (40 * DAY);
    let bar = rounds::bar("seed", 1);
    bar.set_message(format!("{} events", thousands(events)));
    let events = i64::try_from(events)?;
    let spacing = (now - first) / events.max(1);
    let (mut done, each) = (0, 100_000);
    while done < events {
        let until = (done + each).min(events);
        let tx = connection.transaction()?;
        tx.execute(
            "WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?2)
             INSERT INTO usage_event (id, app_id, environment, meter, at, received_at, value, customer, event_id, properties)
             SELECT printf('019a0000-0000-7000-8000-%012x', i), ?3, 'live', 'api_calls', ?4 + (i * ?5) % ?6,
                    ?4 + (i * ?5) % ?6, 1, 'customer-' || (i % 1000), 'seed-' || i, '{}' FROM n",
            params![done, until, ground.app, first, spacing.max(1), now - first],
        )?;
        tx.execute(
            "WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?2)
             INSERT OR IGNORE INTO usage_seen (generation, digest, content, event)
             SELECT ?3, lower(hex(randomblob(16))), '0123456789abcdef0123456789abcdef', 'x' FROM n",
            params![done, until, generation],
        )?;
        tx.commit()?;
        done = until;
    }
    connection.execute(
        "INSERT INTO usage_total (app_id, environment, meter, span, property, customer, choice, slot, total, events, most,
                                  latest, latest_at)
         SELECT app_id, environment, meter, 'q', '', '', '', (at / ?2) * ?2, SUM(value), COUNT(*), 1, 1, MAX(at)
         FROM usage_event WHERE app_id = ?1 GROUP BY (at / ?2)
         UNION ALL
         SELECT app_id, environment, meter, 'q', '', customer, '', (at / ?2) * ?2, SUM(value), COUNT(*), 1, 1, MAX(at)
         FROM usage_event WHERE app_id = ?1 GROUP BY customer, (at / ?2)",
        params![ground.app, QUARTER],
    )?;
    connection.execute_batch("PRAGMA wal_checkpoint(PASSIVE)")?;
    bar.finish_and_clear();
    Ok(ground)
}
