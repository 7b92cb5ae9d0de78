//! The log of a machine: its part of the audit log.
use db::{Db, FromRow, Row, params};
use kernel::{clock::Timestamp, http::Key};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::ids::MachineId;

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogEntry {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub at: Timestamp,
    /// The user who did it; null for what the machine did itself.
    pub actor: Option<String>,
    pub ip: Option<String>,
    pub user_agent: Option<String>,
    /// `issued` or `refused`, for tokens.
    pub result: Option<String>,
    /// Why a token was refused.
    pub code: Option<String>,
    pub audience: Option<String>,
    pub scope: Option<String>,
    /// The user for whom the machine acted.
    pub subject: Option<String>,
    pub request_id: Option<String>,
    pub details: Map<String, Value>,
}

impl FromRow for LogEntry {
    fn from_row(mut row: Row) -> db::Result<Self> {
        let details: Value = row.get("details")?;
        let text = |name: &str| details.get(name).and_then(Value::as_str).map(str::to_owned);
        Ok(Self {
            id: row.get("id")?,
            kind: row.get("type")?,
            at: row.get("at")?,
            actor: row.get("actor")?,
            ip: row.get("ip")?,
            user_agent: row.get("user_agent")?,
            result: text("result"),
            code: text("code"),
            audience: text("audience"),
            scope: text("scope"),
            subject: text("subject"),
            request_id: row.get("request_id")?,
            details: details.as_object().cloned().unwrap_or_default(),
        })
    }
}

impl LogEntry {
    pub fn key(&self) -> Key {
        Key { at: self.at, id: self.id.clone() }
    }

    /// Newest first; `kind` is empty for all types.
    pub async fn page(db: &Db, id: MachineId, kind: &str, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        let sql = "SELECT id, type, at, actor, ip, user_agent, request_id, details FROM audit_event
                   WHERE machine_id = $1 AND (at, id) < ($2, $3) AND ($4 = '' OR type = $4)
                   ORDER BY at DESC, id DESC LIMIT $5";
        db.all(sql, params![id, below.at, &below.id, kind, most]).await
    }
}
