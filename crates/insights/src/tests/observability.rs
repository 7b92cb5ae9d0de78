//! Observability: for platform admins, over all nodes, and without names of anybody.
use std::time::Duration;

use db::params;
use identity::testing::{login, signed_in};

use super::*;
use crate::observability;

const ROOT: &str = "root@example.com";
const MINUTE: Duration = Duration::from_mins(1);

async fn platform() -> TestJanua {
    let config =
        Config::for_tests().with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec![ROOT.into()]);
    TestJanua::start_with(config, feature).await
}

#[tokio::test]
async fn m27_requests_are_counted_by_route_for_platform_admins_alone() {
    let t = platform().await;
    let (root, ada) = (signed_in(&t, ROOT).await, signed_in(&t, "ada@example.com").await);
    let app = make_app(&t, &ada, "Shop").await;
    for path in ["/observability/functions", "/observability/api-gateway"] {
        assert_eq!(t.get(path).await.status, 401);
        assert_eq!(ada.asks(t.get(path)).await.refusal(), (403, "forbidden"), "an owner of an organization: {path}");
    }
    for _ in 0..5 {
        assert_eq!(ada.asks(t.get(&format!("/apps/{}", app.id))).await.status, 200);
    }
    t.advance(MINUTE);
    observability::keep(&t.janua).await.unwrap();
    let said = root.asks(t.get("/observability/api-gateway?window=1h")).await;
    let route = |body: &Value, name: &str| -> Value {
        let routes = body["routes"].as_array().unwrap().iter();
        routes.clone().find(|one| one["route"] == name && one["method"] == "GET").cloned().unwrap_or_default()
    };
    let shown = route(&said.body, "/apps/{appId}");
    assert_eq!((&shown["requests"], &shown["byClass"]["2xx"]), (&json!(5), &json!(5)), "{}", said.text);
    assert!(shown["p95"].as_f64().unwrap() >= shown["p50"].as_f64().unwrap());
    assert_eq!(said.body["nodes"].as_array().unwrap().len(), 1);
    assert_eq!(said.body["series"].as_array().unwrap().len(), 61);
    // Patterns and nothing else: no id, email or name.
    for secret in [app.id.as_str(), &ada.id, &root.id, "ada@example.com", "Shop"] {
        assert!(!said.text.contains(secret), "{secret}: {}", said.text);
    }
    let one = root.asks(t.get("/observability/api-gateway?window=1h&route=GET%20/apps/%7BappId%7D")).await.body;
    assert_eq!((&one["totals"]["requests"], one["routes"].as_array().unwrap().len()), (&json!(5), 1));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn functions_tell_how_jobs_fare() {
    let t = platform().await;
    signed_in(&t, ROOT).await;
    t.advance(MINUTE);
    t.run_jobs().await;
    observability::keep(&t.janua).await.unwrap();
    let root = Person::of(&login(&t, ROOT, PASSWORD).await);
    let functions = root.asks(t.get("/observability/functions?window=1h")).await;
    let of = |body: &Value, name: &str| -> Value {
        let all = body["functions"].as_array().unwrap().iter();
        all.clone().find(|one| one["name"] == name).cloned().unwrap_or_default()
    };
    let counting = of(&functions.body, "insights.count");
    assert_eq!(
        (&counting["kind"], &counting["health"]),
        (&json!("recurring"), &json!("healthy")),
        "{}",
        functions.text
    );
    assert!(counting["invocations"].as_u64().unwrap() >= 1 && counting["nextRunAt"].is_string());
    let mail = of(&functions.body, "mail.send");
    assert_eq!((&mail["kind"], &mail["health"]), (&json!("job"), &json!("healthy")), "{mail}");
    // A dead job in the window, and one that has been due for too long.
    let sql = "INSERT INTO job (id, kind, payload, created_at, ready_at, died_at, is_claimed, attempts, fence)
               VALUES ($1, $2, '{}', $3, $4, $5, $6, 1, 1)";
    let now = t.janua.clock.now();
    let nothing: Option<i64> = None;
    t.janua.db.exec(sql, params!["a", "mail.send", now, nothing, Some(now.0), false]).await.unwrap();
    t.janua.db.exec(sql, params!["b", "tidy", now, Some(now.0 - 61_000), nothing, false]).await.unwrap();
    let functions = root.asks(t.get("/observability/functions?window=1h")).await.body;
    let mail = of(&functions, "mail.send");
    assert_eq!((&mail["dead"], &mail["health"]), (&json!(1), &json!("failing")));
    let tidy = of(&functions, "tidy");
    assert_eq!(
        (&tidy["waiting"], &tidy["oldestWaitingMs"], &tidy["health"]),
        (&json!(1), &json!(61000), &json!("degraded"))
    );
    t.janua.db.exec("DELETE FROM job WHERE id IN ('a', 'b')", vec![]).await.unwrap();
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn minutes_become_hours_and_add_up() {
    let t = platform().await;
    signed_in(&t, ROOT).await;
    for _ in 0..3 {
        assert_eq!(t.get("/auth/me").await.status, 401);
        t.advance(MINUTE);
        observability::keep(&t.janua).await.unwrap();
    }
    t.advance(Duration::from_hours(50));
    t.run_jobs().await;
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM metric_span WHERE span = $1";
    let count = async |span: &str| t.janua.db.one::<(i64,)>(sql, params![span]).await.unwrap().0;
    assert_eq!((count("m").await, count("q").await, count("h").await), (0, 0, 1));
    let root = Person::of(&login(&t, ROOT, PASSWORD).await);
    let week = root.asks(t.get("/observability/api-gateway?window=7d&route=GET%20/auth/me")).await.body;
    assert_eq!((&week["totals"]["requests"], &week["totals"]["byClass"]["4xx"]), (&json!(3), &json!(3)));
    t.advance(Duration::from_hours(24 * 31));
    t.run_jobs().await;
    assert_eq!(count("h").await, 0, "kept for thirty days");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_day_has_the_same_figures_before_and_after_its_minutes_are_merged() {
    let t = platform().await;
    signed_in(&t, ROOT).await;
    let me = |count: usize| {
        let t = &t;
        async move {
            for _ in 0..count {
                assert_eq!(t.get("/auth/me").await.status, 401);
            }
        }
    };
    // Requests in each of 25 minutes, some of which share a quarter of an hour.
    for minute in 0..25 {
        me(1 + minute % 3).await;
        t.advance(MINUTE);
        observability::keep(&t.janua).await.unwrap();
    }
    t.advance(Duration::from_mins(135));
    let root = Person::of(&login(&t, ROOT, PASSWORD).await);
    let path = "/observability/api-gateway?window=24h&route=GET%20/auth/me";
    let before = root.asks(t.get(path)).await.body;
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM metric_span WHERE span = $1";
    let count = async |span: &str| t.janua.db.one::<(i64,)>(sql, params![span]).await.unwrap().0;
    assert_eq!((count("m").await, count("q").await), (25, 0));
    t.run_jobs().await;
    assert!(count("m").await < 15 && (2..=3).contains(&count("q").await), "most minutes are merged");
    let after = root.asks(t.get(path)).await.body;
    assert!(before["totals"]["requests"].as_u64().unwrap() > 40, "{before}");
    for part in ["totals", "routes", "series", "nodes"] {
        assert_eq!(before[part], after[part], "{part}");
    }
    // A day later they are the figures of the period before.
    t.advance(Duration::from_hours(24));
    t.run_jobs().await;
    let root = Person::of(&login(&t, ROOT, PASSWORD).await);
    let later = root.asks(t.get(path)).await.body;
    assert_eq!((&later["totals"]["requests"], &later["previous"]), (&json!(0), &before["totals"]));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn routes_are_exported_whole() {
    let t = platform().await;
    let root = signed_in(&t, ROOT).await;
    assert_eq!(t.get("/auth/me").await.status, 401);
    t.advance(MINUTE);
    observability::keep(&t.janua).await.unwrap();
    let csv = root.asks(t.get("/observability/api-gateway?window=1h&format=csv")).await;
    assert!(csv.header("content-type").starts_with("text/csv"), "{}", csv.text);
    assert!(csv.text.starts_with("\"method\",\"route\",\"requests\""), "{}", csv.text);
    assert!(csv.text.contains("\"GET\",\"/auth/me\",\"1\",\"0\",\"0\",\"1\",\"0\""), "{}", csv.text);
    t.run_jobs().await;
    t.finish().await;
}

#[expect(clippy::unused_async, reason = "a task is a function that answers a future")]
async fn panics() {
    panic!("on purpose");
}

#[tokio::test]
async fn tasks_show_on_how_many_nodes_they_run_and_that_they_panicked() {
    let with_tasks = |config: &Config| {
        feature(config)
            .task("test.waits", |_| Box::pin(std::future::pending()))
            .task("test.panics", |_| Box::pin(panics()))
    };
    let config =
        Config::for_tests().with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec![ROOT.into()]);
    let t = TestJanua::start_with(config, with_tasks).await;
    let root = signed_in(&t, ROOT).await;
    let tasks = t.janua.declared::<kernel::feature::Task>();
    let tasks = tasks.iter().filter(|task| task.name.starts_with("test."));
    let running: Vec<_> = tasks.map(|task| tokio::spawn(task.supervise(t.janua.clone()))).collect();
    // Each runs until it waits for something.
    tokio::task::yield_now().await;
    t.advance(MINUTE);
    observability::keep(&t.janua).await.unwrap();
    let functions = root.asks(t.get("/observability/functions?window=1h")).await.body;
    let of = |name: &str| -> Value {
        let all = functions["functions"].as_array().unwrap().iter();
        all.clone().find(|one| one["name"] == name).cloned().unwrap_or_default()
    };
    let (waits, panics) = (of("test.waits"), of("test.panics"));
    let figures = |one: &Value| json!([one["kind"], one["running"], one["errors"], one["health"], one["lastError"]]);
    assert_eq!(figures(&waits), json!(["task", 1, 0, "healthy", null]));
    assert_eq!(figures(&panics), json!(["task", 0, 1, "failing", "panicked"]));
    assert!(waits["lastRunAt"].is_string());
    assert_eq!(of("webhooks.dispatch")["kind"], "task", "every task is listed");
    for task in running {
        task.abort();
    }
    t.run_jobs().await;
    t.finish().await;
}
