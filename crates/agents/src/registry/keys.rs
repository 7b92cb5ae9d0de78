//! Keys of an organization's own registry.
use axum::{extract::State, response::NoContent};
use db::{Db, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto,
    fault::{Code, NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Path, Routes},
    id::Id,
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    enter::{Admin, InOrg},
    orgs::OrgId,
    restored::AfterRestore,
};

use crate::shared::check_name;

tenancy::events! {
    /// A key of an organization's registry was created.
    RegistryKeyCreated { name: String } = "REGISTRY_KEY_CREATED";
    /// A key of an organization's registry was deleted.
    RegistryKeyDeleted { name: String } = "REGISTRY_KEY_DELETED";
}

/// A key that was deleted since the backup must not open the registry again.
pub const AFTER_RESTORE: &[AfterRestore] = &[AfterRestore::remove_keys(
    "DELETE FROM registry_key WHERE id IN (SELECT id FROM registry_key WHERE id > $1 ORDER BY id LIMIT $2) RETURNING id",
    |ended| &mut ended.registry_keys,
)];

const PREFIX: &str = "rk_";
const MOST: i64 = 50;
const TOO_MANY_KEYS: Code =
    Code::new(409, "too_many_registry_keys", "The organization has fifty registry keys. Delete one first.");

pub fn routes() -> Routes {
    Routes::new("registry")
        .post("/org/{id}/registry-keys", create_registry_key, "create a key of the organization's registry")
        .fails(&[TOO_MANY_KEYS])
        .get("/org/{id}/registry-keys", list_registry_keys, "the keys of the organization's registry")
        .delete("/org/{id}/registry-keys/{registryKeyId}", delete_registry_key, "delete a key of the registry")
}

type RegistryKeyId = Id<RegistryKey>;

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RegistryKey {
    id: RegistryKeyId,
    name: String,
    /// The beginning of the key.
    prefix: String,
    created_at: Timestamp,
    last_used_at: Option<Timestamp>,
}
row!(RegistryKey { id, name, prefix, created_at, last_used_at });

#[derive(Deserialize, JsonSchema)]
struct NewRegistryKey {
    #[schemars(length(max = 400))]
    name: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewRegistryKeyAnswer {
    #[serde(flatten)]
    key: RegistryKey,
    /// The base URL for clients. This is the only time it is shown.
    url: String,
}

async fn create_registry_key(
    State(janua): State<Janua>,
    caller: InOrg<Admin>,
    Json(new): Json<NewRegistryKey>,
) -> Result<Json<NewRegistryKeyAnswer>> {
    let (name, now, org) = (check_name(&new.name)?, janua.clock.now(), caller.org().id);
    let secret = format!("{PREFIX}{}", janua.entropy.token().expose());
    let (id, prefix) = (RegistryKeyId::new(&janua.entropy, now), secret[..PREFIX.len() + 4].to_owned());
    let key = RegistryKey { id, name, prefix, created_at: now, last_used_at: None };
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM registry_key WHERE org_id = $1";
        let (count,): (i64,) = tx.one(sql, params![org]).await?;
        if count >= MOST {
            return Err(TOO_MANY_KEYS.into());
        }
        tx.exec(
            "INSERT INTO registry_key (id, org_id, name, prefix, hash, created_by, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
            params![
                key.id,
                org,
                &key.name,
                &key.prefix,
                crypto::hash(secret.as_bytes()),
                caller.session.account().id,
                now
            ],
        )
        .await?;
        Ok(caller.record(tx, &janua, &RegistryKeyCreated { name: key.name.clone() }).await?)
    })?;
    let url = format!("{}/registry/{secret}", janua.config.base_url());
    Ok(Json(NewRegistryKeyAnswer { key, url }))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RegistryKeys {
    keys: Vec<RegistryKey>,
    next_cursor: Option<String>,
}

async fn page(db: &Db, org: OrgId, below: &Key, most: u32) -> db::Result<Vec<RegistryKey>> {
    let sql = "SELECT id, name, prefix, created_at, last_used_at FROM registry_key
               WHERE org_id = $1 AND (created_at, id) < ($2, $3) ORDER BY created_at DESC, id DESC LIMIT $4";
    db.all(sql, params![org, below.at, &below.id, most]).await
}

async fn list_registry_keys(
    State(janua): State<Janua>,
    caller: InOrg<Admin>,
    paging: Page,
) -> Result<Json<RegistryKeys>> {
    let org = caller.org().id;
    let key = |key: &RegistryKey| Key { at: key.created_at, id: key.id.to_string() };
    let fetch = async |below, most| page(&janua.db, org, &below, most).await;
    let Listed { rows, next_cursor } = paging.list(&janua, "registry-keys", org, fetch, key).await?;
    Ok(Json(RegistryKeys { keys: rows, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RegistryKeyPath {
    registry_key_id: RegistryKeyId,
}

async fn delete_registry_key(
    State(janua): State<Janua>,
    caller: InOrg<Admin>,
    Path(RegistryKeyPath { registry_key_id }): Path<RegistryKeyPath>,
) -> Result<NoContent> {
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let sql = "DELETE FROM registry_key WHERE id = $1 AND org_id = $2 RETURNING name";
        let gone: Vec<(String,)> = tx.put(sql, params![registry_key_id, caller.org().id]).await?;
        let (name,) = gone.into_iter().next().ok_or(NOT_FOUND)?;
        Ok(caller.record(tx, &janua, &RegistryKeyDeleted { name }).await?)
    })?;
    Ok(NoContent)
}

struct Found {
    id: RegistryKeyId,
    org_id: OrgId,
    last_used_at: Option<Timestamp>,
}
row!(Found { id, org_id, last_used_at });

/// The organization of a key; 404 for any other text. Its use is noted once an hour.
pub async fn org_of(janua: &Janua, key: &str) -> Result<OrgId> {
    const HOUR_MS: i64 = 3_600_000;
    let sql = "SELECT id, org_id, last_used_at FROM registry_key WHERE hash = $1";
    let is_key = key.starts_with(PREFIX) && key.len() < 100;
    let found: Option<Found> =
        if is_key { janua.db.opt(sql, params![crypto::hash(key.as_bytes())]).await? } else { None };
    let Found { id, org_id, last_used_at } = found.ok_or(NOT_FOUND)?;
    let now = janua.clock.now();
    if last_used_at.is_none_or(|at| now.0 - at.0 >= HOUR_MS) {
        janua.db.exec("UPDATE registry_key SET last_used_at = $2 WHERE id = $1", params![id, now]).await?;
    }
    Ok(org_id)
}
