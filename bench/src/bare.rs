//! The limit for everything that speaks HTTP: one axum handler and nothing around it, on the runtime and with the
//! allocator that `janua` uses. It answers with the same bytes, head and body.
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, HeaderName, HeaderValue, header},
    routing,
};
use tokio::{net::TcpListener, runtime::Runtime};

#[derive(clap::Args)]
pub struct Options {
    address: SocketAddr,
    /// What it answers, as it came over the wire
    answer: String,
}

/// What the server itself writes.
const WRITTEN_ANYWAY: [HeaderName; 3] = [header::DATE, header::CONTENT_LENGTH, header::CONNECTION];

pub fn run(options: &Options) -> Result<()> {
    let (head, body) = options.answer.split_once("\r\n\r\n").context("no whole answer")?;
    let mut headers = HeaderMap::new();
    for (name, value) in head.lines().filter_map(|line| line.split_once(": ")) {
        let name: HeaderName = name.parse()?;
        if !WRITTEN_ANYWAY.contains(&name) {
            headers.append(name, HeaderValue::from_str(value)?);
        }
    }
    // Live as long as the process: an answer copies them no more than constants.
    let (headers, body): (&'static HeaderMap, &'static str) = (Box::leak(Box::new(headers)), body.to_owned().leak());
    let get = routing::get(move || async move { (headers.clone(), body) });
    // What is posted is read, as the other side reads it.
    let both = get.post(move |_: Bytes| async move { (headers.clone(), body) });
    let router = Router::new().route("/health", both);
    Runtime::new()?.block_on(async {
        let listener = TcpListener::bind(options.address).await?;
        Ok(axum::serve(listener, router).await?)
    })
}
