//! The job table and every statement on it.
use std::time::Duration;

use db::{Db, Sql, Tx, params, row};
use serde::Serialize;

use super::Chore;
use crate::{
    clock::Timestamp,
    id::Id,
    telemetry::{self, Figure, MOST_STEPS, Measure, StepKind, TraceStep},
};

pub type JobId = Id<Claimed>;

/// A job this node holds the lease of.
#[derive(Debug, Clone)]
pub struct Claimed {
    pub(super) id: JobId,
    pub(super) kind: String,
    pub(super) payload: String,
    /// How often it was tried, this time included.
    pub(super) attempts: u32,
    pub(super) fence: i64,
    pub(super) created_at: Timestamp,
    /// The request that caused it, and the span that enqueued it.
    pub(super) request_id: Option<String>,
    pub(super) traceparent: Option<String>,
}
row!(Claimed { id, kind, payload, attempts, fence, created_at, request_id, traceparent });

/// A job that was given up, for people to look at.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadJob {
    pub id: JobId,
    pub kind: String,
    pub payload: String,
    pub attempts: u32,
    pub last_error: Option<String>,
    pub created_at: Timestamp,
    pub died_at: Timestamp,
}
row!(DeadJob { id, kind, payload, attempts, last_error, created_at, died_at });

pub(super) async fn insert(
    tx: &mut Tx,
    id: JobId,
    kind: &str,
    payload: &str,
    unique_key: Option<&str>,
    now: Timestamp,
    at: Timestamp,
) -> db::Result<()> {
    tx.exec(
        "INSERT INTO job (id, kind, payload, unique_key, created_at, ready_at, is_claimed, attempts, fence, request_id,
                          traceparent)
         VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, $8, $9) ON CONFLICT (unique_key) DO NOTHING",
        params![
            id,
            kind,
            payload,
            unique_key,
            now,
            at,
            false,
            telemetry::request_id().as_deref(),
            telemetry::traceparent()
        ],
    )
    .await?;
    Ok(())
}

/// Takes up to `most` jobs that are ready and holds them until `lease_end`.
pub(super) async fn claim(db: &Db, now: Timestamp, lease_end: Timestamp, most: u32) -> db::Result<Vec<Claimed>> {
    const CLAIM: Sql = Sql::two(
        "UPDATE job SET ready_at = $2, is_claimed = $4, attempts = attempts + 1, fence = fence + 1
         WHERE id IN (SELECT id FROM job WHERE ready_at <= $1 ORDER BY ready_at, id LIMIT $3)
         RETURNING id, kind, payload, attempts, fence, created_at, request_id, traceparent",
        // Looked up once and for all: as part of the condition PostgreSQL may look again for every row, and take more.
        "WITH due AS MATERIALIZED (SELECT id FROM job WHERE ready_at <= $1 ORDER BY ready_at, id LIMIT $3
                                   FOR UPDATE SKIP LOCKED)
         UPDATE job SET ready_at = $2, is_claimed = $4, attempts = attempts + 1, fence = fence + 1
         FROM due WHERE job.id = due.id
         RETURNING job.id, job.kind, job.payload, job.attempts, job.fence, job.created_at, job.request_id,
                   job.traceparent",
    );
    db.put(CLAIM, params![now, lease_end, i64::from(most), true]).await
}

/// When the next job is ready, if there is any.
pub(super) async fn next_ready(db: &Db) -> db::Result<Option<Timestamp>> {
    let next: Option<(Timestamp,)> = db
        .opt("SELECT ready_at FROM job WHERE ready_at IS NOT NULL ORDER BY ready_at, id LIMIT 1", params![])
        .await?;
    Ok(next.map(|(at,)| at))
}

/// These three end a claim; `false` when the lease was lost and another worker has the job now.
pub(super) async fn done(db: &Db, job: &Claimed, now: Timestamp) -> db::Result<bool> {
    const DONE: &str = "DELETE FROM job WHERE id = $1 AND fence = $2";
    let Some(request) = &job.request_id else {
        return Ok(db.exec(DONE, params![job.id, job.fence]).await? == 1);
    };
    db::transact!(db, async |tx| {
        let is_ours = tx.exec(DONE, params![job.id, job.fence]).await? == 1;
        if is_ours {
            // For whoever follows the request.
            tx.exec(
                "INSERT INTO job_past (id, request_id, kind, attempts, created_at, ended_at)
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING",
                params![job.id, request, &job.kind, job.attempts, job.created_at, now],
            )
            .await?;
        }
        Ok(is_ours)
    })
}

/// Deletion of finished jobs.
pub const CHORES: &[Chore] = &[Chore::sweep(
    "job_past",
    "DELETE FROM job_past WHERE id IN (SELECT id FROM job_past WHERE ended_at < $1 ORDER BY ended_at LIMIT $2)",
    PAST_KEPT,
)];

/// How long jobs of a request that are done are remembered.
const PAST_KEPT: Duration = Duration::from_hours(24 * 7);

struct TracedJob {
    id: String,
    kind: String,
    state: String,
    attempts: u32,
    created_at: Timestamp,
    ended_at: Option<Timestamp>,
}
row!(TracedJob { id, kind, state, attempts, created_at, ended_at });

/// The jobs that a request caused, oldest first: those of the queue, and those that were done in the last week.
pub async fn of_request(db: &Db, request: &str) -> db::Result<Vec<TraceStep>> {
    let queued = "SELECT id, kind, attempts, created_at, died_at AS ended_at,
                         CASE WHEN died_at IS NOT NULL THEN 'dead' WHEN is_claimed THEN 'running'
                              ELSE 'waiting' END AS state
                  FROM job WHERE request_id = $1 ORDER BY id LIMIT $2";
    let past = "SELECT id, kind, attempts, created_at, ended_at, 'done' AS state
                FROM job_past WHERE request_id = $1 ORDER BY id LIMIT $2";
    let mut jobs: Vec<TracedJob> = db.all(past, params![request, MOST_STEPS]).await?;
    jobs.extend(db.all::<TracedJob>(queued, params![request, MOST_STEPS]).await?);
    let step = |job: TracedJob| {
        let step = TraceStep::new(StepKind::Job, job.id, job.created_at, job.kind);
        step.state(job.state).tries(job.attempts).ended_at(job.ended_at)
    };
    Ok(jobs.into_iter().map(step).collect())
}

pub(super) async fn retry(db: &Db, job: &Claimed, at: Timestamp, attempts: u32, why: &str) -> db::Result<bool> {
    let changed = db.exec(
        "UPDATE job SET ready_at = $3, is_claimed = $6, attempts = $4, last_error = $5 WHERE id = $1 AND fence = $2",
        params![job.id, job.fence, at, attempts, why, false],
    );
    Ok(changed.await? == 1)
}

pub(super) async fn give_up(db: &Db, job: &Claimed, now: Timestamp, why: &str) -> db::Result<bool> {
    // The key is let go, so that a dead letter does not stand in the way of the next one of its kind.
    let changed = db.exec(
        "UPDATE job SET ready_at = NULL, is_claimed = $5, unique_key = NULL, died_at = $3, last_error = $4
         WHERE id = $1 AND fence = $2",
        params![job.id, job.fence, now, why, false],
    );
    Ok(changed.await? == 1)
}

/// Holds a job longer; `false` when it is not ours any more.
pub(super) async fn renew(db: &Db, job: &Claimed, lease_end: Timestamp) -> db::Result<bool> {
    let sql = "UPDATE job SET ready_at = $3 WHERE id = $1 AND fence = $2 AND ready_at IS NOT NULL";
    Ok(db.exec(sql, params![job.id, job.fence, lease_end]).await? == 1)
}

/// Frees what a dead process held. Only for whoever knows that no other process is at work: the one node of an embedded
/// database, when it starts.
pub async fn release_all(db: &Db, now: Timestamp) -> db::Result<u64> {
    db.exec("UPDATE job SET ready_at = $1, is_claimed = $2 WHERE is_claimed = $3", params![now, false, true]).await
}

/// The dead letters, newest first.
pub async fn dead(db: &Db, most: u32) -> db::Result<Vec<DeadJob>> {
    db.all(
        "SELECT id, kind, payload, attempts, last_error, created_at, died_at FROM job
         WHERE died_at IS NOT NULL ORDER BY died_at DESC, id DESC LIMIT $1",
        params![most],
    )
    .await
}

/// Gives a dead letter all its tries again.
pub async fn revive(db: &Db, id: JobId, now: Timestamp) -> db::Result<bool> {
    let sql = "UPDATE job SET ready_at = $2, died_at = NULL, attempts = 0 WHERE id = $1 AND died_at IS NOT NULL";
    Ok(db.exec(sql, params![id, now]).await? == 1)
}

/// Throws a dead letter away.
pub async fn forget(db: &Db, id: JobId) -> db::Result<bool> {
    Ok(db.exec("DELETE FROM job WHERE id = $1 AND died_at IS NOT NULL", params![id]).await? == 1)
}

/// Throws away the dead letters of one kind that died before a moment.
pub async fn forget_dead(db: &Db, kind: &str, before: Timestamp) -> db::Result<u64> {
    db.exec("DELETE FROM job WHERE died_at < $2 AND kind = $1", params![kind, before]).await
}

/// Deletes the jobs of one kind, waiting and dead ones, some at a time; answers how many there were.
pub async fn forget_kind(db: &Db, kind: &str) -> db::Result<u64> {
    let sql = "DELETE FROM job WHERE id IN (SELECT id FROM job WHERE kind = $1 LIMIT $2)";
    db.sweep(sql, params![kind]).await
}

/// How many jobs wait and how many are dead. Counting stops at 10,000: past that the number says enough.
pub async fn figures(db: &Db) -> db::Result<(i64, i64)> {
    let waiting: (i64,) = db
        .one(
            "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM (SELECT 1 FROM job WHERE ready_at IS NOT NULL LIMIT 10000) w",
            params![],
        )
        .await?;
    let dead: (i64,) = db
        .one(
            "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM (SELECT 1 FROM job WHERE died_at IS NOT NULL LIMIT 10000) d",
            params![],
        )
        .await?;
    Ok((waiting.0, dead.0))
}

/// The figures of the queue for `/metrics`.
pub const MEASURE: Measure = Measure(|janua| Box::pin(async move { measure(&janua.db, janua.clock.now()).await }));

/// The jobs of one kind in one state. Of those that wait the 10,000 that are due first are counted, of dead ones any
/// 10,000.
struct Queued {
    kind: String,
    state: String,
    count: i64,
    oldest: Option<Timestamp>,
}
row!(Queued { kind, state, count, oldest });

/// The jobs of one kind that wait, run and are dead, each counted up to 10,000 over all kinds.
#[derive(Debug, Clone, Default)]
pub struct QueuedKind {
    pub kind: String,
    pub waiting: i64,
    pub running: i64,
    pub dead: i64,
    /// Since when the oldest job that is due has been so.
    pub oldest_due: Option<Timestamp>,
    /// When the last job of the kind died.
    pub died_at: Option<Timestamp>,
}

/// The queue by kind of job.
pub async fn by_kind(db: &Db, now: Timestamp) -> db::Result<Vec<QueuedKind>> {
    let sql = "SELECT kind, state, CAST(COUNT(*) AS BIGINT) AS count, MIN(ready_at) AS oldest FROM (
             SELECT kind, ready_at,
                 CASE WHEN is_claimed THEN 'running' WHEN ready_at <= $1 THEN 'due' ELSE 'scheduled' END AS state
             FROM job WHERE ready_at IS NOT NULL ORDER BY ready_at, id LIMIT 10000) w
         GROUP BY kind, state";
    let waiting: Vec<Queued> = db.all(sql, params![now]).await?;
    let sql = "SELECT kind, 'dead' AS state, CAST(COUNT(*) AS BIGINT) AS count, MAX(died_at) AS oldest FROM (
             SELECT kind, died_at FROM job WHERE died_at IS NOT NULL ORDER BY died_at DESC LIMIT 10000) d
         GROUP BY kind";
    let dead: Vec<Queued> = db.all(sql, params![]).await?;
    let mut kinds: std::collections::BTreeMap<String, QueuedKind> = std::collections::BTreeMap::new();
    for Queued { kind, state, count, oldest } in waiting.into_iter().chain(dead) {
        let queued = kinds.entry(kind.clone()).or_insert_with(|| QueuedKind { kind, ..QueuedKind::default() });
        match state.as_str() {
            "running" => queued.running = count,
            "dead" => (queued.dead, queued.died_at) = (count, oldest),
            "due" => (queued.waiting, queued.oldest_due) = (queued.waiting + count, oldest),
            _ => queued.waiting += count,
        }
    }
    Ok(kinds.into_values().collect())
}

async fn measure(db: &Db, now: Timestamp) -> db::Result<Vec<Figure>> {
    let waiting = "SELECT kind, state, CAST(COUNT(*) AS BIGINT) AS count, MIN(ready_at) AS oldest FROM (
             SELECT kind, ready_at,
                 CASE WHEN is_claimed THEN 'running' WHEN ready_at <= $1 THEN 'due' ELSE 'scheduled' END AS state
             FROM job WHERE ready_at IS NOT NULL ORDER BY ready_at, id LIMIT 10000) w
         GROUP BY kind, state ORDER BY kind, state LIMIT 200";
    let dead = "SELECT kind, 'dead' AS state, CAST(COUNT(*) AS BIGINT) AS count, MIN(died_at) AS oldest FROM (
             SELECT kind, died_at FROM job WHERE died_at IS NOT NULL LIMIT 10000) d
         GROUP BY kind ORDER BY kind LIMIT 100";
    let waiting: Vec<Queued> = db.all(waiting, params![now]).await?;
    let dead: Vec<Queued> = db.all(dead, params![]).await?;
    let total = |queued: &[Queued]| queued.iter().map(|queued| queued.count).sum();
    let mut figures = vec![
        Figure::count("jobs_waiting", "Jobs that wait for their turn or run, counted up to 10,000.", total(&waiting)),
        Figure::count("jobs_dead", "Jobs that failed for good, counted up to 10,000.", total(&dead)),
    ];
    for queued in waiting.iter().filter(|queued| queued.state == "due") {
        let age = queued.oldest.map_or(0.0, |oldest| now.since(oldest).as_secs_f64());
        let help = "How long the oldest due job of a kind has been due.";
        figures.push(Figure::new("jobs_oldest_due_seconds", help, age).with("kind", &queued.kind));
    }
    figures.extend(waiting.into_iter().chain(dead).map(|queued| {
        let help = "Jobs in the queue, by kind and state: due, scheduled, running or dead.";
        Figure::count("jobs_queued", help, queued.count).with("kind", queued.kind).with("state", queued.state)
    }));
    Ok(figures)
}

/// The kinds of what is waiting or dead, for a test that says nothing may be left over.
pub async fn undone(db: &Db) -> db::Result<Vec<String>> {
    let kinds: Vec<(String,)> = db.all("SELECT kind FROM job ORDER BY id LIMIT 100", params![]).await?;
    Ok(kinds.into_iter().map(|(kind,)| kind).collect())
}
