//! Payments to merchants: the list, and new ones.
use axum::extract::State;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{IDEMPOTENCY_MISMATCH, INVALID, NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Query, Scope},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenancy::{apps::ApplicationId, orgs::Role};

use super::{
    api::MERCHANT_NOT_READY,
    model::{Merchant, MerchantId, MerchantPayment, PaymentId},
    rules,
    seller::{RequestKey, Seller},
};
use crate::{billing::urls::checked, payments::Payments, plans::Plans};

#[derive(Deserialize, Serialize, JsonSchema)]
pub struct PaymentItem {
    #[schemars(length(min = 1, max = 250))]
    name: String,
    /// Of one, in minor units.
    #[schemars(range(min = 1, max = 99_999_999))]
    amount: i64,
    #[schemars(range(min = 1, max = 10_000))]
    quantity: Option<i64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewPayment {
    account_id: MerchantId,
    #[schemars(length(min = 1, max = 100))]
    items: Option<Vec<PaymentItem>>,
    /// Instead of items: one amount in minor units.
    #[schemars(range(min = 1, max = 99_999_999))]
    total: Option<i64>,
    /// In lower case, such as `usd`.
    currency: String,
    success_url: Option<String>,
    cancel_url: Option<String>,
    #[schemars(length(max = 254), email)]
    customer_email: Option<String>,
    #[schemars(length(max = 200))]
    reference: Option<String>,
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    metadata: Option<Value>,
    /// direct: the merchant is merchant of record. destination: the operator is, where the plans file allows it.
    charge_type: Option<ChargeType>,
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum ChargeType {
    Direct,
    Destination,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PaymentView {
    id: PaymentId,
    account_id: MerchantId,
    app_id: ApplicationId,
    url: Option<String>,
    /// `creating`, `open`, `paid`, `partially_refunded`, `refunded`, `disputed`, `expired` or `failed`
    status: String,
    amount: i64,
    /// The operator's share.
    fee: i64,
    refunded: i64,
    fee_refunded: i64,
    currency: String,
    charge_type: String,
    reference: Option<String>,
    expires_at: Option<Timestamp>,
    paid_at: Option<Timestamp>,
    created_at: Timestamp,
    livemode: bool,
}

impl From<MerchantPayment> for PaymentView {
    fn from(payment: MerchantPayment) -> Self {
        Self {
            id: payment.id,
            account_id: payment.merchant_id,
            app_id: payment.app_id,
            url: payment.url,
            status: payment.status,
            amount: payment.amount,
            fee: payment.fee,
            refunded: payment.refunded,
            fee_refunded: payment.fee_refunded,
            currency: payment.currency,
            charge_type: payment.charge_type,
            reference: payment.reference,
            expires_at: payment.expires_at,
            paid_at: payment.paid_at,
            created_at: payment.created_at,
            livemode: payment.livemode,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PaymentList {
    sessions: Vec<PaymentView>,
    next_cursor: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PaymentQuery {
    pub id: Option<PaymentId>,
    pub app_id: Option<ApplicationId>,
    pub account_id: Option<MerchantId>,
    #[schemars(length(max = 32))]
    pub status: Option<String>,
}

pub async fn list_payments(
    State(janua): State<Janua>,
    seller: Seller,
    Query(query): Query<PaymentQuery>,
    page: Page,
) -> Result<Json<PaymentList>> {
    if let Some(id) = query.id {
        let payment = seller.payment(&janua, id, Role::Member).await?;
        return Ok(Json(PaymentList { sessions: vec![payment.into()], next_cursor: None }));
    }
    let app = seller.app(&janua, query.app_id, Role::Member).await?.id;
    if let Some(merchant) = query.account_id
        && Merchant::find(&janua.db, merchant).await?.is_none_or(|merchant| merchant.app_id != app)
    {
        return Err(NOT_FOUND.into());
    }
    let status = query.status.unwrap_or_default();
    let fetch =
        async |below, most| MerchantPayment::page(&janua.db, app, query.account_id, &status, &below, most).await;
    let key = |payment: &MerchantPayment| Key { at: payment.created_at, id: payment.id.to_string() };
    let scope = Scope::from(app).found_by(&format!("{:?} {status}", query.account_id));
    let Listed { rows, next_cursor } = page.list(&janua, "merchant-payments", scope, fetch, key).await?;
    Ok(Json(PaymentList { sessions: rows.into_iter().map(Into::into).collect(), next_cursor }))
}

pub fn is_currency(code: &str) -> bool {
    code.len() == 3 && code.bytes().all(|b| b.is_ascii_lowercase())
}

pub async fn create_payment(
    State(janua): State<Janua>,
    seller: Seller,
    RequestKey(key): RequestKey,
    Json(new): Json<NewPayment>,
) -> Result<Json<PaymentView>> {
    let driver = Payments::required(&janua)?;
    let merchant = Merchant::find(&janua.db, new.account_id).await?.ok_or(NOT_FOUND)?;
    let app = seller.app(&janua, Some(merchant.app_id), Role::Admin).await?;
    let terms = &Plans::of(&janua).connect;
    let items = match (new.items, new.total) {
        (Some(items), None) => items,
        (None, Some(total)) => vec![PaymentItem { name: "Payment".into(), amount: total, quantity: Some(1) }],
        _ => return Err(INVALID.at("items", "required", "or total is required, and not both")),
    };
    if !is_currency(&new.currency) {
        return Err(INVALID.at("currency", "wrong_form", "must be a currency in lower case, such as usd"));
    }
    let amount =
        items.iter().map(|item| item.amount.saturating_mul(item.quantity.unwrap_or(1))).fold(0, i64::saturating_add);
    if amount > 99_999_999 {
        return Err(INVALID.at("items", "range", "must be at most 99999999 together"));
    }
    if new.charge_type == Some(ChargeType::Destination) && !terms.destination {
        return Err(INVALID.at("chargeType", "not_allowed", "destination is not allowed by this installation"));
    }
    let apps = [app];
    let page = format!("/console/apps/{}/merchants", apps[0].id);
    let success_url = checked(&janua, &apps, "successUrl", new.success_url.as_deref(), &page)?;
    let cancel_url = checked(&janua, &apps, "cancelUrl", new.cancel_url.as_deref(), &page)?;
    if merchant.status != "enabled" || merchant.livemode != driver.livemode {
        return Err(MERCHANT_NOT_READY.into());
    }
    let now = janua.clock.now();
    let payment = MerchantPayment {
        id: PaymentId::new(&janua.entropy, now),
        merchant_id: merchant.id,
        app_id: merchant.app_id,
        request_key: key,
        charge_type: if new.charge_type == Some(ChargeType::Destination) { "destination" } else { "direct" }.into(),
        items: json!(
            items
                .iter()
                .map(
                    |item| json!({ "name": item.name, "amount": item.amount, "quantity": item.quantity.unwrap_or(1) })
                )
                .collect::<Vec<_>>()
        ),
        amount,
        fee: terms.fee_of(amount),
        currency: new.currency,
        reference: new.reference,
        metadata: new.metadata.unwrap_or_else(|| json!({})),
        customer_email: new.customer_email,
        status: "creating".into(),
        refunded: 0,
        fee_refunded: 0,
        lost: 0,
        processor_fee: 0,
        processor_id: None,
        payment_intent: None,
        url: None,
        success_url,
        cancel_url,
        expires_at: None,
        livemode: driver.livemode,
        applied: 0,
        created_at: now,
        paid_at: None,
    };
    let stored = transact!(janua, async |tx| {
        if payment.insert(tx).await? {
            return Ok(payment.clone());
        }
        let key = payment.request_key.as_deref().unwrap_or_default();
        let before = MerchantPayment::of_request(&mut *tx, payment.app_id, key).await?.ok_or(NOT_FOUND)?;
        let is_same = (before.merchant_id, before.amount, &before.currency, &before.items)
            == (payment.merchant_id, payment.amount, &payment.currency, &payment.items);
        if is_same { Ok(before) } else { Err(IDEMPOTENCY_MISMATCH.into()) }
    })?;
    let payment =
        if stored.status == "creating" { rules::open_payment(&janua, driver, stored).await? } else { stored };
    Ok(Json(payment.into()))
}
