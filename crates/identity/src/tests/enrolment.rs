//! What was begun to add a factor ends with a fresh proof, and does not outlive a change to what the person proves
//! themselves with.
use std::time::Duration;

use axum::http::Method;
use kernel::testing::TestJanua;
use serde_json::{Value, json};

use super::{
    actors::*,
    factors::{texted, ticket, verify},
    passkeys::{Holder, add, keep, options},
};

const ADA: &str = "ada@example.com";
const PHONE: &str = "+41446681800";

async fn enroll(t: &TestJanua, person: &Person) -> String {
    let sent = person.asks(t.post("/auth/mfa/sms/enroll").json(&json!({ "phone": PHONE }))).await;
    assert_eq!(sent.status, 200, "{}", sent.text);
    t.run_jobs().await;
    texted(t, PHONE)
}

#[tokio::test]
async fn a_phone_and_a_passkey_are_added_by_a_fresh_proof_at_the_end_too() {
    let t = start().await;
    let ada = signed_in(&t, ADA).await;
    let mut holder = Holder::new();
    t.advance(Duration::from_mins(8));
    let code = enroll(&t, &ada).await;
    let made = holder.make(options(&t, &ada).await).await.unwrap();
    t.advance(Duration::from_mins(3));
    let verify = |body: Value| ada.asks(t.post("/auth/mfa/sms/verify").json(&body)).send();
    assert_eq!(verify(json!({ "code": code })).await.refusal(), (403, "reauthentication_required"));
    assert_eq!(keep(&t, &ada, &made).await.refusal(), (403, "reauthentication_required"));
    assert_eq!(ada.asks(t.get("/auth/me")).await.body["mfaSmsEnabled"], false);

    let body = json!({ "credential": made, "password": PASSWORD });
    let kept = ada.asks(t.post("/auth/passkey/register-verify").json(&body)).await;
    assert_eq!(kept.status, 200, "what was begun is not lost by that: {}", kept.text);
    let code = enroll(&t, &ada).await;
    let done = verify(json!({ "code": code })).await;
    assert_eq!(done.status, 200, "{}", done.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_phone_is_added_with_the_password_in_the_request() {
    let t = start().await;
    let ada = signed_in(&t, ADA).await;
    t.advance(Duration::from_mins(8));
    let code = enroll(&t, &ada).await;
    t.advance(Duration::from_mins(3));
    let body = json!({ "code": code, "password": PASSWORD });
    let done = ada.asks(t.post("/auth/mfa/sms/verify").json(&body)).await;
    assert_eq!(done.status, 200, "{}", done.text);
    t.run_jobs().await;
    t.finish().await;
}

/// Begins everything that can be begun.
struct Begun {
    texted: String,
    made: Value,
    totp: totp_rs::Totp,
}

async fn begin(t: &TestJanua, person: &Person, holder: &mut Holder) -> Begun {
    let set_up = person.asks(t.post("/auth/2fa/setup")).await;
    let totp = totp_rs::Totp::from_url(set_up.body["otpauthUri"].as_str().unwrap()).unwrap();
    let made = holder.make(options(t, person).await).await.unwrap();
    Begun { texted: enroll(t, person).await, made, totp }
}

/// Nothing of it can be finished.
async fn is_void(t: &TestJanua, person: &Person, begun: &Begun, why: &str) {
    let sms = person.asks(t.post("/auth/mfa/sms/verify").json(&json!({ "code": begun.texted }))).await;
    assert_eq!(sms.refusal(), (403, "wrong_code"), "{why}");
    assert_eq!(keep(t, person, &begun.made).await.refusal(), (410, "token_spent"), "{why}");
    let code = begun.totp.generate(u64::try_from(t.janua.clock.now().0 / 1000).unwrap()).to_string();
    let totp = person.asks(t.post("/auth/2fa/enable").json(&json!({ "code": code }))).await;
    assert_eq!(totp.refusal(), (409, "not_set_up"), "{why}");
}

#[tokio::test]
async fn what_was_begun_ends_with_a_change() {
    let t = start().await;
    let ada = signed_in(&t, ADA).await;
    let begun = begin(&t, &ada, &mut Holder::new()).await;
    let change = json!({ "currentPassword": PASSWORD, "newPassword": format!("{PASSWORD} 2") });
    assert_eq!(ada.asks(t.post("/auth/change-password").json(&change)).await.status, 204);
    is_void(&t, &ada, &begun, "after another password").await;

    let begun = begin(&t, &ada, &mut Holder::new()).await;
    assert_eq!(ada.asks(t.ask(Method::DELETE, "/auth/sessions")).await.status, 204);
    let ada = Person::of(&login(&t, ADA, &format!("{PASSWORD} 2")).await);
    is_void(&t, &ada, &begun, "after the end of all sessions").await;

    let begun = begin(&t, &ada, &mut Holder::new()).await;
    add(&t, &ada, &mut Holder::new()).await;
    is_void(&t, &ada, &begun, "after another factor").await;
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_code_to_the_old_phone_and_a_ticket_from_before_end_with_another_phone() {
    let t = start().await;
    let ada = signed_in(&t, ADA).await;
    let code = enroll(&t, &ada).await;
    let on = ada.asks(t.post("/auth/mfa/sms/verify").json(&json!({ "code": code }))).await;
    assert_eq!(on.status, 200, "{}", on.text);
    let waiting = ticket(&login(&t, ADA, PASSWORD).await);
    t.run_jobs().await;
    let to_the_old = texted(&t, PHONE);
    let other = "+41446681801";
    assert_eq!(ada.asks(t.post("/auth/mfa/sms/enroll").json(&json!({ "phone": other }))).await.status, 200);
    t.run_jobs().await;
    let body = json!({ "code": texted(&t, other) });
    assert_eq!(ada.asks(t.post("/auth/mfa/sms/verify").json(&body)).await.status, 200);
    assert_eq!(verify(&t, &waiting, &to_the_old).await.refusal(), (410, "token_spent"));
    let waiting = ticket(&login(&t, ADA, PASSWORD).await);
    assert_eq!(verify(&t, &waiting, &to_the_old).await.refusal(), (401, "invalid_code"));
    t.run_jobs().await;
    t.finish().await;
}
