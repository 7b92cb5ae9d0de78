//! The console's pages and forms.
use identity::testing::{PASSWORD, Person, login, member, signed_in};
use kernel::testing::{Answer, TestJanua};
use serde_json::json;

use super::{act, browser, start, text, visit};

async fn developer(t: &TestJanua) -> (String, String) {
    member(t, "ada@example.com").await;
    let ada = browser(t, "ada@example.com").await;
    let made = act(t, &ada, "POST /apps", "/console", &[("name", "Shop & Co"), ("then", "/console/apps/{id}")]).await;
    assert_eq!(made.status, 303, "{}", made.text);
    (ada, made.header("location").to_owned())
}

/// What stands in the field with this id.
fn shown(page: &Answer, id: &str) -> Option<String> {
    let rest = page.text.split(&format!("id=\"{id}\"")).nth(1)?;
    Some(rest.split("value=\"").nth(1)?.split('"').next()?.to_owned())
}

#[tokio::test]
async fn a_newcomer_is_led_by_the_hand() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let page = visit(&t, "/console", &ada).await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert!(page.text.contains("Get started") && page.text.contains("No apps yet"));
    let made = act(&t, &ada, "POST /apps", "/console", &[("name", "Shop"), ("then", "/console/apps/{id}")]).await;
    let app = made.header("location").to_owned();
    let id = app.rsplit('/').next().unwrap_or_default().to_owned();
    let page = visit(&t, "/console", &ada).await;
    let next = |page: &Answer| {
        let step = page.text.split("<li class=\"now\">").nth(1).unwrap_or_default();
        step.split("</li>").next().unwrap_or_default().replace("&#x2f;", "/")
    };
    let step = next(&page);
    assert!(step.contains("Sign in a user") && step.contains(&format!("href=\"{app}/quick-start\"")), "{step}");
    let owner = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    let wish = json!({ "type": "publishable", "environment": "live" });
    let key = text(&owner.asks(t.post(&format!("/apps/{id}/keys")).json(&wish)).await.body["value"]);
    let step = next(&visit(&t, "/console", &ada).await);
    assert!(step.contains("Sign in a user"), "a key alone signs nobody in: {step}");
    let body = json!({ "email": "ada@example.com", "password": PASSWORD });
    assert_eq!(t.post("/auth/login").json(&body).header("x-service-app-key", &key).await.status, 200);
    let step = next(&visit(&t, "/console", &ada).await);
    let href = format!("href=\"{app}/webhooks?new=webhook\"");
    assert!(step.contains("Receive a webhook") && step.contains(&href), "{step}");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_app_has_settings_and_keys_that_are_shown_once() {
    let t = start().await;
    let (ada, app) = developer(&t).await;
    let id = app.rsplit('/').next().unwrap_or_default().to_owned();
    let fields = [
        ("name", "Shop"),
        ("redirectUris:lines", "https://shop.example/cb\r\n\r\n http://127.0.0.1/cb "),
        ("allowedOrigins:lines", ""),
    ];
    let settings = format!("{app}/settings");
    assert_eq!(act(&t, &ada, &format!("PATCH /apps/{id}"), &settings, &fields).await.status, 303);
    let page = visit(&t, &settings, &ada).await;
    assert!(page.text.contains("https:&#x2f;&#x2f;shop.example&#x2f;cb\nhttp:"), "{}", page.text);
    let wrong = [("form", "app"), ("redirectUris:lines", "not a uri")];
    let refused = act(&t, &ada, &format!("PATCH /apps/{id}"), &settings, &wrong).await;
    assert_eq!(refused.status, 400);
    let keys = format!("{app}/keys");
    assert!(visit(&t, &keys, &ada).await.text.contains("No API keys yet"));
    let wanted = [("form", "key"), ("type", "secret"), ("environment", "live"), ("name:some", ""), ("show", "1")];
    let body: Vec<_> = [("call", format!("POST /apps/{id}/keys")), ("back", keys.clone())].into_iter().collect();
    let all: Vec<_> = body.iter().map(|(name, value)| (*name, value.as_str())).chain(wanted).collect();
    let made = super::submit(&t, "/act", &all, &ada).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let key = shown(&made, "new-key").expect("the key");
    assert!(key.starts_with("sk_live_"), "{key}");
    assert!(!visit(&t, &keys, &ada).await.text.contains(&key), "never again");
    for page in ["users", "domain", "domains", "webhooks", "settings", "activity"] {
        assert_eq!(visit(&t, &format!("{app}/{page}"), &ada).await.status, 200, "{page}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_app_declares_scopes_and_says_whether_pkce_is_required() {
    let t = start().await;
    let (ada, app) = developer(&t).await;
    let page_of = format!("{app}/settings");
    let call = format!("PATCH /apps/{}", app.rsplit('/').next().unwrap_or_default());
    let page = visit(&t, &page_of, &ada).await;
    assert!(page.text.contains("name=\"requirePkce:flag\" value=\"true\" checked"), "{}", page.text);
    let lines = "notes.read Read <b>your</b> notes\r\n\r\n mcp:tools   Run the tools ";
    let saved = act(&t, &ada, &call, &page_of, &[("scopes:described", lines), ("requirePkce:flag", "false")]).await;
    assert_eq!(saved.status, 303, "{}", saved.text);
    let api = app.replace("/console", "");
    let kept = visit(&t, &api, &ada).await.body;
    let scopes = serde_json::json!([
        { "name": "notes.read", "description": "Read <b>your</b> notes" },
        { "name": "mcp:tools", "description": "Run the tools" },
    ]);
    assert_eq!((&kept["scopes"], &kept["requirePkce"]), (&scopes, &serde_json::json!(false)));
    let page = visit(&t, &page_of, &ada).await;
    assert!(
        page.text.contains("notes.read Read &lt;b&gt;your&lt;&#x2f;b&gt; notes\nmcp:tools Run the tools<"),
        "{}",
        page.text
    );
    assert!(!page.text.contains("name=\"requirePkce:flag\" value=\"true\" checked"), "{}", page.text);
    // As the page sends it: the box comes after what it means when it is empty.
    let both = [("scopes:described", ""), ("requirePkce:flag", "false"), ("requirePkce:flag", "true")];
    assert_eq!(act(&t, &ada, &call, &page_of, &both).await.status, 303);
    let kept = visit(&t, &api, &ada).await.body;
    assert_eq!((&kept["scopes"], &kept["requirePkce"]), (&serde_json::json!([]), &serde_json::json!(true)));
    // What is wrong is said at the field, with the line, and what was typed stays.
    for (lines, says) in [
        ("ok Fine\nopenid Me", "Line 2: name is a scope of OpenID Connect"),
        ("ok Fine\nnotes.read", "Line 2: description"),
    ] {
        let fields = [("call", &*call), ("back", &page_of), ("form", "oauth"), ("scopes:described", lines)];
        let refused = super::submit(&t, "/act", &fields, &ada).await;
        assert_eq!(refused.status, 400);
        assert!(refused.text.contains(says) && refused.text.contains("ok Fine\n"), "{}", refused.text);
    }
    let fields = [
        ("call", &*call),
        ("back", &page_of),
        ("form", "app"),
        ("redirectUris:lines", "https://a.example/\nhttp://b.example/"),
    ];
    let refused = super::submit(&t, "/act", &fields, &ada).await;
    assert!(refused.text.contains("Line 2: must be https"), "{}", refused.text);
    t.finish().await;
}

#[tokio::test]
async fn another_tenants_pages_look_like_those_of_nobody() {
    let t = start().await;
    let (_, app) = developer(&t).await;
    member(&t, "eve@example.com").await;
    let eve = browser(&t, "eve@example.com").await;
    let nobodys = "/console/apps/01890000-0000-7000-8000-000000000000";
    for page in
        ["", "/keys", "/users", "/domain", "/domains", "/domains/shop.example", "/webhooks", "/settings", "/activity"]
    {
        let theirs = visit(&t, &format!("{app}{page}"), &eve).await;
        let none = visit(&t, &format!("{nobodys}{page}"), &eve).await;
        let said = |answer: &Answer| answer.text.replace(answer.header("x-request-id"), "");
        assert_eq!((theirs.status, said(&theirs)), (404, said(&none)), "{page}");
    }
    assert_eq!(visit(&t, "/console/apps/..%2F..%2Fauth%2Fme", &eve).await.status, 404);
    let id = app.rsplit('/').next().unwrap_or_default();
    let forged = act(&t, &eve, &format!("DELETE /apps/{id}"), "/console", &[]).await;
    assert_eq!(forged.status, 404);
    t.finish().await;
}

#[tokio::test]
async fn an_organization_has_members_invitations_tokens_and_a_log() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let made = act(&t, &ada, "POST /org", "/console", &[("name", "Example"), ("then", "/console/orgs/{id}")]).await;
    let org = made.header("location").to_owned();
    let id = org.rsplit('/').next().unwrap_or_default().to_owned();
    for page in ["", "/settings", "/members", "/scim", "/activity"] {
        let answer = visit(&t, &format!("{org}{page}"), &ada).await;
        assert_eq!(answer.status, 200, "{page}: {}", answer.text);
    }
    let invited = [("email", "bob@example.com"), ("role", "member")];
    let members = format!("{org}/members");
    assert_eq!(act(&t, &ada, &format!("POST /org/{id}/members"), &members, &invited).await.status, 303);
    assert!(visit(&t, &members, &ada).await.text.contains("bob@example.com"));
    t.run_jobs().await;
    let cancelled = act(&t, &ada, &format!("DELETE /org/{id}/invites/bob%40example.com"), &members, &[]).await;
    assert_eq!(cancelled.status, 303, "{}", cancelled.text);
    let settings = format!("{org}/settings");
    let changed = [("metadata:body", r#"{"plan":"gold"}"#)];
    assert_eq!(act(&t, &ada, &format!("PATCH /orgs/{id}/metadata"), &settings, &changed).await.status, 303);
    assert!(visit(&t, &settings, &ada).await.text.contains("gold"));
    let bad = [("metadata:body", "{")];
    assert_eq!(act(&t, &ada, &format!("PATCH /orgs/{id}/metadata"), &settings, &bad).await.status, 400);
    let activity = visit(&t, &format!("{org}/activity"), &ada).await;
    assert!(
        activity.text.contains("Organization created") && activity.text.contains("Member invited"),
        "{}",
        activity.text
    );
    let log = t.get(&format!("/org/{id}/audit-log?limit=1")).header("cookie", &ada).await;
    assert_eq!(log.body["events"][0]["type"], "ORG_METADATA_UPDATED");
    assert!(log.body["nextCursor"].is_string());
    let eve = signed_in(&t, "eve@example.com").await;
    assert_eq!(eve.asks(t.get(&format!("/org/{id}/audit-log"))).await.status, 404);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn long_lists_have_more() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    for n in 0..60 {
        act(&t, &ada, "PATCH /user/profile", "/account", &[("name", &format!("Ada {n}"))]).await;
    }
    let first = visit(&t, "/account/activity", &ada).await.text;
    let more = first
        .split("class=\"pager more\"><a class=\"btn btn-s\" href=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let more = more.expect("a way on").to_owned();
    let next = visit(&t, &format!("/account/activity{more}"), &ada).await;
    assert_eq!(next.status, 200);
    let rows = |page: &str| page.split("id=\"rows\"").nth(1).unwrap_or_default().to_owned();
    assert!(rows(&next.text).contains("Account created") && !rows(&first).contains("Account created"));
    assert_eq!(visit(&t, "/account/activity?cursor=forged", &ada).await.status, 400);
    t.finish().await;
}

#[tokio::test]
async fn a_webhook_is_made_tried_and_given_a_new_secret() {
    let config = kernel::config::Config::for_tests().with(|webhooks: &mut workshop::webhooks::Settings| {
        webhooks.webhook_allow_nets = vec!["127.0.0.0/8".parse().unwrap()];
        webhooks.webhook_allow_http = kernel::config::Switch::On;
    });
    let t = TestJanua::start_with(config, super::feature).await;
    let (ada, app) = developer(&t).await;
    let id = app.rsplit('/').next().unwrap_or_default().to_owned();
    let page = format!("{app}/webhooks");
    let dialog = visit(&t, &format!("{page}?new=webhook"), &ada).await;
    assert!(dialog.text.contains("value=\"user.signed_in\""), "what can be listened to");
    let send = async |call: String, back: &str, fields: &[(&str, &str)]| {
        let all: Vec<_> =
            [("call", call.as_str()), ("back", back)].into_iter().chain(fields.iter().copied()).collect();
        super::submit(&t, "/act", &all, &ada).await
    };
    let fields = [
        ("form", "webhook"),
        ("show", "1"),
        ("url", "http://127.0.0.1:9/hook"),
        ("events:list", "user.signed_in"),
        ("events:list", "audit.*"),
        ("standardHeaders:flag", "false"),
        ("standardHeaders:flag", "true"),
    ];
    let made = send(format!("POST /apps/{id}/webhooks"), &page, &fields).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let secret = shown(&made, "new-secret").expect("the secret");
    assert_eq!(secret.len(), 64);
    assert!(shown(&made, "new-standard").is_some_and(|text| text.starts_with("whsec_")));
    let list = t.get(&format!("/apps/{id}/webhooks")).header("cookie", &ada).await;
    assert_eq!(list.body["webhooks"][0]["events"], serde_json::json!(["user.signed_in", "audit.*"]));
    let hook = text(&list.body["webhooks"][0]["id"]);
    let (root, page) = (format!("/apps/{id}/webhooks/{hook}"), format!("{page}/{hook}"));
    assert!(!visit(&t, &page, &ada).await.text.contains(&secret), "never again");
    assert_eq!(send(format!("POST {root}/test"), &page, &[]).await.status, 303);
    let rotated = send(
        format!("PATCH {root}"),
        &page,
        &[("form", "rotate"), ("show", "1"), ("rotateSecret:json", "true"), ("rotationGraceMs:number", "86400000")],
    )
    .await;
    assert_eq!(rotated.status, 200, "{}", rotated.text);
    assert!(shown(&rotated, "new-secret").is_some_and(|new| new != secret));
    assert!(rotated.text.contains("1 day"), "the time left is said: {}", rotated.text);
    assert_eq!(send(format!("PATCH {root}"), &page, &[("rotateSecret", "finalize")]).await.status, 303);
    assert!(!visit(&t, &page, &ada).await.text.contains("Finish rotation"));
    assert_eq!(send(format!("PATCH {root}"), &page, &[("isActive:flag", "false")]).await.status, 303);
    assert_eq!(send(format!("POST {root}/test"), &page, &[]).await.status, 409, "it is off");
    // Others of the organization look; strangers do not.
    let eve = signed_in(&t, "eve@example.com").await;
    for path in [root.clone(), format!("{root}/deliveries")] {
        assert_eq!(eve.asks(t.get(&path)).await.status, 404, "{path}");
    }
    assert_eq!(eve.asks(t.post(&format!("{root}/test"))).await.status, 404);
    let gone = send(format!("DELETE {root}"), &page, &[("then", &format!("{app}/webhooks"))]).await;
    assert_eq!(gone.header("location"), format!("{app}/webhooks"));
    t.run_jobs().await;
    t.finish().await;
}
