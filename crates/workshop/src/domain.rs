//! An app's own domain: claimed by a name, proven by a record in its DNS.
use axum::{extract::State, response::NoContent};
use kernel::{
    App,
    clock::Timestamp,
    db::{self, Db, Tx},
    fault::{Code, Fault, INVALID, Result},
    http::{Json, Routes},
    params,
    ports::dns::Resolver,
    row, transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::ApplicationId,
    enter::{Admin, InApp, Member},
    events::{self, About, Event},
};
use url::{Host, Url};

pub fn routes() -> Routes {
    Routes::new("apps")
        .post("/apps/{appId}/domain", add_domain, "add an app-level DNS domain")
        .fails(&[DOMAIN_EXISTS, DOMAIN_TAKEN])
        .post("/apps/{appId}/domain/verify", verify_domain, "look for the proof in the domain's DNS")
        .fails(&[NO_DOMAIN, DOMAIN_TAKEN, DNS_UNAVAILABLE])
        .get("/apps/{appId}/domain", get_domain, "current domain record")
        .fails(&[NO_DOMAIN])
        .delete("/apps/{appId}/domain", remove_domain, "remove the domain")
        .fails(&[NO_DOMAIN])
}

const DOMAIN_EXISTS: Code = Code::new(409, "domain_exists", "The app has another domain. Remove it first.");
const DOMAIN_TAKEN: Code = Code::new(409, "domain_taken", "Another app has proven that this domain is its own.");
const NO_DOMAIN: Code = Code::new(404, "no_domain", "The app has no domain. Add one first.");
const DNS_UNAVAILABLE: Code =
    Code::new(502, "dns_unavailable", "No name server answered for this domain. Try again shortly.");

/// Under which name of the domain the proof stands.
const PLACE: &str = "_janua-challenge";

struct Claim {
    domain: String,
    token: String,
    created_at: Timestamp,
    checked_at: Option<Timestamp>,
    verified_at: Option<Timestamp>,
}
row!(Claim { domain, token, created_at, checked_at, verified_at });

impl Claim {
    async fn find(db: &Db, app: ApplicationId) -> db::Result<Option<Self>> {
        let sql = "SELECT domain, token, created_at, checked_at, verified_at FROM app_domain WHERE app_id = $1";
        db.opt(sql, params![app]).await
    }

    /// `false` when the app has one already.
    async fn insert(&self, tx: &mut Tx, app: ApplicationId) -> db::Result<bool> {
        let sql = "INSERT INTO app_domain (app_id, domain, token, created_at) VALUES ($1, $2, $3, $4)
                   ON CONFLICT (app_id) DO NOTHING";
        Ok(tx.exec(sql, params![app, &self.domain, &self.token, self.created_at]).await? == 1)
    }

    async fn is_proven_elsewhere(tx: &mut Tx, domain: &str, app: ApplicationId) -> db::Result<bool> {
        let sql = "SELECT app_id FROM app_domain WHERE domain = $1 AND app_id <> $2 AND verified_at IS NOT NULL";
        Ok(tx.opt::<(String,)>(sql, params![domain, app]).await?.is_some())
    }

    /// Notes what a look found; `false` when the claim is another one by now.
    async fn looked(&self, tx: &mut Tx, app: ApplicationId) -> db::Result<bool> {
        let sql = "UPDATE app_domain SET checked_at = $3, verified_at = $4 WHERE app_id = $1 AND token = $2";
        Ok(tx.exec(sql, params![app, &self.token, self.checked_at, self.verified_at]).await? == 1)
    }

    async fn remove(tx: &mut Tx, app: ApplicationId) -> db::Result<Option<String>> {
        let sql = "DELETE FROM app_domain WHERE app_id = $1 RETURNING domain";
        let gone: Vec<(String,)> = tx.put(sql, params![app]).await?;
        Ok(gone.into_iter().next().map(|(domain,)| domain))
    }

    fn record(&self) -> DnsRecord {
        DnsRecord { kind: "TXT", name: format!("{PLACE}.{}", self.domain), value: self.token.clone() }
    }
}

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Proof {
    /// The record was not seen yet.
    Pending,
    Verified,
}

/// What to put into the domain's DNS.
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
    record: DnsRecord,
    /// What stood at the record's name at the last look; only after a look.
    #[serde(skip_serializing_if = "Option::is_none")]
    seen: Option<Vec<String>>,
    created_at: Timestamp,
    checked_at: Option<Timestamp>,
    verified_at: Option<Timestamp>,
}

impl DomainView {
    fn of(claim: Claim, seen: Option<Vec<String>>) -> Self {
        Self {
            status: if claim.verified_at.is_some() { Proof::Verified } else { Proof::Pending },
            record: claim.record(),
            domain: claim.domain,
            seen,
            created_at: claim.created_at,
            checked_at: claim.checked_at,
            verified_at: claim.verified_at,
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
fn domain_of(app: &App, text: &str) -> Option<String> {
    let Ok(Host::Domain(name)) = Host::parse(text.trim().trim_end_matches('.')) else { return None };
    let labels: Vec<&str> = name.split('.').collect();
    let is_label = |label: &&str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let ours = Url::parse(&app.config.base_url()).ok().and_then(|url| url.domain().map(str::to_owned));
    // The proof's own name must fit before it.
    let fits = name.len() + PLACE.len() < 253;
    (labels.len() > 1 && labels.iter().all(is_label) && fits && Some(&name) != ours.as_ref()).then_some(name)
}

async fn add_domain(
    State(app): State<App>,
    caller: InApp<Admin>,
    Json(new): Json<NewDomain>,
) -> Result<Json<DomainView>> {
    let domain = domain_of(&app, &new.domain);
    let domain =
        domain.ok_or_else(|| INVALID.at("domain", "wrong_form", "must be a domain such as app.example.com"))?;
    let id = caller.application.id;
    let token = format!("janua-verification={}", app.entropy.token().expose());
    let claim = Claim { domain, token, created_at: app.clock.now(), checked_at: None, verified_at: None };
    transact!(app.db, tx, {
        caller.hold(tx).await?;
        if Claim::is_proven_elsewhere(tx, &claim.domain, id).await? {
            return Err(Fault::from(DOMAIN_TAKEN));
        }
        if !claim.insert(tx, id).await? {
            return Err(DOMAIN_EXISTS.into());
        }
        let (about, event) = (About::app(&caller.application), Event::DomainAdded { domain: claim.domain.clone() });
        Ok(events::record(tx, &app, &caller.session.by(), about, &event).await?)
    })?;
    Ok(Json(DomainView::of(claim, None)))
}

async fn verify_domain(State(app): State<App>, caller: InApp<Admin>) -> Result<Json<DomainView>> {
    let id = caller.application.id;
    let mut claim = Claim::find(&app.db, id).await?.ok_or(NO_DOMAIN)?;
    let found = app.own::<Resolver>().texts(&claim.record().name).await;
    let seen = found.map_err(|error| DNS_UNAVAILABLE.caused_by(error))?;
    let (now, was_verified) = (app.clock.now(), claim.verified_at.is_some());
    claim.checked_at = Some(now);
    // What was proven once stays so: a name server's bad day takes nobody's domain away.
    if seen.iter().any(|text| text.trim() == claim.token) {
        claim.verified_at = claim.verified_at.or(Some(now));
    }
    transact!(app.db, tx, {
        caller.hold(tx).await?;
        let is_new = !was_verified && claim.verified_at.is_some();
        if is_new && Claim::is_proven_elsewhere(tx, &claim.domain, id).await? {
            return Err(Fault::from(DOMAIN_TAKEN));
        }
        if !claim.looked(tx, id).await? {
            return Err(NO_DOMAIN.into());
        }
        if is_new {
            let (about, domain) = (About::app(&caller.application), claim.domain.clone());
            events::record(tx, &app, &caller.session.by(), about, &Event::DomainVerified { domain }).await?;
        }
        Ok(())
    })?;
    Ok(Json(DomainView::of(claim, Some(seen))))
}

async fn get_domain(State(app): State<App>, caller: InApp<Member>) -> Result<Json<DomainView>> {
    let claim = Claim::find(&app.db, caller.application.id).await?.ok_or(NO_DOMAIN)?;
    Ok(Json(DomainView::of(claim, None)))
}

async fn remove_domain(State(app): State<App>, caller: InApp<Admin>) -> Result<NoContent> {
    transact!(app.db, tx, {
        caller.hold(tx).await?;
        let domain = Claim::remove(tx, caller.application.id).await?.ok_or(NO_DOMAIN)?;
        let (about, event) = (About::app(&caller.application), Event::DomainRemoved { domain });
        Ok::<_, Fault>(events::record(tx, &app, &caller.session.by(), about, &event).await?)
    })?;
    Ok(NoContent)
}
