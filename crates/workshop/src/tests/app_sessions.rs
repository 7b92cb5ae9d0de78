//! Sessions that belong to an app: where they come from, what they may do, and that none outlives its app.
use std::time::Duration;

use identity::testing::{PASSWORD, login, mail_to, refresh, token_in};
use kernel::testing::join_all;

use super::*;

const ADA: &str = "ada@example.com";
const BOB: &str = "bob@example.com";

async fn key_of(t: &TestJanua, person: &Person, app: &Value) -> String {
    make_key(t, person, id(app), "publishable", "live").await["value"].as_str().unwrap().to_owned()
}

async fn delete(t: &TestJanua, person: &Person, app: &Value) -> u16 {
    person.asks(t.ask(Method::DELETE, &format!("/apps/{}", id(app)))).await.status
}

/// How many living sessions somebody has, and how many of them belong to no app.
async fn sessions_of(t: &TestJanua, person: &Person) -> (i64, i64) {
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n, CAST(COUNT(app_id) AS BIGINT) AS m FROM session
               WHERE account_id = $1 AND revoked_at IS NULL";
    let (all,): (i64,) = t.janua.db.one(sql, db::params![&person.id]).await.unwrap();
    let sql = "SELECT CAST(COUNT(app_id) AS BIGINT) AS m FROM session WHERE account_id = $1 AND revoked_at IS NULL";
    let (of_apps,): (i64,) = t.janua.db.one(sql, db::params![&person.id]).await.unwrap();
    (all, all - of_apps)
}

/// Switches an authenticator app on.
async fn totp(t: &TestJanua, person: &Person) -> totp_rs::Totp {
    let set_up = person.asks(t.post("/auth/2fa/setup")).await;
    let totp = totp_rs::Totp::from_url(set_up.body["otpauthUri"].as_str().unwrap()).unwrap();
    let body = json!({ "code": shown(t, &totp) });
    assert_eq!(person.asks(t.post("/auth/2fa/enable").json(&body)).await.status, 200);
    t.advance(Duration::from_secs(30));
    totp
}

fn shown(t: &TestJanua, totp: &totp_rs::Totp) -> String {
    totp.generate(u64::try_from(t.janua.clock.now().0 / 1000).unwrap()).to_string()
}

#[tokio::test]
async fn a_sign_in_to_an_app_that_is_deleted_meanwhile_is_refused() {
    let t = start().await;
    let (ada, bob) = (signed_in(&t, ADA).await, signed_in(&t, BOB).await);
    let app = make_app(&t, &ada, "Shop").await;
    let key = key_of(&t, &ada, &app).await;
    let totp = totp(&t, &bob).await;
    let half = login_with(&t, BOB, &key).await;
    let ticket = half.body["mfaTicket"].as_str().unwrap().to_owned();
    let before = sessions_of(&t, &bob).await;
    assert_eq!(delete(&t, &ada, &app).await, 204);
    let body = json!({ "mfaTicket": ticket, "code": shown(&t, &totp) });
    assert_eq!(t.post("/auth/2fa/login-verify").json(&body).await.refusal(), (410, "token_spent"));
    assert_eq!(sessions_of(&t, &bob).await, before, "no session without its app");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_ins_that_race_the_end_of_their_app_leave_nothing() {
    let t = start().await;
    let (ada, bob) = (signed_in(&t, ADA).await, signed_in(&t, BOB).await);
    for round in 0..4 {
        let app = make_app(&t, &ada, &format!("Shop {round}")).await;
        let key = key_of(&t, &ada, &app).await;
        let (_, own) = sessions_of(&t, &bob).await;
        let come_in = async {
            let mut answers = vec![];
            for _ in 0..2 {
                answers.extend(join_all((0..6).map(|_| login_with(&t, BOB, &key))).await);
            }
            answers
        };
        let (answers, gone) = tokio::join!(come_in, async {
            tokio::task::yield_now().await;
            delete(&t, &ada, &app).await
        });
        assert_eq!(gone, 204);
        for answer in &answers {
            // Tries under way at once count as failed until they have succeeded, and may ask for a proof of work.
            let refusals = [(401, "invalid_app_key"), (403, "captcha_required")];
            assert!(answer.status == 200 || refusals.contains(&answer.refusal()), "{}", answer.text);
        }
        assert_eq!(sessions_of(&t, &bob).await, (own, own), "neither without an app nor outliving it");
        t.advance(Duration::from_mins(1));
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_key_that_is_remembered_longer_than_its_app_lets_nobody_in() {
    let t = start().await;
    let (ada, bob) = (signed_in(&t, ADA).await, signed_in(&t, BOB).await);
    let app = make_app(&t, &ada, "Shop").await;
    let key = key_of(&t, &ada, &app).await;
    let begun = t.post("/auth/device/code").header("x-service-app-key", &key).await.body;
    let approve = json!({ "user_code": begun["user_code"] });
    assert_eq!(bob.asks(t.post("/auth/device/verify").json(&approve)).await.status, 200);
    t.post("/auth/magic-link/request").json(&json!({ "email": BOB })).await;
    t.run_jobs().await;
    let token = token_in(&mail_to(&t, BOB).unwrap());
    let before = sessions_of(&t, &bob).await;
    // Nobody is told of it, as in the moment between the commit and the notice.
    t.janua.db.exec("DELETE FROM app WHERE id = $1", db::params![id(&app)]).await.unwrap();
    assert_eq!(login_with(&t, BOB, &key).await.refusal(), (401, "invalid_app_key"));
    let follow = t.post("/auth/magic-link/verify").json(&json!({ "token": token }));
    assert_eq!(follow.header("x-service-app-key", &key).await.refusal(), (401, "invalid_app_key"));
    let poll = t.post("/auth/device/token").json(&json!({ "device_code": begun["device_code"] }));
    assert_eq!(poll.header("x-service-app-key", &key).await.refusal(), (400, "invalid_grant"));
    assert_eq!(sessions_of(&t, &bob).await, before);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_apps_session_does_not_own_the_person() {
    let t = start().await;
    let (ada, bob) = (signed_in(&t, ADA).await, signed_in(&t, BOB).await);
    let app = make_app(&t, &ada, "Shop").await;
    let key = key_of(&t, &ada, &app).await;
    let theirs = make_app(&t, &bob, "Bob's").await;
    let org = theirs["orgId"].as_str().unwrap();
    let inside = Person::of(&login_with(&t, BOB, &key).await);
    for (method, path) in [
        ("POST", "/auth/passkey/register-options".to_owned()),
        ("DELETE", "/auth/passkey/x".to_owned()),
        ("POST", "/auth/2fa/setup".to_owned()),
        ("POST", "/auth/change-password".to_owned()),
        ("GET", "/auth/trusted-devices".to_owned()),
        ("GET", "/auth/export".to_owned()),
        ("GET", "/auth/audit-log".to_owned()),
        ("GET", "/auth/consents".to_owned()),
        ("DELETE", "/auth/me".to_owned()),
        ("GET", "/user/orgs".to_owned()),
        ("POST", "/org".to_owned()),
        ("GET", format!("/org/{org}")),
        ("GET", format!("/org/{org}/members")),
        ("GET", "/apps".to_owned()),
        ("POST", "/apps".to_owned()),
        ("GET", format!("/apps/{}", id(&theirs))),
        ("GET", "/webhooks".to_owned()),
        ("GET", "/admin/abuse-reports".to_owned()),
    ] {
        let ask = inside.asks(t.ask(method.parse().unwrap(), &path).json(&json!({})));
        let answer = ask.header("x-service-app-key", &key).await;
        assert_eq!(answer.refusal(), (403, "app_session"), "{method} {path}: {}", answer.text);
        assert!(answer.text.contains("belongs to an app"), "{}", answer.text);
    }
    assert_eq!(bob.asks(t.get("/auth/me")).await.status, 200, "bob is still there");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_apps_people_sign_in_change_their_profile_and_leave() {
    let t = start().await;
    let (ada, bob) = (signed_in(&t, ADA).await, signed_in(&t, BOB).await);
    let app = make_app(&t, &ada, "Shop").await;
    let key = key_of(&t, &ada, &app).await;
    let entered = login_with(&t, BOB, &key).await;
    let inside = Person::of(&entered);
    let me = inside.asks(t.get("/auth/me")).header("x-service-app-key", &key).await;
    assert_eq!((me.status, &me.body["email"]), (200, &json!(BOB)));
    let patch = json!({ "name": "Bob B." });
    let changed = inside.asks(t.ask(Method::PATCH, "/user/profile").json(&patch)).await;
    assert_eq!((changed.status, &changed.body["name"]), (200, &json!("Bob B.")), "{}", changed.text);
    let wish = json!({ "contentType": "image/png", "size": 9 });
    assert_eq!(inside.asks(t.post("/user/avatar/upload-url").json(&wish)).await.status, 200);

    // Its own sessions are those of the app.
    let other = Person::of(&login_with(&t, BOB, &key).await);
    let list = inside.asks(t.get("/auth/sessions")).await;
    assert_eq!(list.body["sessions"].as_array().unwrap().len(), 2, "{}", list.text);
    let own = bob.asks(t.get("/auth/sessions")).await;
    let of_bob = own.body["sessions"].as_array().unwrap().iter().find(|session| session["current"] == true).unwrap();
    let path = format!("/auth/sessions/{}", of_bob["id"].as_str().unwrap());
    assert_eq!(inside.asks(t.ask(Method::DELETE, &path)).await.refusal(), (404, "not_found"));
    let body = json!({ "refreshToken": inside.refresh });
    let turned = t.post("/auth/refresh").json(&body).header("x-service-app-key", &key).await;
    let inside = Person::of(&turned);
    assert_eq!(inside.asks(t.ask(Method::DELETE, "/auth/sessions")).await.status, 204);
    assert_eq!(other.asks(t.get("/auth/me")).await.status, 401);
    assert_eq!(bob.asks(t.get("/auth/me")).await.status, 200, "the service's own session goes on");
    let inside = Person::of(&login_with(&t, BOB, &key).await);
    assert_eq!(inside.asks(t.post("/auth/logout")).await.status, 204);
    assert_eq!(inside.asks(t.get("/auth/me")).await.status, 401);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_key_that_does_not_fit_the_session_is_named_as_the_reason() {
    let t = start().await;
    let ada = signed_in(&t, ADA).await;
    let (one, two) = (make_app(&t, &ada, "One").await, make_app(&t, &ada, "Two").await);
    let (first, second) = (key_of(&t, &ada, &one).await, key_of(&t, &ada, &two).await);
    for path in ["/auth/me", "/apps", "/auth/sessions", "/auth/export"] {
        let answer = ada.asks(t.get(path)).header("x-service-app-key", &first).await;
        assert_eq!(answer.refusal(), (403, "app_key_mismatch"), "{path}: {}", answer.text);
        assert!(answer.text.contains("not to the app whose key"), "{}", answer.text);
    }
    let inside = Person::of(&login_with(&t, ADA, &first).await);
    let answer = inside.asks(t.get("/auth/me")).header("x-service-app-key", &second).await;
    assert_eq!(answer.refusal(), (403, "app_key_mismatch"), "{}", answer.text);
    assert_eq!(ada.asks(t.get("/webhooks")).header("x-service-app-key", &first).await.status, 200, "both are needed");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_app_learns_nothing_of_how_its_people_sign_in() {
    let t = start().await;
    let (ada, bob) = (signed_in(&t, ADA).await, signed_in(&t, BOB).await);
    let app = make_app(&t, &ada, "Shop").await;
    let key = key_of(&t, &ada, &app).await;
    let totp = totp(&t, &bob).await;
    let half = login_with(&t, BOB, &key).await;
    let body = json!({ "mfaTicket": half.body["mfaTicket"], "code": shown(&t, &totp) });
    let entered = t.post("/auth/2fa/login-verify").json(&body).await;
    assert_eq!(entered.status, 200, "{}", entered.text);
    assert_eq!(entered.body["user"]["mfaEnabled"], false);
    let access = entered.body["accessToken"].as_str().unwrap();
    let me = t.get("/auth/me").header("authorization", &format!("Bearer {access}")).await;
    assert_eq!((&me.body["mfaEnabled"], &me.body["email"]), (&json!(false), &json!(BOB)));
    for user in [&entered.body["user"], &me.body] {
        assert_eq!((user.get("authProvider"), &user["passkeys"]), (None, &json!([])), "{user}");
    }
    let bearer = format!("Bearer {access}");
    let list = t.get("/auth/sessions").header("authorization", &bearer).await;
    assert_eq!((list.status, &list.body["sessions"][0]["methods"]), (200, &json!([])), "{}", list.text);
    let change = t.ask(Method::PATCH, "/user/profile").json(&json!({ "bio": "Hi" }));
    let changed = change.header("authorization", &bearer).await;
    assert_eq!((changed.status, changed.body.get("authProvider")), (200, None), "{}", changed.text);
    let own = bob.asks(t.get("/auth/me")).await.body;
    assert_eq!(
        (&own["mfaEnabled"], &own["authProvider"]),
        (&json!(true), &json!("email")),
        "the service's own sees it"
    );
    let list = bob.asks(t.get("/auth/sessions")).await.body;
    let own = list["sessions"].as_array().unwrap().iter().find(|session| session["current"] == true).unwrap();
    assert_eq!(own["methods"], json!(["pwd", "otp", "mfa"]), "{list}");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_link_that_was_asked_for_through_an_app_opens_no_other_door() {
    let t = start().await;
    let ada = signed_in(&t, ADA).await;
    let app = make_app(&t, &ada, "Shop").await;
    let key = key_of(&t, &ada, &app).await;
    let ask = t.post("/auth/magic-link/request").json(&json!({ "email": ADA }));
    assert_eq!(ask.header("x-service-app-key", &key).await.status, 200);
    t.run_jobs().await;
    let token = token_in(&mail_to(&t, ADA).unwrap());
    assert_eq!(delete(&t, &ada, &app).await, 204);
    let follow = t.post("/auth/magic-link/verify").json(&json!({ "token": token }));
    assert_eq!(follow.header("x-service-app-key", &key).await.refusal(), (401, "invalid_app_key"));
    let own = Person::of(&login(&t, ADA, PASSWORD).await);
    assert_eq!(refresh(&t, &own.refresh).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

/// Finishes a sign-in with a second factor, with an app's key or without one.
async fn finish(t: &TestJanua, ticket: &Value, code: &str, key: Option<&str>) -> Answer {
    let body = json!({ "mfaTicket": ticket, "code": code, "trustDevice": true });
    let ask = t.post("/auth/2fa/login-verify").json(&body);
    match key {
        Some(key) => ask.header("x-service-app-key", key).await,
        None => ask.await,
    }
}

#[tokio::test]
async fn a_ticket_is_finished_where_it_was_given() {
    let t = start().await;
    let (ada, bob) = (signed_in(&t, ADA).await, signed_in(&t, BOB).await);
    let (one, two) = (make_app(&t, &ada, "One").await, make_app(&t, &ada, "Two").await);
    let (first, second) = (key_of(&t, &ada, &one).await, key_of(&t, &ada, &two).await);
    let totp = totp(&t, &bob).await;
    let half = login_with(&t, BOB, &first).await.body["mfaTicket"].clone();
    let answer = finish(&t, &half, &shown(&t, &totp), Some(&second)).await;
    assert_eq!(answer.refusal(), (410, "token_spent"), "with another app's key");
    let ask = t.post("/auth/mfa/sms/challenge").json(&json!({ "mfaTicket": half }));
    assert_eq!(ask.header("x-service-app-key", &second).await.refusal(), (410, "token_spent"));
    assert_eq!(finish(&t, &half, &shown(&t, &totp), Some(&first)).await.status, 200, "which uses up nothing of it");
    t.advance(Duration::from_secs(30));
    let own = login(&t, BOB, PASSWORD).await.body["mfaTicket"].clone();
    let answer = finish(&t, &own, &shown(&t, &totp), Some(&first)).await;
    assert_eq!(answer.refusal(), (410, "token_spent"), "the service's own with an app's key");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_device_trusted_in_an_app_is_trusted_there_alone() {
    let t = start().await;
    let (ada, bob) = (signed_in(&t, ADA).await, signed_in(&t, BOB).await);
    let (one, two) = (make_app(&t, &ada, "One").await, make_app(&t, &ada, "Two").await);
    let (first, second) = (key_of(&t, &ada, &one).await, key_of(&t, &ada, &two).await);
    let totp = totp(&t, &bob).await;
    let half = login_with(&t, BOB, &first).await.body["mfaTicket"].clone();
    let entered = finish(&t, &half, &shown(&t, &totp), Some(&first)).await;
    assert_eq!(entered.status, 200, "{}", entered.text);
    let mut lines = entered.headers.get_all("set-cookie").iter().map(|line| line.to_str().unwrap());
    let mark = lines.find(|line| line.starts_with("service_mfa_trusted=")).unwrap();
    let mark = mark.split(';').next().unwrap().to_owned();
    let sign_in = |key: Option<&str>| {
        let body = json!({ "email": BOB, "password": PASSWORD, "options": { "tokenDelivery": "body" } });
        let ask = t.post("/auth/login").json(&body).header("cookie", &mark);
        if let Some(key) = key { ask.header("x-service-app-key", key).send() } else { ask.send() }
    };
    assert!(sign_in(Some(&first)).await.body.get("accessToken").is_some(), "in the app it was made in");
    assert_eq!(sign_in(Some(&second)).await.body["requiresMfa"], true, "in no other app");
    assert_eq!(sign_in(None).await.body["requiresMfa"], true, "nor at the service itself");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn two_strangers_with_an_apps_key_and_the_same_idempotency_key_do_not_meet() {
    let t = start().await;
    let ada = signed_in(&t, ADA).await;
    let key = key_of(&t, &ada, &make_app(&t, &ada, "Shop").await).await;
    let ask = |from: &str, cookie: &str| {
        let body = json!({ "email": "new@example.com", "password": PASSWORD, "name": "New" });
        let ask = t.post("/auth/register").json(&body).header("x-service-app-key", &key).from(from);
        ask.header("idempotency-key", "1").header("cookie", cookie).send()
    };
    let replayed = |answer: Answer| {
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.headers.get("idempotency-replayed").is_some()
    };
    assert!(!replayed(ask("192.0.2.1", "").await));
    assert!(replayed(ask("192.0.2.1", "").await), "who repeats it gets the answer");
    assert!(!replayed(ask("192.0.2.2", "").await), "a stranger does not");
    assert!(!replayed(ask("192.0.2.3", "language=de").await));
    assert!(!replayed(ask("192.0.2.4", "language=de").await), "nor by a cookie that says nothing");
    t.run_jobs().await;
    t.finish().await;
}
