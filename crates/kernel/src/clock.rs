//! The clock as a value that is passed in, so that tests can stop and move it.
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

use db::{Db, FromValue, ServerTime, Value};

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

    /// For people, as in `17 November 2026, 14:05 UTC`.
    pub fn in_words(self) -> String {
        self.in_words_at(None)
    }

    /// For people, in their time zone where it is known, as in `17 November 2026, 15:05 (Europe/Zurich)`.
    pub fn in_words_at(self, zone: Option<&str>) -> String {
        let moment = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        match zone.and_then(|name| Some((name, moment.in_tz(name).ok()?))) {
            Some((name, zoned)) => format!("{} ({name})", zoned.strftime("%-d %B %Y, %H:%M")),
            None => moment.strftime("%-d %B %Y, %H:%M UTC").to_string(),
        }
    }

    /// Short, for tables, as in `2026-11-17 15:05`; `None` for a time zone that is not known.
    pub fn short_at(self, zone: &str) -> Option<String> {
        let moment = jiff::Timestamp::from_millisecond(self.0).ok()?;
        Some(moment.in_tz(zone).ok()?.strftime("%Y-%m-%d %H:%M").to_string())
    }

    /// The number of whole UTC days since 1970.
    pub fn day(self) -> Day {
        Day(self.0.div_euclid(Self::DAY_MS))
    }

    /// The UTC month it lies in: when that began, and when the next one begins.
    pub fn month(self) -> (Self, Self) {
        let moment = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        let first = moment.to_zoned(jiff::tz::TimeZone::UTC).date().first_of_month();
        let start = |date: jiff::civil::Date| {
            let zoned = date.to_zoned(jiff::tz::TimeZone::UTC);
            Self(zoned.map_or(self.0, |zoned| zoned.timestamp().as_millisecond()))
        };
        (start(first), start(first.last_of_month().tomorrow().unwrap_or(first)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        write!(f, "{moment:.3}")
    }
}

/// Whether a time zone with this name is known, as in `Europe/Zurich`.
pub fn is_time_zone(name: &str) -> bool {
    name.len() <= 64 && jiff::tz::TimeZone::get(name).is_ok()
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

/// The clock of this machine, of the database server, or a manual one for tests.
#[derive(Debug, Clone)]
pub enum Clock {
    System,
    /// The database server's time, for leases and other moments that one node writes and another compares.
    Database(Arc<ServerTime>),
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// The clock that all nodes on this database share.
    pub fn shared(db: &Db) -> Self {
        db.server_time().map_or(Self::System, Self::Database)
    }

    pub fn manual(start: Timestamp) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(start.0)))
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp(jiff::Timestamp::now().as_millisecond()),
            Self::Database(time) => Timestamp(time.now()),
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

    #[test]
    fn a_moment_is_read_back_as_it_was_written() {
        let written = serde_json::to_string(&Timestamp(1_769_853_600_007)).unwrap();
        assert_eq!(serde_json::from_str::<Timestamp>(&written).unwrap(), Timestamp(1_769_853_600_007));
        assert!(serde_json::from_str::<Timestamp>("\"yesterday\"").is_err());
    }
}
