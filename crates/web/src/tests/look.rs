//! How pages look: the parts, the assets and what they weigh.
use identity::testing::member;

use super::*;

#[tokio::test]
async fn the_design_page_shows_every_part_in_development_alone() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let page = visit(&t, "/console/design", &ada).await;
    assert_eq!(page.status, 200, "{}", page.text);
    for part in [
        "class=\"btn btn-primary\"",
        "aria-invalid=\"true\"",
        "class=\"plot\"",
        "<div class=\"sr\"><table>",
        "popover",
    ] {
        assert!(page.text.contains(part), "{part}");
    }
    assert!(!page.text.contains("style="), "the policy allows no style in a tag");
    assert_eq!(visit(&t, "/console/design", "").await.status, 303, "to the sign-in page");
    t.finish().await;

    let config = Config { base_url: Some("https://id.example".parse().expect("a URL")), ..Config::for_tests() };
    let t = TestJanua::start_with(config, feature).await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    for cookies in ["", ada.as_str()] {
        assert_eq!(visit(&t, "/console/design", cookies).await.status, 404);
    }
    t.finish().await;
}

#[tokio::test]
async fn a_create_form_is_a_dialog_with_a_url() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let list = visit(&t, "/console", &ada).await.text;
    assert!(list.contains("href=\"&#x2f;console?new=app\"") && !list.contains("value=\"POST &#x2f;apps\""), "{list}");
    let dialog = visit(&t, "/console?new=app", &ada).await.text;
    assert!(
        dialog.contains("<div class=\"shell\" inert>") && dialog.contains("value=\"POST &#x2f;apps\""),
        "{dialog}"
    );
    assert!(dialog.contains("name=\"back\" value=\"&#x2f;console\""), "an app that was created closes it");
    let wrong = [("call", "POST /apps"), ("back", "/console"), ("form", "app"), ("name", "")];
    let refused = submit(&t, "/act", &wrong, &ada).await;
    assert_eq!(refused.status, 400);
    assert!(
        refused.text.contains("<dialog class=\"dialog\" open") && refused.text.contains("role=\"alert\""),
        "{}",
        refused.text
    );
    t.finish().await;
}

#[tokio::test]
async fn browsers_find_the_mark_and_keep_it() {
    let t = start().await;
    for (path, kind) in [("/favicon.ico", "image/x-icon"), ("/assets/mark.svg", "image/svg+xml")] {
        let mark = t.get(path).await;
        assert_eq!((mark.status, mark.header("content-type")), (200, kind), "{path}");
        let again = t.get(path).header("if-none-match", mark.header("etag")).await;
        assert_eq!(again.status, 304, "{path}");
    }
    t.finish().await;
}

#[tokio::test]
async fn pages_stay_small() {
    let t = start().await;
    let mut sizes = vec![];
    for path in [
        "/sign-in",
        "/assets/janua.css",
        "/assets/janua.js",
        "/assets/mark.svg",
        "/assets/console.css",
        "/assets/site.css",
    ] {
        sizes.push(t.get(path).await.text.len());
    }
    let hosted: usize = sizes[..4].iter().sum();
    assert!(hosted < 40_000, "{hosted} bytes before compression, which takes off two thirds");
    let sheets = sizes[1] + sizes[4] + sizes[5];
    assert!(sheets < 60_000, "{sheets} bytes");
    t.finish().await;
}

#[tokio::test]
async fn a_field_says_what_is_wrong_with_it() {
    let t = start().await;
    let typed = [("name", "Ada"), ("email", "nonsense"), ("password", "correct horse battery staple")];
    let refused = submit(&t, "/sign-up", &typed, "").await;
    assert_eq!(refused.status, 400);
    for part in
        ["aria-invalid=\"true\"", "aria-describedby=\"email-error\"", "id=\"email-error\"", "value=\"nonsense\""]
    {
        assert!(refused.text.contains(part), "{part}: {}", refused.text);
    }
    assert_eq!(refused.text.matches("aria-invalid").count(), 1, "the others are right");
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let wrong = [("call", "PATCH /user/profile"), ("back", "/account"), ("form", "profile"), ("name", "")];
    let refused = submit(&t, "/act", &wrong, &ada).await;
    assert_eq!(refused.status, 400);
    assert!(
        refused.text.contains("id=\"name-error\"") && refused.text.contains("role=\"alert\""),
        "{}",
        refused.text
    );
    t.finish().await;
}

#[tokio::test]
async fn the_page_of_a_domain_says_why_it_is_not_verified() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let made = act(&t, &ada, "POST /apps", "/console", &[("name", "Shop"), ("then", "/console/apps/{id}")]).await;
    let page = format!("{}/domain", made.header("location"));
    let call = format!("POST {}", page.trim_start_matches("/console"));
    assert_eq!(act(&t, &ada, &call, &page, &[("domain", "shop.example")]).await.status, 303);
    let now = t.janua.clock.now();
    for (verified, reason, words) in [
        (None, None, "Not verified"),
        (None, Some("contested"), "It moves to Shop when your record is there"),
        (None, Some("lost_ownership"), "to claim the domain back"),
        (None, Some("timed_out"), "not found for seven days"),
        (Some(now), None, "Verified"),
        (Some(now), Some("txt_missing"), "is gone. Add it again"),
    ] {
        let sql = "UPDATE app_domain SET verified_at = $1, reason = $2, checked_at = $3, next_check_at = $3";
        t.janua.db.exec(sql, db::params![verified, reason, now]).await.unwrap();
        let shown = visit(&t, &page, &ada).await;
        assert_eq!(shown.status, 200, "{}", shown.text);
        assert!(shown.text.contains(words) && shown.text.contains("next check"), "{words}: {}", shown.text);
    }
    t.finish().await;
}

#[tokio::test]
async fn a_domain_is_onboarded_on_its_pages() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let made = act(&t, &ada, "POST /apps", "/console", &[("name", "Shop"), ("then", "/console/apps/{id}")]).await;
    let app = made.header("location").to_owned();
    let id = app.rsplit('/').next().unwrap().to_owned();
    let list = format!("{app}/domains");
    assert!(visit(&t, &list, &ada).await.text.contains("No domains yet"));
    assert!(visit(&t, &format!("{list}?new=domain"), &ada).await.text.contains("Redirect to"));
    let wrong = [("form", "domain"), ("appId", id.as_str()), ("domain", "localhost")];
    let refused = act(&t, &ada, "POST /domains/onboard", &list, &wrong).await;
    assert!(refused.status == 400 && refused.text.contains("Enter a domain such as"), "{}", refused.text);
    let right = [("appId", id.as_str()), ("domain", "shop.example.com"), ("redirectTo:some", "")];
    assert_eq!(act(&t, &ada, "POST /domains/onboard", &list, &right).await.status, 303);
    let shown = visit(&t, &list, &ada).await.text;
    assert!(shown.contains("shop.example.com") && shown.contains("Waiting for proof"), "{shown}");
    let page = format!("{list}/shop.example.com");
    for (status, reason, words) in [
        ("pending_ownership", Some("txt_wrong"), "not with this app&#x27;s value"),
        ("pending_dns", Some("nxdomain"), "There is no name shop.example.com in DNS"),
        ("issuing", Some("ca_unavailable"), "The certificate authority does not answer"),
        ("active", None, "https://shop.example.com/"),
        ("misconfigured", Some("mixed_answers"), "Some IP addresses of shop.example.com are not ours"),
        ("failed", Some("moved"), "led elsewhere for seven days"),
    ] {
        let sql = "UPDATE app_domain SET status = $1, status_reason = $2, verified_at = 1";
        t.janua.db.exec(sql, db::params![status, reason]).await.unwrap();
        let shown = visit(&t, &page, &ada).await;
        assert_eq!(shown.status, 200, "{}", shown.text);
        assert!(shown.text.contains(words), "{words}: {}", shown.text);
        assert!(shown.text.contains("_janua-challenge.shop.example.com") && shown.text.contains("Danger zone"));
    }
    let call = format!("DELETE /domains/onboard/{id}/shop.example.com");
    let gone = act(&t, &ada, &call, &page, &[("then", &list)]).await;
    assert_eq!((gone.status, gone.header("location").starts_with(&list)), (303, true), "{}", gone.text);
    t.finish().await;
}

#[tokio::test]
async fn the_platform_page_says_what_the_mail_server_said() {
    let config = Config::for_tests()
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["root@example.com".into()]);
    let t = TestJanua::start_with(config, feature).await;
    member(&t, "root@example.com").await;
    let root = browser(&t, "root@example.com").await;
    let said = "550 no such relay";
    let before = visit(&t, "/console/platform", &root).await;
    assert!(before.status == 200 && !before.text.contains(said), "{}", before.text);
    let sql = "INSERT INTO mail (id, recipient_key, sealed, created_at, last_error) VALUES ('a', 'b', $1, $2, $3)";
    t.janua.db.exec(sql, db::params![vec![0_u8], t.janua.clock.now(), said]).await.unwrap();
    let page = visit(&t, "/console/platform", &root).await;
    assert!(page.text.contains(said), "{}", page.text);
    t.finish().await;
}

#[tokio::test]
async fn security_asks_for_what_would_prove_who_it_is() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let id = text(&t.get("/auth/me").header("cookie", &ada).await.body["id"]);
    let security = async || visit(&t, "/account/security", &ada).await.text;
    // As soon as the last proof is old.
    let send = async |call: &str, form: &str, phone: &str| {
        let fields = [("call", call), ("back", "/account/security"), ("form", form), ("phone:some", phone)];
        submit(&t, "/act", &fields, &ada).await.text
    };
    let refused = async || send("POST /auth/mfa/sms/enroll", "sms", "+41446681800").await;
    // A factor that a test puts there is seen with the next change that the interface makes.
    let add = async |sql: &'static str| {
        t.janua.db.exec(sql, db::params![&id, t.janua.clock.now()]).await.unwrap();
        let changed = act(&t, &ada, "PATCH /user/profile", "/account", &[("name", "Ada")]).await;
        assert_eq!(changed.status, 303, "{}", changed.text);
    };
    assert!(security().await.contains("id=\"passkey-proof\" name=\"password\""));
    t.advance(std::time::Duration::from_mins(11));
    assert!(refused().await.contains("name=\"password:some\""));

    add("INSERT INTO passkey (credential_id, account_id, device_name, key, created_at) VALUES ('c', $1, 'Key', '{}', $2)")
        .await;
    let page = security().await;
    assert!(page.contains("Sign in again with your passkey") && !page.contains("passkey-proof"), "{page}");
    let page = refused().await;
    assert!(page.contains("sign in again with your passkey"), "{page}");

    add("INSERT INTO sms_factor (account_id, phone, enabled_at) VALUES ($1, '+41446681800', $2)").await;
    let page = security().await;
    for part in [
        "id=\"sms\"",
        "POST &#x2f;auth&#x2f;mfa&#x2f;sms&#x2f;code",
        "id=\"sms-off-code\" name=\"code:some\"",
        "id=\"passkey-proof\" name=\"code\"",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let page = send("POST /auth/2fa/recovery-codes/regenerate", "recovery", "").await;
    assert!(page.contains("id=\"recovery-proof\" name=\"code:some\""), "{page}");
    assert!(page.contains("Get a code by text message"), "{page}");
    t.finish().await;
}

#[test]
fn papers_are_those_of_the_stylesheet() {
    use tenancy::color::Color;
    let css = include_str!("../../assets/janua.css");
    let values =
        |token: &str| css.match_indices(token).map(|(at, _)| &css[at + token.len()..][..7]).collect::<Vec<_>>();
    assert_eq!(values("--page: ")[0], Color::PAPER.to_string(), "light");
    assert_eq!(values("--surface: ")[1], Color::NIGHT.to_string(), "dark");
}
