//! What analytics adds to a sign-in and to a refresh. It cannot be switched off, so its statements are run by SQLite alone, on
//! the same file, and set beside the processor time of the whole request.
//!
//! The statements are those of one tally in the transaction of the request, and of the transaction that counts 500 of them
//! later. A refresh leaves a tally when it is the first of the user's day; all others add no statement.
use std::{
    cell::Cell,
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};
use serde_json::Value;

use super::{
    Place,
    seed::{month_of, week_of},
};
use crate::{
    client::{self, Who, ask, text},
    figure::{Figure, Goal, Unit},
    ground::database,
    identity::{login, side},
    load::{self, Ask},
    rounds::{self, Rounds, Side, Tally},
    seed::{User, uuid},
    sizes::{DAY, GENERATOR, SERVER, mixed, now},
};

/// How many tallies one transaction counts.
const AT_ONCE: u64 = 500;
const BITS: i64 = 60;
const LONGEST_GAP: i64 = 367;
const TALLY: u16 = 9;
const SESSIONS: usize = 4;
/// Access tokens live for a quarter of an hour: a session that is in use for an hour of a day is refreshed so often.
const REFRESHES_A_DAY: f64 = 4.0;

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    SignIn,
    FirstRefresh,
}

pub fn measure(rounds: &Rounds, app: &Place) -> Result<Vec<Figure>> {
    let server = &app.server;
    let who = Who::through(&app.key);
    let enter = || ask(server.address, "POST", "/auth/login", &who, &login());
    let request = client::request("POST", "/auth/login", &who, &login().to_string(), "keep-alive");
    let sign_in = Ask::again(request);
    let whole = || side(server.pid(), |slice| load::asleep(server.address, slice, GENERATOR, &sign_in));
    // Each user once, so that it is the first time on this day: another run begins elsewhere.
    let next = Cell::new(mixed(now()?.unsigned_abs(), 5) % app.users);
    let raw = |what| statements(app, what, &next);
    let sides = rounds::interleave("sign-in", rounds.turn, whole, || raw(What::SignIn))?;
    let samples = sides.only(|rate| 1e6 / rate.per_cpu_second);
    let figure = |scenario, what, samples, goal| Figure { scenario, what, unit: Unit::Microseconds, samples, goal };
    let mut figures = vec![figure(
        "sign-in cost",
        "statements of analytics, by processor time; the whole sign-in",
        samples,
        Some(Goal::RatioAtMost(0.02)),
    )];
    let whole = || -> Result<Side<'_>> {
        Ok(Box::new(|slice| {
            let tokens = (0..SESSIONS).map(|_| text(&enter()?, "refreshToken")).collect::<Result<_>>()?;
            let chain = Ask::chain_through(tokens, app.key.clone());
            Tally::of(server.pid(), || load::asleep(server.address, slice, GENERATOR, &chain))
        }))
    };
    let sides = rounds::interleave("refresh", rounds.turn, whole, || raw(What::FirstRefresh))?;
    let first = sides.only(|rate| 1e6 / rate.per_cpu_second);
    let mut average = sides.only(|rate| 1e6 / rate.per_cpu_second);
    average.ours.iter_mut().for_each(|cost| *cost /= REFRESHES_A_DAY);
    let what = "the same, of a user's first refresh of a day; a whole refresh";
    figures.push(figure("refresh cost", what, first, None));
    let what = "the same, of each of four refreshes a day; a whole refresh";
    figures.push(figure("refresh cost", what, average, Some(Goal::RatioAtMost(0.03))));
    Ok(figures)
}

/// The statements for 500 users at a time, scattered over all there are.
fn statements<'a>(app: &'a Place, what: What, next: &'a Cell<u64>) -> Result<Side<'a>> {
    let mut connection = Connection::open(database(&app.folder))?;
    connection.busy_timeout(Duration::from_secs(30))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", "-4000")?;
    connection.set_prepared_statement_cache_capacity(64);
    let path = format!("/analytics/app/{}/overview", app.app);
    Ok(Box::new(move |slice| {
        // The server counts its own tallies first, so that the ones below are the only ones.
        ask(app.server.address, "GET", &path, &Who::with(&app.token), &Value::Null)?;
        Tally::here(SERVER, || {
            let (mut count, until) = (0, Instant::now() + slice);
            while Instant::now() < until {
                let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                Batch { tx: &tx, app, what, now: now()? }.run(next.get())?;
                tx.commit()?;
                next.set(next.get() + AT_ONCE);
                count += AT_ONCE;
            }
            Ok(count)
        })
    }))
}

struct Batch<'a> {
    tx: &'a Transaction<'a>,
    app: &'a Place,
    what: What,
    now: i64,
}

impl Batch<'_> {
    fn run(&self, first: u64) -> Result<()> {
        let kind = if self.what == What::SignIn { "SIGNED_IN" } else { "seen" };
        let method = if self.what == What::SignIn { "pwd" } else { "" };
        let mut insert = self.tx.prepare_cached(
            "INSERT INTO event_tally (id, app_id, kind, method, account_id, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        for place in first..first + AT_ONCE {
            // A prime that no number of users here is a multiple of.
            let user = User(1 + (place % self.app.users) * 7_368_787 % self.app.users);
            insert.execute(params![uuid(TALLY, place), self.app.app, kind, method, user.id(), self.now])?;
        }
        let mut take = self.tx.prepare_cached(
            "DELETE FROM event_tally WHERE id IN (SELECT id FROM event_tally ORDER BY id LIMIT ?1)
             RETURNING id, app_id, kind, method, account_id, at",
        )?;
        let users: Vec<String> =
            take.query_map([i64::try_from(AT_ONCE)?], |row| row.get(4))?.collect::<Result<_, _>>()?;
        ensure!(users.len() as u64 == AT_ONCE, "{} tallies", users.len());
        let mut gaps: BTreeMap<(&str, i64), i64> = BTreeMap::new();
        for user in &users {
            for scope in [self.app.app.as_str(), &self.app.org] {
                if let Some(gap) = self.see(scope, user)? {
                    *gaps.entry((scope, gap)).or_default() += 1;
                }
            }
        }
        let mut active: BTreeMap<&str, i64> = BTreeMap::new();
        let mut blocks: BTreeMap<(&str, i64), i64> = BTreeMap::new();
        for ((scope, gap), by) in &gaps {
            *active.entry(scope).or_default() += by;
            *blocks.entry((scope, (gap - 1) / 16)).or_default() += by;
        }
        for (scope, by) in active {
            let sql = "INSERT INTO active_day (scope, day, users, new_users) VALUES (?1, ?2, ?3, ?4)
                       ON CONFLICT (scope, day) DO UPDATE SET users = active_day.users + ?3,
                           new_users = active_day.new_users + ?4";
            self.tx.prepare_cached(sql)?.execute(params![scope, self.day(), by, 0])?;
        }
        for ((scope, block), by) in blocks {
            let sql = "INSERT INTO active_block (scope, day, block, users) VALUES (?1, ?2, ?3, ?4)
                       ON CONFLICT (scope, day, block) DO UPDATE SET users = active_block.users + ?4";
            self.tx.prepare_cached(sql)?.execute(params![scope, self.day(), block, by])?;
        }
        for ((scope, gap), by) in gaps {
            let sql = "INSERT INTO active_gap (scope, day, gap, users) VALUES (?1, ?2, ?3, ?4)
                       ON CONFLICT (scope, day, gap) DO UPDATE SET users = active_gap.users + ?4";
            self.tx.prepare_cached(sql)?.execute(params![scope, self.day(), gap, by])?;
        }
        let mut reached = [0; 4];
        for user in &users {
            self.step(user, &mut reached)?;
        }
        if self.what == What::SignIn {
            self.count(&users)?;
            for (step, by) in (0_i64..).zip(reached).filter(|(_, by)| *by > 0) {
                let sql = "INSERT INTO funnel_day (app_id, funnel, day, step, within, users) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                           ON CONFLICT (app_id, funnel, day, step, within) DO UPDATE SET users = funnel_day.users + ?6";
                let mut save = self.tx.prepare_cached(sql)?;
                save.execute(params![self.app.app, "sign_in", self.day(), step, 0, by])?;
            }
        }
        Ok(())
    }

    fn day(&self) -> i64 {
        self.now.div_euclid(DAY)
    }

    /// Notes that a user was seen today. Answers the days since they were seen before, if this is the first time today.
    fn see(&self, scope: &str, user: &str) -> Result<Option<i64>> {
        let sql = "SELECT u.last_day, u.days, u.before_day FROM account
                   LEFT JOIN active_user u ON u.account_id = account.id AND u.scope = ?1 WHERE account.id = ?2";
        let known: Option<(Option<i64>, Option<i64>, Option<i64>)> = self
            .tx
            .prepare_cached(sql)?
            .query_row(params![scope, user], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let (last, days, before) = known.context("a user without an account")?;
        let (last, days) = (last.context("a user was never seen")?, days.unwrap_or(1));
        let by = self.day() - last;
        if by <= 0 {
            return Ok(None);
        }
        let leaves = (0..BITS).find(|back| days >> back & 1 == 1 && back + by >= BITS);
        let before = leaves.map(|back| last - back).or(before);
        let days = if by >= BITS { 1 } else { (days << by & ((1 << BITS) - 1)) | 1 };
        let sql =
            "INSERT INTO active_user (scope, account_id, last_day, days, before_day) VALUES (?1, ?2, ?3, ?4, ?5)
                   ON CONFLICT (scope, account_id) DO UPDATE SET last_day = ?3, days = ?4, before_day = ?5";
        self.tx.prepare_cached(sql)?.execute(params![scope, user, self.day(), days, before])?;
        Ok(Some(by.min(LONGEST_GAP)))
    }

    /// The steps of funnels: read, and after a sign-in written.
    fn step(&self, user: &str, reached: &mut [i64; 4]) -> Result<()> {
        let sql = "SELECT funnel, day, step, at FROM funnel_step WHERE app_id = ?1 AND account_id = ?2";
        let mut known = self.tx.prepare_cached(sql)?;
        let known = known.query_map(params![self.app.app, user], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?))
        })?;
        let known: Vec<(String, i64, i64, i64)> = known.collect::<Result<_, _>>()?;
        let is_there = known.iter().any(|(funnel, day, ..)| funnel == "sign_in" && *day == self.day());
        if self.what != What::SignIn || is_there {
            return Ok(());
        }
        for (step, place) in [(0_i64, 0), (1, 1), (3, 3)] {
            let sql = "INSERT INTO funnel_step (app_id, account_id, funnel, day, step, at)
                       SELECT ?1, id, ?3, CAST(?4 AS BIGINT), CAST(?5 AS BIGINT), CAST(?6 AS BIGINT) FROM account WHERE id = ?2
                       ON CONFLICT DO NOTHING";
            let mut save = self.tx.prepare_cached(sql)?;
            save.execute(params![self.app.app, user, "sign_in", self.day(), step, self.now])?;
            reached[place] += 1;
        }
        Ok(())
    }

    /// The counters of events, and those of each user.
    fn count(&self, users: &[String]) -> Result<()> {
        let (app, org, day, many) = (&self.app.app, &self.app.org, self.day(), i64::try_from(users.len())?);
        let sql = "INSERT INTO event_hour (app_id, hour, kind, n) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (app_id, hour, kind) DO UPDATE SET n = event_hour.n + ?4";
        self.tx.prepare_cached(sql)?.execute(params![app, self.now.div_euclid(3_600_000), "SIGNED_IN", many])?;
        for scope in [app, org] {
            let sql = "INSERT INTO event_day (scope, day, kind, method, n) VALUES (?1, ?2, ?3, ?4, ?5)
                       ON CONFLICT (scope, day, kind, method) DO UPDATE SET n = event_day.n + ?5";
            self.tx.prepare_cached(sql)?.execute(params![scope, day, "SIGNED_IN", "pwd", many])?;
        }
        for (period, since) in [("d", day), ("m", month_of(day)), ("w", week_of(day))] {
            for user in users {
                let sql = "INSERT INTO user_period (app_id, period, since, account_id, events, last_at)
                           SELECT ?1, ?2, CAST(?3 AS BIGINT), id, CAST(?5 AS BIGINT), CAST(?6 AS BIGINT) FROM account WHERE id = ?4
                           ON CONFLICT (app_id, period, since, account_id) DO UPDATE SET events = user_period.events + ?5,
                               last_at = CASE WHEN user_period.last_at < ?6 THEN ?6 ELSE user_period.last_at END";
                self.tx.prepare_cached(sql)?.execute(params![app, period, since, user, 1, self.now])?;
            }
        }
        Ok(())
    }
}
