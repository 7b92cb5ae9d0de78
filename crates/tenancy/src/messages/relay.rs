//! The mail server as this node sees it. While it is away mails wait without being tried one by one: now and then one of
//! them is tried, and the others follow once that one went out. So a server that hangs costs one hand of the worker.
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kernel::clock::Timestamp;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

/// How many mails are on their way at once; fewer on a node with few hands.
const MOST_AT_ONCE: usize = 4;
/// A server that works is done with a mail in less.
const PATIENCE: Duration = Duration::from_millis(200);
/// After the first failure; each further one doubles it.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// How long one try may take, before another mail is tried.
const LONGEST_TRY: Duration = Duration::from_mins(2);

pub struct Relay {
    places: Semaphore,
    outage: Mutex<Option<Outage>>,
}

struct Outage {
    cause: String,
    failures: u32,
    /// Nothing is tried before this.
    until: Timestamp,
    /// A mail is being tried, to see whether it is over.
    trial_ends: Option<Timestamp>,
}

/// Why a mail is not tried now.
#[derive(Debug, PartialEq, Eq)]
pub struct Wait {
    pub cause: String,
    pub length: Duration,
}

impl Relay {
    /// For a node with so many hands; at least one of them is free for other work, if there are two.
    pub fn new(hands: usize) -> Self {
        Self { places: Semaphore::new((hands / 2).clamp(1, MOST_AT_ONCE)), outage: Mutex::default() }
    }

    /// For another queue than the platform's own, which sends so many mails at once.
    pub fn with_places(places: usize) -> Self {
        Self { places: Semaphore::new(places.max(1)), outage: Mutex::default() }
    }

    /// For how long nothing is tried now; nothing while the server is there.
    pub fn waits(&self, now: Timestamp) -> Option<Duration> {
        self.look(now).err().map(|wait| wait.length)
    }

    /// A permit to send one mail; its holder reports how it [`Self::ended`].
    pub async fn enter(&self, now: Timestamp) -> Result<SemaphorePermit<'_>, Wait> {
        self.look(now)?;
        let busy = || Wait { cause: "other mails are on their way".into(), length: FIRST_WAIT };
        let place = timeout(PATIENCE, self.places.acquire()).await.ok().and_then(Result::ok).ok_or_else(busy)?;
        self.begin(now)?;
        Ok(place)
    }

    fn look(&self, now: Timestamp) -> Result<(), Wait> {
        let outage = self.outage();
        let Some(outage) = outage.as_ref() else { return Ok(()) };
        let wait = |until: Timestamp| Wait { cause: outage.cause.clone(), length: until.since(now) };
        // A moment further off than any wait is of a clock that was set back since.
        if outage.until > now && outage.until <= now.plus(LONGEST_WAIT) {
            return Err(wait(outage.until));
        }
        match outage.trial_ends {
            Some(ends) if ends > now && ends <= now.plus(LONGEST_TRY) => Err(wait(now.plus(FIRST_WAIT))),
            _ => Ok(()),
        }
    }

    fn begin(&self, now: Timestamp) -> Result<(), Wait> {
        self.look(now)?;
        if let Some(outage) = self.outage().as_mut() {
            outage.trial_ends = Some(now.plus(LONGEST_TRY));
        }
        Ok(())
    }

    /// The server talked to us (`None`), or did not. Answers how long nothing is tried now.
    pub fn ended(&self, now: Timestamp, fault: Option<&str>) -> Duration {
        let mut outage = self.outage();
        let Some(cause) = fault else {
            *outage = None;
            return Duration::ZERO;
        };
        let failures = match outage.as_ref() {
            // Those under way when it went away all fail; they are one failure.
            Some(before) if before.trial_ends.is_none() => before.failures,
            Some(before) => before.failures + 1,
            None => 1,
        };
        let wait = FIRST_WAIT.saturating_mul(1 << (failures - 1).min(16)).min(LONGEST_WAIT);
        *outage = Some(Outage { cause: cause.to_owned(), failures, until: now.plus(wait), trial_ends: None });
        wait
    }

    /// Nothing can fail while it is held.
    fn outage(&self) -> MutexGuard<'_, Option<Outage>> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp(1_769_853_600_000);

    fn after(seconds: u64) -> Timestamp {
        START.plus(Duration::from_secs(seconds))
    }

    #[tokio::test]
    async fn while_the_server_is_away_one_mail_at_a_time_looks_whether_it_is_back() {
        let relay = Relay::new(8);
        let (one, two) = (relay.enter(START).await.unwrap(), relay.enter(START).await.unwrap());
        assert_eq!(relay.ended(START, Some("535 no")), Duration::from_secs(1));
        assert_eq!(relay.ended(START, Some("535 no")), Duration::from_secs(1), "two under way are one failure");
        drop((one, two));
        assert_eq!(relay.enter(START).await.unwrap_err().cause, "535 no", "the others hear why");
        let trial = relay.enter(after(1)).await.unwrap();
        assert_eq!(relay.enter(after(1)).await.unwrap_err().length, FIRST_WAIT, "one is tried, the others wait");
        assert_eq!(relay.ended(after(1), Some("535 no")), Duration::from_secs(2));
        drop(trial);
        assert!(relay.enter(after(2)).await.is_err());
        for seconds in [3, 100, 200, 300, 400, 500, 600, 700] {
            drop(relay.enter(after(seconds)).await.unwrap());
            assert!(relay.ended(after(seconds), Some("535 no")) <= LONGEST_WAIT);
        }
        let trial = relay.enter(after(1000)).await.unwrap();
        assert_eq!(relay.ended(after(1000), None), Duration::ZERO);
        let other = relay.enter(after(1000)).await.unwrap();
        drop((trial, other));
        assert_eq!(relay.ended(after(1001), Some("421 bye")), FIRST_WAIT, "it begins anew");
    }

    #[tokio::test]
    async fn neither_a_lost_trial_nor_a_clock_set_back_stops_mail_for_good() {
        let relay = Relay::new(8);
        relay.ended(START, Some("away"));
        drop(relay.enter(after(1)).await.unwrap());
        assert!(relay.enter(after(60)).await.is_err(), "somebody still tries");
        assert!(relay.enter(after(200)).await.is_ok(), "that one never came back");
        relay.ended(after(200), Some("away"));
        assert!(relay.enter(START.minus(Duration::from_hours(24))).await.is_ok(), "the clock was wrong");
    }

    #[tokio::test(start_paused = true)]
    async fn mails_on_their_way_leave_hands_for_other_work() {
        for (hands, most) in [(1, 1), (2, 1), (4, 2), (8, 4), (64, 4)] {
            let relay = Relay::new(hands);
            let mut places = vec![];
            while let Ok(place) = relay.enter(START).await {
                places.push(place);
            }
            assert_eq!(places.len(), most, "of {hands} hands");
        }
    }
}
