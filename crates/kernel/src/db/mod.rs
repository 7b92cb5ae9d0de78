//! One door to both databases: one SQL text, one set of values, one way to run a transaction.
//!
//! Why not an ORM or `sqlx`: acknowledged writes on SQLite must share commits to be fast and durable at once, and no
//! library does that. `docs/sql.md` says which SQL both engines understand alike.
//!
//! Reads are `one`, `opt`, `all`; writes are `exec`, `put` (with `RETURNING`) and, where nobody asks how many rows it
//! changed, `send`. What belongs together goes through
//! [`transact!`](crate::transact). Any error inside a transaction ends it, on both engines: what may collide says `ON CONFLICT`.
pub mod archive;
pub(crate) mod claim;
mod compose;
pub mod migrate;
mod notices;
mod postgres;
mod sqlite;
mod value;

use std::{borrow::Cow, path::Path, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::{sync::oneshot, time::Instant};

pub use claim::{answer_opens_account, aside};
pub use compose::Composed;
pub use notices::{Listener, Notice, Reach};
pub use value::{FromRow, FromValue, InJson, Row, Value};

use crate::{
    clock::Clock,
    fault::{self, Fault},
};
use claim::{Claim, Held};
use notices::{News, Notices};

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A transaction that says nothing for this long is rolled back: others are waiting.
pub const SILENCE: Duration = Duration::from_secs(2);
/// No single statement runs longer than this.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
/// How many rows one transaction of a [sweep](Db::sweep) changes at most: on SQLite every other writer waits for it.
const SWEPT_AT_ONCE: i64 = 1_000;
const LONGEST_BREATH: Duration = Duration::from_millis(100);
/// How often a transaction that lost against another one is tried in all.
const TRIES: u32 = 5;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Named as PostgreSQL names it: `account_email_key`, `account_pkey`.
    #[error("unique constraint {0} refused the row")]
    Unique(String),
    #[error("a foreign key refused the change")]
    ForeignKey,
    #[error("no row where one was expected")]
    Missing,
    #[error("cannot read the row: {0}")]
    Decode(String),
    #[error("text holds a NUL character, which no column can keep")]
    NulInText,
    /// Lost against another transaction; worth trying again from the start.
    #[error("lost against another transaction: {0}")]
    Conflict(String),
    #[error("an earlier statement of this transaction failed")]
    Aborted,
    #[error("the transaction was silent for too long and was rolled back")]
    Silent,
    #[error("the statement took too long")]
    Timeout,
    #[error("the disk is full")]
    Full,
    #[error("the database takes no writes: {0}")]
    ReadOnly(String),
    #[error("the database is out of reach: {0}")]
    Unavailable(String),
    /// The request this is part of was carried out before; see [`claim`].
    #[error("the request was carried out before")]
    Repeated,
    #[error("{0}")]
    Driver(String),
}

impl Error {
    /// Whether a row with this unique value is there already.
    pub fn is_unique(&self, constraint: &str) -> bool {
        matches!(self, Self::Unique(name) if name == constraint)
    }
}

impl From<Error> for Fault {
    #[track_caller]
    fn from(error: Error) -> Self {
        let wait = Duration::from_secs(1);
        match error {
            Error::NulInText => fault::INVALID.because("Text must not contain NUL characters."),
            // What it belongs to was taken away meanwhile.
            Error::ForeignKey => fault::CONFLICT.caused_by(error),
            Error::Full => fault::STORAGE_FULL.caused_by(error).retry_after(10 * wait),
            Error::Conflict(_) => fault::UNAVAILABLE.caused_by(error).retry_after(wait).marked_conflict(),
            Error::Unavailable(_) | Error::ReadOnly(_) | Error::Timeout | Error::Silent => {
                fault::UNAVAILABLE.caused_by(error).retry_after(wait)
            }
            // Only for handlers: the door answers with what was answered before.
            Error::Repeated => fault::IDEMPOTENCY_IN_PROGRESS.into(),
            _ => fault::INTERNAL.caused_by(error),
        }
    }
}

/// An error type a transaction may end with.
pub trait Outcome: From<Error> {
    /// Whether the whole transaction should be tried again.
    fn is_conflict(&self) -> bool;
}
impl Outcome for Error {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict(_))
    }
}
impl Outcome for Fault {
    fn is_conflict(&self) -> bool {
        Self::is_conflict(self)
    }
}

/// Runs a block in one transaction and commits it: `transact!(app.db, tx, { …; Ok::<_, Fault>(made) })`.
///
/// When it loses against another transaction it runs again from the start, so it must do nothing but SQL.
/// A macro and not a function, because a function's async closure cannot yet promise to be `Send`.
#[macro_export]
macro_rules! transact {
    ($db:expr, $tx:ident, $work:block) => {{
        let mut tries = $crate::db::Tries::default();
        loop {
            let mut tx = match $db.begin().await {
                Ok(tx) => tx,
                Err(error) => break Err(error.into()),
            };
            let outcome = async {
                let $tx = &mut tx;
                $work
            }
            .await;
            let outcome = tx.settle(outcome).await;
            if !tries.again(&outcome).await {
                break outcome;
            }
        }
    }};
}

/// What a transaction does, with what it takes along. It does nothing but SQL.
pub type Work<A, T, E> = for<'t> fn(&'t mut Tx, &'t A) -> BoxFuture<'t, Result<T, E>>;

/// How often a transaction was tried.
#[derive(Default)]
pub struct Tries(u32);

impl Tries {
    /// Whether it lost and is worth another try, which begins a little later.
    pub async fn again<T, E: Outcome>(&mut self, outcome: &Result<T, E>) -> bool {
        self.0 += 1;
        let again = outcome.as_ref().is_err_and(Outcome::is_conflict) && self.0 < TRIES;
        if again {
            tokio::time::sleep(Duration::from_millis(5 << self.0)).await;
        }
        again
    }
}

/// A statement; the few that the engines spell differently carry both spellings.
#[derive(Debug, Clone, Copy)]
pub struct Sql {
    sqlite: &'static str,
    postgres: &'static str,
}
impl Sql {
    /// For row locks, which one writer alone does not need, and for nothing else.
    pub const fn two(sqlite: &'static str, postgres: &'static str) -> Self {
        Self { sqlite, postgres }
    }
}
/// A question whose rows nobody else changes until the transaction is over: `tx.opt(holding!("SELECT …"), params![id])`.
#[macro_export]
macro_rules! holding {
    ($question:literal) => {
        $crate::db::Sql::two($question, concat!($question, " FOR NO KEY UPDATE"))
    };
}
/// Only text that stands in the program: a built string is impossible by type.
impl From<&'static str> for Sql {
    fn from(text: &'static str) -> Self {
        Self::two(text, text)
    }
}

/// A statement on its way to an engine: one of the program's own is kept prepared, a [`Composed`] one is not.
type Text = Cow<'static, str>;

/// How hard a commit is. Everything but `Full` is for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Full,
    Off,
}

/// What a statement produced.
#[derive(Debug)]
struct Done {
    rows: Vec<Row>,
    changed: u64,
}

#[derive(Clone)]
pub struct Db {
    engine: Engine,
    notices: Notices,
}
/// What is done in PostgreSQL is boxed, so that a request on SQLite does not carry the room for it along: those who wait
/// are copied more than once before they do.
#[derive(Clone)]
enum Engine {
    Sqlite(Arc<sqlite::Sqlite>),
    Postgres(Arc<postgres::Postgres>),
}

/// An open transaction; rolled back when dropped without [`Tx::commit`].
pub struct Tx {
    engine: EngineTx,
    news: News,
    /// Under which claim it was begun.
    held: Option<Held>,
}
enum EngineTx {
    Sqlite(sqlite::SqliteTx),
    Postgres(Box<postgres::PgTx>),
}

impl Db {
    /// Opens `sqlite:PATH` or `postgres://…`. Nothing is created but an empty SQLite file.
    pub async fn open(url: &str, connections: usize, durability: Durability) -> Result<Self> {
        let notices = Notices::default();
        let engine = match sqlite_path(url) {
            Some(path) => Engine::Sqlite(Arc::new(sqlite::Sqlite::open(Path::new(path), durability)?)),
            None => Engine::Postgres(Arc::new(postgres::Postgres::connect(url, connections, notices.clone()).await?)),
        };
        Ok(Self { engine, notices })
    }

    pub fn engine(&self) -> &'static str {
        match self.engine {
            Engine::Sqlite(_) => "sqlite",
            Engine::Postgres(_) => "postgres",
        }
    }

    /// Brings the schema up to what this binary knows; answers the names of what it applied.
    pub async fn migrate(&self, now: crate::clock::Timestamp) -> Result<Vec<String>, migrate::MigrateError> {
        self.migrate_to(migrate::ALL, now).await
    }

    pub async fn migrate_to(
        &self,
        steps: &'static [migrate::Migration],
        now: crate::clock::Timestamp,
    ) -> Result<Vec<String>, migrate::MigrateError> {
        match &self.engine {
            Engine::Sqlite(sqlite) => migrate::on_sqlite(sqlite.path().to_owned(), steps, now).await,
            Engine::Postgres(postgres) => migrate::on_postgres(postgres, steps, now).await,
        }
    }

    pub async fn one<T: FromRow>(&self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<T> {
        self.opt(sql, params).await?.ok_or(Error::Missing)
    }

    pub async fn opt<T: FromRow>(&self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<Option<T>> {
        first(self.read(sql.into(), params).await?)
    }

    pub async fn all<T: FromRow>(&self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<Vec<T>> {
        every(self.read(sql.into(), params).await?)
    }

    /// What a question answers whose shape was found while the program runs.
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

    /// A single write in a transaction of its own; answers how many rows it changed.
    pub async fn exec(&self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<u64> {
        Ok(self.write(sql.into(), params).await?.changed)
    }

    /// A single write that hands rows back (`RETURNING`).
    pub async fn put<T: FromRow>(&self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<Vec<T>> {
        every(self.write(sql.into(), params).await?)
    }

    /// Repeats a write that changes a bounded number of rows until nothing is left to change; answers how many it were.
    /// The bound is its last parameter and is added here: `DELETE FROM t WHERE id IN (SELECT id FROM t WHERE … LIMIT $2)`.
    /// Each time is a transaction of its own, and in between others have as much time as it took.
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
            tokio::time::sleep(started.elapsed().min(LONGEST_BREATH)).await;
        }
    }

    pub async fn begin(&self) -> Result<Tx> {
        match Claim::present() {
            None => self.open_tx().await,
            Some(claim) => Box::pin(claim.begin(self)).await,
        }
    }

    async fn open_tx(&self) -> Result<Tx> {
        let engine = match &self.engine {
            Engine::Sqlite(sqlite) => EngineTx::Sqlite(sqlite.begin()),
            Engine::Postgres(postgres) => EngineTx::Postgres(Box::new(Box::pin(postgres.begin()).await?)),
        };
        Ok(Tx { engine, news: News::none_yet(&self.notices), held: None })
    }

    /// Runs `work` in one transaction and commits it, as [`transact!`](crate::transact) does. For what happens often: on
    /// SQLite it takes along what it needs and runs where the writes are made, where a step costs next to nothing. From
    /// elsewhere each costs a way there and back, which is more than most statements take.
    pub async fn transact<A, T, E>(&self, along: A, work: Work<A, T, E>) -> Result<T, E>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        E: Outcome + Send + 'static,
    {
        // One that may have to wait for its commit cannot do so where the writes are made.
        let sqlite = match &self.engine {
            Engine::Sqlite(sqlite) if Claim::present().is_none() => Some(sqlite),
            _ => None,
        };
        let Some(sqlite) = sqlite else {
            let elsewhere = async { transact!(self, tx, { work(tx, &along).await }) };
            return Box::pin(elsewhere).await;
        };
        let (along, mut tries) = (Arc::new(along), Tries::default());
        loop {
            let (along, news) = (along.clone(), News::none_yet(&self.notices));
            let outcome = sqlite.carry(move |engine, reply| async move {
                let mut tx = Tx { engine: EngineTx::Sqlite(engine), news, held: None };
                match work(&mut tx, &along).await {
                    Ok(value) => tx.leave(reply, value),
                    // He may have gone away.
                    Err(error) => drop(reply.send(Err(error))),
                }
            });
            let outcome = outcome.await.map_err(E::from).flatten();
            if !tries.again(&outcome).await {
                return outcome;
            }
        }
    }

    /// What other requests and other nodes say on these topics after their commits. A slow listener is told to start
    /// over.
    pub fn listen(&self, topics: &'static [&'static str]) -> Listener {
        self.notices.listen(topics)
    }

    /// Calls `hook` with every notice, before the commit that caused it returns: a cache on this node is right at once.
    /// It must be quick, and must not hold the [`App`](crate::App).
    pub fn on_notice(&self, hook: impl Fn(&Notice) + Send + Sync + 'static) {
        self.notices.hook(Box::new(hook));
    }

    /// Whether nothing changes without a notice that is heard here before anybody knows of the change: so it is where no
    /// other process serves. What a command beside it changes is not heard.
    pub fn hears_at_once(&self) -> bool {
        matches!(self.engine, Engine::Sqlite(_))
    }

    /// Whether what this node remembers can be relied on: it has heard everything that other nodes said until less than a
    /// second ago. If not, whoever remembers something asks the database instead.
    pub fn hears_others(&self) -> bool {
        match self.engine {
            Engine::Sqlite(_) => true,
            Engine::Postgres(_) => self.notices.is_in_contact(),
        }
    }

    /// The clock that all nodes on this database share.
    pub fn clock(&self) -> Clock {
        match &self.engine {
            Engine::Sqlite(_) => Clock::System,
            Engine::Postgres(postgres) => Clock::Database(postgres.time()),
        }
    }

    /// Whether a write would get through, within `limit`.
    pub async fn ping(&self, limit: Duration) -> Result<()> {
        // On SQLite the way of a write, through the one thread that must not be stuck; a write of nothing costs nothing.
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

impl Tx {
    pub async fn one<T: FromRow>(&mut self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<T> {
        self.opt(sql, params).await?.ok_or(Error::Missing)
    }

    pub async fn opt<T: FromRow>(&mut self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<Option<T>> {
        first(self.run(sql.into(), params).await?)
    }

    pub async fn all<T: FromRow>(&mut self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<Vec<T>> {
        every(self.run(sql.into(), params).await?)
    }

    pub async fn exec(&mut self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<u64> {
        Ok(self.run(sql.into(), params).await?.changed)
    }

    pub async fn put<T: FromRow>(&mut self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<Vec<T>> {
        every(self.run(sql.into(), params).await?)
    }

    /// A write whose outcome nobody asks for: if it fails, so does the next statement or the commit, with its error. It
    /// goes to the database along with that one.
    pub async fn send(&mut self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<()> {
        let sql = sql.into();
        refuse_nul(&params)?;
        match &mut self.engine {
            EngineTx::Sqlite(tx) => tx.send(sql.sqlite.into(), params),
            EngineTx::Postgres(tx) => Box::pin(tx.send(sql.postgres.into(), params)).await?,
        }
        Ok(())
    }

    /// Says something once this transaction is committed, and never otherwise.
    pub async fn notify(&mut self, reach: Reach, topic: &'static str, body: impl Into<String>) -> Result<()> {
        let notice = Notice::News { topic: topic.into(), body: body.into() };
        if let (Reach::EveryNode, EngineTx::Postgres(tx)) = (reach, &mut self.engine) {
            self.news.add_for_others(Box::pin(tx.prepare_to_notify(&notice)).await?);
        }
        self.news.add(notice);
        Ok(())
    }

    /// Commits when the work succeeded, and otherwise leaves nothing behind. Under a [`claim`] the commit waits for the
    /// answer of the request.
    pub async fn settle<T, E: Outcome>(mut self, outcome: Result<T, E>) -> Result<T, E> {
        let value = outcome?;
        match self.held.take() {
            None => self.commit().await?,
            Some(held) => Box::pin(held.wait(Box::new(self))).await?,
        }
        Ok(value)
    }

    pub async fn commit(mut self) -> Result<()> {
        match self.held.take() {
            None => self.end(false).await,
            Some(held) => Box::pin(held.commit(self)).await,
        }
    }

    /// As [`commit`](Self::commit), for one that cannot run again: nobody who comes later shares its commit, and so
    /// nobody can have it undone.
    async fn commit_last(self) -> Result<()> {
        self.end(true).await
    }

    /// Waits for the writes whose outcome nobody asked for, to hear how they ended.
    async fn flush(&mut self) -> Result<()> {
        match &mut self.engine {
            EngineTx::Sqlite(tx) if tx.has_sent() => tx.run("SELECT 1".into(), vec![]).await.map(drop),
            EngineTx::Postgres(tx) if tx.has_sent() => Box::pin(tx.run("SELECT 1".into(), vec![])).await.map(drop),
            _ => Ok(()),
        }
    }

    async fn end(self, is_last: bool) -> Result<()> {
        match self.engine {
            EngineTx::Sqlite(tx) => tx.commit(self.news, is_last).await,
            EngineTx::Postgres(tx) => {
                Box::pin(tx.commit(&self.news)).await?;
                self.news.tell();
                Ok(())
            }
        }
    }

    /// Leaves the commit to the thread this runs on, which tells how it ended.
    fn leave<T: Send + 'static, E: Outcome + Send + 'static>(self, reply: oneshot::Sender<Result<T, E>>, value: T) {
        if let EngineTx::Sqlite(tx) = self.engine {
            tx.leave(self.news, move |outcome| drop(reply.send(outcome.map(|()| value).map_err(E::from))));
        }
    }

    async fn run(&mut self, sql: Sql, params: Vec<Value>) -> Result<Done> {
        refuse_nul(&params)?;
        match &mut self.engine {
            EngineTx::Sqlite(tx) => tx.run(sql.sqlite.into(), params).await,
            EngineTx::Postgres(tx) => Box::pin(tx.run(sql.postgres.into(), params)).await,
        }
    }
}

/// The file of a `sqlite:` URL, in any of the usual spellings.
pub fn sqlite_path(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("sqlite:")?;
    Some(rest.strip_prefix("//").unwrap_or(rest))
}

/// PostgreSQL keeps no NUL in text and SQLite cuts there: refused alike, before either sees it.
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
