//! Domains of apps: claimed, proven by a DNS record, led here, and served. One name of an app is one row, whatever way it was
//! added: as the app's own name (`own`), as a name of its site step by step, or all at once (`api`).
//!
//! `check` looks at a domain from outside, `proof` says whose it is, `status` where it stands. Nothing else changes who has a
//! name, and a partial unique index keeps it at one.
mod api;
mod check;
mod events;
mod jobs;
mod mails;
mod model;
mod names;
mod own;
mod proof;
mod records;
mod status;

use db::Tx;
use kernel::{config::Config, fault::Code, feature::Feature, http::Routes, ports::dns::Resolver};
use tenancy::apps::ApplicationId;

pub(crate) use self::model::words;
use crate::edge::site::{Site, SiteStatus};

pub use self::{
    api::{onboard_registered, target},
    check::{caa_allows, probe_answer, reaches_us},
    mails::DomainNews,
    model::{Domain, Reason, Status, spend, spent},
    names::{INVALID_DOMAIN, base_host, host, registrable},
    proof::{certified, tell},
};

const NO_DOMAIN: Code = Code::new(404, "no_domain", "The app has no domain. Add one first.");

/// Whether the app has a site that a domain can lead to.
async fn has_site(tx: &mut Tx, app: ApplicationId) -> db::Result<bool> {
    Ok(Site::find(&mut *tx, app).await?.is_some_and(|site| site.status != SiteStatus::Disabled))
}

pub fn feature(config: &Config) -> Feature {
    Feature::new(Routes::new("domains").and(own::routes()).and(api::routes()))
        .jobs(jobs::jobs())
        .declares(events::EVENTS)
        .declares(mails::MAILS)
        .declares(jobs::CHORES)
        .declares(jobs::GONE)
        .declares(&[api::DOMAINS])
        .own(check::EdgeAddresses::default())
        .own(Resolver::new(&config.dns_servers))
}

#[cfg(test)]
pub mod tests;
