//! `Idempotency-Key`: the same key and request get the first answer again for 24 hours.
//!
//! The key is claimed in the handler's own transaction, and the answer is stored in it (`db/src/claim.rs`): there is never
//! the one without the other, and a caller without the right to the request is refused before the key is looked at. A
//! refusal changed nothing and is not kept.
//!
//! The answer is kept sealed, because it may hold a secret that is shown once. The key belongs to the sender's
//! credentials (or, without any, to the network): no caller can fetch another caller's answer with it. An answer that
//! opens an account is never kept (`db::answer_opens_account`): a repetition is asked for whatever is asked for by
//! then.
use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts},
    response::Response,
};
use bytes::Bytes;
use db::claim::{self, Claim, Earlier, Key, Remembered, Stage, StoredReply};
use http_body_util::BodyExt as _;
use serde::{Deserialize, Serialize};

use super::{client::Client, origins::has_identity_cookie};
use crate::{
    Janua,
    clock::Timestamp,
    crypto,
    fault::{
        Fault, IDEMPOTENCY_ANSWER_LOST, IDEMPOTENCY_IN_PROGRESS, IDEMPOTENCY_MISMATCH, INTERNAL, INVALID, Result,
    },
    jobs::{Job, Later},
};

pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
const KEPT: Duration = Duration::from_hours(24);
/// A longer answer is not kept: such routes create nothing.
const LONGEST_REPLY: usize = 256 * 1024;
const PURPOSE: &str = "idempotency";

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

/// The claim of a request to happen once.
pub(super) fn claim(janua: &Janua, key: &str, client: Client, parts: &Parts, body: &Bytes) -> Arc<Claim> {
    let now = janua.clock.now();
    let scope = janua.vault.mac(PURPOSE, format!("{}\n{key}", caller(client, &parts.headers)).as_bytes());
    let mut request = format!("{} {}\n", parts.method, parts.uri).into_bytes();
    request.extend_from_slice(body);
    let request_hash = janua.vault.mac(PURPOSE, &request);
    Claim::new(Key { scope, request_hash, now: now.0, forgotten: now.minus(KEPT).0 })
}

/// The answer of a request under a claim: the handler's, stored with its changes, or the stored one.
pub(super) async fn settle(janua: &Janua, claim: &Arc<Claim>, answer: impl FnOnce() -> Response) -> Result<Response> {
    match claim.stage() {
        Stage::Unclaimed => Ok(answer()),
        Stage::Repeated(earlier) => replay(janua, claim, earlier),
        Stage::Failed(error) => Err(error.into()),
        Stage::Claimed => keep(janua, claim, answer()).await,
    }
}

async fn keep(janua: &Janua, claim: &Arc<Claim>, answer: Response) -> Result<Response> {
    let (parts, body) = answer.into_parts();
    // It may look into the database while it is made.
    let bytes = match claim.around(body.collect()).await {
        Ok(collected) => collected.to_bytes(),
        Err(error) => {
            tracing::error!(%error, "an answer ended early");
            Bytes::new()
        }
    };
    let status = parts.status;
    let remembered = if status.is_client_error() || (claim.opens_account() && !status.is_server_error()) {
        Remembered::Nothing
    } else if status.is_server_error() || bytes.len() > LONGEST_REPLY {
        Remembered::Done
    } else {
        let plain = serde_json::to_vec(&Reply::of(&parts.headers, &bytes)).map_err(|e| INTERNAL.caused_by(e))?;
        let sealed = janua.vault.seal(PURPOSE, &place(claim.scope(), claim.now()), &plain);
        Remembered::Answer { status: status.as_u16(), sealed }
    };
    if let StoredReply::Apart(Err(error)) = claim.finish(&janua.db, remembered).await? {
        // What was done is done.
        tracing::error!(%error, "cannot store the answer to a request with an Idempotency-Key");
    }
    Ok(Response::from_parts(parts, Body::from(bytes)))
}

fn replay(janua: &Janua, claim: &Claim, earlier: Earlier) -> Result<Response> {
    if earlier.request_hash != claim.request_hash() {
        return Err(IDEMPOTENCY_MISMATCH.into());
    }
    let (Some(status), Some(sealed)) = (earlier.status, earlier.sealed) else {
        // It did something and has not been answered yet; nothing takes longer than this to be.
        let is_young = janua.clock.now() < Timestamp(earlier.started_at).plus(2 * janua.config.request_timeout);
        return Err(if is_young {
            Fault::from(IDEMPOTENCY_IN_PROGRESS).retry_after(Duration::from_secs(1))
        } else {
            IDEMPOTENCY_ANSWER_LOST.into()
        });
    };
    let plain = janua.vault.open(PURPOSE, &place(claim.scope(), earlier.started_at), &sealed);
    let plain = plain.map_err(|error| INTERNAL.caused_by(error))?;
    let reply: Reply = serde_json::from_slice(&plain).map_err(|error| INTERNAL.caused_by(error))?;
    Ok(reply.answer(status))
}

impl Reply {
    fn of(headers: &HeaderMap, body: &Bytes) -> Self {
        let kept = [header::CONTENT_TYPE, header::LOCATION, header::SET_COOKIE, header::WWW_AUTHENTICATE];
        let named = headers.iter().filter(|(name, _)| kept.contains(name));
        let headers = named.filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())));
        Self { headers: headers.collect(), body: body.to_vec() }
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

fn place(scope: &str, started_at: i64) -> String {
    format!("idempotent_reply:sealed:{scope}:{started_at}")
}

/// Everything that tells one caller from another. An app's key may be published, and any cookie but those of a session may
/// be shared by many: a caller without credentials of their own is known by their network.
fn caller(client: Client, headers: &HeaderMap) -> String {
    let mut brought = Vec::new();
    for name in [header::AUTHORIZATION, header::COOKIE, HeaderName::from_static("x-service-app-key")] {
        for value in headers.get_all(&name) {
            brought.extend_from_slice(value.as_bytes());
            brought.push(b'\n');
        }
    }
    let is_identified = headers.contains_key(header::AUTHORIZATION) || has_identity_cookie(headers);
    match (brought.is_empty(), is_identified) {
        (true, _) => client.network().to_string(),
        // As 0.1 stored it, so that a request can be repeated after the upgrade.
        (false, true) => crypto::hash(&brought),
        (false, false) => format!("{} {}", crypto::hash(&brought), client.network()),
    }
}

/// Deletes expired replies.
#[derive(Default, Serialize, Deserialize)]
pub struct ForgetReplies {}

impl Job for ForgetReplies {
    const KIND: &'static str = "http.forget_replies";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        Ok(claim::forget_before(&janua.db, janua.clock.now().minus(KEPT).0).await?)
    }
}
