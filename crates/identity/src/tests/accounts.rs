//! A person registers, confirms, signs in, stays signed in, recovers and leaves.
use std::time::Duration;

use axum::http::Method;
use serde_json::json;

use super::actors::*;

#[tokio::test]
async fn somebody_signs_up_confirms_and_signs_in() {
    let t = start().await;
    let answer = register(&t, "ada@example.com").await;
    assert_eq!(answer.body, json!({ "requiresVerification": true, "email": "ada@example.com" }));
    for _ in 0..12 {
        let early = login(&t, "ada@example.com", PASSWORD).await;
        assert_eq!(early.refusal(), (403, "email_not_verified"), "however often it is tried");
    }
    let mail = mail_to(&t, "ada@example.com").unwrap();
    assert!(mail.contains("http://localhost:0/auth/verify?token="), "{mail}");
    let verified = t.post("/auth/verify-email").json(&json!({ "token": token_in(&mail) })).await;
    assert_eq!((verified.status, &verified.body["emailVerified"]), (200, &json!(true)));
    let person = Person::of(&login(&t, "ADA@example.com ", PASSWORD).await);
    let me = person.asks(t.get("/auth/me")).await;
    assert_eq!((&me.body["email"], &me.body["name"]), (&json!("ada@example.com"), &json!("Ada")));
    t.expects(&["ACCOUNT_CREATED", "EMAIL_VERIFIED", "SIGNED_IN"]).await;
    t.finish().await;
}

#[tokio::test]
async fn the_code_confirms_too_and_dies_after_five_wrong_guesses() {
    let t = start().await;
    register(&t, "ada@example.com").await;
    let mail = mail_to(&t, "ada@example.com").unwrap();
    let code = code_in(&mail);
    let send =
        |code: String| t.post("/auth/verify-email").json(&json!({ "email": "ada@example.com", "code": code })).send();
    let wrong = if code == "000000" { "000001" } else { "000000" };
    for _ in 0..4 {
        assert_eq!(send(wrong.into()).await.refusal(), (410, "token_spent"));
    }
    assert_eq!(send(code).await.status, 200, "the fifth try is right");
    t.finish().await;

    let t = start().await;
    register(&t, "eve@example.com").await;
    let mail = mail_to(&t, "eve@example.com").unwrap();
    let code = code_in(&mail);
    let wrong = if code == "000000" { "000001" } else { "000000" };
    let send =
        |code: &str| t.post("/auth/verify-email").json(&json!({ "email": "eve@example.com", "code": code })).send();
    for _ in 0..5 {
        send(wrong).await;
    }
    let late = send(&code).await;
    assert_ne!(late.status, 200, "{}", late.text);
    t.finish().await;
}

#[tokio::test]
async fn nothing_tells_whether_an_address_has_an_account() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    for (path, extra) in [
        ("/auth/register", json!({ "password": PASSWORD, "name": "X" })),
        ("/auth/forgot-password", json!({})),
        ("/auth/resend-verification", json!({})),
        ("/auth/magic-link/request", json!({})),
        ("/auth/login", json!({ "password": "wrong wrong wrong" })),
    ] {
        let ask = |email: &str| {
            let mut body = extra.clone();
            body["email"] = json!(email);
            t.post(path).json(&body).send()
        };
        let (known, unknown) = (ask("ada@example.com").await, ask("bob@example.com").await);
        assert_eq!(known.status, unknown.status, "{path}");
        let names =
            |answer: &kernel::testing::Answer| answer.headers.keys().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(&known), names(&unknown), "{path}");
        let shape = |answer: &kernel::testing::Answer| {
            let mut body = answer.body.clone();
            for field in ["requestId", "email"] {
                body.as_object_mut().and_then(|fields| fields.remove(field));
            }
            body
        };
        assert_eq!(shape(&known), shape(&unknown), "{path}");
        t.run_jobs().await;
    }
    assert!(mail_to(&t, "ada@example.com").is_some());
    t.finish().await;
}

#[tokio::test]
async fn one_address_is_one_account_and_a_second_sign_up_takes_nothing_over() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    register(&t, "ADA@EXAMPLE.com").await;
    assert!(mail_to(&t, "ADA@example.com").unwrap().contains("already have an account"));
    assert_eq!(login(&t, "ada@example.com", PASSWORD).await.status, 200);

    // Who does it twice has what they chose.
    register(&t, "twice@example.com").await;
    register(&t, "twice@example.com").await;
    let token = token_in(&mail_to(&t, "twice@example.com").unwrap());
    assert_eq!(t.post("/auth/verify-email").json(&json!({ "token": token })).await.status, 200);
    assert_eq!(login(&t, "twice@example.com", PASSWORD).await.status, 200);

    // An attacker signs up with somebody's address before its owner does, or after: no password of the two counts.
    let mallorys = "mallory knows this one";
    for (email, is_first) in [("bob@example.com", true), ("cyd@example.com", false)] {
        let mallory = json!({ "email": email, "password": mallorys, "name": "Mallory" });
        if !is_first {
            register(&t, email).await;
        }
        t.post("/auth/register").json(&mallory).await;
        t.run_jobs().await;
        let first = token_in(&mail_to(&t, email).unwrap());
        if is_first {
            register(&t, email).await;
            let late = t.post("/auth/verify-email").json(&json!({ "token": first })).await;
            assert_eq!(late.refusal(), (410, "token_spent"), "the link from before");
        }
        let mail = mail_to(&t, email).unwrap();
        assert!(mail.contains("more than one sign-up"), "{mail}");
        let verified = t.post("/auth/verify-email").json(&json!({ "token": token_in(&mail) })).await;
        assert_eq!(verified.status, 200);
        assert_eq!(login(&t, email, mallorys).await.status, 401);
        t.post("/auth/forgot-password").json(&json!({ "email": email })).await;
        t.run_jobs().await;
        let token = token_in(&mail_to(&t, email).unwrap());
        let reset = t.post("/auth/reset-password").json(&json!({ "token": token, "password": PASSWORD })).await;
        assert_eq!((reset.status, login(&t, email, PASSWORD).await.status), (204, 200));
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p22_a_mail_that_its_owner_asked_for_opens_nothing_for_whoever_signed_up_before() {
    let t = start().await;
    let mallorys = "mallory knows this one";
    for (email, ask) in
        [("bob@example.com", "/auth/magic-link/request"), ("cyd@example.com", "/auth/forgot-password")]
    {
        let mallory = json!({ "email": email, "password": mallorys, "name": "Mallory" });
        t.post("/auth/register").json(&mallory).await;
        t.run_jobs().await;
        let first = token_in(&mail_to(&t, email).unwrap());
        t.post(ask).json(&json!({ "email": email })).await;
        t.run_jobs().await;
        let token = token_in(&mail_to(&t, email).unwrap());
        let followed = if ask.contains("magic") {
            t.post("/auth/magic-link/verify").json(&json!({ "token": token })).await
        } else {
            t.post("/auth/reset-password").json(&json!({ "token": token, "password": PASSWORD })).await
        };
        assert!(followed.status < 300, "{}", followed.text);
        assert_eq!(login(&t, email, mallorys).await.status, 401, "{ask}");
        let late = t.post("/auth/verify-email").json(&json!({ "token": first })).await;
        assert_eq!(late.refusal(), (410, "token_spent"), "nor by the link of the sign-up");
        assert_eq!(login(&t, email, mallorys).await.status, 401, "{ask}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn bad_input_names_every_field_and_leaves_nothing() {
    let t = start().await;
    let answer = t.post("/auth/register").json(&json!({ "email": "nobody", "password": 5, "name": "" })).await;
    assert_eq!((answer.refusal(), answer.wrong_fields()), ((400, "invalid"), vec!["email", "name", "password"]));
    for (password, code) in
        [("short", "wrong_length"), ("password1", "guessable"), ("ada.lovelace rules", "contains_email")]
    {
        let body = json!({ "email": "ada.lovelace@example.com", "password": password, "name": "Ada" });
        let answer = t.post("/auth/register").json(&body).await;
        assert_eq!(answer.refusal(), (400, "weak_password"), "{password}");
        assert_eq!(answer.body["errors"][0]["code"], code, "{password}");
    }
    assert_eq!(t.run_jobs().await, 3, "only the recurring jobs");
    t.expects(&[]).await;
    t.finish().await;
}

#[tokio::test]
async fn a_refresh_token_turns_over_and_a_copy_ends_the_session() {
    let t = start().await;
    let person = signed_in(&t, "ada@example.com").await;
    t.expects(&["ACCOUNT_CREATED", "EMAIL_VERIFIED", "SIGNED_IN"]).await;
    let first = Person::of(&refresh(&t, &person.refresh).await);
    assert_ne!(first.refresh, person.refresh);
    t.advance(Duration::from_secs(9));
    let retry = Person::of(&refresh(&t, &person.refresh).await);
    assert_eq!(retry.refresh, first.refresh, "who lost the answer gets the same one again");
    let second = Person::of(&refresh(&t, &first.refresh).await);
    t.advance(Duration::from_secs(11));
    assert_eq!(refresh(&t, &first.refresh).await.refusal(), (401, "unauthenticated"), "a copy was used");
    assert_eq!(refresh(&t, &second.refresh).await.status, 401, "the whole family is gone");
    assert_eq!(second.asks(t.get("/auth/me")).await.status, 401, "and its access tokens with it");
    t.expects(&["REFRESH_TOKEN_REUSED", "SESSION_REVOKED"]).await;
    t.finish().await;
}

#[tokio::test]
async fn a_session_ends_when_unused_and_at_last_in_any_case() {
    let t = start().await;
    let mut person = signed_in(&t, "ada@example.com").await;
    t.advance(Duration::from_hours(31 * 24));
    assert_eq!(refresh(&t, &person.refresh).await.status, 401, "thirty days unused");
    person = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    for _ in 0..4 {
        t.advance(Duration::from_hours(20 * 24));
        person = Person::of(&refresh(&t, &person.refresh).await);
    }
    t.advance(Duration::from_hours(11 * 24));
    assert_eq!(refresh(&t, &person.refresh).await.status, 401, "ninety days are the end");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn signing_out_and_revoking_bite_on_the_next_request() {
    let t = start().await;
    let one = signed_in(&t, "ada@example.com").await;
    let two = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    let three = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    t.expects(&["ACCOUNT_CREATED", "EMAIL_VERIFIED", "SIGNED_IN", "SIGNED_IN", "SIGNED_IN"]).await;
    let listed = one.asks(t.get("/auth/sessions")).await;
    let sessions = listed.body["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 3);
    assert_eq!(sessions.iter().filter(|s| s["current"] == true).count(), 1);
    assert_eq!(sessions[0]["device"], "Firefox on Linux");
    assert_eq!(three.asks(t.get("/auth/me")).await.status, 200);
    let third = sessions[0]["id"].as_str().unwrap();
    assert_eq!(one.asks(t.ask(Method::DELETE, &format!("/auth/sessions/{third}"))).await.status, 204);
    assert_eq!(three.asks(t.get("/auth/me")).await.status, 401);
    assert_eq!(refresh(&t, &three.refresh).await.status, 401);
    let again = one.asks(t.ask(Method::DELETE, &format!("/auth/sessions/{third}"))).await;
    assert_eq!(again.refusal(), (404, "not_found"));
    assert_eq!(two.asks(t.post("/auth/logout")).await.status, 204);
    assert_eq!(two.asks(t.get("/auth/me")).await.status, 401);
    assert_eq!(one.asks(t.ask(Method::DELETE, "/auth/sessions")).await.status, 204);
    assert_eq!(one.asks(t.get("/auth/me")).await.status, 401);
    t.expects(&["SESSION_REVOKED", "SESSION_REVOKED", "SESSION_REVOKED"]).await;

    let eve = signed_in(&t, "eve@example.com").await;
    let ada = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    let listed = ada.asks(t.get("/auth/sessions")).await;
    let of_ada = listed.body["sessions"][0]["id"].as_str().unwrap();
    let foreign = eve.asks(t.ask(Method::DELETE, &format!("/auth/sessions/{of_ada}"))).await;
    assert_eq!(foreign.refusal(), (404, "not_found"), "another person's session does not exist");
    assert_eq!(ada.asks(t.get("/auth/me")).await.status, 200);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_forgotten_password_is_replaced_once_and_ends_all_sessions() {
    let t = start().await;
    let person = signed_in(&t, "ada@example.com").await;
    let ask = || async {
        t.post("/auth/forgot-password").json(&json!({ "email": "ada@example.com" })).await;
        t.run_jobs().await;
        token_in(&mail_to(&t, "ada@example.com").unwrap())
    };
    let reset = |token: &str, password: &str| {
        t.post("/auth/reset-password").json(&json!({ "token": token, "password": password })).send()
    };
    let (old, new) = (ask().await, ask().await);
    assert_eq!(reset(&new, "password").await.refusal(), (400, "weak_password"), "and the link still works");
    let done = reset(&new, "another good passphrase").await;
    assert_eq!(done.status, 204);
    assert!(!done.headers.contains_key("set-cookie"), "a reset signs nobody in");
    for used in [&new, &old] {
        assert_eq!(reset(used, "yet another passphrase").await.status, 410, "one was used, so none works any more");
    }
    assert_eq!(person.asks(t.get("/auth/me")).await.status, 401);
    assert_eq!(refresh(&t, &person.refresh).await.status, 401);
    assert_eq!(login(&t, "ada@example.com", PASSWORD).await.status, 401);
    assert_eq!(login(&t, "ada@example.com", "another good passphrase").await.status, 200);
    t.run_jobs().await;
    assert!(mail_to(&t, "ada@example.com").unwrap().contains("password was changed"));
    let late = ask().await;
    t.advance(Duration::from_mins(61));
    assert_eq!(reset(&late, "yet another passphrase").await.status, 410, "after an hour");
    t.finish().await;
}

#[tokio::test]
async fn a_changed_password_ends_every_other_session() {
    let t = start().await;
    let one = signed_in(&t, "ada@example.com").await;
    let two = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    let change = |current: &str, new: &str| {
        let body = json!({ "currentPassword": current, "newPassword": new });
        one.asks(t.post("/auth/change-password").json(&body)).send()
    };
    assert_eq!(change("not this one", "another good passphrase").await.refusal(), (403, "wrong_password"));
    assert_eq!(change(PASSWORD, "12345678").await.refusal(), (400, "weak_password"));
    assert_eq!(change(PASSWORD, "another good passphrase").await.status, 204);
    assert_eq!(one.asks(t.get("/auth/me")).await.status, 200, "the one it was changed in goes on");
    assert_eq!(two.asks(t.get("/auth/me")).await.status, 401);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_link_signs_in_once() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    t.post("/auth/magic-link/request").json(&json!({ "email": "ada@example.com" })).await;
    t.run_jobs().await;
    let token = token_in(&mail_to(&t, "ada@example.com").unwrap());
    let body = json!({ "token": token, "options": { "tokenDelivery": "body" } });
    let person = Person::of(&t.post("/auth/magic-link/verify").json(&body).await);
    assert_eq!(person.asks(t.get("/auth/me")).await.status, 200);
    assert_eq!(t.post("/auth/magic-link/verify").json(&body).await.refusal(), (410, "token_spent"));
    t.finish().await;
}

#[tokio::test]
async fn a_secret_of_one_purpose_opens_no_other_door() {
    let t = start().await;
    register(&t, "new@example.com").await;
    let verify = token_in(&mail_to(&t, "new@example.com").unwrap());
    let person = signed_in(&t, "ada@example.com").await;
    t.post("/auth/forgot-password").json(&json!({ "email": "ada@example.com" })).await;
    t.run_jobs().await;
    let reset = token_in(&mail_to(&t, "ada@example.com").unwrap());
    t.post("/auth/magic-link/request").json(&json!({ "email": "ada@example.com" })).await;
    t.run_jobs().await;
    let magic = token_in(&mail_to(&t, "ada@example.com").unwrap());
    let doors = ["/auth/verify-email", "/auth/reset-password", "/auth/magic-link/verify"];
    for (token, own) in
        [(&verify, doors[0]), (&reset, doors[1]), (&magic, doors[2]), (&person.refresh, ""), (&person.access, "")]
    {
        for door in doors.into_iter().filter(|door| *door != own) {
            let body = json!({ "token": token, "password": "another good passphrase" });
            assert_eq!(t.post(door).json(&body).await.status, 410, "{door}");
        }
        if token != &person.access {
            let bearer = t.get("/auth/me").header("authorization", &format!("Bearer {token}")).await;
            assert_eq!(bearer.status, 401);
        }
        if token != &person.refresh {
            assert_eq!(refresh(&t, token).await.status, 401);
        }
    }
    t.finish().await;
}

#[tokio::test]
async fn a_browser_gets_cookies_that_scripts_cannot_read() {
    let config = kernel::config::Config {
        base_url: Some("https://id.example.com".parse().unwrap()),
        ..kernel::config::Config::for_tests()
    };
    let t = kernel::testing::TestJanua::start_with(config, feature).await;
    member(&t, "ada@example.com").await;
    let body = json!({ "email": "ada@example.com", "password": PASSWORD });
    let answer = t.post("/auth/login").json(&body).await;
    assert!(answer.body.get("refreshToken").is_none());
    let cookies: Vec<&str> = answer.headers.get_all("set-cookie").iter().map(|v| v.to_str().unwrap()).collect();
    assert_eq!(cookies.len(), 2);
    for (cookie, name) in cookies.iter().zip(["__Host-service_access=", "__Host-service_refresh="]) {
        assert!(cookie.starts_with(name), "{cookie}");
        for flag in ["Path=/", "HttpOnly", "SameSite=Lax", "Secure", "Max-Age="] {
            assert!(cookie.contains(flag), "{cookie}");
        }
        assert!(!cookie.contains("Domain"), "{cookie}");
    }
    let jar = cookies.iter().map(|cookie| cookie.split(';').next().unwrap()).collect::<Vec<_>>().join("; ");
    assert_eq!(t.get("/auth/me").header("cookie", &jar).await.status, 200);
    let forged = t.post("/auth/refresh").header("cookie", &jar).header("origin", "https://evil.example").await;
    assert_eq!(forged.refusal(), (403, "cross_site"));
    let turned = t.post("/auth/refresh").header("cookie", &jar).header("sec-fetch-site", "same-origin").await;
    assert_eq!(turned.status, 200);
    assert_eq!(turned.headers.get_all("set-cookie").iter().count(), 2);
    t.finish().await;
}

#[tokio::test]
async fn a_new_device_is_announced_and_the_first_one_is_not() {
    let t = start().await;
    signed_in(&t, "ada@example.com").await;
    t.run_jobs().await;
    assert!(!mail_to(&t, "ada@example.com").unwrap().contains("New sign-in"));
    let body = json!({ "email": "ada@example.com", "password": PASSWORD });
    t.post("/auth/login").json(&body).header("user-agent", SAFARI).await;
    t.run_jobs().await;
    let mail = mail_to(&t, "ada@example.com").unwrap();
    assert!(mail.contains("New sign-in to your account"), "{mail}");
    t.finish().await;
}

#[tokio::test]
async fn the_profile_changes_only_what_it_may() {
    let t = start().await;
    let person = signed_in(&t, "ada@example.com").await;
    let patch = json!({ "name": " Ada L. ", "bio": "First.", "emailVerified": false, "id": "x", "email": "e@x.com" });
    let answer = person.asks(t.ask(Method::PATCH, "/user/profile").json(&patch)).await;
    assert_eq!((&answer.body["name"], &answer.body["bio"]), (&json!("Ada L."), &json!("First.")));
    let me = person.asks(t.get("/auth/me")).await;
    assert_eq!(
        (&me.body["name"], &me.body["email"], &me.body["emailVerified"]),
        (&json!("Ada L."), &json!("ada@example.com"), &json!(true))
    );
    t.finish().await;
}

#[tokio::test]
async fn the_audit_log_and_the_export_hold_everything_and_no_secret() {
    let t = start().await;
    let person = signed_in(&t, "ada@example.com").await;
    let log = person.asks(t.get("/auth/audit-log?limit=2")).await;
    assert_eq!(log.body["events"].as_array().unwrap().len(), 2);
    assert_eq!(log.body["events"][0]["type"], "SIGNED_IN");
    let cursor = log.body["nextCursor"].as_str().unwrap();
    let rest = person.asks(t.get(&format!("/auth/audit-log?limit=2&cursor={cursor}"))).await;
    assert_eq!(rest.body["events"][0]["type"], "ACCOUNT_CREATED");
    let eve = signed_in(&t, "eve@example.com").await;
    let foreign = eve.asks(t.get(&format!("/auth/audit-log?cursor={cursor}"))).await;
    assert_eq!(foreign.refusal(), (400, "bad_cursor"), "somebody else's cursor");

    let export = person.asks(t.get("/auth/export")).await;
    assert_eq!(export.body["user"]["email"], "ada@example.com");
    assert_eq!(export.body["sessions"].as_array().unwrap().len(), 1);
    for secret in ["argon2", PASSWORD, &person.refresh, &person.access, "sealed"] {
        assert!(!export.text.contains(secret), "{secret}");
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn p07_who_leaves_is_gone_and_only_a_pseudonym_stays() {
    let t = start().await;
    let person = signed_in(&t, "ada@example.com").await;
    let mut links = vec![];
    for (ask, follow, extra) in [
        ("/auth/magic-link/request", "/auth/magic-link/verify", json!({})),
        ("/auth/forgot-password", "/auth/reset-password", json!({ "password": PASSWORD })),
    ] {
        t.post(ask).json(&json!({ "email": "ada@example.com" })).await;
        t.run_jobs().await;
        let mut body = extra;
        body["token"] = token_in(&mail_to(&t, "ada@example.com").unwrap()).into();
        links.push((follow, body));
    }
    t.advance(Duration::from_mins(11));
    let person = Person::of(&refresh(&t, &person.refresh).await);
    let before =
        &["ACCOUNT_CREATED", "EMAIL_VERIFIED", "SIGNED_IN", "MAGIC_LINK_REQUESTED", "PASSWORD_RESET_REQUESTED"];
    t.expects(before).await;
    let stale = person.asks(t.ask(Method::DELETE, "/auth/me")).await;
    assert_eq!(stale.refusal(), (403, "reauthentication_required"));
    let wrong = person.asks(t.ask(Method::DELETE, "/auth/me").json(&json!({ "password": "wrong one" }))).await;
    assert_eq!(wrong.refusal(), (403, "wrong_password"));
    let done = person.asks(t.ask(Method::DELETE, "/auth/me").json(&json!({ "password": PASSWORD }))).await;
    assert_eq!(done.status, 204);
    assert_eq!(person.asks(t.get("/auth/me")).await.status, 401);
    assert_eq!(refresh(&t, &person.refresh).await.status, 401);
    assert_eq!(login(&t, "ada@example.com", PASSWORD).await.status, 401);
    for (follow, body) in links {
        assert_eq!(t.post(follow).json(&body).await.status, 410, "{follow}");
    }
    let sql = "SELECT type FROM audit_event WHERE account_id = $1 AND (ip IS NOT NULL OR user_agent IS NOT NULL)";
    let left: Vec<(String,)> = t.janua.db.all(sql, db::params![&person.id]).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    t.expects(&["SESSION_REVOKED", "ACCOUNT_DELETED"]).await;
    t.run_jobs().await;
    assert!(mail_to(&t, "ada@example.com").unwrap().contains("account was deleted"));
    t.finish().await;
}
