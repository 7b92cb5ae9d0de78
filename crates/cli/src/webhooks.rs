//! Webhooks from the command line: managing them, and receiving events on this machine.
use std::{
    collections::HashSet,
    io::Read as _,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use reqwest::{
    Method,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};

use crate::{
    failure::{Failure, Kind, Result},
    output::{error_line, shown, text_at},
    resources::Most,
    server::{Extra, Server, body_of, encoded, is_id, now},
    sse::{Event, Events},
};

#[derive(clap::Subcommand)]
pub enum Webhooks {
    /// List webhooks, and who listens from a command line
    List {
        #[command(flatten)]
        most: Most,
    },
    /// Create a webhook; its secret is shown once
    Create {
        /// An https:// endpoint
        endpoint: String,
        /// Event names, separated by commas; * for all
        #[arg(long, value_delimiter = ',', default_value = "*")]
        events: Vec<String>,
        /// Sign as Standard Webhooks and Svix do
        #[arg(long)]
        standard: bool,
    },
    /// Delete a webhook
    Delete { id: String },
    /// List the latest deliveries of a webhook or a listener
    Deliveries {
        /// The webhook; not needed if there is one
        #[arg(long)]
        webhook: Option<String>,
    },
    /// Receive the app's events here and post them to a local URL, signed like real deliveries
    Listen(Listen),
    /// Send an example of an event to a webhook or to who listens
    Trigger {
        /// Such as `user.signed_in`
        event: Option<String>,
        #[arg(long)]
        webhook: Option<String>,
    },
    /// Check the signature of a delivery
    Verify {
        /// The webhook's secret; `@file` reads a file
        #[arg(long)]
        secret: String,
        /// The header Webhook-Signature
        #[arg(long)]
        signature: String,
        /// The body exactly as it came; - is the standard input
        #[arg(default_value = "-")]
        body: PathBuf,
        /// Do not look at how old it is
        #[arg(long)]
        any_age: bool,
    },
    /// Send a delivery again
    Redeliver {
        delivery: String,
        #[arg(long)]
        webhook: Option<String>,
    },
    /// Send everything since a moment that was not delivered
    Recover {
        /// How long ago, such as 30m or 2d, or a moment such as 2026-01-31T10:00:00Z
        #[arg(long)]
        since: String,
        #[arg(long)]
        webhook: Option<String>,
    },
}

#[derive(clap::Args)]
pub struct Listen {
    /// Where events are posted, such as localhost:3000/hook
    #[arg(long, value_name = "URL")]
    forward: Option<String>,
    /// Event names, separated by commas; all by default
    #[arg(long, value_delimiter = ',')]
    events: Vec<String>,
    /// Begin with what happened since then: 10m, 2d, or a moment
    #[arg(long)]
    since: Option<String>,
    /// Hear what this webhook hears, signed with its secret
    #[arg(long, value_name = "ID", conflicts_with = "events")]
    webhook: Option<String>,
    /// Answer this share of deliveries with 500 instead of posting them, such as 20%
    #[arg(long, value_name = "SHARE")]
    fail: Option<String>,
    /// Wait this long before each post, such as 3s
    #[arg(long, value_name = "TIME")]
    delay: Option<String>,
}

pub async fn webhooks(server: &Server, command: Webhooks) -> Result<()> {
    if let Webhooks::Verify { secret, signature, body, any_age } = &command {
        return verify(server, secret, signature, body, *any_age);
    }
    let path = format!("/apps/{}/webhooks", server.app().await?);
    match command {
        Webhooks::List { most } => {
            let rows = server.list(&path, "webhooks", most.limit as usize).await?;
            server.out.answer(&json!({ "webhooks": rows }), |out| {
                let columns = [
                    ("ID", "id"),
                    ("Endpoint", "url"),
                    ("Events", "events"),
                    ("Active", "isActive"),
                    ("Expires", "listensUntil"),
                ];
                out.table(
                    &columns,
                    &rows,
                    "No webhooks yet. Try `janua webhooks listen --forward localhost:3000/hook`.",
                );
            });
        }
        Webhooks::Create { endpoint, events, standard } => {
            let new = json!({ "url": endpoint, "events": events, "standardHeaders": standard });
            let made = server.post(&path, new).await?;
            server.out.answer(&made, |out| {
                out.line(&format!("{} Created a webhook. Its secret is shown only now:", out.green("✓")));
                out.record(
                    &made,
                    &[
                        ("Secret", "secret"),
                        ("Standard secret", "standardSecret"),
                        ("ID", "id"),
                        ("Events", "events"),
                    ],
                );
            });
        }
        Webhooks::Delete { id } => {
            server.out.confirm(server.options.yes, &format!("Delete webhook {id}?"))?;
            server.delete(&format!("{path}/{}", encoded(&id))).await?;
            server.out.answer(&json!({ "id": id, "deleted": true }), |out| out.line("Deleted the webhook."));
        }
        Webhooks::Deliveries { webhook } => {
            let id = pick(server, &path, webhook).await?;
            let found = server.get(&format!("{path}/{id}/deliveries")).await?;
            let rows = found["deliveries"].as_array().cloned().unwrap_or_default();
            server.out.answer(&found, |out| {
                let columns = [
                    ("ID", "deliveryId"),
                    ("Event", "event"),
                    ("Status", "status"),
                    ("Code", "statusCode"),
                    ("Tries", "attemptCount"),
                    ("Delivered", "deliveredAt"),
                ];
                out.table(&columns, &rows, "Nothing was delivered yet.");
            });
        }
        Webhooks::Listen(wishes) => return listen(server, &path, &wishes).await,
        Webhooks::Trigger { event, webhook } => {
            let id = pick(server, &path, webhook).await?;
            let body = event.map_or_else(|| json!({}), |event| json!({ "event": event }));
            let sent = server.post(&format!("{path}/{id}/test"), body).await?;
            under_way(server, &sent);
        }
        Webhooks::Redeliver { delivery, webhook } => {
            let id = pick(server, &path, webhook).await?;
            let sent = server
                .ask(Method::POST, &format!("{path}/{id}/deliveries/{}/redeliver", encoded(&delivery)), None)
                .await?;
            under_way(server, &sent);
        }
        Webhooks::Recover { since, webhook } => {
            let id = pick(server, &path, webhook).await?;
            let sent = server.post(&format!("{path}/{id}/recover"), json!({ "since": moment(&since)? })).await?;
            server.out.answer(&sent, |out| {
                out.line(&format!("Sending what was missed since {}.", text_at(&sent, "since")));
            });
        }
        Webhooks::Verify { .. } => {}
    }
    Ok(())
}

fn under_way(server: &Server, sent: &Value) {
    server.out.answer(sent, |out| {
        out.line(&format!("{} Sent {}.", out.green("✓"), text_at(sent, "event")));
        out.record(sent, &[("Delivery", "deliveryId")]);
    });
}

/// The webhook that is named, the only one, or the one that is chosen.
async fn pick(server: &Server, path: &str, wanted: Option<String>) -> Result<String> {
    if let Some(id) = wanted {
        return if is_id(&id) { Ok(id) } else { Err(Failure::usage(format!("--webhook {id}: not an ID"))) };
    }
    let rows = server.list(path, "webhooks", 1000).await?;
    let name = |row: &Value| format!("{}  {}", text_at(row, "id"), text_at(row, "url"));
    match rows.as_slice() {
        [] => Err(Failure::failed("The app has no webhooks and no listener.")
            .hint("`janua webhooks listen --forward localhost:3000/hook`")),
        [one] => Ok(text_at(one, "id")),
        rows => {
            let names: Vec<String> = rows.iter().map(name).collect();
            let at = server.out.choose("webhook", "--webhook", &names)?;
            Ok(text_at(&rows[at], "id"))
        }
    }
}

fn verify(server: &Server, secret: &str, signature: &str, body: &PathBuf, any_age: bool) -> Result<()> {
    let secret = match secret.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file)?.trim().to_owned(),
        None => secret.to_owned(),
    };
    let mut content = vec![];
    if body.as_os_str() == "-" {
        std::io::stdin().read_to_end(&mut content)?;
    } else {
        content = std::fs::read(body).map_err(|error| Failure::usage(format!("{}: {error}", body.display())))?;
    }
    let signed_at = || signature.split(',').find_map(|part| part.trim().strip_prefix("t=")?.parse::<u64>().ok());
    let now = u64::try_from(now()).unwrap_or(0);
    let at = if any_age { signed_at().unwrap_or(now) } else { now };
    match janua_client::verify_webhook(signature, &content, &secret, at) {
        Ok(()) => {
            server.out.answer(&json!({ "valid": true }), |out| {
                out.line(&format!("{} The signature is valid.", out.green("✓")));
            });
            Ok(())
        }
        Err(why) => {
            let message = match why {
                janua_client::WebhookError::MalformedHeader => "The header is not a Webhook-Signature: t=…,v1=…",
                janua_client::WebhookError::TimestampOutsideTolerance => {
                    "The signature is older than five minutes, or from the future. --any-age checks it all the same."
                }
                janua_client::WebhookError::SignatureMismatch => {
                    "The signature does not match. Check the secret, and that the body is exactly what came."
                }
            };
            Err(Failure { code: why.to_string(), ..Failure::failed(message) })
        }
    }
}

/// A length of time such as 10s, 5m, 2h, 3d.
pub fn length(text: &str) -> Result<Duration> {
    let wrong = || Failure::usage(format!("{text}: must be a length of time such as 10s, 5m, 2h or 3d"));
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "ms" => return Ok(Duration::from_millis(number)),
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

/// A moment: how long ago, or the moment itself.
fn moment(text: &str) -> Result<String> {
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        return Ok(format!("{moment:.3}"));
    }
    let ago = length(text).map_err(|_| {
        Failure::usage(format!(
            "{text}: must be a length of time such as 10m, or a moment such as 2026-01-31T10:00:00Z"
        ))
    })?;
    let seconds = i64::try_from(ago.as_secs()).unwrap_or(i64::MAX);
    let at = jiff::Timestamp::from_second(now().saturating_sub(seconds)).unwrap_or_default();
    Ok(format!("{at:.3}"))
}

/// `20%` or `0.2`, as a share of a hundred.
fn share(text: &str) -> Result<u64> {
    let wrong = || Failure::usage(format!("--fail {text}: must be a share such as 20%"));
    let percent = match text.strip_suffix('%') {
        Some(number) => number.parse::<f64>().map_err(|_| wrong())?,
        None => text.parse::<f64>().map_err(|_| wrong())? * 100.0,
    };
    if !(0.0..=100.0).contains(&percent) {
        return Err(wrong());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 100")]
    Ok(percent.round() as u64)
}

/// A local URL as people write it.
fn target(text: &str) -> Result<url::Url> {
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let wrong = || Failure::usage(format!("--forward {text}: must be a URL such as localhost:3000/hook"));
    let url: url::Url = text.parse().map_err(|_| wrong())?;
    if matches!(url.scheme(), "http" | "https") && url.has_host() { Ok(url) } else { Err(wrong()) }
}

/// The server says something every 15 seconds.
const SILENCE: Duration = Duration::from_secs(40);
/// Between two tries to open the stream.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// How many deliveries are posted at once.
const AT_ONCE: usize = 8;

struct Forwarding {
    target: url::Url,
    fail: u64,
    delay: Duration,
    client: reqwest::Client,
    /// Deliveries that are being posted: what the server sends again meanwhile is the same.
    under_way: Mutex<HashSet<String>>,
    places: Semaphore,
    counted: AtomicU64,
}

async fn listen(server: &Server, path: &str, wishes: &Listen) -> Result<()> {
    let forward = wishes.forward.as_deref();
    let forward = forward.ok_or_else(|| Failure::usage("Give --forward, such as --forward localhost:3000/hook."))?;
    let target = target(forward)?;
    let client = reqwest::Client::builder()
        .timeout(Duration::from_secs(10))
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| Failure::failed(error.to_string()))?;
    let forwarding = Arc::new(Forwarding {
        fail: wishes.fail.as_deref().map_or(Ok(0), share)?,
        delay: wishes.delay.as_deref().map_or(Ok(Duration::ZERO), length)?,
        client,
        under_way: Mutex::default(),
        places: Semaphore::new(AT_ONCE),
        counted: AtomicU64::new(0),
        target,
    });
    let mut query = vec![format!("forward={}", encoded(forwarding.target.as_str()))];
    if !wishes.events.is_empty() {
        query.push(format!("events={}", encoded(&wishes.events.join(","))));
    }
    if let Some(webhook) = &wishes.webhook {
        query.push(format!("webhook={}", encoded(webhook)));
    }
    let mut position = Position { since: wishes.since.as_deref().map(moment).transpose()?, ..Position::default() };
    let mut pause = Duration::from_millis(500);
    loop {
        let since = position.since.as_ref().map(|since| format!("since={}", encoded(since)));
        let question: Vec<&str> = query.iter().chain(&since).map(String::as_str).collect();
        let first = format!("{path}/listen?{}", question.join("&"));
        let ended = stream(server, path, &first, &mut position, &forwarding, &mut pause).await;
        match ended {
            Ok(()) => {}
            // What will be refused again; everything else may pass.
            Err(failure) if failure.kind == Kind::Auth || failure.problem.as_deref().is_some_and(is_final) => {
                return Err(failure);
            }
            Err(failure) if position.last.is_none() => return Err(failure),
            Err(failure) => {
                if failure.kind == Kind::Limit {
                    pause = LONGEST_PAUSE;
                }
                server.out.note(&format!("{} Trying again.", failure.message));
                position.is_lost = true;
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// How far a listener got. The server resumes the one that `last` names; when that is deleted, the new one begins with
/// `since`.
#[derive(Default)]
struct Position {
    since: Option<String>,
    last: Option<String>,
    /// Whether it was said that the stream is gone.
    is_lost: bool,
}

impl Position {
    /// The listener was opened. Without an earlier moment, a later one begins now.
    fn opened(&mut self) {
        let now = jiff::Timestamp::from_second(now()).unwrap_or_default();
        self.since.get_or_insert_with(|| format!("{now:.3}"));
    }

    /// A delivery came. They come in the order of their events, but for examples and what is sent again.
    fn received(&mut self, delivery: &Value) {
        let body: Value =
            delivery["body"].as_str().and_then(|body| serde_json::from_str(body).ok()).unwrap_or_default();
        let at = body["occurredAt"].as_str().or_else(|| body["at"].as_str());
        let at = at.and_then(|at| at.parse::<jiff::Timestamp>().ok()).filter(|_| body["test"] != true);
        let before = self.since.as_ref().and_then(|since| since.parse::<jiff::Timestamp>().ok());
        if let Some(at) = at.filter(|at| before.is_none_or(|before| before < *at)) {
            self.since = Some(format!("{at:.3}"));
        }
    }
}

/// What a client did wrong is refused again. Too many requests, and a request that came too slowly, are not.
fn is_final(problem: &Value) -> bool {
    problem["status"].as_u64().is_some_and(|status| status < 500 && !matches!(status, 408 | 425 | 429))
}

/// One connection, until it ends.
async fn stream(
    server: &Server,
    path: &str,
    first: &str,
    position: &mut Position,
    forwarding: &Arc<Forwarding>,
    pause: &mut Duration,
) -> Result<()> {
    let mut headers = HeaderMap::new();
    headers.insert("accept", HeaderValue::from_static("text/event-stream"));
    if let Some(id) = position.last.as_ref().and_then(|last| HeaderValue::from_str(last).ok()) {
        headers.insert("last-event-id", id);
    }
    if !server.is_signed_in() {
        return Err(Failure::auth(format!("Not signed in at {}.", server.url)).hint(server.how_to_sign_in()));
    }
    let mut answer = server.send(Method::GET, first, &Extra { headers, ..Extra::default() }).await?;
    if !answer.status().is_success() {
        return body_of(answer).await.map(drop);
    }
    *pause = Duration::from_millis(500);
    let mut events = Events::default();
    let mut listener = String::new();
    let mut posts = futures();
    loop {
        let chunk = tokio::select! {
            chunk = timeout(SILENCE, answer.chunk()) => chunk,
            Some(()) = posts.next() => continue,
        };
        let Ok(Ok(Some(chunk))) = chunk else {
            // The connection broke, or this machine slept. What is being posted is finished first.
            while posts.next().await.is_some() {}
            return Ok(());
        };
        for Event { id, name, data } in events.read(&chunk) {
            if let Some(id) = id {
                position.last = Some(id);
            }
            let data: Value = serde_json::from_str(&data).unwrap_or_default();
            match name.as_str() {
                "listener" => {
                    position.opened();
                    let was_lost = std::mem::take(&mut position.is_lost);
                    if listener.is_empty() && data["resumed"] != true {
                        greet(server, forwarding, &data);
                    } else if was_lost {
                        server.out.note("Listening again.");
                    }
                    listener = text_at(&data, "id");
                }
                "delivery" => {
                    position.received(&data);
                    let delivery = text_at(&data, "deliveryId");
                    let is_new = forwarding.under_way.lock().is_ok_and(|mut known| known.insert(delivery));
                    if is_new {
                        posts.push(Box::pin(forward_one(server, path, listener.clone(), forwarding, data)));
                    }
                }
                "end" => {
                    while posts.next().await.is_some() {}
                    let message = text_at(&data, "message");
                    return match text_at(&data, "code").as_str() {
                        "restarting" => Ok(()),
                        code => Err(Failure {
                            code: code.to_owned(),
                            ..Failure::auth(message).hint(server.how_to_sign_in())
                        }),
                    };
                }
                _ => {}
            }
        }
    }
}

/// Futures that run while the stream is read, on this task: they borrow the server.
struct Posts<'f>(Vec<std::pin::Pin<Box<dyn Future<Output = ()> + 'f>>>);

fn futures<'f>() -> Posts<'f> {
    Posts(vec![])
}

impl<'f> Posts<'f> {
    fn push(&mut self, post: std::pin::Pin<Box<dyn Future<Output = ()> + 'f>>) {
        self.0.push(post);
    }

    /// Waits for one of them to end; never, if there is none and more may come.
    async fn next(&mut self) -> Option<()> {
        if self.0.is_empty() {
            return None;
        }
        std::future::poll_fn(|context| {
            for at in 0..self.0.len() {
                if self.0[at].as_mut().poll(context).is_ready() {
                    drop(self.0.swap_remove(at));
                    return std::task::Poll::Ready(Some(()));
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

fn greet(server: &Server, forwarding: &Forwarding, listener: &Value) {
    if server.out.json {
        server.out.json(&json!({ "listener": listener }));
        return;
    }
    let events = text_at(listener, "events");
    let out = server.out;
    out.line(&format!("{} Listening to {events}; forwarding to {}", out.green("✓"), forwarding.target));
    if let Some(secret) = listener["secret"].as_str() {
        out.line(&format!("  Signing secret  {secret}"));
    }
    out.note("  Ctrl-C ends it. `janua webhooks trigger user.signed_in` sends an example.\n");
}

/// Posts one delivery and reports how it went.
async fn forward_one(server: &Server, path: &str, listener: String, forwarding: &Arc<Forwarding>, data: Value) {
    let Ok(_place) = forwarding.places.acquire().await else { return };
    sleep(forwarding.delay).await;
    let started = tokio::time::Instant::now();
    let (status, response, error) = if is_injected(forwarding) {
        (500, "Not posted: --fail".to_owned(), None)
    } else {
        post(forwarding, &data).await
    };
    let latency = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let delivery = text_at(&data, "deliveryId");
    let mut result = json!({ "deliveryId": delivery, "statusCode": status, "latencyMs": latency });
    if let Some(error) = &error {
        result["error"] = json!(error);
    }
    if !(200..300).contains(&status) {
        result["response"] = json!(response);
    }
    tell(server, &data, status, latency, error.as_deref());
    let to = format!("{path}/listen/{listener}/results");
    for pause in [1, 2, 4, 8] {
        match server.post(&to, json!({ "results": [result] })).await {
            Ok(_) => break,
            // It is not ours to answer any more.
            Err(failure) if failure.problem.as_deref().is_some_and(is_final) => break,
            Err(_) => sleep(Duration::from_secs(pause)).await,
        }
    }
    if let Ok(mut known) = forwarding.under_way.lock() {
        known.remove(&delivery);
    }
}

/// Evenly spread, so that 20% is every fifth.
fn is_injected(forwarding: &Forwarding) -> bool {
    let number = forwarding.counted.fetch_add(1, Relaxed);
    (number + 1) * forwarding.fail / 100 > number * forwarding.fail / 100
}

async fn post(forwarding: &Forwarding, data: &Value) -> (u16, String, Option<String>) {
    let mut headers = HeaderMap::new();
    for (name, value) in data["headers"].as_object().into_iter().flatten() {
        let value = value.as_str().and_then(|value| HeaderValue::from_str(value).ok());
        if let (Ok(name), Some(value)) = (HeaderName::from_bytes(name.as_bytes()), value) {
            headers.insert(name, value);
        }
    }
    let body = data["body"].as_str().unwrap_or_default().to_owned();
    let sent = forwarding.client.post(forwarding.target.clone()).headers(headers).body(body).send().await;
    match sent {
        Ok(mut answer) => {
            let status = answer.status().as_u16();
            let chunk = answer.chunk().await.ok().flatten().unwrap_or_default();
            (status, String::from_utf8_lossy(&chunk).chars().take(1024).collect(), None)
        }
        Err(error) => {
            let why = if error.is_timeout() { "no answer within 10 seconds" } else { NO_CONNECTION };
            (0, why.to_owned(), Some(why.to_owned()))
        }
    }
}

fn tell(server: &Server, data: &Value, status: u16, latency: u64, error: Option<&str>) {
    let out = server.out;
    if out.json {
        let line = json!({ "deliveryId": data["deliveryId"], "event": data["event"], "statusCode": status, "latencyMs": latency, "error": error });
        out.json(&line);
        return;
    }
    let code = match (status, error) {
        (200..300, _) => out.green(&status.to_string()),
        (0, Some(why)) => out.red(why),
        _ => out.red(&status.to_string()),
    };
    let time = jiff::Timestamp::from_second(now()).unwrap_or_default().to_zoned(jiff::tz::TimeZone::system());
    let (time, event) = (out.dim(&time.strftime("%H:%M:%S").to_string()), shown(&text_at(data, "event")));
    out.line(&format!("{time}  {event:<28}  {code}  {}", out.dim(&format!("{latency} ms"))));
    if error == Some(NO_CONNECTION) {
        error_line("          Is the receiving program running?");
    }
}

const NO_CONNECTION: &str = "cannot connect";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_shares_and_targets_are_read_as_people_write_them() {
        assert_eq!(length("10m").unwrap(), Duration::from_mins(10));
        assert_eq!(length("250ms").unwrap(), Duration::from_millis(250));
        assert!(length("10").is_err() && length("m").is_err() && length("5y").is_err());
        assert_eq!(share("20%").unwrap(), 20);
        assert_eq!(share("0.5").unwrap(), 50);
        assert!(share("120%").is_err() && share("often").is_err());
        assert_eq!(target("localhost:3000/hook").unwrap().as_str(), "http://localhost:3000/hook");
        assert!(target("ftp://x").is_err());
    }

    #[test]
    fn a_stream_that_is_opened_anew_begins_with_the_last_event() {
        let since = || Some("2026-01-31T10:00:00.000Z".to_owned());
        let mut position = Position { since: since(), ..Position::default() };
        position.opened();
        assert_eq!(position.since, since(), "what was asked for is not heard yet");
        let delivery = |body: Value| json!({ "body": body.to_string() });
        position.received(&delivery(json!({ "occurredAt": "2026-01-31T10:05:00.000Z" })));
        position.received(&delivery(json!({ "at": "2026-01-31T10:06:00.000Z" })));
        position.received(&delivery(json!({ "occurredAt": "2026-01-31T10:04:00.000Z" })));
        position.received(&delivery(json!({ "occurredAt": "2026-01-31T11:00:00.000Z", "test": true })));
        assert_eq!(position.since.as_deref(), Some("2026-01-31T10:06:00.000Z"), "not what was sent again");
        let mut fresh = Position::default();
        fresh.opened();
        assert!(fresh.since.is_some(), "no event is skipped before the first one");
    }

    #[test]
    fn only_what_will_be_refused_again_is_final() {
        for (status, expected) in [(400, true), (404, true), (409, true), (408, false), (429, false), (503, false)] {
            assert_eq!(is_final(&json!({ "status": status })), expected, "{status}");
        }
    }
}
