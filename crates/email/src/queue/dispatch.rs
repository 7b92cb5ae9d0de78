//! A node's part in delivering: a lane for each recipient domain that has mail waiting, as many as the settings allow.
use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt as _, future::join_all, stream};
use kernel::{
    Janua,
    fault::{Fault, Result},
    transact,
};
use tenancy::messages::mail;
use tokio::{sync::Semaphore, task::JoinSet, time};

use super::{
    attempt::{Courier, Tried, attempt},
    lanes::{Due, Held, TOPIC},
    outcome,
};
use crate::Settings;

type Ended = (Due, Tried);

/// How long a node waits at most before it looks again: what other nodes wrote is not announced here.
const LOOK: Duration = Duration::from_secs(1);
/// What is looked up at once, so that memory does not grow with what waits.
const BATCH: u32 = 32;
/// After this long a lane begins nothing more, and others have their turn.
const TURN: Duration = Duration::from_secs(20);
/// A conversation may take minutes. So often the lease of its lane is renewed, and what ended meanwhile is written down.
const PULSE: Duration = Duration::from_secs(30);
/// How long the database may be away before outcomes are given up. Another node takes the lane over after three minutes.
const AWAY: Duration = Duration::from_mins(2);
/// A lane stands back for the platform's own mail for this long at most.
const MANNERS: Duration = Duration::from_secs(10);
/// After so many refusals in a row a lane rests.
const REFUSALS: u32 = 3;
const FIRST_REST: Duration = Duration::from_mins(1);
const LONGEST_REST: Duration = Duration::from_mins(30);

/// Goes on for as long as the node runs.
pub async fn run(janua: Janua) {
    let lanes = Arc::new(Semaphore::new(janua.config.of::<Settings>().email_lanes.get()));
    let (mut running, mut notices) = (JoinSet::new(), janua.db.listen(&[TOPIC]));
    loop {
        notices.skip();
        let idle = round(&janua, &lanes, &mut running).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot look for mail to deliver; trying again");
            LOOK
        });
        tokio::select! {
            () = time::sleep(idle) => {}
            heard = notices.next() => if heard.is_none() { return },
            Some(_) = running.join_next(), if !running.is_empty() => {}
        }
    }
}

async fn round(janua: &Janua, lanes: &Arc<Semaphore>, running: &mut JoinSet<()>) -> db::Result<Duration> {
    let free = u32::try_from(lanes.available_permits()).unwrap_or(u32::MAX);
    if free == 0 {
        return Ok(LOOK);
    }
    if let Some(wait) = janua.own::<Courier>().is_away(janua) {
        return Ok(wait.clamp(Duration::from_millis(10), LOOK));
    }
    let now = janua.clock.now();
    let Some(at) = Held::next(&janua.db, now).await? else { return Ok(LOOK) };
    if at > now {
        return Ok(at.since(now).clamp(Duration::from_millis(1), LOOK));
    }
    for held in Held::claim(&janua.db, now, free).await? {
        let Ok(place) = lanes.clone().try_acquire_owned() else { break };
        let janua = janua.clone();
        running.spawn(async move {
            lane(&janua, held).await;
            drop(place);
        });
    }
    Ok(Duration::from_millis(10))
}

/// Delivers everything that is due now; answers how many lanes had something. For tests.
pub async fn deliver_due(janua: &Janua) -> db::Result<usize> {
    let mut served = 0;
    loop {
        let held = Held::claim(&janua.db, janua.clock.now(), 64).await?;
        if held.is_empty() {
            return Ok(served);
        }
        served += held.len();
        join_all(held.into_iter().map(|held| lane(janua, held))).await;
    }
}

async fn lane(janua: &Janua, held: Held) {
    let (mut failures, mut rest) = (held.failures, None);
    if let Err(fault) = deliver(janua, &held, &mut failures, &mut rest).await {
        let cause = fault.cause().map(|(cause, _)| cause.to_owned());
        tracing::warn!(%fault, cause, lane = held.domain, "mail could not be delivered or its outcome stored");
        rest = Some(Duration::from_secs(1));
    }
    let until = rest.map(|rest| janua.clock.now().plus(rest));
    let released = transact!(janua, async |tx| Ok(held.release(tx, failures, until).await?));
    if let Err(fault) = released {
        // The lease runs out by itself.
        tracing::warn!(%fault, lane = held.domain, "cannot release a lane");
    }
}

/// Delivers what is due, a batch at a time; how attempts ended is written once for each batch, or each pulse.
async fn deliver(janua: &Janua, held: &Held, failures: &mut u32, rest: &mut Option<Duration>) -> Result<()> {
    let began = time::Instant::now();
    loop {
        stand_back(janua).await?;
        let due = Due::of_lane(&janua.db, &held.domain, janua.clock.now(), BATCH).await?;
        if due.is_empty() || began.elapsed() > TURN {
            return Ok(());
        }
        let attempts = stream::iter(due).map(|due| async move {
            // What is not begun in time is due again, here or on another node.
            let is_late = began.elapsed() > TURN;
            let tried = if is_late { Tried::Postponed(Duration::ZERO) } else { attempt(janua, &due).await };
            (due, tried)
        });
        let mut attempts = pin!(attempts.buffer_unordered(Courier::width(janua)));
        let (mut tried, mut goes_on, mut is_over) = (vec![], true, false);
        while !is_over {
            is_over = gather(attempts.as_mut(), &mut tried).await;
            // A lane that was lost is another node's; what is under way is not cut off.
            if goes_on {
                match write_down(janua, held, &tried).await {
                    Ok(is_ours) => goes_on = is_ours,
                    Err(fault) if is_over => goes_on = write_later(janua, held, &tried, fault).await?,
                    // What ended waits for the next pulse.
                    Err(_) => continue,
                }
            }
            count(&tried, failures, rest);
            tried.clear();
        }
        if *failures >= REFUSALS && rest.is_none() {
            let doubled = FIRST_REST.saturating_mul(1 << (*failures - REFUSALS).min(8));
            *rest = Some(doubled.min(LONGEST_REST));
        }
        if !goes_on || rest.is_some() {
            return Ok(());
        }
    }
}

/// What ends until the next pulse; answers whether that was all.
async fn gather(mut attempts: impl Stream<Item = Ended> + Unpin, tried: &mut Vec<Ended>) -> bool {
    let mut pulse = pin!(time::sleep(PULSE));
    loop {
        tokio::select! {
            next = attempts.next() => match next {
                Some(one) => tried.push(one),
                None => return true,
            },
            () = &mut pulse => return false,
        }
    }
}

/// Renews the lease, and answers `false` when the lane is not ours any more.
async fn write_down(janua: &Janua, held: &Held, tried: &[Ended]) -> Result<bool> {
    transact!(janua, async |tx| {
        if !held.renew(tx, janua.clock.now()).await? {
            return Ok(false);
        }
        for (due, tried) in tried {
            outcome::note(tx, janua, due, tried).await?;
        }
        Ok(true)
    })
}

/// Goes on trying to write down what ended, for as long as the lane is surely ours: a mail whose outcome is forgotten goes out
/// again.
async fn write_later(janua: &Janua, held: &Held, tried: &[Ended], mut fault: Fault) -> Result<bool> {
    let until = time::Instant::now() + AWAY;
    while time::Instant::now() < until {
        time::sleep(LOOK).await;
        match write_down(janua, held, tried).await {
            Err(again) => fault = again,
            outcome => return outcome,
        }
    }
    Err(fault)
}

fn count(tried: &[Ended], failures: &mut u32, rest: &mut Option<Duration>) {
    for (_, tried) in tried {
        match tried {
            Tried::Postponed(wait) => *rest = Some((*rest).unwrap_or_default().max(*wait)),
            Tried::Done(Ok(_)) | Tried::Delivered(_) => *failures = 0,
            Tried::Done(Err(_)) => *failures = failures.saturating_add(1),
            _ => {}
        }
    }
}

/// Waits while mail of the platform itself is due: sign-in links go first.
async fn stand_back(janua: &Janua) -> Result<()> {
    let until = time::Instant::now() + MANNERS;
    while mail::is_due(&janua.db, janua.clock.now()).await? && time::Instant::now() < until {
        time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
