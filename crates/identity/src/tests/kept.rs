//! What is kept for a client that repeats a request (`Idempotency-Key`): never a session, and no failed try is hidden.
use axum::http::Method;
use kernel::testing::{Answer, Ask, TestJanua};
use serde_json::{Value, json};

use super::{
    actors::*,
    factors::{careful, ticket},
    passkeys::{Holder, add, login_options},
};

const ADA: &str = "ada@example.com";

fn once<'a>(key: &str, ask: Ask<'a>) -> Ask<'a> {
    ask.header("idempotency-key", key).header("user-agent", FIREFOX)
}

/// Sends a request under a key; a session comes back.
async fn enters(t: &TestJanua, path: &str, body: &Value) -> Answer {
    let answer = once(path, t.post(path).json(body)).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    assert!(answer.body.get("accessToken").is_some(), "{path}: {}", answer.text);
    answer
}

/// The same request again, and what it is refused with.
async fn refused(t: &TestJanua, path: &str, body: &Value) -> (u16, String) {
    let again = once(path, t.post(path).json(body)).await;
    assert!(again.headers.get("idempotency-replayed").is_none(), "{path}: {}", again.text);
    assert!(again.body.get("accessToken").is_none(), "{path}: {}", again.text);
    let (status, code) = again.refusal();
    (status, code.to_owned())
}

#[tokio::test]
async fn a_password_sign_in_runs_again_and_asks_for_what_is_asked_for_now() {
    let t = start().await;
    member(&t, ADA).await;
    let body = json!({ "email": ADA, "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    let first = Person::of(&enters(&t, "/auth/login", &body).await);
    let second = Person::of(&enters(&t, "/auth/login", &body).await);
    assert_ne!(first.refresh, second.refresh, "a retry signs in again");
    // With a second factor on, the repetition is asked for it.
    let set_up = first.asks(t.post("/auth/2fa/setup")).await;
    let totp = totp_rs::Totp::from_url(set_up.body["otpauthUri"].as_str().unwrap()).unwrap();
    let code = totp.generate(u64::try_from(t.janua.clock.now().0 / 1000).unwrap()).to_string();
    assert_eq!(first.asks(t.post("/auth/2fa/enable").json(&json!({ "code": code }))).await.status, 200);
    let one = ticket(&once("/auth/login", t.post("/auth/login").json(&body)).await);
    let other = ticket(&once("/auth/login", t.post("/auth/login").json(&body)).await);
    assert_ne!(one, other, "nor is a ticket kept");
    // With another password, it is wrong.
    let change = json!({ "currentPassword": PASSWORD, "newPassword": format!("{PASSWORD} 2") });
    assert_eq!(first.asks(t.post("/auth/change-password").json(&change)).await.status, 204);
    assert_eq!(refused(&t, "/auth/login", &body).await, (401, "invalid_credentials".into()));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn no_way_in_is_kept() {
    let t = start().await;
    let ada = careful(&t, ADA).await;
    let bob = signed_in(&t, "bob@example.com").await;
    let mut holder = Holder::new();
    add(&t, &bob, &mut holder).await;

    let waiting = ticket(&login(&t, ADA, PASSWORD).await);
    let body = json!({ "mfaTicket": waiting, "code": ada.code(&t), "trustDevice": true });
    enters(&t, "/auth/2fa/login-verify", &body).await;
    assert_eq!(refused(&t, "/auth/2fa/login-verify", &body).await, (410, "token_spent".into()));

    t.post("/auth/magic-link/request").json(&json!({ "email": "bob@example.com" })).await;
    t.run_jobs().await;
    let body = json!({ "token": token_in(&mail_to(&t, "bob@example.com").unwrap()) });
    enters(&t, "/auth/magic-link/verify", &body).await;
    assert_eq!(refused(&t, "/auth/magic-link/verify", &body).await, (410, "token_spent".into()));

    let body = json!({ "credential": holder.sign(login_options(&t).await).await.unwrap() });
    enters(&t, "/auth/passkey/login-verify", &body).await;
    assert_eq!(refused(&t, "/auth/passkey/login-verify", &body).await, (410, "token_spent".into()));

    let begun = t.post("/auth/device/code").await.body;
    let approve = json!({ "user_code": begun["user_code"] });
    assert_eq!(bob.asks(t.post("/auth/device/verify").json(&approve)).await.status, 200);
    let body = json!({ "device_code": begun["device_code"] });
    enters(&t, "/auth/device/token", &body).await;
    assert_eq!(refused(&t, "/auth/device/token", &body).await, (400, "invalid_grant".into()));

    let body = json!({ "refreshToken": bob.refresh });
    enters(&t, "/auth/refresh", &body).await;
    assert_eq!(bob.asks(t.ask(Method::DELETE, "/auth/sessions")).await.status, 204);
    assert_eq!(refused(&t, "/auth/refresh", &body).await, (401, "unauthenticated".into()));

    let sql = "SELECT scope FROM idempotent_reply WHERE sealed IS NOT NULL";
    let kept: Vec<(String,)> = t.janua.db.all(sql, db::params![]).await.unwrap();
    assert!(kept.is_empty(), "nothing that opens an account is kept");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_wrong_password_is_noted_whatever_key_it_comes_with() {
    let t = start().await;
    member(&t, ADA).await;
    t.run_jobs().await;
    t.happened().await;
    let kept =
        once("the same", t.post("/auth/forgot-password").json(&json!({ "email": "nobody@example.com" }))).await;
    assert_eq!(kept.status, 200, "{}", kept.text);
    let guess = json!({ "email": ADA, "password": "wrong guess" });
    for _ in 0..2 {
        let answer = once("the same", t.post("/auth/login").json(&guess)).await;
        assert_eq!(answer.refusal(), (401, "invalid_credentials"));
    }
    t.run_jobs().await;
    t.expects(&["SIGN_IN_FAILED", "SIGN_IN_FAILED"]).await;
    t.finish().await;
}
