//! A connection and its prepared statements, which stay prepared for as long as its thread runs.
use std::{
    borrow::Cow,
    collections::{HashMap, hash_map::Entry},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use rusqlite::{Connection, PrepFlags, Statement, types::ValueRef};

use super::super::{Done, Durability, Error, Result, Row, STATEMENT_TIMEOUT, Value};

/// How many virtual machine steps SQLite takes between two looks at the clock.
const STEPS_BETWEEN_CHECKS: i32 = 10_000;

/// How many composed statements stay prepared. There is no end to their shapes, but a client asks in a few.
const MOST_COMPOSED: usize = 32;
/// In bytes of text. A longer one is prepared for a single use, so that long filters cannot fill the memory.
const LONGEST_COMPOSED: usize = 2048;

/// A connection whose statements are cut off when they run too long.
pub(super) struct Timed {
    pub(super) sqlite: Connection,
    /// Counts the statements that have a deadline; [`NO_DEADLINE`] while one runs that has none.
    running: Arc<AtomicU64>,
}

const NO_DEADLINE: u64 = 0;

impl Timed {
    pub(super) fn connect(path: &Path, durability: Durability) -> Result<Self> {
        let mut sqlite = open(path, durability)?;
        let running = Arc::new(AtomicU64::new(NO_DEADLINE));
        let watched = running.clone();
        // The clock is read here and not when a statement starts: nearly all of them end before the first look.
        let (mut seen, mut since) = (NO_DEADLINE, now());
        let is_late = move || {
            let running = watched.load(Relaxed);
            if running != seen {
                (seen, since) = (running, now());
            }
            running != NO_DEADLINE && since.elapsed() > STATEMENT_TIMEOUT
        };
        sqlite.progress_handler(STEPS_BETWEEN_CHECKS, Some(is_late))?;
        Ok(Self { sqlite, running })
    }
}

pub(in super::super) fn open(path: &Path, durability: Durability) -> Result<Connection> {
    let connection = Connection::open(path)?;
    // First of all, so that the other settings wait for a neighbour too.
    connection.busy_timeout(STATEMENT_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", if durability == Durability::Full { "FULL" } else { "OFF" })?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(connection)
}

/// The statements of a connection.
pub(super) struct Statements<'c> {
    connection: &'c Timed,
    count: u64,
    /// Keyed by the address of the `&'static str`, so the map is bounded by the statements of the program.
    prepared: HashMap<(*const u8, usize), Prepared<'c>>,
    composed: HashMap<String, Prepared<'c>>,
}

struct Prepared<'c> {
    statement: Statement<'c>,
    /// For each place of the statement the number of its parameter: SQLite counts places by first appearance, so that
    /// `$2` may be the first.
    numbers: Vec<usize>,
    names: Arc<[String]>,
}

impl<'c> Statements<'c> {
    pub(super) fn of(connection: &'c Timed) -> Self {
        Self { connection, count: NO_DEADLINE, prepared: HashMap::new(), composed: HashMap::new() }
    }

    pub(super) fn run(&mut self, statement: &super::Statement) -> Result<Done> {
        self.count += 1;
        self.connection.running.store(self.count, Relaxed);
        match &statement.sql {
            Cow::Borrowed(sql) => self.prepared(sql)?.run(&statement.params),
            Cow::Owned(sql) if sql.len() <= LONGEST_COMPOSED => self.composed(sql)?.run(&statement.params),
            Cow::Owned(sql) => Prepared::new(&self.connection.sqlite, sql)?.run(&statement.params),
        }
    }

    /// A statement that begins or ends something; it takes as long as it takes.
    pub(super) fn control(&mut self, sql: &'static str) -> rusqlite::Result<()> {
        self.connection.running.store(NO_DEADLINE, Relaxed);
        self.prepared(sql)?.statement.raw_execute().map(drop)
    }

    fn prepared(&mut self, sql: &'static str) -> rusqlite::Result<&mut Prepared<'c>> {
        Ok(match self.prepared.entry((sql.as_ptr(), sql.len())) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(Prepared::new(&self.connection.sqlite, sql)?),
        })
    }

    fn composed(&mut self, sql: &str) -> rusqlite::Result<&mut Prepared<'c>> {
        if !self.composed.contains_key(sql) {
            let prepared = Prepared::new(&self.connection.sqlite, sql)?;
            if self.composed.len() == MOST_COMPOSED {
                self.composed.clear();
            }
            self.composed.insert(sql.to_owned(), prepared);
        }
        self.composed.get_mut(sql).ok_or(rusqlite::Error::InvalidQuery)
    }
}

impl<'c> Prepared<'c> {
    fn new(connection: &'c Connection, sql: &str) -> rusqlite::Result<Self> {
        // Not in the small memory at hand, which is then free for what statements need while they run.
        let statement = connection.prepare_with_flags(sql, PrepFlags::SQLITE_PREPARE_PERSISTENT)?;
        let number = |place| statement.parameter_name(place).and_then(|name| name[1..].parse().ok()).unwrap_or(place);
        let numbers = (1..=statement.parameter_count()).map(number).collect();
        let names = statement.column_names().map(str::to_owned).collect();
        Ok(Self { statement, numbers, names })
    }

    fn run(&mut self, params: &[Value]) -> Result<Done> {
        for (place, number) in self.numbers.iter().enumerate() {
            let value = params.get(number.wrapping_sub(1));
            let value = value.ok_or_else(|| Error::Driver(format!("${number} is not bound")))?;
            self.statement.raw_bind_parameter(place + 1, value)?;
        }
        if self.names.is_empty() {
            let changed = self.statement.raw_execute()?;
            return Ok(Done { rows: vec![], changed: changed as u64 });
        }
        let mut found = Vec::new();
        let mut rows = self.statement.raw_query();
        while let Some(row) = rows.next()? {
            let mut values = Vec::with_capacity(self.names.len());
            for place in 0..self.names.len() {
                values.push(owned(row.get_ref(place)?));
            }
            found.push(Row::new(self.names.clone(), values));
        }
        let changed = found.len() as u64;
        Ok(Done { rows: found, changed })
    }
}

fn owned(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(text) => Value::Text(match str::from_utf8(text) {
            Ok(text) => text.to_owned(),
            Err(_) => String::from_utf8_lossy(text).into_owned(),
        }),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(rusqlite::types::ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Bool(truth) => ValueRef::Integer(i64::from(*truth)),
            Self::Real(number) => ValueRef::Real(*number),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

#[expect(clippy::disallowed_methods, reason = "measures how long something takes, not a moment anybody sees")]
pub(super) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composed_statements_stay_prepared_within_bounds() {
        let folder = tempfile::tempdir().unwrap();
        let connection = Timed::connect(&folder.path().join("x.db"), Durability::Full).unwrap();
        let mut statements = Statements::of(&connection);
        let ask = |statements: &mut Statements<'_>, number: usize| {
            let sql = Cow::Owned(format!("SELECT $1 + {number} AS sum"));
            let done = statements.run(&super::super::Statement { sql, params: vec![Value::Int(1)] }).unwrap();
            (done.changed, statements.composed.len())
        };
        assert_eq!((ask(&mut statements, 0), ask(&mut statements, 0)), ((1, 1), (1, 1)), "the same one again");
        for number in 0..1000 {
            assert!(ask(&mut statements, number).1 <= MOST_COMPOSED, "{number}");
        }
        let kept = statements.composed.len();
        let sql = Cow::Owned(format!("SELECT $1{} AS sum", " + 1".repeat(LONGEST_COMPOSED / 4)));
        let done = statements.run(&super::super::Statement { sql, params: vec![Value::Int(1)] }).unwrap();
        assert_eq!((done.changed, statements.composed.len()), (1, kept), "a long one is answered and not kept");
    }
}
