//! After a database was put back: what may have been used or ended since is over, whatever the database says of it.
use std::time::Duration;

use serde_json::json;
use tenancy::restored::{self, Keys};

use super::{
    actors::*,
    factors::{careful, ticket, verify},
    providers::*,
};

#[tokio::test]
async fn i09_no_session_and_no_secret_outlives_a_restore() {
    let t = start().await;
    let ada = careful(&t, "ada@example.com").await;
    let bob = signed_in(&t, "bob@example.com").await;
    let known = ["/.well-known/jwks.json", "/auth/me"];
    let before = t.get(known[0]).await.body["keys"][0]["kid"].clone();

    // Everything that waits to be used, as it would lie in a backup.
    register(&t, "new@example.com").await;
    let confirm = token_in(&mail_to(&t, "new@example.com").unwrap());
    for path in ["/auth/forgot-password", "/auth/magic-link/request"] {
        let asked = t.post(path).json(&json!({ "email": "bob@example.com" })).await;
        assert!(asked.status < 300, "{path}: {}", asked.text);
        t.run_jobs().await;
    }
    let mails = t.mailbox.mails().into_iter().filter(|mail| mail.contains("To: bob@example.com"));
    let links: Vec<_> = mails.map(|mail| token_in(&readable(&mail))).collect();
    let half_way = ticket(&login(&t, "ada@example.com", PASSWORD).await);
    let program = t.post("/auth/device/code").header("user-agent", FIREFOX).await.body;
    let decided = json!({ "user_code": program["user_code"], "approve": true });
    assert_eq!(bob.asks(t.post("/auth/device/verify").json(&decided)).await.status, 200);
    let shown = ada.code(&t);
    t.run_jobs().await;
    t.happened().await;

    let ended = restored::end(&t.janua, Keys::End).await.unwrap();
    assert!(ended.sessions >= 3 && ended.recovery_codes == 10 && ended.secrets >= 5, "{ended:?}");
    t.expects(&["DATABASE_RESTORED"]).await;

    assert_eq!(bob.asks(t.get(known[1])).await.status, 401);
    assert_eq!(refresh(&t, &bob.refresh).await.status, 401);
    let after = t.get(known[0]).await.body["keys"].clone();
    assert!(after.as_array().unwrap().iter().all(|key| key["kid"] != before), "nothing signed before counts");
    let confirmed = t.post("/auth/verify-email").json(&json!({ "token": confirm })).await;
    assert_eq!(confirmed.status, 410, "{}", confirmed.text);
    assert_eq!(links.len(), 3, "confirmation, reset, magic link");
    for token in &links {
        let body = json!({ "token": token, "password": "staple battery horse correct" });
        assert_eq!(t.post("/auth/reset-password").json(&body).await.status, 410);
        let entered = t.post("/auth/magic-link/verify").json(&json!({ "token": token })).await;
        assert_eq!(entered.status, 410, "{}", entered.text);
    }
    assert_eq!(verify(&t, &half_way, &shown).await.status, 410, "a ticket");
    let polled = t.post("/auth/device/token").json(&json!({ "device_code": program["device_code"] })).await;
    assert_eq!(polled.status, 400, "{}", polled.text);

    // Passwords and apps are as they were. What the app showed may have been typed already; what it shows next was not.
    let again = ticket(&login(&t, "ada@example.com", PASSWORD).await);
    assert_eq!(verify(&t, &again, &shown).await.refusal(), (401, "invalid_code"));
    assert_eq!(verify(&t, &again, &ada.recovery_codes[0]).await.refusal(), (401, "invalid_code"));
    t.advance(Duration::from_mins(1));
    Person::of(&verify(&t, &again, &ada.code(&t)).await);
    Person::of(&login(&t, "bob@example.com", PASSWORD).await);
    t.run_jobs().await;
    t.finish().await;
}

/// These are not kept here before they are used: that they were is what was lost.
#[tokio::test]
async fn i09_what_only_the_lost_database_knew_to_be_used_counts_as_used() {
    let (google, t) = StandIn::start().await;
    let tap = async |token: &str| t.post("/auth/oauth/google/onetap").json(&json!({ "idToken": token })).await;
    let token = |t: &_| signed(&header(), &google.claims(t, "google", &proven("g-1", "ada@example.com")));
    let old = token(&t);
    restored::end(&t.janua, Keys::End).await.unwrap();
    assert_eq!(tap(&old).await.refusal(), (401, "invalid_id_token"), "made before, perhaps used before");
    t.advance(Duration::from_secs(2));
    let answer = tap(&token(&t)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    t.run_jobs().await;
    t.finish().await;
}
