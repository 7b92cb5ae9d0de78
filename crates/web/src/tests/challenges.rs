//! The proof of work on a network with many failures: each page that asks for it has the challenge in the form that brings the
//! solution, so that no page is a dead end.
use identity::testing::{PASSWORD, code_in, mail_to, member, register, token_in};
use kernel::config::Switch;

use super::*;

const ADA: &str = "ada@example.com";

async fn guarded() -> TestJanua {
    let config = Config { rate_limits: Switch::On, ..Config::for_tests() };
    let config = config.with(|social: &mut identity::testing::SocialSettings| {
        social.google_client_id = "it".into();
        social.google_client_secret = Some("secret".to_owned().into());
    });
    TestJanua::start_with(config, feature).await
}

/// From now on everything that strangers send from here needs a proof of work, as behind a NAT with one bad neighbour.
async fn suspect(t: &TestJanua) {
    let network = format!("network:{}", &t.janua.vault.mac("strike", b"127.0.0.1")[..32]);
    let failures = "INSERT INTO strike (subject, detail, strikes, last_at) VALUES ($1, '', 25, $2)
                    ON CONFLICT (subject, detail) DO UPDATE SET strikes = 25, last_at = $2";
    t.janua.db.exec(failures, db::params![&network, t.janua.clock.now()]).await.unwrap();
}

/// The solution of the challenge, which stands in the form for this action and in no other.
fn solved_for(page: &Answer, action: &str) -> String {
    assert_eq!(page.status, 403, "{action}: {}", page.text);
    assert_eq!(page.text.matches("data-challenge=").count(), 1, "{action}: {}", page.text);
    let mut forms = page.text.split("<form").skip(1).filter_map(|rest| rest.split("</form>").next());
    let form = forms.find(|form| form.contains("data-challenge=")).expect("the challenge is in a form");
    // A form may have a button for another action.
    assert!(
        form.contains(&format!("action=\"{action}\"")) || page.text.contains(&format!("formaction=\"{action}\""))
    );
    solve(form)
}

/// Sends a form, solves what it is answered with, and sends it again.
async fn sends(t: &TestJanua, path: &str, fields: &[(&str, &str)], cookies: &str) -> Answer {
    let token = solved_for(&post_form(t, path, fields, cookies).await, path);
    let fields: Vec<_> = fields.iter().copied().chain([("captcha", &*token)]).collect();
    post_form(t, path, &fields, cookies).await
}

#[tokio::test]
async fn a_provider_is_reached_after_the_security_check() {
    let t = guarded().await;
    suspect(&t).await;
    let away = sends(&t, "/sign-in/with", &[("provider", "google"), ("continue", "/device")], "").await;
    assert_eq!(away.status, 303, "{}", away.text);
    assert!(away.header("location").starts_with("https://accounts.google.com/"), "{}", away.header("location"));
    t.finish().await;
}

#[tokio::test]
async fn every_mail_can_be_requested_after_the_security_check() {
    let t = guarded().await;
    member(&t, ADA).await;
    register(&t, "bob@example.com").await;
    suspect(&t).await;
    let first = sends(&t, "/sign-in/link", &[("email", ADA)], "").await;
    assert_eq!(first.status, 303, "{}", first.text);
    let waits = cookies(&first);
    let mut latest = String::new();
    for (mail, email) in [("sign_in_link", ADA), ("new_password", ADA), ("confirmation", "bob@example.com")] {
        let again = [("mail", mail), ("email", email), ("continue", "/device")];
        // With the cookie of the page that waits, and from the sign-in page without one.
        for cookies in [&*waits, ""] {
            let page = post_form(&t, "/check-email/again", &again, cookies).await;
            assert_eq!((hidden(&page, "mail"), hidden(&page, "continue")), (mail.into(), "/device".into()));
            assert!(page.text.contains(&format!("value=\"{email}\"")), "the email is kept: {}", page.text);
            let sent = sends(&t, "/check-email/again", &again, cookies).await;
            assert_eq!(
                sent.header("location"),
                "/check-email?sent=again&continue=%2Fdevice",
                "{mail}: {}",
                sent.text
            );
            latest = super::cookies(&sent);
        }
    }
    // The forms of the same pages that ask for a password or a code.
    for path in ["/forgot-password", "/sign-in/link"] {
        assert_eq!(sends(&t, path, &[("email", ADA)], "").await.status, 303, "{path}");
    }
    t.run_jobs().await;
    let code = code_in(&mail_to(&t, "bob@example.com").unwrap());
    let fields = [("email", "bob@example.com"), ("code", &*code)];
    assert_eq!(sends(&t, "/check-email", &fields, &latest).await.status, 303);
    t.finish().await;
}

#[tokio::test]
async fn links_in_mails_are_followed_after_the_security_check() {
    let t = guarded().await;
    let fields = [("name", "Ada"), ("email", ADA), ("password", PASSWORD)];
    let browser = cookies(&submit(&t, "/sign-up", &fields, "").await);
    t.run_jobs().await;
    let token = token_in(&mail_to(&t, ADA).unwrap());
    suspect(&t).await;
    let html = "text/html,*/*;q=0.8";
    let link = format!("/auth/verify?token={token}");
    let page = t.get(&link).header("accept", html).header("cookie", &browser).await;
    assert_eq!((page.status, hidden(&page, "token")), (200, token.clone()), "the page has a button: {}", page.text);
    let confirm = async |captcha: &str| {
        let ask = t.post("/auth/verify").header("content-type", FORM).header("accept", html);
        let fields = query(&[("token", &*token), ("captcha", captcha)]);
        ask.header("cookie", &browser).header("origin", &base(&t)).body(fields).await
    };
    let solution = solved_for(&confirm("").await, "/auth/verify");
    let entered = confirm(&solution).await;
    assert!(entered.status == 303 && cookies(&entered).contains("service_access="), "{}", entered.text);

    let asked = sends(&t, "/sign-in/link", &[("email", ADA)], &browser).await;
    assert_eq!(asked.status, 303, "{}", asked.text);
    t.run_jobs().await;
    let token = token_in(&mail_to(&t, ADA).unwrap());
    let page = t.get(&format!("/auth/magic-link/verify?token={token}")).header("cookie", &cookies(&asked)).await;
    assert_eq!((page.status, hidden(&page, "token")), (200, token.clone()), "{}", page.text);
    assert_eq!(sends(&t, "/sign-in/follow", &[("token", &token)], &browser).await.status, 303);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_device_is_connected_after_the_security_check() {
    let t = guarded().await;
    member(&t, ADA).await;
    let ada = browser(&t, ADA).await;
    for (decision, title) in [("allow", "Device connected"), ("deny", "Device denied")] {
        let begun = t.post("/auth/device/code").header("user-agent", identity::testing::FIREFOX).await.body;
        let code = text(&begun["user_code"]);
        suspect(&t).await;
        let page = sends(&t, "/device", &[("user_code", &code)], &ada).await;
        assert!(page.status == 200 && page.text.contains("full access"), "{}", page.text);
        let decided = sends(&t, "/device/decide", &[("user_code", &code), ("decision", decision)], &ada).await;
        assert!(decided.status == 200 && decided.text.contains(title), "{}", decided.text);
        let is_good = decided.text.contains("tile-icon good");
        assert_eq!(is_good, decision == "allow", "a denial has no green check: {}", decided.text);
        t.janua.db.exec("DELETE FROM strike", db::params![]).await.unwrap();
    }
    t.run_jobs().await;
    t.finish().await;
}
