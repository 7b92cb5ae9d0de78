//! Deployments as stored, and every statement on them.
use db::{Db, FromRow, Read, Row, Tx, params};
use kernel::{Janua, clock::Timestamp, http::Key, id::Id};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    accounts::AccountId,
    apps::{AppKeyId, ApplicationId},
    orgs::OrgId,
};

use crate::{edge::manifest::Sha256, words::words};

pub type DeploymentId = Id<Deployment>;

words! {
    pub enum Status {
        Queued = "queued",
        Processing = "processing",
        Ready = "ready",
        Failed = "failed",
        Canceled = "canceled",
    }
}

words! {
    pub enum Target {
        Production = "production",
        Preview = "preview",
    }
}

words! {
    pub enum SourceKind {
        Upload = "upload",
        Redeploy = "redeploy",
        Codehost = "codehost",
    }
}

/// The commit that a deployment was built from, as its sender says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Commit {
    pub sha: Option<String>,
    pub branch: Option<String>,
    pub message: Option<String>,
    pub author: Option<String>,
    pub url: Option<String>,
}

/// Why a deployment failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeploymentError {
    pub code: String,
    pub message: String,
    /// The entry of the archive it is about.
    pub path: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Deployment {
    pub id: DeploymentId,
    pub app_id: ApplicationId,
    pub org_id: OrgId,
    pub number: i64,
    pub status: Status,
    pub target: Target,
    pub activates: bool,
    pub label: String,
    pub source: SourceKind,
    pub account_id: Option<AccountId>,
    pub key_id: Option<AppKeyId>,
    pub redeploy_of: Option<DeploymentId>,
    pub installation_id: Option<String>,
    pub repository: Option<String>,
    pub commit: Option<Commit>,
    pub files: i64,
    pub bytes: i64,
    pub new_bytes: i64,
    pub archive_sha256: Option<String>,
    pub idempotency_key: Option<String>,
    pub warnings: Vec<String>,
    pub error: Option<DeploymentError>,
    pub manifest: Option<String>,
    pub manifest_sha256: Option<String>,
    pub redirects: i64,
    pub headers: i64,
    pub created_at: Timestamp,
    pub ready_at: Option<Timestamp>,
    pub activated_at: Option<Timestamp>,
    pub deactivated_at: Option<Timestamp>,
    pub failed_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    pub expired_at: Option<Timestamp>,
}

impl FromRow for Deployment {
    fn from_row(mut row: Row) -> db::Result<Self> {
        let commit: Option<serde_json::Value> = row.get("commit_facts")?;
        let error: Option<serde_json::Value> = row.get("error")?;
        Ok(Self {
            id: row.get("id")?,
            app_id: row.get("app_id")?,
            org_id: row.get("org_id")?,
            number: row.get("number")?,
            status: row.get("status")?,
            target: row.get("target")?,
            activates: row.get("activates")?,
            label: row.get("label")?,
            source: row.get("source")?,
            account_id: row.get("account_id")?,
            key_id: row.get("key_id")?,
            redeploy_of: row.get("redeploy_of")?,
            installation_id: row.get("installation_id")?,
            repository: row.get("repository")?,
            commit: commit.and_then(|facts| serde_json::from_value(facts).ok()),
            files: row.get("files")?,
            bytes: row.get("bytes")?,
            new_bytes: row.get("new_bytes")?,
            archive_sha256: row.get("archive_sha256")?,
            idempotency_key: row.get("idempotency_key")?,
            warnings: row.get("warnings")?,
            error: error.and_then(|facts| serde_json::from_value(facts).ok()),
            manifest: row.get("manifest")?,
            manifest_sha256: row.get("manifest_sha256")?,
            redirects: row.get("redirects")?,
            headers: row.get("headers")?,
            created_at: row.get("created_at")?,
            ready_at: row.get("ready_at")?,
            activated_at: row.get("activated_at")?,
            deactivated_at: row.get("deactivated_at")?,
            failed_at: row.get("failed_at")?,
            expires_at: row.get("expires_at")?,
            expired_at: row.get("expired_at")?,
        })
    }
}

/// The manifest of a deployment whose files are there: its object and what it must hash to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveManifest {
    pub deployment: DeploymentId,
    pub object: String,
    pub hash: Sha256,
}

/// What a deployment that is ready has.
#[derive(Debug, Clone)]
pub struct Built {
    pub manifest: String,
    pub manifest_sha256: Sha256,
    /// Every object it needs, the manifest's own among them.
    pub objects: Vec<String>,
    pub files: i64,
    pub bytes: i64,
    pub new_bytes: i64,
    pub redirects: i64,
    pub headers: i64,
    pub warnings: Vec<String>,
}

impl Deployment {
    pub fn live_manifest(&self) -> Option<LiveManifest> {
        let (object, hash) = (self.manifest.clone()?, Sha256::parse(self.manifest_sha256.as_ref()?)?);
        (self.status == Status::Ready && self.expired_at.is_none()).then_some(LiveManifest {
            deployment: self.id,
            object,
            hash,
        })
    }

    pub fn key(&self) -> Key {
        Key { at: self.created_at, id: self.id.to_string() }
    }

    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "INSERT INTO deployment (id, app_id, org_id, number, status, target, activates, label, source, account_id, key_id,
                                     redeploy_of, installation_id, repository, branch, commit_facts, files, bytes, new_bytes,
                                     archive_sha256, idempotency_key, warnings, redirects, headers, created_at, alive_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, 0, 0, 0, $17, $18, '[]', 0, 0,
                     $19, $19)",
            params![
                self.id,
                self.app_id,
                self.org_id,
                self.number,
                self.status,
                self.target,
                self.activates,
                &self.label,
                self.source,
                self.account_id,
                self.key_id,
                self.redeploy_of,
                self.installation_id.clone(),
                self.repository.clone(),
                self.commit.as_ref().and_then(|commit| commit.branch.clone()),
                self.commit.as_ref().map(|commit| serde_json::to_string(commit).unwrap_or_default()),
                self.archive_sha256.clone(),
                self.idempotency_key.clone(),
                self.created_at
            ],
        )
        .await?;
        Ok(())
    }

    pub async fn find(mut from: impl Read, id: DeploymentId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM deployment WHERE id = $1", params![id]).await
    }

    pub async fn find_by_label(db: &Db, label: &str) -> db::Result<Option<Self>> {
        db.opt("SELECT * FROM deployment WHERE label = $1", params![label]).await
    }

    /// The last three that production pointed to and were replaced since a moment, newest first.
    pub async fn replaced_since(db: &Db, app: ApplicationId, since: Timestamp) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT * FROM deployment WHERE app_id = $1 AND status = 'ready' AND expired_at IS NULL AND deactivated_at > $2
             ORDER BY number DESC LIMIT 3",
            params![app, since],
        )
        .await
    }

    /// Notes that it is still worked on. `false` when somebody has ended it meanwhile.
    pub async fn note_alive(db: &Db, id: DeploymentId, now: Timestamp) -> db::Result<bool> {
        let sql = "UPDATE deployment SET alive_at = $2 WHERE id = $1 AND status = 'processing'";
        Ok(db.exec(sql, params![id, now]).await? == 1)
    }

    /// Makes one that is processed ready. `false` when it was ended meanwhile.
    pub async fn make_ready(tx: &mut Tx, id: DeploymentId, built: &Built, now: Timestamp) -> db::Result<bool> {
        let done = tx
            .exec(
                "UPDATE deployment SET status = 'ready', ready_at = $2, manifest = $3, manifest_sha256 = $4, files = $5,
                                       bytes = $6, new_bytes = $7, redirects = $8, headers = $9, warnings = $10
                 WHERE id = $1 AND status = 'processing'",
                params![
                    id,
                    now,
                    &built.manifest,
                    built.manifest_sha256.hex(),
                    built.files,
                    built.bytes,
                    built.new_bytes,
                    built.redirects,
                    built.headers,
                    &built.warnings
                ],
            )
            .await?;
        if done == 1 {
            name_objects(tx, id, &built.objects, now).await?;
        }
        Ok(done == 1)
    }

    /// Notes which deployment production left, and which it came to.
    pub async fn note_activation(
        tx: &mut Tx,
        before: Option<DeploymentId>,
        after: DeploymentId,
        now: Timestamp,
    ) -> db::Result<()> {
        tx.exec("UPDATE deployment SET activated_at = $2 WHERE id = $1", params![after, now]).await?;
        if let Some(before) = before {
            tx.exec("UPDATE deployment SET deactivated_at = $2 WHERE id = $1", params![before, now]).await?;
        }
        Ok(())
    }

    /// Ends one that is queued or processed. `false` when it has ended already.
    pub async fn fail(
        tx: &mut Tx,
        id: DeploymentId,
        status: Status,
        error: &DeploymentError,
        now: Timestamp,
    ) -> db::Result<bool> {
        let sql = "UPDATE deployment SET status = $2, error = $3, failed_at = $4
                   WHERE id = $1 AND status IN ('queued', 'processing')";
        let facts = serde_json::to_value(error).unwrap_or_default();
        Ok(tx.exec(sql, params![id, status, &facts, now]).await? == 1)
    }

    /// Those that are processed and of which nothing was heard since a moment.
    pub async fn interrupted(db: &Db, before: Timestamp) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT * FROM deployment WHERE status = 'processing' AND alive_at < $1 ORDER BY alive_at LIMIT 100",
            params![before],
        )
        .await
    }

    /// Those whose files are kept, newest first.
    pub async fn kept(mut from: impl Read, app: ApplicationId, most: u32) -> db::Result<Vec<Self>> {
        from.all(
            "SELECT * FROM deployment WHERE app_id = $1 AND status = 'ready' AND expired_at IS NULL
             ORDER BY number DESC LIMIT $2",
            params![app, most],
        )
        .await
    }

    /// Lets go of its files. They are deleted once no other deployment needs them.
    pub async fn expire(tx: &mut Tx, id: DeploymentId, now: Timestamp) -> db::Result<bool> {
        let sql = "UPDATE deployment SET expired_at = $2, expires_at = $2 WHERE id = $1 AND expired_at IS NULL";
        let expired = tx.exec(sql, params![id, now]).await? == 1;
        let sql = "UPDATE pack SET touched_at = $2 WHERE object IN
                       (SELECT object FROM deployment_pack WHERE deployment_id = $1)";
        tx.exec(sql, params![id, now]).await?;
        tx.exec("DELETE FROM deployment_pack WHERE deployment_id = $1", params![id]).await?;
        Ok(expired)
    }

    /// Swaps the manifest for one with more forms of the same files, unless it was swapped or expired meanwhile.
    pub async fn swap_manifest(
        tx: &mut Tx,
        live: &LiveManifest,
        object: &str,
        hash: Sha256,
        objects: &[String],
        now: Timestamp,
    ) -> db::Result<bool> {
        let sql = "UPDATE deployment SET manifest = $3, manifest_sha256 = $4
                   WHERE id = $1 AND manifest = $2 AND expired_at IS NULL";
        let swapped = tx.exec(sql, params![live.deployment, &live.object, object, hash.hex()]).await? == 1;
        if swapped {
            tx.exec("DELETE FROM deployment_pack WHERE deployment_id = $1", params![live.deployment]).await?;
            name_objects(tx, live.deployment, objects, now).await?;
        }
        Ok(swapped)
    }

    /// The one that an `Idempotency-Key` began, for a day.
    pub async fn of_idempotency_key(
        tx: &mut Tx,
        app: ApplicationId,
        key: &str,
        since: Timestamp,
    ) -> db::Result<Option<Self>> {
        tx.opt(
            "SELECT * FROM deployment WHERE app_id = $1 AND idempotency_key = $2 AND created_at > $3
               AND status IN ('processing', 'ready') ORDER BY number DESC LIMIT 1",
            params![app, key, since],
        )
        .await
    }
}

/// Notes which objects a deployment needs. Locks their rows, so that none is deleted meanwhile; `Missing` if one is gone.
async fn name_objects(tx: &mut Tx, id: DeploymentId, objects: &[String], now: Timestamp) -> db::Result<()> {
    for object in objects {
        let sql = "UPDATE pack SET touched_at = $2 WHERE object = $1 AND NOT is_going";
        if tx.exec(sql, params![object, now]).await? != 1 {
            return Err(db::Error::Missing);
        }
        let sql = "INSERT INTO deployment_pack (deployment_id, object) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        tx.send(sql, params![id, object]).await?;
    }
    Ok(())
}

/// An object with bytes of files, or a manifest.
#[derive(Debug)]
pub struct StoredPack {
    pub object: String,
}
db::row!(StoredPack { object });

/// An object, and how large it is.
pub struct PackSize {
    pub object: String,
    pub bytes: i64,
}
db::row!(PackSize { object, bytes });

impl StoredPack {
    /// Written before the object, so that an object without a row cannot be.
    pub async fn announce(janua: &Janua, app: ApplicationId, object: &str, bytes: i64) -> db::Result<()> {
        let sql = "INSERT INTO pack (object, app_id, bytes, touched_at, is_going) VALUES ($1, $2, $3, $4, $5)";
        janua.db.exec(sql, params![object, app, bytes, janua.clock.now(), false]).await.map(drop)
    }

    /// Those of an app that are at least so large, the largest first, with their bytes.
    pub async fn sizes(db: &Db, app: ApplicationId, least: i64) -> db::Result<Vec<PackSize>> {
        let sql = "SELECT object, bytes FROM pack WHERE app_id = $1 AND bytes >= $2 AND NOT is_going
                   ORDER BY bytes DESC, object LIMIT 10000";
        db.all(sql, params![app, least]).await
    }

    /// Those that are to be deleted: no deployment has named them since a moment.
    pub async fn take_unused(db: &Db, before: Timestamp) -> db::Result<Vec<Self>> {
        db.put(
            "UPDATE pack SET is_going = $2 WHERE object IN
                 (SELECT object FROM pack WHERE touched_at < $1
                    AND NOT EXISTS (SELECT 1 FROM deployment_pack WHERE deployment_pack.object = pack.object)
                  ORDER BY touched_at LIMIT 200)
               AND touched_at < $1
               AND NOT EXISTS (SELECT 1 FROM deployment_pack WHERE deployment_pack.object = pack.object)
             RETURNING object",
            params![before, true],
        )
        .await
    }

    pub async fn delete(db: &Db, object: &str) -> db::Result<()> {
        db.exec("DELETE FROM pack WHERE object = $1 AND is_going", params![object]).await.map(drop)
    }
}
