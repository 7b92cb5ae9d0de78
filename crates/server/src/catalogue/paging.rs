//! Every list in pages, of two tenants: a cursor of one tenant's list is refused in the list of the other. Routes come from
//! the description, so a new list is in the test by itself.
use db::params;
use identity::testing::{Person, signed_in};
use kernel::testing::TestJanua;
use serde_json::{Value, json};

use super::{
    built, catalogue, guard_of,
    matrix::{PACKAGES, Row, Tenant, archive, deliver_again, deploy, installation_of, platform, publish},
};

/// Lists of which the platform has only one.
const OF_THE_PLATFORM: &[&str] = &[
    "/admin/abuse-reports",
    "/admin/audit-log",
    "/admin/outbox",
    "/admin/plans/orgs",
    "/admin/skills/reported",
    "/admin/skills/versions",
    "/admin/users",
    "/billing/admin/cost",
    "/billing/admin/events",
    "/status/incidents",
    // A cursor of the registry is the name of a server.
    "/registry/{key}/v0.1/servers",
    // Everybody sees the same skills.
    "/skills",
    "/v0.1/servers",
];
/// Lists of an app that the query names; `commerce/src/tests/connect.rs` asks for them.
const NAMED_BY_QUERY: &[&str] = &["/connect/onboard/accounts", "/connect/checkout/sessions"];

/// Every list in pages.
fn lists(description: &Value) -> Vec<Row> {
    let catalogue = catalogue();
    let mut lists = vec![];
    for (row, operation) in built(description) {
        let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
        if parameters.iter().any(|one| one["in"] == "query" && one["name"] == "cursor") {
            let guard = guard_of(&catalogue, &row);
            let (method, path) = row;
            lists.push(Row { method, path, guard, body: None });
        }
    }
    lists
}

/// A tenant with at least two entries in each of its lists.
async fn tenant(t: &TestJanua, owner: &Person, people: &[Person]) -> Tenant {
    let tenant = Tenant::of(t, owner, people).await;
    let (org, app) = (&tenant.ids["org"], &tenant.ids["appId"]);
    installation_of(t, org, &owner.id).await;
    deliver_again(t, &tenant.ids["installationId"]).await;
    let more = [
        ("/apps".to_owned(), json!({ "name": "Second", "orgId": org })),
        (format!("/apps/{app}/keys"), json!({ "type": "publishable", "environment": "live" })),
        (format!("/apps/{app}/webhooks"), json!({ "url": "https://127.0.0.1:9/", "events": ["user.passkey_added"] })),
        (format!("/apps/{app}/email/send"), json!({ "to": "a@example.org", "subject": "x", "text": "y" })),
        (format!("/apps/{app}/email/suppressions"), json!({ "email": "second@example.org" })),
        (format!("/org/{org}/scim-tokens"), json!({ "name": "Second" })),
        (format!("/org/{org}/registry-keys"), json!({ "name": "Second" })),
        (
            "/agent/register".into(),
            json!({ "name": "Second", "wallet": format!("0x{:0>40}", &org.replace('-', "")[4..24]), "orgId": org }),
        ),
        ("/framework-agent/register".into(), json!({ "name": "Second", "framework": "x", "orgId": org })),
        ("/mcp/register".into(), json!({ "name": "second", "domain": format!("{org}.com"), "orgId": org })),
        (format!("/agent/{}/suspend", tenant.ids["agent"]), json!({})),
        (format!("/framework-agent/{}/suspend", tenant.ids["frameworkAgent"]), json!({})),
        (format!("/mcp/{}/revoke", tenant.ids["mcpServer"]), json!({})),
        (format!("/user/orgs/{org}/switch"), json!({})),
        (format!("/org/{org}/members"), json!({ "email": format!("second-{org}@example.com"), "role": "member" })),
    ];
    for (path, body) in more {
        let made = owner.asks(t.post(&path).json(&body)).await;
        assert!((200..300).contains(&made.status), "{path}: {}", made.text);
    }
    let slug = &tenant.ids["slug"];
    let namespace = slug.split('.').next().expect("a namespace");
    publish(t, owner, &format!("/skills/{slug}/versions?version=1.1.0"), PACKAGES[0]).await;
    publish(t, owner, &format!("/skills?namespace={namespace}&version=1.0.0"), PACKAGES[1]).await;
    for slug in [slug.clone(), format!("{namespace}.csv-reader")] {
        let made = owner.asks(t.post(&format!("/skills/{slug}/install"))).await;
        assert_eq!(made.status, 200, "{}", made.text);
    }
    let object = json!({ "name": "b.txt", "contentType": "text/plain", "size": 1 });
    let object = owner.asks(t.post("/storage/presign-upload").json(&object));
    let object = object.header("x-service-app-key", &tenant.key).await;
    assert_eq!(object.status, 200, "{}", object.text);
    let second = owner.asks(t.post("/apps").json(&json!({ "name": "Third", "orgId": org }))).await;
    for (app, archive, status) in [
        (app.as_str(), archive(), 200),
        (second.body["id"].as_str().expect("an app"), archive(), 200),
        (app, b"none".to_vec(), 400),
        (app, b"none".to_vec(), 400),
    ] {
        let made = deploy(t, owner, app, archive).await;
        assert_eq!(made.status, status, "{}", made.text);
    }
    for number in 0..2 {
        let sql = "INSERT INTO domain_registration (id, org_id, app_id, domain, years, auto_renew, privacy, price, currency,
                       status, is_open, created_at, updated_at)
                   VALUES ($1, $2, $3, 'example.com', 1, FALSE, FALSE, 1200, 'USD', 'failed', FALSE, $4, $4)";
        let id = t.janua.entropy.uuid(t.janua.clock.now()).to_string();
        t.janua.db.exec(sql, params![id, org, app, number]).await.expect("a purchase");
    }
    for person in people {
        let sql = "INSERT INTO app_user (app_id, account_id, first_sign_in_at, last_sign_in_at) VALUES ($1, $2, 0, 0)
             ON CONFLICT DO NOTHING";
        t.janua.db.exec(sql, params![app, &person.id]).await.expect("a user of the app");
        // Events in the month of the tests' clock, whose first day is this.
        let sql = "INSERT INTO user_period (app_id, period, since, account_id, events, last_at)
                   VALUES ($1, 'm', 20454, $2, 1, 0) ON CONFLICT DO NOTHING";
        t.janua.db.exec(sql, params![app, &person.id]).await.expect("events of a user");
        let sql =
            "INSERT INTO consent (id, account_id, client, resource, name, scopes, place, created_at, updated_at)
                   VALUES ($1, $2, $1, '', 'Client', 'openid', 'https://client.example.com', 0, 0)";
        let id = t.janua.entropy.uuid(t.janua.clock.now()).to_string();
        t.janua.db.exec(sql, params![id, &owner.id]).await.expect("a consent");
    }
    tenant
}

#[tokio::test]
async fn a_cursor_counts_in_the_list_of_its_own_tenant_alone() {
    let t = platform().await;
    let people = [signed_in(&t, "one@example.com").await, signed_in(&t, "two@example.com").await];
    let (alice, bob) = (signed_in(&t, "alice@example.com").await, signed_in(&t, "bob@example.com").await);
    let (hers, his) = (tenant(&t, &alice, &people).await, tenant(&t, &bob, &people).await);
    let (mut asked, mut wrong) = (0, vec![]);
    for list in lists(&t.janua.description.get().expect("the description").value()) {
        if OF_THE_PLATFORM.contains(&list.path.as_str()) || NAMED_BY_QUERY.contains(&list.path.as_str()) {
            continue;
        }
        asked += 1;
        let (in_hers, in_his) = (list.path(&hers, &hers), list.path(&his, &his));
        let first = list.asked_by(&t, &alice, &format!("{in_hers}?limit=1"), &hers).await;
        let Some(cursor) = first.body["nextCursor"].as_str() else {
            wrong.push(format!("{}: give `tenant` two entries of this list: {}", list.path, first.text));
            continue;
        };
        let next = list.asked_by(&t, &alice, &format!("{in_hers}?cursor={cursor}"), &hers).await;
        if next.status != 200 {
            wrong.push(format!("{}, the next page: {:?}", list.path, next.refusal()));
        }
        let other = list.asked_by(&t, &bob, &format!("{in_his}?cursor={cursor}"), &his).await;
        if other.refusal() != (400, "bad_cursor") {
            wrong.push(format!("{}, the cursor of another tenant: {:?}", list.path, other.refusal()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    t.run_jobs().await;
    assert!(asked > 0, "the description names no list");
    t.finish().await;
}
