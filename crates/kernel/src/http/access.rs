//! The access log: a line for each answered request, when `log_requests` asks for it.
//!
//! A line names the route and never the path or the query, which may hold secrets. Lines go through the bounded log
//! queue, so a log that is not read slows no request down.
use std::{
    fmt::Display,
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    body::Body,
    http::{Extensions, Method, Request},
};

use super::client::Client;
use crate::config::LogRequests;

/// The id of the app that a request is about, written by the extractor that learns it.
#[derive(Clone, Default)]
struct AppOfRequest(Arc<OnceLock<String>>);

/// Notes the app that a request is about, for its line in the access log. Costs nothing while the log is off.
pub fn note_app(extensions: &Extensions, id: impl Display) {
    if let Some(AppOfRequest(app)) = extensions.get() {
        let _ = app.set(id.to_string());
    }
}

/// The first half of a line: the facts that are known before the request is worked on.
pub(super) struct AccessLine {
    least_status: u16,
    method: &'static str,
    client: Client,
    app: AppOfRequest,
}

impl AccessLine {
    /// None when the log is off.
    pub(super) fn begin(setting: LogRequests, request: &mut Request<Body>, client: Client) -> Option<Self> {
        let least_status = match setting {
            LogRequests::Off => return None,
            LogRequests::Errors => 400,
            LogRequests::All => 0,
        };
        let app = AppOfRequest::default();
        request.extensions_mut().insert(app.clone());
        Some(Self { least_status, method: name(request.method()), client, app })
    }

    pub(super) fn write(self, route: &str, id: &str, status: u16, bytes: Option<u64>, took: Duration) {
        if status < self.least_status {
            return;
        }
        let ms = (took.as_secs_f64() * 1e6).round() / 1e3;
        let (network, app) = (self.client.network(), self.app.0.get());
        tracing::info!(
            target: "access", method = self.method, route, status, ms, bytes, request = id, %network, app, "request"
        );
    }
}

/// Methods that callers invent are not repeated.
pub(super) fn name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
