//! Deliveries of the code host: the signature is checked on the bytes as they came, the delivery is stored with its job in one
//! commit and answered at once.
use aws_lc_rs::hmac;
use axum::{
    extract::{FromRequestParts, State},
    http::{HeaderMap, StatusCode, request::Parts},
    response::{IntoResponse as _, Response},
};
use data_encoding::HEXLOWER;
use kernel::{
    Janua,
    fault::{Code, Fault, MALFORMED, Result},
    http::{GenContext, Json, Operation, OperationInput, Raw, Routes},
    jobs, transact,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{
    host::{CodeHost, NOT_CONFIGURED},
    jobs::HandleDelivery,
    model::{Delivery, Facts, Installation},
};
use crate::words::words;

const INVALID_SIGNATURE: Code = Code::new(
    401,
    "invalid_signature",
    "The delivery is not signed with the secret of this server (X-Hub-Signature-256).",
);
const LONGEST: usize = 25 << 20;

pub fn routes() -> Routes {
    Routes::new("codehost")
        .body_limit(LONGEST)
        .post("/codehost/webhook", receive, "receive code-host webhook events")
        .answers::<Received>(202, "application/json")
        .fails(&[NOT_CONFIGURED, INVALID_SIGNATURE, MALFORMED])
        .unkept()
}

words! {
    pub enum Reception {
        Queued = "queued",
        /// Nothing here is about it.
        Ignored = "ignored",
        /// It was received before.
        Duplicate = "duplicate",
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Received {
    pub delivery_id: String,
    pub outcome: Reception,
}

/// The headers of a delivery.
struct Headers(HeaderMap);

impl FromRequestParts<Janua> for Headers {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &Janua) -> Result<Self> {
        Ok(Self(parts.headers.clone()))
    }
}

impl OperationInput for Headers {
    fn operation_input(_: &mut GenContext, _: &mut Operation) {}
}

impl Headers {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Whether the bytes were signed with the secret. Only the signature with SHA-256 counts.
pub fn is_signed(header: Option<&str>, secret: &str, body: &[u8]) -> bool {
    let Some(digits) = header.and_then(|header| header.strip_prefix("sha256=")) else { return false };
    let Ok(signature) = HEXLOWER.decode(digits.as_bytes()) else { return false };
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    hmac::verify(&key, body, &signature).is_ok()
}

/// As the host writes ids of deliveries: letters, digits and hyphens.
fn is_delivery_id(id: &str) -> bool {
    (8..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

async fn receive(State(janua): State<Janua>, headers: Headers, body: Raw) -> Result<Response> {
    let host = CodeHost::host(&janua)?;
    let secret = host.configured.webhook_secret.expose();
    if !is_signed(headers.text("x-hub-signature-256"), secret, &body.0) {
        return Err(INVALID_SIGNATURE.into());
    }
    let id = headers.text("x-github-delivery").map(str::to_ascii_lowercase).filter(|id| is_delivery_id(id));
    let id = id.ok_or_else(|| MALFORMED.because("X-GitHub-Delivery is missing."))?;
    let event = headers.text("x-github-event").ok_or_else(|| MALFORMED.because("X-GitHub-Event is missing."))?;
    let payload: Value = serde_json::from_slice(&body.0).map_err(|_| MALFORMED.because("Not JSON."))?;
    let outcome = accept(&janua, &id, event, &payload, "webhook").await?;
    Ok((StatusCode::ACCEPTED, Json(Received { delivery_id: id, outcome })).into_response())
}

/// Stores a delivery with its job, unless nothing here is about it.
pub async fn accept(janua: &Janua, id: &str, event: &str, payload: &Value, via: &str) -> Result<Reception> {
    let Some((external_id, action, facts)) = read(event, payload) else { return Ok(Reception::Ignored) };
    let now = janua.clock.now();
    let delivery = Delivery {
        id: id.to_owned(),
        event: event.to_owned(),
        action,
        external_id,
        repository_id: payload["repository"]["id"].as_i64(),
        facts,
        via: via.to_owned(),
        received_at: now,
    };
    transact!(janua, async |tx| {
        if Installation::all_of(&mut *tx, external_id).await?.is_empty() {
            return Ok(Reception::Ignored);
        }
        if !delivery.insert(tx).await? {
            return Ok(Reception::Duplicate);
        }
        Installation::note_delivery(tx, external_id, now).await?;
        let job = HandleDelivery { delivery: delivery.id.clone(), only: None, again: false };
        jobs::enqueue(tx, janua, now, &job).await?;
        Ok(Reception::Queued)
    })
}

/// What counts of an event: the installation, the action and the facts. Nothing for events that lead to nothing.
fn read(event: &str, payload: &Value) -> Option<(i64, Option<String>, Facts)> {
    let external = payload["installation"]["id"].as_i64()?;
    let text = |value: &Value| value.as_str().map(|text| text.chars().take(255).collect::<String>());
    let action = text(&payload["action"]);
    let facts = Facts {
        repository: text(&payload["repository"]["full_name"]),
        sender: text(&payload["sender"]["login"]),
        ..Facts::default()
    };
    let named = action.as_deref().unwrap_or_default();
    let facts = match event {
        "push" => {
            let branch = payload["ref"].as_str()?.strip_prefix("refs/heads/")?.to_owned();
            Facts { branch: Some(branch), sha: text(&payload["after"]), ..facts }
        }
        "pull_request" if ["opened", "synchronize", "reopened", "closed"].contains(&named) => {
            let pull = &payload["pull_request"];
            Facts {
                pull: Some(payload["number"].as_i64()?),
                branch: text(&pull["head"]["ref"]),
                sha: text(&pull["head"]["sha"]),
                ..facts
            }
        }
        "installation"
            if ["created", "deleted", "suspend", "unsuspend", "new_permissions_accepted"].contains(&named) =>
        {
            facts
        }
        "installation_repositories" => {
            let removed = payload["repositories_removed"].as_array().into_iter().flatten();
            let repositories = removed.filter_map(|one| one["id"].as_i64()).take(1000).collect();
            Facts { repositories, ..facts }
        }
        "repository"
            if ["renamed", "transferred", "deleted", "edited", "privatized", "publicized"].contains(&named) =>
        {
            Facts { repositories: payload["repository"]["id"].as_i64().into_iter().collect(), ..facts }
        }
        _ => return None,
    };
    Some((external, action, facts))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_sha_256_over_the_very_bytes_counts() {
        // From the documentation of GitHub.
        let (secret, body) = ("It's a Secret to Everybody", b"Hello, World!");
        let good = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert!(is_signed(Some(good), secret, body));
        assert!(!is_signed(Some(good), "another", body));
        assert!(!is_signed(Some(good), secret, b"Hello, World! "));
        for odd in [
            None,
            Some(""),
            Some(&good[7..]),
            Some(&good.replace("sha256", "sha1")),
            Some("sha256="),
            Some("sha256=zz"),
        ] {
            assert!(!is_signed(odd, secret, body), "{odd:?}");
        }
        assert!(
            !is_signed(Some(&good.to_uppercase().replace("SHA256", "sha256")), secret, body),
            "as the host writes it"
        );
    }

    #[test]
    fn tags_and_other_events_lead_to_nothing() {
        let push = |name: &str| json!({ "ref": name, "installation": { "id": 7 }, "after": "a".repeat(40) });
        let (external, _, facts) = read("push", &push("refs/heads/feature/x")).unwrap();
        assert_eq!((external, facts.branch.as_deref()), (7, Some("feature/x")));
        assert!(read("push", &push("refs/tags/v1")).is_none());
        assert!(read("push", &json!({ "ref": "refs/heads/main" })).is_none(), "of no installation");
        assert!(read("ping", &json!({ "installation": { "id": 7 } })).is_none());
        assert!(
            read("pull_request", &json!({ "action": "labeled", "number": 1, "installation": { "id": 7 } })).is_none()
        );
    }
}
