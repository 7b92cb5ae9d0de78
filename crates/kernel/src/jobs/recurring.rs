//! Recurring jobs: the node that advances the due moment enqueues the job, in one transaction.
use std::time::Duration;

use db::params;

use super::{Jobs, model};
use crate::{Janua, clock::Timestamp};

pub(super) struct Recurring {
    pub(super) kind: &'static str,
    pub(super) interval: Duration,
    pub(super) payload: String,
}

impl Recurring {
    /// The next whole multiple of the interval, so that all nodes mean the same moment.
    fn after(&self, now: Timestamp) -> Timestamp {
        let interval = i64::try_from(self.interval.as_millis()).unwrap_or(i64::MAX).max(1);
        Timestamp((now.0.div_euclid(interval) + 1).saturating_mul(interval))
    }
}

/// Makes what is due ready, and answers when something is due next.
pub(super) async fn tick(janua: &Janua, jobs: &Jobs) -> db::Result<Option<Timestamp>> {
    let now = janua.clock.now();
    let known: Vec<Due> = janua.db.all("SELECT name, next_at FROM recurring_job", params![]).await?;
    let mut next_due: Option<Timestamp> = None;
    for job in &jobs.recurring {
        let next = job.after(now);
        let due = known.iter().find(|due| due.name == job.kind).map(|due| due.next_at);
        // A moment further off than the interval is a leftover of a longer interval or of a clock that was wrong.
        if due.is_none_or(|at| at <= now || at > next) {
            make_ready(janua, job, now, next).await?;
        }
        let at = due.filter(|at| *at > now && *at <= next).unwrap_or(next);
        next_due = Some(next_due.map_or(at, |soonest| soonest.min(at)));
    }
    Ok(next_due)
}

async fn make_ready(janua: &Janua, job: &Recurring, now: Timestamp, next: Timestamp) -> db::Result<()> {
    let id = model::JobId::new(&janua.entropy, now);
    db::transact!(janua.db, async |tx| {
        let moved = tx
            .exec(
                "INSERT INTO recurring_job (name, next_at) VALUES ($1, $2)
                 ON CONFLICT (name) DO UPDATE SET next_at = $2
                 WHERE recurring_job.next_at <= $3 OR recurring_job.next_at > $2",
                params![job.kind, next, now],
            )
            .await?;
        if moved == 1 {
            let unique = format!("recurring:{}", job.kind);
            model::insert(tx, id, job.kind, &job.payload, Some(&unique), now, now).await?;
        }
        Ok(())
    })
}

/// When each recurring job is due next.
pub async fn next_turns(db: &db::Db) -> db::Result<Vec<(String, Timestamp)>> {
    let known: Vec<Due> = db.all("SELECT name, next_at FROM recurring_job", params![]).await?;
    Ok(known.into_iter().map(|due| (due.name, due.next_at)).collect())
}

struct Due {
    name: String,
    next_at: Timestamp,
}
db::row!(Due { name, next_at });
