//! What people and machines can see of a running node: log lines and figures.
mod lines;
mod metrics;

pub use lines::{Lines, init};
pub use metrics::{Metrics, RouteMetrics};

tokio::task_local! {
    /// What the present task is about (a request's id, a job's id); every log line it writes carries it.
    pub static ABOUT: std::sync::Arc<str>;
}
