//! One request, followed through everything that it caused: events, jobs, deliveries, mails and usage.
//!
//! Whatever is stored carries the ID of the request, so a trace is read from the rows themselves. The request itself is kept
//! when it left such a row behind or failed; others would only fill the table.
use std::{collections::HashSet, time::Duration};

use axum::extract::State;
use db::{Db, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{NOT_FOUND, Result},
    feature::Feature,
    http::{Json, Path, Routes},
    id::Id,
    jobs::{self, Chore},
    telemetry::{MOST_STEPS, Span, SpanContext, SpanOf, StepKind, TraceStep, Traced, Wanted},
    transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{enter::PlatformAdmin, events::audit, messages::mail};

use crate::otlp;

/// How often a node writes down the requests that ended.
const EVERY: Duration = Duration::from_secs(1);
const KEPT: Duration = Duration::from_hours(24 * 7);
/// How many requests a node writes down at a time; those that failed come first. Past that a trace shows what the request
/// caused, and not how long it took itself. Without a bound, a row for each request would take as long to write as what many
/// of them write themselves.
const MOST: usize = 100;

pub fn feature() -> Feature {
    let routes = Routes::new("traces")
        .get("/observability/traces/{requestId}", trace, "everything that one request caused, in order of time")
        .fails(&[NOT_FOUND]);
    Feature::new(routes)
        .declares(&[Chore::run("request_span", |janua| Box::pin(async move { Ok(forget(&janua).await?) }))])
        .start(|janua| {
            Box::pin(async move {
                janua.metrics.spans.want(Wanted::Kept);
                Ok(())
            })
        })
        .task("traces.keep", |janua| Box::pin(keep_on(janua)))
}

async fn forget(janua: &Janua) -> db::Result<()> {
    let sql = "DELETE FROM request_span WHERE id IN (SELECT id FROM request_span WHERE id < $1 ORDER BY id LIMIT $2)";
    let before = Id::<StoredSpan>::first_of(janua.clock.now().minus(KEPT));
    janua.db.sweep(sql, params![before]).await.map(drop)
}

async fn keep_on(janua: Janua) {
    loop {
        tokio::time::sleep(EVERY).await;
        keep(&janua).await;
    }
}

/// Writes down the requests that ended since the last time. What cannot be written is dropped and counted.
pub async fn keep(janua: &Janua) {
    let mut spans = janua.metrics.spans.take();
    otlp::put(janua, &spans);
    spans.retain(is_worth_keeping);
    spans.sort_by_key(|span| !has_failed(span));
    let left_out = spans.len().saturating_sub(MOST);
    spans.truncate(MOST);
    let dropped = match insert(janua, &spans).await {
        Ok(()) => left_out,
        Err(fault) => {
            tracing::warn!(%fault, "cannot keep requests for traces");
            left_out + spans.len()
        }
    };
    janua.metrics.spans.drop_more(u64::try_from(dropped).unwrap_or_default());
}

fn has_failed(span: &Span) -> bool {
    matches!(span.what, SpanOf::Request { status: 500.., .. })
}

fn is_worth_keeping(span: &Span) -> bool {
    has_failed(span) || (span.is_kept && matches!(span.what, SpanOf::Request { .. }))
}

async fn insert(janua: &Janua, spans: &[Span]) -> Result<()> {
    if spans.is_empty() {
        return Ok(());
    }
    transact!(janua, async |tx| {
        for span in spans {
            let SpanOf::Request { method, route, status } = span.what else { continue };
            let took = i64::try_from(span.took.as_micros()).unwrap_or(i64::MAX);
            tx.send(
                "INSERT INTO request_span (id, request_id, method, route, status, started_at, took_us, traceparent)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                params![
                    Id::<StoredSpan>::new(&janua.entropy, span.started_at),
                    &*span.id,
                    method,
                    route,
                    u32::from(status),
                    span.started_at,
                    took,
                    span.place.context.to_string()
                ],
            )
            .await?;
        }
        Ok(())
    })
}

struct StoredSpan {
    id: String,
    method: String,
    route: String,
    status: u16,
    started_at: Timestamp,
    took_us: i64,
    traceparent: String,
}
row!(StoredSpan { id, method, route, status, started_at, took_us, traceparent });

impl StoredSpan {
    async fn of_request(db: &Db, request: &str) -> db::Result<Vec<Self>> {
        let sql = "SELECT id, method, route, status, started_at, took_us, traceparent FROM request_span
                   WHERE request_id = $1 ORDER BY id LIMIT $2";
        db.all(sql, params![request, MOST_STEPS]).await
    }

    fn step(&self) -> TraceStep {
        let took = Duration::from_micros(u64::try_from(self.took_us).unwrap_or_default());
        let state = if self.status >= 500 { "failed" } else { "answered" };
        TraceStep::new(StepKind::Request, &self.id, self.started_at, format!("{} {}", self.method, self.route))
            .state(state)
            .status_code(self.status)
            .ended_at(Some(self.started_at.plus(took)))
            .with("tookMs", Some(format!("{:.3}", took.as_secs_f64() * 1000.0)))
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TracePath {
    /// The value of the header `X-Request-Id` of the answer.
    #[schemars(length(min = 1, max = 128))]
    request_id: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the ID of a trace is called so everywhere")]
struct Trace {
    request_id: String,
    /// The ID of the trace that the request belongs to (W3C Trace Context), where the request itself was kept.
    trace_id: Option<String>,
    as_of: Timestamp,
    /// From the first step to the last thing that is known of any.
    duration_ms: i64,
    /// Oldest first.
    steps: Vec<TimedStep>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TimedStep {
    #[serde(flatten)]
    step: TraceStep,
    /// Since the first step.
    offset_ms: i64,
    /// Null for a step that has no end, or not yet.
    took_ms: Option<i64>,
}

async fn trace(
    State(janua): State<Janua>,
    _admin: PlatformAdmin,
    Path(TracePath { request_id }): Path<TracePath>,
) -> Result<Json<Trace>> {
    // What this node has seen counts at once.
    keep(&janua).await;
    let requests = StoredSpan::of_request(&janua.db, &request_id).await?;
    let mut steps: Vec<_> = requests.iter().map(StoredSpan::step).collect();
    let mails = mail::of_request(&janua.db, &request_id).await?;
    // A mail is sent by a job with its ID. The mail says more.
    let is_mail: HashSet<_> = mails.iter().map(|step| step.id.clone()).collect();
    let jobs = jobs::of_request(&janua.db, &request_id).await?;
    steps.extend(audit::of_request(&janua.db, &request_id).await?);
    steps.extend(jobs.into_iter().filter(|job| !is_mail.contains(&job.id)));
    steps.extend(mails);
    for Traced(find) in janua.declared::<Traced>() {
        steps.extend(find(janua.clone(), request_id.clone()).await?);
    }
    steps.sort_by(|a, b| (a.at, a.kind, &a.id).cmp(&(b.at, b.kind, &b.id)));
    let Some(first) = steps.first() else { return Err(NOT_FOUND.into()) };
    if requests.is_empty() {
        // Not kept, or by another node a moment ago: what is left of it says at least when it was.
        steps.insert(0, TraceStep::new(StepKind::Request, &request_id, first.at, "unknown"));
    }
    let trace = requests.first().and_then(|request| SpanContext::parse(&request.traceparent));
    let trace_id = trace.map(|context| context.to_string().split('-').nth(1).unwrap_or_default().to_owned());
    let began = steps.first().map_or(Timestamp(0), |step| step.at);
    let ended = steps.iter().map(|step| step.ended_at.unwrap_or(step.at).max(step.at)).max().unwrap_or(began);
    let steps = steps.into_iter().map(|step| TimedStep {
        offset_ms: step.at.0 - began.0,
        took_ms: step.ended_at.map(|end| (end.0 - step.at.0).max(0)),
        step,
    });
    let (duration_ms, as_of) = (ended.0 - began.0, janua.clock.now());
    Ok(Json(Trace { request_id, trace_id, as_of, duration_ms, steps: steps.collect() }))
}
