//! Answers that a page posts to the client (`response_mode=form_post`).
use super::*;

fn page_fields(page: &Answer) -> Vec<&'static str> {
    let names = ["code", "state", "iss", "error", "error_description"];
    names.into_iter().filter(|name| page.text.contains(&format!("name=\"{name}\""))).collect()
}

#[tokio::test]
async fn the_answer_is_posted_to_the_client_by_a_page_that_does_nothing_else() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let app = client(&t, &ada, "App").await;
    let told = t.get("/.well-known/openid-configuration").await.body;
    assert_eq!(told["response_modes_supported"], json!(["query", "form_post"]));
    let state = "<script>alert(1)</script>\"'&";
    let request = asked(&app.id, &[("response_mode", "form_post"), ("state", state)]);
    let page = authorize(&t, Some(&ada), &request).await;
    assert_eq!((page.status, page.header("location")), (200, ""), "{}", page.text);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert_eq!(page_fields(&page), ["code", "state", "iss"]);
    assert_eq!((hidden(&page, "state"), hidden(&page, "iss")), (state.to_owned(), base(&t)));
    let action = page.text.split("action=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a form");
    assert_eq!(action.replace("&#x2f;", "/").replace("&amp;", "&"), REDIRECT);
    assert!(page.text.contains("type=\"submit\">Continue</button>"), "a button for browsers without scripts");
    assert_eq!(page.text.matches("<script").count(), 1, "{}", page.text);
    let script =
        page.text.split("<script>").nth(1).and_then(|rest| rest.split("</script>").next()).expect("a script");
    let hash = data_encoding::BASE64.encode(&crypto::digest(script.as_bytes()));
    let policy = page.header("content-security-policy");
    assert!(policy.contains(&format!("script-src 'sha256-{hash}';")), "{policy}");
    assert!(policy.contains("form-action https://app.example;"), "{policy}");
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(policy.contains("base-uri 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("cache-control"), "no-store");
    // With no referrer at all a browser would post with the origin `null`, which frameworks refuse.
    assert_eq!(page.header("referrer-policy"), "origin");
    let given = redeem(&t, &app.id, &hidden(&page, "code"), &[]).await;
    assert_eq!(given.status, 200, "{}", given.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn refusals_and_consents_are_posted_too() {
    let t = start().await;
    let eve = signed_in(&t, "eve@example.com").await;
    let app = client(&t, &eve, "App").await;
    signed_in(&t, "ada@example.com").await;
    let browser = browser(&t, "ada@example.com").await;
    let mode = ("response_mode", "form_post");
    for (changes, error) in [
        (&[mode, ("response_type", "token")][..], "unsupported_response_type"),
        (&[mode, ("prompt", "none")], "consent_required"),
        (&[mode, ("resource", "https://nobody.example/")], "invalid_target"),
    ] {
        let page = visit(&t, &format!("/oauth/authorize?{}", asked(&app.id, changes)), &browser).await;
        assert_eq!(page.status, 200, "{changes:?}: {:?}", page.headers);
        assert_eq!((hidden(&page, "error"), hidden(&page, "state")), (error.to_owned(), "xyz".to_owned()));
        assert_eq!(page_fields(&page), ["state", "iss", "error", "error_description"], "{changes:?}");
    }
    let asks = visit(&t, &format!("/oauth/authorize?{}", asked(&app.id, &[mode])), &browser).await;
    let consent = visit(&t, asks.header("location"), &browser).await;
    let denied = decide(&t, &consent, "deny", &browser).await;
    assert_eq!((denied.status, hidden(&denied, "error")), (200, "access_denied".to_owned()));
    let allowed = decide(&t, &consent, "allow", &browser).await;
    assert_eq!(redeem(&t, &app.id, &hidden(&allowed, "code"), &[]).await.status, 200);
    // No form can be posted to a native app's scheme; other modes stay unknown.
    let native = [mode, ("redirect_uri", "com.example.app:/cb")];
    let answer = visit(&t, &format!("/oauth/authorize?{}", asked(&app.id, &native)), &browser).await;
    assert_eq!(field(&answer, "error").as_deref(), Some("invalid_request"));
    for other in ["fragment", "form_post.jwt", "FORM_POST"] {
        let request = asked(&app.id, &[("response_mode", other)]);
        let answer = visit(&t, &format!("/oauth/authorize?{request}"), &browser).await;
        assert_eq!(field(&answer, "error").as_deref(), Some("invalid_request"), "{other}");
    }
    t.run_jobs().await;
    t.finish().await;
}
