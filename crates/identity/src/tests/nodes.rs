//! What holds after a restart and on another node.
use std::time::Duration;

use axum::http::Method;
use db::{params, testing::TestDb};
use serde_json::json;

use super::actors::*;

#[tokio::test]
async fn f17_a_restart_forgets_nothing() {
    let t = start().await;
    let (kept, ended) =
        (signed_in(&t, "ada@example.com").await, Person::of(&login(&t, "ada@example.com", PASSWORD).await));
    assert_eq!(ended.asks(t.post("/auth/logout")).await.status, 204);
    register(&t, "new@example.com").await;
    let token = token_in(&mail_to(&t, "new@example.com").unwrap());
    for _ in 0..10 {
        login(&t, "bob@example.com", "wrong wrong wrong").await;
    }
    let locked = login(&t, "bob@example.com", "wrong wrong wrong").await.status;

    let t = t.restart(feature).await;
    assert_eq!(kept.asks(t.get("/auth/me")).await.status, 200, "a session goes on");
    assert_eq!(refresh(&t, &kept.refresh).await.status, 200);
    assert_eq!(ended.asks(t.get("/auth/me")).await.status, 401, "an ended one stays ended");
    assert_eq!(refresh(&t, &ended.refresh).await.status, 401);
    assert_eq!(t.post("/auth/verify-email").json(&json!({ "token": token })).await.status, 200, "links still work");
    let still = login(&t, "bob@example.com", "wrong wrong wrong").await.status;
    assert_eq!(still, locked, "a lockout is not reset");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn f21_a_damaged_signing_key_stops_the_start() {
    let t = start().await;
    t.janua.db.exec("UPDATE signing_key SET sealed = $1", params![vec![1_u8; 100]]).await.unwrap();
    let said = tenancy::sessions::keys::load(&t.janua).await.unwrap_err();
    assert!(said.contains("is damaged") && said.contains("restore"), "{said}");
    t.janua.db.exec("DELETE FROM signing_key", params![]).await.unwrap();
    let said = tenancy::sessions::keys::start(&t.janua).await.unwrap_err();
    assert!(said.contains("never made over old"), "{said}");
    t.finish().await;
}

#[tokio::test]
async fn p06_revoking_reaches_another_node_within_a_second() {
    if !TestDb::on_postgres() {
        // An embedded database has one node.
        return;
    }
    let t = start().await;
    let other = t.another_node(feature).await;
    let person = signed_in(&t, "ada@example.com").await;
    assert_eq!(person.asks(other.get("/auth/me")).await.status, 200, "any node takes it, and remembers it");
    assert_eq!(person.asks(t.ask(Method::DELETE, "/auth/sessions")).await.status, 204);
    assert_eq!(person.asks(t.get("/auth/me")).await.status, 401, "here at once");
    let gone = async {
        while person.asks(other.get("/auth/me")).await.status != 401 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), gone).await.expect("there within a second");
    drop(other);
    t.finish().await;
}
