//! Sending domains: an app proves a host by the DKIM record at it, and may then send from it.
mod api;
mod check;
pub mod keys;
mod model;
mod rules;

use std::{net::SocketAddr, sync::OnceLock};

use kernel::{http::Routes, jobs::Jobs, ports::dns::Resolver};

pub use model::{Domain, GONE, is_of_another};

/// Where domains are looked up.
pub struct MailDns {
    pub resolver: Resolver,
    /// A host whose records count as created.
    pub taken_for_proven: OnceLock<String>,
}

impl MailDns {
    pub fn at(servers: &[SocketAddr]) -> Self {
        Self { resolver: Resolver::new(servers), taken_for_proven: OnceLock::new() }
    }
}

pub fn routes() -> Routes {
    api::routes()
}

pub fn jobs() -> Jobs {
    Jobs::new().every::<check::CheckDomains>(check::EVERY)
}
