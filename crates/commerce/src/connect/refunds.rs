//! The end of a payment: it expires before it is paid, or goes back.
use axum::extract::State;
use kernel::{
    Janua,
    fault::{IDEMPOTENCY_KEY_REQUIRED, IDEMPOTENCY_MISMATCH, INVALID, NOT_FOUND, Result},
    http::{Json, Query},
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::orgs::Role;

use super::{
    api::NOT_REFUNDABLE,
    checkout::{PaymentQuery, PaymentView},
    model::{Merchant, MerchantPayment, PaymentId, Refund, RefundId},
    rules,
    seller::{RequestKey, Seller},
};
use crate::payments::Payments;

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum PaymentAction {
    Expire,
    Refund,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PaymentChange {
    id: PaymentId,
    action: PaymentAction,
    /// The amount to refund, in minor units; left out: the whole remaining amount.
    #[schemars(range(min = 1, max = 99_999_999))]
    amount: Option<i64>,
    #[schemars(length(max = 500))]
    reason: Option<String>,
    /// Whether the operator's fee goes back in proportion; left out: yes.
    refund_fee: Option<bool>,
}

async fn expire(janua: &Janua, payment: MerchantPayment) -> Result<Json<PaymentView>> {
    let driver = Payments::required(janua)?;
    if let (Some(id), "open") = (&payment.processor_id, payment.status.as_str()) {
        let merchant = Merchant::find(&janua.db, payment.merchant_id).await?.ok_or(NOT_FOUND)?;
        let account = merchant.account.as_deref().filter(|_| payment.charge_type == "direct");
        match driver.expire_checkout(janua, &format!("janua-{}-expire", payment.id), account, id).await {
            // One that was paid meanwhile is read below.
            Ok(()) | Err(crate::payments::NoAnswer::Refused { .. }) => {}
            Err(why) => return Err(why.into()),
        }
    }
    let payment = rules::sync_payment(janua, driver, payment.id, None).await?.ok_or(NOT_FOUND)?;
    Ok(Json(payment.into()))
}

async fn refund(
    janua: &Janua,
    payment: MerchantPayment,
    change: &PaymentChange,
    key: Option<String>,
) -> Result<Json<PaymentView>> {
    let driver = Payments::required(janua)?;
    let key = key.ok_or(IDEMPOTENCY_KEY_REQUIRED)?;
    let now = janua.clock.now();
    let refund = transact!(janua, async |tx| {
        let payment = MerchantPayment::hold(tx, payment.id).await?.ok_or(NOT_FOUND)?;
        if let Some(before) = Refund::of_request(tx, payment.id, &key).await? {
            let is_same = change.amount.is_none_or(|amount| amount == before.amount);
            return if is_same { Ok(before) } else { Err(IDEMPOTENCY_MISMATCH.into()) };
        }
        // What is asked for is counted before the processor knows of it, so two at once never exceed what was paid.
        let left = payment.amount - payment.refunded - payment.lost - Refund::wanted(tx, payment.id).await?;
        let amount = change.amount.unwrap_or(left);
        let is_paid = matches!(payment.status.as_str(), "paid" | "partially_refunded");
        if !is_paid || amount <= 0 || amount > left {
            return Err(NOT_REFUNDABLE.because(format!(
                "{} of {} {} are left.",
                left.max(0),
                payment.amount,
                payment.currency
            )));
        }
        let refund = Refund {
            id: RefundId::new(&janua.entropy, now),
            payment_id: payment.id,
            request_key: key.clone(),
            amount,
            fee: i64::from(change.refund_fee.unwrap_or(true)),
            reason: change.reason.clone(),
            state: "wanted".into(),
            created_at: now,
        };
        refund.insert(tx).await?;
        Ok(refund)
    })?;
    if refund.state == "wanted" {
        rules::send_refund(janua, driver, &refund).await?;
    }
    let payment = MerchantPayment::find(&janua.db, payment.id).await?.ok_or(NOT_FOUND)?;
    Ok(Json(payment.into()))
}

pub async fn change_payment(
    State(janua): State<Janua>,
    seller: Seller,
    RequestKey(key): RequestKey,
    Json(change): Json<PaymentChange>,
) -> Result<Json<PaymentView>> {
    let payment = seller.payment(&janua, change.id, Role::Admin).await?;
    match change.action {
        PaymentAction::Expire => expire(&janua, payment).await,
        PaymentAction::Refund => refund(&janua, payment, &change, key).await,
    }
}

pub async fn delete_payment(
    State(janua): State<Janua>,
    seller: Seller,
    Query(query): Query<PaymentQuery>,
) -> Result<Json<PaymentView>> {
    let id = query.id.ok_or_else(|| INVALID.at("id", "required", "is required"))?;
    let payment = seller.payment(&janua, id, Role::Admin).await?;
    expire(&janua, payment).await
}
