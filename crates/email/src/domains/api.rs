//! `/apps/{appId}/email/domains`: adding, looking at, rotating and removing sending domains.
use std::time::Duration;

use axum::{extract::State, response::NoContent};
use db::InJson;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, INVALID, NOT_FOUND, Result},
    http::{Json, Path, Routes},
    transact,
};
use public_suffix::DEFAULT_PROVIDER;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::ApplicationId,
    enter::{Admin, InApp, Member},
    events::By,
};
use url::Host;

use super::{
    check::{check, has_proof, wanted},
    keys,
    model::{self, Domain, DomainKey, RecordState, RecordStatus},
    rules,
};
use crate::{
    events::{DomainAdded, DomainRemoved, KeyRotated},
    sending::content::own_host,
    words::DomainStatus,
};

const DOMAIN_TAKEN: Code =
    Code::new(409, "domain_taken", "Another organization has verified this domain, and its records still stand.");
const DOMAIN_EXISTS: Code = Code::new(409, "email_domain_exists", "The app has this sending domain already.");
const TOO_MANY_DOMAINS: Code = Code::new(409, "too_many_email_domains", "An app has at most 50 sending domains.");
const ROTATION_OPEN: Code = Code::new(
    409,
    "rotation_in_progress",
    "New keys were created before and their record was not seen yet. Create it first.",
);

const MOST_DOMAINS: usize = 50;
/// Looking at a domain looks at its records if the last look is older.
const FRESH: Duration = Duration::from_secs(30);

pub fn routes() -> Routes {
    Routes::new("email")
        .post("/apps/{appId}/email/domains", add_email_domain, "add a sending domain")
        .fails(&[DOMAIN_TAKEN, DOMAIN_EXISTS, TOO_MANY_DOMAINS])
        .get("/apps/{appId}/email/domains", list_email_domains, "list sending domains")
        .get("/apps/{appId}/email/domains/{hostname}", get_email_domain, "verification status of a sending domain")
        .delete("/apps/{appId}/email/domains/{hostname}", remove_email_domain, "remove a sending domain")
        .post("/apps/{appId}/email/domains/{hostname}/verify", verify_email_domain, "check its records now")
        .post("/apps/{appId}/email/domains/{hostname}/rotate", rotate_email_domain, "create new DKIM keys")
        .fails(&[ROTATION_OPEN])
}

#[derive(Deserialize, JsonSchema)]
struct NewDomain {
    /// Such as `mail.example.com`.
    #[schemars(length(min = 1, max = 253))]
    hostname: String,
    /// Whether hosts below it may send, too.
    #[serde(default)]
    subdomains: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DomainPath {
    hostname: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EmailDomainView {
    hostname: String,
    subdomains: bool,
    status: DomainStatus,
    records: Vec<RecordState>,
    created_at: Timestamp,
    checked_at: Option<Timestamp>,
    verified_at: Option<Timestamp>,
    next_check_at: Option<Timestamp>,
    /// Since when required records are gone. It stops sending 72 hours later.
    failing_since: Option<Timestamp>,
    dmarc: DmarcView,
}

#[derive(Serialize, JsonSchema)]
struct DmarcView {
    /// `none`, `quarantine` or `reject`; null without a policy.
    policy: Option<String>,
    /// Whether the signature is of the host in `From`, as DMARC wants it.
    aligned: bool,
}

#[derive(Serialize, JsonSchema)]
struct EmailDomains {
    domains: Vec<EmailDomainView>,
}

impl EmailDomainView {
    fn of(domain: Domain) -> Self {
        let InJson(records) = domain.findings;
        let dmarc = records.iter().find(|record| record.purpose == "dmarc").and_then(|record| record.found.first());
        let policy = dmarc.and_then(|text| {
            let tags = text.split(';').filter_map(|tag| tag.split_once('='));
            tags.map(|(name, value)| (name.trim(), value.trim()))
                .find(|(name, _)| *name == "p")
                .map(|(_, p)| p.to_owned())
        });
        let aligned = records.iter().any(|record| record.purpose == "dkim" && record.status == RecordStatus::Ok);
        Self {
            hostname: domain.hostname,
            subdomains: domain.subdomains,
            status: domain.status,
            records,
            created_at: domain.created_at,
            checked_at: domain.checked_at,
            verified_at: domain.verified_at,
            next_check_at: domain.next_check_at,
            failing_since: domain.failing_since,
            dmarc: DmarcView { policy, aligned },
        }
    }
}

/// A host that can be somebody's own; nothing for IPs, single labels, public suffixes and this installation's own host.
fn host_of(janua: &Janua, text: &str) -> Option<String> {
    let Ok(Host::Domain(name)) = Host::parse(text.trim().trim_end_matches('.')) else { return None };
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let own = own_host(janua);
    let is_own = name == own || own.strip_suffix(&name).is_some_and(|rest| rest.ends_with('.'));
    // The names of its records must fit before it.
    let is_host = name.contains('.') && name.len() <= 220 && name.split('.').all(is_label);
    (is_host && !is_own && !DEFAULT_PROVIDER.is_effective_tld(&name)).then_some(name)
}

async fn add_email_domain(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Json(new): Json<NewDomain>,
) -> Result<Json<EmailDomainView>> {
    let hostname = host_of(&janua, &new.hostname).ok_or_else(|| {
        INVALID.at("hostname", "wrong_form", "must be a domain of your own, such as mail.example.com")
    })?;
    let (app, org, now) = (caller.application.id, caller.application.org_id, janua.clock.now());
    let keys = keys::generate(&janua, app, &hostname, 1).await?;
    let mut domain = Domain {
        app_id: app,
        hostname,
        org_id: org,
        subdomains: new.subdomains,
        status: DomainStatus::Pending,
        signing: 1,
        has_return_path: false,
        findings: InJson(vec![]),
        created_at: now,
        pending_since: None,
        checked_at: None,
        verified_at: None,
        next_check_at: Some(rules::first_check(now)),
        checks: 0,
        missing_since: None,
        failing_since: None,
    };
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let is_taken = model::holder(tx, &domain.hostname).await?.is_some_and(|holder| holder != org);
        if is_taken && !has_proof(tx, &domain.hostname, org).await? {
            return Err(DOMAIN_TAKEN.into());
        }
        if Domain::of_app(&mut *tx, app).await?.len() >= MOST_DOMAINS {
            return Err(TOO_MANY_DOMAINS.into());
        }
        if !domain.insert(tx).await? {
            return Err(DOMAIN_EXISTS.into());
        }
        for key in &keys {
            key.insert(tx, app, &domain.hostname, now).await?;
        }
        let stored = DomainKey::of(&mut *tx, app, &domain.hostname).await?;
        domain.findings = InJson(wanted(&janua, &domain.hostname, &stored, domain.signing));
        domain.save(tx).await?;
        Ok(caller.record(tx, &janua, &DomainAdded { hostname: domain.hostname.clone() }).await?)
    })?;
    Ok(Json(EmailDomainView::of(domain)))
}

async fn list_email_domains(State(janua): State<Janua>, caller: InApp<Member>) -> Result<Json<EmailDomains>> {
    let domains = Domain::of_app(&janua.db, caller.application.id).await?;
    Ok(Json(EmailDomains { domains: domains.into_iter().map(EmailDomainView::of).collect() }))
}

async fn find(janua: &Janua, app: ApplicationId, path: &DomainPath) -> Result<Domain> {
    let hostname = path.hostname.trim_end_matches('.').to_ascii_lowercase();
    Domain::find(&janua.db, app, &hostname).await?.ok_or_else(|| NOT_FOUND.into())
}

async fn get_email_domain(
    State(janua): State<Janua>,
    caller: InApp<Member>,
    Path(path): Path<DomainPath>,
) -> Result<Json<EmailDomainView>> {
    let domain = find(&janua, caller.application.id, &path).await?;
    let now = janua.clock.now();
    if domain.checked_at.is_some_and(|at| now.since(at) <= FRESH) || now.since(domain.created_at) <= FRESH {
        return Ok(Json(EmailDomainView::of(domain)));
    }
    let checked = check(&janua, &By::default(), &domain).await?.ok_or(NOT_FOUND)?;
    Ok(Json(EmailDomainView::of(checked)))
}

async fn verify_email_domain(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(path): Path<DomainPath>,
) -> Result<Json<EmailDomainView>> {
    let mut domain = find(&janua, caller.application.id, &path).await?;
    if domain.status == DomainStatus::Failed {
        // Asked for anew, it has its time once more.
        domain = transact!(janua, async |tx| {
            caller.hold(tx).await?;
            let mut held = Domain::hold(tx, domain.app_id, &domain.hostname).await?.ok_or(NOT_FOUND)?;
            (held.status, held.checks) = (DomainStatus::Pending, 0);
            held.pending_since = Some(janua.clock.now());
            held.save(tx).await?;
            Ok(held)
        })?;
    }
    let checked = check(&janua, &caller.session.by(), &domain).await?.ok_or(NOT_FOUND)?;
    Ok(Json(EmailDomainView::of(checked)))
}

async fn rotate_email_domain(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(path): Path<DomainPath>,
) -> Result<Json<EmailDomainView>> {
    let domain = find(&janua, caller.application.id, &path).await?;
    let app = domain.app_id;
    let newest = DomainKey::of(&janua.db, app, &domain.hostname).await?.first().map_or(0, |key| key.generation);
    let keys = keys::generate(&janua, app, &domain.hostname, newest + 1).await?;
    let rotated = transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let mut held = Domain::hold(tx, app, &domain.hostname).await?.ok_or(NOT_FOUND)?;
        let known = DomainKey::of(&mut *tx, app, &held.hostname).await?;
        if known.first().is_some_and(|key| key.generation > newest || key.generation > held.signing) {
            return Err(ROTATION_OPEN.into());
        }
        for key in &keys {
            key.insert(tx, app, &held.hostname, janua.clock.now()).await?;
        }
        let known = DomainKey::of(&mut *tx, app, &held.hostname).await?;
        let mut records = wanted(&janua, &held.hostname, &known, held.signing);
        for record in &mut records {
            if let Some(before) = held.findings.0.iter().find(|before| before.name == record.name) {
                (record.status, record.found) = (before.status, before.found.clone());
            }
        }
        held.findings = InJson(records);
        held.next_check_at = Some(rules::first_check(janua.clock.now()));
        held.save(tx).await?;
        caller.record(tx, &janua, &KeyRotated { hostname: held.hostname.clone() }).await?;
        Ok(held)
    })?;
    Ok(Json(EmailDomainView::of(rotated)))
}

/// Queued mail from it fails, and its keys are destroyed.
async fn remove_email_domain(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(path): Path<DomainPath>,
) -> Result<NoContent> {
    let domain = find(&janua, caller.application.id, &path).await?;
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        if !domain.delete(tx).await? {
            return Err(NOT_FOUND.into());
        }
        Ok(caller.record(tx, &janua, &DomainRemoved { hostname: domain.hostname.clone() }).await?)
    })?;
    Ok(NoContent)
}
