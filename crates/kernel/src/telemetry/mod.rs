//! What people and machines can see of a running node: log lines and figures.
mod lines;
mod metrics;

use std::sync::Arc;

pub use lines::{Lines, init};
pub use metrics::{Metrics, RouteMetrics};

tokio::task_local! {
    /// What the present task is about (a request's id, a job's id); every log line it writes carries it.
    pub static ABOUT: Arc<str>;
}

/// The same, about what the present task is: for what it has done elsewhere.
pub fn about_the_same<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let about = ABOUT.try_with(Arc::clone).ok();
    async move {
        match about {
            Some(about) => ABOUT.scope(about, work).await,
            None => work.await,
        }
    }
}
