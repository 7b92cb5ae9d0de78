//! Programs without a keyboard, and the people who let them in.
use std::time::Duration;

use kernel::testing::{Answer, TestJanua, join_all};
use serde_json::{Value, json};

use super::actors::*;

async fn begin(t: &TestJanua) -> Value {
    let begun = t.post("/auth/device/code").header("user-agent", FIREFOX).from("198.51.100.7").await;
    assert_eq!(begun.status, 200, "{}", begun.text);
    begun.body
}

async fn poll(t: &TestJanua, begun: &Value) -> Answer {
    t.post("/auth/device/token").json(&json!({ "device_code": begun["device_code"] })).await
}

async fn decide(t: &TestJanua, person: &Person, code: &str, approve: bool) -> Answer {
    person.asks(t.post("/auth/device/verify").json(&json!({ "user_code": code, "approve": approve }))).await
}

fn user_code(begun: &Value) -> String {
    begun["user_code"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_program_is_let_in_by_the_code_it_shows() {
    let t = start().await;
    let person = signed_in(&t, "ada@example.com").await;
    t.expects(&["ACCOUNT_CREATED", "EMAIL_VERIFIED", "SIGNED_IN"]).await;
    let begun = begin(&t).await;
    let code = user_code(&begun);
    assert!(code.len() == 9 && code.chars().all(|c| c == '-' || "BCDFGHJKLMNPQRSTVWXZ".contains(c)), "{code}");
    assert_eq!(begun["verification_uri"], "http://localhost:0/device");
    assert_eq!((&begun["expires_in"], &begun["interval"]), (&json!(600), &json!(5)));
    let typed = code.to_lowercase().replace('-', " ");
    let decided = decide(&t, &person, &typed, true).await;
    assert_eq!((decided.status, &decided.body["ip"]), (200, &json!("198.51.100.7")), "{}", decided.text);
    assert_eq!(decided.body["device"], "Firefox on Linux");
    let tokens = poll(&t, &begun).await;
    let program = Person::of(&tokens);
    // The same under the names of the standard (RFC 8628, 3.5).
    assert_eq!(
        (&tokens.body["access_token"], &tokens.body["refresh_token"]),
        (&json!(program.access), &json!(program.refresh))
    );
    assert_eq!((&tokens.body["token_type"], &tokens.body["expires_in"]), (&json!("Bearer"), &json!(900)));
    assert_eq!(tokens.body.get("scope"), None, "a program of the person's own is not limited to scopes");
    assert_eq!(program.asks(t.get("/auth/me")).await.body["email"], "ada@example.com");
    t.expects(&["DEVICE_APPROVED", "SIGNED_IN"]).await;
    assert_eq!(decide(&t, &person, &code, true).await.refusal(), (404, "no_such_code"), "decided once");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p20_a_question_has_five_answers() {
    let t = start().await;
    let person = signed_in(&t, "ada@example.com").await;
    let begun = begin(&t).await;
    let first = poll(&t, &begun).await;
    assert_eq!(first.refusal(), (400, "authorization_pending"));
    assert_eq!(first.body["error"], "authorization_pending", "as the standard names it");
    assert!(first.body["error_description"].is_string());
    let form = format!("grant_type=x&device_code={}", begun["device_code"].as_str().unwrap());
    let ask = t.post("/auth/device/token").header("content-type", "application/x-www-form-urlencoded").body(form);
    assert_eq!(ask.await.refusal(), (400, "slow_down"), "as clients of the standard send it");
    t.advance(Duration::from_secs(11));
    assert_eq!(poll(&t, &begun).await.refusal(), (400, "authorization_pending"));
    t.advance(Duration::from_secs(4));
    assert_eq!(poll(&t, &begun).await.refusal(), (400, "slow_down"));
    t.advance(Duration::from_secs(9));
    assert_eq!(poll(&t, &begun).await.refusal(), (400, "slow_down"), "five seconds longer from then on");
    t.advance(Duration::from_secs(20));
    assert_eq!(poll(&t, &begun).await.refusal(), (400, "authorization_pending"));
    assert_eq!(decide(&t, &person, &user_code(&begun), false).await.body["approved"], false);
    assert_eq!(poll(&t, &begun).await.refusal(), (400, "access_denied"));
    let late = begin(&t).await;
    t.advance(Duration::from_secs(601));
    assert_eq!(poll(&t, &late).await.refusal(), (400, "expired_token"));
    assert_eq!(decide(&t, &person, &user_code(&late), true).await.refusal(), (404, "no_such_code"));
    let unknown = json!({ "device_code": "nobody" });
    assert_eq!(poll(&t, &unknown).await.refusal(), (400, "invalid_grant"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p21_an_approval_is_good_for_one() {
    let t = start().await;
    let person = signed_in(&t, "ada@example.com").await;
    for _ in 0..3 {
        let begun = begin(&t).await;
        assert_eq!(decide(&t, &person, &user_code(&begun), true).await.status, 200);
        let answers = join_all((0..16).map(|_| poll(&t, &begun))).await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
        assert_eq!(poll(&t, &begun).await.refusal(), (400, "invalid_grant"));
    }
    let begun = begin(&t).await;
    assert_eq!(decide(&t, &person, &user_code(&begun), true).await.status, 200);
    let change = json!({ "currentPassword": PASSWORD, "newPassword": format!("{PASSWORD} 2") });
    assert_eq!(person.asks(t.post("/auth/change-password").json(&change)).await.status, 204);
    assert_eq!(poll(&t, &begun).await.refusal(), (400, "access_denied"), "nothing outlives a changed password");
    let begun = begin(&t).await;
    assert_eq!(decide(&t, &person, &user_code(&begun), true).await.status, 200);
    assert_eq!(person.asks(t.ask(axum::http::Method::DELETE, "/auth/sessions")).await.status, 204);
    assert_eq!(poll(&t, &begun).await.refusal(), (400, "access_denied"), "nor the end of all sessions");
    let person = Person::of(&login(&t, "ada@example.com", &format!("{PASSWORD} 2")).await);
    let begun = begin(&t).await;
    assert_eq!(decide(&t, &person, &user_code(&begun), true).await.status, 200);
    assert_eq!(person.asks(t.ask(axum::http::Method::DELETE, "/auth/me")).await.status, 204);
    assert_eq!(poll(&t, &begun).await.status, 400, "who approved it is gone");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p19_codes_are_not_guessed() {
    let t = start().await;
    let person = signed_in(&t, "ada@example.com").await;
    let begun = begin(&t).await;
    for i in 0..10 {
        assert_eq!(decide(&t, &person, "BBBB-BBBB", true).await.refusal(), (404, "no_such_code"), "{i}");
    }
    let right = decide(&t, &person, &user_code(&begun), true).await;
    assert_eq!(right.refusal(), (429, "rate_limited"), "the right one too");
    assert_eq!(poll(&t, &begun).await.refusal(), (400, "authorization_pending"));
    t.advance(Duration::from_mins(16));
    let begun = begin(&t).await;
    let person = Person::of(&refresh(&t, &person.refresh).await);
    assert_eq!(decide(&t, &person, &user_code(&begun), true).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p36_p41_a_device_has_proven_what_whoever_let_it_in_had() {
    let t = start().await;
    let person = signed_in(&t, "ada@example.com").await;
    t.advance(Duration::from_mins(11));
    let begun = begin(&t).await;
    assert_eq!(decide(&t, &person, &user_code(&begun), true).await.status, 200);
    let device = Person::of(&poll(&t, &begun).await);
    let stale = device.asks(t.ask(axum::http::Method::DELETE, "/auth/me")).await;
    assert_eq!(stale.refusal(), (403, "reauthentication_required"), "nothing is fresher for having been passed on");
    // A second factor that came later is proven by neither.
    let careful = super::factors::careful(&t, "bob@example.com").await;
    let begun = begin(&t).await;
    let body = json!({ "user_code": user_code(&begun), "code": careful.code(&t) });
    assert_eq!(careful.before.asks(t.post("/auth/device/verify").json(&body)).await.status, 200);
    let strong = Person::of(&poll(&t, &begun).await);
    let asked = strong.asks(t.post("/auth/passkey/register-options")).await;
    assert_eq!(
        asked.refusal(),
        (403, "reauthentication_required"),
        "it proved nothing itself, however lately they did"
    );
    for path in ["/auth/2fa/disable", "/auth/2fa/recovery-codes/regenerate"] {
        let answer = strong.asks(t.post(path).json(&json!({}))).await;
        assert!(matches!(answer.status, 400 | 403), "{path}: {}", answer.text);
    }
    let cyd = signed_in(&t, "cyd@example.com").await;
    let begun = begin(&t).await;
    assert_eq!(decide(&t, &cyd, &user_code(&begun), true).await.status, 200);
    let weak = Person::of(&poll(&t, &begun).await);
    let waiting = begin(&t).await;
    assert_eq!(decide(&t, &cyd, &user_code(&waiting), true).await.status, 200);
    let set_up = cyd.asks(t.post("/auth/2fa/setup")).await;
    let totp = totp_rs::Totp::from_url(set_up.body["otpauthUri"].as_str().unwrap()).unwrap();
    let code = totp.generate(u64::try_from(t.janua.clock.now().0 / 1000).unwrap()).to_string();
    assert_eq!(cyd.asks(t.post("/auth/2fa/enable").json(&json!({ "code": code }))).await.status, 200);
    assert_eq!(poll(&t, &waiting).await.refusal(), (400, "invalid_grant"), "let in before the factor was there");
    for (path, body) in [
        ("/auth/device/verify", json!({ "user_code": user_code(&begin(&t).await) })),
        ("/auth/passkey/register-options", json!({ "password": PASSWORD })),
        ("/auth/2fa/setup", json!({ "password": PASSWORD })),
        ("/auth/2fa/disable", json!({ "password": PASSWORD })),
        ("/auth/2fa/recovery-codes/regenerate", json!({ "password": PASSWORD })),
        ("/auth/mfa/sms/enroll", json!({ "phone": "+41446681800", "password": PASSWORD })),
    ] {
        let answer = weak.asks(t.post(path).json(&body)).await;
        assert_eq!(answer.refusal(), (403, "reauthentication_required"), "{path}: {}", answer.text);
    }
    assert_eq!(cyd.asks(t.get("/auth/me")).await.body["mfaEnabled"], true);
    t.run_jobs().await;
    t.finish().await;
}
