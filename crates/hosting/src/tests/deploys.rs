//! Deploying, going back, lists and logs.
use std::time::Duration;

use axum::http::Method;
use data_encoding::BASE64;
use futures_util::StreamExt as _;

use super::*;
use crate::{
    deployments::{Deployment, RewritePacks, Unpackers},
    edge::manifest::Sha256,
};

#[tokio::test]
async fn an_archive_is_a_site_at_once_and_the_next_one_replaces_it() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    t.happened().await;
    let first = ada.deployed(&t, &[("index.html", "one"), ("about.html", "about")]).await;
    t.expects(&["DISTRIBUTION_PROVISIONED", "DEPLOYMENT_CREATED", "DEPLOYMENT_ACTIVATED"]).await;
    assert_eq!((&first["number"], &first["active"], &first["files"]), (&json!(1), &json!(true), &json!(2)));
    assert_eq!(first["url"], "http://shop.localhost:8081");
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()));
    assert_eq!(shows(&t, "shop.localhost", "/about").await, (200, "about".into()));
    let second = ada.deployed(&t, &[("index.html", "two"), ("about.html", "about")]).await;
    assert_eq!(second["newBytes"], 3, "what the app has is not stored again");
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "two".into()));
    let preview = host_of(&first["previewUrl"]);
    assert_eq!(shows(&t, &preview, "/").await, (200, "one".into()), "each stays at its own host");
    let listed = ada.person.asks(t.get("/deployments")).await;
    let active: Vec<_> =
        listed.body["deployments"].as_array().unwrap().iter().map(|one| one["active"].clone()).collect();
    assert_eq!(active, [json!(true), json!(false)], "{}", listed.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn going_back_is_a_new_deployment_with_the_same_files() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    let first = ada.deployed(&t, &[("index.html", "one")]).await;
    ada.deployed(&t, &[("index.html", "two")]).await;
    t.run_jobs().await;
    let path = format!("/deployments/{}/redeploy", first["id"].as_str().unwrap());
    let back = ada.person.asks(t.post(&path).json(&json!({ "reason": "the new one is broken" }))).await;
    assert_eq!(back.status, 200, "{}", back.text);
    assert_eq!((&back.body["number"], &back.body["newBytes"]), (&json!(3), &json!(0)));
    assert_eq!(back.body["source"]["redeployOf"], first["id"]);
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()));
    let eve = signed_in(&t, "eve@example.com").await;
    assert_eq!(eve.asks(t.post(&path)).await.refusal(), (404, "not_found"), "W16");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn of_two_that_overlap_the_later_one_wins() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    let first = ada.deployed(&t, &[("index.html", "one")]).await;
    // As if the second had ended before the first: production points to a later number.
    let sql = "UPDATE site SET active_number = 5, last_number = 5";
    t.janua.db.exec(sql, vec![]).await.unwrap();
    let sql = "UPDATE site SET last_number = 3";
    t.janua.db.exec(sql, vec![]).await.unwrap();
    let late = ada.deploys(&t, "", site(&[("index.html", "late")])).await;
    assert_eq!((&late.body["status"], &late.body["active"]), (&json!("ready"), &json!(false)), "{}", late.text);
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()));
    assert_eq!(
        ada.person.asks(t.get(&format!("/deployments/{}", first["id"].as_str().unwrap()))).await.body["active"],
        true
    );
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn previews_and_what_is_not_activated_leave_production_alone() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    ada.deployed(&t, &[("index.html", "one")]).await;
    for query in ["?target=preview&branch=feature&commit=abcdef1&message=Try", "?activate=false"] {
        let made = ada.deploys(&t, query, site(&[("index.html", "new")])).await;
        assert_eq!((made.status, &made.body["active"]), (200, &json!(false)), "{}", made.text);
        assert_eq!(shows(&t, &host_of(&made.body["previewUrl"]), "/").await, (200, "new".into()));
        assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()));
    }
    let found = ada.person.asks(t.get("/deployments?branch=feature&target=preview")).await;
    let found = found.body["deployments"].as_array().unwrap();
    assert_eq!((found.len(), &found[0]["commit"]["sha"]), (1, &json!("abcdef1")));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn the_digest_is_checked_and_a_repeated_request_is_one_deployment() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    let path = format!("/apps/{}/deploy", ada.app);
    let send = async |archive: Vec<u8>, headers: &[(&str, &str)]| {
        let mut ask = ada.person.asks(t.post(&path).header("content-type", "application/gzip").body(archive));
        for (name, value) in headers {
            ask = ask.header(name, value);
        }
        ask.await
    };
    let (one, two) = (site(&[("index.html", "one")]), site(&[("index.html", "two")]));
    let digest = |archive: &[u8]| format!("sha-256=:{}:", BASE64.encode(&Sha256::of(archive).0));
    let refused = send(one.clone(), &[("content-digest", &digest(&two))]).await;
    assert_eq!(refused.refusal(), (400, "digest_mismatch"), "W04");
    assert_eq!(shows(&t, "shop.localhost", "/").await.0, 404);
    let key = ("idempotency-key", "build-17");
    let first = send(one.clone(), &[key, ("content-digest", &digest(&one))]).await;
    assert_eq!(first.status, 200, "{}", first.text);
    let again = send(one.clone(), &[key]).await;
    assert_eq!((again.status, &again.body["id"]), (200, &first.body["id"]), "{}", again.text);
    assert_eq!(send(two, &[key]).await.refusal(), (409, "idempotency_mismatch"));
    let wrong = ada.person.asks(t.post(&path).header("content-type", "text/plain").body(one)).await;
    assert_eq!(wrong.refusal(), (415, "archive_type"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_log_says_what_happened_in_three_forms_and_failures_are_listed() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    let good = ada.deployed(&t, &[("out/index.html", "one"), ("out/.env", "SECRET=1"), ("README.md", "x")]).await;
    let path = format!("/deployments/{}/logs", good["id"].as_str().unwrap());
    let logs = ada.person.asks(t.get(&path)).await;
    assert_eq!(logs.body["complete"], true);
    assert!(logs.text.contains("The folder out is the root") && logs.text.contains("out/.env"), "{}", logs.text);
    let plain = ada.person.asks(t.get(&path)).header("accept", "text/plain").await;
    assert!(plain.text.contains(" info  Live in production.\n"), "{}", plain.text);
    let events = ada.person.asks(t.get(&path)).header("accept", "text/event-stream").await;
    assert!(events.text.starts_with("id: 1\ndata: {") && events.text.contains("event: complete"), "{}", events.text);
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()));
    let bad = ada.deploys(&t, "", gzip(b"no tar")).await;
    assert_eq!(bad.refusal(), (400, "invalid_archive"));
    let failures = ada.person.asks(t.get("/deployments/recent-failures")).await;
    let failure = &failures.body["failures"][0];
    assert_eq!(failure["deployment"]["id"], bad.body["deploymentId"], "{}", failures.text);
    assert_eq!(failure["error"]["code"], "invalid_archive");
    assert_eq!(failure["lastLogs"].as_array().unwrap().len(), 1);
    let health = ada.person.asks(t.get("/deployments/health?window=1h")).await;
    assert_eq!(health.body["deployments"], json!({ "ready": 1, "failed": 1, "canceled": 0, "processing": 0 }));
    assert_eq!((&health.body["successRate"], &health.body["status"]), (&json!(0.5), &json!("degraded")));
    let per_app = ada.person.asks(t.get("/deployments/per-app")).await;
    let app = &per_app.body["apps"][0];
    assert_eq!((&app["active"]["id"], &app["latest"]["id"]), (&good["id"], &bad.body["deploymentId"]));
    let eve = signed_in(&t, "eve@example.com").await;
    for path in ["/deployments", "/deployments/recent-failures", "/deployments/per-app"] {
        let hers = eve.asks(t.get(path)).await;
        let list = hers.body.as_object().unwrap().values().find(|value| value.is_array()).unwrap();
        assert!(list.as_array().unwrap().is_empty(), "{path}: {}", hers.text);
    }
    assert_eq!(eve.asks(t.get(&path)).await.refusal(), (404, "not_found"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_locked_app_and_a_deleted_key_deploy_nothing() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    ada.deployed(&t, &[("index.html", "one")]).await;
    let key = json!({ "type": "secret", "environment": "live", "name": "CI" });
    let key = ada.person.asks(t.post(&format!("/apps/{}/keys", ada.app)).json(&key)).await.body;
    let path = format!("/apps/{}/deploy", ada.app);
    let by_key = async |content: &str| {
        let ask = t.post(&path).header("content-type", "application/gzip").body(site(&[("index.html", content)]));
        ask.header("authorization", &format!("Bearer {}", key["value"].as_str().unwrap())).await
    };
    let made = by_key("two").await;
    assert_eq!((made.status, &made.body["source"]["keyId"]), (200, &key["id"]), "{}", made.text);
    let log = ada.person.asks(t.get(&format!("/apps/{}/audit-log?type=DEPLOYMENT_ACTIVATED", ada.app))).await;
    assert_eq!(log.body["events"][0]["actorName"], "Key CI");
    ada.sets(&t, json!({ "locked": true, "lockedReason": "A sale is on." })).await;
    let refused = by_key("three").await;
    assert_eq!(refused.refusal(), (409, "deploy_locked"));
    assert_eq!(refused.body["detail"], "A sale is on.");
    ada.sets(&t, json!({ "locked": false })).await;
    let gone = format!("/apps/{}/keys/{}", ada.app, key["id"].as_str().unwrap());
    assert_eq!(ada.person.asks(t.ask(Method::DELETE, &gone)).await.status, 204);
    assert_eq!(by_key("four").await.refusal(), (401, "invalid_app_key"), "J6");
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "two".into()));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_interrupted_deployment_fails_after_a_minute() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    let done = ada.deployed(&t, &[("index.html", "one")]).await;
    t.run_jobs().await;
    let sql = "UPDATE deployment SET status = 'processing', ready_at = NULL WHERE id = $1";
    t.janua.db.exec(sql, db::params![done["id"].as_str().unwrap()]).await.unwrap();
    t.advance(Duration::from_secs(50));
    t.run_jobs().await;
    let path = format!("/deployments/{}", done["id"].as_str().unwrap());
    assert_eq!(ada.person.asks(t.get(&path)).await.body["status"], "processing");
    t.advance(Duration::from_secs(30));
    t.run_jobs().await;
    let ended = ada.person.asks(t.get(&path)).await;
    assert_eq!((&ended.body["status"], &ended.body["error"]["code"]), (&json!("failed"), &json!("interrupted")));
    t.finish().await;
}

#[tokio::test]
async fn old_deployments_expire_and_their_bytes_go_but_shared_ones_stay() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    let big = "shared ".repeat(100);
    let first = ada.deployed(&t, &[("index.html", "0"), ("shared.txt", &big)]).await;
    t.run_jobs().await;
    for n in 1..=52 {
        ada.deployed(&t, &[("index.html", &n.to_string()), ("shared.txt", &big)]).await;
        t.advance(Duration::from_secs(1));
    }
    t.run_jobs().await;
    // Grace: what was live until lately stays for a day.
    let path = format!("/deployments/{}", first["id"].as_str().unwrap());
    assert_eq!(ada.person.asks(t.get(&path)).await.body["expiresAt"], Value::Null);
    t.advance(Duration::from_hours(25));
    let again = signed_in_again(&t).await;
    let ask = t.post(&format!("/apps/{}/deploy", ada.app)).header("content-type", "application/gzip");
    let last = again.asks(ask.body(site(&[("index.html", "last"), ("shared.txt", &big)]))).await;
    assert_eq!(last.status, 200, "{}", last.text);
    assert_eq!(last.body["newBytes"], 4);
    t.run_jobs().await;
    let expired = again.asks(t.get(&path)).await;
    assert!(expired.body["expiresAt"].is_string(), "{}", expired.text);
    let redeploy = again.asks(t.post(&format!("{path}/redeploy"))).await;
    assert_eq!(redeploy.refusal(), (410, "deployment_expired"));
    assert_eq!(shows(&t, &host_of(&first["previewUrl"]), "/").await.0, 404);
    let packs = async || {
        let (count,): (i64,) = t.janua.db.one("SELECT CAST(COUNT(*) AS BIGINT) FROM pack", vec![]).await.unwrap();
        count
    };
    let before = packs().await;
    t.advance(Duration::from_hours(2));
    t.run_jobs().await;
    assert!(packs().await < before, "packs that nothing names go");
    assert_eq!(shows(&t, "shop.localhost", "/shared.txt").await, (200, big), "the first pack is still needed");
    t.finish().await;
}

async fn signed_in_again(t: &TestJanua) -> Person {
    Person::of(&identity::testing::login(t, "ada@example.com", identity::testing::PASSWORD).await)
}

#[tokio::test]
async fn files_of_a_deployment_are_compared_with_the_one_before() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    let first = ada.deployed(&t, &[("index.html", "one"), ("old.txt", "x"), ("same.txt", "s")]).await;
    let second = ada.deployed(&t, &[("index.html", "two"), ("new.txt", "n"), ("same.txt", "s")]).await;
    let files = ada.person.asks(t.get(&format!("/deployments/{}/files", second["id"].as_str().unwrap()))).await;
    assert_eq!(files.body["comparedWith"], first["id"], "{}", files.text);
    let list: Vec<_> = files.body["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (file["path"].as_str().unwrap(), file["change"].as_str().unwrap()))
        .collect();
    assert_eq!(list, [("index.html", "changed"), ("new.txt", "added"), ("old.txt", "removed")]);
    assert_eq!(files.body["unchanged"], 1);
    t.run_jobs().await;
    t.finish().await;
}

/// A body that waits until it is let go on.
fn held_back(archive: &[u8]) -> (tokio::sync::oneshot::Sender<()>, axum::body::Body) {
    let (go_on, wait) = tokio::sync::oneshot::channel::<()>();
    let (head, tail) = (archive[..10].to_vec(), archive[10..].to_vec());
    let chunks = futures_util::stream::once(async move { Ok::<_, std::io::Error>(head) }).chain(
        futures_util::stream::once(async move {
            let _ = wait.await;
            Ok(tail)
        }),
    );
    (go_on, axum::body::Body::from_stream(chunks))
}

#[tokio::test]
async fn a_deployment_that_is_received_can_be_canceled() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    ada.deployed(&t, &[("index.html", "old")]).await;
    let (go_on, body) = held_back(&site(&[("index.html", "new")]));
    let path = format!("/apps/{}/deploy", ada.app);
    let sent = ada.person.asks(t.post(&path).header("content-type", "application/gzip").body(body)).send();
    let stop = async {
        let id = loop {
            let listed = ada.person.asks(t.get("/deployments?status=processing")).await;
            if let Some(id) = listed.body["deployments"][0]["id"].as_str() {
                break id.to_owned();
            }
            tokio::task::yield_now().await;
        };
        let cancel = format!("/deployments/{id}/cancel");
        let eve = signed_in(&t, "eve@example.com").await;
        assert_eq!(eve.asks(t.post(&cancel)).await.refusal(), (404, "not_found"), "W16");
        for _ in 0..2 {
            let stopped = ada.person.asks(t.post(&cancel)).await;
            assert_eq!((stopped.status, &stopped.body["status"]), (200, &json!("canceled")), "{}", stopped.text);
            assert_eq!(stopped.body["error"]["code"], "deployment_canceled");
        }
        go_on.send(()).unwrap();
        id
    };
    let (answer, id) = tokio::join!(sent, stop);
    assert_eq!(answer.refusal(), (409, "deployment_canceled"), "{}", answer.text);
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "old".into()));
    let shown = ada.person.asks(t.get(&format!("/deployments/{id}"))).await;
    assert_eq!((&shown.body["status"], &shown.body["active"]), (&json!("canceled"), &json!(false)));
    let health = ada.person.asks(t.get("/deployments/health")).await;
    assert_eq!(health.body["deployments"], json!({ "ready": 1, "failed": 0, "canceled": 1, "processing": 0 }));
    let events = t.happened().await;
    assert_eq!(events.iter().filter(|kind| *kind == "DEPLOYMENT_CANCELED").count(), 1, "{events:?}");
    assert!(!events.iter().any(|kind| kind == "DEPLOYMENT_FAILED"), "{events:?}");
    let live = ada.person.asks(t.get("/deployments?status=ready")).await.body["deployments"][0]["id"].clone();
    let late = format!("/deployments/{}/cancel", live.as_str().unwrap());
    assert_eq!(ada.person.asks(t.post(&late)).await.refusal(), (409, "deployment_not_cancelable"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn slow_archives_leave_threads_for_everything_else() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    let mut taken = vec![];
    while let Ok(place) = Unpackers::take(&t.janua) {
        taken.push(place);
    }
    assert!((32..=256).contains(&taken.len()), "well below the 512 threads that there are: {}", taken.len());
    let refused = ada.deploys(&t, "", site(&[("index.html", "x")])).await;
    assert_eq!((refused.refusal(), refused.header("retry-after")), ((503, "overloaded"), "5"), "{}", refused.text);
    let listed = ada.person.asks(t.get("/deployments")).await;
    assert_eq!(listed.body["deployments"], json!([]), "nothing was begun");
    taken.pop();
    ada.deployed(&t, &[("index.html", "x")]).await;
    ada.deployed(&t, &[("index.html", "y")]).await;
    drop(taken);
    t.run_jobs().await;
    t.finish().await;
}

/// Text of so many bytes that does not compress.
fn noise(seed: u64, length: usize) -> String {
    let mut state = seed;
    let mut text = String::new();
    while text.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let part = format!("{state:016x}");
        text.push_str(&part);
    }
    text
}

#[tokio::test]
async fn a_file_that_never_changes_does_not_keep_what_lay_beside_it() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    let (stays, first, second) = (noise(1, 40_000), noise(2, 300_000), noise(3, 300_000));
    let old = ada.deployed(&t, &[("index.html", "one"), ("stays.bin", &stays), ("changes.bin", &first)]).await;
    let new = ada.deployed(&t, &[("index.html", "two"), ("stays.bin", &stays), ("changes.bin", &second)]).await;
    let again = format!("/deployments/{}/redeploy", new["id"].as_str().unwrap());
    assert_eq!(ada.person.asks(t.post(&again)).await.status, 200, "it shares the manifest");
    t.run_jobs().await;
    let packs = async || {
        let sql = "SELECT CAST(SUM(bytes) AS BIGINT) FROM pack WHERE object LIKE '%.pack'";
        let (bytes,): (i64,) = t.janua.db.one(sql, vec![]).await.unwrap();
        bytes
    };
    let all = packs().await;
    assert!(all > 640_000, "{all}");
    let rewrite = async || {
        let (app, now) = (ada.app.parse().unwrap(), t.janua.clock.now());
        let job = RewritePacks { app };
        db::transact!(t.janua.db, async |tx| kernel::jobs::enqueue(tx, &t.janua, now, &job).await).unwrap();
        t.run_jobs().await;
        t.advance(Duration::from_hours(2));
        t.run_jobs().await;
    };
    rewrite().await;
    assert_eq!(packs().await, all, "everything is needed");
    let id = old["id"].as_str().unwrap().parse().unwrap();
    let now = t.janua.clock.now();
    db::transact!(t.janua.db, async |tx| Deployment::expire(tx, id, now).await).unwrap();
    rewrite().await;
    let left = packs().await;
    assert!(left < all - 300_000, "{left} of {all}");
    for host in ["shop.localhost".to_owned(), host_of(&new["previewUrl"])] {
        assert_eq!(shows(&t, &host, "/stays.bin").await, (200, stays.clone()), "{host}");
        assert_eq!(shows(&t, &host, "/changes.bin").await, (200, second.clone()), "{host}");
    }
    rewrite().await;
    assert_eq!(packs().await, left, "there is nothing more to gain");
    t.finish().await;
}
