//! Invoices: what was read from the processor, and the lines for usage beyond what a plan includes.
mod freeze;
mod model;

use kernel::{Janua, fault::Result, transact};
use serde_json::json;
use tenancy::{
    apps::ApplicationId,
    events::{self, By},
    orgs::OrgId,
};

pub use self::{
    freeze::add_waiting,
    model::{Invoice, InvoiceId, Item},
};
use crate::{
    billing::{
        apply,
        events::{Disputed, PaymentSucceeded, Refunded},
        model::Subject,
        webhook::Outcome,
    },
    payments::{
        Driver, NoAnswer,
        read::{self, Payment},
    },
};

/// The organization of an invoice, the apps whose usage it is for, and its lines for usage.
pub async fn usage_of(janua: &Janua, id: InvoiceId) -> Result<Option<(OrgId, Vec<ApplicationId>, Vec<Item>)>> {
    let Some(invoice) = Invoice::find(&janua.db, id).await? else { return Ok(None) };
    let Some(subject) = Subject::find(&janua.db, invoice.subject_id).await? else { return Ok(None) };
    let apps = freeze::apps_of(janua, &subject).await?;
    Ok(Some((subject.org_id, apps, Item::of_invoice(&janua.db, &invoice.processor_id).await?)))
}

/// Reads an invoice and applies it; the lines of a new draft are added.
pub async fn sync(janua: &Janua, driver: &Driver, id: &str) -> Result<Outcome> {
    let read = match driver.invoice(janua, id).await {
        Ok(read) => read,
        Err(NoAnswer::Missing) => return Ok(Outcome::new("unknown")),
        Err(why) => return Err(why.into()),
    };
    let subject = match &read.subscription {
        Some(subscription) => Subject::of_subscription(&janua.db, subscription).await?,
        None => None,
    };
    let Some(subject) = subject else { return Ok(Outcome::new("unknown")) };
    if read.livemode != subject.livemode {
        return Ok(Outcome::new("wrong_mode"));
    }
    if read.status == "draft" && read.reason == "subscription_cycle" {
        freeze::freeze(janua, &subject, &read).await?;
        freeze::add_items(janua, driver, &subject, &read.id).await?;
    }
    let number = Subject::begin_read(&janua.db, subject.id).await?;
    let read = driver.invoice(janua, id).await?;
    let payment = match &read.payment_intent {
        Some(intent) => Some(driver.payment(janua, None, intent).await?),
        None => None,
    };
    store(janua, &subject, number, &read, payment.as_ref()).await?;
    apply::sync(janua, driver, subject.id).await?;
    Ok(Outcome::of("applied", subject.org_id))
}

async fn store(
    janua: &Janua,
    subject: &Subject,
    number: i64,
    read: &read::Invoice,
    payment: Option<&Payment>,
) -> Result<()> {
    let items = Item::of_invoice(&janua.db, &read.id).await?;
    let lines: Vec<_> = read
        .lines
        .iter()
        .map(|line| {
            let item = line.item.as_deref().and_then(|key| items.iter().find(|item| item.key() == key));
            json!({
                "description": line.description, "amount": line.amount, "quantity": item.map_or(line.quantity, |item| item.quantity),
                "unitPrice": item.map(|item| &item.unit_price), "meter": item.map(|item| &item.meter),
                "included": item.map(|item| item.included), "used": item.map(|item| item.used),
                "from": item.map(|item| item.usage_range().0).or(line.period_start),
                "to": item.map(|item| item.usage_range().1).or(line.period_end),
            })
        })
        .collect();
    let overage = read.lines.iter().filter(|line| line.item.is_some()).map(|line| line.amount).sum();
    transact!(janua, async |tx| {
        let Some(subject) = apply::hold(tx, subject.id).await? else { return Ok(()) };
        let before = Invoice::of_processor(&mut *tx, &read.id).await?;
        if before.as_ref().is_some_and(|before| before.applied >= number) {
            return Ok(());
        }
        let now = janua.clock.now();
        let invoice = Invoice {
            id: before.as_ref().map_or_else(|| InvoiceId::new(&janua.entropy, now), |before| before.id),
            subject_id: subject.id,
            processor_id: read.id.clone(),
            livemode: read.livemode,
            number: read.number.clone(),
            status: read.status.clone(),
            plan: before.as_ref().map_or_else(|| subject.plan.clone(), |before| before.plan.clone()),
            total: read.total,
            paid: read.paid,
            refunded: payment.map_or(0, |payment| payment.refunded.min(read.paid)),
            lost: before.as_ref().map_or(0, |before| before.lost),
            fee: payment.map_or(0, |payment| payment.fee),
            overage,
            currency: read.currency.clone(),
            period_start: read.period_start,
            period_end: read.period_end,
            url: read.url.clone(),
            payment_intent: read.payment_intent.clone(),
            charge: payment.and_then(|payment| payment.charge.clone()),
            disputed: payment.is_some_and(|payment| payment.disputed),
            lines: json!(lines),
            applied: number,
            created_at: read.created,
            paid_at: read.paid_at.filter(|_| read.status == "paid"),
        };
        invoice.put(tx).await?;
        tell(tx, janua, &subject, before.as_ref(), &invoice).await
    })
}

/// Records what is new about an invoice.
async fn tell(
    tx: &mut db::Tx,
    janua: &Janua,
    subject: &Subject,
    before: Option<&Invoice>,
    invoice: &Invoice,
) -> Result<()> {
    let (by, about) = (By::default(), subject.about());
    let (id, currency) = (invoice.id.to_string(), invoice.currency.clone());
    if invoice.paid_at.is_some() && before.is_none_or(|before| before.paid_at.is_none()) && invoice.paid > 0 {
        let event = PaymentSucceeded { invoice: id.clone(), amount: invoice.paid, currency: currency.clone() };
        events::record(tx, janua, &by, about, &event).await?;
    }
    let refunded = invoice.refunded - before.map_or(0, |before| before.refunded);
    if refunded > 0 {
        let event = Refunded { invoice: id.clone(), amount: refunded, currency: currency.clone() };
        events::record(tx, janua, &by, about, &event).await?;
    }
    if invoice.disputed && !before.is_some_and(|before| before.disputed) {
        events::record(tx, janua, &by, about, &Disputed { invoice: id, currency }).await?;
    }
    Ok(())
}

/// Reads the payment of an invoice again: refunds, disputes and fees. `lost` is what a dispute took, if one was read. Answers
/// whose it is, or nothing when no invoice has this payment.
pub async fn sync_payment(janua: &Janua, driver: &Driver, intent: &str, lost: Option<i64>) -> Result<Option<OrgId>> {
    let Some(invoice) = Invoice::of_intent(&janua.db, intent).await? else { return Ok(None) };
    let Some(subject) = Subject::find(&janua.db, invoice.subject_id).await? else { return Ok(None) };
    let number = Subject::begin_read(&janua.db, subject.id).await?;
    let payment = driver.payment(janua, None, intent).await?;
    transact!(janua, async |tx| {
        let Some(subject) = apply::hold(tx, subject.id).await? else { return Ok(()) };
        let Some(before) = Invoice::of_processor(&mut *tx, &invoice.processor_id).await? else { return Ok(()) };
        if before.applied >= number {
            return Ok(());
        }
        let mut invoice = before.clone();
        invoice.refunded = payment.refunded.min(before.paid);
        invoice.disputed = payment.disputed;
        invoice.fee = payment.fee;
        invoice.lost = lost.map_or(before.lost, |lost| lost.min(before.paid - invoice.refunded).max(0));
        invoice.applied = number;
        invoice.put(tx).await?;
        tell(tx, janua, &subject, Some(&before), &invoice).await
    })?;
    Ok(Some(subject.org_id))
}
