//! Claims of idempotency keys: a request with a key is carried out once.
//!
//! The first transaction of a request claims its key. Each transaction of the request delays its commit until the answer
//! is known, so that the change and the answer are one commit. A repeated request gets that answer, or is carried out for
//! the first time. Where keys come from and what an answer is, the HTTP side knows (`kernel/src/http/idempotency.rs`).
//! All times are in milliseconds since 1970.
use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{Db, Error, Result, Tx, params, row};

/// The longest delay of a commit: on SQLite every other writer waits for it.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

const CLAIM: &str = "INSERT INTO idempotent_reply (scope, request_hash, started_at) VALUES ($1, $2, $3)
    ON CONFLICT (scope) DO UPDATE SET request_hash = $2, started_at = $3, status = NULL, sealed = NULL
    WHERE idempotent_reply.started_at < $4";
const EARLIER: &str = "SELECT request_hash, started_at, status, sealed FROM idempotent_reply WHERE scope = $1";
const KEEP: &str = "UPDATE idempotent_reply SET status = $3, sealed = $4 WHERE scope = $1 AND started_at = $2";
const RELEASE: &str = "DELETE FROM idempotent_reply WHERE scope = $1 AND started_at = $2";

/// Deletes the replies to requests that began before `moment`, some at a time.
pub async fn forget_before(db: &Db, moment: i64) -> Result<()> {
    let sql = "DELETE FROM idempotent_reply WHERE scope IN
                   (SELECT scope FROM idempotent_reply WHERE started_at < $1 ORDER BY started_at LIMIT $2)";
    db.sweep(sql, params![moment]).await.map(drop)
}

tokio::task_local! {
    static PRESENT: Option<Arc<Claim>>;
}

/// Runs work that decides whether a request is admitted (a captcha's pass, say) outside of the request's claim: it claims
/// no key and its commits are not delayed. Every transaction of an extractor or of an admission check must go through
/// here, because the first transaction that does not may answer with an earlier answer.
pub async fn aside<T, E: From<Error>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    if let Some(claim) = Claim::present() {
        claim.before_writing().await?;
    }
    PRESENT.scope(None, work).await
}

/// Says that the answer of the present request opens an account: a token, a session's cookie, a ticket. It is never kept,
/// and a repetition runs again. Called where such a secret is made, so that no route can forget it.
pub fn answer_opens_account() {
    if let Some(claim) = Claim::present() {
        claim.opens_account.store(true, Relaxed);
    }
}

/// The key of a request, as it is stored.
pub struct Key {
    pub scope: String,
    pub request_hash: String,
    pub now: i64,
    /// Claims older than this have expired.
    pub forgotten: i64,
}

/// The state that an earlier request with the same key left in the database.
pub struct Earlier {
    pub request_hash: String,
    pub started_at: i64,
    pub status: Option<u16>,
    pub sealed: Option<Vec<u8>>,
}
row!(Earlier { request_hash, started_at, status, sealed });

/// The stored form of an answer.
pub enum Remembered {
    Answer {
        status: u16,
        sealed: Vec<u8>,
    },
    /// Only that the request was carried out.
    Done,
    /// Nothing: the request was refused, or its answer opens an account. A repetition runs again.
    Nothing,
}

/// When an answer was stored.
pub enum StoredReply {
    /// In the commit of the change.
    WithTheRest,
    /// After that commit, or not at all.
    Apart(Result<()>),
}

/// How far a request got.
pub enum Stage {
    /// The request changed nothing.
    Unclaimed,
    /// The request was made before, and changed nothing this time.
    Repeated(Earlier),
    /// The request changed something. The commit may still be delayed.
    Claimed,
    /// The commit failed, as far as is known.
    Failed(Error),
}

/// The claim of one request to its key.
pub struct Claim {
    key: Key,
    state: Mutex<State>,
    /// Notified when a transaction begins to wait.
    waits: Notify,
    opens_account: AtomicBool,
}

enum State {
    /// No transaction has claimed the key, or the one that did was rolled back.
    Unclaimed,
    /// A transaction that is still open has claimed the key.
    Open,
    /// A transaction is done and waits for its commit.
    Waiting(Box<Tx>),
    /// The claim is committed.
    Claimed,
    Repeated(Earlier),
    Failed(Error),
}

impl Claim {
    pub fn new(key: Key) -> Arc<Self> {
        let (waits, opens_account) = (Notify::new(), AtomicBool::new(false));
        Arc::new(Self { key, state: Mutex::new(State::Unclaimed), waits, opens_account })
    }

    /// The claim of the present task.
    pub(super) fn present() -> Option<Arc<Self>> {
        PRESENT.try_with(Clone::clone).ok().flatten()
    }

    /// Runs a request under this claim, and commits a transaction that has waited for too long.
    pub async fn around<T>(self: &Arc<Self>, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(PRESENT.scope(Some(self.clone()), work));
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.overstays() => {}
            }
            // Outside of the select, so that a commit is never dropped half-way. A failure is kept in the state.
            let _ = self.commit_waiting().await;
        }
    }

    /// How far the request got. Hands over what an earlier request left, once.
    pub fn stage(&self) -> Stage {
        let mut state = self.lock();
        match &mut *state {
            State::Unclaimed | State::Open => Stage::Unclaimed,
            State::Waiting(_) | State::Claimed => Stage::Claimed,
            State::Failed(error) => Stage::Failed(error.clone()),
            State::Repeated(_) => match mem::replace(&mut *state, State::Unclaimed) {
                State::Repeated(earlier) => Stage::Repeated(earlier),
                _ => Stage::Unclaimed,
            },
        }
    }

    /// Stores the answer, in the commit of the change if that still waits. If that commit fails, nothing was changed.
    pub async fn finish(&self, db: &Db, remembered: Remembered) -> Result<StoredReply> {
        let Key { scope, now, .. } = &self.key;
        let (sql, params) = match remembered {
            Remembered::Answer { status, sealed } => (KEEP, params![scope, *now, status, sealed]),
            Remembered::Nothing => (RELEASE, params![scope, *now]),
            Remembered::Done => return self.commit_waiting().await.map(|()| StoredReply::WithTheRest),
        };
        let state = mem::replace(&mut *self.lock(), State::Claimed);
        match state {
            State::Waiting(mut tx) => {
                tx.exec(sql, params).await?;
                tx.commit_last().await?;
                Ok(StoredReply::WithTheRest)
            }
            State::Failed(error) => Err(error),
            _ => Ok(StoredReply::Apart(db.exec(sql, params).await.map(drop))),
        }
    }

    /// Whether the answer must not be kept.
    pub fn opens_account(&self) -> bool {
        self.opens_account.load(Relaxed)
    }

    pub fn scope(&self) -> &str {
        &self.key.scope
    }

    pub fn request_hash(&self) -> &str {
        &self.key.request_hash
    }

    pub fn now(&self) -> i64 {
        self.key.now
    }

    /// Opens a transaction; the first one of a request claims its key.
    pub(super) async fn begin(self: Arc<Self>, db: &Db) -> Result<Tx> {
        self.before_writing().await?;
        let held = {
            let mut state = self.lock();
            match &*state {
                State::Unclaimed => {
                    *state = State::Open;
                    Some(Held { claim: self.clone(), is_first: true })
                }
                // Beside the one that has the claim.
                State::Open => None,
                _ => Some(Held { claim: self.clone(), is_first: false }),
            }
        };
        let is_first = held.as_ref().is_some_and(|held| held.is_first);
        let mut tx = db.open_tx().await?;
        tx.held = held;
        if is_first {
            self.make(&mut tx).await?;
        }
        Ok(tx)
    }

    /// Claims the key. Waits for another request that holds it: PostgreSQL at the index, SQLite for its one writer.
    async fn make(&self, tx: &mut Tx) -> Result<()> {
        let Key { scope, request_hash, now, forgotten } = &self.key;
        if tx.exec(CLAIM, params![scope, request_hash, *now, *forgotten]).await? == 1 {
            return Ok(());
        }
        let earlier: Option<Earlier> = tx.opt(EARLIER, params![scope]).await?;
        let earlier = earlier.ok_or_else(|| Error::Conflict("the key was released meanwhile".into()))?;
        *self.lock() = State::Repeated(earlier);
        Err(Error::Repeated)
    }

    /// Commits a waiting transaction, so that reads outside of it see its changes.
    pub(super) async fn before_reading(&self) -> Result<()> {
        self.commit_waiting().await
    }

    /// As [`before_reading`](Self::before_reading); a repeated request must not write at all.
    pub(super) async fn before_writing(&self) -> Result<()> {
        self.commit_waiting().await?;
        match &*self.lock() {
            State::Repeated(_) => Err(Error::Repeated),
            _ => Ok(()),
        }
    }

    async fn commit_waiting(&self) -> Result<()> {
        let tx = {
            let mut state = self.lock();
            match &*state {
                State::Waiting(_) => match mem::replace(&mut *state, State::Claimed) {
                    State::Waiting(tx) => tx,
                    _ => return Ok(()),
                },
                State::Failed(error) => return Err(error.clone()),
                _ => return Ok(()),
            }
        };
        self.noted(tx.commit_last().await)
    }

    fn noted(&self, outcome: Result<()>) -> Result<()> {
        let mut state = self.lock();
        match &outcome {
            // Another transaction may have begun to wait meanwhile, and goes on waiting.
            Ok(()) if matches!(&*state, State::Open) => *state = State::Claimed,
            Ok(()) => {}
            Err(error) => *state = State::Failed(error.clone()),
        }
        drop(state);
        outcome
    }

    /// Returns when a transaction has waited for too long.
    async fn overstays(&self) {
        loop {
            self.waits.notified().await;
            tokio::time::sleep(LONGEST_WAIT).await;
            if matches!(&*self.lock(), State::Waiting(_)) {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A transaction's hold on the claim it works under.
pub(super) struct Held {
    claim: Arc<Claim>,
    /// Whether this transaction makes the claim, so that its rollback undoes the claim.
    is_first: bool,
}

impl Held {
    /// Delays the commit until the answer is known.
    pub(super) async fn wait(mut self, mut tx: Box<Tx>) -> Result<()> {
        tx.flush().await?;
        // A transaction that ran beside this one may wait already.
        self.claim.commit_waiting().await?;
        self.is_first = false;
        *self.claim.lock() = State::Waiting(tx);
        self.claim.waits.notify_one();
        Ok(())
    }

    /// Commits now, and notes the outcome.
    pub(super) async fn commit(mut self, tx: Tx) -> Result<()> {
        self.is_first = false;
        self.claim.noted(tx.commit_last().await)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.claim.lock();
        if self.is_first && matches!(&*state, State::Open) {
            *state = State::Unclaimed;
        }
    }
}
