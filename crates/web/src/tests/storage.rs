//! The page of an app's storage.
use identity::testing::member;
use kernel::testing::{Answer, TestJanua};

use super::{act, browser, post_form, start, visit};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR and whatever follows";

/// Sends the form with a file, as a browser without script does.
async fn upload(t: &TestJanua, cookies: &str, page: &str, name: &str, content_type: &str, bytes: &[u8]) -> Answer {
    let mut body = format!(
        "--xyz\r\nContent-Disposition: form-data; name=\"visibility\"\r\n\r\npublic\r\n--xyz\r\nContent-Disposition: \
         form-data; name=\"file\"; filename=\"{name}\"\r\nContent-Type: {content_type}\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(bytes);
    body.extend_from_slice(b"\r\n--xyz--\r\n");
    let post = t.post(page).header("cookie", cookies).header("sec-fetch-site", "same-origin");
    let post = post.header("content-type", "multipart/form-data; boundary=xyz");
    post.header("content-length", &body.len().to_string()).body(body).await
}

#[tokio::test]
async fn files_are_uploaded_without_script_shown_found_and_deleted() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let made = act(&t, &ada, "POST /apps", "/console", &[("name", "Shop"), ("then", "/console/apps/{id}")]).await;
    let place = made.header("location");
    let place = &place[place.find("/console").unwrap()..];
    let (page, id) = (format!("{place}/storage"), place.rsplit('/').next().unwrap().to_owned());
    let empty = visit(&t, &page, &ada).await;
    assert_eq!(empty.status, 200, "{}", empty.text);
    assert!(empty.text.contains("No objects yet") && empty.text.contains("Upload a file"), "{}", empty.text);

    let sent = upload(&t, &ada, &page, "cat <b>.png", "image/png", PNG).await;
    assert_eq!(sent.status, 303, "{}", sent.text);
    let shown = visit(&t, sent.header("location"), &ada).await;
    assert!(shown.text.contains("File uploaded.") && shown.text.contains("cat &lt;b&gt;.png"), "{}", shown.text);
    let picture = format!("<img class=\"thumb\" src=\"/apps/{id}/storage/");
    assert!(shown.text.replace("&#x2f;", "/").contains(&picture), "{}", shown.text);
    assert!(shown.text.contains("Public") && shown.text.contains("1 object"), "{}", shown.text);

    let refused = upload(&t, &ada, &page, "x.png", "image/png", b"no picture").await;
    let shown = visit(&t, refused.header("location"), &ada).await;
    assert!(shown.text.contains("contentType"), "{}", shown.text);
    let none = upload(&t, &ada, &page, "", "application/octet-stream", b"").await;
    assert!(visit(&t, none.header("location"), &ada).await.text.contains("Choose a file first."));
    let elsewhere = t.post(&page).header("cookie", &ada).header("origin", "https://evil.example").body("x").await;
    assert_eq!(elsewhere.status, 403);

    assert!(visit(&t, &format!("{page}?search=cat"), &ada).await.text.contains("cat &lt;b&gt;.png"));
    assert!(visit(&t, &format!("{page}?search=dog"), &ada).await.text.contains("No matches"));
    assert!(visit(&t, &format!("{page}?environment=test"), &ada).await.text.contains("No objects yet"));
    let list = visit(&t, &format!("/apps/{id}/storage"), &ada).await;
    let object = list.body["objects"][0]["id"].as_str().unwrap().to_owned();
    let call = format!("DELETE /apps/{id}/storage/{object}");
    let gone = post_form(&t, "/act", &[("call", &*call), ("back", &page), ("done", "object_deleted")], &ada).await;
    assert!(visit(&t, gone.header("location"), &ada).await.text.contains("Object deleted."));
    t.run_jobs().await;
    t.finish().await;
}
