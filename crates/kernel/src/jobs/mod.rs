//! Background jobs: enqueued in the transaction that causes them, claimed by one node under a lease, retried with
//! backoff, and kept as dead jobs after the last try.
//!
//! A job may run twice, because its node may die between the work and the note that it is done. So every job must be
//! safe to repeat. Its end counts only with the fencing number of its claim: a node that lost its lease cannot end
//! it.
mod model;
mod recurring;
mod tidy;
mod worker;

use std::{fmt, pin::Pin, time::Duration};

use db::{Reach, Tx};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Janua, clock::Timestamp, fault::Fault};
pub use model::{
    CHORES, DeadJob, JobId, MEASURE, QueuedKind, by_kind, dead, figures, forget, forget_dead, forget_kind,
    of_request, release_all, revive, undone,
};
pub use recurring::next_turns;
pub use tidy::{Chore, Tidy};
pub use worker::{Worker, run_due};

/// A kind of job. The value is stored as JSON: ids and plain facts, no secrets.
pub trait Job: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The name that is stored with each job. It must never change.
    const KIND: &'static str;
    /// The number of tries before the job is dead.
    const TRIES: u32 = 8;
    /// A run that takes longer is stopped and counts as failed.
    const LIMIT: Duration = Duration::from_mins(5);

    fn run(self, janua: Janua) -> impl Future<Output = Result<(), Later>> + Send;

    /// How long to wait after the given failed try: doubling from one second to one hour.
    fn backoff(tries: u32) -> Duration {
        Duration::from_secs(1 << tries.saturating_sub(1).min(12)).min(Duration::from_hours(1))
    }
}

/// Why a job failed, and whether to try again.
#[derive(Debug)]
pub enum Later {
    /// Try again, after the job's own backoff or after the delay that the other side asked for.
    Retry {
        cause: String,
        after: Option<Duration>,
    },
    GiveUp {
        cause: String,
    },
}

impl Later {
    pub fn retry(cause: impl fmt::Display) -> Self {
        Self::Retry { cause: cause.to_string(), after: None }
    }
    pub fn retry_after(cause: impl fmt::Display, after: Duration) -> Self {
        Self::Retry { cause: cause.to_string(), after: Some(after) }
    }
    pub fn give_up(cause: impl fmt::Display) -> Self {
        Self::GiveUp { cause: cause.to_string() }
    }
}
impl From<db::Error> for Later {
    fn from(error: db::Error) -> Self {
        Self::retry(error)
    }
}
impl From<Fault> for Later {
    fn from(fault: Fault) -> Self {
        Self::retry(fault.cause().map_or_else(|| fault.to_string(), |(cause, at)| format!("{cause} ({at})")))
    }
}

/// The topic of notices about new jobs.
pub(crate) const TOPIC: &str = "jobs";

/// Enqueues a job in the transaction. It exists if the transaction is committed.
pub async fn enqueue<J: Job>(tx: &mut Tx, janua: &Janua, now: Timestamp, job: &J) -> db::Result<()> {
    enqueue_at(tx, janua, now, now, None, job).await
}

/// Enqueues a job for a later moment. Of two jobs with the same `unique` key only the first is kept.
pub async fn enqueue_at<J: Job>(
    tx: &mut Tx,
    janua: &Janua,
    now: Timestamp,
    at: Timestamp,
    unique: Option<&str>,
    job: &J,
) -> db::Result<()> {
    let payload = serde_json::to_string(job).map_err(|e| db::Error::Driver(format!("{}: {e}", J::KIND)))?;
    model::insert(tx, JobId::new(&janua.entropy, now), J::KIND, &payload, unique, now, at).await?;
    tx.notify(Reach::ThisNode, TOPIC, "").await
}

/// Enqueues a job under an id that the caller chose. Jobs that are ready at the same moment start in the order of
/// their ids.
pub async fn enqueue_as<J: Job>(tx: &mut Tx, now: Timestamp, id: JobId, job: &J) -> db::Result<()> {
    let payload = serde_json::to_string(job).map_err(|e| db::Error::Driver(format!("{}: {e}", J::KIND)))?;
    model::insert(tx, id, J::KIND, &payload, None, now, now).await?;
    tx.notify(Reach::ThisNode, TOPIC, "").await
}

/// A job that is running.
pub type Running = Pin<Box<dyn Future<Output = Result<(), Later>> + Send>>;

/// A kind of job, as a worker runs it.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    tries: u32,
    limit: Duration,
    backoff: fn(u32) -> Duration,
    run: fn(Janua, &str) -> Running,
}

/// A kind of job that this program knows, and how often it comes again, if it does. Every feature declares its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownJob {
    pub kind: &'static str,
    pub every: Option<Duration>,
}

/// The kinds of jobs of a feature or of a node.
#[derive(Default)]
pub struct Jobs {
    kinds: Vec<Kind>,
    recurring: Vec<recurring::Recurring>,
}

impl Jobs {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a kind of job.
    #[must_use]
    pub fn on<J: Job>(mut self) -> Self {
        let run = |janua: Janua, payload: &str| -> Running {
            match serde_json::from_str::<J>(payload) {
                Ok(job) => Box::pin(job.run(janua)),
                Err(e) => Box::pin(async move { Err(Later::give_up(format!("cannot read the payload: {e}"))) }),
            }
        };
        self.kinds.push(Kind { name: J::KIND, tries: J::TRIES, limit: J::LIMIT, backoff: J::backoff, run });
        self
    }

    /// Adds a job that runs at this interval, once for all nodes together.
    #[must_use]
    pub fn every<J: Job + Default>(mut self, interval: Duration) -> Self {
        let payload = serde_json::to_string(&J::default()).unwrap_or_default();
        self.recurring.push(recurring::Recurring { kind: J::KIND, interval, payload });
        self.on::<J>()
    }

    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.kinds.extend(other.kinds);
        self.recurring.extend(other.recurring);
        self
    }

    /// The names of all kinds, for lists.
    pub(crate) fn known(&self) -> Vec<KnownJob> {
        let every = |name| self.recurring.iter().find(|job| job.kind == name).map(|job| job.interval);
        self.kinds.iter().map(|kind| KnownJob { kind: kind.name, every: every(kind.name) }).collect()
    }

    fn kind(&self, name: &str) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.name == name)
    }
}
