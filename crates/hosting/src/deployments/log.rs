//! The log of a deployment: what was done, line by line, for people.
use db::{Db, Read, Tx, params, row};
use kernel::{Janua, clock::Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use super::model::DeploymentId;
use crate::words::words;

/// How many lines a deployment may have.
pub const MOST_LINES: i64 = 2000;
const LONGEST_MESSAGE: usize = 500;

words! {
    pub enum Level {
        Info = "info",
        Warn = "warn",
        Error = "error",
    }
}

words! {
    pub enum Stage {
        Receive = "receive",
        Unpack = "unpack",
        Store = "store",
        Activate = "activate",
        Compress = "compress",
        Codehost = "codehost",
    }
}

/// A line of the log.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LogLine {
    pub seq: i64,
    pub at: Timestamp,
    pub level: Level,
    pub stage: Stage,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}
row!(LogLine { seq, at, level, stage, message, path });

/// A line to be written.
#[derive(Debug, Clone)]
pub struct NewLine {
    pub at: Timestamp,
    pub level: Level,
    pub stage: Stage,
    pub message: String,
    pub path: Option<String>,
}

impl NewLine {
    pub fn info(janua: &Janua, stage: Stage, message: impl Into<String>) -> Self {
        Self { at: janua.clock.now(), level: Level::Info, stage, message: message.into(), path: None }
    }

    pub fn warn(janua: &Janua, stage: Stage, message: impl Into<String>) -> Self {
        Self { level: Level::Warn, ..Self::info(janua, stage, message) }
    }

    pub fn error(janua: &Janua, stage: Stage, message: impl Into<String>, path: Option<String>) -> Self {
        Self { level: Level::Error, path, ..Self::info(janua, stage, message) }
    }
}

/// Adds lines. The deployment's row must be locked or owned by the caller.
pub async fn write(tx: &mut Tx, id: DeploymentId, lines: &[NewLine]) -> db::Result<()> {
    let sql = "SELECT CAST(COALESCE(MAX(seq), 0) AS BIGINT) FROM deployment_log WHERE deployment_id = $1";
    let (mut seq,): (i64,) = tx.one(sql, params![id]).await?;
    for line in lines {
        seq += 1;
        if seq > MOST_LINES {
            break;
        }
        let message: String = line.message.chars().take(LONGEST_MESSAGE).collect();
        tx.send(
            "INSERT INTO deployment_log (deployment_id, seq, at, level, stage, message, path)
             VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (deployment_id, seq) DO NOTHING",
            params![id, seq, line.at, line.level, line.stage, &message, line.path.clone()],
        )
        .await?;
    }
    Ok(())
}

pub async fn read(db: &Db, id: DeploymentId, after: i64, most: u32) -> db::Result<Vec<LogLine>> {
    db.all(
        "SELECT seq, at, level, stage, message, path FROM deployment_log WHERE deployment_id = $1 AND seq > $2
         ORDER BY seq LIMIT $3",
        params![id, after, most],
    )
    .await
}

/// The last lines, in their order.
pub async fn last(mut from: impl Read, id: DeploymentId, most: u32) -> db::Result<Vec<LogLine>> {
    let sql = "SELECT seq, at, level, stage, message, path FROM deployment_log WHERE deployment_id = $1
               ORDER BY seq DESC LIMIT $2";
    let mut lines: Vec<LogLine> = from.all(sql, params![id, most]).await?;
    lines.reverse();
    Ok(lines)
}
