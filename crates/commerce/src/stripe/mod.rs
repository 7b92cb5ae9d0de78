//! Stripe over HTTPS: a small driver of our own with a pinned version. Redirects are not followed, and no proxy of the
//! environment reads the key.
use std::time::Duration;

use kernel::{Janua, crypto::Secret};
use reqwest::{Client, Method, StatusCode, redirect::Policy};
use serde_json::Value;
use url::Url;

use crate::payments::{
    NoAnswer, Transport,
    wire::{Answering, Verb, Wire},
};

/// The version of Stripe's API that this driver was written for.
pub const VERSION: &str = "2026-10-28.endive";
/// For everything together. A handler waits for one request at a time.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many keys a request is tried under.
const KEYS: u32 = 4;
/// Answers are smaller than this.
const LONGEST: usize = 4 << 20;

pub struct Stripe {
    client: Client,
    api: Url,
    key: Secret,
}

impl Stripe {
    pub fn new(api: Url, key: Secret) -> Result<Self, String> {
        let client = Client::builder().timeout(TIMEOUT).redirect(Policy::none()).no_proxy().build();
        Ok(Self { client: client.map_err(|error| format!("stripe_api_url: {error}"))?, api, key })
    }

    /// A failure is kept under its key as any other answer is, and comes back each time: after one the request is made under the
    /// next key. What must not happen twice is looked for before it is asked for again (refunds, lines of invoices).
    async fn ask(&self, request: Wire) -> Result<Value, NoAnswer> {
        let mut last = NoAnswer::away("it fails again and again");
        for turn in 0..KEYS {
            let key = request.key.as_ref().map(|key| if turn == 0 { key.clone() } else { format!("{key}-{turn}") });
            match self.ask_once(&request, key.as_deref()).await? {
                StripeAnswer::Fresh(answer) => return answer,
                StripeAnswer::KeptFailure(why) => last = why,
            }
        }
        Err(last)
    }

    async fn ask_once(&self, request: &Wire, key: Option<&str>) -> Result<StripeAnswer, NoAnswer> {
        let mut url = self.api.join(&request.path).map_err(NoAnswer::away)?;
        let method = match request.verb {
            Verb::Get => Method::GET,
            Verb::Post => Method::POST,
            Verb::Delete => Method::DELETE,
        };
        if request.verb != Verb::Post && !request.params.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.params);
        }
        let mut call =
            self.client.request(method, url).bearer_auth(self.key.expose()).header("stripe-version", VERSION);
        if request.verb == Verb::Post {
            call = call.form(&request.params);
        }
        if let Some(key) = key {
            call = call.header("idempotency-key", key);
        }
        if let Some(account) = &request.account {
            call = call.header("stripe-account", account);
        }
        let away = |error: reqwest::Error| NoAnswer::away(error.without_url());
        let answer = call.send().await.map_err(away)?;
        let status = answer.status();
        let after = answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        if answer.content_length().is_some_and(|length| length > LONGEST as u64) {
            return Err(NoAnswer::away("its answer is too long"));
        }
        let is_kept = answer.headers().get("idempotent-replayed").is_some_and(|value| value == "true");
        let body: Value = answer.json().await.map_err(away)?;
        let judged = judge(status, body, after.map(Duration::from_secs));
        match judged {
            Err(why) if is_kept && status.is_server_error() => Ok(StripeAnswer::KeptFailure(why)),
            judged => Ok(StripeAnswer::Fresh(judged)),
        }
    }
}

enum StripeAnswer {
    Fresh(Result<Value, NoAnswer>),
    /// A failure of an earlier request with the same key.
    KeptFailure(NoAnswer),
}

fn judge(status: StatusCode, body: Value, after: Option<Duration>) -> Result<Value, NoAnswer> {
    if status.is_success() {
        return Ok(body);
    }
    let word = |name: &str| body["error"][name].as_str().unwrap_or_default().to_owned();
    match status {
        StatusCode::NOT_FOUND => Err(NoAnswer::Missing),
        // The first request with this key is still at work; its answer comes with the next try.
        StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            Err(NoAnswer::Away { cause: format!("it says {status}"), after })
        }
        status if status.is_client_error() => {
            let code = if word("code").is_empty() { word("type") } else { word("code") };
            Err(NoAnswer::Refused { code, message: word("message") })
        }
        status => Err(NoAnswer::Away { cause: format!("it says {status}"), after }),
    }
}

impl Transport for Stripe {
    fn call<'a>(&'a self, _: &'a Janua, request: Wire) -> Answering<'a> {
        Box::pin(self.ask(request))
    }
}
