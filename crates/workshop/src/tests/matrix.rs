//! P49, P50: every route with every role, out of one table; and what another tenant's ids answer.
use super::*;

/// What is asked, who may from this role on, and what whoever may gets.
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
        ask("GET", "/apps/{app}", none.clone(), 0, 200),
        ask("PATCH", "/apps/{app}", json!({ "name": "New" }), 1, 200),
        ask("POST", "/apps/{app}/logo/upload-url", json!({ "contentType": "image/png", "size": 9 }), 1, 200),
        ask("DELETE", "/apps/{app}/logo", none.clone(), 1, 204),
        ask("GET", "/apps/{app}/keys", none.clone(), 0, 200),
        ask("POST", "/apps/{app}/keys", json!({ "type": "secret", "environment": "live" }), 1, 200),
        ask("DELETE", "/apps/{app}/keys/{key}", none.clone(), 1, 204),
        ask("GET", "/apps/{app}/users", none.clone(), 0, 200),
        ask("GET", "/apps/{app}/domain", none.clone(), 0, 200),
        ask("DELETE", "/apps/{app}/domain", none.clone(), 1, 204),
        ask("POST", "/apps/{app}/domain", json!({ "domain": "new.example.com" }), 1, 409),
        ask("POST", "/apps/{app}/domain/verify", none.clone(), 1, 502),
        ask("DELETE", "/apps/{app}", none, 1, 204),
    ]
}

fn place<'a>(t: &'a TestApp, ask: &Ask, app: &str, key: &str) -> kernel::testing::Ask<'a> {
    let path = ask.path.replace("{app}", app).replace("{key}", key);
    let sent = t.ask(ask.method.parse().unwrap(), &path);
    if ask.body.is_null() { sent } else { sent.json(&ask.body) }
}

/// Where nobody answers for any domain.
async fn start_without_dns() -> TestApp {
    let config = Config { dns_servers: vec!["127.0.0.1:1".parse().unwrap()], ..Config::for_tests() };
    TestApp::start_with(config, feature).await
}

#[tokio::test]
async fn p50_every_route_asks_for_its_role() {
    let t = start_without_dns().await;
    let root = signed_in(&t, "root@example.com").await;
    let mut people = vec![];
    for role in ROLES {
        people.push(signed_in(&t, &format!("{role}@example.com")).await);
    }
    let stranger = signed_in(&t, "stranger@example.com").await;
    let first = make_app(&t, &root, "First").await;
    for (person, role) in people.iter().zip(ROLES) {
        put(&t, &first, person, role).await;
    }
    for ask in table() {
        let app = make_app(&t, &root, "App").await;
        let key = make_key(&t, &root, id(&app), "publishable", "live").await;
        let domain = json!({ "domain": "app.example.com" });
        assert_eq!(root.asks(t.post(&format!("/apps/{}/domain", id(&app))).json(&domain)).await.status, 200);
        let what = format!("{} {}", ask.method, ask.path);
        assert_eq!(place(&t, &ask, id(&app), id(&key)).await.status, 401, "{what}: nobody");
        let told = stranger.asks(place(&t, &ask, id(&app), id(&key))).await;
        assert_eq!(told.refusal(), (404, "not_found"), "{what}: a stranger");
        for (rank, person) in people.iter().enumerate() {
            let answer = person.asks(place(&t, &ask, id(&app), id(&key))).await;
            if rank < ask.least {
                assert_eq!(answer.refusal(), (403, "forbidden"), "{what}: {}", ROLES[rank]);
            } else {
                assert_eq!(answer.status, ask.good, "{what}: {} {}", ROLES[rank], answer.text);
                break;
            }
        }
        t.happened().await;
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p49_another_tenants_id_is_like_a_random_one() {
    let t = start_without_dns().await;
    let (ada, eve) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "eve@example.com").await);
    let (of_ada, of_eve) = (make_app(&t, &ada, "App").await, make_app(&t, &eve, "Evil").await);
    let key = make_key(&t, &ada, id(&of_ada), "publishable", "live").await;
    let random = "019c137e-c107-7f36-aa03-c8508b253019";
    for ask in table() {
        let theirs = eve.asks(place(&t, &ask, id(&of_ada), id(&key))).await;
        let nobodys = eve.asks(place(&t, &ask, random, id(&key))).await;
        let same = |answer: &Answer| (answer.status, answer.body["code"].clone(), answer.body["title"].clone());
        assert_eq!(same(&theirs), same(&nobodys), "{} {}", ask.method, ask.path);
        assert_eq!(theirs.status, 404);
    }
    // Somebody else's key under one's own app.
    let path = format!("/apps/{}/keys/{}", id(&of_eve), id(&key));
    assert_eq!(eve.asks(t.ask(Method::DELETE, &path)).await.refusal(), (404, "not_found"));
    assert_eq!(ada.asks(t.get(&format!("/apps/{}/keys", id(&of_ada)))).await.body["keys"][0]["id"], key["id"]);
    t.run_jobs().await;
    t.finish().await;
}
