//! What happens with merchants and their payments: the processor is asked, and what it says is applied.
use kernel::{Janua, clock::Timestamp, fault::Result, jobs::Later, transact};
use serde_json::json;
use tenancy::events::{self, By};

use super::{
    events::{
        MerchantCreated, MerchantDisabled, MerchantDisconnected, MerchantDisputed, MerchantEnabled, MerchantPaid,
        MerchantRefunded, MerchantRestricted,
    },
    model::{Merchant, MerchantId, MerchantPayment, PaymentId, Refund},
};
use crate::{
    billing::webhook::Outcome,
    payments::{
        Driver, NoAnswer,
        calls::{Item, NewPayment, NewRefund},
        read::Account,
    },
};

/// The state that follows from an account.
pub fn status_of(account: &Account) -> &'static str {
    let is_rejected = account.disabled_reason.as_deref().is_some_and(|reason| reason.starts_with("rejected"));
    match account {
        _ if is_rejected => "disabled",
        account if !account.details_submitted => "onboarding",
        account if account.charges_enabled => "enabled",
        account if !account.past_due.is_empty() => "restricted",
        _ => "in_review",
    }
}

/// Creates the processor's account of a merchant. May be repeated.
pub async fn create_account(janua: &Janua, driver: &Driver, merchant: &Merchant) -> Result<Merchant> {
    let key = format!("janua-{}-account", merchant.id);
    let (email, name) = (merchant.email.as_deref(), merchant.business_name.as_deref());
    let account = driver.create_account(janua, &key, &merchant.country, email, name).await?;
    transact!(janua, async |tx| {
        let Some(mut merchant) = Merchant::hold(tx, merchant.id).await? else { return Ok(merchant.clone()) };
        if merchant.account.is_none() {
            merchant.account = Some(account.id.clone());
            merchant.status = "onboarding".into();
            merchant.default_currency.clone_from(&account.default_currency);
            merchant.save(tx, janua.clock.now()).await?;
            events::record(tx, janua, &By::default(), merchant.about(), &MerchantCreated { merchant: merchant.id })
                .await?;
        }
        Ok(merchant)
    })
}

/// Reads a merchant's account and applies it.
pub async fn sync_account(janua: &Janua, driver: &Driver, id: MerchantId) -> Result<Option<Merchant>> {
    let Some(merchant) = Merchant::find(&janua.db, id).await? else { return Ok(None) };
    let Some(account) = &merchant.account else { return Ok(Some(merchant)) };
    let number = Merchant::begin_read(&janua.db, id).await?;
    let read = match driver.account(janua, account).await {
        Ok(read) => Some(read),
        // Whoever may not read it any more is not connected any more.
        Err(NoAnswer::Missing | NoAnswer::Refused { .. }) => None,
        Err(why) => return Err(why.into()),
    };
    transact!(janua, async |tx| {
        let Some(before) = Merchant::hold(tx, id).await? else { return Ok(None) };
        if before.applied >= number || before.ended_at.is_some() {
            return Ok(Some(before));
        }
        let mut merchant = before.clone();
        merchant.applied = number;
        match &read {
            Some(read) => {
                status_of(read).clone_into(&mut merchant.status);
                merchant.charges_enabled = read.charges_enabled;
                merchant.payouts_enabled = read.payouts_enabled;
                merchant.details_submitted = read.details_submitted;
                merchant.requirements = json!({
                    "currentlyDue": read.currently_due, "pastDue": read.past_due, "deadline": read.deadline,
                    "disabledReason": read.disabled_reason,
                });
                merchant.default_currency = merchant.default_currency.or_else(|| read.default_currency.clone());
            }
            None => {
                merchant.status = "disconnected".into();
                merchant.charges_enabled = false;
                merchant.payouts_enabled = false;
                merchant.ended_at = Some(janua.clock.now());
            }
        }
        merchant.save(tx, janua.clock.now()).await?;
        if before.status != merchant.status {
            let (by, about) = (By::default(), merchant.about());
            match merchant.status.as_str() {
                "enabled" => events::record(tx, janua, &by, about, &MerchantEnabled { merchant: id }).await?,
                "restricted" => events::record(tx, janua, &by, about, &MerchantRestricted { merchant: id }).await?,
                "disabled" => events::record(tx, janua, &by, about, &MerchantDisabled { merchant: id }).await?,
                "disconnected" => {
                    events::record(tx, janua, &by, about, &MerchantDisconnected { merchant: id }).await?;
                }
                _ => {}
            }
        }
        Ok(Some(merchant))
    })
}

fn account_of<'a>(merchant: &'a Merchant, payment: &MerchantPayment) -> Option<&'a str> {
    merchant.account.as_deref().filter(|_| payment.charge_type == "direct")
}

/// Creates the processor's checkout of a payment. May be repeated.
pub async fn open_payment(janua: &Janua, driver: &Driver, payment: MerchantPayment) -> Result<MerchantPayment> {
    let merchant = Merchant::find(&janua.db, payment.merchant_id).await?;
    let Some((merchant, account)) =
        merchant.and_then(|merchant| merchant.account.clone().map(|account| (merchant, account)))
    else {
        return Ok(payment);
    };
    let items = payment.items.as_array().into_iter().flatten();
    let items: Vec<Item> = items
        .map(|item| Item {
            name: item["name"].as_str().unwrap_or_default().to_owned(),
            amount: item["amount"].as_i64().unwrap_or_default(),
            quantity: item["quantity"].as_i64().unwrap_or(1),
        })
        .collect();
    let new = NewPayment {
        account: &account,
        is_direct: account_of(&merchant, &payment).is_some(),
        items: &items,
        currency: &payment.currency,
        fee: payment.fee,
        success_url: &payment.success_url,
        cancel_url: &payment.cancel_url,
        email: payment.customer_email.as_deref(),
        reference: payment.id.to_string(),
    };
    let made = driver.create_payment(janua, &format!("janua-{}-create", payment.id), &new).await;
    let id = payment.id;
    match made {
        Ok(made) => transact!(janua, async |tx| {
            let Some(mut payment) = MerchantPayment::hold(tx, id).await? else { return Ok(payment.clone()) };
            if payment.status == "creating" {
                payment.status = "open".into();
                payment.processor_id = Some(made.id.clone());
                payment.url.clone_from(&made.url);
                payment.expires_at = made.expires_at;
                payment.save(tx).await?;
            }
            Ok(payment)
        }),
        Err(why) => {
            if !matches!(why, NoAnswer::Away { .. }) {
                transact!(janua, async |tx| {
                    let Some(mut payment) = MerchantPayment::hold(tx, id).await? else { return Ok(()) };
                    payment.status = "failed".into();
                    Ok(payment.save(tx).await?)
                })?;
            }
            Err(why.into())
        }
    }
}

/// Reads a payment and applies it. `lost` is what a dispute took, if one was read.
pub async fn sync_payment(
    janua: &Janua,
    driver: &Driver,
    id: PaymentId,
    lost: Option<i64>,
) -> Result<Option<MerchantPayment>> {
    let Some(payment) = MerchantPayment::find(&janua.db, id).await? else { return Ok(None) };
    let Some(merchant) = Merchant::find(&janua.db, payment.merchant_id).await? else { return Ok(None) };
    let Some(processor_id) = &payment.processor_id else { return Ok(Some(payment)) };
    let account = account_of(&merchant, &payment);
    let number = MerchantPayment::begin_read(&janua.db, id).await?;
    let session = driver.checkout(janua, account, processor_id).await?;
    let paid = match &session.payment_intent {
        Some(intent) => Some(driver.payment(janua, account, intent).await?),
        None => None,
    };
    let now = driver.now(janua).await?;
    transact!(janua, async |tx| {
        let Some(before) = MerchantPayment::hold(tx, id).await? else { return Ok(None) };
        if before.applied >= number {
            return Ok(Some(before));
        }
        let mut payment = before.clone();
        payment.applied = number;
        payment.payment_intent.clone_from(&session.payment_intent);
        if session.status == "expired" {
            payment.status = "expired".into();
        }
        if let Some(paid) = paid.as_ref().filter(|paid| paid.status == "succeeded") {
            payment.refunded = paid.refunded.min(payment.amount);
            payment.fee_refunded = paid.fee_refunded.min(payment.fee);
            payment.processor_fee = paid.fee;
            payment.lost = lost.map_or(before.lost, |lost| lost.min(payment.amount - payment.refunded).max(0));
            payment.paid_at = payment.paid_at.or(Some(now));
            payment.status = if paid.disputed {
                "disputed"
            } else if payment.refunded == 0 {
                "paid"
            } else if payment.refunded < payment.amount {
                "partially_refunded"
            } else {
                "refunded"
            }
            .into();
        }
        if !matches!(payment.status.as_str(), "creating" | "open") {
            payment.url = None;
        }
        payment.save(tx).await?;
        let (by, about, currency) = (By::default(), merchant.about(), payment.currency.clone());
        if before.paid_at.is_none() && payment.paid_at.is_some() {
            let event = MerchantPaid { payment: id, amount: payment.amount, currency: currency.clone() };
            events::record(tx, janua, &by, about, &event).await?;
        }
        if payment.refunded > before.refunded {
            let event = MerchantRefunded {
                payment: id,
                amount: payment.refunded - before.refunded,
                currency: currency.clone(),
            };
            events::record(tx, janua, &by, about, &event).await?;
        }
        if payment.status == "disputed" && before.status != "disputed" {
            let event = MerchantDisputed { payment: id, amount: payment.amount, currency };
            events::record(tx, janua, &by, about, &event).await?;
        }
        Ok(Some(payment))
    })
}

/// Asks the processor for a refund that was written down. May be repeated.
pub async fn send_refund(janua: &Janua, driver: &Driver, refund: &Refund) -> Result<()> {
    let Some(payment) = MerchantPayment::find(&janua.db, refund.payment_id).await? else { return Ok(()) };
    let Some(merchant) = Merchant::find(&janua.db, payment.merchant_id).await? else { return Ok(()) };
    let Some(intent) = &payment.payment_intent else { return Ok(()) };
    let new = NewRefund {
        account: account_of(&merchant, &payment),
        payment_intent: intent,
        amount: refund.amount,
        refunds_fee: refund.fee == 1 && payment.fee > 0,
        is_destination: payment.charge_type == "destination",
    };
    let made = driver.refund(janua, &format!("janua-{}-refund", refund.id), &new).await;
    let (state, id) = match &made {
        Ok(id) => ("done", Some(id.as_str())),
        Err(NoAnswer::Away { .. }) => return made.map(drop).map_err(Into::into),
        Err(_) => ("refused", None),
    };
    // Read before it counts as done, so that it is not missing from the sum for a moment.
    sync_payment(janua, driver, payment.id, None).await?;
    transact!(janua, async |tx| Ok(Refund::end(tx, refund.id, state, id).await?))?;
    made.map(drop).map_err(Into::into)
}

/// Goes on with what a dead process left.
pub async fn finish_begun(janua: &Janua, driver: &Driver, before: Timestamp) -> Result<(), Later> {
    for merchant in Merchant::begun(&janua.db, before).await? {
        if let Err(fault) = create_account(janua, driver, &merchant).await {
            tracing::warn!(%fault, "a merchant's account cannot be created yet");
        }
    }
    for payment in MerchantPayment::begun(&janua.db, before).await? {
        if let Err(fault) = open_payment(janua, driver, payment).await {
            tracing::warn!(%fault, "a payment that was begun cannot be created yet");
        }
    }
    for refund in Refund::begun(&janua.db, before).await? {
        if let Err(fault) = send_refund(janua, driver, &refund).await {
            tracing::warn!(%fault, "a refund that was begun cannot be made yet");
        }
    }
    Ok(())
}

/// Reads what waits for somebody else: payments that are open and merchants who are not set up yet. So an event that was lost is
/// made up for.
pub async fn read_again(janua: &Janua, driver: &Driver) -> Result<(), Later> {
    for payment in MerchantPayment::open(&janua.db, driver.livemode).await? {
        if let Err(fault) = sync_payment(janua, driver, payment, None).await {
            tracing::warn!(%fault, "an open payment cannot be read again yet");
        }
    }
    for merchant in Merchant::unsettled(&janua.db, driver.livemode).await? {
        if let Err(fault) = sync_account(janua, driver, merchant).await {
            tracing::warn!(%fault, "a merchant's account cannot be read again yet");
        }
    }
    Ok(())
}

/// What an event of a merchant leads to.
pub async fn handle(
    janua: &Janua,
    driver: &Driver,
    merchant: &Merchant,
    kind: &str,
    object: &str,
) -> Result<Outcome> {
    let account = merchant.account.as_deref();
    let org = merchant.org_id;
    let found = match kind {
        "account.updated" | "account.application.deauthorized" => {
            sync_account(janua, driver, merchant.id).await?;
            return Ok(Outcome::of("applied", org));
        }
        "payout.paid" | "payout.failed" => {
            let Some(account) = account else { return Ok(Outcome::new("unknown")) };
            let (amount, currency, status) = match driver.payout(janua, account, object).await {
                Ok(payout) => payout,
                Err(NoAnswer::Missing) => return Ok(Outcome::new("unknown")),
                Err(why) => return Err(why.into()),
            };
            let now = driver.now(janua).await?;
            transact!(janua, async |tx| {
                Ok(Merchant::note_payout(tx, merchant.id, object, (amount, &currency, &status), now).await?)
            })?;
            return Ok(Outcome::of("applied", org));
        }
        kind if kind.starts_with("checkout.session.") => {
            let payment = MerchantPayment::of_processor(&janua.db, object).await?;
            payment.filter(|payment| payment.merchant_id == merchant.id).map(|payment| (payment.id, None))
        }
        "payment_intent.succeeded" | "payment_intent.payment_failed" => {
            of_intent(janua, merchant, Some(object)).await?
        }
        "charge.refunded" => {
            of_intent(janua, merchant, payment_of(janua, driver, account, "charge", object).await?.as_deref()).await?
        }
        "refund.created" | "refund.updated" | "refund.failed" => {
            of_intent(janua, merchant, payment_of(janua, driver, account, "refund", object).await?.as_deref()).await?
        }
        "charge.dispute.created" | "charge.dispute.closed" => match driver.dispute(janua, account, object).await {
            Ok(dispute) => {
                let lost = if dispute.status == "lost" { dispute.amount } else { 0 };
                let found = of_intent(janua, merchant, dispute.payment_intent.as_deref()).await?;
                found.map(|(id, _)| (id, Some(lost)))
            }
            Err(NoAnswer::Missing) => None,
            Err(why) => return Err(why.into()),
        },
        _ => return Ok(Outcome::new("ignored")),
    };
    match found {
        Some((id, lost)) => {
            sync_payment(janua, driver, id, lost).await?;
            Ok(Outcome::of("applied", org))
        }
        None => Ok(Outcome::of("unknown", org)),
    }
}

type Found = Option<(PaymentId, Option<i64>)>;

async fn of_intent(janua: &Janua, merchant: &Merchant, intent: Option<&str>) -> Result<Found> {
    let Some(intent) = intent else { return Ok(None) };
    let payment = MerchantPayment::of_intent(&janua.db, intent).await?;
    Ok(payment.filter(|payment| payment.merchant_id == merchant.id).map(|payment| (payment.id, None)))
}

async fn payment_of(
    janua: &Janua,
    driver: &Driver,
    account: Option<&str>,
    kind: &str,
    id: &str,
) -> Result<Option<String>> {
    match driver.payment_of(janua, account, kind, id).await {
        Ok(found) => Ok(found),
        Err(NoAnswer::Missing) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

/// A checkout of the platform's own account that may be a destination charge of a merchant.
pub async fn handle_payment(janua: &Janua, driver: &Driver, object: &str) -> Result<Outcome> {
    let payment = MerchantPayment::of_processor(&janua.db, object).await?;
    apply_own(janua, driver, payment, None).await
}

pub async fn handle_intent(janua: &Janua, driver: &Driver, intent: &str, lost: Option<i64>) -> Result<Outcome> {
    let payment = MerchantPayment::of_intent(&janua.db, intent).await?;
    apply_own(janua, driver, payment, lost).await
}

async fn apply_own(
    janua: &Janua,
    driver: &Driver,
    payment: Option<MerchantPayment>,
    lost: Option<i64>,
) -> Result<Outcome> {
    let Some(payment) = payment.filter(|payment| payment.charge_type == "destination") else {
        return Ok(Outcome::new("unknown"));
    };
    sync_payment(janua, driver, payment.id, lost).await?;
    let merchant = Merchant::find(&janua.db, payment.merchant_id).await?;
    Ok(merchant.map_or_else(|| Outcome::new("applied"), |merchant| Outcome::of("applied", merchant.org_id)))
}
