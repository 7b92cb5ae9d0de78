//! One tap, forged in every way, and the gate of the second factor behind both doors.
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use kernel::testing::{Answer, TestJanua, join_all};
use serde_json::{Value, json};

use super::{actors::*, providers::*};

async fn tap(t: &TestJanua, token: &str) -> Answer {
    t.post("/auth/oauth/google/onetap").json(&json!({ "idToken": token })).header("user-agent", FIREFOX).await
}

#[tokio::test]
async fn one_tap_signs_in_as_the_long_way_does() {
    let (google, t) = StandIn::start().await;
    let token = signed(&header(), &google.claims(&t, "google", &proven("g-1", "ada@example.com")));
    let answer = tap(&t, &token).await;
    assert_eq!((answer.status, &answer.body["isNewUser"]), (200, &json!(true)), "{}", answer.text);
    assert_eq!(answer.body["user"]["googleId"], "g-1");
    t.expects(&["ACCOUNT_CREATED", "EMAIL_VERIFIED", "SOCIAL_LINKED", "SIGNED_IN"]).await;
    let long = sign_in(&google, &t, "google", proven("g-1", "ada@example.com")).await;
    assert_eq!(Person::of(&long).id, Person::of(&answer).id);
    t.advance(Duration::from_secs(1));
    let token = signed(&header(), &google.claims(&t, "google", &proven("g-1", "ada@example.com")));
    let body = json!({ "idToken": token });
    let answer = t.post("/auth/oauth/google/onetap?setCookie=true").json(&body).await;
    assert_eq!((answer.status, answer.body.get("refreshToken")), (200, None));
    assert!(answer.header("set-cookie").starts_with("service_access="));
    let elsewhere = t.post("/auth/oauth/cognito/onetap").json(&body).await;
    assert_eq!(elsewhere.refusal(), (404, "not_found"), "one provider has it");
    t.run_jobs().await;
    t.finish().await;
}

/// HS256 over the text, with a key that everybody can read.
fn hs256(header: &Value, claims: &Value, key: &[u8]) -> String {
    let text = format!("{}.{}", encoded(header), encoded(claims));
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, key);
    format!("{text}.{}", BASE64URL_NOPAD.encode(aws_lc_rs::hmac::sign(&key, text.as_bytes()).as_ref()))
}

#[tokio::test]
async fn p24_a_forged_token_is_none() {
    let (google, t) = StandIn::start().await;
    let good = google.claims(&t, "google", &proven("g-1", "ada@example.com"));
    let now = t.janua.clock.now().0 / 1000;
    let with = |changes: Value| {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        signed(&header(), &claims)
    };
    let headed = |changes: Value| {
        let mut header = header();
        header.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        header
    };
    let unsigned = format!("{}.{}.", encoded(&headed(json!({ "alg": "none" }))), encoded(&good));
    let (text, signature) =
        signed(&header(), &good).rsplit_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let mut forged = good.clone();
    forged["sub"] = json!("g-2");
    let grafted = format!("{}.{}.{signature}", encoded(&header()), encoded(&forged));
    for (token, why) in [
        (with(json!({ "aud": "another" })), "for somebody else"),
        (with(json!({ "aud": null })), "for nobody"),
        (with(json!({ "aud": ["google-id", "another"] })), "for us among others"),
        (with(json!({ "iss": "https://evil.example" })), "from somebody else"),
        (with(json!({ "iss": null })), "from nobody"),
        (with(json!({ "exp": now - 61 })), "run out"),
        (with(json!({ "exp": null })), "for ever"),
        (with(json!({ "iat": now + 61 })), "from the future"),
        (with(json!({ "iat": null })), "of no time"),
        (with(json!({ "nbf": now + 61 })), "not yet"),
        (unsigned, "not signed"),
        (format!("{text}."), "signature cut off"),
        (grafted, "another's signature"),
        (hs256(&headed(json!({ "alg": "HS256" })), &good, &public_key()), "signed with the public key"),
        (hs256(&headed(json!({ "alg": "HS256", "kid": "shared" })), &good, b"everybody knows"), "with a shared key"),
        (signed(&headed(json!({ "alg": "RS512" })), &good), "another algorithm than the key's"),
        (signed(&headed(json!({ "kid": "unknown" })), &good), "an unknown key"),
        (signed(&headed(json!({ "kid": null })), &good), "no key named"),
        ("x".to_owned(), "no token"),
        ("a.b.c".to_owned(), "no token either"),
    ] {
        assert_eq!(tap(&t, &token).await.refusal(), (401, "invalid_id_token"), "{why}");
    }
    let empty = t.post("/auth/oauth/google/onetap").json(&json!({})).await;
    assert_eq!((empty.refusal(), empty.wrong_fields()), ((400, "invalid"), vec!["idToken"]));
    t.expects(&[]).await;
    assert_eq!(tap(&t, &signed(&header(), &good)).await.status, 200, "the token itself was right all along");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p24_a_token_works_once() {
    let (google, t) = StandIn::start().await;
    let token = signed(&header(), &google.claims(&t, "google", &proven("g-1", "ada@example.com")));
    let answers = join_all((0..16).map(|_| tap(&t, &token))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
    assert_eq!(tap(&t, &token).await.refusal(), (401, "invalid_id_token"), "replayed");
    // Forgotten only when it would not be good any more.
    t.advance(Duration::from_hours(1));
    assert_eq!(tap(&t, &token).await.refusal(), (401, "invalid_id_token"));
    t.run_jobs().await;
    assert_eq!(tap(&t, &token).await.refusal(), (401, "invalid_id_token"));
    t.finish().await;
}

#[tokio::test]
async fn p24_keys_are_asked_for_again_but_not_for_everybody_who_makes_one_up() {
    let (google, t) = StandIn::start().await;
    let asked = || google.inner.lock().unwrap().keys_asked;
    let token = || signed(&header(), &google.claims(&t, "google", &proven("g-1", "ada@example.com")));
    let odd =
        signed(&json!({ "alg": "RS256", "kid": "made-up" }), &google.claims(&t, "google", &proven("1", "a@b.c")));
    assert_eq!((tap(&t, &token()).await.status, asked()), (200, 1));
    for _ in 0..5 {
        assert_eq!(tap(&t, &odd).await.status, 401);
    }
    assert_eq!(asked(), 1, "just asked");
    t.advance(Duration::from_mins(1));
    for _ in 0..5 {
        assert_eq!(tap(&t, &odd).await.status, 401);
    }
    assert_eq!(asked(), 2, "once a minute");
    t.advance(Duration::from_mins(59));
    assert_eq!((tap(&t, &token()).await.status, asked()), (200, 2));
    t.advance(Duration::from_mins(1));
    google.inner.lock().unwrap().broken = Some((axum::http::StatusCode::BAD_GATEWAY, json!({})));
    assert_eq!(tap(&t, &token()).await.refusal(), (502, "provider_unavailable"), "too old to go on with");
    google.inner.lock().unwrap().broken = None;
    assert_eq!(tap(&t, &token()).await.refusal(), (502, "provider_unavailable"), "a short rest after a failure");
    t.advance(Duration::from_secs(5));
    assert_eq!(tap(&t, &token()).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p36_a_second_factor_is_asked_for_behind_both_doors() {
    let (google, t) = StandIn::start().await;
    let ada = super::factors::careful(&t, "ada@example.com").await;
    let waits = |answer: &Answer| {
        assert_eq!((answer.status, &answer.body["requiresMfa"]), (200, &json!(true)), "{}", answer.text);
        assert!(answer.body.get("accessToken").is_none() && answer.body.get("user").is_none(), "{}", answer.text);
        let set: Vec<_> = answer.headers.get_all("set-cookie").iter().collect();
        assert!(set.iter().all(|line| line.to_str().unwrap().starts_with("service_oauth=;")), "{set:?}");
        answer.body["mfaTicket"].as_str().unwrap().to_owned()
    };
    let before = t.happened().await.len();
    let long = sign_in(&google, &t, "google", proven("g-1", "ada@example.com")).await;
    waits(&long);
    t.expects(&["SOCIAL_LINKED"]).await;
    assert!(before > 0);
    let token = signed(&header(), &google.claims(&t, "google", &proven("g-1", "ada@example.com")));
    let ticket = waits(&tap(&t, &token).await);
    t.expects(&[]).await;
    let body = json!({ "mfaTicket": ticket, "code": ada.code(&t) });
    let done = t.post("/auth/2fa/login-verify").json(&body).header("user-agent", FIREFOX).await;
    let person = Person::of(&done);
    let sessions = person.asks(t.get("/auth/sessions")).await;
    assert_eq!(sessions.body["sessions"][0]["methods"], json!(["social", "otp", "mfa"]));
    assert_eq!(done.body["user"]["googleId"], "g-1");
    t.run_jobs().await;
    t.finish().await;
}
