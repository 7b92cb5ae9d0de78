//! Commits whose files did not come, fetched again.
use std::time::Duration;

use db::params;

use super::*;

async fn redeploy(t: &TestJanua, owner: &Owner, deployment: &Value, body: Value) -> Answer {
    let path = format!("/deployments/{}/redeploy", deployment["id"].as_str().unwrap());
    owner.person.asks(t.post(&path).json(&body)).await
}

/// The newest deployment, after a push whose archive the host does not send.
async fn failed(t: &TestJanua, github: &GitHub, owner: &Owner) -> Value {
    github.push(REPOSITORY, "main", 2, "two");
    github.lock().no_archives = true;
    github.delivers(t, "d0000000-0001", "push", &github.push_event(INSTALLATION, REPOSITORY, "main")).await;
    t.run_jobs().await;
    let failed = deployments(t, owner).await[0].clone();
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("codehost_fetch_failed")));
    failed
}

#[tokio::test]
async fn a_deployment_that_could_not_be_fetched_is_fetched_again_at_the_same_commit() {
    let (t, github, ada) = start().await;
    let id = linked(&t, &github, &ada, json!({})).await;
    let failed = failed(&t, &github, &ada).await;
    // The host is away now: the new one fails, too, and can be asked for again.
    github.lock().away = true;
    let queued = redeploy(&t, &ada, &failed, json!({})).await;
    assert_eq!((queued.status, &queued.body["status"]), (202, &json!("processing")), "{}", queued.text);
    assert_eq!(
        (&queued.body["commit"]["sha"], &queued.body["source"]["redeployOf"]),
        (&json!(sha(2)), &failed["id"]),
        "{}",
        queued.text
    );
    let early = redeploy(&t, &ada, &queued.body, json!({})).await;
    assert_eq!(early.refusal(), (409, "deployment_not_redeployable"), "it is still processed");
    t.run_jobs().await;
    let again = deployments(&t, &ada).await[0].clone();
    assert_eq!((&again["id"], &again["error"]["code"]), (&queued.body["id"], &json!("codehost_unavailable")));
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()), "what was live is");

    // The branch goes on meanwhile; what was asked for is this commit.
    github.lock().no_archives = false;
    github.lock().away = false;
    github.push(REPOSITORY, "main", 3, "three");
    t.happened().await;
    let queued = redeploy(&t, &ada, &again, json!({})).await;
    assert_eq!(queued.status, 202, "{}", queued.text);
    t.run_jobs().await;
    t.expects(&["DEPLOYMENT_CREATED", "DEPLOYMENT_ACTIVATED"]).await;
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "two".into()));
    let status = github.lock().statuses.last().unwrap().clone();
    assert_eq!((status.1, &status.2["state"]), (sha(2), &json!("success")));
    // It has its files now: the way of every deployment.
    let ready = deployments(&t, &ada).await[0].clone();
    assert_eq!(redeploy(&t, &ada, &ready, json!({})).await.status, 200);

    // Without a link nothing may be fetched.
    assert_eq!(change(&t, &ada, &id, json!({ "links": [] })).await.status, 200);
    let refused = redeploy(&t, &ada, &failed, json!({})).await;
    assert_eq!(refused.refusal(), (409, "deployment_not_redeployable"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_canceled_commit_is_fetched_when_it_is_asked_for_and_not_before() {
    let (t, github, ada) = start().await;
    let id = linked(&t, &github, &ada, json!({})).await;
    let failed = failed(&t, &github, &ada).await;
    github.lock().no_archives = false;
    let queued = redeploy(&t, &ada, &failed, json!({})).await;
    assert_eq!(queued.status, 202, "{}", queued.text);
    let cancel = format!("/deployments/{}/cancel", queued.body["id"].as_str().unwrap());
    let canceled = ada.person.asks(t.post(&cancel)).await;
    assert_eq!((canceled.status, &canceled.body["status"]), (200, &json!("canceled")), "{}", canceled.text);
    t.run_jobs().await;
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()), "the job finds it ended");
    assert_eq!(redeploy(&t, &ada, &canceled.body, json!({})).await.status, 202);
    t.run_jobs().await;
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "two".into()));

    // As if the deployment of a push had been canceled: the same commit does not come back by itself.
    github.push(REPOSITORY, "main", 3, "three");
    let event = github.push_event(INSTALLATION, REPOSITORY, "main");
    github.lock().no_archives = true;
    github.delivers(&t, "d0000000-0002", "push", &event).await;
    t.run_jobs().await;
    github.lock().no_archives = false;
    let stopped = "UPDATE deployment SET status = 'canceled' WHERE id = $1";
    let newest = deployments(&t, &ada).await;
    t.janua.db.exec(stopped, params![newest[0]["id"].as_str().unwrap()]).await.unwrap();
    t.advance(Duration::from_secs(1));
    github.delivers(&t, "d0000000-0003", "push", &event).await;
    t.run_jobs().await;
    assert_eq!(deployments(&t, &ada).await.len(), newest.len(), "no deployment was begun");
    let told = ("unchanged".to_owned(), "The deployment of this commit was canceled.".to_owned());
    assert_eq!(outcome(&t, &ada, &id).await, told);
    t.finish().await;
}

#[tokio::test]
async fn a_preview_that_is_fetched_again_stays_a_preview() {
    let (t, github, ada) = start().await;
    linked(&t, &github, &ada, json!({ "previews": "branches" })).await;
    github.push(REPOSITORY, "feature", 2, "preview");
    github.lock().no_archives = true;
    github.delivers(&t, "d0000000-0001", "push", &github.push_event(INSTALLATION, REPOSITORY, "feature")).await;
    t.run_jobs().await;
    github.lock().no_archives = false;
    let failed = deployments(&t, &ada).await[0].clone();
    let queued = redeploy(&t, &ada, &failed, json!({})).await;
    assert_eq!((queued.status, &queued.body["target"]), (202, &json!("preview")), "{}", queued.text);
    t.run_jobs().await;
    let ready = deployments(&t, &ada).await[0].clone();
    assert_eq!(shows(&t, &host_of(&ready["previewUrl"]), "/").await, (200, "preview".into()));
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()), "production stays");
    t.finish().await;
}
