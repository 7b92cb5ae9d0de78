//! `Idempotency-Key`: the same key and request get the first answer again for 24 hours.
//!
//! The answer is kept sealed, because it may hold a secret that is shown once. The key belongs to whoever sent it with
//! the same credentials (or, without any, from the same address): nobody can fetch another caller's answer with it.
use std::{pin::Pin, time::Duration};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts},
    response::Response,
};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde::{Deserialize, Serialize};

use super::client::Client;
use crate::{
    App,
    clock::Timestamp,
    crypto,
    fault::{Fault, IDEMPOTENCY_IN_PROGRESS, IDEMPOTENCY_MISMATCH, INTERNAL, INVALID, Result},
    jobs::{Job, Later},
    params, row,
};

pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
const KEPT: Duration = Duration::from_hours(24);
/// Past this the first request is taken for dead, and the next one with its key may go ahead.
const ABANDONED: Duration = Duration::from_mins(2);
/// A longer answer is not kept: such routes create nothing.
const LONGEST_REPLY: usize = 256 * 1024;
const PURPOSE: &str = "idempotency";

/// Whether whoever sends these headers may still ask anything at all; put in by whoever knows.
pub struct ReplayGuard(pub fn(App, HeaderMap) -> Allowing);

type Allowing = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// The right to work on a request, or the answer the first one got.
pub(super) enum Turn {
    First(Slot),
    Again(Response),
}

/// The place where the first answer will be kept.
pub(super) struct Slot {
    scope: String,
    started_at: Timestamp,
}

struct Kept {
    request_hash: String,
    started_at: Timestamp,
    status: Option<u16>,
    sealed: Option<Vec<u8>>,
}
row!(Kept { request_hash, started_at, status, sealed });

#[derive(Serialize, Deserialize)]
struct Reply {
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// The key of a request that has one; only what creates something can be repeated.
pub(super) fn key(method: &Method, headers: &HeaderMap) -> Result<Option<String>> {
    if method != Method::POST {
        return Ok(None);
    }
    let Some(sent) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let text = sent.to_str().ok().filter(|text| (1..=255).contains(&text.len()));
    let text =
        text.ok_or_else(|| INVALID.at("Idempotency-Key", "wrong_form", "must be 1 to 255 visible characters"))?;
    Ok(Some(text.to_owned()))
}

impl Turn {
    pub(super) async fn of(app: &App, key: &str, client: Client, parts: &Parts, body: &Bytes) -> Result<Self> {
        let now = app.clock.now();
        let scope = app.vault.mac(PURPOSE, format!("{}\n{key}", caller(client, &parts.headers)).as_bytes());
        let mut request = format!("{} {}\n", parts.method, parts.uri).into_bytes();
        request.extend_from_slice(body);
        let request_hash = app.vault.mac(PURPOSE, &request);
        let taken = app
            .db
            .exec(
                "INSERT INTO idempotent_reply (scope, request_hash, started_at) VALUES ($1, $2, $3)
                 ON CONFLICT (scope) DO UPDATE SET request_hash = $2, started_at = $3, status = NULL, sealed = NULL
                 WHERE idempotent_reply.started_at < $4
                    OR (idempotent_reply.status IS NULL AND idempotent_reply.started_at < $5)",
                params![&scope, &request_hash, now, now.minus(KEPT), now.minus(ABANDONED)],
            )
            .await?;
        if taken == 1 {
            return Ok(Self::First(Slot { scope, started_at: now }));
        }
        let sql = "SELECT request_hash, started_at, status, sealed FROM idempotent_reply WHERE scope = $1";
        let kept: Option<Kept> = app.db.opt(sql, params![&scope]).await?;
        let busy = || Fault::from(IDEMPOTENCY_IN_PROGRESS).retry_after(Duration::from_secs(1));
        // Gone again: the first one failed just now and may be repeated.
        let kept = kept.ok_or_else(busy)?;
        if kept.request_hash != request_hash {
            return Err(IDEMPOTENCY_MISMATCH.into());
        }
        match (kept.status, kept.sealed) {
            (Some(status), Some(sealed)) => {
                let plain = app.vault.open(PURPOSE, &place(&scope, kept.started_at), &sealed);
                let plain = plain.map_err(|error| INTERNAL.caused_by(error))?;
                let reply: Reply = serde_json::from_slice(&plain).map_err(|error| INTERNAL.caused_by(error))?;
                // Who may no longer ask does not get the answer again either.
                if let Some(ReplayGuard(guard)) = app.find::<ReplayGuard>() {
                    guard(app.clone(), parts.headers.clone()).await?;
                }
                Ok(Self::Again(reply.answer(status)))
            }
            _ => Err(busy()),
        }
    }
}

impl Slot {
    /// Keeps the answer, or lets go of the key when the same request could fare better next time.
    pub(super) async fn settle(self, app: &App, response: Response) -> Response {
        let (parts, body) = response.into_parts();
        let status = parts.status;
        let bytes = match body.collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(error) => {
                tracing::error!(%error, "an answer broke off");
                Bytes::new()
            }
        };
        let passing = status.is_server_error()
            || matches!(
                status,
                StatusCode::UNAUTHORIZED | StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
            );
        let kept = if passing || bytes.len() > LONGEST_REPLY {
            let sql = "DELETE FROM idempotent_reply WHERE scope = $1 AND started_at = $2 AND status IS NULL";
            app.db.exec(sql, params![&self.scope, self.started_at]).await
        } else {
            let sealed = Reply::of(&parts.headers, &bytes).seal(app, &self);
            let sql = "UPDATE idempotent_reply SET status = $3, sealed = $4
                       WHERE scope = $1 AND started_at = $2 AND status IS NULL";
            app.db.exec(sql, params![&self.scope, self.started_at, status.as_u16(), sealed]).await
        };
        if let Err(error) = kept {
            tracing::error!(%error, "cannot keep the answer to a request with an Idempotency-Key");
        }
        Response::from_parts(parts, Body::from(bytes))
    }
}

impl Reply {
    fn of(headers: &HeaderMap, body: &Bytes) -> Self {
        let kept = [header::CONTENT_TYPE, header::LOCATION, header::SET_COOKIE, header::WWW_AUTHENTICATE];
        let named = headers.iter().filter(|(name, _)| kept.contains(name));
        let headers = named.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
        Self { headers: headers.collect(), body: body.to_vec() }
    }

    fn seal(&self, app: &App, slot: &Slot) -> Vec<u8> {
        let plain = serde_json::to_vec(self).unwrap_or_default();
        app.vault.seal(PURPOSE, &place(&slot.scope, slot.started_at), &plain)
    }

    fn answer(self, status: u16) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
        for (name, value) in self.headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                response.headers_mut().append(name, value);
            }
        }
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        response
    }
}

fn place(scope: &str, started_at: Timestamp) -> String {
    format!("idempotent_reply:sealed:{scope}:{}", started_at.0)
}

/// Everything that tells one caller from another.
fn caller(client: Client, headers: &HeaderMap) -> String {
    let mut credentials = Vec::new();
    for name in [header::AUTHORIZATION, header::COOKIE, HeaderName::from_static("x-service-app-key")] {
        for value in headers.get_all(&name) {
            credentials.extend_from_slice(value.as_bytes());
            credentials.push(b'\n');
        }
    }
    if credentials.is_empty() { client.network().to_string() } else { crypto::hash(&credentials) }
}

/// Forgets the replies nobody may ask for any more.
#[derive(Default, Serialize, Deserialize)]
pub struct ForgetReplies {}

impl Job for ForgetReplies {
    const KIND: &'static str = "http.forget_replies";

    async fn run(self, app: App) -> Result<(), Later> {
        let before = app.clock.now().minus(KEPT);
        let sql = "DELETE FROM idempotent_reply WHERE scope IN
                       (SELECT scope FROM idempotent_reply WHERE started_at < $1 ORDER BY started_at LIMIT $2)";
        app.db.sweep(sql, params![before]).await?;
        Ok(())
    }
}
