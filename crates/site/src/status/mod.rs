//! The status of the platform: components that are looked at every minute, how they did on each of the last 90 days,
//! and incidents with their timeline.
mod api;
pub mod incidents;
mod model;
mod probe;

pub use api::routes;
pub use probe::Probe;
