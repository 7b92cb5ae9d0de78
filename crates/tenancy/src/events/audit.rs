//! Reading what happened: by the people and the organizations it happened to.
use db::{Db, FromRow, Row, params};
use kernel::{clock::Timestamp, http::Key};
use schemars::JsonSchema;
use serde::Serialize;

use crate::ids::{AccountId, ApplicationId, OrgId};

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// The user who did it; null before sign-in.
    pub actor: Option<String>,
    pub target: Option<String>,
    pub org_id: Option<String>,
    pub app_id: Option<String>,
    pub ip: Option<String>,
    pub user_agent: Option<String>,
    pub at: Timestamp,
    pub details: serde_json::Map<String, serde_json::Value>,
}

impl FromRow for AuditEntry {
    fn from_row(mut row: Row) -> db::Result<Self> {
        let details: serde_json::Value = row.get("details")?;
        Ok(Self {
            id: row.get("id")?,
            kind: row.get("type")?,
            actor: row.get("actor")?,
            target: row.get("target")?,
            org_id: row.get("org_id")?,
            app_id: row.get("app_id")?,
            ip: row.get("ip")?,
            user_agent: row.get("user_agent")?,
            at: row.get("at")?,
            details: details.as_object().cloned().unwrap_or_default(),
        })
    }
}

impl AuditEntry {
    pub fn key(&self) -> Key {
        Key { at: self.at, id: self.id.clone() }
    }

    /// Where somebody else did it, from where is theirs.
    pub async fn of_person(db: &Db, account: AccountId, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT id, type, actor, target, org_id, app_id, at, details,
                    CASE WHEN actor IS NULL OR actor = account_id THEN ip END AS ip,
                    CASE WHEN actor IS NULL OR actor = account_id THEN user_agent END AS user_agent
             FROM audit_event
             WHERE account_id = $1 AND (at, id) < ($2, $3) ORDER BY at DESC, id DESC LIMIT $4",
            params![account, below.at, &below.id, most],
        )
        .await
    }

    pub async fn of_org(db: &Db, org: OrgId, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT id, type, actor, target, org_id, app_id, ip, user_agent, at, details FROM audit_event
             WHERE org_id = $1 AND (at, id) < ($2, $3) ORDER BY at DESC, id DESC LIMIT $4",
            params![org, below.at, &below.id, most],
        )
        .await
    }
}

/// Something that happened to a person in an app, as the app's admins see it: neither how the person signs in to the
/// service nor what they do elsewhere.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppActivity {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// The account that did it.
    pub actor: Option<String>,
    pub ip: Option<String>,
    pub user_agent: Option<String>,
    pub at: Timestamp,
}

impl FromRow for AppActivity {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            kind: row.get("type")?,
            actor: row.get("actor")?,
            ip: row.get("ip")?,
            user_agent: row.get("user_agent")?,
            at: row.get("at")?,
        })
    }
}

impl AppActivity {
    /// The newest 50.
    pub async fn of(db: &Db, app: ApplicationId, account: AccountId) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT id, type, actor, at, CASE WHEN actor IS NULL OR actor = account_id THEN ip END AS ip,
                    CASE WHEN actor IS NULL OR actor = account_id THEN user_agent END AS user_agent
             FROM audit_event
             WHERE account_id = $1 AND app_id = $2
               AND type IN ('SIGNED_IN', 'SIGN_IN_FAILED', 'SESSION_REVOKED', 'CONSENT_GRANTED', 'CONSENT_REVOKED',
                            'PROFILE_UPDATED', 'USER_BLOCKED', 'USER_UNBLOCKED')
             ORDER BY at DESC, id DESC LIMIT 50",
            params![account, app],
        )
        .await
    }
}
