//! Apps of organizations: their keys, end users and webhooks.
mod activity;
mod apps;
mod events;
mod keys;
mod logo;
mod overview;
mod queues;
mod users;
pub mod webhooks;

use kernel::{
    config::{Config, Listed},
    feature::{Feature, Part},
    http::Routes,
};

pub const PART: Part =
    Part { settings: &[Listed::of::<webhooks::Settings>().bare(&["WEBHOOK_ALLOW_HTTP"])], feature };

pub fn feature(config: &Config) -> Feature {
    let routes = Routes::new("apps")
        .and(apps::routes())
        .and(logo::routes())
        .and(keys::routes())
        .and(users::routes())
        .and(queues::routes())
        .and(overview::routes())
        .and(activity::routes());
    Feature::new(routes)
        .declares(events::EVENTS)
        .declares(&[logo::LOGOS])
        .declares(&[logo::GONE])
        .and(webhooks::feature(config))
}

#[cfg(test)]
mod tests;
