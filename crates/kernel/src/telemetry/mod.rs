//! Log lines and metrics.
mod lines;
mod measured;
mod metrics;
mod minutes;
mod process;
mod queue;

use std::sync::Arc;

pub use lines::{Lines, init};
pub use measured::{Figure, Measure};
pub use metrics::{Attempts, Exposition, Metrics, RouteMetrics};
pub use minutes::{Counts, JobCounts, RouteCounts, Times};
pub use queue::{flush, say};

tokio::task_local! {
    /// What the present task is about (a request's id, a job's id); every log line it writes carries it.
    pub static ABOUT: Arc<str>;
}

/// What the present task is about, for what it has done elsewhere.
pub fn about() -> Option<Arc<str>> {
    ABOUT.try_with(Arc::clone).ok()
}
