//! Apps: their settings, keys, people and domain.
use axum::response::Response;
use kernel::http::{Path, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::nav::{Area::App, NavEntry};
use crate::{activity, me::Me, page::pages};

pub const NAV: &[NavEntry] = &[
    NavEntry::new(App, "", "Overview", "overview", ""),
    NavEntry::new(App, "", "Users", "users", "/users"),
    NavEntry::new(App, "", "Activity", "activity", "/activity").for_admins(),
    NavEntry::new(App, "Build", "API keys", "key", "/keys"),
    NavEntry::new(App, "Build", "Domains", "globe", "/domains"),
    NavEntry::new(App, "Manage", "Settings", "sliders", "/settings"),
];

pub fn routes() -> Routes {
    pages("pages")
        .get("/console/apps/{appId}", app_overview_page, "an app: its figures and next steps")
        .get("/console/apps/{appId}/settings", app_settings_page, "settings of an app")
        .get("/console/apps/{appId}/keys", keys_page, "keys of an app")
        .get("/console/apps/{appId}/users", users_page, "end users of an app")
        .get("/console/apps/{appId}/users/{userId}", user_page, "one end user of an app")
        .get("/console/apps/{appId}/domain", domain_page, "the domain of an app and its proof")
        .get("/console/apps/{appId}/domains", domains_page, "domains of an app's site")
        .get("/console/apps/{appId}/domains/register", register_domain_page, "look for a domain and buy it")
        .get("/console/apps/{appId}/domains/register/{operationId}", registration_page, "state of a domain purchase")
        .get(
            "/console/apps/{appId}/domains/{domain}",
            site_domain_page,
            "one domain of an app, from DNS to certificate",
        )
        .and(activity::with_file(pages("pages").get(
            "/console/apps/{appId}/activity",
            app_activity_page,
            "audit log of an app",
        )))
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfApp {
    pub app_id: String,
}

pub const APP: (&str, &str) = ("app", "/apps/{appId}");

async fn app_overview_page(me: Me, Path(place): Path<OfApp>) -> Response {
    let asks = [
        APP,
        ("overview", "/apps/{appId}/overview"),
        ("?keys", "/apps/{appId}/keys?limit=1"),
        ("?users", "/apps/{appId}/users?limit=1"),
        ("?webhooks", "/apps/{appId}/webhooks?limit=1"),
        ("?domain", "/apps/{appId}/domain"),
        ("?domains", "/apps/{appId}/domains"),
    ];
    me.show("console/app_overview.html", &place, &asks).await
}

async fn app_settings_page(me: Me, Path(place): Path<OfApp>) -> Response {
    me.show("console/app_settings.html", &place, &[APP]).await
}

async fn app_activity_page(me: Me, Path(place): Path<OfApp>) -> Response {
    activity::show(&me, "console/app_activity.html", &place, ("?list", "/apps/{appId}/audit-log"), &[APP]).await
}

async fn keys_page(me: Me, Path(place): Path<OfApp>) -> Response {
    me.show("console/keys.html", &place, &[APP, ("list", "/apps/{appId}/keys?{query}")]).await
}

async fn users_page(me: Me, Path(place): Path<OfApp>) -> Response {
    me.show("console/users.html", &place, &[APP, ("list", "/apps/{appId}/users?{query}")]).await
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OfEndUser {
    app_id: String,
    user_id: String,
}

async fn user_page(me: Me, Path(place): Path<OfEndUser>) -> Response {
    me.show("console/user.html", &place, &[APP, ("user", "/apps/{appId}/users/{userId}")]).await
}

async fn domain_page(me: Me, Path(place): Path<OfApp>) -> Response {
    me.show("console/domain.html", &place, &[APP, ("?domain", "/apps/{appId}/domain")]).await
}

async fn domains_page(me: Me, Path(place): Path<OfApp>) -> Response {
    let asks = [APP, ("list", "/apps/{appId}/domains"), ("?purchases", "/apps/{appId}/registrations?limit=5")];
    me.show("console/domains.html", &place, &asks).await
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OfSearch {
    app_id: String,
    wanted: String,
}

async fn register_domain_page(me: Me, Path(OfApp { app_id }): Path<OfApp>) -> Response {
    let wanted = me.parameter("domain").trim().to_lowercase();
    let years = me.parameter("years").parse().ok().filter(|years| (1..=10).contains(years)).unwrap_or(1_i64);
    let more = json!({ "wanted": wanted, "years": years, "offer": null });
    let offer = ("?offer", "/domains/availability?domain={wanted}");
    let purchases = ("?purchases", "/apps/{appId}/registrations?limit=20");
    let asks = if wanted.is_empty() { vec![APP, purchases] } else { vec![APP, purchases, offer] };
    me.show_with("console/domain_register.html", &OfSearch { app_id, wanted }, &asks, more).await
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OfPurchase {
    app_id: String,
    operation_id: String,
}

async fn registration_page(me: Me, Path(place): Path<OfPurchase>) -> Response {
    let asks = [APP, ("purchase", "/domains/register/{operationId}")];
    me.show("console/domain_purchase.html", &place, &asks).await
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OfDomain {
    app_id: String,
    domain: String,
}

async fn site_domain_page(me: Me, Path(place): Path<OfDomain>) -> Response {
    let asks =
        [APP, ("domain", "/domains/onboard/{appId}/{domain}"), ("?mail", "/apps/{appId}/email/domains/{domain}")];
    me.show("console/site_domain.html", &place, &asks).await
}
