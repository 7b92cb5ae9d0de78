//! One way to read for a database and for an open transaction.
use crate::{Db, Error, FromRow, Result, Row, Tx, Value};

/// Where rows are read from: `&Db` reads what is committed, `&mut Tx` also reads what the transaction itself has written.
///
/// A function that reads takes `mut from: impl Read` and serves both: `StoredSession::find(&janua.db, id)`, and
/// `StoredSession::find(&mut *tx, id)` in a transaction. A statement that locks rows needs a [`Tx`] and says so.
pub trait Read: Send {
    /// Reads all rows as they are. The statement is a plain text, because the two spellings of [`Sql`](crate::Sql) are for
    /// row locks.
    fn rows(&mut self, sql: &'static str, params: Vec<Value>) -> impl Future<Output = Result<Vec<Row>>> + Send;

    /// Reads exactly one row, or fails with [`Error::Missing`].
    fn one<T: FromRow>(&mut self, sql: &'static str, params: Vec<Value>) -> impl Future<Output = Result<T>> + Send {
        let found = self.opt(sql, params);
        async move { found.await?.ok_or(Error::Missing) }
    }

    /// Reads the first row, if there is one.
    fn opt<T: FromRow>(
        &mut self,
        sql: &'static str,
        params: Vec<Value>,
    ) -> impl Future<Output = Result<Option<T>>> + Send {
        let rows = self.rows(sql, params);
        async move { rows.await?.into_iter().next().map(T::from_row).transpose() }
    }

    /// Reads all rows.
    fn all<T: FromRow>(
        &mut self,
        sql: &'static str,
        params: Vec<Value>,
    ) -> impl Future<Output = Result<Vec<T>>> + Send {
        let rows = self.rows(sql, params);
        async move { rows.await?.into_iter().map(T::from_row).collect() }
    }
}

impl Read for &Db {
    async fn rows(&mut self, sql: &'static str, params: Vec<Value>) -> Result<Vec<Row>> {
        Ok(self.read(sql.into(), params).await?.rows)
    }
}

impl Read for &mut Tx {
    async fn rows(&mut self, sql: &'static str, params: Vec<Value>) -> Result<Vec<Row>> {
        Ok(self.run(sql.into(), params).await?.rows)
    }
}
