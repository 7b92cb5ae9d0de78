//! `janua move`: every row of one database into another, of either engine; every object into another store.
//!
//! The source is read in one transaction, so that all rows are of one moment, and the target is filled in one, so that it has
//! everything or nothing. References are checked at the end, because tables refer to each other in circles. Before the commit
//! every table is read back and must add up to what was read.
mod objects;
mod postgres;
mod sqlite;
mod table;

use std::{path::Path, process::ExitCode};

use anyhow::{Context as _, Result, bail, ensure};
use db::{Db, migrate, params, sqlite_path};
use indicatif::{ProgressBar, ProgressStyle};
use kernel::{clock::Clock, config::Config};
use tokio::sync::mpsc;

use self::{
    postgres::Postgres,
    sqlite::Sqlite,
    table::{Fingerprint, Receiver, Sender, Table, WAITING},
};
use crate::{Out, say, start};

/// Both have it, and each its own.
const HISTORY: &str = "schema_migration";

#[derive(clap::Args)]
pub struct Wishes {
    /// Database to move from [default: the one in the settings]
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    /// Database to move to, without users: sqlite:PATH or postgres://…
    #[arg(long, value_name = "URL", required_unless_present = "objects")]
    to: Option<String>,
    /// Copy stored files and pictures, to the S3 bucket in the settings or back to the data folder
    #[arg(long, value_name = "WHERE TO", conflicts_with_all = ["from", "to"])]
    objects: Option<objects::To>,
}

pub async fn run(config: Config, wishes: Wishes) -> Result<ExitCode> {
    if let Some(to) = wishes.objects {
        objects::run(&config, to).await?;
    }
    let Some(to) = wishes.to else { return Ok(ExitCode::SUCCESS) };
    let from = wishes.from.unwrap_or_else(|| config.database_url().expose().to_owned());
    ensure!(from != to, "--to: must be another database than the one to move from");
    let at = |url: &str| {
        let url = if sqlite_path(url).is_some() { url.to_owned() } else { postgres::named(url) };
        Config { database_url: Some(url.into()), ..config.clone() }
    };
    let (from, to) = (at(&from), at(&to));
    if let Some(path) = sqlite_path(from.database_url().expose()) {
        ensure!(Path::new(path).exists(), "there is nothing to move: {path} is not there");
    }
    // Held to the end: no server starts on either meanwhile.
    let locks = (start::lock(&from)?, start::lock(&to)?);
    let (source, target) = (start::open(&from).await?, start::open(&to).await?);
    ensure!(migrate::is_current(&source).await, "the database to move from needs migrations first: `janua migrate`");
    prepare(&target).await?;
    let moved = copy(Side::of(&from, &source).await?, Side::of(&to, &target).await?).await?;
    drop(locks);

    let rows: u64 = moved.iter().map(|(_, found)| found.rows).sum();
    say(&format!("{rows} rows of {} tables were moved, read back and compared", moved.len()), Out::Plain);
    say(
        "Set database_url to the new database and start with the same master key. Files stay where they are; the old \
         database is unchanged",
        Out::Plain,
    );
    Ok(ExitCode::SUCCESS)
}

/// With the tables of this version, and without anybody in them.
async fn prepare(target: &Db) -> Result<()> {
    target.migrate(Clock::shared(target).now().0).await.context("--to")?;
    let (users,): (i64,) = target.one("SELECT CAST(COUNT(*) AS BIGINT) FROM account", params![]).await?;
    ensure!(users == 0, "--to: has {users} users already: move to an empty database");
    Ok(())
}

async fn copy(mut from: Side, mut to: Side) -> Result<Vec<(Table, Fingerprint)>> {
    from.begin_reading().await?;
    let tables = from.tables().await?;
    ensure!(tables == to.tables().await?, "the two databases have different tables");
    let tables: Vec<Table> = tables.into_iter().filter(|table| table.name != HISTORY).collect();
    to.begin_filling(&tables).await?;
    let (bar, mut moved) = (bar(tables.len()), vec![]);
    for table in tables {
        bar.set_message(table.name.clone());
        let (sender, receiver) = mpsc::channel(WAITING);
        let (read, filled) = tokio::join!(from.read(&table, Some(sender)), to.fill(&table, receiver));
        // If the target fails, its error has the cause, and the source fails only because of it.
        filled.with_context(|| format!("table {}", table.name))?;
        let read = read.with_context(|| format!("table {}", table.name))?;
        moved.push((table, read));
        bar.inc(1);
    }
    bar.set_message("references");
    to.check_references().await?;
    bar.set_position(0);
    for (table, read) in &moved {
        bar.set_message(format!("{} again", table.name));
        let there = to.read(table, None).await?;
        if there != *read {
            bail!("table {}: {} rows were read and {} are there, or they differ", table.name, read.rows, there.rows);
        }
        bar.inc(1);
    }
    to.commit().await?;
    bar.finish_and_clear();
    Ok(moved)
}

/// One of the two databases.
enum Side {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Side {
    async fn of(config: &Config, db: &Db) -> Result<Self> {
        let url = config.database_url();
        if let Some(path) = sqlite_path(url.expose()) {
            return Ok(Self::Sqlite(Sqlite::open(Path::new(path))?));
        }
        let client = db.dedicated().await?.context("database_url: must start with sqlite: or postgres://")?;
        let side = Postgres::new(client);
        side.ensure_alone().await?;
        Ok(Self::Postgres(side))
    }

    async fn begin_reading(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(side) => side.begin_reading().await,
            Self::Postgres(side) => side.begin_reading().await,
        }
    }

    async fn begin_filling(&mut self, tables: &[Table]) -> Result<()> {
        match self {
            Self::Sqlite(side) => side.begin_filling(tables).await,
            Self::Postgres(side) => side.begin_filling(tables).await,
        }
    }

    async fn tables(&mut self) -> Result<Vec<Table>> {
        match self {
            Self::Sqlite(side) => side.tables().await,
            Self::Postgres(side) => side.tables().await,
        }
    }

    async fn read(&mut self, table: &Table, to: Option<Sender>) -> Result<Fingerprint> {
        match self {
            Self::Sqlite(side) => side.read(table, to).await,
            Self::Postgres(side) => side.read(table, to).await,
        }
    }

    async fn fill(&mut self, table: &Table, from: Receiver) -> Result<()> {
        match self {
            Self::Sqlite(side) => side.fill(table, from).await,
            Self::Postgres(side) => side.fill(table, from).await,
        }
    }

    async fn check_references(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(side) => side.check_references().await,
            Self::Postgres(side) => side.check_references().await,
        }
    }

    async fn commit(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(side) => side.commit().await,
            Self::Postgres(side) => side.commit().await,
        }
    }
}

/// Hidden where the output is no terminal.
fn bar(tables: usize) -> ProgressBar {
    let bar = ProgressBar::new(tables as u64);
    let style = ProgressStyle::with_template("{msg:24} {wide_bar} {pos}/{len} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
