//! Analytics of apps and organizations, observability of the platform, and traces of requests.
mod alarms;
mod analytics;
mod observability;
mod traces;

use kernel::{
    config::Config,
    feature::{Feature, Part},
};

pub use observability::keep as keep_counts;
pub use traces::keep as keep_requests;

pub const PART: Part = Part { settings: &[], feature };

pub fn feature(_: &Config) -> Feature {
    analytics::feature().and(observability::feature()).and(traces::feature()).declares(&[alarms::ERRORS])
}

#[cfg(test)]
mod tests;
