//! How a mail is written. Each feature declares its own mails beside the code that sends them, in English; this file gives
//! all of them one form, as text and as HTML.
use std::time::Duration;

use kernel::{Janua, crypto::Secret};
use minijinja::{AutoEscape, Environment, HtmlEscape, UndefinedBehavior, Value, context};

/// A mail that a feature sends.
pub trait Mail: Send + Sync {
    /// A name of its own among all mails.
    fn name(&self) -> &'static str;
    fn letter(&self) -> Letter;
}

/// What a feature declares of each of its mails: one of the kind, with made-up words in it, to look at and to test.
#[derive(Clone, Copy)]
pub struct Sample(pub fn() -> Box<dyn Mail>);

/// One mail as people read it: a greeting, a paragraph, perhaps a link and a code, and a paragraph.
///
/// The sentences are ours and part of the program. What others typed gets in as a word of a sentence ([`Letter::with`]) or as the
/// reader's name, and both are put on one line without anything that looks like a link. Links lead to this service.
#[derive(Debug)]
pub struct Letter {
    subject: &'static str,
    name: String,
    before: &'static str,
    words: Vec<String>,
    link: Option<Link>,
    code: Option<Secret>,
    after: &'static str,
}

#[derive(Debug)]
struct Link {
    label: &'static str,
    path: &'static str,
    token: Secret,
    life: Duration,
}

impl Letter {
    pub fn new(subject: &'static str, before: &'static str, after: &'static str) -> Self {
        Self { subject, name: String::new(), before, words: vec![], link: None, code: None, after }
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

    /// A link that works for as long as `life`. The mail is not tried for longer.
    #[must_use]
    pub fn link(self, label: &'static str, path: &'static str, token: &Secret, life: Duration) -> Self {
        Self { link: Some(Link { label, path, token: token.clone(), life }), ..self }
    }

    #[must_use]
    pub fn code(self, code: &Secret) -> Self {
        Self { code: Some(code.clone()), ..self }
    }

    fn first_paragraph(&self) -> String {
        let sentences = self.before.split("{}");
        debug_assert_eq!(sentences.clone().count(), self.words.len() + 1, "a word for each place: {}", self.before);
        let words = self.words.iter().map(String::as_str).chain(std::iter::repeat(""));
        sentences.zip(words).flat_map(|(sentence, word)| [sentence, word]).collect()
    }
}

/// Text that somebody typed stays a word: no second line, no URL that mail programs turn into a link.
fn one_line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    plain.replace("://", ":// ").replace("www.", "www ")
}

/// For mails about what the reader may not have done.
pub const NOT_YOU: &str = "If this was not you, change your password and look at your sessions at once.";

/// A mail as it is sent.
#[derive(Debug)]
pub struct Written {
    pub subject: &'static str,
    pub text: String,
    pub html: String,
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

/// Writes a mail out.
pub fn write(janua: &Janua, mail: &dyn Mail) -> Result<Written, minijinja::Error> {
    let letter = mail.letter();
    let greeting = if letter.name.is_empty() { "Hello,".to_owned() } else { format!("Hello {},", letter.name) };
    let (subject, before, after) = (letter.subject, letter.first_paragraph(), letter.after);
    let code = letter.code.as_ref().map(Secret::expose);
    let (label, url) = match &letter.link {
        Some(link) => (link.label, format!("{}{}?token={}", janua.config.base_url(), link.path, link.token.expose())),
        None => ("", String::new()),
    };
    let draw = |name: &str, url: Value| {
        let link = letter.link.is_some().then(|| context! { label, url });
        let (greeting, before) = (greeting.as_str(), before.as_str());
        let content = context! { subject, greeting, before, link, code, after };
        janua.own::<Templates>().0.get_template(name)?.render(content)
    };
    // Slashes stay as they are, for mail programs that search the source for links.
    let escaped = Value::from_safe_string(HtmlEscape(&url).to_string().replace("&#x2f;", "/"));
    Ok(Written {
        subject,
        text: draw("mail.txt", url.into())?,
        html: draw("mail.html", escaped)?,
        life: letter.link.map(|link| link.life),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_typed_stays_a_word_of_the_sentence() {
        let letter = Letter::new("Subject", "{} asks you to join {}.", "Goodbye.")
            .with(&["Eve {}\r\nBcc: all@example.com", "https://www.example.com/"])
            .to("Ada\nhttps://example.com");
        let paragraph = letter.first_paragraph();
        assert_eq!(paragraph, "Eve {}  Bcc: all@example.com asks you to join https:// www example.com/.");
        assert_eq!(letter.name, "Ada https:// example.com");
    }
}
