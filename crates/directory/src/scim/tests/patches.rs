//! PATCH: every operation, and what no provider may set (P59).
use super::*;

async fn ada(o: &Org) -> Value {
    o.user(&json!({
        "userName": "ada", "title": "T", "name": { "givenName": "Ada", "familyName": "L" },
        "emails": [{ "value": "w@example.com", "type": "work", "primary": true }, { "value": "h@example.com", "type": "home" }],
    }))
    .await
}

#[tokio::test]
async fn operations_add_replace_and_remove() {
    let o = Org::start().await;
    let user = ada(&o).await;
    let ext = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";
    let table = [
        (json!({ "op": "add", "path": "nickName", "value": "A" }), "/nickName", json!("A")),
        (json!({ "op": "Replace", "path": "TITLE", "value": "Countess" }), "/title", json!("Countess")),
        (json!({ "op": "remove", "path": "title" }), "/title", Value::Null),
        (
            json!({ "op": "replace", "path": "name.givenName", "value": "Augusta" }),
            "/name",
            json!({ "givenName": "Augusta", "familyName": "L" }),
        ),
        (json!({ "op": "replace", "path": "name", "value": { "middleName": "K" } }), "/name/familyName", json!("L")),
        (
            json!({ "op": "remove", "path": "name.middleName" }),
            "/name",
            json!({ "givenName": "Augusta", "familyName": "L" }),
        ),
        (
            json!({ "op": "replace", "path": "emails[type eq \"work\"].value", "value": "n@example.com" }),
            "/emails/0/value",
            json!("n@example.com"),
        ),
        (
            json!({ "op": "add", "path": "emails", "value": [{ "value": "x@example.com", "type": "other", "primary": true }] }),
            "/emails/2/value",
            json!("x@example.com"),
        ),
        (
            json!({ "op": "add", "path": "emails", "value": [{ "value": "x@example.com", "type": "other", "primary": true }] }),
            "/emails/3",
            Value::Null,
        ),
        (
            json!({ "op": "remove", "path": "emails[value ew \"@example.com\" and type eq \"home\"]" }),
            "/emails/1/type",
            json!("other"),
        ),
        (
            json!({ "op": "replace", "path": "emails[type eq \"home\"].value", "value": "again@example.com" }),
            "/emails/2",
            json!({ "type": "home", "value": "again@example.com" }),
        ),
        (json!({ "op": "remove", "path": "emails" }), "/emails", Value::Null),
        (json!({ "op": "add", "path": format!("{ext}:department"), "value": "R&D" }), "/schemas/1", json!(ext)),
        (json!({ "op": "add", "path": format!("{ext}:manager"), "value": "26118915" }), "/displayName", Value::Null),
        (json!({ "op": "remove", "path": ext }), "/schemas/1", Value::Null),
        (
            json!({ "op": "add", "value": { "displayName": "Ada K", "nonsense": 1, "id": "mine", "meta": {} } }),
            "/displayName",
            json!("Ada K"),
        ),
        (
            json!({ "op": "replace", "value": { "name.familyName": "King", "active": "True" } }),
            "/name/familyName",
            json!("King"),
        ),
        (json!({ "op": "replace", "path": "userName", "value": "ADA" }), "/userName", json!("ADA")),
        (json!({ "op": "replace", "path": "externalId", "value": "e1" }), "/externalId", json!("e1")),
    ];
    for (operation, place, wanted) in table {
        let answer = o.patch(id(&user), &json!([operation])).await;
        assert_eq!(answer.status, 200, "{operation}: {}", answer.text);
        assert_eq!(answer.body.pointer(place).cloned().unwrap_or_default(), wanted, "{operation}: {}", answer.text);
        assert_eq!(answer.body["id"], user["id"]);
    }
    let primary = o.get(&format!("/Users/{}", id(&user))).await.body;
    assert!(primary["emails"].is_null());
    o.finish().await;
}

#[tokio::test]
async fn p59_what_is_not_a_providers_to_set() {
    let o = Org::start().await;
    let user = ada(&o).await;
    let path = id(&user);
    for (at, value) in [
        ("id", json!("x")),
        ("meta", json!({})),
        ("meta.created", json!("2001-01-01T00:00:00Z")),
        ("schemas", json!(["x"])),
        ("roles", json!([{ "value": "owner" }])),
        ("roles[value eq \"member\"].value", json!("owner")),
        ("groups", json!([{ "value": "owner" }])),
        ("groups.value", json!("owner")),
    ] {
        for op in ["add", "replace", "remove"] {
            let answer = o.patch(path, &json!([{ "op": op, "path": at, "value": value }])).await;
            assert_eq!(refused(&answer), (400, "mutability"), "{op} {at}: {}", answer.text);
        }
    }
    let quiet = json!([{ "op": "add", "value": { "roles": [{ "value": "owner" }], "id": "x", "groups": [{ "value": "owner" }], "owner": true } }]);
    assert_eq!(o.patch(path, &quiet).await.body, user, "left alone without a word");
    let secret = o.patch(path, &json!([{ "op": "replace", "path": "password", "value": "hunter22hunter22" }])).await;
    assert_eq!((secret.status, secret.text.contains("hunter22")), (200, false));
    assert!(!o.get(&format!("/Users/{path}?attributes=password,userName")).await.text.contains("hunter"));
    for (operations, wanted) in [
        (json!([{ "op": "replace", "path": "emailVerified", "value": true }]), "invalidPath"),
        (json!([{ "op": "replace", "path": "emails[", "value": true }]), "invalidPath"),
        (json!([{ "op": "replace", "path": "title[type eq \"x\"]", "value": "x" }]), "invalidPath"),
        (json!([{ "op": "remove" }]), "noTarget"),
        (json!([{ "op": "replace", "path": "emails[type co \"nothing\"].value", "value": "x" }]), "noTarget"),
        (json!([{ "op": "replace", "path": "active", "value": "maybe" }]), "invalidValue"),
        (json!([{ "op": "replace", "path": "userName", "value": "" }]), "invalidValue"),
        (json!([{ "op": "remove", "path": "userName" }]), "mutability"),
        (json!([{ "op": "remove", "path": "active" }]), "mutability"),
        (json!([{ "op": "replace", "path": "emails", "value": [1] }]), "invalidValue"),
        (json!([{ "op": "move", "path": "title", "value": "x" }]), "invalidSyntax"),
        (json!([]), "invalidSyntax"),
        (
            json!([{ "op": "add", "path": "title", "value": "kept?" }, { "op": "add", "path": "nonsense", "value": 1 }]),
            "invalidPath",
        ),
    ] {
        assert_eq!(refused(&o.patch(path, &operations).await), (400, wanted), "{operations}");
    }
    assert_eq!(o.get(&format!("/Users/{path}")).await.body["title"], "T", "all of it, or nothing");
    // Nobody's role came of any of this.
    let owners = o.get("/Groups/owner").await.body;
    assert_eq!(owners["members"].as_array().unwrap().len(), 1);
    o.finish().await;
}
