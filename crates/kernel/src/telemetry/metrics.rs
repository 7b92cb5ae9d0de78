//! Figures in the Prometheus text format: what the node does, never for whom.
use std::{fmt, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

/// All figures of a node. Labels are routes, kinds and states, which the program names, and never what callers send.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabels, Histogram>,
    jobs: Family<JobLabels, Counter>,
    pub in_flight: Gauge,
    pub connections: Gauge,
    /// Kept true by the probe that looks at the job table.
    pub jobs_waiting: Gauge,
    pub jobs_dead: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    route: &'static str,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: String,
    route: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobLabels {
    kind: &'static str,
    outcome: &'static str,
}

const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// The figures of one route, looked up once when the routes are put together.
#[derive(Clone)]
pub struct RouteMetrics {
    by_class: [Counter; CLASSES.len()],
    duration: Histogram,
}

impl RouteMetrics {
    pub fn record(&self, status: u16, took: Duration) {
        let class = usize::from(status / 100).clamp(2, CLASSES.len() + 1) - 2;
        self.by_class[class].inc();
        self.duration.observe(took.as_secs_f64());
    }
}

impl Metrics {
    pub fn new(version: &'static str) -> Self {
        let buckets = || Histogram::new(exponential_buckets(0.000_25, 4.0, 9));
        let metrics = Self {
            registry: Registry::with_prefix("janua"),
            requests: Family::default(),
            durations: Family::new_with_constructor(buckets),
            jobs: Family::default(),
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            jobs_waiting: Gauge::default(),
            jobs_dead: Gauge::default(),
        };
        metrics.registered(version)
    }

    fn registered(mut self, version: &'static str) -> Self {
        let registry = &mut self.registry;
        registry.register("http_requests", "Requests answered", self.requests.clone());
        let help = "How long requests took";
        registry.register_with_unit("http_request_duration", help, Unit::Seconds, self.durations.clone());
        registry.register("http_requests_in_flight", "Requests being worked on", self.in_flight.clone());
        registry.register("http_connections", "Open connections", self.connections.clone());
        registry.register("jobs", "Jobs that ended, by outcome", self.jobs.clone());
        registry.register("jobs_waiting", "Jobs that wait for their turn", self.jobs_waiting.clone());
        registry.register("jobs_dead", "Jobs that were given up", self.jobs_dead.clone());
        registry.register("log_lines_dropped", "Log lines that nobody took in time", super::queue::dropped());
        let build = prometheus_client::metrics::info::Info::new([("version", version)]);
        registry.register("build", "The running version", build);
        self
    }

    pub fn route(&self, method: &str, route: &'static str) -> RouteMetrics {
        let method = method.to_owned();
        let by_class = CLASSES.map(|status| {
            let labels = RequestLabels { method: method.clone(), route, status };
            self.requests.get_or_create(&labels).clone()
        });
        RouteMetrics { by_class, duration: self.durations.get_or_create(&RouteLabels { method, route }).clone() }
    }

    pub fn job_ended(&self, kind: &'static str, outcome: &'static str) {
        self.jobs.get_or_create(&JobLabels { kind, outcome }).inc();
    }

    pub fn render(&self) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }
}
