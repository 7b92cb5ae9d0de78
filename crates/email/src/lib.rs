//! Mail that apps send: messages, sending domains, bounces and suppressions.
use kernel::{
    config::Config,
    feature::{Feature, Part},
    http::Routes,
};

pub const PART: Part = Part { settings: &[], feature };

pub fn feature(_: &Config) -> Feature {
    Feature::new(Routes::new("email"))
}
