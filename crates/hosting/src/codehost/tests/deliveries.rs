//! Deliveries: signed, once, and followed by what the host says.
use std::time::Duration;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn w25_a_delivery_is_signed_and_counts_once() {
    let (t, github, ada) = start().await;
    let id = linked(&t, &github, &ada, json!({})).await;
    github.push(REPOSITORY, "main", 2, "two");
    let event = github.push_event(INSTALLATION, REPOSITORY, "main");
    let body = event.to_string();
    let good = GitHub::signature(body.as_bytes(), github::HOOK_SECRET);
    let other = GitHub::signature(body.as_bytes(), "another secret");
    let sha1 = format!("sha1={}", &good[7..47]);
    let again: Value = serde_json::from_str(&body).unwrap();
    let reserialised = serde_json::to_string_pretty(&again).unwrap();
    for (body, signature) in [
        (body.clone(), None),
        (body.clone(), Some(("x-hub-signature", sha1.as_str()))),
        (body.clone(), Some(("x-hub-signature-256", sha1.as_str()))),
        (body.clone(), Some(("x-hub-signature-256", other.as_str()))),
        (reserialised, Some(("x-hub-signature-256", good.as_str()))),
        (format!("{body} "), Some(("x-hub-signature-256", good.as_str()))),
    ] {
        let refused = deliver(&t, "d0000000-0001", "push", body, signature).await;
        assert_eq!(refused.refusal(), (401, "invalid_signature"), "{signature:?}");
    }
    let signed = Some(("x-hub-signature-256", good.as_str()));
    let answers = join_all((0..16).map(|_| deliver(&t, "D0000000-0001", "push", body.clone(), signed))).await;
    let count = |word: &str| answers.iter().filter(|answer| answer.body["outcome"] == word).count();
    assert_eq!((count("queued"), count("duplicate")), (1, 15), "one of sixteen");
    t.run_jobs().await;
    assert_eq!(deployments(&t, &ada).await.len(), 2);
    // Without its id, and of an installation that nobody connected.
    let ask = t.post("/codehost/webhook").header("x-github-event", "push").header("x-hub-signature-256", &good);
    assert_eq!(ask.body(body.clone()).await.status, 400);
    let mut foreign = event.clone();
    foreign["installation"]["id"] = json!(999);
    assert_eq!(github.delivers(&t, "d0000000-0002", "push", &foreign).await.body["outcome"], "ignored");
    assert_eq!(github.delivers(&t, "d0000000-0003", "ping", &json!({ "zen": "x" })).await.body["outcome"], "ignored");
    let large = vec![b'x'; 26 << 20];
    let ask = t
        .post("/codehost/webhook")
        .header("x-github-event", "push")
        .header("content-length", &large.len().to_string());
    assert_eq!(ask.body(large).await.status, 413);
    assert_eq!(outcome(&t, &ada, &id).await.0, "deployed");
    t.finish().await;
}

#[tokio::test]
async fn suspensions_and_removals_are_what_the_host_says_and_not_what_a_delivery_says() {
    let (t, github, ada) = start().await;
    let id = linked(&t, &github, &ada, json!({})).await;
    let told = |action: &str| json!({ "action": action, "installation": { "id": INSTALLATION }, "sender": { "login": "ada" } });
    let status = async || installation(&t, &ada, &id).await["status"].clone();
    t.happened().await;
    // An old delivery that comes again under another id.
    github.delivers(&t, "d0000000-0001", "installation", &told("suspend")).await;
    github.delivers(&t, "d0000000-0002", "installation", &told("deleted")).await;
    t.run_jobs().await;
    assert_eq!(status().await, "active");
    t.expects(&[]).await;
    github.lock().installations.get_mut(&INSTALLATION).unwrap().suspended = true;
    github.delivers(&t, "d0000000-0003", "installation", &told("suspend")).await;
    t.run_jobs().await;
    assert_eq!(status().await, "suspended");
    t.expects(&["CODEHOST_SUSPENDED"]).await;
    github.push(REPOSITORY, "main", 2, "two");
    github.delivers(&t, "d0000000-0004", "push", &github.push_event(INSTALLATION, REPOSITORY, "main")).await;
    t.run_jobs().await;
    assert_eq!(outcome(&t, &ada, &id).await.0, "failed");
    github.lock().installations.get_mut(&INSTALLATION).unwrap().suspended = false;
    t.happened().await;
    github.delivers(&t, "d0000000-0005", "installation", &told("unsuspend")).await;
    t.run_jobs().await;
    t.expects(&["CODEHOST_RESUMED"]).await;
    // The repository gets another name and owner: its number stays.
    github.lock().repositories.get_mut(&REPOSITORY).unwrap().full_name = "other/store".into();
    let event = json!({ "action": "renamed", "repository": { "id": REPOSITORY, "full_name": "other/store" },
                        "installation": { "id": INSTALLATION } });
    github.delivers(&t, "d0000000-0006", "repository", &event).await;
    t.run_jobs().await;
    let shown = installation(&t, &ada, &id).await;
    assert_eq!(shown["links"][0]["repository"], "other/store");
    // A removal that did not happen, and one that did.
    let event = json!({ "action": "removed", "repositories_removed": [{ "id": REPOSITORY }],
                        "installation": { "id": INSTALLATION } });
    github.delivers(&t, "d0000000-0007", "installation_repositories", &event).await;
    t.run_jobs().await;
    assert_eq!(installation(&t, &ada, &id).await["links"].as_array().unwrap().len(), 1);
    github.lock().installations.get_mut(&INSTALLATION).unwrap().repositories.clear();
    github.delivers(&t, "d0000000-0008", "installation_repositories", &event).await;
    t.run_jobs().await;
    let shown = installation(&t, &ada, &id).await;
    assert_eq!((&shown["links"], &shown["repositories"]), (&json!([]), &json!([])));
    github.lock().installations.clear();
    t.happened().await;
    github.delivers(&t, "d0000000-0009", "installation", &told("deleted")).await;
    t.run_jobs().await;
    assert_eq!(status().await, "disconnected");
    t.expects(&["CODEHOST_DISCONNECTED"]).await;
    t.finish().await;
}

#[tokio::test]
async fn what_the_host_did_not_deliver_is_fetched_within_the_hour() {
    let (t, github, ada) = start().await;
    let id = linked(&t, &github, &ada, json!({})).await;
    github.push(REPOSITORY, "main", 2, "two");
    let event = github.push_event(INSTALLATION, REPOSITORY, "main");
    let mut foreign = event.clone();
    foreign["installation"]["id"] = json!(999);
    {
        let mut played = github.lock();
        played.deliveries.push((1, "d0000000-0001".into(), "push".into(), event.clone()));
        played.deliveries.push((2, "d0000000-0002".into(), "push".into(), foreign));
        for n in 3..7 {
            played.deliveries.push((n, format!("d0000000-000{n}"), "ping".into(), json!({ "installation": {} })));
        }
    }
    t.advance(Duration::from_hours(1));
    t.run_jobs().await;
    let again =
        async || Person::of(&identity::testing::login(&t, "ada@example.com", identity::testing::PASSWORD).await);
    let ada = Owner { person: again().await, ..ada };
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "two".into()), "on the third page of the list");
    let listed = ada.person.asks(t.get(&format!("/codehost/installations/{id}/deliveries"))).await;
    let all = listed.body["deliveries"].as_array().unwrap();
    assert_eq!((all.len(), &all[0]["via"]), (1, &json!("catch_up")), "{}", listed.text);
    let fetched = || github.lock().calls.iter().filter(|call| call.starts_with("GET /app/hook/deliveries/")).count();
    let before = fetched();
    assert_eq!(github.delivers(&t, "d0000000-0001", "push", &event).await.body["outcome"], "duplicate");
    t.advance(Duration::from_hours(1));
    t.run_jobs().await;
    assert_eq!(fetched(), before, "known ones are not fetched again");
    // Deliveries are kept for thirty days.
    t.advance(Duration::from_hours(24 * 31));
    t.run_jobs().await;
    let owner = Owner { person: again().await, ..ada };
    let listed = owner.person.asks(t.get(&format!("/codehost/installations/{id}/deliveries"))).await;
    assert_eq!(listed.body["deliveries"], json!([]), "{}", listed.text);
    t.run_jobs().await;
    t.finish().await;
}

/// Octokit's own libraries: one signs what we check, and its app signs in to the server that plays the host as ours does.
#[tokio::test(flavor = "multi_thread")]
async fn octokit_signs_deliveries_and_signs_in_as_the_app_does() {
    let (t, github, ada) = start().await;
    let id = linked(&t, &github, &ada, json!({})).await;
    github.push(REPOSITORY, "main", 2, "two");
    let payload = github.push_event(INSTALLATION, REPOSITORY, "main").to_string();
    let packages = std::env::var("TEST_NODE").expect("TEST_NODE: scripts/test sets it, scripts/setup installs it");
    let ours = crate::codehost::host::CodeHost::host(&t.janua).unwrap().app_token().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/peers/codehost.mjs");
    let copy = std::path::Path::new(&packages).join(format!("codehost-{}.mjs", std::process::id()));
    std::fs::copy(script, &copy).unwrap();
    let output = tokio::process::Command::new("node")
        .arg(&copy)
        .args([&github.url(), github::APP_ID, github::HOOK_SECRET, &INSTALLATION.to_string(), &payload, &ours])
        .env("KEY_FILE", github.key_file())
        .output()
        .await
        .unwrap();
    let _ = std::fs::remove_file(&copy);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let signature = said["signature"].as_str().unwrap();
    let told = deliver(&t, "d0000000-0001", "push", payload, Some(("x-hub-signature-256", signature))).await;
    assert_eq!(told.body["outcome"], "queued", "{}", told.text);
    t.run_jobs().await;
    assert_eq!(outcome(&t, &ada, &id).await.0, "deployed");
    assert_eq!(said["installation"], "acme7", "Octokit's app reads what ours reads");
    assert_eq!(said["verified"], true, "Octokit finds our own signature good");
    assert_eq!(said["sameForm"], true, "our token has the form of Octokit's: {said}");
    t.finish().await;
}
