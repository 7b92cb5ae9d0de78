//! Limits of a machine: how much of a meter it may use in an hour, a day or a month. Counted in the transaction that uses
//! it, while the machine's row is held, so no two callers pass a limit together.
use std::collections::HashMap;

use db::{Read, Tx, params, row};
use kernel::{Janua, clock::Timestamp, fault::Fault, id::Id};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::{
    AGENT_LIMIT, Machine, MachineAct, MachineEvent, MachineLimit, Per, SuspendedBy, Then,
    mails::{self, MachineNews},
    states,
};
use crate::{
    events::{self, By},
    ids::{ApplicationId, MachineId},
};

/// Tokens that were issued.
pub const TOKENS: &str = "tokens";
/// Introspections of the machine's tokens.
pub const REQUESTS: &str = "requests";

/// How many limits a machine has at the most.
pub const MOST: usize = 10;

/// A limit and how much of it is used.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitView {
    #[serde(flatten)]
    pub limit: MachineLimit,
    pub used: i64,
    pub resets_at: Timestamp,
}

struct Counter {
    meter: String,
    per: String,
    since: Timestamp,
    used: i64,
    told: i64,
}
row!(Counter { meter, per, since, used, told });

/// What was spent; `millions` has units of 2^20.
struct Spent {
    millions: i64,
    ones: i64,
}
row!(Spent { millions, ones });

/// The counters of the present windows, by meter and window. A limit that has none yet begins with what was spent in its
/// window before it was set.
async fn counters(
    mut from: impl Read,
    id: MachineId,
    limits: &[MachineLimit],
    now: Timestamp,
) -> db::Result<HashMap<(String, String), Counter>> {
    let sql = "SELECT meter, per, since, used, told FROM machine_meter WHERE machine_id = $1 AND since >= $2";
    let found: Vec<Counter> = from.all(sql, params![id, Per::Month.window(now).0]).await?;
    let is_present = |counter: &Counter| {
        [Per::Hour, Per::Day, Per::Month]
            .iter()
            .any(|per| per.name() == counter.per && per.window(now).0 == counter.since)
    };
    let present = found.into_iter().filter(is_present);
    let mut counters: HashMap<_, _> = present.map(|one| ((one.meter.clone(), one.per.clone()), one)).collect();
    for MachineLimit { meter, per, .. } in limits.iter().filter(|limit| is_spent(&limit.meter)) {
        let (key, since) = ((meter.clone(), per.name().to_owned()), per.window(now).0);
        if counters.contains_key(&key) {
            continue;
        }
        // In two parts, because a sum that overflows is an error.
        let sql = "SELECT CAST(COALESCE(SUM(amount / 1048576), 0) AS BIGINT) AS millions,
                          CAST(COALESCE(SUM(amount % 1048576), 0) AS BIGINT) AS ones FROM machine_spending
                   WHERE machine_id = $1 AND meter = $2 AND at >= $3";
        let Spent { millions, ones } = from.one(sql, params![id, meter, since]).await?;
        let used = millions.saturating_mul(1 << 20).saturating_add(ones);
        let counter = Counter { meter: key.0.clone(), per: key.1.clone(), since, used, told: 0 };
        counters.insert(key, counter);
    }
    Ok(counters)
}

/// Whether a meter is counted from the spendings that are written down.
fn is_spent(meter: &str) -> bool {
    meter != TOKENS && meter != REQUESTS
}

/// Notes that the limits of a machine, which the caller holds, are others now: a changed limit is mailed about anew, and a new
/// one counts what was spent in its window.
pub async fn changed(tx: &mut Tx, before: &[MachineLimit], machine: &Machine) -> db::Result<()> {
    for limit in machine.limits.iter().filter(|limit| !before.contains(limit)) {
        let is_new = !before.iter().any(|old| old.meter == limit.meter && old.per == limit.per);
        let sql = if is_new && is_spent(&limit.meter) {
            "DELETE FROM machine_meter WHERE machine_id = $1 AND meter = $2 AND per = $3"
        } else {
            "UPDATE machine_meter SET told = 0 WHERE machine_id = $1 AND meter = $2 AND per = $3"
        };
        tx.send(sql, params![machine.id, &limit.meter, limit.per.name()]).await?;
    }
    Ok(())
}

/// The limits of a machine with what is used of them.
pub async fn view(from: impl Read, machine: &Machine, now: Timestamp) -> db::Result<Vec<LimitView>> {
    if machine.limits.is_empty() {
        return Ok(vec![]);
    }
    let counters = counters(from, machine.id, &machine.limits, now).await?;
    let view = |limit: &MachineLimit| {
        let used = counters.get(&(limit.meter.clone(), limit.per.name().to_owned())).map_or(0, |one| one.used);
        LimitView { limit: limit.clone(), used, resets_at: limit.per.window(now).1 }
    };
    Ok(machine.limits.iter().map(view).collect())
}

/// Whether a limit leaves nothing at the moment.
pub(super) async fn is_used_up(tx: &mut Tx, machine: &Machine, now: Timestamp) -> db::Result<Option<LimitView>> {
    let limits = view(tx, machine, now).await?;
    Ok(limits.into_iter().find(|one| one.limit.then == Then::Suspend && one.used >= one.limit.max))
}

/// The outcome of an attempt to use something.
#[derive(Debug)]
pub enum Outcome {
    /// It was counted. Of the tightest limit so much is left; nothing where no limit is on the meter.
    Counted(Option<Left>),
    /// It does not fit, and nothing was counted.
    Refused(Left),
}

#[derive(Debug, Clone, Copy)]
pub struct Left {
    pub remaining: i64,
    pub resets_at: Timestamp,
    pub now: Timestamp,
}

impl Left {
    /// The refusal of a request that would have used more than there is.
    pub fn fault(self) -> Fault {
        Fault::from(AGENT_LIMIT)
            .retry_after(self.resets_at.since(self.now))
            .with_extra("remaining", &self.remaining)
            .with_extra("resetsAt", &self.resets_at)
    }
}

/// Counts `n` of a meter against every limit on it, or against none. The caller holds the machine, and commits either way:
/// a refusal may suspend the machine.
pub async fn count(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    machine: &mut Machine,
    meter: &str,
    n: i64,
) -> db::Result<Outcome> {
    let now = janua.clock.now();
    let limits: Vec<MachineLimit> = machine.limits.iter().filter(|limit| limit.meter == meter).cloned().collect();
    if limits.is_empty() {
        return Ok(Outcome::Counted(None));
    }
    let counters = counters(&mut *tx, machine.id, &limits, now).await?;
    let so_far = |limit: &MachineLimit| {
        let found = counters.get(&(limit.meter.clone(), limit.per.name().to_owned()));
        found.map_or((0, 0), |one| (one.used, one.told))
    };
    let over = limits.iter().filter(|limit| so_far(limit).0.saturating_add(n) > limit.max);
    // One that suspends says more than one that refuses.
    if let Some(limit) = over.max_by_key(|limit| limit.then == Then::Suspend) {
        let (used, told) = so_far(limit);
        note_refusal(tx, janua, by, machine, limit, (used, told)).await?;
        let (remaining, resets_at) = (limit.max - used, limit.per.window(now).1);
        return Ok(Outcome::Refused(Left { remaining: remaining.max(0), resets_at, now }));
    }
    let mut least: Option<Left> = None;
    for limit in &limits {
        let (used, told) = so_far(limit);
        let (used, (since, resets_at)) = (used + n, limit.per.window(now));
        let is_near = i128::from(used) * 100 >= i128::from(limit.max) * 80;
        let told = if is_near && told < 80 {
            mails::tell(tx, janua, machine, MachineNews::NearLimit, &in_words(limit)).await?;
            80
        } else {
            told
        };
        write(tx, machine.id, limit, since, used, told).await?;
        let left = Left { remaining: limit.max - used, resets_at, now };
        least = Some(least.filter(|least| least.remaining <= left.remaining).unwrap_or(left));
    }
    Ok(Outcome::Counted(least))
}

async fn write(
    tx: &mut Tx,
    id: MachineId,
    limit: &MachineLimit,
    since: Timestamp,
    used: i64,
    told: i64,
) -> db::Result<()> {
    tx.send(
        "INSERT INTO machine_meter (machine_id, meter, per, since, used, told) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (machine_id, meter, per, since) DO UPDATE SET used = $5, told = $6",
        params![id, &limit.meter, limit.per.name(), since, used, told],
    )
    .await
}

fn in_words(limit: &MachineLimit) -> String {
    format!("{} {} per {}", limit.max, limit.meter, limit.per.name())
}

/// The first refusal of a window is an event; one that suspends happens once anyway.
async fn note_refusal(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    machine: &mut Machine,
    limit: &MachineLimit,
    (used, told): (i64, i64),
) -> db::Result<()> {
    let is_new = told < 100;
    if is_new {
        let since = limit.per.window(janua.clock.now()).0;
        write(tx, machine.id, limit, since, used, 100).await?;
        let details = json!({ "meter": limit.meter, "max": limit.max, "per": limit.per, "then": limit.then });
        let event = MachineEvent::new(machine.kind, MachineAct::LimitReached, details);
        events::record(tx, janua, by, machine.about(), &event).await?;
    }
    if limit.then == Then::Suspend {
        let reason = Some(in_words(limit));
        if states::suspend(tx, janua, by, machine, SuspendedBy::Limit, reason).await? {
            mails::tell(tx, janua, machine, MachineNews::LimitSuspended, &in_words(limit)).await?;
        }
    }
    Ok(())
}

/// A spending as it is stored.
pub enum Spending {}

/// A spending that a service reports.
pub struct NewSpending<'a> {
    pub app: ApplicationId,
    pub meter: &'a str,
    pub amount: i64,
    pub action: Option<&'a str>,
    /// A repetition with the same key is not counted again.
    pub repeat_key: Option<&'a str>,
}

/// Whether a spending with this key was counted before.
pub async fn was_spent(tx: &mut Tx, id: MachineId, new: &NewSpending<'_>) -> db::Result<Option<(String, i64)>> {
    struct Before {
        meter: String,
        amount: i64,
    }
    row!(Before { meter, amount });
    let Some(key) = new.repeat_key else { return Ok(None) };
    let sql = "SELECT meter, amount FROM machine_spending WHERE machine_id = $1 AND app_id = $2 AND repeat_key = $3";
    let before: Option<Before> = tx.opt(sql, params![id, new.app, key]).await?;
    Ok(before.map(|before| (before.meter, before.amount)))
}

/// Writes an allowed spending down, in the transaction that counted it.
pub async fn note_spending(tx: &mut Tx, janua: &Janua, id: MachineId, new: &NewSpending<'_>) -> db::Result<()> {
    let now = janua.clock.now();
    let sql = "INSERT INTO machine_spending (id, machine_id, app_id, meter, amount, action, repeat_key, at)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let spending: Id<Spending> = Id::new(&janua.entropy, now);
    tx.send(sql, params![spending, id, new.app, new.meter, new.amount, new.action, new.repeat_key, now]).await
}

/// The remaining amount of the tightest limit on a meter.
pub async fn left(tx: &mut Tx, machine: &Machine, meter: &str, now: Timestamp) -> db::Result<Option<Left>> {
    let limits = view(tx, machine, now).await?;
    let left = limits.into_iter().filter(|one| one.limit.meter == meter).map(|one| Left {
        remaining: (one.limit.max - one.used).max(0),
        resets_at: one.resets_at,
        now,
    });
    Ok(left.min_by_key(|left| left.remaining))
}
