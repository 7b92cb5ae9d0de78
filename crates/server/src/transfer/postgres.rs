//! PostgreSQL as the source or the target of a move.
use std::pin::pin;

use anyhow::{Context as _, Result, ensure};
use db::Value;
use futures_util::TryStreamExt as _;
use tokio_postgres::{
    Client,
    binary_copy::BinaryCopyInWriter,
    types::{ToSql, Type},
};

use super::table::{BATCH, Fingerprint, Receiver, Sender, Table, quoted};

/// One connection in one transaction.
pub struct Postgres {
    client: Client,
    /// References that were taken off to fill tables in any order, as statements that put them back.
    references: Vec<String>,
}

/// The URL with another name than that of servers, so that they can be told apart.
pub fn named(url: &str) -> String {
    let sign = if url.contains('?') { '&' } else { '?' };
    format!("{url}{sign}application_name={}", db::MOVE)
}

impl Postgres {
    pub fn new(client: Client) -> Self {
        Self { client, references: vec![] }
    }

    /// Servers name themselves otherwise than this command; those of 0.1 without a number.
    pub async fn ensure_alone(&self) -> Result<()> {
        let sql = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND (application_name = 'janua' OR STARTS_WITH(application_name, $1))";
        let others: i64 = self.client.query_one(sql, &[&db::NODE]).await?.get(0);
        ensure!(others == 0, "a server is running on this PostgreSQL database: stop all nodes first");
        Ok(())
    }

    pub async fn begin_reading(&self) -> Result<()> {
        Ok(self.client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?)
    }

    pub async fn begin_filling(&mut self, tables: &[Table]) -> Result<()> {
        let sql =
            "SELECT conrelid::regclass::text, quote_ident(conname), pg_get_constraintdef(oid) FROM pg_constraint
                   WHERE contype = 'f' AND connamespace = current_schema()::regnamespace ORDER BY 1, 2";
        self.client.batch_execute("BEGIN").await?;
        for row in self.client.query(sql, &[]).await? {
            let (table, name, rule): (String, String, String) = (row.get(0), row.get(1), row.get(2));
            self.client.batch_execute(&format!("ALTER TABLE {table} DROP CONSTRAINT {name}")).await?;
            self.references.push(format!("ALTER TABLE {table} ADD CONSTRAINT {name} {rule}"));
        }
        for table in tables {
            self.client.batch_execute(&format!("DELETE FROM {}", quoted(&table.name))).await?;
        }
        Ok(())
    }

    /// Puts the references back, which checks every row.
    pub async fn check_references(&mut self) -> Result<()> {
        for statement in std::mem::take(&mut self.references) {
            self.client.batch_execute(&statement).await.with_context(|| statement)?;
        }
        Ok(())
    }

    pub async fn commit(&self) -> Result<()> {
        self.client.batch_execute("COMMIT").await?;
        Ok(self.client.batch_execute("ANALYZE").await?)
    }

    pub async fn tables(&self) -> Result<Vec<Table>> {
        // Names are put in order here, as SQLite puts them: byte by byte.
        let sql = "SELECT c.table_name::text, c.column_name::text FROM information_schema.columns c
                   JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
                   WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE'
                   ORDER BY c.table_name COLLATE \"C\", c.column_name COLLATE \"C\"";
        let mut tables: Vec<Table> = vec![];
        for row in self.client.query(sql, &[]).await? {
            let (table, column): (String, String) = (row.get(0), row.get(1));
            match tables.last_mut() {
                Some(last) if last.name == table => last.columns.push(column),
                _ => tables.push(Table { name: table, columns: vec![column] }),
            }
        }
        Ok(tables)
    }

    pub async fn read(&self, table: &Table, to: Option<Sender>) -> Result<Fingerprint> {
        let mut rows = pin!(self.client.query_raw(&table.select(), [] as [&(dyn ToSql + Sync); 0]).await?);
        let (mut found, mut batch) = (Fingerprint::default(), Vec::with_capacity(BATCH));
        while let Some(row) = rows.try_next().await? {
            let row = (0..row.len()).map(|place| db::postgres_value(&row, place)).collect::<db::Result<Vec<_>>>()?;
            found.add(&row);
            batch.push(row);
            if batch.len() == BATCH {
                send(to.as_ref(), std::mem::take(&mut batch)).await?;
            }
        }
        send(to.as_ref(), batch).await?;
        Ok(found)
    }

    pub async fn fill(&self, table: &Table, mut from: Receiver) -> Result<()> {
        let types = self.client.prepare(&format!("{} LIMIT 0", table.select())).await?;
        let types: Vec<Type> = types.columns().iter().map(|column| column.type_().clone()).collect();
        let sql = format!("COPY {} ({}) FROM STDIN BINARY", quoted(&table.name), table.list());
        let mut writer = pin!(BinaryCopyInWriter::new(self.client.copy_in(&sql).await?, &types));
        while let Some(batch) = from.recv().await {
            for row in batch {
                let row: Vec<Value> = row.into_iter().zip(&types).map(|(value, to)| fitting(value, to)).collect();
                writer.as_mut().write_raw(row.iter()).await?;
            }
        }
        writer.finish().await?;
        Ok(())
    }
}

/// SQLite knows truth values as 0 and 1 alone.
fn fitting(value: Value, to: &Type) -> Value {
    match value {
        Value::Int(number) if *to == Type::BOOL => Value::Bool(number != 0),
        value => value,
    }
}

async fn send(to: Option<&Sender>, batch: Vec<Vec<Value>>) -> Result<()> {
    match to {
        Some(to) => to.send(batch).await.context("the target stopped taking rows"),
        None => Ok(()),
    }
}
