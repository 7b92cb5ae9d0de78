//! One request, followed through everything that it caused.
use std::time::Duration;

use identity::testing::signed_in;

use super::*;

const ROOT: &str = "root@example.com";

async fn platform() -> TestJanua {
    let config =
        Config::for_tests().with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec![ROOT.into()]);
    TestJanua::start_with(config, feature).await
}

/// The steps as `kind name state`.
fn steps(body: &Value) -> Vec<String> {
    let word = |step: &Value, name: &str| step[name].as_str().unwrap_or("-").to_owned();
    let steps = body["steps"].as_array().expect("steps").iter();
    steps.map(|step| format!("{} {} {}", word(step, "kind"), word(step, "name"), word(step, "state"))).collect()
}

#[tokio::test]
async fn one_click_is_followed_from_the_request_to_the_mail_and_the_delivery() {
    let t = platform().await;
    let (root, ada) = (signed_in(&t, ROOT).await, signed_in(&t, "ada@example.com").await);
    let app = make_app(&t, &ada, "Shop").await;
    let hook = json!({ "url": "http://127.0.0.1:9/hook", "events": ["*"] });
    let made = ada.asks(t.post(&format!("/apps/{}/webhooks", app.id)).json(&hook)).await;
    assert_eq!(made.status, 200, "{}", made.text);
    t.run_jobs().await;
    let body = json!({ "email": "new@example.com", "password": PASSWORD, "name": "Eve" });
    let path = "/auth/register";
    let answer = t.post(path).json(&body).header("x-service-app-key", &app.key).await;
    assert!(answer.status < 300, "{}", answer.text);
    let id = answer.header("x-request-id").to_owned();
    let place = format!("/observability/traces/{id}");
    assert_eq!(t.get(&place).await.status, 401);
    assert_eq!(ada.asks(t.get(&place)).await.refusal(), (403, "forbidden"));
    let before = root.asks(t.get(&place)).await;
    assert!(steps(&before.body).iter().any(|step| step.ends_with(" waiting")), "{}", before.text);
    t.advance(Duration::from_secs(1));
    t.run_jobs().await;
    workshop::webhooks::deliver_due(&t.janua).await.unwrap();
    let said = root.asks(t.get(&place)).await;
    let steps = steps(&said.body);
    println!("{}", said.text);
    assert_eq!(steps[0], format!("request POST {path} answered"), "the request comes first");
    assert!(steps.iter().any(|step| step.starts_with("event ")), "{steps:?}");
    assert!(steps.iter().any(|step| step.starts_with("mail ") && step.ends_with(" sent")), "{steps:?}");
    assert!(steps.iter().any(|step| step.starts_with("delivery ")), "{steps:?}");
    assert!(!steps.iter().any(|step| step.starts_with("job mail.send")), "the mail stands for its job: {steps:?}");
    for secret in ["new@example.com", "Eve", PASSWORD, "127.0.0.1:9"] {
        assert!(!said.text.contains(secret), "{secret}: {}", said.text);
    }
    assert_eq!(said.body["traceId"].as_str().unwrap(), id.replace('-', ""), "a new trace has the ID of its request");
    t.finish().await;
}

#[tokio::test]
async fn of_a_crowd_of_requests_some_are_kept_and_each_shows_what_it_caused() {
    let t = platform().await;
    let (root, ada) = (signed_in(&t, ROOT).await, signed_in(&t, "ada@example.com").await);
    let mut ids = vec![];
    for _ in 0..105 {
        let made = ada.asks(t.post("/apps").json(&json!({ "name": "Shop" }))).await;
        assert_eq!(made.status, 200, "{}", made.text);
        ids.push(made.header("x-request-id").to_owned());
    }
    let last = ids.pop().unwrap();
    let said = root.asks(t.get(&format!("/observability/traces/{last}"))).await;
    let steps = steps(&said.body);
    assert_eq!(steps[0], "request unknown -", "{}", said.text);
    assert!(steps.iter().any(|step| step.starts_with("event ")), "{steps:?}");
    let (kept,): (i64,) =
        t.janua.db.one("SELECT CAST(COUNT(*) AS BIGINT) FROM request_span", db::params![]).await.unwrap();
    assert_eq!(kept, 100);
    assert!(t.janua.metrics.spans.dropped() >= 5);
    t.finish().await;
}
