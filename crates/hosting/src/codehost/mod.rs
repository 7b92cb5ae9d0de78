//! The code host: an organization connects its repositories, and a push is live. Nothing is built here: what is deployed is a
//! folder of built files in the commit, or what CI builds and sends.
mod actions;
mod again;
mod api;
mod authorize;
mod deploy;
pub mod doctor;
mod events;
mod host;
mod jobs;
mod model;
mod report;
mod settings;
mod webhook;

use std::time::Duration;

use kernel::{config::Config, feature::Feature, http::Routes, jobs::Chore};

pub use self::{
    actions::{PREFIX as RUN_PREFIX, Run},
    again::{begin_again, was_not_fetched},
    host::NOT_CONFIGURED,
    settings::Settings,
    webhook::is_signed,
};
use self::{host::CodeHost, settings::Configured};

/// Deliveries are shown for this long.
const KEPT: Duration = Duration::from_hours(24 * 30);

const CHORES: &[Chore] = &[
    Chore::sweep(
        "codehost_delivery",
        "DELETE FROM codehost_delivery WHERE id IN
             (SELECT id FROM codehost_delivery WHERE received_at < $1 ORDER BY received_at LIMIT $2)",
        KEPT,
    ),
    Chore::sweep(
        "deploy_token",
        "DELETE FROM deploy_token WHERE hash IN
             (SELECT hash FROM deploy_token WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)",
        Duration::ZERO,
    ),
];

pub fn feature(config: &Config) -> Feature {
    let routes = Routes::new("codehost")
        .and(authorize::routes())
        .and(webhook::routes())
        .and(api::routes())
        .and(actions::routes());
    let feature = Feature::new(routes)
        .jobs(jobs::jobs())
        .declares(events::EVENTS)
        .declares(CHORES)
        .declares(authorize::PURPOSES)
        .own(actions::Issuers::default());
    // What is wrong with the settings is said when the node starts.
    feature
        .own(CodeHost::new(Configured::of(config)).unwrap_or_else(|_| CodeHost::none()))
        .start(|janua| Box::pin(async move { CodeHost::new(Configured::of(&janua.config)).map(drop) }))
}

#[cfg(test)]
mod tests;
