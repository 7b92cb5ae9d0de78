//! `GET /usage/meters`: what is counted, and how much of it the plan has left.
use axum::extract::State;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{FORBIDDEN, NOT_FOUND, Result},
    http::{Json, Query, Routes},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::{Application, ApplicationId, Environment},
    orgs::OrgId,
    quotas::{self, Limits, Meter, Period, UsedNow},
};

use super::{
    ORG_REQUIRED, access,
    model::{Series, SlotTotal},
};
use crate::{
    keyed::KeyedSession,
    plans::{Aggregation, Keys, Plans, TrackedMeter},
};

pub fn routes() -> Routes {
    Routes::new("usage").get("/usage/meters", list_meters, "usage meter definitions").fails(&[
        ORG_REQUIRED,
        NOT_FOUND,
        FORBIDDEN,
    ])
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Of {
    org_id: Option<OrgId>,
    app_id: Option<ApplicationId>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MeterView {
    name: String,
    unit: String,
    /// Null for a gauge that the platform counts itself.
    aggregation: Option<Aggregation>,
    /// `month`, `day` or `none`.
    period: String,
    keys: Option<Keys>,
    source: String,
    group_by: Vec<String>,
    /// From where on more is refused; null for no limit.
    limit: Option<i64>,
    included: Option<i64>,
    /// The price of each unit beyond, in minor units.
    overage: Option<String>,
    hard: bool,
    used: i64,
    remaining: Option<i64>,
    resets_at: Option<Timestamp>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MeterList {
    org_id: OrgId,
    plan: String,
    /// Whether the app has a plan of its own, and so spends from a pool of its own.
    has_own_plan: bool,
    meters: Vec<MeterView>,
}

/// How high a meter of levels (`max`, `latest`) stands in the present period, in the app where it is highest. Its limit holds
/// for each event, so no quota is used up.
async fn level(janua: &Janua, apps: &[Application], meter: &TrackedMeter, now: Timestamp) -> Result<i64> {
    let mut highest = 0;
    for app in apps {
        let series = Series::all(app.id, Environment::Live, &meter.meter.name);
        let whole = SlotTotal::whole(&janua.db, &series, meter.meter.period.start(now), LAST).await?;
        highest = highest.max(if meter.aggregation == Aggregation::Max { whole.most } else { whole.latest });
    }
    Ok(highest)
}

/// After everything that was counted.
const LAST: Timestamp = Timestamp(i64::MAX);

async fn list_meters(
    State(janua): State<Janua>,
    caller: KeyedSession,
    Query(mut of): Query<Of>,
) -> Result<Json<MeterList>> {
    of.app_id = caller.app(of.app_id)?;
    let scope = access::scope(&janua, &caller.session, of.org_id, of.app_id).await?;
    let plans = Plans::of(&janua);
    let tracked = plans.meters.values().map(|meter| (&meter.meter, Some(meter)));
    let platform = janua.declared::<Meter>().iter().map(|meter| (meter, None));
    let all: Vec<(&Meter, Option<&TrackedMeter>)> = platform.chain(tracked).collect();
    let counted: Vec<&Meter> = all.iter().map(|(meter, _)| *meter).collect();
    let (now, mut meters) = (janua.clock.now(), vec![]);
    // An app with a plan of its own spends from a pool of its own what begins anew with a month or a day.
    let own = match of.app_id {
        Some(app) => Application::own_plan(&janua.db, app).await?.map(|plan| (app, plan)),
        None => None,
    };
    let used_by_org = UsedNow::of_org(&janua.db, scope.org.id, &counted, now).await?;
    let used_by_app = match &own {
        Some((app, _)) => Some(UsedNow::of_app(&janua.db, *app, &counted, now).await?),
        None => None,
    };
    for (meter, tracked) in all {
        let own = own.as_ref().filter(|_| meter.period != Period::Gauge);
        let plan = own.map_or(&scope.org.tier, |(_, plan)| plan);
        let limit = janua.own::<Limits>().find(plan, &meter.name);
        let used = match (tracked, own) {
            (Some(tracked), _) if tracked.has_level() => level(&janua, &scope.apps, tracked, now).await?,
            (_, Some(_)) => used_by_app.as_ref().map_or(0, |used| used.of(meter)),
            _ => used_by_org.of(meter),
        };
        meters.push(MeterView {
            name: meter.name.to_string(),
            unit: meter.unit.to_string(),
            aggregation: tracked.map(|tracked| tracked.aggregation),
            period: meter.period.name().to_owned(),
            keys: tracked.map(|tracked| tracked.keys),
            source: if tracked.is_some() { "tracked" } else { "platform" }.to_owned(),
            group_by: tracked.map(|tracked| tracked.group_by.clone()).unwrap_or_default(),
            limit: limit.and_then(quotas::Limit::ceiling),
            included: limit.map(|limit| limit.included),
            overage: limit.and_then(|limit| limit.overage.clone()),
            hard: limit.is_some_and(|limit| limit.hard),
            used,
            remaining: limit.map(|limit| (limit.included - used).max(0)),
            resets_at: meter.period.resets_at(now),
        });
    }
    let has_own_plan = own.is_some();
    let plan = own.map_or(scope.org.tier, |(_, plan)| plan);
    Ok(Json(MeterList { org_id: scope.org.id, plan, has_own_plan, meters }))
}
