//! An app's own name: claimed, and verified by a DNS record. It stays verified as long as the record exists.
use axum::{extract::State, response::NoContent};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, Result},
    http::{Json, Routes},
    ports::dns::DNS_UNAVAILABLE,
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::enter::{Admin, InApp, Member};

use super::{
    NO_DOMAIN, api, check,
    events::DomainAdded,
    model::{Domain, ProofReason},
    names::{self, INVALID_DOMAIN},
    proof,
    records::DomainView,
};

pub fn routes() -> Routes {
    Routes::new("apps")
        .post("/apps/{appId}/domain", add_domain, "add an app-level DNS domain")
        .fails(&[DOMAIN_EXISTS, INVALID_DOMAIN])
        .post("/apps/{appId}/domain/verify", verify_domain, "check the domain's DNS record now")
        .fails(&[NO_DOMAIN, DNS_UNAVAILABLE])
        .get("/apps/{appId}/domain", get_domain, "current domain record")
        .fails(&[NO_DOMAIN])
        .delete("/apps/{appId}/domain", remove_domain, "remove the domain")
        .fails(&[NO_DOMAIN])
}

pub const DOMAIN_EXISTS: Code = Code::new(409, "domain_exists", "The app has another domain. Remove it first.");

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
struct OwnDomainView {
    domain: String,
    status: Proof,
    /// Why it is not proven, or may not stay so.
    reason: Option<ProofReason>,
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
    /// The same domain as the other domain routes show it.
    details: DomainView,
}

impl OwnDomainView {
    async fn new(janua: &Janua, claim: Domain) -> Result<Self> {
        let status = match (claim.verified_at, claim.reason) {
            (Some(_), _) => Proof::Verified,
            (None, Some(ProofReason::LostOwnership | ProofReason::TimedOut)) => Proof::Failed,
            _ => Proof::Pending,
        };
        let details = api::view(janua, claim.clone()).await?;
        Ok(Self {
            status,
            reason: claim.reason,
            record: DnsRecord { kind: "TXT", name: names::record_name(&claim.domain), value: claim.token },
            domain: claim.domain,
            seen: claim.seen,
            created_at: claim.created_at,
            checked_at: claim.checked_at,
            next_check_at: claim.next_check_at,
            verified_at: claim.verified_at,
            missing_since: claim.missing_since,
            contested_since: claim.contested_since,
            details,
        })
    }
}

#[derive(Deserialize, JsonSchema)]
struct NewDomain {
    /// Such as `app.example.com`.
    #[schemars(length(min = 1, max = 253))]
    domain: String,
}

async fn add_domain(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Json(new): Json<NewDomain>,
) -> Result<Json<OwnDomainView>> {
    let name = api::name(&janua, &new.domain)?;
    let claim = transact!(janua, async |tx| {
        let application = caller.hold(tx).await?;
        if Domain::own(&mut *tx, application.id).await?.is_some() {
            return Err(DOMAIN_EXISTS.into());
        }
        let (mut claim, is_new) = api::find_or_claim(tx, &janua, &application, &name).await?;
        claim.is_own = true;
        if is_new {
            if !claim.insert(tx).await? {
                return Err(DOMAIN_EXISTS.into());
            }
            caller.record(tx, &janua, &DomainAdded { domain: name.clone() }).await?;
        } else {
            claim.save(tx, &janua).await?;
        }
        Ok(claim)
    })?;
    Ok(Json(OwnDomainView::new(&janua, claim).await?))
}

async fn verify_domain(State(janua): State<Janua>, caller: InApp<Admin>) -> Result<Json<OwnDomainView>> {
    let claim = Domain::own(&janua.db, caller.application.id).await?.ok_or(NO_DOMAIN)?;
    let target = api::target(&janua, claim.app_id).await?;
    let look = check::look(&janua, &claim, &target).await.map_err(|error| DNS_UNAVAILABLE.caused_by(error))?;
    let by = caller.session.by();
    let noted = transact!(janua, async |tx| {
        caller.hold(tx).await?;
        proof::note(tx, &janua, &by, &claim, &look).await
    })?;
    Ok(Json(OwnDomainView::new(&janua, noted.ok_or(NO_DOMAIN)?).await?))
}

async fn get_domain(State(janua): State<Janua>, caller: InApp<Member>) -> Result<Json<OwnDomainView>> {
    let claim = Domain::own(&janua.db, caller.application.id).await?.ok_or(NO_DOMAIN)?;
    Ok(Json(OwnDomainView::new(&janua, claim).await?))
}

async fn remove_domain(State(janua): State<Janua>, caller: InApp<Admin>) -> Result<NoContent> {
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let claim = Domain::own(&mut *tx, caller.application.id).await?.ok_or(NO_DOMAIN)?;
        api::remove(tx, &janua, &caller, claim).await
    })?;
    Ok(NoContent)
}
