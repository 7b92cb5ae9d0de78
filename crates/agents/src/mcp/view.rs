//! A server as its owner sees it, and how its domain is proven.
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{NOT_FOUND, Result},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use tenancy::machines::{MachineId, State as MachineState};

use super::{
    model::{McpServer, Method, Proof, Visibility},
    proof,
};
use crate::shared::MachineView;

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenStatus {
    Active,
    Revoked,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpView {
    #[serde(flatten)]
    machine: MachineView,
    /// The name in the registry, such as `com.example/weather`.
    full_name: String,
    domain: String,
    url: Option<String>,
    title: Option<String>,
    version: Option<String>,
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    packages: Value,
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    remotes: Value,
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    repository: Option<Value>,
    visibility: Visibility,
    /// Whether the domain is proven.
    verification: Proof,
    method: Option<Method>,
    verified_at: Option<Timestamp>,
    checked_at: Option<Timestamp>,
    next_check_at: Option<Timestamp>,
    /// Since when the proof of a verified domain is gone. After three days it lapses.
    failing_since: Option<Timestamp>,
    token_status: TokenStatus,
    /// How to prove the domain.
    proof: ProofView,
}

/// Any one of these proves the domain.
#[derive(Serialize, JsonSchema)]
pub struct ProofView {
    dns: DnsProof,
    http: HttpProof,
    mcpv1: SignedProof,
}

/// A TXT record. It proves the domain and its subdomains.
#[derive(Serialize, JsonSchema)]
pub struct DnsProof {
    name: String,
    value: String,
}

/// A file. It proves this host alone.
#[derive(Serialize, JsonSchema)]
pub struct HttpProof {
    url: String,
    body: String,
}

/// A message to sign with the key of an existing `v=MCPv1` record.
#[derive(Serialize, JsonSchema)]
pub struct SignedProof {
    message: String,
}

impl McpView {
    pub async fn of(janua: &Janua, server: &McpServer) -> Result<Self> {
        let machine = &server.machine;
        let is_revoked = machine.state == MachineState::Suspended;
        Ok(Self {
            machine: MachineView::of(janua, &janua.db, machine).await?,
            full_name: server.full_name.clone(),
            domain: server.domain.clone(),
            url: server.url.clone(),
            title: server.title.clone(),
            version: server.version.clone(),
            packages: server.packages.clone(),
            remotes: server.remotes.clone(),
            repository: server.repository.clone(),
            visibility: server.visibility,
            verification: server.proof,
            method: server.method,
            verified_at: server.verified_at,
            checked_at: server.checked_at,
            next_check_at: server.next_check_at,
            failing_since: server.failing_since,
            token_status: if is_revoked { TokenStatus::Revoked } else { TokenStatus::Active },
            proof: ProofView {
                dns: DnsProof { name: proof::record_name(&server.domain), value: server.token.clone() },
                http: HttpProof { url: proof::file_url(&server.domain), body: server.token.clone() },
                mcpv1: SignedProof { message: proof::message(janua, server) },
            },
        })
    }

    pub async fn find(janua: &Janua, id: MachineId) -> Result<Self> {
        let server = McpServer::find(&janua.db, id).await?.ok_or(NOT_FOUND)?;
        Self::of(janua, &server).await
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpAnswer {
    pub server: McpView,
    /// The value found at the place of the proof.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<Vec<String>>,
    /// A new secret. This is the only time it is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
}

impl McpAnswer {
    pub async fn of(janua: &Janua, id: MachineId) -> Result<Self> {
        Ok(Self { server: McpView::find(janua, id).await?, found: None, client_secret: None })
    }
}
