//! Overviews, activity lists and search in the console.
use std::time::Duration;

use identity::testing::{PASSWORD, member, signed_in};
use kernel::{config::Config, testing::TestJanua};
use serde_json::json;

use super::{act, browser, client, feature, start, text, visit};

/// An app of Ada's through which Bob signed in twice and failed once, and Ada's browser.
async fn used_app(t: &TestJanua) -> (String, String) {
    let ada = signed_in(t, "ada@example.com").await;
    member(t, "bob@example.com").await;
    let app = client(t, &ada, "Shop").await;
    for password in [PASSWORD, PASSWORD, "wrong"] {
        let body = json!({ "email": "bob@example.com", "password": password });
        t.post("/auth/login").json(&body).header("x-service-app-key", &app.publishable).await;
    }
    // A wrong password is written down by a job, so that it takes as long as for an unknown email.
    t.run_jobs().await;
    (browser(t, "ada@example.com").await, app.id)
}

#[tokio::test]
async fn an_overview_counts_what_happened_by_day() {
    let t = start().await;
    let (ada, app) = used_app(&t).await;
    let overview = async |path: &str| t.get(path).header("cookie", &ada).await;
    let of_app = overview(&format!("/apps/{app}/overview")).await;
    assert_eq!(of_app.status, 200, "{}", of_app.text);
    let body = &of_app.body;
    assert_eq!(body["days"].as_array().map(Vec::len), Some(30));
    for (name, total) in
        [("signIns", 2), ("failedSignIns", 1), ("activeUsers", 1), ("newUsers", 1), ("deliveries", 0)]
    {
        assert_eq!((name, &body[name]["total"], &body[name]["days"][29]), (name, &json!(total), &json!(total)));
    }
    assert_eq!(
        (&body["users"], &body["signIns"]["before"], &body["isCapped"]),
        (&json!(1), &json!(0), &json!(false))
    );
    let org = text(&overview(&format!("/apps/{app}")).await.body["orgId"]);
    let of_org = overview(&format!("/org/{org}/overview")).await.body;
    assert_eq!((&of_org["signIns"]["total"], &of_org["members"], &of_org["apps"]), (&json!(2), &json!(1), &json!(1)));
    assert_eq!(overview("/admin/overview").await.status, 403);
    // 30 days later the same is what came before.
    t.run_jobs().await;
    t.advance(Duration::from_hours(24 * 30));
    let ada = browser(&t, "ada@example.com").await;
    let later = t.get(&format!("/apps/{app}/overview")).header("cookie", &ada).await.body;
    assert_eq!((&later["signIns"]["total"], &later["signIns"]["before"]), (&json!(0), &json!(2)));
    assert_eq!((&later["newUsers"]["total"], &later["newUsers"]["before"]), (&json!(0), &json!(1)));
    assert_eq!((&later["activeUsers"]["total"], &later["activeUsers"]["before"]), (&json!(0), &json!(1)));
    let page = visit(&t, &format!("/console/apps/{app}"), &ada).await;
    assert!(page.text.contains("-100% from 2") && page.text.contains("<caption>Sign-ins by day"), "{}", page.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn the_platform_is_counted_for_its_owners() {
    let config = Config::for_tests()
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["ada@example.com".into()]);
    let t = TestJanua::start_with(config, feature).await;
    let (ada, _) = used_app(&t).await;
    let body = t.get("/admin/overview").header("cookie", &ada).await.body;
    assert_eq!((&body["users"], &body["apps"], &body["failedSignIns"]["total"]), (&json!(2), &json!(1), &json!(1)));
    assert_eq!(body["newUsers"]["total"], 2, "accounts");
    let page = visit(&t, "/console/platform", &ada).await;
    assert!(page.status == 200 && page.text.contains("2 users, "), "{}", page.text);
    // A search of theirs finds accounts that belong to no organization.
    let all = t.get("/admin/users?search=bob").header("cookie", &ada).await.body;
    let found = visit(&t, "/console/search?q=bob", &ada).await.text.replace("&#x2f;", "/");
    let person = format!("href=\"/console/platform/users/{}\"", text(&all["users"][0]["id"]));
    assert!(found.contains(&person) && found.contains("bob@example.com, account"), "{found}");
    let log = visit(&t, "/console/platform/activity?type=SIGN_IN_FAILED", &ada).await;
    assert!(log.status == 200 && log.text.contains("Sign-in failed"), "{}", log.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn the_checklist_ends_in_you_are_live_and_stays() {
    let config = Config::for_tests().with(|webhooks: &mut workshop::webhooks::Settings| {
        webhooks.webhook_allow_nets = vec!["127.0.0.0/8".parse().unwrap()];
    });
    let t = TestJanua::start_with(config, feature).await;
    let (ada, app) = used_app(&t).await;
    let page = format!("/console/apps/{app}");
    let shown = visit(&t, &page, &ada).await.text;
    assert!(shown.contains("3 of 5") && shown.contains("Add endpoint") && !shown.contains("You are live"), "{shown}");
    let hook = [("url", "https://127.0.0.1:9/"), ("events:list", "user.signed_in")];
    let added = act(&t, &ada, &format!("POST /apps/{app}/webhooks"), &page, &hook).await;
    assert_eq!(added.status, 303, "{}", added.text);
    let sql =
        "INSERT INTO app_domain (id, app_id, org_id, domain, token, created_at, status_since, is_own, verified_at)
               SELECT id, id, org_id, 'shop.example', 't', 0, 0, TRUE, 0 FROM app WHERE id = $1";
    t.janua.db.exec(sql, db::params![&app]).await.unwrap();
    let shown = visit(&t, &page, &ada).await.text;
    assert!(shown.contains("You are live"), "by the domain of its name: {shown}");
    // A domain of its site does as well.
    t.janua.db.exec("UPDATE app_domain SET is_own = FALSE, is_listed = TRUE", db::params![]).await.unwrap();
    let shown = visit(&t, &page, &ada).await.text;
    assert!(shown.contains("You are live") && shown.contains("Show the checklist"), "{shown}");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_activity_list_says_who_and_is_filtered() {
    let t = start().await;
    let (ada, app) = used_app(&t).await;
    let log = format!("/apps/{app}/audit-log");
    let ask = async |query: &str| t.get(&format!("{log}{query}")).header("cookie", &ada).await;
    let all = ask("").await;
    let events = all.body["events"].as_array().cloned().unwrap_or_default();
    assert!(
        events.iter().any(|event| event["type"] == "APP_KEY_CREATED" && event["actorName"] == "Ada"),
        "{}",
        all.text
    );
    let of_bob = events.iter().find(|event| event["type"] == "SIGNED_IN").expect("a sign-in");
    assert!(of_bob["actorName"].is_null(), "an end user's name is not the log's to tell: {of_bob}");
    for (query, expected) in
        [("?type=SIGN_IN_FAILED", 1), ("?type=SIGNED_IN", 2), ("?search=signed%20in", 2), ("?search=%25", 0)]
    {
        let found = ask(query).await;
        assert_eq!(found.body["events"].as_array().map(Vec::len), Some(expected), "{query}: {}", found.text);
    }
    let today = &t.janua.clock.now().to_string()[..10];
    assert_eq!(
        ask(&format!("?since={today}&until={today}")).await.body["events"].as_array().map(Vec::len),
        Some(events.len())
    );
    assert_eq!(ask("?until=2020-01-01").await.body["events"], json!([]));
    assert_eq!(ask("?since=yesterday").await.status, 400);
    let first = ask("?limit=1&type=SIGNED_IN").await.body;
    let cursor = text(&first["nextCursor"]);
    assert_eq!(ask(&format!("?limit=1&type=SIGNED_IN&cursor={cursor}")).await.status, 200);
    assert_eq!(
        ask(&format!("?limit=1&type=SIGN_IN_FAILED&cursor={cursor}")).await.status,
        400,
        "a cursor is for its filter"
    );
    // Strangers and mere members see nothing of it.
    let eve = signed_in(&t, "eve@example.com").await;
    assert_eq!(eve.asks(t.get(&log)).await.status, 404);
    let page = visit(&t, &format!("/console/apps/{app}/activity?type=SIGNED_IN"), &ada).await.text;
    assert!(page.contains("Signed in") && page.contains("option value=\"SIGNED_IN\" selected"), "{page}");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_activity_list_comes_as_a_file_that_is_no_program() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let made = act(&t, &ada, "POST /org", "/console", &[("name", "Own"), ("then", "/console/orgs/{id}")]).await;
    let org = made.header("location").rsplit('/').next().unwrap_or_default().to_owned();
    act(&t, &ada, "PATCH /user/profile", "/account", &[("name", "=HYPERLINK(\"https://evil.example\")")]).await;
    act(&t, &ada, &format!("PATCH /org/{org}"), "/console", &[("name", "Own 2")]).await;
    for path in [format!("/org/{org}/audit-log"), "/auth/audit-log".to_owned()] {
        let by_query = t.get(&format!("{path}?format=csv")).header("cookie", &ada).await;
        let by_header = t.get(&path).header("cookie", &ada).header("accept", "text/csv").await;
        for file in [by_query, by_header] {
            assert_eq!((file.status, file.header("content-type")), (200, "text/csv; charset=utf-8"), "{}", file.text);
            assert!(file.header("content-disposition").contains(".csv"));
            assert!(file.text.starts_with("time,type,actor,actor_id,"), "{}", file.text);
            assert!(file.text.contains("\"'=HYPERLINK(\"\"https://evil.example\"\")\""), "{}", file.text);
        }
    }
    for page in [format!("/console/orgs/{org}/activity?format=csv"), "/account/activity?format=csv".to_owned()] {
        let file = visit(&t, &page, &ada).await;
        assert_eq!(
            (file.status, file.header("content-type")),
            (200, "text/csv; charset=utf-8"),
            "{page}: {}",
            file.text
        );
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn search_finds_what_the_viewer_may_see() {
    let t = start().await;
    let (ada, app) = used_app(&t).await;
    let find = async |who: &str, q: &str| {
        visit(&t, &format!("/console/search?q={q}"), who).await.text.replace("&#x2f;", "/")
    };
    for (q, expected) in [
        ("shop", format!("href=\"/console/apps/{app}\"")),
        ("shop+keys", format!("href=\"/console/apps/{app}/keys\"")),
        ("ada%40example", "ada@example.com".to_owned()),
        ("bob", "bob@example.com, end user of Shop".to_owned()),
        ("passkey+security", "No matches".to_owned()),
        ("security", "href=\"/account/security\"".to_owned()),
        ("%3Cb%3E", "No matches".to_owned()),
        ("", "Search the console".to_owned()),
    ] {
        let page = find(&ada, q).await;
        assert!(page.contains(&expected), "{q}: {page}");
    }
    let bob: Vec<(String,)> =
        t.janua.db.all("SELECT id FROM account WHERE email_key = $1", db::params!["bob@example.com"]).await.unwrap();
    let page = find(&ada, "bob").await;
    assert!(page.contains(&format!("href=\"/console/apps/{app}/users/{}\"", bob[0].0)), "the person: {page}");
    assert!(!page.contains("/console/platform/users/"), "accounts are for platform owners: {page}");
    member(&t, "eve@example.com").await;
    let eve = browser(&t, "eve@example.com").await;
    let page = find(&eve, "shop").await;
    assert!(page.contains("No matches") && !page.contains(&app), "{page}");
    assert!(!find(&eve, "outbox").await.contains("/console/outbox\""), "nor a page of the platform");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn figures_and_logs_are_read_along_an_index() {
    let t = start().await;
    let (_, app) = used_app(&t).await;
    t.run_jobs().await;
    if std::env::var("TEST_DATABASE_URL").is_ok() {
        return t.finish().await;
    }
    let plan = async |sql: &'static str| {
        let rows: Vec<Step> = t.janua.db.all(sql, db::params![&app]).await.unwrap();
        rows.into_iter().map(|step| step.detail).collect::<Vec<_>>().join("; ")
    };
    let by_app = plan("EXPLAIN QUERY PLAN SELECT type FROM audit_event WHERE app_id = $1 AND at >= 0 ORDER BY at DESC, id DESC LIMIT 9").await;
    assert!(by_app.contains("USING INDEX audit_event_app") && !by_app.contains("TEMP B-TREE"), "{by_app}");
    let by_id = plan("EXPLAIN QUERY PLAN SELECT type FROM audit_event WHERE id >= $1 ORDER BY id DESC LIMIT 9").await;
    assert!(by_id.contains("SEARCH") && !by_id.contains("TEMP B-TREE"), "{by_id}");
    t.finish().await;
}

struct Step {
    detail: String,
}
db::row!(Step { detail });
