//! Sending domains against a real name server: verification, rotation, demotion.
use std::time::Duration;

use kernel::config::Config;

use super::{
    peers::{NameServer, zone_lines},
    *,
};

async fn again(t: &TestJanua, shop: Shop) -> Shop {
    let owner = Person::of(&identity::testing::login(t, "ada@example.com", identity::testing::PASSWORD).await);
    Shop { owner, ..shop }
}

#[tokio::test]
async fn keys_are_rotated_and_a_domain_without_its_records_stops_sending() {
    let mut dns = NameServer::start().await;
    let config = Config { dns_servers: vec![([127, 0, 0, 1], dns.port).into()], ..Config::for_tests() }
        .with(|email: &mut crate::Settings| email.bounce_domain = Some("example.com".into()));
    let t = TestJanua::start_with(config, feature).await;
    let shop = Shop::open(&t, "ada@example.com").await;
    t.happened().await;
    let added = shop.add_domain(&t, "mail.example.test").await;
    let first = zone_lines(&added.body["records"]);
    let purposes = |answer: &Value| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        answer["records"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (text(&one["purpose"]), text(&one["status"])))
            .collect()
    };
    let named: Vec<_> = purposes(&added.body).into_iter().map(|(purpose, _)| purpose).collect();
    assert_eq!(named, ["dkim", "dkim_ed25519", "return_path", "spf", "dmarc"]);
    let verify =
        async |t: &TestJanua, shop: &Shop| shop.posts(t, "/domains/mail.example.test/verify", &json!({})).await;
    dns.say(&first[..2]).await;
    let without = verify(&t, &shop).await;
    assert_eq!(without.body["status"], "pending", "the return path is required where bounces are received");
    let mut wrong = first.clone();
    wrong[2] = "bounce.mail 1 IN CNAME elsewhere.example.com.".into();
    wrong.push("mail 1 IN TXT \"v=spf1 -all\"".into());
    dns.say(&wrong).await;
    let mismatch = verify(&t, &shop).await;
    assert_eq!(purposes(&mismatch.body)[2].1, "mismatch", "{}", mismatch.text);
    assert_eq!(purposes(&mismatch.body)[3].1, "mismatch", "two SPF records");
    dns.say(&first).await;
    let proven = verify(&t, &shop).await;
    assert_eq!(proven.body["status"], "verified", "{}", proven.text);

    // New keys: the old one signs until the record of the new one is seen.
    let rotated = shop.posts(&t, "/domains/mail.example.test/rotate", &json!({})).await;
    assert_eq!(rotated.status, 200, "{}", rotated.text);
    assert_eq!(
        shop.posts(&t, "/domains/mail.example.test/rotate", &json!({})).await.refusal(),
        (409, "rotation_in_progress")
    );
    shop.sends(&t, &mail("one@rcpt.test")).await;
    deliver(&t).await;
    let both = zone_lines(&rotated.body["records"]);
    dns.say(&both).await;
    assert_eq!(verify(&t, &shop).await.body["status"], "verified");
    shop.sends(&t, &mail("two@rcpt.test")).await;
    deliver(&t).await;
    let selector = |mail: &String| mail.split(" s=").nth(1).unwrap().split(';').next().unwrap().to_owned();
    let mails = delivered(&t);
    assert!(!selector(&mails[0]).ends_with('2') && selector(&mails[1]).ends_with('2'), "{} {}", mails[0], mails[1]);
    t.expects(&["EMAIL_DOMAIN_ADDED", "EMAIL_DOMAIN_VERIFIED", "EMAIL_DOMAIN_KEY_ROTATED"]).await;

    // No name server at all: nothing changes.
    dns.stop();
    t.advance(Duration::from_hours(25));
    t.run_jobs().await;
    let shop = again(&t, shop).await;
    assert_eq!(shop.gets(&t, "/domains").await.body["domains"][0]["status"], "verified");
    // A definite answer, twice an hour apart.
    dns.say(&[]).await;
    for _ in 0..3 {
        t.advance(Duration::from_mins(61));
        t.run_jobs().await;
    }
    let shop = again(&t, shop).await;
    let failing = shop.gets(&t, "/domains").await;
    assert_eq!(failing.body["domains"][0]["status"], "temporary_failure", "{}", failing.text);
    assert!(identity::testing::mail_to(&t, "ada@example.com").unwrap().contains("72 hours"));
    assert_eq!(shop.sends(&t, &mail("three@rcpt.test")).await.status, 200, "it still sends");
    deliver(&t).await;
    for _ in 0..80 {
        t.advance(Duration::from_mins(61));
        t.run_jobs().await;
    }
    let shop = again(&t, shop).await;
    assert_eq!(shop.gets(&t, "/domains").await.body["domains"][0]["status"], "failed");
    assert_eq!(shop.sends(&t, &mail("four@rcpt.test")).await.refusal(), (409, "no_verified_domain"));
    let told: Vec<String> = t.happened().await.into_iter().filter(|kind| kind.starts_with("EMAIL_")).collect();
    assert_eq!(told, ["EMAIL_DOMAIN_FAILING", "EMAIL_DOMAIN_FAILED"], "each once");
    dns.say(&both).await;
    assert_eq!(verify(&t, &shop).await.body["status"], "verified", "asked for anew");
    t.run_jobs().await;
    t.finish().await;
}

/// As if an app had proven a name by its TXT record, for whatever purpose.
async fn prove(t: &TestJanua, shop: &Shop, name: &str, is_missing: bool) {
    let (org,): (String,) =
        t.janua.db.one("SELECT org_id FROM app WHERE id = $1", db::params![&shop.app]).await.unwrap();
    let claimed =
        shop.owner.asks(t.post(&format!("/apps/{}/domain", shop.app)).json(&json!({ "domain": name }))).await;
    assert_eq!(claimed.status, 200, "{}", claimed.text);
    let sql = "UPDATE app_domain SET verified_at = $2, missing_since = $3 WHERE domain = $1 AND org_id = $4";
    let now = t.janua.clock.now();
    let changed = t.janua.db.exec(sql, db::params![name, now, is_missing.then_some(now), org]).await.unwrap();
    assert_eq!(changed, 1);
}

#[tokio::test]
async fn who_has_proven_the_name_takes_its_email_over() {
    let mut dns = NameServer::start().await;
    let config = Config { dns_servers: vec![([127, 0, 0, 1], dns.port).into()], ..Config::for_tests() };
    let feature = |config: &Config| feature(config).and(hosting::feature(config));
    let t = TestJanua::start_with(config, feature).await;
    // The owner before: its email records still stand.
    let old = Shop::open(&t, "ada@example.com").await;
    let host = "/domains/mail.example.test";
    let mut lines = zone_lines(&old.add_domain(&t, "mail.example.test").await.body["records"]);
    dns.say(&lines).await;
    let verified = old.posts(&t, &format!("{host}/verify"), &json!({})).await;
    assert_eq!(verified.body["status"], "verified", "{}", verified.text);
    let new = Shop::open(&t, "eve@example.com").await;
    assert_eq!(new.add_domain(&t, "mail.example.test").await.refusal(), (409, "domain_taken"));
    // A proof whose record is gone is none.
    prove(&t, &new, "example.test", true).await;
    assert_eq!(new.add_domain(&t, "mail.example.test").await.refusal(), (409, "domain_taken"));
    let sql = "UPDATE app_domain SET missing_since = NULL";
    t.janua.db.exec(sql, vec![]).await.unwrap();
    let added = new.add_domain(&t, "mail.example.test").await;
    assert_eq!((added.status, &added.body["status"]), (200, &json!("pending")), "{}", added.text);
    let waiting = new.posts(&t, &format!("{host}/verify"), &json!({})).await;
    assert_eq!(waiting.body["status"], "pending", "the email records are needed all the same: {}", waiting.text);
    assert_eq!(old.gets(&t, host).await.body["status"], "verified", "and until then nothing moves");
    t.happened().await;
    lines.extend(zone_lines(&added.body["records"]));
    dns.say(&lines).await;
    let taken = new.posts(&t, &format!("{host}/verify"), &json!({})).await;
    assert_eq!(taken.body["status"], "verified", "{}", taken.text);
    t.expects(&["EMAIL_DOMAIN_FAILED", "EMAIL_DOMAIN_VERIFIED"]).await;
    t.run_jobs().await;
    let told = identity::testing::mail_to(&t, "ada@example.com").expect("a mail to the admins");
    assert!(format!("{told:?}").contains("another organization has proven"), "{told:?}");
    let refused = old.sends(&t, &mail("one@rcpt.test")).await;
    assert_eq!(refused.refusal(), (409, "no_verified_domain"), "{}", refused.text);
    assert_eq!(new.sends(&t, &mail("one@rcpt.test")).await.status, 200);
    // Its records stand still, and bring nothing back.
    let again = old.posts(&t, &format!("{host}/verify"), &json!({})).await;
    assert_eq!(again.body["status"], "pending", "{}", again.text);
    deliver(&t).await;
    t.finish().await;
}
