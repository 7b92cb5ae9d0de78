//! Resumable uploads (tus 1.0).
use std::time::Duration;

use axum::{body::Body, http::Method};
use bytes::Bytes;
use data_encoding::BASE64;
use db::params;
use futures_util::stream;
use kernel::{
    crypto::{digest, hash},
    testing::{Answer, Ask, join_all},
};
use serde_json::json;

use super::{Shop, objects::end_user_again, path_of};
use crate::storage::{finalize, model::StorageObject};

fn tus<'a>(shop: &'a Shop, method: Method, path: &str) -> Ask<'a> {
    shop.ask(method, path).header("tus-resumable", "1.0.0")
}

async fn create(shop: &Shop, length: usize) -> Answer {
    let metadata = format!("filename {},filetype {},album {}", b64("words.txt"), b64("text/plain"), b64("x"));
    let create = tus(shop, Method::POST, "/storage/uploads").header("upload-length", &length.to_string());
    create.header("upload-metadata", &metadata).await
}

fn b64(text: &str) -> String {
    BASE64.encode(text.as_bytes())
}

fn patch<'a>(shop: &'a Shop, path: &str, offset: usize) -> Ask<'a> {
    let patch = tus(shop, Method::PATCH, path).header("content-type", "application/offset+octet-stream");
    patch.header("upload-offset", &offset.to_string())
}

async fn offset(shop: &Shop, path: &str) -> String {
    let head = tus(shop, Method::HEAD, path).await;
    assert_eq!(head.status, 204, "{}", head.text);
    assert_eq!(head.header("cache-control"), "no-store");
    head.header("upload-offset").to_owned()
}

async fn goes_on_where_it_broke_off(shop: &Shop) {
    let made = create(shop, 10).await;
    assert_eq!((made.status, made.header("tus-resumable")), (201, "1.0.0"), "{}", made.text);
    assert!(made.header("upload-expires").ends_with(" GMT"));
    let path = path_of(made.header("location")).to_owned();
    assert_eq!(offset(shop, &path).await, "0");
    let broken = stream::iter([Ok(Bytes::from_static(b"0123")), Err(std::io::Error::other("gone"))]);
    let cut = patch(shop, &path, 0).body(Body::from_stream(broken)).await;
    assert_eq!(cut.status, 400);
    assert_eq!(offset(shop, &path).await, "4", "what came is kept");
    assert_eq!(patch(shop, &path, 0).body("0123").await.refusal(), (409, "offset_conflict"));
    assert_eq!(patch(shop, &path, 4).body("456789AB").await.status, 413, "more than was announced");
    let next = patch(shop, &path, offset(shop, &path).await.parse().unwrap())
        .header("upload-checksum", &format!("sha256 {}", BASE64.encode(&digest(b"no"))))
        .body("45")
        .await;
    assert_eq!(next.refusal(), (460, "checksum_mismatch"));
    let next = patch(shop, &path, 4)
        .header("upload-checksum", &format!("sha256 {}", BASE64.encode(&digest(b"45"))))
        .body("45")
        .await;
    assert_eq!((next.status, next.header("upload-offset")), (204, "6"), "{}", next.text);
    shop.t.expects(&[]).await;
    let last = patch(shop, &path, 6).body("6789").await;
    assert_eq!((last.status, last.header("upload-offset")), (204, "10"), "{}", last.text);
    shop.t.expects(&["STORAGE_OBJECT_CREATED"]).await;
    let id = path.rsplit('/').next().unwrap();
    let object = shop.ask(Method::GET, &format!("/storage/objects/{id}")).await.body;
    assert_eq!((&object["status"], &object["sha256"]), (&json!("ready"), &json!(hash(b"0123456789"))));
    assert_eq!((&object["name"], &object["metadata"]), (&json!("words.txt"), &json!({ "album": "x" })));
    assert_eq!(shop.read(object["downloadUrl"].as_str().unwrap()).await, (200, b"0123456789".to_vec()));
    assert_eq!(offset(shop, &path).await, "10", "asked again");
    shop.let_files_go().await;
    assert_eq!(shop.files(), 1, "the pieces are gone");
}

#[tokio::test]
async fn an_upload_goes_on_where_it_broke_off() {
    for shop in [Shop::open().await, Shop::in_bucket().await] {
        goes_on_where_it_broke_off(&shop).await;
        shop.finish().await;
    }
}

#[tokio::test]
async fn a_server_says_what_it_can_and_refuses_other_versions() {
    let shop = Shop::open().await;
    let options = shop.t.ask(Method::OPTIONS, "/storage/uploads").await;
    assert_eq!((options.status, options.header("tus-version")), (204, "1.0.0"));
    assert_eq!(options.header("tus-extension"), "creation,expiration,checksum,termination");
    let old = shop.ask(Method::POST, "/storage/uploads").header("upload-length", "1").await;
    assert_eq!((old.refusal(), old.header("tus-version")), ((412, "tus_version"), "1.0.0"));
    let made = create(&shop, 5).await;
    let path = path_of(made.header("location")).to_owned();
    patch(&shop, &path, 0).body("123").await;
    let other = tus(&shop, Method::PATCH, &path).header("content-type", "x/y").header("upload-offset", "3");
    assert_eq!(other.body("4").await.refusal(), (415, "not_offset_stream"));
    assert_eq!(tus(&shop, Method::DELETE, &path).await.status, 204);
    assert_eq!(tus(&shop, Method::HEAD, &path).await.status, 404);
    assert_eq!(shop.usage().await, (0, 0));
    let empty = create(&shop, 0).await;
    let id = empty.header("location").rsplit('/').next().unwrap().to_owned();
    assert_eq!(shop.ask(Method::GET, &format!("/storage/objects/{id}")).await.body["status"], "ready");
    shop.finish().await;
}

#[tokio::test]
async fn two_who_go_on_at_once_do_not_mix() {
    let shop = Shop::open().await;
    let path = path_of(create(&shop, 4).await.header("location")).to_owned();
    let (one, other) =
        tokio::join!(patch(&shop, &path, 0).body("aaaa").send(), patch(&shop, &path, 0).body("bbbb").send());
    let mut both = [one.status, other.status];
    both.sort_unstable();
    assert_eq!(both, [204, 409]);
    let id = path.rsplit('/').next().unwrap();
    let object = shop.ask(Method::GET, &format!("/storage/objects/{id}")).await.body;
    let bytes = shop.read(object["downloadUrl"].as_str().unwrap()).await.1;
    assert!([b"aaaa".to_vec(), b"bbbb".to_vec()].contains(&bytes));
    shop.finish().await;
}

#[tokio::test]
async fn an_upload_may_take_days() {
    let mut shop = Shop::open().await;
    let path = path_of(create(&shop, 6).await.header("location")).to_owned();
    for (place, part) in ["ab", "cd", "ef"].into_iter().enumerate() {
        if place > 0 {
            shop.t.advance(Duration::from_hours(20));
            shop.t.run_jobs().await;
            shop.user = end_user_again(&shop).await;
        }
        let sent = patch(&shop, &path, place * 2).body(part).await;
        assert_eq!(sent.status, 204, "{}", sent.text);
    }
    let id = path.rsplit('/').next().unwrap();
    let object = shop.ask(Method::GET, &format!("/storage/objects/{id}")).await.body;
    assert_eq!((&object["status"], &object["sha256"]), (&json!("ready"), &json!(hash(b"abcdef"))));
    shop.let_files_go().await;
    assert_eq!(shop.files(), 1, "the pieces are gone");
    shop.finish().await;
}

/// An upload whose bytes are all there, and whose server died before it became ready.
async fn unfinished(shop: &Shop) -> (String, StorageObject) {
    let path = path_of(create(shop, 4).await.header("location")).to_owned();
    assert_eq!(patch(shop, &path, 0).body("abc").await.status, 204);
    let id = path.rsplit('/').next().unwrap();
    let db = &shop.t.janua.db;
    db.exec("UPDATE storage_object SET size = 3 WHERE id = $1", params![id]).await.unwrap();
    let object = StorageObject::find(db, id.parse().unwrap()).await.unwrap().unwrap();
    (path, object)
}

#[tokio::test]
async fn those_that_complete_an_upload_at_once_all_get_it() {
    let shop = Shop::open().await;
    for _ in 0..4 {
        let (path, _) = unfinished(&shop).await;
        let heads = join_all((0..8).map(|_| tus(&shop, Method::HEAD, &path).send())).await;
        for head in heads {
            assert_eq!((head.status, head.header("upload-offset")), (204, "3"), "{}", head.text);
        }
        // Other nodes do not know of each other's work.
        let (_, object) = unfinished(&shop).await;
        let nobody = tenancy::events::By::default();
        let nodes = join_all((0..8).map(|_| finalize::finish(&shop.t.janua, object.clone(), None, &nobody))).await;
        for done in nodes {
            let done = done.unwrap();
            assert!(done.is_ready() && done.sha256 == Some(hash(b"abc")));
        }
    }
    shop.let_files_go().await;
    assert_eq!(shop.files(), 8, "one for each object");
    shop.t.happened().await;
    shop.finish().await;
}

#[tokio::test]
async fn an_empty_part_changes_nothing() {
    let shop = Shop::open().await;
    let path = path_of(create(&shop, 2).await.header("location")).to_owned();
    let empty = patch(&shop, &path, 0).header("upload-checksum", &format!("sha256 {}", BASE64.encode(&digest(b""))));
    let empty = empty.body(Body::from_stream(stream::empty::<std::io::Result<Bytes>>())).await;
    assert_eq!((empty.status, empty.header("upload-offset")), (204, "0"), "{}", empty.text);
    assert_eq!(patch(&shop, &path, 0).body("ab").await.status, 204);
    shop.let_files_go().await;
    assert_eq!(shop.files(), 1);
    shop.finish().await;
}

#[tokio::test]
async fn so_many_requests_may_go_on_with_one_upload_at_once() {
    let shop = Shop::open().await;
    let path = path_of(create(&shop, 4).await.header("location")).to_owned();
    let (ends, waiting): (Vec<_>, Vec<_>) = (0..2).map(|_| tokio::sync::oneshot::channel::<()>()).unzip();
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let hanging = join_all(waiting.into_iter().map(|end| {
        let begun = begun.clone();
        let rest = stream::once(async move {
            begun.send(()).unwrap();
            let _dropped = end.await;
            Ok::<_, std::io::Error>(Bytes::from_static(b"abcd"))
        });
        patch(&shop, &path, 0).body(Body::from_stream(rest)).send()
    }));
    let others = async {
        begins.recv().await;
        begins.recv().await;
        let refused = patch(&shop, &path, 0).body("abcd").await;
        assert_eq!((refused.refusal(), refused.header("retry-after")), ((409, "upload_underway"), "5"));
        drop(ends);
    };
    let (mut both, ()) = tokio::join!(hanging, others);
    both.sort_by_key(|answer| answer.status);
    assert_eq!((both[0].status, both[1].refusal()), (204, (409, "offset_conflict")));
    shop.finish().await;
}
