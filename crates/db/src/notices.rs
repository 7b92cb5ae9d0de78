//! Notices: messages that a transaction sends to this process and, through PostgreSQL, to other nodes when it commits.
use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::Instant,
};

/// How many notices a listener may fall behind before it gets [`Notice::StartOver`].
const BACKLOG: usize = 1024;
/// How many notices of one transaction share a row of `notice`.
const IN_A_ROW: usize = 256;
/// A notice that repeats one of the last so many notices of its transaction is dropped.
const REMEMBERED: usize = 8;

/// How far a notice goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    ThisNode,
    EveryNode,
}

/// A message about a committed change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    News {
        topic: Cow<'static, str>,
        body: String,
    },
    /// Notices may have been missed: caches must be emptied.
    StartOver,
}

type Hook = Box<dyn Fn(&Notice) + Send + Sync>;

#[derive(Clone, Default)]
pub(super) struct Notices {
    hooks: Arc<RwLock<Vec<Hook>>>,
    ears: Arc<RwLock<Vec<Ear>>>,
    contact: Arc<Contact>,
}

/// Until when this node is known to have received every notice of other nodes.
struct Contact {
    begun: Instant,
    /// In milliseconds since `begun`.
    until: AtomicU64,
}

impl Default for Contact {
    fn default() -> Self {
        Self { begun: Instant::now(), until: AtomicU64::new(0) }
    }
}

impl Contact {
    fn at(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.begun).as_millis()).unwrap_or(u64::MAX)
    }
}

/// The sending end of a [`Listener`]. Notices on other topics do not wake the listener.
struct Ear {
    topics: &'static [&'static str],
    sender: broadcast::Sender<Notice>,
}

impl Ear {
    fn is_for(&self, notice: &Notice) -> bool {
        match notice {
            Notice::News { topic, .. } => self.topics.contains(&&**topic),
            Notice::StartOver => true,
        }
    }
}

/// A notice as it travels through PostgreSQL.
#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    /// Unused. Kept because nodes of version 0.1 reject notices without it.
    #[serde(default)]
    node: Cow<'a, str>,
    topic: Cow<'a, str>,
    body: Cow<'a, str>,
}

impl Notices {
    pub(super) fn hook(&self, hook: Hook) {
        write(&self.hooks).push(hook);
    }

    /// Notes that every notice sent before `moment` was received, which counts for a while.
    pub(super) fn heard_all_until(&self, moment: Instant, counts_for: Duration) {
        self.contact.until.store(self.contact.at(moment + counts_for), Relaxed);
    }

    /// Whether caches can be trusted. Compared with the clock each time, so that a process that was suspended for a while
    /// does not go on with stale caches.
    pub(super) fn is_in_contact(&self) -> bool {
        self.contact.at(Instant::now()) < self.contact.until.load(Relaxed)
    }

    fn call_hooks(&self, notice: &Notice) {
        for hook in &*read(&self.hooks) {
            // The hook may run on the writer's thread, which must survive a panic of it.
            if catch_unwind(AssertUnwindSafe(|| hook(notice))).is_err() {
                tracing::error!(?notice, "a notice handler panicked; a cache may hold stale data");
            }
        }
    }

    pub(super) fn tell(&self, notice: &Notice) {
        self.call_hooks(notice);
        for ear in read(&self.ears).iter().filter(|ear| ear.is_for(notice)) {
            // An error means that the listener is gone, which is fine.
            let _ = ear.sender.send(notice.clone());
        }
    }

    pub(super) fn listen(&self, topics: &'static [&'static str]) -> Listener {
        let (sender, receiver) = broadcast::channel(BACKLOG);
        write(&self.ears).push(Ear { topics, sender });
        Listener(receiver)
    }

    pub(super) fn pack(topic: &str, body: &str) -> String {
        let envelope = Envelope { node: "".into(), topic: topic.into(), body: body.into() };
        serde_json::to_string(&envelope).unwrap_or_default()
    }

    /// Passes on a notice that came through PostgreSQL. Notices of this node come back too and are handled a second time,
    /// because the transaction's caller may have gone away or lost its connection before it knew of the commit.
    pub(super) fn heard(&self, packed: &str) {
        match serde_json::from_str::<Envelope<'_>>(packed) {
            Ok(Envelope { topic, body, .. }) => {
                self.tell(&Notice::News { topic: topic.into_owned().into(), body: body.into_owned() });
            }
            Err(error) => tracing::warn!(%error, "a notice that is not ours was ignored"),
        }
    }
}

fn read<T>(shared: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    shared.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(shared: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    shared.write().unwrap_or_else(PoisonError::into_inner)
}

/// The notices of one transaction, sent once it is committed.
pub(super) struct News {
    notices: Notices,
    pending: Vec<Notice>,
    /// The notices for other nodes, packed.
    for_others: Vec<String>,
}

impl News {
    pub(super) fn none_yet(notices: &Notices) -> Self {
        Self { notices: notices.clone(), pending: vec![], for_others: vec![] }
    }

    pub(super) fn add(&mut self, notice: Notice) {
        if !self.pending.iter().rev().take(REMEMBERED).any(|said| *said == notice) {
            self.pending.push(notice);
        }
    }

    pub(super) fn add_for_others(&mut self, packed: String) {
        if !self.for_others.iter().rev().take(REMEMBERED).any(|said| *said == packed) {
            self.for_others.push(packed);
        }
    }

    /// The notices for other nodes as rows of `notice`, each a list in JSON.
    pub(super) fn rows_for_others(&self) -> impl Iterator<Item = String> + '_ {
        self.for_others.chunks(IN_A_ROW).map(|some| serde_json::to_string(some).unwrap_or_default())
    }

    pub(super) fn tell(self) {
        for notice in &self.pending {
            self.notices.tell(notice);
        }
    }
}

/// Receives the notices on some topics.
pub struct Listener(broadcast::Receiver<Notice>);

impl Listener {
    /// Drops all notices received so far, for a caller that is about to read the database itself.
    pub fn skip(&mut self) {
        self.0 = self.0.resubscribe();
    }

    /// The next notice; `None` when the database has been closed.
    pub async fn next(&mut self) -> Option<Notice> {
        match self.0.recv().await {
            Ok(notice) => Some(notice),
            Err(RecvError::Lagged(_)) => Some(Notice::StartOver),
            Err(RecvError::Closed) => None,
        }
    }
}
