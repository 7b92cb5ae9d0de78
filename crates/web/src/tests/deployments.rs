//! The pages of deployments.
use identity::testing::member;
use kernel::testing::{Answer, TestJanua};

use super::{act, base, browser, post_form, start, visit};

/// A gzip-compressed tar with one page.
const ARCHIVE: &str = "H4sIAAAAAAACA8vMS0mt0Msoyc1hoBkwAAIzExMwDQToNBCYIrFB4ubmxqYMCgYMdAClxSWJRUArGUYmyEjNyclnGAWjYBSMglEw0gAAQ55vdQAIAAA=";

/// A form with a file, as a browser without script sends it.
async fn upload(t: &TestJanua, to: &str, cookies: &str, target: &str, archive: &[u8]) -> Answer {
    let part =
        |name: &str, more: &str| format!("--edge\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n");
    let mut body = format!("{}\r\n{target}\r\n", part("target", "")).into_bytes();
    body.extend(part("archive", "; filename=\"site.tar.gz\"\r\nContent-Type: application/gzip").into_bytes());
    body.extend_from_slice(b"\r\n");
    body.extend_from_slice(archive);
    body.extend_from_slice(b"\r\n--edge--\r\n");
    let ask = t.post(to).header("cookie", cookies).header("origin", &base(t));
    ask.header("content-type", "multipart/form-data; boundary=edge").body(body).await
}

#[tokio::test]
async fn an_archive_is_deployed_by_a_form_and_the_way_back_is_one_click() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let made = act(&t, &ada, "POST /apps", "/console", &[("name", "Shop"), ("then", "/console/apps/{id}")]).await;
    let page = format!("{}/deployments", made.header("location"));
    let empty = visit(&t, &page, &ada).await;
    assert!(empty.status == 200 && empty.text.contains("Nothing deployed yet"), "{}", empty.text);
    let dialog = visit(&t, &format!("{page}?new=deploy"), &ada).await;
    assert!(dialog.text.contains("multipart/form-data") && dialog.text.contains("Deploy site"), "{}", dialog.text);

    let archive = data_encoding::BASE64.decode(ARCHIVE.as_bytes()).unwrap();
    let sent = upload(&t, &page, &ada, "production", &archive).await;
    assert_eq!(sent.status, 303, "{}", sent.text);
    let first = sent.header("location").to_owned();
    let shown = visit(&t, &first, &ada).await;
    assert!(shown.status == 200 && shown.text.contains("Deployment #1"), "{}", shown.text);
    assert!(shown.text.contains("Live in production.") && shown.text.contains("index.html"), "{}", shown.text);
    upload(&t, &page, &ada, "preview", &archive).await;
    upload(&t, &page, &ada, "production", &archive).await;
    let list = visit(&t, &page, &ada).await;
    assert!(list.text.contains("#3") && list.text.contains("Roll back to deployment 1"), "{}", list.text);
    assert!(list.text.contains("--shop.localhost"), "previews are linked: {}", list.text);
    let id = first.rsplit('/').next().unwrap();
    let call = format!("POST /deployments/{id}/redeploy");
    let fields = [("call", call.as_str()), ("back", &page), ("form", "it"), ("done", "rolled_back")];
    let back = post_form(&t, "/act", &fields, &ada).await;
    assert_eq!(back.status, 303, "{}", back.text);
    let told = visit(&t, back.header("location"), &ada).await;
    assert!(told.text.contains("Rolled back."), "{}", told.text);

    // As while it is received.
    assert!(!shown.text.contains("Stop deployment"), "it has ended");
    t.janua.db.exec("UPDATE deployment SET status = 'processing' WHERE number = 2", vec![]).await.unwrap();
    let sql = "SELECT id FROM deployment WHERE number = 2";
    let (id,): (String,) = t.janua.db.one(sql, vec![]).await.unwrap();
    let place = format!("{page}/{id}");
    assert!(visit(&t, &place, &ada).await.text.contains("Stop deployment #2?"));
    let call = format!("POST /deployments/{id}/cancel");
    let fields = [("call", call.as_str()), ("back", &place), ("form", "stop"), ("done", "deployment_stopped")];
    let stopped = post_form(&t, "/act", &fields, &ada).await;
    let told = visit(&t, stopped.header("location"), &ada).await;
    assert!(told.text.contains("Deployment stopped.") && told.text.contains("Canceled"), "{}", told.text);
    assert!(!told.text.contains("Stop deployment"), "{}", told.text);

    let refused = upload(&t, &page, &ada, "production", b"no archive").await;
    let told = visit(&t, refused.header("location"), &ada).await;
    assert!(told.text.contains("The body is not gzip."), "{}", told.text);
    let nothing = upload(&t, &page, "", "production", &archive).await;
    assert!(nothing.header("location").contains("/sign-in"), "{}", nothing.text);
    let elsewhere = t.post(&page).header("cookie", &ada).header("origin", "https://evil.test");
    let elsewhere = elsewhere.header("content-type", "multipart/form-data; boundary=edge").body("--edge--").await;
    assert_eq!(elsewhere.status, 403, "a page elsewhere sends no form: {}", elsewhere.text);
    t.run_jobs().await;
    t.finish().await;
}
