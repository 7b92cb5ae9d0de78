//! The way back is never lost: whatever mail a person needs on the way to an app, they end at the app, signed in.
use std::time::Duration;

use identity::testing::{PASSWORD, code_in, login, mail_to, member, token_in};

use super::*;

const BOB: &str = "bob@example.com";

/// An app of Ada's, and where people go on to who come from it.
async fn on_the_way(t: &TestJanua) -> (Client, String) {
    let ada = signed_in(t, "ada@example.com").await;
    let app = client(t, &ada, "Tiny Notes").await;
    let away = authorize(t, None, &asked(&app.id, &[])).await;
    (app, field(&away, "continue").expect("a way back"))
}

/// Opens a link in a mail as a browser does.
async fn open(t: &TestJanua, path: &str, cookies: &str) -> Answer {
    let ask = t.get(path).header("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    if cookies.is_empty() { ask.await } else { ask.header("cookie", cookies).await }
}

/// The person is signed in, and at the app: it gets a code, after they agreed.
async fn arrives(t: &TestJanua, entered: &Answer, app: &Client, onward: &str) {
    assert_eq!((entered.status, entered.header("location")), (303, onward), "{}", entered.text);
    let browser = cookies(entered);
    assert!(browser.contains("service_access="), "signed in: {browser}");
    let asks = visit(t, onward, &browser).await;
    let consent = visit(t, asks.header("location"), &browser).await;
    let back = decide(t, &consent, "allow", &browser).await;
    let given = redeem(t, &app.id, &field(&back, "code").expect("a code"), &[]).await;
    assert_eq!(given.status, 200, "{}", given.text);
}

/// Begins a sign-up on the way to somewhere; answers the browser's cookies.
async fn sign_up(t: &TestJanua, onward: &str) -> String {
    let fields = [("name", "Bob"), ("email", BOB), ("password", PASSWORD), ("continue", onward)];
    let waits = submit(t, "/sign-up", &fields, "").await;
    assert_eq!(waits.status, 303, "{}", waits.text);
    t.run_jobs().await;
    let browser = cookies(&waits);
    let page = visit(t, waits.header("location"), &browser).await;
    assert!(page.text.contains(BOB) && page.text.contains("6-digit code"), "{}", page.text);
    assert_eq!(hidden(&page, "continue"), onward);
    browser
}

fn verify_link(t: &TestJanua) -> String {
    format!("/auth/verify?token={}", token_in(&mail_to(t, BOB).expect("a mail")))
}

#[tokio::test]
async fn a_sign_up_confirmed_in_its_browser_ends_at_the_app() {
    let t = start().await;
    let (app, onward) = on_the_way(&t).await;
    let browser = sign_up(&t, &onward).await;
    let link = verify_link(&t);
    // Looking at it, even with the cookie, uses nothing up.
    let ahead =
        t.get(&link).header("accept", "text/html").header("cookie", &browser).header("sec-purpose", "prefetch");
    assert!(ahead.await.text.contains("Confirm email"));
    arrives(&t, &open(&t, &link, &browser).await, &app, &onward).await;
    let again = open(&t, &link, &browser).await;
    assert_eq!((again.status, hidden(&again, "continue")), (410, onward), "the way outlives the link");
    t.finish().await;
}

#[tokio::test]
async fn the_code_of_the_confirmation_mail_does_the_same_as_its_link() {
    let t = start().await;
    let (app, onward) = on_the_way(&t).await;
    let browser = sign_up(&t, &onward).await;
    let code = code_in(&mail_to(&t, BOB).expect("a mail"));
    let fields = |code| [("email", BOB), ("code", code), ("continue", onward.as_str())];
    for wrong in ["000000", "12"] {
        let wrong = if wrong == code { "111111" } else { wrong };
        let refused = submit(&t, "/check-email", &fields(wrong), &browser).await;
        assert_eq!(refused.status, 400, "{}", refused.text);
        assert!(
            refused.text.contains("id=\"code-error\"") && refused.text.contains("aria-invalid"),
            "{}",
            refused.text
        );
        assert!(cookies(&refused).is_empty());
    }
    let spaced = format!("{} {}", &code[..3], &code[3..]);
    arrives(&t, &submit(&t, "/check-email", &fields(&spaced), &browser).await, &app, &onward).await;
    t.finish().await;
}

#[tokio::test]
async fn in_another_browser_a_confirmed_person_signs_in_on_the_way_to_the_app() {
    let t = start().await;
    let (app, onward) = on_the_way(&t).await;
    sign_up(&t, &onward).await;
    let link = verify_link(&t);
    // A browser that began something else is another one, too.
    let others = submit(&t, "/forgot-password", &[("email", "eve@example.com")], "").await;
    for browser in ["", &cookies(&others)] {
        let page = open(&t, &link, browser).await;
        assert_eq!(page.status, 200, "{:?}", page.headers);
        assert!(page.text.contains("Tiny Notes") && page.text.contains("Confirm email"), "{}", page.text);
    }
    let token = link.split_once('=').expect("a token").1;
    let confirmed = submit(&t, "/auth/verify", &[("token", token)], &cookies(&others)).await;
    assert!(!cookies(&confirmed).contains("service_access="), "the link alone opens no account");
    let page = open(&t, confirmed.header("location"), "").await;
    assert!(page.text.contains("Email confirmed") && page.text.contains("Tiny Notes"), "{}", page.text);
    assert!(page.text.contains("value=\"bob@example.com\""), "{}", page.text);
    let fields = [("email", BOB), ("password", PASSWORD), ("continue", &hidden(&page, "continue"))];
    arrives(&t, &submit(&t, "/sign-in", &fields, "").await, &app, &onward).await;
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_code_typed_in_another_browser_confirms_and_signs_nobody_in() {
    let t = start().await;
    let (_, onward) = on_the_way(&t).await;
    sign_up(&t, &onward).await;
    let code = code_in(&mail_to(&t, BOB).expect("a mail"));
    let confirmed = submit(&t, "/check-email", &[("email", BOB), ("code", &code)], "").await;
    assert!(confirmed.header("location").starts_with("/sign-in?done=confirmed"), "{}", confirmed.text);
    assert!(cookies(&confirmed).is_empty());
    let page = open(&t, confirmed.header("location"), "").await;
    assert_eq!(hidden(&page, "continue"), onward, "as it was when the mail was requested");
    t.finish().await;
}

#[tokio::test]
async fn a_mail_that_is_sent_again_leads_on_as_the_first() {
    let t = start().await;
    let (app, onward) = on_the_way(&t).await;
    let browser = sign_up(&t, &onward).await;
    t.advance(Duration::from_hours(25));
    let late = open(&t, &verify_link(&t), &browser).await;
    assert_eq!((late.status, hidden(&late, "mail")), (410, "confirmation".into()), "{}", late.text);
    assert!(late.text.contains("Tiny Notes") && late.text.contains("value=\"bob@example.com\""), "{}", late.text);
    let again = [("email", BOB), ("mail", "confirmation"), ("continue", onward.as_str())];
    let sent = submit(&t, "/check-email/again", &again, &browser).await;
    t.run_jobs().await;
    let page = visit(&t, sent.header("location"), &cookies(&sent)).await;
    assert!(page.text.contains("We sent the email again."), "{}", page.text);
    arrives(&t, &open(&t, &verify_link(&t), &cookies(&sent)).await, &app, &onward).await;
    t.finish().await;
}

#[tokio::test]
async fn a_password_that_is_right_before_the_email_is_confirmed_leads_to_the_mail() {
    let t = start().await;
    sign_up(&t, "/device").await;
    let early = submit(&t, "/sign-in", &[("email", BOB), ("password", PASSWORD), ("continue", "/device")], "").await;
    assert_eq!(early.status, 403);
    assert!(early.text.contains("formaction=\"/check-email/again\""), "{}", early.text);
    let wrong = submit(&t, "/sign-in", &[("email", BOB), ("password", "wrong password")], "").await;
    assert!(!wrong.text.contains("/check-email/again"), "only to a person who knows the password");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_sign_in_link_leads_to_the_app_in_any_browser() {
    let t = start().await;
    let (app, onward) = on_the_way(&t).await;
    member(&t, BOB).await;
    for is_same in [true, false] {
        let asked = submit(&t, "/sign-in/link", &[("email", BOB), ("continue", &onward)], "").await;
        t.run_jobs().await;
        let token = token_in(&mail_to(&t, BOB).expect("a mail"));
        let link = format!("/auth/magic-link/verify?token={token}");
        if is_same {
            arrives(&t, &open(&t, &link, &cookies(&asked)).await, &app, &onward).await;
            let used = open(&t, &link, &cookies(&asked)).await;
            assert_eq!((used.status, hidden(&used, "continue")), (410, onward.clone()));
            assert_eq!(hidden(&used, "mail"), "sign_in_link");
        } else {
            let page = open(&t, &link, "").await;
            assert!(page.text.contains("Continue to Tiny Notes"), "{}", page.text);
            assert!(page.header("content-security-policy").contains("https://app.example"), "the form leads there");
            let entered = submit(&t, "/sign-in/follow", &[("token", &token)], "").await;
            assert_eq!((entered.status, entered.header("location")), (303, onward.as_str()));
            assert!(cookies(&entered).contains("service_access="));
        }
        t.run_jobs().await;
    }
    t.finish().await;
}

#[tokio::test]
async fn a_new_password_leads_to_the_app_through_the_second_factor() {
    let t = start().await;
    let (app, onward) = on_the_way(&t).await;
    member(&t, BOB).await;
    let reset = async || {
        submit(&t, "/forgot-password", &[("email", BOB), ("continue", &onward)], "").await;
        t.run_jobs().await;
        let token = token_in(&mail_to(&t, BOB).expect("a mail"));
        let page = open(&t, &format!("/auth/reset-password?token={token}"), "").await;
        assert!(page.status == 200 && page.text.contains("Tiny Notes"), "{}", page.text);
        submit(&t, "/reset-password", &[("token", &token), ("password", PASSWORD)], "").await
    };
    arrives(&t, &reset().await, &app, &onward).await;
    let bob = Person::of(&login(&t, BOB, PASSWORD).await);
    let set_up = bob.asks(t.post("/auth/2fa/setup")).await;
    let totp = totp_rs::Totp::from_url(set_up.body["otpauthUri"].as_str().expect("a secret")).expect("a secret");
    let now = |t: &TestJanua| totp.generate(u64::try_from(t.janua.clock.now().0 / 1000).unwrap()).to_string();
    assert_eq!(bob.asks(t.post("/auth/2fa/enable").json(&json!({ "code": now(&t) }))).await.status, 200);
    t.advance(Duration::from_mins(1));
    let asked = at_factor(&t, &reset().await).await;
    assert_eq!((asked.status, hidden(&asked, "continue")), (200, onward.clone()), "{}", asked.text);
    let (ticket, code) = (hidden(&asked, "ticket"), now(&t));
    let fields = [("ticket", &*ticket), ("code", &*code), ("continue", &*onward), ("method", "password")];
    let entered = submit(&t, "/sign-in/factor", &fields, "").await;
    assert_eq!((entered.status, entered.header("location")), (303, onward.as_str()), "{}", entered.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_provider_that_turns_somebody_back_leaves_the_way_open() {
    let t = start().await;
    let (_, onward) = on_the_way(&t).await;
    for (to, kept) in [(onward.as_str(), onward.as_str()), ("https://evil.example/", "")] {
        let state = format!("x.{}", BASE64URL_NOPAD.encode(to.as_bytes()));
        let back = query(&[("error", "access_denied"), ("state", &state)]);
        let page = open(&t, &format!("/sign-in/google?{back}"), "").await;
        assert_eq!((page.status, hidden(&page, "continue")), (400, kept.into()), "{}", page.text);
        assert!(page.text.contains("role=\"alert\""), "{}", page.text);
    }
    t.finish().await;
}

#[tokio::test]
async fn a_mail_leads_to_no_place_but_ours() {
    let t = start().await;
    member(&t, BOB).await;
    for onward in ["https://evil.example/", "//evil.example/", "/\\evil.example/", "javascript:alert(1)"] {
        let asked = submit(&t, "/sign-in/link", &[("email", BOB), ("continue", onward)], "").await;
        assert!(asked.header("location").starts_with("/check-email?"), "{onward}: {}", asked.header("location"));
        t.run_jobs().await;
        let token = token_in(&mail_to(&t, BOB).expect("a mail"));
        // What the URL says besides counts for nothing.
        let link = format!("/auth/magic-link/verify?token={token}&continue=https%3A%2F%2Fevil.example");
        let entered = open(&t, &link, &cookies(&asked)).await;
        assert_eq!(entered.header("location"), "/account", "{onward}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn builders_land_in_the_console_and_others_in_their_account() {
    let t = start().await;
    member(&t, BOB).await;
    let ada = signed_in(&t, "ada@example.com").await;
    client(&t, &ada, "App").await;
    for (email, home) in [(BOB, "/account"), ("ada@example.com", "/console")] {
        let entered = submit(&t, "/sign-in", &[("email", email), ("password", PASSWORD)], "").await;
        assert_eq!(entered.header("location"), home, "{email}");
        let done = visit(&t, "/sign-in/done", &cookies(&entered)).await;
        assert_eq!(done.header("location"), home, "{email}, with a passkey");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn the_method_that_worked_last_is_marked() {
    let t = start().await;
    member(&t, BOB).await;
    let wrong = submit(&t, "/sign-in", &[("email", BOB), ("password", "wrong password")], "").await;
    assert!(cookies(&wrong).is_empty(), "only after success");
    let entered = submit(&t, "/sign-in", &[("email", BOB), ("password", PASSWORD)], "").await;
    assert!(cookies(&entered).contains("janua_last_method=password"));
    let page = visit(&t, "/sign-in", "janua_last_method=link").await;
    assert_eq!(page.text.matches("data-last=\"Last used\"").count(), 1, "{}", page.text);
    let forged = visit(&t, "/sign-in", "janua_last_method=\"><script>").await;
    assert_eq!(forged.text.matches("Last used").count(), 0, "nothing that is no method");
    t.run_jobs().await;
    t.finish().await;
}
