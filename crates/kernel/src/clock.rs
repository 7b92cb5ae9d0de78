//! Time as a value that is handed in, so that a test can hold it still and move it.
use std::{
    borrow::Cow,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use tokio::time::Instant;

use crate::db::{FromValue, Value};

/// Milliseconds since 1970 in UTC: a BIGINT in the database, ISO 8601 with milliseconds on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub const DAY_MS: i64 = 86_400_000;

    #[must_use]
    pub fn plus(self, length: Duration) -> Self {
        Self(self.0.saturating_add(millis(length)))
    }

    #[must_use]
    pub fn minus(self, length: Duration) -> Self {
        Self(self.0.saturating_sub(millis(length)))
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The number of whole UTC days since 1970.
    pub fn day(self) -> Day {
        Day(self.0.div_euclid(Self::DAY_MS))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        write!(f, "{moment:.3}")
    }
}

/// A UTC day, counted from 1970; `2026-01-31` on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub i64);

impl Day {
    pub fn start(self) -> Timestamp {
        Timestamp(self.0.saturating_mul(Timestamp::DAY_MS))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = jiff::Timestamp::from_millisecond(self.start().0).unwrap_or_default();
        write!(f, "{}", moment.strftime("%Y-%m-%d"))
    }
}

fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        text.parse::<jiff::Timestamp>()
            .map(|moment| Self(moment.as_millisecond()))
            .map_err(|_| D::Error::custom("must be an ISO 8601 moment such as 2026-01-31T10:00:00.000Z"))
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time", "examples": ["2026-01-31T10:00:00.000Z"] })
    }
    fn inline_schema() -> bool {
        true
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl JsonSchema for Day {
    fn schema_name() -> Cow<'static, str> {
        "Day".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date", "examples": ["2026-01-31"] })
    }
    fn inline_schema() -> bool {
        true
    }
}

impl From<Timestamp> for Value {
    fn from(moment: Timestamp) -> Self {
        Self::Int(moment.0)
    }
}

impl FromValue for Timestamp {
    fn from_value(value: Value) -> Option<Self> {
        i64::from_value(value).map(Self)
    }
}

impl From<Day> for Value {
    fn from(day: Day) -> Self {
        Self::Int(day.0)
    }
}

impl FromValue for Day {
    fn from_value(value: Value) -> Option<Self> {
        i64::from_value(value).map(Self)
    }
}

/// The wall clock of this machine, that of the database server, or one that stands still until it is moved.
#[derive(Debug, Clone)]
pub enum Clock {
    System,
    /// What nodes share: leases, and every other moment that one node writes and another one compares.
    Database(Arc<DatabaseTime>),
    Manual(Arc<AtomicI64>),
}

/// The time of a database server, as measured last and carried on by a clock that nobody can set: this machine's wall
/// clock may be wrong or jump without any effect.
#[derive(Debug)]
pub struct DatabaseTime {
    begun: Instant,
    /// The server's time when this began, in milliseconds since 1970.
    began_at: AtomicI64,
}

impl DatabaseTime {
    /// The server said `time` some time between the two moments.
    pub(crate) fn new(asked: Instant, answered: Instant, time: Timestamp) -> Self {
        let measured = Self { begun: asked, began_at: AtomicI64::new(time.0) };
        measured.adjust(asked, answered, time);
        measured
    }

    /// A measurement is as exact as the answer was quick. Within that, what is known already is kept, so that time does
    /// not jump to and fro with every answer.
    pub(crate) fn adjust(&self, asked: Instant, answered: Instant, time: Timestamp) {
        let earliest = time.minus(answered.saturating_duration_since(self.begun)).0;
        let latest = time.minus(asked.saturating_duration_since(self.begun)).0;
        let known = self.began_at.load(Relaxed);
        // One more for the part of a millisecond that is not said.
        self.began_at.store(known.clamp(earliest, latest.max(earliest) + 1), Relaxed);
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.began_at.load(Relaxed)).plus(self.begun.elapsed())
    }
}

impl Clock {
    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(start.0)))
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp(jiff::Timestamp::now().as_millisecond()),
            Self::Database(time) => time.now(),
            Self::Manual(at) => Timestamp(at.load(Relaxed)),
        }
    }

    /// Moves a manual clock; the others cannot be moved.
    pub fn advance(&self, by: Duration) {
        if let Self::Manual(at) = self {
            at.fetch_add(millis(by), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_with_milliseconds_always() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(1_769_853_600_007).to_string(), "2026-01-31T10:00:00.007Z");
        assert_eq!(Timestamp(1_769_853_600_007).day().to_string(), "2026-01-31");
        assert_eq!(Timestamp(-1).day(), Day(-1), "days before 1970 are counted down");
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_database_goes_on_by_itself_and_follows_what_the_server_says() {
        let (second, started) = (Duration::from_secs(1), Instant::now());
        let time = Arc::new(DatabaseTime::new(started, started, Timestamp(10_000)));
        let clock = Clock::Database(time.clone());
        tokio::time::advance(second).await;
        assert_eq!(clock.now(), Timestamp(11_000), "it goes on between two answers");
        let asked = Instant::now();
        tokio::time::advance(second).await;
        let now = Instant::now();
        time.adjust(asked, now, Timestamp(11_500));
        assert_eq!(clock.now(), Timestamp(12_000), "an answer that fits changes nothing");
        time.adjust(now, now, Timestamp(71_000));
        assert_eq!(clock.now(), Timestamp(71_000), "the server's clock was set, and this one follows");
        time.adjust(now, now, Timestamp(9_000));
        assert!(clock.now().0 - 9_000 <= 1, "backwards, too");
    }

    #[test]
    fn a_moment_is_read_back_as_it_was_written() {
        let written = serde_json::to_string(&Timestamp(1_769_853_600_007)).unwrap();
        assert_eq!(serde_json::from_str::<Timestamp>(&written).unwrap(), Timestamp(1_769_853_600_007));
        assert!(serde_json::from_str::<Timestamp>("\"yesterday\"").is_err());
    }
}
