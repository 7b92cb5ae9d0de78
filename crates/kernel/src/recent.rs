//! A cache with a bounded number of entries and a lifetime for each.
//!
//! The library bounds the number and chooses what to evict. The lifetime is added here, because the library knows no
//! time.
use std::{
    hash::Hash,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use quick_cache::{Equivalent, sync::Cache};
use tokio::time::Instant;

pub struct Recent<K, V> {
    cache: Cache<K, Entry<V>>,
    lifetime: Duration,
    begun: Instant,
    /// When expired entries were last removed, in whole lifetimes since the start.
    swept: AtomicU64,
}

#[derive(Clone)]
struct Entry<V> {
    value: V,
    since: Instant,
}

impl<K: Hash + Eq, V: Clone> Recent<K, V> {
    pub fn new(most: usize, lifetime: Duration) -> Self {
        Self { cache: Cache::new(most), lifetime, begun: Instant::now(), swept: AtomicU64::new(0) }
    }

    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V> {
        self.cache.get(key).filter(|kept| kept.since.elapsed() < self.lifetime).map(|kept| kept.value)
    }

    /// The first insert after each `lifetime` removes expired entries, so that they do not stay until their place is
    /// needed.
    pub fn insert(&self, key: K, value: V) {
        let since = Instant::now();
        self.cache.insert(key, Entry { value, since });
        let lifetimes = since.duration_since(self.begun).as_nanos() / self.lifetime.as_nanos().max(1);
        let lifetimes = u64::try_from(lifetimes).unwrap_or(u64::MAX);
        if self.swept.swap(lifetimes, Relaxed) != lifetimes {
            self.cache.retain(|_, kept| kept.since.elapsed() < self.lifetime);
        }
    }

    pub fn forget(&self, key: &K) {
        self.cache.remove(key);
    }

    pub fn forget_all(&self) {
        self.cache.clear();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[test]
    fn only_so_many_are_kept() {
        let recent = Recent::new(100, Duration::from_mins(1));
        for number in 0..10_000 {
            recent.insert(number, number);
            assert_eq!(recent.get(&number), Some(number));
        }
        assert!((0..10_000).filter(|number| recent.get(number).is_some()).count() <= 100);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_for_longer_than_its_time() {
        let recent = Recent::new(100, Duration::from_mins(1));
        recent.insert("early", 1);
        advance(Duration::from_secs(59)).await;
        assert_eq!(recent.get(&"early"), Some(1));
        advance(Duration::from_secs(1)).await;
        assert_eq!(recent.get(&"early"), None, "it is over, though it is still there");
        recent.insert("late", 2);
        assert_eq!(recent.cache.len(), 1, "whoever adds something lets go of what is over");
    }

    #[test]
    fn what_is_forgotten_is_gone_and_nothing_else() {
        let recent = Recent::new(100, Duration::from_mins(1));
        for number in 1..=4 {
            recent.insert(number, number * 10);
        }
        recent.forget(&1);
        assert_eq!([1, 2, 3, 4].map(|key| recent.get(&key)), [None, Some(20), Some(30), Some(40)]);
        recent.forget_all();
        assert_eq!(recent.get(&4), None);
    }
}
