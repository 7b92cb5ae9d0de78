//! Organizations: their members, invitations, metadata, audit log and export, and SCIM for their identity providers.
mod audit;
mod events;
mod export;
mod invites;
mod logo;
mod members;
mod metadata;
mod orgs;
pub mod scim;

use kernel::{
    config::Config,
    feature::{Feature, Part},
    http::Routes,
};

pub const PART: Part = Part { settings: &[], feature };

pub fn feature(_: &Config) -> Feature {
    let routes = Routes::new("org")
        .and(orgs::routes())
        .and(logo::routes())
        .and(members::routes())
        .and(invites::routes())
        .and(metadata::routes())
        .and(export::routes())
        .and(audit::routes())
        .and(scim::routes());
    Feature::new(routes)
        .jobs(scim::jobs())
        .declares(events::EVENTS)
        .declares(scim::EVENTS)
        .declares(&[logo::LOGOS])
        .declares(&[logo::GONE, scim::GONE])
}

#[cfg(test)]
mod tests;
