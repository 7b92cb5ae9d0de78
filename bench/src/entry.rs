//! The one table and row that both database scenarios use, on both sides: about the size of an event in a log.
use std::path::Path;

use anyhow::Result;
use db::{Db, Durability};
use rusqlite::Connection;

/// How many callers use the door at once.
pub const CALLERS: usize = 32;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS entry (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL, made_at BIGINT NOT NULL)";
pub const INSERT: &str = "INSERT INTO entry (id, kind, body, made_at) VALUES ($1, $2, $3, $4)";
pub const SELECT: &str = "SELECT kind, body, made_at FROM entry WHERE id = $1";

pub const KIND: &str = "session.created";
pub const BODY: &str =
    r#"{"account":"0198c6a2-7d1e-7000-8000-000000000000","address":"203.0.113.9","browser":"Firefox"}"#;

/// What a read brings back, every value owned.
pub struct Entry {
    pub kind: String,
    pub body: String,
    pub made_at: i64,
}
db::row!(Entry { kind, body, made_at });

impl Entry {
    pub fn is(&self, number: i64) -> bool {
        self.made_at == number && self.kind == KIND && self.body == BODY
    }
}

/// Ids rise like the `UUIDv7` ones they stand for, and are as long.
pub fn id(number: i64) -> String {
    format!("0198c6a2-7d1e-7000-8000-{number:012x}")
}

/// The limit's connection to a file with the table in it: SQLite as the door sets it up, and nothing around it.
pub fn raw(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch(TABLE)?;
    Ok(connection)
}

pub async fn door(path: &Path) -> Result<Db> {
    let db = Db::open(&format!("sqlite:{}", path.display()), 1, Durability::Full).await?;
    db.exec(TABLE, vec![]).await?;
    Ok(db)
}
