//! `POST /usage/track`: events are counted once and are on the disk before the answer.
use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Fault, INVALID, RATE_LIMITED, Result},
    http::{Json, Routes},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenancy::{
    apps::{Application, ApplicationId, Environment, KeyKind},
    enter::SECRET_KEY_REQUIRED,
    machines::{AGENT_LIMIT, AGENT_SUSPENDED},
    orgs::{Org, OrgId},
    quotas::{self, QUOTA_EXCEEDED, Used},
};

use super::{
    UNKNOWN_METER,
    access::Tracker,
    check::{CURRENCY_MISMATCH, NewEvent, OUT_OF_WINDOW, check},
    count::{EVENT_CONFLICT, UNKNOWN_AGENT, UNKNOWN_EVENT, Verdict, Work, commit},
    pace::{Pace, Payer},
};
use crate::plans::Plans;

/// How many events one request has at most.
const BATCH: usize = 1000;
/// How many with a publishable key, which anybody can read: a flood costs as many requests, and the rate limit counts
/// those.
const PUBLIC_BATCH: usize = 20;

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
        UNKNOWN_AGENT,
        AGENT_SUSPENDED,
        AGENT_LIMIT,
    ])
}

/// One event, or `events` with up to 1000 of them; up to 20 with a publishable key.
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
    if !is_secret && new.len() > PUBLIC_BATCH {
        return Err(INVALID.at("events", "length", "must have at most 20 events with a publishable key"));
    }
    wait_for_turn(&janua, keyed.org_id, keyed.app_id, new.len(), now).await?;
    let (mut events, mut rejected, mut corrected) = (vec![], vec![], BTreeSet::new());
    for (index, event) in new.into_iter().enumerate() {
        let is_again = event.correct.as_ref().is_some_and(|of| !corrected.insert(of.clone()));
        let checked = match check(&janua, &tracker, environment, now, index, event) {
            Ok(_) if is_again => Err(INVALID.at("correct", "twice", "is corrected by another event of this batch")),
            checked => checked,
        };
        match checked {
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
            Verdict::OverLimit(left) => left.fault(),
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

async fn wait_for_turn(janua: &Janua, org: OrgId, app: ApplicationId, n: usize, now: Timestamp) -> Result<()> {
    let plans = Plans::of(janua);
    if plans.plans.values().all(|plan| plan.events_per_second.is_none()) {
        return Ok(());
    }
    let (plan, payer) = match Application::own_plan(&janua.db, app).await? {
        Some(plan) => (Some(plan), Payer::App(app)),
        None => (Org::find(&janua.db, org).await?.map(|org| org.tier), Payer::Org(org)),
    };
    let plan = plan.and_then(|plan| plans.find(&plan));
    let Some(a_second) = plan.and_then(|plan| plan.events_per_second) else { return Ok(()) };
    let taken = janua.own::<Pace>().take(payer, n, a_second, now);
    taken.map_err(|wait| RATE_LIMITED.because("The plan allows no more events in a second.").retry_after(wait))
}
