//! Giving what happened to everybody who listens, a bounded bit at a time.
use std::collections::{HashMap, HashSet, hash_map::Entry};

use db::Tx;
use kernel::{Janua, clock::Timestamp};
use tenancy::{
    apps::ApplicationId,
    events::outbox::{self, AppEvent},
};

use super::{
    deliveries::Delivery,
    model::{Listener, WebhookId},
    names::{ALL, AUDIT, heard_as},
};

/// How many events are taken at once, and how many webhooks are given one at once.
const EVENTS: u32 = 64;
const LISTENERS: u32 = 256;
/// About how many deliveries a round makes at most: on SQLite every other writer waits for it.
const DELIVERIES: usize = 1024;

/// One event's next bit of work: who is to be given it, by the value they listen to.
struct Share<'e> {
    event: &'e AppEvent,
    value: &'static str,
    listeners: Vec<WebhookId>,
    then: Then,
}

/// How far a share gets its event.
enum Then {
    /// Another share of this round goes on.
    Next,
    /// There is more to do: the place among its values, and the last webhook.
    Reached(String),
    /// Everybody was given it.
    Done,
}

/// Hands out a bit of what waits, if anything does; answers whether there is more. Taking it and giving it away are one
/// transaction, so that it happens once, whichever node dies.
pub async fn round(janua: &Janua) -> db::Result<bool> {
    if outbox::is_waiting(&janua.db).await? { round_of_news(janua).await } else { Ok(false) }
}

/// The same for who was told that something waits and need not look: looking disturbs no writer, but takes a while.
pub async fn round_of_news(janua: &Janua) -> db::Result<bool> {
    janua.carry(janua.clone(), |tx, janua| Box::pin(hand_out(tx, janua))).await
}

pub(super) async fn hand_out(tx: &mut Tx, janua: &Janua) -> db::Result<bool> {
    let events = outbox::hold_waiting(tx, EVENTS).await?;
    let (mut shares, mut known, mut deliveries): (Vec<Share<'_>>, _, _) = (vec![], Subscribers::default(), 0);
    for event in &events {
        let of_event = shares_of(tx, janua, event, &mut known).await?;
        deliveries += of_event.iter().map(|share| share.listeners.len()).sum::<usize>();
        shares.extend(of_event);
        if deliveries >= DELIVERIES {
            break;
        }
    }
    give(tx, janua, &shares).await?;
    let is_begun = shares.iter().any(|share| matches!(share.then, Then::Reached(_)));
    Ok(is_begun || deliveries >= DELIVERIES || events.len() == EVENTS as usize)
}

async fn give(tx: &mut Tx, janua: &Janua, shares: &[Share<'_>]) -> db::Result<()> {
    let (now, mut woken) = (janua.clock.now(), HashSet::new());
    for Share { event, value, listeners, then } in shares {
        for webhook in listeners {
            for name in heard_as(value, event.webhook.as_deref(), &event.kind) {
                Delivery::insert(tx, janua, *webhook, event.id, &name, now).await?;
            }
        }
        if let (Some(first), Some(last)) = (listeners.first(), listeners.last())
            && woken.insert((event.app_id, value, first, last))
        {
            let (before, last) = (just_before(&first.to_string()), last.to_string());
            Listener::wake(tx, event.app_id, value, (&before, &last), now).await?;
        }
        match then {
            Then::Next => {}
            Then::Reached(place) => outbox::reached(tx, event.id, place).await?,
            Then::Done => outbox::handed_out(tx, event.id).await?,
        }
    }
    Ok(())
}

/// Ids are compared as text, so that the one before an id is all of it but the end.
fn just_before(id: &str) -> String {
    id[..id.len() - 1].to_owned()
}

/// The values one event answers to, in a fixed order; `reached` is the place in it and the last webhook.
fn values(janua: &Janua, event: &AppEvent) -> Vec<&'static str> {
    let named = super::names::named(janua).find(|name| event.webhook.as_deref() == Some(name));
    named.into_iter().chain([AUDIT, ALL]).collect()
}

/// Who listens to what in an app, looked up once a round: where a few listen, they do to every event.
#[derive(Default)]
struct Subscribers(HashMap<(ApplicationId, &'static str), Vec<Listener>>);

impl Subscribers {
    /// The next who listen and were there when it happened, at most `most`.
    async fn page(
        &mut self,
        tx: &mut Tx,
        event: &AppEvent,
        value: &'static str,
        after: &str,
        most: u32,
    ) -> db::Result<Vec<WebhookId>> {
        let first = match self.0.entry((event.app_id, value)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                place.insert(Listener::page(tx, event.app_id, value, "", Timestamp(i64::MAX), LISTENERS).await?)
            }
        };
        if first.len() < LISTENERS as usize && after.is_empty() {
            let there = first.iter().filter(|listener| listener.created_at <= event.at);
            return Ok(there.map(|listener| listener.webhook_id).take(most as usize).collect());
        }
        let page = Listener::page(tx, event.app_id, value, after, event.at, most).await?;
        Ok(page.into_iter().map(|listener| listener.webhook_id).collect())
    }
}

async fn shares_of<'e>(
    tx: &mut Tx,
    janua: &Janua,
    event: &'e AppEvent,
    known: &mut Subscribers,
) -> db::Result<Vec<Share<'e>>> {
    let values = values(janua, event);
    let (mut place, mut after) = match event.reached.split_once(' ') {
        Some((place, after)) => (place.parse().unwrap_or(0), after.to_owned()),
        None => (0, String::new()),
    };
    let (mut shares, mut room) = (vec![], LISTENERS);
    while let Some(&value) = values.get(place) {
        let listeners = known.page(tx, event, value, &after, room).await?;
        let count = u32::try_from(listeners.len()).unwrap_or(u32::MAX);
        let then = match listeners.last() {
            Some(last) if count == room => Then::Reached(format!("{place} {last}")),
            _ if place + 1 == values.len() => Then::Done,
            _ => Then::Next,
        };
        let is_full = matches!(then, Then::Reached(_));
        room -= count;
        shares.push(Share { event, value, listeners, then });
        if is_full {
            break;
        }
        (place, after) = (place + 1, String::new());
    }
    Ok(shares)
}
