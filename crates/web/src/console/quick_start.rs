//! The first sign-in to an app: code with the app's own values, and word of when it worked.
use axum::response::Response;
use kernel::http::{Path, Routes};
use serde_json::json;

use super::{
    apps::{APP, OfApp},
    samples,
};
use crate::{
    me::Me,
    page::{error, pages},
};

pub fn routes() -> Routes {
    pages("pages").get("/console/apps/{appId}/quick-start", quick_start_page, "code that signs in a user of the app")
}

async fn quick_start_page(me: Me, Path(place): Path<OfApp>) -> Response {
    let app = match me.get("/apps/{appId}", &json!(place)).await {
        Ok(said) => said.body,
        Err(fault) => return error(&me.janua, &fault),
    };
    let registered = app["redirectUris"].as_array().into_iter().flatten().filter_map(|uri| uri.as_str());
    let registered: Vec<_> = registered.filter(|uri| uri.starts_with("http") && samples::is_plain(uri)).collect();
    // A URL on this machine first: that is where the samples run.
    let is_here = |uri: &&&str| uri.starts_with("http://localhost") || uri.starts_with("http://127.0.0.1");
    let chosen = registered.iter().find(is_here).or(registered.first()).copied();
    let redirect_url = chosen.map_or_else(|| samples::REDIRECT_URL.to_owned(), with_port);
    let issuer = me.janua.config.base_url();
    let more = json!({
        "samples": samples::quick_start(&issuer, app["id"].as_str().unwrap_or_default(), &redirect_url),
        "redirect_url": redirect_url,
        "is_registered": chosen.is_some(),
    });
    me.show_with("console/quick_start.html", &place, &[APP, ("?users", "/apps/{appId}/users?limit=1")], more).await
}

/// On this machine any port is allowed, and a program needs one.
fn with_port(uri: &str) -> String {
    for host in ["http://localhost/", "http://127.0.0.1/"] {
        if let Some(path) = uri.strip_prefix(host) {
            return format!("{}:3000/{path}", host.trim_end_matches('/'));
        }
    }
    uri.to_owned()
}
