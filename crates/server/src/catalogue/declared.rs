//! What features declare for others to collect: names that must be unique among all of them, and mails that must be whole.
use std::{collections::BTreeSet, time::Duration};

use kernel::testing::TestJanua;
use tenancy::{
    messages::mail::{self, Letter, Mail, Sample},
    once::Purpose,
};

use crate::start::features;

/// The values of an attribute in a page or a mail.
fn attributes<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    html.split(&format!("{name}=\"")).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[tokio::test]
async fn every_mail_has_a_name_of_its_own_and_is_whole_as_text_and_as_html() {
    let t = TestJanua::start(features).await;
    let (base, samples) = (t.janua.config.base_url(), t.janua.declared::<Sample>());
    let mut names = BTreeSet::new();
    for Sample(make) in samples {
        let sample = make();
        let name = sample.name();
        assert!(names.insert(name), "two mails are called {name}");
        let written = mail::write(&t.janua, &*sample).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!written.subject.trim().is_empty() && written.subject.len() < 70, "{name}: {}", written.subject);
        assert!(written.html.contains(&format!("<title>{}</title>", written.subject)), "{name}: {}", written.html);
        assert!(written.text.starts_with("Hello"), "{name}: {}", written.text);
        let parts: Vec<_> = written.text.split("\n\n").collect();
        assert!(parts.len() >= 3 && parts.iter().all(|part| !part.trim().is_empty()), "{name}: {}", written.text);
        for form in [&written.text, &written.html] {
            assert!(!form.contains(['{', '}']), "{name}: a place was not filled: {form}");
        }
        assert!(!written.html.contains("<p></p>"), "{name}: {}", written.html);
        let links = attributes(&written.html, "href");
        assert_eq!(links.len(), usize::from(written.life.is_some()), "{name}: a link says how long it is good");
        for link in links {
            assert!(link.starts_with(&format!("{base}/")), "{name}: {link}");
            assert!(written.text.lines().any(|line| line == link), "{name}: the text has no {link}");
        }
        // What others typed is no link: it ends behind the slashes.
        for word in written.text.split_whitespace().filter(|word| word.contains("://")) {
            assert!(word.starts_with(&format!("{base}/")) || word.ends_with("://"), "{name}: {word}");
        }
    }
    assert!(names.contains("verify") && names.contains("webhook_disabled"), "{names:?}");
    t.finish().await;
}

struct Hostile;

impl Mail for Hostile {
    fn name(&self) -> &'static str {
        "hostile"
    }

    fn letter(&self) -> Letter {
        let token = "a\"><b>".to_owned().into();
        Letter::new("Subject", "{} wrote.", "Goodbye.").with(&["<b>Eve & Mallory</b>"]).to("<i>Ada</i>").link(
            "Label",
            "/path",
            &token,
            Duration::from_mins(1),
        )
    }
}

#[tokio::test]
async fn what_others_typed_is_escaped_in_the_html_of_a_mail_and_plain_in_its_text() {
    let t = TestJanua::start(features).await;
    let written = mail::write(&t.janua, &Hostile).expect("it is written");
    assert!(!written.html.contains("<b>") && !written.html.contains("<i>"), "{}", written.html);
    assert!(written.html.contains("&lt;b&gt;Eve &amp; Mallory"), "{}", written.html);
    assert!(attributes(&written.html, "href")[0].ends_with("/path?token=a&quot;&gt;&lt;b&gt;"), "{}", written.html);
    assert!(written.text.contains("<b>Eve & Mallory</b> wrote."), "{}", written.text);
    t.finish().await;
}

#[tokio::test]
async fn every_purpose_of_a_one_time_secret_has_a_name_of_its_own() {
    let t = TestJanua::start(features).await;
    let mut names = BTreeSet::new();
    for purpose in t.janua.declared::<Purpose>() {
        assert!(names.insert(purpose.name), "two purposes are called {}", purpose.name);
    }
    // These names are in databases.
    let known = [
        "account_invite",
        "captcha_challenge",
        "captcha_pass",
        "magic_link",
        "mfa_ticket",
        "passkey_register",
        "passkey_sign_in",
        "reset_password",
        "sms_enroll",
        "sms_sign_in",
        "social_state",
        "social_token",
        "verify_email",
    ];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), known);
    t.finish().await;
}
