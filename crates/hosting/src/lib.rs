//! Files of an app's users, deployments, the edge that serves them, domains and certificates.
mod storage;

use kernel::{
    config::Config,
    feature::{Feature, Part},
    http::Routes,
};

pub const PART: Part = Part { settings: &[], feature };

pub fn feature(_: &Config) -> Feature {
    Feature::new(Routes::new("hosting")).and(storage::feature())
}

#[cfg(test)]
mod tests;
