//! P49, P50: every route with every role, out of one table; and what another tenant's id answers.
use super::*;

/// Who may, from this role on; what is asked; what whoever may gets.
struct Ask {
    method: &'static str,
    path: &'static str,
    body: Value,
    least: usize,
    good: u16,
}

const ROLES: [&str; 3] = ["member", "admin", "owner"];

fn table() -> Vec<Ask> {
    let ask = |method, path, body, least, good| Ask { method, path, body, least, good };
    let none = Value::Null;
    vec![
        ask("GET", "/org/{org}", none.clone(), 0, 200),
        ask("PATCH", "/org/{org}", json!({ "name": "New" }), 1, 200),
        ask("GET", "/org/{org}/export", none.clone(), 1, 200),
        ask("GET", "/org/{org}/members", none.clone(), 0, 200),
        ask("POST", "/org/{org}/members", json!({ "email": "new@example.com", "role": "member" }), 1, 200),
        ask("GET", "/org/{org}/invites", none.clone(), 1, 200),
        ask("POST", "/org/{org}/invites/old%40example.com/resend", none.clone(), 1, 200),
        ask("DELETE", "/org/{org}/invites/old%40example.com", none.clone(), 1, 204),
        ask("PATCH", "/org/{org}/members/{somebody}", json!({ "role": "member" }), 1, 200),
        ask("DELETE", "/org/{org}/members/{somebody}", none.clone(), 1, 204),
        ask("GET", "/orgs/{org}/metadata", none.clone(), 0, 200),
        ask("PATCH", "/orgs/{org}/metadata", json!({ "a": 1 }), 1, 200),
        ask("POST", "/user/orgs/{org}/switch", none.clone(), 0, 200),
        ask("DELETE", "/org/{org}", none, 2, 204),
    ]
}

fn place<'a>(t: &'a TestApp, ask: &Ask, org: &str, somebody: &str) -> kernel::testing::Ask<'a> {
    let path = ask.path.replace("{org}", org).replace("{somebody}", somebody);
    let method: Method = ask.method.parse().unwrap();
    let sent = t.ask(method, &path);
    if ask.body.is_null() { sent } else { sent.json(&ask.body) }
}

#[tokio::test]
async fn p50_every_route_asks_for_its_role() {
    let t = start().await;
    let root = signed_in(&t, "root@example.com").await;
    let people = {
        let mut people = vec![];
        for role in ROLES {
            people.push(signed_in(&t, &format!("{role}@example.com")).await);
        }
        people
    };
    let somebody = signed_in(&t, "somebody@example.com").await;
    let stranger = signed_in(&t, "stranger@example.com").await;
    for ask in table() {
        // Anew for each row, because a row may take the organization away.
        let org = make_org(&t, &root, "Acme").await;
        let org = id(&org);
        let put = |person: &str, role: &str| {
            let sql = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, $3, 0)";
            t.app.db.exec(sql, db::params![org, person, role])
        };
        for (person, role) in people.iter().zip(ROLES) {
            put(&person.id, role).await.unwrap();
        }
        put(&somebody.id, "member").await.unwrap();
        let old = "INSERT INTO org_invite (org_id, email_key, email, role, hash, invited_by, created_at, sent_at,
                                           expires_at)
                   VALUES ($1, 'old@example.com', 'old@example.com', 'member', $1, $2, 0, 0, 9000000000000)";
        t.app.db.exec(old, db::params![org, &root.id]).await.unwrap();
        let what = format!("{} {}", ask.method, ask.path);
        assert_eq!(place(&t, &ask, org, &somebody.id).await.status, 401, "{what}: nobody");
        let told = stranger.asks(place(&t, &ask, org, &somebody.id)).await;
        assert_eq!(told.refusal(), (404, "not_found"), "{what}: a stranger");
        for (rank, person) in people.iter().enumerate() {
            let answer = person.asks(place(&t, &ask, org, &somebody.id)).await;
            if rank < ask.least {
                assert_eq!(answer.refusal(), (403, "forbidden"), "{what}: {}", ROLES[rank]);
            } else {
                assert_eq!(answer.status, ask.good, "{what}: {} {}", ROLES[rank], answer.text);
                break;
            }
        }
        t.run_jobs().await;
        t.happened().await;
    }
    finish(t).await;
}

#[tokio::test]
async fn p49_another_tenants_id_is_like_a_random_one() {
    let t = start().await;
    let (ada, eve) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "eve@example.com").await);
    let (of_ada, of_eve) = (make_org(&t, &ada, "Acme").await, make_org(&t, &eve, "Evil").await);
    let random = "019c137e-c107-7f36-aa03-c8508b253019";
    for ask in table() {
        let theirs = eve.asks(place(&t, &ask, id(&of_ada), &ada.id)).await;
        let nobodys = eve.asks(place(&t, &ask, random, &ada.id)).await;
        let same = |answer: &Answer| (answer.status, answer.body["code"].clone(), answer.body["title"].clone());
        assert_eq!(same(&theirs), same(&nobodys), "{} {}", ask.method, ask.path);
        assert_eq!(theirs.status, 404);
        // A person of another organization is nobody in one's own.
        if ask.path.contains("{somebody}") {
            let answer = eve.asks(place(&t, &ask, id(&of_eve), &ada.id)).await;
            assert_eq!(answer.refusal(), (404, "not_found"), "{} {}", ask.method, ask.path);
        }
    }
    // A cursor is bound to its list.
    let page = eve.asks(t.get(&format!("/org/{}/members?cursor=AAAA", id(&of_eve)))).await;
    assert_eq!(page.refusal(), (400, "bad_cursor"));
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
