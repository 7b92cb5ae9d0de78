//! The way of a browser: sent to the sign-in page, through the second factor, asked when the client wants it, and back.
use std::time::Duration;

use identity::testing::{PASSWORD, login, member};

use super::*;

/// Follows a place of ours with the browser's cookies.
async fn open(t: &TestJanua, to: &str, cookies: &str) -> Answer {
    let path = to.strip_prefix(&base(t)).unwrap_or(to);
    let ask = t.get(path).header("accept", "text/html");
    if cookies.is_empty() { ask.await } else { ask.header("cookie", cookies).await }
}

async fn sign_in_at(t: &TestJanua, page: &Answer, email: &str, password: &str) -> Answer {
    let onward = hidden(page, "continue");
    submit(t, "/sign-in", &[("email", email), ("password", password), ("continue", &onward)], "").await
}

fn is_a_safe_page(answer: &Answer) {
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    assert_eq!(answer.header("referrer-policy"), "no-referrer");
    assert_eq!(answer.header("x-frame-options"), "DENY");
    let policy = answer.header("content-security-policy");
    assert!(policy.contains("frame-ancestors 'none'") && policy.contains("default-src 'none'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
}

#[tokio::test]
async fn whoever_is_not_signed_in_signs_in_and_comes_back() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "Tea & Biscuits").await;
    let answer = authorize(&t, None, &asked(&app.id, &[("login_hint", "ada@example.com")])).await;
    let page = open(&t, answer.header("location"), "").await;
    assert_eq!(page.status, 200);
    is_a_safe_page(&page);
    assert!(
        page.text.contains("Tea &amp; Biscuits") && page.text.contains("value=\"ada@example.com\""),
        "{}",
        page.text
    );
    assert!(page.header("content-security-policy").contains("form-action 'self' https://app.example;"));

    let wrong = sign_in_at(&t, &page, "ada@example.com", "wrong password").await;
    assert_eq!(wrong.status, 401);
    assert!(wrong.text.contains("role=\"alert\"") && cookies(&wrong).is_empty());
    is_a_safe_page(&wrong);
    assert_eq!(sign_in_at(&t, &page, "nonsense", "x").await.status, 400);

    let entered = sign_in_at(&t, &page, "ada@example.com", PASSWORD).await;
    assert_eq!(entered.status, 303, "{}", entered.text);
    let browser = cookies(&entered);
    let back = open(&t, entered.header("location"), &browser).await;
    let given = redeem(&t, &app.id, &field(&back, "code").expect("a code"), &[]).await;
    assert_eq!(given.status, 200, "{}", given.text);

    // The access cookie has run out, the session has not.
    t.advance(Duration::from_mins(30));
    let later = t.get(&format!("/oauth/authorize?{}", asked(&app.id, &[]))).header("cookie", &browser).await;
    assert!(field(&later, "code").is_some(), "{:?}", later.headers);
    // A session that is over is nobody's, and no error.
    let token = claims(&json!(browser.split(['=', ';']).nth(1)));
    t.janua
        .db
        .exec("UPDATE session SET revoked_at = 1 WHERE id = $1", db::params![text(&token["sid"])])
        .await
        .unwrap();
    t.janua.own::<std::sync::Arc<tenancy::enter::Live>>().hear(&db::Notice::StartOver);
    let gone = t.get(&format!("/oauth/authorize?{}", asked(&app.id, &[]))).header("cookie", &browser).await;
    assert_eq!(sent(&gone).0, format!("{}/sign-in", base(&t)));
    // By form, from another site: the same as by link.
    let posted = t.post("/oauth/authorize").header("content-type", FORM).header("origin", "https://app.example");
    let posted = posted.body(asked(&app.id, &[])).await;
    assert_eq!(sent(&posted).0, format!("{}/oauth/authorize", base(&t)));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn nobody_is_sent_on_to_a_place_that_is_not_ours_or_signed_in_by_a_page_that_is_not() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    for onward in [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "/\t/evil.example/",
        "\\/evil.example",
        "javascript:alert(1)",
        "/..//evil.example/",
        "evil.example",
    ] {
        let fields = [("email", "ada@example.com"), ("password", PASSWORD), ("continue", onward)];
        let answer = submit(&t, "/sign-in", &fields, "").await;
        let to = answer.header("location");
        assert!(to.is_empty() || (to.starts_with('/') && !to.starts_with("//")), "{onward}: {to}");
        let page = t.get(&format!("/sign-in?{}", query(&[("continue", onward)]))).await;
        let kept = hidden(&page, "continue");
        assert!(kept.is_empty() || (kept.starts_with('/') && !kept.starts_with("//")), "{onward}: {kept}");
    }
    let fields = query(&[("email", "ada@example.com"), ("password", PASSWORD)]);
    for (name, value) in [
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        for path in ["/sign-in", "/sign-in/factor", "/consent", "/device", "/device/decide"] {
            let ask = t.post(path).header("content-type", FORM).header(name, value).body(fields.clone());
            let answer = ask.await;
            assert_eq!(answer.refusal(), (403, "cross_site"), "{path} {name}: {value}");
            assert!(cookies(&answer).is_empty());
        }
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p18_what_the_client_says_comes_back_as_it_was_and_does_nothing_on_the_way() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "<script>alert(1)</script>").await;
    for state in ["\"><script>alert(1)</script>", "a\r\nset-cookie: x=1", &"s\"<".repeat(1366), "ä€😀 +%"] {
        let answer = authorize(&t, Some(&ada), &asked(&app.id, &[("state", state)])).await;
        assert_eq!(field(&answer, "state").as_deref(), Some(state));
        assert_eq!((field(&answer, "iss"), answer.header("set-cookie")), (Some(base(&t)), ""));
        let sent_away = authorize(&t, None, &asked(&app.id, &[("state", state), ("login_hint", state)])).await;
        let page = open(&t, sent_away.header("location"), "").await;
        is_a_safe_page(&page);
        assert!(!page.text.contains("<script>") && !page.text.contains("\"><script"), "{}", page.text);
        let entered = sign_in_at(&t, &page, "ada@example.com", PASSWORD).await;
        let back = open(&t, entered.header("location"), &cookies(&entered)).await;
        assert_eq!(field(&back, "state").as_deref(), Some(state), "all the way round");
    }
    let refused = authorize(&t, None, &asked("<script>alert(1)</script>", &[])).await;
    is_a_safe_page(&refused);
    assert!(!refused.text.contains("<script>"), "{}", refused.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_second_factor_is_asked_for_on_the_way() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    let before = ada.asks(t.get(&format!("/oauth/authorize?{}", asked(&app.id, &[])))).await;
    assert!(field(&before, "code").is_some());
    let set_up = ada.asks(t.post("/auth/2fa/setup")).await;
    let totp = totp_rs::Totp::from_url(set_up.body["otpauthUri"].as_str().expect("a secret")).expect("a secret");
    let now = |t: &TestJanua| totp.generate(u64::try_from(t.janua.clock.now().0 / 1000).unwrap()).to_string();
    let other = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    assert_eq!(ada.asks(t.post("/auth/2fa/enable").json(&json!({ "code": now(&t) }))).await.status, 200);
    // A session from before the factor is not enough any more.
    let answer = authorize(&t, Some(&other), &asked(&app.id, &[])).await;
    assert_eq!(sent(&answer).0, format!("{}/sign-in", base(&t)));
    let none = authorize(&t, Some(&other), &asked(&app.id, &[("prompt", "none")])).await;
    assert_eq!(field(&none, "error").as_deref(), Some("login_required"));

    // A long request has no room in the cookie of the sign-in that waits: the page comes at once.
    let long = authorize(&t, None, &asked(&app.id, &[("state", &"s\"<".repeat(1366))])).await;
    let page = open(&t, long.header("location"), "").await;
    let at_once = sign_in_at(&t, &page, "ada@example.com", PASSWORD).await;
    assert!(at_once.status == 200 && at_once.text.contains("authenticator app"), "{}", at_once.status);
    assert_eq!((cookies(&at_once), hidden(&at_once, "continue")), (String::new(), hidden(&page, "continue")));

    let page = open(&t, answer.header("location"), "").await;
    let waits = sign_in_at(&t, &page, "ada@example.com", PASSWORD).await;
    let factor = at_factor(&t, &waits).await;
    assert_eq!(factor.status, 200);
    assert!(factor.text.contains("authenticator app"), "{}", factor.text);
    // Loading the page again is no second sign-in: it is the same ticket.
    assert_eq!(hidden(&at_factor(&t, &waits).await, "ticket"), hidden(&factor, "ticket"));
    assert_eq!(t.get("/sign-in/factor").await.header("location"), "/sign-in", "another browser");
    is_a_safe_page(&factor);
    let (ticket, onward) = (hidden(&factor, "ticket"), hidden(&factor, "continue"));
    let fields = |code: &str| {
        [("ticket", ticket.clone()), ("continue", onward.clone()), ("hint", "Type it.".into()), ("code", code.into())]
    };
    let prove = |fields: [(&'static str, String); 4]| {
        let t = &t;
        async move { submit(t, "/sign-in/factor", &fields.each_ref().map(|(n, v)| (*n, v.as_str())), "").await }
    };
    let wrong = prove(fields("000000")).await;
    assert_eq!((wrong.status, hidden(&wrong, "ticket")), (401, ticket.clone()));
    t.advance(Duration::from_secs(31));
    let entered = prove(fields(&now(&t))).await;
    assert_eq!(entered.status, 303, "{}", entered.text);
    let back = open(&t, entered.header("location"), &cookies(&entered)).await;
    let given = redeem(&t, &app.id, &field(&back, "code").expect("a code"), &[]).await;
    let amr = claims(&given.body["id_token"])["amr"].clone();
    assert_eq!(amr, json!(["pwd", "otp", "mfa"]));
    // The ticket is gone: from the beginning.
    let again = prove(fields(&now(&t))).await;
    assert_eq!(again.status, 410);
    assert!(again.text.contains("action=\"/sign-in\""));
    let late = at_factor(&t, &waits).await;
    assert!(late.status == 410 && late.text.contains("action=\"/sign-in\""), "{}", late.text);
    assert!(
        entered
            .headers
            .get_all("set-cookie")
            .iter()
            .any(|line| line == "service_waiting=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0")
    );
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_client_may_want_a_fresh_sign_in_and_nobody_can_claim_one() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (app, other) = (client(&t, &ada, "App").await, client(&t, &ada, "Other").await);
    let sign_in = format!("{}/sign-in", base(&t));
    t.advance(Duration::from_mins(5));
    for (changes, is_asked) in [
        (&[("prompt", "login")][..], true),
        (&[("prompt", "select_account")], true),
        (&[("max_age", "0")], true),
        (&[("max_age", "299")], true),
        (&[("max_age", "301")], false),
        (&[("prompt", "none")], false),
    ] {
        let answer = authorize(&t, Some(&ada), &asked(&app.id, changes)).await;
        assert_eq!(
            (sent(&answer).0 == sign_in, field(&answer, "code").is_none()),
            (is_asked, is_asked),
            "{changes:?}"
        );
    }
    let none = authorize(&t, Some(&ada), &asked(&app.id, &[("prompt", "none"), ("max_age", "10")])).await;
    assert_eq!(field(&none, "error").as_deref(), Some("login_required"));
    let nobody = authorize(&t, None, &asked(&app.id, &[("prompt", "none")])).await;
    assert_eq!((field(&nobody, "error").as_deref(), field(&nobody, "iss")), (Some("login_required"), Some(base(&t))));

    // Once round is enough, also where every sign-in is too old at once.
    for change in [("prompt", "login"), ("max_age", "0")] {
        let ada = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
        t.advance(Duration::from_secs(1));
        let answer = authorize(&t, Some(&ada), &asked(&app.id, &[change])).await;
        let page = open(&t, answer.header("location"), "").await;
        let onward = hidden(&page, "continue");
        let stale = ada.asks(t.get(&onward)).await;
        assert_eq!(sent(&stale).0, sign_in, "the mark is not enough without the sign-in");
        t.advance(Duration::from_secs(20));
        let entered = sign_in_at(&t, &page, "ada@example.com", PASSWORD).await;
        let back = open(&t, entered.header("location"), &cookies(&entered)).await;
        assert!(field(&back, "code").is_some(), "{change:?}");
        // A mark of another's making, another client's, or an old one.
        let mark = Url::parse(&format!("{}{onward}", base(&t))).unwrap();
        let mark = mark.query_pairs().find(|(name, _)| name == "asked").unwrap().1.into_owned();
        let fresh = login(&t, "ada@example.com", PASSWORD).await;
        let fresh = Person::of(&fresh);
        let just_now = t.janua.clock.now().0 - 1000;
        let digest = mark.split_once('.').unwrap().1;
        for forged in ["1.x".to_owned(), just_now.to_string(), format!("{just_now}.{digest}"), format!("9{mark}")] {
            let answer = authorize(&t, Some(&fresh), &asked(&app.id, &[change, ("asked", &forged)])).await;
            assert_eq!(sent(&answer).0, sign_in, "{forged}");
        }
        let answer = authorize(&t, Some(&fresh), &asked(&other.id, &[change, ("asked", &mark)])).await;
        assert_eq!(sent(&answer).0, sign_in, "another client's");
        t.advance(Duration::from_mins(11));
        let answer = authorize(&t, Some(&fresh), &asked(&app.id, &[change, ("asked", &mark)])).await;
        assert_eq!(sent(&answer).0, sign_in, "an old mark");
    }
    // Somebody else is meant.
    let ada = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    let given = redeem(&t, &app.id, &code(&t, &ada, &app).await, &[]).await;
    let hint = text(&given.body["id_token"]);
    let bob = signed_in(&t, "bob@example.com").await;
    let answer = authorize(&t, Some(&bob), &asked(&app.id, &[("id_token_hint", &hint), ("prompt", "none")])).await;
    assert_eq!(field(&answer, "error").as_deref(), Some("login_required"));
    let answer = authorize(&t, Some(&ada), &asked(&app.id, &[("id_token_hint", &hint), ("prompt", "none")])).await;
    assert!(field(&answer, "code").is_some());
    t.run_jobs().await;
    t.finish().await;
}
