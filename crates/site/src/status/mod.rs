//! The status of the platform: components that are checked every minute, their uptime on each of the last 90 days,
//! and incidents with their timeline.
mod alarms;
mod api;
pub mod events;
pub mod incidents;
mod model;
mod overview;
mod probe;

pub use alarms::{JOBS, MAILS, Watch};
pub use api::{StatusPage, routes};
pub use model::{Component, DAYS_KEPT, Impact, Stage, State};
pub use overview::{ComponentUptime, DayView, IncidentView, Overview, UpdateView};
pub use probe::Probe;
