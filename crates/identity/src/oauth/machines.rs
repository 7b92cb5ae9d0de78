//! Machines at the token endpoint: tokens of their own for client credentials, and token exchange (RFC 8693), by which a
//! machine acts for a user.
use kernel::{
    Janua,
    fault::{Fault, Result},
    http::Json,
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    enter::Visitor,
    machines::{
        self, AGENT_EXPIRED, AGENT_LIMIT, AGENT_SUSPENDED, Kind, Machine, State,
        delegation::{self, Principal, Refusal},
        limits::Outcome,
        refusals,
        targets::{self, Wanted},
        tokens::{self, Issued},
    },
    sessions::{audience::Audience, sign_in::Typed},
};

use super::{
    INVALID_GRANT, INVALID_REQUEST, INVALID_SCOPE, INVALID_TARGET, UNAUTHORIZED_CLIENT, client::Caller, token::Tokens,
};

pub const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

/// The request of a token exchange.
#[derive(Default, Deserialize, JsonSchema)]
pub struct Exchange {
    /// An access token of the user, or one by which a machine acts for the user.
    #[schemars(with = "Option<String>", length(max = 8192))]
    subject_token: Option<Typed>,
    /// `urn:ietf:params:oauth:token-type:access_token`.
    #[schemars(length(max = 200))]
    subject_token_type: Option<String>,
    /// A token of the machine that acts. Required: a delegated token always names its actor.
    #[schemars(with = "Option<String>", length(max = 8192))]
    actor_token: Option<Typed>,
    #[schemars(length(max = 200))]
    actor_token_type: Option<String>,
    #[schemars(length(max = 200))]
    requested_token_type: Option<String>,
}

/// The scopes and the one resource that a token is asked for.
pub fn wanted(scope: Option<&str>, resource: Option<&Audience>) -> Result<Wanted> {
    let scopes = scope.map(|scope| scope.split(' ').filter(|one| !one.is_empty()).map(str::to_owned).collect());
    let mut resources = resource.into_iter().flat_map(Audience::iter);
    let resource = resources.next().map(str::to_owned);
    if resources.next().is_some() {
        return Err(INVALID_TARGET.because("A token of a machine is for one resource."));
    }
    Ok(Wanted { scopes, resource })
}

/// The standard's words for refusals of machines.
fn worded(fault: Fault) -> Fault {
    match fault.code() {
        code if code == machines::INVALID_SCOPE => INVALID_SCOPE.into(),
        code if code == machines::INVALID_TARGET => INVALID_TARGET.into(),
        code if [AGENT_SUSPENDED, AGENT_EXPIRED].contains(&code) => {
            INVALID_GRANT.because(format!("{}: {}", code.name, code.says))
        }
        _ => fault,
    }
}

/// A framework agent that users authorized: it is a client, and proved its secret.
pub fn client(janua: &Janua, machine: &Machine) -> Result<Caller> {
    tokens::refuse_inactive(machine, janua.clock.now()).map_err(worded)?;
    if !machine.is_client() {
        return Err(UNAUTHORIZED_CLIENT.into());
    }
    Ok(Caller { id: machine.id.to_string(), keyed: None })
}

/// A token that stands for the machine itself.
pub async fn for_itself(
    janua: &Janua,
    visitor: &Visitor,
    machine: &Machine,
    wanted: &Wanted,
) -> Result<Json<Tokens>> {
    match issue(janua, visitor, machine, wanted).await {
        Ok(issued) => Ok(Json(Tokens::of_machine(issued, None))),
        Err(fault) => {
            if [AGENT_SUSPENDED, AGENT_EXPIRED, AGENT_LIMIT].contains(&fault.code()) {
                refusals::note(janua, &visitor.by, machine, fault.code()).await?;
            }
            Err(worded(fault))
        }
    }
}

async fn issue(janua: &Janua, visitor: &Visitor, machine: &Machine, wanted: &Wanted) -> Result<Issued> {
    tokens::refuse_inactive(machine, janua.clock.now())?;
    // The domain of an MCP server must be proven first.
    if machine.kind == Kind::Agent || machine.state != State::Active {
        return Err(UNAUTHORIZED_CLIENT.into());
    }
    let granted = targets::grant(janua, machine, wanted)?;
    let outcome =
        transact!(janua, async |tx| Ok(tokens::record(tx, janua, &visitor.by, machine, &granted, None).await?))?;
    match outcome {
        Outcome::Counted(_) => tokens::sign(janua, machine, &granted, None),
        Outcome::Refused(left) => Err(left.fault()),
    }
}

fn is_access_token(kind: Option<&str>) -> bool {
    kind.is_none_or(|kind| [ACCESS_TOKEN, JWT].contains(&kind))
}

/// A token by which the machine of the actor token acts for the user of the subject token.
pub async fn exchange(janua: &Janua, visitor: &Visitor, asked: &Exchange, wanted: &Wanted) -> Result<Json<Tokens>> {
    let missing = |field: &str| INVALID_REQUEST.because(format!("{field} is missing."));
    let subject = asked.subject_token.as_ref().ok_or_else(|| missing("subject_token"))?;
    let actor = asked.actor_token.as_ref().ok_or_else(|| missing("actor_token"))?;
    let kinds = [&asked.subject_token_type, &asked.actor_token_type, &asked.requested_token_type];
    if !kinds.into_iter().all(|kind| is_access_token(kind.as_deref())) {
        return Err(INVALID_REQUEST.because("Only access tokens can be exchanged."));
    }
    let actor = tokens::recognise(janua, actor.0.expose()).await?;
    let actor = actor.filter(|actor| actor.claims.act.is_none());
    let actor = actor.ok_or_else(|| INVALID_GRANT.because("The actor token is not a valid token of a machine."))?;
    let principal = Principal::of_token(janua, subject.0.expose()).await?;
    let principal =
        principal.ok_or_else(|| INVALID_GRANT.because("The subject token is not a valid token of a user."))?;
    match delegation::delegate(janua, &visitor.by, &actor.machine, &principal, wanted).await {
        Ok(issued) => Ok(Json(Tokens::of_machine(issued, Some(ACCESS_TOKEN)))),
        Err(Refusal::NotAllowed(why)) => Err(INVALID_GRANT.because(why)),
        Err(Refusal::Fault(fault)) => Err(worded(fault)),
    }
}
