//! Access by a session or by a secret key of the app, and how the audit log names the key.
use axum::extract::State;
use kernel::{
    Janua,
    fault::Result,
    http::{Json, Routes},
    transact,
};
use tenancy::enter::Deployer;

use super::*;

mod events {
    tenancy::events! {
        /// A bell was rung.
        BellRung { bell: String } = "BELL_RUNG";
    }
}

async fn ring(State(janua): State<Janua>, caller: Deployer) -> Result<Json<String>> {
    transact!(janua, async |tx| {
        let app = caller.hold(tx).await?;
        Ok(caller.record(tx, &janua, &events::BellRung { bell: app.name }).await?)
    })?;
    let by = caller.account().map(|_| "account").or_else(|| caller.key().map(|_| "key"));
    Ok(Json(by.unwrap_or_default().to_owned()))
}

async fn start_with_bell() -> TestJanua {
    let bell = || Feature::new(Routes::new("apps").post("/apps/{appId}/bell", ring, "ring")).declares(events::EVENTS);
    TestJanua::start(|config| feature(config).and(bell())).await
}

#[tokio::test]
async fn w05_an_admin_or_a_secret_key_of_the_app_may_and_the_log_names_the_key() {
    let t = start_with_bell().await;
    let (ada, bob) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "bob@example.com").await);
    let (app, other) = (make_app(&t, &ada, "App").await, make_app(&t, &bob, "Other").await);
    put(&t, &app, &bob, "member").await;
    let key = make_key(&t, &ada, id(&app), "secret", "live").await;
    let (secret, bell) = (key["value"].as_str().unwrap(), format!("/apps/{}/bell", id(&app)));
    let by_bearer = async |key: &str| t.post(&bell).header("authorization", &format!("Bearer {key}")).await;
    let by_header = async |key: &str| t.post(&bell).header("x-service-app-key", key).await;
    assert_eq!(ada.asks(t.post(&bell)).await.body, "account");
    assert_eq!(by_bearer(secret).await.body, "key");
    assert_eq!(by_header(secret).await.body, "key");
    for (kind, app, refusal) in [
        ("publishable", &app, (403, "secret_key_required")),
        ("publishable", &other, (403, "secret_key_required")),
        ("secret", &other, (404, "not_found")),
    ] {
        let owner = if app["id"] == other["id"] { &bob } else { &ada };
        let made = make_key(&t, owner, id(app), kind, "live").await;
        let value = made["value"].as_str().unwrap();
        assert_eq!(by_bearer(value).await.refusal(), refusal);
        assert_eq!(by_header(value).await.refusal(), refusal);
    }
    assert_eq!(by_bearer("sk_live_unknown").await.refusal(), (401, "invalid_app_key"));
    assert_eq!(bob.asks(t.post(&bell)).await.refusal(), (403, "forbidden"), "a member is no admin");
    assert_eq!(t.post(&bell).await.status, 401);
    let both = ada.asks(t.post(&bell)).header("x-service-app-key", secret).await;
    assert_eq!(both.refusal(), (403, "app_key_mismatch"), "one credential at a time");

    let log = ada.asks(t.get(&format!("/apps/{}/audit-log?type=BELL_RUNG", id(&app)))).await;
    let actors: Vec<_> =
        log.body["events"].as_array().unwrap().iter().map(|e| (e["actor"].clone(), e["actorName"].clone())).collect();
    let named = (key["id"].clone(), json!(format!("Key {}", key["prefix"].as_str().unwrap())));
    assert_eq!(actors[..2], [named.clone(), named], "{}", log.text);
    assert_eq!(actors[2].0, ada.id.as_str());

    let gone = ada.asks(t.ask(Method::DELETE, &format!("/apps/{}/keys/{}", id(&app), id(&key)))).await;
    assert_eq!(gone.status, 204);
    assert_eq!(by_bearer(secret).await.refusal(), (401, "invalid_app_key"), "a deleted key, at once");
    t.run_jobs().await;
    t.finish().await;
}
