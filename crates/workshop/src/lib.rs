//! What an organization builds with: apps, their keys, people, domains and webhooks.
mod apps;
mod domain;
mod keys;
mod logo;
mod queues;
mod users;
pub mod webhooks;

use kernel::{app::Feature, config::Config, http::Routes, ports::dns::Resolver};

pub fn feature(config: &Config) -> Feature {
    let routes = Routes::new("apps")
        .and(apps::routes())
        .and(logo::routes())
        .and(keys::routes())
        .and(users::routes())
        .and(domain::routes())
        .and(queues::routes());
    Feature::new(routes).jobs(domain::jobs()).own(Resolver::new(&config.dns_servers)).and(webhooks::feature())
}

#[cfg(test)]
mod tests;
