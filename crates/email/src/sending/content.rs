//! The content of a message: sealed in the database, and put into MIME for each recipient.
use std::time::{Duration, SystemTime};

use data_encoding::BASE64;
use kernel::{
    Janua,
    fault::{INTERNAL, Result},
};
use lettre::message::{
    Attachment as Part, Mailbox, Message as MimeMessage, MultiPart, SinglePart,
    header::{ContentType, HeaderName, HeaderValue},
};
use serde::{Deserialize, Serialize};

use super::{Address, Message, MessageId, Recipient, text::text_of};
use crate::unsubscribe;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Content {
    pub to: Vec<String>,
    pub cc: Vec<String>,
    pub html: Option<String>,
    pub text: Option<String>,
    pub headers: Vec<(String, String)>,
    pub attachments: Vec<Attachment>,
    pub unsubscribe: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attachment {
    pub filename: String,
    pub content_type: String,
    /// In base64.
    pub content: String,
    pub inline: Option<String>,
}

const PURPOSE: &str = "email";

fn place(id: MessageId) -> String {
    format!("email_message:sealed:{id}")
}

impl Content {
    pub fn seal(&self, janua: &Janua, id: MessageId) -> Result<Vec<u8>> {
        let plain = serde_json::to_vec(self).map_err(|error| INTERNAL.caused_by(error))?;
        Ok(janua.vault.seal(PURPOSE, &place(id), &plain))
    }

    pub fn open(janua: &Janua, id: MessageId, sealed: &[u8]) -> Result<Self> {
        let plain = janua.vault.open(PURPOSE, &place(id), sealed).map_err(|error| INTERNAL.caused_by(error))?;
        serde_json::from_slice(&plain).map_err(|error| INTERNAL.caused_by(error))
    }

    /// Makes the text from the HTML where there is none.
    pub fn complete(&mut self) {
        if let (None, Some(html)) = (&self.text, &self.html) {
            self.text = Some(text_of(html));
        }
    }

    /// How many bytes it carries: words and attachments.
    pub fn size(&self) -> usize {
        let words = [&self.html, &self.text].into_iter().flatten().map(String::len);
        words.chain(self.attachments.iter().map(|one| one.content.len() / 4 * 3)).sum()
    }

    /// The mail for one recipient, unsigned. Its Message-ID is the same each time.
    pub fn mime(&self, janua: &Janua, message: &Message, recipient: &Recipient) -> Result<Vec<u8>, String> {
        let mailbox = |text: &str| {
            let address = Address::parse(text).ok_or_else(|| format!("{text} is not an email"))?;
            let email = address.email.as_str().parse().map_err(|error| format!("{error}"))?;
            Ok::<_, String>(Mailbox::new(address.name, email))
        };
        let written_at = message.scheduled_at.unwrap_or(message.created_at).0;
        let written_at =
            SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(written_at).unwrap_or_default());
        let host = message.hostname.clone().unwrap_or_else(|| own_host(janua));
        let mut builder = MimeMessage::builder()
            .from(mailbox(&message.from_header)?)
            .date(written_at)
            .subject(message.subject.clone())
            .message_id(Some(format!("<{}@{host}>", message.id)));
        for to in &self.to {
            builder = builder.to(mailbox(to)?);
        }
        for cc in &self.cc {
            builder = builder.cc(mailbox(cc)?);
        }
        if let Some(reply_to) = &message.reply_to {
            builder = builder.reply_to(mailbox(reply_to)?);
        }
        for (name, value) in &self.headers {
            builder = builder.raw_header(header(name, value)?);
        }
        if self.unsubscribe {
            let url = unsubscribe::url(janua, recipient.id);
            builder = builder
                .raw_header(header("List-Unsubscribe", &format!("<{url}>"))?)
                .raw_header(header("List-Unsubscribe-Post", "List-Unsubscribe=One-Click")?);
        }
        // Relays hand these back with what they report.
        for name in ["X-Janua-Ref", "X-PM-Metadata-ref"] {
            builder = builder.raw_header(header(name, &recipient.id.to_string())?);
        }
        let wrong = |error: lettre::error::Error| error.to_string();
        let mail = match self.body()? {
            Body::Single(part) => builder.singlepart(part).map_err(wrong)?,
            Body::Multi(part) => builder.multipart(part).map_err(wrong)?,
        };
        Ok(mail.formatted())
    }

    fn body(&self) -> Result<Body, String> {
        let (inline, attached): (Vec<_>, Vec<_>) = self.attachments.iter().partition(|one| one.inline.is_some());
        let text = self.text.clone().map(SinglePart::plain);
        let mut html = self.html.clone().map(|html| Body::Single(SinglePart::html(html)));
        if let (Some(Body::Single(part)), false) = (&html, inline.is_empty()) {
            let related = MultiPart::related().singlepart(part.clone());
            let related = inline.iter().try_fold(related, |all, one| Ok::<_, String>(all.singlepart(one.part()?)))?;
            html = Some(Body::Multi(related));
        }
        let words = match (text, html) {
            (Some(text), Some(html)) => {
                let both = MultiPart::alternative().singlepart(text);
                Body::Multi(match html {
                    Body::Single(part) => both.singlepart(part),
                    Body::Multi(part) => both.multipart(part),
                })
            }
            (Some(text), None) => Body::Single(text),
            (None, Some(html)) => html,
            (None, None) => Body::Single(SinglePart::plain(String::new())),
        };
        if attached.is_empty() {
            return Ok(words);
        }
        let all = match words {
            Body::Single(part) => MultiPart::mixed().singlepart(part),
            Body::Multi(part) => MultiPart::mixed().multipart(part),
        };
        attached.iter().try_fold(all, |all, one| Ok(all.singlepart(one.part()?))).map(Body::Multi)
    }
}

enum Body {
    Single(SinglePart),
    Multi(MultiPart),
}

impl Attachment {
    fn part(&self) -> Result<SinglePart, String> {
        let bytes = BASE64.decode(self.content.as_bytes()).map_err(|error| error.to_string())?;
        let kind = ContentType::parse(&self.content_type).map_err(|error| error.to_string())?;
        let part = match &self.inline {
            Some(id) => Part::new_inline_with_name(id.clone(), self.filename.clone()),
            None => Part::new(self.filename.clone()),
        };
        Ok(part.body(bytes, kind))
    }
}

fn header(name: &str, value: &str) -> Result<HeaderValue, String> {
    let name = HeaderName::new_from_ascii(name.to_owned()).map_err(|error| error.to_string())?;
    Ok(HeaderValue::new(name, value.to_owned()))
}

/// The host of this installation.
pub fn own_host(janua: &Janua) -> String {
    let base = janua.config.base_url();
    url::Url::parse(&base)
        .ok()
        .and_then(|url| url.host_str().map(str::to_owned))
        .unwrap_or_else(|| "localhost".into())
}
