//! Pictures that clients put into a bucket: this server is not in their way, and looks for what came.
use std::{path::PathBuf, time::Duration};

use db::params;
use image::ImageFormat;
use kernel::{
    clock::Clock,
    config::Config,
    jobs::JobId,
    testing::{S3Server, START, TestJanua, join_all},
};
use serde_json::json;

use super::{
    actors::*,
    avatars::{offer, path, picture},
};

const PNG: &str = "image/png";

/// At the time of the wall clock: the server of the bucket has no other.
async fn start_with(config: Config) -> (TestJanua, Person) {
    let t = TestJanua::start_with(config, feature).await;
    t.advance(Clock::System.now().since(START));
    let ada = signed_in(&t, "ada@example.com").await;
    t.run_jobs().await;
    t.happened().await;
    (t, ada)
}

/// Puts it as a browser would, where it was told to.
async fn put(url: &str, bytes: &[u8]) -> u16 {
    let request = reqwest::Client::new().put(url).header("content-type", PNG).body(bytes.to_vec());
    request.send().await.unwrap().status().as_u16()
}

/// The file in the bucket that an address is for.
fn incoming(server: &S3Server, url: &str) -> PathBuf {
    let name = url.split(['/', '?']).nth(5).unwrap();
    server.file(&format!("incoming/{name}"))
}

async fn uploads(t: &TestJanua) -> i64 {
    let (left,) = t.janua.db.one("SELECT CAST(COUNT(*) AS BIGINT) FROM upload", params![]).await.unwrap();
    left
}

#[tokio::test]
async fn what_comes_to_the_bucket_is_found_and_drawn_anew() {
    let server = S3Server::start().await;
    let (t, ada) = start_with(server.config()).await;
    let mut file = picture(1200, 600, ImageFormat::Png);
    file.extend(b"payload");
    let offered = offer(&t, &ada, PNG, file.len()).await.body;
    let url = offered["uploadUrl"].as_str().unwrap();
    assert!(url.starts_with(&server.url), "{url}");
    t.advance(Duration::from_secs(2));
    assert_eq!(t.run_jobs().await, 1, "a first look finds nothing");
    assert!(ada.asks(t.get("/auth/me")).await.body["avatarUrl"].is_null());

    assert_eq!(put(url, &file).await, 200);
    assert_eq!(t.run_jobs().await, 0, "looked for with pauses");
    t.advance(Duration::from_secs(4));
    t.run_jobs().await;
    t.expects(&["PROFILE_UPDATED"]).await;
    let shown = ada.asks(t.get("/auth/me")).await.body["avatarUrl"].clone();
    assert_eq!(shown, offered["pictureUrl"]);
    let seen = t.get(&path(&shown)).await;
    assert_eq!((seen.status, seen.header("content-type")), (200, PNG));
    assert!(!seen.text.contains("payload"));
    let drawn = image::load_from_memory(&seen.bytes).unwrap();
    assert_eq!((drawn.width(), drawn.height()), (512, 256));

    assert_eq!(put(url, &file).await, 200, "the bucket lets it be put again");
    t.advance(Duration::from_mins(11));
    t.run_jobs().await;
    assert!(!incoming(&server, url).exists(), "removed once nobody can put it again");
    t.expects(&[]).await;
    assert_eq!(uploads(&t).await, 1, "the row says whose picture it is");
    t.finish().await;
}

#[tokio::test]
async fn what_is_no_picture_or_never_comes_is_forgotten() {
    let server = S3Server::start().await;
    let (t, ada) = start_with(server.config()).await;
    let html = b"<script>alert(1)</script>";
    let offered = offer(&t, &ada, PNG, html.len()).await.body;
    let url = offered["uploadUrl"].as_str().unwrap();
    assert_eq!(put(url, html).await, 200);
    offer(&t, &ada, PNG, 100).await;
    t.advance(Duration::from_secs(2));
    t.run_jobs().await;
    assert_eq!(uploads(&t).await, 1, "the other may still come");
    for _ in 0..12 {
        t.advance(Duration::from_mins(1));
        t.run_jobs().await;
    }
    assert_eq!(uploads(&t).await, 0);
    assert!(!incoming(&server, url).exists());
    assert!(ada.asks(t.get("/auth/me")).await.body["avatarUrl"].is_null());
    t.expects(&[]).await;
    t.finish().await;
}

#[tokio::test]
async fn two_who_look_at_once_show_one_picture() {
    let server = S3Server::start().await;
    let (t, ada) = start_with(server.config()).await;
    let file = picture(2000, 2000, ImageFormat::Png);
    let offered = offer(&t, &ada, PNG, file.len()).await.body;
    assert_eq!(put(offered["uploadUrl"].as_str().unwrap(), &file).await, 200);
    // A node that lost its lease goes on for a while beside the one that has it now.
    let twin = JobId::new(&t.janua.entropy, t.janua.clock.now());
    let sql = "INSERT INTO job (id, kind, payload, created_at, ready_at, is_claimed, attempts, fence)
               SELECT $1, kind, payload, created_at, ready_at, is_claimed, attempts, fence FROM job
               WHERE kind = 'uploads.look'";
    assert_eq!(t.janua.db.exec(sql, params![twin]).await.unwrap(), 1);
    t.advance(Duration::from_secs(2));
    let ran = join_all([t.run_jobs(), t.run_jobs()]).await;
    assert_eq!(ran, [1, 1], "each had one");
    t.expects(&["PROFILE_UPDATED"]).await;
    t.advance(Duration::from_mins(11));
    t.run_jobs().await;
    assert_eq!(t.get(&path(&offered["pictureUrl"])).await.status, 200, "the loser did not take it away");
    t.finish().await;
}

#[tokio::test]
async fn somebody_who_left_meanwhile_is_not_missed() {
    let server = S3Server::start().await;
    let (t, ada) = start_with(server.config()).await;
    let file = picture(20, 20, ImageFormat::Png);
    let offered = offer(&t, &ada, PNG, file.len()).await.body;
    let url = offered["uploadUrl"].as_str().unwrap();
    assert_eq!(put(url, &file).await, 200);
    assert_eq!(ada.asks(t.ask(axum::http::Method::DELETE, "/auth/me")).await.status, 204);
    t.advance(Duration::from_secs(2));
    t.run_jobs().await;
    t.advance(Duration::from_mins(11));
    t.run_jobs().await;
    assert!(!incoming(&server, url).exists());
    assert_eq!(uploads(&t).await, 0);
    t.finish().await;
}

#[tokio::test]
async fn a_bucket_out_of_reach_stops_nothing_else_and_is_asked_again() {
    let server = S3Server::start().await;
    let away = Config { s3_url: Some("http://127.0.0.1:9".parse().unwrap()), ..server.config() };
    let (t, ada) = start_with(away).await;
    assert_eq!(offer(&t, &ada, PNG, 100).await.status, 200, "giving out an address needs nobody");
    let seen = t.get("/files/pictures/0123.png").await;
    assert_eq!(seen.refusal(), (503, "unavailable"));
    t.advance(Duration::from_secs(2));
    t.run_jobs().await;
    assert_eq!(uploads(&t).await, 1, "kept, and looked for again");
    let body = json!({ "name": "Ada L." });
    assert_eq!(ada.asks(t.ask(axum::http::Method::PATCH, "/user/profile")).json(&body).await.status, 200);
    t.janua.db.exec("DELETE FROM upload", params![]).await.unwrap();
    t.advance(Duration::from_hours(1));
    t.run_jobs().await;
    t.finish().await;
}
