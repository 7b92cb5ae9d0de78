//! Identities for software: agents, framework agents and MCP servers, the public lookups, and the registry.
mod agents;
mod domains;
mod frameworks;
mod machine;
mod mcp;
mod pace;
mod registry;
mod settings;
mod shared;
mod suspended;

use std::sync::Arc;

use kernel::{
    config::{Config, Listed},
    feature::{Feature, Part},
    http::Routes,
    ports::dns::Resolver,
};

use tenancy::quotas::PlanLimit;

pub use agents::{challenge, wallet};
pub use settings::Settings;

pub const PART: Part = Part { settings: &[Listed::of::<Settings>()], feature };

pub fn feature(config: &Config) -> Feature {
    let routes = Routes::new("agents")
        .and(agents::routes())
        .and(frameworks::routes())
        .and(mcp::routes())
        .and(registry::routes())
        .and(machine::routes());
    Feature::new(routes)
        .declares(agents::PURPOSES)
        .declares(mcp::MAILS)
        .declares(registry::EVENTS)
        .declares(&[PlanLimit(shared::AGENTS)])
        .declares(registry::AFTER_RESTORE)
        .declares(suspended::CHORES)
        .declares(suspended::GONE)
        .jobs(mcp::jobs())
        .own(pace::Paces::default())
        .own(mcp::Names(Resolver::new(&config.dns_servers)))
        .own(Arc::new(agents::lookup::Wallets::default()))
        .own(Arc::new(mcp::lookup::Domains::default()))
        .start(|janua| {
            Box::pin(async move {
                let wallets = janua.own::<Arc<agents::lookup::Wallets>>().clone();
                janua.db.on_notice(move |notice| wallets.hear(notice));
                let domains = janua.own::<Arc<mcp::lookup::Domains>>().clone();
                janua.db.on_notice(move |notice| domains.hear(notice));
                Ok(())
            })
        })
}

#[cfg(test)]
mod tests;
