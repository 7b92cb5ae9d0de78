//! The edge: serves deployed sites on hosts of their own, on a listener of its own.
pub mod cdn;
pub mod cloudfront;
pub mod enter;
pub mod headers;
pub mod hosts;
pub mod listener;
pub mod manifest;
mod misdirected;
pub mod pattern;
pub mod pieces;
pub mod redirects;
pub mod resolve;
pub mod respond;
pub mod settings;
pub mod site;
pub mod traffic;

use std::sync::{Arc, OnceLock};

use kernel::{Janua, config::Config, feature::Feature, http::Routes, jobs::Chore};

pub use listener::{Bound, bind, serve};
pub use misdirected::refuse_sites;
pub use settings::{EdgeUrl, Settings};

/// What a node keeps of sites in memory.
pub struct Edge {
    pub hosts: hosts::Hosts,
    pub pieces: pieces::Pieces,
    pub traffic: traffic::Traffic,
    console: OnceLock<String>,
}

impl Edge {
    pub fn new(config: &Config) -> Self {
        Self {
            hosts: hosts::Hosts::default(),
            pieces: pieces::Pieces::new(config),
            traffic: traffic::Traffic::default(),
            console: OnceLock::new(),
        }
    }

    /// Whether a host is that of the console and the API.
    pub fn is_console(&self, host: &str) -> bool {
        self.console.get().is_some_and(|console| console == host)
    }
}

pub fn feature(config: &Config) -> Feature {
    Feature::new(Routes::new("deployments").and(enter::routes()).and(cdn::routes()))
        .own(Arc::new(Edge::new(config)))
        .jobs(cdn::jobs())
        .declares(enter::PURPOSES)
        .declares(cdn::GONE)
        .declares(&[traffic::SITE_REQUESTS, traffic::SITE_EGRESS])
        .declares(CHORES)
        .start(|janua| {
            Box::pin(async move {
                settings::check(&janua)?;
                let edge = janua.own::<Arc<Edge>>().clone();
                edge.console.get_or_init(|| respond::console_host(&janua));
                janua.db.on_notice(move |notice| edge.hosts.hear(notice));
                Ok(())
            })
        })
        .task("edge.counts", |janua| Box::pin(look_after(janua)))
}

/// Traffic is kept for 90 days.
const CHORES: &[Chore] = &[Chore::sweep(
    "site_traffic",
    "DELETE FROM site_traffic WHERE (app_id, hour) IN
         (SELECT app_id, hour FROM site_traffic WHERE hour < $1 ORDER BY hour LIMIT $2)",
    std::time::Duration::from_hours(90 * 24),
)];

/// Writes counts and tidies the disk for as long as the node runs.
async fn look_after(janua: Janua) {
    let edge = janua.own::<Arc<Edge>>().clone();
    loop {
        tokio::time::sleep(traffic::FLUSHED_EVERY).await;
        edge.traffic.flush(&janua).await;
        edge.pieces.tidy().await;
    }
}
