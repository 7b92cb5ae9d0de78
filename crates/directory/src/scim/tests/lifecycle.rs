//! From being announced to being switched off: nobody's account is taken over, and nothing outlives the end (P07).
use identity::testing::{PASSWORD, mail_to, token_in};

use super::*;

async fn announced(o: &Org, email: &str) -> (Value, String) {
    let user = o.user(&json!({ "userName": email, "emails": [{ "value": email, "primary": true }] })).await;
    let token = invite_token(&o.t, email).await;
    (user, token)
}

/// Somebody without an account who follows the invitation.
async fn newcomer(o: &Org, email: &str) -> (Value, Person) {
    let (user, token) = announced(o, email).await;
    let body = json!({ "token": token, "name": "New", "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    (user, Person::of(&o.t.post("/auth/accept-invite").json(&body).await))
}

async fn switch(o: &Org, user: &Value, active: bool) -> Answer {
    o.patch(id(user), &json!([{ "op": "replace", "path": "active", "value": active }])).await
}

async fn role(o: &Org, user: &Value) -> Value {
    o.get(&format!("/Users/{}", id(user))).await.body["roles"][0]["value"].clone()
}

#[tokio::test]
async fn an_account_that_exists_is_not_taken_over_by_its_address() {
    let o = Org::start().await;
    let ada = signed_in(&o.t, "ada@example.com").await;
    let (user, token) = announced(&o, "Ada@example.com").await;
    assert_eq!(role(&o, &user).await, Value::Null, "announced is not in");
    let orgs = ada.asks(o.t.get("/user/orgs")).await;
    assert!(!orgs.text.contains(&o.id), "{}", orgs.text);
    // Whatever the provider says of them changes nothing of theirs.
    o.patch(
        id(&user),
        &json!([{ "op": "add", "value": { "displayName": "Hacked", "password": "another long password" } }]),
    )
    .await;
    let me_now = ada.asks(o.t.get("/auth/me")).await.body;
    assert!(!me_now.to_string().contains("Hacked"));
    assert_eq!(switch(&o, &user, false).await.status, 200);
    assert_eq!(me(&o.t, &ada).await, 200, "nothing of theirs ends");
    assert_eq!(login(&o.t, "ada@example.com", PASSWORD).await.status, 200);
    assert_eq!(accept(&o.t, &ada, &token).await.refusal(), (410, "token_spent"), "an invitation ends with it");

    // Asked in anew, they accept as who they are; somebody else cannot.
    switch(&o, &user, true).await;
    let token = invite_token(&o.t, "Ada@example.com").await;
    let eve = signed_in(&o.t, "eve@example.com").await;
    assert_eq!(accept(&o.t, &eve, &token).await.refusal(), (403, "other_address"));
    assert_eq!(accept(&o.t, &ada, &token).await.status, 200);
    assert_eq!(role(&o, &user).await, json!("member"));
    let linked = o.get(&format!("/Users/{}", id(&user))).await.body;
    assert_eq!((&linked["id"], &linked["active"]), (&user["id"], &json!(true)));
    assert_eq!(o.get("/Users").await.body["totalResults"], json!(2), "one person, not two");
    // Their account is their own: off means out of the organization, and no further.
    assert_eq!(switch(&o, &user, false).await.status, 200);
    assert_eq!(me(&o.t, &ada).await, 401, "the session that acted for it is over");
    let again = Person::of(&login(&o.t, "ada@example.com", PASSWORD).await);
    assert_eq!(again.asks(o.t.get(&format!("/org/{}", o.id))).await.status, 404);
    o.finish().await;
}

#[tokio::test]
async fn p07_off_ends_everything_at_once_and_on_brings_a_member_back() {
    for way in ["PATCH", "PUT", "DELETE"] {
        let o = Org::start().await;
        let (user, person) = newcomer(&o, "ada@example.com").await;
        assert_eq!(role(&o, &user).await, json!("member"));
        set_admin(&o, &person).await;
        let made = person.asks(o.t.post("/apps").json(&json!({ "name": "App", "orgId": o.id }))).await;
        let keys = format!("/apps/{}/keys", id(&made.body));
        let key = person.asks(o.t.post(&keys).json(&json!({ "type": "secret", "environment": "live" }))).await;
        let key = key.body["value"].as_str().unwrap().to_owned();
        let theirs = o.owner.asks(o.t.post(&keys).json(&json!({ "type": "secret", "environment": "live" }))).await;
        let theirs = theirs.body["value"].as_str().unwrap().to_owned();
        let use_key =
            |key: &str| o.t.post("/oauth/introspect").header("x-service-app-key", key).json(&json!({ "token": "x" }));
        assert_eq!(use_key(&key).await.status, 200);
        let second = Person::of(&login(&o.t, "ada@example.com", PASSWORD).await);
        o.t.post("/auth/magic-link/request").json(&json!({ "email": "ada@example.com" })).await;
        o.t.run_jobs().await;
        let link = token_in(&mail_to(&o.t, "ada@example.com").unwrap());
        let device = o.t.post("/auth/device/code").header("user-agent", "Terminal").await.body;
        let approval = json!({ "user_code": device["user_code"], "approve": true });
        assert_eq!(person.asks(o.t.post("/auth/device/verify").json(&approval)).await.status, 200);
        o.t.happened().await;

        let path = format!("/Users/{}", id(&user));
        let status = match way {
            "PATCH" => switch(&o, &user, false).await.status,
            "PUT" => o.send("PUT", &path, &json!({ "userName": "ada@example.com", "active": false })).await.status,
            _ => o.ask("DELETE", &path).await.status,
        };
        assert_eq!(status, if way == "DELETE" { 204 } else { 200 });
        let happened = o.t.happened().await;
        let count = |kind: &str| happened.iter().filter(|event| *event == kind).count();
        assert_eq!(
            (count("SESSION_REVOKED"), count("APP_KEY_DELETED"), count("PERSON_DEACTIVATED")),
            (2, 1, 1),
            "{happened:?}"
        );

        for session in [&person, &second] {
            assert_eq!(me(&o.t, session).await, 401, "{way}: an old access token");
            assert_eq!(refresh(&o.t, &session.refresh).await.status, 401, "{way}: an old refresh token");
        }
        assert_eq!(use_key(&key).await.status, 401, "{way}: a key they made");
        assert_eq!(use_key(&theirs).await.status, 200, "{way}: a key somebody else made");
        let by_link = o.t.post("/auth/magic-link/verify").json(&json!({ "token": link })).await;
        assert_eq!(by_link.refusal(), (410, "token_spent"), "{way}: a link that was sent");
        assert_eq!(login(&o.t, "ada@example.com", PASSWORD).await.refusal(), (403, "account_closed"), "{way}");
        o.t.post("/auth/magic-link/request").json(&json!({ "email": "ada@example.com" })).await;
        o.t.run_jobs().await;
        let link = token_in(&mail_to(&o.t, "ada@example.com").unwrap());
        let by_link = o.t.post("/auth/magic-link/verify").json(&json!({ "token": link })).await;
        assert!(
            matches!(by_link.refusal(), (403, "account_closed") | (410, "token_spent")),
            "{way}: {}",
            by_link.text
        );
        // The user is kept.
        let kept = o.get(&path).await;
        assert_eq!((kept.status, &kept.body["active"], &kept.body["roles"]), (200, &json!(false), &Value::Null));
        assert_eq!(o.found("active eq false").await, ["ada@example.com"]);

        assert_eq!(switch(&o, &user, true).await.status, 200);
        assert_eq!(role(&o, &user).await, json!("member"), "{way}: not an admin by it");
        assert_eq!(login(&o.t, "ada@example.com", PASSWORD).await.status, 200);
        assert_eq!(me(&o.t, &person).await, 401, "what ended stays ended");
        let polled = o.t.post("/auth/device/token").json(&json!({ "device_code": device["device_code"] })).await;
        assert_eq!(polled.status, 400, "{way}: a device approved before: {}", polled.text);
        o.finish().await;
    }
}

async fn set_admin(o: &Org, person: &Person) {
    let path = format!("/org/{}/members/{}", o.id, person.id);
    let made = o.owner.asks(o.t.ask(Method::PATCH, &path).json(&json!({ "role": "admin" }))).await;
    assert_eq!(made.status, 200, "{}", made.text);
}

#[tokio::test]
async fn the_last_owner_is_not_switched_off_and_owners_do_not_return_as_such() {
    let o = Org::start().await;
    let found = o.get("/Users?filter=roles%20eq%20%22owner%22").await.body["Resources"][0].clone();
    let off = switch(&o, &found, false).await;
    assert_eq!(refused(&off), (409, ""), "{}", off.text);
    assert_eq!(refused(&o.ask("DELETE", &format!("/Users/{}", id(&found))).await), (409, ""));
    assert_eq!(me(&o.t, &o.owner).await, 200);
    let second = joined(&o.t, &o.owner, &o.id, "second@example.com", "member").await;
    let path = format!("/org/{}/members/{}", o.id, second.id);
    assert_eq!(o.owner.asks(o.t.ask(Method::PATCH, &path).json(&json!({ "role": "owner" }))).await.status, 200);
    let user = json!({ "id": second.id });
    assert_eq!(switch(&o, &user, false).await.status, 200);
    assert_eq!(switch(&o, &user, true).await.status, 200);
    assert_eq!(role(&o, &user).await, json!("member"), "ownership is given by owners alone");
    o.finish().await;
}

#[tokio::test]
async fn an_account_that_left_is_its_own_and_a_later_owner_of_the_address_is_asked_anew() {
    let o = Org::start().await;
    let (user, person) = newcomer(&o, "ada@example.com").await;
    // Whoever leaves by themselves takes the account along.
    let path = format!("/org/{}/members/{}", o.id, person.id);
    assert_eq!(person.asks(o.t.ask(Method::DELETE, &path)).await.status, 204);
    assert_eq!(o.get(&format!("/Users/{}", id(&user))).await.body["active"], json!(false));
    assert_eq!(login(&o.t, "ada@example.com", PASSWORD).await.status, 200, "not closed");
    // Switched on again, they are asked, and not just put back.
    assert_eq!(switch(&o, &user, true).await.status, 200);
    assert_eq!(role(&o, &user).await, Value::Null);
    let token = invite_token(&o.t, "ada@example.com").await;
    let person = Person::of(&login(&o.t, "ada@example.com", PASSWORD).await);
    assert_eq!(accept(&o.t, &person, &token).await.status, 200);
    assert_eq!(role(&o, &user).await, json!("member"));
    // It was their own by then, so it can no longer be closed.
    assert_eq!(switch(&o, &user, false).await.status, 200);
    assert_eq!(login(&o.t, "ada@example.com", PASSWORD).await.status, 200);
    o.finish().await;
}

#[tokio::test]
async fn another_address_means_another_invitation() {
    let o = Org::start().await;
    let (user, old) = announced(&o, "typo@example.com").await;
    o.patch(id(&user), &json!([{ "op": "replace", "path": "emails", "value": [{ "value": "right@example.com" }] }]))
        .await;
    let token = invite_token(&o.t, "right@example.com").await;
    let typo = signed_in(&o.t, "typo@example.com").await;
    assert_eq!(accept(&o.t, &typo, &old).await.refusal(), (410, "token_spent"));
    let right = signed_in(&o.t, "right@example.com").await;
    assert_eq!(accept(&o.t, &right, &token).await.status, 200);
    assert_eq!(role(&o, &user).await, json!("member"));
    // A new address in the directory does not touch the account, nor reach another one.
    let victim = signed_in(&o.t, "victim@example.com").await;
    o.patch(id(&user), &json!([{ "op": "replace", "path": "emails", "value": [{ "value": "victim@example.com" }] }]))
        .await;
    assert_eq!(right.asks(o.t.get("/auth/me")).await.body["email"], json!("right@example.com"));
    assert_eq!(switch(&o, &user, false).await.status, 200);
    assert_eq!((me(&o.t, &victim).await, me(&o.t, &right).await), (200, 401));
    o.finish().await;
}
