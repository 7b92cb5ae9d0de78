//! What a caller asks to send, and whether it may be sent as it is. Every wrong field is named.
use std::collections::BTreeMap;

use data_encoding::BASE64;
use kernel::{
    Janua,
    clock::Timestamp,
    email::Email,
    fault::{Fault, INVALID},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenancy::{
    apps::ApplicationId,
    lent::{self, Lent, Wanted},
};

use super::{
    api::too_large,
    content::{Attachment, Content},
};

/// Recipients of one message, all kinds together.
pub const MOST_RECIPIENTS: usize = 50;
const LONGEST_BODY: usize = 512 * 1024;
const LONGEST_LINE: usize = 998;
const MOST_HEADERS: usize = 20;
const MOST_ATTACHMENTS: usize = 10;
const LARGEST_ATTACHMENTS: usize = 10 * 1024 * 1024;
const MOST_TAGS: usize = 10;
const FURTHEST: i64 = 30 * Timestamp::DAY_MS;

/// Names that mail programs run when they are opened.
const EXECUTABLES: &[&str] = &[
    "ade", "adp", "apk", "app", "appx", "bat", "cab", "chm", "cmd", "com", "cpl", "dll", "dmg", "exe", "hta", "ins",
    "iso", "isp", "jar", "js", "jse", "lib", "lnk", "mde", "msc", "msi", "msp", "mst", "nsh", "pif", "ps1", "scr",
    "sct", "shb", "sys", "vb", "vbe", "vbs", "vhd", "vxd", "wsc", "wsf", "wsh",
];

/// One email, or a list of them, each as `ada@example.com` or `Ada <ada@example.com>`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Emails {
    One(String),
    Many(Vec<String>),
}

impl Emails {
    pub fn list(&self) -> Vec<&str> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many.iter().map(String::as_str).collect(),
        }
    }
}

#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewMail {
    pub to: Emails,
    pub cc: Option<Emails>,
    pub bcc: Option<Emails>,
    /// Needed unless a template has one.
    pub subject: Option<String>,
    pub html: Option<String>,
    /// Made from `html` when it is left out.
    pub text: Option<String>,
    pub reply_to: Option<String>,
    /// `Acme <hello@mail.example.com>`, on a sending domain of the app; left out: `no-reply@` the first one.
    pub from: Option<String>,
    /// `X-…`, `List-…`, `References` and `In-Reply-To`.
    pub headers: Option<BTreeMap<String, String>>,
    pub attachments: Option<Vec<NewAttachment>>,
    /// Your own words for the log, such as `receipt`.
    pub tags: Option<Vec<String>>,
    pub template: Option<TemplateUse>,
    /// The language of the template, such as `de` or `pt-BR`.
    pub locale: Option<String>,
    /// Adds `List-Unsubscribe` with one click (RFC 8058). Those who use it are not written to any more.
    #[serde(default)]
    pub unsubscribe: bool,
    /// Up to 30 days ahead.
    pub scheduled_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
pub struct TemplateUse {
    pub name: String,
    #[serde(default)]
    pub variables: Map<String, Value>,
}

#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewAttachment {
    /// Left out with `objectId`: the object's name.
    pub filename: Option<String>,
    /// Such as `application/pdf`. Left out with `objectId`: the object's type.
    pub content_type: Option<String>,
    /// The bytes in base64; or `objectId`.
    pub content: Option<String>,
    /// A stored object of the app, as it is now.
    pub object_id: Option<String>,
    /// The content ID of a picture that the HTML shows as `cid:…`.
    pub inline: Option<String>,
}

/// A recipient or a sender: an email, perhaps with a name.
#[derive(Debug, Clone)]
pub struct Address {
    pub name: Option<String>,
    pub email: Email,
}

impl Address {
    /// `ada@example.com` or `Ada <ada@example.com>`; nothing for what could be read as two, or as another one.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if !is_clean(text) {
            return None;
        }
        let Some(rest) = text.strip_suffix('>') else {
            return Email::parse(text).map(|email| Self { name: None, email });
        };
        let (name, email) = rest.rsplit_once('<')?;
        let name = name.trim();
        let name = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name).trim();
        // A name with an email in it makes the reader believe that one.
        let is_name =
            name.chars().count() <= 128 && !name.contains(['@', '<', '>', '"', '\\', '\u{ff20}', '\u{fe6b}']);
        let name = (!name.is_empty()).then(|| name.to_owned());
        Email::parse(email).filter(|_| is_name).map(|email| Self { name, email })
    }

    pub fn header(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} <{}>", self.email.as_str()),
            None => self.email.as_str().to_owned(),
        }
    }
}

/// Whether a text fits on one line of a header.
pub fn is_clean(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}'))
}

/// A mail whose fields were checked; words of a template are still to come.
#[derive(Debug)]
pub struct CheckedMail {
    pub to: Vec<Address>,
    pub cc: Vec<Address>,
    pub bcc: Vec<Address>,
    pub from: Option<Address>,
    pub reply_to: Option<Address>,
    pub subject: Option<String>,
    pub tags: Vec<String>,
    pub template: Option<TemplateUse>,
    pub locale: Option<String>,
    pub scheduled_at: Option<Timestamp>,
    pub content: Content,
    /// Attachments whose bytes are in the app's storage, by their place among the attachments.
    pub stored: Vec<(usize, String)>,
}

/// What is wrong, by field.
#[derive(Default)]
pub struct Findings {
    prefix: String,
    fault: Option<Fault>,
}

impl Findings {
    pub fn below(prefix: String) -> Self {
        Self { prefix, fault: None }
    }

    pub fn say(&mut self, field: &str, code: &'static str, message: impl Into<String>) {
        let field = format!("{}{field}", self.prefix);
        self.fault = Some(match self.fault.take() {
            Some(fault) => fault.and(field, code, message),
            None => INVALID.at(field, code, message),
        });
    }

    pub fn end(self) -> Result<(), Fault> {
        self.fault.map_or(Ok(()), Err)
    }
}

impl NewMail {
    /// Names every wrong field below `prefix`.
    pub fn check(self, now: Timestamp, prefix: &str) -> Result<CheckedMail, Fault> {
        let mut wrong = Findings::below(prefix.to_owned());
        let to = emails(&mut wrong, "to", Some(&self.to));
        let cc = emails(&mut wrong, "cc", self.cc.as_ref());
        let bcc = emails(&mut wrong, "bcc", self.bcc.as_ref());
        if self.to.list().is_empty() {
            wrong.say("to", "too_short", "must have a recipient");
        }
        if to.len() + cc.len() + bcc.len() > MOST_RECIPIENTS {
            wrong.say("to", "too_long", "must have at most 50 recipients together with cc and bcc");
        }
        let from = self.from.as_deref().and_then(|text| address(&mut wrong, "from", text));
        let reply_to = self.reply_to.as_deref().and_then(|text| address(&mut wrong, "replyTo", text));
        if let Some(subject) = &self.subject {
            check_subject(&mut wrong, subject);
        }
        if self.template.is_none() {
            if self.subject.is_none() {
                wrong.say("subject", "required", "must be given");
            }
            if self.html.is_none() && self.text.is_none() {
                wrong.say("text", "required", "must be given, or html");
            }
        } else if self.html.is_some() || self.text.is_some() {
            wrong.say("template", "wrong_form", "must not be given together with html or text");
        }
        for (field, body) in [("html", &self.html), ("text", &self.text)] {
            if body.as_ref().is_some_and(|body| body.len() > LONGEST_BODY) {
                wrong.say(field, "too_long", "must have at most 512 KiB");
            }
        }
        let tags = self.tags.unwrap_or_default();
        let is_tag = |tag: &String| (1..=64).contains(&tag.chars().count()) && is_clean(tag);
        if tags.len() > MOST_TAGS || !tags.iter().all(is_tag) {
            wrong.say("tags", "wrong_form", "must be at most 10 texts of 1 to 64 characters");
        }
        if self.locale.as_ref().is_some_and(|locale| !is_locale(locale)) {
            wrong.say("locale", "wrong_form", "must be a language such as de or pt-BR");
        }
        if self.scheduled_at.is_some_and(|at| at.0 > now.0 + FURTHEST) {
            wrong.say("scheduledAt", "out_of_range", "must be within 30 days");
        }
        let headers = headers(&mut wrong, self.headers.unwrap_or_default(), self.unsubscribe);
        let (attachments, stored) = attachments(&mut wrong, self.attachments.unwrap_or_default());
        wrong.end()?;
        let content = Content {
            to: to.iter().map(Address::header).collect(),
            cc: cc.iter().map(Address::header).collect(),
            html: self.html,
            text: self.text,
            headers,
            attachments,
            unsubscribe: self.unsubscribe,
        };
        Ok(CheckedMail {
            to,
            cc,
            bcc,
            from,
            reply_to,
            subject: self.subject,
            tags,
            template: self.template,
            locale: self.locale,
            scheduled_at: self.scheduled_at.filter(|at| *at > now),
            content,
            stored,
        })
    }
}

pub fn check_subject(wrong: &mut Findings, subject: &str) {
    if subject.trim().is_empty() || subject.len() > LONGEST_LINE || !is_clean(subject) {
        wrong.say("subject", "wrong_form", "must be one line of 1 to 998 bytes");
    }
}

pub fn is_locale(locale: &str) -> bool {
    (2..=35).contains(&locale.len()) && locale.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn address(wrong: &mut Findings, field: &str, text: &str) -> Option<Address> {
    let found = Address::parse(text);
    if found.is_none() {
        wrong.say(
            field,
            "wrong_form",
            "must be one email, such as Acme <hello@example.com>, without another in its name",
        );
    }
    found
}

fn emails(wrong: &mut Findings, field: &str, emails: Option<&Emails>) -> Vec<Address> {
    let Some(emails) = emails else { return vec![] };
    let list = emails.list();
    let place = |index: usize| match emails {
        Emails::One(_) => field.to_owned(),
        Emails::Many(_) => format!("{field}.{index}"),
    };
    // More than fit are counted, and not each named.
    list.iter()
        .take(MOST_RECIPIENTS + 1)
        .enumerate()
        .filter_map(|(n, text)| address(wrong, &place(n), text))
        .collect()
}

fn headers(wrong: &mut Findings, headers: BTreeMap<String, String>, unsubscribe: bool) -> Vec<(String, String)> {
    if headers.len() > MOST_HEADERS {
        wrong.say("headers", "too_long", "must have at most 20 headers");
    }
    for (name, value) in headers.iter().take(MOST_HEADERS) {
        let lower = name.to_ascii_lowercase();
        let is_token = !name.is_empty()
            && name.len() <= 64
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let is_own = lower.starts_with("x-janua-") || (unsubscribe && lower.starts_with("list-unsubscribe"));
        let is_allowed = (lower.starts_with("x-") && lower.len() > 2)
            || lower.starts_with("list-")
            || lower == "references"
            || lower == "in-reply-to";
        if !is_token || !is_allowed || is_own {
            wrong.say(&format!("headers.{name}"), "not_allowed", "must be X-…, List-…, References or In-Reply-To");
        } else if value.is_empty() || value.len() > LONGEST_LINE || !is_clean(value) {
            wrong.say(&format!("headers.{name}"), "wrong_form", "must be one line of 1 to 998 bytes");
        }
    }
    headers.into_iter().collect()
}

fn attachments(wrong: &mut Findings, list: Vec<NewAttachment>) -> (Vec<Attachment>, Vec<(usize, String)>) {
    if list.len() > MOST_ATTACHMENTS {
        wrong.say("attachments", "too_long", "must have at most 10 attachments");
        return (vec![], vec![]);
    }
    let (mut total, mut kept, mut stored) = (0, vec![], vec![]);
    for (index, one) in list.into_iter().enumerate() {
        let at = |name: &str| format!("attachments.{index}.{name}");
        if let Some(filename) = &one.filename {
            check_filename(wrong, index, filename);
        } else if one.object_id.is_none() {
            wrong.say(&at("filename"), "required", "must be given");
        }
        if let Some(content_type) = &one.content_type {
            check_type(wrong, index, content_type);
        }
        let is_id = |id: &String| {
            (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._@-".contains(&b))
        };
        if one.inline.as_ref().is_some_and(|id| !is_id(id)) {
            wrong.say(&at("inline"), "wrong_form", "must be a content ID of letters, digits, and . _ @ -");
        }
        match (&one.content, one.object_id) {
            (Some(content), None) => match BASE64.decode(content.as_bytes()) {
                Ok(bytes) => total += bytes.len(),
                Err(_) => wrong.say(&at("content"), "wrong_form", "must be base64"),
            },
            (None, Some(id)) => stored.push((index, id)),
            (None, None) => wrong.say(&at("content"), "required", "must be given, or objectId"),
            (Some(_), Some(_)) => wrong.say(&at("objectId"), "wrong_form", "must not be given together with content"),
        }
        let is_stored = one.content.is_none();
        let unknown = if is_stored { "" } else { "application/octet-stream" };
        kept.push(Attachment {
            filename: one.filename.unwrap_or_default(),
            content_type: one.content_type.unwrap_or_else(|| unknown.to_owned()),
            content: one.content.unwrap_or_default(),
            inline: one.inline,
        });
    }
    if total > LARGEST_ATTACHMENTS {
        wrong.say("attachments", "too_long", "must have at most 10 MiB together");
    }
    (kept, stored)
}

fn check_filename(wrong: &mut Findings, index: usize, filename: &str) {
    let at = format!("attachments.{index}.filename");
    let is_name = (1..=255).contains(&filename.len())
        && is_clean(filename)
        && !filename.contains(['/', '\\', '"', '<', '>', '|', ':']);
    let ending = filename.trim_end_matches(['.', ' ']).rsplit('.').next().unwrap_or_default();
    if !is_name {
        wrong.say(&at, "wrong_form", "must be a file name of 1 to 255 bytes");
    } else if filename.contains('.') && EXECUTABLES.contains(&ending.to_ascii_lowercase().as_str()) {
        wrong.say(&at, "not_allowed", "must not be a program");
    }
}

fn check_type(wrong: &mut Findings, index: usize, content_type: &str) {
    let is_type = content_type.len() <= 127
        && content_type.split_once('/').is_some_and(|(kind, rest)| !kind.is_empty() && !rest.is_empty())
        && content_type.bytes().all(|b| b.is_ascii_alphanumeric() || b"/.+-_;= ".contains(&b))
        && !content_type.to_ascii_lowercase().starts_with("multipart/");
    if !is_type {
        wrong.say(
            &format!("attachments.{index}.contentType"),
            "wrong_form",
            "must be a type such as application/pdf",
        );
    }
}

impl CheckedMail {
    /// Puts the bytes of stored objects into the mail, as they are now. The caller may read what the app has stored.
    /// `room` is what is left of the request they came with.
    pub async fn fetch_stored(
        &mut self,
        janua: &Janua,
        app: ApplicationId,
        prefix: &str,
        room: usize,
    ) -> Result<(), Fault> {
        let mut wrong = Findings::below(prefix.to_owned());
        let there =
            |content: &Content| content.attachments.iter().map(|one| one.content.len() / 4 * 3).sum::<usize>();
        for (index, id) in std::mem::take(&mut self.stored) {
            let at = format!("attachments.{index}.objectId");
            let left = LARGEST_ATTACHMENTS.saturating_sub(there(&self.content));
            let room = room.saturating_sub(self.content.size());
            let most = u64::try_from(left.min(room)).unwrap_or_default();
            match lent::object(janua, Wanted { app, id: &id, most }).await? {
                Lent::Unknown => wrong.say(&at, "unknown", "must be the id of a stored object of this app"),
                Lent::TooLarge if room < left => return Err(too_large()),
                Lent::TooLarge => wrong.say("attachments", "too_long", "must have at most 10 MiB together"),
                Lent::Object(object) => {
                    let one = &mut self.content.attachments[index];
                    if one.filename.is_empty() {
                        // A name in a folder is a path; a mail has files.
                        object.name.rsplit('/').next().unwrap_or_default().clone_into(&mut one.filename);
                        check_filename(&mut wrong, index, &one.filename);
                    }
                    if one.content_type.is_empty() {
                        one.content_type = object.content_type;
                        check_type(&mut wrong, index, &one.content_type);
                    }
                    one.content = BASE64.encode(&object.bytes);
                }
            }
        }
        wrong.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_email_and_a_name_without_another() {
        let read = |text: &str| Address::parse(text).map(|a| (a.name, a.email.as_str().to_owned()));
        assert_eq!(read("a@x.com"), Some((None, "a@x.com".into())));
        assert_eq!(read("Ada Lovelace <a@x.com>"), Some((Some("Ada Lovelace".into()), "a@x.com".into())));
        assert_eq!(read("\"Ada, L.\" <a@x.com>"), Some((Some("Ada, L.".into()), "a@x.com".into())));
        for wrong in [
            "",
            "Ada",
            "a@x.com, b@x.com",
            "\"a@o2.example\" <x@own.example>",
            "a@x.com <b@y.com>",
            "Ada <a@x.com> <b@y.com>",
            "Ada\r\nBcc: b@y.com <a@x.com>",
            "Ada\u{2028} <a@x.com>",
            "a@x.com\n",
            "A\u{ff20}x.com <a@x.com>",
            "\0 <a@x.com>",
        ] {
            assert!(read(wrong).is_none() || wrong == "a@x.com\n", "{wrong:?}");
        }
    }
}
