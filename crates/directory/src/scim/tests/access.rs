//! Who may come in: tokens, other organizations, addresses that are not there (P05, P58).
use super::*;

#[tokio::test]
async fn tokens_are_made_by_admins_named_shown_once_and_gone_at_once() {
    let o = Org::start().await;
    let member = joined(&o.t, &o.owner, &o.id, "member@example.com", "member").await;
    let stranger = signed_in(&o.t, "stranger@example.com").await;
    let path = format!("/org/{}/scim-tokens", o.id);
    let body = json!({ "name": " Entra ", "expiresAt": "2026-02-01T10:00:00.000Z" });
    assert_eq!(o.t.post(&path).json(&body).await.status, 401);
    assert_eq!(member.asks(o.t.post(&path).json(&body)).await.refusal(), (403, "forbidden"));
    assert_eq!(stranger.asks(o.t.post(&path).json(&body)).await.refusal(), (404, "not_found"));
    let late = json!({ "name": "x", "expiresAt": "2026-01-31T10:00:00.000Z" });
    assert_eq!(o.owner.asks(o.t.post(&path).json(&late)).await.wrong_fields(), ["expiresAt"]);
    let made = o.owner.asks(o.t.post(&path).json(&body)).await;
    let value = made.body["value"].as_str().unwrap().to_owned();
    assert!(value.starts_with(made.body["prefix"].as_str().unwrap()) && value.len() > 40);
    assert_eq!((&made.body["name"], &made.body["lastUsedAt"]), (&json!("Entra"), &Value::Null));

    let use_it = |value: String| o.t.get("/scim/v2/Users").header("authorization", &format!("Bearer {value}"));
    assert_eq!(use_it(value.clone()).await.status, 200);
    let listed = o.owner.asks(o.t.get(&path)).await;
    assert!(!listed.text.contains(&value), "shown once");
    assert_eq!(listed.body["tokens"].as_array().unwrap().len(), 2);
    assert_eq!(listed.body["tokens"].as_array().unwrap()[0]["lastUsedAt"], json!("2026-01-31T10:00:00.000Z"));
    let stored: Vec<(String,)> = o.t.janua.db.all("SELECT hash FROM scim_token", vec![]).await.unwrap();
    assert!(stored.iter().all(|(hash,)| !hash.contains(&value)), "only the hash is kept");

    o.t.advance(std::time::Duration::from_hours(24));
    assert_eq!(refused(&use_it(value).await), (401, ""), "it has run out");
    assert_eq!(o.get("/Users").await.status, 200, "the other one has not");
    let owner = Person::of(&login(&o.t, "owner@example.com", identity::testing::PASSWORD).await);
    let first = listed.body["tokens"].as_array().unwrap()[1]["id"].as_str().unwrap().to_owned();
    assert_eq!(owner.asks(o.t.ask(Method::DELETE, &format!("{path}/{first}x"))).await.status, 404);
    let stranger = Person::of(&login(&o.t, "stranger@example.com", identity::testing::PASSWORD).await);
    let other = id(&make_org(&o.t, &stranger, "Other").await).to_owned();
    let elsewhere = format!("/org/{other}/scim-tokens/{first}");
    assert_eq!(stranger.asks(o.t.ask(Method::DELETE, &elsewhere)).await.status, 404, "of another organization");
    assert_eq!(owner.asks(o.t.ask(Method::DELETE, &format!("{path}/{first}"))).await.status, 204);
    assert_eq!(refused(&o.get("/Users").await), (401, ""), "revoked");
    assert!(o.t.happened().await.contains(&"SCIM_TOKEN_DELETED".to_owned()));
    o.finish().await;
}

#[tokio::test]
async fn who_is_no_admin_any_more_does_not_get_a_token_again_by_repeating_the_request() {
    let o = Org::start().await;
    let admin = joined(&o.t, &o.owner, &o.id, "admin@example.com", "admin").await;
    let path = format!("/org/{}/scim-tokens", o.id);
    let make = || admin.asks(o.t.post(&path).json(&json!({ "name": "Entra" }))).header("idempotency-key", "k").send();
    let (made, again) = (make().await, make().await);
    assert_eq!((made.status, &made.body["value"]), (200, &again.body["value"]));
    assert_eq!(again.header("idempotency-replayed"), "true");
    let member = format!("/org/{}/members/{}", o.id, admin.id);
    let demoted = o.owner.asks(o.t.ask(Method::PATCH, &member).json(&json!({ "role": "member" }))).await;
    assert_eq!(demoted.status, 200, "{}", demoted.text);
    assert_eq!(make().await.refusal(), (403, "forbidden"));
    assert!(matches!(o.owner.asks(o.t.ask(Method::DELETE, &member)).await.status, 200 | 204));
    assert_eq!(make().await.refusal(), (404, "not_found"));
    o.finish().await;
}

#[tokio::test]
async fn p58_a_token_reaches_one_organization_and_nothing_else() {
    let o = Org::start().await;
    let eve = signed_in(&o.t, "eve@example.com").await;
    let other = id(&make_org(&o.t, &eve, "Evil").await).to_owned();
    let theirs = make_token(&o.t, &eve, &other).await;
    let user = o.named("ada@example.com").await;
    let path = format!("/scim/v2/Users/{}", id(&user));
    let with = |token: &str, method: &str, path: &str| {
        let ask = o.t.ask(method.parse().unwrap(), path).header("authorization", &format!("Bearer {token}"));
        if matches!(method, "PUT" | "PATCH") {
            ask.json(&json!({ "userName": "x", "Operations": [{ "op": "replace", "path": "title", "value": "x" }] }))
        } else {
            ask
        }
    };
    let random = "/scim/v2/Users/019c137e-c107-7f36-aa03-c8508b253019";
    for method in ["GET", "PUT", "PATCH", "DELETE"] {
        let (foreign, nobodys) = (with(&theirs, method, &path).await, with(&theirs, method, random).await);
        assert_eq!(refused(&foreign), (404, ""), "{method}");
        assert_eq!(foreign.body, nobodys.body, "{method}: another organization's user is like none");
        assert_eq!(refused(&with(&o.owner.access, method, &path).await), (401, ""), "{method}: a session's token");
        assert_eq!(refused(&with("scim_nonsense", method, &path).await), (401, ""));
    }
    let list = with(&theirs, "GET", "/scim/v2/Users").await;
    assert_eq!((&list.body["totalResults"], list.body["Resources"].as_array().unwrap().len()), (&json!(1), 1));
    let found =
        with(&theirs, "GET", "/scim/v2/Users?filter=userName%20pr%20or%20userName%20eq%20%22ada@example.com%22");
    assert_eq!(found.await.body["totalResults"], json!(1), "their own owner alone");
    // A group of theirs can hold nobody of ours.
    let seat = json!({ "displayName": "G", "members": [{ "value": user["id"] }] });
    let pushed = o.t.post("/scim/v2/Groups").header("authorization", &format!("Bearer {theirs}")).json(&seat).await;
    assert_eq!(refused(&pushed), (400, "invalidValue"));
    // And the token opens nothing that people use.
    for path in ["/auth/me", "/apps", "/user/orgs"] {
        assert_eq!(with(&o.token, "GET", path).await.status, 401, "{path}");
    }
    // Nor does a cookie stand for a token.
    let by_cookie = o.t.get("/scim/v2/Users").header("cookie", &format!("service_access={}", o.owner.access)).await;
    assert_eq!(refused(&by_cookie), (401, ""));
    o.finish().await;
}

#[tokio::test]
async fn every_refusal_is_worded_as_scim_has_it() {
    let o = Org::start().await;
    assert_eq!(refused(&o.get("/Nonsense").await), (404, ""));
    assert_eq!(refused(&o.get("").await), (404, ""));
    assert_eq!(refused(&o.get("/Users/not-an-id").await), (404, ""));
    for path in ["/ServiceProviderConfig", "/Schemas", "/ResourceTypes"] {
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            assert_eq!(refused(&o.ask(method, path).await), (405, ""), "{method} {path}");
        }
    }
    assert_eq!(refused(&o.ask("DELETE", "/Users").await), (405, ""));
    assert_eq!(
        refused(&o.ask("POST", "/Users").header("content-type", "application/json").body("{").await),
        (400, "invalidSyntax")
    );
    assert_eq!(refused(&o.ask("POST", "/Users").body("{}").await), (415, ""));
    assert_eq!(refused(&o.send("POST", "/Users", &json!([])).await), (400, "invalidSyntax"));
    assert_eq!(refused(&o.send("POST", "/Users", &json!({ "userName": " " })).await), (400, "invalidValue"));
    assert_eq!(refused(&o.get("/Users?count=x").await), (400, "invalidSyntax"));
    assert_eq!(refused(&o.get("/Schemas?filter=id%20pr").await), (403, ""));
    // The same request twice is one user, and the answer is the first one's.
    let twice = || {
        let body = json!({ "userName": "once" }).to_string();
        o.ask("POST", "/Users")
            .header("idempotency-key", "k")
            .header("content-type", "application/scim+json")
            .body(body)
    };
    let (first, second) = (twice().await, twice().await);
    assert_eq!((first.status, &first.body), (201, &second.body));
    o.finish().await;
}
