//! One webhook's deliveries, while this node holds it: a few at a time, and what has ended is written down while others are
//! under way.
use std::mem;

use db::Tx;
use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{Fuse, FusedFuture as _},
    stream::FuturesUnordered,
};
use kernel::{Janua, fault::Result};
use tokio::time;

use super::{
    attempt::attempt,
    deliveries::{Delivery, DeliveryId, Search, State},
    model::Held,
    queue::{AT_ONCE, LOOK, Queue},
    rules,
};

/// Delivers what is due, then lets go of the webhook.
pub async fn run(janua: &Janua, held: Held) {
    if let Err(fault) = deliver(janua, held).await {
        let cause = fault.cause().map(|(cause, _)| cause.to_owned());
        tracing::warn!(%fault, cause, webhook = %held.id, "webhook attempts could not be made or stored");
    }
    let released: db::Result<()> = janua.carry(held, |tx, held| Box::pin(held.release(tx))).await;
    if let Err(error) = released {
        // The lease runs out by itself.
        tracing::warn!(%error, webhook = %held.id, "cannot release a webhook");
    }
}

async fn deliver(janua: &Janua, held: Held) -> Result<()> {
    let (mut queue, mut under_way) = (Queue::of(janua, held), FuturesUnordered::new());
    // All that have ended are written down at once, and meanwhile others are under way.
    let (mut ended, mut writing) = (vec![], Fuse::terminated());
    let mut goes_on = Ok(true);
    loop {
        if matches!(goes_on, Ok(true)) {
            match queue.begin(AT_ONCE - under_way.len()).await {
                Ok(Some(begun)) => {
                    under_way.extend(begun.into_iter().map(|(target, delivery)| attempt(janua, target, delivery)));
                }
                Ok(None) => goes_on = Ok(false),
                Err(fault) => goes_on = Err(fault),
            }
        }
        if writing.is_terminated() && !ended.is_empty() {
            let search = if matches!(goes_on, Ok(true)) { queue.ask() } else { None };
            writing = write_down(janua, held, mem::take(&mut ended), search).boxed().fuse();
        }
        tokio::select! {
            Some(first) = under_way.next() => {
                let mut next = Some(first);
                while let Some(delivery) = next {
                    let outcome = match delivery.state {
                        State::Delivered => "delivered",
                        State::Pending => "retried",
                        State::Failed | State::Cancelled | State::Dropped => "failed",
                    };
                    janua.metrics.attempted(&super::ATTEMPTS, outcome);
                    queue.ended(&delivery);
                    ended.push(delivery);
                    next = under_way.next().now_or_never().flatten();
                }
            }
            (written, outcome) = &mut writing, if !writing.is_terminated() => {
                queue.written(&written);
                // What is under way is written down whatever becomes of these.
                match outcome {
                    Ok(Noted::GoesOn(None)) => {}
                    Ok(Noted::GoesOn(Some(due))) => queue.answered(due, under_way.is_empty()),
                    Ok(Noted::Over) => goes_on = goes_on.and(Ok(false)),
                    Err(fault) => goes_on = goes_on.and(Err(fault)),
                }
            }
            () = time::sleep(LOOK), if queue.is_empty() && !under_way.is_empty() => queue.look_again(),
            else => return goes_on.map(drop),
        }
    }
}

/// What came of writing down.
enum Noted {
    /// Others may follow: these, if it was asked for them.
    GoesOn(Option<Vec<Delivery>>),
    Over,
}

/// Answers which deliveries they were, too.
async fn write_down(
    janua: &Janua,
    held: Held,
    ended: Vec<Delivery>,
    search: Option<Search>,
) -> (Vec<DeliveryId>, Result<Noted>) {
    let ids = ended.iter().map(|delivery| delivery.id).collect();
    let along = (janua.clone(), held, ended, search);
    let written = janua.carry(along, |tx, (janua, held, ended, search)| {
        Box::pin(async move {
            if !note(tx, janua, *held, ended).await? {
                return Ok(Noted::Over);
            }
            let Some(search) = search else { return Ok(Noted::GoesOn(None)) };
            Ok(Noted::GoesOn(Some(Delivery::due_then(tx, search).await?)))
        })
    });
    (ids, written.await)
}

/// Nothing counts that was done for a webhook which is gone, or which another node has by now.
pub(super) async fn note(tx: &mut Tx, janua: &Janua, held: Held, ended: &[Delivery]) -> Result<bool> {
    if !held.keep(tx).await? {
        return Ok(false);
    }
    // A success ends a row of failures, and so do many in a row.
    let (mut goes_on, mut before) = (true, None);
    for delivery in ended {
        match delivery.state {
            State::Failed => {
                let counts = delivery.note_and_see(tx).await?;
                goes_on &= counts && rules::count_failure(tx, janua, held.id).await?;
            }
            State::Delivered if before != Some(State::Delivered) => {
                delivery.note(tx).await?;
                held.succeeded(tx).await?;
            }
            _ => delivery.note(tx).await?,
        }
        before = Some(delivery.state);
    }
    Ok(goes_on)
}
