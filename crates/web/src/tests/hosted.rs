//! Making an account, forgetting a password, coming in by a link or an invitation: on pages, without a script.
use axum::http::Method;
use identity::testing::{FIREFOX, PASSWORD, mail_to, member, token_in};

use super::*;

/// The page behind the link in somebody's newest mail.
async fn follow_mail(t: &TestJanua, email: &str, path: &str) -> (Answer, String) {
    let mail = mail_to(t, email).expect("a mail");
    assert!(mail.contains(&format!("{}{path}?token=", base(t))), "{mail}");
    let token = token_in(&mail);
    let page = t.get(&format!("{path}?token={token}")).header("accept", "text/html").await;
    (page, token)
}

#[tokio::test]
async fn somebody_makes_an_account_and_signs_in() {
    let t = start().await;
    let page = t.get("/sign-up?continue=%2Fdevice").await;
    assert_eq!((page.status, hidden(&page, "continue")), (200, "/device".into()));
    let fields = |password: &'static str, name: &'static str, email: &'static str| {
        [("name", name), ("email", email), ("password", password), ("continue", "/device")]
    };
    for (password, name, email) in
        [("short", "Ada", "ada@example.com"), (PASSWORD, " ", "ada@example.com"), (PASSWORD, "Ada", "ada")]
    {
        let refused = submit(&t, "/sign-up", &fields(password, name, email), "").await;
        assert_eq!(refused.status, 400, "{email}");
        assert!(refused.text.contains("role=\"alert\""), "{}", refused.text);
    }
    let made = submit(&t, "/sign-up", &fields(PASSWORD, "Ada", "ada@example.com"), "").await;
    let waits = (made.status, made.header("location").to_owned());
    assert_eq!(waits, (303, "/check-email?continue=%2Fdevice".to_owned()), "{}", made.text);
    t.run_jobs().await;
    let early = submit(&t, "/sign-in", &[("email", "ada@example.com"), ("password", PASSWORD)], "").await;
    assert!(early.text.contains("Confirm your email first") || early.status == 401, "{}", early.text);
    let (page, token) = follow_mail(&t, "ada@example.com", "/auth/verify").await;
    assert!(page.text.contains("Confirm email"));
    assert_eq!(submit(&t, "/auth/verify", &[("token", &token)], "").await.status, 303);
    let entered = submit(&t, "/sign-in", &[("email", "ada@example.com"), ("password", PASSWORD)], "").await;
    assert!(entered.status == 303 && cookies(&entered).contains("service_access="), "{}", entered.text);
    // A second account for the same address is answered alike.
    let again = submit(&t, "/sign-up", &fields(PASSWORD, "Ada", "ada@example.com"), "").await;
    assert_eq!((again.status, again.header("location").to_owned()), waits);
    assert_eq!(again.text, made.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_scanner_that_looks_at_the_link_does_not_use_it_up() {
    let t = start().await;
    let fields = [("name", "Ada"), ("email", "ada@example.com"), ("password", PASSWORD)];
    assert_eq!(submit(&t, "/sign-up", &fields, "").await.status, 303);
    t.run_jobs().await;
    let token = token_in(&mail_to(&t, "ada@example.com").expect("a mail"));
    let link = format!("/auth/verify?token={token}");
    assert_eq!(t.ask(Method::HEAD, &link).await.status, 200);
    assert_eq!(t.get(&link).header("sec-purpose", "prefetch").await.status, 200);
    let page = t.get(&link).header("accept", "text/html,*/*").await;
    assert!(page.text.contains("Confirm email") && hidden(&page, "token") == token, "{}", page.text);
    assert!(page.header("content-security-policy").contains("form-action 'self'"));
    // Nothing was confirmed by looking.
    t.expects(&["ACCOUNT_CREATED"]).await;
    let form = || t.post("/auth/verify").header("content-type", "application/x-www-form-urlencoded");
    let confirmed = form().body(format!("token={token}")).await;
    assert!(confirmed.header("location").starts_with("/sign-in?done=confirmed&"), "{}", confirmed.text);
    assert!(cookies(&confirmed).is_empty(), "the link alone signs nobody in");
    let late = form().body(format!("token={token}")).await;
    assert!(late.status == 410 && late.text.contains("Link expired"), "{}", late.text);
    assert_eq!(t.get(&link).await.refusal(), (410, "token_spent"), "a program's GET means it, and it works once");
    t.finish().await;
}

#[tokio::test]
async fn a_program_confirms_an_email_by_the_link_itself() {
    let t = start().await;
    let fields = [("name", "Ada"), ("email", "ada@example.com"), ("password", PASSWORD)];
    submit(&t, "/sign-up", &fields, "").await;
    t.run_jobs().await;
    let link = format!("/auth/verify?token={}", token_in(&mail_to(&t, "ada@example.com").expect("a mail")));
    let confirmed = t.get(&link).header("accept", "application/json").await;
    assert_eq!(confirmed.body, json!({ "emailVerified": true, "email": "ada@example.com" }), "{}", confirmed.text);
    t.finish().await;
}

#[tokio::test]
async fn a_forgotten_password_is_replaced_and_a_link_signs_in() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    assert_eq!(t.get("/forgot-password").await.status, 200);
    let known = submit(&t, "/forgot-password", &[("email", "ada@example.com")], "").await;
    let unknown = submit(&t, "/forgot-password", &[("email", "nobody@example.com")], "").await;
    let said = |answer: &Answer| (answer.status, answer.text.clone(), answer.header("location").to_owned());
    assert_eq!(said(&known), said(&unknown));
    t.run_jobs().await;
    let (page, token) = follow_mail(&t, "ada@example.com", "/auth/reset-password").await;
    assert_eq!(hidden(&page, "token"), token);
    let weak = submit(&t, "/reset-password", &[("token", &token), ("password", "password1")], "").await;
    assert_eq!((weak.status, hidden(&weak, "token")), (400, token.clone()), "a weak one costs nobody the link");
    let new = "another horse battery staple";
    let done = submit(&t, "/reset-password", &[("token", &token), ("password", new)], "").await;
    assert_eq!(done.header("location"), "/account", "{}", done.text);
    assert!(cookies(&done).contains("service_access="), "signed in with it");
    assert_eq!(submit(&t, "/reset-password", &[("token", &token), ("password", new)], "").await.status, 410);
    t.run_jobs().await;

    let asked = submit(&t, "/sign-in/link", &[("email", "ada@example.com"), ("password", "")], "").await;
    assert!(asked.header("location").starts_with("/check-email?"), "{}", asked.text);
    t.run_jobs().await;
    // Looking at the link uses nothing up.
    follow_mail(&t, "ada@example.com", "/auth/magic-link/verify").await;
    let (page, token) = follow_mail(&t, "ada@example.com", "/auth/magic-link/verify").await;
    assert_eq!((page.status, hidden(&page, "token")), (200, token.clone()));
    let entered = submit(&t, "/sign-in/follow", &[("token", &token)], "").await;
    assert!(cookies(&entered).contains("service_access="), "{}", entered.text);
    assert_eq!(submit(&t, "/sign-in/follow", &[("token", &token)], "").await.status, 410);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_invitation_is_accepted_by_newcomers_and_by_members() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = ada.asks(t.post("/org").json(&json!({ "name": "Engines" }))).await.body;
    let members = format!("/org/{}/members", text(&org["id"]));
    member(&t, "bob@example.com").await;
    for email in ["new@example.com", "bob@example.com"] {
        let asked = ada.asks(t.post(&members).json(&json!({ "email": email, "role": "member" }))).await;
        assert_eq!(asked.status, 200, "{}", asked.text);
    }
    t.run_jobs().await;
    let (page, token) = follow_mail(&t, "new@example.com", "/auth/accept-invite").await;
    assert!(page.text.contains("Join Engines") && page.text.contains("name=\"password\""), "{}", page.text);
    let weak = [("token", &*token), ("name", "New"), ("password", "short")];
    let refused = submit(&t, "/accept-invite", &weak, "").await;
    assert_eq!(
        (refused.status, refused.text.contains("name=\"name\" type=\"text\" value=\"New\"")),
        (400, true),
        "the name is kept"
    );
    let good = [("token", &*token), ("name", "New"), ("password", PASSWORD)];
    let entered = submit(&t, "/accept-invite", &good, "").await;
    assert!(cookies(&entered).contains("service_access="), "{}", entered.text);
    let console = format!("/console/orgs/{}", text(&org["id"]));
    assert_eq!(entered.header("location"), console);
    assert_eq!(submit(&t, "/accept-invite", &good, "").await.status, 410);
    // An account that was confirmed while the page was open: its user signs in and comes back.
    let (_, token) = follow_mail(&t, "bob@example.com", "/auth/accept-invite").await;
    let late = [("token", &*token), ("name", "Bob"), ("password", PASSWORD)];
    let away = submit(&t, "/accept-invite", &late, "").await;
    assert_eq!(sent(&away).0, format!("{}/sign-in", base(&t)), "{}", away.text);
    assert_eq!(field(&away, "continue"), Some(format!("/auth/accept-invite?token={token}")));

    let (away, token) = follow_mail(&t, "bob@example.com", "/auth/accept-invite").await;
    let other = cookies(&entered);
    let page = visit(&t, &format!("/auth/accept-invite?token={token}"), &other).await;
    let parts = ["You are signed in as", "new@example.com", "Sign out and continue"];
    assert!(parts.iter().all(|part| page.text.contains(part)), "{}", page.text);
    assert!(!page.text.contains("Accept invitation"), "it is not theirs: {}", page.text);
    assert_eq!(sent(&away).0, format!("{}/sign-in", base(&t)), "who has an account signs in first");
    let onward = field(&away, "continue").expect("a way back");
    let fields = [("email", "bob@example.com"), ("password", PASSWORD), ("continue", &*onward)];
    let entered = submit(&t, "/sign-in", &fields, "").await;
    let bob = cookies(&entered);
    let page = t.get(entered.header("location")).header("cookie", &bob).await;
    assert!(page.text.contains("Join Engines") && !page.text.contains("name=\"password\""), "{}", page.text);
    let joined = submit(&t, "/accept-invite", &[("token", &token)], &bob).await;
    assert_eq!(joined.header("location"), console, "{}", joined.text);
    let page = visit(&t, &console, &cookies(&joined)).await;
    assert!(page.status == 200 && page.text.contains("Engines"), "{}", page.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn whoever_tries_too_often_solves_a_challenge_on_the_page() {
    let config = Config { rate_limits: kernel::config::Switch::On, ..Config::for_tests() };
    let t = TestJanua::start_with(config, feature).await;
    member(&t, "ada@example.com").await;
    let fields = [("email", "ada@example.com"), ("password", "wrong password")];
    let mut answer = submit(&t, "/sign-in", &fields, "").await;
    for _ in 0..5 {
        let ask = t.post("/sign-in").header("content-type", FORM).header("user-agent", FIREFOX);
        answer = ask.header("origin", &base(&t)).body(query(&fields)).await;
    }
    assert_eq!(answer.status, 403, "{}", answer.text);
    let token = solve(&answer.text);
    // Where there is nothing to guess, nobody solves anything: a link has no form.
    for _ in 0..20 {
        let fields = query(&[("email", "bob@example.com"), ("password", "wrong password")]);
        let ask = t.post("/sign-in").header("content-type", FORM).header("user-agent", FIREFOX);
        ask.header("origin", &base(&t)).body(fields).await;
    }
    let link = t.get("/oauth/authorize?client_id=x").header("user-agent", FIREFOX).await;
    assert_eq!(link.status, 400, "the client is unknown, and that is all: {}", link.text);
    let good = [("email", "ada@example.com"), ("password", PASSWORD), ("captcha", &*token)];
    let entered = submit(&t, "/sign-in", &good, "").await;
    assert!(cookies(&entered).contains("service_access="), "{}", entered.text);
    assert_ne!(submit(&t, "/sign-in", &good, "").await.status, 200, "a solution works once");
    t.run_jobs().await;
    t.finish().await;
}

/// Only a server that nobody else reaches, and that has no mail server, says where its mail is.
#[tokio::test]
async fn the_page_that_waits_names_the_outbox_on_a_developers_machine_alone() {
    let names_it = async |config: Config| {
        let t = TestJanua::start_with(config, feature).await;
        let page = t.get("/check-email").await;
        assert_eq!(page.status, 200, "{}", page.text);
        let named = page.text.contains("outbox");
        t.finish().await;
        named
    };
    assert!(names_it(Config::for_tests()).await);
    let public = Some("https://id.example.com".parse().unwrap());
    assert!(!names_it(Config { base_url: public, ..Config::for_tests() }).await, "others reach it");
    let everywhere = "0.0.0.0:0".parse().unwrap();
    assert!(!names_it(Config { listen: everywhere, ..Config::for_tests() }).await, "others may reach it");
    let smtp_url = Some("smtp://127.0.0.1:9".to_owned().into());
    assert!(!names_it(Config { smtp_url, ..Config::for_tests() }).await, "mail goes out");
}
