//! What is sent, how it looks, and that it is sent once.
use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use kernel::{config::Config, testing::join_all};
use mail_auth::{AuthenticatedMessage, DkimResult, MessageAuthenticator};
use serde_json::json;
use tenancy::quotas::{Limit, Limits};

use super::{
    peers::{NameServer, SmtpServer, python, zone_lines},
    *,
};

/// Every signature of a mail, with its algorithm, checked by mailauth with the keys of a name server.
fn mailauth(mail: &str, port: u16) -> String {
    let program = "
import { Resolver } from 'node:dns/promises';
import { dkimVerify } from 'mailauth/lib/dkim/verify.js';
const dns = new Resolver();
dns.setServers([`127.0.0.1:${process.argv[1]}`]);
const parts = [];
for await (const part of process.stdin) parts.push(part);
const { results } = await dkimVerify(Buffer.concat(parts), { resolver: (name, type) => dns.resolve(name, type) });
console.log(results.map(one => `${one.algo} ${one.status.result}`).sort().join(', '));
";
    let folder = std::env::var("TEST_NODE").expect("TEST_NODE: scripts/test sets it, scripts/setup installs it");
    let mut command = Command::new("node");
    command.current_dir(folder).args(["--input-type=module", "-e", program, &port.to_string()]);
    ask(&mut command, mail)
}

/// Every signature of a mail, checked by dkimpy with the keys of a name server.
fn dkimpy(mail: &str, port: u16) -> String {
    let program = "
import sys, dkim, dns.resolver
r = dns.resolver.Resolver(configure=False)
r.nameservers, r.port = ['127.0.0.1'], int(sys.argv[1])
def txt(name, timeout=5):
    return b''.join(next(iter(r.resolve(name.decode().rstrip('.') + '.', 'TXT'))).strings)
d = dkim.DKIM(sys.stdin.buffer.read())
count = sum(1 for name, _ in d.headers if name.lower() == b'dkim-signature')
print([d.verify(idx=i, dnsfunc=txt) for i in range(count)])
";
    ask(Command::new(python()).args(["-c", program, &port.to_string()]), mail)
}

/// What a program says to a mail.
fn ask(command: &mut Command, mail: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program is installed");
    child.stdin.take().unwrap().write_all(mail.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = if output.status.success() { output.stdout } else { output.stderr };
    String::from_utf8(said).unwrap().trim().to_owned()
}

async fn mail_auth(mail: &str, port: u16) -> Vec<bool> {
    use mail_auth::hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
    let mut connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = port;
    }
    let server = NameServerConfig::new([127, 0, 0, 1].into(), true, connections.into());
    let config = ResolverConfig::from_parts(None, vec![], vec![server]);
    let checker = MessageAuthenticator::new(config, ResolverOpts::default()).expect("a resolver");
    let message = AuthenticatedMessage::parse(mail.as_bytes()).expect("a mail");
    let results = checker.verify_dkim(&message).await;
    results.iter().map(|one| *one.result() == DkimResult::Pass).collect()
}

#[tokio::test]
async fn a_mail_goes_out_signed_from_a_domain_that_was_proven() {
    let (smtp, mut dns) = (SmtpServer::start(), NameServer::start().await);
    let config = Config {
        dns_servers: vec![([127, 0, 0, 1], dns.port).into()],
        smtp_url: Some(smtp.url().into()),
        ..Config::for_tests()
    };
    let t = TestJanua::start_with(config, feature).await;
    let shop = Shop::open(&t, "ada@example.com").await;
    t.happened().await;
    assert_eq!(shop.sends(&t, &mail("zoe@rcpt.test")).await.refusal(), (409, "no_verified_domain"));
    let added = shop.add_domain(&t, "Mail.Example.test.").await;
    assert_eq!((added.status, &added.body["status"]), (200, &json!("pending")), "{}", added.text);
    let records = &added.body["records"];
    assert_eq!(records[0]["purpose"], "dkim");
    assert_eq!(records[0]["value"].as_str().unwrap().len(), "v=DKIM1; k=rsa; p=".len() + 392, "2048 bits");
    assert_eq!(records[0]["parts"].as_array().unwrap().len(), 2);
    let verify = shop.path("/domains/mail.example.test/verify");
    let early = shop.owner.asks(t.post(&verify)).await;
    assert_eq!((&early.body["status"], &early.body["records"][0]["status"]), (&json!("pending"), &json!("missing")));
    dns.say(&zone_lines(records)).await;
    let proven = shop.owner.asks(t.post(&verify)).await;
    assert_eq!(proven.body["status"], "verified", "{}", proven.text);
    assert_eq!(proven.body["dmarc"], json!({ "policy": "none", "aligned": true }));
    t.expects(&["EMAIL_DOMAIN_ADDED", "EMAIL_DOMAIN_VERIFIED"]).await;

    let mut body = mail("Zoë Q. <zoe@rcpt.test>");
    body["from"] = json!("Acme Café <hello@mail.example.test>");
    body["cc"] = json!(["Bob <bob@other.test>"]);
    body["bcc"] = json!("eve@hidden.test");
    body["replyTo"] = json!("help@mail.example.test");
    body["tags"] = json!(["receipt"]);
    body["headers"] = json!({ "X-Order": "17" });
    body["unsubscribe"] = json!(true);
    body["attachments"] = json!([
        { "filename": "größe.pdf", "contentType": "application/pdf", "content": "JVBERi0xLjQK" },
        { "filename": "logo.png", "contentType": "image/png", "content": "iVBORw0KGgo=", "inline": "logo" },
    ]);
    let sent = shop.sends(&t, &body).await;
    assert_eq!(sent.status, 200, "{}", sent.text);
    assert_eq!((&sent.body["to"], &sent.body["sent"]), (&json!("zoe@rcpt.test"), &json!(true)));
    assert_eq!((&sent.body["subject"], &sent.body["status"]), (&json!("Receipt"), &json!("queued")));
    deliver(&t).await;
    let received = smtp.received();
    assert_eq!(received.len(), 3, "one for each recipient");
    for one in &received {
        assert_eq!(dkimpy(one, dns.port), "[True, True]", "{one}");
        assert_eq!(mailauth(one, dns.port), "ed25519-sha256 pass, rsa-sha256 pass", "{one}");
        assert_eq!(mail_auth(one, dns.port).await, [true, true]);
        assert!(!one.contains("eve@hidden"), "who gets a blind copy is hidden: {one}");
        assert!(one.contains("List-Unsubscribe-Post: List-Unsubscribe=One-Click") && one.contains("X-Order: 17"));
        assert_eq!(one.matches("\nMessage-ID: ").count(), 1);
    }
    let forged = received[0].replace("Subject: Receipt", "Subject: Forged");
    assert_eq!(dkimpy(&forged, dns.port), "[False, False]", "a signature that fits anything proves nothing");
    assert_eq!(mailauth(&forged, dns.port), "ed25519-sha256 fail, rsa-sha256 fail");
    let envelopes = smtp.envelopes();
    assert!(envelopes.contains(&"hello@mail.example.test eve@hidden.test".to_owned()), "{envelopes:?}");
    let known = shop.message(&t, &sent).await;
    assert_eq!((&known["status"], known["recipients"].as_array().unwrap().len()), (&json!("sent"), 3));
    assert_eq!(known["recipients"][0]["answer"], "250 2.0.0 Ok: queued as 4F2A1B3C9D");
    assert!(known["html"].as_str().unwrap().contains("Zoë") && known["text"].as_str().unwrap().contains("Thank you"));
    assert_eq!(known["events"].as_array().unwrap().len(), 6, "queued and sent, each: {known}");
    t.finish().await;
}

#[tokio::test]
async fn a_mail_is_stored_once_under_its_key_whoever_asks() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    let by_key = async |key: &str, body: &Value| {
        let ask = t.post(&shop.path("/send")).header("x-service-app-key", &shop.key).header("idempotency-key", key);
        ask.json(body).await
    };
    let by_session = async |key: &str, body: &Value| {
        shop.owner.asks(t.post(&shop.path("/send")).header("idempotency-key", key).json(body)).await
    };
    let body = mail("zoe@rcpt.test");
    let first = by_key("order-17", &body).await;
    let again = by_session("order-17", &body).await;
    assert_eq!((first.status, again.status), (200, 200), "{}", again.text);
    assert_eq!(first.body["messageId"], again.body["messageId"], "the key belongs to the app, not to the credential");
    assert_eq!(by_session("order-17", &mail("bob@rcpt.test")).await.status, 409, "another mail under the same key");
    let many = join_all((0..8).map(|n| {
        let (body, key) = (body.clone(), format!("race-{}", n % 2));
        let (by_key, by_session) = (&by_key, &by_session);
        async move { if n < 4 { by_key(&key, &body).await } else { by_session(&key, &body).await } }
    }));
    let ids: std::collections::BTreeSet<String> =
        many.await.iter().map(|one| one.body["messageId"].as_str().unwrap_or(&one.text).to_owned()).collect();
    assert_eq!(ids.len(), 2, "{ids:?}");
    deliver(&t).await;
    assert_eq!(delivered(&t).len(), 3);
    t.advance(std::time::Duration::from_hours(25));
    let later =
        t.post(&shop.path("/send")).header("x-service-app-key", &shop.key).header("idempotency-key", "order-17");
    let later = later.json(&body).await;
    assert_ne!(later.body["messageId"], first.body["messageId"], "a key counts for a day");
    deliver(&t).await;
    t.finish().await;
}

#[tokio::test]
async fn what_is_stored_is_answered_again_whatever_has_changed_since() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    let template = json!({ "name": "hello", "subject": "Hello", "text": "Hello" });
    assert_eq!(shop.posts(&t, "/templates", &template).await.status, 200);
    let body = json!({ "to": "zoe@rcpt.test", "template": { "name": "hello" } });
    let ask = async |path: &str, key: &str, body: &Value| {
        let ask = t.post(&shop.path(path)).header("x-service-app-key", &shop.key).header("idempotency-key", key);
        ask.json(body).await
    };
    let batch = json!({ "messages": [body, mail("bob@rcpt.test")] });
    let (one, many) = (ask("/send", "one", &body).await, ask("/batch", "many", &batch).await);
    assert_eq!((one.status, many.status), (200, 200), "{} {}", one.text, many.text);
    deliver(&t).await;
    assert_eq!(shop.deletes(&t, "/templates/hello").await.status, 204);
    assert_eq!(shop.deletes(&t, "/domains/mail.example.test").await.status, 204);
    let pause = "INSERT INTO email_sending (app_id, paused_at, judged_from) VALUES ($1, $2, 0)";
    t.janua.db.exec(pause, db::params![&shop.app, t.janua.clock.now()]).await.unwrap();
    let again = ask("/send", "one", &body).await;
    assert_eq!((again.status, &again.body["messageId"]), (200, &one.body["messageId"]), "{}", again.text);
    assert_eq!(again.body["status"], "sent", "as it is now");
    let again = ask("/batch", "many", &batch).await;
    assert_eq!(again.body["messages"][1]["messageId"], many.body["messages"][1]["messageId"], "{}", again.text);
    assert_eq!(ask("/send", "one", &mail("bob@rcpt.test")).await.status, 409, "another mail under the same key");
    assert_eq!(ask("/send", "two", &body).await.refusal(), (400, "unknown_template"));
    t.finish().await;
}

#[tokio::test]
async fn templates_are_drawn_in_the_readers_language() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    let put = async |mut body: Value| {
        body["name"] = json!("welcome");
        shop.posts(&t, "/templates", &body).await
    };
    let english =
        json!({ "subject": "Welcome {{ name }}", "html": "<p>Hi {{ name }}</p>", "sample": { "name": "Ada" } });
    assert_eq!(put(english).await.status, 200);
    assert_eq!(
        put(json!({ "locale": "de", "subject": "Willkommen {{ name }}", "text": "Hallo {{ name }}" })).await.status,
        200
    );
    let broken = put(json!({ "locale": "fr", "subject": "{{ name", "html": "{% for %}" })).await;
    assert_eq!(broken.refusal(), (400, "invalid"));
    assert_eq!(broken.body["errors"].as_array().unwrap().len(), 2, "{}", broken.text);
    let preview = shop.posts(&t, "/templates/welcome/preview", &json!({})).await;
    assert_eq!(preview.body, json!({ "subject": "Welcome Ada", "html": "<p>Hi Ada</p>", "text": null }));
    let deep = (0..40).fold(json!("x"), |inner, _| json!({ "name": [inner] }));
    let drawn = shop.posts(&t, "/templates/welcome/preview", &json!({ "variables": deep })).await;
    assert_eq!(drawn.status, 200, "values within values: {}", drawn.text);
    let with = |variables: Value, locale: &str| json!({ "to": "zoe@rcpt.test", "template": { "name": "welcome", "variables": variables }, "locale": locale });
    let german = shop.sends(&t, &with(json!({ "name": "<Zoë>" }), "de-AT")).await;
    assert_eq!(german.body["subject"], "Willkommen <Zoë>");
    let other = shop.sends(&t, &with(json!({ "name": "<Zoë>" }), "ja")).await;
    assert_eq!(shop.message(&t, &other).await["html"], "<p>Hi &lt;Zoë&gt;</p>");
    assert_eq!(
        shop.sends(&t, &with(json!({}), "en")).await.refusal(),
        (400, "invalid"),
        "a missing variable is no mail"
    );
    let injected = shop.sends(&t, &with(json!({ "name": "x\r\nBcc: eve@evil.test" }), "en")).await;
    assert_eq!(injected.refusal(), (400, "invalid"), "pc19");
    let unknown = json!({ "to": "zoe@rcpt.test", "template": { "name": "none" } });
    assert_eq!(shop.sends(&t, &unknown).await.refusal(), (400, "unknown_template"));
    assert_eq!(shop.gets(&t, "/templates").await.body["templates"][0]["locales"], json!(["", "de"]));
    assert_eq!(shop.deletes(&t, "/templates/welcome").await.status, 204);
    assert_eq!(shop.gets(&t, "/templates/welcome").await.status, 404);
    deliver(&t).await;
    t.finish().await;
}

#[tokio::test]
async fn a_mail_waits_for_its_time_and_can_be_canceled_or_sent_again() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    let mut body = mail("zoe@rcpt.test");
    body["scheduledAt"] = json!("2026-01-31T11:00:00Z");
    let (one, two) = (shop.sends(&t, &body).await, shop.sends(&t, &body).await);
    assert_eq!(one.body["status"], "scheduled", "{}", one.text);
    body["scheduledAt"] = json!("2026-04-01T11:00:00Z");
    assert_eq!(shop.sends(&t, &body).await.refusal(), (400, "invalid"), "more than 30 days ahead");
    deliver(&t).await;
    assert!(delivered(&t).is_empty());
    let id = two.body["messageId"].as_str().unwrap();
    let canceled = shop.posts(&t, &format!("/messages/{id}/cancel"), &json!({})).await;
    assert_eq!(canceled.body["status"], "canceled", "{}", canceled.text);
    assert_eq!(shop.posts(&t, &format!("/messages/{id}/cancel"), &json!({})).await.status, 409);
    t.advance(std::time::Duration::from_mins(61));
    deliver(&t).await;
    assert_eq!(delivered(&t).len(), 1, "the canceled one does not go");
    let owner = Person::of(&identity::testing::login(&t, "ada@example.com", identity::testing::PASSWORD).await);
    let shop = Shop { owner, ..shop };
    assert_eq!(shop.message(&t, &one).await["status"], "sent");
    let id = one.body["messageId"].as_str().unwrap();
    let again = shop.posts(&t, &format!("/messages/{id}/resend"), &json!({})).await;
    assert_ne!(again.body["messageId"], one.body["messageId"], "{}", again.text);
    deliver(&t).await;
    assert_eq!(delivered(&t).len(), 2);
    // The content goes after a day, the log stays.
    t.advance(std::time::Duration::from_hours(26));
    t.run_jobs().await;
    let owner = Person::of(&identity::testing::login(&t, "ada@example.com", identity::testing::PASSWORD).await);
    let shop = Shop { owner, ..shop };
    let message = shop.message(&t, &one).await;
    assert_eq!((&message["hasContent"], &message["subject"]), (&json!(false), &json!("Receipt")));
    assert_eq!(shop.posts(&t, &format!("/messages/{id}/resend"), &json!({})).await.refusal(), (410, "content_gone"));
    t.advance(std::time::Duration::from_hours(31 * 24));
    t.run_jobs().await;
    let (count,): (i64,) =
        t.janua.db.one("SELECT CAST(COUNT(*) AS BIGINT) AS n FROM email_message", vec![]).await.unwrap();
    assert_eq!(count, 0, "after 30 days");
    t.finish().await;
}

#[tokio::test]
async fn pc14_the_quota_counts_recipients_and_is_never_passed() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    let limits = [("mails".to_owned(), Limit::hard(10))].into();
    t.janua.own::<Limits>().set([("free".to_owned(), limits)].into());
    let three =
        json!({ "to": ["a@r.test", "b@r.test"], "cc": "c@r.test", "bcc": "A@R.test", "subject": "x", "text": "y" });
    for _ in 0..3 {
        assert_eq!(shop.sends(&t, &three).await.status, 200, "everybody counts once");
    }
    let all = join_all((0..8).map(|_| async { shop.sends(&t, &mail("zoe@r.test")).await })).await;
    assert_eq!(all.iter().filter(|one| one.status == 200).count(), 1);
    let refused = all.iter().find(|one| one.status == 402).expect("a refusal");
    assert_eq!((&refused.body["meter"], &refused.body["used"]), (&json!("mails"), &json!(10)));
    let batch = json!({ "messages": [mail("a@r.test"), { "to": "b@r.test", "subject": "" }] });
    let wrong = t.post(&shop.path("/batch")).header("x-service-app-key", &shop.key).json(&batch).await;
    assert_eq!(wrong.body["errors"][0]["field"], "messages.1.subject", "{}", wrong.text);
    let overview = shop.gets(&t, "").await;
    assert_eq!((&overview.body["used"], &overview.body["limit"]), (&json!(10), &json!(10)), "{}", overview.text);
    deliver(&t).await;
    assert_eq!(delivered(&t).len(), 10);
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn a_batch_is_stored_as_a_whole() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    let batch = json!({ "messages": (0..100).map(|n| mail(&format!("r{n}@d{}.test", n % 7))).collect::<Vec<_>>() });
    let ask = async || {
        let ask = t.post(&shop.path("/batch")).header("x-service-app-key", &shop.key).header("idempotency-key", "b1");
        ask.json(&batch).await
    };
    let sent = ask().await;
    assert_eq!((sent.status, sent.body["messages"].as_array().map(Vec::len)), (200, Some(100)), "{}", sent.text);
    assert_eq!(ask().await.body, sent.body);
    deliver(&t).await;
    assert_eq!(delivered(&t).len(), 100);
    let (lanes,): (i64,) =
        t.janua.db.one("SELECT CAST(COUNT(*) AS BIGINT) AS n FROM email_lane", vec![]).await.unwrap();
    assert_eq!(lanes, 0, "an empty lane leaves nothing behind");
    let page = shop.gets(&t, "/messages?limit=10").await;
    assert_eq!(page.body["messages"].as_array().unwrap().len(), 10);
    let cursor = page.body["nextCursor"].as_str().unwrap();
    assert_eq!(shop.gets(&t, &format!("/messages?limit=10&cursor={cursor}")).await.status, 200);
    let found = shop.gets(&t, "/messages?to=R13@d6.test").await;
    assert_eq!(found.body["messages"][0]["recipients"][0]["email"], "r13@d6.test", "{}", found.text);
    assert_eq!(shop.gets(&t, "/messages?status=sent&limit=3").await.body["messages"].as_array().unwrap().len(), 3);
    assert_eq!(shop.gets(&t, "/messages?status=bounced").await.body["messages"], json!([]));
    t.finish().await;
}
