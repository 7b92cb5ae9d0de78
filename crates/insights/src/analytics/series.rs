//! Time series: a metric by hour, day, ISO week or month.
use std::collections::BTreeMap;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    clock::{Day, Timestamp},
    fault::{Code, INVALID, Result},
    http::{Json, Query, Routes},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::enter::{Admin, InApp};

use super::{
    HOURS_KEPT,
    api::{Counted, METRICS, OrgAdmin, RANGE_TOO_LONG, Range, RangeQuery, TOTAL, WantsCsv, csv},
    count,
    model::{self, DayCount, PeopleOfDay},
    zones::{Zones, month_of, week_of},
};

const TOO_MANY_POINTS: Code = Code::new(
    400,
    "too_many_points",
    "The series would have more than 1,000 points. Use a longer interval or fewer days.",
);
const MOST_POINTS: usize = 1000;
const MOST_METRICS: usize = 5;
const MOST_DAYS: i64 = 3660;
/// Metrics that count people.
const PEOPLE: [&str; 3] = ["active_users", "new_users", "returning_users"];

pub fn routes() -> Routes {
    Routes::new("analytics")
        .get("/analytics/app/{appId}/timeseries", timeseries, "metrics of an app by hour, day, week or month")
        .answers::<Timeseries>(200, "application/json")
        .answers::<String>(200, "text/csv")
        .fails(&[TOO_MANY_POINTS, RANGE_TOO_LONG])
        .get(
            "/analytics/org/{orgId}/timeseries",
            org_timeseries,
            "metrics of an organization's apps by day, week or month",
        )
        .answers::<Timeseries>(200, "application/json")
        .answers::<String>(200, "text/csv")
        .fails(&[TOO_MANY_POINTS, RANGE_TOO_LONG])
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Interval {
    Hour,
    #[default]
    Day,
    Week,
    Month,
}

#[derive(Deserialize, JsonSchema)]
struct SeriesQuery {
    /// Up to five metrics, separated by commas: `sign_ins`, `sign_in_failures`, `sign_ups`, `email_verifications`,
    /// `mfa_enabled`, `mfa_disabled`, `passkeys_added`, `passkeys_removed`, `password_resets`, `magic_links`,
    /// `sessions_revoked`, `consents`, `total`, `active_users`, `new_users`, `returning_users`. `sign_ins` otherwise.
    #[schemars(length(max = 200))]
    metric: Option<String>,
    interval: Option<Interval>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Timeseries {
    interval: Interval,
    #[serde(flatten)]
    counted: Counted,
    from: Day,
    to: Day,
    series: Vec<Series>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Series {
    metric: String,
    /// One for each interval, also where nothing happened.
    points: Vec<Point>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Point {
    /// The first day of the interval; of an hour the moment it begins.
    start: String,
    value: i64,
    /// Whether the interval is not over yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    partial: bool,
}

/// One interval: its first and its last day, or its hour.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    start: i64,
    from: i64,
    to: i64,
}

/// The intervals of a range. The first and the last one count only what lies in the range.
fn buckets(range: Range, interval: Interval) -> Vec<Bucket> {
    let start_of = |day: i64| match interval {
        Interval::Week => week_of(day),
        Interval::Month => month_of(day),
        Interval::Day | Interval::Hour => day,
    };
    let mut buckets: Vec<Bucket> = vec![];
    for day in range.from..=range.to {
        match buckets.last_mut().filter(|last| last.start == start_of(day)) {
            Some(last) => last.to = day,
            None => buckets.push(Bucket { start: start_of(day), from: day, to: day }),
        }
    }
    buckets
}

async fn timeseries(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Query(range): Query<RangeQuery>,
    Query(query): Query<SeriesQuery>,
    WantsCsv(is_csv): WantsCsv,
) -> Result<Response> {
    let interval = query.interval.unwrap_or_default();
    let metrics = metrics(query.metric.as_deref(), interval)?;
    let (now, app) = (janua.clock.now(), &caller.application);
    let zones = Zones::of_org(&janua.db, app.org_id).await?;
    let range = Range::read(&range, &zones, now, MOST_DAYS)?;
    count::catch_up(&janua).await?;
    let (starts, values, current) = if interval == Interval::Hour {
        let (first, last) = hours(&zones, range, now)?;
        let counts = model::events_by_hour(&janua.db, app.id, first, last).await?;
        let values = metrics.iter().map(|metric| by_key(metric, &counts, first..=last)).collect();
        let starts = (first..=last).map(|hour| Timestamp(hour * 3_600_000).to_string()).collect();
        (starts, values, now.0.div_euclid(3_600_000) - first)
    } else {
        of_days(&janua, &app.id.to_string(), &metrics, buckets(range, interval), zones.day_of(now)).await?
    };
    let points = Points { interval, metrics, starts, values, current };
    Ok(points.answer(range, Counted::at(&zones, now), is_csv))
}

async fn org_timeseries(
    State(janua): State<Janua>,
    OrgAdmin(caller): OrgAdmin,
    Query(range): Query<RangeQuery>,
    Query(query): Query<SeriesQuery>,
    WantsCsv(is_csv): WantsCsv,
) -> Result<Response> {
    let interval = query.interval.unwrap_or_default();
    if interval == Interval::Hour {
        return Err(INVALID.at("interval", "no_hours", "hours are counted by app"));
    }
    let metrics = metrics(query.metric.as_deref(), interval)?;
    let (now, org) = (janua.clock.now(), caller.org().id);
    let zones = Zones::of_org(&janua.db, org).await?;
    let range = Range::read(&range, &zones, now, MOST_DAYS)?;
    count::catch_up(&janua).await?;
    let found = of_days(&janua, &org.to_string(), &metrics, buckets(range, interval), zones.day_of(now)).await?;
    let (starts, values, current) = found;
    let points = Points { interval, metrics, starts, values, current };
    Ok(points.answer(range, Counted::at(&zones, now), is_csv))
}

/// The values of each metric, and the place of the interval that is not over.
struct Points {
    interval: Interval,
    metrics: Vec<String>,
    starts: Vec<String>,
    values: Vec<Vec<i64>>,
    current: i64,
}

impl Points {
    fn answer(self, range: Range, counted: Counted, is_csv: bool) -> Response {
        let Self { interval, metrics, starts, values, current } = self;
        if is_csv {
            let header: Vec<&str> = std::iter::once("start").chain(metrics.iter().map(String::as_str)).collect();
            let rows = starts.iter().enumerate().map(|(at, start)| {
                std::iter::once(start.clone()).chain(values.iter().map(|values| values[at].to_string())).collect()
            });
            return csv("timeseries", &header, rows);
        }
        let series = metrics.into_iter().zip(values).map(|(metric, values)| {
            let points = starts.iter().zip(values).enumerate();
            let points = points.map(|(at, (start, value))| {
                let partial = i64::try_from(at).is_ok_and(|at| at == current);
                Point { start: start.clone(), value, partial }
            });
            Series { metric, points: points.collect() }
        });
        let (from, to) = (Day(range.from), Day(range.to));
        Json(Timeseries { interval, counted, from, to, series: series.collect() }).into_response()
    }
}

fn metrics(text: Option<&str>, interval: Interval) -> Result<Vec<String>> {
    let asked: Vec<String> = text
        .unwrap_or("sign_ins")
        .split(',')
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    if asked.is_empty() || asked.len() > MOST_METRICS {
        return Err(INVALID.at("metric", "wrong_number", "must be one to five metrics"));
    }
    for name in &asked {
        let is_people = PEOPLE.contains(&name.as_str());
        let is_known = is_people || name == TOTAL || METRICS.iter().any(|(metric, _)| metric == name);
        if !is_known {
            return Err(INVALID.at("metric", "unknown_metric", format!("there is no metric {name:?}")));
        }
        if is_people && interval == Interval::Hour {
            return Err(INVALID.at("metric", "no_hours", "users are counted by day, week and month"));
        }
    }
    Ok(asked)
}

/// The first and the last UTC hour of a range of days.
fn hours(zones: &Zones, range: Range, now: Timestamp) -> Result<(i64, i64)> {
    let hour = |moment: Timestamp| moment.0.div_euclid(3_600_000);
    let (first, last) = (hour(zones.start_of(range.from)), hour(Timestamp(zones.start_of(range.to + 1).0 - 1)));
    if usize::try_from(last - first).unwrap_or(usize::MAX) >= MOST_POINTS {
        return Err(TOO_MANY_POINTS.into());
    }
    if range.from < zones.day_of(now) - HOURS_KEPT {
        return Err(INVALID.at("from", "too_early", format!("hours are kept for {HOURS_KEPT} days")));
    }
    Ok((first, last))
}

/// The values of an event metric for each key (a day or an hour).
fn by_key(metric: &str, counts: &[DayCount], keys: impl Iterator<Item = i64>) -> Vec<i64> {
    let kinds = METRICS.iter().find(|(name, _)| *name == metric).map(|(_, kinds)| *kinds);
    let mut sums: BTreeMap<i64, i64> = BTreeMap::new();
    for count in counts.iter().filter(|count| kinds.is_none_or(|kinds| kinds.contains(&count.kind.as_str()))) {
        *sums.entry(count.day).or_default() += count.n;
    }
    keys.map(|key| sums.get(&key).copied().unwrap_or_default()).collect()
}

type Values = (Vec<String>, Vec<Vec<i64>>, i64);

async fn of_days(janua: &Janua, scope: &str, metrics: &[String], buckets: Vec<Bucket>, today: i64) -> Result<Values> {
    if buckets.len() > MOST_POINTS {
        return Err(TOO_MANY_POINTS.into());
    }
    let (from, to) = (buckets.first().map_or(0, |one| one.from), buckets.last().map_or(0, |one| one.to));
    let has_people = metrics.iter().any(|metric| PEOPLE.contains(&metric.as_str()));
    let counts = model::events_by_day(&janua.db, scope, from, to).await?;
    let people = if has_people { people(janua, scope, &buckets).await? } else { vec![] };
    let values = metrics.iter().map(|metric| {
        let of_people = |pick: fn(&(i64, i64)) -> i64| people.iter().map(pick).collect::<Vec<_>>();
        match metric.as_str() {
            "active_users" => of_people(|(seen, _)| *seen),
            "new_users" => of_people(|(_, new)| *new),
            "returning_users" => of_people(|(seen, new)| seen - new),
            metric => {
                let days = by_key(metric, &counts, from..=to);
                let of =
                    |day: i64| usize::try_from(day - from).ok().and_then(|at| days.get(at)).copied().unwrap_or(0);
                buckets.iter().map(|bucket| (bucket.from..=bucket.to).map(of).sum()).collect()
            }
        }
    });
    let values = values.collect();
    let current = buckets.iter().position(|bucket| (bucket.start..=bucket.to).contains(&today));
    let current = current.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1);
    Ok((buckets.iter().map(|bucket| Day(bucket.start).to_string()).collect(), values, current))
}

/// How many people were seen in each interval, and how many of them for the first time.
async fn people(janua: &Janua, scope: &str, buckets: &[Bucket]) -> Result<Vec<(i64, i64)>> {
    let (Some(first), Some(last)) = (buckets.first(), buckets.last()) else { return Ok(vec![]) };
    if buckets.iter().all(|bucket| bucket.from == bucket.to) {
        let found: Vec<PeopleOfDay> = model::people_by_day(&janua.db, scope, first.from, last.to).await?;
        let by_day: BTreeMap<i64, (i64, i64)> = found.into_iter().map(|one| (one.day, (one.seen, one.new))).collect();
        return Ok(buckets.iter().map(|bucket| by_day.get(&bucket.from).copied().unwrap_or_default()).collect());
    }
    let mut values = vec![];
    for bucket in buckets {
        values.push(model::people(&janua.db, scope, bucket.from, bucket.to).await?);
    }
    Ok(values)
}
