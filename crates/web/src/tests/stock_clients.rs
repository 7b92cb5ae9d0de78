//! Published clients as they come: what they send by default is understood.
use axum::http::Method;

use super::*;

const ELSEWHERE: &str = "https://spa.example";

async fn with_registration() -> TestJanua {
    let config = Config::for_tests()
        .with(|oauth: &mut identity::oauth::Settings| oauth.client_registration = kernel::config::Switch::On);
    TestJanua::start_with(config, feature).await
}

async fn register(t: &TestJanua, body: &Value) -> Answer {
    t.post("/oauth/register").json(body).await
}

#[tokio::test]
async fn a_parameter_without_a_value_counts_as_omitted() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    let empty = format!("{}&resource=&max_age=&prompt=&response_mode=&login_hint=", asked(&app.id, &[]));
    let code = field(&authorize(&t, Some(&ada), &empty).await, "code").expect("a code");
    let fields = [
        ("grant_type", "authorization_code"),
        ("client_id", &*app.id),
        ("client_secret", ""),
        ("code", &*code),
        ("redirect_uri", REDIRECT),
        ("code_verifier", VERIFIER),
        ("resource", ""),
        ("scope", ""),
        ("refresh_token", ""),
    ];
    let given = form(&t, "/oauth/token", &fields, None).await;
    assert_eq!(given.status, 200, "{}", given.text);
    let token = text(&given.body["access_token"]);
    let refresh = text(&given.body["refresh_token"]);
    let grant = [
        ("grant_type", "refresh_token"),
        ("refresh_token", &*refresh),
        ("client_id", &*app.id),
        ("client_secret", ""),
        ("resource", ""),
        ("scope", ""),
    ];
    let turned = form(&t, "/oauth/token", &grant, None).await;
    assert_eq!(turned.status, 200, "{}", turned.text);
    // Twice without a value is still nothing; an empty one that is needed is missing.
    let nothing =
        form(&t, "/oauth/token", &[("grant_type", ""), ("grant_type", ""), ("client_id", &app.id)], None).await;
    assert_eq!(error_of(&nothing), (400, "invalid_request"));
    let ended = [("token", &*token), ("token_type_hint", ""), ("client_id", &*app.id), ("client_secret", "")];
    assert_eq!(form(&t, "/oauth/revoke", &ended, None).await.status, 200);
    let begun = form(&t, "/auth/device/code", &[("client_id", ""), ("client_secret", ""), ("scope", "")], None).await;
    assert_eq!(begun.status, 200, "{}", begun.text);
    t.run_jobs().await;
    t.finish().await;
}

async fn preflight(t: &TestJanua, origin: &str, method: &str, path: &str) -> Answer {
    let ask = t.ask(Method::OPTIONS, path).header("origin", origin);
    let ask = ask.header("access-control-request-method", method);
    ask.header("access-control-request-headers", "authorization,content-type,mcp-protocol-version").await
}

#[tokio::test]
async fn pages_of_any_origin_use_what_public_clients_need_without_cookies() {
    let t = with_registration().await;
    let ada = signed_in(&t, "ada@example.com").await;
    client(&t, &ada, "App").await;
    t.run_jobs().await;
    let documents =
        ["/.well-known/openid-configuration", "/.well-known/oauth-authorization-server", "/.well-known/jwks.json"];
    for path in documents {
        for origin in [Some(ELSEWHERE), Some("null"), None] {
            let ask = t.get(path);
            let answer = match origin {
                Some(origin) => ask.header("origin", origin).await,
                None => ask.await,
            };
            assert_eq!(answer.header("access-control-allow-origin"), "*", "{path} {origin:?}");
            assert_eq!(answer.header("access-control-allow-credentials"), "", "{path}");
        }
    }
    let calls = ["/oauth/token", "/oauth/register", "/oauth/revoke", "/oauth/userinfo"].map(|path| ("POST", path));
    for (method, path) in calls.into_iter().chain([("GET", "/oauth/userinfo")]).chain(documents.map(|p| ("GET", p))) {
        let asked = preflight(&t, ELSEWHERE, method, path).await;
        assert_eq!(asked.status, 204, "{path}");
        assert_eq!(asked.header("access-control-allow-origin"), "*", "{path}");
        assert_eq!(asked.header("access-control-allow-credentials"), "", "{path}");
        assert!(asked.header("access-control-allow-methods").contains(method), "{path}");
        for name in ["authorization", "content-type", "mcp-protocol-version"] {
            assert!(asked.header("access-control-allow-headers").contains(name), "{path} {name}");
        }
    }
    // Everything else stays closed: what reads cookies, what proves a secret, what is no such route.
    let closed = [
        ("POST", "/oauth/introspect"),
        ("GET", "/oauth/authorize"),
        ("GET", "/auth/me"),
        ("POST", "/auth/login"),
        ("POST", "/auth/refresh"),
        ("POST", "/consent"),
        ("DELETE", "/oauth/token"),
        ("POST", "/nowhere"),
    ];
    for (method, path) in closed {
        let asked = preflight(&t, ELSEWHERE, method, path).await;
        assert_eq!(asked.header("access-control-allow-origin"), "", "{method} {path}");
        assert_eq!(asked.header("access-control-allow-methods"), "", "{method} {path}");
    }
    // The answers can be read, refusals too, and never with cookies.
    let answer = t.post("/oauth/token").header("origin", ELSEWHERE).json(&json!({})).await;
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (401, "*"));
    assert_eq!(answer.header("access-control-allow-credentials"), "");
    assert!(answer.header("access-control-expose-headers").contains("www-authenticate"));
    // An origin that an app registered keeps what it has: its pages may send cookies.
    tenancy::enter::read_origins(&t.janua).await.expect("origins");
    let known = t.get("/oauth/userinfo").header("origin", "https://app.example").await;
    assert_eq!(known.header("access-control-allow-origin"), "https://app.example");
    assert_eq!(known.header("access-control-allow-credentials"), "true");
    let cookie = format!("service_access={}", ada.access);
    let forged = t.post("/oauth/userinfo").header("origin", ELSEWHERE).header("cookie", &cookie).await;
    assert_eq!(forged.status, 403, "a cookie from an unknown origin is refused");
    t.run_jobs().await;
    t.finish().await;
}

/// The example of RFC 7591, 3.1.
fn example_of_the_standard() -> Value {
    json!({
        "redirect_uris": ["https://client.example.org/callback", "https://client.example.org/callback2"],
        "client_name": "My Example Client",
        "client_name#ja-Jpan-JP": "\u{30AF}\u{30E9}\u{30A4}\u{30A2}\u{30F3}\u{30C8}\u{540D}",
        "token_endpoint_auth_method": "client_secret_basic",
        "logo_uri": "https://client.example.org/logo.png",
        "jwks_uri": "https://client.example.org/my_public_keys.jwks",
        "example_extension_parameter": "example_value",
    })
}

#[tokio::test]
async fn registration_answers_what_was_registered_instead_of_refusing() {
    let t = with_registration().await;
    let device = "urn:ietf:params:oauth:grant-type:device_code";
    let made = register(&t, &example_of_the_standard()).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert_eq!(made.body["client_name"], "My Example Client");
    assert_eq!(made.body["redirect_uris"], example_of_the_standard()["redirect_uris"]);
    assert_eq!((&made.body["token_endpoint_auth_method"], made.body.get("client_secret")), (&json!("none"), None));
    let code = json!("authorization_code");
    for (grants, registered) in [
        (json!(["authorization_code", "refresh_token", device]), json!(["authorization_code", "refresh_token"])),
        (json!(["refresh_token", "authorization_code", "implicit"]), json!(["authorization_code", "refresh_token"])),
        (json!(["authorization_code"]), json!([code])),
        (json!(["authorization_code", "client_credentials"]), json!([code])),
        (json!([]), json!(["authorization_code", "refresh_token"])),
        (Value::Null, json!(["authorization_code", "refresh_token"])),
    ] {
        let mut body = json!({ "redirect_uris": ["http://127.0.0.1/"], "grant_types": grants });
        if body["grant_types"].is_null() {
            body.as_object_mut().expect("an object").remove("grant_types");
        }
        let made = register(&t, &body).await;
        assert_eq!(made.status, 201, "{grants}: {}", made.text);
        assert_eq!(made.body["grant_types"], registered, "{grants}");
        assert_eq!(made.body["response_types"], json!(["code"]));
    }
    for method in ["client_secret_basic", "client_secret_post", "private_key_jwt", "tls_client_auth", "none"] {
        let body = json!({ "redirect_uris": [REDIRECT], "token_endpoint_auth_method": method });
        assert_eq!(register(&t, &body).await.body["token_endpoint_auth_method"], "none", "{method}");
    }
    let kinds = json!({ "redirect_uris": [REDIRECT], "response_types": ["code", "token", "id_token token"] });
    assert_eq!(register(&t, &kinds).await.body["response_types"], json!(["code"]));
    // What can be no client at all is refused, in the standard's words.
    for (body, error) in [
        (json!({}), "invalid_redirect_uri"),
        (json!({ "redirect_uris": [] }), "invalid_redirect_uri"),
        (json!({ "redirect_uris": "https://a.example/cb" }), "invalid_redirect_uri"),
        (json!({ "redirect_uris": [7] }), "invalid_redirect_uri"),
        (json!({ "redirect_uris": null }), "invalid_redirect_uri"),
        (json!({ "redirect_uris": ["nowhere"] }), "invalid_redirect_uri"),
        (json!({ "redirect_uris": [REDIRECT], "grant_types": ["client_credentials"] }), "invalid_client_metadata"),
        (json!({ "redirect_uris": [REDIRECT], "grant_types": [device] }), "invalid_client_metadata"),
        (json!({ "redirect_uris": [REDIRECT], "grant_types": "authorization_code" }), "invalid_client_metadata"),
        (json!({ "redirect_uris": [REDIRECT], "client_name": 7 }), "invalid_client_metadata"),
    ] {
        assert_eq!(error_of(&register(&t, &body).await), (400, error), "{body}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_editors_own_scheme_is_registered_and_dangerous_ones_are_not() {
    let t = with_registration().await;
    let cursor = "cursor://anysphere.cursor-mcp/oauth/callback";
    let body = json!({ "client_name": "Cursor", "redirect_uris": [cursor, "com.example.app:/cb", "vscode://x.y/z"] });
    let made = register(&t, &body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let id = text(&made.body["client_id"]);
    for scheme in [
        "javascript:alert(1)",
        "javascript://cursor/%0aalert(1)",
        "JavaScript://cursor/%0aalert(1)",
        "data:text/html,x",
        "data://text/html,x",
        "file:///etc/passwd",
        "file://host/share",
        "about:blank",
        "about://blank",
        "blob:https://a.example/x",
        "blob://a.example/x",
        "ws://a.example/",
        "wss://a.example/",
        "ftp://a.example/",
        "vbscript://x/",
        "view-source://a.example/",
        "chrome://settings/",
        "intent://a.example/#x",
        "intent://a.example/",
        "mailto:a@b.example",
        "tel:112",
        "ms-settings:x",
        "cursor:",
        "cursor:/x",
        "http://a.example/cb",
    ] {
        let answer = register(&t, &json!({ "redirect_uris": [cursor, scheme] })).await;
        assert_eq!(error_of(&answer), (400, "invalid_redirect_uri"), "{scheme}");
    }
    // Anybody can claim the scheme, so the person is asked each time.
    signed_in(&t, "ada@example.com").await;
    let browser = browser(&t, "ada@example.com").await;
    for round in 0..2 {
        let request = asked(&id, &[("redirect_uri", cursor), ("scope", "openid")]);
        let answer = visit(&t, &format!("/oauth/authorize?{request}"), &browser).await;
        assert_eq!(sent(&answer).0, format!("{}/consent", base(&t)), "{round}");
        let page = visit(&t, answer.header("location"), &browser).await;
        assert!(page.header("content-security-policy").contains("form-action 'self' cursor:;"), "{round}");
        let decided = decide(&t, &page, "allow", &browser).await;
        assert!(decided.header("location").starts_with(&format!("{cursor}?code=")), "{:?}", decided.headers);
        let code = field(&decided, "code").expect("a code");
        let given = redeem(&t, &id, &code, &[("redirect_uri", cursor)]).await;
        assert_eq!(given.status, 200, "{}", given.text);
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn userinfo_says_what_is_wrong_with_a_token() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    assert_eq!(t.get("/oauth/userinfo").await.header("www-authenticate"), "Bearer");
    for path in ["/oauth/userinfo", "/auth/me"] {
        for bad in ["nonsense", "a.b.c", &format!("{}x", ada.access)] {
            let answer = with_token(&t, path, bad).await;
            assert_eq!(answer.status, 401);
            assert!(answer.header("www-authenticate").starts_with("Bearer error=\"invalid_token\""), "{path} {bad}");
        }
    }
    t.advance(std::time::Duration::from_mins(16));
    let late = with_token(&t, "/oauth/userinfo", &ada.access).await;
    assert!(late.header("www-authenticate").starts_with("Bearer error=\"invalid_token\""), "{:?}", late.headers);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_confidential_client_may_go_without_pkce_where_its_app_says_so() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    let path = format!("/apps/{}", app.id);
    let bare = asked(&app.id, &[("code_challenge", ""), ("code_challenge_method", "")]);
    assert_eq!(ada.asks(t.get(&path)).await.body["requirePkce"], true);
    assert_eq!(field(&authorize(&t, Some(&ada), &bare).await, "error").as_deref(), Some("invalid_request"));
    let changed = ada.asks(t.ask(Method::PATCH, &path).json(&json!({ "requirePkce": false }))).await;
    assert_eq!((changed.status, &changed.body["requirePkce"]), (200, &json!(false)), "{}", changed.text);

    let code = field(&authorize(&t, Some(&ada), &bare).await, "code").expect("a code without a challenge");
    let fields = [("grant_type", "authorization_code"), ("code", &*code), ("redirect_uri", REDIRECT)];
    // A public client has no proof but PKCE: neither its id nor a publishable key will do.
    let public = [fields[0], fields[1], fields[2], ("client_id", &*app.id)];
    assert_eq!(error_of(&form(&t, "/oauth/token", &public, None).await), (401, "invalid_client"));
    let by_key = form(&t, "/oauth/token", &fields, Some(("x-service-app-key", &app.publishable))).await;
    assert_eq!(error_of(&by_key), (401, "invalid_client"));
    // A verifier for a code that has no challenge is somebody else's code (RFC 9700, 2.1.1).
    let secret = ("client_secret", &*app.secret);
    let injected = [public[0], public[1], public[2], public[3], secret, ("code_verifier", VERIFIER)];
    assert_eq!(error_of(&form(&t, "/oauth/token", &injected, None).await), (400, "invalid_grant"));
    let proven = [public[0], public[1], public[2], public[3], secret];
    let given = form(&t, "/oauth/token", &proven, None).await;
    assert_eq!(given.status, 200, "{}", given.text);
    assert_eq!(claims(&given.body["id_token"])["nonce"], "n-1");

    // What is sent counts, whether it is required or not.
    for (changes, error) in [
        (&[("code_challenge_method", "plain")][..], "invalid_request"),
        (&[("code_challenge_method", "")], "invalid_request"),
        (&[("code_challenge", "")], "invalid_request"),
    ] {
        let answer = authorize(&t, Some(&ada), &asked(&app.id, changes)).await;
        assert_eq!(field(&answer, "error").as_deref(), Some(error), "{changes:?}");
    }
    let code = self::code(&t, &ada, &app).await;
    let without = [("grant_type", "authorization_code"), ("code", &*code), fields[2], public[3], secret];
    assert_eq!(error_of(&form(&t, "/oauth/token", &without, None).await), (400, "invalid_grant"));
    assert_eq!(redeem(&t, &app.id, &code, &[]).await.status, 200, "a public client with PKCE goes on as before");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn silent_renewal_works_on_the_port_that_a_developer_registered() {
    let t = start().await;
    let eve = signed_in(&t, "eve@example.com").await;
    let app = client(&t, &eve, "App").await;
    let (fixed, any) = ("http://localhost:5173/cb", "http://127.0.0.1/cb");
    let change = json!({ "redirectUris": [fixed, any, "com.example.app:/cb"] });
    assert_eq!(eve.asks(t.ask(Method::PATCH, &format!("/apps/{}", app.id)).json(&change)).await.status, 200);
    signed_in(&t, "ada@example.com").await;
    let browser = browser(&t, "ada@example.com").await;
    let ask = |uri: &str, prompt: &str| {
        let request = asked(&app.id, &[("redirect_uri", uri), ("prompt", prompt)]);
        let (t, browser) = (&t, &browser);
        async move { visit(t, &format!("/oauth/authorize?{request}"), browser).await }
    };
    for uri in ["http://127.0.0.1:49152/cb", "com.example.app:/cb", fixed] {
        assert_eq!(field(&ask(uri, "none").await, "error").as_deref(), Some("consent_required"), "{uri}");
        let page = visit(&t, ask(uri, "").await.header("location"), &browser).await;
        assert!(field(&decide(&t, &page, "allow", &browser).await, "code").is_some(), "{uri}");
    }
    assert!(field(&ask(fixed, "none").await, "code").is_some(), "what was registered to the letter");
    assert!(field(&ask(fixed, "").await, "code").is_some());
    // Any program can listen on a port that it chooses itself, or claim a scheme: those are asked each time.
    for uri in ["http://127.0.0.1:49152/cb", any, "http://localhost:5174/cb", "com.example.app:/cb"] {
        assert_eq!(field(&ask(uri, "none").await, "error").as_deref(), Some("consent_required"), "{uri}");
    }
    // The yes was for this port, and not for what else the app registered there.
    let page = visit(&t, ask(any, "").await.header("location"), &browser).await;
    assert!(field(&decide(&t, &page, "allow", &browser).await, "code").is_some());
    assert_eq!(field(&ask(fixed, "none").await, "error").as_deref(), Some("consent_required"));
    t.run_jobs().await;
    t.finish().await;
}
