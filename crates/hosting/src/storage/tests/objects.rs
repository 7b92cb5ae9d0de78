//! The life of an object.
use std::time::Duration;

use axum::http::Method;
use kernel::crypto::hash;
use serde_json::{Value, json};

use super::{PNG, Shop, make_key, new, path_of, text};

async fn lives(shop: &Shop) {
    let body = json!({
        "name": "photos/cat.png", "contentType": "image/png", "size": PNG.len(), "metadata": { "album": "pets" },
    });
    let offer = shop.presign(&body).await;
    assert_eq!(offer.status, 200, "{}", offer.text);
    let (id, object) = (text(&offer.body["objectId"]), &offer.body["object"]);
    assert_eq!((&offer.body["method"], &offer.body["headers"]["Content-Type"]), (&json!("PUT"), &json!("image/png")));
    assert_eq!(
        (&object["status"], &object["sha256"], &object["downloadUrl"]),
        (&json!("pending"), &Value::Null, &Value::Null)
    );
    assert_eq!(shop.usage().await, (1, i64::try_from(PNG.len()).unwrap()), "room is reserved from the start");

    let early = shop.finalize(&id, &json!({})).await;
    assert_eq!((early.refusal(), early.header("retry-after")), ((409, "upload_missing"), "1"));
    assert!((200..300).contains(&shop.put(&offer.body, PNG).await));
    shop.t.expects(&[]).await;
    let ready = shop.finalize(&id, &json!({ "sha256": hash(PNG) })).await;
    assert_eq!((ready.status, &ready.body["status"]), (200, &json!("ready")), "{}", ready.text);
    assert_eq!(ready.body["sha256"], hash(PNG));
    assert_eq!((&ready.body["url"], &ready.body["visibility"]), (&Value::Null, &json!("private")));
    shop.t.expects(&["STORAGE_OBJECT_CREATED"]).await;
    let again = shop.finalize(&id, &json!({})).await;
    assert_eq!((again.status, &again.body["finalizedAt"]), (200, &ready.body["finalizedAt"]));
    shop.t.expects(&[]).await;

    let got = shop.ask(Method::GET, &format!("/storage/objects/{id}")).await;
    let url = text(&got.body["downloadUrl"]);
    assert_eq!(shop.read(&url).await, (200, PNG.to_vec()));

    let change = json!({ "name": "dog.png", "metadata": { "album": null, "by": "Ada" }, "size": 1 });
    let changed = shop.ask(Method::PATCH, &format!("/storage/objects/{id}")).json(&change).await;
    assert_eq!((changed.status, &changed.body["name"]), (200, &json!("dog.png")), "{}", changed.text);
    assert_eq!((&changed.body["metadata"], &changed.body["size"]), (&json!({ "by": "Ada" }), &json!(PNG.len())));
    shop.t.expects(&["STORAGE_OBJECT_UPDATED"]).await;

    assert_eq!(shop.ask(Method::DELETE, &format!("/storage/objects/{id}")).await.status, 204);
    shop.t.expects(&["STORAGE_OBJECT_DELETED"]).await;
    assert_eq!(shop.ask(Method::DELETE, &format!("/storage/objects/{id}")).await.status, 404);
    assert_eq!(shop.usage().await, (0, 0));
    shop.t.advance(Duration::from_mins(1));
    shop.t.run_jobs().await;
    assert_ne!(shop.read(&url).await.0, 200, "the bytes are gone within a minute");
    // What was put into the bucket stays until its URL can be used no more.
    shop.let_files_go().await;
    assert_eq!(shop.files(), 0, "and nothing is left");
}

#[tokio::test]
async fn an_object_lives_in_a_folder() {
    let shop = Shop::open().await;
    lives(&shop).await;
    shop.finish().await;
}

#[tokio::test]
async fn an_object_lives_in_a_bucket() {
    let shop = Shop::in_bucket().await;
    lives(&shop).await;
    shop.finish().await;
}

/// What is put again after the end changes nothing.
async fn stays_what_it_was(shop: &Shop) {
    let offer = shop.presign(&new("a.txt", 5)).await.body;
    shop.put(&offer, b"first").await;
    shop.put(&offer, b"other").await;
    let id = text(&offer["objectId"]);
    let ready = shop.finalize(&id, &json!({})).await;
    assert_eq!(ready.body["sha256"], hash(b"other"), "the last before the end counts");
    shop.put(&offer, b"later").await;
    shop.finalize(&id, &json!({})).await;
    let got = shop.ask(Method::GET, &format!("/storage/objects/{id}")).await.body;
    assert_eq!(shop.read(&text(&got["downloadUrl"])).await, (200, b"other".to_vec()));
}

#[tokio::test]
async fn an_upload_url_changes_nothing_after_the_end() {
    for shop in [Shop::open().await, Shop::in_bucket().await] {
        stays_what_it_was(&shop).await;
        shop.finish().await;
    }
}

/// What is not as announced ends the upload, with all that was counted for it.
async fn refuses_what_differs(shop: &Shop) {
    for (body, field) in [
        (json!({ "name": "x.png", "contentType": "image/png", "size": 5 }), "contentType"),
        (json!({ "name": "x.pdf", "contentType": "application/pdf", "size": 5 }), "contentType"),
    ] {
        let offer = shop.presign(&body).await.body;
        shop.put(&offer, b"words").await;
        let refused = shop.finalize(&text(&offer["objectId"]), &json!({})).await;
        assert_eq!(refused.refusal(), (409, "upload_mismatch"), "{}", refused.text);
        assert_eq!(refused.body["field"], field);
        assert_eq!(shop.finalize(&text(&offer["objectId"]), &json!({})).await.status, 404);
    }
    let offer = shop.presign(&new("x.txt", 5)).await.body;
    shop.put(&offer, b"words").await;
    let refused = shop.finalize(&text(&offer["objectId"]), &json!({ "sha256": hash(b"other") })).await;
    assert_eq!((&refused.body["field"], &refused.body["found"]), (&json!("sha256"), &json!(hash(b"words"))));
    assert_eq!(shop.usage().await, (0, 0), "and its room is free again");
    shop.t.expects(&[]).await;
}

#[tokio::test]
async fn what_is_not_as_announced_ends_the_upload() {
    for shop in [Shop::open().await, Shop::in_bucket().await] {
        refuses_what_differs(&shop).await;
        shop.finish().await;
    }
}

#[tokio::test]
async fn lists_are_newest_first_or_by_name_and_of_one_environment() {
    let shop = Shop::open().await;
    for name in ["b/1.txt", "a/1.txt", "b/2.txt", "a.txt", "b/é.txt"] {
        shop.store(name, "text/plain", b"x").await;
        shop.t.advance(Duration::from_secs(1));
    }
    let names = async |query: &str| {
        let listed = shop.ask(Method::GET, &format!("/storage/objects?{query}")).await;
        assert_eq!(listed.status, 200, "{}", listed.text);
        let names = listed.body["objects"].as_array().unwrap().iter().map(|object| text(&object["name"]));
        (names.collect::<Vec<_>>(), listed.body["nextCursor"].as_str().map(str::to_owned))
    };
    assert_eq!(names("").await.0, ["b/é.txt", "a.txt", "b/2.txt", "a/1.txt", "b/1.txt"]);
    assert_eq!(names("prefix=b/").await.0, ["b/1.txt", "b/2.txt", "b/é.txt"]);
    assert_eq!(names("status=pending").await.0, [""; 0]);
    let (first, cursor) = names("prefix=b/&limit=2").await;
    assert_eq!(first, ["b/1.txt", "b/2.txt"]);
    assert_eq!(
        names(&format!("prefix=b/&limit=2&cursor={}", cursor.unwrap())).await,
        (vec!["b/é.txt".to_owned()], None)
    );

    let test_key = make_key(&shop.t, &shop.admin, &shop.app, "test").await;
    let with_test_key = shop.user.asks(shop.t.get("/storage/objects")).header("x-service-app-key", &test_key).await;
    assert_eq!(with_test_key.body["objects"], json!([]), "a test key sees test objects only");
    let pending = shop.presign(&new("p.txt", 1)).await.body;
    assert_eq!(names("status=pending").await.0, ["p.txt"]);
    let path = format!("/storage/objects/{}", text(&pending["objectId"]));
    let change = shop.ask(Method::PATCH, &path).json(&json!({ "name": "q" })).await;
    assert_eq!(change.refusal(), (409, "upload_pending"));
    shop.finish().await;
}

#[tokio::test]
async fn all_wrong_fields_are_named_together() {
    let shop = Shop::open().await;
    let body = json!({ "name": "../x", "contentType": "nothing", "size": 1, "metadata": { "": "x" } });
    let refused = shop.presign(&body).await;
    assert_eq!((refused.status, refused.wrong_fields()), (400, vec!["name", "contentType", "metadata."]));
    let body = json!({ "name": "x", "contentType": "text/plain", "size": -1, "sha256": "abc", "expiresIn": 1 });
    assert_eq!(shop.presign(&body).await.wrong_fields(), ["expiresIn", "sha256", "size"]);
    let huge = json!({ "name": "x", "contentType": "text/plain", "size": 6_000_000_000i64 });
    assert_eq!(shop.presign(&huge).await.refusal(), (413, "object_too_large"));
    shop.finish().await;
}

#[tokio::test]
async fn an_app_may_allow_some_types_only() {
    let shop = Shop::open().await;
    let settings = json!({ "settings": { "storage": { "allowedTypes": ["image/*"] } } });
    let path = format!("/apps/{}", shop.app);
    assert_eq!(shop.admin.asks(shop.t.ask(Method::PATCH, &path).json(&settings)).await.status, 200);
    assert_eq!(shop.presign(&new("x", 1)).await.refusal(), (415, "type_not_allowed"));
    let picture = json!({ "name": "x.png", "contentType": "image/png", "size": 1 });
    assert_eq!(shop.presign(&picture).await.status, 200);
    shop.finish().await;
}

#[tokio::test]
async fn what_expires_is_gone_at_its_moment_and_swept_after_it() {
    let shop = Shop::open().await;
    let mut body = new("short.txt", 5);
    body["ttl"] = json!(60);
    let object = shop.store_as(&body, b"words").await;
    let kept = shop.store("long.txt", "text/plain", b"words").await;
    shop.presign(&new("never.txt", 7)).await;
    shop.t.happened().await;
    shop.t.advance(Duration::from_secs(61));
    let path = format!("/storage/objects/{}", text(&object["id"]));
    assert_eq!(shop.ask(Method::GET, &path).await.status, 404, "before any sweep");
    assert_eq!(shop.read(&text(&object["downloadUrl"])).await.0, 404);
    assert_eq!(shop.usage().await.0, 3);
    shop.t.advance(Duration::from_hours(1));
    shop.t.run_jobs().await;
    shop.t.expects(&["STORAGE_OBJECT_DELETED"]).await;
    shop.t.advance(Duration::from_hours(1));
    shop.t.run_jobs().await;
    shop.t.expects(&[]).await;
    assert_eq!(shop.files(), 1, "an upload that never came is forgotten too");
    let user = end_user_again(&shop).await;
    let listed = shop.ask_as(&user, Method::GET, "/storage/objects").await;
    assert_eq!(listed.body["usage"], json!({ "objects": 1, "bytes": 5, "limitBytes": null, "countedBytes": 5 }));
    assert_eq!(listed.body["objects"][0]["id"], kept["id"]);
    shop.finish().await;
}

/// The access token runs out when the clock is moved.
pub async fn end_user_again(shop: &Shop) -> identity::testing::Person {
    let body = json!({ "email": "user@example.com", "password": identity::testing::PASSWORD,
        "options": { "tokenDelivery": "body" } });
    let answer = shop.t.post("/auth/login").json(&body).header("x-service-app-key", &shop.key).await;
    identity::testing::Person::of(&answer)
}

#[tokio::test]
async fn members_see_and_delete_the_objects_of_their_app() {
    let shop = Shop::open().await;
    let object = shop.store("a.txt", "text/plain", b"words").await;
    let path = format!("/apps/{}/storage", shop.app);
    let listed = shop.admin.asks(shop.t.get(&path)).await;
    assert_eq!(listed.body["objects"][0]["id"], object["id"], "{}", listed.text);
    assert_eq!(listed.body["objects"][0]["downloadUrl"], Value::Null);
    assert_eq!(listed.body["usage"], json!({ "objects": 1, "bytes": 5, "limitBytes": null, "countedBytes": 5 }));
    let of_nobody = shop.admin.asks(shop.t.get(&format!("{path}?ownerId={}", shop.admin.id))).await;
    assert_eq!(of_nobody.body["objects"], json!([]));
    let content = format!("{path}/{}/content", text(&object["id"]));
    assert_eq!(shop.admin.asks(shop.t.get(&content)).await.text, "words");
    assert_eq!(shop.user.asks(shop.t.get(&content)).await.status, 403, "a session of the app is none of the console");
    shop.t.happened().await;

    let put = shop.admin.asks(shop.t.post(&format!("{path}?name=logo.png&visibility=public")));
    let put = put.header("content-type", "image/png").header("content-length", &PNG.len().to_string());
    let made = put.body(PNG.to_vec()).await;
    assert_eq!((made.status, &made.body["status"]), (200, &json!("ready")), "{}", made.text);
    assert_eq!(
        (shop.read(&text(&made.body["url"])).await.1, &made.body["ownerId"]),
        (PNG.to_vec(), &json!(shop.admin.id))
    );
    shop.t.expects(&["STORAGE_OBJECT_CREATED"]).await;
    let wrong = shop.admin.asks(shop.t.post(&format!("{path}?name=x.png"))).header("content-type", "image/png");
    let wrong = wrong.header("content-length", "5").body("words").await;
    assert_eq!(wrong.refusal(), (409, "upload_mismatch"));
    let listed = shop.admin.asks(shop.t.get(&path)).await;
    assert_eq!(listed.body["usage"]["objects"], 2, "what was refused takes no room");

    let delete = format!("{path}/{}", text(&object["id"]));
    assert_eq!(shop.admin.asks(shop.t.ask(Method::DELETE, &delete)).await.status, 204);
    shop.t.expects(&["STORAGE_OBJECT_DELETED"]).await;
    assert_eq!(shop.admin.asks(shop.t.ask(Method::DELETE, &delete)).await.status, 404);
    shop.finish().await;
}

#[tokio::test]
async fn who_never_signed_in_to_the_app_is_no_user_of_it() {
    let shop = Shop::open().await;
    let stranger = identity::testing::signed_in(&shop.t, "eve@example.com").await;
    let refused = shop.ask_as(&stranger, Method::GET, "/storage/objects").await;
    assert_eq!(refused.refusal(), (403, "not_an_app_user"));
    assert_eq!(shop.ask_as(&shop.admin, Method::GET, "/storage/objects").await.status, 200, "a member may");
    let signed_in = identity::testing::login(&shop.t, "user@example.com", identity::testing::PASSWORD).await;
    let at_the_service = identity::testing::Person::of(&signed_in);
    let own = shop.ask_as(&at_the_service, Method::GET, "/storage/objects").await;
    assert_eq!(own.status, 200, "who signed in to the app before may, in a session of the service");
    let other = shop.admin.asks(shop.t.post("/apps").json(&json!({ "name": "Other" }))).await.body;
    let other_key = make_key(&shop.t, &shop.admin, &text(&other["id"]), "live").await;
    let mismatch = shop.user.asks(shop.t.get("/storage/objects")).header("x-service-app-key", &other_key).await;
    assert_eq!(mismatch.refusal(), (403, "app_key_mismatch"));
    assert_eq!(shop.user.asks(shop.t.get("/storage/objects")).await.status, 401, "and never without a key");
    let path = format!("/apps/{}/users/{}/block", shop.app, shop.user.id);
    assert_eq!(shop.admin.asks(shop.t.post(&path)).await.status, 204);
    let blocked = shop.ask_as(&at_the_service, Method::GET, "/storage/objects").await;
    assert_eq!(blocked.refusal(), (403, "not_an_app_user"), "nor when the app has blocked them");
    shop.finish().await;
}

#[tokio::test]
async fn reading_knows_ranges_tags_and_heads() {
    for shop in [Shop::open().await, Shop::in_bucket().await] {
        let mut body = new("words.txt", 10);
        body["visibility"] = json!("public");
        let object = shop.store_as(&body, b"0123456789").await;
        let url = text(&object["url"]);
        let path = path_of(&url);
        let whole = shop.t.get(path).await;
        let tag = whole.header("etag").to_owned();
        assert_eq!(
            (whole.status, &*whole.text, &*tag),
            (200, "0123456789", &*format!("\"{}\"", hash(b"0123456789")))
        );
        assert_eq!(whole.header("accept-ranges"), "bytes");
        let asked = async |name: &str, value: &str| shop.t.get(path).header(name, value).await;
        for (range, expected) in
            [("bytes=2-4", "234"), ("bytes=7-", "789"), ("bytes=-3", "789"), ("bytes=8-99", "89")]
        {
            let part = asked("range", range).await;
            assert_eq!((part.status, &*part.text), (206, expected), "{range}");
            assert!(part.header("content-range").ends_with("/10"));
        }
        let outside = asked("range", "bytes=10-").await;
        assert_eq!((outside.status, outside.header("content-range")), (416, "bytes */10"));
        for odd in ["bytes=4-2", "bytes=0-1,3-4", "lines=1-2", "bytes=x-y", "bytes=+1-2"] {
            assert_eq!(asked("range", odd).await.status, 200, "{odd}");
        }
        assert_eq!(asked("if-none-match", &tag).await.status, 304);
        let stale = shop.t.get(path).header("range", "bytes=0-1").header("if-range", "\"old\"").await;
        assert_eq!(stale.status, 200, "a part of another version is the whole");
        let head = shop.t.ask(Method::HEAD, path).await;
        assert_eq!((head.status, head.header("content-length"), head.bytes.len()), (200, "10", 0));
        shop.finish().await;
    }
}

#[tokio::test]
async fn the_limit_of_an_organization_stands_beside_the_bytes_of_all_its_apps() {
    let shop = Shop::with_plans("[plans.free.limits]\nstorage_bytes = 100\nstorage_bytes_per_user = 50").await;
    shop.store("a.txt", "text/plain", b"words").await;
    let other = shop.admin.asks(shop.t.post("/apps").json(&json!({ "name": "Second" }))).await.body;
    let path = format!("/apps/{}/storage", text(&other["id"]));
    let put = shop.admin.asks(shop.t.post(&format!("{path}?name=b.txt"))).header("content-type", "text/plain");
    assert_eq!(put.header("content-length", "3").body("abc").await.status, 200);
    let listed = shop.admin.asks(shop.t.get(&path)).await;
    let usage = json!({ "objects": 1, "bytes": 3, "limitBytes": 100, "countedBytes": 8 });
    assert_eq!(listed.body["usage"], usage, "{}", listed.text);
    let own = shop.ask(Method::GET, "/storage/objects").await;
    let usage = json!({ "objects": 1, "bytes": 5, "limitBytes": 50, "countedBytes": 5 });
    assert_eq!(own.body["usage"], usage, "a user has a limit of their own: {}", own.text);
    shop.finish().await;
}
