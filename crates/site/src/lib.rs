//! Information about the service itself: health, status and incidents, legal documents, well-known files, metrics and
//! the OpenAPI description.
mod accept;
pub mod health;
mod legal;
mod machine;
mod operator;
pub mod status;
mod well_known;

use std::time::Duration;

use kernel::{
    config::{Config, Listed},
    feature::{Feature, Part},
    http::ForgetReplies,
    jobs::Jobs,
};

pub use operator::Operator;

/// How often each component is looked at, once for all nodes.
const PROBE_EVERY: Duration = Duration::from_mins(1);

pub const PART: Part = Part { settings: &[Listed::of::<Operator>()], feature };

pub fn feature(config: &Config) -> Feature {
    let routes =
        health::routes().and(status::routes()).and(well_known::routes()).and(legal::routes()).and(machine::routes());
    Feature::new(routes)
        .jobs(
            Jobs::new()
                .every::<status::Probe>(PROBE_EVERY)
                .every::<status::Watch>(PROBE_EVERY)
                .every::<ForgetReplies>(Duration::from_hours(1)),
        )
        .declares(status::events::EVENTS)
        .declares(&[kernel::jobs::MEASURE])
        .declares(&[status::JOBS])
        .declares(status::MAILS)
        .own(health::Health::default())
        .own(legal::Library::render(config))
        .task("status.health", |janua| Box::pin(health::watch(janua)))
}

#[cfg(test)]
mod tests;
