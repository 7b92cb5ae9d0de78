//! Observability of the platform: requests by route and background jobs, over all nodes. Each node keeps what it counted, one
//! row a minute; the rows add up.
use std::{collections::BTreeMap, time::Duration};

use axum::extract::State;
use db::{Db, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::Result,
    feature::Feature,
    http::{Json, Query, Routes},
    jobs::{self, Chore, Job, Jobs, KnownJob, Later, QueuedKind},
    telemetry::{Counts, JobCounts, RouteCounts, Times},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::enter::PlatformAdmin;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
/// Minutes become hours after this, and hours are kept for this long.
const MINUTES_KEPT: Duration = Duration::from_hours(48);
const HOURS_KEPT: Duration = Duration::from_hours(24 * 30);
/// A job that has been due for longer is late.
const LATE_MS: i64 = 60_000;

pub fn feature() -> Feature {
    Feature::new(routes())
        .jobs(Jobs::new().every::<MergeMinutes>(Duration::from_hours(1)))
        .own(Node::default())
        .declares(CHORES)
        .task(|janua| Box::pin(keep_minutes(janua)))
}

fn routes() -> Routes {
    Routes::new("observability").get("/observability/functions", functions, "health of background jobs").get(
        "/observability/api-gateway",
        api_gateway,
        "requests by route: rates, errors and times",
    )
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

/// What a row keeps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Kept {
    version: String,
    started_at: i64,
    in_flight: i64,
    connections: i64,
    counts: Counts,
}

impl Kept {
    fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
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
    let kept = Kept {
        version: janua.metrics.version().to_owned(),
        started_at: started_at.0,
        in_flight: janua.metrics.in_flight.get(),
        connections: janua.metrics.connections.get(),
        counts: janua.metrics.take_counts(),
    };
    transact!(janua, async |tx| {
        let sql = "SELECT data FROM metric_span WHERE span = 'm' AND since = $1 AND node = $2";
        // A clock that went back meets a minute that was written before.
        let before: Option<(String,)> = tx.opt(sql, params![since, node]).await?;
        let mut sum: Kept = before.and_then(|(data,)| serde_json::from_str(&data).ok()).unwrap_or_default();
        sum.add(&kept);
        Ok(put(tx, "m", since, node, &sum).await?)
    })
}

async fn put(tx: &mut db::Tx, span: &str, since: i64, node: &str, kept: &Kept) -> db::Result<()> {
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

/// Turns minutes that are two days old into hours.
#[derive(Default, Serialize, Deserialize)]
struct MergeMinutes {}

impl Job for MergeMinutes {
    const KIND: &'static str = "insights.merge_minutes";

    async fn run(self, janua: Janua) -> std::result::Result<(), Later> {
        while merge_an_hour(&janua).await? {}
        Ok(())
    }
}

/// The oldest hour that is over for two days, of all nodes; `false` when there is none.
async fn merge_an_hour(janua: &Janua) -> Result<bool> {
    let before = janua.clock.now().minus(MINUTES_KEPT).0.div_euclid(HOUR) * HOUR;
    transact!(janua, async |tx| {
        let sql = "SELECT since FROM metric_span WHERE span = 'm' AND since < $1 ORDER BY since LIMIT 1";
        let Some((first,)) = tx.opt::<(i64,)>(sql, params![before]).await? else { return Ok(false) };
        let hour = first.div_euclid(HOUR) * HOUR;
        let sql =
            "DELETE FROM metric_span WHERE span = 'm' AND since >= $1 AND since < $2 RETURNING since, node, data";
        let mut rows: Vec<Stored> = tx.put(sql, params![hour, hour + HOUR]).await?;
        rows.sort_by_key(|row| row.since);
        let mut nodes: BTreeMap<String, Kept> = BTreeMap::new();
        for row in rows {
            let kept: Kept = serde_json::from_str(&row.data).unwrap_or_default();
            nodes.entry(row.node).or_default().add(&kept);
        }
        for (node, mut kept) in nodes {
            let sql = "SELECT data FROM metric_span WHERE span = 'h' AND since = $1 AND node = $2";
            if let Some((data,)) = tx.opt::<(String,)>(sql, params![hour, &node]).await? {
                kept.add(&serde_json::from_str(&data).unwrap_or_default());
            }
            put(tx, "h", hour, &node, &kept).await?;
        }
        Ok(true)
    })
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

/// What all nodes kept since a moment.
async fn kept_since(db: &Db, since: Timestamp) -> db::Result<Vec<(i64, String, Kept)>> {
    let sql = "SELECT since, node, data FROM metric_span WHERE span = $1 AND since >= $2 ORDER BY since";
    let mut all: Vec<Stored> = db.all(sql, params!["h", since]).await?;
    all.extend(db.all::<Stored>(sql, params!["m", since]).await?);
    let read = |row: Stored| (row.since, row.node, serde_json::from_str(&row.data).unwrap_or_default());
    Ok(all.into_iter().map(read).collect())
}

/// The requests of all nodes and routes since a moment, without the minute that is not over.
pub(crate) async fn requests_since(db: &Db, since: Timestamp) -> db::Result<RouteCounts> {
    let mut total = RouteCounts::default();
    for (_, _, kept) in kept_since(db, since).await? {
        kept.counts.routes.values().for_each(|counts| total.add(counts));
    }
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

/// A kind of background job.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Function {
    name: String,
    kind: FunctionKind,
    invocations: u64,
    errors: u64,
    error_rate: f64,
    retries: u64,
    /// Jobs that failed for good and wait for a person.
    dead: i64,
    waiting: i64,
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
    let (mut counts, mut nodes) = (Counts::default(), std::collections::BTreeSet::new());
    for (_, node, kept) in kept_since(&janua.db, since).await? {
        counts.add(&kept.counts);
        nodes.insert(node);
    }
    let queue = jobs::by_kind(&janua.db, now).await?;
    let turns = jobs::next_turns(&janua.db).await?;
    let mut functions = vec![];
    for known in janua.declared::<KnownJob>() {
        let counted = counts.jobs.get(known.kind).cloned().unwrap_or_default();
        let queued = queue.iter().find(|queued| queued.kind == known.kind).cloned().unwrap_or_default();
        let next = turns.iter().find(|(name, _)| name == known.kind).map(|(_, at)| *at);
        functions.push(function(known, &counted, &queued, next, since, now));
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
    /// With the most requests first.
    routes: Vec<RouteTraffic>,
    series: Vec<GatewayPoint>,
    nodes: Vec<NodeView>,
}

async fn api_gateway(
    State(janua): State<Janua>,
    _admin: PlatformAdmin,
    Query(query): Query<GatewayQuery>,
) -> Result<Json<Gateway>> {
    let (now, window) = (janua.clock.now(), query.window.unwrap_or_default());
    let first = now.minus(window.length());
    let (mut total, mut routes) = (RouteCounts::default(), BTreeMap::<String, RouteCounts>::new());
    let mut series: BTreeMap<i64, RouteCounts> = BTreeMap::new();
    let mut nodes: BTreeMap<String, NodeView> = BTreeMap::new();
    for (since, node, kept) in kept_since(&janua.db, first).await? {
        for (name, counts) in
            kept.counts.routes.iter().filter(|(name, _)| query.route.as_ref().is_none_or(|r| r == *name))
        {
            total.add(counts);
            routes.entry(name.clone()).or_default().add(counts);
            series.entry(since.div_euclid(window.step())).or_default().add(counts);
        }
        let view = NodeView {
            id: node.clone(),
            version: kept.version,
            started_at: Timestamp(kept.started_at),
            in_flight: kept.in_flight,
            connections: kept.connections,
            last_seen_at: Timestamp(since),
        };
        nodes.insert(node, view);
    }
    let points = first.0.div_euclid(window.step())..=now.0.div_euclid(window.step());
    let series = points.map(|at| {
        let counts = series.remove(&at).unwrap_or_default();
        let start = Timestamp(at * window.step());
        GatewayPoint {
            start,
            requests: counts.requests(),
            errors: counts.classes[3],
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
    let nodes = nodes.into_values().collect();
    Ok(Json(Gateway { window, as_of: now, totals: Traffic::of(&total, window), routes, series, nodes }))
}
