//! How many events of an organization, or of an app with a plan of its own, a node takes in a second.
use std::{collections::HashMap, sync::Mutex, time::Duration};

use kernel::clock::Timestamp;
use tenancy::{apps::ApplicationId, orgs::OrgId};

/// The plan whose pace counts: the organization's, or the app's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Payer {
    Org(OrgId),
    App(ApplicationId),
}

/// Payers whose bucket is full again are forgotten when there are so many.
const MANY: usize = 10_000;

/// A bucket for each payer, which holds as much as one second allows.
#[derive(Default)]
pub struct Pace(Mutex<HashMap<Payer, Bucket>>);

#[derive(Clone, Copy)]
struct Bucket {
    /// In thousandths of an event.
    left: i64,
    at: Timestamp,
}

impl Pace {
    /// Takes `n` events, or says how long to wait. More than a second allows passes when the bucket is full, so that a batch
    /// is not refused for ever; what follows waits for it.
    pub fn take(&self, payer: Payer, n: usize, a_second: u32, now: Timestamp) -> Result<(), Duration> {
        let (most, n) = (i64::from(a_second) * 1000, i64::try_from(n).unwrap_or(i64::MAX / 1000) * 1000);
        let mut buckets = db::lock(&self.0);
        if buckets.len() >= MANY {
            buckets.retain(|_, bucket| now.0 - bucket.at.0 < 60_000);
        }
        let bucket = buckets.entry(payer).or_insert(Bucket { left: most, at: now });
        let refilled = (now.0 - bucket.at.0).max(0).saturating_mul(i64::from(a_second));
        *bucket = Bucket { left: bucket.left.saturating_add(refilled).min(most), at: now.max(bucket.at) };
        if bucket.left >= n.min(most) {
            bucket.left -= n;
            return Ok(());
        }
        let missing = n.min(most) - bucket.left;
        Err(Duration::from_millis(u64::try_from(missing / i64::from(a_second).max(1) + 1).unwrap_or(1000)))
    }
}

#[cfg(test)]
mod tests {
    use kernel::entropy::Entropy;

    use super::*;

    #[test]
    fn a_second_allows_so_many_and_a_large_batch_is_waited_for() {
        let (pace, start) = (Pace::default(), Timestamp(1_000_000));
        let org = Payer::Org(OrgId::new(&Entropy::seeded(1), start));
        assert!(pace.take(org, 10, 10, start).is_ok());
        assert!(pace.take(org, 1, 10, start).is_err());
        assert!(pace.take(org, 1, 10, Timestamp(start.0 + 100)).is_ok());
        assert!(pace.take(org, 25, 10, Timestamp(start.0 + 2000)).is_ok(), "the bucket is full");
        assert!(pace.take(org, 1, 10, Timestamp(start.0 + 3000)).is_err(), "what was too much is waited for");
        assert!(pace.take(org, 1, 10, Timestamp(start.0 + 3700)).is_ok());
    }
}
