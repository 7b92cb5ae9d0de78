//! Tokens of a server.
use axum::extract::State;
use kernel::{Janua, fault::Result, http::Json};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    enter::Session,
    machines::{Kind, Managed, State as MachineState, caller::OfMcp, refusals, targets::Wanted},
};

use super::{NOT_VERIFIED, SERVER_REVOKED};
use crate::{
    frameworks::{Credentials, issue},
    shared::TokenAnswer,
};

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpTokenRequest {
    #[serde(flatten)]
    credentials: Credentials,
    /// Default: all scopes of the server.
    #[schemars(length(max = 50))]
    scopes: Option<Vec<String>>,
    /// The URL of the server that the token is for. Default: this service.
    #[schemars(length(max = 2000))]
    resource: Option<String>,
}

pub async fn mcp_token(
    State(janua): State<Janua>,
    session: Session,
    Json(asked): Json<McpTokenRequest>,
) -> Result<Json<TokenAnswer>> {
    let machine = asked.credentials.check(&janua, Kind::Mcp).await?;
    let caller = Managed::<OfMcp>::reach(&janua, session, machine.id).await?;
    let by = caller.session.by();
    let refused = match machine.state {
        MachineState::Suspended => Some(SERVER_REVOKED),
        MachineState::Pending => Some(NOT_VERIFIED),
        MachineState::Active | MachineState::Expired => None,
    };
    if let Some(code) = refused {
        refusals::note(&janua, &by, &machine, code).await?;
        return Err(code.into());
    }
    let wanted = Wanted { scopes: asked.scopes, resource: asked.resource };
    issue(&janua, &by, &machine, &wanted).await.map(Json)
}
