//! The embedded database as the source or the target of a move.
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use db::Value;
use rusqlite::{
    Connection, OpenFlags, params_from_iter,
    types::{ToSqlOutput, ValueRef},
};
use tokio::task::spawn_blocking;

use super::table::{BATCH, Fingerprint, Receiver, Sender, Table, quoted};

/// One connection, lent to a thread that may wait for the disk.
pub struct Sqlite(Option<Connection>);

impl Sqlite {
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).with_context(|| path.display().to_string())?;
        Ok(Self(Some(connection)))
    }

    async fn with<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let connection = self.0.take().context("the connection was lost")?;
        let lent = spawn_blocking(move || {
            let outcome = work(&connection);
            (connection, outcome)
        });
        let (connection, outcome) = lent.await?;
        self.0 = Some(connection);
        outcome
    }

    async fn batch(&mut self, sql: String) -> Result<()> {
        self.with(move |connection| Ok(connection.execute_batch(&sql)?)).await
    }

    pub async fn begin_reading(&mut self) -> Result<()> {
        self.batch("BEGIN".into()).await
    }

    /// Tables are filled in any order, so references are looked at when all are there.
    pub async fn begin_filling(&mut self, tables: &[Table]) -> Result<()> {
        let emptied = tables.iter().map(|table| format!("DELETE FROM {};", quoted(&table.name)));
        self.batch(format!("PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE; {}", emptied.collect::<String>())).await
    }

    pub async fn check_references(&mut self) -> Result<()> {
        self.with(|connection| {
            let mut broken = connection.prepare("PRAGMA foreign_key_check")?;
            let mut rows = broken.query([])?;
            match rows.next()? {
                None => Ok(()),
                Some(row) => bail!("a row of {} refers to one that is not there", row.get::<_, String>(0)?),
            }
        })
        .await
    }

    pub async fn commit(&mut self) -> Result<()> {
        self.batch("COMMIT; PRAGMA optimize".into()).await
    }

    pub async fn tables(&mut self) -> Result<Vec<Table>> {
        self.with(|connection| {
            let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
                       ORDER BY name";
            let mut names = connection.prepare(sql)?;
            let names: Vec<String> = names.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            let mut columns = connection.prepare("SELECT name FROM pragma_table_info(?1) ORDER BY name")?;
            let mut tables = vec![];
            for name in names {
                let columns = columns.query_map([&name], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
                tables.push(Table { name, columns });
            }
            Ok(tables)
        })
        .await
    }

    /// Reads all rows and returns their fingerprint; sends them to the target, if there is one.
    pub async fn read(&mut self, table: &Table, to: Option<Sender>) -> Result<Fingerprint> {
        let (sql, width) = (table.select(), table.columns.len());
        self.with(move |connection| {
            let (mut found, mut batch) = (Fingerprint::default(), Vec::with_capacity(BATCH));
            let mut statement = connection.prepare(&sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let row = (0..width).map(|place| value(row.get_ref(place)?)).collect::<Result<Vec<_>>>()?;
                found.add(&row);
                batch.push(row);
                if batch.len() == BATCH {
                    send(to.as_ref(), std::mem::take(&mut batch))?;
                }
            }
            send(to.as_ref(), batch)?;
            Ok(found)
        })
        .await
    }

    pub async fn fill(&mut self, table: &Table, mut from: Receiver) -> Result<()> {
        let places = (1..=table.columns.len()).map(|place| format!("?{place}")).collect::<Vec<_>>().join(", ");
        let sql = format!("INSERT INTO {} ({}) VALUES ({places})", quoted(&table.name), table.list());
        self.with(move |connection| {
            let mut statement = connection.prepare(&sql)?;
            while let Some(batch) = from.blocking_recv() {
                for row in batch {
                    statement.execute(params_from_iter(row.iter().map(Bound)))?;
                }
            }
            Ok(())
        })
        .await
    }
}

fn send(to: Option<&Sender>, batch: Vec<Vec<Value>>) -> Result<()> {
    match to {
        Some(to) => to.blocking_send(batch).context("the target stopped taking rows"),
        None => Ok(()),
    }
}

fn value(found: ValueRef<'_>) -> Result<Value> {
    Ok(match found {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(text) => Value::Text(String::from_utf8(text.to_vec())?),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    })
}

/// A value to be stored, without copying it.
struct Bound<'a>(&'a Value);

impl rusqlite::ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let borrowed = match self.0 {
            Value::Null => ValueRef::Null,
            Value::Bool(truth) => ValueRef::Integer(i64::from(*truth)),
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Real(number) => ValueRef::Real(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(bytes) => ValueRef::Blob(bytes),
        };
        Ok(ToSqlOutput::Borrowed(borrowed))
    }
}
