//! Where the console begins. Who is new is led by the hand: an app, a sign-in, a webhook.
use axum::{extract::State, response::Response};
use kernel::{Janua, http::Routes};
use serde_json::{Value, json};

use crate::{
    home::unclaimed,
    me::{Me, Sender},
    page::pages,
};

pub fn routes() -> Routes {
    pages("pages").get("/console", console_page, "start page of the console")
}

/// Without an owner there is nobody to sign in: the page says where the owner's link is.
async fn console_page(State(janua): State<Janua>, Sender(me): Sender) -> Response {
    let me = match me {
        Ok(me) => me,
        Err(to_sign_in) => return unclaimed(&janua).await.ok().flatten().unwrap_or(to_sign_in),
    };
    let steps = steps(&me).await;
    let asks = [("orgs", "/user/orgs"), ("list", "/apps?{query}")];
    me.show_with("console/start.html", &(), &asks, json!({ "steps": steps })).await
}

/// How far somebody has come with the first app there is: nothing that is not so is ticked off.
async fn steps(me: &Me) -> Value {
    let ask = async |to: &str, app: &Value| me.get(to, app).await.map(|said| said.body).unwrap_or_default();
    let apps = ask("/apps?limit=1", &Value::Null).await;
    let app = &apps["apps"][0];
    if app.is_null() {
        return json!({ "app": null });
    }
    let has = |list: &Value, name: &str| list[name].as_array().is_some_and(|list| !list.is_empty());
    let keys = ask("/apps/{id}/keys?limit=1", app).await;
    let users = ask("/apps/{id}/users?limit=1", app).await;
    let webhooks = ask("/apps/{id}/webhooks?limit=1", app).await;
    json!({
        "app": app,
        "key": has(&keys, "keys"),
        "user": has(&users, "users"),
        "webhook": webhooks["webhooks"][0],
    })
}
