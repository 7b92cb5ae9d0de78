//! One webhook's deliveries, while this node holds it: a few at a time, each attempt written down before the next.
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use futures_util::{StreamExt as _, stream};
use kernel::{
    App,
    clock::Timestamp,
    db,
    fault::{Fault, Result},
    ports::outgoing::{Call, Limits, NoReply, Reply},
    transact,
};

use super::{
    Pace,
    deliveries::{Attempt, Delivery, State},
    model::{Held, Webhook},
    payload, retry, rules, sign,
};

/// How many attempts go to one webhook at once.
const AT_ONCE: usize = 16;
/// What is looked up at once, so that memory does not grow with what waits.
const BATCH: u32 = 48;
/// After this long others get their turn.
const TURN: Duration = Duration::from_secs(20);
const MOST_READ: usize = 64 * 1024;
/// How much of a receiver's answer is kept.
const MOST_KEPT: usize = 1024;

/// Delivers what is due, then lets go of the webhook.
pub async fn run(app: &App, held: Held) {
    if let Err(error) = deliver(app, held).await {
        tracing::warn!(%error, webhook = %held.id, "cannot deliver for a webhook just now");
    }
    let released: db::Result<()> = transact!(app.db, tx, { held.release(tx).await });
    if let Err(error) = released {
        // The lease runs out by itself.
        tracing::warn!(%error, webhook = %held.id, "cannot let go of a webhook");
    }
}

async fn deliver(app: &App, held: Held) -> db::Result<()> {
    let since = app.clock.now();
    loop {
        let due = Delivery::due(&app.db, held.id, app.clock.now(), BATCH).await?;
        if due.is_empty() || app.clock.now().since(since) > TURN {
            return Ok(());
        }
        let mut attempts = stream::iter(due).map(|delivery| attempt(app, held, delivery)).buffer_unordered(AT_ONCE);
        let mut goes_on = true;
        while let Some(outcome) = attempts.next().await {
            // The others under way are written down all the same.
            goes_on &= outcome.unwrap_or_else(|fault| {
                let cause = fault.cause().map(|(cause, _)| cause.to_owned());
                tracing::warn!(%fault, cause, webhook = %held.id, "an attempt could not be made or written down");
                false
            });
        }
        if !goes_on {
            return Ok(());
        }
    }
}

/// One attempt; `false` when this webhook has nothing more to deliver here.
async fn attempt(app: &App, held: Held, delivery: Delivery) -> Result<bool> {
    // Looked at again each time: it may have been switched off, moved or given a new secret a moment ago.
    let Some(webhook) = held.look(&app.db).await?.filter(|webhook| webhook.is_active) else { return Ok(false) };
    let body = payload::body(&delivery);
    if body.len() > payload::MOST {
        tracing::warn!(delivery = %delivery.id, event = delivery.event, bytes = body.len(), "a payload is too large and was dropped");
        let dropped = Delivery { state: State::Dropped, ready_at: None, ..delivery };
        let noted: Result<bool> = transact!(app.db, tx, { Ok::<_, Fault>(dropped.note(tx, held).await?) });
        return noted;
    }
    let at = app.clock.now();
    let outcome = post(app, &webhook, &delivery, body, at).await?;
    let ended = end(app, delivery, outcome, at);
    transact!(app.db, tx, {
        if !ended.note(tx, held).await? {
            return Ok(false);
        }
        match ended.state {
            State::Delivered if webhook.failures > 0 => Webhook::succeeded(tx, held.id).await?,
            State::Failed => return rules::count_failure(tx, app, held.id).await,
            _ => {}
        }
        Ok::<_, Fault>(true)
    })
}

async fn post(
    app: &App,
    webhook: &Webhook,
    delivery: &Delivery,
    body: Vec<u8>,
    at: Timestamp,
) -> Result<Result<Reply, NoReply>> {
    let Ok(url) = webhook.url.parse() else { return Ok(Err(NoReply::NoSuchHost)) };
    let secrets = webhook.signing_secrets(app, at)?;
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
    say(HeaderName::from_static("webhook-signature"), sign::signature(&secrets, at, &body));
    if webhook.standard_headers {
        let signature = sign::standard_signature(&secrets, &id, at, &body);
        say(HeaderName::from_static("svix-id"), id);
        say(HeaderName::from_static("svix-timestamp"), at.0.div_euclid(1000).to_string());
        say(HeaderName::from_static("svix-signature"), signature);
    }
    let limits = Limits { time: app.own::<Pace>().attempt, bytes: MOST_READ };
    Ok(app.outgoing.send(Call { method: Method::POST, url, headers, body: body.into(), limits }).await)
}

/// What the attempt makes of the delivery.
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
    let jitter = Duration::from_millis(app.entropy.up_to(retry::JITTER_MS));
    let attempt = Attempt { at, status_code: status, latency_ms: millis(now.since(at)), error };
    let mut attempts = before.attempts;
    if let (Some(list), Ok(attempt)) = (attempts.as_array_mut(), serde_json::to_value(attempt)) {
        list.push(attempt);
    }
    Delivery {
        state: match (is_delivered, is_over) {
            (true, _) => State::Delivered,
            (false, true) => State::Failed,
            (false, false) => State::Pending,
        },
        ready_at: (!is_over).then(|| now.plus(retry::wait(tries, asked, jitter))),
        tries,
        attempt_count: before.attempt_count + 1,
        status_code: status,
        // A text column cannot keep NUL.
        response: (!is_delivered).then(|| text.replace('\0', "\u{fffd}")),
        attempts,
        delivered_at: Some(now),
        ..before
    }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
