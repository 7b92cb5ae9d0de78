//! The events of a request: what each must look like, and what the caller's key may track.
use std::{collections::BTreeMap, fmt::Write as _};

use kernel::{
    Janua,
    clock::Timestamp,
    crypto,
    fault::{Code, INVALID, Result},
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use tenancy::{
    apps::{ApplicationId, Environment, KeyKind},
    enter::SECRET_KEY_REQUIRED,
    machines::MachineId,
};

use super::{
    UNKNOWN_METER,
    access::Tracker,
    model::{Sighting, StoredEvent, UsageEventId},
};
use crate::plans::{Aggregation, Keys, Plans};

pub const OUT_OF_WINDOW: Code =
    Code::new(400, "timestamp_out_of_window", "The timestamp is more than 35 days ago or more than 5 minutes ahead.");
pub const CURRENCY_MISMATCH: Code =
    Code::new(400, "currency_mismatch", "The cost is in another currency than the plans of this installation.");

const DAY: i64 = Timestamp::DAY_MS;
const OLDEST: i64 = 35 * DAY;
const AHEAD: i64 = 5 * 60 * 1000;
/// The largest number that JSON carries exactly everywhere.
const LARGEST: i64 = (1 << 53) - 1;
/// What a publishable key may add at once.
const LARGEST_PUBLIC: i64 = 1000;

/// A value that is there, also when it is `null`.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// One event.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NewEvent {
    meter: Option<String>,
    /// A whole number from 1 to 2^53-1; left out: 1. For a correction the right value, from 0 on.
    #[serde(deserialize_with = "present")]
    value: Option<Value>,
    /// Your id of a customer.
    customer: Option<String>,
    /// Your id of the event, up to 128 visible ASCII characters. What comes again is counted once.
    event_id: Option<String>,
    /// From 35 days ago to 5 minutes ahead; left out: now.
    timestamp: Option<Timestamp>,
    /// Up to 20 texts of 256 characters. `key` is what a `unique` meter counts.
    properties: Option<BTreeMap<String, String>>,
    cost: Option<EventCost>,
    /// The agent, framework agent or MCP server that used it, with a secret key. It counts on its limits, too.
    agent_id: Option<MachineId>,
    /// The `eventId` of an event whose value was wrong.
    pub correct: Option<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
pub struct EventCost {
    /// Minor units as a decimal number, such as `"0.025"`.
    amount: String,
    /// In lower case, such as `"usd"`.
    currency: String,
}

/// An event that was checked.
pub struct Checked {
    pub index: usize,
    pub digest: String,
    pub content: String,
    pub what: What,
    /// The machine on whose limits it counts.
    pub agent: Option<Agent>,
    pub stored: StoredEvent,
}

impl Checked {
    pub fn sighting(&self) -> Sighting<'_> {
        Sighting { digest: &self.digest, content: &self.content, event: self.stored.id }
    }
}

/// A machine that uses something.
#[derive(Clone, Copy)]
pub struct Agent {
    pub id: MachineId,
    /// That of its token, if one came along. Without one it must be of the app's organization.
    pub generation: Option<i64>,
}

/// The machine of a request: that of the token, or the one that a secret key names.
fn agent_of(tracker: &Tracker, named: Option<MachineId>) -> Result<Option<Agent>> {
    if let Some(found) = &tracker.machine {
        if named.is_some_and(|id| id != found.machine.id) {
            return Err(INVALID.at("agentId", "other", "is not the agent of the token"));
        }
        return Ok(Some(Agent { id: found.machine.id, generation: Some(found.claims.generation) }));
    }
    if named.is_some() && tracker.keyed.kind != KeyKind::Secret {
        return Err(SECRET_KEY_REQUIRED.into());
    }
    Ok(named.map(|id| Agent { id, generation: None }))
}

pub enum What {
    Event,
    Correction { of: String, digest: String },
}

fn visible(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Checks one event.
pub fn check(
    janua: &Janua,
    tracker: &Tracker,
    environment: Environment,
    now: Timestamp,
    index: usize,
    new: NewEvent,
) -> Result<Checked> {
    let keyed = &tracker.keyed;
    let is_secret = keyed.kind == KeyKind::Secret;
    let agent = agent_of(tracker, new.agent_id)?;
    let mut content =
        json!([&new.meter, &new.value, &new.customer, new.timestamp, &new.properties, &new.cost, &new.correct])
            .to_string();
    if let Some(agent) = &agent {
        let _ = write!(content, "{}", agent.id);
    }
    let content = crypto::hash(content.as_bytes());
    let value = shape(&new)?;
    let (customer, properties) = (new.customer.unwrap_or_default(), new.properties.unwrap_or_default());
    let cost = new.cost.as_ref().map(|cost| cost_of(janua, cost)).transpose()?;
    if let Some(timestamp) = new.timestamp
        && !(now.0 - OLDEST..=now.0 + AHEAD).contains(&timestamp.0)
    {
        return Err(OUT_OF_WINDOW.at("timestamp", "range", "must be from 35 days ago to 5 minutes ahead"));
    }
    let id = UsageEventId::new(&janua.entropy, now);
    let event_id = new.event_id.unwrap_or_else(|| match &tracker.idempotency_key {
        Some(key) => format!("key:{}:{index}", crypto::hash(key.as_bytes())),
        None => id.to_string(),
    });
    let digest_of = |id: &str| digest(janua, keyed.app_id, environment, id);
    let mut stored = StoredEvent {
        id,
        app_id: keyed.app_id,
        environment,
        meter: String::new(),
        at: new.timestamp.unwrap_or(now),
        received_at: now,
        value,
        customer,
        event_id,
        properties: json!(properties),
        cost,
        corrects: None,
    };
    if let Some(of) = new.correct {
        if !is_secret {
            return Err(SECRET_KEY_REQUIRED.into());
        }
        let digest = digest_of(&format!("correct:{of}:{}", stored.event_id));
        let what = What::Correction { digest: digest_of(&of), of };
        return Ok(Checked { index, digest, content, what, agent: None, stored });
    }
    let name = new.meter.unwrap_or_default();
    let meter = Plans::of(janua).meters.get(&name);
    let meter = meter.ok_or_else(|| UNKNOWN_METER.at("meter", "unknown", "is not the name of a meter"))?;
    if !is_secret {
        let is_late = (stored.at.0 - now.0).abs() > AHEAD;
        let user = tracker.user.map(|user| user.to_string());
        let is_foreign = !stored.customer.is_empty() && user.as_deref() != Some(&stored.customer);
        if meter.keys != Keys::Any || value > LARGEST_PUBLIC || is_late || is_foreign || stored.cost.is_some() {
            return Err(SECRET_KEY_REQUIRED.into());
        }
        if let Some(user) = user {
            stored.customer = user;
        }
    }
    match meter.aggregation {
        Aggregation::Count | Aggregation::Unique => stored.value = 1,
        _ => {}
    }
    if meter.aggregation == Aggregation::Unique && unique_key(&stored).is_empty() {
        return Err(INVALID.at("properties.key", "required", "or customer is required by a meter of unique keys"));
    }
    stored.meter = name;
    let digest = digest_of(&stored.event_id);
    Ok(Checked { index, digest, content, what: What::Event, agent, stored })
}

/// The value of an event whose fields have the right form. All that are wrong are named at once.
fn shape(new: &NewEvent) -> Result<i64> {
    let mut wrong: Vec<(&str, &'static str, &str)> = vec![];
    let least = i64::from(new.correct.is_none());
    let value = new.value.as_ref().map(|value| value.as_i64().filter(|value| (least..=LARGEST).contains(value)));
    match value {
        Some(None) => wrong.push(("value", "range", "must be a whole number from 1 to 9007199254740991")),
        None if new.correct.is_some() => wrong.push(("value", "required", "is required for a correction")),
        _ => {}
    }
    if new.event_id.as_deref().is_some_and(|id| !visible(id)) {
        wrong.push(("eventId", "format", "must be 1 to 128 visible ASCII characters"));
    }
    let is_long = |text: &str, most| text.chars().count() > most || text.chars().any(char::is_control);
    if new.customer.as_deref().is_some_and(|customer| is_long(customer, 128)) {
        wrong.push(("customer", "length", "must have at most 128 characters, and no control characters"));
    }
    let fits = |(name, value): (&String, &String)| !name.is_empty() && !is_long(name, 128) && !is_long(value, 256);
    if new.properties.as_ref().is_some_and(|properties| properties.len() > 20 || !properties.iter().all(fits)) {
        wrong.push(("properties", "length", "must be at most 20 texts of 256 characters by names of 128"));
    }
    if new.meter.is_none() && new.correct.is_none() {
        wrong.push(("meter", "required", "is required"));
    }
    let Some((field, code, message)) = wrong.first().copied() else { return Ok(value.flatten().unwrap_or(1)) };
    let first = INVALID.at(field, code, message);
    Err(wrong.into_iter().skip(1).fold(first, |fault, (field, code, message)| fault.and(field, code, message)))
}

fn cost_of(janua: &Janua, cost: &EventCost) -> Result<String> {
    let (whole, places) = cost.amount.split_once('.').unwrap_or((&cost.amount, "0"));
    let is_number = |part: &str, most| (1..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole, 15) || !is_number(places, 12) {
        return Err(INVALID.at("cost.amount", "format", "must be a decimal number such as 0.025"));
    }
    if cost.currency != Plans::of(janua).currency {
        return Err(CURRENCY_MISMATCH.into());
    }
    Ok(format!("{} {}", cost.amount, cost.currency))
}

/// Ids are of one app and environment, and tell nothing to who reads the table.
fn digest(janua: &Janua, app: ApplicationId, environment: Environment, id: &str) -> String {
    let mut digest = janua.vault.mac("usage-event", format!("{app}\n{}\n{id}", environment.name()).as_bytes());
    digest.truncate(32);
    digest
}

/// What a meter of unique keys counts.
pub fn unique_key(event: &StoredEvent) -> &str {
    event.properties.get("key").and_then(Value::as_str).filter(|key| !key.is_empty()).unwrap_or(&event.customer)
}
