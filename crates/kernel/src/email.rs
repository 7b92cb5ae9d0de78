//! Emails: how they are checked and compared.
use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use unicode_normalization::UnicodeNormalization as _;

/// An email that mail can be sent to, as its owner wrote it.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct Email {
    text: String,
    #[serde(skip)]
    key: String,
}

impl Email {
    /// Trims and normalises; `None` when it is no single email.
    pub fn parse(text: &str) -> Option<Self> {
        let text: String = text.trim().nfkc().collect();
        let (local, domain) = text.rsplit_once('@')?;
        let domain = idna::domain_to_ascii_strict(domain).ok()?;
        let key = format!("{}@{domain}", local.to_lowercase());
        // What a mail server would take for one email, and nothing that could be taken for two.
        let is_address = lettre::Address::new(local, &domain).is_ok() && is_dot_atom(local);
        let has_host = domain.contains('.') || domain == "localhost";
        // The host as it is asked for, so that every spelling is written to at the same place.
        let text = format!("{local}@{domain}");
        (is_address && has_host && text.len() <= 254).then_some(Self { text, key })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// A key that is the same for every spelling of one email.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The part after the `@`, in ASCII.
    pub fn domain(&self) -> &str {
        self.key.rsplit_once('@').map_or("", |(_, domain)| domain)
    }
}

/// Whether this is a local part without quotes (RFC 5321 `Dot-string`, with the letters of RFC 6531). A quoted one may hold
/// an `@`, and one program reads another email in it than the next.
fn is_dot_atom(local: &str) -> bool {
    let is_atext = |c: char| match c {
        _ if c.is_ascii() => c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c),
        _ => !c.is_control() && !c.is_whitespace(),
    };
    local.len() <= 64 && local.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atext))
}

impl<'de> Deserialize<'de> for Email {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::parse(&Cow::<str>::deserialize(from)?).ok_or_else(|| D::Error::custom("must be an email"))
    }
}

impl JsonSchema for Email {
    fn schema_name() -> Cow<'static, str> {
        "Email".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "email", "maxLength": 254 })
    }
    fn inline_schema() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_one_key_however_it_is_written() {
        let key = |text: &str| Email::parse(text).map(|email| email.key);
        let same = ["A@Ex.com", "a@ex.COM", "  a@ex.com\t", "\u{ff21}@ex.com"];
        assert!(same.iter().all(|text| key(text).as_deref() == Some("a@ex.com")), "{same:?}");
        assert_eq!(key("o'hara+tag/x@ex.com").as_deref(), Some("o'hara+tag/x@ex.com"));
        assert_eq!(key("zoë@bücher.example").as_deref(), Some("zoë@xn--bcher-kva.example"));
    }

    #[test]
    fn what_is_not_one_address_is_refused() {
        for wrong in [
            "",
            "a",
            "@x.com",
            "a@",
            "a@x,b@y.com",
            "a@x.com\r\nBcc: b@y.com",
            "a b@x.com",
            "<a@x.com>",
            "a@x..com",
            "a@-x.com",
            "a@b@c.com",
            &format!("{}@x.com", "a".repeat(250)),
            "a@x.com>\r\nRCPT TO:<b@y.com>",
            "\"a@evil\"@v.com",
            "\"a\"@v.com",
            "\"a b\"@v.com",
            "a..b@v.com",
            ".a@v.com",
            "a.@v.com",
            "a(comment)@v.com",
            "a\\@v.com",
            "a:b@v.com",
            "[a]@v.com",
            &format!("{}@x.com", "a".repeat(65)),
        ] {
            assert!(Email::parse(wrong).is_none(), "{wrong:?}");
        }
    }
}
