//! Webhooks for the people of an app: registering, looking, changing, removing.
use std::time::Duration;

use axum::{extract::State, response::NoContent};
use kernel::{
    Janua,
    clock::Timestamp,
    crypto::Secret,
    fault::{Code, INVALID, NOT_FOUND, Result},
    http::{Json, Key, Listed, Page, Path, Routes},
    jobs,
    ports::{dns::DNS_UNAVAILABLE, outgoing::host_of},
    transact,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;
use tenancy::{
    apps::Application,
    enter::{Admin, AppCaller, InApp, Member},
    quotas::{self, QUOTA_EXCEEDED},
};

use super::{
    WEBHOOKS,
    jobs::Clear,
    listen,
    model::{Webhook, WebhookId, seal},
    rules::{self, TOO_MANY_AT_HOST, UNKNOWN_EVENT_TYPES},
    sign,
};
use crate::webhooks::events::{
    WebhookCreated, WebhookDeleted, WebhookSecretFinalized, WebhookSecretRotated, WebhookUpdated,
};

pub fn routes() -> Routes {
    Routes::new("webhooks")
        .post("/webhooks", create_webhook, "register a webhook")
        .fails(&[UNKNOWN_EVENT_TYPES, DNS_UNAVAILABLE, TOO_MANY, TOO_MANY_AT_HOST, QUOTA_EXCEEDED])
        .get("/webhooks", list_webhooks, "list webhooks (secrets omitted)")
        .get("/webhooks/{id}", get_webhook, "get one webhook (secret omitted)")
        .patch("/webhooks/{id}", update_webhook, "update url, events, isActive; rotate or finalize the secret")
        .fails(&[UNKNOWN_EVENT_TYPES, DNS_UNAVAILABLE, TOO_MANY_AT_HOST, IS_LISTENER])
        .delete("/webhooks/{id}", delete_webhook, "delete the webhook and stop its deliveries")
}

const MOST: i64 = 10_000;
pub const TOO_MANY: Code =
    Code::new(409, "too_many_webhooks", "The app has ten thousand webhooks. Delete one first.");

pub const IS_LISTENER: Code =
    Code::new(409, "webhook_is_listener", "This is a listener of a command line. It cannot be changed.");

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewWebhook {
    /// An https:// URL on the public internet.
    #[schemars(length(min = 1, max = 2048))]
    url: String,
    /// Event names, `audit.*`, or `*` for all.
    #[schemars(length(min = 1, max = 50))]
    events: Vec<String>,
    /// Whether deliveries are signed as Standard Webhooks has it, for its libraries and Svix's: `Webhook-Timestamp` in
    /// seconds and `Webhook-Signature: v1,<base64>`, in place of the service's own forms.
    #[serde(default)]
    standard_headers: bool,
}

/// A webhook as it is shown.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookView {
    id: WebhookId,
    url: String,
    events: Vec<String>,
    is_active: bool,
    created_at: Timestamp,
    standard_headers: bool,
    /// Until when a listener of a command line waits for its stream; null for a webhook with an endpoint.
    listens_until: Option<Timestamp>,
    /// Until when deliveries are signed with the secret before as well.
    rotation_ends_at: Option<Timestamp>,
    /// 64 hexadecimal characters. Shown on creation and on rotation, and never again.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// The same secret as libraries for Standard Webhooks want it: `whsec_` and the bytes of the key in base64. Shown
    /// with it, if the webhook has standard headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    standard_secret: Option<String>,
}

impl WebhookView {
    fn public(webhook: Webhook, now: Timestamp) -> Self {
        Self {
            id: webhook.id,
            url: webhook.url,
            events: webhook.events,
            is_active: webhook.is_active,
            created_at: webhook.created_at,
            standard_headers: webhook.standard_headers,
            listens_until: webhook.listens_until,
            rotation_ends_at: webhook.retiring_until.filter(|until| now < *until),
            secret: None,
            standard_secret: None,
        }
    }

    fn with_secret(webhook: Webhook, secret: Option<&Secret>, now: Timestamp) -> Self {
        let standard = secret.filter(|_| webhook.standard_headers).map(sign::standard_secret);
        let secret = secret.map(|secret| secret.expose().to_owned());
        Self { secret, standard_secret: standard, ..Self::public(webhook, now) }
    }
}

async fn create_webhook(
    State(janua): State<Janua>,
    AppCaller(caller): AppCaller<Admin>,
    Json(new): Json<NewWebhook>,
) -> Result<Json<WebhookView>> {
    register(&janua, &caller, new).await
}

pub async fn register(janua: &Janua, caller: &InApp<Admin>, new: NewWebhook) -> Result<Json<WebhookView>> {
    let events = rules::check_events(janua, new.events)?;
    let url = rules::check_url(janua, &new.url).await?;
    let (now, secret) = (janua.clock.now(), janua.entropy.secret());
    let id = WebhookId::new(&janua.entropy, now);
    let webhook = Webhook {
        id,
        app_id: caller.application.id,
        url: url.to_string(),
        events,
        is_active: true,
        standard_headers: new.standard_headers,
        is_standard: new.standard_headers,
        secret: seal(janua, id, &secret),
        retiring_secret: None,
        retiring_until: None,
        failures: 0,
        created_at: now,
        listens_until: None,
        listener_of: None,
        mirrors: None,
    };
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        if Webhook::count(tx, webhook.app_id).await? >= MOST {
            return Err(TOO_MANY.into());
        }
        rules::check_host(tx, janua, webhook.app_id, &url).await?;
        caller.record(tx, janua, &WebhookCreated { webhook_id: id.to_string() }).await?;
        quotas::spend(tx, janua, &caller.application, &WEBHOOKS, 1).await?;
        webhook.insert(tx).await?;
        Ok(Application::set_listening(tx, webhook.app_id, true).await?)
    })?;
    Ok(Json(WebhookView::with_secret(webhook, Some(&secret), now)))
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhooks {
    webhooks: Vec<WebhookView>,
    next_cursor: Option<String>,
}

async fn list_webhooks(
    State(janua): State<Janua>,
    AppCaller(caller): AppCaller<Member>,
    page: Page,
) -> Result<Json<Webhooks>> {
    list(&janua, &caller.application, &page).await
}

pub async fn list(janua: &Janua, application: &Application, page: &Page) -> Result<Json<Webhooks>> {
    let fetch = async |below, most| Webhook::page(&janua.db, application.id, &below, most).await;
    let key = |webhook: &Webhook| Key { at: webhook.created_at, id: webhook.id.to_string() };
    let Listed { rows, next_cursor } = page.list(janua, "webhooks", application.id, fetch, key).await?;
    let now = janua.clock.now();
    Ok(Json(Webhooks { webhooks: rows.into_iter().map(|one| WebhookView::public(one, now)).collect(), next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
pub struct WebhookPath {
    pub id: WebhookId,
}

async fn get_webhook(
    State(janua): State<Janua>,
    AppCaller(caller): AppCaller<Member>,
    Path(WebhookPath { id }): Path<WebhookPath>,
) -> Result<Json<WebhookView>> {
    show(&janua, &caller, id).await
}

pub async fn show(janua: &Janua, caller: &InApp<Member>, id: WebhookId) -> Result<Json<WebhookView>> {
    let found = Webhook::find(&janua.db, caller.application.id, id).await?.ok_or(NOT_FOUND)?;
    Ok(Json(WebhookView::public(found, janua.clock.now())))
}

/// `true` brings in a new secret, `"finalize"` lets the old one go.
enum Rotation {
    Start,
    Finish,
}

impl<'de> Deserialize<'de> for Rotation {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Value::deserialize(from)? {
            Value::Bool(true) => Ok(Self::Start),
            Value::String(word) if word == "finalize" => Ok(Self::Finish),
            _ => Err(D::Error::custom("must be true or \"finalize\"")),
        }
    }
}

impl JsonSchema for Rotation {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Rotation".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "boolean", "const": true }, { "type": "string", "const": "finalize" }] })
    }
    fn inline_schema() -> bool {
        true
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    #[schemars(length(min = 1, max = 2048))]
    url: Option<String>,
    #[schemars(length(min = 1, max = 50))]
    events: Option<Vec<String>>,
    is_active: Option<bool>,
    standard_headers: Option<bool>,
    /// `true` creates a new secret and keeps the previous one valid for a while; `finalize` ends the previous one.
    rotate_secret: Option<Rotation>,
    /// How long the previous secret stays valid, with `rotateSecret: true`. Default: seven days.
    #[schemars(range(min = 60_000, max = 2_592_000_000_u64), extend("default" = 604_800_000))]
    rotation_grace_ms: Option<u64>,
}

impl Change {
    fn fields(&self) -> Vec<&'static str> {
        let given = [
            ("url", self.url.is_some()),
            ("events", self.events.is_some()),
            ("isActive", self.is_active.is_some()),
            ("standardHeaders", self.standard_headers.is_some()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name).collect()
    }
}

async fn update_webhook(
    State(janua): State<Janua>,
    AppCaller(caller): AppCaller<Admin>,
    Path(WebhookPath { id }): Path<WebhookPath>,
    Json(change): Json<Change>,
) -> Result<Json<WebhookView>> {
    alter(&janua, &caller, id, change).await
}

pub async fn alter(
    janua: &Janua,
    caller: &InApp<Admin>,
    id: WebhookId,
    mut change: Change,
) -> Result<Json<WebhookView>> {
    let app_id = caller.application.id;
    // Before anything is looked up elsewhere: a stranger's webhook is nobody's.
    Webhook::find(&janua.db, app_id, id).await?.ok_or(NOT_FOUND)?;
    if change.rotation_grace_ms.is_some() && !matches!(change.rotate_secret, Some(Rotation::Start)) {
        return Err(INVALID.at("rotationGraceMs", "not_allowed", "goes with rotateSecret: true alone"));
    }
    change.events = change.events.take().map(|events| rules::check_events(janua, events)).transpose()?;
    let url = match &change.url {
        Some(url) => Some(rules::check_url(janua, url).await?),
        None => None,
    };
    let grace = change.rotation_grace_ms.map_or(rules::GRACE, Duration::from_millis);
    let (now, fields) = (janua.clock.now(), change.fields());
    let (webhook, secret) = transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let mut webhook = Webhook::hold(tx, app_id, id).await?.ok_or(NOT_FOUND)?;
        if webhook.is_listener() {
            return Err(IS_LISTENER.into());
        }
        let was_active = webhook.is_active;
        if let Some(url) = &url {
            // One that stays where it is takes nobody's place.
            if webhook.host().as_ref() != Some(&host_of(url)) {
                rules::check_host(tx, janua, app_id, url).await?;
            }
            webhook.url = url.to_string();
        }
        webhook.events = change.events.clone().unwrap_or(webhook.events);
        webhook.is_active = change.is_active.unwrap_or(webhook.is_active);
        if let Some(standard) = change.standard_headers.filter(|standard| *standard != webhook.standard_headers) {
            (webhook.standard_headers, webhook.is_standard) = (standard, standard);
        }
        let name = id.to_string();
        if !fields.is_empty() {
            let event = WebhookUpdated { webhook_id: name.clone(), fields: fields.clone() };
            caller.record(tx, janua, &event).await?;
        }
        let secret = match change.rotate_secret {
            Some(Rotation::Start) => {
                caller.record(tx, janua, &WebhookSecretRotated { webhook_id: name }).await?;
                Some(rules::rotate(janua, &mut webhook, grace, now))
            }
            Some(Rotation::Finish) => {
                caller.record(tx, janua, &WebhookSecretFinalized { webhook_id: name }).await?;
                rules::finalize(&mut webhook);
                None
            }
            None => None,
        };
        if was_active && !webhook.is_active {
            rules::stop(tx, janua, id).await?;
        }
        // Whoever switches it on begins to count anew.
        if !was_active && webhook.is_active {
            webhook.failures = 0;
        }
        webhook.save(tx).await?;
        Ok((webhook, secret))
    })?;
    Ok(Json(WebhookView::with_secret(webhook, secret.as_ref(), now)))
}

async fn delete_webhook(
    State(janua): State<Janua>,
    AppCaller(caller): AppCaller<Admin>,
    Path(WebhookPath { id }): Path<WebhookPath>,
) -> Result<NoContent> {
    remove(&janua, &caller, id).await
}

pub async fn remove(janua: &Janua, caller: &InApp<Admin>, id: WebhookId) -> Result<NoContent> {
    let app_id = caller.application.id;
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let webhook = Webhook::hold(tx, app_id, id).await?.ok_or(NOT_FOUND)?;
        if !Webhook::delete(tx, app_id, id).await? {
            return Err(NOT_FOUND.into());
        }
        if webhook.is_listener() {
            listen::end_listening(tx, janua, app_id, id).await?;
            return Ok(caller.record(tx, janua, &listen::ended(id)).await?);
        }
        quotas::give_back(tx, caller.application.org_id, &WEBHOOKS, 1).await?;
        if Webhook::count(tx, app_id).await? == 0 {
            Application::set_listening(tx, app_id, false).await?;
        }
        jobs::enqueue(tx, janua, janua.clock.now(), &Clear { webhook: id }).await?;
        Ok(caller.record(tx, janua, &WebhookDeleted { webhook_id: id.to_string() }).await?)
    })?;
    Ok(NoContent)
}
