//! Jobs: what events lead to, what a dead process left, what was lost, and what changes with time alone.
use std::time::Duration;

use kernel::{
    Janua,
    clock::Timestamp,
    installation,
    jobs::{Job, Jobs, Later},
    transact,
};
use serde::{Deserialize, Serialize};
use tenancy::{
    events::{self, By},
    quotas,
};

use super::{
    apply::{self, Applied, settle},
    checkout,
    events::Reconciled,
    handle,
    model::{Checkout, Subject, SubjectId},
    webhook::{InboxId, Stored, StoredEvent},
};
use crate::{
    connect, invoices,
    payments::{
        Driver, NoAnswer, Payments, Source,
        calls::{Change, NewRefund},
        read::Event,
    },
};

pub fn jobs() -> Jobs {
    Jobs::new()
        .on::<HandleEvent>()
        .on::<CancelSecond>()
        .on::<CancelRemote>()
        .on::<EndTrial>()
        .every::<FinishBegun>(Duration::from_mins(1))
        .every::<FollowSeats>(Duration::from_mins(5))
        .every::<PullEvents>(Duration::from_hours(1))
        .every::<EndGrace>(Duration::from_hours(1))
        .every::<ReadAgain>(Duration::from_hours(24))
}

/// Handles one event of the inbox.
#[derive(Serialize, Deserialize)]
pub struct HandleEvent {
    pub id: InboxId,
}

impl Job for HandleEvent {
    const KIND: &'static str = "billing.event";
    const TRIES: u32 = 32;

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(driver) = Payments::of(&janua) else { return Ok(()) };
        let Some(event) = StoredEvent::find(&janua.db, self.id).await? else { return Ok(()) };
        if event.livemode != driver.livemode {
            return Ok(());
        }
        let outcome = handle::handle(&janua, driver, &event).await?;
        Ok(StoredEvent::done(&janua.db, self.id, &outcome, janua.clock.now()).await?)
    }
}

/// A second subscription of a subject that has one: it is canceled, and what was paid for it goes back.
#[derive(Serialize, Deserialize)]
pub struct CancelSecond {
    pub subscription: String,
}

impl Job for CancelSecond {
    const KIND: &'static str = "billing.cancel_second";
    const TRIES: u32 = 32;

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(driver) = Payments::of(&janua) else { return Ok(()) };
        if Subject::of_subscription(&janua.db, &self.subscription).await?.is_some() {
            return Ok(());
        }
        let canceled = match driver.cancel_now(&janua, &self.subscription).await {
            // One that is canceled cannot be canceled again, but read: the money may not have gone back yet.
            Err(NoAnswer::Missing) => match driver.subscription(&janua, &self.subscription).await {
                Err(NoAnswer::Missing) => return Ok(()),
                other => other?,
            },
            other => other?,
        };
        let Some(invoice) = canceled.latest_invoice else { return Ok(()) };
        let invoice = driver.invoice(&janua, &invoice).await?;
        if let Some(intent) = invoice.payment_intent.filter(|_| invoice.paid > 0) {
            let refund = NewRefund {
                account: None,
                payment_intent: &intent,
                amount: invoice.paid,
                refunds_fee: false,
                is_destination: false,
            };
            match driver.refund(&janua, &format!("janua-second-{}", self.subscription), &refund).await {
                Ok(_) | Err(NoAnswer::Refused { .. }) => {}
                Err(why) => return Err(why.into()),
            }
        }
        Ok(())
    }
}

/// The organization or app of a subscription was deleted.
#[derive(Serialize, Deserialize)]
pub struct CancelRemote {
    pub subscription: String,
    pub subject: SubjectId,
}

impl Job for CancelRemote {
    const KIND: &'static str = "billing.cancel";
    const TRIES: u32 = 32;

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(driver) = Payments::of(&janua) else { return Ok(()) };
        match driver.cancel_now(&janua, &self.subscription).await {
            Ok(_) | Err(NoAnswer::Missing) => {}
            Err(why) => return Err(why.into()),
        }
        apply::sync(&janua, driver, self.subject).await?;
        Ok(())
    }
}

/// The card had a trial before: this one ends.
#[derive(Serialize, Deserialize)]
pub struct EndTrial {
    pub subject: SubjectId,
}

impl Job for EndTrial {
    const KIND: &'static str = "billing.end_trial";
    const TRIES: u32 = 32;

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(driver) = Payments::of(&janua) else { return Ok(()) };
        let Some(subject) = Subject::find(&janua.db, self.subject).await? else { return Ok(()) };
        if let Some(id) = subject.subscription.filter(|_| subject.status == "trialing") {
            match driver.end_trial(&janua, &format!("janua-{}-end-trial", self.subject), &id).await {
                Ok(_) | Err(NoAnswer::Missing | NoAnswer::Refused { .. }) => {}
                Err(why) => return Err(why.into()),
            }
            apply::sync(&janua, driver, self.subject).await?;
        }
        Ok(())
    }
}

/// Finishes what a process began and did not end: checkouts, lines of invoices, refunds, accounts.
#[derive(Default, Serialize, Deserialize)]
pub struct FinishBegun {}

impl Job for FinishBegun {
    const KIND: &'static str = "billing.finish";
    const TRIES: u32 = 1;

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(driver) = Payments::of(&janua) else { return Ok(()) };
        let before = janua.clock.now().minus(checkout::LEFT_ALONE);
        for begun in Checkout::open(&janua.db, "creating", before, 100).await? {
            let ended = if begun.kind == "new" {
                checkout::open(&janua, driver, begun).await
            } else {
                checkout::finish_change(&janua, driver, begun).await
            };
            if let Err(fault) = ended {
                tracing::warn!(%fault, "a checkout that was begun cannot be finished yet");
            }
        }
        // What is stuck in one place holds up no other.
        let lines = invoices::add_waiting(&janua, driver, before).await;
        connect::finish_begun(&janua, driver, before).await?;
        lines
    }
}

/// Seats follow the members, where a price is for each of them.
#[derive(Default, Serialize, Deserialize)]
pub struct FollowSeats {}

impl Job for FollowSeats {
    const KIND: &'static str = "billing.seats";
    const TRIES: u32 = 1;

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(driver) = Payments::of(&janua) else { return Ok(()) };
        let mut after = String::new();
        loop {
            let subjects = Subject::living(&janua.db, &after, 500).await?;
            let Some(last) = subjects.last() else { return Ok(()) };
            after = last.id.to_string();
            for subject in subjects.iter().filter(|subject| subject.per_member && subject.is_subscribed()) {
                if let Err(cause) = follow(&janua, driver, subject).await {
                    tracing::warn!(?cause, org = %subject.org_id, "seats cannot be changed yet");
                }
            }
        }
    }
}

async fn follow(janua: &Janua, driver: &Driver, subject: &Subject) -> Result<(), Later> {
    let members = quotas::used(&janua.db, subject.org_id, &quotas::MEMBERS, janua.clock.now()).await?.max(1);
    let (Some(id), Some(item)) = (&subject.subscription, &subject.item) else { return Ok(()) };
    if members == subject.seats || subject.processor != driver.kind.name() || subject.livemode != driver.livemode {
        return Ok(());
    }
    let read = driver.subscription(janua, id).await?;
    // The absolute number: a request that is repeated, or comes late, does no harm.
    let change = Change { item, price: &read.price, quantity: members, prorates: true };
    let key = format!("janua-{}-seats-{members}-{}", subject.id, subject.applied);
    driver.change(janua, &key, id, &change).await?;
    apply::sync(janua, driver, subject.id).await?;
    Ok(())
}

/// The fact that says up to when events were pulled.
const PULLED: &str = "billing_events_pulled_until";

/// Fetches events that the webhook did not bring.
#[derive(Default, Serialize, Deserialize)]
pub struct PullEvents {}

impl Job for PullEvents {
    const KIND: &'static str = "billing.pull";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(driver) = Payments::of(&janua) else { return Ok(()) };
        pull(&janua, driver).await?;
        // Events of merchants are not in our own list.
        connect::read_again(&janua, driver).await
    }
}

/// Pulls events since the last time, and an hour more; answers how many were new.
pub async fn pull(janua: &Janua, driver: &Driver) -> Result<usize, Later> {
    let (now, mode) = (driver.now(janua).await?, format!("{PULLED}_{}_{}", driver.kind.name(), driver.livemode));
    let last = installation::read(&janua.db, &mode).await?.and_then(|text| text.parse::<i64>().ok());
    let since =
        last.map_or(now.minus(Duration::from_hours(24 * 29)), |last| Timestamp(last).minus(Duration::from_hours(1)));
    let (mut after, mut new): (Option<String>, usize) = (None, 0);
    loop {
        let (events, has_more) = driver.events(janua, since, after.as_deref()).await?;
        for value in &events {
            let Some(event) = Event::read(value) else { continue };
            let body = value.to_string();
            let stored = transact!(janua, async |tx| {
                Ok(StoredEvent::store(tx, janua, driver, Source::Billing, "pulled", &event, &body).await?)
            })?;
            new += usize::from(stored == Stored::New);
        }
        after = events.last().and_then(|event| event["id"].as_str()).map(str::to_owned);
        if !has_more || after.is_none() {
            break;
        }
    }
    transact!(janua, async |tx| Ok(installation::write(tx, &mode, &now.0.to_string()).await?))?;
    Ok(new)
}

/// Late payments whose grace has ended, and plans that begin at the end of a period.
#[derive(Default, Serialize, Deserialize)]
pub struct EndGrace {}

impl Job for EndGrace {
    const KIND: &'static str = "billing.grace";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(driver) = Payments::of(&janua) else { return Ok(()) };
        let now = driver.now(&janua).await?;
        let mut after = String::new();
        loop {
            let subjects = Subject::living(&janua.db, &after, 500).await?;
            let Some(last) = subjects.last() else { return Ok(()) };
            after = last.id.to_string();
            for subject in subjects.iter().filter(|subject| subject.status == "past_due") {
                transact!(janua, async |tx| {
                    let Some(before) = apply::hold(tx, subject.id).await? else { return Ok(()) };
                    settle(tx, &janua, &before, &mut before.clone(), now, "grace_ended").await
                })?;
            }
        }
    }
}

/// Reads every subscription that lives and every checkout that is open: what differs was lost.
#[derive(Default, Serialize, Deserialize)]
pub struct ReadAgain {}

impl Job for ReadAgain {
    const KIND: &'static str = "billing.reconcile";
    const LIMIT: Duration = Duration::from_hours(2);

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(driver) = Payments::of(&janua) else { return Ok(()) };
        reconcile(&janua, driver, false).await?;
        Ok(())
    }
}

/// Compares all that lives with the processor, and corrects it unless it is only to be told; answers a line for each difference.
pub async fn reconcile(janua: &Janua, driver: &Driver, is_dry: bool) -> Result<Vec<String>, Later> {
    let mut lines = vec![];
    for checkout in Checkout::open(&janua.db, "open", janua.clock.now(), 10_000).await? {
        if !is_dry {
            apply::sync_checkout(janua, driver, &checkout).await?;
        }
    }
    let mut after = String::new();
    loop {
        let subjects = Subject::living(&janua.db, &after, 200).await?;
        let Some(last) = subjects.last() else { return Ok(lines) };
        after = last.id.to_string();
        for before in subjects {
            if (before.processor.as_str(), before.livemode) != (driver.kind.name(), driver.livemode) {
                continue;
            }
            let says =
                |status: &str, seats: i64, end: Option<Timestamp>| format!("{status}, {seats} seats, until {end:?}");
            let was = says(&before.status, before.seats, before.period_end);
            if is_dry {
                let Some(id) = &before.subscription else { continue };
                let is = match driver.subscription(janua, id).await {
                    Ok(read) => says(&read.status, read.quantity, read.period_end),
                    Err(NoAnswer::Missing) => "gone".into(),
                    Err(why) => return Err(why.into()),
                };
                if is != was {
                    lines.push(format!("{}: stored {was}; the processor says {is}", before.org_id));
                }
                continue;
            }
            if apply::sync(janua, driver, before.id).await? == Applied::Changed {
                let Some(now) = Subject::find(&janua.db, before.id).await? else { continue };
                let is = says(&now.status, now.seats, now.period_end);
                lines.push(format!("{}: {was} became {is}", before.org_id));
                let event = Reconciled { before: was, after: is };
                transact!(janua, async |tx| Ok(
                    events::record(tx, janua, &By::default(), now.about(), &event).await?
                ))?;
            }
        }
    }
}

/// Handles an event of the inbox again.
pub async fn replay(janua: &Janua, event: &StoredEvent) -> kernel::fault::Result<()> {
    transact!(janua, async |tx| {
        Ok(kernel::jobs::enqueue(tx, janua, janua.clock.now(), &HandleEvent { id: event.id }).await?)
    })
}
