//! One merchant: details, payouts, links to its account, and changes.
use axum::extract::State;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{INVALID, NOT_FOUND, Result},
    http::{Json, Path},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::orgs::Role;

use super::{
    api::MERCHANT_NOT_READY,
    checkout::is_currency,
    events::MerchantLinkOpened,
    merchants::{MerchantView, disconnect, hold, reach, save_change},
    model::{Merchant, MerchantId},
    onboarding::onboarding_link,
    rules,
};
use crate::{keyed::KeyedSession, payments::Payments};

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MerchantPath {
    account_id: MerchantId,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MerchantDetails {
    #[serde(flatten)]
    account: MerchantView,
    payouts: Vec<PayoutView>,
    /// A link that was asked for. It works once and for a few minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PayoutView {
    amount: i64,
    currency: String,
    status: String,
    created_at: Timestamp,
}

async fn details(janua: &Janua, merchant: Merchant, url: Option<String>) -> Result<Json<MerchantDetails>> {
    let payouts = Merchant::payouts(&janua.db, merchant.id).await?.into_iter().map(|payout| PayoutView {
        amount: payout.amount,
        currency: payout.currency,
        status: payout.status,
        created_at: payout.created_at,
    });
    Ok(Json(MerchantDetails { payouts: payouts.collect(), account: MerchantView::of(janua, merchant), url }))
}

pub async fn show_merchant(
    State(janua): State<Janua>,
    caller: KeyedSession,
    Path(path): Path<MerchantPath>,
) -> Result<Json<MerchantDetails>> {
    let merchant = reach(&janua, &caller, path.account_id, Role::Member).await?;
    details(&janua, merchant, None).await
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum MerchantAction {
    LoginLink,
    OnboardingLink,
    Refresh,
}

#[derive(Deserialize, JsonSchema)]
pub struct MerchantAct {
    action: MerchantAction,
}

pub async fn act_on_merchant(
    State(janua): State<Janua>,
    caller: KeyedSession,
    Path(path): Path<MerchantPath>,
    Json(act): Json<MerchantAct>,
) -> Result<Json<MerchantDetails>> {
    let driver = Payments::required(&janua)?;
    let merchant = reach(&janua, &caller, path.account_id, Role::Admin).await?;
    match act.action {
        MerchantAction::Refresh => {
            let merchant = rules::sync_account(&janua, driver, merchant.id).await?.ok_or(NOT_FOUND)?;
            details(&janua, merchant, None).await
        }
        MerchantAction::OnboardingLink => {
            let (url, _) = onboarding_link(&janua, driver, &caller.session, &merchant).await?;
            details(&janua, merchant, Some(url)).await
        }
        MerchantAction::LoginLink => {
            let account = merchant.account.clone().ok_or(MERCHANT_NOT_READY)?;
            let event = MerchantLinkOpened { merchant: merchant.id, link: "login".into() };
            transact!(janua, async |tx| {
                Ok(caller.session.record_about(tx, &janua, merchant.about(), &event).await?)
            })?;
            let key = format!("janua-{}-login-{}", merchant.id, janua.entropy.uuid(janua.clock.now()));
            let url = driver.login_link(&janua, &key, &account).await?;
            details(&janua, merchant, Some(url)).await
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MerchantChange {
    #[schemars(length(min = 1, max = 200))]
    display_name: Option<String>,
    #[schemars(length(min = 3, max = 3))]
    default_currency: Option<String>,
}

impl MerchantChange {
    /// Changes the merchant, and answers which of its fields are different now.
    fn apply(&self, merchant: &mut Merchant) -> Vec<&'static str> {
        let mut fields = vec![];
        if self.display_name.is_some() && self.display_name != merchant.display_name {
            merchant.display_name.clone_from(&self.display_name);
            fields.push("displayName");
        }
        if self.default_currency.is_some() && self.default_currency != merchant.default_currency {
            merchant.default_currency.clone_from(&self.default_currency);
            fields.push("defaultCurrency");
        }
        fields
    }
}

pub async fn change_merchant(
    State(janua): State<Janua>,
    caller: KeyedSession,
    Path(path): Path<MerchantPath>,
    Json(change): Json<MerchantChange>,
) -> Result<Json<MerchantDetails>> {
    let reached = reach(&janua, &caller, path.account_id, Role::Admin).await?;
    if change.default_currency.as_deref().is_some_and(|code| !is_currency(code)) {
        return Err(INVALID.at("defaultCurrency", "wrong_form", "must be a currency in lower case, such as usd"));
    }
    let merchant = transact!(janua, async |tx| {
        let mut merchant = hold(tx, &caller, &reached).await?;
        let fields = change.apply(&mut merchant);
        save_change(tx, &janua, &caller, &merchant, fields).await?;
        Ok(merchant)
    })?;
    details(&janua, merchant, None).await
}

pub async fn delete_merchant(
    State(janua): State<Janua>,
    caller: KeyedSession,
    Path(path): Path<MerchantPath>,
) -> Result<Json<MerchantView>> {
    disconnect(&janua, &caller, path.account_id).await
}
