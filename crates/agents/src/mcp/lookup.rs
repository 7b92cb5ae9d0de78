//! `GET /verify/mcp/{domain}`: whether a domain has a verified MCP server, answered from memory.
use std::sync::Arc;

use axum::{extract::State, http::HeaderMap, response::Response};
use db::Notice;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::Result,
    http::{Path, Query},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    enter::{Live, Memory},
    machines::tokens::attest,
};

use super::{
    INVALID_DOMAIN,
    model::{McpServer, Visibility},
};
use crate::{
    agents::lookup::{DetailsQuery, cached, is_alive},
    domains,
};

/// The topic on which a domain is told whose servers changed.
pub const TOPIC: &str = "mcp-domain";

/// The verified servers of a domain. Whether each is active is asked of the machine itself.
#[derive(Default)]
pub struct Domains(Memory<String, Vec<McpServer>>);

impl Domains {
    pub fn hear(&self, notice: &Notice) {
        match notice {
            Notice::News { topic, body } if topic == TOPIC => self.0.forget(body),
            Notice::News { .. } => {}
            Notice::StartOver => self.0.forget_all(),
        }
    }
}

#[derive(Deserialize, JsonSchema)]
pub struct DomainPath {
    #[schemars(length(max = 300))]
    domain: String,
}

#[derive(Serialize, JsonSchema)]
pub struct McpLookup {
    verified: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<Vec<McpLookupServer>>,
    /// A JWT of this service (`typ: janua-proof+jwt`) that says the same, for five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    proof: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct McpLookupServer {
    name: String,
    url: Option<String>,
    since: Option<Timestamp>,
}

pub async fn verify_mcp(
    State(janua): State<Janua>,
    headers: HeaderMap,
    Path(DomainPath { domain }): Path<DomainPath>,
    Query(DetailsQuery { details }): Query<DetailsQuery>,
) -> Result<Response> {
    let domains = &janua.own::<Arc<Domains>>().0;
    // A name that is remembered was looked at before.
    let (domain, known) = match domains.known(&janua.db, &domain) {
        Some(known) => (domain, Some(known)),
        None => {
            let domain = domains::parse(&janua, &domain).ok_or(INVALID_DOMAIN)?;
            let read = || async { McpServer::verified_on(&janua.db, &domain).await.map(Some) };
            let known = domains.recall(&janua.db, &domain, read).await?;
            (domain, known)
        }
    };
    let mut alive = vec![];
    for server in known.iter().flat_map(|known| known.iter()) {
        // The state of the machine may be newer than what is remembered of its domain.
        let machine = janua.own::<Arc<Live>>().machine(&janua, server.machine.id).await?;
        if let Some(machine) = machine
            && is_alive(&janua, &machine).await?
        {
            alive.push(server);
        }
    }
    let shown = alive.iter().filter(|server| server.visibility == Visibility::Public);
    let servers = details.then(|| {
        shown
            .map(|server| McpLookupServer {
                name: server.full_name.clone(),
                url: server.url.clone(),
                since: server.verified_at,
            })
            .collect()
    });
    let verified = !alive.is_empty();
    let proof = if details { Some(attest(&janua, &domain, verified)?) } else { None };
    Ok(cached(&headers, &McpLookup { verified, servers, proof }))
}
