//! The merchants of an app: the list, and the end of one.
use axum::extract::State;
use db::{Read, Tx};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{FORBIDDEN, INVALID, NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Query},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenancy::{
    apps::ApplicationId,
    orgs::{Membership, Org, Role},
};

use super::{
    api::MERCHANT_BUSY,
    events::{MerchantDisconnected, MerchantUpdated},
    model::{Merchant, MerchantId},
};
use crate::{billing::payer_of_app, keyed::KeyedSession, plans::Plans};

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "the processor says each of them on its own")]
pub struct MerchantView {
    account_id: MerchantId,
    app_id: ApplicationId,
    /// `created`, `onboarding`, `in_review`, `enabled`, `restricted`, `disabled` or `disconnected`
    status: String,
    charges_enabled: bool,
    payouts_enabled: bool,
    details_submitted: bool,
    /// currentlyDue, pastDue, deadline and disabledReason
    requirements: serde_json::Map<String, Value>,
    country: String,
    default_currency: Option<String>,
    display_name: Option<String>,
    /// The operator's share of a payment.
    fee_percent: String,
    fee_fixed: i64,
    livemode: bool,
    created_at: Timestamp,
}

impl MerchantView {
    pub fn of(janua: &Janua, merchant: Merchant) -> Self {
        let terms = &Plans::of(janua).connect;
        Self {
            account_id: merchant.id,
            app_id: merchant.app_id,
            status: merchant.status,
            charges_enabled: merchant.charges_enabled,
            payouts_enabled: merchant.payouts_enabled,
            details_submitted: merchant.details_submitted,
            requirements: merchant.requirements.as_object().cloned().unwrap_or_default(),
            country: merchant.country,
            default_currency: merchant.default_currency,
            display_name: merchant.display_name.or(merchant.business_name),
            fee_percent: terms.fee_percent.to_string(),
            fee_fixed: terms.fee_fixed,
            livemode: merchant.livemode,
            created_at: merchant.created_at,
        }
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MerchantList {
    accounts: Vec<MerchantView>,
    next_cursor: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MerchantQuery {
    pub app_id: Option<ApplicationId>,
    pub account_id: Option<MerchantId>,
}

/// A merchant, for a caller with at least this role in the organization of its app.
pub async fn reach(janua: &Janua, caller: &KeyedSession, id: MerchantId, least: Role) -> Result<Merchant> {
    let merchant = Merchant::find(&janua.db, id).await?.filter(|merchant| caller.means(merchant.app_id));
    let merchant = merchant.ok_or(NOT_FOUND)?;
    check_role(&janua.db, caller, &merchant, least).await?;
    Ok(merchant)
}

/// Locks a merchant that an admin reached before, and checks the role again, because it may have changed meanwhile.
pub async fn hold(tx: &mut Tx, caller: &KeyedSession, reached: &Merchant) -> Result<Merchant> {
    // The organization first, as its deletion does.
    if !Org::hold(tx, reached.org_id).await? {
        return Err(NOT_FOUND.into());
    }
    let merchant = Merchant::hold(tx, reached.id).await?.ok_or(NOT_FOUND)?;
    check_role(&mut *tx, caller, &merchant, Role::Admin).await?;
    Ok(merchant)
}

/// Stores what an admin changed, with a row of the audit log. Nothing is stored where no field is different.
pub async fn save_change(
    tx: &mut Tx,
    janua: &Janua,
    caller: &KeyedSession,
    merchant: &Merchant,
    fields: Vec<&'static str>,
) -> db::Result<()> {
    if fields.is_empty() {
        return Ok(());
    }
    merchant.save(tx, janua.clock.now()).await?;
    let event = MerchantUpdated { merchant: merchant.id, fields };
    caller.session.record_about(tx, janua, merchant.about(), &event).await
}

async fn check_role(from: impl Read, caller: &KeyedSession, merchant: &Merchant, least: Role) -> Result<()> {
    let account = caller.session.account().id;
    let membership = Membership::of(from, merchant.org_id, account).await?.ok_or(NOT_FOUND)?;
    if membership.role < least { Err(FORBIDDEN.into()) } else { Ok(()) }
}

pub async fn list_merchants(
    State(janua): State<Janua>,
    caller: KeyedSession,
    Query(query): Query<MerchantQuery>,
    page: Page,
) -> Result<Json<MerchantList>> {
    if let Some(id) = query.account_id {
        let merchant = reach(&janua, &caller, id, Role::Member).await?;
        if caller.app(query.app_id)?.is_some_and(|app| app != merchant.app_id) {
            return Err(NOT_FOUND.into());
        }
        return Ok(Json(MerchantList { accounts: vec![MerchantView::of(&janua, merchant)], next_cursor: None }));
    }
    let payer = payer_of_app(&janua, &caller, query.app_id, Role::Member).await?;
    let app = payer.app.as_ref().map(|app| app.id).ok_or(NOT_FOUND)?;
    let fetch = async |below, most| Merchant::page(&janua.db, app, &below, most).await;
    let key = |merchant: &Merchant| Key { at: merchant.created_at, id: merchant.id.to_string() };
    let Listed { rows, next_cursor } = page.list(&janua, "merchants", app, fetch, key).await?;
    let accounts = rows.into_iter().map(|merchant| MerchantView::of(&janua, merchant)).collect();
    Ok(Json(MerchantList { accounts, next_cursor }))
}

pub async fn disconnect(janua: &Janua, caller: &KeyedSession, id: MerchantId) -> Result<Json<MerchantView>> {
    let reached = reach(janua, caller, id, Role::Admin).await?;
    let merchant = transact!(janua, async |tx| {
        let mut merchant = hold(tx, caller, &reached).await?;
        if Merchant::is_busy(tx, id).await? {
            return Err(MERCHANT_BUSY.into());
        }
        if merchant.ended_at.is_none() {
            merchant.status = "disconnected".into();
            (merchant.charges_enabled, merchant.payouts_enabled) = (false, false);
            merchant.ended_at = Some(janua.clock.now());
            merchant.save(tx, janua.clock.now()).await?;
            let event = MerchantDisconnected { merchant: id };
            caller.session.record_about(tx, janua, merchant.about(), &event).await?;
        }
        Ok(merchant)
    })?;
    Ok(Json(MerchantView::of(janua, merchant)))
}

pub async fn delete_merchant_account(
    State(janua): State<Janua>,
    caller: KeyedSession,
    Query(query): Query<MerchantQuery>,
) -> Result<Json<MerchantView>> {
    let id = query.account_id.ok_or_else(|| INVALID.at("accountId", "required", "is required"))?;
    disconnect(&janua, &caller, id).await
}
