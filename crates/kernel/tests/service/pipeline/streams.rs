//! Routes whose bodies go to the handler as they come.
use axum::{body::Body, extract::State};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use kernel::{
    Janua,
    config::Config,
    fault::{FORBIDDEN, Result},
    feature::Feature,
    http::{Json, Routes, Streamed},
    ports::objects::{Key, New},
    testing::TestJanua,
};
use serde_json::json;

const MIB: usize = 1024 * 1024;

async fn store(State(janua): State<Janua>, body: Streamed) -> Result<Json<u64>> {
    let key = Key::new("streams", "", &janua.entropy);
    let stored = janua.objects.put(New::at(&key, "text/plain"), body.into_source()).await?;
    Ok(Json(stored.length))
}

/// As long as it says, or nothing said.
async fn announced(body: Streamed) -> Json<Option<u64>> {
    Json(body.announced())
}

async fn refuse(_: Streamed) -> Result<Json<u64>> {
    Err(FORBIDDEN.into())
}

fn feature(_: &Config) -> Feature {
    let routes = Routes::new("test")
        .post("/store", store, "store")
        .streams(40 * MIB)
        .post("/announced", announced, "announced")
        .streams(MIB)
        .post("/refuse", refuse, "refuse")
        .streams(MIB)
        .fails(&[FORBIDDEN]);
    Feature::new(routes)
}

fn pieces(count: usize) -> Body {
    let piece = Bytes::from(vec![7; MIB]);
    Body::from_stream(stream::iter(vec![piece; count]).map(Ok::<_, std::io::Error>))
}

#[tokio::test]
async fn a_long_body_reaches_the_handler_and_the_store_without_being_held() {
    let t = TestJanua::start(feature).await;
    let answer = t.post("/store").body(pieces(40)).await;
    assert_eq!((answer.status, answer.body), (200, json!(40 * MIB)), "more than all bodies may hold for one network");
    t.finish().await;
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_whether_it_says_so_or_not() {
    let t = TestJanua::start(feature).await;
    assert_eq!(t.post("/store").body(pieces(41)).await.body["code"], "too_large");
    assert_eq!(t.post("/announced").body(vec![0; MIB + 1]).await.body["code"], "too_large");
    assert_eq!(t.post("/announced").body(vec![0; 5]).await.body, json!(5));
    let folder = t.folder.path().join("objects");
    assert_eq!(std::fs::read_dir(folder.join(".aside")).unwrap().count(), 0, "nothing of it is left");
    assert!(!folder.join("streams").exists());
    t.finish().await;
}

#[tokio::test]
async fn a_key_that_would_have_to_keep_the_body_has_no_meaning() {
    let t = TestJanua::start(feature).await;
    for body in ["one", "another"] {
        let answer = t.post("/store").header("idempotency-key", "same").body(body).await;
        assert_eq!((answer.status, answer.body), (200, json!(body.len())));
    }
    t.finish().await;
}

#[tokio::test]
async fn what_a_client_breaks_off_leaves_nothing() {
    let t = TestJanua::start(feature).await;
    let broken = stream::iter([Ok(Bytes::from_static(b"half")), Err(std::io::Error::other("gone"))]);
    assert_eq!(t.post("/store").body(Body::from_stream(broken)).await.body["code"], "malformed");
    assert!(!t.folder.path().join("objects/streams").exists());
    assert_eq!(t.post("/refuse").body(pieces(1)).await.body["code"], "forbidden", "a refusal needs no body");
    t.finish().await;
}
