//! Whose account a provider opens, and everything that must not open it.
use axum::http::StatusCode;
use db::params;
use kernel::testing::{TestJanua, join_all};
use serde_json::{Value, json};

use super::{actors::*, providers::*};

#[tokio::test]
async fn a_tenant_of_microsoft_speaks_for_itself_alone() {
    let (microsoft, t) = StandIn::start().await;
    member(&t, "victim@example.com").await;
    let tenant = "11111111-2222-3333-4444-555555555555";
    let admin = |more: &Value| {
        let mut said = json!({ "sub": "ms-1", "tid": tenant, "email": "victim@example.com", "name": "Eve" });
        said.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        somebody(said)
    };
    // The address in a tenant's token is whatever its administrator wrote there.
    let claimed = sign_in(&microsoft, &t, "microsoft", admin(&json!({ "email_verified": true }))).await;
    assert_eq!(claimed.refusal(), (409, "account_exists"));
    for wrong in ["not-a-tenant", "../11111111-2222-3333-4444-555555", ""] {
        let odd = sign_in(&microsoft, &t, "microsoft", admin(&json!({ "tid": wrong, "xms_edov": true }))).await;
        assert_eq!(odd.refusal(), (401, "invalid_id_token"), "{wrong:?} is no tenant");
    }
    let other = "99999999-2222-3333-4444-555555555555";
    microsoft.inner.lock().unwrap().claims = json!({ "tid": other });
    let other = sign_in(&microsoft, &t, "microsoft", admin(&json!({ "xms_edov": true }))).await;
    assert_eq!(other.refusal(), (401, "invalid_id_token"), "the issuer is of another tenant");
    microsoft.inner.lock().unwrap().claims = json!({});
    let owned = sign_in(&microsoft, &t, "microsoft", admin(&json!({ "xms_edov": "1" }))).await;
    assert_eq!((owned.status, &owned.body["user"]["email"]), (200, &json!("victim@example.com")), "{}", owned.text);
    assert_eq!(owned.body["user"]["microsoftId"], "ms-1");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p22_who_came_first_with_a_strangers_address_gets_nothing() {
    let (google, t) = StandIn::start().await;
    // The worst case: the attacker is even signed in while the address is unproven.
    let eve = signed_in(&t, "victim@example.com").await;
    t.janua.db.exec("UPDATE account SET email_verified = $1", params![false]).await.unwrap();
    assert_eq!(eve.asks(t.get("/auth/me")).await.status, 200);
    t.post("/auth/resend-verification").json(&json!({ "email": "victim@example.com" })).await;
    t.run_jobs().await;
    let link = token_in(&mail_to(&t, "victim@example.com").unwrap());
    t.happened().await;

    let victim = sign_in(&google, &t, "google", proven("g-1", "victim@example.com")).await;
    assert_eq!((victim.status, &victim.body["isNewUser"]), (200, &json!(true)), "{}", victim.text);
    assert_ne!(Person::of(&victim).id, eve.id, "nothing is taken over from the old account");
    t.expects(&[
        "SESSION_REVOKED",
        "ACCOUNT_DELETED",
        "ACCOUNT_CREATED",
        "EMAIL_VERIFIED",
        "SOCIAL_LINKED",
        "SIGNED_IN",
    ])
    .await;
    assert_eq!(eve.asks(t.get("/auth/me")).await.status, 401, "the session is dead");
    assert_eq!(refresh(&t, &eve.refresh).await.status, 401, "so is its refresh token");
    assert_eq!(login(&t, "victim@example.com", PASSWORD).await.refusal(), (401, "invalid_credentials"));
    let verify = t.post("/auth/verify-email").json(&json!({ "token": link })).await;
    assert_eq!(verify.refusal(), (410, "token_spent"), "so is the link that was on its way");
    assert_eq!(rows(&t, "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM account").await, 1);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p23_an_address_links_only_when_both_sides_have_proven_it() {
    let (peer, t) = StandIn::start().await;
    member(&t, "ada@example.com").await;
    t.happened().await;
    for word in [json!(false), json!("false"), json!("0"), Value::Null] {
        let mut claimed = proven("g-evil", "ada@example.com");
        claimed.said["email_verified"] = word.clone();
        let answer = sign_in(&peer, &t, "google", claimed).await;
        assert_eq!(answer.refusal(), (409, "account_exists"), "{word}");
    }
    let mut silent = proven("g-evil", "ADA@example.com");
    silent.said.as_object_mut().unwrap().remove("email_verified");
    assert_eq!(sign_in(&peer, &t, "google", silent).await.refusal(), (409, "account_exists"), "nothing said");
    assert_eq!(rows(&t, "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM social_identity").await, 0);
    t.expects(&[]).await;

    let linked = sign_in(&peer, &t, "google", proven("g-1", "ADA@example.com")).await;
    assert_eq!((linked.status, &linked.body["isNewUser"]), (200, &json!(false)), "{}", linked.text);
    assert_eq!(
        (&linked.body["user"]["authProvider"], &linked.body["user"]["googleId"]),
        (&json!("email"), &json!("g-1"))
    );
    t.expects(&["SOCIAL_LINKED", "SIGNED_IN"]).await;
    t.run_jobs().await;
    assert!(
        mail_to(&t, "ada@example.com").unwrap().contains("Google was connected to your account"),
        "the person is told"
    );
    let by_password = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    assert_eq!(by_password.id, Person::of(&linked).id, "the password still opens it");
    assert_eq!(by_password.asks(t.get("/auth/me")).await.body["googleId"], "g-1");

    // The same id at another provider is somebody else.
    let other = sign_in(&peer, &t, "cognito", proven("g-1", "bob@example.com")).await;
    assert_eq!(other.body["isNewUser"], true);
    assert_ne!(Person::of(&other).id, by_password.id);
    // A second account at the same provider is not let in beside the first.
    let second = sign_in(&peer, &t, "google", proven("g-2", "ada@example.com")).await;
    assert_eq!(second.refusal(), (409, "account_exists"));
    assert_eq!(rows(&t, "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM social_identity").await, 2);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p25_a_code_without_the_state_of_this_browser_opens_nothing() {
    let (google, t) = StandIn::start().await;
    let refused = (400, "invalid_state");
    let mine = begin(&t, "google").await;
    let code = google.agree(&t, &mine.url, proven("g-1", "ada@example.com"));
    let with_state = json!({ "code": code, "state": mine.state });
    assert_eq!(post_back(&t, "google", None, &with_state).await.refusal(), refused, "no cookie");
    let foreign = begin(&t, "google").await;
    let answer = post_back(&t, "google", Some(&foreign.cookie), &with_state).await;
    assert_eq!(answer.refusal(), refused, "another browser's cookie");
    let spent =
        post_back(&t, "google", Some(&foreign.cookie), &json!({ "code": code, "state": foreign.state })).await;
    assert_eq!(spent.refusal(), refused, "which is used up by that");
    for (body, why) in
        [(json!({ "code": "c" }), "no state"), (json!({ "code": "c", "state": "wrong" }), "another state")]
    {
        let sent = begin(&t, "google").await;
        assert_eq!(post_back(&t, "google", Some(&sent.cookie), &body).await.refusal(), refused, "{why}");
    }
    let sent = begin(&t, "google").await;
    let elsewhere = json!({ "code": "c", "state": sent.state, "redirectUri": "http://localhost:0/elsewhere" });
    assert_eq!(post_back(&t, "google", Some(&sent.cookie), &elsewhere).await.refusal(), refused);
    let sent = begin(&t, "cognito").await;
    assert_eq!(come_back(&t, "google", &sent, &code).await.refusal(), refused, "the state of another provider");
    let late = begin(&t, "google").await;
    t.advance(std::time::Duration::from_secs(601));
    assert_eq!(come_back(&t, "google", &late, &code).await.refusal(), refused, "too late");
    assert!(google.inner.lock().unwrap().heard.is_empty(), "the provider was asked nothing");

    let first = begin(&t, "google").await;
    let code = google.agree(&t, &first.url, proven("g-1", "ada@example.com"));
    assert_eq!(come_back(&t, "google", &first, &code).await.status, 200);
    let code = google.agree(&t, &first.url, proven("g-1", "ada@example.com"));
    assert_eq!(come_back(&t, "google", &first, &code).await.refusal(), refused, "used before");
    // Nobody else's page begins one here, by sending the browser or by calling from another site.
    for (name, value) in [("sec-fetch-mode", "navigate"), ("sec-fetch-site", "cross-site")] {
        let planted = t.get("/auth/oauth/google/url?state=planted").header(name, value).await;
        assert_eq!((planted.refusal(), planted.header("set-cookie")), ((403, "cross_site"), ""), "{name}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p25_of_many_at_once_one_wins() {
    let (peer, t) = StandIn::start().await;
    let sent = begin(&t, "google").await;
    let codes: Vec<_> = (0..32).map(|_| peer.agree(&t, &sent.url, proven("g-1", "ada@example.com"))).collect();
    let answers = join_all(codes.iter().map(|code| come_back(&t, "google", &sent, code))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
    assert!(answers.iter().all(|answer| answer.status == 200 || answer.refusal() == (400, "invalid_state")));

    // Many first sign-ins of one person, each from a browser of its own, make one account, with an address and without.
    let facebook = somebody(json!({ "id": "f-1", "name": "Bob", "email": "bob@example.com" }));
    for (provider, person) in [("facebook", facebook), ("google", proven("g-2", "bob@example.com"))] {
        let mut sent = vec![];
        for _ in 0..8 {
            let browser = begin(&t, provider).await;
            let code = peer.agree(&t, &browser.url, person.clone());
            sent.push((browser, code));
        }
        let answers = join_all(sent.iter().map(|(browser, code)| come_back(&t, provider, browser, code))).await;
        let refused: Vec<_> =
            answers.iter().filter(|answer| answer.status != 200).map(|answer| &answer.text).collect();
        assert!(refused.is_empty(), "{refused:?}");
        assert_eq!(answers.iter().filter(|answer| answer.body["isNewUser"] == true).count(), 1);
    }
    assert_eq!(rows(&t, "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM account").await, 3);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_provider_that_fails_leaves_nothing_behind() {
    let (peer, t) = StandIn::start().await;
    for (provider, status, body, refusal) in [
        ("google", 500, json!("down"), (502, "provider_unavailable")),
        ("google", 503, json!({ "error": "temporarily_unavailable" }), (502, "provider_unavailable")),
        ("google", 302, json!({}), (502, "provider_unavailable")),
        ("google", 307, json!({}), (502, "provider_unavailable")),
        ("google", 200, json!({ "token_type": "bearer" }), (502, "provider_unavailable")),
        ("google", 200, json!({ "access_token": "a", "token_type": "bearer" }), (401, "invalid_id_token")),
        ("google", 400, json!({ "error": "invalid_grant" }), (400, "provider_refused")),
        ("google", 401, json!({ "error": "invalid_client" }), (400, "provider_refused")),
        (
            "google",
            400,
            json!({ "error": "invalid_grant", "why": "x".repeat(1 << 20) }),
            (502, "provider_unavailable"),
        ),
        ("github", 200, json!({ "error": "bad_verification_code" }), (400, "provider_refused")),
        ("github", 200, json!({ "access_token": "a", "token_type": "bearer" }), (502, "provider_unavailable")),
    ] {
        peer.inner.lock().unwrap().broken = Some((StatusCode::from_u16(status).unwrap(), body.clone()));
        let answer = sign_in(&peer, &t, provider, proven("1", "ada@example.com")).await;
        assert_eq!(answer.refusal(), refusal, "{provider} {status}");
        assert!(!answer.text.contains("code-"), "{}", answer.text);
    }
    peer.inner.lock().unwrap().broken = None;
    for (claims, why) in [
        (json!({ "nonce": "another" }), "another nonce"),
        (json!({ "nonce": null }), "no nonce"),
        (json!({ "aud": "another" }), "for somebody else"),
        (json!({ "aud": ["google-id", "another"] }), "for us among others"),
        (json!({ "iss": "https://evil.example" }), "from somebody else"),
    ] {
        peer.inner.lock().unwrap().claims = claims;
        let answer = sign_in(&peer, &t, "google", proven("1", "ada@example.com")).await;
        assert_eq!(answer.refusal(), (401, "invalid_id_token"), "{why}");
    }
    // Nobody there at all.
    let away = TestJanua::start_with(
        peer.settings(&[("provider_endpoints", "google.token=http://127.0.0.1:9/token")]),
        feature,
    )
    .await;
    let sent = begin(&away, "google").await;
    assert_eq!(come_back(&away, "google", &sent, "c").await.refusal(), (502, "provider_unavailable"));
    away.finish().await;
    for table in [
        "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM account",
        "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM social_identity",
        "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM audit_event",
    ] {
        assert_eq!(rows(&t, table).await, 0, "{table}");
    }
    t.finish().await;
}
