//! Analytics. Each event of an app leaves a tally in its own transaction; counting happens later, in one transaction that
//! takes the tallies and adds them to the counters. Whoever reads counts what waits first, so figures are never late.
pub(crate) mod api;
pub(crate) mod count;
mod days;
mod funnels;
pub(crate) mod model;
mod people;
mod series;
pub(crate) mod zones;

use std::time::Duration;

use db::params;
use kernel::{
    Janua,
    feature::Feature,
    http::Routes,
    jobs::{Chore, Job, Jobs, Later},
};
use serde::{Deserialize, Serialize};
use tenancy::{events::watch::Watcher, gone::Gone};

/// How often what waits is counted, where nobody reads.
const COUNT_EVERY: Duration = Duration::from_secs(20);
const BACKFILL_EVERY: Duration = Duration::from_mins(10);
/// Days that hours, periods of users and steps of funnels are kept.
const HOURS_KEPT: i64 = 35;
const PERIODS_KEPT: i64 = 400;
const STEPS_KEPT: Duration = Duration::from_hours(24 * 31);

tenancy::events! {
    /// The time zone of an organization's analytics was changed.
    TimeZoneChanged { time_zone: String } = "ANALYTICS_TIME_ZONE_CHANGED";
}

/// Counts what waits.
#[derive(Default, Serialize, Deserialize)]
struct CountTallies {}

impl Job for CountTallies {
    const KIND: &'static str = "insights.count";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        while count::count_some(&janua).await? > 0 {}
        Ok(())
    }
}

/// Counts events from before there was analytics, and those of nodes that do not know of it.
#[derive(Default, Serialize, Deserialize)]
struct Backfill {}

impl Job for Backfill {
    const KIND: &'static str = "insights.backfill";
    const LIMIT: Duration = Duration::from_hours(1);

    async fn run(self, janua: Janua) -> Result<(), Later> {
        while count::count_past(&janua).await? > 0 {
            // Others write meanwhile.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

const CHORES: &[Chore] = &[
    Chore::run("event_hour", |janua| {
        Box::pin(async move {
            let sql = "DELETE FROM event_hour WHERE (app_id, hour, kind) IN
                           (SELECT app_id, hour, kind FROM event_hour WHERE hour < $1 ORDER BY hour LIMIT $2)";
            let first = (janua.clock.now().day().0 - HOURS_KEPT) * 24;
            Ok(janua.db.sweep(sql, params![first]).await.map(drop)?)
        })
    }),
    Chore::run("user_period", |janua| {
        Box::pin(async move {
            let sql = "DELETE FROM user_period WHERE (app_id, period, since, account_id) IN
                           (SELECT app_id, period, since, account_id FROM user_period WHERE since < $1
                            ORDER BY since LIMIT $2)";
            let first = janua.clock.now().day().0 - PERIODS_KEPT;
            Ok(janua.db.sweep(sql, params![first]).await.map(drop)?)
        })
    }),
    Chore::sweep(
        "funnel_step",
        "DELETE FROM funnel_step WHERE (app_id, account_id, funnel, day, step) IN
             (SELECT app_id, account_id, funnel, day, step FROM funnel_step WHERE at < $1 ORDER BY at LIMIT $2)",
        STEPS_KEPT,
    ),
];

const GONE: &[Gone] = &[
    Gone::Account(|tx, janua, id| Box::pin(count::forget_person(tx, janua, id))),
    Gone::App(|tx, _, id| Box::pin(model::forget_scope(tx, id.to_string()))),
    Gone::Org(|tx, _, id| Box::pin(model::forget_scope(tx, id.to_string()))),
    Gone::ManyOfApp(
        "DELETE FROM user_period WHERE (app_id, period, since, account_id) IN
             (SELECT app_id, period, since, account_id FROM user_period WHERE app_id = $1 LIMIT $2)",
    ),
    Gone::ManyOfApp(
        "DELETE FROM active_user WHERE scope = $1 AND account_id IN
             (SELECT account_id FROM active_user WHERE scope = $1 LIMIT $2)",
    ),
    Gone::ManyOfApp(
        "DELETE FROM funnel_step WHERE (app_id, account_id, funnel, day, step) IN
             (SELECT app_id, account_id, funnel, day, step FROM funnel_step WHERE app_id = $1 LIMIT $2)",
    ),
    Gone::ManyOfApp(
        "DELETE FROM event_day WHERE (scope, day, kind, method) IN
             (SELECT scope, day, kind, method FROM event_day WHERE scope = $1 LIMIT $2)",
    ),
    Gone::ManyOfApp(
        "DELETE FROM active_gap WHERE (scope, day, gap) IN (SELECT scope, day, gap FROM active_gap WHERE scope = $1 LIMIT $2)",
    ),
    Gone::ManyOfApp(
        "DELETE FROM active_block WHERE (scope, day, block) IN
             (SELECT scope, day, block FROM active_block WHERE scope = $1 LIMIT $2)",
    ),
    Gone::ManyOfApp(
        "DELETE FROM event_hour WHERE (app_id, hour, kind) IN
             (SELECT app_id, hour, kind FROM event_hour WHERE app_id = $1 LIMIT $2)",
    ),
    Gone::ManyOfOrg(
        "DELETE FROM active_user WHERE scope = $1 AND account_id IN
             (SELECT account_id FROM active_user WHERE scope = $1 LIMIT $2)",
    ),
    Gone::ManyOfOrg(
        "DELETE FROM event_day WHERE (scope, day, kind, method) IN
             (SELECT scope, day, kind, method FROM event_day WHERE scope = $1 LIMIT $2)",
    ),
    Gone::ManyOfOrg(
        "DELETE FROM active_gap WHERE (scope, day, gap) IN (SELECT scope, day, gap FROM active_gap WHERE scope = $1 LIMIT $2)",
    ),
    Gone::ManyOfOrg(
        "DELETE FROM active_block WHERE (scope, day, block) IN
             (SELECT scope, day, block FROM active_block WHERE scope = $1 LIMIT $2)",
    ),
];

pub fn feature() -> Feature {
    Feature::new(Routes::new("analytics").and(api::routes()).and(series::routes()).and(people::routes()))
        .jobs(Jobs::new().every::<CountTallies>(COUNT_EVERY).every::<Backfill>(BACKFILL_EVERY))
        .own(zones::KnownZones::default())
        .declares(EVENTS)
        .declares(CHORES)
        .declares(GONE)
        .declares(&[Watcher(|tx, janua, occurrence| Box::pin(count::note(tx, janua, occurrence)))])
        .start(|janua| {
            Box::pin(async move {
                let known = janua.own::<zones::KnownZones>().clone();
                janua.db.on_notice(move |notice| known.hear(notice));
                Ok(())
            })
        })
}

/// The topic on which a change of time zones is told to every node.
const ZONES: &str = "analytics_zone";
