//! What was tried against the forms of the account and the console, and against what stands behind them.
use std::{fmt::Write as _, time::Duration};

use identity::testing::{PASSWORD, Person, member, signed_in};
use kernel::{config::Config, testing::TestJanua};
use serde_json::json;

use super::{FORM, act, base, browser, client, cookies, feature, query, solve, start, submit, text, visit};

async fn org_of(t: &TestJanua, cookies: &str) -> String {
    let made = act(t, cookies, "POST /org", "/console", &[("name", "Own"), ("then", "/console/orgs/{id}")]).await;
    made.header("location").rsplit('/').next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn where_to_go_on_to_does_not_grow_with_the_answer() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let org = org_of(&t, &ada).await;
    // Each key would bring the next one twice.
    let mut keys = serde_json::Map::new();
    for n in 0..49 {
        keys.insert(format!("k{n:02}"), json!(format!("{{k{:02}}}{{k{:02}}}", n + 1, n + 1)));
    }
    let body = json!(keys).to_string();
    let call = format!("PATCH /orgs/{org}/metadata");
    let sent = act(&t, &ada, &call, "/account", &[("then", "/{k00}{id}"), ("m:body", &body)]).await;
    assert_eq!((sent.status, sent.header("location").len() < 100), (303, true), "{}", sent.header("location"));
    // Nor does an id lead anywhere that is none.
    let named = json!({ "id": "/evil.example" }).to_string();
    let sent = act(&t, &ada, &call, "/account", &[("then", "/{id}"), ("m:body", &named)]).await;
    assert!(!sent.header("location").contains("evil"), "{}", sent.header("location"));
    t.finish().await;
}

#[tokio::test]
async fn a_form_has_an_end() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let mut body = "call=PATCH /user/profile&back=/account".replace(' ', "%20").replace('/', "%2F");
    for n in 0..600 {
        write!(body, "&a{n}:list=1").expect("text");
    }
    let ask = t.post("/act").header("content-type", FORM).header("origin", &base(&t)).header("cookie", &ada);
    assert_eq!(ask.body(body).await.status, 400);
    t.finish().await;
}

#[tokio::test]
async fn who_brings_a_token_in_the_header_is_given_no_cookies() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let fields = [
        ("call", "POST /auth/change-password"),
        ("back", "/account"),
        ("currentPassword", PASSWORD),
        ("newPassword", "staple battery horse correct"),
    ];
    let form = || t.post("/act").header("content-type", FORM).body(query(&fields));
    let changed = ada.asks(form()).await;
    assert_eq!((changed.status, cookies(&changed).as_str()), (303, ""), "{}", changed.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p13_a_copied_refresh_token_is_noticed_on_a_page() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let refresh = ada.split("; ").find(|pair| pair.contains("refresh")).expect("a cookie").to_owned();
    // The page turns it over, as every client does.
    let page = visit(&t, "/account", &refresh).await;
    assert_eq!(page.status, 200);
    let next = cookies(&page);
    assert!(
        next.contains("service_access=") && next.contains("service_refresh=") && !next.contains(&refresh),
        "{next}"
    );
    // Twice at once is no theft.
    assert_eq!(visit(&t, "/account", &refresh).await.status, 200);
    t.advance(Duration::from_secs(11));
    assert_eq!(visit(&t, "/account", &refresh).await.status, 303, "the copy is refused");
    assert_eq!(visit(&t, "/account", &next).await.status, 303, "and nobody knows who of the two is right");
    t.finish().await;
}

#[tokio::test]
async fn p14_an_apps_refresh_token_opens_no_page_without_the_app() {
    let t = start().await;
    let eve = signed_in(&t, "eve@example.com").await;
    let app = client(&t, &eve, "Shop").await;
    let body = json!({ "email": "eve@example.com", "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    let entered = Person::of(&t.post("/auth/login").json(&body).header("x-service-app-key", &app.publishable).await);
    let cookie = format!("service_refresh={}", entered.refresh);
    assert_eq!(visit(&t, "/account", &cookie).await.status, 303);
    assert_eq!(act(&t, &cookie, "PATCH /user/profile", "/account", &[("name", "Z")]).await.header("location"), {
        format!("{}/sign-in?continue=", base(&t))
    });
    assert_eq!(eve.asks(t.get("/auth/me")).await.body["name"], "Ada", "nothing was done");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p06_what_a_form_was_answered_is_not_kept() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let made = act(&t, &ada, "POST /apps", "/console", &[("name", "Shop"), ("then", "/console/apps/{id}")]).await;
    let app = made.header("location").to_owned();
    let call = format!("POST /apps/{}/keys", app.rsplit('/').next().unwrap_or_default());
    let back = format!("{app}/keys");
    let fields = [
        ("call", call.as_str()),
        ("back", &back),
        ("form", "key"),
        ("show", "1"),
        ("type", "secret"),
        ("environment", "live"),
    ];
    let send = async || {
        let ask = t.post("/act").header("content-type", FORM).header("origin", &base(&t)).header("cookie", &ada);
        let sent = ask.header("idempotency-key", "the-same-key").body(query(&fields)).await;
        super::followed(&t, sent, &fields, &ada).await
    };
    assert!(send().await.text.contains("sk_live_"));
    assert_eq!(t.post("/auth/logout").header("origin", &base(&t)).header("cookie", &ada).await.status, 204);
    let again = send().await;
    assert_eq!((again.status, again.text.contains("sk_live_")), (303, false), "to the sign-in page");
    t.finish().await;
}

#[tokio::test]
async fn p46_a_changed_password_changes_the_cookies() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let fields = [("currentPassword", PASSWORD), ("newPassword", "quite another horse 7")];
    let changed = act(&t, &ada, "POST /auth/change-password", "/account/security", &fields).await;
    assert_eq!(changed.status, 303, "{}", changed.text);
    let next = cookies(&changed);
    for pair in ada.split("; ").filter(|pair| pair.contains("service_")) {
        assert!(!next.contains(pair), "{pair} goes on");
    }
    assert_eq!(visit(&t, "/account", &next).await.status, 200);
    let refresh = ada.split("; ").find(|pair| pair.contains("refresh")).expect("a cookie");
    assert_eq!(visit(&t, "/account", refresh).await.status, 303, "not even within the moment of a retry");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_crafted_form_breaks_no_page_and_brings_no_markup_in() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let org = org_of(&t, &ada).await;
    let made = act(&t, &ada, "POST /apps", "/console", &[("name", "Shop"), ("then", "/console/apps/{id}")]).await;
    let app = made.header("location").to_owned();
    let pages: [(&str, &[&str]); 10] = [
        ("/account", &["profile", "resend"]),
        ("/account/security", &["password", "totp", "totp-on", "sms", "sms-on", "recovery"]),
        ("/account/data", &["leave"]),
        ("/console", &["app", "org"]),
        (&format!("{app}/settings"), &["app", "end"]),
        (&format!("{app}/keys"), &["key"]),
        (&format!("{app}/domain"), &["domain", "look"]),
        (&format!("{app}/webhooks"), &["webhook"]),
        (&format!("/console/orgs/{org}/members"), &["invite"]),
        (&format!("/console/orgs/{org}/scim"), &["token"]),
    ];
    let call = format!("PATCH /orgs/{org}/metadata");
    let given = json!({ "qrSvg": "<img src=x onerror=alert(1)>", "secret": "<b>", "seen": "<i>" }).to_string();
    for (page, form) in pages.iter().flat_map(|(page, forms)| forms.iter().map(move |form| (*page, *form))) {
        let refused = [("call", "PATCH /nope"), ("back", page), ("form", form)];
        assert_eq!(submit(&t, "/act", &refused, &ada).await.status, 404, "{page} {form}");
        let shown = [("call", call.as_str()), ("back", page), ("form", form), ("show", "1"), ("m:body", &given)];
        let shown = submit(&t, "/act", &shown, &ada).await;
        assert_eq!(shown.status, 200, "{page} {form}: {}", shown.text);
        assert!(!shown.text.contains("<img src=x") && !shown.text.contains("<b>"), "{page} {form}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_app_of_others_leads_nobodys_organization() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let theirs = text(&ada.asks(t.post("/org").json(&json!({ "name": "Ada's" }))).await.body["id"]);
    let eve = signed_in(&t, "eve@example.com").await;
    let app = client(&t, &eve, "Shop").await;
    let body = json!({ "email": "ada@example.com", "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    let key = ("x-service-app-key", app.publishable.as_str());
    let through = Person::of(&t.post("/auth/login").json(&body).header(key.0, key.1).await);
    for path in ["audit-log", "invites", "scim-tokens"] {
        let asked = through.asks(t.get(&format!("/org/{theirs}/{path}"))).header(key.0, key.1).await;
        assert_eq!(asked.status, 403, "{path}");
    }
    let invite = json!({ "email": "eve@example.com", "role": "admin" });
    let asked = through.asks(t.post(&format!("/org/{theirs}/members")).json(&invite)).header(key.0, key.1).await;
    assert_eq!(asked.status, 403);
    let looked = through.asks(t.get(&format!("/org/{theirs}"))).header(key.0, key.1).await;
    assert_eq!(looked.refusal(), (403, "app_session"), "it may not even look");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn who_owns_the_platform_follows_the_settings() {
    let t = start().await;
    let link = async |t: &TestJanua| identity::first_owner::link(&t.janua).await.unwrap();
    let token = link(&t).await.expect("a link").split("token=").nth(1).unwrap_or_default().to_owned();
    let fields = [("token", token.as_str()), ("name", "Root"), ("email", "root@example.com"), ("password", PASSWORD)];
    let root = cookies(&submit(&t, "/first-owner", &fields, "").await);
    assert_eq!(t.get("/admin/queues").header("cookie", &root).await.status, 200);
    let boss = |config: &mut Config| {
        config.change(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["boss@example.com".into()]);
    };
    let t = t.restart_with(boss, feature).await;
    assert_eq!(
        t.get("/admin/queues").header("cookie", &root).await.status,
        403,
        "the list counts, where there is one"
    );
    t.finish().await;
}

#[tokio::test]
async fn a_start_with_owners_closes_the_door_for_good() {
    let t = start().await;
    let link = async |t: &TestJanua| identity::first_owner::link(&t.janua).await.unwrap();
    assert!(link(&t).await.is_some());
    let t = t
        .restart_with(
            |config| {
                config.change(|tenancy: &mut tenancy::Settings| {
                    tenancy.platform_owners = vec!["boss@example.com".into()];
                });
            },
            feature,
        )
        .await;
    assert!(link(&t).await.is_none());
    let t = t
        .restart_with(
            |config| config.change(|tenancy: &mut tenancy::Settings| tenancy.platform_owners.clear()),
            feature,
        )
        .await;
    assert!(link(&t).await.is_none(), "an old link does not come back to life");
    t.finish().await;
}

#[tokio::test]
async fn whoever_guesses_on_an_account_page_is_asked_to_prove_some_work_there() {
    let t = TestJanua::start_with(Config { rate_limits: kernel::config::Switch::On, ..Config::for_tests() }, feature)
        .await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let change = async |password: &str, captcha: &str| {
        let mut fields = vec![("call", "POST /auth/change-password"), ("back", "/account/security")];
        fields.extend([
            ("form", "password"),
            ("currentPassword", password),
            ("newPassword", "quite another horse 7"),
        ]);
        fields.extend([("captcha", captcha)].into_iter().filter(|_| !captcha.is_empty()));
        submit(&t, "/act", &fields, &ada).await
    };
    let mut last = change("wrong", "").await;
    for _ in 0..6 {
        last = change("wrong", "").await;
    }
    assert!(last.text.contains("class=\"captcha\""), "{}", last.text);
    let unproven = change(PASSWORD, "").await;
    assert_eq!(unproven.status, 403, "the right one does not help alone: {}", unproven.text);
    let changed = change(PASSWORD, &solve(&last.text)).await;
    assert_eq!(changed.status, 303, "{}", changed.text);
    let entered = [("email", "ada@example.com"), ("password", "quite another horse 7")];
    assert!(submit(&t, "/sign-in", &entered, "").await.header("set-cookie").contains("service_"), "the new one");
    t.run_jobs().await;
    t.finish().await;
}
