//! The look at every component, once a minute for all nodes together.
use std::time::Duration;

use kernel::{
    Janua,
    clock::{Day, Timestamp},
    jobs::{self, Job, Later},
};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::model::{Component, DAYS_KEPT, State, UptimeDay};
use crate::PROBE_EVERY;

/// A check that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(5);
/// A check that takes longer has succeeded, but slowly.
const SLOW: Duration = Duration::from_millis(500);

/// The component that stands for the service as a whole: when nobody looked, it was down.
const API: &str = "api";

#[derive(Default, Serialize, Deserialize)]
pub struct Probe {}

impl Job for Probe {
    const KIND: &'static str = "site.probe";
    const TRIES: u32 = 3;

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let found = look(&janua).await;
        db::transact!(janua.db, async |tx| {
            let now = janua.clock.now();
            let last = Component::last_check(tx, API).await?;
            for missed in missed_days(last, now) {
                missed.add(tx).await?;
            }
            for component in &found {
                component.save(tx).await?;
                let failures = i64::from(component.state == State::Outage);
                let (component, day) = (component.name.clone(), now.day());
                UptimeDay { component, day, checks: 1, failures }.add(tx).await?;
            }
            UptimeDay::forget_before(tx, first_day(now)).await?;
            Ok(())
        })?;
        Ok(())
    }
}

/// The oldest day that is still shown.
pub(super) fn first_day(now: Timestamp) -> Day {
    Day(now.day().0 - DAYS_KEPT + 1)
}

async fn look(janua: &Janua) -> Vec<Component> {
    let database = check(janua, "database", async { janua.db.ping(PATIENCE).await.map_err(|e| e.to_string()) }).await;
    let mail = check(janua, "mail", async { janua.mail.check().await.map_err(|e| e.to_string()) }).await;
    let queue = check(janua, "jobs", async {
        match jobs::figures(&janua.db).await {
            Ok((waiting, _)) if waiting >= 10_000 => Err("work is piling up".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
    // This very job ran, so requests can be answered; what they need is in the others.
    let api = Component { name: API.into(), state: State::Operational, detail: None, ..database.clone() };
    vec![api, database, queue, mail]
}

/// The cause goes to the log: it may name hosts and folders, which are nobody else's business.
async fn check(janua: &Janua, name: &str, work: impl Future<Output = Result<(), String>>) -> Component {
    let started = Instant::now();
    let outcome = timeout(PATIENCE, work).await.unwrap_or_else(|_| Err("no answer in time".to_owned()));
    let took = started.elapsed();
    let (state, detail) = match outcome {
        Ok(()) if took < SLOW => (State::Operational, None),
        Ok(()) => (State::Degraded, Some("answers slowly".to_owned())),
        Err(cause) => {
            tracing::warn!(component = name, cause, "a component is down");
            (State::Outage, Some("not working at the moment".to_owned()))
        }
    };
    let latency_ms = i64::try_from(took.as_millis()).unwrap_or(i64::MAX);
    Component { name: name.into(), state, detail, latency_ms, checked_at: janua.clock.now() }
}

/// The looks that should have been taken since the last one and were not, as failures of their days.
fn missed_days(last: Option<Timestamp>, now: Timestamp) -> Vec<UptimeDay> {
    let every = i64::try_from(PROBE_EVERY.as_millis()).unwrap_or(i64::MAX);
    // One missed look may be a restart; from two on somebody may have noticed.
    let Some(last) = last.filter(|last| now.0 - last.0 > 3 * every) else { return vec![] };
    let mut missed = Vec::new();
    let mut from = last.0.max(first_day(now).start().0);
    while from < now.0 {
        let day = Timestamp(from).day();
        let until = now.0.min(Day(day.0 + 1).start().0);
        let failures = (until - from) / every;
        if failures > 0 {
            missed.push(UptimeDay { component: API.into(), day, checks: failures, failures });
        }
        from = until;
    }
    missed
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;

    #[test]
    fn what_nobody_looked_at_was_down_on_the_day_it_was_down() {
        let midnight = Day(20_000).start().0;
        let missed = |last: i64, now: i64| {
            let days = missed_days(Some(Timestamp(last)), Timestamp(now));
            days.into_iter().map(|day| (day.day.0, day.failures)).collect::<Vec<_>>()
        };
        assert!(missed(midnight, midnight + MINUTE).is_empty(), "the usual minute");
        assert!(missed(midnight, midnight + 3 * MINUTE).is_empty(), "a restart");
        assert_eq!(missed(midnight, midnight + 60 * MINUTE), [(20_000, 60)]);
        assert_eq!(missed(midnight - 30 * MINUTE, midnight + 10 * MINUTE), [(19_999, 30), (20_000, 10)]);
        let year = missed(midnight - 365 * 1440 * MINUTE, midnight);
        assert_eq!(year.len(), 89, "only days that are still shown; today has just begun");
        assert!(missed_days(None, Timestamp(midnight)).is_empty(), "the first look of all");
        assert!(missed(midnight + 1_000_000, midnight).is_empty(), "a clock that went back");
    }
}
