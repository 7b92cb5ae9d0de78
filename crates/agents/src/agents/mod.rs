//! Agents: programs that sign in with a blockchain wallet.
pub mod challenge;
pub mod lookup;
mod model;
pub mod wallet;

use axum::{extract::State, response::NoContent};
use db::Reach;
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::Secret,
    fault::{Code, FORBIDDEN, MALFORMED, NOT_FOUND, Result},
    http::{Json, Listed, MaybeJson, Page, Query, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::{
    enter::{NotAdmitted, Session, Visitor, builders},
    machines::{
        AGENT_EXPIRED, AGENT_LIMIT, AGENT_SUSPENDED, INVALID_SCOPE, INVALID_TARGET, Kind, LIMIT_REACHED, Machine,
        MachineAct, MachineEvent, MachineId, Managed, Rank, SUSPENDED_BY_ADMIN, State as MachineState, SuspendedBy,
        Warden,
        caller::OfAgent,
        limits::{self, Outcome},
        refusals, states,
        targets::{self, Wanted},
        tokens,
    },
    once::{self, Purpose},
    orgs::OrgId,
};

use self::{
    challenge::Challenge,
    model::Agent,
    wallet::{INVALID_WALLET, UNSUPPORTED_CHAIN, Wallet},
};
use crate::{
    Settings,
    pace::Paces,
    shared::{
        ListQuery, LogQuery, MachineLog, MachineView, Permissions, Selection, SuspendReason, TokenAnswer, check_name,
        draft, home, log,
    },
    suspended,
};

const WALLET_TAKEN: Code = Code::new(409, "wallet_taken", "Another agent has proven this wallet.");
const AGENT_NOT_REGISTERED: Code =
    Code::new(403, "agent_not_registered", "No agent is registered with this wallet. Register it first.");
const SEVERAL_AGENTS: Code = Code::new(
    409,
    "several_agents",
    "Several agents claim this wallet. Request a challenge with the agentId of yours.",
);
const BAD_SIGNATURE: Code =
    Code::new(401, "bad_signature", "The signature is not one of this wallet or key over this text.");
const CHALLENGE_SPENT: Code =
    Code::new(410, "challenge_spent", "The challenge was used or has expired. Request a new one.");

const CHALLENGE: Purpose = Purpose::new("agent_challenge", challenge::LIFE);
pub const PURPOSES: &[Purpose] = &[CHALLENGE];

pub fn routes() -> Routes {
    Routes::new("agents")
        .post("/agent/register", register_agent, "register an AI agent (blockchain-wallet based)")
        .fails(&[INVALID_WALLET, UNSUPPORTED_CHAIN, WALLET_TAKEN, LIMIT_REACHED, builders::BUILDERS_ONLY])
        .fails(&[tenancy::quotas::QUOTA_EXCEEDED, tenancy::apps::slugs::SLUG_TAKEN])
        .post("/agent/challenge", challenge_agent, "get a challenge for the agent wallet to sign")
        .fails(&[INVALID_WALLET, UNSUPPORTED_CHAIN, INVALID_TARGET])
        .for_any_origin()
        .post("/agent/token", agent_token, "exchange the signed challenge for an agent Bearer token")
        .fails(&[BAD_SIGNATURE, AGENT_NOT_REGISTERED, AGENT_SUSPENDED, AGENT_EXPIRED, WALLET_TAKEN, SEVERAL_AGENTS])
        .fails(&[CHALLENGE_SPENT, AGENT_LIMIT, INVALID_SCOPE, INVALID_TARGET, SUSPENDED_BY_ADMIN])
        .for_any_origin()
        .post("/agent/{id}/suspend", suspend_agent, "suspend an agent: all of its tokens are invalid at once")
        .post("/agent/{id}/reactivate", reactivate_agent, "reactivate a suspended agent")
        .fails(states::REACTIVATE)
        .get("/agent/list", list_agents, "agents owned by the user, or all of an organization")
        .fails(&[FORBIDDEN, NOT_FOUND])
        .get("/agent/{id}", get_agent, "one agent")
        .patch("/agent/{id}", update_agent, "change name, scopes, audiences, limits or expiry of an agent")
        .delete("/agent/{id}", delete_agent, "delete an agent")
        .fails(&[SUSPENDED_BY_ADMIN])
        .get("/agent/{id}/logs", agent_logs, "activity logs of an agent")
        .get("/verify/agent/{wallet}", lookup::verify_agent, "whether a wallet belongs to an active agent")
        .fails(&[INVALID_WALLET, UNSUPPORTED_CHAIN])
        .answers::<lookup::AgentLookup>(200, "application/json")
        .answers_nothing(304)
        .for_any_origin()
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AgentView {
    #[serde(flatten)]
    machine: MachineView,
    /// With the checksum of EIP-55 for EVM chains.
    wallet: String,
    /// The account as in CAIP-10.
    caip10: String,
    proven_at: Option<Timestamp>,
}

impl AgentView {
    async fn of(janua: &Janua, agent: &Agent) -> Result<Self> {
        Ok(Self {
            machine: MachineView::of(janua, &janua.db, &agent.machine).await?,
            wallet: agent.wallet.address(),
            caip10: agent.wallet.caip10(),
            proven_at: agent.machine.proven_at,
        })
    }
}

#[derive(Serialize, JsonSchema)]
struct AgentAnswer {
    agent: AgentView,
}

impl AgentAnswer {
    async fn of(janua: &Janua, id: MachineId) -> Result<Json<Self>> {
        let agent = Agent::find(&janua.db, id).await?.ok_or(NOT_FOUND)?;
        Ok(Json(Self { agent: AgentView::of(janua, &agent).await? }))
    }
}

fn wallet(janua: &Janua, text: &str, chain: Option<u64>) -> Result<Wallet> {
    Wallet::parse(text, chain, &janua.config.of::<Settings>().agent_chains)
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewAgent {
    #[schemars(length(max = 400))]
    name: String,
    /// `0x…`, a Solana wallet address, or an account as in CAIP-10.
    #[schemars(length(max = 200))]
    wallet: String,
    /// The chain ID in the texts that an EVM wallet signs. Default: 1.
    chain_id: Option<u64>,
    #[schemars(length(max = 1000))]
    description: Option<String>,
    /// Default: the organization of the session, or one of the user's own.
    org_id: Option<OrgId>,
    #[serde(flatten)]
    permissions: Permissions,
}

async fn register_agent(
    State(janua): State<Janua>,
    session: Session,
    Json(new): Json<NewAgent>,
) -> Result<Json<AgentAnswer>> {
    builders::refuse_others(&janua, &session).await?;
    let name = check_name(&new.name)?;
    let wallet = wallet(&janua, &new.wallet, new.chain_id)?;
    new.permissions.check(janua.clock.now())?;
    let mut machine = draft(
        &janua,
        Kind::Agent,
        OrgId::new(&janua.entropy, janua.clock.now()),
        session.account().id,
        name,
        MachineState::Pending,
    );
    machine.description = new.description;
    new.permissions.apply(&mut machine);
    let id = machine.id;
    transact!(janua, async |tx| {
        let mut machine = machine.clone();
        machine.org_id = home(tx, &janua, &session, new.org_id).await?;
        if Agent::of_wallet(&mut *tx, &wallet.key).await?.first().is_some_and(|known| known.proven) {
            return Err(WALLET_TAKEN.into());
        }
        let agent = Agent { machine, wallet: wallet.clone(), proven: false };
        agent.insert(tx).await?;
        let details = json!({ "name": agent.machine.name, "wallet": agent.wallet.caip10() });
        let event = MachineEvent::new(Kind::Agent, MachineAct::Registered, details);
        Ok(session.record_about(tx, &janua, agent.machine.about(), &event).await?)
    })?;
    AgentAnswer::of(&janua, id).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ChallengeRequest {
    #[schemars(length(max = 200))]
    wallet: String,
    chain_id: Option<u64>,
    /// The agent that is to sign in. Needed where several agents claim the wallet.
    agent_id: Option<MachineId>,
    /// The URL of the server that the token is for. Default: this service.
    #[schemars(length(max = 2000))]
    resource: Option<String>,
    /// Default: all scopes of the agent.
    #[schemars(length(max = 50))]
    scopes: Option<Vec<String>>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ChallengeAnswer {
    /// Send it back with the signature.
    challenge: String,
    /// The text to sign (EIP-4361, with `personal_sign` of EIP-191).
    message: String,
    expires_at: Timestamp,
}

/// The same for known and unknown wallets, and nothing is written.
async fn challenge_agent(
    State(janua): State<Janua>,
    NotAdmitted(visitor): NotAdmitted,
    Json(asked): Json<ChallengeRequest>,
) -> Result<Json<ChallengeAnswer>> {
    janua.own::<Paces>().challenges.refuse_too_many(&janua, visitor.client.network())?;
    let wallet = wallet(&janua, &asked.wallet, asked.chain_id)?;
    let base = janua.config.base_url();
    if asked.resource.as_deref().is_some_and(|text| !challenge::is_resource(text, &base)) {
        return Err(INVALID_TARGET.into());
    }
    let scopes = Permissions { scopes: asked.scopes, ..Permissions::default() };
    scopes.check(janua.clock.now())?;
    let challenge = Challenge::new(&janua, &wallet, asked.agent_id, asked.resource, scopes.scopes);
    let (message, expires_at) = (challenge.message(&base), challenge.expires_at());
    Ok(Json(ChallengeAnswer { challenge: challenge.seal(&janua), message, expires_at }))
}

#[derive(Deserialize, JsonSchema)]
struct SignedChallenge {
    #[schemars(length(max = 16_384))]
    challenge: String,
    /// 65 bytes in hexadecimal for EVM wallets; 64 bytes in base58 or base64 for Solana.
    #[schemars(length(max = 400))]
    signature: String,
    /// The text that was signed. If it is sent, it must be the text of the challenge.
    #[schemars(length(max = 16_384))]
    message: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct AgentToken {
    #[serde(flatten)]
    token: TokenAnswer,
    agent: AgentView,
}

/// The agent that a signed challenge is of.
async fn signer(janua: &Janua, challenge: &Challenge) -> Result<Agent> {
    let key = challenge.wallet().key;
    if let Some(id) = challenge.agent {
        let found = Agent::find(&janua.db, id).await?.filter(|agent| agent.wallet.key == key);
        return found.ok_or_else(|| AGENT_NOT_REGISTERED.into());
    }
    let mut claims = Agent::of_wallet(&janua.db, &key).await?;
    match claims.as_slice() {
        [] => Err(AGENT_NOT_REGISTERED.into()),
        [first, ..] if first.proven => Ok(claims.swap_remove(0)),
        [_] => Ok(claims.swap_remove(0)),
        _ => Err(SEVERAL_AGENTS.into()),
    }
}

async fn agent_token(
    State(janua): State<Janua>,
    NotAdmitted(visitor): NotAdmitted,
    Json(signed): Json<SignedChallenge>,
) -> Result<Json<AgentToken>> {
    let now = janua.clock.now();
    let challenge = Challenge::open(&janua, &signed.challenge)
        .ok_or_else(|| MALFORMED.because("The challenge was altered or is not one of ours."))?;
    if now > challenge.expires_at() || now < challenge.issued {
        return Err(CHALLENGE_SPENT.into());
    }
    let message = challenge.message(&janua.config.base_url());
    let is_same = signed.message.as_ref().is_none_or(|sent| *sent == message);
    if !is_same || !challenge.wallet().signed(&message, &signed.signature) {
        return Err(BAD_SIGNATURE.into());
    }
    let agent = signer(&janua, &challenge).await?;
    janua.own::<Paces>().tokens.refuse_too_many(&janua, agent.machine.id)?;
    let outcome = redeem(&janua, &visitor, &challenge, &agent).await;
    if let Err(fault) = &outcome
        && [AGENT_SUSPENDED, AGENT_EXPIRED, AGENT_LIMIT].contains(&fault.code())
    {
        refusals::note(&janua, &visitor.by, &agent.machine, fault.code()).await?;
    }
    outcome
}

/// Uses the challenge up and proves the wallet, in the transaction that records the token.
async fn redeem(janua: &Janua, visitor: &Visitor, challenge: &Challenge, agent: &Agent) -> Result<Json<AgentToken>> {
    let wanted = Wanted { scopes: challenge.scopes.clone(), resource: challenge.resource.clone() };
    let nonce = Secret::from(format!("agent\n{}", challenge.nonce));
    let (now, until) = (janua.clock.now(), challenge.expires_at().plus(challenge::LIFE));
    tokens::refuse_inactive(&agent.machine, now)?;
    let granted = targets::grant(janua, &agent.machine, &wanted)?;
    let (machine, outcome) = transact!(janua, async |tx| {
        if !once::first_use(tx, CHALLENGE, &nonce, challenge.issued, now, until).await? {
            return Err(CHALLENGE_SPENT.into());
        }
        let machine = if agent.proven {
            agent.machine.clone()
        } else {
            let mut machine = Machine::hold(tx, agent.machine.id).await?.ok_or(AGENT_NOT_REGISTERED)?;
            tokens::refuse_inactive(&machine, now)?;
            // Another first token of this agent may have been quicker.
            if !Agent::find(&mut *tx, machine.id).await?.is_some_and(|now| now.proven) {
                prove(tx, janua, visitor, &mut machine, &agent.wallet).await?;
            }
            machine
        };
        let outcome = tokens::record(tx, janua, &visitor.by, &machine, &granted, None).await?;
        Ok((machine, outcome))
    })?;
    if let Outcome::Refused(left) = outcome {
        return Err(left.fault());
    }
    let token = tokens::sign(janua, &machine, &granted, None)?.into();
    let agent = Agent { machine, proven: true, wallet: agent.wallet.clone() };
    Ok(Json(AgentToken { token, agent: AgentView::of(janua, &agent).await? }))
}

/// The first token of an agent proves its wallet.
async fn prove(
    tx: &mut db::Tx,
    janua: &Janua,
    visitor: &Visitor,
    machine: &mut Machine,
    wallet: &Wallet,
) -> Result<()> {
    if Agent::of_wallet(&mut *tx, &wallet.key).await?.first().is_some_and(|known| known.proven) {
        return Err(WALLET_TAKEN.into());
    }
    suspended::refuse(&mut *tx, &wallet.key).await?;
    match Agent::prove(tx, machine.id).await {
        Err(error) if error.is_unique("agent_wallet_key") => return Err(WALLET_TAKEN.into()),
        proven => proven?,
    }
    let now = janua.clock.now();
    machine.state = MachineState::Active;
    (machine.proven_at, machine.updated_at) = (Some(now), now);
    machine.save(tx).await?;
    tx.notify(Reach::EveryNode, lookup::TOPIC, wallet.key.clone()).await?;
    let event = MachineEvent::new(Kind::Agent, MachineAct::Proven, json!({ "wallet": wallet.caip10() }));
    Ok(tenancy::events::record(tx, janua, &visitor.by, machine.about(), &event).await?)
}

/// Why somebody suspends, by who they are.
pub fn suspended_by<K: tenancy::machines::caller::OfKind>(caller: &Managed<K>) -> SuspendedBy {
    match caller.rank {
        _ if caller.is_own() => SuspendedBy::Owner,
        Rank::Platform => SuspendedBy::Platform,
        Rank::Owner | Rank::OrgAdmin => SuspendedBy::OrgAdmin,
    }
}

async fn suspend_agent(
    State(janua): State<Janua>,
    Warden(caller): Warden<OfAgent>,
    MaybeJson(body): MaybeJson<SuspendReason>,
) -> Result<Json<AgentAnswer>> {
    let reason = body.and_then(|body| body.reason).filter(|reason| !reason.trim().is_empty());
    transact!(janua, async |tx| {
        let mut machine = caller.hold(tx).await?;
        let why = suspended_by(&caller);
        states::suspend(tx, &janua, &caller.session.by(), &mut machine, why, reason.clone()).await?;
        Ok(())
    })?;
    AgentAnswer::of(&janua, caller.machine.id).await
}

async fn reactivate_agent(State(janua): State<Janua>, Warden(caller): Warden<OfAgent>) -> Result<Json<AgentAnswer>> {
    transact!(janua, async |tx| {
        let mut machine = caller.hold(tx).await?;
        let who = (caller.session.account().id, caller.rank);
        states::reactivate(tx, &janua, &caller.session.by(), &mut machine, who).await?;
        Ok(())
    })?;
    AgentAnswer::of(&janua, caller.machine.id).await
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AgentList {
    agents: Vec<AgentView>,
    next_cursor: Option<String>,
}

async fn list_agents(
    State(janua): State<Janua>,
    session: Session,
    page: Page,
    Query(query): Query<ListQuery>,
) -> Result<Json<AgentList>> {
    let chosen = Selection::of(&janua, &session, &query).await?;
    let now = janua.clock.now();
    let fetch = async |chosen: &Selection, below, most| Agent::page(&janua.db, chosen, now, &below, most).await;
    let Listed { rows, next_cursor } = chosen.list(&janua, &page, "agents", fetch, |agent| &agent.machine).await?;
    let mut agents = vec![];
    for agent in &rows {
        agents.push(AgentView::of(&janua, agent).await?);
    }
    Ok(Json(AgentList { agents, next_cursor }))
}

async fn get_agent(State(janua): State<Janua>, caller: Managed<OfAgent>) -> Result<Json<AgentAnswer>> {
    AgentAnswer::of(&janua, caller.machine.id).await
}

/// Fields that are left out stay as they are.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineChange {
    #[schemars(length(max = 400))]
    name: Option<String>,
    #[schemars(length(max = 1000))]
    description: Option<String>,
    #[serde(flatten)]
    permissions: Permissions,
}

impl MachineChange {
    /// Changes a machine. Scopes or audiences that are taken away make all tokens invalid, because a token says which it has.
    pub async fn apply<K: tenancy::machines::caller::OfKind>(self, janua: &Janua, caller: &Managed<K>) -> Result<()> {
        let now = janua.clock.now();
        self.permissions.check(now)?;
        let name = self.name.as_deref().map(check_name).transpose()?;
        let Permissions { scopes, audiences, limits, expires_at } = self.permissions;
        transact!(janua, async |tx| {
            let mut machine = caller.hold(tx).await?;
            let before = machine.clone();
            let (scopes, audiences) = (scopes.clone(), audiences.clone());
            Permissions { scopes, audiences, limits: limits.clone(), expires_at }.apply(&mut machine);
            machine.name = name.clone().unwrap_or(machine.name);
            machine.description = self.description.clone().or(machine.description);
            let keeps = |old: &[String], new: &[String]| old.iter().all(|one| new.contains(one));
            let keeps_all = keeps(&before.scopes, &machine.scopes) && keeps(&before.audiences, &machine.audiences);
            machine.generation += i64::from(!keeps_all);
            machine.updated_at = now;
            machine.save(tx).await?;
            limits::changed(tx, &before.limits, &machine).await?;
            let details = json!({ "name": machine.name, "scopes": machine.scopes, "audiences": machine.audiences,
                                  "limits": machine.limits });
            Ok(caller.record(tx, janua, &MachineEvent::new(machine.kind, MachineAct::Updated, details)).await?)
        })
    }
}

async fn update_agent(
    State(janua): State<Janua>,
    caller: Managed<OfAgent>,
    Json(change): Json<MachineChange>,
) -> Result<Json<AgentAnswer>> {
    change.apply(&janua, &caller).await?;
    AgentAnswer::of(&janua, caller.machine.id).await
}

/// Refuses a caller of a lower rank than the one that suspended the machine: what they would do ends the suspension.
pub fn refuse_below<K: tenancy::machines::caller::OfKind>(caller: &Managed<K>, machine: &Machine) -> Result<()> {
    match machine.suspended_by {
        Some(why) if caller.rank < why.rank() => Err(SUSPENDED_BY_ADMIN.into()),
        _ => Ok(()),
    }
}

/// Deletes a machine, with its tokens, secrets and counters. Its log stays in the audit log of the organization.
pub async fn delete<K: tenancy::machines::caller::OfKind>(janua: &Janua, caller: &Managed<K>) -> Result<()> {
    transact!(janua, async |tx| {
        let machine = caller.hold(tx).await?;
        refuse_below(caller, &machine)?;
        let event = MachineEvent::new(machine.kind, MachineAct::Deleted, json!({ "name": machine.name }));
        caller.record(tx, janua, &event).await?;
        Ok(machine.delete(tx).await?)
    })
}

async fn delete_agent(State(janua): State<Janua>, caller: Managed<OfAgent>) -> Result<NoContent> {
    delete(&janua, &caller).await?;
    Ok(NoContent)
}

async fn agent_logs(
    State(janua): State<Janua>,
    caller: Managed<OfAgent>,
    page: Page,
    Query(query): Query<LogQuery>,
) -> Result<Json<MachineLog>> {
    log(&janua, &page, caller.machine.id, query).await
}
