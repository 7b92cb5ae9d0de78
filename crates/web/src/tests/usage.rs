//! The pages of usage and plans.
use identity::testing::{PASSWORD, Person, login, member};
use kernel::{config::Config, testing::TestJanua};
use serde_json::json;

use super::{act, browser, feature, visit};

#[tokio::test]
async fn usage_is_shown_down_to_single_events_and_plans_are_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let plans = folder.path().join("plans.toml");
    std::fs::write(&plans, "[meters.api_calls]\ngroup_by = [\"model\"]").expect("a plans file");
    let config = Config::for_tests()
        .with(|commerce: &mut commerce::Settings| commerce.plans_file = Some(plans))
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["root@example.com".into()]);
    let t = TestJanua::start_with(config, |config| feature(config).and(commerce::feature(config))).await;
    member(&t, "ada@example.com").await;
    member(&t, "root@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let made = act(&t, &ada, "POST /apps", "/console", &[("name", "Shop"), ("then", "/console/apps/{id}")]).await;
    let app = made.header("location").to_owned();
    let id = app.rsplit('/').next().unwrap_or_default().to_owned();
    let page = visit(&t, &format!("{app}/usage"), &ada).await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert!(page.text.contains("Track your first event") && page.text.contains("Members"), "{}", page.text);
    let person = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    let new = json!({ "type": "secret", "environment": "live" });
    let made = person.asks(t.post(&format!("/apps/{id}/keys")).json(&new)).await;
    let key = made.body["value"].as_str().expect("a key");
    for number in 0..25 {
        let event = json!({ "meter": "api_calls", "value": 40, "customer": "c-<b>", "eventId": format!("order-{number}"),
            "properties": { "model": "large" } });
        let tracked = t.post("/usage/track").json(&event).header("x-service-app-key", key).await;
        assert_eq!(tracked.status, 200, "{}", tracked.text);
    }
    let page = visit(&t, &format!("{app}/usage"), &ada).await;
    assert!(page.text.contains("1,000") && page.text.contains("order-24"), "{}", page.text);
    assert!(page.text.contains("c-&lt;b&gt;") && page.text.contains("model: large"), "{}", page.text);
    assert!(page.text.contains("Show older"), "{}", page.text);
    assert!(page.text.contains("By model") && page.text.contains("large: 1000"), "{}", page.text);
    let page = visit(&t, &format!("{app}/usage?meter=api_calls&customer=nobody"), &ada).await;
    assert!(page.status == 200 && !page.text.contains("order-24"), "{}", page.text);
    let orgs = visit(&t, "/user/orgs", &ada).await;
    let org = orgs.body["orgs"][0]["id"].as_str().expect("an organization").to_owned();
    let page = visit(&t, &format!("/console/orgs/{org}/usage"), &ada).await;
    assert!(page.status == 200 && page.text.contains("Free plan"), "{}", page.text);
    assert_eq!(visit(&t, "/console/platform/plans", &ada).await.status, 403);
    let root = browser(&t, "root@example.com").await;
    let page = visit(&t, "/console/platform/plans", &root).await;
    assert!(page.status == 200 && page.text.contains("Enterprise"), "{}", page.text);
    let changed =
        act(&t, &root, &format!("PATCH /admin/orgs/{org}"), "/console/platform/plans", &[("plan", "pro")]).await;
    assert_eq!(changed.status, 303, "{}", changed.text);
    assert!(visit(&t, &format!("/console/orgs/{org}/usage"), &ada).await.text.contains("Pro plan"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn usage_can_be_explored_by_month_down_to_every_customer_and_the_largest_group() {
    let folder = tempfile::tempdir().expect("a folder");
    let plans = folder.path().join("plans.toml");
    std::fs::write(&plans, "[meters.api_calls]\ngroup_by = [\"model\"]").expect("a plans file");
    let config = Config::for_tests().with(|commerce: &mut commerce::Settings| commerce.plans_file = Some(plans));
    let t = TestJanua::start_with(config, |config| feature(config).and(commerce::feature(config))).await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let made = act(&t, &ada, "POST /apps", "/console", &[("name", "Shop"), ("then", "/console/apps/{id}")]).await;
    let app = made.header("location").to_owned();
    let id = app.rsplit('/').next().unwrap_or_default().to_owned();
    let person = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    let new = json!({ "type": "secret", "environment": "live" });
    let made = person.asks(t.post(&format!("/apps/{id}/keys")).json(&new)).await;
    let key = made.body["value"].as_str().expect("a key");
    // In January 2026; the last in the alphabet is the largest.
    let events: Vec<_> = (0..30)
        .map(|number| {
            json!({ "meter": "api_calls", "value": number + 1, "customer": format!("customer-{number:02}"),
                "properties": { "model": format!("model-{number:02}") } })
        })
        .collect();
    let tracked = t.post("/usage/track").json(&json!({ "events": events })).header("x-service-app-key", key).await;
    assert_eq!(tracked.body["accepted"], 30, "{}", tracked.text);
    let page = visit(&t, &format!("{app}/usage"), &ada).await;
    assert!(page.text.contains("model-29: 30") && page.text.contains("model-00: 1"), "{}", page.text);
    assert!(page.text.contains(">customer-19<") && !page.text.contains(">customer-20</a>"), "{}", page.text);
    let (_, rest) = page.text.split_once("customersAfter=").expect("a link to the next customers");
    let cursor = rest.split('"').next().unwrap_or_default();
    let next = visit(&t, &format!("{app}/usage?meter=api_calls&customersAfter={cursor}"), &ada).await;
    assert!(next.text.contains(">customer-20</a>") && next.text.contains(">customer-29</a>"), "{}", next.text);
    assert!(next.text.contains("model-29: 30") && !next.text.contains("customersAfter="), "{}", next.text);

    t.run_jobs().await;
    t.advance(std::time::Duration::from_hours(24 * 20));
    let ada = browser(&t, "ada@example.com").await;
    let page = visit(&t, &format!("{app}/usage"), &ada).await;
    assert!(page.text.contains("this month") && page.text.contains("Track your first event"), "{}", page.text);
    assert!(page.text.contains("<option value=\"2026-01\">January 2026</option>"), "{}", page.text);
    let page = visit(&t, &format!("{app}/usage?meter=api_calls&month=2026-01"), &ada).await;
    assert!(page.text.contains("in January 2026") && page.text.contains("model-29: 30"), "{}", page.text);
    assert!(page.text.contains("&amp;month=2026-01") && page.text.contains("customer-00"), "{}", page.text);
    let page = visit(&t, &format!("{app}/usage?meter=api_calls&month=2026-01&customer=customer-07"), &ada).await;
    assert!(page.text.contains("model-07: 8") && !page.text.contains("model-08"), "{}", page.text);
    let page = visit(&t, &format!("{app}/usage?month=1999-01"), &ada).await;
    assert!(page.status == 200 && page.text.contains("this month"), "{}", page.text);
    t.run_jobs().await;
    t.finish().await;
}
