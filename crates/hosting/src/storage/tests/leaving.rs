//! Accounts, apps and organizations that go take their objects along.
use std::time::Duration;

use axum::http::Method;
use db::params;
use identity::testing::PASSWORD;
use serde_json::json;

use kernel::{fault::Result, transact};

use super::{Shop, new, path_of, text};
use crate::storage::{
    egress::{self, Egress},
    end,
    model::{Share, StorageObject},
};

async fn used(shop: &Shop) -> i64 {
    let sql = "SELECT CAST(COALESCE(SUM(used), 0) AS BIGINT) FROM quota WHERE meter = 'storage_bytes'";
    let (used,): (i64,) = shop.t.janua.db.one(sql, params![]).await.unwrap();
    used
}

async fn rows(shop: &Shop) -> i64 {
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM storage_object";
    let (rows,): (i64,) = shop.t.janua.db.one(sql, params![]).await.unwrap();
    rows
}

async fn nothing_is_left(shop: &Shop, url: &str) {
    assert_eq!((rows(shop).await, used(shop).await), (0, 0));
    assert_eq!(shop.t.get(path_of(url)).await.status, 404, "at once");
    shop.t.advance(Duration::from_mins(1));
    shop.t.run_jobs().await;
    assert_eq!(shop.files(), 0, "and the bytes by job");
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM storage_file";
    let (files,): (i64,) = shop.t.janua.db.one(sql, params![]).await.unwrap();
    assert_eq!(files, 0);
}

#[tokio::test]
async fn an_account_takes_its_objects_along() {
    let shop = Shop::open().await;
    let url = text(&shop.store("a.txt", "text/plain", b"words").await["downloadUrl"]);
    shop.presign(&new("b.txt", 3)).await;
    let of_admin = shop.ask_as(&shop.admin, Method::POST, "/storage/presign-upload").json(&new("c.txt", 2)).await;
    assert_eq!((of_admin.status, used(&shop).await), (200, 10));
    let at_the_service = identity::testing::login(&shop.t, "user@example.com", PASSWORD).await;
    let user = identity::testing::Person::of(&at_the_service);
    // More than are deleted at once, each of three bytes.
    let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2100)
                INSERT INTO storage_object (id, app_id, org_id, owner_id, environment, name, name_start, content_type,
                                            size, status, visibility, metadata, slot, created_at, updated_at)
                SELECT CAST(i AS TEXT), app_id, org_id, owner_id, environment, name, name_start, content_type,
                       size, status, visibility, metadata, CAST(i AS TEXT), created_at, updated_at
                FROM storage_object, n WHERE name = 'b.txt'";
    shop.t.janua.db.exec(many, params![]).await.unwrap();
    for counted in [
        "UPDATE quota SET used = used + 6300 WHERE meter = 'storage_bytes'",
        "UPDATE storage_usage SET objects = objects + 2100, bytes = bytes + 6300, pending = pending + 2100
         WHERE owner_id = ''",
    ] {
        shop.t.janua.db.exec(counted, params![]).await.unwrap();
    }
    let gone = user.asks(shop.t.ask(Method::DELETE, "/auth/me").json(&json!({ "password": PASSWORD }))).await;
    assert!((200..300).contains(&gone.status), "{}", gone.text);
    assert_eq!((rows(&shop).await, used(&shop).await), (1, 2), "the other's stays");
    let listed = shop.admin.asks(shop.t.get(&format!("/apps/{}/storage", shop.app))).await;
    assert_eq!(listed.body["usage"], json!({ "objects": 1, "bytes": 2, "limitBytes": null, "countedBytes": 2 }));
    let path = format!("/storage/objects/{}", text(&of_admin.body["objectId"]));
    shop.ask_as(&shop.admin, Method::DELETE, &path).await;
    nothing_is_left(&shop, &url).await;
    shop.finish().await;
}

#[tokio::test]
async fn an_app_takes_its_objects_along() {
    let shop = Shop::open().await;
    let url = text(&shop.store("a.txt", "text/plain", b"words").await["downloadUrl"]);
    let path = format!("/apps/{}", shop.app);
    assert!((200..300).contains(&shop.admin.asks(shop.t.ask(Method::DELETE, &path)).await.status));
    nothing_is_left(&shop, &url).await;
    shop.finish().await;
}

#[tokio::test]
async fn an_organization_takes_its_objects_along() {
    let shop = Shop::open().await;
    let made = shop.admin.asks(shop.t.post("/org").json(&json!({ "name": "Acme" }))).await.body;
    let org = text(&made["id"]);
    let app = shop.admin.asks(shop.t.post("/apps").json(&json!({ "name": "Second", "orgId": org }))).await.body;
    let key = super::make_key(&shop.t, &shop.admin, &text(&app["id"]), "live").await;
    let second = Shop { key, ..shop };
    let offer =
        second.ask_as(&second.admin, Method::POST, "/storage/presign-upload").json(&new("a.txt", 5)).await.body;
    second.put(&offer, b"words").await;
    let path = format!("/storage/finalize/{}", text(&offer["objectId"]));
    let done = second.ask_as(&second.admin, Method::POST, &path).json(&json!({})).await;
    assert_eq!(done.status, 200, "{}", done.text);
    let export = second.admin.asks(second.t.get(&format!("/org/{org}/export"))).await;
    let exported = &export.body["apps"][0];
    assert_eq!(exported["storageObjects"][0]["name"], "a.txt", "{}", export.text);
    assert_eq!(exported["storageObjectsLeftOut"], 0);
    let gone = second.admin.asks(second.t.ask(Method::DELETE, &format!("/org/{org}"))).await;
    assert!((200..300).contains(&gone.status), "{}", gone.text);
    nothing_is_left(&second, &text(&done.body["downloadUrl"])).await;
    second.finish().await;
}

#[tokio::test]
async fn files_that_no_row_knows_are_found() {
    let shop = Shop::open().await;
    shop.store("a.txt", "text/plain", b"words").await;
    let stray = shop.t.folder.path().join("objects/o/00");
    std::fs::create_dir_all(&stray).unwrap();
    std::fs::write(stray.join("stray"), "left by a restore").unwrap();
    shop.t.advance(Duration::from_hours(12));
    shop.t.run_jobs().await;
    assert_eq!(shop.files(), 2, "not at once: it may be on its way");
    shop.t.advance(Duration::from_hours(25));
    shop.t.run_jobs().await;
    assert_eq!(shop.files(), 1);
    shop.finish().await;
}

#[tokio::test]
async fn an_account_export_lists_its_objects_and_nobody_elses() {
    let shop = Shop::open().await;
    shop.store("a.txt", "text/plain", b"words").await;
    let person =
        identity::testing::Person::of(&identity::testing::login(&shop.t, "user@example.com", PASSWORD).await);
    let export = person.asks(shop.t.get("/auth/export")).await;
    let listed = export.body["storageObjects"].as_array().unwrap_or_else(|| panic!("{}", export.text));
    assert_eq!((listed.len(), &listed[0]["name"], &listed[0]["size"]), (1, &json!("a.txt"), &json!(5)));
    assert_eq!(listed[0]["downloadUrl"], json!(null), "an export is no key to the files");
    assert_eq!(export.body["storageObjectsLeftOut"], 0);
    assert_eq!(
        [9_999, 10_000, 10_001].map(crate::storage::export::left_out),
        [0, 0, 1],
        "and says what is not in it"
    );
    let others = shop.admin.asks(shop.t.get("/auth/export")).await;
    assert_eq!(others.body["storageObjects"], json!([]), "{}", others.text);
    shop.finish().await;
}

#[tokio::test]
async fn what_is_read_is_counted_and_nothing_else() {
    let shop = Shop::open().await;
    let url = text(&shop.store("a.txt", "text/plain", b"words").await["downloadUrl"]);
    let path = path_of(&url);
    let whole = shop.t.get(path).await;
    assert_eq!((whole.status, whole.bytes.len()), (200, 5));
    assert_eq!(shop.t.get(path).header("range", "bytes=1-2").await.status, 206);
    assert_eq!(shop.t.get(path).header("if-none-match", whole.header("etag")).await.status, 304);
    assert_eq!(shop.t.ask(Method::HEAD, path).await.status, 200);
    egress::flush(&shop.t.janua).await;
    egress::flush(&shop.t.janua).await;
    let sql = "SELECT CAST(COALESCE(SUM(used), 0) AS BIGINT) FROM quota WHERE meter = 'storage_egress_bytes'";
    let (used,): (i64,) = shop.t.janua.db.one(sql, params![]).await.unwrap();
    assert_eq!(used, 7, "five bytes and two, each once");
    shop.finish().await;
}

#[tokio::test]
async fn what_an_organization_read_before_it_was_deleted_is_forgotten() {
    let shop = Shop::open().await;
    let made = shop.admin.asks(shop.t.post("/org").json(&json!({ "name": "Acme" }))).await.body;
    let org = text(&made["id"]);
    let egress = shop.t.janua.own::<Egress>();
    egress.count(org.parse().unwrap(), 5);
    let gone = shop.admin.asks(shop.t.ask(Method::DELETE, &format!("/org/{org}"))).await;
    assert!((200..300).contains(&gone.status), "{}", gone.text);
    egress::flush(&shop.t.janua).await;
    assert!(egress.take().is_empty(), "it would fail again every ten seconds");
    shop.finish().await;
}

/// SQLite has one writer, so there the second deletion simply comes later.
#[tokio::test]
async fn an_object_that_is_deleted_together_with_its_owner_is_given_back_once() {
    let shop = Shop::open().await;
    let object = text(&shop.store("a.txt", "text/plain", b"words").await["id"]);
    shop.store("b.txt", "text/plain", b"abc").await;
    let janua = shop.t.janua.clone();
    let object = StorageObject::find(&janua.db, object.parse().unwrap()).await.unwrap().unwrap();
    let owner = object.owner_id;
    let of = janua.clone();
    let leave = async move {
        let left: Result<i64> = transact!(of, async |tx| {
            Ok(Share::take_of_owner(tx, owner).await?.iter().map(|share| share.bytes).sum())
        });
        left.unwrap()
    };
    let (begin, begun) = tokio::sync::oneshot::channel();
    let mut begin = Some(begin);
    let leaving = tokio::spawn(async move {
        begun.await.unwrap();
        leave.await
    });
    let deleted: Result<()> = transact!(janua, async |tx| {
        assert!(end(tx, &object, janua.clock.now()).await?);
        if let Some(begin) = begin.take() {
            begin.send(()).unwrap();
        }
        // Meanwhile the other transaction comes to the rows.
        for _ in 0..300 {
            let _: (i64,) = tx.one("SELECT CAST(COUNT(*) AS BIGINT) FROM storage_object", params![]).await?;
        }
        Ok(())
    });
    deleted.unwrap();
    assert_eq!(leaving.await.unwrap(), 3, "the other deletion gave five bytes back");
    shop.finish().await;
}
