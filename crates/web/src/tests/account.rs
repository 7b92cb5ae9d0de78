//! The account's pages: drawn from what the interface says to the person, and changed by it.
use std::time::Duration;

use identity::testing::{PASSWORD, member};

use kernel::testing::TestJanua;

use super::{act, base, browser, cookies, start, submit, text, visit, whole};

const PAGES: [&str; 6] =
    ["/account", "/account/security", "/account/sessions", "/account/apps", "/account/activity", "/account/data"];

#[tokio::test]
async fn who_is_not_signed_in_signs_in_and_comes_back() {
    let t = start().await;
    for page in PAGES.into_iter().chain(["/console/orgs/x", "/console/apps/x/keys?cursor=y"]) {
        let answer = t.get(page).await;
        assert_eq!(answer.status, 303, "{page}");
        let to = answer.header("location").to_owned();
        let back = url::Url::parse(&to).unwrap().query_pairs().next().unwrap().1.into_owned();
        assert_eq!((to.starts_with(&format!("{}/sign-in?", base(&t))), back.as_str()), (true, page));
    }
    t.finish().await;
}

#[tokio::test]
async fn every_page_is_there_and_says_what_is_so() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    for page in PAGES {
        let answer = visit(&t, page, &ada).await;
        assert_eq!(answer.status, 200, "{page}: {}", answer.text);
        assert_eq!(answer.header("cache-control"), "no-store", "{page}");
        assert!(answer.header("content-security-policy").contains("frame-ancestors 'none'"), "{page}");
    }
    assert!(visit(&t, "/account", &ada).await.text.contains("ada@example.com"));
    let activity = visit(&t, "/account/activity", &ada).await.text;
    assert!(activity.contains("Signed in"), "in words");
    assert!(activity.contains("methods: password") && !activity.contains("pwd"), "and no codes: {activity}");
    assert!(visit(&t, "/account/apps", &ada).await.text.contains("No connected apps"));
    let file = visit(&t, "/account/data/export", &ada).await;
    assert_eq!(file.body["user"]["email"], "ada@example.com");
    assert!(file.header("content-disposition").starts_with("attachment"));
    t.finish().await;
}

#[tokio::test]
async fn password_managers_are_led_to_places_that_are_there() {
    let t = TestJanua::start(whole).await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let passkeys = t.get("/.well-known/passkey-endpoints").await.body;
    let password = t.get("/.well-known/change-password").await.header("location").to_owned();
    for to in [password.as_str(), passkeys["enroll"].as_str().unwrap(), passkeys["manage"].as_str().unwrap()] {
        let (page, place) = to.strip_prefix(&base(&t)).unwrap().split_once('#').unwrap();
        let shown = visit(&t, page, &ada).await;
        assert!(shown.status == 200 && shown.text.contains(&format!("id=\"{place}\"")), "{to}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_form_changes_what_the_interface_lets_its_person_change() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let saved = act(&t, &ada, "PATCH /user/profile", "/account", &[("name", "Ada L."), ("bio", "<b>")]).await;
    assert_eq!((saved.status, saved.header("location")), (303, "/account"), "{}", saved.text);
    let page = visit(&t, "/account", &ada).await.text;
    assert!(page.contains("Ada L.") && page.contains("&lt;b&gt;") && !page.contains("<b>"), "{page}");
    let refused = act(&t, &ada, "PATCH /user/profile", "/account", &[("name", " ")]).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text.contains("<h1>Profile</h1>"), "the page again: {}", refused.text);
    t.finish().await;
}

#[tokio::test]
async fn what_is_wrong_is_said_at_the_form_and_passwords_are_not_sent_back() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let fields =
        [("form", "password"), ("currentPassword", "not it at all"), ("newPassword", "another horse battery 9")];
    let all: Vec<_> =
        [("call", "POST /auth/change-password"), ("back", "/account/security")].into_iter().chain(fields).collect();
    let refused = submit(&t, "/act", &all, &ada).await;
    assert_eq!(refused.status, 403);
    assert!(refused.text.contains("The current password is wrong."), "{}", refused.text);
    assert!(!refused.text.contains("not it at all") && !refused.text.contains("another horse"), "{}", refused.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p47_a_page_elsewhere_does_nothing_with_our_forms() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let body = super::query(&[("call", "DELETE /auth/me"), ("back", "/account")]);
    let form = || t.post("/act").header("content-type", super::FORM).header("cookie", &ada).body(body.clone());
    for (name, value) in [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
        assert_eq!(form().header(name, value).await.status, 403, "{name}: {value}");
    }
    assert_eq!(form().await.status, 403, "and nobody says where it comes from");
    let unsaid = form().header("origin", "null").header("sec-fetch-site", "cross-site").await;
    assert_eq!(unsaid.status, 403);
    assert_eq!(visit(&t, "/account", &ada).await.status, 200, "she is still there");
    t.finish().await;
}

#[tokio::test]
async fn a_form_leads_nowhere_but_to_our_own_interface_and_pages() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    for call in ["GET /auth/me", "POST https://evil.example/", "POST //evil.example/", "PATCH", ""] {
        assert_eq!(act(&t, &ada, call, "/account", &[]).await.status, 400, "{call}");
    }
    assert_eq!(act(&t, &ada, "POST /act", "/account", &[]).await.status, 400, "not even round in circles");
    assert_eq!(act(&t, &ada, "PATCH /user/profile", "https://evil.example/", &[("name", "x")]).await.status, 400);
    let saved = act(&t, &ada, "PATCH /user/profile", "/account", &[("name", "x"), ("then", "//evil.example")]).await;
    assert_eq!(saved.header("location"), "/account");
    assert_eq!(act(&t, &ada, "DELETE /no/such/thing", "/account", &[]).await.status, 404);
    t.finish().await;
}

#[tokio::test]
async fn an_authenticator_app_is_set_up_without_a_script() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let fields = [("form", "totp"), ("show", "1")];
    let send = async |call: &str, fields: &[(&str, &str)]| {
        let back = [("call", call), ("back", "/account/security")];
        let all: Vec<_> = back.into_iter().chain(fields.iter().copied()).collect();
        submit(&t, "/act", &all, &ada).await
    };
    let shown = send("POST /auth/2fa/setup", &fields).await;
    assert_eq!(shown.status, 200);
    assert!(shown.text.contains("data:image&#x2f;svg+xml;base64,"), "{}", shown.text);
    let secret = shown.text.split("id=\"totp-secret\"").nth(1).and_then(|rest| rest.split("value=\"").nth(1));
    let secret = secret.and_then(|rest| rest.split('"').next()).expect("the secret").to_owned();
    let totp =
        totp_rs::Builder::new().with_secret(totp_rs::Secret::try_from_base32(&secret).unwrap()).build().unwrap();
    let seconds = u64::try_from(t.janua.clock.now().0 / 1000).unwrap();
    let wrong = send("POST /auth/2fa/enable", &[("form", "totp-on"), ("show", "1"), ("code", "000000")]).await;
    assert_eq!(wrong.status, 403);
    assert!(wrong.text.contains("The code is wrong"), "{}", wrong.text);
    let code = totp.generate(seconds).to_string();
    let on = send("POST /auth/2fa/enable", &[("form", "totp-on"), ("show", "1"), ("code", &code)]).await;
    assert_eq!(on.status, 200, "{}", on.text);
    assert!(on.text.contains("id=\"recovery\""), "shown once");
    t.run_jobs().await;
    // It is not switched off without a code, and what else cannot be undone asks for one as soon as the last proof is old.
    t.advance(Duration::from_mins(11));
    let refused = send("POST /auth/2fa/disable", &[("form", "totp-off"), ("password:some", PASSWORD)]).await;
    assert_eq!(refused.status, 403);
    assert_eq!(refused.text.matches("id=\"totp-off-code\"").count(), 1, "one place for the code: {}", refused.text);
    let refused = send("POST /auth/2fa/recovery-codes/regenerate", &[("form", "recovery"), ("show", "1")]).await;
    assert!(refused.text.contains("recovery-proof"), "the code is asked for: {}", refused.text);
    let code = totp.generate(u64::try_from(t.janua.clock.now().0 / 1000).unwrap()).to_string();
    let off = send("POST /auth/2fa/disable", &[("form", "totp-off"), ("code:some", &code)]).await;
    assert_eq!(off.status, 303, "{}", off.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_session_is_ended_from_the_list_and_the_last_one_signs_out() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let (here, there) = (browser(&t, "ada@example.com").await, browser(&t, "ada@example.com").await);
    let list = t.get("/auth/sessions").header("cookie", &here).await;
    let other = list.body["sessions"].as_array().unwrap().iter().find(|session| session["current"] == false).unwrap();
    let call = format!("DELETE /auth/sessions/{}", text(&other["id"]));
    assert_eq!(act(&t, &here, &call, "/account/sessions", &[]).await.status, 303);
    assert_eq!(visit(&t, "/account", &there).await.status, 303, "to the sign-in page");
    let left = act(&t, &here, "DELETE /auth/sessions", "/account/sessions", &[("then", "/sign-in")]).await;
    assert_eq!(left.header("location"), "/sign-in");
    assert!(cookies(&left).contains("service_access=;") || cookies(&left).ends_with('='), "{}", cookies(&left));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn trusted_devices_are_shown_beside_the_sessions() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    assert!(visit(&t, "/account/sessions", &ada).await.text.contains("No trusted devices."));
    let me = t.get("/auth/me").header("cookie", &ada).await;
    let sql = "INSERT INTO trusted_device (hash, account_id, created_at, expires_at, user_agent, ip)
               VALUES ('a-mark', $1, $2, $3, $4, '192.0.2.7')";
    let now = t.janua.clock.now();
    let values =
        db::params![text(&me.body["id"]), now, now.plus(Duration::from_hours(1)), identity::testing::FIREFOX];
    t.janua.db.exec(sql, values).await.unwrap();
    let page = visit(&t, "/account/sessions", &ada).await.text;
    assert!(
        page.contains("192.0.2.7") && page.contains("DELETE &#x2f;auth&#x2f;trusted-devices&#x2f;a-mark"),
        "{page}"
    );
    let gone = act(&t, &ada, "DELETE /auth/trusted-devices/a-mark", "/account/sessions", &[]).await;
    assert_eq!(gone.status, 303, "{}", gone.text);
    assert!(visit(&t, "/account/sessions", &ada).await.text.contains("No trusted devices."));
    t.finish().await;
}

#[tokio::test]
async fn a_page_works_after_the_access_token_has_run_out() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    t.advance(Duration::from_mins(20));
    assert_eq!(t.get("/auth/me").header("cookie", &ada).await.status, 401, "programs renew it themselves");
    assert_eq!(visit(&t, "/account", &ada).await.status, 200);
    let saved = act(&t, &ada, "PATCH /user/profile", "/account", &[("name", "Ada L.")]).await;
    assert_eq!(saved.status, 303, "{}", saved.text);
    t.run_jobs().await;
    t.finish().await;
}
