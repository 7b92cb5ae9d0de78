//! One organization: made, shown, changed, exported, acted for and given up.
use identity::testing::{PASSWORD, login, refresh};
use kernel::testing::join_all;

use super::*;

/// What a token says, unchecked.
fn claims(token: &Value) -> Value {
    let middle = token.as_str().unwrap().split('.').nth(1).unwrap().to_owned();
    serde_json::from_slice(&data_encoding::BASE64URL_NOPAD.decode(middle.as_bytes()).unwrap()).unwrap()
}

#[tokio::test]
async fn an_organization_is_made_changed_and_given_up() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    t.happened().await;
    let made = make_org(&t, &ada, "  Acme, Inc. ").await;
    assert_eq!(
        (&made["name"], &made["slug"], &made["role"], &made["tier"]),
        (&json!("Acme, Inc."), &json!("acme-inc"), &json!("owner"), &json!("free"))
    );
    let second = make_org(&t, &ada, "Acme Inc").await;
    assert!(second["slug"].as_str().unwrap().starts_with("acme-inc-"), "{second}");
    let org = format!("/org/{}", id(&made));
    let shown = ada.asks(t.get(&org)).await;
    assert_eq!((&shown.body["name"], &shown.body["members"][0]["userId"]), (&json!("Acme, Inc."), &json!(ada.id)));
    assert_eq!(shown.body["members"][0]["email"], "ada@example.com");

    let change = json!({ "name": "Acme", "slug": "acme", "branding": { "primaryColor": "#1d4ed8" } });
    let changed = ada.asks(t.ask(Method::PATCH, &org).json(&change)).await;
    assert_eq!((changed.status, &changed.body["slug"]), (200, &json!("acme")), "{}", changed.text);
    assert_eq!(changed.body["primaryColor"], "#1d4ed8");
    let again = ada.asks(t.get(&org)).await;
    assert_eq!((&again.body["name"], &again.body["slug"]), (&json!("Acme"), &json!("acme")));
    let wrong = json!({ "name": "", "slug": "Not a slug", "branding": { "primaryColor": "red" } });
    let refused = ada.asks(t.ask(Method::PATCH, &org).json(&wrong)).await;
    let mut fields = refused.wrong_fields();
    fields.sort_unstable();
    assert_eq!((refused.status, fields), (400, vec!["branding.primaryColor", "name", "slug"]));
    let taken = json!({ "slug": "acme" });
    let other = format!("/org/{}", id(&second));
    assert_eq!(ada.asks(t.ask(Method::PATCH, &other).json(&taken)).await.refusal(), (409, "slug_taken"));
    let taken = json!({ "name": "x", "slug": "acme" });
    assert_eq!(ada.asks(t.post("/org").json(&taken)).await.refusal(), (409, "slug_taken"));

    assert_eq!(ada.asks(t.ask(Method::DELETE, &org)).await.status, 204);
    assert_eq!(ada.asks(t.get(&org)).await.refusal(), (404, "not_found"));
    t.expects(&["ORG_CREATED", "ORG_CREATED", "ORG_UPDATED", "ORG_DELETED"]).await;
    let log = ada.asks(t.get("/auth/audit-log")).await;
    assert_eq!(log.body["events"][0]["type"], "ORG_DELETED", "who did it finds it in their own log");
    assert_eq!(log.body["events"][0]["orgId"], made["id"]);
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p76_a_slug_has_one_owner() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    for round in 0..3 {
        let body = json!({ "name": "Acme", "slug": format!("acme-{round}") });
        let answers = join_all((0..16).map(|_| ada.asks(t.post("/org").json(&body)).send())).await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
    }
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test]
async fn a_session_acts_for_one_organization_and_says_so() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let (first, second) = (make_org(&t, &ada, "First").await, make_org(&t, &ada, "Second").await);
    let orgs = ada.asks(t.get("/user/orgs")).await;
    let names: Vec<_> = orgs.body["orgs"].as_array().unwrap().iter().map(|org| org["name"].clone()).collect();
    assert_eq!(names, ["First", "Second"]);
    let renewed = refresh(&t, &ada.refresh).await;
    assert_eq!(renewed.body["org"]["id"], first["id"], "the first one made is acted for");
    let said = claims(&renewed.body["accessToken"]);
    assert_eq!((&said["orgId"], &said["orgSlug"], &said["role"]), (&first["id"], &json!("first"), &json!("owner")));

    let switched = ada.asks(t.post(&format!("/user/orgs/{}/switch", id(&second)))).await;
    assert_eq!((switched.status, &switched.body["org"]["id"]), (200, &second["id"]), "{}", switched.text);
    assert_eq!(claims(&switched.body["accessToken"])["orgId"], second["id"]);
    assert!(switched.body.get("refreshToken").is_none());
    let later = login(&t, "ada@example.com", PASSWORD).await;
    assert_eq!(later.body["org"]["id"], second["id"], "the one switched to last is remembered");

    let eve = signed_in(&t, "eve@example.com").await;
    assert_eq!(eve.asks(t.get("/user/orgs")).await.body, json!({ "orgs": [] }));
    let stranger = eve.asks(t.post(&format!("/user/orgs/{}/switch", id(&second)))).await;
    assert_eq!(stranger.refusal(), (404, "not_found"));

    // Who is removed acts for nobody, from the next token on.
    let bob = joined(&t, &ada, id(&second), "bob@example.com", "member").await;
    assert_eq!(remove(&t, &ada, id(&second), &bob.id).await.status, 204);
    let renewed = refresh(&t, &bob.refresh).await;
    assert_eq!((renewed.status, &renewed.body["org"]), (200, &Value::Null));
    assert_eq!(claims(&renewed.body["accessToken"])["role"], Value::Null);
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test]
async fn a_cookie_session_gets_its_new_token_as_a_cookie() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = make_org(&t, &ada, "Acme").await;
    let cookie = format!("service_access={}", ada.access);
    let ask = t.post(&format!("/user/orgs/{}/switch", id(&org))).header("cookie", &cookie);
    let switched = ask.header("origin", "http://localhost:0").await;
    assert_eq!(switched.status, 200, "{}", switched.text);
    assert!(switched.header("set-cookie").starts_with("service_access="), "{:?}", switched.headers);
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test]
async fn metadata_is_merged_key_by_key() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = make_org(&t, &ada, "Acme").await;
    let path = format!("/orgs/{}/metadata", id(&org));
    let patch = |body: Value| ada.asks(t.ask(Method::PATCH, &path).json(&body)).send();
    assert_eq!(ada.asks(t.get(&path)).await.body, json!({}));
    let first = patch(json!({ "plan": "gold", "seats": 5, "tags": ["a"], "gone": true })).await;
    assert_eq!(first.status, 200, "{}", first.text);
    let second = patch(json!({ "seats": 6, "gone": null, "never": null })).await;
    assert_eq!(second.body, json!({ "plan": "gold", "seats": 6, "tags": ["a"] }));
    assert_eq!(ada.asks(t.get(&path)).await.body, second.body);

    let many: serde_json::Map<String, Value> = (0..48).map(|i| (format!("k{i}"), json!(i))).collect();
    let refused = patch(Value::Object(many.clone())).await;
    assert_eq!(refused.refusal(), (400, "invalid"), "51 keys");
    assert!(refused.text.contains("51 keys"), "{}", refused.text);
    let refused = patch(json!({ "big": "x".repeat(8200) })).await;
    assert!(refused.text.contains("8192"), "{}", refused.text);
    let refused = patch(json!({ "": 1, "y".repeat(101): 2 })).await;
    assert_eq!((refused.status, refused.wrong_fields().len()), (400, 2), "{}", refused.text);
    assert_eq!(patch(json!([1])).await.status, 400);
    assert_eq!(ada.asks(t.get(&path)).await.body, second.body, "nothing of it was kept");
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test]
async fn an_export_holds_everything_and_no_secret() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = make_org(&t, &ada, "Acme").await;
    invite(&t, &ada, id(&org), "bob@example.com", "member").await;
    let token = invite_token(&t, "bob@example.com").await;
    let export = ada.asks(t.get(&format!("/org/{}/export", id(&org)))).await;
    assert_eq!(export.status, 200, "{}", export.text);
    assert_eq!(export.body["members"][0]["email"], "ada@example.com");
    assert_eq!(export.body["invites"][0]["email"], "bob@example.com");
    let kinds: Vec<_> = export.body["auditEvents"].as_array().unwrap().iter().map(|e| e["type"].clone()).collect();
    assert_eq!(kinds, ["ORG_EXPORTED", "MEMBER_INVITED", "ORG_CREATED"]);
    assert!(!export.text.contains(&token) && !export.text.contains("hash"), "{}", export.text);
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test]
async fn p51_what_is_not_offered_cannot_be_assigned() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let extra = json!({ "id": "019c137e-c107-7f36-aa03-c8508b253019", "tier": "enterprise", "role": "member",
        "ownerId": "x", "orgId": "x", "createdAt": "2001-01-01T00:00:00.000Z", "metadata": { "a": 1 }, "name": "Acme" });
    let made = ada.asks(t.post("/org").json(&extra)).await;
    assert_eq!((&made.body["tier"], &made.body["role"]), (&json!("free"), &json!("owner")));
    assert_ne!(made.body["id"], extra["id"]);
    let org = id(&made.body).to_owned();
    let changed = ada.asks(t.ask(Method::PATCH, &format!("/org/{org}")).json(&extra)).await;
    assert_eq!((&changed.body["id"], &changed.body["tier"]), (&json!(org), &json!("free")));
    assert_eq!(changed.body["createdAt"], made.body["createdAt"]);
    assert_eq!(ada.asks(t.get(&format!("/orgs/{org}/metadata"))).await.body, json!({}));
    let ask = json!({ "email": "bob@example.com", "role": "member", "invitedBy": "x", "expiresAt": "2099-01-01T00:00:00.000Z" });
    let invited = ada.asks(t.post(&format!("/org/{org}/members")).json(&ask)).await;
    assert_eq!(invited.body["invitedBy"], json!(ada.id));
    assert!(invited.body["expiresAt"].as_str().unwrap() < "2099");
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test]
async fn a_cursor_that_is_none_of_ours_is_refused() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = make_org(&t, &ada, "Acme").await;
    let page = ada.asks(t.get(&format!("/org/{}/members?cursor=AAAA", id(&org)))).await;
    assert_eq!(page.refusal(), (400, "bad_cursor"));
    t.run_jobs().await;
    finish(t).await;
}
