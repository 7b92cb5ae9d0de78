//! What Entra ID and Okta really send, as their documentation and logs have it.
use super::*;

const PATCH: &str = "urn:ietf:params:scim:api:messages:2.0:PatchOp";
const ENTERPRISE: &str = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User";

#[tokio::test]
async fn entra_provisions_updates_and_disables() {
    let o = Org::start().await;
    // The test of the connection, and the question before every change.
    for path in ["/Users?filter=userName+eq+%22non-existent%22", "/Users?filter=externalId+eq+%22jyoung%22"] {
        let answer = o.get(path).await;
        assert_eq!((answer.status, &answer.body["totalResults"]), (200, &json!(0)), "{}", answer.text);
        assert_eq!(answer.body["schemas"], json!(["urn:ietf:params:scim:api:messages:2.0:ListResponse"]));
        assert_eq!(answer.body["Resources"], json!([]));
    }
    let user = o
        .user(&json!({
            "schemas": [USER, ENTERPRISE], "externalId": "jyoung", "userName": "Test_User_ab6490ee@testuser.com",
            "active": true, "addresses": null, "displayName": "lennay",
            "emails": [{ "type": "work", "value": "Test_User_fd0ea19b@testuser.com", "primary": true }],
            "meta": { "resourceType": "User" }, "name": { "formatted": "givenName familyName", "familyName": "familyName", "givenName": "givenName" },
            "phoneNumbers": null, "roles": [], "title": null,
            ENTERPRISE: { "department": "bob", "manager": { "Value": "SuzzyQ" } },
        }))
        .await;
    assert_eq!(user[ENTERPRISE]["manager"]["value"], json!("SuzzyQ"));
    let changed = o
        .patch(
            id(&user),
            &json!([
                { "op": "Replace", "path": "emails[type eq \"work\"].value", "value": "updatedEmail@microsoft.com" },
                { "op": "Replace", "path": "name.familyName", "value": "updatedFamilyName" },
                { "op": "Add", "path": "phoneNumbers[type eq \"mobile\"].value", "value": "555" },
                { "op": "Add", "path": "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:employeeNumber", "value": "701984" },
                { "op": "Replace", "value": { "displayName": "Lennay B", "addresses[type eq \"work\"].locality": "Vienna" } },
                { "op": "Add", "path": "roles", "value": [{ "primary": "True", "value": "owner" }] },
            ]),
        )
        .await;
    assert_eq!(refused(&changed), (400, "mutability"), "roles are not Entra's to give");
    let changed = o
        .patch(
            id(&user),
            &json!([
                { "op": "Replace", "path": "emails[type eq \"work\"].value", "value": "updatedEmail@microsoft.com" },
                { "op": "Add", "path": "phoneNumbers[type eq \"mobile\"].value", "value": "555" },
                { "op": "Add", "path": format!("{ENTERPRISE}:employeeNumber"), "value": "701984" },
                { "op": "Replace", "value": { "displayName": "Lennay B", "addresses[type eq \"work\"].locality": "Vienna",
                                              format!("{ENTERPRISE}:department"): "carol" } },
            ]),
        )
        .await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    let now = &changed.body;
    assert_eq!(now["emails"][0]["value"], json!("updatedEmail@microsoft.com"));
    assert_eq!(now["phoneNumbers"], json!([{ "type": "mobile", "value": "555" }]));
    assert_eq!((&now["displayName"], &now["addresses"][0]["locality"]), (&json!("Lennay B"), &json!("Vienna")));
    assert_eq!(
        (&now[ENTERPRISE]["employeeNumber"], &now[ENTERPRISE]["department"]),
        (&json!("701984"), &json!("carol"))
    );
    // Booleans as text, capitals included.
    let off = o.patch(id(&user), &json!([{ "op": "Replace", "path": "active", "value": "False" }])).await;
    assert_eq!(off.body["active"], json!(false));
    let on = json!({ "schemas": [PATCH], "Operations": [{ "op": "Replace", "value": { "active": "True" } }] });
    assert_eq!(o.send("PATCH", &format!("/Users/{}", id(&user)), &on).await.body["active"], json!(true));
    assert_eq!(o.ask("DELETE", &format!("/Users/{}", id(&user))).await.status, 204);

    // Groups: made empty, filled one by one, asked without members.
    let group = o.send("POST", "/Groups", &json!({ "schemas": ["urn:ietf:params:scim:schemas:core:2.0:Group", "http://schemas.microsoft.com/2006/11/ResourceManagement/ADSCIM/2.0/Group"], "externalId": "8aa1a0c0", "displayName": "displayName", "meta": { "resourceType": "Group" } })).await;
    assert_eq!(group.status, 201);
    let path = format!("/Groups/{}", id(&group.body));
    let add = json!({ "schemas": [PATCH], "Operations": [{ "op": "Add", "path": "members", "value": [{ "$ref": null, "value": user["id"] }] }] });
    assert_eq!(o.send("PATCH", &path, &add).await.status, 200);
    let asked = o.get("/Groups?excludedAttributes=members&filter=displayName+eq+%22displayName%22").await.body;
    assert_eq!((&asked["totalResults"], &asked["Resources"][0]["members"]), (&json!(1), &Value::Null));
    let is_in =
        format!("/Groups?filter=id+eq+%22{}%22+and+members+eq+%22{}%22&attributes=id", id(&group.body), id(&user));
    assert_eq!(o.get(&is_in).await.body["totalResults"], json!(1));
    let out = json!({ "schemas": [PATCH], "Operations": [{ "op": "Remove", "path": "members", "value": [{ "$ref": null, "value": user["id"] }] }] });
    assert_eq!(o.send("PATCH", &path, &out).await.body["members"], Value::Null);
    assert_eq!(o.get(&is_in).await.body["totalResults"], json!(0));
    assert_eq!(o.ask("DELETE", &path).await.status, 204);
    o.finish().await;
}

#[tokio::test]
async fn okta_provisions_replaces_and_deactivates() {
    let o = Org::start().await;
    let answer = o.get("/Users?filter=userName%20eq%20%22test.user%40okta.local%22&startIndex=1&count=100").await;
    assert_eq!((&answer.body["totalResults"], &answer.body["startIndex"]), (&json!(0), &json!(1)));
    let body = json!({
        "schemas": [USER], "userName": "test.user@okta.local", "name": { "givenName": "Test", "familyName": "User" },
        "emails": [{ "primary": true, "value": "test.user@okta.local", "type": "work" }], "displayName": "Test User",
        "locale": "en-US", "externalId": "00ujl29u0le5T6Aj10h7", "groups": [], "password": "1mz050nq", "active": true,
    });
    let made = o.send("POST", "/Users", &body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let path = format!("/Users/{}", id(&made.body));
    let mut whole = o.get(&path).await.body;
    assert_eq!((&whole["active"], &whole["locale"]), (&json!(true), &json!("en-US")));
    // Okta sends back what it was given, changed.
    whole["name"]["middleName"] = json!("Excited");
    whole["groups"] = json!([]);
    let put = o.send("PUT", &path, &whole).await;
    assert_eq!((put.status, &put.body["name"]["middleName"]), (200, &json!("Excited")), "{}", put.text);
    let off = json!({ "schemas": [PATCH], "Operations": [{ "op": "replace", "value": { "active": false } }] });
    assert_eq!(o.send("PATCH", &path, &off).await.body["active"], json!(false));
    whole["active"] = json!(true);
    assert_eq!(o.send("PUT", &path, &whole).await.body["active"], json!(true));
    // Users who exist already are imported page by page.
    assert_eq!(o.get("/Users?startIndex=1&count=100").await.body["totalResults"], json!(2));

    let group = json!({ "schemas": ["urn:ietf:params:scim:schemas:core:2.0:Group"], "displayName": "Test SCIMv2",
        "members": [{ "value": made.body["id"], "display": "test.user@okta.local" }] });
    let pushed = o.send("POST", "/Groups", &group).await;
    assert_eq!(pushed.status, 201, "{}", pushed.text);
    let path = format!("/Groups/{}", id(&pushed.body));
    let rename = json!({ "schemas": [PATCH], "Operations": [{ "op": "replace", "value": { "id": pushed.body["id"], "displayName": "Renamed" } }] });
    assert_eq!(o.send("PATCH", &path, &rename).await.body["displayName"], json!("Renamed"));
    let one = format!("members[value eq \"{}\"]", id(&made.body));
    let swap = json!({ "schemas": [PATCH], "Operations": [{ "op": "remove", "path": one },
        { "op": "add", "path": "members", "value": [{ "value": o.owner.id, "display": "owner" }] }] });
    let swapped = o.send("PATCH", &path, &swap).await;
    assert_eq!(swapped.body["members"][0]["value"], json!(o.owner.id), "{}", swapped.text);
    let all = json!({ "schemas": [PATCH], "Operations": [{ "op": "replace", "path": "members", "value": [{ "value": made.body["id"] }] }] });
    assert_eq!(o.send("PATCH", &path, &all).await.body["members"].as_array().unwrap().len(), 1);
    assert_eq!(o.get("/Groups?startIndex=1&count=100").await.body["totalResults"], json!(4));
    o.finish().await;
}
