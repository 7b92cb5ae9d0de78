//! The one table and row that both database scenarios use, on both sides: about the size of an event in a log.
use std::path::Path;

use anyhow::Result;
use kernel::db::{Db, Durability};
use rusqlite::Connection;

/// How many callers use the door at once.
pub const CALLERS: usize = 32;

pub const TABLE: &str =
    "CREATE TABLE entry (id TEXT PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL, made_at BIGINT NOT NULL)";
pub const INSERT: &str = "INSERT INTO entry (id, kind, body, made_at) VALUES ($1, $2, $3, $4)";
pub const SELECT: &str = "SELECT id, kind, body, made_at FROM entry WHERE id = $1";

pub const KIND: &str = "session.created";
pub const BODY: &str = r#"{"account":"0198c6a2-7d1e-7000-8000-000000000000","address":"203.0.113.9","browser":"Firefox"}"#;

/// A row, every value owned by it.
pub struct Entry {
    pub id: String,
    pub kind: String,
    pub body: String,
    pub made_at: i64,
}
kernel::row!(Entry { id, kind, body, made_at });

/// Ids rise like the `UUIDv7` ones they stand for, and are as long.
pub fn id(number: i64) -> String {
    format!("0198c6a2-7d1e-7000-8000-{number:012x}")
}

/// The limit's connection: SQLite as the door sets it up, and nothing else.
pub fn raw(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

pub async fn door(path: &Path) -> Result<Db> {
    Ok(Db::open(&format!("sqlite:{}", path.display()), 1, Durability::Full).await?)
}
