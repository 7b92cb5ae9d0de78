//! The names of objects. We make them, and what is not made like ours is no name.
use std::{borrow::Cow, fmt};

use data_encoding::HEXLOWER;
use db::{FromValue, Value};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::entropy::Entropy;

const LONGEST: usize = 200;

/// `pictures/0f3a….png`: a folder and a name that nobody can guess. It can say neither `..` nor `/etc` nor `.hidden`,
/// so it never leads out of where objects lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// A new one in a folder; the extension may be empty.
    pub fn new(folder: &'static str, extension: &'static str, entropy: &Entropy) -> Self {
        let dot = if extension.is_empty() { "" } else { "." };
        Self(format!("{folder}/{}{dot}{extension}", HEXLOWER.encode(&entropy.bytes::<16>())))
    }

    /// A new one in one of 256 folders below a folder, for objects that may be many.
    pub fn spread(folder: &'static str, entropy: &Entropy) -> Self {
        let name = HEXLOWER.encode(&entropy.bytes::<16>());
        let (first, rest) = name.split_at(2);
        Self(format!("{folder}/{first}/{rest}"))
    }

    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
        let is_part = |part: &str| part.starts_with(is_plain) && part.chars().all(|c| is_plain(c) || c == '.');
        let is_key = text.len() <= LONGEST && text.contains('/') && text.split('/').all(is_part);
        is_key.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::parse(&Cow::<str>::deserialize(from)?).ok_or_else(|| D::Error::custom("must be the key of an object"))
    }
}

impl From<&Key> for Value {
    fn from(key: &Key) -> Self {
        Self::Text(key.0.clone())
    }
}
impl FromValue for Key {
    fn from_value(value: Value) -> Option<Self> {
        Self::parse(&String::from_value(value)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_never_leads_out_of_its_folder() {
        let made = Key::new("pictures", "png", &Entropy::seeded(1));
        assert_eq!(Key::parse(made.as_str()), Some(made.clone()));
        assert_eq!(made.as_str().len(), "pictures/".len() + 32 + ".png".len());
        let spread = Key::spread("o", &Entropy::seeded(1));
        assert_eq!(Key::parse(spread.as_str()), Some(spread.clone()));
        assert_eq!(spread.as_str().len(), "o/00/".len() + 30);
        for bad in [
            "",
            "alone.png",
            "../x",
            "a/../b",
            "a/..",
            "a/.hidden",
            "/etc/passwd",
            "a//b",
            "a/",
            "a/b\\c",
            "a/b c",
            "a/%2e%2e",
            "a/b\0",
            "A/b",
            "a/ü",
            &format!("a/{}", "x".repeat(200)),
        ] {
            assert_eq!(Key::parse(bad), None, "{bad:?}");
        }
    }
}
