//! A node's part in delivering: hands out what happened and keeps a lane for each webhook that has something to deliver,
//! as many as the settings allow.
use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use kernel::Janua;
use tenancy::events::outbox;
use tokio::{sync::Semaphore, task::JoinSet, time};

use super::{fan_out, lane, listen::Streams, model::Held};

/// How long a node waits at most before it looks again: what other nodes wrote is not announced here.
const LOOK: Duration = Duration::from_secs(1);
const AT_ONCE: u32 = 64;

/// Goes on for as long as the node runs.
pub async fn run(janua: Janua) {
    let lanes = Arc::new(Semaphore::new(janua.config.of::<super::Settings>().webhook_lanes.get()));
    let mut running = JoinSet::new();
    let mut notices = janua.db.listen(&[outbox::TOPIC]);
    let mut is_told = false;
    loop {
        notices.skip();
        let done = round(&janua, is_told, &lanes, &mut running).await;
        janua.own::<Arc<Streams>>().0.notify_waiters();
        let idle = done.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot look for webhooks to deliver; trying again");
            LOOK
        });
        is_told = tokio::select! {
            () = time::sleep(idle) => false,
            heard = notices.next() => match heard {
                Some(_) => true,
                None => return,
            },
            Some(_) = running.join_next(), if !running.is_empty() => false,
        };
    }
}

/// Does what can be done now; answers how long nothing more is to be expected.
async fn round(
    janua: &Janua,
    is_told: bool,
    lanes: &Arc<Semaphore>,
    running: &mut JoinSet<()>,
) -> db::Result<Duration> {
    let more = if is_told { fan_out::round_of_news(janua).await? } else { fan_out::round(janua).await? };
    let free = u32::try_from(lanes.available_permits()).unwrap_or(u32::MAX).min(AT_ONCE);
    if free == 0 {
        return Ok(LOOK);
    }
    let now = janua.clock.now();
    let next = Held::next(&janua.db, now).await?;
    let Some(due) = next.filter(|at| *at <= now) else {
        let wait = next.map_or(LOOK, |at| at.since(now).clamp(Duration::from_millis(1), LOOK));
        return Ok(if more { Duration::ZERO } else { wait });
    };
    tracing::trace!(%due, "webhooks have something to deliver");
    for held in Held::claim(&janua.db, now, free).await? {
        let Ok(place) = lanes.clone().try_acquire_owned() else { break };
        let janua = janua.clone();
        running.spawn(async move {
            lane::run(&janua, held).await;
            drop(place);
        });
    }
    Ok(Duration::ZERO)
}

/// Delivers everything that is due now, and what that makes due; answers how many webhooks had something. For tests.
pub async fn deliver_due(janua: &Janua) -> db::Result<usize> {
    let mut served = 0;
    loop {
        let more = fan_out::round(janua).await?;
        let held = Held::claim(&janua.db, janua.clock.now(), AT_ONCE).await?;
        if held.is_empty() && !more {
            return Ok(served);
        }
        served += held.len();
        join_all(held.into_iter().map(|held| lane::run(janua, held))).await;
    }
}
