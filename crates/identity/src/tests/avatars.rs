//! A picture of oneself: put at an address that was given out for it, looked at, drawn anew.
use std::{io::Cursor, time::Duration};

use axum::http::Method;
use db::params;
use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use kernel::testing::{Answer, TestJanua, join_all};
use serde_json::{Value, json};

use super::actors::*;

pub fn picture(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let drawn: DynamicImage = RgbImage::from_pixel(width, height, Rgb([200, 30, 30])).into();
    let mut out = Cursor::new(vec![]);
    drawn.write_to(&mut out, format).unwrap();
    out.into_inner()
}

/// Asks for an address to upload at.
pub async fn offer(t: &TestJanua, person: &Person, content_type: &str, size: usize) -> Answer {
    let wish = json!({ "contentType": content_type, "size": size });
    person.asks(t.post("/user/avatar/upload-url")).json(&wish).await
}

async fn offered(t: &TestJanua, person: &Person, content_type: &str, bytes: &[u8]) -> String {
    let answer = offer(t, person, content_type, bytes.len()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    path(&answer.body["uploadUrl"])
}

/// An address of this server, without its name.
pub fn path(url: &Value) -> String {
    url.as_str().unwrap().strip_prefix("http://localhost:0").unwrap().to_owned()
}

async fn put(t: &TestJanua, path: &str, content_type: &str, bytes: &[u8]) -> Answer {
    t.ask(Method::PUT, path).header("content-type", content_type).body(bytes.to_vec()).await
}

async fn avatar(t: &TestJanua, person: &Person) -> Value {
    person.asks(t.get("/auth/me")).await.body["avatarUrl"].clone()
}

/// What lies in the store, by folder.
fn kept(t: &TestJanua, folder: &str) -> usize {
    std::fs::read_dir(t.folder.path().join("objects").join(folder)).map_or(0, Iterator::count)
}

const PNG: &str = "image/png";
const REFUSED: (u16, &str) = (403, "upload_refused");

#[tokio::test]
async fn somebody_uploads_a_picture_of_themselves_and_everybody_sees_it_drawn_anew() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    t.happened().await;
    let mut file = picture(1200, 800, ImageFormat::Png);
    file.extend(b"<script>payload</script>");
    let answer = offer(&t, &ada, PNG, file.len()).await;
    assert_eq!((&answer.body["method"], &answer.body["headers"]), (&json!("PUT"), &json!({ "Content-Type": PNG })));
    assert_eq!(answer.body["expiresAt"], "2026-01-31T10:10:00.000Z");
    assert!(avatar(&t, &ada).await.is_null());

    let done = put(&t, &path(&answer.body["uploadUrl"]), PNG, &file).await;
    assert_eq!((done.status, done.text.as_str()), (204, ""), "the person's name or address is nobody's business");
    let url = avatar(&t, &ada).await;
    assert_eq!(url, answer.body["pictureUrl"], "seen at once, where it was promised");
    t.expects(&["PROFILE_UPDATED"]).await;
    let log = ada.asks(t.get("/auth/audit-log")).await;
    let event = &log.body["events"][0];
    assert_eq!((&event["details"]["fields"], &event["ip"]), (&json!(["avatarUrl"]), &json!("127.0.0.1")));
    assert_eq!(event["actor"], ada.id.as_str());

    let seen = t.get(&path(&url)).header("accept-encoding", "gzip").await;
    assert_eq!((seen.status, seen.header("content-type")), (200, PNG));
    assert_eq!(seen.header("cache-control"), "public, max-age=31536000, immutable");
    assert_eq!((seen.header("x-content-type-options"), seen.header("content-disposition")), ("nosniff", "inline"));
    assert!(seen.header("content-security-policy").starts_with("default-src 'none'"));
    assert_eq!(seen.header("content-encoding"), "", "a picture is not compressed twice");
    let shown = image::load_from_memory(&seen.bytes).unwrap();
    assert_eq!((shown.width(), shown.height()), (512, 341));
    assert!(!seen.text.contains("payload"));
    assert_eq!((kept(&t, "pictures"), kept(&t, "incoming")), (1, 0), "the file itself was never kept");
    t.finish().await;
}

#[tokio::test]
async fn a_new_picture_takes_the_place_of_the_one_before() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let mut urls = vec![];
    for (content_type, format) in [("image/jpeg", ImageFormat::Jpeg), ("image/gif", ImageFormat::Gif)] {
        let file = picture(30, 30, format);
        let to = offered(&t, &ada, content_type, &file).await;
        assert_eq!(put(&t, &to, content_type, &file).await.status, 204);
        urls.push(avatar(&t, &ada).await);
    }
    t.run_jobs().await;
    assert_eq!(t.get(&path(&urls[0])).await.status, 404, "the one before is gone");
    assert_eq!(t.get(&path(&urls[1])).await.header("content-type"), PNG);
    assert_eq!(urls[0].as_str().unwrap().rsplit_once('.').unwrap().1, "jpg", "a photo stays one");
    assert_eq!(kept(&t, "pictures"), 1);
    t.finish().await;
}

#[tokio::test]
async fn what_may_not_be_uploaded_gets_no_address() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    for content_type in ["image/svg+xml", "text/html", "image/PNG", "image/png; x=1", ""] {
        let answer = offer(&t, &ada, content_type, 100).await;
        assert_eq!(
            (answer.refusal(), answer.wrong_fields()),
            ((400, "invalid"), vec!["contentType"]),
            "{content_type}"
        );
    }
    for size in [0, 5 * 1024 * 1024 + 1] {
        let answer = offer(&t, &ada, PNG, size).await;
        assert_eq!((answer.refusal(), answer.wrong_fields()), ((400, "invalid"), vec!["size"]), "{size}");
    }
    assert_eq!(offer(&t, &ada, "image/webp", 5 * 1024 * 1024).await.status, 200, "just as long as may be");
    assert_eq!(t.post("/user/avatar/upload-url").json(&json!({})).await.status, 401);
    for _ in 1..10 {
        assert_eq!(offer(&t, &ada, PNG, 100).await.status, 200);
    }
    assert_eq!(offer(&t, &ada, PNG, 100).await.refusal(), (429, "too_many_uploads"));
    t.advance(Duration::from_mins(10));
    assert_eq!(offer(&t, &ada, PNG, 100).await.status, 200, "those before have run out");
    t.finish().await;
}

#[tokio::test]
async fn an_address_is_good_for_its_file_alone() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let file = picture(20, 20, ImageFormat::Png);
    let to = offered(&t, &ada, PNG, &file).await;
    let other = offered(&t, &ada, PNG, &file).await;
    let name = |path: &str| path.split(['/', '?']).nth(3).unwrap().to_owned();
    let longer = [file.clone(), vec![0]].concat();
    let length = format!("length={}", file.len());
    for (what, to) in [
        ("no signature", to.split('&').take(3).collect::<Vec<_>>().join("&")),
        ("nothing", to.split('?').next().unwrap().to_owned()),
        ("another signature", format!("{}{}", &to[..to.len() - 1], if to.ends_with('0') { '1' } else { '0' })),
        ("another name", to.replace(&name(&to), &name(&other))),
        ("another end", to.replace("expires=", "expires=9")),
        ("another length", to.replace(&length, &format!("length={}", longer.len()))),
        ("another type", to.replace("png", "gif")),
    ] {
        assert_ne!(to, other);
        assert_eq!(put(&t, &to, PNG, &file).await.refusal(), REFUSED, "{what}");
    }
    assert_eq!(put(&t, &to, "text/html", &file).await.refusal(), REFUSED, "put as another type");
    assert_eq!(t.ask(Method::PUT, &to).body(file.clone()).await.refusal(), REFUSED, "put as no type");
    assert_eq!(put(&t, &to, PNG, &longer).await.refusal(), REFUSED, "a byte too many");
    assert_eq!(put(&t, &to, PNG, &file[1..]).await.refusal(), REFUSED, "a byte too few");
    let said = t.ask(Method::PUT, &to).header("content-type", PNG).header("content-length", "7").body(file.clone());
    assert_eq!(said.await.refusal(), REFUSED, "another length is said");
    assert_eq!(put(&t, &to, PNG, &vec![0; 5 * 1024 * 1024 + 1]).await.refusal(), (413, "too_large"));
    assert!(avatar(&t, &ada).await.is_null());

    assert_eq!(put(&t, &to, PNG, &file).await.status, 204, "none of that used it up");
    assert_eq!(put(&t, &to, PNG, &file).await.refusal(), REFUSED, "used twice");
    t.advance(Duration::from_mins(10));
    assert_eq!(put(&t, &other, PNG, &file).await.refusal(), REFUSED, "run out");
    t.finish().await;
}

#[tokio::test]
async fn of_many_who_use_an_address_at_once_one_wins() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    t.happened().await;
    let file = picture(20, 20, ImageFormat::Png);
    let to = offered(&t, &ada, PNG, &file).await;
    let answers = join_all((0..32).map(|_| put(&t, &to, PNG, &file))).await;
    let won = answers.iter().filter(|answer| answer.status == 204).count();
    assert_eq!(won, 1);
    assert!(answers.iter().filter(|answer| answer.status != 204).all(|answer| answer.refusal() == REFUSED));
    t.expects(&["PROFILE_UPDATED"]).await;
    assert_eq!(kept(&t, "pictures"), 1);
    let to = offered(&t, &ada, PNG, &file).await;
    let sql = "UPDATE upload SET begun_at = $1 WHERE done_at IS NULL";
    t.janua.db.exec(sql, params![t.janua.clock.now()]).await.unwrap();
    assert_eq!(put(&t, &to, PNG, &file).await.refusal(), REFUSED, "not even drawn while another one is");
    t.finish().await;
}

#[tokio::test]
async fn what_is_no_picture_changes_nothing() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    t.happened().await;
    let png = picture(200, 200, ImageFormat::Png);
    let bomb = picture(5_500, 5_500, ImageFormat::Png);
    assert!(bomb.len() < 1024 * 1024, "{}", bomb.len());
    for (what, file, code) in [
        ("SVG", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>".to_vec(), "not_a_picture"),
        ("HTML", b"<!doctype html><script>alert(1)</script>".to_vec(), "not_a_picture"),
        ("HTML behind the name of a PNG", [&png[..8], b"<script>alert(1)</script>"].concat(), "not_a_picture"),
        ("another type", picture(20, 20, ImageFormat::Jpeg), "not_a_picture"),
        ("half of it", png[..png.len() / 2].to_vec(), "not_a_picture"),
        ("30 million pixels", bomb, "picture_too_large"),
    ] {
        let to = offered(&t, &ada, PNG, &file).await;
        assert_eq!(put(&t, &to, PNG, &file).await.refusal(), (400, code), "{what}");
        assert_eq!(put(&t, &to, PNG, &file).await.refusal(), REFUSED, "its address is used up");
    }
    assert!(avatar(&t, &ada).await.is_null());
    t.expects(&[]).await;
    assert_eq!(kept(&t, "pictures"), 0);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn no_name_leads_out_of_the_pictures() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    std::fs::create_dir_all(t.folder.path().join("objects/pictures")).unwrap();
    std::fs::write(t.folder.path().join("secret.png"), "secret").unwrap();
    std::fs::write(t.folder.path().join("objects/pictures/.0.png"), "half").unwrap();
    std::fs::write(t.folder.path().join("objects/pictures/page.html"), "page").unwrap();
    for name in ["..%2f..%2fsecret.png", "%2e%2e%2fsecret.png", "..%5csecret.png", ".0.png", "%00.png", "page.html"] {
        assert_eq!(t.get(&format!("/files/pictures/{name}")).await.status, 404, "{name}");
        let file = picture(20, 20, ImageFormat::Png);
        let to = offered(&t, &ada, PNG, &file).await;
        let query = to.split_once('?').unwrap().1;
        let answer = put(&t, &format!("/files/incoming/{name}?{query}"), PNG, &file).await;
        assert_eq!(answer.refusal(), REFUSED, "{name}");
    }
    assert_eq!(t.get("/files/incoming/abc").await.status, 405, "nobody reads what came in");
    t.finish().await;
}

#[tokio::test]
async fn a_full_or_broken_store_costs_nobody_their_address() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let file = picture(20, 20, ImageFormat::Png);
    let to = offered(&t, &ada, PNG, &file).await;
    let store = t.folder.path().join("objects");
    std::fs::write(&store, "in the way").unwrap();
    assert_eq!(put(&t, &to, PNG, &file).await.refusal(), (503, "unavailable"));
    assert!(avatar(&t, &ada).await.is_null());
    assert_eq!(ada.asks(t.get("/auth/me")).await.status, 200, "all else goes on");
    std::fs::remove_file(&store).unwrap();
    assert_eq!(put(&t, &to, PNG, &file).await.status, 204, "the same address again");
    t.finish().await;
}

#[tokio::test]
async fn pictures_leave_with_their_person() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let file = picture(20, 20, ImageFormat::Png);
    let to = offered(&t, &ada, PNG, &file).await;
    assert_eq!(put(&t, &to, PNG, &file).await.status, 204);
    let (url, open) = (avatar(&t, &ada).await, offered(&t, &ada, PNG, &file).await);
    assert_eq!(ada.asks(t.ask(Method::DELETE, "/auth/me")).await.status, 204);
    assert_eq!(put(&t, &open, PNG, &file).await.refusal(), REFUSED, "there is nobody to show it of");
    t.run_jobs().await;
    assert_eq!(t.get(&path(&url)).await.status, 404);
    assert_eq!(kept(&t, "pictures"), 0);
    let (left,): (i64,) = t.janua.db.one("SELECT CAST(COUNT(*) AS BIGINT) FROM upload", params![]).await.unwrap();
    assert_eq!(left, 0);
    t.finish().await;
}

#[tokio::test]
async fn uploads_that_never_came_are_forgotten() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    offered(&t, &ada, PNG, b"never").await;
    t.advance(Duration::from_hours(2));
    t.run_jobs().await;
    let (left,): (i64,) = t.janua.db.one("SELECT CAST(COUNT(*) AS BIGINT) FROM upload", params![]).await.unwrap();
    assert_eq!(left, 0);
    t.finish().await;
}
