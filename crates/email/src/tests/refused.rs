//! What is not sent: other people's senders, injected headers, strangers.
use identity::testing::mail_to;
use kernel::telemetry::Traced;

use super::*;

#[tokio::test]
async fn pc20_an_app_sends_from_its_own_verified_hosts_alone() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    let other = Shop::ready(&t, "eve@example.com", "mail.evil.test").await;
    let from = async |shop: &Shop, from: &str| {
        let mut body = mail("zoe@rcpt.test");
        body["from"] = json!(from);
        shop.sends(&t, &body).await
    };
    for wrong in [
        "x@mail.evil.test",
        "x@example.test",
        "x@sub.mail.example.test",
        "x@mail.example.test.evil.test",
        "x@xmail.example.test",
        "x@m\u{0430}il.example.test",
        "no-reply@localhost",
    ] {
        assert_eq!(from(&shop, wrong).await.refusal(), (403, "sender_not_verified"), "{wrong}");
    }
    for wrong in ["a@mail.example.test, b@mail.example.test", "\"x@mail.evil.test\" <x@mail.example.test>", "Acme"] {
        let refused = from(&shop, wrong).await;
        assert_eq!(
            (refused.refusal(), &refused.body["errors"][0]["field"]),
            ((400, "invalid"), &json!("from")),
            "{wrong}"
        );
    }
    assert_eq!(from(&shop, "Shop <x@Mail.Example.test>").await.status, 200);
    let sql = "UPDATE email_domain SET subdomains = $2 WHERE app_id = $1";
    t.janua.db.exec(sql, db::params![&shop.app, true]).await.unwrap();
    assert_eq!(from(&shop, "x@sub.mail.example.test").await.status, 200, "with subdomains");
    // A host below it that another organization has proven is that one's, with everything below.
    let sql =
        "INSERT INTO email_host (hostname, org_id) SELECT 'eve.mail.example.test', org_id FROM app WHERE id = $1";
    t.janua.db.exec(sql, db::params![&other.app]).await.unwrap();
    for wrong in ["x@eve.mail.example.test", "x@deep.eve.mail.example.test"] {
        assert_eq!(from(&shop, wrong).await.refusal(), (403, "sender_not_verified"), "{wrong}");
    }
    assert_eq!(from(&shop, "x@sub.mail.example.test").await.status, 200);
    // Another app's key, and an id of another tenant.
    let ask = t.post(&shop.path("/send")).header("x-service-app-key", &other.key);
    assert_eq!(ask.json(&mail("zoe@rcpt.test")).await.status, 404);
    let sent = shop.sends(&t, &mail("zoe@rcpt.test")).await;
    let id = sent.body["messageId"].as_str().unwrap();
    assert_eq!(other.gets(&t, &format!("/messages/{id}")).await.status, 404);
    for act in ["cancel", "resend"] {
        assert_eq!(other.posts(&t, &format!("/messages/{id}/{act}"), &json!({})).await.status, 404);
    }
    // A domain that is removed sends nothing more, not even what waits.
    assert_eq!(shop.deletes(&t, "/domains/mail.example.test").await.status, 204);
    assert_eq!(shop.sends(&t, &mail("zoe@rcpt.test")).await.refusal(), (409, "no_verified_domain"));
    deliver(&t).await;
    assert!(delivered(&t).is_empty());
    let answer = shop.message(&t, &sent).await["recipients"][0]["answer"].as_str().unwrap().to_owned();
    assert!(answer.starts_with("sender_removed"), "{answer}");
    t.finish().await;
}

#[tokio::test]
async fn pc19_no_field_makes_a_second_header_or_recipient() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    for evil in
        ["\r\nBcc: eve@evil.test", "\nBcc: eve@evil.test", "\rX", "\u{2028}Bcc: e@evil.test", "\u{85}x", "\u{0}"]
    {
        for field in ["to", "cc", "bcc", "replyTo", "from", "subject"] {
            let mut body = mail("zoe@rcpt.test");
            let value = match field {
                "subject" => format!("Hi{evil}"),
                _ => format!("Acme{evil} <zoe@mail.example.test>"),
            };
            body[field] = json!(value);
            let refused = shop.sends(&t, &body).await;
            assert_eq!(refused.status, 400, "{field} {evil:?}: {}", refused.text);
            assert!(refused.body["errors"][0]["field"].as_str().unwrap().starts_with(field), "{}", refused.text);
        }
        let mut body = mail("zoe@rcpt.test");
        body["headers"] = json!({ "X-Order": format!("1{evil}") });
        assert_eq!(shop.sends(&t, &body).await.status, 400, "a header {evil:?}");
        body["headers"] = json!({ (format!("X-O{evil}")): "1" });
        assert_eq!(shop.sends(&t, &body).await.status, 400, "a header's name {evil:?}");
        let mut body = mail("zoe@rcpt.test");
        body["attachments"] = json!([{ "filename": format!("a{evil}.pdf"), "content": "AA==" }]);
        assert_eq!(shop.sends(&t, &body).await.status, 400, "a file's name {evil:?}");
    }
    for (name, value) in
        [("From", "x"), ("Bcc", "x"), ("DKIM-Signature", "x"), ("Content-Type", "x"), ("X-Janua-Ref", "x")]
    {
        let mut body = mail("zoe@rcpt.test");
        body["headers"] = json!({ name: value });
        assert_eq!(shop.sends(&t, &body).await.refusal(), (400, "invalid"), "{name}");
    }
    let mut body = mail("zoe@rcpt.test");
    body["attachments"] = json!([{ "filename": "run.EXE", "content": "AA==" }]);
    assert_eq!(shop.sends(&t, &body).await.refusal(), (400, "invalid"));
    // What looks odd and is allowed arrives as one header.
    let mut body = mail("zoe@rcpt.test");
    (body["subject"], body["from"]) =
        (json!("Bcc: eve@evil.test \"; x=<y>"), json!("A; \u{fc} (b), c <x@mail.example.test>"));
    assert_eq!(shop.sends(&t, &body).await.status, 200);
    deliver(&t).await;
    let sent = delivered(&t);
    let head = sent[0].split("\r\n\r\n").next().unwrap();
    assert_eq!(
        (sent.len(), head.matches("\r\nBcc:").count(), head.matches("\r\nFrom: ").count()),
        (1, 0, 1),
        "{head}"
    );
    assert_eq!(shop.gets(&t, "/messages").await.body["messages"].as_array().unwrap().len(), 1);
    t.finish().await;
}

#[tokio::test]
async fn pc21_the_platforms_sender_is_no_open_relay() {
    let config = Config::for_tests()
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["root@example.com".into()]);
    let t = TestJanua::start_with(config, feature).await;
    let ada = signed_in(&t, "ada@example.com").await;
    let bob = signed_in(&t, "bob@example.com").await;
    let root = signed_in(&t, "root@example.com").await;
    t.run_jobs().await;
    let org = ada.asks(t.post("/org").json(&json!({ "name": "Acme" }))).await;
    assert_eq!(org.status, 200, "{}", org.text);
    let org = org.body["id"].as_str().unwrap().to_owned();
    let sends = async |who: &Person, to: Value| {
        let body = json!({ "to": to, "subject": "Hello", "html": "<p>Hi</p><script>x()</script>", "from": "Acme" });
        who.asks(t.post("/email/send").json(&body)).await
    };
    for who in [&ada, &bob] {
        for to in [json!("stranger@example.org"), json!(["ada@example.com", "bob@example.com"])] {
            assert_eq!(sends(who, to).await.refusal(), (403, "recipient_not_allowed"));
        }
    }
    assert_eq!(sends(&bob, json!("bob@example.com")).await.status, 200, "to oneself");
    assert_eq!(sends(&root, json!("stranger@example.org")).await.status, 200, "platform owners write to anybody");
    // Bob becomes a member of Ada's organization.
    let sql = "INSERT INTO org_member (org_id, account_id, role, joined_at) VALUES ($1, $2, 'member', 0)";
    t.janua.db.exec(sql, db::params![&org, &bob.id]).await.unwrap();
    ada.asks(t.post(&format!("/user/orgs/{org}/switch")).json(&json!({}))).await;
    let ada = Person::of(&identity::testing::login(&t, "ada@example.com", identity::testing::PASSWORD).await);
    ada.asks(t.post(&format!("/user/orgs/{org}/switch")).json(&json!({}))).await;
    let sent = sends(&ada, json!("bob@example.com")).await;
    assert_eq!((sent.status, &sent.body["sent"]), (200, &json!(true)), "{}", sent.text);
    let body = json!({ "to": "ada@example.com", "subject": "x", "text": "y", "replyTo": "phisher@evil.test" });
    assert_eq!(ada.asks(t.post("/email/send").json(&body)).await.refusal(), (403, "recipient_not_allowed"));
    let body = json!({ "to": "ada@example.com", "subject": "x", "text": "y", "from": "security@bank.example" });
    assert_eq!(ada.asks(t.post("/email/send").json(&body)).await.refusal(), (400, "invalid"));
    deliver(&t).await;
    assert_eq!(delivered(&t).len(), 3, "nothing to anybody else");
    // Found by the request that sent it, without the recipient.
    let mut steps = vec![];
    for Traced(find) in t.janua.declared::<Traced>() {
        steps.extend(find(t.janua.clone(), sent.header("x-request-id").to_owned()).await.unwrap());
    }
    assert_eq!((steps.len(), steps[0].state.as_deref()), (1, Some("sent")), "{steps:?}");
    assert!(!format!("{steps:?}").contains("bob@example.com"), "{steps:?}");
    let mail = mail_to(&t, "bob@example.com").unwrap();
    assert!(mail.contains("sent this message through") && !mail.contains("<script"), "{mail}");
    assert!(mail.contains("From: \"Acme via") || mail.contains("From: Acme via"), "{mail}");
    // So many in an hour.
    for _ in 0..18 {
        sends(&bob, json!("bob@example.com")).await;
    }
    let codes: Vec<u16> = join(&t, &bob).await;
    assert!(codes.contains(&429) || !t.janua.config.rate_limits.is_on(), "{codes:?}");
    deliver(&t).await;
    t.finish().await;
}

async fn join(t: &TestJanua, who: &Person) -> Vec<u16> {
    let mut codes = vec![];
    for _ in 0..3 {
        let body = json!({ "to": "bob@example.com", "subject": "x", "text": "y" });
        codes.push(who.asks(t.post("/email/send").json(&body)).await.status);
    }
    codes
}

#[tokio::test]
async fn pc23_hosts_that_cannot_be_somebodys_own_and_hosts_of_others() {
    let t = start().await;
    let shop = Shop::ready(&t, "ada@example.com", "mail.example.test").await;
    let sql = "INSERT INTO email_host (hostname, org_id) SELECT 'mail.example.test', org_id FROM app WHERE id = $1";
    t.janua.db.exec(sql, db::params![&shop.app]).await.unwrap();
    let evil = Shop::open(&t, "eve@example.com").await;
    for wrong in ["co.uk", "github.io", "localhost", "127.0.0.1", "[::1]", "com", "-a.example.test", "a b.test", ""] {
        let refused = evil.add_domain(&t, wrong).await;
        assert_eq!(refused.refusal(), (400, "invalid"), "{wrong}: {}", refused.text);
    }
    assert_eq!(evil.add_domain(&t, "mail.example.test").await.refusal(), (409, "domain_taken"));
    assert_eq!(shop.add_domain(&t, "mail.example.test").await.refusal(), (409, "email_domain_exists"));
    // Freed, it may be claimed, and the keys are other ones.
    let old = shop.gets(&t, "/domains").await.body["domains"][0]["records"][0]["value"].clone();
    assert_eq!(shop.deletes(&t, "/domains/mail.example.test").await.status, 204);
    let claimed = evil.add_domain(&t, "mail.example.test").await;
    assert_eq!(claimed.status, 200, "{}", claimed.text);
    assert_ne!(claimed.body["records"][0]["value"], old, "the old record proves nothing for the new app");
    // An app that is deleted leaves nothing.
    let gone = evil.owner.asks(t.ask(Method::DELETE, &format!("/apps/{}", evil.app))).await;
    assert!(gone.status < 300, "{}", gone.text);
    let (keys,): (i64,) =
        t.janua.db.one("SELECT CAST(COUNT(*) AS BIGINT) AS n FROM email_key", vec![]).await.unwrap();
    assert_eq!(keys, 0);
    t.run_jobs().await;
    t.finish().await;
}
