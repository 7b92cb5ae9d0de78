//! Analytics of apps and organizations, observability of the platform, and traces of requests.
mod alarms;
mod analytics;
mod observability;
mod otlp;
mod otlp_header;
mod traces;

use kernel::{
    config::{Config, Listed},
    feature::{Feature, Part},
};

pub use observability::keep as keep_counts;
pub use otlp::Settings;
pub use traces::keep as keep_requests;

pub const PART: Part = Part { settings: &[Listed::of::<Settings>()], feature };

pub fn feature(config: &Config) -> Feature {
    analytics::feature()
        .and(observability::feature())
        .and(traces::feature())
        .and(otlp::feature(config))
        .declares(&[alarms::ERRORS])
}

#[cfg(test)]
mod tests;
