//! Counting: the transaction that writes events, their ids, totals and quotas.
use std::collections::{BTreeMap, BTreeSet, HashMap};

use db::Tx;
use kernel::{Janua, clock::Timestamp, crypto, fault::Code};
use serde_json::Value;
use tenancy::{
    apps::{ApplicationId, Environment},
    events::{self, About, By},
    machines::{
        AGENT_SUSPENDED, Machine, MachineId,
        limits::{self, Left, NewSpending, Outcome as LimitOutcome},
    },
    orgs::OrgId,
    quotas::{self, Limit, Meter, Outcome, Period, Pool, Used},
};

use super::{
    UsageCorrected,
    check::{Agent, Checked, What, unique_key},
    model::{self, Addition, Place, QUARTER, Seen, Sighting, StoredEvent},
};
use crate::plans::{Aggregation, Plans, TrackedMeter};

pub const EVENT_CONFLICT: Code =
    Code::new(409, "event_conflict", "An event with this id was tracked before, with another content.");
pub const UNKNOWN_EVENT: Code =
    Code::new(400, "unknown_event", "There is no event of this id that could be corrected.");

pub const UNKNOWN_AGENT: Code =
    Code::new(400, "unknown_agent", "There is no agent of this id in the organization of the app.");

/// The events of one request.
pub struct Work {
    pub janua: Janua,
    pub org: OrgId,
    pub app: ApplicationId,
    pub environment: Environment,
    pub now: Timestamp,
    pub events: Vec<Checked>,
}

/// What became of an event.
#[derive(Clone)]
pub enum Verdict {
    Accepted,
    Duplicate,
    Rejected(Code),
    Over(Box<(Meter, Used)>),
    /// A limit of the machine leaves less.
    OverLimit(Left),
}

/// An event that was not seen before.
struct Fresh<'a> {
    /// Its place among the events of the request.
    place: usize,
    digest: &'a str,
    agent: Option<Agent>,
    meter: &'a TrackedMeter,
    event: StoredEvent,
    /// The values under which totals are kept, by property.
    choices: Vec<(String, String)>,
    /// Days and months in which its key is new.
    new_in: Vec<Place>,
    /// What it uses of the quota.
    spends: i64,
    /// What the audit log says of a correction.
    corrected: Option<UsageCorrected>,
}

impl Fresh<'_> {
    /// Notes its key in every place it is counted in and where the key is new; answers whether it uses the quota.
    async fn note_key(&mut self, tx: &mut Tx, work: &Work) -> db::Result<bool> {
        let key = crypto::hash(unique_key(&self.event).as_bytes());
        let span = if quota_span(self.meter) == Period::Day { "d" } else { "m" };
        self.new_in = model::note_unique(tx, work.app, work.environment, unique_places(self), &key[..32]).await?;
        let is_new = |place: &Place| place.property.is_empty() && place.customer.is_empty() && place.span == span;
        Ok(self.new_in.iter().any(is_new))
    }

    /// Whether it counts the same key of the same meter as another event.
    fn has_key_of(&self, other: &Self) -> bool {
        self.meter.aggregation == Aggregation::Unique
            && self.meter.meter.name == other.meter.meter.name
            && unique_key(&self.event) == unique_key(&other.event)
    }

    /// Takes back what was written before the event was refused.
    async fn forget(&self, tx: &mut Tx, work: &Work) -> db::Result<()> {
        Seen::forget(tx, self.digest, work.now).await?;
        let key = crypto::hash(unique_key(&self.event).as_bytes());
        for place in &self.new_in {
            model::forget_unique(tx, work.app, work.environment, place, &key[..32]).await?;
        }
        Ok(())
    }
}

/// The transaction: ids, quotas, events and totals, all or nothing. What is refused has written nothing that stays, so that
/// it need not be undone with everything that shares the commit.
pub async fn commit(tx: &mut Tx, work: &Work) -> db::Result<(Vec<Verdict>, BTreeMap<String, Used>)> {
    let plans = Plans::of(&work.janua);
    let (mut verdicts, mut fresh) = (vec![], vec![]);
    let sightings: Vec<Sighting<'_>> = work.events.iter().map(Checked::sighting).collect();
    let seen = Seen::note(tx, &sightings, work.now).await?;
    for (place, (checked, seen)) in work.events.iter().zip(seen).enumerate() {
        let verdict = match seen {
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
    let mut used = spend(tx, work, &mut fresh, &mut verdicts).await?;
    spend_of_agents(tx, work, &mut fresh, &mut verdicts, &mut used).await?;
    let mut additions = BTreeMap::new();
    for fresh in &fresh {
        fresh.event.insert(tx).await?;
        add_up(fresh, &mut additions);
        if let Some(corrected) = &fresh.corrected {
            let about = About::application(work.app, work.org);
            events::record(tx, &work.janua, &By::default(), about, corrected).await?;
        }
    }
    model::add(tx, work.app, work.environment, &additions).await?;
    judge_twins(work, &mut verdicts);
    Ok((verdicts, used))
}

/// What comes twice in a request and was refused the first time was not counted before.
fn judge_twins(work: &Work, verdicts: &mut [Verdict]) {
    let mut firsts = HashMap::new();
    for (place, checked) in work.events.iter().enumerate() {
        let first = *firsts.entry(&checked.digest).or_insert(place);
        let was_counted = matches!(verdicts[first], Verdict::Accepted | Verdict::Duplicate);
        if matches!(verdicts[place], Verdict::Duplicate) && !was_counted {
            verdicts[place] = verdicts[first].clone();
        }
    }
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
    let (mut spends, mut corrected) = (event.value, None);
    if let What::Correction { of, digest } = &checked.what {
        let seen = Seen::find(tx, digest, work.now).await?;
        let Some(seen) = seen else { return Ok(None) };
        let Some(first) = StoredEvent::hold(tx, work.app, &seen.event).await? else { return Ok(None) };
        let is_sum = plans.meters.get(&first.meter).is_some_and(|meter| meter.aggregation == Aggregation::Sum);
        if !is_sum || first.corrects.is_some() {
            return Ok(None);
        }
        let (before, after) = (first.corrected_value(tx).await?, event.value);
        event.value = after - before;
        corrected =
            Some(UsageCorrected { meter: first.meter.clone(), event_id: of.clone(), from: before, to: after });
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
    let mut fresh = Fresh {
        place,
        digest: &checked.digest,
        agent: checked.agent,
        meter,
        event,
        choices,
        new_in: vec![],
        spends,
        corrected,
    };
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
            let is_new = fresh.note_key(tx, work).await?;
            fresh.spends = i64::from(is_new);
        }
    }
    Ok(Some(fresh))
}

/// The period in which a unique key uses the quota once.
fn quota_span(meter: &TrackedMeter) -> Period {
    if meter.meter.period == Period::Day { Period::Day } else { Period::Month }
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
    let mut refused: HashMap<usize, (Meter, Used)> = HashMap::new();
    for (name, (meter, sum)) in sums {
        let last = match (meter.aggregation, sum) {
            (Aggregation::Max | Aggregation::Latest, _) => {
                let Some((plan, limit)) = quotas::limit_of(tx, &work.janua, pool, &meter.meter).await? else {
                    continue;
                };
                let ceiling = limit.as_ref().and_then(Limit::ceiling).unwrap_or(i64::MAX);
                for one in fresh.iter().filter(|one| *one.meter.meter.name == *name && one.event.value > ceiling) {
                    let used = Used { plan: plan.clone(), used: Some(one.event.value), limit: limit.clone() };
                    refused.insert(one.place, (meter.meter.clone(), used));
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
                    // Corrections downward are never refused, and make room.
                    for one in fresh.iter().filter(|one| *one.meter.meter.name == *name && one.spends < 0) {
                        quotas::spend_beyond(tx, &work.janua, pool, &meter.meter, one.spends).await?;
                    }
                    // One by one, as far as it goes. Another event with a key that was refused is refused, too.
                    let mut keys: BTreeSet<(&str, Timestamp)> = BTreeSet::new();
                    for one in fresh.iter().filter(|one| *one.meter.meter.name == *name && one.spends >= 0) {
                        let key = (unique_key(&one.event), quota_span(meter).start(one.event.at));
                        if one.spends == 0 && !(meter.aggregation == Aggregation::Unique && keys.contains(&key)) {
                            continue;
                        }
                        let spends = if one.spends == 0 { 1 } else { one.spends };
                        match quotas::try_spend(tx, &work.janua, pool, &meter.meter, spends).await? {
                            Outcome::Counted(used) => now = used,
                            Outcome::Refused(used) => {
                                now = used.clone();
                                refused.insert(one.place, (meter.meter.clone(), used));
                                keys.insert(key);
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
        one.forget(tx, work).await?;
    }
    fresh.retain(|one| !refused.contains_key(&one.place));
    for (place, over) in refused {
        verdicts[place] = Verdict::Over(Box::new(over));
    }
    Ok(used)
}

/// Counts what machines used on their own limits. What does not fit is taken out again; a limit may suspend its machine, and
/// that stays.
async fn spend_of_agents(
    tx: &mut Tx,
    work: &Work,
    fresh: &mut Vec<Fresh<'_>>,
    verdicts: &mut [Verdict],
    used: &mut BTreeMap<String, Used>,
) -> db::Result<()> {
    if work.environment == Environment::Test || fresh.iter().all(|one| one.agent.is_none()) {
        return Ok(());
    }
    // Held in one order by everybody.
    let ids: BTreeSet<String> = fresh.iter().filter_map(|one| one.agent).map(|agent| agent.id.to_string()).collect();
    let mut machines: HashMap<MachineId, Machine> = HashMap::new();
    for id in ids.iter().filter_map(|id| id.parse().ok()) {
        if let Some(machine) = Machine::hold(tx, id).await? {
            machines.insert(id, machine);
        }
    }
    let mut refused = BTreeSet::new();
    for index in 0..fresh.len() {
        let (before, later) = fresh.split_at_mut(index + 1);
        let Some(one) = before.last() else { continue };
        let Some(agent) = one.agent else { continue };
        let Err(verdict) = count_for(tx, work, one, agent, machines.get_mut(&agent.id)).await? else { continue };
        one.forget(tx, work).await?;
        let mut returned = one.spends.max(0);
        // The key is still counted if another event of the request has it: the next one takes its place.
        for next in later.iter_mut().filter(|next| next.has_key_of(one)) {
            if next.note_key(tx, work).await? {
                next.spends = 1;
                returned -= 1;
            }
        }
        if returned != 0 {
            let pool = Pool { org: work.org, app: Some(work.app) };
            quotas::spend_beyond(tx, &work.janua, pool, &one.meter.meter, -returned).await?;
            if let Some(Used { used: Some(so_far), .. }) = used.get_mut(&*one.meter.meter.name) {
                *so_far -= returned;
            }
        }
        verdicts[one.place] = verdict;
        refused.insert(one.place);
    }
    fresh.retain(|one| !refused.contains(&one.place));
    Ok(())
}

/// Counts one event on the limits of its machine, and writes it into the machine's ledger.
async fn count_for(
    tx: &mut Tx,
    work: &Work,
    one: &Fresh<'_>,
    agent: Agent,
    machine: Option<&mut Machine>,
) -> db::Result<Result<(), Verdict>> {
    let is_known = |machine: &&mut Machine| agent.generation.is_some() || machine.org_id == work.org;
    let Some(machine) = machine.filter(is_known) else { return Ok(Err(Verdict::Rejected(UNKNOWN_AGENT))) };
    if !machine.accepts(agent.generation.unwrap_or(machine.generation), work.now) {
        return Ok(Err(Verdict::Rejected(AGENT_SUSPENDED)));
    }
    let amount = match one.meter.aggregation {
        Aggregation::Sum => one.event.value,
        Aggregation::Count | Aggregation::Unique => one.spends,
        Aggregation::Max | Aggregation::Latest => 0,
    };
    if amount <= 0 {
        return Ok(Ok(()));
    }
    let by = By { app: Some(work.app), ..By::default() };
    let meter = &*one.meter.meter.name;
    match limits::count(tx, &work.janua, &by, machine, meter, amount).await? {
        LimitOutcome::Counted(_) => {
            let spending = NewSpending { app: work.app, meter, amount, action: Some("usage"), repeat_key: None };
            limits::note_spending(tx, &work.janua, machine.id, &spending).await?;
            Ok(Ok(()))
        }
        LimitOutcome::Refused(left) => Ok(Err(Verdict::OverLimit(left))),
    }
}
