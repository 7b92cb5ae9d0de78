//! Mail that a stranger can ask for: how much of it one email gets, what stands in it, and which of its links work.
use std::time::Duration;

use kernel::{config::Config, testing::TestJanua};
use serde_json::{Value, json};

use super::{actors::*, lockout::lock};

const ADA: &str = "ada@example.com";

fn mails_to(t: &TestJanua, email: &str) -> Vec<String> {
    let mails = t.mailbox.mails().into_iter().filter(|mail| mail.contains(&format!("To: {email}")));
    mails.map(|mail| readable(&mail)).collect()
}

/// Asks for a mail of some kind from a network of its own.
async fn ask(t: &TestJanua, round: usize, email: &str) -> Value {
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
    assert_eq!(mails_to(&t, ADA).len() - before, 6, "five an hour, over all kinds and networks, and one warning");
    assert!((4..40).all(|round| said[round] == said[round - 4]), "the same answer: {said:?}");
    let figures = t.janua.metrics.render(kernel::telemetry::Exposition::Prometheus).unwrap();
    assert!(figures.contains("janua_mails_withheld_total"), "{figures}");

    // Somebody else's email is not concerned.
    member(&t, "bob@example.com").await;
    for hour in 0..10 {
        t.advance(Duration::from_mins(61));
        for round in 0..8 {
            ask(&t, 100 + 8 * hour + round, ADA).await;
        }
    }
    assert_eq!(mails_to(&t, ADA).len() - before, 23, "twenty a day, and three warnings");
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

/// How many mails somebody got since the last look, after a request from a network.
async fn mails_after(t: &TestJanua, path: &str, from: Option<&str>) -> usize {
    let before = mails_to(t, ADA).len();
    let body = match path {
        "/auth/register" => json!({ "email": ADA, "password": PASSWORD, "name": "Eve" }),
        _ => json!({ "email": ADA }),
    };
    let ask = t.post(path).json(&body);
    let answer = match from {
        Some(from) => ask.from(from).await,
        None => ask.await,
    };
    assert_eq!(answer.status, 200, "{}", answer.text);
    t.run_jobs().await;
    mails_to(t, ADA).len() - before
}

#[tokio::test]
async fn warnings_that_strangers_cause_use_up_no_recovery() {
    let t = start().await;
    signed_in(&t, ADA).await;
    t.advance(Duration::from_hours(25));
    let mut sent = 0;
    for round in 0..8 {
        sent += mails_after(&t, "/auth/register", Some(&format!("203.0.113.{round}"))).await;
        // Also from where the person signs in.
        sent += mails_after(&t, "/auth/register", None).await;
    }
    assert_eq!(sent, 1, "that there is an account already is said once an hour");
    // Another kind of warning is not hidden by it.
    for round in 0..2 {
        let before = mails_to(&t, ADA).len();
        lock(&t, ADA, &format!("198.51.100.{round}")).await;
        let mails = mails_to(&t, ADA);
        assert_eq!(mails.len() - before, usize::from(round == 0), "one an hour, too: {mails:?}");
        assert!(round > 0 || mails.last().unwrap().contains("password was not guessed"), "{mails:?}");
    }
    for (path, from) in [
        ("/auth/forgot-password", Some("192.0.2.1")),
        ("/auth/magic-link/request", Some("192.0.2.2")),
        ("/auth/forgot-password", None),
    ] {
        assert_eq!(mails_after(&t, path, from).await, 1, "{path} {from:?}");
    }
    for hour in 0..5 {
        t.advance(Duration::from_mins(61));
        let expected = usize::from(hour < 2);
        assert_eq!(mails_after(&t, "/auth/register", Some("203.0.113.1")).await, expected, "three a day: {hour}");
    }
    t.finish().await;
}

#[tokio::test]
async fn one_network_uses_up_a_share_of_what_an_email_gets() {
    let t = start().await;
    signed_in(&t, ADA).await;
    t.advance(Duration::from_hours(25));
    let asks = async |from: Option<&'static str>, times: usize| {
        let mut sent = 0;
        for _ in 0..times {
            sent += mails_after(&t, "/auth/forgot-password", from).await;
        }
        sent
    };
    assert_eq!(asks(Some("203.0.113.1"), 8).await, 4, "of five");
    assert_eq!(asks(Some("203.0.113.2"), 8).await, 1, "what is left for others");
    assert_eq!(asks(Some("203.0.113.3"), 2).await, 0);
    assert_eq!(asks(None, 8).await, 4, "where the person signs in");
    // Where a client's server got its tokens, nobody signed in.
    t.advance(Duration::from_mins(61));
    t.janua.db.exec("UPDATE session SET scopes = 'openid'", vec![]).await.unwrap();
    assert_eq!(asks(Some("203.0.113.1"), 8).await + asks(Some("203.0.113.2"), 8).await, 5);
    assert_eq!(asks(None, 1).await, 0);
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
    let t = TestJanua::start_with(generous, feature).await;
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
