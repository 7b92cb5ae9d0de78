//! Apps of organizations: their keys, end users, domains and webhooks.
mod activity;
mod apps;
mod domain;
mod events;
mod keys;
mod logo;
mod overview;
mod queues;
mod users;
pub mod webhooks;

use kernel::{
    config::{Config, Listed},
    fault::Code,
    feature::{Feature, Part},
    http::Routes,
    ports::dns::Resolver,
};

const DNS_UNAVAILABLE: Code =
    Code::new(502, "dns_unavailable", "No name server answered for this domain. Try again shortly.");

pub const PART: Part =
    Part { settings: &[Listed::of::<webhooks::Settings>().bare(&["WEBHOOK_ALLOW_HTTP"])], feature };

pub fn feature(config: &Config) -> Feature {
    let routes = Routes::new("apps")
        .and(apps::routes())
        .and(logo::routes())
        .and(keys::routes())
        .and(users::routes())
        .and(domain::routes())
        .and(queues::routes())
        .and(overview::routes())
        .and(activity::routes());
    Feature::new(routes)
        .jobs(domain::jobs())
        .declares(events::EVENTS)
        .declares(domain::MAILS)
        .declares(&[logo::LOGOS])
        .declares(&[logo::GONE])
        .own(Resolver::new(&config.dns_servers))
        .and(webhooks::feature(config))
}

#[cfg(test)]
mod tests;
