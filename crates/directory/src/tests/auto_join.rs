//! Joining an organization by the domain of one's email.
use db::params;
use identity::testing::{PASSWORD, login};

use super::*;

/// A domain that an organization has proven, put there as `hosting` does it.
async fn proven(t: &TestJanua, org: &str, domain: &str) {
    const APP: &str = "0199f3a0-0000-7000-8000-000000000001";
    let insert =
        "INSERT INTO app (id, org_id, name, slug, redirect_uris, allowed_origins, settings, created_at, updated_at)
                  VALUES ($1, $2, 'Site', $1, '[]', '[]', '{}', 0, 0)";
    t.janua.db.exec(insert, params![APP, org]).await.unwrap();
    let insert = "INSERT INTO app_domain (id, app_id, org_id, domain, token, created_at, verified_at, status_since)
                  VALUES ($1, $1, $2, $3, 'x', 0, 0, 0)";
    t.janua.db.exec(insert, params![APP, org, domain]).await.unwrap();
}

async fn sets_auto_join(t: &TestJanua, person: &Person, org: &str, wanted: bool) -> Answer {
    let path = format!("/org/{org}");
    person.asks(t.ask(Method::PATCH, &path).json(&json!({ "autoJoin": wanted }))).await
}

async fn orgs_of(t: &TestJanua, person: &Person) -> Vec<String> {
    let answer = person.asks(t.get("/user/orgs")).await;
    let all = answer.body["orgs"].as_array().expect("a list").clone();
    all.iter().map(|org| org["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn people_of_a_proven_domain_join_by_signing_in_if_the_organization_wants_it() {
    let t = start().await;
    let ada = signed_in(&t, "ada@acme.test").await;
    let made = make_org(&t, &ada, "Acme").await;
    let org = id(&made).to_owned();
    assert_eq!(made["autoJoin"], false, "off unless somebody switches it on");
    proven(&t, &org, "acme.test").await;
    let early = signed_in(&t, "early@acme.test").await;
    assert!(orgs_of(&t, &early).await.is_empty(), "a proof alone takes nobody in");
    let member = joined(&t, &ada, &org, "bob@elsewhere.test", "member").await;
    assert_eq!(sets_auto_join(&t, &member, &org, true).await.status, 403);
    t.happened().await;
    assert_eq!(sets_auto_join(&t, &ada, &org, true).await.body["autoJoin"], true);
    t.expects(&["ORG_UPDATED"]).await;

    // New people, and those who had an account, with the next sign-in.
    let grace = signed_in(&t, "grace@acme.test").await;
    assert_eq!(orgs_of(&t, &grace).await, std::slice::from_ref(&org));
    assert!(t.happened().await.contains(&"MEMBER_JOINED".to_owned()));
    let early = Person::of(&login(&t, "early@acme.test", PASSWORD).await);
    assert_eq!(orgs_of(&t, &early).await, std::slice::from_ref(&org));
    // Not those of names above and below, nor of others.
    for email in ["x@mail.acme.test", "x@acme.test.evil.test", "x@notacme.test"] {
        let other = signed_in(&t, email).await;
        assert!(orgs_of(&t, &other).await.is_empty(), "{email}");
    }
    // Who was removed stays out until somebody invites them.
    let path = format!("/org/{org}/members/{}", grace.id);
    assert_eq!(ada.asks(t.ask(Method::DELETE, &path)).await.status, 204);
    let grace = Person::of(&login(&t, "grace@acme.test", PASSWORD).await);
    assert!(orgs_of(&t, &grace).await.is_empty(), "removed is removed");
    assert_eq!(invite(&t, &ada, &org, "grace@acme.test", "member").await.status, 200);
    let token = invite_token(&t, "grace@acme.test").await;
    assert_eq!(accept(&t, &grace, &token).await.status, 200);
    // A record that is gone takes nobody in, and off is off.
    t.janua.db.exec("UPDATE app_domain SET missing_since = 1", params![]).await.unwrap();
    assert!(orgs_of(&t, &signed_in(&t, "late@acme.test").await).await.is_empty());
    t.janua.db.exec("UPDATE app_domain SET missing_since = NULL", params![]).await.unwrap();
    assert_eq!(sets_auto_join(&t, &ada, &org, false).await.status, 200);
    assert!(orgs_of(&t, &Person::of(&login(&t, "late@acme.test", PASSWORD).await)).await.is_empty());
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test]
async fn somebody_switched_off_in_the_directory_does_not_join_by_their_domain() {
    let t = start().await;
    let ada = signed_in(&t, "ada@acme.test").await;
    let org = id(&make_org(&t, &ada, "Acme").await).to_owned();
    proven(&t, &org, "acme.test").await;
    sets_auto_join(&t, &ada, &org, true).await;
    let token = ada.asks(t.post(&format!("/org/{org}/scim-tokens")).json(&json!({ "name": "Okta" }))).await;
    let token = token.body["value"].as_str().expect("a token").to_owned();
    let user = json!({ "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "eve@acme.test",
                       "active": false, "emails": [{ "value": "eve@acme.test", "primary": true }] });
    let ask = t.post("/scim/v2/Users").header("authorization", &format!("Bearer {token}"));
    let made = ask.header("content-type", "application/scim+json").body(user.to_string().into_bytes()).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let eve = signed_in(&t, "eve@acme.test").await;
    assert!(orgs_of(&t, &eve).await.is_empty());
    t.run_jobs().await;
    finish(t).await;
}
