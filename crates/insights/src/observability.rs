//! Observability of the platform: requests by route, background jobs and tasks, over all nodes. Each node keeps what it
//! counted, one row a minute; the rows add up. Older rows are merged, so that a long range reads few of them.
use std::{collections::BTreeMap, time::Duration};

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use db::{Db, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::Result,
    feature::{Feature, Task},
    http::{Json, Query, Routes},
    jobs::{self, Chore, Job, Jobs, KnownJob, Later, QueuedKind},
    telemetry::{Counts, JobCounts, RouteCounts, TaskCounts, Times},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::enter::PlatformAdmin;

use crate::analytics::api::{WantsCsv, csv};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
/// How long hours are kept.
const HOURS_KEPT: Duration = Duration::from_hours(24 * 30);
/// Rows that are old enough become rows of a longer span. The steps of the series are made of whole ones: a day has steps of
/// a quarter of an hour, a week of an hour.
const MERGES: [Merge; 2] = [
    Merge { from: "m", to: "q", length: 15 * MINUTE, after: Duration::from_hours(2) },
    Merge { from: "q", to: "h", length: HOUR, after: Duration::from_hours(48) },
];
/// All spans, the longest first: in the order of time.
const SPANS: [&str; 3] = ["h", "q", "m"];
/// How many rows are read at once. One is up to some ten kilobytes of JSON.
const AT_ONCE: u32 = 50;
/// A node that did not report for longer has stopped.
const SILENT: Duration = Duration::from_mins(3);
/// A job that has been due for longer is late.
const LATE_MS: i64 = 60_000;

pub fn feature() -> Feature {
    Feature::new(routes())
        .jobs(Jobs::new().every::<MergeMinutes>(Duration::from_hours(1)))
        .own(Node::default())
        .declares(CHORES)
        .task("insights.keep_minutes", |janua| Box::pin(keep_minutes(janua)))
}

fn routes() -> Routes {
    Routes::new("observability")
        .get("/observability/functions", functions, "health of background jobs and tasks")
        .get("/observability/api-gateway", api_gateway, "requests by route: rates, errors and times")
        .answers::<Gateway>(200, "application/json")
        .answers::<String>(200, "text/csv")
}

const CHORES: &[Chore] = &[Chore::sweep(
    "metric_span",
    "DELETE FROM metric_span WHERE (span, since, node) IN
         (SELECT span, since, node FROM metric_span WHERE span = 'h' AND since < $1 ORDER BY since LIMIT $2)",
    HOURS_KEPT,
)];

/// This process, among the nodes.
#[derive(Default)]
pub(crate) struct Node(std::sync::OnceLock<(String, Timestamp)>);

impl Node {
    pub(crate) fn of(janua: &Janua) -> &(String, Timestamp) {
        janua.own::<Self>().0.get_or_init(|| {
            let now = janua.clock.now();
            (janua.entropy.uuid(now).to_string(), now)
        })
    }
}

/// The figures of one node in one minute, as a row stores them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct MinuteFigures {
    version: String,
    started_at: i64,
    in_flight: i64,
    connections: i64,
    /// The last minute in it.
    #[serde(default)]
    last_minute: i64,
    counts: Counts,
}

impl MinuteFigures {
    /// Adds what was kept later.
    fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.last_minute = self.last_minute.max(other.last_minute);
        self.version.clone_from(&other.version);
        (self.started_at, self.in_flight, self.connections) = (other.started_at, other.in_flight, other.connections);
    }
}

async fn keep_minutes(janua: Janua) {
    Node::of(&janua);
    loop {
        let left = MINUTE - janua.clock.now().0.rem_euclid(MINUTE);
        tokio::time::sleep(Duration::from_millis(u64::try_from(left).unwrap_or(1))).await;
        if let Err(fault) = keep(&janua).await {
            tracing::warn!(%fault, "cannot keep what this node counted");
        }
    }
}

/// Writes what this node counted since the last time, under the minute that is ending.
pub async fn keep(janua: &Janua) -> Result<()> {
    let (node, started_at) = Node::of(janua);
    let since = (janua.clock.now().0 - 1).div_euclid(MINUTE) * MINUTE;
    let kept = MinuteFigures {
        version: janua.metrics.version().to_owned(),
        started_at: started_at.0,
        in_flight: janua.metrics.in_flight.get(),
        connections: janua.metrics.connections.get(),
        last_minute: since,
        counts: janua.metrics.take_counts(),
    };
    transact!(janua, async |tx| {
        let sql = "SELECT data FROM metric_span WHERE span = 'm' AND since = $1 AND node = $2";
        // A clock that went back meets a minute that was written before.
        let before: Option<(String,)> = tx.opt(sql, params![since, node]).await?;
        let mut sum: MinuteFigures = before.and_then(|(data,)| serde_json::from_str(&data).ok()).unwrap_or_default();
        sum.add(&kept);
        Ok(put(tx, "m", since, node, &sum).await?)
    })
}

async fn put(tx: &mut db::Tx, span: &str, since: i64, node: &str, kept: &MinuteFigures) -> db::Result<()> {
    let sql = "INSERT INTO metric_span (span, since, node, data) VALUES ($1, $2, $3, $4)
               ON CONFLICT (span, since, node) DO UPDATE SET data = $4";
    let data = serde_json::to_string(kept).unwrap_or_default();
    tx.send(sql, params![span, since, node, data]).await
}

struct Stored {
    since: i64,
    node: String,
    data: String,
}
row!(Stored { since, node, data });

struct Merge {
    from: &'static str,
    to: &'static str,
    length: i64,
    after: Duration,
}

/// Merges rows that are old enough.
#[derive(Default, Serialize, Deserialize)]
struct MergeMinutes {}

impl Job for MergeMinutes {
    const KIND: &'static str = "insights.merge_minutes";

    async fn run(self, janua: Janua) -> std::result::Result<(), Later> {
        for merge in &MERGES {
            while merge.once(&janua).await? {}
        }
        Ok(())
    }
}

impl Merge {
    /// Merges the oldest rows that belong together, of all nodes; `false` when there are none.
    async fn once(&self, janua: &Janua) -> Result<bool> {
        let whole = |since: i64| since.div_euclid(self.length) * self.length;
        let before = whole(janua.clock.now().minus(self.after).0);
        transact!(janua, async |tx| {
            let sql = "SELECT since FROM metric_span WHERE span = $1 AND since < $2 ORDER BY since LIMIT 1";
            let first: Option<(i64,)> = tx.opt(sql, params![self.from, before]).await?;
            let Some(start) = first.map(|(since,)| whole(since)) else { return Ok(false) };
            let sql = "DELETE FROM metric_span WHERE span = $1 AND since >= $2 AND since < $3
                       RETURNING since, node, data";
            let mut rows: Vec<Stored> = tx.put(sql, params![self.from, start, start + self.length]).await?;
            rows.sort_by_key(|row| row.since);
            let mut nodes: BTreeMap<String, Vec<MinuteFigures>> = BTreeMap::new();
            for row in rows {
                let mut kept: MinuteFigures = serde_json::from_str(&row.data).unwrap_or_default();
                kept.last_minute = kept.last_minute.max(row.since);
                nodes.entry(row.node).or_default().push(kept);
            }
            for (node, all) in nodes {
                // A row that came late finds the others merged.
                let sql = "SELECT data FROM metric_span WHERE span = $1 AND since = $2 AND node = $3";
                let before: Option<(String,)> = tx.opt(sql, params![self.to, start, &node]).await?;
                let mut sum: MinuteFigures =
                    before.and_then(|(data,)| serde_json::from_str(&data).ok()).unwrap_or_default();
                for kept in &all {
                    sum.add(kept);
                }
                put(tx, self.to, start, &node, &sum).await?;
            }
            Ok(true)
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
enum Window {
    #[serde(rename = "1h")]
    Hour,
    #[serde(rename = "24h")]
    #[default]
    Day,
    #[serde(rename = "7d")]
    Week,
}

impl Window {
    fn length(self) -> Duration {
        Duration::from_hours(match self {
            Self::Hour => 1,
            Self::Day => 24,
            Self::Week => 168,
        })
    }

    /// The length of a point of the series.
    fn step(self) -> i64 {
        match self {
            Self::Hour => MINUTE,
            Self::Day => 15 * MINUTE,
            Self::Week => HOUR,
        }
    }
}

/// What is read of a row: the counts that are wanted, and no others.
#[derive(Default, Deserialize)]
struct Row<C> {
    version: String,
    started_at: i64,
    in_flight: i64,
    connections: i64,
    #[serde(default)]
    last_minute: i64,
    counts: C,
}

#[derive(Default, Deserialize)]
struct OfRoutes {
    routes: BTreeMap<String, RouteCounts>,
}

#[derive(Default, Deserialize)]
struct OfJobs {
    jobs: BTreeMap<String, JobCounts>,
    #[serde(default)]
    tasks: BTreeMap<String, TaskCounts>,
}

/// Passes on what all nodes kept since a moment, a few rows at a time: other requests of this node go on meanwhile.
async fn each_since<C: Default + serde::de::DeserializeOwned>(
    db: &Db,
    first: Timestamp,
    mut each: impl FnMut(i64, String, Row<C>),
) -> db::Result<()> {
    let sql = "SELECT since, node, data FROM metric_span WHERE span = $1 AND (since, node) > ($2, $3)
               ORDER BY since, node LIMIT $4";
    for span in SPANS {
        let (mut since, mut node) = (first.0, String::new());
        loop {
            let rows: Vec<Stored> = db.all(sql, params![span, since, &node, AT_ONCE]).await?;
            let is_last = rows.len() < AT_ONCE as usize;
            for row in rows {
                let mut read: Row<C> = serde_json::from_str(&row.data).unwrap_or_default();
                read.last_minute = read.last_minute.max(row.since);
                (since, node) = (row.since, row.node.clone());
                each(row.since, row.node, read);
            }
            if is_last {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// The requests of all nodes and routes since a moment, without the minute that is not over.
pub(crate) async fn requests_since(db: &Db, since: Timestamp) -> db::Result<RouteCounts> {
    let mut total = RouteCounts::default();
    each_since(db, since, |_, _, row: Row<OfRoutes>| {
        row.counts.routes.values().for_each(|counts| total.add(counts));
    })
    .await?;
    Ok(total)
}

#[derive(Deserialize, JsonSchema)]
struct FunctionsQuery {
    window: Option<Window>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "a list is called as what it lists")]
struct Functions {
    functions: Vec<Function>,
    window: Window,
    as_of: Timestamp,
    /// Nodes that reported.
    nodes: usize,
}

/// A kind of background job, or a task: a loop that every node runs.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Function {
    name: String,
    kind: FunctionKind,
    /// Runs of a job; of a task how often it was started.
    invocations: u64,
    /// Runs of a job that failed; of a task how often it panicked.
    errors: u64,
    error_rate: f64,
    retries: u64,
    /// Jobs that failed for good and wait for a person.
    dead: i64,
    waiting: i64,
    /// Jobs that run now; of a task the nodes on which it ran when they reported last.
    running: i64,
    /// How long the oldest job that is due has waited.
    oldest_waiting_ms: i64,
    duration: Durations,
    last_run_at: Option<Timestamp>,
    last_success_at: Option<Timestamp>,
    /// A word for the last error: `failed`, `given_up`, `timed_out`, `panicked` or `lease_lost`.
    last_error: Option<String>,
    next_run_at: Option<Timestamp>,
    health: Health,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum FunctionKind {
    Job,
    Recurring,
    Task,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Health {
    Healthy,
    Degraded,
    Failing,
}

/// Milliseconds; null where nothing was measured.
#[derive(Debug, Serialize, JsonSchema)]
struct Durations {
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

impl Durations {
    fn of(times: &Times) -> Self {
        let [p50, p95, p99, max] = [0.5, 0.95, 0.99, 1.0].map(|part| times.percentile(part));
        Self { p50, p95, p99, max }
    }
}

async fn functions(
    State(janua): State<Janua>,
    _admin: PlatformAdmin,
    Query(query): Query<FunctionsQuery>,
) -> Result<Json<Functions>> {
    let (now, window) = (janua.clock.now(), query.window.unwrap_or_default());
    let since = now.minus(window.length());
    let mut counts: BTreeMap<String, JobCounts> = BTreeMap::new();
    let mut nodes: BTreeMap<String, (i64, BTreeMap<String, TaskCounts>)> = BTreeMap::new();
    each_since(&janua.db, since, |_, node, row: Row<OfJobs>| {
        for (kind, counted) in &row.counts.jobs {
            counts.entry(kind.clone()).or_default().add(counted);
        }
        let (last, tasks) = nodes.entry(node).or_default();
        *last = row.last_minute.max(*last);
        for (name, counted) in &row.counts.tasks {
            tasks.entry(name.clone()).or_default().add(counted);
        }
    })
    .await?;
    let queue = jobs::by_kind(&janua.db, now).await?;
    let turns = jobs::next_turns(&janua.db).await?;
    let mut functions = vec![];
    for known in janua.declared::<KnownJob>() {
        let counted = counts.get(known.kind).cloned().unwrap_or_default();
        let queued = queue.iter().find(|queued| queued.kind == known.kind).cloned().unwrap_or_default();
        let next = turns.iter().find(|(name, _)| name == known.kind).map(|(_, at)| *at);
        functions.push(function(known, &counted, &queued, next, since, now));
    }
    let silent = now.minus(SILENT).0;
    for known in janua.declared::<Task>() {
        let ran = nodes.values().filter_map(|(last, tasks)| Some((*last >= silent, tasks.get(known.name)?)));
        functions.push(task(known.name, ran));
    }
    functions.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Json(Functions { functions, window, as_of: now, nodes: nodes.len() }))
}

fn function(
    known: &KnownJob,
    counted: &JobCounts,
    queued: &QueuedKind,
    next: Option<Timestamp>,
    since: Timestamp,
    now: Timestamp,
) -> Function {
    let errors = counted.retried + counted.dead + counted.lost;
    let invocations = counted.done + errors;
    let error_rate = share(errors, invocations);
    let oldest = queued.oldest_due.map_or(0, |at| (now.0 - at.0).max(0));
    let moment = |at: i64| Some(Timestamp(at)).filter(|at| at.0 > 0);
    let is_late = match (known.every, next) {
        (Some(every), Some(next)) => now > next.plus(2 * every),
        _ => false,
    };
    let died = counted.dead > 0 || queued.died_at.is_some_and(|at| at >= since);
    let health = match () {
        () if died || is_late => Health::Failing,
        () if error_rate > 0.05 || oldest > LATE_MS => Health::Degraded,
        () => Health::Healthy,
    };
    Function {
        name: known.kind.to_owned(),
        kind: if known.every.is_some() { FunctionKind::Recurring } else { FunctionKind::Job },
        invocations,
        errors,
        error_rate,
        retries: counted.retried,
        dead: queued.dead,
        waiting: queued.waiting,
        running: queued.running,
        oldest_waiting_ms: oldest,
        duration: Durations::of(&counted.times),
        last_run_at: moment(counted.last_at),
        last_success_at: moment(counted.last_success_at),
        last_error: counted.last_error.clone(),
        next_run_at: next,
        health,
    }
}

/// A task, by what the nodes counted; each with whether the node still reports.
fn task<'c>(name: &str, nodes: impl Iterator<Item = (bool, &'c TaskCounts)>) -> Function {
    let (mut sum, mut running) = (TaskCounts::default(), 0);
    let mut is_down = false;
    for (reports, counted) in nodes {
        sum.add(counted);
        running += i64::from(reports && counted.is_running);
        // One that ended by itself has nothing to do.
        is_down |= reports && counted.panics > 0 && !counted.is_running;
    }
    let health = match () {
        () if is_down => Health::Failing,
        () if sum.panics > 0 => Health::Degraded,
        () => Health::Healthy,
    };
    Function {
        name: name.to_owned(),
        kind: FunctionKind::Task,
        invocations: sum.starts,
        errors: sum.panics,
        error_rate: share(sum.panics, sum.starts),
        retries: 0,
        dead: 0,
        waiting: 0,
        running,
        oldest_waiting_ms: 0,
        duration: Durations::of(&Times::default()),
        last_run_at: Some(Timestamp(sum.last_at)).filter(|at| at.0 > 0),
        last_success_at: None,
        last_error: (sum.panics > 0).then(|| "panicked".to_owned()),
        next_run_at: None,
        health,
    }
}

/// A part of a whole, with four digits.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * 10_000.0).round() / 10_000.0 }
}

#[derive(Deserialize, JsonSchema)]
struct GatewayQuery {
    window: Option<Window>,
    /// Only this route, as in `GET /apps/{appId}`.
    #[schemars(length(max = 200))]
    route: Option<String>,
}

/// Requests by class of status.
#[derive(Serialize, JsonSchema)]
struct ByClass {
    #[serde(rename = "2xx")]
    success: u64,
    #[serde(rename = "3xx")]
    redirect: u64,
    #[serde(rename = "4xx")]
    refused: u64,
    #[serde(rename = "5xx")]
    failed: u64,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Traffic {
    requests: u64,
    by_class: ByClass,
    /// The share of answers with a status of 500 and more.
    error_rate: f64,
    per_second: f64,
    /// Milliseconds; null where nothing was measured.
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    rate_limited: u64,
    overloaded: u64,
}

impl Traffic {
    fn of(counts: &RouteCounts, window: Window) -> Self {
        let [success, redirect, refused, failed] = counts.classes;
        #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
        let per_second = counts.requests() as f64 / window.length().as_secs_f64();
        Self {
            requests: counts.requests(),
            by_class: ByClass { success, redirect, refused, failed },
            error_rate: share(failed, counts.requests()),
            per_second: (per_second * 1000.0).round() / 1000.0,
            p50: counts.times.percentile(0.5),
            p95: counts.times.percentile(0.95),
            p99: counts.times.percentile(0.99),
            rate_limited: counts.limited,
            overloaded: counts.overloaded,
        }
    }
}

#[derive(Serialize, JsonSchema)]
struct RouteTraffic {
    method: String,
    /// The pattern of the path.
    route: String,
    #[serde(flatten)]
    traffic: Traffic,
}

#[derive(Serialize, JsonSchema)]
struct GatewayPoint {
    start: Timestamp,
    requests: u64,
    errors: u64,
    p50: Option<f64>,
    p95: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NodeView {
    id: String,
    version: String,
    started_at: Timestamp,
    in_flight: i64,
    connections: i64,
    last_seen_at: Timestamp,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Gateway {
    window: Window,
    as_of: Timestamp,
    totals: Traffic,
    /// The same length of time before.
    previous: Traffic,
    /// With the most requests first.
    routes: Vec<RouteTraffic>,
    series: Vec<GatewayPoint>,
    nodes: Vec<NodeView>,
}

async fn api_gateway(
    State(janua): State<Janua>,
    _admin: PlatformAdmin,
    Query(query): Query<GatewayQuery>,
    WantsCsv(is_csv): WantsCsv,
) -> Result<Response> {
    let (now, window) = (janua.clock.now(), query.window.unwrap_or_default());
    let first = now.minus(window.length());
    let mut previous = RouteCounts::default();
    let (mut total, mut routes) = (RouteCounts::default(), BTreeMap::<String, RouteCounts>::new());
    let mut series: BTreeMap<i64, RouteCounts> = BTreeMap::new();
    let mut nodes: BTreeMap<String, NodeView> = BTreeMap::new();
    each_since(&janua.db, first.minus(window.length()), |since, node, row: Row<OfRoutes>| {
        let is_wanted = |name: &String| query.route.as_ref().is_none_or(|wanted| wanted == name);
        for (name, counts) in row.counts.routes.iter().filter(|(name, _)| is_wanted(name)) {
            if since < first.0 {
                previous.add(counts);
                continue;
            }
            total.add(counts);
            routes.entry(name.clone()).or_default().add(counts);
            series.entry(since.div_euclid(window.step())).or_default().add(counts);
        }
        if since < first.0 {
            return;
        }
        let view = NodeView {
            id: node.clone(),
            version: row.version,
            started_at: Timestamp(row.started_at),
            in_flight: row.in_flight,
            connections: row.connections,
            last_seen_at: Timestamp(row.last_minute),
        };
        nodes.insert(node, view);
    })
    .await?;
    let points = first.0.div_euclid(window.step())..=now.0.div_euclid(window.step());
    let series = points.map(|at| {
        let counts = series.remove(&at).unwrap_or_default();
        let start = Timestamp(at * window.step());
        GatewayPoint {
            start,
            requests: counts.requests(),
            errors: counts.classes[3],
            p50: counts.times.percentile(0.5),
            p95: counts.times.percentile(0.95),
        }
    });
    let series = series.collect();
    let mut routes: Vec<RouteTraffic> = routes
        .iter()
        .map(|(name, counts)| {
            let (method, route) = name.split_once(' ').unwrap_or(("", name));
            RouteTraffic { method: method.to_owned(), route: route.to_owned(), traffic: Traffic::of(counts, window) }
        })
        .collect();
    routes.sort_by(|a, b| b.traffic.requests.cmp(&a.traffic.requests).then(a.route.cmp(&b.route)));
    if is_csv {
        return Ok(routes_csv(routes));
    }
    let nodes = nodes.into_values().collect();
    let (totals, previous) = (Traffic::of(&total, window), Traffic::of(&previous, window));
    Ok(Json(Gateway { window, as_of: now, totals, previous, routes, series, nodes }).into_response())
}

/// All routes, one a line.
fn routes_csv(routes: Vec<RouteTraffic>) -> Response {
    let header = [
        "method",
        "route",
        "requests",
        "2xx",
        "3xx",
        "4xx",
        "5xx",
        "errorRate",
        "perSecond",
        "p50",
        "p95",
        "p99",
        "rateLimited",
        "overloaded",
    ];
    let rows = routes.into_iter().map(|RouteTraffic { method, route, traffic }| {
        let Traffic { requests, by_class, error_rate, per_second, p50, p95, p99, rate_limited, overloaded } = traffic;
        let ByClass { success, redirect, refused, failed } = by_class;
        let counts = [requests, success, redirect, refused, failed].map(|n| n.to_string());
        let times = [Some(error_rate), Some(per_second), p50, p95, p99];
        let times = times.map(|time| time.map(|time| time.to_string()).unwrap_or_default());
        let refusals = [rate_limited, overloaded].map(|n| n.to_string());
        [method, route].into_iter().chain(counts).chain(times).chain(refusals).collect()
    });
    csv("requests", &header, rows)
}
