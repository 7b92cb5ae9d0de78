//! The tokens an organization gives its provider: several, named, shown once, gone at once.
use axum::{extract::State, response::NoContent};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, INVALID, NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Path, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    enter::{Admin, InOrg},
    orgs::scim_tokens::{ScimTokenId, StoredScimToken},
};

use crate::scim::events::{ScimTokenCreated, ScimTokenDeleted};

pub fn routes() -> Routes {
    Routes::new("org")
        .post("/org/{id}/scim-tokens", create_scim_token, "create a SCIM token")
        .fails(&[TOO_MANY_TOKENS])
        .get("/org/{id}/scim-tokens", list_scim_tokens, "list SCIM tokens")
        .delete("/org/{id}/scim-tokens/{tokenId}", delete_scim_token, "delete a SCIM token")
}

const MOST: i64 = 20;
const TOO_MANY_TOKENS: Code =
    Code::new(409, "too_many_scim_tokens", "The organization has twenty SCIM tokens. Delete one first.");

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewToken {
    /// A name for the token.
    #[schemars(length(max = 100), regex(pattern = "\\S"))]
    name: String,
    /// Left out: it does not expire.
    expires_at: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
struct MadeToken {
    #[serde(flatten)]
    token: StoredScimToken,
    /// The token itself. This is the only time it is shown.
    value: String,
}

async fn create_scim_token(
    State(janua): State<Janua>,
    caller: InOrg<Admin>,
    Json(new): Json<NewToken>,
) -> Result<Json<MadeToken>> {
    if new.expires_at.is_some_and(|at| at <= janua.clock.now()) {
        return Err(INVALID.at("expiresAt", "too_small", "must be in the future"));
    }
    let (org, by) = (caller.org().id, caller.session.account().id);
    // It changes who is in the organization, so it is not for an app its people use.
    if caller.session.living.session.app_id.is_some() {
        return Err(kernel::fault::FORBIDDEN.into());
    }
    let (token, value) = transact!(janua, async |tx| {
        caller.hold(tx).await?;
        if StoredScimToken::count(tx, org).await? >= MOST {
            return Err(TOO_MANY_TOKENS.into());
        }
        let (token, value) = StoredScimToken::make(tx, &janua, org, by, new.name.trim(), new.expires_at).await?;
        let event = ScimTokenCreated { token_id: token.id, name: token.name.clone() };
        caller.record(tx, &janua, &event).await?;
        Ok((token, value))
    })?;
    Ok(Json(MadeToken { token, value: value.expose().to_owned() }))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Tokens {
    tokens: Vec<StoredScimToken>,
    next_cursor: Option<String>,
}

async fn list_scim_tokens(State(janua): State<Janua>, caller: InOrg<Admin>, page: Page) -> Result<Json<Tokens>> {
    let org = caller.org().id;
    let fetch = async |below, most| StoredScimToken::page(&janua.db, org, &below, most).await;
    let key = |token: &StoredScimToken| Key { at: token.created_at, id: token.id.to_string() };
    let Listed { rows, next_cursor } = page.list(&janua, "scim-tokens", org, fetch, key).await?;
    Ok(Json(Tokens { tokens: rows, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ScimTokenPath {
    token_id: ScimTokenId,
}

async fn delete_scim_token(
    State(janua): State<Janua>,
    caller: InOrg<Admin>,
    Path(ScimTokenPath { token_id }): Path<ScimTokenPath>,
) -> Result<NoContent> {
    let org = caller.org().id;
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        if !StoredScimToken::delete(tx, org, token_id).await? {
            return Err(NOT_FOUND.into());
        }
        let event = ScimTokenDeleted { token_id };
        Ok(caller.record(tx, &janua, &event).await?)
    })?;
    Ok(NoContent)
}
