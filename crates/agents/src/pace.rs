//! How often somebody may ask in a minute, on this node. Nothing is written, so asking too often costs next to nothing.
use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Fault, RATE_LIMITED, Result},
};
use tenancy::machines::MachineId;

/// More than these are not told apart for long.
const MANY: usize = 50_000;
const MINUTE_MS: i64 = 60_000;

/// A bucket for each caller, which fills up again within a minute.
pub struct Pace<K> {
    a_minute: i64,
    buckets: Mutex<HashMap<K, Bucket>>,
}

#[derive(Clone, Copy)]
struct Bucket {
    /// In parts of a request: a request has as many as a minute has milliseconds.
    left: i64,
    at: Timestamp,
}

impl<K: Eq + Hash> Pace<K> {
    fn new(a_minute: i64) -> Self {
        Self { a_minute, buckets: Mutex::default() }
    }

    /// Takes one, or says how long to wait.
    fn take(&self, who: K, now: Timestamp) -> Result<(), Duration> {
        let full = self.a_minute * MINUTE_MS;
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MANY {
            buckets.retain(|_, bucket| now.0 - bucket.at.0 < MINUTE_MS);
            if buckets.len() >= MANY {
                buckets.clear();
            }
        }
        let bucket = buckets.entry(who).or_insert(Bucket { left: full, at: now });
        let refilled = (now.0 - bucket.at.0).clamp(0, MINUTE_MS) * self.a_minute;
        *bucket = Bucket { left: (bucket.left + refilled).min(full), at: now.max(bucket.at) };
        if bucket.left >= MINUTE_MS {
            bucket.left -= MINUTE_MS;
            return Ok(());
        }
        let missing = (MINUTE_MS - bucket.left) / self.a_minute + 1;
        Err(Duration::from_millis(u64::try_from(missing).unwrap_or(1000)))
    }

    pub fn refuse_too_many(&self, janua: &Janua, who: K) -> Result<()> {
        if !janua.config.rate_limits.is_on() {
            return Ok(());
        }
        self.take(who, janua.clock.now()).map_err(|wait| Fault::from(RATE_LIMITED).retry_after(wait))
    }
}

pub struct Paces {
    pub challenges: Pace<IpAddr>,
    pub tokens: Pace<MachineId>,
    pub switches: Pace<IpAddr>,
}

impl Default for Paces {
    fn default() -> Self {
        Self { challenges: Pace::new(30), tokens: Pace::new(60), switches: Pace::new(10) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_fills_up_in_a_minute_and_a_clock_that_goes_back_fills_none() {
        let (pace, start) = (Pace::new(10), Timestamp(1_000_000));
        assert!((0..10).all(|_| pace.take("a", start).is_ok()));
        assert_eq!(pace.take("a", start), Err(Duration::from_millis(6001)));
        assert!(pace.take("b", start).is_ok(), "others are not held up");
        assert!(pace.take("a", Timestamp(start.0 - 3_600_000)).is_err());
        assert!(pace.take("a", Timestamp(start.0 + 6000)).is_ok());
        assert!(pace.take("a", Timestamp(start.0 + 6000)).is_err());
        assert_eq!((0..20).filter(|_| pace.take("a", Timestamp(start.0 + 600_000)).is_ok()).count(), 10);
    }

    #[test]
    fn a_crowd_takes_a_bounded_place() {
        let pace = Pace::new(10);
        for caller in 0..2 * MANY {
            let _ = pace.take(caller, Timestamp(0));
        }
        assert!(pace.buckets.lock().unwrap().len() <= MANY);
    }
}
