//! The pages of an app's email.
use axum::http::Method;
use db::params;
use identity::testing::{PASSWORD, Person, login, member};
use kernel::testing::TestJanua;
use serde_json::json;

use super::{act, browser, feature, post_form, visit};

#[tokio::test]
async fn domains_messages_suppressions_and_templates_have_pages() {
    let t = TestJanua::start(|config| feature(config).and(email::feature(config))).await;
    member(&t, "ada@example.com").await;
    let ada = browser(&t, "ada@example.com").await;
    let made = act(&t, &ada, "POST /apps", "/console", &[("name", "Shop"), ("then", "/console/apps/{id}")]).await;
    let app = made.header("location").split('?').next().unwrap_or_default().to_owned();
    let id = app.rsplit('/').next().unwrap_or_default().to_owned();
    let (root, api) = (format!("{app}/email"), format!("/apps/{id}/email"));
    let page = visit(&t, &root, &ada).await;
    assert!(page.status == 200 && page.text.contains("Send your first email"), "{}", page.text);

    let domains = format!("{root}/domains");
    let page = visit(&t, &format!("{domains}?new=domain"), &ada).await;
    assert!(page.status == 200 && page.text.contains("Add sending domain"), "{}", page.text);
    let to = format!("POST {api}/domains");
    let refused = act(&t, &ada, &to, &domains, &[("hostname", "co.uk"), ("form", "domain")]).await;
    assert!(refused.status == 400 && refused.text.contains("ust be a domain of your own"), "{}", refused.text);
    let added = act(&t, &ada, &to, &domains, &[("hostname", "mail.example.test"), ("subdomains:flag", "true")]).await;
    assert_eq!(added.status, 303, "{}", added.text);
    let page = visit(&t, &domains, &ada).await;
    assert!(page.text.contains("Waiting for DNS") && page.text.contains("and subdomains"), "{}", page.text);
    let page = visit(&t, &format!("{domains}/mail.example.test"), &ada).await;
    assert!(
        page.status == 200 && page.text.contains("v=DKIM1; k=rsa; p=") && page.text.contains("Required"),
        "{}",
        page.text
    );
    t.janua.db.exec("UPDATE email_key SET is_seen = $1", params![true]).await.unwrap();
    t.janua.db.exec("UPDATE email_domain SET status = 'verified', next_check_at = NULL", vec![]).await.unwrap();

    let page = visit(&t, &format!("{root}?new=mail"), &ada).await;
    assert!(page.text.contains("Send test email") && page.text.contains("ada@example.com"), "{}", page.text);
    let person = Person::of(&login(&t, "ada@example.com", PASSWORD).await);
    let body = json!({ "to": "zoe@rcpt.test", "cc": "bob@rcpt.test", "subject": "Hello <b>&",
        "html": "<html><head></head><body><script>x()</script><p>Hi</p></body></html>", "tags": ["receipt"] });
    let sent = person.asks(t.post(&format!("{api}/send")).json(&body)).await;
    assert_eq!(sent.status, 200, "{}", sent.text);
    let message = format!("{root}/messages/{}", sent.body["messageId"].as_str().unwrap());
    t.run_jobs().await;
    email::deliver_due(&t.janua).await.unwrap();
    unsubscribe(&t, "bob@rcpt.test").await;
    let list = format!("{root}/suppressions");
    let gone = act(&t, &ada, &format!("DELETE {api}/suppressions/bob%40rcpt.test"), &list, &[]).await;
    assert_eq!(gone.status, 303, "{}", gone.text);
    let page = visit(&t, &root, &ada).await;
    assert!(
        page.text.contains("Hello &lt;b&gt;&amp;") && page.text.contains("receipt") && page.text.contains("+1"),
        "{}",
        page.text
    );
    assert!(visit(&t, &format!("{root}?search=zoe@rcpt.test&status="), &ada).await.text.contains("Hello"));
    assert!(visit(&t, &format!("{root}?search=nobody@rcpt.test"), &ada).await.text.contains("No matches"));
    assert!(visit(&t, &format!("{root}?status=bounced"), &ada).await.text.contains("No matches"));
    let page = visit(&t, &message, &ada).await;
    assert!(page.status == 200 && page.text.contains("250 kept") && page.text.contains("sandbox="), "{}", page.text);
    let frame = visit(&t, &format!("{message}/body"), &ada).await;
    let policy = frame.header("content-security-policy");
    assert!(policy.contains("default-src 'none'") && policy.ends_with("sandbox"), "{policy}");
    let call = format!("POST {api}/messages/{}/resend", sent.body["messageId"].as_str().unwrap());
    let again = post_form(&t, "/act", &[("call", &*call), ("back", &message), ("done", "email_resent")], &ada).await;
    assert!(visit(&t, again.header("location"), &ada).await.text.contains("Message queued again."));

    assert!(visit(&t, &list, &ada).await.text.contains("No suppressed recipients"));
    let call = format!("POST {api}/suppressions");
    let fields = [("call", &*call), ("back", &list), ("email", "gone@rcpt.test"), ("done", "recipient_suppressed")];
    let told = post_form(&t, "/act", &fields, &ada).await;
    let page = visit(&t, told.header("location"), &ada).await;
    assert!(page.text.contains("gone@rcpt.test is not written to any more."), "{}", page.text);
    let gone = act(&t, &ada, &format!("DELETE {api}/suppressions/gone%40rcpt.test"), &list, &[]).await;
    assert_eq!(gone.status, 303, "{}", gone.text);
    assert!(visit(&t, &list, &ada).await.text.contains("No suppressed recipients"));

    let templates = format!("{root}/templates");
    assert!(visit(&t, &format!("{templates}?new=template"), &ada).await.text.contains("Create template"));
    let fields = [
        ("name", "welcome"),
        ("subject", "Hi {{ name }}"),
        ("html:some", "<p>{{ name }}</p>"),
        ("sample:json", "{\"name\": \"Ada\"}"),
    ];
    act(&t, &ada, &format!("POST {api}/templates"), &templates, &fields).await;
    assert!(visit(&t, &templates, &ada).await.text.contains("welcome"));
    let page = visit(&t, &format!("{templates}/welcome"), &ada).await;
    assert!(page.status == 200 && page.text.contains("Hi Ada") && page.text.contains("Default"), "{}", page.text);
    assert!(visit(&t, &format!("{templates}/welcome/body"), &ada).await.text.contains("<p>Ada</p>"));
    assert_eq!(visit(&t, &format!("{templates}/none"), &ada).await.status, 404);

    let sql =
        "INSERT INTO email_sending (app_id, paused_at, reason, judged_from) VALUES ($1, 1, '9 of 100 bounced', 0)";
    t.janua.db.exec(sql, params![&id]).await.unwrap();
    assert!(visit(&t, &root, &ada).await.text.contains("Sending is paused"));
    act(&t, &ada, &format!("POST {api}/resume"), &root, &[]).await;
    assert!(!visit(&t, &root, &ada).await.text.contains("Sending is paused"));
    let removed = person.asks(t.ask(Method::DELETE, &format!("{api}/domains/mail.example.test"))).await;
    assert_eq!(removed.status, 204, "{}", removed.text);
    t.run_jobs().await;
    t.finish().await;
}

/// Unsubscribing looks like every other page, and leads on.
async fn unsubscribe(t: &TestJanua, email: &str) {
    let recipients: Vec<(String,)> =
        t.janua.db.all("SELECT id FROM email_recipient WHERE email = $1", params![email]).await.unwrap();
    let recipient = &recipients[0].0;
    let mac = &t.janua.vault.mac("email-unsubscribe", recipient.as_bytes())[..32];
    let link = format!("/email/unsubscribe/{recipient}.{mac}");
    let page = t.get(&link).await;
    assert!(page.text.contains("<footer class=\"hosted-foot\">") && page.text.contains(email), "{}", page.text);
    assert!(page.text.contains("<form class=\"stack\" method=\"post\">"), "{}", page.text);
    let page = post_form(t, &link, &[], "").await;
    assert!(page.text.contains("gets no more emails") && page.text.contains("Go to home page"), "{}", page.text);
}
