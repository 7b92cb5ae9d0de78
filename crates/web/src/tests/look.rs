//! How pages look: the parts, the assets and what they weigh.
use identity::testing::member;

use super::*;

#[tokio::test]
async fn the_design_page_shows_every_part_in_development_alone() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let page = visit(&t, "/console/design", &ada).await;
    assert_eq!(page.status, 200, "{}", page.text);
    for part in
        ["class=\"btn btn-primary\"", "aria-invalid=\"true\"", "class=\"plot\"", "<table class=\"sr\">", "popover"]
    {
        assert!(page.text.contains(part), "{part}");
    }
    assert!(!page.text.contains("style="), "the policy allows no style in a tag");
    assert_eq!(visit(&t, "/console/design", "").await.status, 303, "to the sign-in page");
    t.finish().await;

    let config = Config { base_url: Some("https://id.example".parse().expect("a URL")), ..Config::for_tests() };
    let t = TestApp::start_with(config, feature).await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    for cookies in ["", ada.as_str()] {
        assert_eq!(visit(&t, "/console/design", cookies).await.status, 404);
    }
    t.finish().await;
}

#[tokio::test]
async fn a_create_form_is_a_dialog_with_a_url() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let list = visit(&t, "/console", &ada).await.text;
    assert!(list.contains("href=\"&#x2f;console?new=app\"") && !list.contains("value=\"POST &#x2f;apps\""), "{list}");
    let dialog = visit(&t, "/console?new=app", &ada).await.text;
    assert!(
        dialog.contains("<div class=\"shell\" inert>") && dialog.contains("value=\"POST &#x2f;apps\""),
        "{dialog}"
    );
    assert!(dialog.contains("name=\"back\" value=\"&#x2f;console\""), "an app that was created closes it");
    let wrong = [("call", "POST /apps"), ("back", "/console"), ("form", "app"), ("name", "")];
    let refused = submit(&t, "/act", &wrong, &ada).await;
    assert_eq!(refused.status, 400);
    assert!(
        refused.text.contains("<dialog class=\"dialog\" open") && refused.text.contains("role=\"alert\""),
        "{}",
        refused.text
    );
    t.finish().await;
}

#[tokio::test]
async fn browsers_find_the_mark_and_keep_it() {
    let t = start().await;
    for (path, kind) in [("/favicon.ico", "image/x-icon"), ("/assets/mark.svg", "image/svg+xml")] {
        let mark = t.get(path).await;
        assert_eq!((mark.status, mark.header("content-type")), (200, kind), "{path}");
        let again = t.get(path).header("if-none-match", mark.header("etag")).await;
        assert_eq!(again.status, 304, "{path}");
    }
    t.finish().await;
}

#[tokio::test]
async fn pages_stay_small() {
    let t = start().await;
    let mut sizes = vec![];
    for path in [
        "/sign-in",
        "/assets/janua.css",
        "/assets/janua.js",
        "/assets/mark.svg",
        "/assets/console.css",
        "/assets/site.css",
    ] {
        sizes.push(t.get(path).await.text.len());
    }
    let hosted: usize = sizes[..4].iter().sum();
    assert!(hosted < 40_000, "{hosted} bytes before compression, which takes off two thirds");
    let sheets = sizes[1] + sizes[4] + sizes[5];
    assert!(sheets < 60_000, "{sheets} bytes");
    t.finish().await;
}

#[tokio::test]
async fn a_field_says_what_is_wrong_with_it() {
    let t = start().await;
    let typed = [("name", "Ada"), ("email", "nonsense"), ("password", "correct horse battery staple")];
    let refused = submit(&t, "/sign-up", &typed, "").await;
    assert_eq!(refused.status, 400);
    for part in
        ["aria-invalid=\"true\"", "aria-describedby=\"email-error\"", "id=\"email-error\"", "value=\"nonsense\""]
    {
        assert!(refused.text.contains(part), "{part}: {}", refused.text);
    }
    assert_eq!(refused.text.matches("aria-invalid").count(), 1, "the others are right");
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let wrong = [("call", "PATCH /user/profile"), ("back", "/account"), ("form", "profile"), ("name", "")];
    let refused = submit(&t, "/act", &wrong, &ada).await;
    assert_eq!(refused.status, 400);
    assert!(
        refused.text.contains("id=\"name-error\"") && refused.text.contains("role=\"alert\""),
        "{}",
        refused.text
    );
    t.finish().await;
}
