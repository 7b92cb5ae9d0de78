//! Mail servers that fail, at each stage of a conversation.
use std::time::Duration;

use kernel::config::Config;

use super::{peers::SmtpServer, *};

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
        "mail 421 4.3.2 closing",
        "mail 550 5.7.1 sender refused",
        "rcpt 421 4.3.2 closing",
        "rcpt cut",
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
    assert_eq!(smtp.received().len(), 3);
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
    let late = db::transact!(t.janua.db, async |tx| held[0].keep(tx).await).unwrap();
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
