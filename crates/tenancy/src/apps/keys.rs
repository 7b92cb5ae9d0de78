//! Keys of apps: what is stored of one, and what a presented key stands for.
use std::collections::HashMap;

use db::{Db, FromRow, Reach, Row, Tx, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::{self, Secret},
    fault::Result,
    http::Key,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Application, TOPIC};
use crate::{
    ids::{AccountId, AppKeyId, ApplicationId, Environment, KeyKind, OrgId},
    quotas,
};

/// An app key without its value.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AppKey")]
pub struct StoredAppKey {
    pub id: AppKeyId,
    #[serde(rename = "type")]
    pub kind: KeyKind,
    pub environment: Environment,
    pub name: Option<String>,
    /// How the key begins.
    pub prefix: String,
    pub created_at: Timestamp,
    /// To the minute.
    pub last_used_at: Option<Timestamp>,
}
row!(StoredAppKey { id, kind, environment, name, prefix, created_at, last_used_at });

/// How much of a key's chance is shown in its prefix.
const SHOWN: usize = 4;

/// A key, and the app it is of.
struct KeyOfApp {
    app_id: ApplicationId,
    key: StoredAppKey,
}

impl FromRow for KeyOfApp {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Ok(Self { app_id: row.get("app_id")?, key: StoredAppKey::from_row(row)? })
    }
}

impl StoredAppKey {
    /// A new key, and the only sight of it. Counts against the organization's quota.
    pub async fn make(
        tx: &mut Tx,
        janua: &Janua,
        application: &Application,
        created_by: AccountId,
        kind: KeyKind,
        environment: Environment,
        name: Option<String>,
    ) -> Result<(Self, Secret)> {
        quotas::spend(tx, janua, application, &quotas::KEYS, 1).await?;
        let (now, token) = (janua.clock.now(), janua.entropy.token());
        let letter = match kind {
            KeyKind::Publishable => "pk",
            KeyKind::Secret => "sk",
        };
        let start = format!("{letter}_{}_", environment.name());
        let value = Secret::from(format!("{start}{}", token.expose()));
        let prefix = value.expose()[..start.len() + SHOWN].to_owned();
        let id = AppKeyId::new(&janua.entropy, now);
        let key = Self { id, kind, environment, name, prefix, created_at: now, last_used_at: None };
        tx.exec(
            "INSERT INTO app_key (id, app_id, hash, kind, environment, name, prefix, created_at, created_by)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            params![
                key.id,
                application.id,
                crypto::hash(value.expose().as_bytes()),
                kind,
                environment,
                key.name.clone(),
                &key.prefix,
                now,
                created_by
            ],
        )
        .await?;
        Ok((key, value))
    }

    pub async fn page(db: &Db, application: ApplicationId, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT id, kind, environment, name, prefix, created_at, last_used_at FROM app_key
             WHERE app_id = $1 AND (created_at, id) < ($2, $3) ORDER BY created_at DESC, id DESC LIMIT $4",
            params![application, below.at, &below.id, most],
        )
        .await
    }

    /// Those of every app of an organization, newest first.
    pub async fn of_org(db: &Db, org: OrgId) -> db::Result<HashMap<ApplicationId, Vec<Self>>> {
        let found: Vec<KeyOfApp> = db
            .all(
                "SELECT app_key.id, kind, environment, app_key.name, prefix, app_key.created_at, last_used_at, app_id
                 FROM app JOIN app_key ON app_key.app_id = app.id WHERE app.org_id = $1
                 ORDER BY app_key.created_at DESC, app_key.id DESC",
                params![org],
            )
            .await?;
        let mut keys: HashMap<_, Vec<_>> = HashMap::new();
        for KeyOfApp { app_id, key } in found {
            keys.entry(app_id).or_default().push(key);
        }
        Ok(keys)
    }

    pub async fn count(tx: &mut Tx, application: ApplicationId) -> db::Result<i64> {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM app_key WHERE app_id = $1";
        let (count,): (i64,) = tx.one(sql, params![application]).await?;
        Ok(count)
    }

    /// Whether the app still has this key.
    pub async fn exists(tx: &mut Tx, application: ApplicationId, id: AppKeyId) -> db::Result<bool> {
        let sql = "SELECT id FROM app_key WHERE id = $1 AND app_id = $2";
        Ok(tx.opt::<(String,)>(sql, params![id, application]).await?.is_some())
    }

    /// Ends the keys that a member created for apps of an organization, and keys without a known creator of apps they
    /// own: a former member may have kept a copy. The caller reports the organization as changed.
    pub async fn end_those_of(
        tx: &mut Tx,
        org: OrgId,
        account: AccountId,
    ) -> db::Result<Vec<(ApplicationId, AppKeyId)>> {
        let ended: Vec<EndedKey> = tx
            .put(
                "DELETE FROM app_key
                 WHERE (created_by = $2 AND app_id IN (SELECT id FROM app WHERE org_id = $1))
                    OR (created_by IS NULL AND app_id IN (SELECT id FROM app WHERE org_id = $1 AND owner_id = $2))
                 RETURNING app_id, id",
                params![org, account],
            )
            .await?;
        quotas::give_back(tx, org, &quotas::KEYS, i64::try_from(ended.len()).unwrap_or_default()).await?;
        Ok(ended.into_iter().map(|key| (key.app_id, key.id)).collect())
    }

    /// It opens nothing from now on. `false` when the app has no such key.
    pub async fn delete(tx: &mut Tx, application: &Application, id: AppKeyId) -> db::Result<bool> {
        let sql = "DELETE FROM app_key WHERE id = $2 AND app_id = $1";
        let gone = tx.exec(sql, params![application.id, id]).await?;
        if gone == 1 {
            quotas::give_back(tx, application.org_id, &quotas::KEYS, 1).await?;
        }
        tx.notify(Reach::EveryNode, TOPIC, application.id.to_string()).await?;
        Ok(gone == 1)
    }
}

struct EndedKey {
    app_id: ApplicationId,
    id: AppKeyId,
}
row!(EndedKey { app_id, id });

/// A presented key, with its app.
#[derive(Debug)]
pub struct Keyed {
    /// None for an app that only said its id.
    pub key_id: Option<AppKeyId>,
    pub kind: KeyKind,
    pub environment: Environment,
    pub app_id: ApplicationId,
    pub org_id: OrgId,
    pub allowed_origins: Vec<String>,
}
row!(Keyed { key_id, kind, environment, app_id, org_id, allowed_origins });

impl Keyed {
    pub async fn find(db: &Db, key: &Secret) -> db::Result<Option<Self>> {
        db.opt(
            "SELECT app_key.id AS key_id, app_key.kind, app_key.environment, app.id AS app_id, app.org_id,
                    app.allowed_origins
             FROM app_key JOIN app ON app.id = app_key.app_id WHERE app_key.hash = $1",
            params![crypto::hash(key.expose().as_bytes())],
        )
        .await
    }

    /// An app that says its id and proves nothing.
    pub async fn public(db: &Db, id: ApplicationId) -> db::Result<Option<Self>> {
        db.opt(
            "SELECT NULL AS key_id, 'publishable' AS kind, 'live' AS environment, id AS app_id, org_id, allowed_origins
             FROM app WHERE id = $1",
            params![id],
        )
        .await
    }

    pub async fn note_use(&self, db: &Db, now: Timestamp) -> db::Result<()> {
        db.exec("UPDATE app_key SET last_used_at = $2 WHERE id = $1", params![self.key_id, now]).await?;
        Ok(())
    }
}
