//! Mail that a stranger can ask for: how much of it one email gets, what stands in it, and which of its links work.
use std::time::Duration;

use kernel::{config::Config, testing::TestApp};
use serde_json::{Value, json};

use super::actors::*;

const ADA: &str = "ada@example.com";

fn mails_to(t: &TestApp, email: &str) -> Vec<String> {
    let mails = t.mailbox.mails().into_iter().filter(|mail| mail.contains(&format!("To: {email}")));
    mails.map(|mail| mail.replace("=\r\n", "").replace("=3D", "=")).collect()
}

/// Asks for a mail of some kind from a network of its own.
async fn ask(t: &TestApp, round: usize, email: &str) -> Value {
    let from = format!("203.0.{}.{}", round / 250, round % 250);
    let (path, body) = match round % 4 {
        0 => ("/auth/forgot-password", json!({ "email": email })),
        1 => ("/auth/magic-link/request", json!({ "email": email })),
        2 => ("/auth/resend-verification", json!({ "email": email })),
        _ => ("/auth/register", json!({ "email": email, "password": PASSWORD, "name": "BUY AT evil.example" })),
    };
    let answer = t.post(path).json(&body).from(&from).await;
    assert_eq!(answer.status, 200, "the answer is always the same: {}", answer.text);
    t.run_jobs().await;
    answer.body
}

#[tokio::test]
async fn one_email_gets_a_few_mails_however_many_are_asked_for() {
    let t = start().await;
    member(&t, ADA).await;
    t.advance(Duration::from_hours(25));
    let before = mails_to(&t, ADA).len();
    let mut said = vec![];
    for round in 0..40 {
        said.push(ask(&t, round, ADA).await);
    }
    assert_eq!(mails_to(&t, ADA).len() - before, 5, "five an hour, over all kinds and networks");
    assert!((4..40).all(|round| said[round] == said[round - 4]), "the same answer: {said:?}");
    let figures = t.app.metrics.render(kernel::telemetry::Exposition::Prometheus).unwrap();
    assert!(figures.contains("janua_mails_withheld_total"), "{figures}");

    // Somebody else's email is not concerned.
    member(&t, "bob@example.com").await;
    for hour in 0..10 {
        t.advance(Duration::from_mins(61));
        for round in 0..8 {
            ask(&t, 100 + 8 * hour + round, ADA).await;
        }
    }
    assert_eq!(mails_to(&t, ADA).len() - before, 20, "twenty a day");
    t.finish().await;
}

#[tokio::test]
async fn strangers_do_not_use_up_what_the_person_asks_for_where_they_sign_in() {
    let t = start().await;
    signed_in(&t, ADA).await;
    t.advance(Duration::from_hours(25));
    for round in 0..12 {
        ask(&t, round, ADA).await;
    }
    let before = mails_to(&t, ADA).len();
    t.post("/auth/forgot-password").json(&json!({ "email": ADA })).await;
    t.run_jobs().await;
    assert_eq!(mails_to(&t, ADA).len(), before + 1, "from the network the person has signed in from");
    t.finish().await;
}

#[tokio::test]
async fn an_unproven_email_is_written_nothing_that_a_stranger_typed() {
    let t = start().await;
    let body = json!({ "email": "victim@example.com", "password": PASSWORD, "name": "You won, call 555" });
    t.post("/auth/register").json(&body).await;
    t.run_jobs().await;
    for path in ["/auth/resend-verification", "/auth/forgot-password", "/auth/magic-link/request"] {
        t.post(path).json(&json!({ "email": "victim@example.com" })).await;
        t.run_jobs().await;
    }
    let mails = mails_to(&t, "victim@example.com");
    assert_eq!(mails.len(), 4);
    assert!(mails.iter().all(|mail| !mail.contains("555")), "{mails:?}");
    t.finish().await;
}

#[tokio::test]
async fn a_newer_link_leaves_the_last_few_good_and_using_one_voids_the_others() {
    let generous = Config::for_tests().with(|tenancy: &mut tenancy::Settings| {
        tenancy.mail_per_hour = 100;
        tenancy.mail_per_day = 100;
    });
    let t = TestApp::start_with(generous, feature).await;
    member(&t, ADA).await;
    let links = async |path: &str, count: usize| {
        let mut links = vec![];
        for _ in 0..count {
            t.post(path).json(&json!({ "email": ADA })).await;
            t.run_jobs().await;
            links.push(token_in(&mail_to(&t, ADA).unwrap()));
            t.advance(Duration::from_secs(1));
        }
        links
    };
    let reset = |token: &str| {
        t.post("/auth/reset-password").json(&json!({ "token": token, "password": "another good passphrase" })).send()
    };
    let follow = |token: &str| t.post("/auth/magic-link/verify").json(&json!({ "token": token })).send();

    let magic = links("/auth/magic-link/request", 4).await;
    assert_eq!(follow(&magic[0]).await.refusal(), (410, "token_spent"), "a fourth one voids the first");
    assert_eq!(follow(&magic[1]).await.status, 200, "two newer ones leave it good");
    for other in &magic[2..] {
        assert_eq!(follow(other).await.refusal(), (410, "token_spent"), "one was used");
    }
    let resets = links("/auth/forgot-password", 4).await;
    assert_eq!(reset(&resets[0]).await.refusal(), (410, "token_spent"));
    assert_eq!(reset(&resets[1]).await.status, 204);
    for other in &resets[2..] {
        assert_eq!(reset(other).await.refusal(), (410, "token_spent"));
    }
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn an_email_is_a_plain_one() {
    let t = start().await;
    for odd in ["\"a@evil\"@v.com", "\"a b\"@v.com", "a..b@v.com", ".a@v.com", "a.@v.com", "a(b)@v.com", "a\\b@v.com"]
    {
        let answer = t.post("/auth/register").json(&sign_up_body(odd)).await;
        assert_eq!(answer.refusal(), (400, "invalid"), "{odd}");
    }
    for plain in ["o'hara+tag@v.com", "zoë@v.com", "a.b-c_d@v.com"] {
        assert_eq!(t.post("/auth/register").json(&sign_up_body(plain)).await.status, 200, "{plain}");
    }
    t.run_jobs().await;
    t.finish().await;
}
