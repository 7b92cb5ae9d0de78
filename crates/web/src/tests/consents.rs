//! What people say yes to: asked once, remembered, shown, taken back.
use super::*;

#[tokio::test]
async fn an_app_of_others_asks_once_and_is_remembered_until_it_is_taken_back() {
    let t = start().await;
    let eve = signed_in(&t, "eve@example.com").await;
    let app = client(&t, &eve, "Eve's <b>App</b>").await;
    let ada = signed_in(&t, "ada@example.com").await;
    let ada_browser = browser(&t, "ada@example.com").await;
    // Eve is one of its own people: nobody asks her.
    assert!(field(&authorize(&t, Some(&eve), &asked(&app.id, &[])).await, "code").is_some());
    let none = authorize(&t, Some(&ada), &asked(&app.id, &[("prompt", "none")])).await;
    assert_eq!(field(&none, "error").as_deref(), Some("consent_required"));

    let small = asked(&app.id, &[("scope", "openid email")]);
    let answer = visit(&t, &format!("/oauth/authorize?{small}"), &ada_browser).await;
    let page = visit(&t, answer.header("location"), &ada_browser).await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert!(page.text.contains("Eve&#x27;s &lt;b&gt;App") && page.text.contains("app.example"), "{}", page.text);
    assert!(page.text.contains("See your email") && !page.text.contains("Stay signed in"), "{}", page.text);
    assert!(page.header("content-security-policy").contains("form-action 'self' https://app.example;"));
    let request = hidden(&page, "request");
    // No.
    let denied = decide(&t, &page, "deny", &ada_browser).await;
    assert_eq!(
        (field(&denied, "error").as_deref(), field(&denied, "state")),
        (Some("access_denied"), Some("xyz".into()))
    );
    let odd = decide(&t, &page, "", &ada_browser).await;
    assert_eq!(field(&odd, "error").as_deref(), Some("access_denied"), "nothing said is no");
    // Yes, and never for what was changed in the page.
    t.happened().await;
    let forged = request.replace("app.example", "evil.example");
    let refused = submit(&t, "/consent", &[("request", &forged), ("decision", "allow")], &ada_browser).await;
    assert_eq!((refused.status, refused.header("location")), (400, ""));
    let nobody = submit(&t, "/consent", &[("request", &request), ("decision", "allow")], "").await;
    assert_eq!(nobody.status, 401);
    t.expects(&[]).await;
    // A page that was drawn for one is not answered by another, nor by a program with a token.
    let eves = browser(&t, "eve@example.com").await;
    t.happened().await;
    assert_eq!(decide(&t, &page, "allow", &eves).await.status, 401);
    let fields = query(&[("request", &request), ("mark", &hidden(&page, "mark")), ("decision", "allow")]);
    assert_eq!(ada.asks(t.post("/consent").header("content-type", FORM).body(fields)).await.status, 401);
    t.expects(&[]).await;
    let allowed = decide(&t, &page, "allow", &ada_browser).await;
    t.expects(&["CONSENT_GRANTED"]).await;
    let given = redeem(&t, &app.id, &field(&allowed, "code").expect("a code"), &[]).await;
    assert_eq!(given.body["scope"], "openid email");

    // Remembered, for this much and not for more.
    assert!(field(&visit(&t, &format!("/oauth/authorize?{small}"), &ada_browser).await, "code").is_some());
    let more = visit(&t, &format!("/oauth/authorize?{}", asked(&app.id, &[])), &ada_browser).await;
    assert_eq!(sent(&more).0, format!("{}/consent", base(&t)));
    let again = asked(&app.id, &[("scope", "openid email"), ("prompt", "consent")]);
    let again = visit(&t, &format!("/oauth/authorize?{again}"), &ada_browser).await;
    assert_eq!(sent(&again).0, format!("{}/consent", base(&t)), "the client wants it asked");
    let page = visit(&t, more.header("location"), &ada_browser).await;
    let allowed = decide(&t, &page, "allow", &ada_browser).await;
    let given = redeem(&t, &app.id, &field(&allowed, "code").expect("a code"), &[]).await;

    // Seen and taken back, by whose it is.
    let list = ada.asks(t.get("/auth/consents")).await.body;
    assert_eq!(list["consents"].as_array().map(Vec::len), Some(1));
    let consent = &list["consents"][0];
    assert_eq!((&consent["clientId"], &consent["name"]), (&json!(app.id), &json!("Eve's <b>App</b>")));
    assert_eq!(consent["scopes"], json!(["openid", "profile", "email", "offline_access"]));
    assert_eq!(eve.asks(t.get("/auth/consents")).await.body["consents"], json!([]));
    let path = format!("/auth/consents/{}", text(&consent["id"]));
    assert_eq!(eve.asks(t.ask(axum::http::Method::DELETE, &path)).await.refusal(), (404, "not_found"));
    let exported = ada.asks(t.get("/auth/export")).await.body;
    assert_eq!(exported["consents"][0]["clientId"], json!(app.id));
    let token = text(&given.body["access_token"]);
    assert_eq!(with_token(&t, "/oauth/userinfo", &token).await.status, 200);
    t.happened().await;
    assert_eq!(ada.asks(t.ask(axum::http::Method::DELETE, &path)).await.status, 204);
    t.expects(&["CONSENT_REVOKED", "SESSION_REVOKED", "SESSION_REVOKED"]).await;
    assert_eq!(with_token(&t, "/oauth/userinfo", &token).await.status, 401, "what came of it is over");
    let refresh = text(&given.body["refresh_token"]);
    let grant = [("grant_type", "refresh_token"), ("refresh_token", &*refresh), ("client_id", &*app.id)];
    assert_eq!(error_of(&form(&t, "/oauth/token", &grant, None).await), (400, "invalid_grant"));
    let after = visit(&t, &format!("/oauth/authorize?{small}"), &ada_browser).await;
    assert_eq!(sent(&after).0, format!("{}/consent", base(&t)), "asked again");
    assert_eq!(ada.asks(t.get("/auth/me")).await.status, 200, "the person's own session goes on");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_token_for_another_place_counts_there_and_not_here() {
    let t = start().await;
    let eve = signed_in(&t, "eve@example.com").await;
    let place = client(&t, &eve, "Place").await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    let change = json!({ "allowedOrigins": ["https://app.example", "http://localhost:3000"] });
    let changed = ada.asks(t.ask(axum::http::Method::PATCH, &format!("/apps/{}", app.id)).json(&change)).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    let browser = browser(&t, "ada@example.com").await;
    let sql =
        "INSERT INTO app_domain (id, app_id, org_id, domain, token, created_at, status_since, is_own, verified_at)
               SELECT id, id, org_id, $2, 'x', 1, 1, TRUE, CAST($3 AS BIGINT) FROM app WHERE id = $1";
    let proven = db::params![&place.id, "place.example", 1_i64];
    t.janua.db.exec(sql, proven).await.expect("a domain");
    let claimed = db::params![&app.id, "claimed.example", None::<i64>];
    t.janua.db.exec(sql, claimed).await.expect("a claim");
    for unknown in [
        "https://claimed.example/mcp",
        "https://app.example/api",
        "https://example/",
        "https://xplace.example/",
        "https://place.example/#f",
        "place.example",
    ] {
        let answer = authorize(&t, Some(&ada), &asked(&app.id, &[("resource", unknown)])).await;
        assert_eq!(field(&answer, "error").as_deref(), Some("invalid_target"), "{unknown}");
    }
    for resource in ["https://mcp.place.example/v1", "https://place.example/mcp", "http://localhost:3000/mcp"] {
        let path = format!("/oauth/authorize?{}", asked(&app.id, &[("resource", resource)]));
        let mut answer = visit(&t, &path, &browser).await;
        let theirs = resource.contains("place.example");
        // Ada needs no consent for her own app, but for one to act at somebody else's place.
        assert_eq!(answer.header("location").contains("/consent?"), theirs, "{resource}");
        if theirs {
            let page = visit(&t, answer.header("location"), &browser).await;
            assert!(page.text.contains("Act for you at"), "{}", page.text);
            answer = decide(&t, &page, "allow", &browser).await;
        }
        let code = field(&answer, "code").unwrap_or_else(|| panic!("{resource}: {:?}", answer.headers));
        let other = redeem(&t, &app.id, &code, &[("resource", "https://place.example/else")]).await;
        assert_eq!(error_of(&other), (400, "invalid_target"));
        let given = redeem(&t, &app.id, &code, &[("resource", resource)]).await;
        assert_eq!(given.status, 200, "{}", given.text);
        let token = text(&given.body["access_token"]);
        assert_eq!(claims(&given.body["access_token"])["aud"], resource);
        assert_eq!(claims(&given.body["id_token"])["aud"], json!(app.id), "that one is for the client");
        for path in ["/oauth/userinfo", "/auth/me"] {
            assert_eq!(with_token(&t, path, &token).await.status, 401, "{path}");
        }
        // Whoever runs the place may look at it, beside the client.
        for (key, is_seen) in [(&app.secret, true), (&place.secret, theirs)] {
            let seen = form(&t, "/oauth/introspect", &[("token", &token)], Some(("x-service-app-key", key))).await;
            assert_eq!(seen.body["active"], json!(is_seen), "{resource}");
            assert!(!is_seen || (seen.body["aud"] == resource && seen.body["client_id"] == json!(app.id)));
        }
        let stranger = client(&t, &eve, "Stranger").await;
        let seen =
            form(&t, "/oauth/introspect", &[("token", &token)], Some(("x-service-app-key", &stranger.secret))).await;
        assert_eq!(seen.body, json!({ "active": false }));
    }
    t.run_jobs().await;
    t.finish().await;
}
