//! Facts about the whole installation, each a name and a text in the table `setting`: that the signing keys were created,
//! which master key the database belongs to, when it was restored. What an operator chooses is in [`config`](crate::config).
use db::{Db, Read, Tx, holding, params};

pub async fn read(mut from: impl Read, name: &str) -> db::Result<Option<String>> {
    let found: Option<(String,)> = from.opt("SELECT value FROM setting WHERE name = $1", params![name]).await?;
    Ok(found.map(|(value,)| value))
}

/// Writes a fact, unless it is there already; answers whether it was written.
pub async fn write_once(tx: &mut Tx, name: &str, value: &str) -> db::Result<bool> {
    let sql = "INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    Ok(tx.exec(sql, params![name, value]).await? == 1)
}

/// Writes a fact in place of the one that was there.
pub async fn write(tx: &mut Tx, name: &str, value: &str) -> db::Result<()> {
    let sql = "INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2";
    tx.exec(sql, params![name, value]).await.map(drop)
}

/// Removes a fact in a transaction.
pub async fn remove(tx: &mut Tx, name: &str) -> db::Result<()> {
    tx.exec("DELETE FROM setting WHERE name = $1", params![name]).await.map(drop)
}

/// Locks a fact until the transaction ends.
pub async fn lock(tx: &mut Tx, name: &str) -> db::Result<()> {
    tx.opt::<(String,)>(holding!("SELECT value FROM setting WHERE name = $1"), params![name]).await.map(drop)
}

pub async fn delete(db: &Db, name: &str) -> db::Result<()> {
    db.exec("DELETE FROM setting WHERE name = $1", params![name]).await.map(drop)
}
