//! `POST /usage/track`: events are counted once and are on the disk before the answer.
use std::collections::{BTreeMap, HashMap};

use axum::extract::State;
use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    crypto,
    fault::{Code, Fault, INVALID, RATE_LIMITED, Result},
    http::{Json, Routes},
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use tenancy::{
    apps::{ApplicationId, Environment, KeyKind},
    events::{self, About, By},
    orgs::{Org, OrgId},
    quotas::{self, Limit, Meter, Outcome, Pool, QUOTA_EXCEEDED, Used},
};

use super::{
    UNKNOWN_METER, UsageCorrected,
    access::Tracker,
    model::{self, Addition, Place, QUARTER, Seen, StoredEvent, UsageEventId},
    pace::Pace,
};
use crate::plans::{Aggregation, Keys, Plans, TrackedMeter};

const SECRET_KEY_REQUIRED: Code = Code::new(
    403,
    "secret_key_required",
    "A publishable key may not do this. Track it from a server, with a secret key.",
);
const OUT_OF_WINDOW: Code =
    Code::new(400, "timestamp_out_of_window", "The timestamp is more than 35 days ago or more than 5 minutes ahead.");
const EVENT_CONFLICT: Code =
    Code::new(409, "event_conflict", "An event with this id was tracked before, with another content.");
const CURRENCY_MISMATCH: Code =
    Code::new(400, "currency_mismatch", "The cost is in another currency than the plans of this installation.");
const UNKNOWN_EVENT: Code = Code::new(400, "unknown_event", "There is no event of this id that could be corrected.");

/// How many events one request has at most.
const BATCH: usize = 1000;
const DAY: i64 = Timestamp::DAY_MS;
const OLDEST: i64 = 35 * DAY;
const AHEAD: i64 = 5 * 60 * 1000;
/// The largest number that JSON carries exactly everywhere.
const LARGEST: i64 = (1 << 53) - 1;
/// What a publishable key may add at once.
const LARGEST_PUBLIC: i64 = 1000;

pub fn routes() -> Routes {
    Routes::new("usage").post("/usage/track", track, "record a metered usage event, or up to 1000 of them").fails(&[
        UNKNOWN_METER,
        SECRET_KEY_REQUIRED,
        OUT_OF_WINDOW,
        EVENT_CONFLICT,
        CURRENCY_MISMATCH,
        UNKNOWN_EVENT,
        QUOTA_EXCEEDED,
        RATE_LIMITED,
    ])
}

/// A value that is there, also when it is `null`.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// One event.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct NewEvent {
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
    /// The `eventId` of an event whose value was wrong.
    correct: Option<String>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct EventCost {
    /// Minor units as a decimal number, such as `"0.025"`.
    amount: String,
    /// In lower case, such as `"usd"`.
    currency: String,
}

/// One event, or `events` with up to 1000 of them.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Track {
    #[serde(flatten)]
    event: NewEvent,
    /// Events with the fields beside this one.
    #[schemars(with = "Option<Vec<serde_json::Map<String, Value>>>", length(min = 1, max = 1000))]
    events: Option<Vec<NewEvent>>,
    /// With a secret key: `test` counts apart from everything, without quotas.
    environment: Option<Environment>,
}

#[derive(Serialize, JsonSchema)]
struct Tracked {
    /// How many events were counted now.
    accepted: usize,
    /// How many were counted before.
    duplicates: usize,
    rejected: Vec<Rejected>,
    /// The meters that were tracked, with what the organization has used of them in the present period.
    usage: BTreeMap<String, MeterState>,
    livemode: bool,
}

#[derive(Serialize, JsonSchema)]
struct Rejected {
    index: usize,
    code: String,
    message: String,
}

/// Unknown where no plan limits the meter.
#[derive(Serialize, JsonSchema)]
struct MeterState {
    used: Option<i64>,
    limit: Option<i64>,
    remaining: Option<i64>,
    /// Whether more was used than the plan includes.
    overage: bool,
}

/// An event that was checked.
struct Checked {
    index: usize,
    digest: String,
    content: String,
    what: What,
    stored: StoredEvent,
}

enum What {
    Event,
    Correction { of: String, digest: String },
}

struct Work {
    janua: Janua,
    org: OrgId,
    app: ApplicationId,
    environment: Environment,
    now: Timestamp,
    events: Vec<Checked>,
}

/// What became of an event.
enum Verdict {
    Accepted,
    Duplicate,
    Rejected(Code),
    Over(Box<(Meter, Used)>),
}

async fn track(State(janua): State<Janua>, tracker: Tracker, Json(body): Json<Track>) -> Result<Json<Tracked>> {
    let keyed = &tracker.keyed;
    let is_secret = keyed.kind == KeyKind::Secret;
    let environment = match body.environment {
        Some(environment) if is_secret => environment,
        Some(environment) if environment != keyed.environment => return Err(SECRET_KEY_REQUIRED.into()),
        _ => keyed.environment,
    };
    let now = janua.clock.now();
    let is_batch = body.events.is_some();
    let new = body.events.unwrap_or_else(|| vec![body.event]);
    if new.is_empty() || new.len() > BATCH {
        return Err(INVALID.at("events", "length", "must have 1 to 1000 events"));
    }
    wait_for_turn(&janua, keyed.org_id, new.len(), now).await?;
    let (mut events, mut rejected) = (vec![], vec![]);
    for (index, event) in new.into_iter().enumerate() {
        match check(&janua, &tracker, environment, now, index, event) {
            Ok(checked) => events.push(checked),
            Err(fault) if is_batch => {
                rejected.push(Rejected {
                    index,
                    code: fault.code().name.to_owned(),
                    message: fault.whole_sentence(),
                });
            }
            Err(fault) => return Err(fault),
        }
    }
    // In one order for everybody, so that two batches with the same events do not wait for each other.
    events.sort_by(|a, b| a.digest.cmp(&b.digest));
    let indexes: Vec<usize> = events.iter().map(|event| event.index).collect();
    let work = Work { janua: janua.clone(), org: keyed.org_id, app: keyed.app_id, environment, now, events };
    let (verdicts, used) = janua.carry(work, |tx, work| Box::pin(commit(tx, work))).await?;
    let (mut accepted, mut duplicates) = (0, 0);
    for (index, verdict) in indexes.into_iter().zip(verdicts) {
        let fault: Fault = match verdict {
            Verdict::Accepted => {
                accepted += 1;
                continue;
            }
            Verdict::Duplicate => {
                duplicates += 1;
                continue;
            }
            Verdict::Rejected(code) => code.into(),
            Verdict::Over(over) => quotas::exceeded(&janua, keyed.org_id, &over.0, &over.1),
        };
        if !is_batch {
            return Err(fault);
        }
        rejected.push(Rejected { index, code: fault.code().name.to_owned(), message: fault.whole_sentence() });
    }
    rejected.sort_by_key(|rejected| rejected.index);
    let usage = used.into_iter().map(|(meter, used)| (meter, MeterState::from(&used))).collect();
    Ok(Json(Tracked { accepted, duplicates, rejected, usage, livemode: environment == Environment::Live }))
}

impl From<&Used> for MeterState {
    fn from(used: &Used) -> Self {
        let limit = used.limit.as_ref().map(|limit| limit.included);
        let remaining = limit.zip(used.used).map(|(limit, used)| (limit - used).max(0));
        let overage = limit.zip(used.used).is_some_and(|(limit, used)| used > limit);
        Self { used: used.used, limit, remaining, overage }
    }
}

async fn wait_for_turn(janua: &Janua, org: OrgId, n: usize, now: Timestamp) -> Result<()> {
    let plans = Plans::of(janua);
    if plans.plans.values().all(|plan| plan.events_per_second.is_none()) {
        return Ok(());
    }
    let plan = Org::find(&janua.db, org).await?.and_then(|org| plans.find(&org.tier));
    let Some(a_second) = plan.and_then(|plan| plan.events_per_second) else { return Ok(()) };
    let taken = janua.own::<Pace>().take(org, n, a_second, now);
    taken.map_err(|wait| RATE_LIMITED.because("The plan allows no more events in a second.").retry_after(wait))
}

fn visible(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

fn check(
    janua: &Janua,
    tracker: &Tracker,
    environment: Environment,
    now: Timestamp,
    index: usize,
    new: NewEvent,
) -> Result<Checked> {
    let keyed = &tracker.keyed;
    let is_secret = keyed.kind == KeyKind::Secret;
    let content = crypto::hash(
        json!([&new.meter, &new.value, &new.customer, new.timestamp, &new.properties, &new.cost, &new.correct])
            .to_string()
            .as_bytes(),
    );
    let value = match (&new.value, &new.correct) {
        (None, None) => 1,
        (None, Some(_)) => return Err(INVALID.at("value", "required", "is required for a correction")),
        (Some(value), correct) => {
            let least = i64::from(correct.is_none());
            value
                .as_i64()
                .filter(|value| (least..=LARGEST).contains(value))
                .ok_or_else(|| INVALID.at("value", "range", "must be a whole number from 1 to 9007199254740991"))?
        }
    };
    if let Some(id) = new.event_id.as_deref().filter(|id| !visible(id)) {
        return Err(INVALID.at(
            "eventId",
            "format",
            format!("must be 1 to 128 visible ASCII characters, not {}", id.len()),
        ));
    }
    let customer = new.customer.unwrap_or_default();
    if customer.chars().count() > 128 || customer.chars().any(char::is_control) {
        return Err(INVALID.at("customer", "length", "must have at most 128 characters, and no control characters"));
    }
    let properties = new.properties.unwrap_or_default();
    let fits = |name: &str, value: &str| {
        (1..=128).contains(&name.chars().count())
            && value.chars().count() <= 256
            && !value.chars().any(char::is_control)
    };
    if properties.len() > 20 || !properties.iter().all(|(name, value)| fits(name, value)) {
        return Err(INVALID.at("properties", "length", "must be at most 20 texts of 256 characters by names of 128"));
    }
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
        return Ok(Checked { index, digest, content, what, stored });
    }
    let name = new.meter.ok_or_else(|| INVALID.at("meter", "required", "is required"))?;
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
    Ok(Checked { index, digest, content, what: What::Event, stored })
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

fn unique_key(event: &StoredEvent) -> &str {
    event.properties.get("key").and_then(Value::as_str).filter(|key| !key.is_empty()).unwrap_or(&event.customer)
}

/// An event that was not seen before.
struct Fresh<'a> {
    /// Its place among the events of the request.
    place: usize,
    digest: &'a str,
    meter: &'a TrackedMeter,
    event: StoredEvent,
    /// The values under which totals are kept, by property.
    choices: Vec<(String, String)>,
    /// Days and months in which its key is new.
    new_in: Vec<Place>,
    /// What it uses of the quota.
    spends: i64,
}

/// The transaction: ids, quotas, events and totals, all or nothing. What is refused has written nothing that stays, so that
/// it need not be undone with everything that shares the commit.
async fn commit(tx: &mut Tx, work: &Work) -> db::Result<(Vec<Verdict>, BTreeMap<String, Used>)> {
    let plans = Plans::of(&work.janua);
    let (mut verdicts, mut fresh) = (vec![], vec![]);
    for (place, checked) in work.events.iter().enumerate() {
        let verdict = match Seen::note(tx, &checked.digest, &checked.content, checked.stored.id, work.now).await? {
            Some(seen) if seen.content == checked.content => Verdict::Duplicate,
            Some(_) => Verdict::Rejected(EVENT_CONFLICT),
            None => match enter(tx, work, plans, place, checked).await? {
                Some(entered) => {
                    fresh.push(entered);
                    Verdict::Accepted
                }
                None => {
                    Seen::forget(tx, &checked.digest, work.now).await?;
                    Verdict::Rejected(UNKNOWN_EVENT)
                }
            },
        };
        verdicts.push(verdict);
    }
    let used = spend(tx, work, &mut fresh, &mut verdicts).await?;
    let mut additions = BTreeMap::new();
    for fresh in &fresh {
        fresh.event.insert(tx).await?;
        add_up(fresh, &mut additions);
    }
    model::add(tx, work.app, work.environment, &additions).await?;
    Ok((verdicts, used))
}

/// Looks up what the event is about; nothing for a correction of what cannot be corrected.
async fn enter<'a>(
    tx: &mut Tx,
    work: &Work,
    plans: &'a Plans,
    place: usize,
    checked: &'a Checked,
) -> db::Result<Option<Fresh<'a>>> {
    let mut event = checked.stored.clone();
    let mut spends = event.value;
    if let What::Correction { of, digest } = &checked.what {
        let seen = Seen::find(tx, digest, work.now).await?;
        let Some(seen) = seen else { return Ok(None) };
        let Some(first) = StoredEvent::find(tx, work.app, &seen.event).await? else { return Ok(None) };
        let is_sum = plans.meters.get(&first.meter).is_some_and(|meter| meter.aggregation == Aggregation::Sum);
        if !is_sum || first.corrects.is_some() {
            return Ok(None);
        }
        let (before, after) = (first.corrected_value(tx).await?, event.value);
        event.value = after - before;
        let corrected = UsageCorrected { meter: first.meter.clone(), event_id: of.clone(), from: before, to: after };
        let about = About::application(work.app, work.org);
        events::record(tx, &work.janua, &By::default(), about, &corrected).await?;
        event.corrects = Some(first.id.to_string());
        // Beside the first one, wherever that is counted.
        (event.meter, event.at, event.customer, event.properties) =
            (first.meter, first.at, first.customer, first.properties);
        spends = event.value;
    }
    let Some(meter) = plans.meters.get(&event.meter) else { return Ok(None) };
    let mut choices = vec![];
    for property in &meter.group_by {
        if let Some(value) = event.properties.get(property).and_then(Value::as_str).filter(|value| !value.is_empty())
        {
            let choice = model::choice(tx, work.app, work.environment, &event.meter, property, value).await?;
            choices.push((property.clone(), choice));
        }
    }
    let mut fresh = Fresh { place, digest: &checked.digest, meter, event, choices, new_in: vec![], spends };
    match meter.aggregation {
        Aggregation::Sum => {
            // What is corrected in a period that ended changes nothing in this one.
            let period = meter.meter.period;
            if fresh.event.corrects.is_some() && period.start(fresh.event.at) != period.start(work.now) {
                fresh.spends = 0;
            }
        }
        Aggregation::Count => fresh.spends = 1,
        Aggregation::Max | Aggregation::Latest => fresh.spends = 0,
        Aggregation::Unique => {
            let key = crypto::hash(unique_key(&fresh.event).as_bytes());
            let mut is_new = false;
            for place in unique_places(&fresh) {
                if model::note_unique(tx, work.app, work.environment, &place, &key[..32]).await? {
                    let whole = place.property.is_empty() && place.customer.is_empty();
                    is_new |= whole && place.span == span_of(meter);
                    fresh.new_in.push(place);
                }
            }
            fresh.spends = i64::from(is_new);
        }
    }
    Ok(Some(fresh))
}

fn span_of(meter: &TrackedMeter) -> &'static str {
    if meter.meter.period == quotas::Period::Day { "d" } else { "m" }
}

/// The totals an event is counted in: all and its customer's, as a whole and for each property.
fn series(fresh: &Fresh<'_>) -> Vec<(String, String, String)> {
    let customers: &[&str] = if fresh.event.customer.is_empty() { &[""] } else { &["", &fresh.event.customer] };
    let mut series = vec![];
    for customer in customers {
        series.push((String::new(), (*customer).to_owned(), String::new()));
        for (property, choice) in &fresh.choices {
            series.push((property.clone(), (*customer).to_owned(), choice.clone()));
        }
    }
    series
}

fn unique_places(fresh: &Fresh<'_>) -> Vec<Place> {
    let at = fresh.event.at;
    let spans = [("d", at.day().start().0), ("m", at.month().0.0)];
    let mut places = vec![];
    for (property, customer, choice) in series(fresh) {
        for (span, slot) in spans {
            let (property, customer, choice) = (property.clone(), customer.clone(), choice.clone());
            places.push(Place { meter: fresh.event.meter.clone(), span, property, customer, choice, slot });
        }
    }
    places
}

fn add_up(fresh: &Fresh<'_>, additions: &mut BTreeMap<Place, Addition>) {
    let event = &fresh.event;
    let is_correction = event.corrects.is_some();
    let one = Addition {
        total: event.value,
        events: i64::from(!is_correction),
        most: if is_correction { 0 } else { event.value },
        latest: if is_correction { 0 } else { event.value },
        latest_at: if is_correction { 0 } else { event.at.0 },
    };
    let slot = event.at.0.div_euclid(QUARTER) * QUARTER;
    let places = series(fresh).into_iter().map(|(property, customer, choice)| Place {
        meter: event.meter.clone(),
        span: "q",
        property,
        customer,
        choice,
        slot,
    });
    for place in places.chain(fresh.new_in.iter().cloned()) {
        let added = additions.get(&place).map_or(one, |there| there.and(one));
        additions.insert(place, added);
    }
}

/// Uses the quotas up, meter by meter; what does not fit is taken out again.
async fn spend(
    tx: &mut Tx,
    work: &Work,
    fresh: &mut Vec<Fresh<'_>>,
    verdicts: &mut [Verdict],
) -> db::Result<BTreeMap<String, Used>> {
    let mut used = BTreeMap::new();
    if work.environment == Environment::Test {
        return Ok(used);
    }
    let pool = Pool { org: work.org, app: Some(work.app) };
    let mut sums: BTreeMap<&str, (&TrackedMeter, i64)> = BTreeMap::new();
    for one in fresh.iter() {
        let name = &*one.meter.meter.name;
        sums.entry(name).or_insert((one.meter, 0)).1 += one.spends;
    }
    let mut refused: HashMap<usize, Used> = HashMap::new();
    for (name, (meter, sum)) in sums {
        let last = match (meter.aggregation, sum) {
            (Aggregation::Max | Aggregation::Latest, _) => {
                let Some((plan, limit)) = quotas::limit_of(tx, &work.janua, work.org, &meter.meter).await? else {
                    continue;
                };
                let ceiling = limit.as_ref().and_then(Limit::ceiling).unwrap_or(i64::MAX);
                for one in fresh.iter().filter(|one| *one.meter.meter.name == *name && one.event.value > ceiling) {
                    refused.insert(
                        one.place,
                        Used { plan: plan.clone(), used: Some(one.event.value), limit: limit.clone() },
                    );
                }
                continue;
            }
            (_, ..0) => {
                quotas::spend_beyond(tx, &work.janua, pool, &meter.meter, sum).await?;
                continue;
            }
            _ => match quotas::try_spend(tx, &work.janua, pool, &meter.meter, sum).await? {
                Outcome::Counted(used) => used,
                Outcome::Refused(mut now) => {
                    // One by one, as far as it goes.
                    for one in fresh.iter().filter(|one| *one.meter.meter.name == *name && one.spends != 0) {
                        match quotas::try_spend(tx, &work.janua, pool, &meter.meter, one.spends).await? {
                            Outcome::Counted(used) => now = used,
                            Outcome::Refused(used) => {
                                now = used.clone();
                                refused.insert(one.place, used);
                            }
                        }
                    }
                    now
                }
            },
        };
        used.insert(name.to_owned(), last);
    }
    for one in fresh.iter().filter(|one| refused.contains_key(&one.place)) {
        Seen::forget(tx, one.digest, work.now).await?;
        let key = crypto::hash(unique_key(&one.event).as_bytes());
        for place in &one.new_in {
            model::forget_unique(tx, work.app, work.environment, place, &key[..32]).await?;
        }
    }
    fresh.retain(|one| !refused.contains_key(&one.place));
    for (place, used) in refused {
        let meter = Plans::of(&work.janua).meters[&work.events[place].stored.meter].meter.clone();
        verdicts[place] = Verdict::Over(Box::new((meter, used)));
    }
    Ok(used)
}
