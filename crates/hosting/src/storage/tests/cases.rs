//! Attacks and faults: W12 to W16, F-W3 to F-W5.
use std::{os::unix::fs::PermissionsExt as _, time::Duration};

use axum::{body::Body, http::Method};
use bytes::Bytes;
use futures_util::stream;
use kernel::{crypto::hash, testing::join_all};
use serde_json::json;

use super::{PNG, Shop, end_user, new, path_of, text};

#[tokio::test]
async fn w12_what_could_run_is_saved_and_never_shown() {
    let shop = Shop::open().await;
    for content_type in
        ["text/html", "image/svg+xml", "application/xml", "text/javascript", "application/xhtml+xml", "x/y"]
    {
        let html = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>";
        let body =
            json!({ "name": "x.html", "contentType": content_type, "size": html.len(), "visibility": "public" });
        let url = text(&shop.store_as(&body, html).await["url"]);
        let shown = shop.t.get(&format!("{}?response-content-type=text/html", path_of(&url))).await;
        assert_eq!(shown.header("content-type"), content_type);
        assert!(shown.header("content-disposition").starts_with("attachment;"), "{content_type}");
        assert_eq!(shown.header("content-security-policy"), "sandbox; default-src 'none'");
        assert_eq!(shown.header("x-content-type-options"), "nosniff");
        assert_eq!(shown.header("cross-origin-resource-policy"), "cross-origin");
    }
    // A picture that is a page too stays a picture.
    let polyglot = [PNG, b"<script>alert(1)</script>"].concat();
    let body = json!({ "name": "x.png", "contentType": "image/png", "size": polyglot.len(), "visibility": "public" });
    let shown = shop.t.get(path_of(&text(&shop.store_as(&body, &polyglot).await["url"]))).await;
    assert_eq!((shown.header("content-type"), shown.header("x-content-type-options")), ("image/png", "nosniff"));
    assert!(shown.header("content-security-policy").contains("sandbox"));
    shop.finish().await;
}

#[tokio::test]
async fn w13_an_upload_url_is_for_one_file_in_one_way_until_one_moment() {
    let shop = Shop::open().await;
    let mut body = new("a.txt", 5);
    body["sha256"] = json!(hash(b"words"));
    let offer = shop.presign(&body).await.body;
    let url = text(&offer["uploadUrl"]);
    let other = text(&shop.presign(&new("b.txt", 5)).await.body["uploadUrl"]);
    let name = |url: &str| path_of(url).split(['/', '?']).nth(3).unwrap().to_owned();
    let refused = async |what: &str, url: &str, content_type: &str, bytes: &[u8]| {
        let answer = shop.put_here(url, content_type, bytes).await;
        assert_eq!(answer.refusal(), (403, "upload_refused"), "{what}");
    };
    refused("one byte more", &url, "text/plain", b"words!").await;
    refused("one byte less", &url, "text/plain", b"word").await;
    refused("another type", &url, "text/html", b"words").await;
    refused("another digest", &url, "text/plain", b"sword").await;
    refused("another key", &url.replace(&name(&url), &name(&other)), "text/plain", b"words").await;
    refused("another length", &url.replace("length=5", "length=6"), "text/plain", b"words!").await;
    refused("another expiry", &url.replace("expires=1", "expires=2"), "text/plain", b"words").await;
    refused("no digest", &url.replace("sha256=", "sha255="), "text/plain", b"words").await;
    let chunked = shop.t.ask(Method::PUT, path_of(&url)).header("content-type", "text/plain");
    let chunked =
        chunked.body(Body::from_stream(stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"words"))]))).await;
    assert_eq!(chunked.refusal(), (403, "upload_refused"), "without a length");
    let read = shop.t.get(path_of(&url)).await;
    assert_eq!(read.status, 405, "a URL to put is none to read");
    let longer =
        shop.t.ask(Method::PUT, path_of(&url)).header("content-type", "text/plain").header("content-length", "5");
    let longer =
        longer.body(Body::from_stream(stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"words!"))]))).await;
    assert_eq!(longer.refusal(), (403, "upload_refused"), "more than it says");
    assert_eq!(shop.files(), 0, "none of them left anything");
    shop.t.advance(Duration::from_secs(901));
    refused("expired", &url, "text/plain", b"words").await;
    assert_eq!(shop.files(), 0);
    shop.finish().await;
}

#[tokio::test]
async fn w13_an_upload_url_takes_two_bodies_at_once_at_the_most() {
    let shop = Shop::open().await;
    let offer = shop.presign(&new("a.txt", 5)).await.body;
    let url = text(&offer["uploadUrl"]);
    let (ends, waiting): (Vec<_>, Vec<_>) = (0..2).map(|_| tokio::sync::oneshot::channel::<()>()).unzip();
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let hanging = join_all(waiting.into_iter().map(|end| {
        let begun = begun.clone();
        let bytes = stream::once(async move {
            begun.send(()).unwrap();
            let _dropped = end.await;
            Ok::<_, std::io::Error>(Bytes::from_static(b"words"))
        });
        let put = shop.t.ask(Method::PUT, path_of(&url)).header("content-type", "text/plain");
        put.header("content-length", "5").body(Body::from_stream(bytes)).send()
    }));
    let others = async {
        begins.recv().await;
        begins.recv().await;
        let refused = shop.put_here(&url, "text/plain", b"words").await;
        assert_eq!((refused.refusal(), refused.header("retry-after")), ((409, "upload_underway"), "5"));
        drop(ends);
    };
    let (both, ()) = tokio::join!(hanging, others);
    assert!(both.iter().all(|answer| answer.status == 204), "{} {}", both[0].text, both[1].text);
    assert_eq!(shop.put(&offer, b"words").await, 204, "their places are free again");
    assert_eq!(shop.finalize(&text(&offer["objectId"]), &json!({})).await.status, 200);
    shop.let_files_go().await;
    assert_eq!(shop.files(), 1);
    shop.finish().await;
}

#[tokio::test]
async fn w14_an_upload_ends_once() {
    for shop in [Shop::open().await, Shop::in_bucket().await] {
        let offer = shop.presign(&new("a.txt", 5)).await.body;
        let id = text(&offer["objectId"]);
        let other = end_user(&shop.t, "other@example.com", &shop.key).await;
        let path = format!("/storage/finalize/{id}");
        assert_eq!(shop.ask_as(&other, Method::POST, &path).await.status, 404, "another's upload");
        shop.put(&offer, b"words").await;
        shop.t.run_jobs().await;
        shop.t.happened().await;
        let nothing = json!({});
        let ends = join_all((0..16).map(|_| shop.finalize(&id, &nothing))).await;
        for end in &ends {
            assert_eq!((end.status, &end.body["finalizedAt"]), (200, &ends[0].body["finalizedAt"]), "{}", end.text);
        }
        shop.t.expects(&["STORAGE_OBJECT_CREATED"]).await;
        assert_eq!(shop.usage().await, (1, 5));
        shop.let_files_go().await;
        assert_eq!(shop.files(), 1, "the copies of those who came second are gone");
        shop.finish().await;
    }
}

#[tokio::test]
async fn w14_a_deletion_during_the_end_leaves_all_or_nothing() {
    let shop = Shop::open().await;
    for _ in 0..10 {
        let offer = shop.presign(&new("a.txt", 5)).await.body;
        let id = text(&offer["objectId"]);
        shop.put(&offer, b"words").await;
        let path = format!("/storage/objects/{id}");
        let delete = async { shop.ask(Method::DELETE, &path).await };
        let nothing = json!({});
        let (end, delete) = tokio::join!(shop.finalize(&id, &nothing), delete);
        assert!([200, 404].contains(&end.status), "{}", end.text);
        assert!([204, 404].contains(&delete.status), "{}", delete.text);
        if delete.status != 204 {
            assert_eq!(shop.ask(Method::DELETE, &path).await.status, 204);
        }
    }
    assert_eq!(shop.usage().await, (0, 0));
    shop.t.advance(Duration::from_mins(1));
    shop.t.run_jobs().await;
    assert_eq!(shop.files(), 0);
    shop.finish().await;
}

#[tokio::test]
async fn w15_of_many_at_the_last_place_one_gets_it() {
    let shop = Shop::with_plans("[plans.free.limits]\nstorage_bytes = 10\nobject_bytes = 8").await;
    assert_eq!(shop.presign(&new("a.txt", 9)).await.refusal(), (413, "object_too_large"));
    let bodies: Vec<_> = (0..32).map(|i| new(&format!("{i}.txt"), 8)).collect();
    let offers = join_all(bodies.iter().map(|body| shop.presign(body))).await;
    let given: Vec<_> = offers.iter().filter(|offer| offer.status == 200).collect();
    assert_eq!(given.len(), 1);
    let refused = offers.iter().find(|offer| offer.status != 200).unwrap();
    assert_eq!(refused.refusal(), (402, "quota_exceeded"));
    assert_eq!(
        (&refused.body["meter"], &refused.body["limit"], &refused.body["used"]),
        (&json!("storage_bytes"), &json!(10), &json!(8))
    );
    let path = format!("/storage/objects/{}", text(&given[0].body["objectId"]));
    assert_eq!(shop.ask(Method::DELETE, &path).await.status, 204);
    assert_eq!(shop.presign(&new("b.txt", 8)).await.status, 200, "room again");
    shop.finish().await;
}

#[tokio::test]
async fn w15_a_user_has_a_share_and_so_many_open_uploads() {
    let shop = Shop::with_plans("[plans.free.limits]\nstorage_bytes_per_user = 10").await;
    assert_eq!(shop.presign(&new("a.txt", 8)).await.status, 200);
    let refused = shop.presign(&new("b.txt", 3)).await;
    assert_eq!((refused.status, &refused.body["meter"]), (402, &json!("storage_bytes_per_user")), "{}", refused.text);
    assert_eq!(
        shop.ask_as(&shop.admin, Method::POST, "/storage/presign-upload").json(&new("b.txt", 3)).await.status,
        200
    );
    let bodies: Vec<_> = (0..32).map(|i| new(&format!("{i}.txt"), 0)).collect();
    let offers = join_all(bodies.iter().map(|body| shop.presign(body))).await;
    assert_eq!(offers.iter().filter(|offer| offer.status == 200).count(), 19, "twenty in all");
    let refused = offers.iter().find(|offer| offer.status != 200).unwrap();
    assert_eq!((refused.refusal(), refused.header("retry-after")), ((429, "too_many_uploads"), "60"));
    shop.t.advance(Duration::from_hours(2));
    shop.t.run_jobs().await;
    let user = super::objects::end_user_again(&shop).await;
    let again = shop.ask_as(&user, Method::POST, "/storage/presign-upload").json(&new("c.txt", 9)).await;
    assert_eq!(again.status, 200, "what lapsed is free again: {}", again.text);
    shop.finish().await;
}

#[tokio::test]
async fn w16_another_apps_objects_are_not_there() {
    let shop = Shop::open().await;
    let object = shop.store("a.txt", "text/plain", b"words").await;
    let id = text(&object["id"]);
    let eve = identity::testing::signed_in(&shop.t, "eve@example.com").await;
    let hers = eve.asks(shop.t.post("/apps").json(&json!({ "name": "Hers" }))).await.body;
    let (hers, key) = (text(&hers["id"]), super::make_key(&shop.t, &eve, &text(&hers["id"]), "live").await);
    for (method, path) in [
        (Method::GET, format!("/storage/objects/{id}")),
        (Method::PATCH, format!("/storage/objects/{id}")),
        (Method::DELETE, format!("/storage/objects/{id}")),
        (Method::POST, format!("/storage/finalize/{id}")),
    ] {
        let ask = eve.asks(shop.t.ask(method.clone(), &path).json(&json!({}))).header("x-service-app-key", &key);
        assert_eq!(ask.await.refusal(), (404, "not_found"), "{method} {path}");
    }
    for (method, path) in [
        (Method::DELETE, format!("/apps/{hers}/storage/{id}")),
        (Method::GET, format!("/apps/{hers}/storage/{id}/content")),
        (Method::GET, format!("/apps/{}/storage", shop.app)),
    ] {
        assert_eq!(
            eve.asks(shop.t.ask(method.clone(), &path)).await.refusal(),
            (404, "not_found"),
            "{method} {path}"
        );
    }
    let unsigned = format!("/files/o/{id}/a.txt");
    assert_eq!(shop.t.get(&unsigned).await.status, 404, "a private object without a signature");
    let signed = path_of(object["downloadUrl"].as_str().unwrap()).to_owned();
    assert_eq!(shop.t.get(&signed.replace("expires=1", "expires=2")).await.status, 404);
    assert_eq!(shop.t.get(&signed).await.status, 200);
    shop.t.advance(Duration::from_mins(16));
    assert_eq!(shop.t.get(&signed).await.status, 404, "for a quarter of an hour");
    shop.finish().await;
}

#[tokio::test]
async fn fw3_a_bucket_out_of_reach_is_503_and_a_retry_succeeds() {
    let shop = Shop::in_bucket().await;
    let offer = shop.presign(&new("a.txt", 5)).await.body;
    let id = text(&offer["objectId"]);
    shop.put(&offer, b"words").await;
    // The server finds its folder gone: it fails every request.
    let bucket = shop.bucket.as_ref().unwrap().file("");
    let hidden = bucket.with_extension("away");
    std::fs::rename(&bucket, &hidden).unwrap();
    let away = shop.finalize(&id, &json!({})).await;
    assert!([(503, "unavailable"), (409, "upload_missing")].contains(&away.refusal()), "{}", away.text);
    std::fs::rename(&hidden, &bucket).unwrap();
    assert_eq!(shop.finalize(&id, &json!({})).await.status, 200);
    shop.finish().await;
}

#[tokio::test]
async fn fw4_a_store_that_cannot_be_written_refuses_and_heals() {
    let shop = Shop::open().await;
    let offer = shop.presign(&new("a.txt", 5)).await.body;
    let objects = shop.t.folder.path().join("objects");
    std::fs::create_dir_all(&objects).unwrap();
    std::fs::write(objects.join(".aside"), "in the way").unwrap();
    assert_eq!(shop.put(&offer, b"words").await, 503);
    std::fs::remove_file(objects.join(".aside")).unwrap();
    assert_eq!(shop.put(&offer, b"words").await, 204);
    assert_eq!(shop.finalize(&text(&offer["objectId"]), &json!({})).await.status, 200);
    shop.finish().await;
}

#[tokio::test]
async fn fw5_damaged_bytes_never_come_to_their_end() {
    let shop = Shop::open().await;
    let object = shop.store("a.txt", "text/plain", b"words").await;
    let file: Option<(String,)> =
        shop.t.janua.db.opt("SELECT file FROM storage_object", db::params![]).await.unwrap();
    let path = shop.t.folder.path().join("objects").join(file.unwrap().0);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&path, b"sword").unwrap();
    let url = text(&object["downloadUrl"]);
    let request = axum::http::Request::get(path_of(&url)).body(Body::empty()).unwrap();
    let answer = shop.t.door().handle("127.0.0.1:1".parse().unwrap(), request).await;
    assert!(axum::body::to_bytes(answer.into_body(), 100).await.is_err(), "the connection breaks off");
    shop.finish().await;
}
