//! Files of an app's users, deployments, the edge that serves them, domains and certificates.
pub mod deployments;
pub mod edge;
mod storage;
mod words;

use kernel::{
    config::{Config, Listed},
    feature::{Feature, Part},
};

pub const PART: Part =
    Part { settings: &[Listed::of::<edge::Settings>(), Listed::of::<edge::cloudfront::Settings>()], feature };

pub fn feature(config: &Config) -> Feature {
    edge::feature(config).and(deployments::feature()).and(storage::feature())
}

#[cfg(test)]
mod tests;
