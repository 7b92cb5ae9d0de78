//! Apps: their settings, keys, people and domain.
use axum::response::Response;
use kernel::http::{Path, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::nav::{Area::App, NavEntry};
use crate::{me::Me, page::pages};

pub const NAV: &[NavEntry] = &[
    NavEntry::new(App, "", "Users", "users", "/users"),
    NavEntry::new(App, "Build", "API keys", "key", "/keys"),
    NavEntry::new(App, "Build", "Domain", "globe", "/domain"),
    NavEntry::new(App, "Manage", "Settings", "sliders", ""),
];

pub fn routes() -> Routes {
    pages("pages")
        .get("/console/apps/{appId}", app_page, "an app and its settings")
        .get("/console/apps/{appId}/keys", keys_page, "its keys")
        .get("/console/apps/{appId}/users", users_page, "who signed in through it")
        .get("/console/apps/{appId}/domain", domain_page, "its domain and the proof of it")
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OfApp {
    app_id: String,
}

pub const APP: (&str, &str) = ("app", "/apps/{appId}");

async fn app_page(me: Me, Path(place): Path<OfApp>) -> Response {
    me.show("console/app.html", &place, &[APP]).await
}

async fn keys_page(me: Me, Path(place): Path<OfApp>) -> Response {
    me.show("console/keys.html", &place, &[APP, ("list", "/apps/{appId}/keys?{query}")]).await
}

async fn users_page(me: Me, Path(place): Path<OfApp>) -> Response {
    me.show("console/users.html", &place, &[APP, ("list", "/apps/{appId}/users?{query}")]).await
}

async fn domain_page(me: Me, Path(place): Path<OfApp>) -> Response {
    me.show("console/domain.html", &place, &[APP, ("?domain", "/apps/{appId}/domain")]).await
}
