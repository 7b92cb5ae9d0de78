//! The routes of the registrar.
use std::time::Duration;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, FORBIDDEN, Fault, IDEMPOTENCY_KEY_REQUIRED, INVALID, NOT_FOUND, RATE_LIMITED, Result},
    http::{Json, Key, Listed, Page, Path, Query, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::{Application, ApplicationId},
    enter::{Admin, InApp, InOrg, REAUTHENTICATION_REQUIRED, Session},
    events,
    orgs::OrgId,
    quotas::{self, Meter, Period, QUOTA_EXCEEDED},
};

use super::{
    Availability, Contact, DomainPrice, Offer, Registrar, jobs,
    model::{Registration, RegistrationId, RegistrationStatus},
};
use crate::domains;

events! {
    /// An organization asked to register a domain.
    DomainRegistrationRequested { domain: String, amount: i64, currency: String } = "DOMAIN_REGISTRATION_REQUESTED";
    /// A domain was registered.
    DomainRegistrationSucceeded { domain: String } = "DOMAIN_REGISTRATION_SUCCEEDED";
    /// A domain could not be registered.
    DomainRegistrationFailed { domain: String, message: String } = "DOMAIN_REGISTRATION_FAILED";
}

/// Domains that an organization registers in a month.
pub const REGISTRATIONS: Meter = Meter::platform("domain_registrations", "domains", Period::Month);

const PRICE_CHANGED: Code =
    Code::new(409, "price_changed", "The domain has another price than the one in the request. Confirm the new one.");
const UNAVAILABLE_DOMAIN: Code = Code::new(409, "domain_unavailable", "This domain cannot be registered.");
const IN_PROGRESS: Code =
    Code::new(409, "registration_in_progress", "This domain is being registered already. Wait for that to end.");
const AWAY: Code = Code::new(503, "registrar_unavailable", "The registrar does not answer. Try again shortly.");

const QUESTIONS: (Duration, i64) = (Duration::from_mins(1), 30);

pub fn routes() -> Routes {
    Routes::new("domains")
        .get("/apps/{appId}/registrations", list_registrations, "purchases of domains for the app, newest first")
        .get("/domains/availability", check_availability, "whether a domain can be registered, and for how much")
        .fails(&[domains::INVALID_DOMAIN, RATE_LIMITED])
        .post("/domains/register", register_domain, "register a domain through the registrar")
        .fails(&[
            domains::INVALID_DOMAIN,
            IDEMPOTENCY_KEY_REQUIRED,
            REAUTHENTICATION_REQUIRED,
            FORBIDDEN,
            NOT_FOUND,
            QUOTA_EXCEEDED,
            PRICE_CHANGED,
            UNAVAILABLE_DOMAIN,
            IN_PROGRESS,
            AWAY,
        ])
        .answers::<OperationView>(202, "application/json")
        .get("/domains/register/{operationId}", get_registration, "state of a domain registration")
        .fails(&[NOT_FOUND, FORBIDDEN])
}

#[derive(Deserialize, JsonSchema)]
struct AvailabilityQuery {
    /// Such as `example.com`.
    #[schemars(length(min = 1, max = 253))]
    domain: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AvailabilityView {
    domain: String,
    status: Availability,
    /// Whether it can be registered here.
    registrable: bool,
    /// For one year.
    price: Option<YearPrice>,
    /// The source of the answer.
    source: String,
    checked_at: Timestamp,
}

#[derive(Serialize, JsonSchema)]
struct YearPrice {
    /// In minor units.
    amount: i64,
    currency: String,
    years: i64,
}

/// A name that can be registered as it is: not one below it.
fn registered_name(text: &str) -> Result<String> {
    let name = domains::host(text).filter(|name| domains::registrable(name) == Some(name.as_str()));
    name.ok_or_else(|| {
        domains::INVALID_DOMAIN.at("domain", "wrong_form", "must be one registrable name such as example.com")
    })
}

async fn check_availability(
    State(janua): State<Janua>,
    session: Session,
    Query(question): Query<AvailabilityQuery>,
) -> Result<Json<AvailabilityView>> {
    let domain = registered_name(&question.domain)?;
    let now = janua.clock.now();
    let subject = format!("availability:{}", session.account().id);
    let may = transact!(janua, async |tx| Ok(domains::spend(tx, &subject, now, QUESTIONS.0, QUESTIONS.1).await?))?;
    if !may && janua.config.rate_limits.is_on() {
        return Err(Fault::from(RATE_LIMITED).retry_after(QUESTIONS.0));
    }
    let registrar = janua.own::<Box<dyn Registrar>>();
    // Without an answer nothing is known; above all not that it is free.
    let offer = registrar.offer(&domain).await.unwrap_or_else(|error| {
        tracing::warn!(%error, domain, "cannot ask the registrar whether a domain is free");
        Offer { availability: Availability::Unknown, price: None }
    });
    Ok(Json(AvailabilityView {
        domain,
        status: offer.availability,
        registrable: offer.availability == Availability::Available,
        price: offer.price.map(|DomainPrice { amount, currency }| YearPrice { amount, currency, years: 1 }),
        source: if registrar.name() == "sandbox" { "sandbox".into() } else { "registrar".into() },
        checked_at: now,
    }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewRegistration {
    /// Such as `example.com`.
    #[schemars(length(min = 1, max = 253))]
    domain: String,
    /// Default: the organization of the session.
    org_id: Option<OrgId>,
    /// An app of the organization whose site the domain will be for.
    app_id: Option<ApplicationId>,
    #[schemars(range(min = 1, max = 10))]
    years: i64,
    /// Default: true.
    auto_renew: Option<bool>,
    /// Whether the contact stays out of public registers. Default: true.
    privacy: Option<bool>,
    /// The price for all years that the user saw and agreed to.
    price: DomainPrice,
    contact: Contact,
    /// Must be true: the user has agreed to the registrar's terms.
    accept_terms: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OperationView {
    operation_id: RegistrationId,
    domain: String,
    status: RegistrationStatus,
    message: Option<String>,
    price: DomainPrice,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// When the registration ends unless it is renewed.
    expires_at: Option<Timestamp>,
}

impl From<Registration> for OperationView {
    fn from(purchase: Registration) -> Self {
        Self {
            operation_id: purchase.id,
            domain: purchase.domain,
            status: purchase.status,
            message: purchase.message,
            price: DomainPrice { amount: purchase.price, currency: purchase.currency },
            created_at: purchase.created_at,
            updated_at: purchase.updated_at,
            expires_at: purchase.expires_at,
        }
    }
}

/// Whoever spends money has proven who they are within ten minutes, by the strongest they have.
fn must_be_fresh(janua: &Janua, session: &Session) -> Result<()> {
    let (factors, has_password) = (session.factors(), session.account().password_hash.is_some());
    let is_strong = factors.is_on() || !factors.passkeys.is_empty();
    let fresh = session.fresh(janua);
    let is_enough = fresh.is_some_and(|fresh| match (is_strong, has_password) {
        (true, _) => fresh.factor || fresh.passkey,
        (false, true) => fresh.password,
        (false, false) => true,
    });
    if is_enough { Ok(()) } else { Err(REAUTHENTICATION_REQUIRED.into()) }
}

async fn register_domain(
    State(janua): State<Janua>,
    session: Session,
    headers: HeaderMap,
    Json(new): Json<NewRegistration>,
) -> Result<Response> {
    if !headers.contains_key("idempotency-key") {
        return Err(IDEMPOTENCY_KEY_REQUIRED.into());
    }
    let domain = registered_name(&new.domain)?;
    if !new.accept_terms {
        return Err(INVALID.at("acceptTerms", "required", "must be true: agree to the registrar's terms"));
    }
    let active = session.org().map(|membership| membership.org.id);
    let org = new.org_id.or(active).ok_or_else(|| INVALID.at("orgId", "required", "must name an organization"))?;
    let caller = InOrg::<Admin>::reach(&janua, session, org).await?;
    must_be_fresh(&janua, &caller.session)?;
    let registrar = janua.own::<Box<dyn Registrar>>();
    let offer = registrar.offer(&domain).await.map_err(|error| AWAY.caused_by(error))?;
    let Offer { availability: Availability::Available, price: Some(year) } = offer else {
        return Err(if offer.availability == Availability::Unknown { AWAY } else { UNAVAILABLE_DOMAIN }.into());
    };
    let price = DomainPrice { amount: year.amount.saturating_mul(new.years), currency: year.currency };
    if price != new.price {
        return Err(Fault::from(PRICE_CHANGED).with_extra("price", &price));
    }
    let now = janua.clock.now();
    let id = RegistrationId::new(&janua.entropy, now);
    let purchase = Registration {
        id,
        org_id: org,
        app_id: new.app_id,
        domain,
        years: new.years,
        auto_renew: new.auto_renew.unwrap_or(true),
        privacy: new.privacy.unwrap_or(true),
        price: price.amount,
        currency: price.currency,
        contact: Some(Registration::seal(&janua, id, &new.contact)),
        status: RegistrationStatus::Submitted,
        message: None,
        is_open: true,
        operation: None,
        created_at: now,
        updated_at: now,
        expires_at: None,
    };
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        if let Some(app) = purchase.app_id {
            let application = Application::find(&mut *tx, app).await?.filter(|found| found.org_id == org);
            application.ok_or(NOT_FOUND)?;
        }
        quotas::spend(tx, &janua, org, &REGISTRATIONS, 1).await?;
        if !purchase.insert(tx).await? {
            return Err(IN_PROGRESS.into());
        }
        let (domain, currency) = (purchase.domain.clone(), purchase.currency.clone());
        let event = DomainRegistrationRequested { domain, amount: purchase.price, currency };
        caller.record(tx, &janua, &event).await?;
        Ok(jobs::enqueue(tx, &janua, purchase.id).await?)
    })?;
    Ok((StatusCode::ACCEPTED, Json(OperationView::from(purchase))).into_response())
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OperationPath {
    operation_id: RegistrationId,
}

async fn get_registration(
    State(janua): State<Janua>,
    session: Session,
    Path(path): Path<OperationPath>,
) -> Result<Json<OperationView>> {
    let purchase = Registration::find(&janua.db, path.operation_id).await?.ok_or(NOT_FOUND)?;
    InOrg::<Admin>::reach(&janua, session, purchase.org_id).await?;
    Ok(Json(purchase.into()))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Registrations {
    registrations: Vec<OperationView>,
    next_cursor: Option<String>,
}

async fn list_registrations(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    page: Page,
) -> Result<Json<Registrations>> {
    let (app, org) = (caller.application.id, caller.application.org_id);
    let fetch = async |below, most| Registration::page(&janua.db, org, app, &below, most).await;
    let key = |one: &Registration| Key { at: one.created_at, id: one.id.to_string() };
    let Listed { rows, next_cursor } = page.list(&janua, "registrations", app, fetch, key).await?;
    Ok(Json(Registrations { registrations: rows.into_iter().map(Into::into).collect(), next_cursor }))
}
