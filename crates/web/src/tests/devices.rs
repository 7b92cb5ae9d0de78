//! Letting a device in, on the page for it.
use std::time::Duration;

use identity::testing::{PASSWORD, member};

use super::*;

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

async fn begin(t: &TestJanua, fields: &[(&str, &str)]) -> Value {
    let begun = form(t, "/auth/device/code", fields, Some(("user-agent", identity::testing::FIREFOX))).await;
    assert_eq!(begun.status, 200, "{}", begun.text);
    begun.body
}

async fn poll(t: &TestJanua, client: &str, begun: &Value) -> Answer {
    t.advance(Duration::from_secs(6));
    let code = text(&begun["device_code"]);
    form(t, "/oauth/token", &[("grant_type", GRANT), ("device_code", &code), ("client_id", client)], None).await
}

#[tokio::test]
async fn a_person_sees_what_asks_and_lets_it_in_or_sends_it_away() {
    let t = start().await;
    let eve = signed_in(&t, "eve@example.com").await;
    let app = client(&t, &eve, "Telly").await;
    member(&t, "ada@example.com").await;
    let begun = begin(&t, &[("client_id", &app.id), ("scope", "openid profile")]).await;
    let (user_code, link) = (text(&begun["user_code"]), text(&begun["verification_uri_complete"]));
    assert_eq!(error_of(&poll(&t, &app.id, &begun).await), (400, "authorization_pending"));

    // By the link on the device, through the sign-in page, back to the code.
    let path = link.strip_prefix(&base(&t)).unwrap();
    let away = t.get(path).await;
    assert_eq!(sent(&away).0, format!("{}/sign-in", base(&t)));
    let onward = field(&away, "continue").unwrap();
    let fields = [("email", "ada@example.com"), ("password", PASSWORD), ("continue", onward.as_str())];
    let entered = submit(&t, "/sign-in", &fields, "").await;
    let ada = cookies(&entered);
    let page = t.get(entered.header("location")).header("cookie", &ada).await;
    assert!(page.text.contains(&user_code) && !page.text.contains("Telly"), "shown once it is asked for");
    let wrong = submit(&t, "/device", &[("user_code", "BBBB-BBBB")], &ada).await;
    assert_eq!(wrong.status, 404);
    assert!(wrong.text.contains("Unknown code"), "{}", wrong.text);
    let page = submit(&t, "/device", &[("user_code", &user_code.to_lowercase())], &ada).await;
    for shown in ["Connect Telly on a device", "Firefox", "127.0.0.1", "See your name", "deny"] {
        assert!(page.text.contains(shown), "{shown}: {}", page.text);
    }
    assert!(!page.text.contains("See your email"));
    let decide = |decision: &'static str, code: String| {
        let (t, ada) = (&t, ada.clone());
        async move { submit(t, "/device/decide", &[("user_code", &code), ("decision", decision)], &ada).await }
    };
    t.happened().await;
    assert_eq!(decide("allow", user_code).await.status, 200);
    t.expects(&["DEVICE_APPROVED", "CONSENT_GRANTED"]).await;
    let given = poll(&t, &app.id, &begun).await;
    assert_eq!((given.status, &given.body["scope"]), (200, &json!("openid profile")), "{}", given.text);
    assert_eq!(given.body.get("refresh_token"), None);
    let id = claims(&given.body["id_token"]);
    assert_eq!((&id["aud"], &id["name"], id.get("email")), (&json!(app.id), &json!("Ada"), None));
    // What an app gets this way is what its scopes say, by whichever door it asks.
    let token = text(&given.body["access_token"]);
    assert_eq!(with_token(&t, "/auth/sessions", &token).await.refusal(), (403, "insufficient_scope"));
    let key = Some(("x-service-app-key", app.publishable.as_str()));
    let begun = form(&t, "/auth/device/code", &[], key).await.body;
    assert_eq!(decide("allow", text(&begun["user_code"])).await.status, 200);
    let polled = t.post("/auth/device/token").json(&json!({ "device_code": begun["device_code"] }));
    let given = polled.header("x-service-app-key", &app.publishable).await;
    assert_eq!(given.status, 200, "{}", given.text);
    assert!(given.body["refreshToken"].is_string(), "all scopes where none are named");
    let refused = with_token(&t, "/auth/sessions", &text(&given.body["accessToken"])).await;
    assert_eq!(refused.refusal(), (403, "insufficient_scope"));

    // Sent away.
    let begun = begin(&t, &[("client_id", &app.id)]).await;
    assert_eq!(decide("deny", text(&begun["user_code"])).await.status, 200);
    assert_eq!(error_of(&poll(&t, &app.id, &begun).await), (400, "access_denied"));
    // A program of the person's own is theirs altogether.
    let begun = t.post("/auth/device/code").await.body;
    let page = submit(&t, "/device", &[("user_code", &text(&begun["user_code"]))], &ada).await;
    assert!(page.text.contains("full access to your account"), "{}", page.text);
    let nobody = form(&t, "/auth/device/code", &[("client_id", "made-up")], None).await;
    assert_eq!(nobody.status, 401, "{}", nobody.text);
    t.run_jobs().await;
    t.finish().await;
}
