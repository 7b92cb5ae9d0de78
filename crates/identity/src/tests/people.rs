//! Administration of people by platform owners.
use std::time::Duration;

use axum::http::Method;
use kernel::{
    config::Config,
    testing::{Answer, TestJanua},
};
use serde_json::{Value, json};

use super::{
    actors::*,
    factors::{careful, ticket, verify},
    passkeys::{Holder, add, come_in, login_options},
    providers::{StandIn, proven, sign_in},
};

const ADA: &str = "ada@example.com";
const ROOT: &str = "root@example.com";

fn with_owners(owners: &[&str]) -> Config {
    let owners: Vec<String> = owners.iter().map(|owner| (*owner).to_owned()).collect();
    Config::for_tests().with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = owners)
}

async fn platform() -> (TestJanua, Person) {
    let t = TestJanua::start_with(with_owners(&[ROOT, "second@example.com"]), feature).await;
    let root = signed_in(&t, ROOT).await;
    let named = root.asks(t.ask(Method::PATCH, "/user/profile").json(&json!({ "name": "Root" }))).await;
    assert_eq!(named.status, 200, "{}", named.text);
    t.happened().await;
    (t, root)
}

async fn act(t: &TestJanua, owner: &Person, person: &str, act: &str) -> Answer {
    let answer = owner.asks(t.post(&format!("/admin/users/{person}/{act}"))).await;
    t.run_jobs().await;
    answer
}

async fn found(t: &TestJanua, owner: &Person, query: &str) -> Vec<String> {
    let answer = owner.asks(t.get(&format!("/admin/users?{query}"))).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let email = |user: &Value| user["email"].as_str().unwrap_or_default().to_owned();
    answer.body["users"].as_array().unwrap().iter().map(email).collect()
}

#[tokio::test]
async fn accounts_are_listed_newest_first_and_found_by_words() {
    let (t, root) = platform().await;
    for (name, email) in
        [("Ada Lovelace", ADA), ("Grace Hopper", "grace@navy.mil"), ("Ada Smith", "smith@example.com")]
    {
        t.advance(Duration::from_secs(1));
        let body = json!({ "name": name, "email": email, "emailVerified": email != "grace@navy.mil" });
        let made = root.asks(t.post("/admin/users").json(&body)).await;
        assert_eq!((made.status, &made.body["hasPassword"]), (200, &json!(false)), "{}", made.text);
    }
    assert_eq!(found(&t, &root, "").await, ["smith@example.com", "grace@navy.mil", ADA, ROOT]);
    assert_eq!(found(&t, &root, "search=ada").await, [ADA, "smith@example.com"]);
    assert_eq!(found(&t, &root, "search=ada+smi").await, ["smith@example.com"]);
    assert_eq!(found(&t, &root, "search=GRACE%40").await, ["grace@navy.mil"]);
    assert_eq!(found(&t, &root, "search=nobody").await, [""; 0]);
    assert_eq!(found(&t, &root, "state=unverified").await, ["grace@navy.mil"]);
    assert_eq!(found(&t, &root, "state=active&search=ada").await, [ADA, "smith@example.com"]);
    let ada = root.asks(t.get("/admin/users?search=lovelace")).await;
    let id = ada.body["users"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(act(&t, &root, &id, "disable").await.status, 204);
    assert_eq!(found(&t, &root, "state=disabled").await, [ADA]);
    assert_eq!(found(&t, &root, "state=active&search=ada").await, ["smith@example.com"]);
    // Page by page.
    let first = root.asks(t.get("/admin/users?limit=3")).await;
    let cursor = first.body["nextCursor"].as_str().unwrap();
    assert_eq!(found(&t, &root, &format!("limit=3&cursor={cursor}")).await, [ROOT]);
    let mixed = root.asks(t.get(&format!("/admin/users?state=active&cursor={cursor}"))).await;
    assert_eq!(mixed.status, 400, "a cursor counts for the same list alone");
    let first = root.asks(t.get("/admin/users?search=ada&limit=1")).await;
    let cursor = first.body["nextCursor"].as_str().unwrap();
    assert_eq!(found(&t, &root, &format!("search=ada&limit=1&cursor={cursor}")).await, ["smith@example.com"]);
    // Another name is found, and the old one is not.
    let change = json!({ "name": "Augusta King" });
    let path = format!("/admin/users/{id}");
    assert_eq!(root.asks(t.ask(Method::PATCH, &path).json(&change)).await.body["name"], "Augusta King");
    assert_eq!(found(&t, &root, "search=king").await, [ADA]);
    assert_eq!(found(&t, &root, "search=lovelace").await, [""; 0]);
    t.finish().await;
}

#[tokio::test]
async fn an_invited_person_chooses_a_password_by_the_link_and_has_proven_the_email() {
    let (t, root) = platform().await;
    let body = json!({ "name": "Ada", "email": ADA, "invite": true });
    let made = root.asks(t.post("/admin/users").json(&body)).await;
    assert_eq!((made.status, &made.body["state"]), (200, &json!("unverified")), "{}", made.text);
    t.run_jobs().await;
    let mail = mail_to(&t, ADA).unwrap();
    assert!(mail.contains("account was created for you"), "{mail}");
    t.advance(Duration::from_hours(6 * 24));
    let reset = json!({ "token": token_in(&mail), "password": PASSWORD });
    assert_eq!(t.post("/auth/reset-password").json(&reset).await.status, 204);
    assert_eq!(t.post("/auth/reset-password").json(&reset).await.refusal(), (410, "token_spent"));
    let ada = Person::of(&login(&t, ADA, PASSWORD).await);
    assert_eq!(ada.asks(t.get("/auth/me")).await.body["emailVerified"], true);
    let log = ada.asks(t.get("/auth/audit-log")).await;
    let created = log.body["events"].as_array().unwrap().iter().find(|event| event["type"] == "ACCOUNT_CREATED");
    assert_eq!(created.unwrap()["actor"], json!(root.id), "the person sees who created the account: {}", log.text);
    let root = Person::of(&login(&t, ROOT, PASSWORD).await);
    let again = root.asks(t.post("/admin/users").json(&body)).await;
    assert_eq!((again.refusal(), again.wrong_fields()), ((409, "email_taken"), vec!["email"]));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_disabled_account_is_refused_at_every_door_and_enabled_again() {
    let (t, root) = platform().await;
    let ada = signed_in(&t, ADA).await;
    let mut holder = Holder::new();
    add(&t, &ada, &mut holder).await;
    let begun = t.post("/auth/device/code").header("user-agent", FIREFOX).await.body;
    let decided = json!({ "user_code": begun["user_code"], "approve": true });
    assert_eq!(ada.asks(t.post("/auth/device/verify").json(&decided)).await.status, 200);
    t.post("/auth/magic-link/request").json(&json!({ "email": ADA })).await;
    t.run_jobs().await;
    let link = token_in(&mail_to(&t, ADA).unwrap());
    t.happened().await;

    assert_eq!(act(&t, &root, &ada.id, "disable").await.status, 204);
    t.expects(&["SESSION_REVOKED", "ACCOUNT_DISABLED"]).await;
    assert!(mail_to(&t, ADA).unwrap().contains("disabled your account"));
    assert_eq!(act(&t, &root, &ada.id, "disable").await.status, 204, "once more changes nothing");
    t.expects(&[]).await;
    assert_eq!(ada.asks(t.get("/auth/me")).await.refusal(), (401, "unauthenticated"));
    let closed = (403, "account_disabled");
    assert_eq!(refresh(&t, &ada.refresh).await.refusal(), closed, "the holder of the token hears why");
    assert_eq!(login(&t, ADA, PASSWORD).await.refusal(), closed);
    let wrong = login(&t, ADA, "wrong wrong wrong").await;
    assert_eq!(wrong.refusal(), (401, "invalid_credentials"), "a stranger does not hear it");
    let passkey = come_in(&t, &holder.sign(login_options(&t).await).await.unwrap()).await;
    assert_eq!(passkey.refusal(), closed);
    let old = t.post("/auth/magic-link/verify").json(&json!({ "token": link })).await;
    assert_eq!(old.refusal(), (410, "token_spent"), "links from before are void");
    t.post("/auth/magic-link/request").json(&json!({ "email": ADA })).await;
    t.run_jobs().await;
    let link = token_in(&mail_to(&t, ADA).unwrap());
    assert_eq!(t.post("/auth/magic-link/verify").json(&json!({ "token": link })).await.refusal(), closed);
    let device = t.post("/auth/device/token").json(&json!({ "device_code": begun["device_code"] })).await;
    assert_eq!(device.refusal(), (400, "access_denied"), "what was approved before is withdrawn");

    assert_eq!(act(&t, &root, &ada.id, "enable").await.status, 204);
    Person::of(&login(&t, ADA, PASSWORD).await);
    let passkey = come_in(&t, &holder.sign(login_options(&t).await).await.unwrap()).await;
    assert_eq!(passkey.status, 200, "{}", passkey.text);
    let log = Person::of(&passkey).asks(t.get("/auth/audit-log")).await;
    let disabled = log.body["events"].as_array().unwrap().iter().find(|event| event["type"] == "ACCOUNT_DISABLED");
    assert_eq!(disabled.unwrap()["actor"], json!(root.id));
    assert!(disabled.unwrap()["ip"].is_null(), "where the owner was is not the person's business");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_disabled_account_does_not_pass_the_second_factor_that_was_asked_for_before() {
    let (t, root) = platform().await;
    let ada = careful(&t, ADA).await;
    assert_eq!(act(&t, &root, &ada.person.id, "disable").await.status, 204);
    // The ticket is void. Where it were not, the gate would look again.
    assert_eq!(login(&t, ADA, PASSWORD).await.refusal(), (403, "account_disabled"), "not even a ticket");
    assert_eq!(act(&t, &root, &ada.person.id, "enable").await.status, 204);
    let ticket = ticket(&login(&t, ADA, PASSWORD).await);
    let set = "UPDATE account SET disabled_at = 1 WHERE email_key = $1";
    t.janua.db.exec(set, db::params![ADA]).await.unwrap();
    assert_eq!(verify(&t, &ticket, &ada.code(&t)).await.refusal(), (403, "account_disabled"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_provider_does_not_open_a_disabled_account() {
    let (google, t) = StandIn::start().await;
    let ada = Person::of(&sign_in(&google, &t, "google", proven("g-1", ADA)).await);
    let set = "UPDATE account SET disabled_at = 1 WHERE id = $1";
    t.janua.db.exec(set, db::params![&ada.id]).await.unwrap();
    let refused = sign_in(&google, &t, "google", proven("g-1", ADA)).await;
    assert_eq!(refused.refusal(), (403, "account_disabled"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_platform_owner_can_neither_disable_nor_delete_themselves() {
    let (t, root) = platform().await;
    assert_eq!(act(&t, &root, &root.id, "disable").await.refusal(), (409, "own_account"));
    let path = format!("/admin/users/{}", root.id);
    assert_eq!(root.asks(t.ask(Method::DELETE, &path)).await.refusal(), (409, "own_account"));
    let second = signed_in(&t, "second@example.com").await;
    assert_eq!(act(&t, &root, &second.id, "disable").await.status, 204);
    assert_eq!(second.asks(t.get("/admin/users")).await.status, 401);
    // As if the other had been disabled at the same moment: the last one stays.
    let set = "UPDATE account SET disabled_at = 1 WHERE id = $1";
    assert_eq!(act(&t, &root, &second.id, "enable").await.status, 204);
    let second = Person::of(&login(&t, "second@example.com", PASSWORD).await);
    t.janua.db.exec(set, db::params![&second.id]).await.unwrap();
    let refused = act(&t, &second, &root.id, "disable").await;
    assert!(matches!(refused.refusal(), (401, _) | (409, "last_platform_owner")), "{}", refused.text);
    assert_eq!(login(&t, ROOT, PASSWORD).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn the_last_platform_owner_cannot_be_disabled() {
    let (t, root) = platform().await;
    let by = tenancy::events::By::shell();
    let id = root.id.parse().unwrap();
    let refused = kernel::transact!(t.janua, async |tx| {
        let held = tenancy::accounts::Account::hold(tx, id).await?.unwrap();
        crate::people::acts::disable(tx, &t.janua, &by, &held).await
    });
    assert_eq!(refused.unwrap_err().code().name, "last_platform_owner");
    assert_eq!(root.asks(t.get("/admin/users")).await.status, 200);
    t.finish().await;
}

#[tokio::test]
async fn resetting_factors_needs_a_fresh_proof_and_removes_all_of_them() {
    let (t, root) = platform().await;
    let ada = careful(&t, ADA).await;
    let mut holder = Holder::new();
    let code = json!({ "code": ada.recovery_codes[0] });
    let asked = ada.person.asks(t.post("/auth/passkey/register-options").json(&code)).await;
    assert_eq!(asked.status, 200, "{}", asked.text);
    let made = holder.make(asked.body).await.unwrap();
    let kept = ada.person.asks(t.post("/auth/passkey/register-verify").json(&json!({ "credential": made }))).await;
    assert_eq!(kept.status, 200, "{}", kept.text);
    t.run_jobs().await;
    t.advance(Duration::from_mins(11));
    t.happened().await;
    let path = format!("/admin/users/{}/reset-factors", ada.person.id);
    assert_eq!(root.asks(t.post(&path)).await.refusal(), (403, "reauthentication_required"));
    let proof = json!({ "password": PASSWORD });
    assert_eq!(root.asks(t.post(&path).json(&proof)).await.status, 204);
    t.run_jobs().await;
    let happened = t.happened().await;
    for event in ["MFA_DISABLED", "PASSKEY_REMOVED", "FACTORS_RESET", "SESSION_REVOKED"] {
        assert!(happened.iter().any(|one| one == event), "{event} is not among {happened:?}");
    }
    assert!(mail_to(&t, ADA).unwrap().contains("removed the second factors and passkeys"));
    assert_eq!(ada.person.asks(t.get("/auth/me")).await.status, 401);
    let person = Person::of(&login(&t, ADA, PASSWORD).await);
    let details = root.asks(t.get(&format!("/admin/users/{}", person.id))).await;
    let factors = &details.body["factors"];
    assert_eq!(
        (&factors["totp"], &factors["passkeys"], &factors["recoveryCodesLeft"]),
        (&json!(false), &json!([]), &json!(0))
    );
    let passkey = come_in(&t, &holder.sign(login_options(&t).await).await.unwrap()).await;
    assert_eq!(passkey.refusal(), (401, "invalid_passkey"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_required_password_is_chosen_by_the_mailed_link() {
    let (t, root) = platform().await;
    let ada = signed_in(&t, ADA).await;
    assert_eq!(act(&t, &root, &ada.id, "require-password").await.status, 204);
    assert_eq!(ada.asks(t.get("/auth/me")).await.status, 401);
    assert_eq!(login(&t, ADA, PASSWORD).await.refusal(), (401, "invalid_credentials"));
    let token = token_in(&mail_to(&t, ADA).unwrap());
    let reset = json!({ "token": token, "password": "staple battery horse correct" });
    assert_eq!(t.post("/auth/reset-password").json(&reset).await.status, 204);
    assert_eq!(login(&t, ADA, "staple battery horse correct").await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn the_confirmation_is_sent_again_and_sessions_are_ended() {
    let (t, root) = platform().await;
    register(&t, ADA).await;
    let ada = root.asks(t.get("/admin/users?search=ada")).await.body["users"][0]["id"].as_str().unwrap().to_owned();
    t.advance(Duration::from_hours(48));
    let root = Person::of(&login(&t, ROOT, PASSWORD).await);
    assert_eq!(act(&t, &root, &ada, "resend-verification").await.status, 204);
    let token = token_in(&mail_to(&t, ADA).unwrap());
    assert_eq!(t.post("/auth/verify-email").json(&json!({ "token": token })).await.status, 200);
    let person = Person::of(&login(&t, ADA, PASSWORD).await);
    assert_eq!(act(&t, &root, &ada, "resend-verification").await.refusal(), (409, "already_verified"));
    let path = format!("/admin/users/{ada}/sessions");
    assert_eq!(root.asks(t.ask(Method::DELETE, &path)).await.status, 204);
    t.run_jobs().await;
    assert!(mail_to(&t, ADA).unwrap().contains("ended all sessions of your account"));
    assert_eq!(person.asks(t.get("/auth/me")).await.status, 401);
    assert_eq!(refresh(&t, &person.refresh).await.refusal(), (401, "unauthenticated"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn another_email_needs_a_fresh_proof_and_is_told_to_both() {
    let (t, root) = platform().await;
    let ada = signed_in(&t, ADA).await;
    t.post("/auth/forgot-password").json(&json!({ "email": ADA })).await;
    t.run_jobs().await;
    let old_link = token_in(&mail_to(&t, ADA).unwrap());
    let path = format!("/admin/users/{}", ada.id);
    t.advance(Duration::from_mins(11));
    let change = json!({ "email": "augusta@example.com", "emailVerified": true });
    let refused = root.asks(t.ask(Method::PATCH, &path).json(&change)).await;
    assert_eq!(refused.refusal(), (403, "reauthentication_required"));
    let mut with_proof = change.clone();
    with_proof["password"] = json!(PASSWORD);
    let changed = root.asks(t.ask(Method::PATCH, &path).json(&with_proof)).await;
    assert_eq!((changed.status, &changed.body["email"]), (200, &change["email"]), "{}", changed.text);
    t.run_jobs().await;
    for email in [ADA, "augusta@example.com"] {
        assert!(mail_to(&t, email).unwrap().contains("changed the email of your account"), "{email}");
    }
    let reset = json!({ "token": old_link, "password": PASSWORD });
    assert_eq!(t.post("/auth/reset-password").json(&reset).await.refusal(), (410, "token_spent"));
    assert_eq!(login(&t, ADA, PASSWORD).await.status, 401);
    assert_eq!(login(&t, "augusta@example.com", PASSWORD).await.status, 200);
    let taken = json!({ "email": ROOT, "password": PASSWORD });
    assert_eq!(root.asks(t.ask(Method::PATCH, &path).json(&taken)).await.refusal(), (409, "email_taken"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_deleted_account_is_gone_and_the_person_is_told() {
    let (t, root) = platform().await;
    let ada = signed_in(&t, ADA).await;
    let path = format!("/admin/users/{}", ada.id);
    t.advance(Duration::from_mins(11));
    assert_eq!(root.asks(t.ask(Method::DELETE, &path)).await.refusal(), (403, "reauthentication_required"));
    let proof = json!({ "password": PASSWORD });
    assert_eq!(root.asks(t.ask(Method::DELETE, &path).json(&proof)).await.status, 204);
    t.run_jobs().await;
    assert!(mail_to(&t, ADA).unwrap().contains("deleted your account"));
    assert_eq!(root.asks(t.get(&path)).await.refusal(), (404, "not_found"));
    assert_eq!(root.asks(t.post(&format!("{path}/disable"))).await.refusal(), (404, "not_found"));
    assert_eq!(found(&t, &root, "search=ada").await, [""; 0]);
    assert_eq!(login(&t, ADA, PASSWORD).await.refusal(), (401, "invalid_credentials"));
    t.run_jobs().await;
    t.finish().await;
}

const NEW_PASSWORD: &str = "staple battery horse correct";

async fn patch(t: &TestJanua, root: &Person, id: &str, change: &Value) -> Answer {
    root.asks(t.ask(Method::PATCH, &format!("/admin/users/{id}")).json(change)).await
}

async fn id_of(t: &TestJanua, root: &Person, search: &str) -> String {
    let found = root.asks(t.get(&format!("/admin/users?search={search}"))).await;
    found.body["users"][0]["id"].as_str().unwrap().to_owned()
}

async fn confirm(t: &TestJanua, token: &str) -> Answer {
    t.post("/auth/verify-email").json(&json!({ "token": token })).await
}

/// The token of the newest link to choose a password.
async fn forgotten(t: &TestJanua, email: &str) -> String {
    t.post("/auth/forgot-password").json(&json!({ "email": email })).await;
    t.run_jobs().await;
    token_in(&mail_to(t, email).unwrap())
}

#[tokio::test]
async fn p22_a_confirmation_link_brings_back_no_password_of_before() {
    let (t, root) = platform().await;
    let ada = signed_in(&t, ADA).await;
    let new = "augusta@example.com";
    assert_eq!(patch(&t, &root, &ada.id, &json!({ "email": new })).await.status, 200);
    assert_eq!(act(&t, &root, &ada.id, "resend-verification").await.status, 204);
    let link = token_in(&mail_to(&t, new).unwrap());
    let change = json!({ "currentPassword": PASSWORD, "newPassword": NEW_PASSWORD });
    assert_eq!(ada.asks(t.post("/auth/change-password").json(&change)).await.status, 204);
    let old = confirm(&t, &link).await;
    assert_eq!(old.refusal(), (410, "token_spent"), "a new password ends the links of before");
    assert_eq!(act(&t, &root, &ada.id, "resend-verification").await.status, 204);
    let link = token_in(&mail_to(&t, new).unwrap());
    let renamed = json!({ "name": "Augusta King" });
    assert_eq!(patch(&t, &root, &ada.id, &renamed).await.status, 200);
    assert_eq!(confirm(&t, &link).await.status, 200);
    assert_eq!(login(&t, new, PASSWORD).await.refusal(), (401, "invalid_credentials"));
    let ada = Person::of(&login(&t, new, NEW_PASSWORD).await);
    assert_eq!(ada.asks(t.get("/auth/me")).await.body["name"], "Augusta King", "nor a name");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p22_an_email_that_an_owner_verifies_opens_nothing_for_a_sign_up_of_before() {
    let (t, root) = platform().await;
    register(&t, ADA).await;
    let link = token_in(&mail_to(&t, ADA).unwrap());
    let ada = id_of(&t, &root, "ada").await;
    assert_eq!(patch(&t, &root, &ada, &json!({ "emailVerified": true })).await.status, 200);
    let stranger = login(&t, ADA, PASSWORD).await;
    assert_eq!(stranger.refusal(), (401, "invalid_credentials"), "the password was never proven");
    assert_eq!(confirm(&t, &link).await.refusal(), (410, "token_spent"));
    let reset = json!({ "token": forgotten(&t, ADA).await, "password": NEW_PASSWORD });
    assert_eq!(t.post("/auth/reset-password").json(&reset).await.status, 204);
    assert_eq!(confirm(&t, &link).await.refusal(), (410, "token_spent"));
    assert_eq!(login(&t, ADA, PASSWORD).await.refusal(), (401, "invalid_credentials"));
    assert_eq!(login(&t, ADA, NEW_PASSWORD).await.status, 200);
    // The same while another email is set.
    register(&t, "eve@example.com").await;
    let eve = id_of(&t, &root, "eve").await;
    let change = json!({ "email": "grace@example.com", "emailVerified": true });
    assert_eq!(patch(&t, &root, &eve, &change).await.status, 200);
    assert_eq!(login(&t, "grace@example.com", PASSWORD).await.refusal(), (401, "invalid_credentials"));
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p22_a_required_password_voids_the_confirmation_link() {
    let (t, root) = platform().await;
    register(&t, ADA).await;
    let link = token_in(&mail_to(&t, ADA).unwrap());
    let ada = id_of(&t, &root, "ada").await;
    assert_eq!(act(&t, &root, &ada, "require-password").await.status, 204);
    assert_eq!(confirm(&t, &link).await.refusal(), (410, "token_spent"));
    assert_ne!(login(&t, ADA, PASSWORD).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p22_a_sign_up_changes_nothing_of_an_account_that_an_owner_created() {
    let (t, root) = platform().await;
    let strangers = "mallory knows this one";
    for (email, password) in [(ADA, Some(PASSWORD)), ("grace@example.com", None)] {
        let mut body = json!({ "name": "Theirs", "email": email });
        if let Some(password) = password {
            body["password"] = json!(password);
        }
        let made = root.asks(t.post("/admin/users").json(&body)).await;
        assert_eq!(made.status, 200, "{}", made.text);
        let sign_up = json!({ "email": email, "password": strangers, "name": "Mallory" });
        t.post("/auth/register").json(&sign_up).await;
        t.run_jobs().await;
        let link = token_in(&mail_to(&t, email).unwrap());
        assert_eq!(confirm(&t, &link).await.status, 200);
        assert_eq!(login(&t, email, strangers).await.refusal(), (401, "invalid_credentials"), "{email}");
        if let Some(password) = password {
            let ada = Person::of(&login(&t, email, password).await);
            assert_eq!(ada.asks(t.get("/auth/me")).await.body["name"], "Theirs");
        }
    }
    // What an owner set counts when the owner says later that the email is right.
    let body = json!({ "name": "Hedy", "email": "hedy@example.com", "password": PASSWORD });
    let made = root.asks(t.post("/admin/users").json(&body)).await;
    let id = made.body["id"].as_str().unwrap();
    assert_eq!(patch(&t, &root, id, &json!({ "emailVerified": true })).await.status, 200);
    assert_eq!(login(&t, "hedy@example.com", PASSWORD).await.status, 200);
    // So does the password of an account whose email was verified before.
    for is_verified in [false, true] {
        assert_eq!(patch(&t, &root, id, &json!({ "emailVerified": is_verified })).await.status, 200);
    }
    assert_eq!(login(&t, "hedy@example.com", PASSWORD).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn the_old_and_the_new_email_hear_different_things() {
    let (t, root) = platform().await;
    let ada = signed_in(&t, ADA).await;
    let change = json!({ "email": "augusta@example.com" });
    assert_eq!(patch(&t, &root, &ada.id, &change).await.status, 200);
    t.run_jobs().await;
    assert!(mail_to(&t, ADA).unwrap().contains("no longer opens it"));
    let new = mail_to(&t, "augusta@example.com").unwrap();
    assert!(!new.contains("no longer opens it"), "{new}");
    assert!(new.contains("changed the email of your account to this one") && new.contains("confirm it"), "{new}");
    t.finish().await;
}

#[tokio::test]
async fn the_last_platform_owner_keeps_the_email_that_makes_one() {
    let (t, root) = platform().await;
    for change in [json!({ "email": "other@example.com", "emailVerified": true }), json!({ "emailVerified": false })]
    {
        assert_eq!(patch(&t, &root, &root.id, &change).await.refusal(), (409, "own_account"), "{change}");
    }
    let second = signed_in(&t, "second@example.com").await;
    // As if the other were disabled at the same moment.
    let set = "UPDATE account SET disabled_at = 1 WHERE id = $1";
    assert_eq!(patch(&t, &second, &root.id, &json!({ "name": "Root the First" })).await.status, 200);
    assert_eq!(patch(&t, &second, &root.id, &json!({ "emailVerified": false })).await.status, 200);
    assert_eq!(root.asks(t.get("/admin/users")).await.refusal(), (403, "forbidden"));
    assert_eq!(patch(&t, &second, &root.id, &json!({ "emailVerified": true })).await.status, 200);
    t.janua.db.exec(set, db::params![&second.id]).await.unwrap();
    let by = tenancy::events::By::shell();
    let id = root.id.parse().unwrap();
    let refused = kernel::transact!(t.janua, async |tx| {
        let held = tenancy::accounts::Account::hold(tx, id).await?.unwrap();
        crate::people::acts::may_lose(tx, &t.janua, &by, &held).await
    });
    assert_eq!(refused.unwrap_err().code().name, "last_platform_owner");
    t.run_jobs().await;
    t.finish().await;
}
