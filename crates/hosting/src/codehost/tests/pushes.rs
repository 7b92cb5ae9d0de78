//! From a push to the site.
use std::time::Duration;

use db::params;

use super::*;

#[tokio::test]
async fn a_push_is_live_and_the_host_hears_of_it() {
    let (t, github, ada) = start().await;
    let id = linked(&t, &github, &ada, json!({})).await;
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()), "linking deploys what is there");
    let listed = deployments(&t, &ada).await;
    assert_eq!(
        (&listed[0]["source"]["type"], &listed[0]["source"]["repository"]),
        (&json!("codehost"), &json!("acme7/shop"))
    );
    assert_eq!(listed[0]["commit"]["sha"], sha(1));
    assert_eq!(
        (&listed[0]["commit"]["branch"], &listed[0]["commit"]["message"]),
        (&json!("main"), &json!("Change the page"))
    );
    assert_eq!(listed[0]["files"], 1, "the folder alone");
    t.happened().await;
    github.push(REPOSITORY, "main", 2, "two");
    let told =
        github.delivers(&t, "d0000000-0001", "push", &github.push_event(INSTALLATION, REPOSITORY, "main")).await;
    assert_eq!((told.status, &told.body["outcome"]), (202, &json!("queued")), "{}", told.text);
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()), "answered at once, worked on later");
    t.run_jobs().await;
    t.expects(&["DEPLOYMENT_CREATED", "DEPLOYMENT_ACTIVATED"]).await;
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "two".into()));
    assert_eq!(outcome(&t, &ada, &id).await, ("deployed".into(), "Deployed to production.".into()));
    let statuses: Vec<_> =
        github.lock().statuses.iter().filter(|one| one.1 == sha(2)).map(|one| one.2.clone()).collect();
    let states: Vec<_> = statuses.iter().map(|one| one["state"].clone()).collect();
    assert_eq!(states, [json!("pending"), json!("success")]);
    assert_eq!(
        (&statuses[1]["context"], &statuses[1]["target_url"]),
        (&json!("janua/deploy"), &json!("http://shop.localhost:8081"))
    );
    assert!(installation(&t, &ada, &id).await["lastDeliveryAt"].is_string());
    // A branch that nobody links.
    github.push(REPOSITORY, "side", 3, "side");
    github.delivers(&t, "d0000000-0002", "push", &github.push_event(INSTALLATION, REPOSITORY, "side")).await;
    t.run_jobs().await;
    assert_eq!(outcome(&t, &ada, &id).await.0, "ignored");
    assert_eq!(deployments(&t, &ada).await.len(), 2);
    t.finish().await;
}

#[tokio::test]
async fn order_repetition_and_bursts_lead_to_one_deployment_of_the_newest_commit() {
    let (t, github, ada) = start().await;
    let id = linked(&t, &github, &ada, json!({})).await;
    let before = deployments(&t, &ada).await.len();
    github.push(REPOSITORY, "main", 2, "two");
    let second = github.push_event(INSTALLATION, REPOSITORY, "main");
    github.push(REPOSITORY, "main", 3, "three");
    let third = github.push_event(INSTALLATION, REPOSITORY, "main");
    // The later one first.
    for (n, event) in [(1, &third), (2, &second), (3, &third), (4, &second)] {
        let told = github.delivers(&t, &format!("d0000000-000{n}"), "push", event).await;
        assert_eq!(told.body["outcome"], "queued");
    }
    t.run_jobs().await;
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "three".into()));
    let after = deployments(&t, &ada).await;
    assert_eq!(after.len(), before + 1, "one deployment, of the newest commit");
    assert_eq!(after[0]["commit"]["sha"], sha(3));
    assert_eq!(outcome(&t, &ada, &id).await.0, "unchanged");
    // Long after, the old delivery comes under another id: nothing happens.
    github.delivers(&t, "d0000000-0009", "push", &second).await;
    t.run_jobs().await;
    assert_eq!(deployments(&t, &ada).await.len(), before + 1);
    // Somebody runs a delivery again, because they want to.
    let run = format!("/codehost/installations/{id}/deliveries/d0000000-0001/run");
    assert_eq!(ada.person.asks(t.post(&run)).await.status, 202);
    t.run_jobs().await;
    assert_eq!(deployments(&t, &ada).await.len(), before + 2);
    t.finish().await;
}

#[tokio::test]
async fn a_run_that_finds_another_at_work_leaves_word_and_the_lease_runs_out() {
    let (t, github, ada) = start().await;
    linked(&t, &github, &ada, json!({})).await;
    github.push(REPOSITORY, "main", 2, "two");
    let sql = "UPDATE codehost_head SET busy_until = $1";
    t.janua.db.exec(sql, params![t.janua.clock.now().plus(Duration::from_mins(6))]).await.unwrap();
    github.delivers(&t, "d0000000-0001", "push", &github.push_event(INSTALLATION, REPOSITORY, "main")).await;
    t.run_jobs().await;
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()), "another node has it");
    t.advance(Duration::from_mins(7));
    t.run_jobs().await;
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "two".into()), "which died");
    t.finish().await;
}

#[tokio::test]
async fn what_is_not_built_fails_with_a_reason_and_leaves_the_site() {
    let (t, github, ada) = start().await;
    let id = linked(&t, &github, &ada, json!({})).await;
    github.commit(REPOSITORY, 2, github::commit_archive(&[("src/app.js", "source")]));
    github.lock().repositories.get_mut(&REPOSITORY).unwrap().branches.insert("main".into(), sha(2));
    t.happened().await;
    github.delivers(&t, "d0000000-0001", "push", &github.push_event(INSTALLATION, REPOSITORY, "main")).await;
    t.run_jobs().await;
    t.expects(&["DEPLOYMENT_CREATED", "DEPLOYMENT_FAILED"]).await;
    let (result, message) = outcome(&t, &ada, &id).await;
    assert!(result == "failed" && message.contains("no files in this folder"), "{result}: {message}");
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()));
    let told = github.lock().statuses.last().unwrap().2.clone();
    assert_eq!(
        (&told["state"], told["target_url"].as_str().unwrap().contains("/console/apps/")),
        (&json!("failure"), true)
    );
    // The same delivery again changes nothing; a folder that is there does.
    github.delivers(&t, "d0000000-0002", "push", &github.push_event(INSTALLATION, REPOSITORY, "main")).await;
    t.run_jobs().await;
    assert_eq!(outcome(&t, &ada, &id).await.0, "unchanged");
    let link =
        json!({ "repositoryId": REPOSITORY, "appId": ada.app, "productionBranch": "main", "outputDirectory": "src" });
    assert_eq!(change(&t, &ada, &id, json!({ "links": [link] })).await.status, 200);
    t.run_jobs().await;
    assert_eq!(shows(&t, "shop.localhost", "/app.js").await, (200, "source".into()));
    t.finish().await;
}

#[tokio::test]
async fn pull_requests_have_a_preview_and_one_comment_and_lose_it_when_they_close() {
    let (t, github, ada) = start().await;
    let id = linked(&t, &github, &ada, json!({ "previews": "pull_requests" })).await;
    github.push(REPOSITORY, "feature", 2, "preview");
    let pull = PullRequest { is_open: true, head_repository: REPOSITORY, branch: "feature".into(), sha: sha(2) };
    github.open_pull(REPOSITORY, 12, pull);
    github
        .delivers(&t, "d0000000-0001", "pull_request", &github.pull_event(INSTALLATION, REPOSITORY, 12, "opened"))
        .await;
    t.run_jobs().await;
    let made = deployments(&t, &ada).await[0].clone();
    assert_eq!(
        (&made["target"], &made["active"], &made["commit"]["branch"]),
        (&json!("preview"), &json!(false), &json!("feature"))
    );
    let host = host_of(&made["previewUrl"]);
    assert_eq!(shows(&t, &host, "/").await, (200, "preview".into()));
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()), "production stays");
    let comments = || github.lock().comments.values().cloned().collect::<Vec<_>>();
    assert_eq!((comments().len(), comments()[0].1), (1, 12));
    assert!(comments()[0].2.contains(made["previewUrl"].as_str().unwrap()), "{}", comments()[0].2);
    // A further commit: another preview, the same comment.
    github.push(REPOSITORY, "feature", 3, "better");
    github.lock().repositories.get_mut(&REPOSITORY).unwrap().pulls.get_mut(&12).unwrap().sha = sha(3);
    github
        .delivers(
            &t,
            "d0000000-0002",
            "pull_request",
            &github.pull_event(INSTALLATION, REPOSITORY, 12, "synchronize"),
        )
        .await;
    t.run_jobs().await;
    let newer = deployments(&t, &ada).await[0].clone();
    assert_eq!(comments().len(), 1, "one comment, kept up to date");
    assert!(comments()[0].2.contains(newer["previewUrl"].as_str().unwrap()), "{}", comments()[0].2);
    // Somebody deletes it: there is one again.
    github.lock().comments.clear();
    let run = format!("/codehost/installations/{id}/deliveries/d0000000-0002/run");
    assert_eq!(ada.person.asks(t.post(&run)).await.status, 202);
    t.run_jobs().await;
    assert_eq!(comments().len(), 1);
    let newest = deployments(&t, &ada).await[0].clone();
    github.lock().repositories.get_mut(&REPOSITORY).unwrap().pulls.get_mut(&12).unwrap().is_open = false;
    t.happened().await;
    github
        .delivers(&t, "d0000000-0003", "pull_request", &github.pull_event(INSTALLATION, REPOSITORY, 12, "closed"))
        .await;
    t.run_jobs().await;
    t.expects(&["DEPLOYMENT_EXPIRED"]).await;
    assert_eq!(outcome(&t, &ada, &id).await.0, "expired");
    assert_eq!(shows(&t, &host_of(&newest["previewUrl"]), "/").await.0, 404);
    t.finish().await;
}

#[tokio::test]
async fn a_fork_with_a_branch_of_the_same_name_is_never_production() {
    let (t, github, ada) = start().await;
    let id = linked(&t, &github, &ada, json!({ "previews": "branches" })).await;
    // The pull request of a fork whose branch is called main.
    github.commit(REPOSITORY, 66, github::commit_archive(&[("out/index.html", "evil")]));
    let pull = PullRequest { is_open: true, head_repository: 666, branch: "main".into(), sha: sha(66) };
    github.open_pull(REPOSITORY, 13, pull);
    let event = github.pull_event(INSTALLATION, REPOSITORY, 13, "opened");
    github.delivers(&t, "d0000000-0001", "pull_request", &event).await;
    t.run_jobs().await;
    let (result, message) = outcome(&t, &ada, &id).await;
    assert!(result == "ignored" && message.contains("fork"), "{result}: {message}");
    assert_eq!(deployments(&t, &ada).await.len(), 1);
    // A push in the fork: another repository, which is not linked. One that claims to be ours leads to our own head.
    let mut event = github.push_event(INSTALLATION, REPOSITORY, "main");
    (event["repository"]["id"], event["after"]) = (json!(666), json!(sha(66)));
    assert_eq!(github.delivers(&t, "d0000000-0002", "push", &event).await.status, 202);
    let mut event = github.push_event(INSTALLATION, REPOSITORY, "main");
    event["after"] = json!(sha(66));
    github.delivers(&t, "d0000000-0003", "push", &event).await;
    t.run_jobs().await;
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()));
    // With forks allowed it is a preview, and production is what it was.
    let link = json!({ "repositoryId": REPOSITORY, "appId": ada.app, "productionBranch": "main", "previews": "branches", "forks": true });
    assert_eq!(change(&t, &ada, &id, json!({ "links": [link] })).await.status, 200);
    let event = github.pull_event(INSTALLATION, REPOSITORY, 13, "synchronize");
    github.delivers(&t, "d0000000-0004", "pull_request", &event).await;
    t.run_jobs().await;
    let made = deployments(&t, &ada).await[0].clone();
    assert_eq!((&made["target"], &made["active"]), (&json!("preview"), &json!(false)));
    assert_eq!(shows(&t, &host_of(&made["previewUrl"]), "/").await, (200, "evil".into()));
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()));
    t.finish().await;
}

#[tokio::test]
async fn branches_have_previews_that_go_with_them() {
    let (t, github, ada) = start().await;
    let id = linked(&t, &github, &ada, json!({ "previews": "branches" })).await;
    github.push(REPOSITORY, "feature/a", 2, "branch");
    github.delivers(&t, "d0000000-0001", "push", &github.push_event(INSTALLATION, REPOSITORY, "feature/a")).await;
    t.run_jobs().await;
    let made = deployments(&t, &ada).await[0].clone();
    assert_eq!((&made["target"], &made["commit"]["branch"]), (&json!("preview"), &json!("feature/a")));
    let event = github.push_event(INSTALLATION, REPOSITORY, "feature/a");
    github.lock().repositories.get_mut(&REPOSITORY).unwrap().branches.remove("feature/a");
    github.delivers(&t, "d0000000-0002", "push", &event).await;
    t.run_jobs().await;
    assert_eq!(outcome(&t, &ada, &id).await.0, "expired");
    assert_eq!(shows(&t, &host_of(&made["previewUrl"]), "/").await.0, 404);
    // The production branch goes: what is live stays.
    let event = github.push_event(INSTALLATION, REPOSITORY, "main");
    github.lock().repositories.get_mut(&REPOSITORY).unwrap().branches.remove("main");
    github.delivers(&t, "d0000000-0003", "push", &event).await;
    t.run_jobs().await;
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()));
    t.finish().await;
}

#[tokio::test]
async fn a_host_that_is_away_is_asked_again() {
    let (t, github, ada) = start().await;
    let id = linked(&t, &github, &ada, json!({})).await;
    github.push(REPOSITORY, "main", 2, "two");
    github.delivers(&t, "d0000000-0001", "push", &github.push_event(INSTALLATION, REPOSITORY, "main")).await;
    github.lock().away = true;
    t.run_jobs().await;
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "one".into()));
    github.lock().away = false;
    t.advance(Duration::from_secs(10));
    t.run_jobs().await;
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "two".into()));
    assert_eq!(outcome(&t, &ada, &id).await.0, "deployed");
    // Without the permission for statuses a push is live all the same.
    github.lock().no_statuses = true;
    github.push(REPOSITORY, "main", 3, "three");
    github.delivers(&t, "d0000000-0002", "push", &github.push_event(INSTALLATION, REPOSITORY, "main")).await;
    t.advance(Duration::from_hours(1));
    t.run_jobs().await;
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "three".into()));
    t.finish().await;
}

#[tokio::test]
async fn access_is_checked_for_each_deployment() {
    let (t, github, ada) = start().await;
    let id = linked(&t, &github, &ada, json!({})).await;
    let push = async |number: u64| {
        github.push(REPOSITORY, "main", number, "new");
        let event = github.push_event(INSTALLATION, REPOSITORY, "main");
        github.delivers(&t, &format!("d0000000-{number:04}"), "push", &event).await;
        t.run_jobs().await;
        outcome(&t, &ada, &id).await
    };
    // The repository is taken from the installation at the host, and no delivery says so.
    github.lock().installations.get_mut(&INSTALLATION).unwrap().repositories.clear();
    let (result, message) = push(2).await;
    assert!(result == "failed" && message.contains("can no longer read"), "{result}: {message}");
    github.lock().installations.get_mut(&INSTALLATION).unwrap().repositories.push(REPOSITORY);
    assert_eq!(push(3).await.0, "deployed");
    // The user who connected it leaves the organization.
    let bob = identity::testing::signed_in(&t, "bob@example.com").await;
    let sql = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, 'owner', 0)";
    t.janua.db.exec(sql, params![&ada.org, &bob.id]).await.unwrap();
    let out =
        bob.asks(t.ask(axum::http::Method::DELETE, &format!("/org/{}/members/{}", ada.org, ada.person.id))).await;
    assert_eq!(out.status, 204, "{}", out.text);
    github.push(REPOSITORY, "main", 4, "after");
    github.delivers(&t, "d0000000-0004", "push", &github.push_event(INSTALLATION, REPOSITORY, "main")).await;
    t.run_jobs().await;
    let shown = bob.asks(t.get(&format!("/codehost/installations/{id}"))).await.body["installation"].clone();
    assert_eq!((&shown["status"], &shown["suspendedReason"]), (&json!("suspended"), &json!("member_left")));
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "new".into()));
    t.finish().await;
}
