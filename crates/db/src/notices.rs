//! What a committed transaction tells the rest of this process, and through PostgreSQL the other nodes.
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

/// How many notices a listener may fall behind before it is told to start over.
const BACKLOG: usize = 1024;
/// How many notices of one transaction share a row.
const IN_A_ROW: usize = 256;
/// A transaction that repeats one of its last notices says it once.
const REMEMBERED: usize = 8;

/// How far a notice goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    ThisNode,
    EveryNode,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    News {
        topic: Cow<'static, str>,
        body: String,
    },
    /// Notices may have been missed: whoever keeps a cache empties it.
    StartOver,
}

type Hook = Box<dyn Fn(&Notice) + Send + Sync>;

#[derive(Clone, Default)]
pub(super) struct Notices {
    hooks: Arc<RwLock<Vec<Hook>>>,
    ears: Arc<RwLock<Vec<Ear>>>,
    contact: Arc<Contact>,
}

/// Until when this node knows everything that other nodes said.
struct Contact {
    begun: Instant,
    /// In milliseconds since the beginning.
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

/// Where a [`Listener`] hears of its topics, and is not woken by any other.
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

/// What travels through PostgreSQL.
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

    /// Everything that was said before this moment was heard. That counts for a while.
    pub(super) fn heard_all_until(&self, moment: Instant, counts_for: Duration) {
        self.contact.until.store(self.contact.at(moment + counts_for), Relaxed);
    }

    /// Whether what is remembered can be relied on. Looked at by the clock, so that a process that was stopped for a
    /// while does not go on with what it knew.
    pub(super) fn is_in_contact(&self) -> bool {
        self.contact.at(Instant::now()) < self.contact.until.load(Relaxed)
    }

    fn call_hooks(&self, notice: &Notice) {
        for hook in &*read(&self.hooks) {
            // It may run on the thread that writes, which must not end with it.
            if catch_unwind(AssertUnwindSafe(|| hook(notice))).is_err() {
                tracing::error!(?notice, "what a notice makes untrue may still be remembered");
            }
        }
    }

    pub(super) fn tell(&self, notice: &Notice) {
        self.call_hooks(notice);
        for ear in read(&self.ears).iter().filter(|ear| ear.is_for(notice)) {
            // An error means that nobody listens any more, which is fine.
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

    /// Passes on what came through PostgreSQL. What this node said itself is among it, and is heard a second time: who
    /// said it may have gone away, or lost the line, before he knew that it was so.
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

/// What a transaction says once it is committed.
pub(super) struct News {
    notices: Notices,
    pending: Vec<Notice>,
    /// What other nodes are to hear, packed.
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

    /// What other nodes are to hear, as rows of `notice`: each a list in JSON.
    pub(super) fn rows_for_others(&self) -> impl Iterator<Item = String> + '_ {
        self.for_others.chunks(IN_A_ROW).map(|some| serde_json::to_string(some).unwrap_or_default())
    }

    pub(super) fn tell(self) {
        for notice in &self.pending {
            self.notices.tell(notice);
        }
    }
}

pub struct Listener(broadcast::Receiver<Notice>);

impl Listener {
    /// Passes over everything said so far: who is about to look for himself need not hear of it.
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
