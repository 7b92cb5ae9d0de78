//! CI runs that prove their repository and branch.
use std::time::Duration;

use super::*;
use crate::tests::site;

fn claims(t: &TestJanua, github: &GitHub, more: &Value) -> Value {
    let now = t.janua.clock.now().0 / 1000;
    let mut claims = json!({
        "iss": github.url(), "aud": t.janua.config.base_url(), "iat": now, "nbf": now - 5, "exp": now + 300,
        "jti": format!("run-{}", t.janua.entropy.uuid(t.janua.clock.now())), "sub": "repo:acme7/shop:ref:refs/heads/main",
        "repository": "acme7/shop", "repository_id": REPOSITORY.to_string(), "ref": "refs/heads/main", "ref_type": "branch",
        "head_ref": "", "sha": sha(5), "event_name": "push",
    });
    more.as_object().unwrap().iter().for_each(|(name, value)| claims[name] = value.clone());
    claims
}

async fn exchange(t: &TestJanua, app: &str, token: &str) -> Answer {
    t.post("/codehost/token").json(&json!({ "appId": app, "token": token })).await
}

async fn deploy(t: &TestJanua, app: &str, token: &str, query: &str, page: &str) -> Answer {
    let ask = t.post(&format!("/apps/{app}/deploy{query}")).header("content-type", "application/gzip");
    ask.header("authorization", &format!("Bearer {token}")).body(site(&[("index.html", page)])).await
}

#[tokio::test]
async fn a_run_deploys_its_branch_without_a_secret() {
    let (t, github, ada) = start().await;
    let id = linked(&t, &github, &ada, json!({ "previews": "branches", "deployedBy": "ci" })).await;
    assert_eq!(deployments(&t, &ada).await.len(), 0, "CI deploys, and pushes do not");
    github.delivers(&t, "d0000000-0001", "push", &github.push_event(INSTALLATION, REPOSITORY, "main")).await;
    t.run_jobs().await;
    assert_eq!(outcome(&t, &ada, &id).await.0, "ignored");
    let run = github.run_token(&claims(&t, &github, &json!({})));
    let given = exchange(&t, &ada.app, &run).await;
    assert_eq!((given.status, &given.body["target"]), (200, &json!("production")), "{}", given.text);
    assert_eq!((&given.body["branch"], &given.body["expiresIn"]), (&json!("main"), &json!(900)));
    let token = given.body["deployToken"].as_str().unwrap().to_owned();
    assert_eq!(exchange(&t, &ada.app, &run).await.refusal(), (401, "invalid_run_token"), "a run's token counts once");
    let made = deploy(&t, &ada.app, &token, "?branch=other&commit=abcdef1&message=Built", "built").await;
    assert_eq!((made.status, &made.body["active"]), (200, &json!(true)), "{}", made.text);
    assert_eq!(
        (&made.body["commit"]["branch"], &made.body["commit"]["sha"]),
        (&json!("main"), &json!(sha(5))),
        "what it proved"
    );
    assert_eq!(
        (&made.body["source"]["type"], &made.body["source"]["repository"]),
        (&json!("codehost"), &json!("acme7/shop"))
    );
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "built".into()));
    // Another branch deploys previews.
    let side = claims(&t, &github, &json!({ "ref": "refs/heads/side" }));
    let given = exchange(&t, &ada.app, &github.run_token(&side)).await;
    assert_eq!(given.body["target"], "preview", "{}", given.text);
    let side = given.body["deployToken"].as_str().unwrap();
    let refused = deploy(&t, &ada.app, side, "?target=production", "side").await;
    assert_eq!(refused.refusal(), (403, "branch_not_production"));
    let made = deploy(&t, &ada.app, side, "", "side").await;
    assert_eq!((&made.body["target"], &made.body["active"]), (&json!("preview"), &json!(false)), "{}", made.text);
    // The token opens nothing else.
    for path in ["/auth/me", "/deployments", "/codehost/installations"] {
        assert_eq!(t.get(path).header("authorization", &format!("Bearer {token}")).await.status, 401, "{path}");
    }
    let mail = t.post(&format!("/apps/{}/email/send", ada.app)).header("authorization", &format!("Bearer {token}"));
    assert!(mail.json(&json!({})).await.status >= 400);
    let eve = Owner::of(&t, "eve@example.com", "other").await;
    assert_eq!(deploy(&t, &eve.app, &token, "", "evil").await.refusal(), (404, "not_found"));
    assert_eq!(deploy(&t, &ada.app, "dt_made_up", "", "evil").await.status, 401);
    // The production branch is another one now, and then the link is gone.
    let link = json!({ "repositoryId": REPOSITORY, "appId": ada.app, "productionBranch": "release", "previews": "branches" });
    assert_eq!(change(&t, &ada, &id, json!({ "links": [link] })).await.status, 200);
    assert_eq!(deploy(&t, &ada.app, &token, "", "late").await.status, 401);
    assert_eq!(change(&t, &ada, &id, json!({ "links": [] })).await.status, 200);
    assert_eq!(deploy(&t, &ada.app, side, "", "late").await.status, 401);
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "built".into()));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_run_of_another_repository_branch_server_or_event_gets_nothing() {
    let (t, github, ada) = start().await;
    linked(&t, &github, &ada, json!({ "previews": "pull_requests" })).await;
    let now = t.janua.clock.now().0 / 1000;
    for (more, code) in [
        (json!({ "aud": "https://elsewhere.example" }), "invalid_run_token"),
        (json!({ "iss": "https://token.actions.githubusercontent.com" }), "invalid_run_token"),
        (json!({ "exp": now }), "invalid_run_token"),
        (json!({ "iat": now + 3600, "exp": now + 7200 }), "invalid_run_token"),
        (json!({ "event_name": "pull_request_target" }), "invalid_run_token"),
        (json!({ "event_name": "issue_comment" }), "invalid_run_token"),
        (json!({ "ref": "refs/tags/main" }), "invalid_run_token"),
        (json!({ "repository_id": "666" }), "repository_not_linked"),
        (json!({ "repository_id": "666", "repository": "acme7/shop" }), "repository_not_linked"),
        (json!({ "ref": "refs/heads/side" }), "repository_not_linked"),
    ] {
        let refused = exchange(&t, &ada.app, &github.run_token(&claims(&t, &github, &more))).await;
        assert_eq!(refused.refusal().1, code, "{more}: {}", refused.text);
    }
    let good = claims(&t, &github, &json!({}));
    let other = GitHub::start().await;
    for forged in [
        other.run_token(&good),
        github.signed(&json!({ "alg": "none", "kid": "run" }), &good),
        github.signed(&json!({ "alg": "HS256", "kid": "run" }), &good),
        github.signed(&json!({ "alg": "RS256", "kid": "unknown" }), &good),
        format!("{}x", github.run_token(&good)),
        "nonsense".into(),
    ] {
        assert_eq!(exchange(&t, &ada.app, &forged).await.refusal(), (401, "invalid_run_token"), "{forged}");
    }
    let eve = Owner::of(&t, "eve@example.com", "other").await;
    assert_eq!(exchange(&t, &eve.app, &github.run_token(&good)).await.refusal(), (403, "repository_not_linked"));
    // A pull request of the repository itself: a preview, whatever its branch is called.
    let pull = json!({ "event_name": "pull_request", "ref": "refs/pull/12/merge", "head_ref": "main" });
    let given = exchange(&t, &ada.app, &github.run_token(&claims(&t, &github, &pull))).await;
    assert_eq!((given.status, &given.body["target"]), (200, &json!("preview")), "{}", given.text);
    let token = given.body["deployToken"].as_str().unwrap();
    t.advance(Duration::from_mins(16));
    assert_eq!(deploy(&t, &ada.app, token, "", "late").await.status, 401, "for a quarter of an hour");
    t.run_jobs().await;
    t.finish().await;
}
