//! The writer's thread: the writes that wait for it share a commit.
use std::{
    cell::RefCell,
    collections::VecDeque,
    sync::mpsc::RecvTimeoutError,
    thread,
    time::{Duration, Instant},
};

use crossbeam_channel as queue;
use rusqlite::ffi;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::{
    super::{Done, Error, Result, SILENCE},
    Call, Company, Conversation, Heard, Step, Then, Work,
    statements::{Statements, Timed, now},
};

/// A group is committed when it has this many units or is this old, so that its first caller does not wait for long.
const GROUP_UNITS: usize = 512;
const GROUP_AGE: Duration = Duration::from_millis(20);
/// The writer waits for returning callers for this part of the time a commit takes.
const PATIENCE_PART: u32 = 2;
/// The longest such wait, for slow disks: it occupies a processor.
const LONGEST_PATIENCE: Duration = Duration::from_micros(500);
/// The longest transaction, however busy: all other writers wait for it.
const LONGEST_TRANSACTION: Duration = Duration::from_secs(10);
/// After a rollback of a whole group, carried transactions get savepoints for this many groups.
const CAREFUL_GROUPS: u32 = 100;

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

pub(super) struct Writer<'c> {
    connection: &'c Timed,
    statements: Statements<'c>,
    crier: Crier,
    broken: Broken,
    last: Group,
    /// Statements of a group that was undone.
    again: VecDeque<Call>,
    /// How many of the next groups use savepoints for carried transactions too.
    careful: u32,
}

/// How the changes of one caller are undone.
enum Undo {
    /// By a savepoint.
    Alone,
    /// With its whole group, if the count of changes has grown beyond this number. A savepoint costs more than most carried
    /// transactions, and few of them fail after a write.
    WithGroup(u64),
}

/// Facts about the last commit, whose callers often come back at once.
#[derive(Default)]
struct Group {
    units: usize,
    commit_took: Duration,
}

type Crier = UnboundedSender<(Vec<Waiting>, Result<()>)>;

/// Starts a task that tells whole groups the outcome of their commit, for as long as the writer lives.
pub(super) fn crier() -> Crier {
    let (crier, mut groups) = unbounded_channel::<(Vec<Waiting>, Result<()>)>();
    tokio::spawn(async move {
        while let Some((waiting, outcome)) = groups.recv().await {
            for one in waiting {
                one.tell(&outcome);
            }
        }
    });
    crier
}

/// Told the outcome of the commit it waits for.
pub(super) enum Waiting {
    One(Call, Done),
    Tx(Heard),
}

impl Waiting {
    fn tell(self, outcome: &Result<()>) {
        match self {
            // The caller may have gone away.
            Self::One(call, done) => drop(call.reply.send(outcome.clone().map(|()| done))),
            Self::Tx(heard) => heard(outcome.clone()),
        }
    }
}

impl<'c> Writer<'c> {
    pub(super) fn new(connection: &'c Timed, crier: Crier) -> Self {
        let statements = Statements::of(connection);
        let (broken, last) = (Broken::default(), Group::default());
        Self { connection, statements, crier, broken, last, again: VecDeque::new(), careful: 0 }
    }

    pub(super) fn run(&mut self, work: &queue::Receiver<Work>) {
        while let Some(first) = self.again().or_else(|| self.awaited(work, 0, now())).or_else(|| work.recv().ok()) {
            self.group(first, work);
        }
    }

    fn again(&mut self) -> Option<Work> {
        self.again.pop_front().map(Work::One)
    }

    /// Runs everything that is in the queue in one transaction.
    fn group(&mut self, first: Work, work: &queue::Receiver<Work>) {
        if let Err(error) = self.broken.check().and_then(|()| self.control("BEGIN IMMEDIATE")) {
            return refuse(first, &error);
        }
        self.careful = self.careful.saturating_sub(1);
        let started = now();
        let mut waiting: Vec<Waiting> = Vec::with_capacity(self.last.units);
        let mut next = Some(first);
        while let Some(unit) = next {
            let mut company = Company::Welcome;
            match unit {
                Work::One(call) => match self.statements.run(&call.statement) {
                    Ok(done) => waiting.push(Waiting::One(call, done)),
                    // SQLite has undone the one statement; its neighbours stand.
                    Err(error) => drop(call.reply.send(Err(error))),
                },
                Work::Tx(caller) => {
                    if let Some((heard, wanted)) = self.interact(caller) {
                        waiting.push(Waiting::Tx(heard));
                        company = wanted;
                    }
                }
            }
            if self.is_over() {
                return self.start_over(waiting);
            }
            next = match company {
                Company::Welcome => self.next(work, waiting.len(), started),
                Company::NoMore => None,
            };
        }
        let ready = now();
        let outcome = self.broken.check().and_then(|()| self.control("COMMIT"));
        self.last = Group { units: waiting.len(), commit_took: ready.elapsed() };
        if let Err(error) = &outcome {
            tracing::error!(%error, units = waiting.len(), "a commit failed; nothing of it happened");
            if !self.is_over() {
                let _ = self.control("ROLLBACK");
            }
        }
        self.tell(waiting, outcome);
    }

    /// After a rollback of a group: single statements run again here, and transactions where they came from.
    fn start_over(&mut self, waiting: Vec<Waiting>) {
        let mut transactions = vec![];
        for one in waiting {
            match one {
                Waiting::One(call, _) => self.again.push_back(call),
                Waiting::Tx(heard) => transactions.push(Waiting::Tx(heard)),
            }
        }
        self.tell(transactions, Err(Error::Conflict("the commit this was part of was undone".into())));
    }

    /// Tells callers the outcome. The runtime tells a large group: waking each caller from here would cost as much as the
    /// work itself.
    fn tell(&self, mut waiting: Vec<Waiting>, mut outcome: Result<()>) {
        if waiting.len() > 1 {
            let Err(unheard) = self.crier.send((waiting, outcome)) else { return };
            (waiting, outcome) = unheard.0;
        }
        for one in waiting {
            one.tell(&outcome);
        }
    }

    /// The next unit of the group: one that waits, or one of a caller that is likely to come back.
    fn next(&mut self, work: &queue::Receiver<Work>, units: usize, started: Instant) -> Option<Work> {
        if units >= GROUP_UNITS || started.elapsed() >= GROUP_AGE {
            return None;
        }
        self.again().or_else(|| work.try_recv().ok()).or_else(|| self.awaited(work, units, started))
    }

    /// Waits awake for callers of the last group, for a part of the time its commit took. Going to sleep and being woken
    /// takes longer than they need to come back, and a commit for each of them longer still.
    fn awaited(&self, work: &queue::Receiver<Work>, units: usize, since: Instant) -> Option<Work> {
        if self.last.units < 2 || units >= self.last.units {
            return None;
        }
        let patience = (self.last.commit_took / PATIENCE_PART).min(LONGEST_PATIENCE);
        while since.elapsed() < patience {
            if let Ok(unit) = work.try_recv() {
                return Some(unit);
            }
            thread::yield_now();
        }
        None
    }

    /// Runs one caller's transaction; `Some` when it is to be committed with the group.
    fn interact(&mut self, mut caller: Conversation) -> Option<(Heard, Company)> {
        let undo = match self.prepare_to_undo(&caller) {
            Ok(undo) => undo,
            Err(error) => {
                refuse_steps(caller, &error);
                return None;
            }
        };
        // What the next step is answered: first the error of a `send`, and then that the transaction is aborted.
        let mut failed: Option<Error> = None;
        let started = now();
        loop {
            let left = LONGEST_TRANSACTION.saturating_sub(started.elapsed());
            match caller.next(SILENCE.min(left)) {
                Ok(Step { before, then }) => {
                    if failed.is_none() {
                        failed = before.iter().find_map(|statement| self.statements.run(statement).err());
                    }
                    match (then, failed.take()) {
                        (Then::Run(call), None) => {
                            let outcome = self.statements.run(&call.statement);
                            failed = outcome.is_err().then_some(Error::Aborted);
                            let _ = call.reply.send(outcome);
                        }
                        (Then::Run(call), Some(error)) => {
                            failed = Some(Error::Aborted);
                            let _ = call.reply.send(Err(error));
                        }
                        (Then::Commit(heard, company), None) => match self.keep(&undo) {
                            Ok(()) => return Some((heard, company)),
                            Err(error) => {
                                self.give_up(&undo, heard, error);
                                return None;
                            }
                        },
                        (Then::Commit(heard, _), Some(error)) => {
                            self.give_up(&undo, heard, error);
                            return None;
                        }
                    }
                }
                Err(hung_up_or_silent) => {
                    if hung_up_or_silent == RecvTimeoutError::Timeout {
                        tracing::warn!("a transaction was silent or open for too long and was rolled back");
                    }
                    self.undo(&undo);
                    return None;
                }
            }
        }
    }

    fn prepare_to_undo(&mut self, caller: &Conversation) -> Result<Undo> {
        if caller.is_carried() && self.careful == 0 {
            return Ok(Undo::WithGroup(self.connection.sqlite.total_changes()));
        }
        self.control("SAVEPOINT unit").map(|()| Undo::Alone)
    }

    fn keep(&mut self, undo: &Undo) -> Result<()> {
        match undo {
            Undo::Alone => self.control("RELEASE unit"),
            Undo::WithGroup(_) => Ok(()),
        }
    }

    fn give_up(&mut self, undo: &Undo, heard: Heard, error: Error) {
        self.undo(undo);
        heard(Err(error));
    }

    /// Undoes the changes of one caller; if that fails, those of its group; if that fails too, no commit ever follows.
    fn undo(&mut self, undo: &Undo) {
        if self.is_over() {
            return;
        }
        let undone = match undo {
            Undo::Alone => self.control("ROLLBACK TO unit").and_then(|()| self.control("RELEASE unit")),
            Undo::WithGroup(changes) if *changes == self.connection.sqlite.total_changes() => Ok(()),
            Undo::WithGroup(_) => {
                self.careful = CAREFUL_GROUPS;
                self.control("ROLLBACK")
            }
        };
        if undone.is_err()
            && !self.is_over()
            && let Err(error) = self.control("ROLLBACK")
        {
            self.broken.set(&format!("a transaction could not be undone: {error}"));
        }
    }

    /// Whether SQLite has no transaction open: some errors, such as a full disk, roll it back.
    fn is_over(&self) -> bool {
        self.connection.sqlite.is_autocommit()
    }

    /// Runs a statement that begins or ends a transaction or a savepoint, without a time limit.
    fn control(&mut self, sql: &'static str) -> Result<()> {
        self.statements.control(sql).map_err(|error| {
            if is_failed_sync(&error) {
                self.broken.set(&error.to_string());
            }
            error.into()
        })
    }
}

fn refuse(unit: Work, error: &Error) {
    match unit {
        Work::One(call) => {
            let _ = call.reply.send(Err(error.clone()));
        }
        Work::Tx(caller) => refuse_steps(caller, error),
    }
}

fn refuse_steps(mut caller: Conversation, error: &Error) {
    while let Ok(Step { then, .. }) = caller.next(SILENCE) {
        match then {
            Then::Run(call) => drop(call.reply.send(Err(error.clone()))),
            Then::Commit(heard, _) => return heard(Err(error.clone())),
        }
    }
}

fn is_failed_sync(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqliteFailure(failure, _)
        if matches!(failure.extended_code, ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rusqlite::hooks::{AuthAction, AuthContext, Authorization, TransactionOperation::Rollback};
    use tokio::sync::oneshot;

    use super::{super::Statement, *};
    use crate::Durability;

    const ADD: &str = "INSERT INTO thing (id) VALUES ($1)";

    fn add(id: &str) -> (Call, oneshot::Receiver<Result<Done>>) {
        let (reply, outcome) = oneshot::channel();
        (Call { statement: Statement { sql: ADD.into(), params: vec![id.into()] }, reply }, outcome)
    }

    /// What becomes of two single statements and of what is in the file, when a transaction between them goes away and
    /// SQLite refuses some of the ways to undo it.
    async fn around_one_that_goes_away(refused: fn(&AuthAction<'_>) -> bool) -> (Vec<Result<u64>>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let mut connection = Timed::connect(&path, Durability::Full).unwrap();
        connection.sqlite.execute_batch("CREATE TABLE thing (id TEXT PRIMARY KEY)").unwrap();
        let judge = move |asked: AuthContext<'_>| {
            if refused(&asked.action) { Authorization::Deny } else { Authorization::Allow }
        };
        connection.sqlite.authorizer(Some(judge)).unwrap();

        let (work, waiting) = queue::unbounded();
        let (steps, conversation) = mpsc::channel();
        let ((before, told_before), (inside, _told), (after, told_after)) =
            (add("before"), add("inside"), add("after"));
        steps.send(Step { before: vec![], then: Then::Run(inside) }).unwrap();
        drop(steps);
        work.send(Work::One(before)).unwrap();
        work.send(Work::Tx(Conversation::with(conversation))).unwrap();
        work.send(Work::One(after)).unwrap();
        drop(work);
        Writer::new(&connection, crier()).run(&waiting);
        let told = [told_before.await.unwrap(), told_after.await.unwrap()];
        drop(connection);
        let sqlite = rusqlite::Connection::open(path).unwrap();
        let mut ids = sqlite.prepare("SELECT id FROM thing ORDER BY id").unwrap();
        let ids = ids.query_map((), |row| row.get(0)).unwrap().map(|id| id.unwrap()).collect();
        (told.map(|outcome| outcome.map(|done| done.changed)).into(), ids)
    }

    #[tokio::test]
    async fn what_cannot_be_undone_alone_is_undone_with_its_group() {
        let alone = |action: &AuthAction<'_>| matches!(action, AuthAction::Savepoint { operation: Rollback, .. });
        let (told, ids) = around_one_that_goes_away(alone).await;
        assert_eq!((told.iter().flatten().count(), ids), (2, vec!["after".into(), "before".into()]), "{told:?}");
    }

    #[tokio::test]
    async fn what_cannot_be_undone_at_all_is_never_committed() {
        let at_all = |action: &AuthAction<'_>| {
            matches!(
                action,
                AuthAction::Savepoint { operation: Rollback, .. } | AuthAction::Transaction { operation: Rollback }
            )
        };
        let (told, ids) = around_one_that_goes_away(at_all).await;
        assert!(told.iter().all(|outcome| matches!(outcome, Err(Error::ReadOnly(_)))), "{told:?}");
        assert_eq!(ids, Vec::<String>::new());
    }
}
