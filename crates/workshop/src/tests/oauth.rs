//! What an app does with tokens: gets them, looks at them, takes them back.
use std::time::Duration;

use super::*;

/// An app with a key of each kind.
struct Client {
    id: String,
    publishable: String,
    secret: String,
}

async fn client(t: &TestJanua, person: &Person, name: &str) -> Client {
    let app = id(&make_app(t, person, name).await).to_owned();
    let publishable = text(&make_key(t, person, &app, "publishable", "live").await["value"]);
    let secret = text(&make_key(t, person, &app, "secret", "live").await["value"]);
    Client { id: app, publishable, secret }
}

/// As clients of the standard send it.
async fn form(t: &TestJanua, path: &str, fields: &[(&str, &str)], header: Option<(&str, &str)>) -> Answer {
    let body = fields.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&");
    let ask = t.post(path).header("content-type", "application/x-www-form-urlencoded").body(body);
    match header {
        Some((name, value)) => ask.header(name, value).await,
        None => ask.await,
    }
}

fn basic(client: &Client) -> String {
    let plain = format!("{}:{}", client.id, client.secret);
    format!("Basic {}", data_encoding::BASE64.encode(plain.as_bytes()))
}

fn refusal(answer: &Answer) -> (u16, &str) {
    let fields: Vec<_> = answer.body.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["error", "error_description"], "{}", answer.text);
    assert_eq!(answer.header("content-type"), "application/json");
    (answer.status, answer.body["error"].as_str().unwrap())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_client_says_who_it_is_in_one_way() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (app, other) = (client(&t, &ada, "App").await, client(&t, &ada, "Other").await);
    let grant = ("grant_type", "client_credentials");
    let by_header = form(&t, "/oauth/token", &[grant], Some(("x-service-app-key", &app.secret))).await;
    assert_eq!(by_header.status, 200, "{}", by_header.text);
    assert_eq!((&by_header.body["token_type"], &by_header.body["expires_in"]), (&json!("Bearer"), &json!(900)));
    assert_eq!(by_header.header("cache-control"), "no-store");
    let by_basic = form(&t, "/oauth/token", &[grant], Some(("authorization", &basic(&app)))).await;
    assert_eq!(by_basic.status, 200, "{}", by_basic.text);
    let in_body = [grant, ("client_id", &app.id), ("client_secret", &app.secret)];
    assert_eq!(form(&t, "/oauth/token", &in_body, None).await.status, 200);
    let as_json = json!({ "grant_type": "client_credentials", "client_id": app.id, "client_secret": app.secret });
    assert_eq!(t.post("/oauth/token").json(&as_json).await.status, 200);

    // P12: what may not be had this way.
    let public = [grant, ("client_id", app.id.as_str())];
    assert_eq!(refusal(&form(&t, "/oauth/token", &public, None).await), (400, "unauthorized_client"));
    let by_pk = form(&t, "/oauth/token", &[grant], Some(("x-service-app-key", &app.publishable))).await;
    assert_eq!(refusal(&by_pk), (400, "unauthorized_client"));
    for odd in ["password", "implicit", "authorization_code "] {
        let answer = form(&t, "/oauth/token", &[("grant_type", odd)], Some(("x-service-app-key", &app.secret))).await;
        assert_eq!(refusal(&answer), (400, "unsupported_grant_type"), "{odd}");
    }
    // Who is not who they say.
    assert_eq!(refusal(&form(&t, "/oauth/token", &[grant], None).await), (401, "invalid_client"));
    let mixed = [grant, ("client_id", app.id.as_str()), ("client_secret", other.secret.as_str())];
    assert_eq!(refusal(&form(&t, "/oauth/token", &mixed, None).await), (401, "invalid_client"));
    let pk = [grant, ("client_id", app.id.as_str()), ("client_secret", app.publishable.as_str())];
    assert_eq!(refusal(&form(&t, "/oauth/token", &pk, None).await), (401, "invalid_client"), "no secret");
    let wrong = form(&t, "/oauth/token", &[grant], Some(("authorization", "Basic bm9ib2R5Om5vdGhpbmc="))).await;
    assert_eq!(refusal(&wrong), (401, "invalid_client"));
    assert!(wrong.header("www-authenticate").starts_with("Basic"), "{:?}", wrong.headers);
    let made_up = form(&t, "/oauth/token", &[grant], Some(("x-service-app-key", "sk_live_made-up"))).await;
    assert_eq!(refusal(&made_up), (401, "invalid_client"));
    let twice = [grant, ("client_secret", app.secret.as_str())];
    let answer = form(&t, "/oauth/token", &twice, Some(("authorization", &basic(&app)))).await;
    assert_eq!(refusal(&answer), (400, "invalid_request"), "in two ways");
    let lies = [grant, ("client_id", other.id.as_str())];
    let answer = form(&t, "/oauth/token", &lies, Some(("x-service-app-key", &app.secret))).await;
    assert_eq!(refusal(&answer), (401, "invalid_client"), "an id that is not its own");
    let answer = form(&t, "/oauth/token", &[], Some(("x-service-app-key", &app.secret))).await;
    assert_eq!(refusal(&answer), (400, "invalid_request"));
    // What stands for an app is nobody.
    let token = text(&by_header.body["access_token"]);
    for path in ["/auth/me", "/oauth/userinfo", "/apps"] {
        let answer = t.get(path).header("authorization", &format!("Bearer {token}")).await;
        assert_eq!(answer.status, 401, "{path}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p14_p15_p16_an_app_sees_and_ends_its_own_tokens_and_no_others() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (app, other) = (client(&t, &ada, "App").await, client(&t, &ada, "Other").await);
    let entered = login_with(&t, "ada@example.com", &app.publishable).await;
    let (access, refresh) = (text(&entered.body["accessToken"]), text(&entered.body["refreshToken"]));
    let inspect = |token: String, key: String| {
        let t = &t;
        async move { form(t, "/oauth/introspect", &[("token", &token)], Some(("x-service-app-key", &key))).await }
    };
    let seen = inspect(access.clone(), app.publishable.clone()).await;
    assert_eq!((&seen.body["active"], &seen.body["client_id"]), (&json!(true), &json!(app.id)), "{}", seen.text);
    assert_eq!((&seen.body["sub"], &seen.body["username"]), (&json!(ada.id), &json!("ada@example.com")));
    let seen = inspect(refresh.clone(), app.secret.clone()).await;
    assert_eq!((&seen.body["active"], &seen.body["token_type"]), (&json!(true), &json!("refresh_token")));
    let nothing = json!({ "active": false });
    for token in [access.as_str(), &refresh, "random", "a.b.c", &ada.access, &ada.refresh] {
        let answer = inspect(token.to_owned(), other.secret.clone()).await;
        assert_eq!((answer.status, &answer.body), (200, &nothing), "{token}");
    }
    assert_eq!(inspect(ada.access.clone(), app.secret.clone()).await.body, nothing, "the service's own session");
    let unknown = form(&t, "/oauth/introspect", &[("token", &access)], None).await;
    assert_eq!(refusal(&unknown), (401, "invalid_client"));
    let by_id = [("token", access.as_str()), ("client_id", app.id.as_str())];
    assert_eq!(refusal(&form(&t, "/oauth/introspect", &by_id, None).await), (401, "invalid_client"), "an id alone");
    let own =
        form(&t, "/oauth/token", &[("grant_type", "client_credentials")], Some(("authorization", &basic(&app))))
            .await;
    let own = text(&own.body["access_token"]);
    assert_eq!(inspect(own.clone(), app.secret.clone()).await.body["sub"], json!(app.id));
    assert_eq!(inspect(own.clone(), other.secret.clone()).await.body, nothing);

    // The refresh token turns over, for its app alone.
    let grant = [("grant_type", "refresh_token"), ("refresh_token", refresh.as_str())];
    let foreign = form(&t, "/oauth/token", &grant, Some(("x-service-app-key", &other.secret))).await;
    assert_eq!(refusal(&foreign), (400, "invalid_grant"));
    let turned = form(&t, "/oauth/token", &grant, Some(("authorization", &basic(&app)))).await;
    assert_eq!(turned.status, 200, "{}", turned.text);
    let (access, second) = (text(&turned.body["access_token"]), text(&turned.body["refresh_token"]));
    let about = t.get("/oauth/userinfo").header("authorization", &format!("Bearer {access}")).await;
    assert_eq!((&about.body["sub"], &about.body["email_verified"]), (&json!(ada.id), &json!(true)));
    assert_eq!(inspect(refresh.clone(), app.secret.clone()).await.body, nothing, "the one before is no longer good");

    // Ending: unknown and foreign ones are answered alike; its own ends with what came of it.
    let revoke = |token: String, hint: &'static str, key: String| {
        let t = &t;
        async move {
            let fields = [("token", token.as_str()), ("token_type_hint", hint)];
            form(t, "/oauth/revoke", &fields, Some(("x-service-app-key", &key))).await
        }
    };
    t.happened().await;
    for (token, key) in
        [("random".to_owned(), &app.secret), (second.clone(), &other.secret), (ada.refresh.clone(), &app.secret)]
    {
        let answer = revoke(token, "refresh_token", key.clone()).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, ""));
    }
    t.expects(&[]).await;
    assert_eq!(inspect(second.clone(), app.secret.clone()).await.body["active"], true);
    assert_eq!(
        revoke(second.clone(), "access_token", app.publishable.clone()).await.status,
        200,
        "whatever the hint"
    );
    t.expects(&["SESSION_REVOKED"]).await;
    assert_eq!(inspect(second.clone(), app.secret.clone()).await.body, nothing);
    assert_eq!(inspect(access.clone(), app.secret.clone()).await.body, nothing);
    assert_eq!(t.get("/auth/me").header("authorization", &format!("Bearer {access}")).await.status, 401);
    // P13: a copy ends the session.
    let entered = login_with(&t, "ada@example.com", &app.publishable).await;
    let first = text(&entered.body["refreshToken"]);
    let grant = [("grant_type", "refresh_token"), ("refresh_token", first.as_str())];
    let key = Some(("x-service-app-key", app.publishable.as_str()));
    let turned = form(&t, "/oauth/token", &grant, key).await;
    t.advance(Duration::from_secs(11));
    assert_eq!(refusal(&form(&t, "/oauth/token", &grant, key).await), (400, "invalid_grant"));
    let second = text(&turned.body["refresh_token"]);
    let grant = [("grant_type", "refresh_token"), ("refresh_token", second.as_str())];
    assert_eq!(refusal(&form(&t, "/oauth/token", &grant, key).await), (400, "invalid_grant"), "the whole family");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_device_gets_its_tokens_at_the_token_endpoint_too() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (app, other) = (client(&t, &ada, "App").await, client(&t, &ada, "Other").await);
    let begun = t.post("/auth/device/code").header("x-service-app-key", &app.publishable).await.body;
    let code = text(&begun["device_code"]);
    let grant = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("device_code", code.as_str()),
        ("client_id", app.id.as_str()),
    ];
    assert_eq!(refusal(&form(&t, "/oauth/token", &grant, None).await), (400, "authorization_pending"));
    assert_eq!(refusal(&form(&t, "/oauth/token", &grant, None).await), (400, "slow_down"));
    let decided = ada.asks(t.post("/auth/device/verify").json(&json!({ "user_code": begun["user_code"] }))).await;
    assert_eq!(decided.status, 200);
    let foreign = form(&t, "/oauth/token", &grant[..2], Some(("x-service-app-key", &other.publishable))).await;
    assert_eq!(refusal(&foreign), (400, "invalid_grant"));
    let answer = form(&t, "/oauth/token", &grant, None).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let token = text(&answer.body["access_token"]);
    let key = Some(("x-service-app-key", app.publishable.as_str()));
    let seen = form(&t, "/oauth/introspect", &[("token", token.as_str())], key).await;
    assert_eq!(seen.body["active"], true, "{}", seen.text);
    assert_eq!(refusal(&form(&t, "/oauth/token", &grant, None).await), (400, "invalid_grant"), "once");
    // Where devices ask by themselves the answer bears the standard's names, too.
    let fields = [("scope", "openid+email"), ("client_secret", "")];
    let begun = form(&t, "/auth/device/code", &fields, key).await.body;
    assert_eq!(
        ada.asks(t.post("/auth/device/verify").json(&json!({ "user_code": begun["user_code"] }))).await.status,
        200
    );
    let device_code = text(&begun["device_code"]);
    let tokens = form(&t, "/auth/device/token", &[("device_code", device_code.as_str())], key).await;
    assert_eq!(tokens.status, 200, "{}", tokens.text);
    assert_eq!((&tokens.body["scope"], &tokens.body["token_type"]), (&json!("openid email"), &json!("Bearer")));
    assert_eq!((&tokens.body["expires_in"], tokens.body.get("refresh_token")), (&json!(900), None));
    assert_eq!(tokens.body["access_token"], tokens.body["accessToken"]);
    assert!(tokens.body["id_token"].is_string());
    t.run_jobs().await;
    t.finish().await;
}
