//! Connecting and disconnecting: who may, and what proves it.
use std::time::Duration;

use axum::http::Method;
use db::params;
use identity::testing::signed_in;

use super::*;

#[tokio::test]
async fn an_installation_is_connected_with_the_repositories_its_user_may_push_to() {
    let (t, github, ada) = start().await;
    {
        let mut played = github.lock();
        let readable = github::Repo { full_name: "acme7/docs".into(), readers: vec![USER], ..Default::default() };
        played.repositories.insert(71, readable);
        played.installations.get_mut(&INSTALLATION).unwrap().repositories.push(71);
    }
    let id = connect(&t, &ada.person, &ada.org, "code-1", INSTALLATION).await;
    t.expects(&["CODEHOST_CONNECTED"]).await;
    let shown = installation(&t, &ada, &id).await;
    assert_eq!((&shown["status"], &shown["externalId"]), (&json!("active"), &json!(INSTALLATION)));
    assert_eq!(shown["account"]["login"], "acme7");
    let names: Vec<_> = shown["repositories"].as_array().unwrap().iter().map(|one| one["fullName"].clone()).collect();
    assert_eq!(names, [json!("acme7/shop")], "what a user may only read they cannot link");
    let listed = ada.person.asks(t.get("/codehost/installations")).await;
    assert_eq!(listed.body["installations"][0]["id"], json!(id));
    assert!(listed.body["installations"][0].get("repositories").is_none());
    let (tokens,): (i64,) = t
        .janua
        .db
        .one(
            "SELECT CAST(COUNT(*) AS BIGINT) FROM once WHERE used_at IS NULL AND purpose = 'codehost_state'",
            params![],
        )
        .await
        .unwrap();
    assert_eq!(tokens, 0, "the state is used up");
    t.finish().await;
}

#[tokio::test]
async fn w24_only_the_session_that_left_comes_back_and_only_with_what_is_its_own() {
    let (t, github, ada) = start().await;
    let eve = signed_in(&t, "eve@example.com").await;
    github.user(2, "code-2");
    github.install(8, 80, 2);
    let state = authorize(&t, &ada.person, &ada.org).await;
    let back = |state: &str, code: &str, id: i64| format!("state={state}&code={code}&installation_id={id}");
    // Missing, made up, and of another session.
    for query in [format!("code=code-1&installation_id={INSTALLATION}"), back("made-up", "code-1", INSTALLATION)] {
        assert_eq!(come_back(&t, &ada.person, &query).await.refusal(), (400, "invalid_state"), "{query}");
    }
    let stolen = come_back(&t, &eve, &back(&state, "code-2", 8)).await;
    assert_eq!(stolen.refusal(), (400, "invalid_state"), "another session");
    let other = Person::of(&identity::testing::login(&t, "ada@example.com", identity::testing::PASSWORD).await);
    let elsewhere = come_back(&t, &other, &back(&state, "code-1", INSTALLATION)).await;
    assert_eq!(elsewhere.refusal(), (400, "invalid_state"), "another session of the same user");
    // The number of somebody else's installation in the address.
    let spoofed = come_back(&t, &ada.person, &back(&state, "code-1", 8)).await;
    assert_eq!(spoofed.refusal(), (403, "installation_not_yours"), "{}", spoofed.text);
    let again = come_back(&t, &ada.person, &back(&state, "code-1", INSTALLATION)).await;
    assert_eq!(again.refusal(), (400, "invalid_state"), "used once");
    let state = authorize(&t, &ada.person, &ada.org).await;
    let replayed = come_back(&t, &ada.person, &back(&state, "code-1", INSTALLATION)).await;
    assert_eq!(replayed.refusal(), (400, "codehost_code_spent"), "a code counts once");
    // Too old.
    let state = authorize(&t, &ada.person, &ada.org).await;
    github.user(USER, "code-3");
    t.advance(Duration::from_secs(601));
    let late = come_back(&t, &ada.person, &back(&state, "code-3", INSTALLATION)).await;
    assert_eq!(late.refusal(), (400, "invalid_state"));
    assert_eq!(ada.person.asks(t.get("/codehost/installations")).await.body["installations"], json!([]));
    let connected = t.happened().await.iter().any(|event| event.starts_with("CODEHOST"));
    assert!(!connected, "nothing was linked");
    t.finish().await;
}

#[tokio::test]
async fn the_way_back_is_a_page_of_ours_and_a_request_waits_for_approval() {
    let (t, github, ada) = start().await;
    let wrong = json!({ "orgId": ada.org, "redirectTo": "//evil.example" });
    let refused = ada.person.asks(t.post("/codehost/authorize").json(&wrong)).await;
    assert_eq!((refused.status, refused.wrong_fields()), (400, vec!["redirectTo"]));
    let state = authorize(&t, &ada.person, &ada.org).await;
    let path = format!("/codehost/callback?state={state}&code=code-1&setup_action=request");
    let back = ada.person.asks(t.get(&path)).header("accept", "text/html").await;
    assert_eq!((back.status, back.header("location")), (303, format!("/console/orgs/{}/code", ada.org).as_str()));
    let listed = ada.person.asks(t.get("/codehost/installations")).await;
    assert_eq!(listed.body["installations"][0]["status"], "pending_approval");
    github.user(USER, "code-2");
    connect(&t, &ada.person, &ada.org, "code-2", INSTALLATION).await;
    let listed = ada.person.asks(t.get("/codehost/installations")).await;
    let all = listed.body["installations"].as_array().unwrap();
    assert_eq!((all.len(), &all[0]["status"]), (1, &json!("active")), "{}", listed.text);
    t.finish().await;
}

#[tokio::test]
async fn links_are_of_the_organization_and_one_goes_to_production() {
    let (t, github, ada) = start().await;
    let eve = Owner::of(&t, "eve@example.com", "other").await;
    let id = linked(&t, &github, &ada, json!({})).await;
    let link = |repository: i64, app: &str, branch: &str| json!({ "repositoryId": repository, "appId": app, "productionBranch": branch });
    let put = async |links: Value| change(&t, &ada, &id, json!({ "links": links })).await;
    assert_eq!(put(json!([link(80, &ada.app, "main")])).await.refusal(), (400, "unknown_repository"));
    assert_eq!(put(json!([link(REPOSITORY, &eve.app, "main")])).await.refusal(), (404, "not_found"));
    let wrong = json!([{ "repositoryId": REPOSITORY, "appId": ada.app, "productionBranch": "a b", "outputDirectory": "../x" }]);
    assert_eq!(put(wrong).await.wrong_fields(), ["links.0.productionBranch", "links.0.outputDirectory"]);
    let second = ada.person.asks(t.post("/apps").json(&json!({ "name": "Second", "orgId": ada.org }))).await;
    let second = second.body["id"].as_str().unwrap().to_owned();
    // A second repository may not deploy to production of the same app.
    {
        let mut played = github.lock();
        let repo = github::Repo { full_name: "acme7/b".into(), pushers: vec![USER], ..Default::default() };
        played.repositories.insert(72, repo);
        played.installations.get_mut(&INSTALLATION).unwrap().repositories.push(72);
    }
    github.user(USER, "code-9");
    assert_eq!(connect(&t, &ada.person, &ada.org, "code-9", INSTALLATION).await, id, "connecting again renews it");
    let taken = put(json!([link(REPOSITORY, &ada.app, "main"), link(72, &ada.app, "main")])).await;
    assert_eq!(taken.refusal(), (409, "production_link_taken"));
    let good = put(json!([link(REPOSITORY, &ada.app, "main"), link(72, &second, "main")])).await;
    assert_eq!(good.body["installation"]["links"].as_array().unwrap().len(), 2, "{}", good.text);
    for (method, body) in [(Method::GET, None), (Method::PATCH, Some(json!({}))), (Method::DELETE, None)] {
        let ask = t.ask(method, &format!("/codehost/installations/{id}"));
        let ask = match &body {
            Some(body) => ask.json(body),
            None => ask,
        };
        assert_eq!(eve.person.asks(ask).await.refusal(), (404, "not_found"));
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_member_sees_and_does_not_change() {
    let (t, github, ada) = start().await;
    let id = linked(&t, &github, &ada, json!({})).await;
    let bob = signed_in(&t, "bob@example.com").await;
    let sql = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, 'member', 0)";
    t.janua.db.exec(sql, params![&ada.org, &bob.id]).await.unwrap();
    let path = format!("/codehost/installations/{id}");
    assert_eq!(bob.asks(t.get(&path)).await.status, 200);
    assert_eq!(bob.asks(t.ask(Method::PATCH, &path).json(&json!({}))).await.refusal(), (403, "forbidden"));
    assert_eq!(bob.asks(t.ask(Method::DELETE, &path)).await.refusal(), (403, "forbidden"));
    let begun = bob.asks(t.post("/codehost/authorize").json(&json!({ "orgId": ada.org }))).await;
    assert_eq!(begun.refusal(), (403, "forbidden"));
    t.finish().await;
}

#[tokio::test]
async fn disconnecting_uninstalls_for_who_may_and_when_nobody_else_needs_it() {
    let (t, github, ada) = start().await;
    let eve = Owner::of(&t, "eve@example.com", "other").await;
    // Eve may push to another repository of the same installation, and administers nothing.
    github.user(2, "code-2");
    {
        let mut played = github.lock();
        let repo = github::Repo { full_name: "acme7/docs".into(), pushers: vec![2], ..Default::default() };
        played.repositories.insert(71, repo);
        played.installations.get_mut(&INSTALLATION).unwrap().repositories.push(71);
    }
    let hers = connect(&t, &eve.person, &eve.org, "code-2", INSTALLATION).await;
    let his = connect(&t, &ada.person, &ada.org, "code-1", INSTALLATION).await;
    let names = |shown: &Value| {
        shown["repositories"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&installation(&t, &eve, &hers).await), [json!(71)]);
    assert_eq!(names(&installation(&t, &ada, &his).await), [json!(REPOSITORY)], "each has what its own user proved");
    // A delivery about her repository is no business of his organization.
    github.push(71, "main", 9, "docs");
    let told = github.delivers(&t, "d0000000-0001", "push", &github.push_event(INSTALLATION, 71, "main")).await;
    assert_eq!(told.body["outcome"], "queued", "{}", told.text);
    t.run_jobs().await;
    let seen = async |owner: &Owner, id: &str| {
        owner.person.asks(t.get(&format!("/codehost/installations/{id}/deliveries"))).await.body["deliveries"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!((seen(&eve, &hers).await, seen(&ada, &his).await), (1, 0));
    let run = format!("/codehost/installations/{his}/deliveries/d0000000-0001/run");
    assert_eq!(ada.person.asks(t.post(&run)).await.refusal(), (404, "not_found"));

    let gone = ada.person.asks(t.ask(Method::DELETE, &format!("/codehost/installations/{his}"))).await;
    assert_eq!(gone.status, 204, "{}", gone.text);
    t.run_jobs().await;
    assert!(github.lock().installations.contains_key(&INSTALLATION), "she still needs it");
    assert_eq!(eve.person.asks(t.ask(Method::DELETE, &format!("/codehost/installations/{hers}"))).await.status, 204);
    t.run_jobs().await;
    assert!(github.lock().installations.contains_key(&INSTALLATION), "she may not uninstall it there");
    github.user(USER, "code-3");
    let his = connect(&t, &ada.person, &ada.org, "code-3", INSTALLATION).await;
    assert_eq!(
        ada.person.asks(t.ask(Method::DELETE, &format!("/codehost/installations/{his}?keep=true"))).await.status,
        204
    );
    t.run_jobs().await;
    assert!(github.lock().installations.contains_key(&INSTALLATION), "as he said");
    github.user(USER, "code-4");
    let his = connect(&t, &ada.person, &ada.org, "code-4", INSTALLATION).await;
    t.happened().await;
    assert_eq!(ada.person.asks(t.ask(Method::DELETE, &format!("/codehost/installations/{his}"))).await.status, 204);
    t.expects(&["CODEHOST_DISCONNECTED"]).await;
    t.run_jobs().await;
    assert!(!github.lock().installations.contains_key(&INSTALLATION));
    assert_eq!(ada.person.asks(t.get(&format!("/codehost/installations/{his}"))).await.status, 404);
    t.finish().await;
}

#[tokio::test]
async fn without_a_code_host_all_but_the_lists_say_so() {
    let t = TestJanua::start(feature).await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    assert_eq!(ada.person.asks(t.get("/codehost/installations")).await.body["configured"], false);
    let begun = ada.person.asks(t.post("/codehost/authorize").json(&json!({ "orgId": ada.org }))).await;
    assert_eq!(begun.refusal(), (503, "codehost_not_configured"));
    assert_eq!(come_back(&t, &ada.person, "state=x").await.refusal(), (503, "codehost_not_configured"));
    let hook = deliver(&t, "d0000000-0001", "push", "{}".into(), None).await;
    assert_eq!(hook.refusal(), (503, "codehost_not_configured"));
    let run = t.post("/codehost/token").json(&json!({ "appId": ada.app, "token": "x" })).await;
    assert_eq!(run.refusal(), (503, "codehost_not_configured"));
    t.finish().await;
}
