//! Incidents that the installation notices by itself.
use std::time::Duration;

use db::params;
use identity::testing::{login, mail_to, signed_in};
use kernel::{config::Switch, telemetry::Alarm};

use super::*;
use crate::observability;

const ROOT: &str = "root@example.com";
const MINUTE: Duration = Duration::from_mins(1);

async fn platform() -> TestJanua {
    let config =
        Config::for_tests().with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec![ROOT.into()]);
    TestJanua::start_with(config, |config| feature(config).and(site::feature(config))).await
}

/// Minutes pass in which this many requests fail and this many do not.
async fn minutes(t: &TestJanua, count: u32, failed: u32, answered: u32) {
    let route = t.janua.metrics.route("GET", "/test");
    for _ in 0..count {
        for _ in 0..failed {
            route.record(500, Duration::from_millis(1));
        }
        for _ in 0..answered {
            route.record(200, Duration::from_millis(1));
        }
        t.advance(MINUTE);
        observability::keep(&t.janua).await.unwrap();
        t.run_jobs().await;
    }
}

async fn open_incidents(t: &TestJanua) -> Vec<String> {
    let status = t.get("/status").await.body;
    status["openIncidents"].as_array().unwrap().iter().map(|incident| text(&incident["title"])).collect()
}

fn mails(t: &TestJanua, words: &str) -> usize {
    t.mailbox.mails().iter().filter(|mail| mail.contains("To: root@example.com") && mail.contains(words)).count()
}

#[tokio::test]
async fn errors_open_one_incident_and_its_end_resolves_it() {
    let t = platform().await;
    signed_in(&t, ROOT).await;
    t.run_jobs().await;
    minutes(&t, 6, 3, 100).await;
    assert!(open_incidents(&t).await.is_empty(), "three in a hundred are no incident");
    minutes(&t, 2, 10, 100).await;
    assert!(open_incidents(&t).await.is_empty(), "not at once");
    minutes(&t, 20, 10, 100).await;
    assert_eq!(open_incidents(&t).await, ["Some requests fail"], "once, however long it lasts");
    assert_eq!((mails(&t, "noticed a problem"), mails(&t, "problem is over")), (1, 0));
    assert!(mail_to(&t, ROOT).is_some());
    let public = t.get("/status/incidents").await;
    assert!(!public.text.contains("Of 5"), "figures are for the owners: {}", public.text);
    assert_eq!(public.body["incidents"][0]["components"], json!(["api"]));
    minutes(&t, 4, 0, 100).await;
    assert_eq!(open_incidents(&t).await.len(), 1, "until the minutes of the failures are over");
    minutes(&t, 10, 0, 100).await;
    assert!(open_incidents(&t).await.is_empty(), "resolved by itself");
    assert_eq!((mails(&t, "noticed a problem"), mails(&t, "problem is over")), (1, 1));

    // Resolved by an owner while it goes on: not opened again until it was gone.
    minutes(&t, 6, 50, 100).await;
    assert_eq!(open_incidents(&t).await.len(), 1);
    let root = Person::of(&login(&t, ROOT, PASSWORD).await);
    let id = t.get("/status/incidents?limit=1").await.body["incidents"][0]["id"].clone();
    let report = json!({ "id": id, "state": "resolved", "message": "A known test." });
    let resolved = root.asks(t.post("/admin/status/incidents").json(&report)).await;
    assert_eq!(resolved.status, 200, "{}", resolved.text);
    minutes(&t, 10, 50, 100).await;
    assert!(open_incidents(&t).await.is_empty(), "the owner has the last word");
    minutes(&t, 10, 0, 100).await;
    minutes(&t, 10, 50, 100).await;
    assert_eq!(open_incidents(&t).await.len(), 1, "and the next time is another one");
    assert_eq!((mails(&t, "noticed a problem"), mails(&t, "problem is over")), (3, 1));
    t.finish().await;
}

#[tokio::test]
async fn a_job_that_is_long_due_is_noticed() {
    let t = platform().await;
    let alarm = t.janua.declared::<Alarm>().iter().find(|alarm| alarm.key == "jobs").copied().unwrap();
    let check = async || (alarm.check)(t.janua.clone()).await.unwrap();
    assert_eq!(check().await, None);
    let sql = "INSERT INTO job (id, kind, payload, created_at, ready_at, is_claimed, attempts, fence)
               VALUES ('a', 'mail.send', '{}', 0, $1, $2, 0, 0)";
    let now = t.janua.clock.now();
    t.janua.db.exec(sql, params![now.minus(4 * MINUTE), false]).await.unwrap();
    assert_eq!(check().await, None, "four minutes are no reason");
    t.advance(3 * MINUTE);
    let found = check().await.unwrap();
    assert!(found.finding.contains("mail.send") && found.finding.contains("7 minutes"), "{found:?}");
    t.janua.db.exec("DELETE FROM job WHERE id = 'a'", vec![]).await.unwrap();
    t.finish().await;
}

#[tokio::test]
async fn alarms_can_be_switched_off() {
    let config = Config::for_tests()
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec![ROOT.into()])
        .with(|site: &mut site::Operator| site.status_alarms = Switch::Off);
    let t = TestJanua::start_with(config, |config| feature(config).and(site::feature(config))).await;
    signed_in(&t, ROOT).await;
    minutes(&t, 10, 50, 100).await;
    assert!(open_incidents(&t).await.is_empty() && mails(&t, "noticed a problem") == 0);
    t.finish().await;
}
