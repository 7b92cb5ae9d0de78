//! The life of subscriptions and invoices.
use std::time::Duration;

use jiff::{ToSpan as _, tz::TimeZone};
use kernel::clock::Timestamp;
use serde_json::{Value, json};

use super::{
    book::{Book, Refusal, list},
    cards::Card,
};

/// How long a draft waits when nobody takes the event about it.
const DRAFT: Duration = Duration::from_hours(72);
/// When a payment that failed is tried again, in days after the last try.
const RETRIES: [u64; 3] = [3, 5, 7];
const UNFINISHED: Duration = Duration::from_hours(23);
/// The processor's share, as in 2.9 % + 30.
const FEE_PER_THOUSAND: i64 = 29;
const FEE_FIXED: i64 = 30;

/// What a subscription begins with.
pub struct Start<'a> {
    pub customer: &'a str,
    pub price: Value,
    pub quantity: i64,
    pub trial_days: i64,
    pub card: Card,
    pub metadata: Value,
}

/// A moment so many months or years after another one.
fn later(anchor: i64, interval: &str, count: i64) -> i64 {
    let Ok(moment) = jiff::Timestamp::from_second(anchor) else { return anchor };
    let span = if interval == "year" { count.years() } else { count.months() };
    let after = moment.to_zoned(TimeZone::UTC).checked_add(span);
    after.map_or(anchor, |after| after.timestamp().as_second())
}

fn moment(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1000)
}

fn at(object: &Value, name: &str) -> i64 {
    object["items"]["data"][0][name].as_i64().unwrap_or_default()
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object[name].as_str().unwrap_or_default()
}

fn card_of(subscription: &Value) -> Card {
    Card::of_name(text(subscription, "_card"))
}

pub fn total(price: &Value, quantity: i64) -> i64 {
    price["unit_amount"].as_i64().unwrap_or_default().saturating_mul(quantity)
}

pub fn payment_method(card: Card) -> Value {
    json!({ "id": format!("sbx_pm_{}", card.name()), "object": "payment_method", "type": "card",
            "card": { "brand": "visa", "last4": card.last4(),
                      // The first card has none, so that it can be used for a trial again and again.
                      "fingerprint": (card != Card::Works).then(|| format!("sbx_{}", card.name())) } })
}

/// Begins a subscription; the first invoice is paid at once, or it is a trial.
pub async fn start(book: &mut Book<'_>, start: Start<'_>) -> db::Result<Value> {
    let now = book.seconds();
    let interval = start.price["recurring"]["interval"].as_str().unwrap_or("month").to_owned();
    let trial_end = (start.trial_days > 0).then(|| now + start.trial_days * 86_400);
    let period_end = trial_end.unwrap_or_else(|| later(now, &interval, 1));
    let status = if trial_end.is_some() { "trialing" } else { "active" };
    let mut subscription = json!({
        "id": book.id("sub"), "object": "subscription", "customer": start.customer, "status": status, "livemode": false,
        "created": now, "start_date": now, "currency": start.price["currency"], "cancel_at_period_end": false,
        "cancel_at": null, "canceled_at": null, "ended_at": null, "trial_start": trial_end.map(|_| now),
        "trial_end": trial_end, "default_payment_method": payment_method(start.card), "metadata": start.metadata,
        "collection_method": "charge_automatically", "latest_invoice": null,
        "items": list("/v1/subscription_items", vec![json!({
            "id": book.id("si"), "object": "subscription_item", "price": start.price, "quantity": start.quantity,
            "current_period_start": now, "current_period_end": period_end,
        })], false),
        "_card": start.card.name(), "_anchor": trial_end.unwrap_or(now), "_cycles": i64::from(trial_end.is_none()),
    });
    book.emit("customer.subscription.created", &subscription, "").await?;
    if trial_end.is_none() {
        let line = line_of(&subscription, now, period_end);
        let invoice = draft(book, &subscription, "subscription_create", (now, now), vec![line]).await?;
        let invoice = finalize(book, invoice).await?;
        subscription["latest_invoice"] = invoice["id"].clone();
        if pay(book, &mut subscription, invoice, false).await?.is_err() {
            subscription["status"] = "incomplete".into();
        }
    }
    save(book, &subscription).await?;
    Ok(subscription)
}

/// Writes a subscription with the moment at which it goes on by itself.
pub async fn save(book: &mut Book<'_>, subscription: &Value) -> db::Result<()> {
    let due = match text(subscription, "status") {
        "trialing" | "active" | "past_due" => Some(moment(at(subscription, "current_period_end"))),
        "incomplete" => Some(moment(subscription["created"].as_i64().unwrap_or_default()).plus(UNFINISHED)),
        _ => None,
    };
    let customer = text(subscription, "customer").to_owned();
    book.put("subscription", &customer, subscription, due).await
}

fn line_of(subscription: &Value, from: i64, to: i64) -> Value {
    let item = &subscription["items"]["data"][0];
    let quantity = item["quantity"].as_i64().unwrap_or(1);
    let amount = total(&item["price"], quantity);
    let name = item["price"]["nickname"].as_str().unwrap_or("Plan");
    line(amount, quantity, &format!("{quantity} × {name}"), (from, to), &json!({}))
}

pub fn line(amount: i64, quantity: i64, description: &str, period: (i64, i64), metadata: &Value) -> Value {
    json!({ "object": "line_item", "amount": amount, "quantity": quantity, "description": description,
            "metadata": metadata, "period": { "start": period.0, "end": period.1 } })
}

fn add_up(invoice: &mut Value) {
    let lines = invoice["lines"]["data"].as_array().into_iter().flatten();
    let total: i64 = lines.map(|line| line["amount"].as_i64().unwrap_or_default()).sum();
    for name in ["subtotal", "total"] {
        invoice[name] = total.into();
    }
    invoice["amount_due"] = total.max(0).into();
    invoice["amount_remaining"] = (total.max(0) - invoice["amount_paid"].as_i64().unwrap_or_default()).into();
}

pub async fn draft(
    book: &mut Book<'_>,
    subscription: &Value,
    reason: &str,
    period: (i64, i64),
    lines: Vec<Value>,
) -> db::Result<Value> {
    let mut invoice = json!({
        "id": book.id("in"), "object": "invoice", "customer": subscription["customer"], "livemode": false,
        "parent": { "type": "subscription_details", "subscription_details": { "subscription": subscription["id"] } },
        "status": "draft", "billing_reason": reason, "number": null, "currency": subscription["currency"],
        "period_start": period.0, "period_end": period.1, "created": book.seconds(), "amount_paid": 0,
        "attempt_count": 0, "next_payment_attempt": null, "hosted_invoice_url": null,
        "status_transitions": { "finalized_at": null, "paid_at": null },
        "lines": list("/v1/invoices/lines", lines, false),
        "payments": list("/v1/invoice_payments", vec![], false),
    });
    add_up(&mut invoice);
    save_invoice(book, &invoice, Some(book.now.plus(DRAFT))).await?;
    book.emit("invoice.created", &invoice, "").await?;
    Ok(invoice)
}

async fn save_invoice(book: &mut Book<'_>, invoice: &Value, due: Option<Timestamp>) -> db::Result<()> {
    let parent = invoice["parent"]["subscription_details"]["subscription"].as_str().unwrap_or_default().to_owned();
    book.put("invoice", &parent, invoice, due).await
}

/// Adds a line to a draft.
pub async fn add_line(book: &mut Book<'_>, mut invoice: Value, line: Value) -> db::Result<()> {
    if let Some(lines) = invoice["lines"]["data"].as_array_mut() {
        lines.push(line);
    }
    add_up(&mut invoice);
    // Another line changes nothing about when the draft becomes an invoice.
    let id = text(&invoice, "id").to_owned();
    let sql = "UPDATE sandbox_object SET body = $2 WHERE id = $1";
    book.tx.exec(sql, db::params![id, &invoice]).await.map(drop)
}

async fn finalize(book: &mut Book<'_>, mut invoice: Value) -> db::Result<Value> {
    let id = text(&invoice, "id").to_owned();
    invoice["status"] = "open".into();
    invoice["number"] = format!("SBX-{}", id[id.len().saturating_sub(8)..].to_uppercase()).into();
    invoice["status_transitions"]["finalized_at"] = book.seconds().into();
    save_invoice(book, &invoice, None).await?;
    book.emit("invoice.finalized", &invoice, "").await?;
    Ok(invoice)
}

/// Tries to collect an open invoice; what fails is tried again later, and after the last try the subscription is unpaid.
pub async fn pay(
    book: &mut Book<'_>,
    subscription: &mut Value,
    mut invoice: Value,
    is_renewal: bool,
) -> db::Result<Result<(), Refusal>> {
    let amount = invoice["amount_due"].as_i64().unwrap_or_default();
    let card = card_of(subscription);
    let attempts = invoice["attempt_count"].as_i64().unwrap_or_default();
    invoice["attempt_count"] = (attempts + 1).into();
    if let Some((code, message)) = card.refusal(is_renewal).filter(|_| amount > 0) {
        let next = usize::try_from(attempts).ok().and_then(|attempt| RETRIES.get(attempt));
        let next = next.map(|days| book.now.plus(Duration::from_hours(24 * days)));
        invoice["next_payment_attempt"] = json!(next.map(|at| at.0 / 1000));
        save_invoice(book, &invoice, next).await?;
        book.emit("invoice.payment_failed", &invoice, "").await?;
        if is_renewal {
            subscription["status"] = if next.is_some() { "past_due" } else { "unpaid" }.into();
            save(book, subscription).await?;
            book.emit("customer.subscription.updated", subscription, "").await?;
        }
        return Ok(Err(Refusal::new(code, message)));
    }
    if amount > 0 {
        let paid =
            charge(book, Charge { amount, currency: text(&invoice, "currency"), card, account: "", fee: 0 }).await?;
        invoice["payments"]["data"] = json!([{ "object": "invoice_payment", "status": "paid",
            "payment": { "type": "payment_intent", "payment_intent": paid } }]);
    }
    invoice["status"] = "paid".into();
    invoice["amount_paid"] = amount.into();
    invoice["next_payment_attempt"] = Value::Null;
    invoice["status_transitions"]["paid_at"] = book.seconds().into();
    add_up(&mut invoice);
    save_invoice(book, &invoice, None).await?;
    book.emit("invoice.paid", &invoice, "").await?;
    if matches!(text(subscription, "status"), "past_due" | "unpaid" | "incomplete") {
        subscription["status"] = "active".into();
        save(book, subscription).await?;
        book.emit("customer.subscription.updated", subscription, "").await?;
    }
    Ok(Ok(()))
}

/// What is collected by a card.
pub struct Charge<'a> {
    pub amount: i64,
    pub currency: &'a str,
    pub card: Card,
    /// A merchant's, or empty.
    pub account: &'a str,
    pub fee: i64,
}

/// A payment that succeeded; answers its id.
pub async fn charge(book: &mut Book<'_>, new: Charge<'_>) -> db::Result<String> {
    let (intent, charge) = (book.id("pi"), book.id("ch"));
    let kept = new.amount * FEE_PER_THOUSAND / 1000 + FEE_FIXED;
    let body = json!({
        "id": charge, "object": "charge", "amount": new.amount, "amount_refunded": 0, "currency": new.currency,
        "refunded": false, "disputed": false, "payment_intent": intent, "status": "succeeded", "livemode": false,
        "balance_transaction": { "id": book.id("txn"), "object": "balance_transaction", "fee": kept },
        "application_fee_amount": new.fee,
        "application_fee": (new.fee > 0).then(|| json!({ "id": book.id("fee"), "object": "application_fee",
            "amount": new.fee, "amount_refunded": 0 })),
    });
    let due = (new.card == Card::Disputed).then(|| book.now.plus(Duration::from_mins(1)));
    book.put("charge", new.account, &body, due).await?;
    let body = json!({ "id": intent, "object": "payment_intent", "amount": new.amount, "currency": new.currency,
                       "status": "succeeded", "latest_charge": charge, "livemode": false,
                       "application_fee_amount": new.fee });
    book.put("payment_intent", new.account, &body, None).await?;
    if !new.account.is_empty() {
        book.emit("payment_intent.succeeded", &body, new.account).await?;
        let payout = json!({ "id": book.id("po"), "object": "payout", "amount": new.amount - new.fee - kept,
                             "currency": new.currency, "status": "in_transit", "livemode": false });
        book.put("payout", new.account, &payout, Some(book.now.plus(Duration::from_hours(48)))).await?;
    }
    Ok(intent)
}

/// A payment with its charge in it.
pub async fn payment(book: &mut Book<'_>, account: &str, id: &str) -> db::Result<Option<Value>> {
    let Some(mut intent) = book.find("payment_intent", id).await?.filter(|found| found.parent == account) else {
        return Ok(None);
    };
    let charge = text(&intent.body, "latest_charge").to_owned();
    if let Some(charge) = book.get("charge", &charge).await? {
        intent.body["latest_charge"] = charge;
    }
    Ok(Some(intent.body))
}

/// Goes on with a subscription whose period or trial has ended.
pub async fn subscription_due(book: &mut Book<'_>, mut subscription: Value) -> db::Result<()> {
    if text(&subscription, "status") == "incomplete" {
        subscription["status"] = "incomplete_expired".into();
        save(book, &subscription).await?;
        return book.emit("customer.subscription.updated", &subscription, "").await;
    }
    if subscription["cancel_at_period_end"] == true {
        return cancel(book, subscription).await.map(drop);
    }
    let (from, to) = (at(&subscription, "current_period_start"), at(&subscription, "current_period_end"));
    let interval = subscription["items"]["data"][0]["price"]["recurring"]["interval"].as_str().unwrap_or("month");
    let cycles = subscription["_cycles"].as_i64().unwrap_or_default() + 1;
    let end = later(subscription["_anchor"].as_i64().unwrap_or(to), interval, cycles);
    subscription["_cycles"] = cycles.into();
    let item = &mut subscription["items"]["data"][0];
    item["current_period_start"] = to.into();
    item["current_period_end"] = end.into();
    if subscription["status"] == "trialing" {
        subscription["status"] = "active".into();
    }
    let line = line_of(&subscription, to, end);
    let invoice = draft(book, &subscription, "subscription_cycle", (from, to), vec![line]).await?;
    subscription["latest_invoice"] = invoice["id"].clone();
    save(book, &subscription).await?;
    book.emit("customer.subscription.updated", &subscription, "").await
}

/// A draft becomes an invoice, or a payment is tried again.
pub async fn invoice_due(book: &mut Book<'_>, invoice: Value) -> db::Result<()> {
    let id = invoice["parent"]["subscription_details"]["subscription"].as_str().unwrap_or_default().to_owned();
    let Some(mut subscription) = book.get("subscription", &id).await? else { return Ok(()) };
    let is_over = matches!(text(&subscription, "status"), "canceled" | "incomplete_expired");
    let invoice = if invoice["status"] == "draft" { finalize(book, invoice).await? } else { invoice };
    if is_over {
        let mut invoice = invoice;
        invoice["status"] = "void".into();
        save_invoice(book, &invoice, None).await?;
        return book.emit("invoice.voided", &invoice, "").await;
    }
    pay(book, &mut subscription, invoice, true).await.map(drop)
}

pub async fn cancel(book: &mut Book<'_>, mut subscription: Value) -> db::Result<Value> {
    subscription["status"] = "canceled".into();
    subscription["canceled_at"] = book.seconds().into();
    subscription["ended_at"] = book.seconds().into();
    save(book, &subscription).await?;
    book.emit("customer.subscription.deleted", &subscription, "").await?;
    Ok(subscription)
}

/// What a change costs now: credit for what is left of the period, and the new price for it.
pub struct Proration {
    pub lines: Vec<Value>,
    pub amount: i64,
    /// Whether a new period begins now.
    pub restarts: bool,
}

pub fn prorate(subscription: &Value, price: &Value, quantity: i64, now: i64, prorates: bool) -> Proration {
    let item = &subscription["items"]["data"][0];
    let (from, to) = (at(subscription, "current_period_start"), at(subscription, "current_period_end"));
    let (old, new) = (total(&item["price"], item["quantity"].as_i64().unwrap_or(1)), total(price, quantity));
    let restarts = price["recurring"]["interval"] != item["price"]["recurring"]["interval"];
    if !prorates && !restarts || subscription["status"] == "trialing" {
        return Proration { lines: vec![], amount: 0, restarts: false };
    }
    let left = |amount: i64| {
        let (left, whole) = ((to - now).max(0), (to - from).max(1));
        let exact = i128::from(amount) * i128::from(left);
        i64::try_from((exact * 2 + i128::from(whole)).div_euclid(i128::from(whole) * 2)).unwrap_or_default()
    };
    let charged = if restarts { new } else { left(new) };
    let lines = vec![
        line(-left(old), 1, "Unused time on the plan before", (now, to), &json!({})),
        line(charged, quantity, "Remaining time on the new plan", (now, to), &json!({})),
    ];
    Proration { amount: charged - left(old), lines, restarts }
}

/// Changes price or seats, and collects what is due now.
pub async fn change(
    book: &mut Book<'_>,
    mut subscription: Value,
    price: Value,
    quantity: i64,
    prorates: bool,
) -> db::Result<Result<Value, Refusal>> {
    let now = book.seconds();
    let proration = prorate(&subscription, &price, quantity, now, prorates);
    let card = card_of(&subscription);
    if proration.amount > 0
        && let Some((code, message)) = card.refusal(true)
    {
        return Ok(Err(Refusal { status: 402, code, message: message.to_owned() }));
    }
    let interval = price["recurring"]["interval"].as_str().unwrap_or("month").to_owned();
    let item = &mut subscription["items"]["data"][0];
    item["price"] = price;
    item["quantity"] = quantity.into();
    if proration.restarts {
        item["current_period_start"] = now.into();
        item["current_period_end"] = later(now, &interval, 1).into();
        subscription["_anchor"] = now.into();
        subscription["_cycles"] = 1.into();
    }
    if !proration.lines.is_empty() {
        let invoice = draft(book, &subscription, "subscription_update", (now, now), proration.lines).await?;
        let invoice = finalize(book, invoice).await?;
        subscription["latest_invoice"] = invoice["id"].clone();
        let _collected = pay(book, &mut subscription, invoice, false).await?;
    }
    save(book, &subscription).await?;
    book.emit("customer.subscription.updated", &subscription, "").await?;
    Ok(Ok(subscription))
}

/// A trial ends now, and is paid for.
pub async fn end_trial(book: &mut Book<'_>, mut subscription: Value) -> db::Result<Value> {
    let now = book.seconds();
    subscription["trial_end"] = now.into();
    subscription["_anchor"] = now.into();
    subscription["_cycles"] = 0.into();
    subscription["items"]["data"][0]["current_period_end"] = now.into();
    subscription_due(book, subscription.clone()).await?;
    let id = text(&subscription, "id").to_owned();
    Ok(book.get("subscription", &id).await?.unwrap_or(subscription))
}

/// Another card; what is open is collected with it.
pub async fn replace_card(
    book: &mut Book<'_>,
    mut subscription: Value,
    card: Card,
) -> db::Result<Result<(), Refusal>> {
    subscription["_card"] = card.name().into();
    subscription["default_payment_method"] = payment_method(card);
    save(book, &subscription).await?;
    let id = text(&subscription, "id").to_owned();
    let open = book.of_parent("invoice", &id).await?.into_iter().filter(|invoice| invoice["status"] == "open");
    for invoice in open.collect::<Vec<_>>() {
        if let Err(refusal) = pay(book, &mut subscription, invoice, true).await? {
            return Ok(Err(refusal));
        }
    }
    Ok(Ok(()))
}

pub async fn dispute(book: &mut Book<'_>, account: &str, mut charge: Value) -> db::Result<()> {
    charge["disputed"] = true.into();
    book.put("charge", account, &charge, None).await?;
    let dispute = json!({ "id": book.id("dp"), "object": "dispute", "amount": charge["amount"], "charge": charge["id"],
                          "payment_intent": charge["payment_intent"], "status": "needs_response", "livemode": false,
                          "currency": charge["currency"] });
    book.put("dispute", account, &dispute, Some(book.now.plus(Duration::from_hours(24 * 7)))).await?;
    book.emit("charge.dispute.created", &dispute, account).await
}

/// Nobody answers a dispute in the sandbox.
pub async fn lose_dispute(book: &mut Book<'_>, account: &str, mut dispute: Value) -> db::Result<()> {
    dispute["status"] = "lost".into();
    book.put("dispute", account, &dispute, None).await?;
    book.emit("charge.dispute.closed", &dispute, account).await
}
