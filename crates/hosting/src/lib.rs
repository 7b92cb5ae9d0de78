//! Files of an app's users, deployments, the edge that serves them, domains and certificates.
pub mod certificates;
pub mod codehost;
pub mod deployments;
pub mod doctor;
mod domains;
pub mod edge;
pub mod ranges;
mod registrar;
mod settings;
mod sigv4;
mod storage;
mod words;

use kernel::{
    config::{Config, Listed},
    feature::{Feature, Part},
};

pub use self::settings::{Settings, TlsSource};

pub const PART: Part = Part {
    settings: &[
        Listed::of::<edge::Settings>(),
        Listed::of::<edge::cloudfront::Settings>(),
        Listed::of::<Settings>(),
        Listed::of::<codehost::Settings>(),
    ],
    feature,
};

pub fn feature(config: &Config) -> Feature {
    edge::feature(config)
        .and(deployments::feature())
        .and(domains::feature(config))
        .and(certificates::feature())
        .and(registrar::feature(config))
        .and(storage::feature())
        .and(codehost::feature(config))
}

#[cfg(test)]
mod tests;
