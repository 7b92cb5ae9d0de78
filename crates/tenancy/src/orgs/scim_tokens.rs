//! The tokens a directory's provider comes with: each for one organization, kept as hashes.
use std::time::Duration;

use db::{Db, Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::{self, Secret},
    http::Key,
};
use schemars::JsonSchema;
use serde::Serialize;

pub use crate::ids::ScimTokenId;
use crate::ids::{AccountId, OrgId};

/// The beginning of SCIM tokens, by which they differ from all other tokens.
pub const START: &str = "scim_";
/// How much of a token's chance is shown.
const SHOWN: usize = 4;
/// When a token was last used is known to the minute.
const NOTED: Duration = Duration::from_mins(1);

/// A SCIM token without its value.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ScimToken")]
pub struct StoredScimToken {
    pub id: ScimTokenId,
    pub name: String,
    /// How the token begins.
    pub prefix: String,
    pub created_by: Option<AccountId>,
    pub created_at: Timestamp,
    /// None for a token that does not expire.
    pub expires_at: Option<Timestamp>,
    /// To the minute.
    pub last_used_at: Option<Timestamp>,
    #[serde(skip)]
    pub org_id: OrgId,
}
row!(StoredScimToken { id, name, prefix, created_by, created_at, expires_at, last_used_at, org_id });

impl StoredScimToken {
    /// A new token, and the only sight of it.
    pub async fn make(
        tx: &mut Tx,
        janua: &Janua,
        org_id: OrgId,
        created_by: AccountId,
        name: &str,
        expires_at: Option<Timestamp>,
    ) -> db::Result<(Self, Secret)> {
        let now = janua.clock.now();
        let value = Secret::from(format!("{START}{}", janua.entropy.token().expose()));
        let token = Self {
            id: ScimTokenId::new(&janua.entropy, now),
            name: name.to_owned(),
            prefix: value.expose()[..START.len() + SHOWN].to_owned(),
            created_by: Some(created_by),
            created_at: now,
            expires_at,
            last_used_at: None,
            org_id,
        };
        tx.exec(
            "INSERT INTO scim_token (id, org_id, name, hash, prefix, created_by, created_at, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            params![
                token.id,
                org_id,
                &token.name,
                crypto::hash(value.expose().as_bytes()),
                &token.prefix,
                created_by,
                now,
                expires_at
            ],
        )
        .await?;
        Ok((token, value))
    }

    /// The one this is, if it opens anything now. Its use is noted.
    pub async fn recognise(db: &Db, value: &Secret, now: Timestamp) -> db::Result<Option<Self>> {
        if !value.expose().starts_with(START) {
            return Ok(None);
        }
        let sql = "SELECT id, name, prefix, created_by, created_at, expires_at, last_used_at, org_id FROM scim_token
                   WHERE hash = $1 AND (expires_at IS NULL OR expires_at > $2)";
        let found: Option<Self> = db.opt(sql, params![crypto::hash(value.expose().as_bytes()), now]).await?;
        if let Some(token) = found.as_ref().filter(|t| t.last_used_at.is_none_or(|at| now.since(at) >= NOTED)) {
            db.exec("UPDATE scim_token SET last_used_at = $2 WHERE id = $1", params![token.id, now]).await?;
        }
        Ok(found)
    }

    pub async fn page(db: &Db, org: OrgId, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT id, name, prefix, created_by, created_at, expires_at, last_used_at, org_id FROM scim_token
             WHERE org_id = $1 AND (created_at, id) < ($2, $3) ORDER BY created_at DESC, id DESC LIMIT $4",
            params![org, below.at, &below.id, most],
        )
        .await
    }

    pub async fn count(tx: &mut Tx, org: OrgId) -> db::Result<i64> {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM scim_token WHERE org_id = $1";
        let (count,): (i64,) = tx.one(sql, params![org]).await?;
        Ok(count)
    }

    /// It opens nothing from now on. `false` when the organization has no such token.
    pub async fn delete(tx: &mut Tx, org: OrgId, id: ScimTokenId) -> db::Result<bool> {
        Ok(tx.exec("DELETE FROM scim_token WHERE id = $2 AND org_id = $1", params![org, id]).await? == 1)
    }
}
