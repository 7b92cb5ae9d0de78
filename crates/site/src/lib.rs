//! What the service says about itself: health, status and incidents, legal documents, well-known files, figures, and
//! the description of its own interface.
pub mod health;
mod legal;
mod machine;
pub mod status;
mod well_known;

use std::time::Duration;

use kernel::{
    app::{Feature, Own},
    config::Config,
    http::ForgetReplies,
    jobs::Jobs,
};

/// How often each component is looked at, once for all nodes.
const PROBE_EVERY: Duration = Duration::from_mins(1);

pub fn feature(config: &Config) -> Feature {
    Feature {
        routes: health::routes()
            .and(status::routes())
            .and(well_known::routes())
            .and(legal::routes())
            .and(machine::routes()),
        jobs: Jobs::new().every::<status::Probe>(PROBE_EVERY).every::<ForgetReplies>(Duration::from_hours(1)),
        own: Own::default().with(health::Health::default()).with(legal::Library::render(config)),
    }
}

#[cfg(test)]
mod tests;
