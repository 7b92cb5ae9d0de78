//! Users: made, listed in pages, shown in part, replaced, versions; members are users, too.
use super::*;

#[tokio::test]
async fn a_user_is_provisioned_shown_and_replaced() {
    let o = Org::start().await;
    let body = json!({
        "schemas": [USER, "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"],
        "userName": "Ada@example.com", "externalId": "00u1", "name": { "givenName": "Ada", "familyName": "L" },
        "emails": [{ "value": "ada@example.com", "type": "work", "primary": true }], "password": "hunter22hunter22",
        "nonsense": { "a": 1 }, "id": "mine", "meta": { "version": "mine" }, "roles": [{ "value": "owner" }],
        "groups": [{ "value": "owner" }], "emailVerified": true,
        "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User": { "department": "R&D", "manager": { "value": "m" } },
    });
    let made = o.send("POST", "/Users", &body).await;
    assert_eq!((made.status, made.header("content-type")), (201, "application/scim+json"));
    let user = made.body.clone();
    let path = format!("/Users/{}", id(&user));
    let place = format!("http://localhost:8080/scim/v2{path}");
    assert!(
        made.header("location").ends_with(&format!("/scim/v2{path}")),
        "{} is not {place}",
        made.header("location")
    );
    assert_eq!((made.header("etag"), &user["meta"]["version"]), ("W/\"1\"", &json!("W/\"1\"")));
    assert_eq!(
        (&user["userName"], &user["active"], &user["externalId"]),
        (&json!("Ada@example.com"), &json!(true), &json!("00u1"))
    );
    assert_eq!(user["meta"]["created"], json!("2026-01-31T10:00:00.000Z"));
    for not_theirs in ["password", "nonsense", "roles", "groups", "emailVerified"] {
        assert!(user[not_theirs].is_null(), "{not_theirs}: {}", made.text);
    }
    assert!(!made.text.contains("hunter22"));
    let stored: Vec<(String,)> = o.t.janua.db.all("SELECT attributes FROM person", vec![]).await.unwrap();
    assert!(stored.iter().all(|(text,)| !text.contains("hunter22")), "a password is kept by nobody");
    o.t.expects(&["PERSON_PROVISIONED"]).await;

    assert_eq!(
        refused(&o.send("POST", "/Users", &json!({ "userName": "aDA@example.com" })).await),
        (409, "uniqueness")
    );
    let other = json!({ "userName": "other", "emails": [{ "value": "ADA@example.com" }] });
    assert_eq!(refused(&o.send("POST", "/Users", &other).await), (409, "uniqueness"), "one address, one person");

    // The version tells what changed.
    assert_eq!(o.ask("GET", &path).header("if-none-match", "W/\"1\"").await.status, 304);
    let new = json!({ "userName": "ada@example.com", "title": "Countess", "active": true });
    let stale = o.ask("PUT", &path).header("if-match", "W/\"7\"").json(&new).await;
    assert_eq!(refused(&stale), (412, ""));
    let replaced = o.ask("PUT", &path).header("if-match", "W/\"1\"").json(&new).await;
    assert_eq!((replaced.status, replaced.header("etag")), (200, "W/\"2\""), "{}", replaced.text);
    assert_eq!(
        (&replaced.body["title"], &replaced.body["name"], &replaced.body["externalId"]),
        (&json!("Countess"), &Value::Null, &Value::Null)
    );
    assert_eq!(replaced.body["id"], user["id"]);
    assert_eq!(o.send("PUT", &path, &new).await.header("etag"), "W/\"2\"", "the same again changes nothing");
    o.t.expects(&["PERSON_UPDATED"]).await;

    // As much as was asked for.
    let part = o.get(&format!("{path}?attributes=userName,name.givenName,nonsense")).await.body;
    assert_eq!(part, json!({ "schemas": [USER], "id": user["id"], "userName": "ada@example.com" }));
    let without = o.get(&format!("{path}?excludedAttributes=title,id,meta.version")).await.body;
    assert!(without["title"].is_null() && without["id"] == user["id"] && without["meta"]["version"].is_null());
    let body = json!({ "attributes": ["emails.value"], "filter": "userName eq \"owner@example.com\"" });
    let found = o.send("POST", "/Users/.search", &body).await.body;
    assert_eq!(found["Resources"][0]["emails"], json!([{ "value": "owner@example.com" }]));
    o.finish().await;
}

#[tokio::test]
async fn lists_come_in_pages_with_the_total_kept() {
    let o = Org::start().await;
    for number in 0..7 {
        o.named(&format!("u{number}")).await;
    }
    let names = |answer: &Answer| -> Vec<String> {
        let found = answer.body["Resources"].as_array().unwrap();
        found.iter().map(|user| user["userName"].as_str().unwrap().to_owned()).collect()
    };
    let page = o.get("/Users?startIndex=2&count=3").await;
    assert_eq!(names(&page), ["u0", "u1", "u2"]);
    assert_eq!(
        (&page.body["totalResults"], &page.body["startIndex"], &page.body["itemsPerPage"]),
        (&json!(8), &json!(2), &json!(3))
    );
    assert_eq!(names(&o.get("/Users?startIndex=8&count=3").await), ["u6"]);
    assert_eq!(names(&o.get("/Users?startIndex=99").await), [""; 0]);
    let none = o.get("/Users?count=0").await;
    assert_eq!((&none.body["totalResults"], names(&none).len()), (&json!(8), 0));
    assert_eq!(names(&o.get("/Users?startIndex=-5&count=1").await), ["owner@example.com"]);
    assert_eq!(o.get("/Users?count=9999999").await.body["itemsPerPage"], json!(8));
    assert_eq!(o.get("/Users?startIndex=9223372036854775807").await.status, 200);
    let filtered = o.get("/Users?filter=userName%20sw%20%22u%22&startIndex=3&count=2").await;
    assert_eq!((names(&filtered), &filtered.body["totalResults"]), (vec!["u2".into(), "u3".into()], &json!(7)));
    let sorted = o.get("/Users?sortBy=userName&sortOrder=descending&count=2").await;
    assert_eq!((names(&sorted), &sorted.body["totalResults"]), (vec!["u6".into(), "u5".into()], &json!(8)));
    assert_eq!(
        o.get("/Users?sortBy=emails&count=1").await.body["Resources"][0]["userName"],
        "owner@example.com",
        "what has none comes last"
    );
    let both = o.send("POST", "/.search", &json!({ "count": 3, "startIndex": 8 })).await;
    assert_eq!(both.body["totalResults"], json!(11), "users and the groups of the three roles");
    assert_eq!(both.body["Resources"][1]["displayName"], "admin");
    o.finish().await;
}

#[tokio::test]
async fn members_are_users_and_places_have_no_gaps() {
    let o = Org::start().await;
    let ada = joined(&o.t, &o.owner, &o.id, "ada@example.com", "admin").await;
    joined(&o.t, &o.owner, &o.id, "bob@example.com", "member").await;
    o.named("cy@example.com").await;
    let found = o.get("/Users?filter=userName%20eq%20%22ada@example.com%22").await.body;
    let user = &found["Resources"][0];
    assert_eq!((&user["id"], &user["roles"][0]["value"]), (&json!(ada.id), &json!("admin")));
    assert_eq!(user["emails"], json!([{ "value": "ada@example.com", "type": "work", "primary": true }]));
    // Whoever leaves is gone, and the last one takes the place.
    assert_eq!(ada.asks(o.t.ask(Method::DELETE, &format!("/org/{}/members/{}", o.id, ada.id))).await.status, 204);
    let all = o.get("/Users").await.body;
    assert_eq!((&all["totalResults"], all["Resources"].as_array().unwrap().len()), (&json!(3), 3));
    let places: Vec<(i64,)> =
        o.t.janua
            .db
            .all("SELECT place FROM person WHERE org_id = $1 ORDER BY place", db::params![&o.id])
            .await
            .unwrap();
    assert_eq!(places, [(1,), (2,), (3,)]);
    assert_eq!(refused(&o.get(&format!("/Users/{}", ada.id)).await), (404, ""));
    // Announcing a member is no invitation: they are in already, and stay who they are.
    let bob =
        o.send("POST", "/Users", &json!({ "userName": "b.b", "emails": [{ "value": "Bob@Example.com" }] })).await;
    assert_eq!((bob.status, &bob.body["roles"][0]["value"]), (201, &json!("member")), "{}", bob.text);
    o.t.run_jobs().await;
    let mails = o.t.mailbox.mails().len();
    assert_eq!(o.get("/Users").await.body["totalResults"], json!(3));
    assert_eq!(refused(&o.send("POST", "/Users", &json!({ "userName": "b.b" })).await), (409, "uniqueness"));
    o.t.run_jobs().await;
    assert_eq!(o.t.mailbox.mails().len(), mails);
    o.finish().await;
}

#[tokio::test]
async fn values_are_as_long_and_as_many_as_they_may_be() {
    let o = Org::start().await;
    let long = "ü".repeat(8192);
    let user = o.user(&json!({ "userName": "u".repeat(254), "title": long, "externalId": "e".repeat(1024) })).await;
    assert_eq!(user["title"], json!(long));
    assert_eq!(o.found(&format!("title sw \"{}\"", "Ü".repeat(100))).await.len(), 1);
    let many: Vec<Value> = (0..51).map(|n| json!({ "value": format!("a{n}@example.com") })).collect();
    for wrong in [
        json!({ "userName": "u".repeat(255) }),
        json!({ "userName": "a", "title": "x".repeat(8193) }),
        json!({ "userName": "a", "externalId": "e".repeat(1025) }),
        json!({ "userName": "a", "emails": many }),
        json!({ "userName": "a", "name": "Ada" }),
        json!({ "userName": "a", "title": { "a": 1 } }),
    ] {
        assert_eq!(refused(&o.send("POST", "/Users", &wrong).await), (400, "invalidValue"));
    }
    assert_eq!(refused(&o.send("POST", "/Users", &json!({ "userName": "a\0" })).await), (400, "invalidSyntax"));
    o.finish().await;
}

#[tokio::test]
async fn the_server_says_what_it_can_do() {
    let o = Org::start().await;
    let config = o.t.get("/scim/v2/ServiceProviderConfig").await;
    assert_eq!((config.status, config.header("content-type")), (200, "application/scim+json"));
    assert_eq!(
        (&config.body["patch"]["supported"], &config.body["bulk"]["supported"]),
        (&json!(true), &json!(false))
    );
    let schemas = o.t.get("/scim/v2/Schemas").await.body;
    assert_eq!(schemas["totalResults"], json!(3));
    let one = o.t.get(&format!("/scim/v2/Schemas/{USER}")).await.body;
    assert_eq!(one, schemas["Resources"][0]);
    let password = one["attributes"].as_array().unwrap().iter().find(|a| a["name"] == "password").unwrap();
    assert_eq!((&password["returned"], &password["mutability"]), (&json!("never"), &json!("writeOnly")));
    let kinds = o.t.get("/scim/v2/ResourceTypes").await.body;
    assert_eq!(o.t.get("/scim/v2/ResourceTypes/User").await.body, kinds["Resources"][0]);
    assert_eq!(refused(&o.t.get("/scim/v2/Schemas/urn:none").await), (404, ""));
    assert_eq!(refused(&o.t.get("/scim/v2/ResourceTypes/Cat").await), (404, ""));
    o.finish().await;
}
