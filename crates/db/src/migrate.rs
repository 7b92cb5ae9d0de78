//! Numbered migrations, embedded in the binary. Each is applied once, in order, in one transaction, by one node.
use std::{path::PathBuf, time::Duration};

use aws_lc_rs::digest;
use data_encoding::HEXLOWER;

use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use super::{Db, Durability, Error, params, postgres::Postgres, row, sqlite};

/// One numbered step of the schema.
#[derive(Debug)]
pub struct Migration {
    pub number: i64,
    pub name: &'static str,
    pub sql: &'static str,
}

impl Migration {
    /// The checksum of the text, the same on every machine, with any line endings of the checkout.
    fn checksum(&self) -> String {
        let text = self.sql.replace("\r\n", "\n");
        HEXLOWER.encode(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
    }
}

/// The product's own migrations: the files of `migrations/`.
pub const ALL: &[Migration] = include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// Why the schema could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error(
        "the database is at version {found} and this binary knows only {known}: it was used by a newer janua. \
         Run that one, or restore a backup made before the upgrade"
    )]
    Newer { found: i64, known: i64 },
    #[error("migration {number} ({name}) is not the one this database was made with; it must never be edited")]
    Changed { number: i64, name: String },
    #[error("migration {number} ({name}) failed and was undone: {cause}")]
    Failed { number: i64, name: &'static str, cause: Error },
    #[error(
        "{connections} connections of an earlier janua are open on this database ({from}). It cannot work on the tables \
         of this version: stop every node of it first. Nothing was changed"
    )]
    Beside { connections: i64, from: String },
    #[error(transparent)]
    Db(#[from] Error),
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_migration (
    number BIGINT PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at BIGINT NOT NULL)";
const APPLIED: &str = "SELECT number, name, checksum FROM schema_migration ORDER BY number";
const RECORD: &str = "INSERT INTO schema_migration (number, name, checksum, applied_at) VALUES ($1, $2, $3, $4)";
/// The advisory lock that lets only one node migrate at a time. Any number that has no other use will do.
const LOCK: i64 = 0x6a61_6e75_6100;

type Applied = (i64, String, String);

/// Nodes that know fewer migrations than this cannot work while the following ones are applied, or afterwards. Later
/// ones can, as long as migrations only add.
const ABLE: i64 = 62;
/// How long nodes that were told to stop have for it.
const LEAVING: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Connections to this database by those who know fewer migrations, and from where. 0.1 has a name without a number.
const BESIDE: &str =
    "SELECT COUNT(*), COALESCE(STRING_AGG(DISTINCT COALESCE(HOST(client_addr), 'this machine'), ', '), '')
    FROM pg_stat_activity WHERE datname = current_database() AND (application_name = 'janua'
        OR CAST(SUBSTRING(application_name FROM '^janua/([0-9]{1,9})$') AS BIGINT) < $1)";

/// An applied migration.
#[derive(Debug)]
pub struct Version {
    pub number: i64,
    pub applied_at: i64,
}
row!(Version { number, applied_at });

/// The number of the newest migration that this binary knows.
pub(super) fn newest() -> i64 {
    ALL.last().map_or(0, |step| step.number)
}

/// The newest applied migration; none in a database without any.
pub async fn version(db: &Db) -> Result<Option<Version>, Error> {
    db.opt("SELECT number, applied_at FROM schema_migration ORDER BY number DESC LIMIT 1", params![]).await
}

/// Whether every migration this binary knows was applied.
pub async fn is_current(db: &Db) -> bool {
    version(db).await.is_ok_and(|found| found.is_some_and(|found| found.number >= newest()))
}

/// The next step to apply, after checking that all applied steps are known and unchanged.
fn next(steps: &'static [Migration], applied: &[Applied]) -> Result<Option<&'static Migration>, MigrateError> {
    for (number, name, checksum) in applied {
        match steps.iter().find(|step| step.number == *number) {
            Some(step) if step.checksum() == *checksum => {}
            Some(_) => return Err(MigrateError::Changed { number: *number, name: name.clone() }),
            None => {
                let known = steps.last().map_or(0, |step| step.number);
                return Err(MigrateError::Newer { found: *number, known });
            }
        }
    }
    Ok(steps.iter().find(|step| applied.iter().all(|(number, ..)| *number != step.number)))
}

/// Checks that this binary knows every migration of a SQLite database; it may know more.
pub fn is_known(connection: &rusqlite::Connection) -> Result<(), MigrateError> {
    next(ALL, &applied(connection)?).map(drop)
}

fn applied(connection: &rusqlite::Connection) -> Result<Vec<Applied>, Error> {
    let mut statement = connection.prepare(APPLIED)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) async fn on_sqlite(
    path: PathBuf,
    steps: &'static [Migration],
    now: i64,
) -> Result<Vec<String>, MigrateError> {
    let work = move || -> Result<Vec<String>, MigrateError> {
        let mut connection = sqlite::open(&path, Durability::Full)?;
        let mut done = Vec::new();
        loop {
            // The write lock serves as the migration lock, so the applied steps are read only after it is held.
            let tx = connection
                .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
                .map_err(Error::from)?;
            tx.execute_batch(TABLE).map_err(Error::from)?;
            let Some(step) = next(steps, &applied(&tx)?)? else { return Ok(done) };
            tx.execute_batch(step.sql)
                .and_then(|()| tx.execute(RECORD, (step.number, step.name, step.checksum(), now)))
                .and_then(|_| tx.commit())
                .map_err(|e| MigrateError::Failed { number: step.number, name: step.name, cause: e.into() })?;
            done.push(step.name.to_owned());
        }
    };
    tokio::task::spawn_blocking(work).await.map_err(|e| Error::Driver(e.to_string()))?
}

pub(super) async fn on_postgres(
    postgres: &Postgres,
    steps: &'static [Migration],
    now: i64,
) -> Result<Vec<String>, MigrateError> {
    let mut client = postgres.dedicated().await?;
    // The server holds the lock until this connection ends.
    client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await.map_err(Error::from)?;
    client.batch_execute(TABLE).await.map_err(Error::from)?;
    let mut done = Vec::new();
    loop {
        let rows = client.query(APPLIED, &[]).await.map_err(Error::from)?;
        let applied: Vec<Applied> = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
        let Some(step) = next(steps, &applied)? else { return Ok(done) };
        let is_upgrade = applied.last().is_some_and(|(number, ..)| *number < ABLE);
        if is_upgrade && done.is_empty() {
            stand_alone(&client).await?;
        }
        let failed = |cause| MigrateError::Failed { number: step.number, name: step.name, cause };
        let tx = client.transaction().await.map_err(Error::from)?;
        tx.batch_execute(step.sql).await.map_err(|e| failed(e.into()))?;
        tx.execute(RECORD, &[&step.number, &step.name, &step.checksum(), &now])
            .await
            .map_err(|e| failed(e.into()))?;
        tx.commit().await.map_err(|e| failed(e.into()))?;
        done.push(step.name.to_owned());
    }
}

/// Waits until no node is left that could not work on what comes.
async fn stand_alone(client: &Client) -> Result<(), MigrateError> {
    let began = Instant::now();
    loop {
        let row = client.query_one(BESIDE, &[&ABLE]).await.map_err(Error::from)?;
        let (connections, from): (i64, String) = (row.get(0), row.get(1));
        if connections == 0 {
            return Ok(());
        }
        if began.elapsed() >= LEAVING {
            return Err(MigrateError::Beside { connections, from });
        }
        sleep(LOOK_EVERY).await;
    }
}
