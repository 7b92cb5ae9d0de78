//! Pages for administration of people, and what the operator decides.
use identity::{
    policy::{Settings, SignUpPolicy},
    testing::{mail_to, member, signed_in},
};
use kernel::{
    config::{Config, Setting as _},
    testing::TestJanua,
};
use serde_json::json;
use tenancy::{
    messages::{
        mail::{Sample, write},
        sender::Sender,
    },
    policy::{Builders, Policy, SiteColor, SiteLogo, SiteName},
};

use super::{
    act, asked, authorize, browser, client, code, cookies, error_of, feature, field, redeem, start, submit, visit,
};

async fn platform(config: Config) -> TestJanua {
    let root = vec!["root@example.com".to_owned()];
    let config = config.with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = root);
    TestJanua::start_with(config, feature).await
}

#[tokio::test]
async fn platform_owners_create_find_disable_and_delete_people_on_pages() {
    let t = platform(Config::for_tests()).await;
    member(&t, "root@example.com").await;
    let root = browser(&t, "root@example.com").await;
    let list = "/console/platform/users";
    assert!(visit(&t, &format!("{list}?new=user"), &root).await.text.contains("Send an invitation"));
    let fields = [
        ("name", "Grace Hopper"),
        ("email", "grace@example.com"),
        ("invite:flag", "true"),
        ("then", "/console/platform/users/{id}"),
    ];
    let made = act(&t, &root, "POST /admin/users", list, &fields).await;
    assert_eq!(made.status, 303, "{}", made.text);
    let page = made.header("location").to_owned();
    let id = page.rsplit('/').next().unwrap().to_owned();
    t.run_jobs().await;
    let token = identity::testing::token_in(&mail_to(&t, "grace@example.com").expect("the invitation"));
    let invited = t.get(&format!("/auth/reset-password?token={token}")).header("accept", "text/html").await;
    assert!(invited.text.contains("Save password and continue"), "the link leads on: {}", invited.text);
    let found = visit(&t, &format!("{list}?search=hopp&state=unverified"), &root).await;
    assert!(found.text.contains(&id) && found.text.contains("grace@example.com"), "{}", found.text);
    assert!(!visit(&t, &format!("{list}?state=disabled"), &root).await.text.contains(&id));
    let shown = visit(&t, &page, &root).await;
    assert_eq!(shown.status, 200, "{}", shown.text);
    for words in
        ["Grace Hopper", "Not verified", "Resend verification email", "Disable account", "Account created", "You"]
    {
        assert!(shown.text.contains(words), "{words} is not in {}", shown.text);
    }
    assert!(visit(&t, &format!("{page}?new=edit"), &root).await.text.contains("Save changes"));
    let call = format!("POST /admin/users/{id}/disable");
    assert_eq!(act(&t, &root, &call, &page, &[]).await.status, 303);
    assert!(visit(&t, &page, &root).await.text.contains("Enable account"));
    t.advance(std::time::Duration::from_mins(11));
    let call = format!("DELETE /admin/users/{id}");
    let form = [("call", call.as_str()), ("back", page.as_str()), ("form", "delete")];
    let refused = submit(&t, "/act", &form, &root).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    assert!(refused.text.contains("Your password"), "the dialog asks for the proof: {}", refused.text);
    let gone = act(&t, &root, &call, &page, &[("password", identity::testing::PASSWORD), ("then", list)]).await;
    assert_eq!((gone.status, gone.header("location")), (303, list));
    assert_eq!(visit(&t, &page, &root).await.status, 404);
    member(&t, "eve@example.com").await;
    let eve = browser(&t, "eve@example.com").await;
    assert_eq!(visit(&t, list, &eve).await.status, 403);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn app_admins_block_a_person_who_then_gets_no_code_and_no_token() {
    let t = start().await;
    let (ada, bob) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "bob@example.com").await);
    let app = client(&t, &ada, "Shop").await;
    let put = "INSERT INTO org_member (org_id, account_id, role, joined_at) SELECT org_id, $2, 'member', 0 FROM app WHERE id = $1";
    t.janua.db.exec(put, db::params![&app.id, &bob.id]).await.unwrap();
    let tokens = redeem(&t, &app.id, &code(&t, &bob, &app).await, &[]).await;
    assert_eq!(tokens.status, 200, "{}", tokens.text);
    let early = code(&t, &bob, &app).await;
    let admin = browser(&t, "ada@example.com").await;
    let page = format!("/console/apps/{}/users/{}", app.id, bob.id);
    let shown = visit(&t, &page, &admin).await;
    assert!(shown.status == 200 && shown.text.contains("Block user"), "{}", shown.text);
    let list = visit(&t, &format!("/console/apps/{}/users", app.id), &admin).await;
    assert!(list.text.contains(&bob.id), "{}", list.text);
    let call = format!("POST /apps/{}/users/{}/block", app.id, bob.id);
    assert_eq!(act(&t, &admin, &call, &page, &[]).await.status, 303);
    assert!(visit(&t, &page, &admin).await.text.contains("Unblock user"));

    let late = redeem(&t, &app.id, &early, &[]).await;
    assert_eq!(error_of(&late), (400, "invalid_grant"), "a code from before: {}", late.text);
    assert!(late.text.contains("blocked_from_app"), "{}", late.text);
    let asked = authorize(&t, Some(&bob), &asked(&app.id, &[])).await;
    assert_eq!(field(&asked, "error").as_deref(), Some("access_denied"));
    let refresh = tokens.body["refresh_token"].as_str().unwrap();
    let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh), ("client_id", app.id.as_str())];
    let again = super::form(&t, "/oauth/token", &fields, None).await;
    assert_eq!(error_of(&again), (400, "invalid_grant"), "{}", again.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_member_who_may_not_build_is_not_offered_to() {
    let config = Config::for_tests().with(|policy: &mut Policy| policy.builders = Builders::Owners);
    let t = platform(config).await;
    let root = signed_in(&t, "root@example.com").await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = root.asks(t.post("/org").json(&json!({ "name": "Engines" }))).await.body;
    let invite = json!({ "email": "ada@example.com", "role": "member" });
    root.asks(t.post(&format!("/org/{}/members", org["id"].as_str().unwrap())).json(&invite)).await;
    t.run_jobs().await;
    let token = identity::testing::token_in(&mail_to(&t, "ada@example.com").expect("the invitation"));
    let joined = ada.asks(t.post("/auth/accept-invite").json(&json!({ "token": token }))).await;
    assert_eq!(joined.status, 200, "{}", joined.text);
    let ada = browser(&t, "ada@example.com").await;
    for path in ["/console", "/console?new=app"] {
        let page = visit(&t, path, &ada).await;
        assert!(page.status == 200 && page.text.contains("No apps yet"), "{}", page.text);
        assert!(!page.text.contains("Create app") && !page.text.contains("Get started"), "{path}: {}", page.text);
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn people_who_build_nothing_see_their_account_and_no_console() {
    let config = Config::for_tests().with(|policy: &mut Policy| policy.builders = Builders::Owners);
    let t = platform(config).await;
    member(&t, "root@example.com").await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    for path in ["/console", "/console?new=app", "/console/platform"] {
        let page = visit(&t, path, &ada).await;
        assert_eq!(page.status, 403, "{path}");
        assert!(page.text.contains("Your account") && !page.text.contains("Create app"), "{}", page.text);
    }
    let account = visit(&t, "/account", &ada).await;
    assert_eq!(account.status, 200);
    assert!(!account.text.contains("href=\"/console\""), "no way to where they have nothing to do");
    let refused = act(&t, &ada, "POST /apps", "/account", &[("name", "Shop")]).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    let root = browser(&t, "root@example.com").await;
    assert!(visit(&t, "/console", &root).await.text.contains("Create app"));
    t.finish().await;
}

#[tokio::test]
async fn a_closed_sign_up_says_so_in_words() {
    for (policy, words) in [(SignUpPolicy::Closed, "Sign-up is closed"), (SignUpPolicy::Invited, "by invitation")] {
        let config = Config::for_tests().with(|settings: &mut Settings| settings.sign_up = policy);
        let t = platform(config).await;
        let page = t.get("/sign-up").await;
        assert!(page.status == 403 && page.text.contains(words), "{}", page.text);
        let fields = [("name", "Ada"), ("email", "ada@example.com"), ("password", identity::testing::PASSWORD)];
        let sent = submit(&t, "/sign-up", &fields, "").await;
        assert!(sent.status == 403 && sent.text.contains(words), "{}", sent.text);
        assert!(!t.get("/sign-in").await.text.contains("Create an account"));
        assert_eq!(cookies(&sent), "");
        t.finish().await;
    }
}

#[tokio::test]
async fn the_installation_has_a_name_a_logo_and_a_color_on_pages_and_in_mails() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("logo.png");
    std::fs::write(&file, [0x89, b'P', b'N', b'G', 13, 10, 26, 10]).unwrap();
    let config = Config::for_tests().with(|policy: &mut Policy| {
        policy.site_name = SiteName("Acme ID".into());
        policy.site_color = Some(SiteColor("0f766e".into()));
        policy.site_logo = Some(SiteLogo::parse(file.to_str().unwrap()).unwrap());
    });
    let t = platform(config).await;
    let (logo, color) = ("src=\"/assets/site-logo.png\"", "/assets/brand/0f766e.css");
    let page = t.get("/sign-in").await;
    let shown = page.text.replace("&#x2f;", "/");
    for part in [color, logo, "<title>Sign in · Acme ID</title>", "<h1>Sign in to Acme ID</h1>"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(t.get("/assets/site-logo.png").await.header("content-type"), "image/png");
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    for path in ["/", "/console", "/account", "/nothing"] {
        let page = t.get(path).header("cookie", &ada).header("accept", "text/html").await;
        assert!(page.text.contains("Acme ID") && page.text.contains(color), "{path}: {}", page.text);
    }
    t.post("/auth/magic-link/request").json(&json!({ "email": "ada@example.com" })).await;
    t.run_jobs().await;
    let written = write(&t.janua, &Sender::installation(&t.janua), None, &*(t.janua.declared::<Sample>()[0].0)());
    let html = written.unwrap().html.replace("&#x2f;", "/");
    assert!(html.contains("/assets/site-logo.png\"") && html.contains("background:#0f766e"), "{html}");
    let mail = mail_to(&t, "ada@example.com").expect("a mail");
    assert!(mail.contains("Subject: Your sign-in link for Acme ID"), "{mail}");
    t.finish().await;
}
