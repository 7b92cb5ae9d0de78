//! Decisions about webhooks: which addresses, which events, when a secret changes, when enough has failed.
use std::time::Duration;

use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, INVALID, Result},
    jobs,
    ports::{
        dns::DNS_UNAVAILABLE,
        outgoing::{self, NoReply, Reach},
    },
};
use tenancy::{
    apps::{Application, ApplicationId},
    events::{self, About, By},
    messages::mail,
    orgs,
};
use url::Url;

use super::{
    jobs::Cancel,
    mails::WebhookDisabled,
    model::{Webhook, WebhookId, seal},
    names,
};
use crate::webhooks::events::WebhookAutoDisabled;

pub const UNKNOWN_EVENT_TYPES: Code = Code::new(400, "unknown_event_types", "Some event types do not exist.");

pub const TOO_MANY_AT_HOST: Code = Code::new(
    409,
    "too_many_webhooks_for_host",
    "The app has the maximum number of webhooks for this host. Delete one, or use one URL for more events.",
);

/// Refuses one more for a host that has enough of this app's: each event would go there as often.
pub async fn check_host(tx: &mut Tx, janua: &Janua, application: ApplicationId, url: &Url) -> Result<()> {
    let count = Webhook::count_at(tx, application, &outgoing::host_of(url)).await?;
    if count < janua.config.of::<super::Settings>().webhooks_per_host.get() {
        Ok(())
    } else {
        Err(TOO_MANY_AT_HOST.into())
    }
}

/// How many deliveries in a row may fail; with the last of them the webhook is switched off.
const MOST_FAILURES: u32 = 5;
/// How long an old secret stays good, unless something else is said.
pub const GRACE: Duration = Duration::from_hours(7 * 24);

/// The URL as it is kept, if a delivery could go there right now.
pub async fn check_url(janua: &Janua, text: &str) -> Result<Url> {
    let text = text.trim_matches(' ');
    let url = Url::parse(text).map_err(|_| INVALID.at("url", "format", "must be a URL"))?;
    // Where it leads to first: whoever writes down a place inside is told so, in whatever spelling.
    let refused = match janua.outgoing.check(&url, Reach::Receiver).await.and_then(|()| outgoing::endpoint(text)) {
        Ok(url) => return Ok(url),
        Err(refused) => refused,
    };
    let code = match &refused {
        NoReply::NotHttps => "not_https",
        NoReply::Credentials => "credentials",
        NoReply::Fragment => "fragment",
        NoReply::OddForm(_) => "wrong_form",
        NoReply::NoSuchHost => "no_such_host",
        NoReply::Inside(_) => "private_address",
        NoReply::NoNameServer | NoReply::TooSlow | NoReply::Broken(_) => return Err(DNS_UNAVAILABLE.into()),
    };
    // Whoever develops on a server that others reach, too, hears what would allow it.
    let allowed_by = match &refused {
        NoReply::NotHttps if url.scheme() == "http" => {
            ". The setting webhook_allow_http (WEBHOOK_ALLOW_HTTP=1) allows http:// for development"
        }
        NoReply::Inside(_) => ". The setting webhook_allow_nets allows networks such as 127.0.0.0/8 for development",
        _ => "",
    };
    Err(INVALID.at("url", code, format!("{refused}{allowed_by}")))
}

/// The events as they are kept: each once, in the order given.
pub fn check_events(janua: &Janua, given: Vec<String>) -> Result<Vec<String>> {
    let unknown: Vec<&str> =
        given.iter().map(String::as_str).filter(|value| !names::is_known(janua, value)).collect();
    if !unknown.is_empty() {
        let message = format!("unknown: {}", unknown.join(", "));
        return Err(UNKNOWN_EVENT_TYPES.at("events", "unknown", message).with_extra("unknown", &unknown));
    }
    let mut kept: Vec<String> = vec![];
    for value in given {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    Ok(kept)
}

/// Brings in a new secret and answers it; the one before stays good for a while.
pub fn rotate(janua: &Janua, webhook: &mut Webhook, grace: Duration, now: Timestamp) -> kernel::crypto::Secret {
    let secret = janua.entropy.secret();
    let old = std::mem::replace(&mut webhook.secret, seal(janua, webhook.id, &secret));
    (webhook.retiring_secret, webhook.retiring_until) = (Some(old), Some(now.plus(grace)));
    secret
}

/// Lets the old secret go.
pub fn finalize(webhook: &mut Webhook) {
    (webhook.retiring_secret, webhook.retiring_until) = (None, None);
}

/// Counts a delivery that failed for good, and switches the webhook off when it was one too many. `false` when nothing
/// more is to be sent.
pub async fn count_failure(tx: &mut Tx, janua: &Janua, id: WebhookId) -> Result<bool> {
    let Some(webhook) = Webhook::failed(tx, id).await? else { return Ok(false) };
    if webhook.failures < MOST_FAILURES || !Webhook::switch_off(tx, id).await? {
        return Ok(true);
    }
    let Some(application) = Application::hold(tx, webhook.app_id).await? else { return Ok(false) };
    let event = WebhookAutoDisabled { webhook_id: id.to_string() };
    events::record(tx, janua, &By::default(), About::app(&application), &event).await?;
    for reader in orgs::admins_to_mail(tx, application.org_id).await? {
        let (name, app) = (reader.name, application.name.clone());
        let page = format!("/console/apps/{}/webhooks/{id}", application.id);
        let letter = WebhookDisabled { name, app, url: webhook.url.clone(), page };
        mail::send(tx, janua, &reader.email, &letter).await?;
    }
    stop(tx, janua, id).await?;
    Ok(false)
}

/// What waits for a webhook that was switched off is not sent any more.
pub async fn stop(tx: &mut Tx, janua: &Janua, webhook: WebhookId) -> Result<()> {
    let now = janua.clock.now();
    Ok(jobs::enqueue(tx, janua, now, &Cancel { webhook, until: now }).await?)
}
