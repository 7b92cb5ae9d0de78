//! The limit for everything that speaks HTTP: one axum handler and nothing around it, on the runtime and with the
//! allocator that `janua` uses.
use std::net::SocketAddr;

use anyhow::Result;
use axum::{Router, http::header::CONTENT_TYPE, routing};
use tokio::{net::TcpListener, runtime::Runtime};

#[derive(clap::Args)]
pub struct Options {
    address: SocketAddr,
    /// What it answers
    body: String,
}

pub fn run(options: &Options) -> Result<()> {
    // Lives as long as the process: an answer copies it no more than a constant.
    let body: &'static str = options.body.clone().leak();
    let router = Router::new()
        .route("/health", routing::get(move || async move { ([(CONTENT_TYPE, "application/json")], body) }));
    Runtime::new()?.block_on(async {
        let listener = TcpListener::bind(options.address).await?;
        Ok(axum::serve(listener, router).await?)
    })
}
