//! Trusted devices: listed, forgotten one by one, all at once, and with every session.
use axum::http::Method;
use kernel::testing::TestJanua;
use serde_json::json;

use super::{
    actors::*,
    factors::{Careful, careful, ticket},
};

const ADA: &str = "ada@example.com";

/// Signs in on a new device and trusts it; its cookie.
async fn trust(t: &TestJanua, ada: &Careful, agent: &str) -> (String, Person) {
    t.advance(std::time::Duration::from_secs(30));
    let waiting = ticket(&login(t, ADA, PASSWORD).await);
    let body = json!({ "mfaTicket": waiting, "code": ada.code(t), "trustDevice": true });
    let answer = t.post("/auth/2fa/login-verify").json(&body).header("user-agent", agent).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let mut lines = answer.headers.get_all("set-cookie").iter().map(|line| line.to_str().unwrap());
    let cookie = lines.find(|line| line.starts_with("service_mfa_trusted=")).unwrap();
    (cookie.split(';').next().unwrap().to_owned(), Person::of(&answer))
}

/// Whether the device is still asked for no second factor.
async fn is_trusted(t: &TestJanua, cookie: &str) -> bool {
    let body = json!({ "email": ADA, "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    let answer = t.post("/auth/login").json(&body).header("cookie", cookie).header("user-agent", FIREFOX).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body.get("accessToken").is_some()
}

#[tokio::test]
async fn trusted_devices_are_listed_and_forgotten() {
    let t = start().await;
    let ada = careful(&t, ADA).await;
    let eve = careful(&t, "eve@example.com").await;
    let (first, person) = trust(&t, &ada, FIREFOX).await;
    let (second, _) = trust(&t, &ada, SAFARI).await;
    assert!(is_trusted(&t, &first).await);

    let list = person.asks(t.get("/auth/trusted-devices")).header("cookie", &first).await;
    let devices = list.body["trustedDevices"].as_array().unwrap();
    assert_eq!(devices.len(), 2, "{}", list.text);
    assert_eq!((&devices[0]["name"], &devices[0]["current"]), (&json!("Safari on iPhone"), &json!(false)));
    assert_eq!((&devices[1]["name"], &devices[1]["current"]), (&json!("Firefox on Linux"), &json!(true)));
    assert_eq!(devices[0]["lastUsedAt"], json!(null));
    assert!(devices[1]["lastUsedAt"].is_string() && devices[1]["ip"] == "127.0.0.1", "{}", list.text);
    assert!(devices[1]["createdAt"].is_string() && devices[1]["expiresAt"].is_string());
    assert!(!list.text.contains(first.split('=').nth(1).unwrap()), "not the mark itself");
    t.happened().await;

    let path = format!("/auth/trusted-devices/{}", devices[0]["id"].as_str().unwrap());
    assert_eq!(eve.person.asks(t.ask(Method::DELETE, &path)).await.refusal(), (404, "not_found"), "somebody else's");
    assert_eq!(person.asks(t.ask(Method::DELETE, &path)).await.status, 204);
    t.expects(&["TRUSTED_DEVICE_REMOVED"]).await;
    assert_eq!(person.asks(t.ask(Method::DELETE, &path)).await.refusal(), (404, "not_found"));
    assert!(!is_trusted(&t, &second).await && is_trusted(&t, &first).await);
    assert_eq!(person.asks(t.ask(Method::DELETE, "/auth/trusted-devices")).await.status, 204);
    assert!(!is_trusted(&t, &first).await);
    assert_eq!(person.asks(t.get("/auth/trusted-devices")).await.body["trustedDevices"], json!([]));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn ending_all_sessions_and_a_new_password_end_trust_too() {
    let t = start().await;
    let ada = careful(&t, ADA).await;
    let (cookie, person) = trust(&t, &ada, FIREFOX).await;
    assert_eq!(person.asks(t.ask(Method::DELETE, "/auth/sessions")).await.status, 204);
    assert!(!is_trusted(&t, &cookie).await, "after the end of all sessions");

    let (cookie, person) = trust(&t, &ada, FIREFOX).await;
    let change = json!({ "currentPassword": PASSWORD, "newPassword": format!("{PASSWORD} 2") });
    assert_eq!(person.asks(t.post("/auth/change-password").json(&change)).await.status, 204);
    let body = json!({ "email": ADA, "password": format!("{PASSWORD} 2") });
    ticket(&t.post("/auth/login").json(&body).header("cookie", &cookie).await);
    t.run_jobs().await;
    t.finish().await;
}
