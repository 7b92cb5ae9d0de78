//! Sending domains as stored, and every statement on them.
use db::{Db, InJson, Read, Tx, holding, params, row};
use kernel::clock::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{apps::ApplicationId, gone::Gone, orgs::OrgId};

use crate::words::{Algorithm, DomainStatus};

/// The state of one record.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RecordState {
    /// `dkim`, `dkim_ed25519`, `return_path`, `spf` or `dmarc`.
    pub purpose: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    pub value: String,
    /// The value in pieces of up to 255 characters, for DNS providers that want them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
    pub required: bool,
    pub status: RecordStatus,
    /// The values found.
    #[serde(default)]
    pub found: Vec<String>,
    pub hint: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum RecordStatus {
    Ok,
    Missing,
    Mismatch,
    /// No name server answered. This says nothing about the record.
    Unreachable,
}

#[derive(Debug, Clone)]
pub struct Domain {
    pub app_id: ApplicationId,
    pub hostname: String,
    pub org_id: OrgId,
    pub subdomains: bool,
    pub status: DomainStatus,
    /// The generation of keys that signs.
    pub signing: i64,
    pub has_return_path: bool,
    pub findings: InJson<Vec<RecordState>>,
    pub created_at: Timestamp,
    /// None for a domain that was never asked for anew.
    pub pending_since: Option<Timestamp>,
    pub checked_at: Option<Timestamp>,
    pub verified_at: Option<Timestamp>,
    pub next_check_at: Option<Timestamp>,
    pub checks: u32,
    pub missing_since: Option<Timestamp>,
    pub failing_since: Option<Timestamp>,
}
row!(Domain {
    app_id,
    hostname,
    org_id,
    subdomains,
    status,
    signing,
    has_return_path,
    findings,
    created_at,
    pending_since,
    checked_at,
    verified_at,
    next_check_at,
    checks,
    missing_since,
    failing_since
});

impl Domain {
    /// Whether a sender at this host may be used.
    pub fn covers(&self, host: &str) -> bool {
        let below = || host.strip_suffix(&self.hostname).is_some_and(|rest| rest.ends_with('.'));
        host == self.hostname || (self.subdomains && below())
    }

    pub async fn of_app(mut from: impl Read, app: ApplicationId) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM email_domain WHERE app_id = $1 ORDER BY created_at, hostname LIMIT 100";
        from.all(sql, params![app]).await
    }

    pub async fn find(mut from: impl Read, app: ApplicationId, hostname: &str) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM email_domain WHERE app_id = $1 AND hostname = $2", params![app, hostname]).await
    }

    pub async fn hold(tx: &mut Tx, app: ApplicationId, hostname: &str) -> db::Result<Option<Self>> {
        let sql = holding!("SELECT * FROM email_domain WHERE app_id = $1 AND hostname = $2");
        tx.opt(sql, params![app, hostname]).await
    }

    pub async fn due(db: &Db, now: Timestamp, most: u32) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM email_domain WHERE next_check_at <= $1 ORDER BY next_check_at LIMIT $2";
        db.all(sql, params![now, most]).await
    }

    /// `false` when the app has it already.
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<bool> {
        let made = tx
            .exec(
                "INSERT INTO email_domain (app_id, hostname, org_id, subdomains, status, signing, has_return_path,
                                           findings, created_at, next_check_at, checks)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0) ON CONFLICT (app_id, hostname) DO NOTHING",
                params![
                    self.app_id,
                    &self.hostname,
                    self.org_id,
                    self.subdomains,
                    self.status,
                    self.signing,
                    self.has_return_path,
                    &self.findings,
                    self.created_at,
                    self.next_check_at
                ],
            )
            .await?;
        Ok(made == 1)
    }

    pub async fn save(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "UPDATE email_domain SET status = $3, signing = $4, has_return_path = $5, findings = $6, checked_at = $7,
                 verified_at = $8, next_check_at = $9, checks = $10, missing_since = $11, failing_since = $12,
                 pending_since = $13
             WHERE app_id = $1 AND hostname = $2",
            params![
                self.app_id,
                &self.hostname,
                self.status,
                self.signing,
                self.has_return_path,
                &self.findings,
                self.checked_at,
                self.verified_at,
                self.next_check_at,
                self.checks,
                self.missing_since,
                self.failing_since,
                self.pending_since
            ],
        )
        .await?;
        Ok(())
    }

    /// `false` when the app had none of this name. Its keys go with it.
    pub async fn delete(&self, tx: &mut Tx) -> db::Result<bool> {
        let sql = "DELETE FROM email_domain WHERE app_id = $1 AND hostname = $2";
        let gone = tx.exec(sql, params![self.app_id, &self.hostname]).await? == 1;
        free_host(tx, &self.hostname, self.org_id).await?;
        Ok(gone)
    }
}

/// Takes a host for an organization; `false` when another one has proven it.
pub async fn take_host(tx: &mut Tx, hostname: &str, org: OrgId) -> db::Result<bool> {
    let sql = "INSERT INTO email_host (hostname, org_id) VALUES ($1, $2) ON CONFLICT (hostname) DO NOTHING";
    tx.exec(sql, params![hostname, org]).await?;
    Ok(holder(tx, hostname).await? == Some(org))
}

pub async fn holder(tx: &mut Tx, hostname: &str) -> db::Result<Option<OrgId>> {
    let sql = holding!("SELECT org_id FROM email_host WHERE hostname = $1");
    Ok(tx.opt::<(OrgId,)>(sql, params![hostname]).await?.map(|(org,)| org))
}

/// Whether another organization has proven a host below a domain, or one between the two.
pub async fn is_of_another(mut from: impl Read, host: &str, domain: &Domain) -> db::Result<bool> {
    let mut name = host;
    while name.len() > domain.hostname.len() {
        let sql = "SELECT org_id FROM email_host WHERE hostname = $1";
        if from.opt::<(OrgId,)>(sql, params![name]).await?.is_some_and(|(org,)| org != domain.org_id) {
            return Ok(true);
        }
        name = name.split_once('.').map_or("", |(_, above)| above);
    }
    Ok(false)
}

/// Moves a host to an organization that has proven the name itself, and answers the domains of others that lose it.
pub async fn move_host(tx: &mut Tx, hostname: &str, org: OrgId) -> db::Result<Vec<Domain>> {
    tx.exec("UPDATE email_host SET org_id = $2 WHERE hostname = $1", params![hostname, org]).await?;
    let sql = "SELECT * FROM email_domain WHERE hostname = $1 AND org_id <> $2
               AND status IN ('verified', 'temporary_failure') ORDER BY app_id LIMIT 1000";
    tx.all(sql, params![hostname, org]).await
}

/// Lets others prove a host once no domain of its organization sends from it any more.
pub async fn free_host(tx: &mut Tx, hostname: &str, org: OrgId) -> db::Result<()> {
    tx.exec(
        "DELETE FROM email_host WHERE hostname = $1 AND org_id = $2 AND NOT EXISTS
             (SELECT 1 FROM email_domain WHERE hostname = $1 AND org_id = $2
              AND status IN ('verified', 'temporary_failure'))",
        params![hostname, org],
    )
    .await?;
    Ok(())
}

/// Hosts of an app that is deleted are free again.
pub const GONE: Gone = Gone::App(|tx, _, id| {
    Box::pin(async move {
        for domain in Domain::of_app(&mut *tx, id).await? {
            domain.delete(tx).await?;
        }
        Ok(())
    })
});

/// A key, without its private part.
#[derive(Debug, Clone)]
pub struct DomainKey {
    pub generation: i64,
    pub algorithm: Algorithm,
    pub selector: String,
    pub public_key: String,
    pub is_seen: bool,
    pub created_at: Timestamp,
}
row!(DomainKey { generation, algorithm, selector, public_key, is_seen, created_at });

impl DomainKey {
    pub async fn of(mut from: impl Read, app: ApplicationId, hostname: &str) -> db::Result<Vec<Self>> {
        let sql = "SELECT generation, algorithm, selector, public_key, is_seen, created_at FROM email_key
                   WHERE app_id = $1 AND hostname = $2 ORDER BY generation DESC, algorithm DESC";
        from.all(sql, params![app, hostname]).await
    }

    pub async fn set_seen(&self, tx: &mut Tx, app: ApplicationId, hostname: &str, is_seen: bool) -> db::Result<()> {
        let sql = "UPDATE email_key SET is_seen = $5
                   WHERE app_id = $1 AND hostname = $2 AND generation = $3 AND algorithm = $4";
        tx.exec(sql, params![app, hostname, self.generation, self.algorithm, is_seen]).await?;
        Ok(())
    }

    /// Destroys keys that signed before the present ones.
    pub async fn forget_before(tx: &mut Tx, app: ApplicationId, hostname: &str, generation: i64) -> db::Result<()> {
        let sql = "DELETE FROM email_key WHERE app_id = $1 AND hostname = $2 AND generation < $3";
        tx.exec(sql, params![app, hostname, generation]).await?;
        Ok(())
    }
}

/// A key as it is stored when it is made.
pub struct NewKey {
    pub generation: i64,
    pub algorithm: Algorithm,
    pub selector: String,
    pub public_key: String,
    pub sealed: Vec<u8>,
}

impl NewKey {
    pub async fn insert(&self, tx: &mut Tx, app: ApplicationId, hostname: &str, now: Timestamp) -> db::Result<()> {
        tx.exec(
            "INSERT INTO email_key (app_id, hostname, generation, algorithm, selector, public_key, sealed, is_seen,
                                    created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            params![
                app,
                hostname,
                self.generation,
                self.algorithm,
                &self.selector,
                &self.public_key,
                self.sealed.clone(),
                false,
                now
            ],
        )
        .await?;
        Ok(())
    }
}

/// The sealed keys of a generation that sign: those whose records were seen.
pub struct SealedKey {
    pub algorithm: Algorithm,
    pub selector: String,
    pub sealed: Vec<u8>,
}
row!(SealedKey { algorithm, selector, sealed });

impl SealedKey {
    pub async fn of(db: &Db, app: ApplicationId, hostname: &str, generation: i64) -> db::Result<Vec<Self>> {
        let sql = "SELECT algorithm, selector, sealed FROM email_key
                   WHERE app_id = $1 AND hostname = $2 AND generation = $3 AND is_seen = $4 ORDER BY algorithm";
        db.all(sql, params![app, hostname, generation, true]).await
    }
}
