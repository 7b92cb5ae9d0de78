//! Plans, quotas and metered usage.
mod plans;
mod settings;
mod usage;

use std::sync::Arc;

use kernel::{
    config::{Config, Listed},
    feature::{Feature, Part},
    http::Routes,
};

pub use plans::set_plan;
pub use settings::Settings;

pub const PART: Part = Part { settings: &[Listed::of::<Settings>()], feature };

pub fn feature(_: &Config) -> Feature {
    let routes = Routes::new("commerce").and(plans::routes());
    Feature::new(routes)
        .own(Arc::new(plans::Shelf::default()))
        .declares(plans::EVENTS)
        .start(|janua| Box::pin(async move { plans::start(&janua).await }))
        .and(usage::feature())
}

#[cfg(test)]
mod tests;
