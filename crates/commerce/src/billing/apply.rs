//! Applies what was read from the processor: state, plan, events and mails in one commit. An older read never replaces a newer
//! one, so the order of events does not matter.
use db::Tx;
use kernel::{Janua, clock::Timestamp, fault::Result, installation, jobs, transact};
use tenancy::{
    apps::Application,
    events::{self, By},
    orgs::Org,
    quotas::FIRST_PLAN,
};

use super::{
    events::{CancelScheduled, Canceled, PaymentFailed, TrialStarted},
    jobs::{CancelSecond, EndTrial},
    mails,
    model::{Checkout, Subject, SubjectId},
    prices,
};
use crate::{
    payments::{Driver, NoAnswer, read::Subscription},
    plans::{PlanChanged, Plans},
};

/// The fact that this database holds subscriptions for real money. The sandbox does not start on it.
pub const HAS_LIVE: &str = "billing_has_live_subscription";

/// What came of applying a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    Changed,
    Same,
    /// A later read was applied before.
    Late,
}

/// Reads the subscription of a subject and applies it.
pub async fn sync(janua: &Janua, driver: &Driver, id: SubjectId) -> Result<Applied> {
    let Some(subject) = Subject::find(&janua.db, id).await? else { return Ok(Applied::Same) };
    let Some(subscription) = subject.subscription.clone() else { return Ok(Applied::Same) };
    if (subject.processor.as_str(), subject.livemode) != (driver.kind.name(), driver.livemode) {
        return Ok(Applied::Same);
    }
    let number = Subject::begin_read(&janua.db, id).await?;
    let read = match driver.subscription(janua, &subscription).await {
        Ok(read) if read.livemode != subject.livemode => return Ok(Applied::Same),
        Ok(read) => Some(read),
        Err(NoAnswer::Missing) => None,
        Err(why) => return Err(why.into()),
    };
    apply(janua, driver, id, number, read, "processor").await
}

/// Applies one read. `None` stands for a subscription that the processor does not have any more.
pub async fn apply(
    janua: &Janua,
    driver: &Driver,
    id: SubjectId,
    number: i64,
    read: Option<Subscription>,
    reason: &'static str,
) -> Result<Applied> {
    let known = match &read {
        Some(read) => prices::plan_of(janua, &read.price).await?,
        None => None,
    };
    let now = driver.now(janua).await?;
    transact!(janua, async |tx| {
        let Some(before) = hold(tx, id).await? else { return Ok(Applied::Same) };
        if number <= before.applied {
            return Ok(Applied::Late);
        }
        let mut subject = before.clone();
        match &read {
            Some(read) if before.subscription.as_deref() == Some(&read.id) => {
                take(&mut subject, read, known.as_ref(), now);
            }
            Some(_) => return Ok(Applied::Late),
            None => subject.status = "canceled".into(),
        }
        subject.applied = number;
        subject.read_at = Some(janua.clock.now());
        let reason = if subject.status == "canceled" { "canceled" } else { reason };
        settle(tx, janua, &before, &mut subject, now, reason).await?;
        if let Some(fingerprint) = read.as_ref().and_then(|read| read.fingerprint.as_deref())
            && subject.status == "trialing"
            && !Subject::note_trial(tx, id, fingerprint, now).await?
        {
            jobs::enqueue(tx, janua, janua.clock.now(), &EndTrial { subject: id }).await?;
        }
        if subject.livemode {
            installation::write_once(tx, HAS_LIVE, "1").await?;
        }
        Ok(if is_same(&before, &subject) { Applied::Same } else { Applied::Changed })
    })
}

/// Locks the organization, then the subject: the order of everybody.
pub async fn hold(tx: &mut Tx, id: SubjectId) -> db::Result<Option<Subject>> {
    let Some(subject) = Subject::find(&mut *tx, id).await? else { return Ok(None) };
    Org::hold(tx, subject.org_id).await?;
    Subject::hold(tx, id).await
}

fn is_same(a: &Subject, b: &Subject) -> bool {
    (&a.status, &a.plan, a.seats, a.amount, a.period_end, a.cancel_at_period_end, &a.price_interval)
        == (&b.status, &b.plan, b.seats, b.amount, b.period_end, b.cancel_at_period_end, &b.price_interval)
}

/// Takes the fields of a read over.
fn take(subject: &mut Subject, read: &Subscription, known: Option<&prices::KnownPrice>, now: Timestamp) {
    subject.item = Some(read.item.clone());
    subject.status.clone_from(&read.status);
    subject.price_interval = Some(read.interval.clone());
    subject.amount = Some(read.amount);
    subject.currency = Some(read.currency.clone());
    subject.seats = read.quantity;
    subject.period_start = read.period_start;
    subject.period_end = read.period_end;
    subject.trial_ends_at = read.trial_end;
    // The processor keeps what was planned, also when the subscription has ended before that.
    subject.cancel_at_period_end = read.cancel_at_period_end && !subject.has_ended();
    subject.cancel_at = read.cancel_at.filter(|_| !subject.has_ended());
    subject.past_due_since = match subject.status.as_str() {
        "past_due" => subject.past_due_since.or(Some(now)),
        _ => None,
    };
    if let Some(known) = known {
        subject.per_member = known.per_member;
        let waits = subject.pending_plan.as_deref() == Some(&known.plan)
            && subject.pending_at.is_some_and(|at| read.period_start.is_some_and(|start| start < at));
        if !waits && subject.plan != known.plan {
            if subject.pending_plan.as_deref() == Some(&known.plan) {
                subject.last_plan = Some(subject.plan.clone());
                subject.last_plan_until = subject.pending_at;
            }
            subject.plan.clone_from(&known.plan);
        }
        if !waits && subject.pending_plan.as_deref() == Some(&known.plan) {
            (subject.pending_plan, subject.pending_at) = (None, None);
        }
    }
}

/// Writes a subject with all that follows from the change: events, mails and the plan of the organization.
pub async fn settle(
    tx: &mut Tx,
    janua: &Janua,
    before: &Subject,
    subject: &mut Subject,
    now: Timestamp,
    reason: &'static str,
) -> Result<()> {
    let (by, about, plan) = (By::default(), subject.about(), subject.plan.clone());
    let became = |status: &str| before.status != status && subject.status == status;
    if became("trialing") {
        subject.trial_used_at = Some(now);
        events::record(tx, janua, &by, about, &TrialStarted { plan: plan.clone() }).await?;
    }
    if became("past_due") {
        events::record(tx, janua, &by, about, &PaymentFailed { plan: plan.clone() }).await?;
        mails::send(tx, janua, subject.org_id, mails::What::PaymentFailed).await?;
    }
    if subject.cancel_at_period_end && !before.cancel_at_period_end && subject.is_subscribed() {
        events::record(tx, janua, &by, about, &CancelScheduled { plan: plan.clone() }).await?;
    }
    if became("canceled") || became("incomplete_expired") {
        (subject.cancel_at_period_end, subject.cancel_at) = (false, None);
        (subject.pending_plan, subject.pending_at) = (None, None);
        events::record(tx, janua, &by, about, &Canceled { plan: before.plan.clone() }).await?;
        if before.is_subscribed() {
            mails::send(tx, janua, subject.org_id, mails::What::PlanEnded).await?;
        }
    }
    let tier = subject.tier(Plans::of(janua).grace, now).to_owned();
    if subject.has_ended() {
        subject.plan = FIRST_PLAN.into();
    }
    match subject.app() {
        None if subject.deleted_at.is_none() => set_tier(tx, janua, subject, &tier, reason).await?,
        // Without a plan of its own an app shares its organization's.
        Some(app) => Application::set_plan(tx, app, if tier == FIRST_PLAN { "" } else { &tier }).await?,
        None => {}
    }
    Ok(subject.save(tx, janua.clock.now()).await?)
}

async fn set_tier(tx: &mut Tx, janua: &Janua, subject: &Subject, tier: &str, reason: &'static str) -> db::Result<()> {
    let Some(org) = Org::find(&mut *tx, subject.org_id).await?.filter(|org| org.tier != tier) else { return Ok(()) };
    Org::set_plan(tx, org.id, tier, janua.clock.now()).await?;
    let event = PlanChanged { from: org.tier, to: tier.to_owned(), reason };
    events::record(tx, janua, &By::default(), subject.about(), &event).await
}

/// Reads a checkout and goes on with what came of it.
pub async fn sync_checkout(janua: &Janua, driver: &Driver, checkout: &Checkout) -> Result<&'static str> {
    let Some(processor_id) = &checkout.processor_id else { return Ok("unknown") };
    let session = match driver.checkout(janua, None, processor_id).await {
        Ok(session) => session,
        Err(NoAnswer::Missing) => {
            end_checkout(janua, checkout, "expired").await?;
            return Ok("expired");
        }
        Err(why) => return Err(why.into()),
    };
    match (session.status.as_str(), session.subscription) {
        ("expired", _) => {
            end_checkout(janua, checkout, "expired").await?;
            Ok("expired")
        }
        ("complete", Some(subscription)) => {
            let outcome = transact!(janua, async |tx| {
                let Some(mut subject) = hold(tx, checkout.subject_id).await? else { return Ok("unknown") };
                if subject.subscription.as_deref() == Some(&subscription) {
                    Checkout::end(tx, checkout.id, "completed", janua.clock.now()).await?;
                    return Ok("applied");
                }
                // Decided when it was completed. An event about it that comes late, or again, must not judge its subscription by
                // what was bought since: the money of one that ended long ago would go back.
                let known = Checkout::find(&mut *tx, checkout.id).await?;
                if known.is_none_or(|known| known.state == "completed") {
                    return Ok("judged_before");
                }
                Checkout::end(tx, checkout.id, "completed", janua.clock.now()).await?;
                let is_taken = subject.is_subscribed() || subject.is_incomplete() || subject.deleted_at.is_some();
                if is_taken {
                    jobs::enqueue(tx, janua, janua.clock.now(), &CancelSecond { subscription: subscription.clone() })
                        .await?;
                    return Ok("second_subscription");
                }
                subject.subscription = Some(subscription.clone());
                subject.status = "incomplete".into();
                subject.save(tx, janua.clock.now()).await?;
                Ok("applied")
            })?;
            if outcome == "applied" {
                sync(janua, driver, checkout.subject_id).await?;
                // Events of its first invoice may have come before we knew whose it is.
                let latest = driver.subscription(janua, &subscription).await?.latest_invoice;
                if let Some(invoice) = latest {
                    crate::invoices::sync(janua, driver, &invoice).await?;
                }
            }
            Ok(outcome)
        }
        _ => Ok("waiting"),
    }
}

async fn end_checkout(janua: &Janua, checkout: &Checkout, state: &'static str) -> Result<()> {
    if checkout.state == state {
        return Ok(());
    }
    transact!(janua, async |tx| Ok(Checkout::end(tx, checkout.id, state, janua.clock.now()).await?))
}
