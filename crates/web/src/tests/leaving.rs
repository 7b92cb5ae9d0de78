//! Signing out because a client asks for it.
use identity::testing::PASSWORD;

use super::*;

struct Inside {
    browser: String,
    id_token: String,
    access: String,
}

/// Somebody in a browser whom a client knows.
async fn inside(t: &TestJanua, app: &Client, email: &str) -> Inside {
    let entered = submit(t, "/sign-in", &[("email", email), ("password", PASSWORD)], "").await;
    let browser = cookies(&entered);
    let answer = t.get(&format!("/oauth/authorize?{}", asked(&app.id, &[]))).header("cookie", &browser).await;
    let given = redeem(t, &app.id, &field(&answer, "code").expect("a code"), &[]).await;
    Inside { browser, id_token: text(&given.body["id_token"]), access: text(&given.body["access_token"]) }
}

async fn is_in(t: &TestJanua, browser: &str) -> bool {
    t.get("/auth/me").header("cookie", browser).await.status == 200
}

#[tokio::test]
async fn a_client_that_knows_who_is_in_signs_them_out_and_gets_them_back() {
    let t = start().await;
    let owner = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &owner, "App").await;
    for back in [REDIRECT, "https://app.example", "https://app.example/"] {
        let ada = inside(&t, &app, "ada@example.com").await;
        let asks = [("id_token_hint", ada.id_token.as_str()), ("post_logout_redirect_uri", back), ("state", "s 1")];
        let left = t.get(&format!("/oauth/logout?{}", query(&asks))).header("cookie", &ada.browser).await;
        assert!(left.header("location").starts_with(back), "{:?}", left.headers);
        assert_eq!(field(&left, "state").as_deref(), Some("s 1"));
        assert!(cookies(&left).contains("service_access="), "the cookies go");
        assert!(!is_in(&t, &ada.browser).await);
        assert_eq!(with_token(&t, "/auth/me", &ada.access).await.status, 401, "and what the client had");
    }
    // To an address that is not its own nobody is sent.
    for back in ["https://evil.example/", "https://app.example/other", "javascript:alert(1)"] {
        let ada = inside(&t, &app, "ada@example.com").await;
        let asks = [("id_token_hint", ada.id_token.as_str()), ("post_logout_redirect_uri", back)];
        let left = t.get(&format!("/oauth/logout?{}", query(&asks))).header("cookie", &ada.browser).await;
        assert_eq!((left.status, left.header("location")), (200, ""), "{back}");
        assert!(!is_in(&t, &ada.browser).await);
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn whoever_does_not_know_must_ask() {
    let t = start().await;
    let owner = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &owner, "App").await;
    let ada = inside(&t, &app, "ada@example.com").await;
    signed_in(&t, "bob@example.com").await;
    let bob = cookies(&submit(&t, "/sign-in", &[("email", "bob@example.com"), ("password", PASSWORD)], "").await);
    for asks in [
        vec![],
        vec![("client_id", app.id.as_str())],
        vec![("id_token_hint", ada.id_token.as_str())],
        vec![("id_token_hint", "made.up.hint")],
        vec![("id_token_hint", ada.access.as_str())],
    ] {
        let page = t.get(&format!("/oauth/logout?{}", query(&asks))).header("cookie", &bob).await;
        assert_eq!(page.status, 200);
        assert!(page.text.contains("Sign out?") && is_in(&t, &bob).await, "{asks:?}");
    }
    assert_eq!(with_token(&t, "/auth/me", &ada.access).await.status, 200, "Ada's is not Bob's to end");
    // A client's form is asked like its link, and another site's page presses no button.
    let asks = query(&[("client_id", &app.id), ("post_logout_redirect_uri", REDIRECT)]);
    let posted = t.post("/oauth/logout").header("content-type", FORM).header("origin", "https://app.example");
    let posted = posted.body(asks.clone()).await;
    assert_eq!(sent(&posted).0, format!("{}/oauth/logout", base(&t)));
    let forged = t.post("/oauth/logout").header("content-type", FORM).header("origin", "https://evil.example");
    assert_eq!(forged.header("cookie", &bob).body("sure=1&request=").await.status, 403);
    assert!(is_in(&t, &bob).await);
    let page = t.get(&format!("/oauth/logout?{asks}")).header("cookie", &bob).await;
    let fields = [("sure", "1"), ("request", &*hidden(&page, "request"))];
    let left = submit(&t, "/oauth/logout", &fields, &bob).await;
    assert_eq!(left.header("location"), REDIRECT);
    assert!(!is_in(&t, &bob).await);
    // Nobody is in: nothing to ask.
    assert!(t.get("/oauth/logout").await.text.contains("You are signed out"));
    t.run_jobs().await;
    t.finish().await;
}
