//! What cannot be undone needs a proof as strong as the strongest the person has.
use std::time::Duration;

use axum::http::Method;
use kernel::testing::{Answer, TestJanua};
use serde_json::{Value, json};

use super::{
    actors::*,
    factors::{careful, ticket, verify},
    lockout::solve,
    passkeys::{Holder, add, come_in, login_options},
};

const ADA: &str = "ada@example.com";

/// Somebody who signed in by a mailed link just now.
async fn by_link(t: &TestJanua, email: &str) -> Person {
    t.post("/auth/magic-link/request").json(&json!({ "email": email })).await;
    t.run_jobs().await;
    let token = token_in(&mail_to(t, email).unwrap());
    let body = json!({ "token": token, "options": { "tokenDelivery": "body" } });
    Person::of(&t.post("/auth/magic-link/verify").json(&body).header("user-agent", FIREFOX).await)
}

/// What cannot be undone, each tried with the same proof.
async fn acts(t: &TestJanua, person: &Person, passkey: &str, proof: &Value) -> Vec<Answer> {
    let mut answers = vec![];
    for (method, path) in [
        (Method::POST, "/auth/passkey/register-options".to_owned()),
        (Method::DELETE, format!("/auth/passkey/{passkey}")),
        (Method::POST, "/auth/2fa/setup".to_owned()),
        (Method::DELETE, "/auth/me".to_owned()),
    ] {
        answers.push(person.asks(t.ask(method, &path).json(proof)).await);
    }
    answers
}

#[tokio::test]
async fn a_proof_alone_counts_in_its_session() {
    let t = start().await;
    let ada = signed_in(&t, ADA).await;
    let other = Person::of(&login(&t, ADA, PASSWORD).await);
    let reauthenticate = "/auth/reauthenticate";
    assert_eq!(t.post(reauthenticate).await.status, 401);
    assert_eq!(ada.asks(t.post(reauthenticate)).await.status, 204, "the sign-in was just now");
    for (untrue, code) in
        [(json!({ "password": "not it at all" }), "wrong_password"), (json!({ "code": "123456" }), "wrong_code")]
    {
        let refused = ada.asks(t.post(reauthenticate).json(&untrue)).await;
        assert_eq!(refused.refusal(), (403, code), "what is given has to be right");
    }
    t.advance(Duration::from_mins(11));
    let stale = ada.asks(t.post(reauthenticate)).await;
    assert_eq!(stale.refusal(), (403, "reauthentication_required"));
    assert_eq!(stale.body["methods"], json!(["password"]));
    let wrong = ada.asks(t.post(reauthenticate).json(&json!({ "password": "not it at all" }))).await;
    assert_eq!(wrong.refusal(), (403, "wrong_password"));
    let right = ada.asks(t.post(reauthenticate).json(&json!({ "password": PASSWORD }))).await;
    assert_eq!((right.status, right.text.as_str()), (204, ""));
    let set_up = |person: &Person| person.asks(t.post("/auth/2fa/setup"));
    assert_eq!(set_up(&other).await.refusal(), (403, "reauthentication_required"), "another session proved nothing");
    assert_eq!(set_up(&ada).await.status, 200);
    // A password is weaker than a second factor.
    let bob = careful(&t, "bob@example.com").await;
    t.advance(Duration::from_mins(11));
    let weak = bob.person.asks(t.post(reauthenticate).json(&json!({ "password": PASSWORD }))).await;
    assert_eq!(weak.refusal(), (403, "reauthentication_required"));
    let strong = bob.person.asks(t.post(reauthenticate).json(&json!({ "code": bob.code(&t) }))).await;
    assert_eq!(strong.status, 204);
    let untrue = bob.person.asks(t.post(reauthenticate).json(&json!({ "password": "not it at all" }))).await;
    assert_eq!(untrue.refusal(), (403, "wrong_password"), "though something stronger was proven just now");
    let right = bob.person.asks(t.post(reauthenticate).json(&json!({ "password": PASSWORD }))).await;
    assert_eq!(right.status, 204);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn wrong_proofs_run_out_of_tries() {
    let t = start().await;
    let ada = signed_in(&t, ADA).await;
    t.advance(Duration::from_mins(11));
    t.happened().await;
    let wrong = || t.post("/auth/reauthenticate").json(&json!({ "password": "not it at all" }));
    for _ in 0..5 {
        assert_eq!(ada.asks(wrong()).await.refusal(), (403, "wrong_password"));
    }
    for _ in 5..10 {
        let refused = ada.asks(wrong()).await;
        assert_eq!(refused.refusal(), (403, "captcha_required"));
        let pass = solve(&t, &refused).await;
        let tried = ada.asks(wrong().header("x-service-captcha-pass", &pass)).await;
        assert_eq!(tried.refusal(), (403, "wrong_password"));
    }
    assert_eq!(ada.asks(wrong()).await.refusal(), (429, "rate_limited"), "a stolen session is no way to guess");
    t.run_jobs().await;
    let happened = t.happened().await;
    assert_eq!(happened.iter().filter(|kind| *kind == "SIGN_IN_FAILED").count(), 10, "{happened:?}");
    assert_eq!(happened.iter().filter(|kind| *kind == "SIGN_IN_LOCKED").count(), 1, "{happened:?}");
    assert!(mail_to(&t, ADA).unwrap().contains("wrong password was entered ten times"));
    t.finish().await;
}

#[tokio::test]
async fn a_mailed_link_is_not_enough_for_somebody_with_a_password() {
    let t = start().await;
    member(&t, ADA).await;
    let weak = by_link(&t, ADA).await;
    for answer in acts(&t, &weak, "none", &json!({})).await {
        assert_eq!(answer.refusal(), (403, "reauthentication_required"));
        assert_eq!(answer.body["methods"], json!(["password"]), "{}", answer.text);
    }
    let asked = weak.asks(t.post("/auth/passkey/register-options").json(&json!({ "password": PASSWORD }))).await;
    assert_eq!(asked.status, 200, "{}", asked.text);
    assert_eq!(weak.asks(t.post("/auth/2fa/setup")).await.status, 200, "proven for ten minutes");
    t.advance(Duration::from_mins(11));
    assert_eq!(weak.asks(t.post("/auth/2fa/setup")).await.refusal(), (403, "reauthentication_required"));
    t.finish().await;
}

#[tokio::test]
async fn neither_a_link_nor_a_password_is_enough_for_somebody_with_a_passkey() {
    let t = start().await;
    let ada = signed_in(&t, ADA).await;
    let mut holder = Holder::new();
    let id = add(&t, &ada, &mut holder).await;
    add(&t, &ada, &mut Holder::new()).await;
    let by_link = by_link(&t, ADA).await;
    let by_password = Person::of(&login(&t, ADA, PASSWORD).await);
    for person in [&by_link, &by_password] {
        for proof in [json!({}), json!({ "password": PASSWORD }), json!({ "code": "123456" })] {
            for answer in acts(&t, person, &id, &proof).await {
                let is_refused = answer.status == 403;
                assert!(is_refused, "{}", answer.text);
                if answer.refusal().1 == "reauthentication_required" {
                    assert_eq!(answer.body["methods"], json!(["passkey"]), "{}", answer.text);
                }
            }
        }
    }
    let strong = Person::of(&come_in(&t, &holder.sign(login_options(&t).await).await.unwrap()).await);
    let gone = strong.asks(t.ask(Method::DELETE, &format!("/auth/passkey/{id}"))).await;
    assert_eq!(gone.status, 204, "{}", gone.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_factor_is_switched_off_by_a_code_however_fresh_the_session_is() {
    let t = start().await;
    let ada = careful(&t, ADA).await;
    for body in [json!({}), json!({ "password": PASSWORD })] {
        let refused = ada.person.asks(t.post("/auth/2fa/disable").json(&body)).await;
        assert_eq!(refused.refusal(), (403, "reauthentication_required"), "in the session that switched it on");
        assert_eq!(refused.body["methods"], json!(["totp", "recovery"]), "{}", refused.text);
    }
    let waiting = ticket(&login(&t, ADA, PASSWORD).await);
    let fresh = Person::of(&verify(&t, &waiting, &ada.code(&t)).await);
    assert_eq!(fresh.asks(t.post("/auth/2fa/disable")).await.refusal(), (403, "reauthentication_required"));
    let off = fresh.asks(t.post("/auth/2fa/disable").json(&json!({ "code": ada.recovery_codes[0] }))).await;
    assert_eq!(off.status, 204, "a recovery code is for those who lost the app: {}", off.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_trusted_device_has_proven_a_password_alone() {
    let t = start().await;
    let ada = careful(&t, ADA).await;
    let waiting = ticket(&login(&t, ADA, PASSWORD).await);
    let body = json!({ "mfaTicket": waiting, "code": ada.code(&t), "trustDevice": true });
    let answer = t.post("/auth/2fa/login-verify").json(&body).await;
    let mut lines = answer.headers.get_all("set-cookie").iter().map(|line| line.to_str().unwrap());
    let cookie = lines.find(|line| line.starts_with("service_mfa_trusted=")).unwrap().split(';').next().unwrap();
    let body = json!({ "email": ADA, "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    let known = Person::of(&t.post("/auth/login").json(&body).header("cookie", cookie).await);
    let refused = known.asks(t.ask(Method::DELETE, "/auth/me")).await;
    assert_eq!(refused.refusal(), (403, "reauthentication_required"));
    t.advance(Duration::from_secs(30));
    let done = known.asks(t.ask(Method::DELETE, "/auth/me").json(&json!({ "code": ada.code(&t) }))).await;
    assert_eq!(done.status, 204, "{}", done.text);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_old_second_factor_and_a_new_password_are_no_fresh_second_factor() {
    let t = start().await;
    let ada = careful(&t, ADA).await;
    let old = Person::of(&verify(&t, &ticket(&login(&t, ADA, PASSWORD).await), &ada.code(&t)).await);
    t.advance(Duration::from_mins(11));
    let off = ada.person.asks(t.post("/auth/2fa/disable").json(&json!({ "code": ada.code(&t) }))).await;
    assert_eq!(off.status, 204, "{}", off.text);
    // Now a password is the strongest there is.
    let set_up = old.asks(t.post("/auth/2fa/setup").json(&json!({ "password": PASSWORD }))).await;
    assert_eq!(set_up.status, 200, "{}", set_up.text);
    let set_up = ada.person.asks(t.post("/auth/2fa/setup")).await;
    let totp = totp_rs::Totp::from_url(set_up.body["otpauthUri"].as_str().unwrap()).unwrap();
    let code = totp.generate(u64::try_from(t.janua.clock.now().0 / 1000).unwrap()).to_string();
    assert_eq!(ada.person.asks(t.post("/auth/2fa/enable").json(&json!({ "code": code }))).await.status, 200);
    for answer in acts(&t, &old, "none", &json!({})).await {
        assert_eq!(answer.refusal(), (403, "reauthentication_required"), "{}", answer.text);
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_old_passkey_and_a_new_code_switch_no_factor_off() {
    let t = start().await;
    let ada = careful(&t, ADA).await;
    let mut holder = Holder::new();
    add(&t, &ada.person, &mut holder).await;
    let old = Person::of(&come_in(&t, &holder.sign(login_options(&t).await).await.unwrap()).await);
    t.advance(Duration::from_mins(11));
    let proven = old.asks(t.post("/auth/2fa/setup").json(&json!({ "code": ada.code(&t) }))).await;
    assert_eq!(proven.status, 200, "{}", proven.text);
    let off = old.asks(t.post("/auth/2fa/disable")).await;
    assert_eq!(off.refusal(), (403, "reauthentication_required"), "the code comes with the request");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_device_let_in_from_a_trusted_one_has_proven_no_second_factor() {
    let t = start().await;
    let ada = careful(&t, ADA).await;
    let waiting = ticket(&login(&t, ADA, PASSWORD).await);
    let body = json!({ "mfaTicket": waiting, "code": ada.code(&t), "trustDevice": true });
    let answer = t.post("/auth/2fa/login-verify").json(&body).await;
    let mut lines = answer.headers.get_all("set-cookie").iter().map(|line| line.to_str().unwrap());
    let cookie = lines.find(|line| line.starts_with("service_mfa_trusted=")).unwrap().split(';').next().unwrap();
    let body = json!({ "email": ADA, "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    let known = Person::of(&t.post("/auth/login").json(&body).header("cookie", cookie).await);
    let begun = t.post("/auth/device/code").await.body;
    let approve = json!({ "user_code": begun["user_code"] });
    assert_eq!(known.asks(t.post("/auth/device/verify").json(&approve)).await.status, 200);
    let poll = json!({ "device_code": begun["device_code"] });
    let device = Person::of(&t.post("/auth/device/token").json(&poll).await);
    let sessions = device.asks(t.get("/auth/sessions")).await;
    let current = sessions.body["sessions"].as_array().unwrap().iter().find(|one| one["current"] == true).unwrap();
    assert_eq!(current["methods"], json!(["device", "trusted"]));
    let begun = t.post("/auth/device/code").await.body;
    let approve = json!({ "user_code": begun["user_code"] });
    assert_eq!(ada.person.asks(t.post("/auth/device/verify").json(&approve)).await.status, 200);
    let poll = json!({ "device_code": begun["device_code"] });
    let device = Person::of(&t.post("/auth/device/token").json(&poll).await);
    let sessions = device.asks(t.get("/auth/sessions")).await;
    let current = sessions.body["sessions"].as_array().unwrap().iter().find(|one| one["current"] == true).unwrap();
    assert_eq!(current["methods"], json!(["device", "mfa"]), "where one was proven it is said");
    t.run_jobs().await;
    t.finish().await;
}
