//! The database: SQLite or PostgreSQL behind one interface, with one SQL text, one set of values and one way to run a
//! transaction.
//!
//! Why not an ORM or `sqlx`: durable writes on SQLite are fast only if concurrent writers share a commit, and no
//! library does that. `docs/sql.md` says which SQL both engines understand alike, `docs/decisions/0001` why this
//! crate exists and which code uses carried transactions.
//!
//! Reads are `one`, `opt` and `all`; writes are `exec`, `put` (with `RETURNING`) and, where the outcome is not
//! needed, `send`. Statements that belong together run in one [`transact!`](crate::transact). Any error inside a
//! transaction ends it, on both engines: a statement that may collide says `ON CONFLICT`.
pub mod claim;
mod compose;
mod error;
pub mod migrate;
mod notices;
mod postgres;
mod read;
mod sql;
mod sqlite;
#[cfg(feature = "testing")]
#[expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot start fails")]
pub mod testing;
mod transaction;
mod value;

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

pub use claim::{answer_opens_account, aside};
pub use compose::Composed;
pub use error::{Error, Outcome, Result};
pub use notices::{Listener, Notice, Reach};
pub use postgres::{MOVE, NODE, ServerTime, value as postgres_value};
pub use read::Read;
pub use sql::Sql;
pub use transaction::{Tries, Tx, Work};
pub use value::{FromRow, FromValue, InJson, Row, Value};

use claim::Claim;
use notices::Notices;
use sql::Text;

/// Locks a mutex whose holders leave nothing half done, so that a panic of one does no harm.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A transaction without a statement for this long is rolled back, because other writers wait for it.
pub const SILENCE: Duration = Duration::from_secs(2);
/// No single statement runs longer than this.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
/// How many rows one transaction of a [sweep](Db::sweep) changes at most: on SQLite every other writer waits for it.
const SWEPT_AT_ONCE: i64 = 1_000;
/// The longest pause between two transactions of a sweep.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// How durable a commit is. Everything but `Full` is for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Full,
    Off,
}

/// How busy the connections of a node are. On SQLite a connection is a thread that reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// The most connections there can be.
    pub most: i64,
    pub open: i64,
    pub in_use: i64,
    /// Callers that wait for a connection.
    pub waiting: i64,
    /// Writes that wait for the writer; on SQLite.
    pub writes_waiting: Option<i64>,
    /// How often a caller had to wait, since the start; on PostgreSQL.
    pub waits: Option<i64>,
}

/// The result of a statement.
#[derive(Debug)]
struct Done {
    rows: Vec<Row>,
    changed: u64,
}

/// An open database. Cheap to clone; clones share connections and threads.
#[derive(Clone)]
pub struct Db {
    engine: Engine,
    notices: Notices,
}

/// Futures of PostgreSQL are boxed throughout this crate, so that a request on SQLite does not carry the room for them:
/// a waiting future is copied more than once before it waits.
#[derive(Clone)]
enum Engine {
    Sqlite(Arc<sqlite::Sqlite>),
    Postgres(Arc<postgres::Postgres>),
}

impl Db {
    /// Opens `sqlite:PATH` or `postgres://…`. Creates nothing but an empty SQLite file.
    pub async fn open(url: &str, connections: usize, durability: Durability) -> Result<Self> {
        let notices = Notices::default();
        let engine = match sqlite_path(url) {
            Some(path) => Engine::Sqlite(Arc::new(sqlite::Sqlite::open(Path::new(path), durability)?)),
            None => Engine::Postgres(Arc::new(postgres::Postgres::connect(url, connections, notices.clone()).await?)),
        };
        Ok(Self { engine, notices })
    }

    /// The engine's name: `sqlite` or `postgres`.
    pub fn engine(&self) -> &'static str {
        match self.engine {
            Engine::Sqlite(_) => "sqlite",
            Engine::Postgres(_) => "postgres",
        }
    }

    /// Applies the migrations this binary knows and the database lacks; answers their names. `now` is in milliseconds
    /// since 1970.
    pub async fn migrate(&self, now: i64) -> Result<Vec<String>, migrate::MigrateError> {
        self.migrate_to(migrate::ALL, now).await
    }

    /// As [`migrate`](Self::migrate), with other migrations than the product's own.
    pub async fn migrate_to(
        &self,
        steps: &'static [migrate::Migration],
        now: i64,
    ) -> Result<Vec<String>, migrate::MigrateError> {
        match &self.engine {
            Engine::Sqlite(sqlite) => migrate::on_sqlite(sqlite.path().to_owned(), steps, now).await,
            Engine::Postgres(postgres) => migrate::on_postgres(postgres, steps, now).await,
        }
    }

    /// A connection to PostgreSQL outside the pool, without the time limits of requests; none on SQLite.
    pub async fn dedicated(&self) -> Result<Option<tokio_postgres::Client>> {
        match &self.engine {
            Engine::Sqlite(_) => Ok(None),
            Engine::Postgres(postgres) => Box::pin(postgres.dedicated()).await.map(Some),
        }
    }

    /// Reads exactly one row, or fails with [`Error::Missing`].
    pub async fn one<T: FromRow>(&self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<T> {
        self.opt(sql, params).await?.ok_or(Error::Missing)
    }

    /// Reads the first row, if there is one.
    pub async fn opt<T: FromRow>(&self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<Option<T>> {
        first(self.read(sql.into(), params).await?)
    }

    /// Reads all rows.
    pub async fn all<T: FromRow>(&self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<Vec<T>> {
        every(self.read(sql.into(), params).await?)
    }

    /// Reads all rows of a query that was composed at run time.
    pub async fn find<T: FromRow>(&self, question: Composed) -> Result<Vec<T>> {
        let Composed { text, params } = question;
        refuse_nul(&params)?;
        if let Some(claim) = Claim::present() {
            Box::pin(claim.before_reading()).await?;
        }
        every(match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.read(text.into(), params).await,
            Engine::Postgres(postgres) => Box::pin(postgres.run(text.into(), params)).await,
        }?)
    }

    /// Writes in a transaction of its own; answers how many rows changed.
    pub async fn exec(&self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<u64> {
        Ok(self.write(sql.into(), params).await?.changed)
    }

    /// Writes in a transaction of its own, and reads the rows that the statement returns (`RETURNING`).
    pub async fn put<T: FromRow>(&self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<Vec<T>> {
        every(self.write(sql.into(), params).await?)
    }

    /// Repeats a write that changes a bounded number of rows until no rows are left to change; answers how many rows it
    /// changed. The bound is the last parameter of the statement and is added here:
    /// `DELETE FROM t WHERE id IN (SELECT id FROM t WHERE … LIMIT $2)`. Each repetition is a transaction of its own. The
    /// pause after each is as long as it took, so that other writers get as much time.
    pub async fn sweep(&self, sql: impl Into<Sql>, mut params: Vec<Value>) -> Result<u64> {
        let (sql, mut swept) = (sql.into(), 0);
        params.push(SWEPT_AT_ONCE.into());
        loop {
            let started = Instant::now();
            let changed = self.write(sql, params.clone()).await?.changed;
            swept += changed;
            if changed < SWEPT_AT_ONCE.unsigned_abs() {
                return Ok(swept);
            }
            tokio::time::sleep(started.elapsed().min(LONGEST_PAUSE)).await;
        }
    }

    /// Listens for notices on these topics, sent by committed transactions of this node and of others. A listener that
    /// falls behind gets [`Notice::StartOver`].
    pub fn listen(&self, topics: &'static [&'static str]) -> Listener {
        self.notices.listen(topics)
    }

    /// Calls `hook` with every notice before the commit that caused it returns, so that a cache on this node is correct
    /// at once. The hook must be quick, and must not own anything that owns this database.
    pub fn on_notice(&self, hook: impl Fn(&Notice) + Send + Sync + 'static) {
        self.notices.hook(Box::new(hook));
    }

    /// Whether every change reaches this node's caches before the commit returns: true where no other process serves.
    /// Changes by a command that runs beside the server send no notice here.
    pub fn hears_at_once(&self) -> bool {
        matches!(self.engine, Engine::Sqlite(_))
    }

    /// Whether caches on this node can be trusted: it has received all notices of other nodes until less than a second
    /// ago. If not, read from the database.
    pub fn hears_others(&self) -> bool {
        match self.engine {
            Engine::Sqlite(_) => true,
            Engine::Postgres(_) => self.notices.is_in_contact(),
        }
    }

    /// The time of the database server, which all nodes share; `None` for SQLite, which has no server.
    pub fn server_time(&self) -> Option<Arc<ServerTime>> {
        match &self.engine {
            Engine::Sqlite(_) => None,
            Engine::Postgres(postgres) => Some(postgres.time()),
        }
    }

    /// How busy this node's connections are, at this moment.
    pub fn load(&self) -> Load {
        match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.load(),
            Engine::Postgres(postgres) => postgres.load(),
        }
    }

    /// Checks that the database accepts writes, within `limit`.
    pub async fn ping(&self, limit: Duration) -> Result<()> {
        // On SQLite it takes the path of a write, through the writer's thread, which must not be stuck. A write that
        // changes nothing costs nothing.
        const ASK: Sql =
            Sql::two("SELECT 0 AS read_only", "SELECT current_setting('transaction_read_only') = 'on' AS read_only");
        let asked =
            tokio::time::timeout(limit, self.put::<(bool,)>(ASK, vec![])).await.map_err(|_| Error::Timeout)?;
        match asked?.first() {
            Some((false,)) => Ok(()),
            _ => Err(Error::ReadOnly("the server takes reads alone".into())),
        }
    }

    async fn read(&self, sql: Sql, params: Vec<Value>) -> Result<Done> {
        refuse_nul(&params)?;
        if let Some(claim) = Claim::present() {
            Box::pin(claim.before_reading()).await?;
        }
        match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.read(sql.sqlite.into(), params).await,
            Engine::Postgres(postgres) => Box::pin(postgres.run(sql.postgres.into(), params)).await,
        }
    }

    async fn write(&self, sql: Sql, params: Vec<Value>) -> Result<Done> {
        refuse_nul(&params)?;
        if let Some(claim) = Claim::present() {
            Box::pin(claim.before_writing()).await?;
        }
        match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.write(sql.sqlite.into(), params).await,
            Engine::Postgres(postgres) => Box::pin(postgres.run(sql.postgres.into(), params)).await,
        }
    }
}

/// The file of a `sqlite:` URL, in any of the usual spellings.
pub fn sqlite_path(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("sqlite:")?;
    Some(rest.strip_prefix("//").unwrap_or(rest))
}

/// Refuses NUL in text before either engine sees it: PostgreSQL rejects it and SQLite cuts the text there.
fn refuse_nul(params: &[Value]) -> Result<()> {
    let has_nul = params.iter().any(|value| matches!(value, Value::Text(text) if text.contains('\0')));
    if has_nul { Err(Error::NulInText) } else { Ok(()) }
}

fn first<T: FromRow>(done: Done) -> Result<Option<T>> {
    done.rows.into_iter().next().map(T::from_row).transpose()
}

fn every<T: FromRow>(done: Done) -> Result<Vec<T>> {
    done.rows.into_iter().map(T::from_row).collect()
}
