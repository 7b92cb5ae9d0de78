//! Export of spans by OTLP/HTTP, the protocol of OpenTelemetry, to the collector that `otlp_endpoint` names.
//!
//! The requests are the protocol's JSON mapping, written by hand: five objects with fixed fields. The crate
//! `opentelemetry-proto` would bring its SDK and `tonic`, the stack of gRPC, for the same text. Tests have the published types
//! decode what is sent, and a collector take it.
//!
//! Requests never wait for the collector: spans go through bounded queues, and what finds no room is dropped and counted
//! (`janua_spans_dropped_total`).
use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kernel::{
    Janua,
    config::Config,
    feature::Feature,
    http::Routes,
    settings,
    telemetry::{Span, SpanOf, Wanted},
};
use reqwest::{Client, StatusCode, redirect::Policy};
use serde_json::{Value, json};
use url::Url;

use crate::{observability::Node, otlp_header::OtlpHeader};

settings! {
    /// The export of traces.
    pub struct Settings {
        /// Where spans of requests and jobs are sent by OTLP/HTTP, such as http://localhost:4318. Empty: nowhere.
        otlp_endpoint: Option<Url> = "";
        /// Headers of these requests, such as api-key=secret,tenant=acme.
        otlp_headers: Vec<OtlpHeader> = "";
    }
}

/// How many spans wait for the collector at the most, and how many it is sent at once.
const MOST: usize = 8192;
const BATCH: usize = 512;
/// How long a collector may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long one that does not answer is left alone at first, and at the most.
const FIRST_WAIT: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_mins(1);

pub fn feature(config: &Config) -> Feature {
    let feature = Feature::new(Routes::new("traces"));
    match Exporter::of(&config.of::<Settings>()) {
        None => feature,
        Some(exporter) => feature
            .own(exporter)
            .start(|janua| {
                Box::pin(async move {
                    janua.own::<Exporter>().client.as_ref().map_err(Clone::clone)?;
                    janua.metrics.spans.want(Wanted::All);
                    Ok(())
                })
            })
            .task("traces.export", |janua| Box::pin(export_on(janua))),
    }
}

struct Exporter {
    client: Result<Client, String>,
    url: Url,
    headers: Vec<OtlpHeader>,
    waiting: Mutex<VecDeque<Span>>,
}

impl Exporter {
    fn of(settings: &Settings) -> Option<Self> {
        let mut url = settings.otlp_endpoint.clone()?;
        // As the standard says of the general endpoint: the path of the signal is added.
        if !url.path().ends_with("/v1/traces") {
            let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
            url.set_path(&path);
        }
        let client = Client::builder().timeout(TIMEOUT).redirect(Policy::none()).no_proxy().build();
        let client = client.map_err(|error| format!("otlp_endpoint: {error}"));
        Some(Self { client, url, headers: settings.otlp_headers.clone(), waiting: Mutex::default() })
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<Span>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts spans into the queue of the exporter, if there is one.
pub fn put(janua: &Janua, spans: &[Span]) {
    let Some(exporter) = janua.find::<Exporter>() else { return };
    let mut waiting = exporter.waiting();
    let room = MOST.saturating_sub(waiting.len());
    waiting.extend(spans.iter().take(room).cloned());
    let dropped = spans.len().saturating_sub(room);
    janua.metrics.spans.drop_more(u64::try_from(dropped).unwrap_or_default());
}

async fn export_on(janua: Janua) {
    let mut wait = FIRST_WAIT;
    loop {
        tokio::time::sleep(wait).await;
        wait = match send_waiting(&janua).await {
            Ok(()) => FIRST_WAIT,
            Err(why) => {
                tracing::warn!(why, "the collector does not take spans; they wait");
                (wait * 2).min(LONGEST_WAIT)
            }
        };
    }
}

/// Sends what waits, batch by batch. An error means that the rest waits for another time.
pub async fn send_waiting(janua: &Janua) -> Result<(), String> {
    let Some(exporter) = janua.find::<Exporter>() else { return Ok(()) };
    loop {
        let batch: Vec<Span> = {
            let mut waiting = exporter.waiting();
            let count = waiting.len().min(BATCH);
            waiting.drain(..count).collect()
        };
        if batch.is_empty() {
            return Ok(());
        }
        match send(janua, exporter, &batch).await {
            Answer::Taken { rejected } => janua.metrics.spans.drop_more(rejected),
            Answer::Refused(why) => {
                tracing::warn!(why, spans = batch.len(), "the collector refused spans");
                janua.metrics.spans.drop_more(u64::try_from(batch.len()).unwrap_or_default());
            }
            Answer::Later(why) => {
                let mut waiting = exporter.waiting();
                let room = MOST.saturating_sub(waiting.len());
                let dropped = batch.len().saturating_sub(room);
                // The newest of the batch stay: they are nearest to what waits behind them.
                batch.into_iter().skip(dropped).rev().for_each(|span| waiting.push_front(span));
                janua.metrics.spans.drop_more(u64::try_from(dropped).unwrap_or_default());
                return Err(why);
            }
        }
    }
}

enum Answer {
    Taken {
        rejected: u64,
    },
    /// For good.
    Refused(String),
    Later(String),
}

async fn send(janua: &Janua, exporter: &Exporter, spans: &[Span]) -> Answer {
    let Ok(client) = &exporter.client else { return Answer::Refused("there is no client".into()) };
    let mut call = client.post(exporter.url.clone()).json(&request(janua, spans));
    for header in &exporter.headers {
        call = call.header(&header.name, &header.value);
    }
    let answer = match call.send().await {
        Ok(answer) => answer,
        Err(error) if error.is_builder() => return Answer::Refused(error.without_url().to_string()),
        Err(error) => return Answer::Later(error.without_url().to_string()),
    };
    match answer.status() {
        status if status.is_success() => {
            let said: Value = answer.json().await.unwrap_or_default();
            let rejected = &said["partialSuccess"]["rejectedSpans"];
            let rejected = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok()).unwrap_or_default();
            Answer::Taken { rejected }
        }
        // The four that the protocol calls retryable.
        status @ (StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT) => Answer::Later(format!("it answered {status}")),
        status => Answer::Refused(format!("it answered {status}")),
    }
}

/// An `ExportTraceServiceRequest`.
fn request(janua: &Janua, spans: &[Span]) -> Value {
    let (node, _) = Node::of(janua);
    let resource = [
        text("service.name", "janua"),
        text("service.version", janua.metrics.version()),
        text("service.instance.id", node),
    ];
    let scope = json!({ "name": "janua", "version": janua.metrics.version() });
    let spans: Vec<_> = spans.iter().map(span).collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": scope, "spans": spans }],
    }] })
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// The mapping writes numbers of 64 bits as texts.
fn number(key: &str, value: u32) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

/// The kinds of spans, and the status of those that failed, by their numbers in the protocol.
const SERVER: u32 = 2;
const CONSUMER: u32 = 5;
const ERROR: u32 = 2;

fn span(span: &Span) -> Value {
    let (name, kind, has_failed, mut attributes) = match span.what {
        SpanOf::Request { method, route, status } => {
            let mut attributes = vec![
                text("http.request.method", method),
                text("http.route", route),
                number("http.response.status_code", status.into()),
            ];
            let has_failed = status >= 500;
            if has_failed {
                attributes.push(text("error.type", &status.to_string()));
            }
            (format!("{method} {route}"), SERVER, has_failed, attributes)
        }
        SpanOf::Job { kind, outcome, tries } => {
            let attributes = vec![
                text("janua.job.id", &span.id),
                text("janua.job.kind", kind),
                text("janua.job.outcome", outcome),
                number("janua.job.tries", tries),
            ];
            (kind.to_owned(), CONSUMER, outcome != "done", attributes)
        }
    };
    attributes.extend(span.request.as_deref().map(|request| text("janua.request_id", request)));
    let place = span.place.context.to_string();
    let mut parts = place.split('-').skip(1);
    let (trace, own) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let start = i128::from(span.started_at.0) * 1_000_000;
    let end = start + i128::try_from(span.took.as_nanos()).unwrap_or_default();
    let mut shown = json!({
        "traceId": trace,
        "spanId": own,
        "name": name,
        "kind": kind,
        "startTimeUnixNano": start.to_string(),
        "endTimeUnixNano": end.to_string(),
        "attributes": attributes,
        "flags": u32::from(span.place.context.is_sampled),
        "status": if has_failed { json!({ "code": ERROR }) } else { json!({}) },
    });
    if let Some(parent) = span.place.parent {
        shown["parentSpanId"] = format!("{:016x}", u64::from_be_bytes(parent)).into();
    }
    shown
}
