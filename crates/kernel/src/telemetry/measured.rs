//! Figures that are read on demand: the database's load, and counts of features in their tables.
use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use db::lock;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
};
use tokio::time::{Instant, timeout};

use crate::Janua;

/// Figures are read from the database at most this often, however many scrapers there are.
const KEPT: Duration = Duration::from_secs(5);
/// A scraper waits ten seconds as a rule.
const PATIENCE: Duration = Duration::from_secs(3);

/// Reads figures of a feature, for `/metrics`. Its statements touch a bounded number of rows.
#[derive(Clone, Copy)]
pub struct Measure(pub fn(Janua) -> Reading);

pub type Reading = Pin<Box<dyn Future<Output = db::Result<Vec<Figure>>> + Send>>;

/// One sample: a gauge, or a counter.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Without the prefix `janua_`.
    pub name: &'static str,
    pub help: &'static str,
    /// Names and values, which the program chooses; never what callers send.
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
    is_counter: bool,
}

impl Figure {
    pub fn new(name: &'static str, help: &'static str, value: f64) -> Self {
        Self { name, help, labels: vec![], value, is_counter: false }
    }

    /// A count that the database answered.
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    pub fn count(name: &'static str, help: &'static str, value: i64) -> Self {
        Self::new(name, help, value as f64)
    }

    /// A number that only grows; its name ends with `_total` when it is written.
    fn counter(name: &'static str, help: &'static str, value: i64) -> Self {
        Self { is_counter: true, ..Self::count(name, help, value) }
    }

    #[must_use]
    pub fn with(mut self, label: &'static str, value: impl Into<String>) -> Self {
        self.labels.push((label, value.into()));
        self
    }
}

/// The figures as they were last read.
#[derive(Default)]
pub(super) struct Measured {
    figures: Arc<Figures>,
    /// When they were read. Held while they are, so that scrapers who come together read them once.
    read_at: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
pub(super) struct Figures(Mutex<Vec<Figure>>);

impl Measured {
    pub(super) fn collector(&self) -> Box<dyn Collector> {
        Box::new(self.figures.clone())
    }

    /// Reads the figures unless that was done a moment ago. Those that cannot be read are left out, because an old value
    /// would look like a true one.
    pub(super) async fn refresh(&self, janua: &Janua) {
        let mut read_at = self.read_at.lock().await;
        if read_at.is_some_and(|at| at.elapsed() < KEPT) {
            return;
        }
        let mut figures = database(janua);
        for Measure(read) in janua.declared::<Measure>() {
            match timeout(PATIENCE, read(janua.clone())).await {
                Ok(Ok(read)) => figures.extend(read),
                Ok(Err(error)) => tracing::warn!(%error, "cannot read metrics from the database"),
                Err(_) => tracing::warn!("reading metrics from the database took too long"),
            }
        }
        *lock(&self.figures.0) = figures;
        *read_at = Some(Instant::now());
    }
}

fn database(janua: &Janua) -> Vec<Figure> {
    let load = janua.db.load();
    let mut figures = vec![
        Figure::count("database_connections_max", "Most connections to the database.", load.most),
        Figure::count("database_connections_open", "Open connections to the database.", load.open),
        Figure::count("database_connections_in_use", "Connections that are in use.", load.in_use),
        Figure::count("database_waiting", "Callers that wait for a connection.", load.waiting),
    ];
    if let Some(writes) = load.writes_waiting {
        figures.push(Figure::count("database_writes_waiting", "Writes in the queue of SQLite's writer.", writes));
    }
    if let Some(waits) = load.waits {
        figures.push(Figure::counter("database_waits", "Times that a caller had to wait for a connection.", waits));
    }
    figures
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let figures = lock(&self.0);
        // All samples of a name stand together.
        let mut by_name: BTreeMap<&str, Vec<&Figure>> = BTreeMap::new();
        for figure in figures.iter() {
            by_name.entry(figure.name).or_default().push(figure);
        }
        for (name, figures) in by_name {
            let Some(first) = figures.first() else { continue };
            let kind = if first.is_counter { MetricType::Counter } else { MetricType::Gauge };
            let mut sample = encoder.encode_descriptor(name, first.help, None, kind)?;
            for figure in figures {
                match (figure.is_counter, figure.labels.is_empty()) {
                    (true, _) => sample.encode_counter::<NoLabelSet, f64, f64>(&figure.value, None)?,
                    (false, true) => sample.encode_gauge(&figure.value)?,
                    (false, false) => sample.encode_family(&figure.labels)?.encode_gauge(&figure.value)?,
                }
            }
        }
        Ok(())
    }
}
