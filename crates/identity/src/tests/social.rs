//! Signing in with an account elsewhere: every provider in its own shape, and what comes of it.
use db::{params, row};
use kernel::testing::TestJanua;
use serde_json::{Value, json};

use super::{actors::*, providers::*};

#[tokio::test]
async fn a_stranger_comes_by_google_and_is_known_the_next_time() {
    let (google, t) = StandIn::start().await;
    let mut ada = proven("g-1", "Ada@Example.com");
    ada.said["picture"] = json!("https://pictures.example/ada.png");
    let first = sign_in(&google, &t, "google", ada.clone()).await;
    let person = Person::of(&first);
    assert_eq!(first.body["isNewUser"], true);
    assert!(first.body["org"].is_null() && first.body["expiresIn"] == 900 && !person.refresh.is_empty());
    let user = &first.body["user"];
    assert_eq!((&user["googleId"], &user["authProvider"]), (&json!("g-1"), &json!("google")));
    assert_eq!((&user["email"], &user["emailVerified"]), (&json!("Ada@example.com"), &json!(true)));
    assert_eq!((&user["name"], &user["avatarUrl"]), (&json!("Ada Lovelace"), &ada.said["picture"]));
    assert!(user.get("githubId").is_none() && user.get("githubUsername").is_none(), "{user}");
    t.expects(&["ACCOUNT_CREATED", "EMAIL_VERIFIED", "SOCIAL_LINKED", "SIGNED_IN"]).await;
    let me = person.asks(t.get("/auth/me")).await;
    assert_eq!(me.body, *user, "the same wherever a person is shown");

    // P23: the provider's id says who it is, whatever the address says by then.
    let moved = proven("g-1", "eve@example.com");
    let again = sign_in(&google, &t, "google", moved).await;
    assert_eq!((again.body["isNewUser"].clone(), Person::of(&again).id), (json!(false), person.id.clone()));
    assert_eq!(again.body["user"]["email"], "Ada@example.com", "the account's own address stays");
    t.expects(&["SIGNED_IN"]).await;
    let sessions = person.asks(t.get("/auth/sessions")).await;
    assert_eq!(sessions.body["sessions"][0]["methods"], json!(["social"]));
    // Whoever leaves leaves nothing: the next time is a first time.
    assert_eq!(person.asks(t.ask(axum::http::Method::DELETE, "/auth/me")).await.status, 204);
    assert_eq!(rows(&t, "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM social_identity").await, 0);
    assert_eq!(sign_in(&google, &t, "google", ada).await.body["isNewUser"], true);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn the_code_is_asked_for_with_pkce_a_nonce_and_a_state() {
    let (_, t) = StandIn::start().await;
    let query = |sent: &Sent| -> std::collections::HashMap<String, String> {
        url::Url::parse(&sent.url).unwrap().query_pairs().into_owned().collect()
    };
    let google = query(&begin(&t, "google").await);
    assert_eq!(google["redirect_uri"], "http://localhost:0/sign-in/google");
    assert_eq!((google["scope"].as_str(), google["client_id"].as_str()), ("openid profile email", "google-id"));
    assert_eq!((google["code_challenge_method"].as_str(), google["code_challenge"].len()), ("S256", 43));
    assert!(google["nonce"].len() == 43 && google["state"].len() == 43);
    let apple = query(&begin(&t, "apple").await);
    assert_eq!(apple["response_mode"], "form_post");
    let linkedin = query(&begin(&t, "linkedin").await);
    assert!(!linkedin.contains_key("code_challenge"), "it refuses a verifier beside a secret");

    let own = t.get("/auth/oauth/github/url?state=my+own%26state&redirectUri=http%3A%2F%2F127.0.0.1%3A5173%2Fback");
    let answer = own.await;
    assert!(answer.header("set-cookie").contains("HttpOnly; SameSite=Lax; Max-Age=600"));
    let own = query(&sent(&answer));
    assert_eq!((own["state"].as_str(), own["redirect_uri"].as_str()), ("my own&state", "http://127.0.0.1:5173/back"));
    for wrong in [
        "https://evil.example/back",
        "http://localhost:0@evil.example/",
        "javascript:1",
        "x",
        "",
        "http://localhost:0/%23a#b",
        "https://127.0.0.1/",
    ] {
        let wrong: String = url::form_urlencoded::byte_serialize(wrong.as_bytes()).collect();
        let answer = t.get(&format!("/auth/oauth/google/url?redirectUri={wrong}")).await;
        assert_eq!((answer.refusal(), answer.wrong_fields()), ((400, "invalid"), vec!["redirectUri"]), "{wrong}");
    }
    assert_eq!(t.get("/auth/oauth/myspace/url").await.refusal(), (404, "not_found"));
    t.finish().await;
}

#[tokio::test]
async fn on_the_web_the_cookie_is_strict_and_other_origins_of_ours_are_ways_back() {
    let (google, other) = StandIn::start().await;
    other.finish().await;
    let settings =
        google.settings(&[("base_url", "https://id.example.com"), ("allowed_origins", "https://app.example.com")]);
    let t = TestJanua::start_with(settings, feature).await;
    let back = "https%3A%2F%2Fapp.example.com%2Fback%3Fx%3D1";
    let answer = t.get(&format!("/auth/oauth/google/url?redirectUri={back}")).await;
    assert!(answer.header("set-cookie").starts_with("__Host-service_oauth="), "{:?}", answer.headers);
    assert!(answer.header("set-cookie").ends_with("; Secure"));
    let browser = sent(&answer);
    let code = google.agree(&t, &browser.url, proven("g-1", "ada@example.com"));
    let body = json!({ "code": code, "state": browser.state, "redirectUri": "https://app.example.com/back?x=1" });
    assert_eq!(post_back(&t, "google", Some(&browser.cookie), &body).await.status, 200);
    let plain = t.get("/auth/oauth/google/url?redirectUri=http%3A%2F%2Fapp.example.com%2Fback").await;
    assert_eq!(plain.wrong_fields(), ["redirectUri"], "another origin");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn what_nobody_set_up_is_not_there() {
    let t = start().await;
    assert_eq!(t.get("/auth/oauth/google/url").await.refusal(), (404, "provider_not_configured"));
    let body = json!({ "code": "c" });
    assert_eq!(post_back(&t, "google", None, &body).await.refusal(), (404, "provider_not_configured"));
    let tap = t.post("/auth/oauth/google/onetap").json(&json!({ "idToken": "x" })).await;
    assert_eq!(tap.refusal(), (404, "provider_not_configured"));
    t.finish().await;
}

#[tokio::test]
async fn each_provider_is_understood_in_its_own_shape() {
    let (peer, t) = StandIn::start().await;
    let github = Somebody {
        said: json!({ "id": 583_231, "login": "octocat", "name": "The Octocat", "email": null,
                      "avatar_url": "https://avatars.githubusercontent.com/u/583231?v=4" }),
        emails: json!([{ "email": "spare@example.com", "primary": false, "verified": true, "visibility": null },
                       { "email": "octocat@example.com", "primary": true, "verified": true, "visibility": "public" }]),
    };
    let user = sign_in(&peer, &t, "github", github).await.body["user"].clone();
    assert_eq!((&user["githubId"], &user["githubUsername"]), (&json!("583231"), &json!("octocat")), "{user}");
    assert_eq!((&user["email"], &user["emailVerified"]), (&json!("octocat@example.com"), &json!(true)));

    let discord = json!({ "id": "80351110224678912", "username": "nelly", "global_name": "Nelly", "verified": true,
                          "email": "nelly@example.com", "avatar": "8342729096ea3675442027381ff50dfe" });
    let user = sign_in(&peer, &t, "discord", somebody(discord)).await.body["user"].clone();
    assert_eq!((&user["discordId"], &user["name"]), (&json!("80351110224678912"), &json!("Nelly")));
    assert_eq!(user["email"], "nelly@example.com");

    // Facebook proves no address: it is noted, and the account has none.
    let facebook = json!({ "id": "10228", "name": "Marie", "email": "marie@example.com",
                           "picture": { "data": { "height": 50, "is_silhouette": false,
                                                  "url": "https://platform-lookaside.fbsbx.com/pic", "width": 50 } } });
    let answer = sign_in(&peer, &t, "facebook", somebody(facebook)).await;
    let (user, marie) = (answer.body["user"].clone(), Person::of(&answer));
    assert_eq!(
        (&user["facebookId"], &user["email"], &user["emailVerified"]),
        (&json!("10228"), &Value::Null, &json!(false))
    );
    assert_eq!(user["avatarUrl"], "https://platform-lookaside.fbsbx.com/pic");
    let export = marie.asks(t.get("/auth/export")).await;
    let noted = &export.body["linkedIdentities"][0];
    assert_eq!((&noted["email"], &noted["emailVerified"]), (&json!("marie@example.com"), &json!(false)));

    // LinkedIn echoes no nonce, names no token type and takes no verifier.
    let linkedin = proven("li-1", "reid@example.com");
    let user = sign_in(&peer, &t, "linkedin", linkedin).await.body["user"].clone();
    assert_eq!((&user["authProvider"], &user["email"]), (&json!("linkedin"), &json!("reid@example.com")), "{user}");
    let user = sign_in(&peer, &t, "cognito", proven("co-1", "cog@example.com")).await.body["user"].clone();
    assert_eq!((&user["authProvider"], &user["email"]), (&json!("cognito"), &json!("cog@example.com")), "{user}");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn apple_is_given_a_signed_secret_and_its_form_field_only_names() {
    let (apple, t) = StandIn::start().await;
    let sent = begin(&t, "apple").await;
    let someone = json!({ "sub": "001.a", "email": "relay@privaterelay.appleid.com", "email_verified": "true" });
    let code = apple.agree(&t, &sent.url, somebody(someone.clone()));
    let user = r#"{"name":{"firstName":"Ada","lastName":"Lovelace"},"email":"victim@example.com"}"#;
    let body = json!({ "code": code, "state": sent.state, "user": user });
    let answer = post_back(&t, "apple", Some(&sent.cookie), &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let user = &answer.body["user"];
    assert_eq!((&user["name"], &user["appleId"]), (&json!("Ada Lovelace"), &json!("001.a")));
    assert_eq!(user["email"], "relay@privaterelay.appleid.com", "never the one from the browser");
    // The second time Apple says no name; the first one stays.
    let again = sign_in(&apple, &t, "apple", somebody(someone)).await;
    assert_eq!(again.body["user"]["name"], "Ada Lovelace");
    let export = Person::of(&again).asks(t.get("/auth/export")).await;
    assert_eq!(export.body["linkedIdentities"][0]["name"], "Ada Lovelace");
    let sent = begin(&t, "apple").await;
    let body = json!({ "code": "c", "state": sent.state, "user": "not json" });
    let answer = post_back(&t, "apple", Some(&sent.cookie), &body).await;
    assert_eq!((answer.refusal(), answer.wrong_fields()), ((400, "invalid"), vec!["user"]));
    t.run_jobs().await;
    t.finish().await;
}

struct SealedTokens {
    sealed: Vec<u8>,
}
row!(SealedTokens { sealed });

#[tokio::test]
async fn the_providers_tokens_are_sealed_and_shown_to_nobody() {
    let (google, t) = StandIn::start().await;
    let answer = sign_in(&google, &t, "google", proven("g-1", "ada@example.com")).await;
    let ada = Person::of(&answer);
    let kept: SealedTokens = t.janua.db.one("SELECT sealed FROM social_identity", params![]).await.unwrap();
    let text = String::from_utf8_lossy(&kept.sealed).into_owned();
    assert!(!text.contains("access-code") && !text.contains("refresh-of-the-provider"), "{text}");
    let place = |subject: &str| format!("social_identity:sealed:google:{subject}");
    let opened = t.janua.vault.open("social", &place("g-1"), &kept.sealed).unwrap();
    let opened: Value = serde_json::from_slice(&opened).unwrap();
    assert_eq!((&opened["access"], &opened["refresh"]), (&json!("access-code-1"), &json!("refresh-of-the-provider")));
    assert!(t.janua.vault.open("social", &place("g-2"), &kept.sealed).is_err(), "bound to its row");
    if let Some(folder) = t.folder() {
        for file in std::fs::read_dir(folder).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains("access-code") && !text.contains("refresh-of-the-provider"), "in a file");
        }
    }
    let export = ada.asks(t.get("/auth/export")).await;
    assert_eq!(export.body["linkedIdentities"][0]["subject"], "g-1");
    for shown in [&export.text, &answer.text] {
        assert!(!shown.contains("access-code") && !shown.contains("refresh-of-the-provider"), "{shown}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_session_comes_as_cookies_when_it_is_asked_for() {
    let (google, t) = StandIn::start().await;
    let sent = begin(&t, "google").await;
    let code = google.agree(&t, &sent.url, proven("g-1", "ada@example.com"));
    let body = json!({ "code": code, "state": sent.state });
    let answer = t.post("/auth/oauth/google?setCookie=true").json(&body).header("cookie", &sent.cookie).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(answer.body.get("refreshToken").is_none());
    let set: Vec<_> = answer.headers.get_all("set-cookie").iter().map(|line| line.to_str().unwrap()).collect();
    for name in ["service_access=ey", "service_refresh=", "service_oauth=; "] {
        assert!(set.iter().any(|line| line.starts_with(name)), "{name} is not in {set:?}");
    }
    let sent = begin(&t, "google").await;
    let code = google.agree(&t, &sent.url, proven("g-1", "ada@example.com"));
    let body = json!({ "code": code, "state": sent.state, "options": { "tokenDelivery": "cookie" } });
    let answer = post_back(&t, "google", Some(&sent.cookie), &body).await;
    assert!(answer.body.get("refreshToken").is_none(), "or as at the other doors");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_picture_comes_back_from_the_provider_used_last() {
    let (peer, t) = StandIn::start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let restore = || ada.asks(t.post("/user/avatar/restore-from-oauth"));
    assert_eq!(restore().await.refusal(), (409, "no_linked_picture"));
    for (provider, picture) in [("google", "https://g.example/1"), ("cognito", "https://c.example/2")] {
        t.advance(std::time::Duration::from_secs(1));
        let mut person = proven("1", "ada@example.com");
        person.said["picture"] = json!(picture);
        assert_eq!(sign_in(&peer, &t, provider, person).await.status, 200);
    }
    assert!(ada.asks(t.get("/auth/me")).await.body["avatarUrl"].is_null(), "linking changes nothing that is shown");
    t.happened().await;
    let restored = restore().await;
    assert_eq!(
        (restored.status, &restored.body["avatarUrl"]),
        (200, &json!("https://c.example/2")),
        "{}",
        restored.text
    );
    t.expects(&["PROFILE_UPDATED"]).await;
    assert_eq!(ada.asks(t.get("/auth/me")).await.body["avatarUrl"], "https://c.example/2");
    t.advance(std::time::Duration::from_secs(1));
    assert_eq!(sign_in(&peer, &t, "google", proven("1", "ada@example.com")).await.status, 200);
    assert_eq!(restore().await.body["avatarUrl"], "https://g.example/1");
    t.run_jobs().await;
    t.finish().await;
}
