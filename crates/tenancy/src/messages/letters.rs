//! How a mail is written. Each feature declares its own mails beside the code that sends them, in English; this file gives
//! all of them one form, as text and as HTML.
use std::{net::IpAddr, time::Duration};

use kernel::{Janua, clock::Timestamp, crypto::Secret};
use minijinja::{AutoEscape, Environment, HtmlEscape, UndefinedBehavior, Value, context};

use super::{
    one_line,
    sender::{Sender, installation_name},
};
use crate::{events::By, sessions::device_name};

/// A mail that a feature sends.
pub trait Mail: Send + Sync {
    /// A name of its own among all mails.
    fn name(&self) -> &'static str;
    fn letter(&self) -> Letter;
}

/// A sample of one of a feature's mails, with made-up words, for previews and tests.
#[derive(Clone, Copy)]
pub struct Sample(pub fn() -> Box<dyn Mail>);

/// One mail as people read it: a greeting, a paragraph, perhaps a button, a code and facts, and a paragraph.
///
/// The sentences are ours and part of the program. What others typed gets in as a word of a sentence ([`Letter::with`]), as a
/// fact or as the reader's name, and all are put on one line without anything that looks like a link. Links lead to this
/// service. `{service}` in a subject or a sentence is the name of the app or of the installation.
#[derive(Debug)]
pub struct Letter {
    subject: &'static str,
    name: String,
    before: &'static str,
    words: Vec<String>,
    link: Option<Link>,
    code: Option<Secret>,
    facts: Vec<(&'static str, Fact)>,
    after: &'static str,
}

/// What stands beside the name of a fact.
#[derive(Debug)]
enum Fact {
    Words(String),
    /// Told in the reader's time zone.
    Moment(Timestamp),
}

impl Fact {
    fn in_words(&self, zone: Option<&str>) -> String {
        match self {
            Self::Words(words) => words.clone(),
            Self::Moment(moment) => moment.in_words_at(zone),
        }
    }
}

#[derive(Debug)]
struct Link {
    label: &'static str,
    path: String,
    /// What makes the link work, and for how long.
    token: Option<(Secret, Duration)>,
}

impl Letter {
    pub fn new(subject: &'static str, before: &'static str, after: &'static str) -> Self {
        let (name, words, facts) = (String::new(), vec![], vec![]);
        Self { subject, name, before, words, link: None, code: None, facts, after }
    }

    /// Greets the reader; an empty name is one that is not known to be the reader's.
    #[must_use]
    pub fn to(self, name: &str) -> Self {
        Self { name: one_line(name), ..self }
    }

    /// The words for each `{}` in the first paragraph.
    #[must_use]
    pub fn with(self, words: &[&str]) -> Self {
        Self { words: words.iter().map(|word| one_line(word)).collect(), ..self }
    }

    /// A button that works for as long as `life`. The mail is not tried for longer.
    #[must_use]
    pub fn link(self, label: &'static str, path: &'static str, token: &Secret, life: Duration) -> Self {
        Self { link: Some(Link { label, path: path.to_owned(), token: Some((token.clone(), life)) }), ..self }
    }

    /// A button that leads to a page of ours where the reader signs in.
    #[must_use]
    pub fn button(self, label: &'static str, path: impl Into<String>) -> Self {
        Self { link: Some(Link { label, path: path.into(), token: None }), ..self }
    }

    #[must_use]
    pub fn code(self, code: &Secret) -> Self {
        Self { code: Some(code.clone()), ..self }
    }

    /// When, on what device and from which IP address it was done.
    #[must_use]
    pub fn origin(mut self, origin: &Origin) -> Self {
        self.facts.push(("When", Fact::Moment(origin.at)));
        self.facts.extend(origin.device.as_deref().map(|device| ("Device", Fact::Words(one_line(device)))));
        self.facts.extend(origin.ip.as_deref().map(|ip| ("IP address", Fact::Words(located(ip)))));
        self
    }

    fn first_paragraph(&self, sender: &Sender) -> String {
        let sentences = self.before.split("{}");
        debug_assert_eq!(sentences.clone().count(), self.words.len() + 1, "a word for each place: {}", self.before);
        let words = self.words.iter().map(String::as_str).chain(std::iter::repeat(""));
        // The name of the service first: a word that somebody typed is no place for it.
        sentences.zip(words).flat_map(|(sentence, word)| [named(sentence, sender), word.to_owned()]).collect()
    }
}

fn named(sentence: &str, sender: &Sender) -> String {
    sentence.replace("{service}", &sender.name)
}

/// When, on what device and from which IP address something was done.
#[derive(Debug, Clone)]
pub struct Origin {
    pub at: Timestamp,
    pub device: Option<String>,
    pub ip: Option<String>,
}

impl Origin {
    pub fn new(by: &By, at: Timestamp) -> Self {
        Self { at, device: by.user_agent.as_deref().map(device_name), ip: by.ip.clone() }
    }

    pub fn sample() -> Self {
        let (device, ip) = (Some("Firefox on Linux".to_owned()), Some("192.0.2.1".to_owned()));
        Self { at: Timestamp(1_794_924_300_000), device, ip }
    }
}

/// An IP address, and what it says about the place where that is certain.
fn located(ip: &str) -> String {
    let place = match ip.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(ip) if ip.is_loopback() => " (the server itself)",
        Ok(IpAddr::V4(ip)) if ip.is_private() || ip.is_link_local() => " (private network)",
        Ok(IpAddr::V6(ip)) if ip.is_unique_local() || ip.is_unicast_link_local() => " (private network)",
        _ => "",
    };
    format!("{}{place}", one_line(ip))
}

/// For mails about what the reader may not have done; with [`Letter::button`] to [`SECURE`].
pub const NOT_YOU: &str =
    "Was this not you? Secure your account: change your password and end sessions you do not know.";
/// The button of such a mail, and the page behind it.
pub const SECURE: (&str, &str) = ("Secure your account", "/account/security");

/// A mail as it is sent.
#[derive(Debug)]
pub struct Written {
    pub subject: String,
    pub text: String,
    pub html: String,
    /// The display name of the sender, where it is not the installation's own.
    pub from: Option<String>,
    /// How long the link in it is good; nothing for a mail without one.
    pub life: Option<Duration>,
}

/// The two forms of every mail, parsed once.
pub(crate) struct Templates(Environment<'static>);

impl Default for Templates {
    fn default() -> Self {
        let mut environment = Environment::empty();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment
            .set_auto_escape_callback(|name| if name == "mail.txt" { AutoEscape::None } else { AutoEscape::Html });
        environment.set_loader(|name| {
            Ok(match name {
                "mail.html" => Some(include_str!("../../templates/mail/mail.html").to_owned()),
                "mail.txt" => Some(include_str!("../../templates/mail/mail.txt").to_owned()),
                _ => None,
            })
        });
        Self(environment)
    }
}

/// Writes a mail out. Moments in it are in `zone`, the reader's time zone, or in UTC.
pub fn write(
    janua: &Janua,
    sender: &Sender,
    zone: Option<&str>,
    mail: &dyn Mail,
) -> Result<Written, minijinja::Error> {
    let letter = mail.letter();
    let greeting = if letter.name.is_empty() { "Hello,".to_owned() } else { format!("Hello {},", letter.name) };
    let (subject, before, after) =
        (named(letter.subject, sender), letter.first_paragraph(sender), named(letter.after, sender));
    let code = letter.code.as_ref().map(Secret::expose);
    let base = janua.config.base_url();
    let (label, url) = match &letter.link {
        Some(Link { label, path, token: None }) => (*label, format!("{base}{path}")),
        Some(Link { label, path, token: Some((token, _)) }) => {
            (*label, format!("{base}{path}?token={}", token.expose()))
        }
        None => ("", String::new()),
    };
    let facts: Vec<_> =
        letter.facts.iter().map(|(name, value)| context! { name => *name, value => value.in_words(zone) }).collect();
    let host = base.split("://").nth(1).unwrap_or_default();
    let sent_by = if sender.is_app {
        format!("Sent by {} ({host}) for {}", installation_name(janua), sender.name)
    } else {
        format!("Sent by {} ({host})", sender.name)
    };
    let head = context! {
        name => sender.name.as_str(),
        initials => sender.initials(),
        logo => &sender.logo,
        color => sender.color.to_string(),
        ink => sender.color.ink().to_string(),
    };
    let content = context! { subject => subject.as_str(), head, greeting, before, code, facts, after, sent_by };
    let draw = |name: &str, url: Value| {
        let link = letter.link.is_some().then(|| context! { label, url });
        janua.own::<Templates>().0.get_template(name)?.render(context! { link, ..content.clone() })
    };
    // Slashes stay as they are, for mail programs that search the source for links.
    let escaped = Value::from_safe_string(HtmlEscape(&url).to_string().replace("&#x2f;", "/"));
    let (text, html) = (draw("mail.txt", url.into())?, draw("mail.html", escaped)?);
    let from = sender.is_app.then(|| sender.name.clone());
    let life = letter.link.and_then(|link| link.token).map(|(_, life)| life);
    Ok(Written { subject, text, html, from, life })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_typed_stays_a_word_of_the_sentence() {
        let letter = Letter::new("Subject", "{} asks you to join {} on {service}.", "Goodbye.")
            .with(&["Eve {}\r\nBcc: all@example.com", "https://www.example.com/ {service}"])
            .to("Ada\nhttps://example.com");
        let paragraph = letter.first_paragraph(&Sender::app("Tiny notes", None));
        assert_eq!(
            paragraph,
            "Eve {}  Bcc: all@example.com asks you to join https:// www example.com/ {service} on Tiny notes."
        );
        assert_eq!(letter.name, "Ada https:// example.com");
    }

    #[test]
    fn an_origin_is_in_words() {
        let origin = Origin::sample();
        let letter = Letter::new("Subject", "Before.", "After.").origin(&origin);
        let values = |zone| letter.facts.iter().map(|(_, value)| value.in_words(zone)).collect::<Vec<_>>();
        assert_eq!(values(None), ["17 November 2026, 14:05 UTC", "Firefox on Linux", "192.0.2.1"]);
        assert_eq!(values(Some("Europe/Zurich"))[0], "17 November 2026, 15:05 (Europe/Zurich)");
        assert_eq!(values(Some("Middle/Earth"))[0], "17 November 2026, 14:05 UTC");
        assert_eq!(located("::ffff:10.1.2.3"), "::ffff:10.1.2.3 (private network)");
        assert_eq!(located("127.0.0.1"), "127.0.0.1 (the server itself)");
    }
}
