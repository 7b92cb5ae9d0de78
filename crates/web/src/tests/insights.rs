//! The pages of analytics.
use identity::testing::{PASSWORD, Person, login, member};
use kernel::{config::Config, testing::TestJanua};
use serde_json::json;

use super::{act, browser, feature, visit};

#[tokio::test]
async fn analytics_are_shown_with_the_period_before_and_the_time_zone_is_set() {
    let t = TestJanua::start(|config| feature(config).and(insights::feature(config))).await;
    member(&t, "ada@example.com").await;
    member(&t, "bob@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let made = act(&t, &ada, "POST /apps", "/console", &[("name", "Shop"), ("then", "/console/apps/{id}")]).await;
    let app = made.header("location").to_owned();
    let id = app.rsplit('/').next().unwrap_or_default().to_owned();
    let page = visit(&t, &format!("{app}/analytics"), &ada).await;
    assert_eq!(page.status, 200, "{}", page.text);
    assert!(page.text.contains("Charts appear after the first sign-in to the app."), "{}", page.text);
    let person = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    let new = json!({ "type": "publishable", "environment": "live" });
    let key = person.asks(t.post(&format!("/apps/{id}/keys")).json(&new)).await;
    let key = key.body["value"].as_str().expect("a key").to_owned();
    for email in ["ada@example.com", "bob@example.com", "bob@example.com"] {
        let body = json!({ "email": email, "password": PASSWORD });
        let answer = t.post("/auth/login").json(&body).header("x-service-app-key", &key).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    for days in ["", "?days=7", "?days=365&funnel=sign_in", "?days=9999&funnel=nothing"] {
        let page = visit(&t, &format!("{app}/analytics{days}"), &ada).await;
        assert_eq!(page.status, 200, "{}", page.text);
        assert!(
            page.text.contains("Monthly active users") && page.text.contains("Most active users"),
            "{}",
            page.text
        );
        assert!(page.text.contains("bob@example.com") && page.text.contains("Password"), "{}", page.text);
    }
    let page = visit(&t, &format!("{app}/analytics?funnel=sign_in"), &ada).await;
    assert!(page.text.contains("First factor") && page.text.contains("100%"), "{}", page.text);
    let orgs = visit(&t, "/user/orgs", &ada).await;
    let org = orgs.body["orgs"][0]["id"].as_str().expect("an organization").to_owned();
    let place = format!("/console/orgs/{org}/analytics");
    let page = visit(&t, &place, &ada).await;
    assert!(page.status == 200 && page.text.contains("Shop"), "{}", page.text);
    let zone = format!("PUT /analytics/org/{org}/time-zone");
    let set = act(&t, &ada, &zone, &place, &[("timeZone", "Europe/Zurich")]).await;
    assert_eq!(set.status, 303, "{}", set.text);
    let page = visit(&t, &place, &ada).await;
    assert!(page.text.contains("in Europe&#x2f;Zurich from"), "{}", page.text);
    // Far from UTC: on the second of February there it is the first in UTC.
    let set = act(&t, &ada, &zone, &place, &[("timeZone", "Pacific/Kiritimati")]).await;
    assert_eq!(set.status, 303, "{}", set.text);
    t.advance(std::time::Duration::from_hours(36));
    let ada = browser(&t, "ada@example.com").await;
    for place in [place, format!("{app}/analytics")] {
        let page = visit(&t, &format!("{place}?days=7"), &ada).await;
        let range = page.text.split("id=\"figures\">").nth(1).and_then(|rest| rest.split('<').next());
        assert_eq!(range, Some("Jan 27 to Feb 2"), "{}", page.text);
    }
    let bob = browser(&t, "bob@example.com").await;
    assert!(matches!(visit(&t, &format!("{app}/analytics"), &bob).await.status, 403 | 404));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn platform_owners_see_requests_and_jobs() {
    let config = Config::for_tests()
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["root@example.com".into()]);
    let t = TestJanua::start_with(config, |config| feature(config).and(insights::feature(config))).await;
    member(&t, "root@example.com").await;
    member(&t, "ada@example.com").await;
    let root = browser(&t, "root@example.com").await;
    let place = "/console/platform/observability";
    let page = visit(&t, place, &root).await;
    assert!(page.status == 200 && page.text.contains("No figures yet"), "{}", page.text);
    t.advance(std::time::Duration::from_mins(1));
    insights::keep_counts(&t.janua).await.expect("what was counted");
    for window in ["", "?window=1h", "?window=7d", "?window=none"] {
        let page = visit(&t, &format!("{place}{window}"), &root).await;
        assert!(page.status == 200 && page.text.contains("POST &#x2f;auth&#x2f;register"), "{}", page.text);
        assert!(page.text.contains("mail.send") && page.text.contains("Healthy"), "{}", page.text);
    }
    let ada = browser(&t, "ada@example.com").await;
    assert_eq!(visit(&t, place, &ada).await.status, 403);
    // From the list of events to everything that the request of one caused.
    let activity = visit(&t, "/console/platform/activity", &root).await;
    let link = "/console/platform/traces?id=";
    let id = activity.text.split(link).nth(1).and_then(|rest| rest.split('"').next()).expect("a link to a trace");
    let trace = visit(&t, &format!("{link}{id}"), &root).await;
    assert!(trace.status == 200 && trace.text.contains("class=\"timeline\""), "{}", trace.text);
    assert!(trace.text.contains("POST &#x2f;"), "the request is part of it: {}", trace.text);
    let nothing = visit(&t, &format!("{link}no-such-request"), &root).await;
    assert!(nothing.status == 200 && nothing.text.contains("Nothing found"), "{}", nothing.text);
    assert_eq!(visit(&t, "/console/platform/traces", &root).await.status, 200);
    assert_eq!(visit(&t, &format!("{link}{id}"), &ada).await.status, 403);
    t.run_jobs().await;
    t.finish().await;
}
