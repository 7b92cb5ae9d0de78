//! The servers of a user or an organization, and one of them.
use axum::{extract::State, response::NoContent};
use kernel::{
    Janua,
    fault::Result,
    http::{Json, Listed, Page, Query},
};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{
    enter::Session,
    machines::{Managed, caller::OfMcp},
};

use super::{
    model::McpServer,
    view::{McpAnswer, McpView},
};
use crate::{
    agents::delete,
    shared::{ListQuery, LogQuery, MachineLog, Selection, log},
};

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpList {
    servers: Vec<McpView>,
    next_cursor: Option<String>,
}

pub async fn list_mcp(
    State(janua): State<Janua>,
    session: Session,
    page: Page,
    Query(query): Query<ListQuery>,
) -> Result<Json<McpList>> {
    let chosen = Selection::of(&janua, &session, &query).await?;
    let now = janua.clock.now();
    let fetch = async |chosen: &Selection, below, most| McpServer::page(&janua.db, chosen, now, &below, most).await;
    let Listed { rows, next_cursor } =
        chosen.list(&janua, &page, "mcp-servers", fetch, |server| &server.machine).await?;
    let mut servers = vec![];
    for server in &rows {
        servers.push(McpView::of(&janua, server).await?);
    }
    Ok(Json(McpList { servers, next_cursor }))
}

pub async fn get_mcp(State(janua): State<Janua>, caller: Managed<OfMcp>) -> Result<Json<McpAnswer>> {
    McpAnswer::of(&janua, caller.machine.id).await.map(Json)
}

pub async fn delete_mcp(State(janua): State<Janua>, caller: Managed<OfMcp>) -> Result<NoContent> {
    delete(&janua, &caller).await?;
    Ok(NoContent)
}

pub async fn mcp_logs(
    State(janua): State<Janua>,
    caller: Managed<OfMcp>,
    page: Page,
    Query(query): Query<LogQuery>,
) -> Result<Json<MachineLog>> {
    log(&janua, &page, caller.machine.id, query).await
}
