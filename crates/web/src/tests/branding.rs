//! The look of an app on the pages where its people sign in, and who has none.
use std::io::Cursor;

use axum::http::Method;
use identity::testing::{PASSWORD, member};
use image::{DynamicImage, ImageFormat};

use super::*;

async fn paint(t: &TestJanua, owner: &Person, app: &str, color: &Value) -> Answer {
    let change = json!({ "branding": { "primaryColor": color } });
    owner.asks(t.ask(Method::PATCH, &format!("/apps/{app}")).json(&change)).await
}

fn picture() -> Vec<u8> {
    let mut out = Cursor::new(vec![]);
    DynamicImage::new_rgba8(64, 32).write_to(&mut out, ImageFormat::Png).unwrap();
    out.into_inner()
}

/// Asks for an address to put a logo at.
async fn offer(t: &TestJanua, owner: &Person, app: &str) -> Answer {
    let wish = json!({ "contentType": "image/png", "size": picture().len() });
    owner.asks(t.post(&format!("/apps/{app}/logo/upload-url")).json(&wish)).await
}

async fn put(t: &TestJanua, offered: &Answer) -> Answer {
    let to = text(&offered.body["uploadUrl"]).strip_prefix(&base(t)).unwrap().to_owned();
    t.ask(Method::PUT, &to).header("content-type", "image/png").body(picture()).await
}

async fn sign_in_page(t: &TestJanua, query: &str) -> Answer {
    let sent_away = authorize(t, None, query).await;
    visit(t, sent_away.header("location"), "").await
}

fn is_plain(page: &Answer) -> bool {
    ["class=\"look\"", "/assets/brand/", "<img"].iter().all(|mark| !page.text.contains(mark))
}

#[tokio::test]
async fn an_app_shows_its_name_logo_and_colour_on_the_way_to_it() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    member(&t, "bob@example.com").await;
    let app = client(&t, &ada, "Tea & Biscuits").await;
    let plain = sign_in_page(&t, &asked(&app.id, &[])).await;
    assert!(is_plain(&plain));
    t.happened().await;

    assert_eq!(paint(&t, &ada, &app.id, &json!("#FFE600")).await.body["primaryColor"], "#ffe600");
    let offered = offer(&t, &ada, &app.id).await;
    assert_eq!(put(&t, &offered).await.status, 204);
    t.expects(&["APP_UPDATED", "APP_UPDATED"]).await;
    let shown = ada.asks(t.get(&format!("/apps/{}", app.id))).await;
    assert_eq!(shown.body["logoUrl"], offered.body["pictureUrl"]);

    let page = sign_in_page(&t, &asked(&app.id, &[])).await;
    let is_dressed = |page: &Answer| {
        assert!(page.text.contains("class=\"look\"") && page.text.contains("Tea &amp; Biscuits"), "{}", page.text);
        assert!(page.text.contains("href=\"/assets/brand/ffe600.css\""), "{}", page.text);
        assert!(page.text.contains("This page belongs to <strong>localhost:0</strong>"), "it says whose page it is");
        assert!(!page.text.contains("style="));
    };
    is_dressed(&page);
    let logo = page
        .text
        .split("<img class=\"logo\" src=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .unwrap()
        .to_owned();
    assert!(logo.starts_with("/files/pictures/"), "from here: {logo}");
    assert_eq!(t.get(&logo).await.header("content-type"), "image/png");

    // All along the way: refused, making an account, a forgotten password, a link by mail, the consent.
    let onward = hidden(&page, "continue");
    let wrong = [("email", "bob@example.com"), ("password", "wrong password"), ("continue", onward.as_str())];
    is_dressed(&submit(&t, "/sign-in", &wrong, "").await);
    let way = query(&[("continue", &onward)]);
    is_dressed(&t.get(&format!("/sign-up?{way}")).await);
    assert!(page.text.contains("&#x2f;forgot-password?continue="));
    is_dressed(&t.get(&format!("/forgot-password?{way}")).await);
    let asks = [("email", "bob@example.com"), ("continue", onward.as_str())];
    for path in ["/forgot-password", "/sign-in/link"] {
        let sent = submit(&t, path, &asks, "").await;
        is_dressed(&visit(&t, sent.header("location"), &cookies(&sent)).await);
    }
    let right = [("email", "bob@example.com"), ("password", PASSWORD), ("continue", onward.as_str())];
    let entered = submit(&t, "/sign-in", &right, "").await;
    let bob = cookies(&entered);
    let asked_for = visit(&t, entered.header("location"), &bob).await;
    is_dressed(&visit(&t, asked_for.header("location"), &bob).await);
    // And a device of its.
    let begun = form(&t, "/auth/device/code", &[("client_id", &app.id), ("scope", "openid")], None).await;
    is_dressed(&submit(&t, "/device", &[("user_code", &text(&begun.body["user_code"]))], &bob).await);
    // Nowhere else.
    assert!(is_plain(&t.get("/sign-in").await));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn only_a_colour_is_one_and_only_a_picture_of_ours_is_shown() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    for wrong in ["red", "#fff", "#12345g", "#123456;}", "url(//evil.example)", "#1234567", ""] {
        let answer = paint(&t, &ada, &app.id, &json!(wrong)).await;
        assert_eq!((answer.refusal().0, answer.wrong_fields()), (400, vec!["branding.primaryColor"]), "{wrong}");
    }
    // What somebody writes into the row by hand is no way into a page either.
    let forged = [("https://evil.example/track.gif?\"><script>", "red}*{display:none"), ("pictures/", "#12345")];
    for (logo, color) in forged {
        let sql = "UPDATE app SET logo_url = $2, primary_color = $3 WHERE id = $1";
        t.janua.db.exec(sql, db::params![&app.id, logo, color]).await.unwrap();
        let page = sign_in_page(&t, &asked(&app.id, &[])).await;
        assert!(is_plain(&page) && !page.text.contains("evil"), "{}", page.text);
    }
    for wrong in ["ffe60.css", "FFE600.css", "ffe600", "ffe600.css.css", "%3Cscript%3E.css", "..%2fjanua.css"] {
        assert_eq!(t.get(&format!("/assets/brand/{wrong}")).await.refusal(), (404, "not_found"), "{wrong}");
    }
    let sheet = t.get("/assets/brand/ffe600.css").await;
    assert_eq!((sheet.status, sheet.header("content-type")), (200, "text/css"));
    assert!(sheet.text.contains("--primary:#ffe600;--on-primary:#000000"), "black can be read on yellow");
    assert!(!sheet.text.contains("--accent:#ffe600;"), "yellow cannot be read on white");
    assert!(sheet.text.contains("dark){:root{--accent:#ffe600}}"), "but at night it can");
    let again = t.get("/assets/brand/ffe600.css").header("if-none-match", sheet.header("etag")).await;
    assert_eq!(again.status, 304);
    let none = paint(&t, &ada, &app.id, &Value::Null).await;
    assert_eq!((none.status, &none.body["primaryColor"]), (200, &Value::Null));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn whoever_only_describes_themselves_has_no_look() {
    let config = Config::for_tests()
        .with(|oauth: &mut identity::oauth::Settings| oauth.client_registration = kernel::config::Switch::On);
    let t = TestJanua::start_with(config, feature).await;
    let body = json!({ "client_name": "Janua", "redirect_uris": ["https://evil.example/cb"],
        "logo_uri": "https://evil.example/logo.png", "primary_color": "#ff0000", "logoUrl": "/files/pictures/x.png" });
    let made = t.post("/oauth/register").json(&body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let asks = asked(&text(&made.body["client_id"]), &[("redirect_uri", "https://evil.example/cb")]);
    let page = sign_in_page(&t, &asks).await;
    assert_eq!(page.status, 200);
    assert!(is_plain(&page), "{}", page.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_logo_is_put_by_admins_and_goes_with_the_app() {
    let t = start().await;
    let (ada, eve) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "eve@example.com").await);
    let app = client(&t, &ada, "App").await;
    assert_eq!(offer(&t, &eve, &app.id).await.refusal(), (404, "not_found"), "a stranger learns nothing");
    let path = format!("/apps/{}", app.id);
    let org = text(&ada.asks(t.get(&path)).await.body["orgId"]);
    let put_role = |role: &'static str| {
        let sql = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, $3, 1)
                   ON CONFLICT (org_id, account_id) DO UPDATE SET role = $3";
        t.janua.db.exec(sql, db::params![&org, &eve.id, role])
    };
    put_role("admin").await.unwrap();
    let offered = offer(&t, &eve, &app.id).await;
    put_role("member").await.unwrap();
    t.happened().await;
    assert_eq!(put(&t, &offered).await.refusal(), (403, "upload_refused"), "no admin any more");
    t.expects(&[]).await;

    let first = offer(&t, &ada, &app.id).await;
    assert_eq!(put(&t, &first).await.status, 204);
    assert_eq!(put(&t, &first).await.refusal(), (403, "upload_refused"), "once");
    let shown = text(&first.body["pictureUrl"]).strip_prefix(&base(&t)).unwrap().to_owned();
    assert_eq!(t.get(&shown).await.status, 200);
    // Taken away, with what is under way.
    let late = offer(&t, &ada, &app.id).await;
    assert_eq!(ada.asks(t.ask(Method::DELETE, &format!("{path}/logo"))).await.status, 204);
    assert_eq!(put(&t, &late).await.refusal(), (403, "upload_refused"));
    assert_eq!(ada.asks(t.get(&path)).await.body["logoUrl"], Value::Null);
    t.run_jobs().await;
    assert_eq!(t.get(&shown).await.status, 404);

    for end in [path.clone(), format!("/org/{org}")] {
        let app = if end == path { app.id.clone() } else { client(&t, &ada, "Other").await.id };
        let offered = offer(&t, &ada, &app).await;
        assert_eq!(put(&t, &offered).await.status, 204);
        let shown = text(&offered.body["pictureUrl"]).strip_prefix(&base(&t)).unwrap().to_owned();
        let ended = ada.asks(t.ask(Method::DELETE, &end)).await;
        assert_eq!(ended.status, 204, "{}", ended.text);
        t.run_jobs().await;
        assert_eq!(t.get(&shown).await.status, 404, "{end} is gone, and its pictures with it");
    }
    t.run_jobs().await;
    t.finish().await;
}

/// Sends the form of a picture as a browser without script does.
async fn send_picture(t: &TestJanua, cookies: &str, (to, back): (&str, &str), kind: &str, bytes: &[u8]) -> Answer {
    let field = |name: &str, value: &str| {
        format!("--xyz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let file = format!(
        "--xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"me.png\"\r\nContent-Type: {kind}\r\n\r\n"
    );
    let mut body = [field("to", to), field("back", back), file].concat().into_bytes();
    body.extend_from_slice(bytes);
    body.extend_from_slice(b"\r\n--xyz--\r\n");
    let post = t.post("/act/picture").header("cookie", cookies).header("sec-fetch-site", "same-origin");
    let post = post.header("content-type", "multipart/form-data; boundary=xyz");
    post.header("content-length", &body.len().to_string()).body(body).await
}

#[tokio::test]
async fn pictures_are_uploaded_without_a_script() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "Tiny Notes").await.id;
    let org = text(&ada.asks(t.get("/user/orgs")).await.body["orgs"][0]["id"]);
    let browser = browser(&t, "ada@example.com").await;
    let places = [
        ("/user/avatar/upload-url".to_owned(), "/account".to_owned()),
        (format!("/apps/{app}/logo/upload-url"), format!("/console/apps/{app}/settings")),
        (format!("/org/{org}/logo/upload-url"), format!("/console/orgs/{org}/settings")),
    ];
    for (to, back) in &places {
        let page = visit(&t, back, &browser).await;
        assert!(page.text.contains("action=\"/act/picture\""), "{}", page.text);
        assert_eq!(hidden(&page, "to"), *to);
        for (kind, bytes, says) in [
            ("image/png", &b"no picture"[..], "notice-bad"),
            ("text/plain", b"words", "Choose a PNG, JPEG, WebP or GIF picture."),
            ("image/png", b"", "Choose a picture of at most 5 MB."),
        ] {
            let sent = send_picture(&t, &browser, (to, back), kind, bytes).await;
            assert!(sent.header("location").starts_with(&format!("{back}?told=")), "{}", sent.text);
            let shown = visit(&t, sent.header("location"), &browser).await;
            assert!(shown.status == 400 && shown.text.contains(says), "{}: {}", shown.status, shown.text);
        }
        let sent = send_picture(&t, &browser, (to, back), "image/png", &picture()).await;
        let shown = visit(&t, sent.header("location"), &browser).await;
        assert!(shown.status == 200 && shown.text.contains("Picture saved."), "{}", shown.text);
        assert!(shown.text.replace("&#x2f;", "/").contains("src=\"/files/pictures/"), "{}", shown.text);
    }
    member(&t, "eve@example.com").await;
    let eve = super::browser(&t, "eve@example.com").await;
    let sent = send_picture(&t, &eve, (&places[1].0, "/account"), "image/png", &picture()).await;
    let shown = visit(&t, sent.header("location"), &eve).await;
    assert!(!shown.text.contains("Picture saved.") && shown.status >= 400, "another's app: {}", shown.text);
    let elsewhere = send_picture(&t, &browser, ("/auth/logout", "/account"), "image/png", &picture()).await;
    let shown = visit(&t, elsewhere.header("location"), &browser).await;
    assert_eq!(shown.status, 400, "{}", shown.text);
    t.run_jobs().await;
    t.finish().await;
}
