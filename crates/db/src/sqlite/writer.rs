//! The one thread that writes: whoever waits for it shares a commit.
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

/// A group is closed when it has this many units or is this old, so that the first of it does not wait for long.
const GROUP_UNITS: usize = 512;
const GROUP_AGE: Duration = Duration::from_millis(20);
/// Those who will likely come back are waited for for this part of what a commit takes.
const PATIENCE_PART: u32 = 2;
/// But on a slow disk not for long: waiting awake takes a processor.
const LONGEST_PATIENCE: Duration = Duration::from_micros(500);
/// However busy it keeps: everybody else is waiting.
const LONGEST_TRANSACTION: Duration = Duration::from_secs(10);
/// After one caller has cost a whole group, this many are made so that each can be undone alone: what failed once may
/// fail again.
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
    /// How many of the next groups are made with care.
    careful: u32,
}

/// How what one caller has done is undone.
enum Undo {
    Alone,
    /// With everything in its group, if there is more to undo than when these were the changes so far. Remembering for
    /// each caller what every page was like costs more than most do, and of those who come along few fail after they
    /// wrote.
    WithGroup(u64),
}

/// What the last commit was like: whoever it answered often comes back at once.
#[derive(Default)]
struct Group {
    units: usize,
    commit_took: Duration,
}

type Crier = UnboundedSender<(Vec<Waiting>, Result<()>)>;

/// Tells whole groups what became of their commit, for as long as there is a writer.
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
            // Who has gone away meanwhile hears nothing.
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

    /// Everything already in the queue runs in one transaction.
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

    /// Nothing of a group has happened. Single statements run again here, and transactions where they came from.
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

    /// A crowd is told by the runtime its callers wait in: waking each of them from here would cost as much as the work.
    fn tell(&self, mut waiting: Vec<Waiting>, mut outcome: Result<()>) {
        if waiting.len() > 1 {
            let Err(unheard) = self.crier.send((waiting, outcome)) else { return };
            (waiting, outcome) = unheard.0;
        }
        for one in waiting {
            one.tell(&outcome);
        }
    }

    /// Who else joins the group: whoever is there, and those who will likely come back.
    fn next(&mut self, work: &queue::Receiver<Work>, units: usize, started: Instant) -> Option<Work> {
        if units >= GROUP_UNITS || started.elapsed() >= GROUP_AGE {
            return None;
        }
        self.again().or_else(|| work.try_recv().ok()).or_else(|| self.awaited(work, units, started))
    }

    /// Waits awake for somebody of the last group, for a part of what its commit took: going to sleep and being woken
    /// takes longer than they need, and a commit for each of them longer still.
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
        // What the next step is told: of a statement nobody waited for its own error, and then that all is over.
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

    /// What cannot be undone alone is undone with its group; if even that is refused, no commit ever follows.
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

    /// Whether SQLite has no transaction open: some errors (a full disk, say) undo the whole of it.
    fn is_over(&self) -> bool {
        self.connection.sqlite.is_autocommit()
    }

    /// Runs what begins or ends something; it takes as long as it takes.
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
