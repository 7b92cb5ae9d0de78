//! For those who run the platform: the outbox of a development server, who misbehaves, incidents, keys, what waits.
use axum::{
    extract::RawQuery,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use kernel::http::{Path, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::nav::{Area::Platform, NavEntry};
use crate::{
    activity,
    me::Me,
    page::{HTML, error, pages, parameter},
};

pub const NAV: &[NavEntry] = &[
    NavEntry::new(Platform, "", "Overview", "overview", "/platform"),
    NavEntry::new(Platform, "", "Users", "users", "/platform/users"),
    NavEntry::new(Platform, "", "Activity", "activity", "/platform/activity"),
    NavEntry::new(Platform, "", "Incidents", "flag", "/platform/incidents"),
    NavEntry::new(Platform, "", "Abuse", "shield", "/platform/abuse"),
    NavEntry::new(Platform, "", "Outbox", "mail", "/outbox"),
];

pub fn routes() -> Routes {
    pages("pages")
        .get("/console/platform", platform_page, "queues, failed jobs and signing keys of the platform")
        .get("/console/platform/users", platform_users_page, "every account")
        .get("/console/platform/users/{userId}", platform_user_page, "one account and its administration")
        .get("/console/platform/abuse", abuse_page, "abuse reports")
        .get("/console/platform/incidents", incidents_page, "incidents of the status page")
        .get("/console/outbox", outbox_page, "mails in the outbox of a development server")
        .get("/console/outbox/{id}", mail_page, "one mail of the outbox, as its reader sees it")
        .get("/console/outbox/{id}/body", mail_body, "the body of that mail, for its frame")
        .and(activity::with_file(pages("pages").get(
            "/console/platform/activity",
            platform_activity_page,
            "all audit events",
        )))
}

async fn platform_activity_page(me: Me) -> Response {
    activity::show(&me, "console/platform_activity.html", &(), ("list", "/admin/audit-log"), &[]).await
}

async fn platform_page(me: Me) -> Response {
    let asks = [
        ("overview", "/admin/overview"),
        ("queues", "/admin/queues"),
        ("signing", "/admin/signing-keys"),
        ("?outbox", "/admin/outbox?limit=1"),
    ];
    me.show("console/platform.html", &(), &asks).await
}

async fn platform_users_page(me: Me, RawQuery(query): RawQuery) -> Response {
    // What names no filter and no page is not for the interface.
    let known = ["search", "state", "orgId", "cursor", "limit"];
    let pairs = url::form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes());
    let pairs = pairs.filter(|(name, value)| known.contains(&name.as_ref()) && !value.is_empty());
    let asked = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    let more = json!({ "state_filter": parameter(query.as_deref(), "state") });
    me.show_with("console/platform_users.html", &(), &[("list", &format!("/admin/users?{asked}"))], more).await
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OfUser {
    user_id: String,
}

async fn platform_user_page(me: Me, Path(place): Path<OfUser>) -> Response {
    me.show("console/platform_user.html", &place, &[("user", "/admin/users/{userId}")]).await
}

async fn abuse_page(me: Me) -> Response {
    me.show("console/abuse.html", &(), &[("list", "/admin/abuse-reports?{query}")]).await
}

/// Anybody may read the status, so whoever may not write it is found out by asking for what only they may.
async fn incidents_page(me: Me) -> Response {
    let asks = [("queues", "/admin/queues"), ("status", "/status"), ("list", "/status/incidents?{query}")];
    me.show("console/incidents.html", &(), &asks).await
}

async fn outbox_page(me: Me) -> Response {
    me.show("console/outbox.html", &(), &[("queues", "/admin/queues"), ("?list", "/admin/outbox?{query}")]).await
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct OfMail {
    id: String,
}

async fn mail_page(me: Me, Path(place): Path<OfMail>) -> Response {
    me.show("console/mail.html", &place, &[("mail", "/admin/outbox/{id}")]).await
}

/// What a mail may do in its frame: be read. Its links open in windows of their own.
const MAIL_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data: 'self'; form-action 'none'; \
                           frame-ancestors 'self'; sandbox allow-popups allow-popups-to-escape-sandbox";

async fn mail_body(me: Me, Path(place): Path<OfMail>) -> Response {
    match me.get("/admin/outbox/{id}", &json!(place)).await {
        Ok(said) => me.keeps(framed(said.body["html"].as_str().unwrap_or_default())),
        Err(fault) => error(&me.janua, &fault),
    }
}

/// A mail for its frame on a page of ours.
pub fn framed(html: &str) -> Response {
    let body = html.replacen("<head>", "<head><base target=\"_blank\">", 1);
    let mut response = (StatusCode::OK, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(HTML));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(MAIL_POLICY));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN"));
    response
}
