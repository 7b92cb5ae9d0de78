//! The routes by which domains are put on an app's site: each step by itself, or all of them at once.
use std::{collections::HashSet, time::Duration};

use axum::{extract::State, response::NoContent};
use db::Tx;
use kernel::{
    Janua,
    fault::{Code, FORBIDDEN, NOT_FOUND, Result},
    http::{Json, Path, Routes},
    installation,
    ports::dns::DNS_UNAVAILABLE,
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::{Application, ApplicationId},
    enter::{Admin, InApp, Least, Member, Session},
    events::{self, About, By},
    orgs::{Org, OrgId},
    quotas::{self, Meter, Period, QUOTA_EXCEEDED},
};

use super::{
    NO_DOMAIN,
    check::{self, Target},
    events::{DomainAdded, DomainAttached, DomainRemoved, DomainUpdated},
    model::{self, Domain, ProofReason, Reason, Status},
    names::{self, INVALID_DOMAIN},
    own::DOMAIN_EXISTS,
    proof,
    records::{DomainView, Shown},
    status,
};
use crate::{certificates, edge::site::Site, settings::Settings};

/// Domains of sites.
pub const DOMAINS: Meter = Meter::platform("domains", "domains", Period::Gauge);

const DOMAIN_NOT_VERIFIED: Code =
    Code::new(409, "domain_not_verified", "Prove the domain first: its TXT record was not seen yet.");
const NO_DISTRIBUTION: Code =
    Code::new(409, "no_distribution", "The app has no site that the domain could lead to. Deploy one first.");
const DOMAIN_SUSPENDED: Code = Code::new(409, "domain_suspended", "The platform has switched this domain off.");
const TOO_MANY_DOMAINS: Code = Code::new(
    429,
    "too_many_domains",
    "The organization has added many domains within the hour. Wait, then try again.",
);
const CHECKED_RECENTLY: Code =
    Code::new(429, "checked_recently", "The domain was checked a moment ago. Wait, then try again.");

const DOMAIN_NOT_ACTIVE: Code =
    Code::new(409, "domain_not_active", "The domain is not served yet. Wait until it is active.");
const TOO_MANY_PASSKEY_DOMAINS: Code = Code::new(
    409,
    "too_many_passkey_domains",
    "As many registered domains ask for passkeys of this service as browsers accept. Switch it off at another one.",
);

/// Of passkeys one change at a time is made.
const PASSKEY_DOMAINS: &str = "passkey_domains";
const NEW_PER_HOUR: i64 = 10;
const CHECK_WAIT: Duration = Duration::from_secs(10);

pub fn routes() -> Routes {
    Routes::new("domains")
        .post("/apps/{appId}/domains", list_domain, "add a custom domain to the app's site")
        .fails(&[INVALID_DOMAIN, DOMAIN_EXISTS, QUOTA_EXCEEDED, TOO_MANY_DOMAINS])
        .get("/apps/{appId}/domains", list_domains, "the app's domains, newest first")
        .patch("/apps/{appId}/domains/{domain}", update_domain, "change the uses of a domain")
        .fails(&[DOMAIN_NOT_ACTIVE, TOO_MANY_PASSKEY_DOMAINS])
        .post("/apps/{appId}/domains/attach", attach_domain, "serve the app's site under a proven domain")
        .fails(&[INVALID_DOMAIN, NO_DOMAIN, DOMAIN_NOT_VERIFIED, NO_DISTRIBUTION, DOMAIN_SUSPENDED])
        .post("/domains/onboard", onboard, "add a custom domain; it is served as soon as its records are found")
        .fails(&[INVALID_DOMAIN, QUOTA_EXCEEDED, TOO_MANY_DOMAINS, NOT_FOUND, FORBIDDEN])
        .get("/domains/onboard/{appId}/{domain}", get_onboarding, "state of a custom domain")
        .fails(&[NO_DOMAIN, NOT_FOUND])
        .post(
            "/domains/onboard/{appId}/{domain}/check",
            check_onboarding,
            "check DNS and certificate of a domain now",
        )
        .fails(&[NO_DOMAIN, NOT_FOUND, FORBIDDEN, CHECKED_RECENTLY, DNS_UNAVAILABLE])
        .delete("/domains/onboard/{appId}/{domain}", remove_onboarding, "remove a custom domain")
        .fails(&[NO_DOMAIN, NOT_FOUND, FORBIDDEN])
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewSiteDomain {
    /// Such as `shop.example.com`.
    #[schemars(length(min = 1, max = 253))]
    domain: String,
    /// Another domain of the app that requests are redirected to, such as `example.com` for `www.example.com`.
    #[schemars(length(min = 1, max = 253))]
    redirect_to: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
struct AttachedDomain {
    /// A domain of the app.
    #[schemars(length(min = 1, max = 253))]
    domain: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewOnboarding {
    app_id: ApplicationId,
    /// Such as `shop.example.com`.
    #[schemars(length(min = 1, max = 253))]
    domain: String,
    /// Another domain of the app that requests are redirected to.
    #[schemars(length(min = 1, max = 253))]
    redirect_to: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OnboardingPath {
    app_id: ApplicationId,
    domain: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Domains {
    domains: Vec<DomainView>,
}

/// A domain that a caller named.
pub fn name(janua: &Janua, text: &str) -> Result<String> {
    names::parse(janua, text)
        .ok_or_else(|| INVALID_DOMAIN.at("domain", "wrong_form", "must be a domain such as app.example.com"))
}

/// Where the app's domains are to lead: the name of its site, which was made at the latest when the first domain was added.
pub async fn target(janua: &Janua, app: ApplicationId) -> Result<Target> {
    let site = Site::find(&janua.db, app).await?;
    Ok(Target::new(janua, &site.map(|site| site.cname).unwrap_or_default()).await)
}

pub async fn view(janua: &Janua, domain: Domain) -> Result<DomainView> {
    // A name that serves nothing leads nowhere.
    let target = if domain.is_listed { target(janua, domain.app_id).await? } else { Target::default() };
    let certificate = certificates::view(janua, &domain).await?;
    let shown = shown_with(janua, domain.org_id, target).await?;
    Ok(DomainView::new(domain, certificate, &shown))
}

async fn shown_with(janua: &Janua, org: OrgId, target: Target) -> Result<Shown> {
    let auto_join = Org::find(&janua.db, org).await?.is_some_and(|org| org.auto_join);
    Ok(Shown { target, authority: janua.config.of::<Settings>().caa_identity(), auto_join })
}

/// The app's row of a name, or a new one that is not stored yet. A proof above it that its organization has counts at once.
pub async fn find_or_claim(
    tx: &mut Tx,
    janua: &Janua,
    application: &Application,
    name: &str,
) -> Result<(Domain, bool)> {
    if let Some(found) = Domain::find(&mut *tx, application.id, name).await? {
        return Ok((found, false));
    }
    let now = janua.clock.now();
    let budget = format!("new:{}", application.org_id);
    let may = model::spend(tx, &budget, now, Duration::from_hours(1), NEW_PER_HOUR).await?;
    if !may && janua.config.rate_limits.is_on() {
        return Err(kernel::fault::Fault::from(TOO_MANY_DOMAINS).retry_after(Duration::from_mins(10)));
    }
    let mut claim = Domain::claim(janua, application, name.to_owned());
    if Domain::is_proven_elsewhere(tx, name, application.id).await? {
        (claim.reason, claim.status_reason) = (Some(ProofReason::Contested), Some(Reason::Contested));
    } else if let Some(above) = Domain::covering(tx, application.org_id, name).await? {
        (claim.verified_at, claim.proven_by, claim.pending_since) = (Some(now), Some(above.id), None);
        (claim.status, claim.status_reason) = (Status::PendingDns, Some(Reason::NoRecords));
    }
    Ok((claim, true))
}

/// Puts a name on the site of an app.
async fn put_on_site<R: Least>(
    tx: &mut Tx,
    janua: &Janua,
    caller: &InApp<R>,
    wanted: &SiteName,
) -> Result<(Domain, bool)> {
    let application = caller.hold(tx).await?;
    let (mut domain, is_new) = find_or_claim(tx, janua, &application, &wanted.domain).await?;
    Site::provision(tx, janua, &application).await?;
    let was_listed = domain.is_listed;
    if !was_listed {
        quotas::spend(tx, janua, &application, &DOMAINS, 1).await?;
    }
    domain.is_listed = true;
    domain.is_automatic |= wanted.is_automatic;
    if wanted.redirect_to.is_some() {
        domain.redirect_to = wanted.redirect_to.clone();
    }
    if is_new {
        if !domain.insert(tx).await? {
            return Err(DOMAIN_EXISTS.into());
        }
        caller.record(tx, janua, &DomainAdded { domain: domain.domain.clone() }).await?;
    } else {
        if !was_listed && domain.verified_at.is_some() {
            domain.next_check_at = Some(janua.clock.now().plus(status::FIRST_WAIT));
            status::set(&mut domain, Status::PendingDns, Some(Reason::NoRecords), janua.clock.now());
        }
        domain.save(tx, janua).await?;
    }
    Ok((domain, was_listed))
}

struct SiteName {
    domain: String,
    redirect_to: Option<String>,
    is_automatic: bool,
}

impl SiteName {
    fn new(janua: &Janua, domain: &str, redirect_to: Option<&str>, is_automatic: bool) -> Result<Self> {
        let domain = name(janua, domain)?;
        let redirect_to = match redirect_to {
            None => None,
            Some(text) => Some(names::host(text).filter(|to| *to != domain).ok_or_else(|| {
                INVALID_DOMAIN.at("redirectTo", "wrong_form", "must be another domain, such as www.example.com")
            })?),
        };
        Ok(Self { domain, redirect_to, is_automatic })
    }
}

async fn list_domain(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Json(new): Json<NewSiteDomain>,
) -> Result<Json<DomainView>> {
    let wanted = SiteName::new(&janua, &new.domain, new.redirect_to.as_deref(), false)?;
    let domain = transact!(janua, async |tx| {
        let (domain, was_listed) = put_on_site(tx, &janua, &caller, &wanted).await?;
        if was_listed { Err(DOMAIN_EXISTS.into()) } else { Ok(domain) }
    })?;
    Ok(Json(view(&janua, domain).await?))
}

async fn list_domains(State(janua): State<Janua>, caller: InApp<Member>) -> Result<Json<Domains>> {
    let target = target(&janua, caller.application.id).await?;
    let shown = shown_with(&janua, caller.application.org_id, target).await?;
    let mut domains = vec![];
    for domain in Domain::of_app(&janua.db, caller.application.id).await? {
        let certificate = certificates::view(&janua, &domain).await?;
        domains.push(DomainView::new(domain, certificate, &shown));
    }
    Ok(Json(Domains { domains }))
}

/// A domain of the app that the caller names.
#[derive(Deserialize, JsonSchema)]
struct OfApp {
    domain: String,
}

/// Omitted fields stay unchanged.
#[derive(Deserialize, JsonSchema)]
struct DomainChange {
    /// Whether pages of the domain may ask for passkeys of this service, to sign in to the app.
    passkeys: Option<bool>,
}

async fn update_domain(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(OfApp { domain }): Path<OfApp>,
    Json(change): Json<DomainChange>,
) -> Result<Json<DomainView>> {
    let name = names::host(&domain).ok_or(NOT_FOUND)?;
    let found = Domain::find(&janua.db, caller.application.id, &name).await?.ok_or(NOT_FOUND)?;
    let most = janua.config.of::<Settings>().passkey_domains.0;
    let domain = transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let (mut domain, _) = found.hold(tx).await?.ok_or(NOT_FOUND)?;
        let Some(wanted) = change.passkeys.filter(|wanted| *wanted != domain.passkeys_at.is_some()) else {
            return Ok(domain);
        };
        if wanted {
            if domain.status != Status::Active {
                return Err(DOMAIN_NOT_ACTIVE.into());
            }
            installation::write_once(tx, PASSKEY_DOMAINS, "").await?;
            installation::lock(tx, PASSKEY_DOMAINS).await?;
            let with: Vec<(String,)> = Domain::with_passkeys(tx).await?;
            let names = with.iter().map(|(name,)| name.as_str()).chain([domain.domain.as_str()]);
            let labels: HashSet<&str> = names.map(names::registered_label).collect();
            if labels.len() > most {
                return Err(TOO_MANY_PASSKEY_DOMAINS.into());
            }
        }
        domain.passkeys_at = wanted.then(|| janua.clock.now());
        domain.save(tx, &janua).await?;
        caller.record(tx, &janua, &DomainUpdated { domain: domain.domain.clone(), passkeys: wanted }).await?;
        Ok(domain)
    })?;
    Ok(Json(view(&janua, domain).await?))
}

async fn attach_domain(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Json(wanted): Json<AttachedDomain>,
) -> Result<Json<DomainView>> {
    let name = name(&janua, &wanted.domain)?;
    let now = janua.clock.now();
    let domain = transact!(janua, async |tx| {
        let application = caller.hold(tx).await?;
        let found = Domain::find(&mut *tx, application.id, &name).await?.ok_or(NO_DOMAIN)?;
        let (mut domain, _) = found.hold(tx).await?.ok_or(NO_DOMAIN)?;
        if !domain.is_listed {
            return Err(NO_DOMAIN.into());
        }
        if domain.status == Status::Suspended {
            return Err(DOMAIN_SUSPENDED.into());
        }
        if domain.verified_at.is_none() {
            return Err(DOMAIN_NOT_VERIFIED.into());
        }
        if !super::has_site(tx, application.id).await? {
            return Err(NO_DISTRIBUTION.into());
        }
        if domain.attached_at.is_none() {
            domain.attached_at = Some(now);
            domain.next_check_at = Some(now);
            if domain.status == Status::Failed {
                proof::start_over(&mut domain, now);
            }
            domain.save(tx, &janua).await?;
            caller.record(tx, &janua, &DomainAttached { domain: name.clone() }).await?;
        }
        Ok(domain)
    })?;
    Ok(Json(view(&janua, domain).await?))
}

async fn onboard(
    State(janua): State<Janua>,
    session: Session,
    Json(new): Json<NewOnboarding>,
) -> Result<Json<DomainView>> {
    let caller = InApp::<Admin>::reach(&janua, session, new.app_id).await?;
    let wanted = SiteName::new(&janua, &new.domain, new.redirect_to.as_deref(), true)?;
    let domain = transact!(janua, async |tx| Ok(put_on_site(tx, &janua, &caller, &wanted).await?.0))?;
    Ok(Json(view(&janua, domain).await?))
}

async fn get_onboarding(
    State(janua): State<Janua>,
    session: Session,
    Path(path): Path<OnboardingPath>,
) -> Result<Json<DomainView>> {
    let caller = InApp::<Member>::reach(&janua, session, path.app_id).await?;
    let domain = find(&janua, &caller, &path.domain).await?;
    Ok(Json(view(&janua, domain).await?))
}

async fn find<R>(janua: &Janua, caller: &InApp<R>, text: &str) -> Result<Domain> {
    let name = names::host(text).ok_or(NO_DOMAIN)?;
    Ok(Domain::find(&janua.db, caller.application.id, &name).await?.ok_or(NO_DOMAIN)?)
}

async fn check_onboarding(
    State(janua): State<Janua>,
    session: Session,
    Path(path): Path<OnboardingPath>,
) -> Result<Json<DomainView>> {
    let caller = InApp::<Admin>::reach(&janua, session, path.app_id).await?;
    let domain = find(&janua, &caller, &path.domain).await?;
    let now = janua.clock.now();
    let may = transact!(janua, async |tx| {
        caller.hold(tx).await?;
        Ok(model::spend(tx, &format!("check:{}", domain.id), now, CHECK_WAIT, 1).await?)
    })?;
    if !may {
        return Err(kernel::fault::Fault::from(CHECKED_RECENTLY).retry_after(CHECK_WAIT));
    }
    let target = target(&janua, domain.app_id).await?;
    let look = check::look(&janua, &domain, &target).await.map_err(|error| DNS_UNAVAILABLE.caused_by(error))?;
    let by = caller.session.by();
    let noted = transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let Some((mut held, _)) = domain.hold(tx).await? else { return Ok(None) };
        if held.status == Status::Failed {
            proof::start_over(&mut held, now);
            held.save(tx, &janua).await?;
        }
        let noted = proof::note(tx, &janua, &by, &held, &look).await?;
        if let Some(noted) = &noted {
            certificates::try_again(tx, &janua, noted).await?;
        }
        Ok(noted)
    })?;
    Ok(Json(view(&janua, noted.ok_or(NO_DOMAIN)?).await?))
}

async fn remove_onboarding(
    State(janua): State<Janua>,
    session: Session,
    Path(path): Path<OnboardingPath>,
) -> Result<NoContent> {
    let caller = InApp::<Admin>::reach(&janua, session, path.app_id).await?;
    let domain = find(&janua, &caller, &path.domain).await?;
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let (domain, _) = domain.hold(tx).await?.ok_or(NO_DOMAIN)?;
        remove(tx, &janua, &caller, domain).await
    })?;
    Ok(NoContent)
}

/// Removes a domain from the app, whatever way it was added: it serves nothing, and its certificate's key is destroyed.
pub async fn remove<R>(tx: &mut Tx, janua: &Janua, caller: &InApp<R>, domain: Domain) -> Result<()> {
    if !domain.delete(tx).await? {
        return Err(NO_DOMAIN.into());
    }
    if domain.is_listed {
        quotas::give_back(tx, domain.org_id, &DOMAINS, 1).await?;
    }
    proof::release(tx, janua, &domain).await?;
    Ok(caller.record(tx, janua, &DomainRemoved { domain: domain.domain }).await?)
}

/// Puts a domain that was just registered on the site of its app, unless the app has it or the plan allows no more.
pub async fn onboard_registered(tx: &mut Tx, janua: &Janua, application: &Application, domain: &str) -> Result<()> {
    if Domain::find(&mut *tx, application.id, domain).await?.is_some() {
        return Ok(());
    }
    let spent = quotas::try_spend(tx, janua, application.into(), &DOMAINS, 1).await?;
    if matches!(spent, quotas::Outcome::Refused(_)) {
        return Ok(());
    }
    Site::provision(tx, janua, application).await?;
    let mut claim = Domain::claim(janua, application, domain.to_owned());
    (claim.is_listed, claim.is_automatic) = (true, true);
    if claim.insert(tx).await? {
        let event = DomainAdded { domain: claim.domain };
        events::record(tx, janua, &By::default(), About::app(application), &event).await?;
    }
    Ok(())
}
