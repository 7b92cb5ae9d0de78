//! What a node keeps in mind of what it read, until it hears that it changed.
use std::{
    array,
    hash::{DefaultHasher, Hash, Hasher as _},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use kernel::db;
use moka::sync::Cache;

/// Nothing is remembered longer than this, whatever nobody said.
pub const REMEMBERED: Duration = Duration::from_mins(1);
pub const MOST: u64 = 50_000;
const SHARES: usize = 64;

pub struct Memory<K, V> {
    cache: Cache<K, Arc<V>>,
    /// Counts what was forgotten, for each share of the keys: what was read before it is not remembered after it.
    forgotten: [AtomicU64; SHARES],
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static, V: Send + Sync + 'static> Default for Memory<K, V> {
    fn default() -> Self {
        let cache = Cache::builder().max_capacity(MOST).time_to_live(REMEMBERED).support_invalidation_closures();
        Self { cache: cache.build(), forgotten: array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static, V: Send + Sync + 'static> Memory<K, V> {
    /// What is remembered, or what is read now. That something is not there is not remembered.
    pub async fn recall(
        &self,
        key: &K,
        read: impl Future<Output = db::Result<Option<V>>>,
    ) -> db::Result<Option<Arc<V>>> {
        if let Some(known) = self.cache.get(key) {
            return Ok(Some(known));
        }
        let forgotten = self.share(key);
        let before = forgotten.load(SeqCst);
        let Some(found) = read.await?.map(Arc::new) else { return Ok(None) };
        self.cache.insert(key.clone(), found.clone());
        if forgotten.load(SeqCst) != before {
            self.cache.invalidate(key);
        }
        Ok(Some(found))
    }

    pub fn forget(&self, key: &K) {
        self.share(key).fetch_add(1, SeqCst);
        self.cache.invalidate(key);
    }

    /// Forgets what is so; all of it, should that fail. Whoever recalls anything then pays for the question.
    pub fn forget_if(&self, is_so: impl Fn(&K, &V) -> bool + Send + Sync + 'static) {
        self.count_all();
        if self.cache.invalidate_entries_if(move |key, value| is_so(key, value)).is_err() {
            self.cache.invalidate_all();
        }
    }

    pub fn forget_all(&self) {
        self.count_all();
        self.cache.invalidate_all();
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

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    async fn recall(memory: &Memory<u8, &'static str>, key: u8, now: &'static str) -> Option<&'static str> {
        memory.recall(&key, ready(Ok(Some(now)))).await.ok().flatten().map(|found| *found)
    }

    #[tokio::test]
    async fn what_is_forgotten_is_read_again_and_nothing_else() {
        let memory = Memory::default();
        for key in [1, 2] {
            assert_eq!(recall(&memory, key, "old").await, Some("old"));
        }
        memory.forget(&1);
        assert_eq!(recall(&memory, 1, "new").await, Some("new"));
        assert_eq!(recall(&memory, 2, "new").await, Some("old"));
        memory.forget_if(|_, value| *value == "old");
        assert_eq!(recall(&memory, 2, "newer").await, Some("newer"));
        assert_eq!(recall(&memory, 1, "newer").await, Some("new"));
        memory.forget_all();
        assert_eq!(recall(&memory, 1, "newest").await, Some("newest"));
    }

    #[tokio::test]
    async fn what_is_forgotten_while_it_is_read_is_not_remembered() {
        let forgets: [fn(&Memory<u8, &'static str>); 3] =
            [|memory| memory.forget(&1), |memory| memory.forget_if(|_, _| true), Memory::forget_all];
        for forget in forgets {
            let memory = Memory::default();
            let read = async {
                forget(&memory);
                Ok(Some("old"))
            };
            assert_eq!(memory.recall(&1, read).await.ok().flatten().as_deref(), Some(&"old"));
            assert_eq!(recall(&memory, 1, "new").await, Some("new"));
        }
    }

    #[tokio::test]
    async fn that_something_is_not_there_is_not_remembered() {
        let memory = Memory::default();
        assert!(matches!(memory.recall(&1, ready(Ok(None))).await, Ok(None)));
        assert_eq!(recall(&memory, 1, "there").await, Some("there"));
    }
}
