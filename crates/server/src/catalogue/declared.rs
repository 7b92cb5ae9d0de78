//! What features declare for others to collect: names that must be unique among all of them, and mails that must be whole.
use std::{collections::BTreeSet, time::Duration};

use kernel::testing::TestJanua;
use tenancy::{
    events::Kind,
    messages::{
        mail::{self, Letter, Mail, Sample},
        sender::Sender,
    },
    once::Purpose,
    quotas::{Meter, PlanLimit},
    uploads::PicturesOf,
};

use crate::start::features;

/// The values of an attribute in a page or a mail.
fn attributes<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    html.split(&format!("{name}=\"")).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// A mail is small: some programs cut what is longer, and phones pay for it.
const LARGEST: usize = 20_000;
/// What a line of a head should have at most (RFC 5322, 2.1.1).
const LONGEST_SUBJECT: usize = 78;

/// Opened elements that are closed again, in order. Only what our mails are made of.
fn assert_balanced(name: &str, html: &str) {
    let mut open = vec![];
    for tag in html.split('<').skip(1).map(|rest| rest.split('>').next().unwrap_or_default()) {
        let (is_end, element) = (tag.starts_with('/'), tag.trim_start_matches('/').split([' ', '\n']).next());
        let element = element.unwrap_or_default();
        match element {
            "!doctype" | "meta" | "br" => {}
            _ if is_end => assert_eq!(open.pop(), Some(element), "{name}: <{tag}>"),
            _ => open.push(element),
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{name}: an attribute is open: <{tag}>");
    }
    assert!(open.is_empty(), "{name}: {open:?} are open");
}

#[tokio::test]
async fn every_mail_has_a_name_of_its_own_and_is_whole_as_text_and_as_html() {
    let t = TestJanua::start(features).await;
    let (base, samples) = (t.janua.config.base_url(), t.janua.declared::<Sample>());
    let longest = "A name as long as apps have at most, and more".repeat(4);
    let senders =
        [Sender::installation(&t.janua), Sender::app("Tiny notes", Some("#1d4ed8")), Sender::app(&longest, None)];
    let mut names = BTreeSet::new();
    for (Sample(make), sender) in samples.iter().flat_map(|sample| senders.iter().map(move |sender| (sample, sender)))
    {
        let sample = make();
        let name = sample.name();
        assert!(names.insert((name, sender.name.clone())), "two mails are called {name}");
        let written = mail::write(&t.janua, sender, None, &*sample).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (text, html, subject) = (&written.text, &written.html, &written.subject);
        assert!(!subject.trim().is_empty() && subject.chars().count() <= LONGEST_SUBJECT, "{name}: {subject}");
        assert_eq!(written.from.is_some(), sender.is_app, "{name}: whose mail it is");
        assert!(html.contains(&format!("<title>{subject}</title>")), "{name}: {html}");
        assert!(html.contains(&sender.name) && text.contains(&sender.name), "{name}: {text}");
        assert!(html.len() < LARGEST, "{name}: {} bytes", html.len());
        assert_balanced(name, html);
        let dark = html.split("<style>").nth(1).and_then(|rest| rest.split("</style>").next()).unwrap_or_default();
        assert!(dark.contains("prefers-color-scheme: dark"), "{name}: in the dark");
        let drawn = html.replace(dark, "");
        assert!(text.starts_with("Hello Ada,\n\n") || text.starts_with("Hello,\n\n"), "{name}: {text}");
        let parts: Vec<_> = text.split("\n\n").collect();
        assert!(parts.len() >= 4 && parts.iter().all(|part| !part.trim().is_empty()), "{name}: {text}");
        let starts_small = |part: &&str| part.starts_with(char::is_lowercase) && !part.contains("://");
        assert!(!parts.iter().any(starts_small), "{name}: sentences begin with a capital letter: {text}");
        assert!(text.lines().all(|line| line.len() <= 998), "{name}: what a line of a mail may have");
        for form in [text, &drawn] {
            assert!(!form.contains(['{', '}']), "{name}: a place was not filled: {form}");
            for wrong in ["undefined", "none,", "Hello ,", "HTTP Library", "UNKNOWN", "T14:05"] {
                assert!(!form.contains(wrong), "{name}: {wrong} in {form}");
            }
        }
        assert!(!html.contains("<p></p>") && !html.contains("<script") && !html.contains("<img"), "{name}: {html}");
        let links = attributes(html, "href");
        assert_eq!(links.len(), 1, "{name}: one button");
        for link in &links {
            assert!(link.starts_with(&format!("{base}/")), "{name}: {link}");
            assert!(text.lines().any(|line| line == *link), "{name}: the text has no line {link}");
            assert_eq!(link.contains("?token="), written.life.is_some(), "{name}: a link with a token expires");
        }
        if text.contains("not you") {
            let is_way_out = |link: &&str| {
                ["/account/security", "/forgot-password", "/legal/privacy"].iter().any(|path| link.ends_with(path))
            };
            assert!(links.iter().all(is_way_out), "{name}: {links:?} does not help");
            assert!(text.contains("\nWhen: 17 November 2026, 14:05 UTC\n"), "{name}: {text}");
            assert!(text.contains("\nDevice: Firefox on Linux\nIP address: 192.0.2.1\n"), "{name}: {text}");
        }
        // What others typed is no link: it ends behind the slashes.
        for word in text.split_whitespace().filter(|word| word.contains("://")) {
            assert!(word.starts_with(&format!("{base}/")) || word.ends_with("://"), "{name}: {word}");
        }
    }
    let all: BTreeSet<_> = names.iter().map(|(name, _)| *name).collect();
    assert!(all.contains("verify") && all.contains("webhook_disabled"), "{names:?}");
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
    let written = mail::write(&t.janua, &Sender::installation(&t.janua), None, &Hostile).expect("it is written");
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
        "agent_challenge",
        "captcha_challenge",
        "captcha_pass",
        "client_assertion",
        "codehost_run",
        "codehost_state",
        "form_outcome",
        "magic_link",
        "merchant_return",
        "mfa_ticket",
        "passkey_register",
        "passkey_sign_in",
        "reset_password",
        "site_enter",
        "sms_enroll",
        "sms_sign_in",
        "social_state",
        "social_token",
        "verify_email",
    ];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), known);
    t.finish().await;
}

/// The description has a schema and an example for each webhook, which stand apart from the declarations.
#[tokio::test]
async fn events_have_names_of_their_own_and_every_webhook_is_described() {
    let t = TestJanua::start(features).await;
    let (mut audits, mut webhooks) = (BTreeSet::new(), BTreeSet::new());
    for kind in t.janua.declared::<Kind>() {
        assert!(audits.insert(kind.audit), "two events are called {}", kind.audit);
        let is_plain = kind.audit.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        assert!(is_plain, "{} is not in capitals", kind.audit);
        if let Some(name) = kind.webhook {
            assert!(webhooks.insert(name), "two events are sent as {name}");
        }
    }
    let documents = t.janua.description.get().expect("the API is described");
    let described: BTreeSet<_> = documents.told.iter().map(|(name, _)| name.as_str()).collect();
    webhooks.insert("audit.*");
    assert_eq!(
        webhooks, described,
        "declared on the left, described on the right (workshop/src/webhooks/payload.rs)"
    );
    t.finish().await;
}

#[tokio::test]
async fn every_kind_of_picture_has_a_name_of_its_own() {
    let t = TestJanua::start(features).await;
    let mut kinds = BTreeSet::new();
    for pictures in t.janua.declared::<PicturesOf>() {
        assert!(kinds.insert(pictures.kind), "two kinds of pictures are called {}", pictures.kind);
    }
    t.finish().await;
}

#[tokio::test]
async fn every_limit_of_a_plan_is_documented_and_the_sample_has_no_other() {
    let t = TestJanua::start(features).await;
    let (meters, checked) = (t.janua.declared::<Meter>(), t.janua.declared::<PlanLimit>());
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/usage.md")).expect("a page");
    let (_, table) = page.split_once("| limit | what |").expect("the table of limits");
    let table = table.split("\n\n").next().unwrap_or_default();
    let names = meters.iter().chain(checked.iter().map(|PlanLimit(meter)| meter)).map(|meter| &meter.name);
    let missing: Vec<_> = names.filter(|name| !table.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "say in the table of docs/usage.md what these are: {missing:?}");
    let sample = commerce::plans::parse(commerce::commands::SAMPLE_PLANS, meters, checked);
    assert!(sample.is_ok(), "{sample:?}");
    t.finish().await;
}
