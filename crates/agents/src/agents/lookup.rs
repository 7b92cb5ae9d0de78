//! `GET /verify/agent/{wallet}`: whether a wallet is an agent's, answered from memory.
use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use db::Notice;
use kernel::{
    Janua,
    clock::Timestamp,
    crypto,
    fault::Result,
    http::{Path, Query},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tenancy::{
    apps::Application,
    enter::{Live, Memory},
    machines::{self, Machine, MachineId, State as MachineState, tokens::attest},
    orgs::{self, Org, OrgId},
};

use super::{model::Agent, wallet as parse_wallet};

/// The topic on which a wallet is told that was proven or is free again.
pub const TOPIC: &str = "agent-wallet";

/// The agent that has a wallet, or none.
pub struct WalletHolder {
    agent: Option<(Agent, Option<Org>)>,
}

pub struct Wallets(Memory<String, WalletHolder>);

impl Default for Wallets {
    fn default() -> Self {
        Self(Memory::grouped(|_, known| {
            known.agent.as_ref().map_or([None; 2], |(agent, _)| {
                [Some(agent.machine.id.uuid().as_u128()), Some(agent.machine.org_id.uuid().as_u128())]
            })
        }))
    }
}

impl Wallets {
    pub fn hear(&self, notice: &Notice) {
        match notice {
            Notice::News { topic, body } if topic == TOPIC => self.0.forget(body),
            Notice::News { topic, body } if topic == machines::TOPIC => match body.parse::<MachineId>() {
                Ok(id) => self.0.forget_group(id.uuid().as_u128()),
                Err(_) => self.0.forget_all(),
            },
            Notice::News { topic, body } if topic == orgs::TOPIC => match body.parse::<OrgId>() {
                Ok(id) => self.0.forget_group(id.uuid().as_u128()),
                Err(_) => self.0.forget_all(),
            },
            Notice::News { .. } => {}
            Notice::StartOver => self.0.forget_all(),
        }
    }

    async fn find(&self, janua: &Janua, key: &str) -> db::Result<Option<Arc<WalletHolder>>> {
        let read = || async {
            let agent = Agent::of_wallet(&janua.db, key).await?.into_iter().next().filter(|agent| agent.proven);
            let agent = match agent {
                Some(agent) => {
                    let org = Org::find(&janua.db, agent.machine.org_id).await?;
                    Some((agent, org))
                }
                None => None,
            };
            Ok(Some(WalletHolder { agent }))
        };
        self.0.recall(&janua.db, &key.to_owned(), read).await
    }
}

#[derive(Deserialize, JsonSchema)]
pub struct WalletPath {
    #[schemars(length(max = 200))]
    wallet: String,
}

#[derive(Deserialize, JsonSchema)]
pub struct DetailsQuery {
    /// `true` adds the state, and a signed proof for others.
    #[serde(default)]
    pub details: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentLookup {
    verified: bool,
    #[serde(flatten)]
    details: Option<AgentDetails>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AgentDetails {
    status: MachineState,
    /// When the wallet was proven.
    since: Option<Timestamp>,
    caip10: String,
    org: Option<OrgName>,
    /// A JWT of this service (`typ: janua-proof+jwt`) that says the same, for five minutes.
    proof: String,
}

#[derive(Clone, Serialize, JsonSchema)]
pub struct OrgName {
    pub name: String,
    /// A domain that an app of it has proven.
    pub domain: Option<String>,
}

/// Whether a machine could use a token now.
pub async fn is_alive(janua: &Janua, machine: &Machine) -> Result<bool> {
    let is_owned = match machine.owner_id {
        Some(owner) => janua.own::<Arc<Live>>().is_enabled(janua, owner).await?,
        None => false,
    };
    Ok(is_owned && machine.state_at(janua.clock.now()) == MachineState::Active)
}

pub async fn verify_agent(
    State(janua): State<Janua>,
    headers: HeaderMap,
    Path(WalletPath { wallet: text }): Path<WalletPath>,
    Query(DetailsQuery { details }): Query<DetailsQuery>,
) -> Result<Response> {
    let key = parse_wallet(&janua, &text, None)?.key;
    let known = janua.own::<Arc<Wallets>>().find(&janua, &key).await?;
    let found = known.as_ref().and_then(|known| known.agent.as_ref());
    let verified = match found {
        Some((agent, _)) => is_alive(&janua, &agent.machine).await?,
        None => false,
    };
    let details = match found.filter(|_| details) {
        Some((agent, org)) => Some(AgentDetails {
            status: agent.machine.state_at(janua.clock.now()),
            since: agent.machine.proven_at,
            caip10: agent.wallet.caip10(),
            org: match org {
                Some(org) => {
                    let domain = Application::domain_of_org(&janua.db, org.id).await?;
                    Some(OrgName { name: org.name.clone(), domain })
                }
                None => None,
            },
            proof: attest(&janua, &agent.wallet.caip10(), verified)?,
        }),
        None => None,
    };
    Ok(cached(&headers, &AgentLookup { verified, details }))
}

/// A public answer that caches may keep for half a minute.
pub fn cached(asked: &HeaderMap, body: &impl Serialize) -> Response {
    let bytes = serde_json::to_vec(body).unwrap_or_default();
    let etag = format!("\"{}\"", &crypto::hash(&bytes)[..32]);
    let is_known = asked.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes());
    let mut headers = HeaderMap::new();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=30"));
    if let Ok(etag) = HeaderValue::try_from(etag) {
        headers.insert(header::ETAG, etag);
    }
    if is_known {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (headers, bytes).into_response()
}
