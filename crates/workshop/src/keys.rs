//! The keys of an app: shown once, known by their beginning, gone at once.
use axum::{extract::State, response::NoContent};
use kernel::{
    Janua,
    fault::{Code, INVALID, NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Path, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::{AppKeyId, Environment, KeyKind, StoredAppKey},
    enter::{Admin, InApp, Member},
    events::happenings::AppKeyDeleted,
    quotas::QUOTA_EXCEEDED,
};

use crate::events::AppKeyCreated;

pub fn routes() -> Routes {
    Routes::new("apps")
        .post("/apps/{appId}/keys", create_key, "create an API key (publishable or secret)")
        .fails(&[TOO_MANY_KEYS, QUOTA_EXCEEDED])
        .get("/apps/{appId}/keys", list_keys, "list API keys")
        .delete("/apps/{appId}/keys/{keyId}", delete_key, "delete an API key")
}

const MOST: i64 = 100;
const TOO_MANY_KEYS: Code = Code::new(409, "too_many_keys", "The app has a hundred keys. Delete one first.");

#[derive(Deserialize, JsonSchema)]
struct NewKey {
    #[serde(rename = "type")]
    kind: KeyKind,
    /// Secret keys are `live`.
    environment: Environment,
    #[schemars(length(min = 1, max = 100))]
    name: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct MadeKey {
    #[serde(flatten)]
    key: StoredAppKey,
    /// The key itself. This is the only time it is shown.
    value: String,
}

async fn create_key(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Json(new): Json<NewKey>,
) -> Result<Json<MadeKey>> {
    if (new.kind, new.environment) == (KeyKind::Secret, Environment::Test) {
        return Err(INVALID.at("environment", "not_allowed", "must be live for a secret key"));
    }
    let (id, by) = (caller.application.id, caller.session.account().id);
    let (key, value) = transact!(janua, async |tx| {
        caller.hold(tx).await?;
        if StoredAppKey::count(tx, id).await? >= MOST {
            return Err(TOO_MANY_KEYS.into());
        }
        let (key, value) =
            StoredAppKey::make(tx, &janua, &caller.application, by, new.kind, new.environment, new.name.clone())
                .await?;
        let event = AppKeyCreated { key_id: key.id, r#type: key.kind, environment: key.environment };
        caller.record(tx, &janua, &event).await?;
        Ok((key, value))
    })?;
    Ok(Json(MadeKey { key, value: value.expose().to_owned() }))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Keys {
    keys: Vec<StoredAppKey>,
    next_cursor: Option<String>,
}

async fn list_keys(State(janua): State<Janua>, caller: InApp<Member>, page: Page) -> Result<Json<Keys>> {
    let id = caller.application.id;
    let fetch = async |below, most| StoredAppKey::page(&janua.db, id, &below, most).await;
    let key = |key: &StoredAppKey| Key { at: key.created_at, id: key.id.to_string() };
    let Listed { rows, next_cursor } = page.list(&janua, "keys", id, fetch, key).await?;
    Ok(Json(Keys { keys: rows, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AppKeyPath {
    key_id: AppKeyId,
}

async fn delete_key(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Path(AppKeyPath { key_id }): Path<AppKeyPath>,
) -> Result<NoContent> {
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        if !StoredAppKey::delete(tx, &caller.application, key_id).await? {
            return Err(NOT_FOUND.into());
        }
        Ok(caller.record(tx, &janua, &AppKeyDeleted { key_id }).await?)
    })?;
    Ok(NoContent)
}
