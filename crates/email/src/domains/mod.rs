//! Sending domains: an app proves a host by the DKIM record at it, and may then send from it.
mod api;
mod check;
pub mod keys;
mod model;
mod rules;

use kernel::{http::Routes, jobs::Jobs, ports::dns::Resolver};

pub use model::{Domain, GONE, is_of_another};

/// The name servers that domains are looked up at.
pub struct MailDns(pub Resolver);

pub fn routes() -> Routes {
    api::routes()
}

pub fn jobs() -> Jobs {
    Jobs::new().every::<check::CheckDomains>(check::EVERY)
}
