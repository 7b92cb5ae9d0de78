//! `/connect`: merchants of an app, their onboarding, and payments to them.
use axum::{
    extract::{FromRequestParts, State},
    http::{HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::{self, Secret},
    fault::{
        BAD_CURSOR, Code, FORBIDDEN, Fault, IDEMPOTENCY_KEY_REQUIRED, IDEMPOTENCY_MISMATCH, INVALID, NOT_FOUND,
        Result, UNAUTHENTICATED,
    },
    http::{
        GenContext, Json, Key, Listed, Operation, OperationInput, Page, Path, Query, Routes, Scope, may_answer,
        requires,
    },
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenancy::{
    apps::{Application, ApplicationId, KeyKind},
    enter::{AppKey, Session},
    once::{self, TOKEN_SPENT},
    orgs::{Membership, Role},
};

use super::{
    RETURN,
    events::{MerchantDisconnected, MerchantLinkOpened},
    model::{Merchant, MerchantId, MerchantPayment, PaymentId, Refund, RefundId},
    rules,
};
use crate::{
    billing::{
        payer_of_app,
        urls::{REDIRECT_NOT_ALLOWED, checked},
    },
    payments::{Driver, NOT_CONFIGURED, Payments, wire},
    plans::Plans,
    usage::SECRET_KEY_REQUIRED,
};

pub const MERCHANT_BUSY: Code =
    Code::new(409, "merchant_busy", "Payments or refunds of this merchant are under way. Wait until they ended.");
pub const MERCHANT_NOT_READY: Code =
    Code::new(409, "merchant_not_ready", "The merchant cannot be paid yet. Finish the onboarding first.");
pub const NOT_REFUNDABLE: Code =
    Code::new(409, "not_refundable", "More than what is left of the payment cannot go back.");

const COMMON: &[Code] = &[
    NOT_FOUND,
    FORBIDDEN,
    NOT_CONFIGURED,
    REDIRECT_NOT_ALLOWED,
    MERCHANT_BUSY,
    MERCHANT_NOT_READY,
    wire::REFUSED,
    wire::AWAY,
];

pub fn routes() -> Routes {
    Routes::new("connect")
        .each(|routes| routes.fails(COMMON))
        .get("/connect/onboard/accounts", list_merchants, "merchants of an app, or one of them")
        .fails(&[BAD_CURSOR])
        .post("/connect/onboard/accounts", create_merchant, "create a merchant and a link to onboard")
        .patch("/connect/onboard/accounts", change_merchant_account, "change a merchant, or make a new link")
        .put("/connect/onboard/accounts", put_merchant_account, "change a merchant, or make a new link")
        .delete("/connect/onboard/accounts", delete_merchant_account, "disconnect a merchant")
        .get("/connect/onboard/done", return_from_onboarding, "where a merchant's browser comes back to")
        .fails(&[TOKEN_SPENT])
        .answers_nothing(303)
        .post("/connect/onboard/done", finish_onboarding, "read the merchant's account again")
        .get("/connect/merchants/{accountId}", show_merchant, "merchant details")
        .post("/connect/merchants/{accountId}", act_on_merchant, "a link to the merchant's account, or a fresh read")
        .patch("/connect/merchants/{accountId}", change_merchant, "change a merchant")
        .put("/connect/merchants/{accountId}", put_merchant, "change a merchant")
        .delete("/connect/merchants/{accountId}", delete_merchant, "disconnect a merchant")
        .each(|routes| routes.fails(COMMON).fails(&[SECRET_KEY_REQUIRED]))
        .get("/connect/checkout/sessions", list_payments, "payments to merchants, or one of them")
        .fails(&[BAD_CURSOR])
        .post("/connect/checkout/sessions", create_payment, "create a checkout for a merchant")
        .fails(&[IDEMPOTENCY_MISMATCH])
        .patch("/connect/checkout/sessions", change_payment, "expire or refund a payment")
        .fails(&[IDEMPOTENCY_KEY_REQUIRED, NOT_REFUNDABLE, IDEMPOTENCY_MISMATCH])
        .put("/connect/checkout/sessions", put_payment, "expire or refund a payment")
        .fails(&[IDEMPOTENCY_KEY_REQUIRED, NOT_REFUNDABLE, IDEMPOTENCY_MISMATCH])
        .delete("/connect/checkout/sessions", delete_payment, "expire a payment")
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "the processor says each of them on its own")]
struct MerchantView {
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
    fn of(janua: &Janua, merchant: Merchant) -> Self {
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
struct MerchantList {
    accounts: Vec<MerchantView>,
    next_cursor: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MerchantQuery {
    app_id: Option<ApplicationId>,
    account_id: Option<MerchantId>,
}

/// A merchant, for a caller with at least this role in the organization of its app.
async fn reach(janua: &Janua, session: &Session, id: MerchantId, least: Role) -> Result<Merchant> {
    let merchant = Merchant::find(&janua.db, id).await?.ok_or(NOT_FOUND)?;
    let membership = Membership::of(&janua.db, merchant.org_id, session.account().id).await?.ok_or(NOT_FOUND)?;
    if membership.role < least { Err(FORBIDDEN.into()) } else { Ok(merchant) }
}

async fn list_merchants(
    State(janua): State<Janua>,
    session: Session,
    Query(query): Query<MerchantQuery>,
    page: Page,
) -> Result<Json<MerchantList>> {
    if let Some(id) = query.account_id {
        let merchant = reach(&janua, &session, id, Role::Member).await?;
        if query.app_id.is_some_and(|app| app != merchant.app_id) {
            return Err(NOT_FOUND.into());
        }
        return Ok(Json(MerchantList { accounts: vec![MerchantView::of(&janua, merchant)], next_cursor: None }));
    }
    let payer = payer_of_app(&janua, &session, query.app_id, Role::Member).await?;
    let app = payer.app.as_ref().map(|app| app.id).ok_or(NOT_FOUND)?;
    let fetch = async |below, most| Merchant::page(&janua.db, app, &below, most).await;
    let key = |merchant: &Merchant| Key { at: merchant.created_at, id: merchant.id.to_string() };
    let Listed { rows, next_cursor } = page.list(&janua, "merchants", app, fetch, key).await?;
    let accounts = rows.into_iter().map(|merchant| MerchantView::of(&janua, merchant)).collect();
    Ok(Json(MerchantList { accounts, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewMerchant {
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
struct OnboardingView {
    account: MerchantView,
    onboarding_url: Option<String>,
    expires_at: Option<Timestamp>,
}

async fn create_merchant(
    State(janua): State<Janua>,
    session: Session,
    Json(new): Json<NewMerchant>,
) -> Result<Json<OnboardingView>> {
    let driver = Payments::required(&janua)?;
    let payer = payer_of_app(&janua, &session, new.app_id, Role::Admin).await?;
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
        payer.hold(tx, &session).await?;
        Ok(merchant.insert(tx).await?)
    })?;
    let merchant = rules::create_account(&janua, driver, &merchant).await?;
    let (url, expires_at) = onboarding_link(&janua, driver, &session, &merchant).await?;
    let account = MerchantView::of(&janua, merchant);
    Ok(Json(OnboardingView { account, onboarding_url: Some(url), expires_at: Some(expires_at) }))
}

/// A link that leads to the processor and back here, once.
async fn onboarding_link(
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
struct AccountChange {
    account_id: MerchantId,
    #[schemars(length(max = 254), email)]
    email: Option<String>,
    #[schemars(length(min = 1, max = 200))]
    business_name: Option<String>,
    /// Makes another link to onboard.
    new_link: Option<bool>,
}

async fn change_account(janua: &Janua, session: &Session, change: AccountChange) -> Result<Json<OnboardingView>> {
    let driver = Payments::required(janua)?;
    reach(janua, session, change.account_id, Role::Admin).await?;
    let merchant = transact!(janua, async |tx| {
        let mut merchant = Merchant::hold(tx, change.account_id).await?.ok_or(NOT_FOUND)?;
        if change.email.is_some() {
            merchant.email.clone_from(&change.email);
        }
        if change.business_name.is_some() {
            merchant.business_name.clone_from(&change.business_name);
        }
        merchant.save(tx, janua.clock.now()).await?;
        Ok(merchant)
    })?;
    let link = match change.new_link {
        Some(true) => Some(onboarding_link(janua, driver, session, &merchant).await?),
        _ => None,
    };
    let (onboarding_url, expires_at) = link.map_or((None, None), |(url, at)| (Some(url), Some(at)));
    Ok(Json(OnboardingView { account: MerchantView::of(janua, merchant), onboarding_url, expires_at }))
}

async fn change_merchant_account(
    State(janua): State<Janua>,
    session: Session,
    Json(change): Json<AccountChange>,
) -> Result<Json<OnboardingView>> {
    change_account(&janua, &session, change).await
}

async fn put_merchant_account(
    State(janua): State<Janua>,
    session: Session,
    Json(change): Json<AccountChange>,
) -> Result<Json<OnboardingView>> {
    change_account(&janua, &session, change).await
}

async fn disconnect(janua: &Janua, session: &Session, id: MerchantId) -> Result<Json<MerchantView>> {
    reach(janua, session, id, Role::Admin).await?;
    let merchant = transact!(janua, async |tx| {
        let mut merchant = Merchant::hold(tx, id).await?.ok_or(NOT_FOUND)?;
        if Merchant::is_busy(tx, id).await? {
            return Err(MERCHANT_BUSY.into());
        }
        if merchant.ended_at.is_none() {
            merchant.status = "disconnected".into();
            (merchant.charges_enabled, merchant.payouts_enabled) = (false, false);
            merchant.ended_at = Some(janua.clock.now());
            merchant.save(tx, janua.clock.now()).await?;
            session.record_about(tx, janua, merchant.about(), &MerchantDisconnected { merchant: id }).await?;
        }
        Ok(merchant)
    })?;
    Ok(Json(MerchantView::of(janua, merchant)))
}

async fn delete_merchant_account(
    State(janua): State<Janua>,
    session: Session,
    Query(query): Query<MerchantQuery>,
) -> Result<Json<MerchantView>> {
    let id = query.account_id.ok_or_else(|| INVALID.at("accountId", "required", "is required"))?;
    disconnect(&janua, &session, id).await
}

#[derive(Deserialize, JsonSchema)]
struct ReturnQuery {
    #[schemars(length(min = 1, max = 200))]
    state: String,
}

async fn return_from_onboarding(
    State(janua): State<Janua>,
    session: Session,
    Query(query): Query<ReturnQuery>,
) -> Result<Response> {
    let driver = Payments::required(&janua)?;
    let state = Secret::from(query.state);
    let now = janua.clock.now();
    // Looked at first: another person who has the link does not use it up.
    let owner = once::look(&janua.db, RETURN, &state, now).await?.and_then(|kept| kept.account_id);
    if owner != Some(session.account().id) {
        return Err(TOKEN_SPENT.into());
    }
    let spent = transact!(janua, async |tx| Ok(once::spend(tx, RETURN, &state, now).await?))?.ok_or(TOKEN_SPENT)?;
    let aside = spent.aside(&janua).and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let id: MerchantId = aside.parse().map_err(|_| TOKEN_SPENT)?;
    reach(&janua, &session, id, Role::Admin).await?;
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
struct OnboardingDone {
    account_id: MerchantId,
}

async fn finish_onboarding(
    State(janua): State<Janua>,
    session: Session,
    Json(done): Json<OnboardingDone>,
) -> Result<Json<MerchantView>> {
    let driver = Payments::required(&janua)?;
    reach(&janua, &session, done.account_id, Role::Admin).await?;
    let merchant = rules::sync_account(&janua, driver, done.account_id).await?.ok_or(NOT_FOUND)?;
    Ok(Json(MerchantView::of(&janua, merchant)))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MerchantPath {
    account_id: MerchantId,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MerchantDetails {
    #[serde(flatten)]
    account: MerchantView,
    payouts: Vec<PayoutView>,
    /// A link that was asked for. It works once and for a few minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PayoutView {
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

async fn show_merchant(
    State(janua): State<Janua>,
    session: Session,
    Path(path): Path<MerchantPath>,
) -> Result<Json<MerchantDetails>> {
    let merchant = reach(&janua, &session, path.account_id, Role::Member).await?;
    details(&janua, merchant, None).await
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum MerchantAction {
    LoginLink,
    OnboardingLink,
    Refresh,
}

#[derive(Deserialize, JsonSchema)]
struct MerchantAct {
    action: MerchantAction,
}

async fn act_on_merchant(
    State(janua): State<Janua>,
    session: Session,
    Path(path): Path<MerchantPath>,
    Json(act): Json<MerchantAct>,
) -> Result<Json<MerchantDetails>> {
    let driver = Payments::required(&janua)?;
    let merchant = reach(&janua, &session, path.account_id, Role::Admin).await?;
    match act.action {
        MerchantAction::Refresh => {
            let merchant = rules::sync_account(&janua, driver, merchant.id).await?.ok_or(NOT_FOUND)?;
            details(&janua, merchant, None).await
        }
        MerchantAction::OnboardingLink => {
            let (url, _) = onboarding_link(&janua, driver, &session, &merchant).await?;
            details(&janua, merchant, Some(url)).await
        }
        MerchantAction::LoginLink => {
            let account = merchant.account.clone().ok_or(MERCHANT_NOT_READY)?;
            let event = MerchantLinkOpened { merchant: merchant.id, link: "login".into() };
            transact!(janua, async |tx| Ok(session.record_about(tx, &janua, merchant.about(), &event).await?))?;
            let key = format!("janua-{}-login-{}", merchant.id, janua.entropy.uuid(janua.clock.now()));
            let url = driver.login_link(&janua, &key, &account).await?;
            details(&janua, merchant, Some(url)).await
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MerchantChange {
    #[schemars(length(min = 1, max = 200))]
    display_name: Option<String>,
    #[schemars(length(min = 3, max = 3))]
    default_currency: Option<String>,
}

async fn apply_change(
    janua: &Janua,
    session: &Session,
    id: MerchantId,
    change: MerchantChange,
) -> Result<Json<MerchantDetails>> {
    reach(janua, session, id, Role::Admin).await?;
    if change.default_currency.as_deref().is_some_and(|code| !is_currency(code)) {
        return Err(INVALID.at("defaultCurrency", "wrong_form", "must be a currency in lower case, such as usd"));
    }
    let merchant = transact!(janua, async |tx| {
        let mut merchant = Merchant::hold(tx, id).await?.ok_or(NOT_FOUND)?;
        merchant.display_name = change.display_name.clone().or(merchant.display_name);
        merchant.default_currency = change.default_currency.clone().or(merchant.default_currency);
        merchant.save(tx, janua.clock.now()).await?;
        Ok(merchant)
    })?;
    details(janua, merchant, None).await
}

async fn change_merchant(
    State(janua): State<Janua>,
    session: Session,
    Path(path): Path<MerchantPath>,
    Json(change): Json<MerchantChange>,
) -> Result<Json<MerchantDetails>> {
    apply_change(&janua, &session, path.account_id, change).await
}

async fn put_merchant(
    State(janua): State<Janua>,
    session: Session,
    Path(path): Path<MerchantPath>,
    Json(change): Json<MerchantChange>,
) -> Result<Json<MerchantDetails>> {
    apply_change(&janua, &session, path.account_id, change).await
}

async fn delete_merchant(
    State(janua): State<Janua>,
    session: Session,
    Path(path): Path<MerchantPath>,
) -> Result<Json<MerchantView>> {
    disconnect(&janua, &session, path.account_id).await
}

/// Who may say what a merchant's customer pays: a member of the app's organization, or a secret key of the app.
enum Seller {
    Member(Box<Session>),
    Key(ApplicationId),
}

impl FromRequestParts<Janua> for Seller {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let has_session =
            parts.headers.contains_key(header::AUTHORIZATION) || parts.headers.contains_key(header::COOKIE);
        let is_within = parts.extensions.get::<tenancy::enter::Within>().is_some();
        if !has_session && !is_within && parts.headers.contains_key("x-service-app-key") {
            let AppKey(keyed) = AppKey::from_request_parts(parts, janua).await?;
            return if keyed.kind == KeyKind::Secret {
                Ok(Self::Key(keyed.app_id))
            } else {
                Err(SECRET_KEY_REQUIRED.into())
            };
        }
        Session::from_request_parts(parts, janua).await.map(|session| Self::Member(Box::new(session)))
    }
}

impl OperationInput for Seller {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Session::operation_input(ctx, operation);
        requires(operation, &["appKey"]);
        may_answer(operation, &[UNAUTHENTICATED, SECRET_KEY_REQUIRED]);
    }
}

impl Seller {
    /// The app that is named, if the caller may.
    async fn app(&self, janua: &Janua, named: Option<ApplicationId>, least: Role) -> Result<Application> {
        match self {
            Self::Member(session) => {
                payer_of_app(janua, session, named, least).await?.app.ok_or_else(|| NOT_FOUND.into())
            }
            Self::Key(app) if named.is_none_or(|named| named == *app) => {
                Application::find(&janua.db, *app).await?.ok_or_else(|| NOT_FOUND.into())
            }
            Self::Key(_) => Err(NOT_FOUND.into()),
        }
    }

    async fn payment(&self, janua: &Janua, id: PaymentId, least: Role) -> Result<MerchantPayment> {
        let payment = MerchantPayment::find(&janua.db, id).await?.ok_or(NOT_FOUND)?;
        self.app(janua, Some(payment.app_id), least).await?;
        Ok(payment)
    }
}

/// The caller's `Idempotency-Key`, as a digest.
struct RequestKey(Option<String>);

impl FromRequestParts<Janua> for RequestKey {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &Janua) -> Result<Self> {
        let key = parts.headers.get("idempotency-key").map(|value| crypto::hash(value.as_bytes()));
        Ok(Self(key))
    }
}

impl OperationInput for RequestKey {}

#[derive(Deserialize, Serialize, JsonSchema)]
struct PaymentItem {
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
struct NewPayment {
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
enum ChargeType {
    Direct,
    Destination,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PaymentView {
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
struct PaymentList {
    sessions: Vec<PaymentView>,
    next_cursor: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PaymentQuery {
    id: Option<PaymentId>,
    app_id: Option<ApplicationId>,
    account_id: Option<MerchantId>,
    #[schemars(length(max = 32))]
    status: Option<String>,
}

async fn list_payments(
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

fn is_currency(code: &str) -> bool {
    code.len() == 3 && code.bytes().all(|b| b.is_ascii_lowercase())
}

async fn create_payment(
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

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum PaymentAction {
    Expire,
    Refund,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PaymentChange {
    id: PaymentId,
    action: PaymentAction,
    /// What goes back, in minor units; left out: all that is left.
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

async fn alter(
    janua: &Janua,
    seller: &Seller,
    key: Option<String>,
    change: PaymentChange,
) -> Result<Json<PaymentView>> {
    let payment = seller.payment(janua, change.id, Role::Admin).await?;
    match change.action {
        PaymentAction::Expire => expire(janua, payment).await,
        PaymentAction::Refund => refund(janua, payment, &change, key).await,
    }
}

async fn change_payment(
    State(janua): State<Janua>,
    seller: Seller,
    RequestKey(key): RequestKey,
    Json(change): Json<PaymentChange>,
) -> Result<Json<PaymentView>> {
    alter(&janua, &seller, key, change).await
}

async fn put_payment(
    State(janua): State<Janua>,
    seller: Seller,
    RequestKey(key): RequestKey,
    Json(change): Json<PaymentChange>,
) -> Result<Json<PaymentView>> {
    alter(&janua, &seller, key, change).await
}

async fn delete_payment(
    State(janua): State<Janua>,
    seller: Seller,
    Query(query): Query<PaymentQuery>,
) -> Result<Json<PaymentView>> {
    let id = query.id.ok_or_else(|| INVALID.at("id", "required", "is required"))?;
    let payment = seller.payment(&janua, id, Role::Admin).await?;
    expire(&janua, payment).await
}
