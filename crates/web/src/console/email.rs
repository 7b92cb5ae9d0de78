//! Email of an app: the log, one message with its preview, sending domains, suppressions and templates.
use axum::{
    http::{HeaderValue, Method, header},
    response::Response,
};
use kernel::http::{Path, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    apps::{APP, OfApp},
    nav::{Area, NavEntry},
    platform::framed,
};
use crate::{
    me::Me,
    page::{error, pages},
};

pub const NAV: &[NavEntry] = &[NavEntry::new(Area::App, "Build", "Email", "mail", "/email")];

pub fn routes() -> Routes {
    pages("pages")
        .get("/console/apps/{appId}/email", email_page, "email of an app: figures and the log")
        .get("/console/apps/{appId}/email/messages/{messageId}", email_message_page, "one message and its preview")
        .get(
            "/console/apps/{appId}/email/messages/{messageId}/body",
            email_message_body,
            "preview frame of the message",
        )
        .get("/console/apps/{appId}/email/domains", email_domains_page, "sending domains of an app")
        .get("/console/apps/{appId}/email/domains/{hostname}", email_domain_page, "the records of a sending domain")
        .get("/console/apps/{appId}/email/suppressions", suppressions_page, "suppressed recipients of an app")
        .get("/console/apps/{appId}/email/templates", templates_page, "email templates of an app")
        .get("/console/apps/{appId}/email/templates/{name}", template_page, "one template and its preview")
        .get("/console/apps/{appId}/email/templates/{name}/body", template_body, "preview frame of the template")
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OfMessage {
    app_id: String,
    message_id: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OfEmailDomain {
    app_id: String,
    hostname: String,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OfTemplate {
    app_id: String,
    name: String,
}

async fn email_page(me: Me, Path(place): Path<OfApp>) -> Response {
    let (status, to) = (me.parameter("status"), me.parameter("search"));
    let cursor = me.parameter("cursor");
    let filters = [("status", &status), ("to", &to), ("cursor", &cursor)];
    let given = filters.into_iter().filter(|(_, value)| !value.is_empty());
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(given).finish();
    let list = format!("/apps/{{appId}}/email/messages?{query}");
    let asks = [
        APP,
        ("overview", "/apps/{appId}/email"),
        ("list", list.as_str()),
        ("domains", "/apps/{appId}/email/domains"),
        ("?templates", "/apps/{appId}/email/templates"),
    ];
    me.show_with("console/email.html", &place, &asks, json!({ "status_filter": status })).await
}

async fn email_message_page(me: Me, Path(place): Path<OfMessage>) -> Response {
    let asks = [APP, ("message", "/apps/{appId}/email/messages/{messageId}")];
    me.show("console/email_message.html", &place, &asks).await
}

async fn email_message_body(me: Me, Path(place): Path<OfMessage>) -> Response {
    match me.get("/apps/{appId}/email/messages/{messageId}", &json!(place)).await {
        Ok(said) => me.keeps(inert(said.body["html"].as_str().unwrap_or_default())),
        Err(fault) => error(&me.janua, &fault),
    }
}

async fn email_domains_page(me: Me, Path(place): Path<OfApp>) -> Response {
    me.show("console/email_domains.html", &place, &[APP, ("list", "/apps/{appId}/email/domains")]).await
}

async fn email_domain_page(me: Me, Path(place): Path<OfEmailDomain>) -> Response {
    let asks = [APP, ("domain", "/apps/{appId}/email/domains/{hostname}")];
    me.show("console/email_domain.html", &place, &asks).await
}

async fn suppressions_page(me: Me, Path(OfApp { app_id }): Path<OfApp>) -> Response {
    let place = json!({ "appId": app_id, "cursor": me.parameter("cursor") });
    let list = if me.parameter("cursor").is_empty() {
        "/apps/{appId}/email/suppressions"
    } else {
        "/apps/{appId}/email/suppressions?cursor={cursor}"
    };
    me.show("console/email_suppressions.html", &place, &[APP, ("list", list)]).await
}

async fn templates_page(me: Me, Path(place): Path<OfApp>) -> Response {
    me.show("console/email_templates.html", &place, &[APP, ("list", "/apps/{appId}/email/templates")]).await
}

async fn template_page(me: Me, Path(place): Path<OfTemplate>) -> Response {
    let locale = me.parameter("locale");
    let drawn = draw(&me, &place, &locale).await;
    let (preview, why) = match drawn {
        Ok(preview) => (preview, Value::Null),
        Err(fault) => (Value::Null, json!(fault.whole_sentence())),
    };
    let more = json!({ "locale": locale, "preview": preview, "why": why });
    let asks = [APP, ("template", "/apps/{appId}/email/templates/{name}")];
    me.show_with("console/email_template.html", &place, &asks, more).await
}

async fn draw(me: &Me, place: &OfTemplate, locale: &str) -> kernel::fault::Result<Value> {
    let encode =
        |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
    let to = format!("/apps/{}/email/templates/{}/preview", encode(&place.app_id), encode(&place.name));
    Ok(me.ask(Method::POST, &to, Some(&json!({ "locale": locale }))).await?.body)
}

async fn template_body(me: Me, Path(place): Path<OfTemplate>) -> Response {
    match draw(&me, &place, &me.parameter("locale")).await {
        Ok(preview) => me.keeps(inert(preview["html"].as_str().unwrap_or_default())),
        Err(fault) => error(&me.janua, &fault),
    }
}

/// Mail that an app wrote, in a frame that can do nothing: no script, no form, nothing from elsewhere, and no way out of it.
fn inert(html: &str) -> Response {
    let mut response = framed(html);
    let policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; \
                  frame-ancestors 'self'; sandbox";
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    response
}
