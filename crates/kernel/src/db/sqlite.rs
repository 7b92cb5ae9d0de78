//! SQLite: reader threads, and one writer thread that lets waiting writers share a commit.
//!
//! The queues have no bound of their own: a request waits for one statement at a time, and the pipeline bounds the
//! requests. Nobody hears back before the commit he was part of is on the disk.
use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel as queue;
use rusqlite::{Connection, ErrorCode, ffi, types::ValueRef};
use tokio::sync::oneshot;

use super::{Done, Durability, Error, Result, Row, SILENCE, STATEMENT_TIMEOUT, Value};

/// A group is closed when it has this many units or is this old, so that the first of it does not wait for long.
const GROUP_UNITS: usize = 512;
const GROUP_AGE: Duration = Duration::from_millis(20);
/// However busy it keeps: everybody else is waiting.
const LONGEST_TRANSACTION: Duration = Duration::from_secs(10);
/// How many virtual machine steps SQLite takes between two looks at the clock.
const STEPS_BETWEEN_CHECKS: i32 = 10_000;

type Reply<T> = oneshot::Sender<Result<T>>;

struct Call {
    sql: &'static str,
    params: Vec<Value>,
    reply: Reply<Done>,
}
enum Work {
    One(Call),
    Tx(mpsc::Receiver<Step>),
}
enum Step {
    Run(Call),
    Commit(Reply<()>),
}

pub(super) struct Sqlite {
    path: PathBuf,
    reads: queue::Sender<Call>,
    writes: queue::Sender<Work>,
}

/// Why no write may be acknowledged any more. After a failed fsync the kernel may have dropped what it could not
/// write, and a second fsync would say that all is well: only a restart, which reads the disk, tells the truth.
#[derive(Default)]
struct Broken(RefCell<Option<String>>);

impl Broken {
    fn check(&self) -> Result<()> {
        match &*self.0.borrow() {
            Some(reason) => Err(Error::ReadOnly(reason.clone())),
            None => Ok(()),
        }
    }
    fn set(&self, reason: &str) {
        tracing::error!(reason, "the database takes no more writes until the server is restarted");
        *self.0.borrow_mut() = Some(reason.to_owned());
    }
}

impl Sqlite {
    pub(super) fn open(path: &Path, durability: Durability) -> Result<Self> {
        let (writes, work) = queue::unbounded();
        let connection = connect(path, durability)?;
        let writer = Writer { connection, broken: Broken::default() };
        spawn("db-write", move || writer.run(&work))?;

        let (reads, calls) = queue::unbounded::<Call>();
        for _ in 0..thread::available_parallelism().map_or(2, usize::from).clamp(2, 8) {
            let (connection, calls) = (connect(path, durability)?, calls.clone());
            connection.sqlite.pragma_update(None, "query_only", true)?;
            spawn("db-read", move || {
                for call in calls {
                    // Somebody who has gone away needs no answer.
                    if !call.reply.is_closed() {
                        let _ = call.reply.send(run(&connection, call.sql, &call.params));
                    }
                }
            })?;
        }
        Ok(Self { path: path.to_owned(), reads, writes })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) async fn read(&self, sql: &'static str, params: Vec<Value>) -> Result<Done> {
        answer(|reply| self.reads.send(Call { sql, params, reply }).is_ok()).await
    }

    pub(super) async fn write(&self, sql: &'static str, params: Vec<Value>) -> Result<Done> {
        answer(|reply| self.writes.send(Work::One(Call { sql, params, reply })).is_ok()).await
    }

    pub(super) fn begin(&self) -> Result<SqliteTx> {
        let (steps, receiver) = mpsc::channel();
        self.writes.send(Work::Tx(receiver)).map_err(|_| closed())?;
        Ok(SqliteTx { steps })
    }
}

/// The caller's end of an open transaction. Dropping it hangs up, and the writer rolls back.
pub(super) struct SqliteTx {
    steps: mpsc::Sender<Step>,
}

impl SqliteTx {
    pub(super) async fn run(&self, sql: &'static str, params: Vec<Value>) -> Result<Done> {
        let sent = answer(|reply| self.steps.send(Step::Run(Call { sql, params, reply })).is_ok());
        sent.await.map_err(silent_when_hung_up)
    }

    pub(super) async fn commit(self) -> Result<()> {
        answer(|reply| self.steps.send(Step::Commit(reply)).is_ok()).await.map_err(silent_when_hung_up)
    }
}

/// The writer hangs up on a transaction only when it was silent for too long.
fn silent_when_hung_up(error: Error) -> Error {
    match error {
        Error::Unavailable(_) => Error::Silent,
        error => error,
    }
}

fn closed() -> Error {
    Error::Unavailable("the database thread has ended".into())
}

async fn answer<T>(send: impl FnOnce(Reply<T>) -> bool) -> Result<T> {
    let (reply, receiver) = oneshot::channel();
    if !send(reply) {
        return Err(closed());
    }
    receiver.await.map_err(|_| closed())?
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let spawned = thread::Builder::new().name(name.into()).spawn(work);
    spawned.map(|_| ()).map_err(|e| Error::Driver(e.to_string()))
}

/// A connection whose statements are cut off when they run too long.
struct Timed {
    sqlite: Connection,
    /// When the running statement is to be cut off, in milliseconds since the connection was opened.
    deadline: Arc<AtomicU64>,
    opened: Instant,
}

fn connect(path: &Path, durability: Durability) -> Result<Timed> {
    let mut sqlite = open(path, durability)?;
    let (deadline, opened) = (Arc::new(AtomicU64::new(u64::MAX)), now());
    let watched = deadline.clone();
    sqlite.progress_handler(STEPS_BETWEEN_CHECKS, Some(move || millis(opened.elapsed()) > watched.load(Relaxed)))?;
    Ok(Timed { sqlite, deadline, opened })
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn open(path: &Path, durability: Durability) -> Result<Connection> {
    let connection = Connection::open(path)?;
    // First of all, so that the other settings wait for a neighbour too.
    connection.busy_timeout(STATEMENT_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", if durability == Durability::Full { "FULL" } else { "OFF" })?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(512);
    Ok(connection)
}

struct Writer {
    connection: Timed,
    broken: Broken,
}

/// Told the outcome of the commit it waits for.
type Waiting = Box<dyn FnOnce(Result<()>)>;

impl Writer {
    fn run(&self, work: &queue::Receiver<Work>) {
        while let Ok(first) = work.recv() {
            self.group(first, work);
        }
    }

    /// Everything already in the queue runs in one transaction, each interactive unit in its own savepoint.
    fn group(&self, first: Work, work: &queue::Receiver<Work>) {
        if let Err(error) = self.broken.check().and_then(|()| self.batch("BEGIN IMMEDIATE")) {
            return refuse(first, &error);
        }
        let started = now();
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut next = Some(first);
        while let Some(unit) = next.take() {
            match unit {
                Work::One(call) => match run(&self.connection, call.sql, &call.params) {
                    Ok(done) => waiting.push(Box::new(move |outcome| {
                        let _ = call.reply.send(outcome.map(|()| done));
                    })),
                    // SQLite has undone the one statement; its neighbours stand.
                    Err(error) => {
                        let _ = call.reply.send(Err(error));
                    }
                },
                Work::Tx(steps) => {
                    if let Some(reply) = self.interact(&steps) {
                        waiting.push(Box::new(move |outcome| {
                            let _ = reply.send(outcome);
                        }));
                    }
                }
            }
            // Some errors (a full disk, say) undo the whole transaction: then nothing of this group has happened.
            if self.connection.sqlite.is_autocommit() {
                let undone = Error::Unavailable("the commit this was part of was undone".into());
                for tell in waiting {
                    tell(Err(undone.clone()));
                }
                return;
            }
            if waiting.len() < GROUP_UNITS && started.elapsed() < GROUP_AGE {
                next = work.try_recv().ok();
            }
        }
        let outcome = self.batch("COMMIT");
        if let Err(error) = &outcome {
            tracing::error!(%error, units = waiting.len(), "a commit failed; nothing of it happened");
            if !self.connection.sqlite.is_autocommit() {
                let _ = self.batch("ROLLBACK");
            }
        }
        for tell in waiting {
            tell(outcome.clone());
        }
    }

    /// Runs one caller's transaction; `Some` when it is to be committed with the group.
    fn interact(&self, steps: &mpsc::Receiver<Step>) -> Option<Reply<()>> {
        // The first word is waited for too: who begins and then thinks holds everybody up.
        let mut opened = false;
        let mut failed = false;
        let started = now();
        loop {
            let left = LONGEST_TRANSACTION.saturating_sub(started.elapsed());
            match steps.recv_timeout(SILENCE.min(left)) {
                Ok(Step::Run(call)) => {
                    if !opened {
                        opened = self.batch("SAVEPOINT unit").is_ok();
                        failed = !opened;
                    }
                    let outcome =
                        if failed { Err(Error::Aborted) } else { run(&self.connection, call.sql, &call.params) };
                    failed |= outcome.is_err();
                    let _ = call.reply.send(outcome);
                }
                Ok(Step::Commit(reply)) if failed => {
                    self.undo(opened);
                    let _ = reply.send(Err(Error::Aborted));
                    return None;
                }
                Ok(Step::Commit(reply)) => {
                    return match if opened { self.batch("RELEASE unit") } else { Ok(()) } {
                        Ok(()) => Some(reply),
                        Err(error) => {
                            self.undo(opened);
                            let _ = reply.send(Err(error));
                            None
                        }
                    };
                }
                Err(hung_up_or_silent) => {
                    if hung_up_or_silent == mpsc::RecvTimeoutError::Timeout {
                        tracing::warn!("a transaction was silent or open for too long and was rolled back");
                    }
                    self.undo(opened);
                    return None;
                }
            }
        }
    }

    fn undo(&self, opened: bool) {
        if opened && !self.connection.sqlite.is_autocommit() {
            let _ = self.batch("ROLLBACK TO unit; RELEASE unit");
        }
    }

    fn batch(&self, sql: &str) -> Result<()> {
        self.connection.deadline.store(u64::MAX, Relaxed);
        self.connection.sqlite.execute_batch(sql).map_err(|error| {
            if is_failed_sync(&error) {
                self.broken.set(&error.to_string());
            }
            error.into()
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "measures how long a group has been open, not a moment anybody sees")]
fn now() -> Instant {
    Instant::now()
}

fn refuse(unit: Work, error: &Error) {
    match unit {
        Work::One(call) => {
            let _ = call.reply.send(Err(error.clone()));
        }
        Work::Tx(steps) => {
            while let Ok(step) = steps.recv_timeout(SILENCE) {
                let gone = match step {
                    Step::Run(call) => call.reply.send(Err(error.clone())).is_err(),
                    Step::Commit(reply) => reply.send(Err(error.clone())).is_err(),
                };
                if gone {
                    return;
                }
            }
        }
    }
}

fn is_failed_sync(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqliteFailure(failure, _)
        if matches!(failure.extended_code, ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC))
}

fn run(connection: &Timed, sql: &str, params: &[Value]) -> Result<Done> {
    connection.deadline.store(millis(connection.opened.elapsed() + STATEMENT_TIMEOUT), Relaxed);
    let mut statement = connection.sqlite.prepare_cached(sql)?;
    // SQLite numbers `$2` by first appearance, so parameters are bound by the number in their name.
    for place in 1..=statement.parameter_count() {
        let named = statement.parameter_name(place).and_then(|name| name[1..].parse::<usize>().ok());
        let number = named.unwrap_or(place);
        let value = params.get(number.wrapping_sub(1));
        statement
            .raw_bind_parameter(place, value.ok_or_else(|| Error::Driver(format!("${number} is not bound")))?)?;
    }
    let columns = statement.column_count();
    if columns == 0 {
        let changed = statement.raw_execute()?;
        return Ok(Done { rows: vec![], changed: changed as u64 });
    }
    let names: Arc<[String]> = statement.column_names().map(str::to_owned).collect();
    let mut found = Vec::new();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let values = (0..columns).map(|i| row.get_ref(i).map(owned).map_err(Error::from)).collect::<Result<_>>()?;
        found.push(Row { names: names.clone(), values });
    }
    let changed = found.len() as u64;
    Ok(Done { rows: found, changed })
}

fn owned(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Real(number) => Value::Real(number),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
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

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        let rusqlite::Error::SqliteFailure(failure, message) = &error else {
            return Self::Driver(error.to_string());
        };
        match (failure.extended_code, failure.code) {
            (ffi::SQLITE_CONSTRAINT_UNIQUE, _) => Self::Unique(constraint(message.as_deref(), false)),
            (ffi::SQLITE_CONSTRAINT_PRIMARYKEY, _) => Self::Unique(constraint(message.as_deref(), true)),
            (ffi::SQLITE_CONSTRAINT_FOREIGNKEY, _) => Self::ForeignKey,
            (_, ErrorCode::DiskFull) => Self::Full,
            (_, ErrorCode::OperationInterrupted) => Self::Timeout,
            (_, ErrorCode::ReadOnly) => Self::ReadOnly(error.to_string()),
            (
                _,
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::CannotOpen
                | ErrorCode::SystemIoFailure,
            ) => Self::Unavailable(error.to_string()),
            _ => Self::Driver(error.to_string()),
        }
    }
}

/// `UNIQUE constraint failed: account.email, account.org` under the name PostgreSQL would give it.
fn constraint(message: Option<&str>, primary: bool) -> String {
    let columns = message.and_then(|m| m.rsplit_once(": ")).map_or("", |(_, columns)| columns);
    if let Some(index) = columns.strip_prefix("index '") {
        return index.trim_end_matches('\'').to_owned();
    }
    let mut pairs = columns.split(", ").filter_map(|column| column.split_once('.')).peekable();
    let table = pairs.peek().map_or("", |(table, _)| table);
    if primary {
        return format!("{table}_pkey");
    }
    let columns: Vec<_> = pairs.map(|(_, column)| column).collect();
    format!("{table}_{}_key", columns.join("_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violated_constraint_has_the_name_postgresql_gives_it() {
        let unique = |columns| constraint(Some(columns), false);
        assert_eq!(unique("UNIQUE constraint failed: account.email"), "account_email_key");
        assert_eq!(unique("UNIQUE constraint failed: member.org_id, member.user_id"), "member_org_id_user_id_key");
        assert_eq!(unique("UNIQUE constraint failed: index 'account_alias_key'"), "account_alias_key");
        assert_eq!(constraint(Some("UNIQUE constraint failed: account.id"), true), "account_pkey");
    }
}
