//! Several nodes, a database or a bucket that is away, hosts that are attached.
use kernel::{
    clock::Clock,
    testing::{S3Server, START},
    transact,
};

use super::*;
use crate::edge::site::{attach_host, detach_host};

#[tokio::test]
async fn an_activation_on_one_node_is_served_by_the_other() {
    let t = start().await;
    if t.janua.db.engine() == "sqlite" {
        // An embedded database has one node. `hosting` on PostgreSQL and tests/storms/deploys.rs have two.
        return t.finish().await;
    }
    let other = t.another_node(feature).await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    assert_eq!(shows(&other, "shop.localhost", "/").await.0, 404);
    for n in 0..5 {
        ada.deployed(&t, &[("index.html", &n.to_string())]).await;
        let wanted = (200, n.to_string());
        let begun = tokio::time::Instant::now();
        while shows(&other, "shop.localhost", "/").await != wanted {
            assert!(begun.elapsed().as_secs() < 5, "deployment {n} is not seen");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
    t.run_jobs().await;
    drop(other);
    t.finish().await;
}

#[tokio::test]
async fn a_custom_host_serves_the_site_until_it_is_detached() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    ada.deployed(&t, &[("index.html", "home")]).await;
    assert_eq!(shows(&t, "www.example.com", "/").await.0, 404);
    let app: tenancy::apps::ApplicationId = ada.app.parse().unwrap();
    transact!(t.janua, async |tx| {
        attach_host(tx, &t.janua, "example.com", app, None).await?;
        Ok(attach_host(tx, &t.janua, "www.example.com", app, Some("example.com")).await?)
    })
    .unwrap();
    assert_eq!(shows(&t, "example.com", "/").await, (200, "home".into()));
    let moved = ask(&t, "www.example.com", "//a?b=c", &[]).await;
    assert_eq!((moved.status, moved.header("location")), (308, "http://example.com:8081/a?b=c"));
    transact!(t.janua, async |tx| Ok(detach_host(tx, "example.com", app).await?)).unwrap();
    assert_eq!(shows(&t, "example.com", "/").await.0, 404, "W17");
    let gone = ada.person.asks(t.ask(axum::http::Method::DELETE, &format!("/apps/{}", ada.app))).await;
    assert!(gone.status < 300, "{}", gone.text);
    assert_eq!(shows(&t, "shop.localhost", "/").await.0, 404);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn f_w5_f_w6_a_bucket_holds_sites_and_what_was_served_survives_it() {
    let s3 = S3Server::start().await;
    let cache = tempfile::tempdir().unwrap();
    let config = Config { data_dir: cache.path().to_owned(), ..s3.config() };
    let t = TestJanua::start_with(config, feature).await;
    // The server of the bucket goes by the wall clock.
    t.advance(Clock::System.now().since(START));
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    ada.deployed(&t, &[("index.html", "home"), ("never-served.txt", "x")]).await;
    t.run_jobs().await;
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "home".into()));
    let objects: Vec<(String,)> = t.janua.db.all("SELECT object FROM pack", vec![]).await.unwrap();
    for (object,) in &objects {
        std::fs::write(s3.file(object), "damaged").unwrap();
    }
    assert_eq!(shows(&t, "shop.localhost", "/").await, (200, "home".into()), "from memory");
    let damaged = ask(&t, "shop.localhost", "/never-served.txt", &[]).await;
    assert!(damaged.status >= 500, "never wrong bytes: {damaged:?}");
    let again = Edge::new(&t.janua.config);
    let request = Request::get("/").header("host", "shop.localhost").body(()).unwrap();
    let response = respond(&t.janua, &again, &Connection::default(), &request).await;
    assert_eq!(response.status(), 200, "a process that starts anew has it on the disk");
    t.finish().await;
}
