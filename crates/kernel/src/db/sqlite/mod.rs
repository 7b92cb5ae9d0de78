//! SQLite: reader threads, and one writer thread that lets waiting writers share a commit.
//!
//! The queues have no bound of their own: a request waits for one statement at a time, and the pipeline bounds the
//! requests. Nobody hears back before the commit he was part of is on the disk.
mod errors;
mod statements;
mod writer;

use std::{
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
};

use crossbeam_channel as queue;
use tokio::sync::oneshot;

pub(super) use self::statements::open;
use self::{
    statements::{Statements, Timed},
    writer::Writer,
};
use super::{Done, Durability, Error, Result, Text, Value};

type Reply<T> = oneshot::Sender<Result<T>>;

struct Call {
    sql: Text,
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

impl Sqlite {
    /// Needs a runtime around it, in which its callers are told.
    pub(super) fn open(path: &Path, durability: Durability) -> Result<Self> {
        let (writes, work) = queue::unbounded();
        let connection = Timed::connect(path, durability)?;
        let crier = writer::crier();
        spawn("db-write", move || Writer::new(&connection, crier).run(&work))?;

        let (reads, calls) = queue::unbounded::<Call>();
        for _ in 0..thread::available_parallelism().map_or(2, usize::from).clamp(2, 8) {
            let (connection, calls) = (Timed::connect(path, durability)?, calls.clone());
            connection.sqlite.pragma_update(None, "query_only", true)?;
            spawn("db-read", move || {
                let mut statements = Statements::of(&connection);
                for call in calls {
                    // Somebody who has gone away needs no answer.
                    if !call.reply.is_closed() {
                        let _ = call.reply.send(statements.run(&call.sql, &call.params));
                    }
                }
            })?;
        }
        Ok(Self { path: path.to_owned(), reads, writes })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) async fn read(&self, sql: Text, params: Vec<Value>) -> Result<Done> {
        answer(|reply| self.reads.send(Call { sql, params, reply }).is_ok()).await
    }

    pub(super) async fn write(&self, sql: Text, params: Vec<Value>) -> Result<Done> {
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
    pub(super) async fn run(&self, sql: Text, params: Vec<Value>) -> Result<Done> {
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
