//! Analytics of apps and organizations, and observability of the platform.
mod analytics;
mod observability;

use kernel::{
    config::Config,
    feature::{Feature, Part},
};

pub use observability::keep as keep_counts;

pub const PART: Part = Part { settings: &[], feature };

pub fn feature(_: &Config) -> Feature {
    analytics::feature().and(observability::feature())
}

#[cfg(test)]
mod tests;
