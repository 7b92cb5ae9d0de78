//! A node's worker: claims as many jobs as it has hands, and no more, so that memory is bounded with any number of
//! waiting jobs.
use std::{sync::Arc, time::Duration};

use tokio::{sync::Semaphore, task::JoinSet, time};

use super::{Jobs, Kind, Later, TOPIC, model, model::Claimed, recurring};
use crate::{
    Janua,
    clock::Timestamp,
    telemetry::{self, ABOUT, About, SpanContext, SpanOf, SpanPlace},
};

/// A node that dies loses its claims after this long; one that lives renews them in time.
const LEASE: Duration = Duration::from_mins(1);
const RENEWAL: Duration = Duration::from_secs(20);
/// How long a worker waits at most before it looks again: other nodes' jobs are not announced here.
const LOOK: Duration = Duration::from_secs(1);
/// A kind this binary does not know waits for a node that does.
const UNKNOWN_KIND_WAITS: Duration = Duration::from_mins(1);

pub struct Worker {
    janua: Janua,
    jobs: Arc<Jobs>,
}

impl Worker {
    pub fn new(janua: Janua, jobs: Arc<Jobs>) -> Self {
        Self { janua, jobs }
    }

    /// Works until told to stop, then lets what is under way finish.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let hands = Arc::new(Semaphore::new(self.janua.config.workers));
        let mut running = JoinSet::new();
        let mut notices = self.janua.db.listen(&[TOPIC]);
        let mut stop = std::pin::pin!(stop);
        loop {
            let idle = match self.round(&hands, &mut running).await {
                Ok(idle) => idle,
                Err(error) => {
                    tracing::warn!(%error, "cannot look for jobs; trying again");
                    LOOK
                }
            };
            tokio::select! {
                () = &mut stop => break,
                () = time::sleep(idle) => {}
                Some(_) = notices.next() => {}
                Some(_) = running.join_next(), if !running.is_empty() => {}
            }
        }
        while running.join_next().await.is_some() {}
    }

    /// Takes what there are hands for; answers how long nothing more is to be expected.
    async fn round(&self, hands: &Arc<Semaphore>, running: &mut JoinSet<()>) -> db::Result<Duration> {
        let next_recurring = recurring::tick(&self.janua, &self.jobs).await?;
        let free = u32::try_from(hands.available_permits()).unwrap_or(u32::MAX);
        if free == 0 {
            return Ok(LOOK);
        }
        let now = self.janua.clock.now();
        // Looking is cheap and disturbs no writer; claiming writes.
        let next = model::next_ready(&self.janua.db).await?;
        if next.is_none_or(|at| at > now) {
            let soonest = [next, next_recurring].into_iter().flatten().min();
            return Ok(soonest.map_or(LOOK, |at| at.since(now).clamp(Duration::from_millis(1), LOOK)));
        }
        let claimed = model::claim(&self.janua.db, now, now.plus(LEASE), free).await?;
        for job in claimed {
            let Ok(hand) = hands.clone().try_acquire_owned() else { break };
            let (janua, jobs) = (self.janua.clone(), self.jobs.clone());
            running.spawn(async move {
                work(&janua, &jobs, job).await;
                drop(hand);
            });
        }
        Ok(Duration::ZERO)
    }
}

/// Runs everything that is due now, in order, and what that makes due; answers how many jobs ran. For tests.
pub async fn run_due(janua: &Janua, jobs: &Jobs) -> db::Result<usize> {
    let mut ran = 0;
    recurring::tick(janua, jobs).await?;
    loop {
        let now = janua.clock.now();
        let claimed = model::claim(&janua.db, now, now.plus(LEASE), 1).await?;
        let Some(job) = claimed.into_iter().next() else { return Ok(ran) };
        work(janua, jobs, job).await;
        ran += 1;
    }
}

/// One try at one job, from claim to end.
async fn work(janua: &Janua, jobs: &Jobs, job: Claimed) {
    let parent = job.traceparent.as_deref().and_then(SpanContext::parse);
    let place = SpanPlace::below(parent, job.id.uuid()).tried(job.attempts);
    let about = About::job(&job.id.to_string(), job.request_id.as_deref(), place);
    ABOUT
        .scope(about, async {
            if let Err(error) = attempt(janua, jobs, &job).await {
                // The lease runs out by itself, and the job is tried again.
                tracing::warn!(%error, kind = job.kind, "cannot store the outcome of a job");
            }
        })
        .await;
}

async fn attempt(janua: &Janua, jobs: &Jobs, job: &Claimed) -> db::Result<()> {
    let Some(kind) = jobs.kind(&job.kind) else {
        let at = janua.clock.now().plus(UNKNOWN_KIND_WAITS);
        model::retry(&janua.db, job, at, job.attempts - 1, "no node that knows this kind has come by").await?;
        return Ok(());
    };
    let (started, started_at) = (time::Instant::now(), janua.clock.now());
    let note = |outcome| {
        note_span(janua, SpanOf::Job { kind: kind.name, outcome, tries: job.attempts }, started_at, started);
    };
    let Some(outcome) = run_under_lease(janua, kind, job).await else {
        tracing::warn!(kind = kind.name, "lost the lease of a job; another node has it now");
        janua.metrics.job_ended(kind.name, "lost", started.elapsed(), janua.clock.now(), Some("lease_lost"));
        note("lost");
        return Ok(());
    };
    let (now, took) = (janua.clock.now(), started.elapsed());
    let error = outcome.as_ref().err().map(error_word);
    let (ours, outcome) = match outcome {
        Ok(()) => (model::done(&janua.db, job, now).await?, "done"),
        Err(Later::Retry { cause, after }) if job.attempts < kind.tries => {
            let wait = after.unwrap_or_else(|| (kind.backoff)(job.attempts));
            tracing::info!(kind = kind.name, attempts = job.attempts, cause, "a job failed and will be tried again");
            (model::retry(&janua.db, job, now.plus(wait), job.attempts, &cause).await?, "retried")
        }
        Err(Later::Retry { cause, .. } | Later::GiveUp { cause }) => {
            tracing::error!(kind = kind.name, attempts = job.attempts, cause, "a job failed for good");
            (model::give_up(&janua.db, job, now, &cause).await?, "dead")
        }
    };
    if !ours {
        tracing::warn!(kind = kind.name, "a job ended after its lease was lost; another node has it now");
    }
    let outcome = if ours { outcome } else { "lost" };
    janua.metrics.job_ended(kind.name, outcome, took, now, error);
    note(outcome);
    Ok(())
}

fn note_span(janua: &Janua, what: SpanOf, started_at: Timestamp, started: time::Instant) {
    if let Some(about) = telemetry::about() {
        janua.metrics.spans.record(&about, what, started_at, started.elapsed());
    }
}

/// A word for why a job failed: what the cause says is for the log.
fn error_word(later: &Later) -> &'static str {
    match later {
        Later::GiveUp { .. } => "given_up",
        Later::Retry { cause, .. } if cause.starts_with("took longer") => "timed_out",
        Later::Retry { cause, .. } if cause.starts_with("panicked") => "panicked",
        Later::Retry { .. } => "failed",
    }
}

/// `None` when the lease was lost on the way.
async fn run_under_lease(janua: &Janua, kind: &Kind, job: &Claimed) -> Option<Result<(), Later>> {
    // On a task of its own: a panic ends the job and not the worker.
    let work = time::timeout(kind.limit, (kind.run)(janua.clone(), &job.payload));
    // What it enqueues, records and sends belongs to the same request.
    let mut task = match telemetry::about() {
        Some(about) => tokio::spawn(ABOUT.scope(about, work)),
        None => tokio::spawn(work),
    };
    loop {
        tokio::select! {
            ended = &mut task => return Some(match ended {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(_)) => Err(Later::retry(format!("took longer than {:?}", kind.limit))),
                Err(panic) => Err(Later::retry(format!("panicked: {panic}"))),
            }),
            () = time::sleep(RENEWAL) => {
                let lease_end = janua.clock.now().plus(LEASE);
                // Out of reach is not lost: the next renewal may get through before the lease ends.
                if let Ok(false) = model::renew(&janua.db, job, lease_end).await {
                    task.abort();
                    return None;
                }
            }
        }
    }
}
