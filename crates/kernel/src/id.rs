//! Typed ids: an incident's id cannot be passed where an account's is expected.
//!
//! `Id<Kind>` is a UUIDv7 kept as text. `Kind` is any type of the feature, usually the stored struct itself:
//! `pub type IncidentId = Id<Incident>;`.
use std::{borrow::Cow, cmp::Ordering, fmt, hash, marker::PhantomData, str::FromStr};

use db::{FromValue, Value};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use uuid::{Builder, Uuid};

use crate::{clock::Timestamp, entropy::Entropy};

pub struct Id<Kind>(Uuid, PhantomData<fn() -> Kind>);

impl<Kind> Id<Kind> {
    pub fn new(entropy: &Entropy, now: Timestamp) -> Self {
        Self(entropy.uuid(now), PhantomData)
    }

    /// The moment of creation, which a UUIDv7 begins with.
    pub fn moment(self) -> Timestamp {
        let (seconds, nanos) = self.0.get_timestamp().map_or((0, 0), |at| at.to_unix());
        Timestamp(i64::try_from(seconds).unwrap_or_default() * 1000 + i64::from(nanos / 1_000_000))
    }

    /// The smallest id of a moment. Ids created before it are smaller, also as text.
    pub fn first_of(moment: Timestamp) -> Self {
        let millis = u64::try_from(moment.0).unwrap_or_default();
        Self(Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid(), PhantomData)
    }

    /// Its one spelling; there are several ids in everything that is written, and a formatter takes longer.
    fn with_text<T>(&self, say: impl FnOnce(&str) -> T) -> T {
        say(self.0.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
    }

    /// For standards that want the bytes.
    pub fn uuid(self) -> Uuid {
        self.0
    }
}

impl<Kind> Clone for Id<Kind> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<Kind> Copy for Id<Kind> {}
impl<Kind> PartialEq for Id<Kind> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<Kind> Eq for Id<Kind> {}
impl<Kind> PartialOrd for Id<Kind> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<Kind> Ord for Id<Kind> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}
impl<Kind> hash::Hash for Id<Kind> {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}
impl<Kind> fmt::Debug for Id<Kind> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
impl<Kind> fmt::Display for Id<Kind> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl<Kind> FromStr for Id<Kind> {
    type Err = uuid::Error;

    /// Only the usual spelling with hyphens in lower case: every id has exactly one name.
    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        let id = Self(Uuid::try_parse(text)?, PhantomData);
        if id.with_text(|usual| usual == text) { Ok(id) } else { Uuid::try_parse("").map(|id| Self(id, PhantomData)) }
    }
}

impl<Kind> Serialize for Id<Kind> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.with_text(|text| to.serialize_str(text))
    }
}
impl<'de, Kind> Deserialize<'de> for Id<Kind> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(from)?.parse().map_err(|_| D::Error::custom("must be an id"))
    }
}
impl<Kind> JsonSchema for Id<Kind> {
    fn schema_name() -> Cow<'static, str> {
        "Id".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "uuid" })
    }
    fn inline_schema() -> bool {
        true
    }
}

impl<Kind> From<Id<Kind>> for Value {
    fn from(id: Id<Kind>) -> Self {
        id.with_text(|text| Self::Text(text.to_owned()))
    }
}
impl<Kind> FromValue for Id<Kind> {
    fn from_value(value: Value) -> Option<Self> {
        String::from_value(value)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing;

    #[test]
    fn what_was_made_before_a_moment_has_a_lesser_id() {
        let (entropy, moment) = (Entropy::seeded(1), Timestamp(1_700_000_000_000));
        let first = Id::<Thing>::first_of(moment).to_string();
        assert!(Id::<Thing>::new(&entropy, Timestamp(moment.0 - 1)).to_string() < first);
        assert!(Id::<Thing>::new(&entropy, moment).to_string() >= first);
        assert_eq!(Id::<Thing>::first_of(moment).moment(), moment);
    }

    #[test]
    fn an_id_has_exactly_one_spelling() {
        let id = Id::<Thing>::new(&Entropy::seeded(1), Timestamp(0)).to_string();
        assert!(id.parse::<Id<Thing>>().is_ok());
        for other in [id.to_uppercase(), id.replace('-', ""), format!("{{{id}}}"), format!("urn:uuid:{id}")] {
            assert!(other.parse::<Id<Thing>>().is_err(), "{other}");
        }
    }
}
