//! Figures for Prometheus and `OpenMetrics`: acts of the node, without names of users or organizations.
use std::{
    collections::HashMap,
    fmt::{self, Write as _},
    sync::OnceLock,
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use super::{
    measured::Measured,
    minutes::{CountedRoute, Counts, Live},
    process::Process,
    spans::Spans,
};
use crate::{Janua, clock::Timestamp};

/// All figures of a node. Labels are routes, kinds and states, which the program names, and never what callers send.
pub struct Metrics {
    registry: Registry,
    /// The figures of the process, whose names have no prefix.
    processes: Registry,
    requests: Requests,
    durations: Durations,
    /// Of all routes together, by class of status. They exist from the start, so that a rate of errors sees the first one.
    responses: [Counter; CLASSES.len()],
    jobs: Family<JobLabels, Counter>,
    mails: Family<OutcomeLabels, Counter>,
    attempts: HashMap<&'static str, Family<OutcomeLabels, Counter>>,
    measured: Measured,
    live: Live,
    /// Requests and jobs that ended, for traces.
    pub spans: Spans,
    version: &'static str,
    pub in_flight: Gauge,
    pub connections: Gauge,
    /// Mails that were asked for and not sent, because the email had its share.
    pub mails_withheld: Counter,
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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// How an attempt to send a mail ends: `deferred` is tried again, `failed` is given up.
pub const MAIL_OUTCOMES: [&str; 3] = ["sent", "deferred", "failed"];

/// What a feature tries, counted by outcome. Features declare one and count with [`Metrics::attempted`].
#[derive(Debug, Clone, Copy)]
pub struct Attempts {
    /// Without the prefix `janua_` and the ending `_total`.
    pub name: &'static str,
    pub help: &'static str,
    pub outcomes: &'static [&'static str],
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabels {
    status: &'static str,
}

type Requests = Family<RequestLabels, Counter>;
type Durations = Family<RouteLabels, Histogram, fn() -> Histogram>;

const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// Upper bounds of the latency buckets, in seconds. Neighbours differ by a factor of 1.6, so a percentile read from them
/// is at most that far off.
const BUCKETS: [f64; 25] = [
    0.000_25, 0.000_4, 0.000_63, 0.001, 0.001_6, 0.002_5, 0.004, 0.006_3, 0.01, 0.016, 0.025, 0.04, 0.063, 0.1, 0.16,
    0.25, 0.4, 0.63, 1.0, 1.6, 2.5, 4.0, 6.3, 10.0, 16.0,
];

/// The figures of one route. A series begins to exist with its first request: hundreds of routes without requests would
/// otherwise fill every scrape with zeros, and take memory.
pub struct RouteMetrics {
    method: String,
    route: &'static str,
    requests: Requests,
    durations: Durations,
    responses: [Counter; CLASSES.len()],
    by_class: [OnceLock<Counter>; CLASSES.len()],
    duration: OnceLock<Histogram>,
    counted: CountedRoute,
}

impl RouteMetrics {
    /// The pattern of the path, or `unknown`.
    pub fn route(&self) -> &'static str {
        self.route
    }

    pub fn record(&self, status: u16, took: Duration) {
        let class = usize::from(status / 100).clamp(2, CLASSES.len() + 1) - 2;
        self.responses[class].inc();
        let method = || self.method.clone();
        let counter = self.by_class[class].get_or_init(|| {
            let labels = RequestLabels { method: method(), route: self.route, status: CLASSES[class] };
            self.requests.get_or_create(&labels).clone()
        });
        counter.inc();
        let duration = self.duration.get_or_init(|| {
            let labels = RouteLabels { method: method(), route: self.route };
            self.durations.get_or_create(&labels).clone()
        });
        duration.observe(took.as_secs_f64());
        self.counted.record(&self.method, self.route, status, took);
    }
}

/// How a scraper wants the figures written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Prometheus' own text format, 0.0.4, which every scraper reads.
    Prometheus,
}

impl Exposition {
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

impl Metrics {
    /// `attempts` are those that features declare.
    pub fn new(version: &'static str, attempts: &[Attempts]) -> Self {
        let metrics = Self {
            registry: Registry::with_prefix("janua"),
            processes: Registry::default(),
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            responses: std::array::from_fn(|_| Counter::default()),
            jobs: Family::default(),
            mails: Family::default(),
            attempts: HashMap::new(),
            measured: Measured::default(),
            live: Live::default(),
            spans: Spans::default(),
            version,
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            mails_withheld: Counter::default(),
        };
        metrics.registered(version, attempts)
    }

    fn registered(mut self, version: &'static str, attempts: &[Attempts]) -> Self {
        let registry = &mut self.registry;
        registry.register("http_requests", "Requests answered", self.requests.clone());
        let help = "How long requests took";
        registry.register_with_unit("http_request_duration", help, Unit::Seconds, self.durations.clone());
        let responses: Family<ClassLabels, Counter> = Family::default();
        self.responses = CLASSES.map(|status| responses.get_or_create(&ClassLabels { status }).clone());
        registry.register("http_responses", "Requests answered by all routes together", responses);
        registry.register("http_requests_in_flight", "Requests being worked on", self.in_flight.clone());
        registry.register("http_connections", "Open connections", self.connections.clone());
        registry.register("jobs", "Jobs that ended, by outcome", self.jobs.clone());
        registry.register("mails", "Attempts to send a mail, by outcome", self.mails.clone());
        registry.register_collector(self.measured.collector());
        let help = "Mails not sent because the recipient had as many as the budget allows";
        registry.register("mails_withheld", help, self.mails_withheld.clone());
        registry.register(
            "log_lines_dropped",
            "Log lines dropped because the log was not read in time",
            super::queue::dropped(),
        );
        let help = "Spans dropped because they were not kept or exported in time";
        registry.register("spans_dropped", help, self.spans.dropped.clone());
        let build = prometheus_client::metrics::info::Info::new([("version", version)]);
        registry.register("build", "The running version", build);
        // There from the start, so that a rate of failures sees the first one.
        for outcome in MAIL_OUTCOMES {
            drop(self.mails.get_or_create(&OutcomeLabels { outcome }));
        }
        for Attempts { name, help, outcomes } in attempts {
            let family: Family<OutcomeLabels, Counter> = Family::default();
            for outcome in *outcomes {
                drop(family.get_or_create(&OutcomeLabels { outcome }));
            }
            registry.register(*name, *help, family.clone());
            self.attempts.insert(name, family);
        }
        self.processes.register_collector(Box::new(Process));
        self
    }

    pub fn route(&self, method: &str, route: &'static str) -> RouteMetrics {
        RouteMetrics {
            method: method.to_owned(),
            route,
            requests: self.requests.clone(),
            durations: self.durations.clone(),
            responses: self.responses.clone(),
            by_class: Default::default(),
            duration: OnceLock::new(),
            counted: self.live.route(),
        }
    }

    /// Counts a job that ended at a moment, after it took so long. `error` is a word for what went wrong, if it did.
    pub fn job_ended(
        &self,
        kind: &'static str,
        outcome: &'static str,
        took: Duration,
        at: Timestamp,
        error: Option<&'static str>,
    ) {
        self.jobs.get_or_create(&JobLabels { kind, outcome }).inc();
        self.live.job(kind, outcome, took, at, error);
    }

    /// Counts the start of a background task.
    pub fn task_started(&self, name: &'static str, at: Timestamp) {
        self.live.task_started(name, at);
    }

    /// Counts the end of a background task.
    pub fn task_ended(&self, name: &'static str, has_panicked: bool) {
        self.live.task_ended(name, has_panicked);
    }

    pub fn version(&self) -> &'static str {
        self.version
    }

    /// The counts of this node since the previous call, for the caller to store.
    pub fn take_counts(&self) -> Counts {
        self.live.take()
    }

    /// Counts an attempt to send a mail: one of [`MAIL_OUTCOMES`].
    pub fn mail_attempted(&self, outcome: &'static str) {
        self.mails.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// Counts an attempt that ended with one of the declared outcomes.
    pub fn attempted(&self, attempts: &Attempts, outcome: &'static str) {
        debug_assert!(attempts.outcomes.contains(&outcome), "{outcome} is not declared for {}", attempts.name);
        match self.attempts.get(attempts.name) {
            Some(family) => _ = family.get_or_create(&OutcomeLabels { outcome }).inc(),
            None => debug_assert!(false, "no feature declares the attempts {}", attempts.name),
        }
    }

    /// Reads the figures that lie in the database, unless that was done a moment ago.
    pub async fn refresh(&self, janua: &Janua) {
        self.measured.refresh(janua).await;
    }

    pub fn render(&self, exposition: Exposition) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode_registry(&mut out, &self.processes)?;
        text::encode(&mut out, &self.registry)?;
        match exposition {
            Exposition::OpenMetrics => Ok(out),
            Exposition::Prometheus => prometheus_text(&out),
        }
    }
}

/// `OpenMetrics` as Prometheus' own text format. The samples are the same. A counter is announced by the name its samples
/// have, the types that the older format lacks become gauges or untyped, and units and the end mark are left out.
fn prometheus_text(open_metrics: &str) -> Result<String, fmt::Error> {
    let mut out = String::with_capacity(open_metrics.len());
    // Its type, which decides about the name, stands one line below.
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map(|(_, help)| help).unwrap_or_default();
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "gauge" | "histogram" | "summary" => ("", kind),
                _ => ("", "untyped"),
            };
            // Only the newer format escapes quotation marks here.
            let help = help.replace("\\\"", "\"");
            write!(out, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n")?;
        } else if !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_exists_once_it_has_something_to_say() {
        let metrics = Metrics::new("test", &[]);
        let [quiet, called] = ["/quiet", "/called"].map(|route| metrics.route("GET", route));
        called.record(200, Duration::from_millis(3));
        called.record(503, Duration::from_mins(1));
        for exposition in [Exposition::OpenMetrics, Exposition::Prometheus] {
            let text = metrics.render(exposition).unwrap();
            assert!(!text.contains("/quiet"), "{text}");
            let of = |start: &str| text.lines().filter(|line| line.starts_with(start)).collect::<Vec<_>>();
            assert_eq!(of("janua_http_requests_total").len(), 2);
            assert_eq!(of("janua_http_request_duration_seconds_bucket").len(), BUCKETS.len() + 1);
            assert_eq!(
                of("janua_http_responses_total{status=\"4xx\"}"),
                ["janua_http_responses_total{status=\"4xx\"} 0"]
            );
            assert_eq!(
                of("janua_http_responses_total{status=\"5xx\"}"),
                ["janua_http_responses_total{status=\"5xx\"} 1"]
            );
            let below = "janua_http_request_duration_seconds_bucket{le=\"0.004\",method=\"GET\",route=\"/called\"} 1";
            assert_eq!(of(&below[..below.len() - 1]), [below]);
            assert!(text.contains("janua_build_info{version=\"test\"} 1\n"));
        }
        quiet.record(404, Duration::ZERO);
        assert!(metrics.render(Exposition::OpenMetrics).unwrap().contains("/quiet"));
    }

    #[test]
    fn a_percentile_is_at_most_a_factor_off() {
        for pair in BUCKETS.windows(2) {
            let factor = pair[1] / pair[0];
            assert!((1.5..=1.61).contains(&factor), "{pair:?}");
        }
    }

    #[test]
    fn the_older_format_has_its_own_announcements() {
        let text = prometheus_text(
            "# HELP a_b Said \\\"so\\\".\n# TYPE a_b counter\na_b_total 1\n# HELP c_seconds C.\n# TYPE c_seconds gauge\n\
             # UNIT c_seconds seconds\nc_seconds 2\n# HELP d D.\n# TYPE d info\nd_info{v=\"1\"} 1\n# EOF\n",
        );
        assert_eq!(
            text.unwrap(),
            "# HELP a_b_total Said \"so\".\n# TYPE a_b_total counter\na_b_total 1\n# HELP c_seconds C.\n\
             # TYPE c_seconds gauge\nc_seconds 2\n# HELP d_info D.\n# TYPE d_info gauge\nd_info{v=\"1\"} 1\n"
        );
    }
}
