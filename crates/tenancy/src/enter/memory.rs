//! A cache of rows that is invalidated by notices.
use std::{
    array,
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher as _},
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use db::{Db, lock};
use kernel::recent::Recent;
use tokio::sync::OnceCell;

/// Upper bound on staleness if an invalidation was missed.
pub const REMEMBERED: Duration = Duration::from_mins(1);
pub const MOST: usize = 50_000;
const SHARES: usize = 64;
/// Groups share a counter where the ends of their ids agree: they are then forgotten together.
const GROUPS: usize = 1024;

/// The ids of what an entry belongs to, such as its organization and its app.
pub type Groups = [Option<u128>; 2];

pub struct Memory<K, V> {
    known: Recent<K, CachedValue<V>>,
    groups: fn(&K, &V) -> Groups,
    /// Counts how often each group was forgotten. An entry from before is not taken any more, and found out only when it is
    /// asked for: so forgetting a group costs the same however much is remembered.
    of_groups: Box<[AtomicU64]>,
    /// Counts what was forgotten, for each share of the keys: what was read before it is not remembered after it.
    forgotten: [AtomicU64; SHARES],
    /// Reads that are running, by key and count of invalidations.
    readings: Mutex<Readings<K, V>>,
}

/// The number of callers that wait for a read, and its result.
type Readings<K, V> = HashMap<(K, u64), (usize, Shared<V>)>;
type Shared<V> = Arc<OnceCell<Option<Arc<V>>>>;

/// A cached value, and the counts of its groups from then.
struct CachedValue<V> {
    value: Arc<V>,
    counts: [u64; 2],
}

impl<V> Clone for CachedValue<V> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), counts: self.counts }
    }
}

impl<K: Hash + Eq, V> Default for Memory<K, V> {
    fn default() -> Self {
        Self::grouped(|_, _| [None; 2])
    }
}

impl<K: Hash + Eq, V> Memory<K, V> {
    /// Entries that belong to groups, and can be forgotten with them.
    pub fn grouped(groups: fn(&K, &V) -> Groups) -> Self {
        Self {
            known: Recent::new(MOST, REMEMBERED),
            groups,
            of_groups: (0..GROUPS).map(|_| AtomicU64::new(0)).collect(),
            forgotten: array::from_fn(|_| AtomicU64::new(0)),
            readings: Mutex::default(),
        }
    }
}

impl<K: Hash + Eq + Clone, V> Memory<K, V> {
    /// Returns the cached row, or reads it. A missing row is not cached. Concurrent callers share one read, unless
    /// the row was invalidated in between. On a node that receives no notices every caller reads for itself.
    pub async fn recall<R>(&self, db: &Db, key: &K, read: impl FnOnce() -> R) -> db::Result<Option<Arc<V>>>
    where
        R: Future<Output = db::Result<Option<V>>>,
    {
        if !db.hears_others() {
            return Ok(Box::pin(read()).await?.map(Arc::new));
        }
        self.recall_here(key, read).await
    }

    /// The cached value, for keys that may have come in another form than the one they are cached under.
    pub fn known(&self, db: &Db, key: &K) -> Option<Arc<V>> {
        db.hears_others().then(|| self.remembered(key)).flatten()
    }

    fn remembered(&self, key: &K) -> Option<Arc<V>> {
        let known = self.known.get(key).filter(|known| known.counts == self.counts(key, &known.value));
        known.map(|known| known.value)
    }

    async fn recall_here<R>(&self, key: &K, read: impl FnOnce() -> R) -> db::Result<Option<Arc<V>>>
    where
        R: Future<Output = db::Result<Option<V>>>,
    {
        match self.remembered(key) {
            Some(known) => Ok(Some(known)),
            // Aside, so that whoever asks carries no more along than most of them need.
            None => Box::pin(self.read(key, read())).await,
        }
    }

    async fn read(&self, key: &K, read: impl Future<Output = db::Result<Option<V>>>) -> db::Result<Option<Arc<V>>> {
        let forgotten = self.share(key);
        let before = forgotten.load(SeqCst);
        let (reading, mut read) = (Reading::join(&self.readings, (key.clone(), before)), pin!(read));
        let mut is_mine = false;
        let own = async {
            is_mine = true;
            let found = (&mut read).await?.map(Arc::new);
            if let Some(found) = &found {
                let (value, counts) = (found.clone(), self.counts(key, found));
                self.known.insert(key.clone(), CachedValue { value, counts });
                if forgotten.load(SeqCst) != before {
                    self.known.forget(key);
                }
            }
            Ok::<_, db::Error>(found)
        };
        match reading.shared.get_or_try_init(|| own).await? {
            // The row may have been created since the other caller read.
            None if !is_mine => Ok(read.await?.map(Arc::new)),
            found => Ok(found.clone()),
        }
    }

    pub fn forget(&self, key: &K) {
        self.share(key).fetch_add(1, SeqCst);
        self.known.forget(key);
    }

    /// Forgets everything that belongs to a group. A value that is being read may belong to it, too, so it is not
    /// cached. That is counted first, because a reader takes the count of the group before it checks whether its
    /// value is still current.
    pub fn forget_group(&self, id: u128) {
        self.count_all();
        self.of_group(id).fetch_add(1, SeqCst);
    }

    pub fn forget_all(&self) {
        self.count_all();
        self.known.forget_all();
    }

    fn counts(&self, key: &K, value: &V) -> [u64; 2] {
        (self.groups)(key, value).map(|id| id.map_or(0, |id| self.of_group(id).load(SeqCst)))
    }

    fn of_group(&self, id: u128) -> &AtomicU64 {
        &self.of_groups[usize::try_from(id % GROUPS as u128).unwrap_or_default()]
    }

    fn count_all(&self) {
        for share in &self.forgotten {
            share.fetch_add(1, SeqCst);
        }
    }

    fn share(&self, key: &K) -> &AtomicU64 {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let share = usize::try_from(hasher.finish() % SHARES as u64).unwrap_or_default();
        &self.forgotten[share]
    }
}

/// A caller that waits for a read.
struct Reading<'a, K: Hash + Eq, V> {
    readings: &'a Mutex<Readings<K, V>>,
    key: (K, u64),
    shared: Shared<V>,
}

impl<'a, K: Hash + Eq + Clone, V> Reading<'a, K, V> {
    fn join(readings: &'a Mutex<Readings<K, V>>, key: (K, u64)) -> Self {
        let mut list = lock(readings);
        let (askers, shared) = list.entry(key.clone()).or_default();
        *askers += 1;
        Self { readings, key, shared: shared.clone() }
    }
}

impl<K: Hash + Eq, V> Drop for Reading<'_, K, V> {
    fn drop(&mut self) {
        let mut list = lock(self.readings);
        if let Some((askers, _)) = list.get_mut(&self.key) {
            *askers -= 1;
            if *askers == 0 {
                list.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    async fn recall(memory: &Memory<u8, &'static str>, key: u8, now: &'static str) -> Option<&'static str> {
        memory.recall_here(&key, || ready(Ok(Some(now)))).await.ok().flatten().map(|found| *found)
    }

    #[tokio::test]
    async fn what_is_forgotten_is_read_again_and_nothing_else() {
        let memory = Memory::grouped(|_, value| [Some(u128::from(*value == "old")), None]);
        for key in [1, 2] {
            assert_eq!(recall(&memory, key, "old").await, Some("old"));
        }
        memory.forget(&1);
        assert_eq!(recall(&memory, 1, "new").await, Some("new"));
        assert_eq!(recall(&memory, 2, "new").await, Some("old"));
        memory.forget_group(1);
        assert_eq!(recall(&memory, 2, "newer").await, Some("newer"));
        assert_eq!(recall(&memory, 1, "newer").await, Some("new"));
        memory.forget_all();
        assert_eq!(recall(&memory, 1, "newest").await, Some("newest"));
    }

    #[tokio::test]
    async fn what_is_forgotten_while_it_is_read_is_not_remembered() {
        let forgets: [fn(&Memory<u8, &'static str>); 3] =
            [|memory| memory.forget(&1), |memory| memory.forget_group(1), Memory::forget_all];
        for forget in forgets {
            let memory = Memory::grouped(|_, _| [None, Some(1)]);
            let read = async {
                forget(&memory);
                Ok(Some("old"))
            };
            assert_eq!(memory.recall_here(&1, || read).await.ok().flatten().as_deref(), Some(&"old"));
            assert_eq!(recall(&memory, 1, "new").await, Some("new"));
        }
    }

    #[tokio::test]
    async fn those_who_ask_at_the_same_time_share_what_one_of_them_reads() {
        let (memory, reads) = (Memory::<u8, u8>::default(), AtomicU64::new(0));
        let read = |found| {
            let reads = &reads;
            async move {
                reads.fetch_add(1, SeqCst);
                tokio::task::yield_now().await;
                Ok(found)
            }
        };
        let (first, second) =
            tokio::join!(memory.recall_here(&1, || read(Some(7))), memory.recall_here(&1, || read(Some(8))));
        let found = [first, second].map(|found| found.ok().flatten().as_deref().copied());
        assert_eq!((found, reads.load(SeqCst)), ([Some(7); 2], 1));
        assert!(lock(&memory.readings).is_empty());

        memory.forget_all();
        let late = async {
            memory.forget(&1);
            memory.recall_here(&1, || read(Some(8))).await
        };
        let (first, late) = tokio::join!(memory.recall_here(&1, || read(Some(7))), late);
        let found = [first, late].map(|found| found.ok().flatten().as_deref().copied());
        assert_eq!((found, reads.load(SeqCst)), ([Some(7), Some(8)], 3), "who comes after it was forgotten reads");

        let (gone, there) =
            tokio::join!(memory.recall_here(&2, || read(None)), memory.recall_here(&2, || read(Some(9))));
        let found = [gone, there].map(|found| found.ok().flatten().as_deref().copied());
        assert_eq!(found, [None, Some(9)], "nobody is told by somebody else that it is not there");
        assert!(lock(&memory.readings).is_empty());
    }

    #[tokio::test]
    async fn who_goes_away_while_reading_leaves_it_to_the_next() {
        let memory = Memory::<u8, u8>::default();
        let mut second = Box::pin(memory.recall_here(&1, || ready(Ok(Some(7)))));
        tokio::select! {
            biased;
            _ = memory.recall_here(&1, std::future::pending) => panic!("it is never there"),
            _ = &mut second => panic!("somebody else reads it"),
            () = ready(()) => {}
        }
        assert_eq!(second.await.ok().flatten().as_deref(), Some(&7));
        assert!(lock(&memory.readings).is_empty());
    }

    #[tokio::test]
    async fn that_something_is_not_there_is_not_remembered() {
        let memory = Memory::default();
        assert!(matches!(memory.recall_here(&1, || ready(Ok(None))).await, Ok(None)));
        assert_eq!(recall(&memory, 1, "there").await, Some("there"));
    }
}
