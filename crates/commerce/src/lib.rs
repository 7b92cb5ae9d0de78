//! Plans, quotas and metered usage; billing, invoices and connected merchants.
mod billing;
pub mod commands;
mod connect;
mod cost;
mod invoices;
mod keyed;
pub mod payments;
pub mod plans;
mod sandbox;
mod settings;
mod stripe;
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

pub fn feature(config: &Config) -> Feature {
    let routes = Routes::new("commerce").and(plans::routes());
    Feature::new(routes)
        .own(Arc::new(plans::Shelf::default()))
        .declares(plans::EVENTS)
        .start(|janua| Box::pin(async move { plans::start(&janua).await }))
        .own(payments::Payments::from_config(config))
        .and(usage::feature())
        .and(billing::feature())
        .and(connect::feature())
        .and(cost::feature())
        .and(sandbox::feature())
}

#[cfg(test)]
mod tests;
