//! Mails in the name of an app, the pages that show mails, and the test mail.
use identity::testing::{PASSWORD, mail_to, member, signed_in};
use kernel::{
    config::Config,
    ports::SendError,
    testing::{Answer, TestJanua},
};
use serde_json::json;

use super::*;

const CURL: &str = "curl/8.5.0";

/// A key of an app with this name.
async fn key_of(t: &TestJanua, owner: &Person, name: &str) -> String {
    client(t, owner, name).await.publishable
}

#[tokio::test]
async fn a_person_who_came_through_an_app_gets_mails_in_its_name() {
    let t = start().await;
    let owner = signed_in(&t, "owner@example.com").await;
    let key = key_of(&t, &owner, "Tiny notes").await;
    let body = json!({ "email": "ada@example.com", "password": PASSWORD, "name": "BUY AT evil.example" });
    t.post("/auth/register").json(&body).header("x-service-app-key", &key).header("user-agent", CURL).await;
    t.run_jobs().await;
    let mail = mail_to(&t, "ada@example.com").expect("a mail");
    assert!(mail.contains("From: \"Tiny notes\" <"), "{mail}");
    assert!(mail.contains("Subject: Confirm your email for Tiny notes"), "{mail}");
    assert!(mail.contains("Sent by Janua (localhost:"), "{mail}");
    for stranger in ["BUY AT", "evil", "curl"] {
        assert!(!mail.contains(stranger), "nothing a stranger chose reaches an unproven reader: {mail}");
    }
    let token = identity::testing::token_in(&mail);
    let sent = t.mailbox.mails();
    let line = format!("/auth/verify?token={token}\r\n");
    assert!(sent.iter().any(|mail| mail.contains(&line)), "on the wire the link is whole, on a line of its own");
    t.post("/auth/forgot-password").json(&json!({ "email": "ada@example.com" })).header("user-agent", CURL).await;
    t.run_jobs().await;
    let unproven = mail_to(&t, "ada@example.com").expect("a mail");
    assert!(unproven.contains("Choose a new password") && !unproven.contains("Device:"), "{unproven}");
    assert_eq!(t.post("/auth/verify-email").json(&json!({ "token": token })).await.status, 200);
    let ask = json!({ "email": "ada@example.com" });
    t.post("/auth/magic-link/request").json(&ask).header("x-service-app-key", &key).header("user-agent", CURL).await;
    t.run_jobs().await;
    let mail = mail_to(&t, "ada@example.com").expect("a mail");
    assert!(mail.contains("Subject: Your sign-in link for Tiny notes"), "{mail}");
    assert!(mail.contains("\nDevice: curl\n") || mail.contains("\r\nDevice: curl\r\n"), "{mail}");
    t.post("/auth/magic-link/request").json(&ask).await;
    t.run_jobs().await;
    let mail = mail_to(&t, "ada@example.com").expect("a mail");
    assert!(mail.contains("Subject: Your sign-in link for Janua"), "without an app: {mail}");
    t.finish().await;
}

/// On the hosted pages the app is known by where the person is on the way to.
#[tokio::test]
async fn pages_on_the_way_to_an_app_send_mails_in_its_name() {
    let t = start().await;
    let owner = signed_in(&t, "owner@example.com").await;
    let shop = client(&t, &owner, "Tiny notes").await;
    let onward = format!("/oauth/authorize?{}", asked(&shop.id, &[]));
    let fields =
        [("email", "ada@example.com"), ("name", "Ada"), ("password", PASSWORD), ("continue", onward.as_str())];
    let page = submit(&t, "/sign-up", &fields, "").await;
    assert_eq!(page.status, 303, "{}", page.text);
    t.run_jobs().await;
    let mail = mail_to(&t, "ada@example.com").expect("a mail");
    assert!(mail.contains("Subject: Confirm your email for Tiny notes"), "{mail}");
    member(&t, "grace@example.com").await;
    submit(&t, "/forgot-password", &[("email", "grace@example.com"), ("continue", onward.as_str())], "").await;
    t.run_jobs().await;
    let mail = mail_to(&t, "grace@example.com").expect("a mail");
    assert!(mail.contains("From: \"Tiny notes\" <") && mail.contains("/auth/reset-password?token="), "{mail}");
    t.finish().await;
}

/// The browser of a sign-in says in which time zone it is, once; the account can say something else.
#[tokio::test]
async fn mails_and_pages_tell_the_time_in_the_zone_of_the_reader() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let zone_of = async |cookies: &str| t.get("/auth/me").header("cookie", cookies).await.body["timeZone"].clone();
    let sign_in = async |zone: &str| {
        let fields = [("email", "ada@example.com"), ("password", PASSWORD), ("time_zone", zone)];
        cookies(&submit(&t, "/sign-in", &fields, "").await)
    };
    assert!(zone_of(&sign_in("Middle/Earth").await).await.is_null());
    let ada = sign_in("Asia/Kolkata").await;
    assert_eq!(zone_of(&ada).await, "Asia/Kolkata");
    assert_eq!(zone_of(&sign_in("Europe/Zurich").await).await, "Asia/Kolkata", "the first one stays");
    t.post("/auth/magic-link/request").json(&json!({ "email": "ada@example.com" })).await;
    t.run_jobs().await;
    let mail = mail_to(&t, "ada@example.com").expect("a mail");
    let local = t.janua.clock.now().in_words_at(Some("Asia/Kolkata"));
    assert!(mail.contains(&format!("When: {local}")) && mail.contains("(Asia/Kolkata)"), "{mail}");
    let page = visit(&t, "/account/sessions", &ada).await;
    assert!(page.text.contains("<time datetime=") && !page.text.contains(" UTC</time>"), "{}", page.text);
    let wrong = [("form", "profile"), ("timeZone", "Middle/Earth"), ("name", "Ada"), ("bio", "")];
    let refused = act(&t, &ada, "PATCH /user/profile", "/account", &wrong).await;
    let shown = refused.text.replace("&#x2f;", "/");
    assert!(refused.status == 400 && shown.contains("Must be a time zone such as Europe/Zurich."), "{shown}");
    act(&t, &ada, "PATCH /user/profile", "/account", &[("timeZone", "")]).await;
    assert!(zone_of(&ada).await.is_null(), "an empty one takes it away");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn the_name_of_an_app_cannot_carry_a_link_into_a_mail() {
    let t = start().await;
    let owner = signed_in(&t, "owner@example.com").await;
    let key = key_of(&t, &owner, "Win at https://evil.example/x").await;
    let body = json!({ "email": "ada@example.com", "password": PASSWORD, "name": "Ada" });
    t.post("/auth/register").json(&body).header("x-service-app-key", &key).await;
    t.run_jobs().await;
    let mail = mail_to(&t, "ada@example.com").expect("a mail");
    assert!(mail.contains("Win at https evil example x"), "{mail}");
    assert!(!mail.contains("evil.example") && !mail.contains("https://"), "{mail}");
    t.finish().await;
}

#[tokio::test]
async fn in_development_every_mail_can_be_looked_at() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let list = visit(&t, "/console/mails", &ada).await;
    assert_eq!(list.status, 200, "{}", list.text);
    for name in ["verify", "new_device", "invite", "test", "reset_password"] {
        let path = format!("/console/mails/{name}");
        assert!(list.text.contains(&format!("href=\"{path}\"")), "{name}: {}", list.text);
        let page = visit(&t, &path, &ada).await;
        assert!(page.status == 200 && page.text.contains("Tiny notes"), "{name}: {}", page.text);
        let body = visit(&t, &format!("{path}/body"), &ada).await;
        assert_eq!(body.status, 200, "{name}");
        assert!(body.header("content-security-policy").contains("sandbox"), "{name}");
        assert!(body.text.contains("<base target=\"_blank\">"), "{name}");
    }
    assert_eq!(visit(&t, "/console/mails/nothing", &ada).await.status, 404);
    assert_eq!(visit(&t, "/console/mails", "").await.status, 303, "to the sign-in page");
    t.finish().await;

    let config = Config { base_url: Some("https://id.example".parse().expect("a URL")), ..Config::for_tests() };
    let t = TestJanua::start_with(config, feature).await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    for path in ["/console/mails", "/console/mails/verify", "/console/mails/verify/body"] {
        assert_eq!(visit(&t, path, &ada).await.status, 404, "{path}");
    }
    t.finish().await;
}

async fn send_test(t: &TestJanua, root: &str) -> Answer {
    let fields = [
        ("call", "POST /admin/mail/test"),
        ("back", "/console/platform"),
        ("form", "test-mail"),
        ("show", "1"),
        ("email", "postmaster@example.com"),
    ];
    submit(t, "/act", &fields, root).await
}

#[tokio::test]
async fn a_test_mail_goes_out_at_once_and_the_servers_answer_is_shown() {
    let config = Config::for_tests()
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["root@example.com".into()]);
    let t = TestJanua::start_with(config, whole).await;
    member(&t, "root@example.com").await;
    let root = browser(&t, "root@example.com").await;
    let page = visit(&t, "/console/platform", &root).await;
    assert!(page.text.contains("Send test email"), "{}", page.text);
    let sent = send_test(&t, &root).await;
    assert_eq!(sent.status, 200, "{}", sent.text);
    assert!(sent.text.contains("The email was accepted by"), "{}", sent.text);
    let mail = mail_to(&t, "postmaster@example.com").expect("without a job");
    assert!(mail.contains("Subject: Test email from Janua"), "{mail}");
    t.mailbox.refuse(Some(|| SendError::Never("550 5.1.1 no such user".into())));
    let refused = send_test(&t, &root).await;
    assert!(refused.text.contains("The mail server refused the email"), "{}", refused.text);
    assert!(refused.text.contains("550 5.1.1 no such user"), "{}", refused.text);
    t.mailbox.refuse(None);
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM audit_event WHERE type = 'MAIL_TESTED'";
    let (told,): (i64,) = t.janua.db.one(sql, vec![]).await.expect("a count");
    assert_eq!(told, 2, "both are in the audit log");
    let wrong = act(&t, &root, "POST /admin/mail/test", "/console/platform", &[("email", "nobody")]).await;
    assert_eq!(wrong.status, 400, "{}", wrong.text);
    t.finish().await;
}

#[tokio::test]
async fn the_quick_start_has_the_values_of_the_app_and_waits_for_the_first_sign_in() {
    let t = start().await;
    let owner = signed_in(&t, "ada@example.com").await;
    let made = owner.asks(t.post("/apps").json(&json!({ "name": "Shop" }))).await.body;
    let id = text(&made["id"]);
    let ada = browser(&t, "ada@example.com").await;
    let path = format!("/console/apps/{id}/quick-start");
    let page = visit(&t, &path, &ada).await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert!(page.text.contains("Register the redirect URL"), "{}", page.text);
    assert!(page.text.contains("Waiting for the first sign-in"), "{}", page.text);
    assert!(page.text.contains(&format!("data-first-sign-in=\"/apps/{id}/users?limit=1\"")), "{}", page.text);
    let call = format!("PATCH /apps/{id}");
    let added = act(&t, &ada, &call, &path, &[("redirectUris:list", "http://localhost:3000/callback")]).await;
    assert_eq!(added.status, 303, "{}", added.text);
    let page = visit(&t, &path, &ada).await;
    assert!(!page.text.contains("Register the redirect URL"), "{}", page.text);
    for title in ["JavaScript", "Node", "Python", "Go", "Rust", "curl"] {
        assert!(page.text.contains(&format!(">{title}</label>")), "{title}");
    }
    let shown = page.text.replace("&#x2f;", "/").replace("&#x27;", "'");
    assert_eq!(shown.matches(&format!("'{id}'")).count(), 2, "JavaScript in the browser and in Node");
    assert!(
        shown
            .contains(&format!("ISSUER={}\nCLIENT_ID={id}\nREDIRECT_URL=http://localhost:3000/callback\n", base(&t)))
    );
    assert!(!shown.contains("YOUR_CLIENT_ID") && !shown.contains("id.example.com"), "no example is left");
    assert!(!shown.contains(" style="), "the policy allows no style in a tag");

    let wish = json!({ "type": "publishable", "environment": "live" });
    let key = text(&owner.asks(t.post(&format!("/apps/{id}/keys")).json(&wish)).await.body["value"]);
    let body = json!({ "email": "ada@example.com", "password": PASSWORD });
    assert_eq!(t.post("/auth/login").json(&body).header("x-service-app-key", &key).await.status, 200);
    let page = visit(&t, &path, &ada).await;
    assert!(page.text.contains("A user has signed in."), "{}", page.text);
    assert!(!page.text.contains("data-first-sign-in"), "{}", page.text);
    assert_eq!(visit(&t, &path, "").await.status, 303, "to the sign-in page");
    t.run_jobs().await;
    t.finish().await;
}
