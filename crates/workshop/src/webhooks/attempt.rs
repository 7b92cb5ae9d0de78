//! One attempt to deliver: a signed request, and what its answer makes of the delivery.
use std::{sync::Arc, time::Duration};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::HmacKey,
    fault::Result,
    ports::outgoing::{Call, Limits, NoReply, Reach, Reply},
};
use url::Url;

use super::{
    Pace,
    deliveries::{Attempt, Delivery, State},
    model::Webhook,
    payload, retry, sign,
};

const MOST_READ: usize = 64 * 1024;
/// How much of a receiver's answer is kept.
pub(super) const MOST_KEPT: usize = 1024;

/// What a webhook is when an attempt begins.
pub(super) struct Target {
    pub webhook: Webhook,
    /// Nothing when it is none, which no webhook is given.
    url: Option<Url>,
    keys: Vec<HmacKey>,
    /// None unless it has standard headers.
    standard_keys: Vec<HmacKey>,
}

impl Target {
    pub fn of(janua: &Janua, webhook: Webhook, now: Timestamp) -> Result<Self> {
        let secrets = webhook.signing_secrets(janua, now)?;
        let standard_keys = if webhook.standard_headers { sign::standard_keys(&secrets) } else { vec![] };
        let keys = secrets.iter().map(sign::key).collect();
        Ok(Self { url: webhook.url.parse().ok(), keys, standard_keys, webhook })
    }
}

/// One attempt, and what it makes of the delivery.
pub(super) async fn attempt(janua: &Janua, target: Arc<Target>, delivery: Delivery) -> Delivery {
    let body = payload::body(&delivery);
    if body.len() > payload::MOST {
        tracing::warn!(delivery = %delivery.id, event = delivery.event, bytes = body.len(), "a payload is too large and was dropped");
        return Delivery { state: State::Dropped, ready_at: None, ..delivery };
    }
    let at = janua.clock.now();
    let outcome = post(janua, &target, &delivery, body, at).await;
    end(janua, delivery, outcome, at)
}

async fn post(
    janua: &Janua,
    target: &Target,
    delivery: &Delivery,
    body: Vec<u8>,
    at: Timestamp,
) -> Result<Reply, NoReply> {
    let url = target.url.clone().ok_or(NoReply::NoSuchHost)?;
    let mut headers = HeaderMap::new();
    for (name, value) in signed_headers(target, delivery, &body, at) {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    let limits = Limits { time: janua.own::<Pace>().attempt, bytes: MOST_READ };
    let (method, reach) = (Method::POST, Reach::Receiver);
    janua.outgoing.send(Call { method, url, headers, body: body.into(), limits, reach }).await
}

/// The headers of a delivery with its signature.
pub(super) fn signed_headers(
    target: &Target,
    delivery: &Delivery,
    body: &[u8],
    at: Timestamp,
) -> Vec<(&'static str, String)> {
    let Target { webhook, keys, standard_keys, .. } = target;
    let id = delivery.id.to_string();
    let mut headers = Vec::with_capacity(10);
    let mut say = |name: &'static str, value: String| headers.push((name, value));
    say("content-type", "application/json".into());
    say("user-agent", "Service-Webhooks/1.0".into());
    say("webhook-id", id.clone());
    say("webhook-event-type", delivery.event.clone());
    if let Some(traceparent) = &delivery.traceparent {
        say("traceparent", traceparent.clone());
    }
    let (own_time, standard_time) = (at.0.to_string(), at.0.div_euclid(1000).to_string());
    if webhook.standard_headers {
        let signature = sign::standard_signature(standard_keys, &id, at, body);
        if webhook.is_standard {
            say("webhook-timestamp", standard_time.clone());
            say("webhook-signature", signature.clone());
        }
        say("svix-id", id);
        say("svix-timestamp", standard_time);
        say("svix-signature", signature);
    }
    if !webhook.is_standard {
        say("webhook-timestamp", own_time);
        say("webhook-signature", sign::signature(keys, at, body));
    }
    headers
}

fn end(janua: &Janua, before: Delivery, outcome: Result<Reply, NoReply>, at: Timestamp) -> Delivery {
    let now = janua.clock.now();
    let (status, text, asked, error) = match outcome {
        Ok(reply) => {
            let text: String = String::from_utf8_lossy(&reply.body).chars().take(MOST_KEPT).collect();
            let asked = reply.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
            (reply.status.as_u16(), text, asked.and_then(|header| retry::asked_for(header, now)), None)
        }
        Err(why) => (0, why.to_string(), None, Some(why.to_string())),
    };
    let tries = before.tries + 1;
    let is_delivered = (200..300).contains(&status);
    let is_over = is_delivered || !retry::is_worth_it(status) || tries >= retry::TRIES;
    let jitter = || Duration::from_millis(janua.entropy.up_to(retry::JITTER_MS));
    let attempt = Attempt { at, status_code: status, latency_ms: millis(now.since(at)), error };
    let mut attempts = before.attempts;
    attempts.0.push(attempt);
    Delivery {
        state: match (is_delivered, is_over) {
            (true, _) => State::Delivered,
            (false, true) => State::Failed,
            (false, false) => State::Pending,
        },
        ready_at: (!is_over).then(|| now.plus(retry::wait(tries, asked, jitter()))),
        tries,
        attempt_count: before.attempt_count + 1,
        status_code: status,
        // A text column cannot keep NUL.
        response: (!is_delivered).then(|| text.replace('\0', "\u{fffd}")),
        attempts,
        delivered_at: Some(now),
        // It was sent, and is not to fill the memory until that is written down.
        facts: String::new(),
        ..before
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
