//! The routes of `/billing`: organizations and apps share one set of rules.
use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, FORBIDDEN, INVALID, NOT_FOUND, Result},
    http::{Json, MaybeJson, Query, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::{Application, ApplicationId},
    enter::{REAUTHENTICATION_REQUIRED, Session},
    orgs::{OrgId, Role},
};

use super::{
    access::{self, Payer},
    apply,
    checkout::{self, ALREADY_ON_PLAN, CHECKOUT_OPEN, DOWNGRADE_BLOCKED, NOT_CONNECTED, UNKNOWN_PRICE, Wish},
    events::{AppConnected, PortalOpened},
    model::{CheckoutId, Subject},
    prices::{self, NOT_FOR_SALE},
    urls::{REDIRECT_NOT_ALLOWED, checked},
    view::BillingView,
};
use crate::{
    keyed::KeyedSession,
    payments::{Driver, NOT_CONFIGURED, Payments, wire},
    plans::UNKNOWN_PLAN,
    usage::ORG_REQUIRED,
};

pub const NOT_SUBSCRIBED: Code = Code::new(409, "not_subscribed", "There is no subscription, and no customer yet.");

/// How long a link to the portal is good.
const PORTAL_MS: i64 = 5 * 60 * 1000;

const OF_CHECKOUT: &[Code] = &[
    ORG_REQUIRED,
    NOT_FOUND,
    FORBIDDEN,
    UNKNOWN_PLAN,
    UNKNOWN_PRICE,
    NOT_FOR_SALE,
    ALREADY_ON_PLAN,
    DOWNGRADE_BLOCKED,
    NOT_CONNECTED,
    CHECKOUT_OPEN,
    REDIRECT_NOT_ALLOWED,
    NOT_CONFIGURED,
    wire::REFUSED,
    wire::AWAY,
];
const OF_PORTAL: &[Code] = &[
    ORG_REQUIRED,
    NOT_FOUND,
    FORBIDDEN,
    NOT_SUBSCRIBED,
    REDIRECT_NOT_ALLOWED,
    NOT_CONFIGURED,
    wire::REFUSED,
    wire::AWAY,
];

pub fn routes() -> Routes {
    Routes::new("billing")
        .get("/billing/org", org_billing, "the org's billing plan")
        .fails(&[ORG_REQUIRED, NOT_FOUND, FORBIDDEN])
        .post("/billing/org/checkout", buy_org_plan, "checkout for an org plan upgrade")
        .fails(OF_CHECKOUT)
        .post("/billing/org/portal", open_org_portal, "customer portal for org billing")
        .fails(OF_PORTAL)
        .post("/billing/org/cancel", cancel_org_plan, "cancel the active subscription")
        .fails(OF_PORTAL)
        .fails(&[REAUTHENTICATION_REQUIRED])
        .post("/billing/checkout-session", buy_org_plan_legacy, "create a checkout session (legacy)")
        .fails(OF_CHECKOUT)
        .answers::<LegacySession>(200, "application/json")
        .post("/billing/portal-session", open_org_portal_legacy, "open the customer portal (legacy)")
        .fails(OF_PORTAL)
        .answers::<LegacySession>(200, "application/json")
        .post("/billing/app/connect", connect_app, "connect an app to billing")
        .fails(&[NOT_FOUND, FORBIDDEN, NOT_CONFIGURED, wire::REFUSED, wire::AWAY])
        .get("/billing/app", app_billing, "the app's billing record")
        .fails(&[NOT_FOUND, FORBIDDEN])
        .post("/billing/app/checkout", buy_app_plan, "checkout for an app plan")
        .fails(OF_CHECKOUT)
        .post("/billing/app/portal", open_app_portal, "customer portal for app billing")
        .fails(OF_PORTAL)
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OfOrg {
    org_id: Option<OrgId>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OfApp {
    app_id: Option<ApplicationId>,
}

/// A plan to buy. Amounts come from the plan and from nowhere else.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewCheckout {
    org_id: Option<OrgId>,
    app_id: Option<ApplicationId>,
    #[schemars(length(min = 1, max = 64))]
    plan: String,
    /// month or year; left out: month.
    interval: Option<String>,
    #[schemars(range(min = 1, max = 100_000))]
    seats: Option<i64>,
    success_url: Option<String>,
    cancel_url: Option<String>,
    /// Only tells what it would cost now.
    preview: Option<bool>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CheckoutView {
    checkout_id: Option<CheckoutId>,
    /// The URL to pay at; for a change that is done already, the URL to continue at.
    url: String,
    expires_at: Option<Timestamp>,
    /// new, or change of a subscription that is there
    kind: String,
    preview: Option<PreviewView>,
    livemode: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PreviewView {
    amount_due: i64,
    currency: String,
    proration_at: Timestamp,
}

async fn org_billing(
    State(janua): State<Janua>,
    session: Session,
    Query(of): Query<OfOrg>,
) -> Result<Json<BillingView>> {
    let payer = access::org(&janua, &session, of.org_id).await?;
    BillingView::read(&janua, &payer).await.map(Json)
}

async fn app_billing(
    State(janua): State<Janua>,
    caller: KeyedSession,
    Query(of): Query<OfApp>,
) -> Result<Json<BillingView>> {
    let payer = access::app(&janua, &caller, of.app_id, Role::Member).await?;
    BillingView::read(&janua, &payer).await.map(Json)
}

async fn buy(janua: &Janua, session: &Session, payer: &Payer, new: &NewCheckout) -> Result<CheckoutView> {
    let driver = Payments::required(janua)?;
    let apps = match &payer.app {
        Some(app) => vec![app.clone()],
        None => Application::of_org(&janua.db, payer.org.id).await?,
    };
    let wish = Wish {
        plan: &new.plan,
        interval: new.interval.as_deref().unwrap_or("month"),
        seats: new.seats,
        success_url: new.success_url.as_deref(),
        cancel_url: new.cancel_url.as_deref(),
        is_preview: new.preview.unwrap_or_default(),
    };
    let bought = checkout::buy(janua, driver, session, payer, &apps, &wish).await?;
    Ok(CheckoutView {
        checkout_id: bought.checkout.as_ref().map(|checkout| checkout.id),
        url: bought.url,
        expires_at: bought.checkout.and_then(|checkout| checkout.expires_at),
        kind: bought.kind.to_owned(),
        preview: bought.preview.map(|preview| PreviewView {
            amount_due: preview.amount_due,
            currency: preview.currency,
            proration_at: preview.at,
        }),
        livemode: driver.livemode,
    })
}

async fn buy_org_plan(
    State(janua): State<Janua>,
    session: Session,
    Query(of): Query<OfOrg>,
    Json(new): Json<NewCheckout>,
) -> Result<Json<CheckoutView>> {
    let payer = access::org(&janua, &session, new.org_id.or(of.org_id)).await?;
    buy(&janua, &session, &payer, &new).await.map(Json)
}

async fn buy_app_plan(
    State(janua): State<Janua>,
    caller: KeyedSession,
    Json(new): Json<NewCheckout>,
) -> Result<Json<CheckoutView>> {
    let payer = access::app(&janua, &caller, new.app_id, Role::Admin).await?;
    buy(&janua, &caller.session, &payer, &new).await.map(Json)
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
struct NewPortal {
    org_id: Option<OrgId>,
    app_id: Option<ApplicationId>,
    return_url: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PortalView {
    url: String,
    expires_at: Timestamp,
    livemode: bool,
}

async fn open_portal(
    janua: &Janua,
    session: &Session,
    payer: &Payer,
    return_url: Option<&str>,
) -> Result<PortalView> {
    let driver = Payments::required(janua)?;
    let apps = match &payer.app {
        Some(app) => vec![app.clone()],
        None => Application::of_org(&janua.db, payer.org.id).await?,
    };
    let back = checked(janua, &apps, "returnUrl", return_url, &payer.page())?;
    let subject = Subject::of(&janua.db, payer.org.id, &payer.app_key()).await?.ok_or(NOT_SUBSCRIBED)?;
    let is_of_driver = subject.processor == driver.kind.name() && subject.livemode == driver.livemode;
    let customer = subject.customer.as_deref().filter(|_| is_of_driver).ok_or(NOT_SUBSCRIBED)?;
    transact!(janua, async |tx| {
        payer.hold(tx, session).await?;
        Ok(session.record_about(tx, janua, subject.about(), &PortalOpened).await?)
    })?;
    let now = janua.clock.now();
    let key = format!("janua-{}-portal-{}", subject.id, janua.entropy.uuid(now));
    let url = driver.create_portal(janua, &key, customer, &back).await?;
    Ok(PortalView { url, expires_at: Timestamp(now.0 + PORTAL_MS), livemode: driver.livemode })
}

async fn open_org_portal(
    State(janua): State<Janua>,
    session: Session,
    Query(of): Query<OfOrg>,
    MaybeJson(new): MaybeJson<NewPortal>,
) -> Result<Json<PortalView>> {
    let new = new.unwrap_or_default();
    let payer = access::org(&janua, &session, new.org_id.or(of.org_id)).await?;
    open_portal(&janua, &session, &payer, new.return_url.as_deref()).await.map(Json)
}

async fn open_app_portal(
    State(janua): State<Janua>,
    caller: KeyedSession,
    Json(new): Json<NewPortal>,
) -> Result<Json<PortalView>> {
    let payer = access::app(&janua, &caller, new.app_id, Role::Admin).await?;
    open_portal(&janua, &caller.session, &payer, new.return_url.as_deref()).await.map(Json)
}

#[derive(Deserialize, JsonSchema, Default, PartialEq, Eq, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum When {
    #[default]
    PeriodEnd,
    Now,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
struct Cancel {
    org_id: Option<OrgId>,
    /// `period_end`, or `now`, which needs a recent proof of who you are; left out: `period_end`.
    when: Option<When>,
    #[schemars(length(max = 500))]
    reason: Option<String>,
    /// Takes a cancellation at the end of the period back.
    undo: Option<bool>,
}

async fn cancel_org_plan(
    State(janua): State<Janua>,
    session: Session,
    Query(of): Query<OfOrg>,
    MaybeJson(cancel): MaybeJson<Cancel>,
) -> Result<Json<BillingView>> {
    let cancel = cancel.unwrap_or_default();
    let payer = access::org(&janua, &session, cancel.org_id.or(of.org_id)).await?;
    let driver = Payments::required(&janua)?;
    let now = cancel.when == Some(When::Now);
    if now && session.fresh(&janua).is_none() {
        return Err(REAUTHENTICATION_REQUIRED.into());
    }
    if now && cancel.undo == Some(true) {
        return Err(INVALID.at("undo", "conflict", "takes only a cancellation at the end of the period back"));
    }
    let subject = transact!(janua, async |tx| {
        payer.hold(tx, &session).await?;
        Ok(Subject::of(&mut *tx, payer.org.id, "").await?)
    })?;
    let subject = subject.filter(|subject| subject.is_subscribed() && subject.processor == driver.kind.name());
    let (subject, id) =
        subject.and_then(|subject| subject.subscription.clone().map(|id| (subject, id))).ok_or(NOT_SUBSCRIBED)?;
    if now {
        driver.cancel_now(&janua, &id).await?;
    } else {
        let undo = cancel.undo == Some(true);
        let number = Subject::begin_read(&janua.db, subject.id).await?;
        let key = format!("janua-{}-cancel-{number}", subject.id);
        driver.cancel_at_period_end(&janua, &key, &id, !undo).await?;
    }
    apply::sync(&janua, driver, subject.id).await?;
    if let Some(reason) = cancel.reason.filter(|reason| !reason.trim().is_empty()) {
        tracing::info!(org = %payer.org.id, reason, "a plan was canceled");
    }
    let payer = access::org(&janua, &session, Some(payer.org.id)).await?;
    BillingView::read(&janua, &payer).await.map(Json)
}

/// As the first generation wrote it.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LegacyCheckout {
    org_id: Option<OrgId>,
    plan: Option<String>,
    /// The processor's id of a price of the plans file.
    price_id: Option<String>,
    interval: Option<String>,
    #[schemars(range(min = 1, max = 100_000))]
    seats: Option<i64>,
    success_url: Option<String>,
    cancel_url: Option<String>,
    #[serde(rename = "success_url")]
    old_success_url: Option<String>,
    #[serde(rename = "cancel_url")]
    old_cancel_url: Option<String>,
}

#[derive(Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
struct LegacyPortal {
    org_id: Option<OrgId>,
    return_url: Option<String>,
    #[serde(rename = "return_url")]
    old_return_url: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LegacySession {
    session_id: String,
    id: String,
    url: String,
}

fn deprecated(successor: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    // When it was: RFC 9745 asks for a moment.
    headers.insert("deprecation", HeaderValue::from_static("@1767225600"));
    headers.insert(header::LINK, HeaderValue::from_static(successor));
    headers
}

async fn buy_org_plan_legacy(
    State(janua): State<Janua>,
    session: Session,
    Query(of): Query<OfOrg>,
    Json(old): Json<LegacyCheckout>,
) -> Result<Response> {
    let payer = access::org(&janua, &session, old.org_id.or(of.org_id)).await?;
    let (plan, interval) = match (&old.plan, &old.price_id) {
        (Some(plan), _) => (plan.clone(), old.interval.clone()),
        (None, Some(price)) => {
            let known = prices::plan_and_interval(&janua, price).await?;
            let known = known.ok_or_else(|| UNKNOWN_PRICE.at("priceId", "unknown", "is not a price of a plan"))?;
            (known.0, Some(known.1))
        }
        (None, None) => return Err(INVALID.at("plan", "required", "or priceId is required")),
    };
    let new = NewCheckout {
        org_id: None,
        app_id: None,
        plan,
        interval,
        seats: old.seats,
        success_url: old.success_url.or(old.old_success_url),
        cancel_url: old.cancel_url.or(old.old_cancel_url),
        preview: None,
    };
    let made = buy(&janua, &session, &payer, &new).await?;
    let id = made.checkout_id.map(|id| id.to_string()).unwrap_or_default();
    let view = LegacySession { session_id: id.clone(), id, url: made.url };
    Ok((deprecated("</billing/org/checkout>; rel=\"successor-version\""), Json(view)).into_response())
}

async fn open_org_portal_legacy(
    State(janua): State<Janua>,
    session: Session,
    Query(of): Query<OfOrg>,
    MaybeJson(old): MaybeJson<LegacyPortal>,
) -> Result<Response> {
    let old = old.unwrap_or_default();
    let payer = access::org(&janua, &session, old.org_id.or(of.org_id)).await?;
    let back = old.return_url.or(old.old_return_url);
    let made = open_portal(&janua, &session, &payer, back.as_deref()).await?;
    let id = kernel::crypto::hash(made.url.as_bytes())[..24].to_owned();
    let view = LegacySession { session_id: id.clone(), id, url: made.url };
    Ok((deprecated("</billing/org/portal>; rel=\"successor-version\""), Json(view)).into_response())
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum PayerKind {
    Org,
    Own,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewConnection {
    app_id: Option<ApplicationId>,
    /// org: the organization's customer pays; own: a customer of the app's own. Left out: org.
    payer: Option<PayerKind>,
    #[schemars(length(max = 254), email)]
    billing_email: Option<String>,
}

async fn connect_app(
    State(janua): State<Janua>,
    caller: KeyedSession,
    Json(new): Json<NewConnection>,
) -> Result<Json<BillingView>> {
    let payer = access::app(&janua, &caller, new.app_id, Role::Admin).await?;
    let driver: &Driver = Payments::required(&janua)?;
    let kind = if new.payer == Some(PayerKind::Own) { "own" } else { "org" };
    let subject = transact!(janua, async |tx| {
        payer.hold(tx, &caller.session).await?;
        let mut subject = Subject::ensure(tx, &janua, driver, payer.org.id, &payer.app_key()).await?;
        if subject.connected_at.is_none() {
            subject.connected_at = Some(janua.clock.now());
            subject.payer = kind.to_owned();
            subject.email.clone_from(&new.billing_email);
            subject.save(tx, janua.clock.now()).await?;
            let event = AppConnected { payer: kind.to_owned() };
            caller.session.record_about(tx, &janua, subject.about(), &event).await?;
        }
        Ok(subject)
    })?;
    checkout::customer(&janua, driver, subject.id).await?;
    BillingView::read(&janua, &payer).await.map(Json)
}
