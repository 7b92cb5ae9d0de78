//! Apps: their settings, keys, people and domain.
use axum::response::Response;
use kernel::http::{Path, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{me::Me, page::pages};

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
    pub app_id: String,
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
