//! Where the console begins. Who is new is led by the hand: an app, a sign-in, a webhook.
use axum::http::Method;
use axum::response::Response;
use kernel::http::Routes;
use serde_json::{Value, json};

use crate::{me::Me, page::drawn};

pub fn routes() -> Routes {
    drawn(Routes::new("pages").get("/console", console_page, "where the console begins"))
}

async fn console_page(me: Me) -> Response {
    let steps = steps(&me).await;
    let asks = [("orgs", "/user/orgs"), ("list", "/apps?{query}")];
    me.show_with("console/start.html", &(), &asks, json!({ "steps": steps })).await
}

/// How far somebody has come with the first app there is: nothing that is not so is ticked off.
async fn steps(me: &Me) -> Value {
    let ask = async |to: String| me.ask(Method::GET, &to, None).await.map(|said| said.body).unwrap_or_default();
    let apps = ask("/apps?limit=1".to_owned()).await;
    let Some(id) = apps["apps"][0]["id"].as_str() else { return json!({ "app": null }) };
    let has = |list: &Value, name: &str| list[name].as_array().is_some_and(|list| !list.is_empty());
    let keys = ask(format!("/apps/{id}/keys?limit=1")).await;
    let users = ask(format!("/apps/{id}/users?limit=1")).await;
    let webhooks = ask(format!("/apps/{id}/webhooks?limit=1")).await;
    json!({
        "app": apps["apps"][0],
        "key": has(&keys, "keys"),
        "user": has(&users, "users"),
        "webhook": webhooks["webhooks"][0],
    })
}
