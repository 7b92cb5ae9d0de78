//! Invites: for one address, good once, for seven days.
use std::time::Duration;

use identity::testing::{PASSWORD, Person, login, mail_to, register, token_in};
use kernel::testing::join_all;

use super::*;

const NEW: &str = "another fine password here";

#[tokio::test]
async fn a_newcomer_gets_an_account_by_it() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = make_org(&t, &ada, "Acme").await;
    let sent = invite(&t, &ada, id(&org), "Bob@Example.com", "admin").await;
    assert_eq!(
        (sent.status, &sent.body["role"], &sent.body["email"]),
        (200, &json!("admin"), &json!("Bob@example.com"))
    );
    let token = invite_token(&t, "Bob@example.com").await;
    t.happened().await;
    let bare = t.post("/auth/accept-invite").json(&json!({ "token": token })).await;
    assert_eq!((bare.status, bare.wrong_fields()), (400, vec!["name", "password"]));
    let body = json!({ "token": token, "name": "Bob", "password": NEW, "role": "owner", "emailVerified": false,
        "options": { "tokenDelivery": "body" } });
    let weak =
        t.post("/auth/accept-invite").json(&json!({ "token": token, "name": "Bob", "password": "12345678" })).await;
    assert_eq!(weak.refusal(), (400, "weak_password"));
    let accepted = t.post("/auth/accept-invite").json(&body).await;
    let bob = Person::of(&accepted);
    assert_eq!((&accepted.body["org"]["id"], &accepted.body["org"]["role"]), (&org["id"], &json!("admin")));
    assert_eq!(accepted.body["user"]["emailVerified"], true);
    t.expects(&["ACCOUNT_CREATED", "EMAIL_VERIFIED", "INVITE_ACCEPTED", "SIGNED_IN"]).await;
    assert_eq!(bob.asks(t.get(&format!("/org/{}", id(&org)))).await.status, 200);
    assert_eq!(t.post("/auth/accept-invite").json(&body).await.refusal(), (410, "token_spent"));
    assert_eq!(login(&t, "bob@example.com", NEW).await.status, 200);
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test]
async fn signing_up_with_it_confirms_the_address() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = make_org(&t, &ada, "Acme").await;
    invite(&t, &ada, id(&org), "bob@example.com", "member").await;
    let token = invite_token(&t, "bob@example.com").await;
    let sign_up = |email: &str, token: &str| {
        let body = json!({ "email": email, "password": NEW, "name": "Bob", "inviteToken": token });
        t.post("/auth/register").json(&body).send()
    };
    assert_eq!(sign_up("eve@example.com", &token).await.refusal(), (410, "token_spent"), "for another address");
    assert_eq!(sign_up("bob@example.com", "made-up").await.refusal(), (410, "token_spent"));
    let signed_up = sign_up("bob@example.com", &token).await;
    assert_eq!(
        (signed_up.status, &signed_up.body["requiresVerification"]),
        (200, &json!(false)),
        "{}",
        signed_up.text
    );
    let bob = login(&t, "bob@example.com", NEW).await;
    assert_eq!((bob.status, &bob.body["org"]["id"]), (200, &org["id"]));
    assert_eq!(sign_up("bob@example.com", &token).await.refusal(), (410, "token_spent"));
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test]
async fn p53_it_opens_nothing_that_is_somebodys() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = make_org(&t, &ada, "Acme").await;
    let bob = signed_in(&t, "bob@example.com").await;
    let eve = signed_in(&t, "eve@example.com").await;
    invite(&t, &ada, id(&org), "bob@example.com", "member").await;
    let token = invite_token(&t, "bob@example.com").await;
    // Not by somebody else, and not by a password that would be new.
    assert_eq!(accept(&t, &eve, &token).await.refusal(), (403, "other_address"));
    let takeover = json!({ "token": token, "name": "Eve", "password": NEW });
    assert_eq!(t.post("/auth/accept-invite").json(&takeover).await.refusal(), (409, "sign_in_first"));
    let sign_up = json!({ "email": "bob@example.com", "password": NEW, "name": "Eve", "inviteToken": token });
    let answer = t.post("/auth/register").json(&sign_up).await;
    assert_eq!((answer.status, &answer.body["requiresVerification"]), (200, &json!(true)));
    t.run_jobs().await;
    assert_eq!(login(&t, "bob@example.com", NEW).await.status, 401);
    assert_eq!(login(&t, "bob@example.com", PASSWORD).await.status, 200, "the old password stands");
    assert_eq!(accept(&t, &bob, &token).await.status, 200);
    // What was signed up for the address before and never confirmed counts for nothing.
    register(&t, "cyd@example.com").await;
    let old_link = token_in(&mail_to(&t, "cyd@example.com").unwrap());
    invite(&t, &ada, id(&org), "cyd@example.com", "member").await;
    let token = invite_token(&t, "cyd@example.com").await;
    let body = json!({ "token": token, "name": "Cyd", "password": NEW });
    assert_eq!(t.post("/auth/accept-invite").json(&body).await.status, 200);
    let late = t.post("/auth/verify-email").json(&json!({ "token": old_link })).await;
    assert_eq!(late.refusal(), (410, "token_spent"));
    assert_eq!(login(&t, "cyd@example.com", PASSWORD).await.status, 401, "whoever came first gets nothing");
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p53_it_is_good_once_for_a_week_until_replaced_or_cancelled() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = make_org(&t, &ada, "Acme").await;
    let org = id(&org);
    let bob = signed_in(&t, "bob@example.com").await;
    assert_eq!(accept(&t, &bob, "made-up").await.refusal(), (410, "token_spent"));
    // Replaced, by another role.
    invite(&t, &ada, org, "bob@example.com", "admin").await;
    let first = invite_token(&t, "bob@example.com").await;
    let at_once = invite(&t, &ada, org, "bob@example.com", "member").await;
    assert_eq!(at_once.refusal(), (429, "rate_limited"), "nobody is written to twice in a minute");
    t.advance(Duration::from_secs(61));
    assert_eq!(invite(&t, &ada, org, "bob@example.com", "member").await.status, 200);
    let second = invite_token(&t, "bob@example.com").await;
    assert_eq!(accept(&t, &bob, &first).await.refusal(), (410, "token_spent"));
    let listed = ada.asks(t.get(&format!("/org/{org}/invites"))).await;
    assert_eq!(
        (listed.body["invites"].as_array().unwrap().len(), &listed.body["invites"][0]["role"]),
        (1, &json!("member"))
    );
    // Sent again, not at once.
    let resend = format!("/org/{org}/invites/bob%40example.com/resend");
    assert_eq!(ada.asks(t.post(&resend)).await.refusal(), (429, "rate_limited"));
    t.advance(Duration::from_secs(61));
    assert_eq!(ada.asks(t.post(&resend)).await.status, 200);
    let third = invite_token(&t, "bob@example.com").await;
    assert_eq!(accept(&t, &bob, &second).await.refusal(), (410, "token_spent"));
    // Cancelled.
    let one = format!("/org/{org}/invites/bob%40example.com");
    assert_eq!(ada.asks(t.ask(Method::DELETE, &one)).await.status, 204);
    assert_eq!(ada.asks(t.ask(Method::DELETE, &one)).await.refusal(), (404, "not_found"));
    assert_eq!(ada.asks(t.post(&resend)).await.refusal(), (404, "not_found"));
    assert_eq!(accept(&t, &bob, &third).await.refusal(), (410, "token_spent"));
    // Once, of many at once.
    invite(&t, &ada, org, "bob@example.com", "member").await;
    let token = invite_token(&t, "bob@example.com").await;
    let answers = join_all((0..16).map(|_| accept(&t, &bob, &token))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
    assert_eq!(invite(&t, &ada, org, "bob@example.com", "member").await.refusal(), (409, "already_member"));
    // Not after a week.
    invite(&t, &ada, org, "cyd@example.com", "member").await;
    let late = invite_token(&t, "cyd@example.com").await;
    t.advance(Duration::from_hours(7 * 24) + Duration::from_secs(1));
    let body = json!({ "token": late, "name": "Cyd", "password": NEW });
    assert_eq!(t.post("/auth/accept-invite").json(&body).await.refusal(), (410, "token_spent"));
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test]
async fn what_somebody_promised_goes_with_their_role() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = make_org(&t, &ada, "Acme").await;
    let org = id(&org);
    let bob = joined(&t, &ada, org, "bob@example.com", "owner").await;
    invite(&t, &bob, org, "x@example.com", "owner").await;
    invite(&t, &bob, org, "y@example.com", "admin").await;
    invite(&t, &ada, org, "z@example.com", "owner").await;
    let left = || async {
        let listed = ada.asks(t.get(&format!("/org/{org}/invites"))).await;
        let mut left: Vec<_> = listed.body["invites"]
            .as_array()
            .unwrap()
            .iter()
            .map(|i| i["email"].as_str().unwrap()[..1].to_owned())
            .collect();
        left.sort();
        left.join("")
    };
    assert_eq!(left().await, "xyz");
    set_role(&t, &ada, org, &bob.id, "admin").await;
    assert_eq!(left().await, "yz", "an admin invites no owners");
    remove(&t, &ada, org, &bob.id).await;
    assert_eq!(left().await, "z");
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test]
async fn an_organization_is_no_way_to_write_to_strangers() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = make_org(&t, &ada, "Acme").await;
    for i in 0..100 {
        let email = format!("p{i}@example.com");
        assert_eq!(invite(&t, &ada, id(&org), &email, "member").await.status, 200);
        let path = format!("/org/{}/invites/{email}", id(&org));
        assert_eq!(ada.asks(t.ask(Method::DELETE, &path)).await.status, 204, "what is cancelled was still sent");
    }
    let more = invite(&t, &ada, id(&org), "more@example.com", "member").await;
    assert_eq!(more.refusal(), (429, "rate_limited"));
    let second = make_org(&t, &ada, "Second").await;
    let more = invite(&t, &ada, id(&second), "more@example.com", "member").await;
    assert_eq!(more.refusal(), (429, "rate_limited"), "another organization of the same person is no way around");
    t.run_jobs().await;
    finish(t).await;
}

#[tokio::test]
async fn an_invite_is_one_of_the_mails_an_email_gets_and_its_link_outlives_one_that_is_not_sent() {
    let t = start().await;
    let ada = signed_in(&t, "ada@example.com").await;
    let org = make_org(&t, &ada, "Acme").await;
    let bob = signed_in(&t, "bob@example.com").await;
    t.advance(Duration::from_hours(25));
    let ada = Person::of(&identity::testing::refresh(&t, &ada.refresh).await);
    assert_eq!(invite(&t, &ada, id(&org), "bob@example.com", "member").await.status, 200);
    let token = invite_token(&t, "bob@example.com").await;
    for i in 0..6 {
        let ask = t.post("/auth/forgot-password").json(&json!({ "email": "bob@example.com" }));
        assert_eq!(ask.from(&format!("203.0.113.{i}")).await.status, 200);
    }
    t.run_jobs().await;
    t.advance(Duration::from_secs(61));
    let before = t.mailbox.mails().len();
    let again = invite(&t, &ada, id(&org), "bob@example.com", "admin").await;
    assert_eq!((again.status, &again.body["role"]), (200, &json!("admin")), "the same answer as always");
    t.run_jobs().await;
    assert_eq!(t.mailbox.mails().len(), before, "and no mail");
    let bob = Person::of(&identity::testing::refresh(&t, &bob.refresh).await);
    assert_eq!(accept(&t, &bob, &token).await.status, 200, "the link that was sent is still good");
    t.run_jobs().await;
    finish(t).await;
}
