//! What an attacker tried: races, remembered consents, pages and cookies of others.
use std::time::Duration;

use axum::http::Method;
use futures_util::future::join_all;
use identity::testing::{FIREFOX, PASSWORD, login, member};

use super::*;

const NEW: &str = "another horse battery staple";

/// Of those tokens the ones that still open something.
async fn alive(t: &TestJanua, tokens: &[String]) -> usize {
    let mut alive = 0;
    for token in tokens {
        alive += usize::from(with_token(t, "/auth/me", token).await.status == 200);
    }
    alive
}

#[tokio::test]
async fn p76_who_comes_with_the_old_password_while_it_is_changed_stays_out() {
    let config = Config { rate_limits: kernel::config::Switch::Off, ..Config::for_tests() };
    let t = TestJanua::start_with(config, feature).await;
    member(&t, "ada@example.com").await;
    let (mut old, mut new) = (PASSWORD, NEW);
    for _ in 0..3 {
        let ada = Person::of(&login(&t, "ada@example.com", old).await);
        let comes = (0..6).map(|_| async {
            let mut tokens = vec![];
            for _ in 0..3 {
                let entered = login(&t, "ada@example.com", old).await;
                tokens.extend(entered.body["accessToken"].as_str().map(str::to_owned));
            }
            tokens
        });
        let change = async {
            let body = json!({ "currentPassword": old, "newPassword": new });
            ada.asks(t.post("/auth/change-password").json(&body)).await
        };
        let (changed, tokens) = tokio::join!(change, join_all(comes));
        assert!(changed.status < 300, "{}", changed.text);
        let tokens: Vec<String> = tokens.into_iter().flatten().collect();
        assert_eq!(alive(&t, &tokens).await, 0, "of {}", tokens.len());
        (old, new) = (new, old);
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p06_a_stolen_session_makes_nothing_that_outlives_the_end_of_all_sessions() {
    let config = Config { rate_limits: kernel::config::Switch::Off, ..Config::for_tests() };
    let t = TestJanua::start_with(config, feature).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    for round in 0..4 {
        let ada = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
        let codes = (0..4).map(|_| async {
            let mut tokens = vec![];
            for _ in 0..4 {
                let answer = authorize(&t, Some(&ada), &asked(&app.id, &[])).await;
                if answer.status != 303 || !answer.header("location").contains("code=") {
                    break;
                }
                let given = redeem(&t, &app.id, &field(&answer, "code").expect("a code"), &[]).await;
                tokens.extend(given.body["access_token"].as_str().map(str::to_owned));
            }
            tokens
        });
        let devices = (0..3).map(|_| async {
            let begun = t.post("/auth/device/code").await.body;
            let body = json!({ "user_code": begun["user_code"] });
            ada.asks(t.post("/auth/device/verify").json(&body)).await;
            let given = t.post("/auth/device/token").json(&json!({ "device_code": begun["device_code"] })).await;
            given.body["accessToken"].as_str().map(str::to_owned).into_iter().collect::<Vec<_>>()
        });
        let end = async {
            if round % 2 == 0 {
                // A moment later, when some are under way.
                ada.asks(t.get("/auth/me")).await;
                ada.asks(t.get("/auth/sessions")).await;
            }
            ada.asks(t.ask(Method::DELETE, "/auth/sessions")).await
        };
        let (ended, codes, devices) = tokio::join!(end, join_all(codes), join_all(devices));
        assert_eq!(ended.status, 204, "{}", ended.text);
        let tokens: Vec<String> = codes.into_iter().chain(devices).flatten().collect();
        assert_eq!(alive(&t, &tokens).await, 0, "of {}", tokens.len());
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_consent_that_is_taken_back_stops_what_is_under_way() {
    let t = start().await;
    let eve = signed_in(&t, "eve@example.com").await;
    let app = client(&t, &eve, "App").await;
    let ada = signed_in(&t, "ada@example.com").await;
    let browser = browser(&t, "ada@example.com").await;
    let answer = visit(&t, &format!("/oauth/authorize?{}", asked(&app.id, &[])), &browser).await;
    let page = visit(&t, answer.header("location"), &browser).await;
    let code = field(&decide(&t, &page, "allow", &browser).await, "code").expect("a code");
    let begun = form(&t, "/auth/device/code", &[("client_id", &app.id)], None).await.body;
    let fields = [("user_code", begun["user_code"].as_str().expect("a code")), ("decision", "allow")];
    assert_eq!(submit(&t, "/device/decide", &fields, &browser).await.status, 200);
    let consents = ada.asks(t.get("/auth/consents")).await.body["consents"].clone();
    let path = format!("/auth/consents/{}", text(&consents[0]["id"]));
    assert_eq!(ada.asks(t.ask(Method::DELETE, &path)).await.status, 204);
    assert_eq!(error_of(&redeem(&t, &app.id, &code, &[]).await), (400, "invalid_grant"));
    let grant = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("client_id", &*app.id),
        ("device_code", begun["device_code"].as_str().expect("a code")),
    ];
    assert_eq!(error_of(&form(&t, "/oauth/token", &grant, None).await), (400, "access_denied"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_app_learns_of_its_people_what_they_let_it_know() {
    let t = start().await;
    let eve = signed_in(&t, "eve@example.com").await;
    let app = client(&t, &eve, "App").await;
    let browser = {
        member(&t, "ada@example.com").await;
        browser(&t, "ada@example.com").await
    };
    let sql = "UPDATE app SET has_webhooks = $2 WHERE id = $1";
    t.janua.db.exec(sql, db::params![&app.id, true]).await.expect("a listener");
    let people = |search: &'static str| {
        let (t, eve, path) = (&t, &eve, format!("/apps/{}/users{search}", app.id));
        async move { eve.asks(t.get(&path)).await.body["users"].clone() }
    };
    for (scope, email, name) in [
        ("openid", json!(null), json!("")),
        ("openid email", json!("ada@example.com"), json!("")),
        ("openid profile", json!("ada@example.com"), json!("Ada")),
    ] {
        let path = format!("/oauth/authorize?{}", asked(&app.id, &[("scope", scope)]));
        let answer = visit(&t, &path, &browser).await;
        let page = visit(&t, answer.header("location"), &browser).await;
        let code = field(&decide(&t, &page, "allow", &browser).await, "code").expect("a code");
        assert_eq!(redeem(&t, &app.id, &code, &[]).await.status, 200);
        let seen = people("").await;
        assert_eq!((&seen[0]["email"], &seen[0]["name"]), (&email, &name), "{scope}: {seen}");
        let found = people("?search=ada").await;
        assert_eq!(found.as_array().map(Vec::len), Some(usize::from(!email.is_null())), "nor by searching for it");
        // Nor by what it is told of.
        let sql = "SELECT facts FROM app_event WHERE webhook = 'user.signed_in' ORDER BY id DESC LIMIT 1";
        let (facts,): (Value,) = t.janua.db.one(sql, vec![]).await.expect("an event");
        assert_eq!(facts["user"].get("email").cloned().unwrap_or_default(), email, "{facts}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_yes_to_one_program_on_a_machine_is_none_to_the_next() {
    let t = start().await;
    let eve = signed_in(&t, "eve@example.com").await;
    let app = client(&t, &eve, "App").await;
    member(&t, "ada@example.com").await;
    let browser = browser(&t, "ada@example.com").await;
    for uri in ["http://127.0.0.1:1234/cb", "http://127.0.0.1:1234/cb", "com.example.app:/cb"] {
        let path = format!("/oauth/authorize?{}", asked(&app.id, &[("redirect_uri", uri)]));
        let answer = visit(&t, &path, &browser).await;
        assert_eq!(sent(&answer).0, format!("{}/consent", base(&t)), "{uri}");
        let page = visit(&t, answer.header("location"), &browser).await;
        assert!(field(&decide(&t, &page, "allow", &browser).await, "code").is_some());
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_code_from_before_the_second_factor_and_a_replayed_answer_give_nothing() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    // An answer of the token endpoint is not kept for who sends the same key again.
    let first = code(&t, &ada, &app).await;
    let fields = query(&[
        ("grant_type", "authorization_code"),
        ("client_id", &app.id),
        ("code", &first),
        ("redirect_uri", REDIRECT),
        ("code_verifier", VERIFIER),
    ]);
    let ask = || t.post("/oauth/token").header("content-type", FORM).header("idempotency-key", "the-same-key");
    assert_eq!(ask().body(fields.clone()).await.status, 200);
    assert_eq!(error_of(&ask().body(fields).await), (400, "invalid_grant"));
    let weak = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    let early = code(&t, &weak, &app).await;
    let set_up = ada.asks(t.post("/auth/2fa/setup")).await;
    let totp = totp_rs::Totp::from_url(set_up.body["otpauthUri"].as_str().expect("a secret")).expect("a secret");
    let now = totp.generate(u64::try_from(t.janua.clock.now().0 / 1000).unwrap()).to_string();
    assert_eq!(ada.asks(t.post("/auth/2fa/enable").json(&json!({ "code": now }))).await.status, 200);
    assert_eq!(error_of(&redeem(&t, &app.id, &early, &[]).await), (400, "invalid_grant"));
    // Sending a device away needs no proof.
    let begun = t.post("/auth/device/code").await.body;
    let body = json!({ "user_code": begun["user_code"], "approve": false });
    assert_eq!(weak.asks(t.post("/auth/device/verify").json(&body)).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_neighbouring_host_puts_nobody_in_front_of_a_page_and_a_host_writes_no_policy() {
    let config = Config { base_url: Some("https://id.example".parse().expect("an address")), ..Config::for_tests() };
    let t = TestJanua::start_with(config, feature).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    let path = format!("/oauth/authorize?{}", asked(&app.id, &[]));
    for tossed in [format!("service_access={}", ada.access), format!("service_refresh={}", ada.refresh)] {
        let answer = t.get(&path).header("cookie", &tossed).header("user-agent", FIREFOX).await;
        assert_eq!(sent(&answer).0, "https://id.example/sign-in", "{tossed}");
    }
    let own = t.get(&path).header("cookie", &format!("__Host-service_access={}", ada.access)).await;
    assert!(field(&own, "code").is_some());
    let odd = "https://x;sandbox,y/cb";
    let made = ada.asks(t.post("/apps").json(&json!({ "name": "Odd", "redirectUris": [odd] }))).await;
    if made.status == 200 {
        let query = asked(made.body["id"].as_str().expect("an id"), &[("redirect_uri", odd)]);
        let page =
            t.get(&format!("/sign-in?{}", super::query(&[("continue", &format!("/oauth/authorize?{query}"))]))).await;
        assert!(!page.header("content-security-policy").contains("sandbox"));
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn nobody_is_sent_on_by_a_client_that_anybody_can_be() {
    let config = Config::for_tests()
        .with(|oauth: &mut identity::oauth::Settings| oauth.client_registration = kernel::config::Switch::On);
    let t = TestJanua::start_with(config, feature).await;
    let body = json!({ "redirect_uris": [REDIRECT], "client_name": "Janua\u{202e} Console" });
    let made = t.post("/oauth/register").json(&body).await.body;
    assert_eq!(made["client_name"], "Janua Console");
    let id = text(&made["client_id"]);
    for changes in [&[("response_type", "")][..], &[("prompt", "none")], &[("code_challenge", "")]] {
        let answer = authorize(&t, None, &asked(&id, changes)).await;
        assert_eq!(answer.header("location"), "", "{changes:?}");
    }
    let asks = query(&[("client_id", &id), ("post_logout_redirect_uri", REDIRECT)]);
    assert_eq!(t.get(&format!("/oauth/logout?{asks}")).await.header("location"), "");
    member(&t, "ada@example.com").await;
    let browser = browser(&t, "ada@example.com").await;
    let answer = visit(&t, &format!("/oauth/authorize?{}", asked(&id, &[])), &browser).await;
    let page = visit(&t, answer.header("location"), &browser).await;
    assert!(page.text.contains("registered itself"), "{}", page.text);
    t.advance(Duration::from_secs(1));
    t.run_jobs().await;
    t.finish().await;
}
