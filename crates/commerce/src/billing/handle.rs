//! What an event leads to. Its content is only a hint what to read: the object is read fresh from the processor, and whose it
//! is follows from ids that we stored ourselves, never from what somebody wrote into it.
use kernel::{Janua, fault::Result};

use super::{
    apply::{self, Applied},
    model::{Checkout, Subject},
    webhook::{Outcome, StoredEvent},
};
use crate::{
    connect, invoices,
    payments::{Driver, NoAnswer, Source},
};

pub async fn handle(janua: &Janua, driver: &Driver, event: &StoredEvent) -> Result<Outcome> {
    let is_connect = event.source == Source::Connect.name();
    let merchant = match &event.account {
        Some(account) => connect::Merchant::of_account(&janua.db, account).await?,
        None => None,
    };
    // Our own events have no account, and those of merchants have one that is ours.
    if is_connect != event.account.is_some() || is_connect && merchant.is_none() {
        return Ok(Outcome::new("other_account"));
    }
    let Some(object) = event.object_id.as_deref() else { return Ok(Outcome::new("ignored")) };
    let kind = event.r#type.as_str();
    match merchant {
        Some(merchant) => connect::handle(janua, driver, &merchant, kind, object).await,
        None => own(janua, driver, kind, object).await,
    }
}

async fn own(janua: &Janua, driver: &Driver, kind: &str, object: &str) -> Result<Outcome> {
    match kind {
        "checkout.session.completed"
        | "checkout.session.async_payment_succeeded"
        | "checkout.session.async_payment_failed"
        | "checkout.session.expired" => checkout(janua, driver, object).await,
        "customer.subscription.created"
        | "customer.subscription.updated"
        | "customer.subscription.deleted"
        | "customer.subscription.paused"
        | "customer.subscription.resumed"
        | "customer.subscription.trial_will_end" => subscription(janua, driver, object).await,
        "customer.updated" | "customer.deleted" => {
            let subjects = Subject::of_customer(&janua.db, object).await?;
            for subject in &subjects {
                apply::sync(janua, driver, subject.id).await?;
            }
            Ok(subjects.first().map_or_else(|| Outcome::new("unknown"), |first| Outcome::of("applied", first.org_id)))
        }
        "invoice.created"
        | "invoice.finalized"
        | "invoice.paid"
        | "invoice.payment_failed"
        | "invoice.payment_action_required"
        | "invoice.voided"
        | "invoice.marked_uncollectible" => invoices::sync(janua, driver, object).await,
        "charge.refunded" => payment(janua, driver, "charge", object).await,
        "refund.created" | "refund.updated" | "refund.failed" => payment(janua, driver, "refund", object).await,
        "charge.dispute.created" | "charge.dispute.closed" => match driver.dispute(janua, None, object).await {
            Ok(dispute) => {
                let lost = if dispute.status == "lost" { dispute.amount } else { 0 };
                intent(janua, driver, dispute.payment_intent, Some(lost)).await
            }
            Err(NoAnswer::Missing) => Ok(Outcome::new("unknown")),
            Err(why) => Err(why.into()),
        },
        _ => Ok(Outcome::new("ignored")),
    }
}

async fn checkout(janua: &Janua, driver: &Driver, object: &str) -> Result<Outcome> {
    if let Some(checkout) = Checkout::of_processor(&janua.db, object).await? {
        let subject = Subject::find(&janua.db, checkout.subject_id).await?;
        let word = apply::sync_checkout(janua, driver, &checkout).await?;
        return Ok(subject.map_or_else(|| Outcome::new(word), |subject| Outcome::of(word, subject.org_id)));
    }
    connect::handle_payment(janua, driver, object).await
}

async fn subscription(janua: &Janua, driver: &Driver, object: &str) -> Result<Outcome> {
    let Some(subject) = Subject::of_subscription(&janua.db, object).await? else {
        return Ok(Outcome::new("unknown"));
    };
    let word = match apply::sync(janua, driver, subject.id).await? {
        Applied::Changed => "applied",
        Applied::Same => "no_change",
        Applied::Late => "superseded",
    };
    Ok(Outcome::of(word, subject.org_id))
}

async fn payment(janua: &Janua, driver: &Driver, kind: &str, object: &str) -> Result<Outcome> {
    match driver.payment_of(janua, None, kind, object).await {
        Ok(found) => intent(janua, driver, found, None).await,
        Err(NoAnswer::Missing) => Ok(Outcome::new("unknown")),
        Err(why) => Err(why.into()),
    }
}

async fn intent(janua: &Janua, driver: &Driver, id: Option<String>, lost: Option<i64>) -> Result<Outcome> {
    let Some(id) = id else { return Ok(Outcome::new("unknown")) };
    match invoices::sync_payment(janua, driver, &id, lost).await? {
        Some(org) => Ok(Outcome::of("applied", org)),
        None => connect::handle_intent(janua, driver, &id, lost).await,
    }
}
