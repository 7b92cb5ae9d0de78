//! Transactions: what belongs together is committed together or not at all.
use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::{
    Db, Done, Engine, Error, FromRow, Notice, Outcome, Reach, Result, Sql, Value,
    claim::{Claim, Held},
    every, first,
    notices::News,
    postgres::PgTx,
    refuse_nul,
    sqlite::SqliteTx,
};

/// How often a transaction that lost against another one is tried in all.
const TRIES: u32 = 5;

/// Runs an async closure in one transaction and commits it: `db::transact!(db, async |tx| { …; Ok(made) })`. Its error is
/// an [`Error`], or the type named before the closure: `transact!(db, Fault, async |tx| …)`. Features use
/// `kernel::transact!`, which names the fault.
///
/// The closure runs again from the start when it loses against another transaction, so it must do nothing but SQL. As in
/// any closure, `return` leaves the closure; an error rolls the transaction back.
///
/// A macro and not a function: the future of an async closure that borrows is not known to be `Send` for every lifetime
/// of `tx` ("implementation of `Send` is not general enough", Rust 1.95), and handlers must be `Send`.
#[macro_export]
macro_rules! transact {
    ($db:expr, async |$tx:ident| $work:expr) => {
        $crate::transact!($db, $crate::Error, async |$tx| $work)
    };
    ($db:expr, $error:ty, async |$tx:ident| $work:expr) => {{
        let mut tries = $crate::Tries::default();
        loop {
            let mut tx = match $db.begin().await {
                Ok(tx) => tx,
                Err(error) => break Err(error.into()),
            };
            let outcome: ::std::result::Result<_, $error> = async {
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

/// The work of a carried transaction: a function of the transaction and of the data it takes along. It must do nothing
/// but SQL.
pub type Work<A, T, E> = for<'t> fn(&'t mut Tx, &'t A) -> BoxFuture<'t, Result<T, E>>;

/// Counts how often a transaction was tried.
#[derive(Default)]
pub struct Tries(u32);

impl Tries {
    /// Whether the transaction lost against another one and may be tried again; waits a little before it says so.
    pub async fn again<T, E: Outcome>(&mut self, outcome: &Result<T, E>) -> bool {
        self.0 += 1;
        let again = outcome.as_ref().is_err_and(Outcome::is_conflict) && self.0 < TRIES;
        if again {
            tokio::time::sleep(Duration::from_millis(5 << self.0)).await;
        }
        again
    }
}

/// An open transaction; rolled back when dropped without [`Tx::commit`].
pub struct Tx {
    engine: EngineTx,
    news: News,
    /// The claim under which the transaction was begun.
    pub(crate) held: Option<Held>,
}

enum EngineTx {
    Sqlite(SqliteTx),
    Postgres(Box<PgTx>),
}

impl Db {
    /// Opens a transaction. The first transaction of a request with an idempotency key claims the key.
    pub async fn begin(&self) -> Result<Tx> {
        match Claim::present() {
            None => self.open_tx().await,
            Some(claim) => Box::pin(claim.begin(self)).await,
        }
    }

    pub(crate) async fn open_tx(&self) -> Result<Tx> {
        let engine = match &self.engine {
            Engine::Sqlite(sqlite) => EngineTx::Sqlite(sqlite.begin()),
            Engine::Postgres(postgres) => EngineTx::Postgres(Box::new(Box::pin(postgres.begin()).await?)),
        };
        Ok(Tx { engine, news: News::none_yet(&self.notices), held: None })
    }

    /// Runs `work` in one transaction and commits it, as [`transact!`](crate::transact) does, with fewer thread switches: on
    /// SQLite the future itself moves to the writer's thread, where a statement is a function call. From any other thread
    /// each statement costs a round trip to the writer, which takes longer than most statements. For hot paths only.
    pub async fn carry<A, T, E>(&self, along: A, work: Work<A, T, E>) -> Result<T, E>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
        E: Outcome + Send + 'static,
    {
        // Under a claim the commit waits for the answer of the request, and the writer's thread must not wait.
        let sqlite = match &self.engine {
            Engine::Sqlite(sqlite) if Claim::present().is_none() => Some(sqlite),
            _ => None,
        };
        let Some(sqlite) = sqlite else {
            let elsewhere = async { transact!(self, E, async |tx| work(tx, &along).await) };
            return Box::pin(elsewhere).await;
        };
        let (along, mut tries) = (Arc::new(along), Tries::default());
        loop {
            let (along, news) = (along.clone(), News::none_yet(&self.notices));
            let outcome = sqlite.carry(move |engine, reply| async move {
                let mut tx = Tx { engine: EngineTx::Sqlite(engine), news, held: None };
                match work(&mut tx, &along).await {
                    Ok(value) => tx.leave(reply, value),
                    // The caller may have gone away.
                    Err(error) => drop(reply.send(Err(error))),
                }
            });
            let outcome = outcome.await.map_err(E::from).flatten();
            if !tries.again(&outcome).await {
                return outcome;
            }
        }
    }
}

impl Tx {
    /// Reads exactly one row, or fails with [`Error::Missing`].
    pub async fn one<T: FromRow>(&mut self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<T> {
        self.opt(sql, params).await?.ok_or(Error::Missing)
    }

    /// Reads the first row, if there is one.
    pub async fn opt<T: FromRow>(&mut self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<Option<T>> {
        first(self.run(sql.into(), params).await?)
    }

    /// Reads all rows.
    pub async fn all<T: FromRow>(&mut self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<Vec<T>> {
        every(self.run(sql.into(), params).await?)
    }

    /// Writes; answers how many rows changed.
    pub async fn exec(&mut self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<u64> {
        Ok(self.run(sql.into(), params).await?.changed)
    }

    /// Writes with each of these values; answers how many rows each changed. Many travel in one round trip.
    pub async fn exec_each(&mut self, sql: impl Into<Sql>, each: Vec<Vec<Value>>) -> Result<Vec<u64>> {
        Ok(self.run_each(sql.into(), each).await?.iter().map(|done| done.changed).collect())
    }

    /// Reads the first row for each of these values, if there is one. Many travel in one round trip.
    pub async fn opt_each<T: FromRow>(
        &mut self,
        sql: impl Into<Sql>,
        each: Vec<Vec<Value>>,
    ) -> Result<Vec<Option<T>>> {
        self.run_each(sql.into(), each).await?.into_iter().map(first).collect()
    }

    /// Writes, and reads the rows that the statement returns (`RETURNING`).
    pub async fn put<T: FromRow>(&mut self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<Vec<T>> {
        every(self.run(sql.into(), params).await?)
    }

    /// Writes without waiting for the outcome: the statement travels with the next one or with the commit. If it fails,
    /// that next statement or the commit fails with its error.
    pub async fn send(&mut self, sql: impl Into<Sql>, params: Vec<Value>) -> Result<()> {
        let sql = sql.into();
        refuse_nul(&params)?;
        match &mut self.engine {
            EngineTx::Sqlite(tx) => tx.send(sql.sqlite.into(), params),
            EngineTx::Postgres(tx) => Box::pin(tx.send(sql.postgres.into(), params)).await?,
        }
        Ok(())
    }

    /// Sends a notice once this transaction is committed, and never otherwise.
    pub async fn notify(&mut self, reach: Reach, topic: &'static str, body: impl Into<String>) -> Result<()> {
        let notice = Notice::News { topic: topic.into(), body: body.into() };
        if let (Reach::EveryNode, EngineTx::Postgres(tx)) = (reach, &mut self.engine) {
            self.news.add_for_others(Box::pin(tx.prepare_to_notify(&notice)).await?);
        }
        self.news.add(notice);
        Ok(())
    }

    /// Commits if the work succeeded, and rolls back otherwise. Under a [`claim`](crate::claim) the commit waits for the
    /// answer of the request.
    pub async fn settle<T, E: Outcome>(mut self, outcome: Result<T, E>) -> Result<T, E> {
        let value = outcome?;
        match self.held.take() {
            None => self.commit().await?,
            Some(held) => Box::pin(held.wait(Box::new(self))).await?,
        }
        Ok(value)
    }

    /// Commits. Once this succeeds, the change is on the disk.
    pub async fn commit(mut self) -> Result<()> {
        match self.held.take() {
            None => self.end(false).await,
            Some(held) => Box::pin(held.commit(self)).await,
        }
    }

    /// As [`commit`](Self::commit), for a transaction that cannot run again: no later transaction joins its commit, so none
    /// can cause it to be rolled back.
    pub(crate) async fn commit_last(self) -> Result<()> {
        self.end(true).await
    }

    /// Waits for the statements of [`send`](Self::send), and answers the error of the first that failed.
    pub(crate) async fn flush(&mut self) -> Result<()> {
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

    /// Leaves the commit to the writer's thread, on which this runs; the writer replies with the outcome.
    fn leave<T: Send + 'static, E: Outcome + Send + 'static>(self, reply: oneshot::Sender<Result<T, E>>, value: T) {
        if let EngineTx::Sqlite(tx) = self.engine {
            tx.leave(self.news, move |outcome| drop(reply.send(outcome.map(|()| value).map_err(E::from))));
        }
    }

    pub(crate) async fn run(&mut self, sql: Sql, params: Vec<Value>) -> Result<Done> {
        refuse_nul(&params)?;
        match &mut self.engine {
            EngineTx::Sqlite(tx) => tx.run(sql.sqlite.into(), params).await,
            EngineTx::Postgres(tx) => Box::pin(tx.run(sql.postgres.into(), params)).await,
        }
    }

    async fn run_each(&mut self, sql: Sql, each: Vec<Vec<Value>>) -> Result<Vec<Done>> {
        each.iter().try_for_each(|params| refuse_nul(params))?;
        match &mut self.engine {
            EngineTx::Sqlite(tx) => {
                let mut done = Vec::with_capacity(each.len());
                for params in each {
                    done.push(tx.run(sql.sqlite.into(), params).await?);
                }
                Ok(done)
            }
            EngineTx::Postgres(tx) => Box::pin(tx.run_each(&sql.postgres.into(), each)).await,
        }
    }
}
