//! Framework agents: programs of agent frameworks. They sign in with a secret or a key of their own, can act for their owner,
//! and have a kill switch.
mod credentials;
mod model;
mod switch;

use axum::{extract::State, response::NoContent};
use kernel::{
    Janua,
    crypto::Secret,
    fault::{FORBIDDEN, Fault, INVALID, NOT_FOUND, Result},
    http::{Json, Listed, MaybeJson, Page, Query, Routes},
    ports::outgoing,
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;
use tenancy::{
    apps::redirects,
    enter::{REAUTHENTICATION_REQUIRED, Session, builders},
    machines::{
        AGENT_EXPIRED, AGENT_LIMIT, AGENT_SUSPENDED, INVALID_CREDENTIALS, INVALID_SCOPE, INVALID_TARGET, Kind,
        LIMIT_REACHED, Machine, MachineAct, MachineEvent, MachineId, Managed, SUSPENDED_BY_ADMIN,
        State as MachineState, Warden, assertion,
        caller::OfFramework,
        delegation::{self, Principal, Refusal},
        secrets::{self, Purpose},
        states,
        targets::Wanted,
    },
    orgs::OrgId,
};

pub use self::credentials::{Credentials, issue};
use self::{model::FrameworkAgent, switch::SessionOrSwitch};
use crate::{
    agents::{MachineChange, delete, suspended_by},
    shared::{
        ListQuery, LogQuery, MachineLog, MachineView, Permissions, Selection, SuspendReason, TokenAnswer, check_name,
        draft, home, log,
    },
};

pub fn routes() -> Routes {
    Routes::new("agents")
        .post("/framework-agent/register", register_framework_agent, "register a framework agent")
        .fails(&[LIMIT_REACHED, builders::BUILDERS_ONLY, REAUTHENTICATION_REQUIRED])
        .fails(&[tenancy::quotas::QUOTA_EXCEEDED, tenancy::apps::slugs::SLUG_TAKEN])
        .post("/framework-agent/token", framework_agent_token, "exchange credentials for a Bearer token")
        .fails(&[INVALID_CREDENTIALS, AGENT_SUSPENDED, AGENT_EXPIRED, AGENT_LIMIT, INVALID_SCOPE, INVALID_TARGET])
        .fails(&[NOT_FOUND])
        .post("/framework-agent/{id}/suspend", suspend_framework_agent, "suspend a framework agent")
        .post("/framework-agent/{id}/reactivate", reactivate_framework_agent, "reactivate a framework agent")
        .fails(states::REACTIVATE)
        .get("/framework-agent", list_framework_agents, "list the user's framework agents")
        .fails(&[FORBIDDEN, NOT_FOUND])
        .get("/framework-agent/{id}", get_framework_agent, "one framework agent")
        .patch("/framework-agent/{id}", update_framework_agent, "change a framework agent")
        .delete("/framework-agent/{id}", delete_framework_agent, "delete a framework agent")
        .fails(&[SUSPENDED_BY_ADMIN])
        .get("/framework-agent/{id}/logs", framework_agent_logs, "activity logs of a framework agent")
        .post("/framework-agent/{id}/rotate", rotate_secret, "create a new client secret")
        .fails(&[REAUTHENTICATION_REQUIRED])
        .post("/framework-agent/{id}/kill-switch", new_kill_switch, "create a new kill switch; the old one ends")
        .fails(&[REAUTHENTICATION_REQUIRED])
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FrameworkAgentView {
    #[serde(flatten)]
    machine: MachineView,
    framework: String,
    version: Option<String>,
    /// Whether it signs client assertions with a key of its own.
    has_keys: bool,
    jwks_uri: Option<String>,
    redirect_uris: Vec<String>,
}

impl FrameworkAgentView {
    async fn of(janua: &Janua, agent: &FrameworkAgent) -> Result<Self> {
        let machine = &agent.machine;
        Ok(Self {
            machine: MachineView::of(janua, &janua.db, machine).await?,
            framework: agent.framework.clone(),
            version: agent.version.clone(),
            has_keys: machine.jwks.is_some() || machine.jwks_uri.is_some(),
            jwks_uri: machine.jwks_uri.clone(),
            redirect_uris: machine.redirect_uris.clone(),
        })
    }
}

#[derive(Serialize, JsonSchema)]
struct FrameworkAgentAnswer {
    agent: FrameworkAgentView,
}

impl FrameworkAgentAnswer {
    async fn of(janua: &Janua, id: MachineId) -> Result<Json<Self>> {
        let agent = FrameworkAgent::find(&janua.db, id).await?.ok_or(NOT_FOUND)?;
        Ok(Json(Self { agent: FrameworkAgentView::of(janua, &agent).await? }))
    }
}

/// Creating a secret asks for a proof of identity from the last ten minutes; of a second factor, if the user has one.
pub fn refuse_stale(janua: &Janua, session: &Session) -> Result<()> {
    let fresh = session.fresh(janua);
    let is_enough = fresh.is_some_and(|fresh| !session.factors().is_on() || fresh.factor || fresh.passkey);
    // Any way to sign in will do.
    let fault = || Fault::from(REAUTHENTICATION_REQUIRED).with_extra("methods", &["sign_in"]);
    if is_enough { Ok(()) } else { Err(fault()) }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewFrameworkAgent {
    #[schemars(length(max = 400))]
    name: String,
    /// Such as `langgraph`.
    #[schemars(regex(pattern = "^[a-z0-9._-]{1,50}$"))]
    framework: String,
    #[schemars(length(min = 1, max = 50))]
    version: Option<String>,
    #[schemars(length(max = 1000))]
    description: Option<String>,
    org_id: Option<OrgId>,
    /// Public keys for `private_key_jwt`, up to five: Ed25519, P-256 or RSA.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    jwks: Option<serde_json::Value>,
    /// Where such keys are published, instead of `jwks`.
    #[schemars(length(max = 2000))]
    jwks_uri: Option<String>,
    /// Makes the agent an OAuth client that other users can authorize.
    #[serde(default)]
    #[schemars(length(max = 10))]
    redirect_uris: Vec<String>,
    #[serde(flatten)]
    permissions: Permissions,
}

impl NewFrameworkAgent {
    fn check(&self) -> Result<()> {
        if let Some(jwks) = &self.jwks {
            assertion::check_keys(jwks)?;
        }
        if let Some(uri) = &self.jwks_uri {
            let is_right = outgoing::endpoint(uri).is_ok_and(|url| url.scheme() == "https");
            let wrong = || -> Fault { INVALID.at("jwksUri", "wrong_form", "must be an https URL") };
            if !is_right {
                return Err(wrong());
            }
            if self.jwks.is_some() {
                return Err(INVALID.at("jwksUri", "not_allowed", "must be left out beside jwks"));
            }
        }
        redirects::check(&self.redirect_uris, &[])
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewFrameworkAgentAnswer {
    agent: FrameworkAgentView,
    client_id: MachineId,
    /// This is the only time it is shown.
    client_secret: String,
    /// Suspends the agent, without a session. This is the only time it is shown.
    kill_switch_token: String,
}

async fn register_framework_agent(
    State(janua): State<Janua>,
    session: Session,
    Json(new): Json<NewFrameworkAgent>,
) -> Result<Json<NewFrameworkAgentAnswer>> {
    builders::refuse_others(&janua, &session).await?;
    let name = check_name(&new.name)?;
    new.check()?;
    new.permissions.check(janua.clock.now())?;
    refuse_stale(&janua, &session)?;
    let (org, account) = (OrgId::new(&janua.entropy, janua.clock.now()), session.account().id);
    let mut machine = draft(&janua, Kind::Framework, org, account, name, MachineState::Active);
    machine.description = new.description;
    (machine.jwks, machine.jwks_uri, machine.redirect_uris) = (new.jwks, new.jwks_uri, new.redirect_uris);
    new.permissions.apply(&mut machine);
    let id = machine.id;
    let (secret, switch) = transact!(janua, async |tx| {
        let mut machine = machine.clone();
        machine.org_id = home(tx, &janua, &session, new.org_id).await?;
        let agent = FrameworkAgent { machine, framework: new.framework.clone(), version: new.version.clone() };
        agent.insert(tx).await?;
        let machine = &agent.machine;
        let secret = secrets::issue(tx, &janua, machine, Purpose::Framework, None).await?;
        let switch = secrets::issue(tx, &janua, machine, Purpose::KillSwitch, None).await?;
        let details = json!({ "name": machine.name, "framework": agent.framework });
        let event = MachineEvent::new(Kind::Framework, MachineAct::Registered, details);
        session.record_about(tx, &janua, machine.about(), &event).await?;
        Ok((secret, switch))
    })?;
    let Json(FrameworkAgentAnswer { agent }) = FrameworkAgentAnswer::of(&janua, id).await?;
    let (client_secret, kill_switch_token) = (secret.expose().to_owned(), switch.expose().to_owned());
    Ok(Json(NewFrameworkAgentAnswer { agent, client_id: id, client_secret, kill_switch_token }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FrameworkTokenRequest {
    #[serde(flatten)]
    credentials: Credentials,
    /// Default: all scopes of the agent.
    #[schemars(length(max = 50))]
    scopes: Option<Vec<String>>,
    /// The URL of the server that the token is for. Default: this service.
    #[schemars(length(max = 2000))]
    resource: Option<String>,
    /// Whether the agent acts for the user of the session.
    #[serde(default)]
    on_behalf_of: bool,
}

/// The session is the subject and the credentials are the actor: both must be there.
async fn framework_agent_token(
    State(janua): State<Janua>,
    session: Session,
    Json(asked): Json<FrameworkTokenRequest>,
) -> Result<Json<TokenAnswer>> {
    let machine = asked.credentials.check(&janua, Kind::Framework).await?;
    let caller = Managed::<OfFramework>::reach(&janua, session, machine.id).await?;
    let wanted = Wanted { scopes: asked.scopes, resource: asked.resource };
    let by = caller.session.by();
    if !asked.on_behalf_of {
        return issue(&janua, &by, &machine, &wanted).await.map(Json);
    }
    let principal = Principal::of(&caller.session.living);
    match delegation::delegate(&janua, &by, &machine, &principal, &wanted).await {
        Ok(issued) => Ok(Json(issued.into())),
        // An admin may use the agent, and not make it act for its owner.
        Err(Refusal::NotAllowed(_)) => Err(NOT_FOUND.into()),
        Err(Refusal::Fault(fault)) => Err(credentials::noted(&janua, &by, &machine, fault).await?),
    }
}

async fn suspend_framework_agent(
    State(janua): State<Janua>,
    caller: SessionOrSwitch,
    MaybeJson(body): MaybeJson<SuspendReason>,
) -> Result<Json<FrameworkAgentAnswer>> {
    let reason = body.and_then(|body| body.reason).filter(|reason| !reason.trim().is_empty());
    let id = caller.id();
    transact!(janua, async |tx| {
        match &caller {
            SessionOrSwitch::Session(caller) => {
                let mut machine = caller.hold(tx).await?;
                let why = suspended_by(caller);
                states::suspend(tx, &janua, &caller.session.by(), &mut machine, why, reason.clone()).await?;
            }
            SessionOrSwitch::Switch { by, .. } => {
                let mut machine = Machine::hold(tx, id).await?.ok_or(NOT_FOUND)?;
                states::kill(tx, &janua, by, &mut machine).await?;
            }
        }
        Ok(())
    })?;
    FrameworkAgentAnswer::of(&janua, id).await
}

async fn reactivate_framework_agent(
    State(janua): State<Janua>,
    Warden(caller): Warden<OfFramework>,
) -> Result<Json<FrameworkAgentAnswer>> {
    transact!(janua, async |tx| {
        let mut machine = caller.hold(tx).await?;
        let who = (caller.session.account().id, caller.rank);
        states::reactivate(tx, &janua, &caller.session.by(), &mut machine, who).await?;
        Ok(())
    })?;
    FrameworkAgentAnswer::of(&janua, caller.machine.id).await
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FrameworkAgentList {
    agents: Vec<FrameworkAgentView>,
    next_cursor: Option<String>,
}

async fn list_framework_agents(
    State(janua): State<Janua>,
    session: Session,
    page: Page,
    Query(query): Query<ListQuery>,
) -> Result<Json<FrameworkAgentList>> {
    let chosen = Selection::of(&janua, &session, &query).await?;
    let now = janua.clock.now();
    let fetch =
        async |chosen: &Selection, below, most| FrameworkAgent::page(&janua.db, chosen, now, &below, most).await;
    let Listed { rows, next_cursor } =
        chosen.list(&janua, &page, "framework-agents", fetch, |agent| &agent.machine).await?;
    let mut agents = vec![];
    for agent in &rows {
        agents.push(FrameworkAgentView::of(&janua, agent).await?);
    }
    Ok(Json(FrameworkAgentList { agents, next_cursor }))
}

async fn get_framework_agent(
    State(janua): State<Janua>,
    caller: Managed<OfFramework>,
) -> Result<Json<FrameworkAgentAnswer>> {
    FrameworkAgentAnswer::of(&janua, caller.machine.id).await
}

async fn update_framework_agent(
    State(janua): State<Janua>,
    caller: Managed<OfFramework>,
    Json(change): Json<MachineChange>,
) -> Result<Json<FrameworkAgentAnswer>> {
    change.apply(&janua, &caller).await?;
    FrameworkAgentAnswer::of(&janua, caller.machine.id).await
}

async fn delete_framework_agent(State(janua): State<Janua>, caller: Managed<OfFramework>) -> Result<NoContent> {
    delete(&janua, &caller).await?;
    Ok(NoContent)
}

async fn framework_agent_logs(
    State(janua): State<Janua>,
    caller: Managed<OfFramework>,
    page: Page,
    Query(query): Query<LogQuery>,
) -> Result<Json<MachineLog>> {
    log(&janua, &page, caller.machine.id, query).await
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Rotation {
    /// How long the old secret works beside the new one. Default: not at all, and tokens that are out become invalid.
    #[serde(default)]
    #[schemars(range(max = 604_800))]
    grace_seconds: u32,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewSecret {
    client_id: MachineId,
    /// This is the only time it is shown.
    client_secret: String,
}

/// A new secret of a machine. Without a grace period its tokens end with the old one.
pub async fn rotate<K: tenancy::machines::caller::OfKind>(
    janua: &Janua,
    caller: &Managed<K>,
    purpose: Purpose,
    grace: Duration,
) -> Result<Secret> {
    let now = janua.clock.now();
    transact!(janua, async |tx| {
        let mut machine = caller.hold(tx).await?;
        let until = (!grace.is_zero()).then(|| now.plus(grace));
        let secret = secrets::issue(tx, janua, &machine, purpose, until).await?;
        if until.is_none() && purpose != Purpose::KillSwitch {
            machine.generation += 1;
            machine.updated_at = now;
            machine.save(tx).await?;
        }
        let what = if purpose == Purpose::KillSwitch { "kill_switch" } else { "client_secret" };
        let details = json!({ "name": machine.name, "secret": what, "graceSeconds": grace.as_secs() });
        let event = MachineEvent::new(machine.kind, MachineAct::SecretRotated, details);
        caller.record(tx, janua, &event).await?;
        Ok(secret)
    })
}

async fn rotate_secret(
    State(janua): State<Janua>,
    caller: Managed<OfFramework>,
    MaybeJson(rotation): MaybeJson<Rotation>,
) -> Result<Json<NewSecret>> {
    refuse_stale(&janua, &caller.session)?;
    let grace = Duration::from_secs(rotation.unwrap_or_default().grace_seconds.into());
    let secret = rotate(&janua, &caller, Purpose::Framework, grace).await?;
    Ok(Json(NewSecret { client_id: caller.machine.id, client_secret: secret.expose().to_owned() }))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewKillSwitch {
    /// This is the only time it is shown.
    kill_switch_token: String,
}

async fn new_kill_switch(State(janua): State<Janua>, caller: Managed<OfFramework>) -> Result<Json<NewKillSwitch>> {
    refuse_stale(&janua, &caller.session)?;
    let secret = rotate(&janua, &caller, Purpose::KillSwitch, Duration::ZERO).await?;
    Ok(Json(NewKillSwitch { kill_switch_token: secret.expose().to_owned() }))
}
