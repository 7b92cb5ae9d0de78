//! Mail that meets a mail server in trouble.
use std::time::Duration;

use kernel::{
    jobs::{self, DeadJob},
    ports::SendError,
    testing::TestJanua,
};
use serde_json::json;

use super::actors::*;

async fn dead(t: &TestJanua) -> Vec<DeadJob> {
    jobs::dead(&t.janua.db, 10).await.unwrap()
}

async fn kept(t: &TestJanua) -> i64 {
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM mail";
    t.janua.db.one::<(i64,)>(sql, vec![]).await.unwrap().0
}

/// Signs up, and lets what that causes happen.
async fn signs_up(t: &TestJanua, email: &str) {
    t.post("/auth/register").json(&sign_up_body(email)).await;
    t.run_jobs().await;
}

async fn asks_for_a_link(t: &TestJanua, email: &str) {
    t.post("/auth/magic-link/request").json(&json!({ "email": email })).await;
    t.run_jobs().await;
}

#[tokio::test]
async fn a_mail_server_that_refuses_us_loses_no_mail() {
    let t = start().await;
    for (round, fault) in [
        (|| SendError::Away("535 5.7.8 wrong password".into())) as fn() -> SendError,
        || SendError::Broken("the connection broke".into()),
        || SendError::Later("451 4.7.1 greylisted".into()),
    ]
    .into_iter()
    .enumerate()
    {
        let email = format!("ada{round}@example.com");
        t.mailbox.refuse(Some(fault));
        signs_up(&t, &email).await;
        for _ in 0..22 {
            t.advance(Duration::from_hours(1));
            t.run_jobs().await;
        }
        assert!(dead(&t).await.is_empty(), "after 22 hours it is still tried");
        assert_eq!(kept(&t).await, 1);
        let sql = "SELECT last_error FROM mail";
        let (said,): (String,) = t.janua.db.one(sql, vec![]).await.unwrap();
        assert_eq!(said, fault().to_string(), "with the server's own words");
        t.mailbox.refuse(None);
        let before = t.mailbox.mails().len();
        t.advance(Duration::from_mins(45));
        t.run_jobs().await;
        let sent = t.mailbox.mails().split_off(before);
        assert_eq!(sent.len(), 1, "{fault:?}");
        assert!(sent[0].contains(&email) && kept(&t).await == 0);
    }
    t.finish().await;
}

#[tokio::test]
async fn while_the_server_is_away_it_is_asked_once_a_minute_and_not_for_every_mail() {
    let t = start().await;
    t.mailbox.refuse(Some(|| SendError::Away("554 no service".into())));
    for i in 0..20 {
        signs_up(&t, &format!("p{i}@example.com")).await;
    }
    let sql = "SELECT CAST(SUM(attempts) AS BIGINT) AS n FROM mail";
    let (tried,): (i64,) = t.janua.db.one(sql, vec![]).await.unwrap();
    assert_eq!(tried, 1, "the others wait for how that one fares");
    for _ in 0..600 {
        t.advance(Duration::from_secs(1));
        t.run_jobs().await;
    }
    let (tried,): (i64,) = t.janua.db.one(sql, vec![]).await.unwrap();
    assert!((8..25).contains(&tried), "{tried} tries in ten minutes");
    t.mailbox.refuse(None);
    for _ in 0..5 {
        t.advance(Duration::from_mins(1));
        t.run_jobs().await;
    }
    assert_eq!((t.mailbox.mails().len(), kept(&t).await), (20, 0), "each once");
    t.finish().await;
}

#[tokio::test]
async fn a_mail_that_was_refused_for_good_stays_and_is_sent_when_somebody_says_so() {
    let t = start().await;
    t.mailbox.refuse(Some(|| SendError::Never("550 5.1.1 no such user".into())));
    signs_up(&t, "ada@example.com").await;
    let given_up = dead(&t).await;
    assert_eq!(given_up.len(), 1);
    assert_eq!(given_up[0].last_error.as_deref(), Some("550 5.1.1 no such user"), "what the server said");
    assert_eq!((given_up[0].attempts, kept(&t).await), (1, 1));
    // It does not stand in the way of the next one.
    t.mailbox.refuse(None);
    t.advance(Duration::from_mins(2));
    t.post("/auth/resend-verification").json(&json!({ "email": "ada@example.com" })).await;
    t.run_jobs().await;
    assert_eq!((t.mailbox.mails().len(), kept(&t).await), (1, 1));
    // `janua jobs retry`.
    assert!(jobs::revive(&t.janua.db, given_up[0].id, t.janua.clock.now()).await.unwrap());
    t.run_jobs().await;
    assert_eq!((t.mailbox.mails().len(), kept(&t).await), (2, 0), "sent after all");
    assert!(dead(&t).await.is_empty());
    t.finish().await;
}

#[tokio::test]
async fn a_link_that_has_expired_is_not_sent_unless_somebody_says_so() {
    let t = start().await;
    member(&t, "ada@example.com").await;
    let before = t.mailbox.mails().len();
    t.mailbox.set_down(true);
    asks_for_a_link(&t, "ada@example.com").await;
    for _ in 0..14 {
        t.advance(Duration::from_mins(1));
        t.run_jobs().await;
    }
    assert!(dead(&t).await.is_empty(), "good for another minute");
    t.advance(Duration::from_mins(5));
    t.mailbox.set_down(false);
    t.run_jobs().await;
    let given_up = dead(&t).await;
    assert_eq!(
        given_up[0].last_error.as_deref(),
        Some("could not be sent in time: the mailbox is down"),
        "and what the reason was"
    );
    assert_eq!(t.mailbox.mails().len(), before, "a link that opens nothing helps nobody");
    assert!(jobs::revive(&t.janua.db, given_up[0].id, t.janua.clock.now()).await.unwrap());
    t.run_jobs().await;
    assert_eq!((t.mailbox.mails().len(), kept(&t).await), (before + 1, 0));
    t.finish().await;
}

#[tokio::test]
async fn what_was_given_up_is_forgotten_after_thirty_days_with_its_dead_job() {
    let t = start().await;
    t.mailbox.refuse(Some(|| SendError::Never("550 no".into())));
    signs_up(&t, "ada@example.com").await;
    t.advance(Duration::from_hours(29 * 24));
    t.run_jobs().await;
    assert_eq!((dead(&t).await.len(), kept(&t).await), (1, 1));
    t.advance(Duration::from_hours(2 * 24));
    t.run_jobs().await;
    assert_eq!((dead(&t).await.len(), kept(&t).await), (0, 0), "nobody retries what is not there any more");
    t.finish().await;
}
