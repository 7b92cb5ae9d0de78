//! Mail servers that fail, at each stage of a conversation.
use std::time::Duration;

use kernel::{
    config::Config,
    ports::{SendError, smtp::Patience},
};

use super::{
    peers::{Certificates, SmtpServer},
    *,
};

async fn with_server() -> (SmtpServer, TestJanua, Shop) {
    let smtp = SmtpServer::start();
    let t = TestJanua::start_with(Config { smtp_url: Some(smtp.url().into()), ..Config::for_tests() }, feature).await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    (smtp, t, shop)
}

#[tokio::test]
async fn fc6_a_server_that_refuses_us_costs_no_mail() {
    let (smtp, t, shop) = with_server().await;
    let moods = [
        "greeting 554 go away",
        "ehlo 550 no",
        "auth 535 5.7.8 wrong password",
        "greeting cut",
        "ehlo cut",
        "mail 421 4.3.2 closing",
        "mail 550 5.7.1 sender refused",
        "rcpt 421 4.3.2 closing",
        "rcpt cut",
        "data 421 4.3.2 closing",
        "data cut",
        "message 421 4.3.2 closing",
    ];
    for mood in moods {
        smtp.mood(mood);
        let sent = shop.sends(&t, &mail("zoe@rcpt.test")).await;
        deliver(&t).await;
        let state = shop.message_by_key(&t, &sent).await;
        assert!(state == "queued" || state == "deferred", "{mood}: {state}");
        smtp.mood("");
        for _ in 0..3 {
            t.advance(Duration::from_mins(3));
            deliver(&t).await;
        }
        let message = shop.message_by_key(&t, &sent).await;
        assert_eq!(message, "sent", "{mood}");
    }
    assert_eq!(smtp.received().len(), moods.len(), "each once");
    t.finish().await;
}

#[tokio::test]
async fn fc6_an_answer_about_the_mail_decides_about_the_mail() {
    let (smtp, t, shop) = with_server().await;
    for (mood, status) in [
        ("rcpt 550 5.1.1 no such user", "bounced"),
        ("message 552 5.3.4 too big", "bounced"),
        ("data 554 5.7.1 no mail from you", "bounced"),
        ("data 451 4.3.0 not now", "deferred"),
        ("rcpt 451 4.7.1 greylisted", "deferred"),
        ("rcpt 452 4.2.2 mailbox full", "deferred"),
        ("message 451 4.3.0 later", "deferred"),
    ] {
        smtp.mood(mood);
        let to = format!("{}@{}.test", status, mood.split(' ').nth(1).unwrap());
        let sent = shop.sends(&t, &mail(&to)).await;
        deliver(&t).await;
        assert_eq!(shop.message_by_key(&t, &sent).await, status, "{mood}");
    }
    smtp.mood("");
    deliver(&t).await;
    assert_eq!(smtp.received().len(), 0, "greylisting servers want five minutes");
    t.advance(Duration::from_mins(6));
    deliver(&t).await;
    assert_eq!(smtp.received().len(), 4);
    t.finish().await;
}

/// With little patience for servers that say nothing.
fn impatient(config: &Config) -> Feature {
    let patience = Patience {
        connect: Duration::from_secs(3),
        command: Duration::from_secs(2),
        message: Duration::from_secs(2),
    };
    identity::testing::feature(config)
        .and(directory::feature(config))
        .and(workshop::feature(config))
        .and(crate::with_courier(config, crate::queue::Courier::with_patience(config, patience)))
}

#[tokio::test]
async fn fc6_a_server_that_hangs_is_left_and_the_mail_goes_out_later() {
    let smtp = SmtpServer::start();
    let t =
        TestJanua::start_with(Config { smtp_url: Some(smtp.url().into()), ..Config::for_tests() }, impatient).await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    let moods = ["greeting hang", "ehlo hang", "mail hang", "rcpt hang", "data hang", "message hang"];
    for (mood, state) in moods.into_iter().zip(["queued", "queued", "queued", "deferred", "deferred", "deferred"]) {
        smtp.mood(mood);
        let sent = shop.sends(&t, &mail("zoe@rcpt.test")).await;
        deliver(&t).await;
        assert_eq!(shop.message_by_key(&t, &sent).await, state, "{mood}");
        smtp.mood("");
        for _ in 0..3 {
            t.advance(Duration::from_mins(3));
            deliver(&t).await;
        }
        assert_eq!(shop.message_by_key(&t, &sent).await, "sent", "{mood}");
    }
    assert_eq!(smtp.received().len(), moods.len(), "each once");
    t.finish().await;
}

#[tokio::test]
async fn fc6_a_relay_that_does_not_encrypt_gets_no_mail_in_the_clear() {
    let certificates = Certificates::make(&["localhost"], "mta-sts.example.test");
    let keys = (certificates.of("localhost"), certificates.key());
    for (keys, mood) in [(None, ""), (Some(&keys), "starttls 454 4.7.0 not now"), (Some(&keys), "starttls cut")] {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let smtp = SmtpServer::start_at("127.0.0.1", port, keys);
        let url = format!("smtp://127.0.0.1:{port}?tls=required");
        let t = TestJanua::start_with(Config { smtp_url: Some(url.into()), ..Config::for_tests() }, feature).await;
        let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
        smtp.mood(mood);
        let sent = shop.sends(&t, &mail("zoe@rcpt.test")).await;
        for _ in 0..3 {
            deliver(&t).await;
            t.advance(Duration::from_mins(3));
        }
        assert_eq!(shop.message_by_key(&t, &sent).await, "queued", "{mood}");
        assert!(smtp.received().is_empty() && smtp.envelopes().is_empty(), "{mood}");
        t.finish().await;
    }
}

/// Waits until the server has been given so many recipients.
async fn recipients(smtp: &SmtpServer, count: usize) {
    let there = async {
        while smtp.envelopes().len() < count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), there).await.expect("the server is given mail");
}

#[tokio::test]
async fn no_more_mails_are_in_memory_than_there_are_connections() {
    let (smtp, t, shop) = with_server().await;
    for n in 0..24 {
        shop.sends(&t, &mail(&format!("zoe@d{n}.test"))).await;
    }
    t.run_jobs().await;
    smtp.mood("message hang");
    let janua = t.janua.clone();
    let delivering = tokio::spawn(async move { crate::deliver_due(&janua).await });
    recipients(&smtp, 4).await;
    let in_hand = &t.janua.own::<crate::queue::Courier>().in_hand;
    assert_eq!(in_hand.counts(), (4, 4), "a mail is read once it has its turn");
    delivering.abort();
    let _ = delivering.await;
    t.finish().await;
}

#[tokio::test]
async fn a_cancellation_during_an_attempt_stays_unless_the_mail_went_out() {
    let (smtp, t, shop) = with_server().await;
    for (mood, after) in [("message slow", "sent"), ("message 451 4.3.0 later", "canceled")] {
        smtp.mood(mood);
        let given = smtp.envelopes().len();
        let sent = shop.sends(&t, &mail("zoe@rcpt.test")).await;
        t.run_jobs().await;
        let janua = t.janua.clone();
        let delivering = tokio::spawn(async move { crate::deliver_due(&janua).await.unwrap() });
        recipients(&smtp, given + 1).await;
        let path = format!("/messages/{}/cancel", sent.body["messageId"].as_str().unwrap());
        // The second answer may be there first: then the mail waits for its next try, and is canceled as well.
        let canceled = shop.posts(&t, &path, &json!({})).await;
        assert_eq!((canceled.status, &canceled.body["status"]), (200, &json!("canceled")), "{}", canceled.text);
        delivering.await.unwrap();
        assert_eq!(shop.message_by_key(&t, &sent).await, after, "{mood}");
    }
    smtp.mood("");
    t.advance(Duration::from_mins(20));
    deliver(&t).await;
    assert_eq!(smtp.received().len(), 1, "what was canceled is never tried again");
    t.finish().await;
}

#[tokio::test]
async fn a_result_that_comes_after_a_cancellation_does_not_bring_the_mail_back() {
    use crate::queue::{Tried, note};
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    for (tried, after) in [
        (Tried::Done(Err(SendError::Later("451 later".into()))), "canceled"),
        (Tried::Done(Err(SendError::Broken("cut".into()))), "canceled"),
        (Tried::Done(Err(SendError::Never("550 5.1.1 no".into()))), "canceled"),
        (Tried::Paused, "canceled"),
        (Tried::Refused("no".into()), "canceled"),
        (Tried::Done(Ok("250 ok".into())), "sent"),
    ] {
        let sent = shop.sends(&t, &mail("zoe@rcpt.test")).await;
        let now = t.janua.clock.now();
        let due = crate::queue::lanes::Due::of_lane(&t.janua.db, "rcpt.test", now, 10).await.unwrap();
        assert_eq!(due.len(), 1);
        let path = format!("/messages/{}/cancel", sent.body["messageId"].as_str().unwrap());
        assert_eq!(shop.posts(&t, &path, &json!({})).await.status, 200);
        kernel::transact!(t.janua, async |tx| note(tx, &t.janua, &due[0], &tried).await).unwrap();
        assert_eq!(shop.message_by_key(&t, &sent).await, after);
    }
    deliver(&t).await;
    assert!(delivered(&t).is_empty());
    t.finish().await;
}

#[tokio::test]
async fn the_outcome_of_a_mail_waits_for_a_database_that_is_away() {
    let (smtp, t, shop) = with_server().await;
    smtp.mood("message slow");
    let sent = shop.sends(&t, &mail("zoe@rcpt.test")).await;
    t.run_jobs().await;
    let janua = t.janua.clone();
    let delivering = tokio::spawn(async move { crate::deliver_due(&janua).await.unwrap() });
    recipients(&smtp, 1).await;
    t.janua.db.exec("ALTER TABLE email_lane RENAME TO email_lane_away", db::params![]).await.unwrap();
    while smtp.received().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The outcome cannot be written at once.
    tokio::time::sleep(Duration::from_millis(500)).await;
    t.janua.db.exec("ALTER TABLE email_lane_away RENAME TO email_lane", db::params![]).await.unwrap();
    delivering.await.unwrap();
    assert_eq!(shop.message_by_key(&t, &sent).await, "sent");
    smtp.mood("");
    t.advance(Duration::from_mins(6));
    deliver(&t).await;
    assert_eq!(smtp.received().len(), 1, "it does not go out again");
    t.finish().await;
}

#[tokio::test]
async fn a_lane_is_held_for_as_long_as_its_mails_are_under_way() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    shop.sends(&t, &mail("zoe@rcpt.test")).await;
    let claim = async || crate::queue::lanes::Held::claim(&t.janua.db, t.janua.clock.now(), 8).await.unwrap();
    let held = claim().await.remove(0);
    for _ in 0..5 {
        t.advance(Duration::from_mins(2));
        let is_ours = db::transact!(t.janua.db, async |tx| held.renew(tx, t.janua.clock.now()).await).unwrap();
        assert!(is_ours && claim().await.is_empty());
    }
    t.advance(Duration::from_mins(4));
    assert_eq!(claim().await.len(), 1, "its node died");
    let is_ours = db::transact!(t.janua.db, async |tx| held.renew(tx, t.janua.clock.now()).await).unwrap();
    assert!(!is_ours);
    t.finish().await;
}

/// `TEST_ROWS=20000` for as many as the plan of faults says.
#[tokio::test]
async fn fc7_a_long_outage_of_the_relay_costs_no_mail_and_sign_in_mail_goes_first() {
    let rows: usize = std::env::var("TEST_ROWS").ok().and_then(|rows| rows.parse().ok()).unwrap_or(500);
    println!("{rows} mails; TEST_ROWS=20000 for more");
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    t.run_jobs().await;
    t.mailbox.set_down(true);
    for batch in 0..rows.div_ceil(100) {
        let messages: Vec<Value> =
            (0..100.min(rows - batch * 100)).map(|n| mail(&format!("r{batch}-{n}@d{}.test", n % 60))).collect();
        let ask = t.post(&shop.path("/batch")).header("x-service-app-key", &shop.key);
        let sent = ask.json(&json!({ "messages": messages })).await;
        assert_eq!(sent.status, 200, "{}", sent.text);
        t.advance(Duration::from_secs(1));
    }
    // Six hours in which it is tried again and again.
    for _ in 0..36 {
        t.advance(Duration::from_mins(10));
        deliver(&t).await;
    }
    let (waiting, lanes) = (
        "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM email_recipient WHERE status = 'queued' AND attempts = 0",
        "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM email_lane",
    );
    let count = async |sql: &'static str| t.janua.db.one::<(i64,)>(sql, vec![]).await.unwrap().0;
    assert_eq!(count(waiting).await, i64::try_from(rows).unwrap(), "an outage costs no try");
    assert!(count(lanes).await <= 60);
    t.post("/auth/magic-link/request").json(&json!({ "email": "ada@example.com" })).await;
    t.run_jobs().await;
    let before = t.mailbox.mails().len();
    t.mailbox.set_down(false);
    t.advance(Duration::from_mins(2));
    // The worker of jobs and the dispatcher begin at the same moment.
    let (served, _) = tokio::join!(crate::deliver_due(&t.janua), t.run_jobs());
    assert!(served.unwrap() > 0);
    let first = t.mailbox.mails()[before].clone();
    assert!(!first.contains("X-Janua-Ref"), "the sign-in link is the first: {first}");
    for _ in 0..60 {
        t.advance(Duration::from_mins(1));
        deliver(&t).await;
    }
    let mails = delivered(&t);
    let ids: std::collections::BTreeSet<&str> =
        mails.iter().filter_map(|mail| mail.split("Message-ID: ").nth(1)?.lines().next()).collect();
    assert_eq!((mails.len(), ids.len()), (rows, rows), "each once");
    assert_eq!(count(lanes).await, 0);
    let (_, most) = t.janua.own::<crate::queue::Courier>().in_hand.counts();
    assert!(most <= 4, "{most} in memory");
    t.finish().await;
}

#[tokio::test]
async fn fc6_a_mail_whose_end_nobody_heard_of_is_sent_again_under_the_same_id() {
    let (smtp, t, shop) = with_server().await;
    smtp.mood("message keep-then-cut");
    let sent = shop.sends(&t, &mail("zoe@rcpt.test")).await;
    deliver(&t).await;
    assert_eq!(shop.message_by_key(&t, &sent).await, "deferred");
    smtp.mood("");
    t.advance(Duration::from_mins(6));
    deliver(&t).await;
    let received = smtp.received();
    assert_eq!(received.len(), 2);
    let id = |mail: &String| mail.lines().find(|line| line.starts_with("Message-ID: ")).unwrap().to_owned();
    assert_eq!(id(&received[0]), id(&received[1]), "readers' programs show it once");
    let owner = Person::of(&identity::testing::login(&t, "ada@example.com", identity::testing::PASSWORD).await);
    let shop = Shop { owner, ..shop };
    assert_eq!(shop.gets(&t, "").await.body["used"], 1, "counted once");
    t.finish().await;
}

#[tokio::test]
async fn fc7_a_recipient_domain_that_refuses_holds_up_no_other_and_mail_ends_after_three_days() {
    let (smtp, t, shop) = with_server().await;
    smtp.mood("rcpt 451 4.7.1 greylisted");
    let sent = shop.sends(&t, &mail("zoe@slow.test")).await;
    deliver(&t).await;
    smtp.mood("");
    shop.sends(&t, &mail("zoe@fast.test")).await;
    deliver(&t).await;
    assert_eq!(smtp.received().len(), 1);
    smtp.mood("rcpt 451 4.7.1 greylisted");
    let mut attempts = 1;
    for _ in 0..72 * 2 {
        t.advance(Duration::from_mins(31));
        crate::deliver_due(&t.janua).await.unwrap();
        attempts += 1;
    }
    assert_eq!(shop.message_by_key(&t, &sent).await, "failed");
    let sql = "SELECT attempts FROM email_recipient WHERE lane = 'slow.test'";
    let (tried,): (i64,) = t.janua.db.one(sql, vec![]).await.unwrap();
    assert!((10..=18).contains(&tried), "{tried} of {attempts}");
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn two_nodes_and_a_dead_one_send_each_mail_once() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    for n in 0..20 {
        shop.sends(&t, &mail(&format!("r{n}@d{}.test", n % 3))).await;
    }
    // A node that died holds a lane; its lease ends, and what it had in hand goes out under the next number.
    let now = t.janua.clock.now();
    let held = crate::queue::lanes::Held::claim(&t.janua.db, now, 1).await.unwrap();
    assert_eq!(held.len(), 1);
    deliver(&t).await;
    assert!(delivered(&t).len() < 20);
    t.advance(Duration::from_mins(4));
    let (one, two) = tokio::join!(crate::deliver_due(&t.janua), crate::deliver_due(&t.janua));
    assert!(one.unwrap() + two.unwrap() >= 1);
    assert_eq!(delivered(&t).len(), 20);
    let late = db::transact!(t.janua.db, async |tx| held[0].renew(tx, t.janua.clock.now()).await).unwrap();
    assert!(!late, "the number of a dead node counts no more");
    t.finish().await;
}

#[tokio::test]
async fn m5_mail_of_the_platform_goes_first() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    shop.sends(&t, &mail("zoe@rcpt.test")).await;
    t.post("/auth/forgot-password").json(&json!({ "email": "ada@example.com" })).await;
    t.run_jobs().await;
    let before = t.mailbox.mails().len();
    t.mailbox.set_down(true);
    t.post("/auth/magic-link/request").json(&json!({ "email": "ada@example.com" })).await;
    t.run_jobs().await;
    t.mailbox.set_down(false);
    assert!(
        tenancy::messages::mail::is_due(&t.janua.db, t.janua.clock.now().plus(Duration::from_mins(2))).await.unwrap()
    );
    t.advance(Duration::from_mins(2));
    let (sent, ()) = tokio::join!(crate::deliver_due(&t.janua), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(delivered(&t).is_empty(), "the app's mail waits while a sign-in link is due");
        t.run_jobs().await;
    });
    assert_eq!(sent.unwrap(), 1);
    let mails = t.mailbox.mails();
    let (own, link) = (mails.iter().position(|mail| mail.contains("X-Janua-Ref")), mails.len() - before);
    assert!(link >= 2 && own == Some(mails.len() - 1), "last of all");
    t.finish().await;
}

impl Shop {
    /// The state of a message, whether or not the session still lives.
    async fn message_by_key(&self, t: &TestJanua, sent: &Answer) -> String {
        let sql = "SELECT status FROM email_recipient WHERE message_id = $1";
        let id = sent.body["messageId"].as_str().unwrap_or_else(|| panic!("{}", sent.text));
        t.janua.db.one::<(String,)>(sql, db::params![id]).await.unwrap().0
    }
}
