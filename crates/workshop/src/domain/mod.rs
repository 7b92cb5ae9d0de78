//! An app's own domain: claimed by name and verified by a DNS record. It stays verified as long as the record exists.
mod claim;
mod look;
mod mails;

use axum::{extract::State, response::NoContent};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, INVALID, Result},
    http::{Json, Routes},
    jobs::Jobs,
    ports::dns::Resolver,
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::enter::{Admin, InApp, Member};
use url::{Host, Url};

use self::claim::{Claim, Reason};
pub use self::mails::MAILS;
use crate::{
    DNS_UNAVAILABLE,
    events::{DomainAdded, DomainRemoved},
};

pub fn routes() -> Routes {
    Routes::new("apps")
        .post("/apps/{appId}/domain", add_domain, "add an app-level DNS domain")
        .fails(&[DOMAIN_EXISTS])
        .post("/apps/{appId}/domain/verify", verify_domain, "check the domain's DNS record now")
        .fails(&[NO_DOMAIN, DNS_UNAVAILABLE])
        .get("/apps/{appId}/domain", get_domain, "current domain record")
        .fails(&[NO_DOMAIN])
        .delete("/apps/{appId}/domain", remove_domain, "remove the domain")
        .fails(&[NO_DOMAIN])
}

pub fn jobs() -> Jobs {
    Jobs::new().every::<look::LookAtDomains>(look::EVERY)
}

const DOMAIN_EXISTS: Code = Code::new(409, "domain_exists", "The app has another domain. Remove it first.");
const NO_DOMAIN: Code = Code::new(404, "no_domain", "The app has no domain. Add one first.");

/// Under which name of the domain the proof stands.
const PLACE: &str = "_janua-challenge";

fn record_name(domain: &str) -> String {
    format!("{PLACE}.{domain}")
}

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Proof {
    /// The record was not seen yet, or another app has proven the domain.
    Pending,
    /// Stays verified until another app verifies the domain, even without the record; `reason` then says so.
    Verified,
    /// Not verified in time, or verified by another app. `verify` starts again.
    Failed,
}

/// The DNS record to create.
#[derive(Serialize, JsonSchema)]
struct DnsRecord {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    value: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DomainView {
    domain: String,
    status: Proof,
    /// Why it is not proven, or may not stay so.
    reason: Option<Reason>,
    record: DnsRecord,
    /// The records found at the last check.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen: Option<Vec<String>>,
    created_at: Timestamp,
    /// The last look that was answered.
    checked_at: Option<Timestamp>,
    /// Time of the next automatic check; `null` for none.
    next_check_at: Option<Timestamp>,
    verified_at: Option<Timestamp>,
    /// Since when the record of a proven domain is gone.
    missing_since: Option<Timestamp>,
    /// Since when this app's record stands and that of the app which has proven the domain does not. The domain moves
    /// here after 24 hours of that.
    contested_since: Option<Timestamp>,
}

impl From<Claim> for DomainView {
    fn from(claim: Claim) -> Self {
        let status = match (claim.verified_at, claim.reason) {
            (Some(_), _) => Proof::Verified,
            (None, Some(Reason::LostOwnership | Reason::TimedOut)) => Proof::Failed,
            _ => Proof::Pending,
        };
        Self {
            status,
            reason: claim.reason,
            record: DnsRecord { kind: "TXT", name: record_name(&claim.domain), value: claim.token },
            domain: claim.domain,
            seen: claim.seen,
            created_at: claim.created_at,
            checked_at: claim.checked_at,
            next_check_at: claim.next_check_at,
            verified_at: claim.verified_at,
            missing_since: claim.missing_since,
            contested_since: claim.contested_since,
        }
    }
}

#[derive(Deserialize, JsonSchema)]
struct NewDomain {
    /// Such as `app.example.com`.
    #[schemars(length(min = 1, max = 253))]
    domain: String,
}

/// A name as it stands in DNS; nothing for what cannot be somebody's domain.
fn domain_of(janua: &Janua, text: &str) -> Option<String> {
    let Ok(Host::Domain(name)) = Host::parse(text.trim().trim_end_matches('.')) else { return None };
    let labels: Vec<&str> = name.split('.').collect();
    let is_label = |label: &&str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let ours = Url::parse(&janua.config.base_url()).ok().and_then(|url| url.domain().map(str::to_owned));
    // The proof's own name must fit before it.
    let fits = name.len() + PLACE.len() < 253;
    (labels.len() > 1 && labels.iter().all(is_label) && fits && Some(&name) != ours.as_ref()).then_some(name)
}

async fn add_domain(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Json(new): Json<NewDomain>,
) -> Result<Json<DomainView>> {
    let domain = domain_of(&janua, &new.domain);
    let domain =
        domain.ok_or_else(|| INVALID.at("domain", "wrong_form", "must be a domain such as app.example.com"))?;
    let (id, now) = (caller.application.id, janua.clock.now());
    let token = format!("janua-verification={}", janua.entropy.token().expose());
    let mut claim = Claim::new(id, domain, token, now, now.plus(look::FIRST_WAIT));
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let is_taken = Claim::is_proven_elsewhere(tx, &claim.domain, id).await?;
        claim.reason = is_taken.then_some(Reason::Contested);
        if !claim.insert(tx).await? {
            return Err(DOMAIN_EXISTS.into());
        }
        Ok(caller.record(tx, &janua, &DomainAdded { domain: claim.domain.clone() }).await?)
    })?;
    Ok(Json(claim.into()))
}

async fn verify_domain(State(janua): State<Janua>, caller: InApp<Admin>) -> Result<Json<DomainView>> {
    let claim = Claim::find(&janua.db, caller.application.id).await?.ok_or(NO_DOMAIN)?;
    let found = janua.own::<Resolver>().texts(&record_name(&claim.domain)).await;
    let seen = found.map_err(|error| DNS_UNAVAILABLE.caused_by(error))?;
    let by = caller.session.by();
    let noted = transact!(janua, async |tx| {
        caller.hold(tx).await?;
        look::note(tx, &janua, &by, &claim, &seen).await
    })?;
    Ok(Json(noted.ok_or(NO_DOMAIN)?.into()))
}

async fn get_domain(State(janua): State<Janua>, caller: InApp<Member>) -> Result<Json<DomainView>> {
    let claim = Claim::find(&janua.db, caller.application.id).await?.ok_or(NO_DOMAIN)?;
    Ok(Json(claim.into()))
}

async fn remove_domain(State(janua): State<Janua>, caller: InApp<Admin>) -> Result<NoContent> {
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let domain = Claim::remove(tx, caller.application.id).await?.ok_or(NO_DOMAIN)?;
        Ok(caller.record(tx, &janua, &DomainRemoved { domain }).await?)
    })?;
    Ok(NoContent)
}
