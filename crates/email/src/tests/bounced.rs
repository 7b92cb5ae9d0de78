//! Bounces, complaints, suppressions, the breaker, and unsubscribing.
use std::net::SocketAddr;

use kernel::ports::SendError;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use super::*;

#[tokio::test]
async fn a_recipient_that_does_not_exist_is_not_written_to_again() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    t.mailbox.refuse(Some(|| SendError::Never("550 5.1.1 no such user".into())));
    let sent = shop.sends(&t, &mail("gone@rcpt.test")).await;
    deliver(&t).await;
    assert_eq!(shop.message(&t, &sent).await["status"], "bounced");
    t.expects(&["EMAIL_BOUNCED", "EMAIL_SUPPRESSED"]).await;
    t.mailbox.refuse(None);
    let again = shop.sends(&t, &mail("Gone@rcpt.test")).await;
    assert_eq!((&again.body["sent"], &again.body["status"]), (&json!(false), &json!("suppressed")), "{}", again.text);
    let list = shop.gets(&t, "/suppressions").await;
    assert_eq!(list.body["suppressions"][0]["reason"], "bounce", "{}", list.text);
    // The list is the app's own: the platform's mail, and other apps', go out.
    let other = Shop::ready(&t, "bob@example.com", "mail.other.test").await;
    assert_eq!(other.sends(&t, &mail("gone@rcpt.test")).await.body["sent"], json!(true));
    assert_eq!(other.deletes(&t, "/suppressions/gone@rcpt.test").await.status, 404);
    assert_eq!(shop.deletes(&t, "/suppressions/gone@rcpt.test").await.status, 204);
    assert_eq!(shop.sends(&t, &mail("gone@rcpt.test")).await.body["sent"], json!(true));
    let by_hand = shop.posts(&t, "/suppressions", &json!({ "email": "never@rcpt.test" })).await;
    assert_eq!((by_hand.status, &by_hand.body["reason"]), (200, &json!("manual")), "{}", by_hand.text);
    let mut both = mail("never@rcpt.test");
    both["cc"] = json!("zoe@rcpt.test");
    assert_eq!(shop.sends(&t, &both).await.body["sent"], json!(true), "to those who are left");
    // Spam filters say nothing about the recipient.
    t.mailbox.refuse(Some(|| SendError::Never("554 5.7.1 looks like spam".into())));
    deliver(&t).await;
    assert_eq!(shop.gets(&t, "/suppressions").await.body["suppressions"].as_array().unwrap().len(), 1);
    t.finish().await;
}

#[tokio::test]
async fn what_waits_does_not_go_to_a_recipient_who_was_suppressed_meanwhile() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    let mut later = mail("zoe@rcpt.test");
    later["scheduledAt"] = json!(t.janua.clock.now().plus(std::time::Duration::from_mins(10)));
    let scheduled = shop.sends(&t, &later).await;
    assert_eq!(scheduled.body["status"], "scheduled", "{}", scheduled.text);
    t.mailbox.refuse(Some(|| SendError::Later("451 4.7.1 greylisted".into())));
    let deferred = shop.sends(&t, &mail("zoe@rcpt.test")).await;
    deliver(&t).await;
    assert_eq!(shop.message(&t, &deferred).await["status"], "deferred");
    t.mailbox.refuse(None);
    assert_eq!(shop.posts(&t, "/suppressions", &json!({ "email": "Zoe@rcpt.test" })).await.status, 200);
    t.advance(std::time::Duration::from_mins(12));
    deliver(&t).await;
    assert!(delivered(&t).is_empty());
    for sent in [scheduled, deferred] {
        let message = shop.message(&t, &sent).await;
        let answer = &message["recipients"][0]["answer"];
        assert_eq!((&message["status"], answer), (&json!("suppressed"), &json!("on the suppression list: manual")));
    }
    t.finish().await;
}

#[tokio::test]
async fn what_waits_while_sending_is_paused_can_be_canceled() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    let sent = shop.sends(&t, &mail("zoe@rcpt.test")).await;
    let pause = "INSERT INTO email_sending (app_id, paused_at, judged_from) VALUES ($1, $2, 0)";
    t.janua.db.exec(pause, db::params![&shop.app, t.janua.clock.now()]).await.unwrap();
    deliver(&t).await;
    assert_eq!(shop.message(&t, &sent).await["status"], "deferred");
    let path = format!("/messages/{}/cancel", sent.body["messageId"].as_str().unwrap());
    let canceled = shop.posts(&t, &path, &json!({})).await;
    assert_eq!(canceled.body["status"], "canceled", "{}", canceled.text);
    assert_eq!(shop.posts(&t, "/resume", &json!({})).await.status, 204);
    t.happened().await;
    t.advance(std::time::Duration::from_mins(20));
    deliver(&t).await;
    assert!(delivered(&t).is_empty());
    t.finish().await;
}

#[tokio::test]
async fn too_many_bounces_pause_an_app() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    for n in 0..2 {
        let messages: Vec<Value> = (0..45).map(|m| mail(&format!("r{n}-{m}@rcpt.test"))).collect();
        let sent = t
            .post(&shop.path("/batch"))
            .header("x-service-app-key", &shop.key)
            .json(&json!({ "messages": messages }))
            .await;
        assert_eq!(sent.status, 200, "{}", sent.text);
    }
    deliver(&t).await;
    t.mailbox.refuse(Some(|| SendError::Never("550 5.1.1 no such user".into())));
    for n in 0..10 {
        shop.sends(&t, &mail(&format!("gone{n}@rcpt.test"))).await;
    }
    deliver(&t).await;
    t.mailbox.refuse(None);
    assert_eq!(shop.sends(&t, &mail("zoe@rcpt.test")).await.refusal(), (403, "sending_paused"));
    let overview = shop.gets(&t, "").await;
    assert_eq!(
        (&overview.body["paused"], &overview.body["bounced"]),
        (&json!(true), &json!(10)),
        "{}",
        overview.text
    );
    assert!(t.happened().await.contains(&"EMAIL_SENDING_PAUSED".to_owned()));
    t.run_jobs().await;
    assert!(identity::testing::mail_to(&t, "ada@example.com").unwrap().contains("sends no more email"));
    assert_eq!(shop.posts(&t, "/resume", &json!({})).await.status, 204);
    assert_eq!(shop.sends(&t, &mail("zoe@rcpt.test")).await.status, 200);
    deliver(&t).await;
    t.finish().await;
}

#[tokio::test]
async fn one_click_unsubscribes_and_looking_does_not() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    let mut body = mail("zoe@rcpt.test");
    body["unsubscribe"] = json!(true);
    shop.sends(&t, &body).await;
    deliver(&t).await;
    let sent = delivered(&t).remove(0);
    let header = sent.split("\r\nList-Unsubscribe:").nth(1).expect("a header");
    let url = header.split(['<', '>']).nth(1).unwrap();
    let path = url.strip_prefix(&t.janua.config.base_url()).expect("our own URL");
    let looked = t.get(path).await;
    assert!(looked.status == 200 && looked.text.contains("zoe@rcpt.test"), "{}", looked.text);
    assert_eq!(shop.gets(&t, "/suppressions").await.body["suppressions"], json!([]), "scanners only look");
    let form = "application/x-www-form-urlencoded";
    let click = async |path: &str| {
        t.post(path).header("content-type", form).body("List-Unsubscribe=One-Click").from("192.0.2.9").await
    };
    let mut wrong = path.to_owned();
    wrong.pop();
    assert_eq!(click(&wrong).await.status, 404);
    assert_eq!(click(path).await.status, 200);
    assert_eq!(click(path).await.status, 200, "again");
    let list = shop.gets(&t, "/suppressions").await;
    assert_eq!(list.body["suppressions"][0]["reason"], "unsubscribe", "{}", list.text);
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM email_event WHERE kind = 'unsubscribed'";
    let (noted,): (i64,) = t.janua.db.one(sql, vec![]).await.unwrap();
    assert_eq!(noted, 1, "however often it is clicked");
    assert_eq!(shop.sends(&t, &body).await.body["status"], "suppressed");
    t.finish().await;
}

async fn relay(t: &TestJanua, relay: &str, secret: &str, body: &Value) -> Answer {
    t.post(&format!("/email/events/{relay}?secret={secret}")).json(body).from("192.0.2.7").await
}

#[tokio::test]
async fn relays_report_by_webhook_with_a_secret_of_their_own() {
    let config = Config::for_tests()
        .with(|email: &mut crate::Settings| email.email_webhook_secret = Some("s3cret".to_owned().into()));
    let t = TestJanua::start_with(config, feature).await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    let sent = shop.sends(&t, &mail("zoe@rcpt.test")).await;
    deliver(&t).await;
    let reference = shop.message(&t, &sent).await["recipients"][0]["id"].clone();
    let delivery = json!({ "RecordType": "Delivery", "Recipient": "zoe@rcpt.test", "Details": "250 ok", "Metadata": { "ref": reference } });
    assert_eq!(relay(&t, "postmark", "wrong", &delivery).await.status, 401);
    assert_eq!(relay(&t, "unknown", "s3cret", &delivery).await.status, 404);
    assert_eq!(relay(&t, "postmark", "s3cret", &delivery).await.status, 204);
    assert_eq!(shop.message(&t, &sent).await["status"], "delivered");
    let message = json!({
        "notificationType": "Complaint",
        "complaint": { "complainedRecipients": [{ "emailAddress": "ZOE@rcpt.test" }], "complaintFeedbackType": "abuse" },
        "mail": { "messageId": "none", "headers": [{ "name": "X-Janua-Ref", "value": reference }] },
    });
    let complaint = json!({ "Type": "Notification", "Message": message.to_string() });
    for _ in 0..2 {
        assert_eq!(relay(&t, "ses", "s3cret", &complaint).await.status, 204);
    }
    assert_eq!(shop.message(&t, &sent).await["status"], "complained");
    t.expects(&["EMAIL_COMPLAINED", "EMAIL_SUPPRESSED"]).await;
    // A report about somebody else's mail, or about nothing.
    let other = json!({ "RecordType": "Bounce", "Type": "HardBounce", "Email": "eve@rcpt.test", "Metadata": { "ref": reference } });
    assert_eq!(relay(&t, "postmark", "s3cret", &other).await.status, 204);
    assert_eq!(shop.gets(&t, "/suppressions").await.body["suppressions"].as_array().unwrap().len(), 1);
    t.finish().await;
    let t = start().await;
    assert_eq!(relay(&t, "ses", "", &json!({})).await.status, 404, "off by default");
    t.finish().await;
}

/// Says these lines to a server and answers what it said to each.
async fn talk(place: SocketAddr, lines: &[&str]) -> Vec<String> {
    let mut stream = BufReader::new(TcpStream::connect(place).await.unwrap());
    let (mut said, mut answers) = (String::new(), vec![]);
    stream.read_line(&mut said).await.unwrap();
    for line in lines {
        stream.get_mut().write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
        loop {
            let mut answer = String::new();
            stream.read_line(&mut answer).await.unwrap();
            if answer.get(3..4) != Some("-") {
                answers.push(answer.get(..3).unwrap_or_default().to_owned());
                break;
            }
        }
    }
    answers
}

#[tokio::test]
async fn the_bounce_listener_takes_bounces_of_our_own_mail_and_nothing_else() {
    let config = Config::for_tests()
        .with(|email: &mut crate::Settings| email.bounce_domain = Some("bounces.example.test".into()));
    let t = TestJanua::start_with(config, feature).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap();
    let server = tokio::spawn(crate::bounces::serve(t.janua.clone(), listener));
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    let sent = shop.sends(&t, &mail("gone@rcpt.test")).await;
    deliver(&t).await;
    let id = shop.message(&t, &sent).await["recipients"][0]["id"].as_str().unwrap().to_owned();
    let message =
        crate::sending::Message::any(&t.janua.db, sent.body["messageId"].as_str().unwrap().parse().unwrap())
            .await
            .unwrap();
    let recipient = crate::sending::Recipient::find(&t.janua.db, id.parse().unwrap()).await.unwrap().unwrap();
    let path = crate::bounces::return_path(&t.janua, &message, &recipient, false);
    assert!(path.ends_with("@bounces.example.test"), "{path}");
    let to = |path: &str| format!("RCPT TO:<{path}>");
    let forged = path.replace("b.", "b.0");
    let wrong = talk(
        place,
        &[
            "HELO x",
            "RCPT TO:<x@y.z>",
            "MAIL FROM:<>",
            "RCPT TO:<ada@example.com>",
            &to(&forged),
            "DATA",
            "VRFY ada",
            "QUIT",
        ],
    )
    .await;
    assert_eq!(wrong, ["250", "503", "250", "550", "550", "503", "502", "221"]);
    let report = "Content-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n--b\r\n\
                  Content-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx\r\n\r\nAction: failed\r\n\
                  Status: 5.1.1\r\nDiagnostic-Code: smtp; 550 5.1.1 unknown\r\n--b--\r\n.\n.\r\nstill data\r\n.";
    let right = talk(place, &["EHLO x", "MAIL FROM:<>", &to(&path), "RCPT TO:<x@y.z>", "DATA", report]).await;
    assert_eq!(right, ["250", "250", "250", "452", "354", "250"]);
    assert_eq!(shop.message(&t, &sent).await["status"], "bounced");
    t.expects(&["EMAIL_BOUNCED", "EMAIL_SUPPRESSED"]).await;
    let overview = shop.gets(&t, "").await;
    let counts = (&overview.body["sent"], &overview.body["bounced"]);
    assert_eq!(counts, (&json!(0), &json!(1)), "one mail is counted once: {}", overview.text);
    // Once more changes nothing, and after 30 days it is refused.
    let again = talk(place, &["HELO x", "MAIL FROM:<>", &to(&path), "DATA", report]).await;
    assert_eq!(again.last().map(String::as_str), Some("250"));
    t.expects(&[]).await;
    t.advance(std::time::Duration::from_hours(31 * 24));
    assert_eq!(talk(place, &["HELO x", "MAIL FROM:<>", &to(&path)]).await, ["250", "250", "550"]);
    server.abort();
    t.finish().await;
}
