//! Groups: one for each role, those the provider pushes, and the roles these can stand for.

use kernel::testing::{longest_wait, many};

use super::*;

#[tokio::test]
async fn roles_are_groups_that_nobody_writes() {
    let o = Org::start().await;
    let ada = joined(&o.t, &o.owner, &o.id, "ada@example.com", "admin").await;
    let all = o.get("/Groups").await.body;
    assert_eq!(all["totalResults"], json!(3));
    let admins = o.get("/Groups/admin").await.body;
    assert_eq!(admins["members"][0]["value"], json!(ada.id));
    assert_eq!((&admins["displayName"], admins["members"].as_array().unwrap().len()), (&json!("admin"), 1));
    assert_eq!(o.found("groups eq \"admin\"").await, [""; 0], "that is what roles are for");
    assert_eq!(o.found("roles eq \"admin\"").await, ["ada@example.com"]);
    let seat = json!({ "Operations": [{ "op": "add", "path": "members", "value": [{ "value": ada.id }] }] });
    for role in ["owner", "admin", "member"] {
        let path = format!("/Groups/{role}");
        assert_eq!(refused(&o.send("PATCH", &path, &seat).await), (400, "mutability"));
        assert_eq!(refused(&o.send("PUT", &path, &json!({ "displayName": "x" })).await), (400, "mutability"));
        assert_eq!(refused(&o.ask("DELETE", &path).await), (400, "mutability"));
        assert_eq!(
            refused(&o.send("POST", "/Groups", &json!({ "displayName": role.to_uppercase() })).await),
            (409, "uniqueness")
        );
    }
    assert_eq!(o.get("/Groups/owner?excludedAttributes=members").await.body["members"], Value::Null);
    o.finish().await;
}

#[tokio::test]
async fn groups_are_pushed_changed_found_and_deleted() {
    let o = Org::start().await;
    let (ada, bob) = (o.named("ada").await, o.named("bob").await);
    let made = o
        .send(
            "POST",
            "/Groups",
            &json!({ "displayName": "Team", "externalId": "g1", "members": [{ "value": ada["id"] }] }),
        )
        .await;
    assert_eq!((made.status, made.header("etag")), (201, "W/\"1\""), "{}", made.text);
    assert_eq!(made.body["members"][0]["value"], ada["id"]);
    let path = format!("/Groups/{}", id(&made.body));
    assert_eq!(refused(&o.send("POST", "/Groups", &json!({ "displayName": "TEAM" })).await), (409, "uniqueness"));
    assert_eq!(o.get(&format!("/Users/{}", id(&ada))).await.body["groups"][0]["display"], json!("Team"));
    let found = |filter: &str| o.ask("GET", &format!("/Groups?filter={}", encoded(filter)));
    let both = format!("id eq \"{}\" and members eq \"{}\"", id(&made.body), id(&ada));
    for (filter, total) in [
        ("displayName eq \"team\"", 1),
        ("displayName co \"m\"", 3),
        ("externalId eq \"g1\"", 1),
        (&both, 1),
        ("members[value eq \"x\"]", 0),
        ("meta.resourceType eq \"User\"", 0),
    ] {
        let answer = found(filter).await;
        assert_eq!(answer.body["totalResults"], json!(total), "{filter}: {}", answer.text);
    }
    assert_eq!(refused(&found("nonsense eq 1").await), (400, "invalidFilter"));
    assert_eq!(o.found("groups.display eq \"team\"").await, ["ada"]);

    let patch = |operation: Value| json!({ "Operations": [operation] });
    let added = o
        .send("PATCH", &path, &patch(json!({ "op": "Add", "path": "members", "value": [{ "value": bob["id"] }] })))
        .await;
    assert_eq!(added.body["members"].as_array().unwrap().len(), 2, "{}", added.text);
    let one = format!("members[value eq \"{}\"]", id(&ada));
    let removed = o.send("PATCH", &path, &patch(json!({ "op": "remove", "path": one }))).await;
    assert_eq!(removed.body["members"][0]["value"], bob["id"], "{}", removed.text);
    let named = o
        .send(
            "PATCH",
            &path,
            &patch(json!({ "op": "replace", "value": { "id": id(&made.body), "displayName": "Crew" } })),
        )
        .await;
    assert_eq!(named.body["displayName"], json!("Crew"));
    let nobody = patch(
        json!({ "op": "add", "path": "members", "value": [{ "value": "019c137e-c107-7f36-aa03-c8508b253019" }] }),
    );
    assert_eq!(refused(&o.send("PATCH", &path, &nobody).await), (400, "invalidValue"));
    assert_eq!(
        refused(&o.ask("PUT", &path).header("if-match", "W/\"1\"").json(&json!({ "displayName": "x" })).await),
        (412, "")
    );
    let replaced = o.send("PUT", &path, &json!({ "displayName": "Crew" })).await;
    assert_eq!((replaced.status, &replaced.body["members"]), (200, &Value::Null));
    assert_eq!(o.ask("DELETE", &path).await.status, 204);
    assert_eq!(refused(&o.get(&path).await), (404, ""));
    o.t.expects(&[
        "PERSON_PROVISIONED",
        "PERSON_PROVISIONED",
        "GROUP_PUSHED",
        "GROUP_UPDATED",
        "GROUP_UPDATED",
        "GROUP_UPDATED",
        "GROUP_UPDATED",
        "GROUP_DELETED",
    ])
    .await;
    o.finish().await;
}

#[tokio::test]
async fn a_group_can_stand_for_a_role_but_never_for_owner() {
    let o = Org::start().await;
    let ada = joined(&o.t, &o.owner, &o.id, "ada@example.com", "member").await;
    let members = json!([{ "value": ada.id }, { "value": o.owner.id }]);
    let group = o.send("POST", "/Groups", &json!({ "displayName": "Admins", "members": members })).await.body;
    let map = format!("/org/{}/scim-groups/{}", o.id, id(&group));
    let say = |person: &Person, role: Value| person.asks(o.t.ask(Method::PATCH, &map).json(&json!({ "role": role })));
    assert_eq!(say(&ada, json!("admin")).await.refusal(), (403, "forbidden"), "not by a member");
    assert_eq!(say(&o.owner, json!("owner")).await.wrong_fields(), ["role"]);
    assert_eq!(say(&o.owner, json!("admin")).await.status, 200);
    assert_eq!(role_of(&o, &ada.id).await, json!("admin"));
    assert_eq!(role_of(&o, &o.owner.id).await, json!("owner"), "an owner stays one");
    let listed = o.owner.asks(o.t.get(&format!("/org/{}/scim-groups", o.id))).await.body;
    assert_eq!(listed["groups"][0]["role"], json!("admin"));
    // Somebody who was announced into it is an admin when they come.
    let bob = o.named("bob@example.com").await;
    let seat = json!({ "Operations": [{ "op": "add", "path": "members", "value": [{ "value": bob["id"] }] }] });
    o.send("PATCH", &format!("/Groups/{}", id(&group)), &seat).await;
    let person = signed_in(&o.t, "bob@example.com").await;
    let token = invite_token_of(&o, "bob@example.com").await;
    assert_eq!(accept(&o.t, &person, &token).await.status, 200);
    assert_eq!(role_of(&o, id(&bob)).await, json!("admin"));
    // Out of the group, out of the role; the token of an admin no longer acts as one.
    let one = format!("members[value eq \"{}\"]", ada.id);
    o.send("PATCH", &format!("/Groups/{}", id(&group)), &json!({ "Operations": [{ "op": "remove", "path": one }] }))
        .await;
    assert_eq!(role_of(&o, &ada.id).await, json!("member"));
    assert_eq!(ada.asks(o.t.get(&format!("/org/{}/invites", o.id))).await.status, 403);
    assert_eq!(o.ask("DELETE", &format!("/Groups/{}", id(&group))).await.status, 204);
    assert_eq!(role_of(&o, id(&bob)).await, json!("member"));
    o.finish().await;
}

/// The invitation is older than the mails of signing up.
async fn invite_token_of(o: &Org, email: &str) -> String {
    o.t.run_jobs().await;
    let mails = o.t.mailbox.mails();
    let to = format!("To: {email}");
    let mail = mails.iter().find(|mail| mail.contains(&to) && mail.contains("Join your organization"));
    identity::testing::token_in(&identity::testing::readable(mail.expect("an invitation")))
}

async fn role_of(o: &Org, person: &str) -> Value {
    o.get(&format!("/Users/{person}")).await.body["roles"][0]["value"].clone()
}

/// Members of an organization who came long ago: accounts, memberships and people of the directory.
async fn crowd(o: &Org, people: i64) {
    const NUMBERS: &str =
        "WITH RECURSIVE n (i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $2)";
    const ID: &str = "'00000000-0000-7000-8000-' || SUBSTR(CAST(100000000000 + i AS TEXT), 1, 12)";
    let statements = [
        format!(
            "INSERT INTO account (id, name, email_verified, accepts_marketing, created_at, updated_at)
             {NUMBERS} SELECT {ID}, 'Somebody', TRUE, FALSE, 1, 1 FROM n"
        ),
        format!(
            "INSERT INTO org_member (org_id, account_id, role, joined_at)
             {NUMBERS} SELECT CAST($3 AS TEXT), {ID}, 'member', 1 FROM n"
        ),
        format!(
            "INSERT INTO person (org_id, id, place, account_id, source, active, is_home, comes_back, user_name,
                                 user_name_key, attributes, version, created_at, updated_at, role)
             {NUMBERS} SELECT CAST($3 AS TEXT), {ID}, i + 2, {ID}, 'scim', TRUE, FALSE, FALSE, {ID}, {ID}, '{{}}', 1,
                              1, 1, 'member' FROM n"
        ),
    ];
    for sql in statements {
        let with_org = sql.contains("$3");
        let sql: &'static str = Box::leak(sql.into_boxed_str());
        for first in (0..people).step_by(10_000) {
            let mut numbers = db::params![first, people.min(first + 10_000)];
            if with_org {
                numbers.push(o.id.clone().into());
            }
            o.t.janua.db.exec(sql, numbers).await.unwrap();
        }
    }
    let sql = "UPDATE org SET people = people + $2 WHERE id = $1";
    o.t.janua.db.exec(sql, db::params![&o.id, people]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_group_holds_nobody_up() {
    let o = Org::start().await;
    let (people, patience) = (many(6_000), longest_wait());
    crowd(&o, people).await;
    let member = |i: i64| json!({ "value": format!("00000000-0000-7000-8000-{}", 100_000_000_000 + i) });
    let members: Vec<_> = (0..people).map(member).collect();
    let body = json!({ "displayName": "Everybody", "members": members });
    let (made, slowest) = o.t.beside_a_writer(o.send("POST", "/Groups", &body)).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert!(slowest < patience, "a write waited for {slowest:?} while a group was pushed");
    let group = id(&made.body).to_owned();
    let count = async |role: &str| {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM org_member WHERE org_id = $1 AND role = $2";
        let (n,): (i64,) = o.t.janua.db.one(sql, db::params![&o.id, role]).await.unwrap();
        n
    };
    let told = async || o.t.happened().await.iter().filter(|kind| *kind == "MEMBER_ROLE_CHANGED").count();
    told().await;

    let path = format!("/org/{}/scim-groups/{group}", o.id);
    let mapped = async {
        let mapped = o.owner.asks(o.t.ask(Method::PATCH, &path).json(&json!({ "role": "admin" }))).await;
        assert_eq!(mapped.status, 200, "{}", mapped.text);
        o.t.run_jobs().await;
    };
    let ((), slowest) = o.t.beside_a_writer(mapped).await;
    assert!(slowest < patience, "a write waited for {slowest:?} while roles were given");
    assert_eq!((count("admin").await, count("owner").await), (people, 1), "everybody but the owner");
    assert_eq!(told().await, usize::try_from(people).unwrap(), "each of them is told of");

    // Half of them leave, which takes their role away.
    let rest: Vec<_> = (0..people / 2).map(member).collect();
    let body = json!({ "displayName": "Everybody", "members": rest });
    let (put, slowest) = o.t.beside_a_writer(o.send("PUT", &format!("/Groups/{group}"), &body)).await;
    assert_eq!(put.status, 200, "{}", put.text);
    assert!(slowest < patience, "a write waited for {slowest:?} while members left");
    assert_eq!(count("admin").await, people / 2);
    let (gone, slowest) = o.t.beside_a_writer(o.ask("DELETE", &format!("/Groups/{group}")).send()).await;
    assert_eq!(gone.status, 204, "{}", gone.text);
    assert!(slowest < patience, "a write waited for {slowest:?} while a group was deleted");
    assert_eq!((count("admin").await, count("owner").await), (0, 1));
    assert_eq!(told().await, usize::try_from(people).unwrap(), "each of them is told of again");
    o.finish().await;
}
