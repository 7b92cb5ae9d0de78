//! What the pages of the account and the console say after an act.
use identity::testing::member;
use kernel::testing::TestJanua;

use super::{act, browser, post_form, start, text, visit};

async fn app(t: &TestJanua, ada: &str) -> String {
    let made = act(t, ada, "POST /apps", "/console", &[("name", "Shop"), ("then", "/console/apps/{id}")]).await;
    made.header("location").to_owned()
}

#[tokio::test]
async fn an_act_ends_on_a_page_that_says_once_what_was_done() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let form = [("call", "PATCH /user/profile"), ("back", "/account"), ("form", "profile"), ("done", "saved")];
    let fields: Vec<_> = form.into_iter().chain([("name", "Ada L.")]).collect();
    let sent = post_form(&t, "/act", &fields, &ada).await;
    let to = sent.header("location").to_owned();
    assert!(sent.status == 303 && to.starts_with("/account?told="), "{} {to}", sent.status);
    let page = visit(&t, &to, &ada).await;
    assert!(
        page.status == 200 && page.text.contains("role=\"status\"") && page.text.contains("Saved."),
        "{}",
        page.text
    );
    assert!(!page.text.contains("told="), "no form leads back to the outcome: {}", page.text);
    assert!(!visit(&t, &to, &ada).await.text.contains("Saved."), "a reload says nothing");
    // A sentence of somebody's own is not said.
    let fields: Vec<_> =
        fields.iter().map(|pair| if pair.0 == "done" { ("done", "Pay <b>now</b>") } else { *pair }).collect();
    assert_eq!(post_form(&t, "/act", &fields, &ada).await.header("location"), "/account");
    t.finish().await;
}

#[tokio::test]
async fn a_new_key_is_shown_once_and_to_its_maker_alone() {
    let t = start().await;
    for email in ["ada@example.com", "eve@example.com"] {
        member(&t, email).await;
    }
    let (ada, eve) = (browser(&t, "ada@example.com").await, browser(&t, "eve@example.com").await);
    let app = app(&t, &ada).await;
    let call = format!("POST {}/keys", app.replace("/console", ""));
    let back = format!("{app}/keys");
    let create = async || {
        let fields = [
            ("call", call.as_str()),
            ("back", &back),
            ("form", "key"),
            ("show", "1"),
            ("done", "key_created"),
            ("type", "secret"),
            ("environment", "live"),
        ];
        post_form(&t, "/act", &fields, &ada).await
    };
    let sent = create().await;
    assert!(sent.status == 303 && !sent.text.contains("sk_live_"), "{}", sent.text);
    let to = sent.header("location").to_owned();
    let (_, token) = to.split_once("told=").expect("a token");
    assert!(!visit(&t, &format!("/account?told={token}"), &eve).await.text.contains("Key created"), "nobody else's");
    let page = visit(&t, &to, &ada).await;
    assert!(page.text.contains("Key created.") && page.text.contains("value=\"sk_live_"), "{}", page.text);
    assert!(!visit(&t, &to, &ada).await.text.contains("value=\"sk_live_"), "gone");
    let kept: Vec<(String,)> =
        t.janua.db.all("SELECT hash FROM once WHERE purpose = 'form_outcome'", db::params![]).await.unwrap();
    assert!(kept.is_empty(), "nothing of it stays");
    // Nor does an outcome wait for long.
    let to = create().await.header("location").to_owned();
    t.advance(std::time::Duration::from_mins(6));
    assert!(!visit(&t, &to, &ada).await.text.contains("value=\"sk_live_"), "too late");
    // Those that nobody looked at do not pile up.
    for _ in 0..8 {
        create().await;
    }
    let kept: Vec<(String,)> =
        t.janua.db.all("SELECT hash FROM once WHERE purpose = 'form_outcome'", db::params![]).await.unwrap();
    assert!(kept.len() <= 4, "{}", kept.len());
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_refused_form_says_what_is_wrong_at_the_field_and_loses_nothing_typed() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let app = app(&t, &ada).await;
    let id = app.rsplit('/').next().unwrap_or_default().to_owned();
    let settings = format!("{app}/settings");
    let send = async |call: String, form: &str, fields: &[(&str, &str)]| {
        let own = [("call", call.as_str()), ("back", settings.as_str()), ("form", form), ("done", "saved")];
        let fields: Vec<_> = own.into_iter().chain(fields.iter().copied()).collect();
        let sent = post_form(&t, "/act", &fields, &ada).await;
        assert_eq!(sent.status, 303, "{}", sent.text);
        visit(&t, sent.header("location"), &ada).await
    };
    let page = send(format!("PATCH /apps/{id}"), "look", &[("branding.primaryColor:null", "bluish")]).await;
    assert_eq!(page.status, 400);
    assert!(page.text.contains("Use a hex color such as #1d4ed8."), "{}", page.text);
    assert!(!page.text.contains("must match"), "no pattern: {}", page.text);
    assert!(
        page.text.contains("value=\"bluish\" aria-invalid=\"true\" autofocus aria-describedby=\"color-error"),
        "{}",
        page.text
    );
    assert!(!page.text.contains("Saved."), "{}", page.text);
    let fields = [("name", " "), ("slug", "not a slug"), ("redirectUris:lines", "https://a.example/cb")];
    let page = send(format!("PATCH /apps/{id}"), "app", &fields).await;
    assert!(page.text.contains("Fill in this field.") && page.text.contains("value=\"not a slug\""), "{}", page.text);
    assert!(page.text.contains(">https:&#x2f;&#x2f;a.example&#x2f;cb<"), "{}", page.text);
    assert!(page.text.contains("Check the highlighted fields."), "{}", page.text);
    t.finish().await;
}

#[tokio::test]
async fn a_wrong_code_keeps_the_qr_code() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    member(&t, "eve@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let back = ("back", "/account/security");
    let setup = [("call", "POST /auth/2fa/setup"), back, ("form", "totp"), ("show", "1")];
    let sent = post_form(&t, "/act", &setup, &ada).await;
    let page = visit(&t, sent.header("location"), &ada).await;
    assert!(page.text.contains("class=\"qr\""), "{}", page.text);
    let shown = super::hidden(&page, "shown");
    let enable = async |who: &str, code: &str| {
        let fields = [
            ("call", "POST /auth/2fa/enable"),
            back,
            ("form", "totp-on"),
            ("show", "1"),
            ("shown", &shown),
            ("code", code),
        ];
        let sent = post_form(&t, "/act", &fields, who).await;
        visit(&t, sent.header("location"), who).await
    };
    let wrong = enable(&ada, "000000").await;
    assert!(wrong.text.contains("class=\"qr\"") && wrong.text.contains("code is wrong"), "{}", wrong.text);
    assert!(!super::hidden(&wrong, "form").is_empty());
    let eve = browser(&t, "eve@example.com").await;
    assert!(!enable(&eve, "000000").await.text.contains("class=\"qr\""), "it is sealed for one user");
    t.finish().await;
}

#[tokio::test]
async fn those_who_leave_are_told_so() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    for (page, says) in [("/goodbye", "Account deleted"), ("/signed-out", "You are signed out")] {
        assert!(t.get(page).await.text.contains(says), "{page}");
    }
    let data = visit(&t, "/account/data", &ada).await;
    assert!(data.text.contains("name=\"then\" value=\"/goodbye\""), "{}", data.text);
    let fields = [
        ("call", "DELETE /auth/me"),
        ("back", "/account/data"),
        ("form", "leave"),
        ("done", "done"),
        ("then", "/goodbye"),
    ];
    let left = post_form(&t, "/act", &fields, &ada).await;
    assert_eq!((left.status, left.header("location")), (303, "/goodbye"), "{}", left.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_invitation_says_whom_it_went_to() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let made = act(&t, &ada, "POST /org", "/console", &[("name", "Example"), ("then", "/console/orgs/{id}")]).await;
    let org = made.header("location").to_owned();
    let id = text(&serde_json::json!(org.rsplit('/').next()));
    let call = format!("POST /org/{id}/members");
    let back = format!("{org}/members?new=invite");
    let fields = [
        ("call", call.as_str()),
        ("back", &back),
        ("form", "invite"),
        ("done", "invite_sent"),
        ("email", "o'neil@example.com"),
        ("role", "member"),
    ];
    let sent = post_form(&t, "/act", &fields, &ada).await;
    assert!(sent.header("location").contains("?new=invite&told="), "{}", sent.header("location"));
    let page = visit(&t, sent.header("location"), &ada).await;
    assert!(page.text.contains("Invitation sent to o&#x27;neil@example.com."), "{}", page.text);
    t.run_jobs().await;
    t.finish().await;
}
