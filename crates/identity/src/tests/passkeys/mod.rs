//! Passkeys: made, used, copied, stolen, named and removed. The authenticator is a published one; what it would never
//! do is forged by hand.
mod forged;
mod holder;

use std::time::Duration;

use axum::http::Method;
use db::testing::TestDb;
use kernel::{
    config::Config,
    testing::{Answer, TestJanua, join_all},
};
use serde_json::{Value, json};

use super::{
    actors::*,
    factors::{careful, ticket, verify},
};
pub use holder::Holder;

pub async fn options(t: &TestJanua, person: &Person) -> Value {
    let answer = person.asks(t.post("/auth/passkey/register-options")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body
}

pub async fn keep(t: &TestJanua, person: &Person, credential: &Value) -> Answer {
    let body = json!({ "credential": credential });
    person.asks(t.post("/auth/passkey/register-verify").json(&body)).header("user-agent", FIREFOX).await
}

pub async fn login_options(t: &TestJanua) -> Value {
    let answer = t.post("/auth/passkey/login-options").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body
}

pub async fn come_in(t: &TestJanua, credential: &Value) -> Answer {
    let body = json!({ "credential": credential, "options": { "tokenDelivery": "body" } });
    t.post("/auth/passkey/login-verify").json(&body).header("user-agent", FIREFOX).await
}

/// Makes a passkey and has it kept.
pub async fn add(t: &TestJanua, person: &Person, holder: &mut Holder) -> String {
    let made = holder.make(options(t, person).await).await.unwrap();
    let kept = keep(t, person, &made).await;
    assert_eq!(kept.status, 200, "{}", kept.text);
    kept.body["credentialId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_passkey_is_made_used_named_and_removed() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    t.expects(&["ACCOUNT_CREATED", "EMAIL_VERIFIED", "SIGNED_IN"]).await;
    let mut holder = Holder::new();
    let asked = options(&t, &ada).await;
    let asked = &asked["publicKey"];
    assert_eq!((&asked["rp"]["id"], &asked["user"]["name"]), (&json!("localhost"), &json!("ada@example.com")));
    assert_eq!(asked["authenticatorSelection"]["residentKey"], "required");
    assert_eq!(asked["authenticatorSelection"]["userVerification"], "required");
    let id = add(&t, &ada, &mut holder).await;
    t.expects(&["PASSKEY_ADDED"]).await;
    t.run_jobs().await;
    assert!(mail_to(&t, "ada@example.com").unwrap().contains("A passkey was added"));
    let me = ada.asks(t.get("/auth/me")).await;
    assert_eq!(me.body["passkeys"][0]["deviceName"], "Bitwarden", "by its maker's id: {}", me.text);
    assert_eq!(me.body["passkeys"][0]["lastUsedAt"], Value::Null);
    let excluded = &options(&t, &ada).await["publicKey"]["excludeCredentials"];
    assert_eq!(excluded[0]["id"], json!(id));

    t.advance(Duration::from_mins(20));
    let asked = login_options(&t).await;
    assert!(asked.get("mediation").is_none() && asked["publicKey"]["allowCredentials"] == json!([]), "{asked}");
    let answer = come_in(&t, &holder.sign(asked).await.unwrap()).await;
    let again = Person::of(&answer);
    assert_eq!(again.id, ada.id);
    t.expects(&["SIGNED_IN"]).await;
    let sessions = again.asks(t.get("/auth/sessions")).await;
    assert_eq!(sessions.body["sessions"][0]["methods"], json!(["passkey", "mfa"]));
    let me = again.asks(t.get("/auth/me")).await;
    assert!(me.body["passkeys"][0]["lastUsedAt"].is_string(), "{}", me.text);

    let path = format!("/auth/passkey/{id}");
    let named = again.asks(t.ask(Method::PATCH, &path).json(&json!({ "deviceName": "The blue one" }))).await;
    assert_eq!((named.status, &named.body["deviceName"]), (200, &json!("The blue one")));
    let empty = again.asks(t.ask(Method::PATCH, &path).json(&json!({ "deviceName": "" }))).await;
    assert_eq!(empty.wrong_fields(), ["deviceName"]);
    let export = again.asks(t.get("/auth/export")).await;
    assert_eq!(export.body["user"]["passkeys"][0]["deviceName"], "The blue one");
    assert_eq!(again.asks(t.ask(Method::DELETE, &path)).await.status, 204);
    assert_eq!(again.asks(t.ask(Method::DELETE, &path)).await.refusal(), (404, "not_found"));
    t.expects(&["PASSKEY_RENAMED", "DATA_EXPORTED", "PASSKEY_REMOVED"]).await;
    assert_eq!(again.asks(t.get("/auth/me")).await.body["passkeys"], json!([]));
    let late = holder.sign(login_options(&t).await).await.unwrap();
    assert_eq!(come_in(&t, &late).await.refusal(), (401, "invalid_passkey"));
    t.run_jobs().await;
    assert!(mail_to(&t, "ada@example.com").unwrap().contains("A passkey was removed"));
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p43_a_challenge_is_answered_once_in_time_and_where_it_was_asked() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let mut holder = Holder::new();
    // Making one: not in another session of the same person, nor by somebody else, nor twice, nor late.
    let made = holder.make(options(&t, &ada).await).await.unwrap();
    let elsewhere = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    assert_eq!(keep(&t, &elsewhere, &made).await.refusal(), (410, "token_spent"));
    assert_eq!(keep(&t, &ada, &made).await.refusal(), (410, "token_spent"), "used up by the wrong one");
    let made = Holder::new().make(options(&t, &ada).await).await.unwrap();
    t.advance(Duration::from_secs(301));
    assert_eq!(keep(&t, &ada, &made).await.refusal(), (410, "token_spent"));
    add(&t, &ada, &mut holder).await;
    // Signing in: once, in time, and with a challenge that was for signing in.
    let signed = holder.sign(login_options(&t).await).await.unwrap();
    let answers = join_all((0..16).map(|_| come_in(&t, &signed))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
    assert_eq!(come_in(&t, &signed).await.refusal(), (410, "token_spent"));
    let signed = holder.sign(login_options(&t).await).await.unwrap();
    t.advance(Duration::from_secs(301));
    assert_eq!(come_in(&t, &signed).await.refusal(), (410, "token_spent"));
    let mut crossed = login_options(&t).await;
    let ada = Person::of(&come_in(&t, &holder.sign(login_options(&t).await).await.unwrap()).await);
    crossed["publicKey"]["challenge"] = options(&t, &ada).await["publicKey"]["challenge"].clone();
    let signed = holder.sign(crossed).await.unwrap();
    assert_eq!(come_in(&t, &signed).await.refusal(), (410, "token_spent"), "a challenge for making one");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p45_a_passkey_is_its_owners() {
    let t = start().await;
    let (ada, eve) = (signed_in(&t, "ada@example.com").await, signed_in(&t, "eve@example.com").await);
    let (mut adas, mut eves) = (Holder::new(), Holder::new());
    let of_ada = add(&t, &ada, &mut adas).await;
    add(&t, &eve, &mut eves).await;
    // Whatever is asked for, a key opens its owner's account.
    let asked = t.post("/auth/passkey/login-options").json(&json!({ "email": "ada@example.com" })).await.body;
    assert_eq!(Person::of(&come_in(&t, &eves.sign(asked).await.unwrap()).await).id, eve.id);
    // A user handle that is somebody else's.
    let mut signed = eves.sign(login_options(&t).await).await.unwrap();
    signed["response"]["userHandle"] =
        adas.sign(login_options(&t).await).await.unwrap()["response"]["userHandle"].take();
    assert_eq!(come_in(&t, &signed).await.refusal(), (401, "invalid_passkey"));
    signed["response"]["userHandle"] = Value::Null;
    // A credential id that is somebody else's, in making one.
    let mut forger = forged::Forger::new();
    forger.credential_id = data_encoding::BASE64URL_NOPAD.decode(of_ada.as_bytes()).unwrap();
    let made = forger.make(&options(&t, &eve).await, |_| {});
    assert_eq!(keep(&t, &eve, &made).await.refusal(), (409, "passkey_exists"));
    let path = format!("/auth/passkey/{of_ada}");
    assert_eq!(eve.asks(t.ask(Method::DELETE, &path)).await.refusal(), (404, "not_found"));
    let rename = json!({ "deviceName": "mine" });
    assert_eq!(eve.asks(t.ask(Method::PATCH, &path).json(&rename)).await.refusal(), (404, "not_found"));
    assert_eq!(Person::of(&come_in(&t, &adas.sign(login_options(&t).await).await.unwrap()).await).id, ada.id);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_are_the_most_also_at_once() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    for _ in 0..8 {
        add(&t, &ada, &mut Holder::new()).await;
    }
    let mut made = vec![];
    for _ in 0..6 {
        made.push(Holder::new().make(options(&t, &ada).await).await.unwrap());
    }
    let answers = join_all(made.iter().map(|credential| keep(&t, &ada, credential))).await;
    // The first that is added ends the challenges that nobody has used by then.
    let added = answers.iter().filter(|answer| answer.status == 200).count();
    assert!((1..=2).contains(&added), "{answers:?}");
    let is_refused = |a: &Answer| matches!(a.refusal(), (409, "too_many_passkeys") | (410, "token_spent"));
    assert!(answers.iter().all(|answer| answer.status == 200 || is_refused(answer)), "{answers:?}");
    for _ in added..2 {
        add(&t, &ada, &mut Holder::new()).await;
    }
    assert_eq!(ada.asks(t.get("/auth/me")).await.body["passkeys"].as_array().unwrap().len(), 10);
    let more = ada.asks(t.post("/auth/passkey/register-options")).await;
    assert_eq!(more.refusal(), (409, "too_many_passkeys"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p36_a_passkey_that_knows_its_person_passes_the_gate_and_no_other_does() {
    let t = start().await;
    let ada = careful(&t, "ada@example.com").await;
    // Neither a password nor a fresh sign-in from before the factor is enough to add one.
    let refused = ada.before.asks(t.post("/auth/passkey/register-options")).await;
    assert_eq!(refused.refusal(), (403, "reauthentication_required"));
    let password = json!({ "password": PASSWORD });
    let refused = ada.before.asks(t.post("/auth/passkey/register-options").json(&password)).await;
    assert_eq!(refused.refusal(), (403, "reauthentication_required"));
    let code = json!({ "code": ada.code(&t) });
    let asked = ada.before.asks(t.post("/auth/passkey/register-options").json(&code)).await;
    let mut holder = Holder::new();
    let made = holder.make(asked.body).await.unwrap();
    assert_eq!(keep(&t, &ada.before, &made).await.status, 200);
    let person = Person::of(&come_in(&t, &holder.sign(login_options(&t).await).await.unwrap()).await);
    assert_eq!(person.asks(t.get("/auth/me")).await.status, 200, "two factors at once");
    // The same key when nobody showed a finger.
    let mut asked = login_options(&t).await;
    asked["publicKey"]["userVerification"] = json!("discouraged");
    holder.knows_its_person(false);
    let signed = holder.sign(asked).await.unwrap();
    assert_eq!(come_in(&t, &signed).await.refusal(), (401, "invalid_passkey"));
    t.advance(Duration::from_secs(30));
    let waiting = ticket(&login(&t, "ada@example.com", PASSWORD).await);
    assert_eq!(verify(&t, &waiting, &ada.code(&t)).await.status, 200, "the other ways still ask");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p41_an_old_sign_in_neither_adds_nor_removes_one() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let mut holder = Holder::new();
    let id = add(&t, &ada, &mut holder).await;
    t.advance(Duration::from_mins(11));
    let path = format!("/auth/passkey/{id}");
    for ask in [t.post("/auth/passkey/register-options"), t.ask(Method::DELETE, &path)] {
        assert_eq!(ada.asks(ask).await.refusal(), (403, "reauthentication_required"));
    }
    for password in ["not it at all", PASSWORD] {
        for ask in [t.post("/auth/passkey/register-options"), t.ask(Method::DELETE, &path)] {
            let refused = ada.asks(ask.json(&json!({ "password": password }))).await;
            assert_eq!(refused.refusal(), (403, "reauthentication_required"), "a password is weaker than a passkey");
            assert_eq!(refused.body["methods"], json!(["passkey"]));
        }
    }
    assert_eq!(ada.asks(t.get("/auth/me")).await.body["passkeys"].as_array().unwrap().len(), 1);
    let ada = Person::of(&come_in(&t, &holder.sign(login_options(&t).await).await.unwrap()).await);
    assert_eq!(ada.asks(t.ask(Method::DELETE, &path)).await.status, 204);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_passkey_signs_in_on_another_node_and_after_a_restart() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let mut holder = Holder::new();
    add(&t, &ada, &mut holder).await;
    t.run_jobs().await;
    if TestDb::on_postgres() {
        let other = t.another_node(feature).await;
        let signed = holder.sign(login_options(&t).await).await.unwrap();
        assert_eq!(come_in(&other, &signed).await.status, 200);
        drop(other);
    }
    let signed = holder.sign(login_options(&t).await).await.unwrap();
    let t = t.restart(feature).await;
    assert_eq!(come_in(&t, &signed).await.status, 200);
    t.finish().await;
}

#[tokio::test]
async fn a_server_without_a_name_has_no_passkeys() {
    let config = Config { base_url: Some("http://192.0.2.1:8080".parse().unwrap()), ..Config::for_tests() };
    let t = TestJanua::start_with(config, feature).await;
    assert_eq!(t.post("/auth/passkey/login-options").await.refusal(), (409, "passkeys_off"));
    let ada = signed_in(&t, "ada@example.com").await;
    assert_eq!(ada.asks(t.post("/auth/passkey/register-options")).await.refusal(), (409, "passkeys_off"));
    t.run_jobs().await;
    t.finish().await;
}
