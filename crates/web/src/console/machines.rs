//! Machines of an organization: agents, framework agents and MCP servers.
use axum::response::Response;
use kernel::http::{Path, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::nav::{Area, NavEntry};
use crate::{me::Me, page::pages};

pub const NAV: &[NavEntry] = &[
    NavEntry::new(Area::Org, "", "Agents", "bot", "/machines"),
    NavEntry::new(Area::Org, "", "MCP servers", "plug", "/mcp"),
];

pub fn routes() -> Routes {
    pages("pages")
        .get("/console/orgs/{id}/machines", machines_page, "agents and framework agents of an organization")
        .get("/console/orgs/{id}/agents/{machineId}", agent_page, "one agent: its state, limits and log")
        .get(
            "/console/orgs/{id}/framework-agents/{machineId}",
            framework_agent_page,
            "one framework agent: its state, limits and log",
        )
        .get("/console/orgs/{id}/mcp", mcp_page, "MCP servers of an organization and keys of its registry")
        .get(
            "/console/orgs/{id}/mcp/{machineId}",
            mcp_server_page,
            "one MCP server: the proof of its domain, and its log",
        )
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct OfOrg {
    id: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OfMachine {
    id: String,
    machine_id: String,
}

const ORG: (&str, &str) = ("org", "/org/{id}?limit=1");

/// Admins see the machines of everybody, members their own.
async fn machines_page(me: Me, Path(place): Path<OfOrg>) -> Response {
    let asks = [
        ORG,
        ("?agents", "/agent/list?orgId={id}&limit=200"),
        ("?frameworks", "/framework-agent?orgId={id}&limit=200"),
        ("?own_agents", "/agent/list?limit=200"),
        ("?own_frameworks", "/framework-agent?limit=200"),
    ];
    me.show("console/machines.html", &place, &asks).await
}

async fn agent_page(me: Me, Path(place): Path<OfMachine>) -> Response {
    let asks = [ORG, ("found", "/agent/{machineId}"), ("list", "/agent/{machineId}/logs?{query}")];
    me.show("console/agent.html", &place, &asks).await
}

async fn framework_agent_page(me: Me, Path(place): Path<OfMachine>) -> Response {
    let asks =
        [ORG, ("found", "/framework-agent/{machineId}"), ("list", "/framework-agent/{machineId}/logs?{query}")];
    me.show("console/framework_agent.html", &place, &asks).await
}

async fn mcp_page(me: Me, Path(place): Path<OfOrg>) -> Response {
    let asks = [
        ORG,
        ("?servers", "/mcp/list?orgId={id}&limit=200"),
        ("?own_servers", "/mcp/list?limit=200"),
        ("?keys", "/org/{id}/registry-keys"),
    ];
    me.show("console/mcp.html", &place, &asks).await
}

async fn mcp_server_page(me: Me, Path(place): Path<OfMachine>) -> Response {
    let asks = [ORG, ("found", "/mcp/{machineId}"), ("list", "/mcp/{machineId}/logs?{query}")];
    me.show("console/mcp_server.html", &place, &asks).await
}
