//! One attempt to deliver: a signed request, and what its answer makes of the delivery.
use std::{sync::Arc, time::Duration};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use kernel::{
    App,
    clock::Timestamp,
    crypto::HmacKey,
    fault::Result,
    ports::outgoing::{Call, Limits, NoReply, Reply},
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
const MOST_KEPT: usize = 1024;

/// What a webhook is when an attempt begins.
pub(super) struct Target {
    pub webhook: Webhook,
    /// Nothing when it is none, which no webhook is given.
    url: Option<Url>,
    keys: Vec<HmacKey>,
}

impl Target {
    pub fn of(app: &App, webhook: Webhook, now: Timestamp) -> Result<Self> {
        let keys = webhook.signing_secrets(app, now)?.iter().map(sign::key).collect();
        Ok(Self { url: webhook.url.parse().ok(), keys, webhook })
    }
}

/// One attempt, and what it makes of the delivery.
pub(super) async fn attempt(app: &App, target: Arc<Target>, delivery: Delivery) -> Delivery {
    let body = payload::body(&delivery);
    if body.len() > payload::MOST {
        tracing::warn!(delivery = %delivery.id, event = delivery.event, bytes = body.len(), "a payload is too large and was dropped");
        return Delivery { state: State::Dropped, ready_at: None, ..delivery };
    }
    let at = app.clock.now();
    let outcome = post(app, &target, &delivery, body, at).await;
    end(app, delivery, outcome, at)
}

async fn post(
    app: &App,
    target: &Target,
    delivery: &Delivery,
    body: Vec<u8>,
    at: Timestamp,
) -> Result<Reply, NoReply> {
    let Target { webhook, url, keys } = target;
    let url = url.clone().ok_or(NoReply::NoSuchHost)?;
    let id = delivery.id.to_string();
    let mut headers = HeaderMap::new();
    let mut say = |name: HeaderName, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    };
    say(header::CONTENT_TYPE, "application/json".into());
    say(header::USER_AGENT, "Service-Webhooks/1.0".into());
    say(HeaderName::from_static("webhook-id"), id.clone());
    say(HeaderName::from_static("webhook-timestamp"), at.0.to_string());
    say(HeaderName::from_static("webhook-event-type"), delivery.event.clone());
    say(HeaderName::from_static("webhook-signature"), sign::signature(keys, at, &body));
    if webhook.standard_headers {
        let signature = sign::standard_signature(keys, &id, at, &body);
        say(HeaderName::from_static("svix-id"), id);
        say(HeaderName::from_static("svix-timestamp"), at.0.div_euclid(1000).to_string());
        say(HeaderName::from_static("svix-signature"), signature);
    }
    let limits = Limits { time: app.own::<Pace>().attempt, bytes: MOST_READ };
    app.outgoing.send(Call { method: Method::POST, url, headers, body: body.into(), limits }).await
}

fn end(app: &App, before: Delivery, outcome: Result<Reply, NoReply>, at: Timestamp) -> Delivery {
    let now = app.clock.now();
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
    let jitter = || Duration::from_millis(app.entropy.up_to(retry::JITTER_MS));
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
