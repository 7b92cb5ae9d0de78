//! The clock of a database server.
use std::{
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

/// The time of a database server: the last measurement, carried on by this machine's monotonic clock. The wall clock of
/// this machine may be wrong or jump without any effect. All times are in milliseconds since 1970.
#[derive(Debug)]
pub struct ServerTime {
    begun: Instant,
    /// The server's time at `begun`.
    began_at: AtomicI64,
}

impl ServerTime {
    /// The server answered `time` at some moment between `asked` and `answered`.
    pub fn new(asked: Instant, answered: Instant, time: i64) -> Self {
        let measured = Self { begun: asked, began_at: AtomicI64::new(time) };
        measured.adjust(asked, answered, time);
        measured
    }

    /// Takes in another measurement, which is as exact as the answer was quick. A known time that fits the measurement is
    /// kept, so that time does not jump to and fro with every answer.
    pub fn adjust(&self, asked: Instant, answered: Instant, time: i64) {
        let earliest = time.saturating_sub(millis(answered.saturating_duration_since(self.begun)));
        let latest = time.saturating_sub(millis(asked.saturating_duration_since(self.begun)));
        let known = self.began_at.load(Relaxed);
        // One more for the part of a millisecond that the server does not tell.
        self.began_at.store(known.clamp(earliest, latest.max(earliest) + 1), Relaxed);
    }

    /// The present time.
    pub fn now(&self) -> i64 {
        self.began_at.load(Relaxed).saturating_add(millis(self.begun.elapsed()))
    }
}

fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_server_goes_on_by_itself_and_follows_what_the_server_says() {
        let (second, started) = (Duration::from_secs(1), Instant::now());
        let time = ServerTime::new(started, started, 10_000);
        tokio::time::advance(second).await;
        assert_eq!(time.now(), 11_000, "it goes on between two answers");
        let asked = Instant::now();
        tokio::time::advance(second).await;
        let now = Instant::now();
        time.adjust(asked, now, 11_500);
        assert_eq!(time.now(), 12_000, "an answer that fits changes nothing");
        time.adjust(now, now, 71_000);
        assert_eq!(time.now(), 71_000, "the server's clock was set, and this one follows");
        time.adjust(now, now, 9_000);
        assert!(time.now() - 9_000 <= 1, "backwards, too");
    }
}
