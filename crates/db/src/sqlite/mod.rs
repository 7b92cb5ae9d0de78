//! SQLite: several reader threads, and one writer thread. Writes that wait at the same time share a commit.
//!
//! The queues are unbounded: a request waits for one statement at a time, and the pipeline bounds the number of
//! requests. A write is acknowledged only after its commit is on the disk.
mod conversation;
mod errors;
mod readers;
mod statements;
mod writer;

use std::{
    mem,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
};

use crossbeam_channel as queue;
use tokio::sync::oneshot;

pub(super) use self::statements::open;
use self::{
    conversation::Conversation,
    readers::Readers,
    statements::{Statements, Timed},
    writer::Writer,
};
use super::{Done, Durability, Error, Load, Result, Text, Value, notices::News};

/// How many kilobytes of the file the preferred reader caches, and how many each of the others, which work only while it
/// is busy. The writer has SQLite's default, which is 2,000.
const KEPT_BY_THE_FIRST: i64 = 4_000;
const KEPT_BY_OTHERS: i64 = 1_000;

type Reply<T> = oneshot::Sender<Result<T>>;

struct Statement {
    sql: Text,
    params: Vec<Value>,
}
struct Call {
    statement: Statement,
    reply: Reply<Done>,
}
enum Work {
    One(Call),
    Tx(Conversation),
}
/// A step of a transaction, with the statements of `send` that travel before it.
struct Step {
    before: Vec<Statement>,
    then: Then,
}
enum Then {
    Run(Call),
    Commit(Heard, Company),
}
/// Whether later transactions may join a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    Welcome,
    /// A transaction that joins may cause a rollback of the whole group, and this one cannot run again.
    NoMore,
}
/// Called with the outcome of a commit.
type Heard = Box<dyn FnOnce(Result<()>) + Send>;

pub(super) struct Sqlite {
    path: PathBuf,
    reads: Readers<Call>,
    writes: queue::Sender<Work>,
}

impl Sqlite {
    /// Must run within a runtime, which delivers the outcomes of commits.
    pub(super) fn open(path: &Path, durability: Durability) -> Result<Self> {
        let (writes, work) = queue::unbounded();
        let connection = Timed::connect(path, durability)?;
        let crier = writer::crier();
        spawn("db-write", move || Writer::new(&connection, crier).run(&work))?;

        let reads = Readers::<Call>::default();
        for number in 0..thread::available_parallelism().map_or(2, usize::from).clamp(2, 8) {
            let (connection, calls) = (Timed::connect(path, durability)?, reads.join());
            connection.sqlite.pragma_update(None, "query_only", true)?;
            // Below zero it counts kilobytes and not pages.
            let kept = if number == 0 { KEPT_BY_THE_FIRST } else { KEPT_BY_OTHERS };
            connection.sqlite.pragma_update(None, "cache_size", -kept)?;
            spawn("db-read", move || {
                let mut statements = Statements::of(&connection);
                for call in calls {
                    // A caller that has gone away needs no answer.
                    if !call.reply.is_closed() {
                        let _ = call.reply.send(statements.run(&call.statement));
                    }
                }
            })?;
        }
        Ok(Self { path: path.to_owned(), reads, writes })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn load(&self) -> Load {
        let (most, in_use, waiting) = self.reads.load();
        let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        Load {
            most: count(most),
            open: count(most),
            in_use: count(in_use),
            waiting: count(waiting),
            writes_waiting: Some(count(self.writes.len())),
            waits: None,
        }
    }

    pub(super) async fn read(&self, sql: Text, params: Vec<Value>) -> Result<Done> {
        let statement = Statement { sql, params };
        answer(|reply| self.reads.send(Call { statement, reply })).await
    }

    pub(super) async fn write(&self, sql: Text, params: Vec<Value>) -> Result<Done> {
        let statement = Statement { sql, params };
        answer(|reply| self.writes.send(Work::One(Call { statement, reply })).is_ok()).await
    }

    pub(super) fn begin(&self) -> SqliteTx {
        SqliteTx { writes: self.writes.clone(), steps: None, before: vec![] }
    }

    /// Runs a whole transaction on the writer's thread; answers its reply.
    pub(super) async fn carry<T, F>(&self, work: impl FnOnce(SqliteTx, oneshot::Sender<T>) -> F) -> Result<T>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, steps) = mpsc::channel();
        let (reply, outcome) = oneshot::channel();
        let tx = SqliteTx { writes: self.writes.clone(), steps: Some(sender), before: vec![] };
        let carried = Conversation::carried(steps, work(tx, reply));
        self.writes.send(Work::Tx(carried)).map_err(|_| closed())?;
        outcome.await.map_err(|_| Error::Driver("the transaction did not come to its end".into()))
    }
}

/// The caller's end of an open transaction. Dropping it hangs up, and the writer rolls back.
pub(super) struct SqliteTx {
    writes: queue::Sender<Work>,
    /// `None` until the first statement: an idle transaction does not occupy the writer.
    steps: Option<mpsc::Sender<Step>>,
    before: Vec<Statement>,
}

impl SqliteTx {
    pub(super) async fn run(&mut self, sql: Text, params: Vec<Value>) -> Result<Done> {
        let statement = Statement { sql, params };
        answer(|reply| self.step(Then::Run(Call { statement, reply }))).await.map_err(silent_when_hung_up)
    }

    /// Travels with the next step: a round trip to the writer takes longer than most statements.
    pub(super) fn send(&mut self, sql: Text, params: Vec<Value>) {
        self.before.push(Statement { sql, params });
    }

    /// Whether statements wait to travel with the next step.
    pub(super) fn has_sent(&self) -> bool {
        !self.before.is_empty()
    }

    pub(super) async fn commit(self, news: News, is_last: bool) -> Result<()> {
        if self.steps.is_none() && self.before.is_empty() {
            news.tell();
            return Ok(());
        }
        let company = if is_last { Company::NoMore } else { Company::Welcome };
        answer(|reply: Reply<()>| self.ask_to_commit(news, company, |outcome| drop(reply.send(outcome))))
            .await
            .map_err(silent_when_hung_up)
    }

    /// Asks for the commit without waiting for it. Its notices are sent even if the caller has gone away.
    pub(super) fn leave(self, news: News, heard: impl FnOnce(Result<()>) + Send + 'static) -> bool {
        self.ask_to_commit(news, Company::Welcome, heard)
    }

    fn ask_to_commit(
        mut self,
        news: News,
        company: Company,
        heard: impl FnOnce(Result<()>) + Send + 'static,
    ) -> bool {
        let heard = Box::new(|outcome: Result<()>| {
            if outcome.is_ok() {
                news.tell();
            }
            heard(outcome);
        });
        self.step(Then::Commit(heard, company))
    }

    fn step(&mut self, then: Then) -> bool {
        let step = Step { before: mem::take(&mut self.before), then };
        if let Some(steps) = &self.steps {
            return steps.send(step).is_ok();
        }
        let (steps, receiver) = mpsc::channel();
        // Before the work is queued, so that the writer finds the step there and does not go to sleep.
        let is_sent = steps.send(step).is_ok();
        self.steps = Some(steps);
        is_sent && self.writes.send(Work::Tx(Conversation::with(receiver))).is_ok()
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
