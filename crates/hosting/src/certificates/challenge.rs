//! Answering the authority that checks a name over http, on every node.
use axum::{
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    fault::{NOT_FOUND, Result},
    http::{Path, Routes},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::model::StoredChallenge;
use crate::domains;

/// Where authorities ask (RFC 8555, 8.3).
pub const PATH: &str = "/.well-known/acme-challenge/";
/// Tokens are base64url; anything else is none.
const LONGEST_TOKEN: usize = 200;

pub fn routes() -> Routes {
    Routes::new("domains")
        .get(
            "/.well-known/acme-challenge/{token}",
            answer_challenge,
            "answer a certificate authority that checks a domain",
        )
        .answers::<String>(200, "text/plain")
        .fails(&[NOT_FOUND])
}

#[derive(Deserialize, JsonSchema)]
struct ChallengePath {
    token: String,
}

async fn answer_challenge(
    State(janua): State<Janua>,
    Path(path): Path<ChallengePath>,
    headers: HeaderMap,
) -> Result<Response> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    Ok(answer(&janua, host, &path.token).await.ok_or(NOT_FOUND)?.into_response())
}

/// What is answered at [`PATH`] and a token, asked as this host; none for what no order is open for. A token of another host is
/// none.
pub async fn answer(janua: &Janua, host: &str, token: &str) -> Option<String> {
    let name = host.rsplit_once(':').map_or(
        host,
        |(name, port)| {
            if port.bytes().all(|b| b.is_ascii_digit()) { name } else { host }
        },
    );
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if token.is_empty() || token.len() > LONGEST_TOKEN || !token.bytes().all(is_token) {
        return None;
    }
    if let Some(probe) = domains::probe_answer(janua, &name, token) {
        return Some(probe);
    }
    match StoredChallenge::find(&janua.db, &name, token).await {
        Ok(found) => found.map(|found| found.answer),
        Err(error) => {
            tracing::warn!(%error, "cannot answer a certificate authority");
            None
        }
    }
}
