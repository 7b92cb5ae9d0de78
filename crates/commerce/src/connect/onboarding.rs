//! From a new merchant to one that can be paid: the account at the processor, and the way there and back.
use axum::{
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::{self, Secret},
    fault::{INVALID, NOT_FOUND, Result},
    http::{Json, Query},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::{
    apps::ApplicationId,
    enter::Session,
    once::{self, TOKEN_SPENT},
    orgs::Role,
};

use super::{
    RETURN,
    api::MERCHANT_NOT_READY,
    events::MerchantLinkOpened,
    merchants::{MerchantView, hold, reach, save_change},
    model::{Merchant, MerchantId},
    rules,
};
use crate::{
    billing::{payer_of_app, urls::checked},
    keyed::KeyedSession,
    payments::{Driver, Payments},
};

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewMerchant {
    app_id: Option<ApplicationId>,
    /// Two letters, such as DE.
    #[schemars(length(min = 2, max = 2))]
    country: String,
    #[schemars(length(max = 254), email)]
    email: Option<String>,
    #[schemars(length(min = 1, max = 200))]
    business_name: Option<String>,
    return_url: Option<String>,
    refresh_url: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OnboardingView {
    account: MerchantView,
    onboarding_url: Option<String>,
    expires_at: Option<Timestamp>,
}

pub async fn create_merchant(
    State(janua): State<Janua>,
    caller: KeyedSession,
    Json(new): Json<NewMerchant>,
) -> Result<Json<OnboardingView>> {
    let driver = Payments::required(&janua)?;
    let payer = payer_of_app(&janua, &caller, new.app_id, Role::Admin).await?;
    let app = payer.app.clone().ok_or(NOT_FOUND)?;
    if !new.country.bytes().all(|b| b.is_ascii_uppercase()) {
        return Err(INVALID.at("country", "wrong_form", "must be two capital letters such as DE"));
    }
    let apps = [app];
    let page = format!("/console/apps/{}/merchants", apps[0].id);
    let return_url = checked(&janua, &apps, "returnUrl", new.return_url.as_deref(), &page)?;
    let refresh_url = checked(&janua, &apps, "refreshUrl", new.refresh_url.as_deref(), &page)?;
    let now = janua.clock.now();
    let merchant = Merchant {
        id: MerchantId::new(&janua.entropy, now),
        app_id: apps[0].id,
        org_id: payer.org.id,
        account: None,
        livemode: driver.livemode,
        status: "created".into(),
        charges_enabled: false,
        payouts_enabled: false,
        details_submitted: false,
        requirements: json!({ "currentlyDue": [], "pastDue": [], "deadline": null, "disabledReason": null }),
        country: new.country,
        email: new.email,
        display_name: new.business_name.clone(),
        business_name: new.business_name,
        default_currency: None,
        return_url,
        refresh_url,
        applied: 0,
        created_at: now,
        ended_at: None,
    };
    transact!(janua, async |tx| {
        payer.hold(tx, &caller.session).await?;
        Ok(merchant.insert(tx).await?)
    })?;
    let merchant = rules::create_account(&janua, driver, &merchant).await?;
    let (url, expires_at) = onboarding_link(&janua, driver, &caller.session, &merchant).await?;
    let account = MerchantView::of(&janua, merchant);
    Ok(Json(OnboardingView { account, onboarding_url: Some(url), expires_at: Some(expires_at) }))
}

/// A link that leads to the processor and back here, once.
pub async fn onboarding_link(
    janua: &Janua,
    driver: &Driver,
    session: &Session,
    merchant: &Merchant,
) -> Result<(String, Timestamp)> {
    let account = merchant.account.as_deref().ok_or(MERCHANT_NOT_READY)?;
    let event = MerchantLinkOpened { merchant: merchant.id, link: "onboarding".into() };
    let state = transact!(janua, async |tx| {
        let aside = merchant.id.to_string();
        let state = once::issue(tx, janua, RETURN, Some(session.account().id), aside.as_bytes()).await?;
        session.record_about(tx, janua, merchant.about(), &event).await?;
        Ok(state)
    })?;
    let back = format!("{}/connect/onboard/done?state={}", janua.config.base_url(), state.expose());
    let key = format!("janua-{}-link-{}", merchant.id, crypto::hash(state.expose().as_bytes()));
    Ok(driver.account_link(janua, &key, account, &merchant.refresh_url, &back).await?)
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountChange {
    account_id: MerchantId,
    #[schemars(length(max = 254), email)]
    email: Option<String>,
    #[schemars(length(min = 1, max = 200))]
    business_name: Option<String>,
    /// Makes another link to onboard.
    new_link: Option<bool>,
}

impl AccountChange {
    /// Changes the merchant, and answers which of its fields are different now.
    fn apply(&self, merchant: &mut Merchant) -> Vec<&'static str> {
        let mut fields = vec![];
        if self.email.is_some() && self.email != merchant.email {
            merchant.email.clone_from(&self.email);
            fields.push("email");
        }
        if self.business_name.is_some() && self.business_name != merchant.business_name {
            merchant.business_name.clone_from(&self.business_name);
            fields.push("businessName");
        }
        fields
    }
}

pub async fn change_merchant_account(
    State(janua): State<Janua>,
    caller: KeyedSession,
    Json(change): Json<AccountChange>,
) -> Result<Json<OnboardingView>> {
    let driver = Payments::required(&janua)?;
    let reached = reach(&janua, &caller, change.account_id, Role::Admin).await?;
    let merchant = transact!(janua, async |tx| {
        let mut merchant = hold(tx, &caller, &reached).await?;
        let fields = change.apply(&mut merchant);
        save_change(tx, &janua, &caller, &merchant, fields).await?;
        Ok(merchant)
    })?;
    let link = match change.new_link {
        Some(true) => Some(onboarding_link(&janua, driver, &caller.session, &merchant).await?),
        _ => None,
    };
    let (onboarding_url, expires_at) = link.map_or((None, None), |(url, at)| (Some(url), Some(at)));
    Ok(Json(OnboardingView { account: MerchantView::of(&janua, merchant), onboarding_url, expires_at }))
}

#[derive(Deserialize, JsonSchema)]
pub struct ReturnQuery {
    #[schemars(length(min = 1, max = 200))]
    state: String,
}

pub async fn return_from_onboarding(
    State(janua): State<Janua>,
    caller: KeyedSession,
    Query(query): Query<ReturnQuery>,
) -> Result<Response> {
    let driver = Payments::required(&janua)?;
    let state = Secret::from(query.state);
    let now = janua.clock.now();
    // Looked at first: another person who has the link does not use it up.
    let owner = once::look(&janua.db, RETURN, &state, now).await?.and_then(|kept| kept.account_id);
    if owner != Some(caller.session.account().id) {
        return Err(TOKEN_SPENT.into());
    }
    let spent = transact!(janua, async |tx| Ok(once::spend(tx, RETURN, &state, now).await?))?.ok_or(TOKEN_SPENT)?;
    let aside = spent.aside(&janua).and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let id: MerchantId = aside.parse().map_err(|_| TOKEN_SPENT)?;
    reach(&janua, &caller, id, Role::Admin).await?;
    let merchant = rules::sync_account(&janua, driver, id).await?.ok_or(NOT_FOUND)?;
    let joint = if merchant.return_url.contains('?') { '&' } else { '?' };
    let to = format!("{}{joint}status={}", merchant.return_url, merchant.status);
    let mut response = StatusCode::SEE_OTHER.into_response();
    let to = HeaderValue::try_from(to).map_err(|_| NOT_FOUND)?;
    response.headers_mut().insert(header::LOCATION, to);
    Ok(response)
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OnboardingDone {
    account_id: MerchantId,
}

pub async fn finish_onboarding(
    State(janua): State<Janua>,
    caller: KeyedSession,
    Json(done): Json<OnboardingDone>,
) -> Result<Json<MerchantView>> {
    let driver = Payments::required(&janua)?;
    reach(&janua, &caller, done.account_id, Role::Admin).await?;
    let merchant = rules::sync_account(&janua, driver, done.account_id).await?.ok_or(NOT_FOUND)?;
    Ok(Json(MerchantView::of(&janua, merchant)))
}
