//! Analytics of apps and organizations: what happened, how many people were there, and how far they came.
mod analytics;

use kernel::{
    config::Config,
    feature::{Feature, Part},
};

pub const PART: Part = Part { settings: &[], feature };

pub fn feature(_: &Config) -> Feature {
    analytics::feature()
}

#[cfg(test)]
mod tests;
