//! App admins and the end users of their app: looking, ending sessions, blocking.
use std::time::Duration;

use identity::testing::{mail_to, token_in};

use super::*;

const ADA: &str = "ada@example.com";
const BOB: &str = "bob@example.com";
const BLOCKED: (u16, &str) = (403, "blocked_from_app");

struct Shop {
    t: TestJanua,
    ada: Person,
    bob: Person,
    app: Value,
    key: String,
}

impl Shop {
    async fn open() -> Self {
        let t = start().await;
        let (ada, bob) = (signed_in(&t, ADA).await, signed_in(&t, BOB).await);
        let app = make_app(&t, &ada, "Shop").await;
        let key = make_key(&t, &ada, id(&app), "publishable", "live").await["value"].as_str().unwrap().to_owned();
        Self { t, ada, bob, app, key }
    }

    fn path(&self, rest: &str) -> String {
        format!("/apps/{}/users/{}{rest}", id(&self.app), self.bob.id)
    }

    async fn act(&self, act: &str) -> Answer {
        self.ada.asks(self.t.post(&self.path(&format!("/{act}")))).await
    }
}

#[tokio::test]
async fn admins_see_what_their_app_may_know_and_end_its_sessions() {
    let shop = Shop::open().await;
    let Shop { t, ada, bob, key, .. } = &shop;
    assert_eq!(ada.asks(t.get(&shop.path(""))).await.refusal(), (404, "not_found"), "not an end user yet");
    let inside = Person::of(&login_with(t, BOB, key).await);
    let user = ada.asks(t.get(&shop.path(""))).await;
    assert_eq!((&user.body["email"], &user.body["blockedAt"]), (&json!(BOB), &Value::Null), "{}", user.text);
    assert_eq!(user.body["sessions"].as_array().unwrap().len(), 1, "those of the app alone: {}", user.text);
    assert!(user.body["sessions"][0].get("methods").is_none(), "how somebody signs in is not the app's concern");
    assert_eq!(user.body["activity"][0]["type"], "SIGNED_IN");
    assert_eq!(user.body["activity"].as_array().unwrap().len(), 1, "nothing from elsewhere: {}", user.text);
    let member = signed_in(t, "member@example.com").await;
    put(t, &shop.app, &member, "member").await;
    assert_eq!(member.asks(t.get(&shop.path(""))).await.refusal(), (403, "forbidden"));

    let ended = ada.asks(t.ask(Method::DELETE, &shop.path("/sessions"))).await;
    assert_eq!(ended.status, 204, "{}", ended.text);
    assert_eq!(inside.asks(t.get("/auth/me")).await.status, 401);
    assert_eq!(bob.asks(t.get("/auth/me")).await.status, 200, "the account itself is not the app's");
    let log = bob.asks(t.get("/auth/audit-log")).await;
    assert_eq!(log.body["events"][0]["type"], "SESSION_REVOKED");
    assert_eq!(log.body["events"][0]["actor"], json!(ada.id), "the person sees who ended it");
    t.run_jobs().await;
    shop.t.finish().await;
}

#[tokio::test]
async fn a_blocked_person_is_refused_at_every_door_of_the_app_and_at_no_other() {
    let shop = Shop::open().await;
    let Shop { t, ada, bob, key, .. } = &shop;
    let inside = Person::of(&login_with(t, BOB, key).await);
    let begun = t.post("/auth/device/code").header("x-service-app-key", key).await.body;
    assert_eq!(
        bob.asks(t.post("/auth/device/verify").json(&json!({ "user_code": begun["user_code"] }))).await.status,
        200
    );
    t.happened().await;
    assert_eq!(shop.act("block").await.status, 204);
    t.expects(&["SESSION_REVOKED", "USER_BLOCKED"]).await;
    assert_eq!(shop.act("block").await.status, 204, "once more changes nothing");
    t.expects(&[]).await;

    assert_eq!(inside.asks(t.get("/auth/me")).await.status, 401);
    let refresh = json!({ "refreshToken": inside.refresh });
    let refresh = t.post("/auth/refresh").json(&refresh).header("x-service-app-key", key).await;
    assert_eq!(refresh.refusal(), BLOCKED);
    let fields = format!("grant_type=refresh_token&refresh_token={}&client_id={}", inside.refresh, id(&shop.app));
    let oauth = t.post("/oauth/token").header("content-type", "application/x-www-form-urlencoded").body(fields).await;
    assert_eq!((oauth.status, &oauth.body["error"]), (400, &json!("invalid_grant")), "{}", oauth.text);
    assert!(oauth.text.contains("blocked_from_app"), "{}", oauth.text);
    assert_eq!(login_with(t, BOB, key).await.refusal(), BLOCKED);
    let device = t.post("/auth/device/token").json(&json!({ "device_code": begun["device_code"] }));
    assert_eq!(device.header("x-service-app-key", key).await.refusal(), BLOCKED);
    t.post("/auth/magic-link/request").json(&json!({ "email": BOB })).await;
    t.run_jobs().await;
    let link = json!({ "token": token_in(&mail_to(t, BOB).unwrap()) });
    let followed = t.post("/auth/magic-link/verify").json(&link).header("x-service-app-key", key).await;
    assert_eq!(followed.refusal(), BLOCKED);

    // The account itself and other apps are as they were.
    assert_eq!(identity::testing::login(t, BOB, identity::testing::PASSWORD).await.status, 200);
    let other = make_app(t, ada, "Other").await;
    let other = make_key(t, ada, id(&other), "publishable", "live").await["value"].as_str().unwrap().to_owned();
    assert_eq!(login_with(t, BOB, &other).await.status, 200);
    let log = bob.asks(t.get("/auth/audit-log")).await;
    assert!(log.text.contains("USER_BLOCKED"), "the person sees it: {}", log.text);
    let user = ada.asks(t.get(&shop.path(""))).await;
    assert!(user.body["blockedAt"].is_string() && user.body["sessions"] == json!([]), "{}", user.text);

    assert_eq!(shop.act("unblock").await.status, 204);
    assert_eq!(login_with(t, BOB, key).await.status, 200);
    t.run_jobs().await;
    shop.t.finish().await;
}

#[tokio::test]
async fn a_second_factor_does_not_lead_around_a_block() {
    let shop = Shop::open().await;
    let Shop { t, bob, key, .. } = &shop;
    login_with(t, BOB, key).await;
    let set_up = bob.asks(t.post("/auth/2fa/setup")).await;
    let totp = totp_rs::Totp::from_url(set_up.body["otpauthUri"].as_str().unwrap()).unwrap();
    let code = || totp.generate(u64::try_from(t.janua.clock.now().0 / 1000).unwrap()).to_string();
    assert_eq!(bob.asks(t.post("/auth/2fa/enable").json(&json!({ "code": code() }))).await.status, 200);
    t.advance(Duration::from_secs(30));
    let ticket = login_with(t, BOB, key).await.body["mfaTicket"].clone();
    assert_eq!(shop.act("block").await.status, 204);
    let body = json!({ "mfaTicket": ticket, "code": code() });
    let passed = t.post("/auth/2fa/login-verify").json(&body).header("x-service-app-key", key).await;
    assert_eq!(passed.refusal(), BLOCKED);
    t.run_jobs().await;
    shop.t.finish().await;
}

#[tokio::test]
async fn another_apps_end_users_look_like_nobody() {
    let shop = Shop::open().await;
    let Shop { t, ada, bob, key, .. } = &shop;
    login_with(t, BOB, key).await;
    let eve = signed_in(t, "eve@example.com").await;
    let hers = make_app(t, &eve, "Hers").await;
    for (method, rest) in [("GET", ""), ("DELETE", "/sessions"), ("POST", "/block"), ("POST", "/unblock")] {
        for path in [shop.path(rest), format!("/apps/{}/users/{}{rest}", id(&hers), bob.id)] {
            let answer = eve.asks(t.ask(method.parse().unwrap(), &path)).await;
            assert_eq!(answer.refusal(), (404, "not_found"), "{method} {path}");
        }
    }
    assert_eq!(ada.asks(t.get(&shop.path(""))).await.body["blockedAt"], Value::Null);
    t.run_jobs().await;
    shop.t.finish().await;
}
