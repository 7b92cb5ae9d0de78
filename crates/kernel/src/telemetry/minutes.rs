//! What a node counted since it was last asked: requests by route and jobs by kind, with how long they took. Such counts can
//! be added up, over nodes and over time.
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use db::lock;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// Eight buckets for each doubling, from a microsecond to more than four minutes: a percentile read from their middle is at
/// most 4.5 % off.
const BUCKETS: usize = 8 * 28;

fn bucket(took: Duration) -> usize {
    let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX).max(1);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 256")]
    let place = (f64::from(micros).log2() * 8.0) as usize;
    place.min(BUCKETS - 1)
}

/// How long what is in a bucket took, in milliseconds: the middle of the bucket.
fn millis(bucket: u16) -> f64 {
    ((f64::from(bucket) + 0.5) / 8.0).exp2() / 1000.0
}

/// How often something took how long.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times(pub BTreeMap<u16, u64>);

impl Times {
    pub fn add(&mut self, other: &Self) {
        for (bucket, count) in &other.0 {
            *self.0.entry(*bucket).or_default() += count;
        }
    }

    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The time that this part of all took at the most, in milliseconds with two digits; none of nothing.
    pub fn percentile(&self, part: f64) -> Option<f64> {
        let count = self.count();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts"
        )]
        let place = ((count as f64 * part).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        let found = self.0.iter().find(|(_, n)| {
            seen += **n;
            seen >= place
        });
        found.map(|(bucket, _)| (millis(*bucket) * 100.0).round() / 100.0)
    }
}

/// The requests of a route: by class of status (2xx to 5xx), those refused with 429 and 503, and how long they took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteCounts {
    pub classes: [u64; 4],
    pub limited: u64,
    pub overloaded: u64,
    pub times: Times,
}

impl RouteCounts {
    pub fn add(&mut self, other: &Self) {
        for (own, more) in self.classes.iter_mut().zip(other.classes) {
            *own += more;
        }
        self.limited += other.limited;
        self.overloaded += other.overloaded;
        self.times.add(&other.times);
    }

    pub fn requests(&self) -> u64 {
        self.classes.iter().sum()
    }
}

/// The jobs of a kind: how they ended, how long they took, and when they last ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCounts {
    pub done: u64,
    pub retried: u64,
    pub dead: u64,
    pub lost: u64,
    pub times: Times,
    pub last_at: i64,
    pub last_success_at: i64,
    pub last_error: Option<String>,
}

impl JobCounts {
    pub fn add(&mut self, other: &Self) {
        self.done += other.done;
        self.retried += other.retried;
        self.dead += other.dead;
        self.lost += other.lost;
        self.times.add(&other.times);
        if other.last_at >= self.last_at {
            self.last_error = other.last_error.clone().or(self.last_error.take());
        }
        self.last_at = self.last_at.max(other.last_at);
        self.last_success_at = self.last_success_at.max(other.last_success_at);
    }
}

/// A background task of a node: how often it was started, how often it panicked, and whether it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskCounts {
    pub starts: u64,
    pub panics: u64,
    pub is_running: bool,
    /// When it was started last.
    pub last_at: i64,
}

impl TaskCounts {
    /// Adds what was counted later.
    pub fn add(&mut self, later: &Self) {
        self.starts += later.starts;
        self.panics += later.panics;
        self.is_running = later.is_running;
        self.last_at = self.last_at.max(later.last_at);
    }
}

/// What a node counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// By method and route, as in `GET /apps/{appId}`.
    pub routes: BTreeMap<String, RouteCounts>,
    pub jobs: BTreeMap<String, JobCounts>,
    #[serde(default)]
    pub tasks: BTreeMap<String, TaskCounts>,
}

impl Counts {
    pub fn add(&mut self, other: &Self) {
        for (route, counts) in &other.routes {
            self.routes.entry(route.clone()).or_default().add(counts);
        }
        for (kind, counts) in &other.jobs {
            self.jobs.entry(kind.clone()).or_default().add(counts);
        }
        for (name, counts) in &other.tasks {
            self.tasks.entry(name.clone()).or_default().add(counts);
        }
    }
}

/// The counters of a route, which exist from its first request on.
pub(super) struct LiveRoute {
    classes: [AtomicU64; 4],
    limited: AtomicU64,
    overloaded: AtomicU64,
    times: Box<[AtomicU64]>,
}

impl LiveRoute {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        let times = (0..BUCKETS).map(|_| zero()).collect();
        Self { classes: std::array::from_fn(|_| zero()), limited: zero(), overloaded: zero(), times }
    }

    fn record(&self, status: u16, took: Duration) {
        let class = usize::from(status / 100).clamp(2, 5) - 2;
        self.classes[class].fetch_add(1, Relaxed);
        match status {
            429 => _ = self.limited.fetch_add(1, Relaxed),
            503 => _ = self.overloaded.fetch_add(1, Relaxed),
            _ => {}
        }
        self.times[bucket(took)].fetch_add(1, Relaxed);
    }

    fn take(&self) -> RouteCounts {
        let take = |counter: &AtomicU64| counter.swap(0, Relaxed);
        let times = self.times.iter().enumerate().filter_map(|(place, counter)| {
            let count = take(counter);
            Some((u16::try_from(place).ok()?, count)).filter(|_| count > 0)
        });
        let times = Times(times.collect());
        let classes = std::array::from_fn(|class| take(&self.classes[class]));
        RouteCounts { classes, limited: take(&self.limited), overloaded: take(&self.overloaded), times }
    }
}

type LiveRoutes = Arc<Mutex<Vec<(String, Arc<LiveRoute>)>>>;

/// What this node counts.
#[derive(Default)]
pub(super) struct Live {
    routes: LiveRoutes,
    jobs: Mutex<BTreeMap<&'static str, JobCounts>>,
    tasks: Mutex<BTreeMap<&'static str, TaskCounts>>,
}

/// One route of them.
pub(super) struct CountedRoute {
    routes: LiveRoutes,
    live: OnceLock<Arc<LiveRoute>>,
}

impl CountedRoute {
    pub(super) fn record(&self, method: &str, route: &str, status: u16, took: Duration) {
        let live = self.live.get_or_init(|| {
            let live = Arc::new(LiveRoute::new());
            lock(&self.routes).push((format!("{method} {route}"), live.clone()));
            live
        });
        live.record(status, took);
    }
}

impl Live {
    pub(super) fn route(&self) -> CountedRoute {
        CountedRoute { routes: self.routes.clone(), live: OnceLock::new() }
    }

    pub(super) fn job(&self, kind: &'static str, outcome: &str, took: Duration, at: Timestamp, error: Option<&str>) {
        let mut jobs = lock(&self.jobs);
        let counts = jobs.entry(kind).or_default();
        match outcome {
            "done" => counts.done += 1,
            "retried" => counts.retried += 1,
            "dead" => counts.dead += 1,
            _ => counts.lost += 1,
        }
        if let Ok(place) = u16::try_from(bucket(took)) {
            *counts.times.0.entry(place).or_default() += 1;
        }
        counts.last_at = at.0;
        match error {
            None => counts.last_success_at = at.0,
            Some(error) => counts.last_error = Some(error.to_owned()),
        }
    }

    pub(super) fn task_started(&self, name: &'static str, at: Timestamp) {
        let mut tasks = lock(&self.tasks);
        let counts = tasks.entry(name).or_default();
        (counts.starts, counts.is_running, counts.last_at) = (counts.starts + 1, true, at.0);
    }

    pub(super) fn task_ended(&self, name: &'static str, has_panicked: bool) {
        let mut tasks = lock(&self.tasks);
        let counts = tasks.entry(name).or_default();
        (counts.panics, counts.is_running) = (counts.panics + u64::from(has_panicked), false);
    }

    /// What was counted since this was last asked. Tasks go on: each time it is said whether they run.
    pub(super) fn take(&self) -> Counts {
        let routes = lock(&self.routes).clone();
        let routes = routes.iter().map(|(name, live)| (name.clone(), live.take()));
        let routes = routes.filter(|(_, counts)| counts.requests() > 0).collect();
        let jobs = std::mem::take(&mut *lock(&self.jobs));
        let mut live = lock(&self.tasks);
        let tasks = live.iter().map(|(name, counts)| ((*name).to_owned(), counts.clone())).collect();
        live.values_mut().for_each(|counts| (counts.starts, counts.panics) = (0, 0));
        Counts { routes, jobs: jobs.into_iter().map(|(kind, counts)| (kind.to_owned(), counts)).collect(), tasks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_at_most_four_and_a_half_percent_off() {
        for micros in (1..2_000_000_u32).step_by(997).chain([1, 5, 17, 255]) {
            let mut times = Times::default();
            times.0.insert(u16::try_from(bucket(Duration::from_micros(micros.into()))).unwrap(), 1);
            let read = millis(*times.0.keys().next().unwrap()) * 1000.0;
            let off = (read / f64::from(micros) - 1.0).abs();
            assert!(off <= 0.045 || micros < 3, "{micros} was read as {read}");
        }
        assert_eq!(Times::default().percentile(0.5), None);
        assert_eq!(bucket(Duration::from_hours(9)), BUCKETS - 1);
    }

    #[test]
    fn what_is_taken_is_counted_anew_and_adds_up() {
        let live = Live::default();
        let route = live.route();
        for took in 1..=100 {
            route.record("GET", "/a/{id}", if took > 98 { 503 } else { 200 }, Duration::from_millis(took));
        }
        live.job("mail", "done", Duration::from_millis(5), Timestamp(7), None);
        live.job("mail", "retried", Duration::from_millis(5), Timestamp(9), Some("failed"));
        let first = live.take();
        let counts = &first.routes["GET /a/{id}"];
        assert_eq!((counts.classes, counts.overloaded), ([98, 0, 0, 2], 2));
        let median = counts.times.percentile(0.5).unwrap();
        assert!((47.0..=53.0).contains(&median), "{median}");
        assert_eq!(live.take(), Counts::default(), "nothing twice");
        let mut both = first.clone();
        both.add(&first);
        assert_eq!(both.routes["GET /a/{id}"].requests(), 200);
        let mail = &both.jobs["mail"];
        assert_eq!((mail.done, mail.last_at, mail.last_success_at), (2, 9, 7));
        assert_eq!(mail.last_error.as_deref(), Some("failed"));
        let text = serde_json::to_string(&both).unwrap();
        assert_eq!(serde_json::from_str::<Counts>(&text).unwrap(), both);
    }
}
