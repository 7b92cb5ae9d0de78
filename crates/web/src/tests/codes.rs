//! Codes: asked for, given, redeemed once, and bound to who asked.
use std::time::Duration;

use super::*;

#[tokio::test]
async fn a_code_becomes_tokens_that_say_who_signed_in_and_how() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    let answer = authorize(&t, Some(&ada), &asked(&app.id, &[])).await;
    let (to, said) = sent(&answer);
    assert_eq!(to, "https://app.example/cb");
    let names: Vec<_> = said.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["tenant", "code", "state", "iss"], "beside what the address had in it");
    assert_eq!((field(&answer, "state"), field(&answer, "iss")), (Some("xyz".into()), Some(base(&t))));

    let given = redeem(&t, &app.id, &field(&answer, "code").unwrap(), &[]).await;
    assert_eq!(given.status, 200, "{}", given.text);
    assert_eq!(given.header("cache-control"), "no-store");
    assert_eq!(given.body["scope"], "openid profile email offline_access");
    let (id, access) = (claims(&given.body["id_token"]), claims(&given.body["access_token"]));
    assert_eq!((&id["iss"], &id["aud"], &id["sub"]), (&json!(base(&t)), &json!(app.id), &json!(ada.id)));
    assert_eq!(
        (&id["nonce"], &id["email"], &id["email_verified"]),
        (&json!("n-1"), &json!("ada@example.com"), &json!(true))
    );
    assert_eq!((&id["amr"], &id["name"]), (&json!(["pwd"]), &json!("Ada")));
    assert!(id["auth_time"].as_i64() <= id["iat"].as_i64() && id["auth_time"].is_i64(), "{id}");
    let half = &crypto::digest(text(&given.body["access_token"]).as_bytes())[..16];
    assert_eq!(id["at_hash"], BASE64URL_NOPAD.encode(half));
    assert_eq!((&access["aud"], &access["client_id"]), (&json!(app.id), &json!(app.id)));
    assert_eq!(access["scope"], "openid profile email offline_access");

    let token = text(&given.body["access_token"]);
    let about = with_token(&t, "/oauth/userinfo", &token).await;
    assert_eq!((&about.body["sub"], &about.body["email"]), (&json!(ada.id), &json!("ada@example.com")));
    assert_eq!(with_token(&t, "/auth/me", &token).await.body["email"], "ada@example.com");
    // It stands for the person at the client, and opens nothing of theirs.
    for path in ["/auth/sessions", "/auth/export", "/apps", "/auth/consents", "/auth/audit-log"] {
        let refused = with_token(&t, path, &token).await;
        assert_eq!(refused.refusal(), (403, "insufficient_scope"), "{path}");
        assert!(refused.header("www-authenticate").contains("insufficient_scope"));
    }
    let change = t.post("/auth/change-password").json(&json!({ "currentPassword": "x", "newPassword": "y" }));
    let refused = change.header("authorization", &format!("Bearer {token}")).await;
    assert_eq!(refused.refusal(), (403, "insufficient_scope"));
    // Nor does it make codes for others.
    let again = t.get(&format!("/oauth/authorize?{}", asked(&app.id, &[])));
    assert_eq!(again.header("authorization", &format!("Bearer {token}")).await.status, 403);
    // An id token opens nothing at all (P05).
    assert_eq!(with_token(&t, "/oauth/userinfo", &text(&given.body["id_token"])).await.status, 401);

    // It goes on with the refresh token, and says the same.
    let grant = [
        ("grant_type", "refresh_token"),
        ("refresh_token", given.body["refresh_token"].as_str().unwrap()),
        ("client_id", app.id.as_str()),
    ];
    let turned = form(&t, "/oauth/token", &grant, None).await;
    assert_eq!(turned.status, 200, "{}", turned.text);
    let later = claims(&turned.body["id_token"]);
    assert_eq!((&later["auth_time"], &later["sid"], later.get("nonce")), (&id["auth_time"], &id["sid"], None));
    let more = [grant[0], ("refresh_token", turned.body["refresh_token"].as_str().unwrap()), grant[2]];
    let wrong =
        form(&t, "/oauth/token", &[more[0], more[1], more[2], ("resource", "https://else.example/")], None).await;
    assert_eq!(error_of(&wrong), (400, "invalid_target"));
    assert_eq!(form(&t, "/oauth/token", &more, None).await.status, 200, "a wish that is refused costs no token");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn scopes_say_what_a_client_learns_and_how_long_it_stays() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    for (scope, granted) in [("openid", "openid"), ("", ""), ("openid email made-up", "openid email")] {
        let ada = Person::of(&identity::testing::login(&t, "ada@example.com", identity::testing::PASSWORD).await);
        let answer = authorize(&t, Some(&ada), &asked(&app.id, &[("scope", scope)])).await;
        let given = redeem(&t, &app.id, &field(&answer, "code").unwrap(), &[]).await;
        assert_eq!((&given.body["scope"], given.body.get("refresh_token")), (&json!(granted), None), "{scope}");
        assert_eq!(given.body.get("id_token").is_some(), scope.contains("openid"), "{scope}");
        let token = text(&given.body["access_token"]);
        let knows_email = scope.contains("email");
        let about = with_token(&t, "/oauth/userinfo", &token).await.body;
        assert_eq!((about.get("email").is_some(), about.get("name")), (knows_email, None), "{scope}");
        let me = with_token(&t, "/auth/me", &token).await.body;
        assert_eq!((&me["name"], me["email"].is_string()), (&json!(""), knows_email), "{scope}");
        let said = claims(&given.body["access_token"]);
        assert_eq!((said["email"].is_string(), &said["orgId"]), (knows_email, &Value::Null), "{scope}");
        // Without offline_access it ends with its only token.
        t.advance(Duration::from_mins(16));
        assert_eq!(with_token(&t, "/oauth/userinfo", &token).await.status, 401);
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM session WHERE app_id = $1 AND ends_at > $2";
        let params = db::params![&app.id, t.janua.clock.now()];
        let (left,): (i64,) = t.janua.db.one(sql, params).await.expect("a count");
        assert_eq!(left, 0);
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p08_nobody_is_sent_to_an_address_that_is_not_registered() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    for uri in [
        "https://app.example/cb",
        "https://app.example/cb2",
        "https://app.example/cb/?tenant=1",
        "https://app.example/cb/../x?tenant=1",
        "https://app.example/cb?tenant=1&x=1",
        "https://app.example/cb?tenant=1#f",
        "http://app.example/cb?tenant=1",
        "https://app.example:8443/cb?tenant=1",
        "https://app.example@evil.example/cb?tenant=1",
        "https://app.example.evil.example/cb?tenant=1",
        "https://appXexample/cb?tenant=1",
        "http://127.0.0.1:1/other",
        "javascript:alert(1)",
        "",
    ] {
        for who in [Some(&ada), None] {
            let answer = authorize(&t, who, &asked(&app.id, &[("redirect_uri", uri)])).await;
            assert_eq!((answer.status, answer.header("location")), (400, ""), "{uri}");
            assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
            // It is named, and nothing leads there.
            let mut attributes = answer.text.split('"').skip(1).step_by(2);
            assert!(
                !attributes.any(|value| value.contains("evil") || value.contains("javascript")),
                "{}",
                answer.text
            );
        }
    }
    for id in ["", "made-up", "0198c6a2-7d1e-7000-8000-000000000000", "client_0198c6a27d1e70008000000000000000"] {
        let answer = authorize(&t, Some(&ada), &asked(id, &[])).await;
        assert_eq!((answer.status, answer.header("location")), (400, ""), "{id}");
    }
    let twice = format!("{}&redirect_uri=https%3A%2F%2Fevil.example", asked(&app.id, &[]));
    assert_eq!(authorize(&t, Some(&ada), &twice).await.status, 400);
    // Any port on loopback, and a native app's own scheme.
    for uri in ["http://127.0.0.1:49152/cb", "http://127.0.0.1/cb", "com.example.app:/cb"] {
        let answer = authorize(&t, Some(&ada), &asked(&app.id, &[("redirect_uri", uri)])).await;
        assert!(answer.header("location").starts_with(&format!("{uri}?code=")), "{uri}");
    }
    for bad in ["javascript:alert(1)", "data:text/html,x", "https://*.example/cb", "*"] {
        let made = ada.asks(t.post("/apps").json(&json!({ "name": "Bad", "redirectUris": [bad] }))).await;
        assert_eq!(made.refusal(), (400, "invalid"), "{bad}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p09_p12_what_is_not_supported_is_said_at_the_client() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    for (changes, error) in [
        (&[("code_challenge", "")][..], "invalid_request"),
        (&[("code_challenge_method", "")], "invalid_request"),
        (&[("code_challenge_method", "plain")], "invalid_request"),
        (&[("code_challenge", "too-short")], "invalid_request"),
        (&[("response_type", "")], "invalid_request"),
        (&[("response_type", "token")], "unsupported_response_type"),
        (&[("response_type", "id_token token")], "unsupported_response_type"),
        (&[("response_type", "code id_token")], "unsupported_response_type"),
        (&[("response_mode", "fragment")], "invalid_request"),
        (&[("prompt", "none login")], "invalid_request"),
        (&[("prompt", "create")], "invalid_request"),
        (&[("max_age", "soon")], "invalid_request"),
        (&[("request", "x.y.z")], "request_not_supported"),
        (&[("request_uri", "https://evil.example/")], "request_uri_not_supported"),
        (&[("resource", "https://nobody.example/")], "invalid_target"),
        (&[("resource", "not an address")], "invalid_target"),
    ] {
        let answer = authorize(&t, Some(&ada), &asked(&app.id, changes)).await;
        assert_eq!(field(&answer, "error").as_deref(), Some(error), "{changes:?}");
        assert_eq!((field(&answer, "iss"), field(&answer, "state")), (Some(base(&t)), Some("xyz".into())));
        assert_eq!(field(&answer, "code"), None);
    }
    let twice = format!("{}&scope=openid", asked(&app.id, &[]));
    assert_eq!(field(&authorize(&t, Some(&ada), &twice).await, "error").as_deref(), Some("invalid_request"));

    // The verifier is missing, wrong, or off by one; the code is none the worse for it.
    let code = code(&t, &ada, &app).await;
    let short = &VERIFIER[..43];
    for wrong in ["", short, &format!("{VERIFIER}x"), "x", &VERIFIER.replace('a', "b"), &challenge()] {
        let answer = redeem(&t, &app.id, &code, &[("code_verifier", wrong)]).await;
        assert_eq!(error_of(&answer), (400, "invalid_grant"), "{wrong}");
    }
    assert_eq!(redeem(&t, &app.id, &code, &[]).await.status, 200);
    for grant in ["password", "implicit", "urn:ietf:params:oauth:grant-type:saml2-bearer"] {
        let answer = redeem(&t, &app.id, &code, &[("grant_type", grant)]).await;
        assert_eq!(error_of(&answer), (400, "unsupported_grant_type"), "{grant}");
    }
    let own = [("grant_type", "client_credentials")];
    let answer = form(&t, "/oauth/token", &own, Some(("x-service-app-key", &app.publishable))).await;
    assert_eq!(error_of(&answer), (400, "unauthorized_client"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p10_a_second_use_takes_back_what_the_first_gave() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    for pause in [0, 30] {
        let code = code(&t, &ada, &app).await;
        let given = redeem(&t, &app.id, &code, &[]).await;
        let (access, refresh) = (text(&given.body["access_token"]), text(&given.body["refresh_token"]));
        assert_eq!(with_token(&t, "/auth/me", &access).await.status, 200);
        t.advance(Duration::from_secs(pause));
        t.happened().await;
        assert_eq!(error_of(&redeem(&t, &app.id, &code, &[]).await), (400, "invalid_grant"));
        t.expects(&["SESSION_REVOKED"]).await;
        assert_eq!(with_token(&t, "/auth/me", &access).await.status, 401, "{pause} s");
        let grant = [("grant_type", "refresh_token"), ("refresh_token", &*refresh), ("client_id", &*app.id)];
        assert_eq!(error_of(&form(&t, "/oauth/token", &grant, None).await), (400, "invalid_grant"));
        let key = Some(("x-service-app-key", app.secret.as_str()));
        for token in [&access, &refresh] {
            let seen = form(&t, "/oauth/introspect", &[("token", token)], key).await;
            assert_eq!(seen.body, json!({ "active": false }));
        }
    }
    // Used in time, or never.
    let first = code(&t, &ada, &app).await;
    t.advance(Duration::from_secs(59));
    assert_eq!(redeem(&t, &app.id, &first, &[]).await.status, 200);
    let second = code(&t, &ada, &app).await;
    t.advance(Duration::from_secs(61));
    assert_eq!(error_of(&redeem(&t, &app.id, &second, &[]).await), (400, "invalid_grant"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p10_of_thirty_two_at_once_one_gets_tokens() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    for _ in 0..3 {
        let code = code(&t, &ada, &app).await;
        let tries = (0..32).map(|_| redeem(&t, &app.id, &code, &[]));
        let answers = futures_util::future::join_all(tries).await;
        let good = answers.iter().filter(|answer| answer.status == 200).count();
        assert_eq!(good, 1);
        assert!(answers.iter().filter(|answer| answer.status != 200).all(|a| error_of(a) == (400, "invalid_grant")));
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM session WHERE app_id = $1 AND revoked_at IS NULL";
        let (left,): (i64,) = t.janua.db.one(sql, db::params![&app.id]).await.expect("a count");
        assert_eq!(left, 0, "the others were second uses");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p11_a_code_is_for_who_asked_and_dies_with_the_session_it_came_from() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (app, other) = (client(&t, &ada, "App").await, client(&t, &ada, "Other").await);
    let code_1 = code(&t, &ada, &app).await;
    for (client, changes) in [
        (&other.id, &[][..]),
        (&app.id, &[("redirect_uri", "https://app.example/other")]),
        (&app.id, &[("redirect_uri", "http://127.0.0.1/cb")]),
    ] {
        assert_eq!(error_of(&redeem(&t, client, &code_1, changes).await), (400, "invalid_grant"), "{changes:?}");
    }
    let secret = Some(("x-service-app-key", other.secret.as_str()));
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", &*code_1),
        ("redirect_uri", REDIRECT),
        ("code_verifier", VERIFIER),
    ];
    assert_eq!(error_of(&form(&t, "/oauth/token", &fields, secret).await), (400, "invalid_grant"));
    let secret = Some(("x-service-app-key", app.secret.as_str()));
    assert_eq!(form(&t, "/oauth/token", &fields, secret).await.status, 200, "nothing was lost by it");

    // The person signed out before the client came.
    let code_2 = code(&t, &ada, &app).await;
    assert_eq!(ada.asks(t.post("/auth/logout")).await.status, 204);
    assert_eq!(error_of(&redeem(&t, &app.id, &code_2, &[]).await), (400, "invalid_grant"));
    // Who came in through an app acts for this app, and not for others..
    let ada = Person::of(&identity::testing::login(&t, "ada@example.com", identity::testing::PASSWORD).await);
    let eve = signed_in(&t, "eve@example.com").await;
    let foreign = client(&t, &eve, "Foreign").await;
    let body = json!({ "email": "ada@example.com", "password": identity::testing::PASSWORD,
        "options": { "tokenDelivery": "body" } });
    let through =
        Person::of(&t.post("/auth/login").json(&body).header("x-service-app-key", &foreign.publishable).await);
    let sign_in = format!("{}/sign-in", base(&t));
    assert_eq!(sent(&authorize(&t, Some(&through), &asked(&app.id, &[])).await).0, sign_in);
    assert!(field(&authorize(&t, Some(&ada), &asked(&app.id, &[])).await, "code").is_some());
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_code_for_an_app_that_is_gone_gives_nothing() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "Shop").await;
    let secret = Some(("x-service-app-key", app.secret.as_str()));
    let exchange = async |code: &str| {
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", REDIRECT),
            ("code_verifier", VERIFIER),
        ];
        form(&t, "/oauth/token", &fields, secret).await
    };
    let (first, second) = (code(&t, &ada, &app).await, code(&t, &ada, &app).await);
    assert_eq!(exchange(&first).await.status, 200);
    // Nobody is told of it, as in the moment between the commit and the notice.
    t.janua.db.exec("DELETE FROM app WHERE id = $1", db::params![&app.id]).await.unwrap();
    assert_eq!(error_of(&exchange(&second).await), (400, "invalid_grant"));
    let sql = "SELECT id FROM session WHERE scopes IS NOT NULL";
    let left: Vec<(String,)> = t.janua.db.all(sql, vec![]).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    t.run_jobs().await;
    t.finish().await;
}
