//! How the text of a setting becomes a value, and what is said when it does not.
use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    time::Duration,
};

use ipnet::IpNet;
use url::Url;

use super::{LogFormat, LogRequests};
use crate::crypto::Secret;

/// A type a setting can have.
pub trait Setting: Sized {
    /// Whether the value is never shown.
    const IS_SECRET: bool = false;

    /// The error finishes the sentence that starts with the setting's name.
    fn parse(text: &str) -> Result<Self, String>;
}

/// `on` or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    On,
    Off,
}

impl Switch {
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

/// Scheme, host and port of a page, as browsers write it in `Origin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(pub String);

/// The file as names and texts: scalars as they are, lists with commas.
pub(super) fn file(text: &str) -> Result<Vec<(String, String)>, String> {
    let table: toml::Table = text.parse().map_err(|e| format!("janua.toml: {e}"))?;
    table.into_iter().map(|(name, value)| Ok((name.clone(), plain(&name, value)?))).collect()
}

fn plain(name: &str, value: toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Boolean(truth) => Ok(if truth { "on" } else { "off" }.to_owned()),
        toml::Value::Array(values) => {
            let texts: Result<Vec<_>, _> = values.into_iter().map(|value| plain(name, value)).collect();
            Ok(texts?.join(","))
        }
        _ => Err(format!("janua.toml: {name}: must be text, a whole number, true or false, or a list of texts")),
    }
}

fn required(text: &str) -> Result<&str, String> {
    let text = text.trim();
    if text.is_empty() { Err("must not be empty".into()) } else { Ok(text) }
}

impl Setting for String {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.trim().to_owned())
    }
}
impl Setting for Secret {
    const IS_SECRET: bool = true;

    fn parse(text: &str) -> Result<Self, String> {
        required(text).map(|text| text.to_owned().into())
    }
}
impl Setting for PathBuf {
    fn parse(text: &str) -> Result<Self, String> {
        required(text).map(Into::into)
    }
}
impl Setting for SocketAddr {
    fn parse(text: &str) -> Result<Self, String> {
        text.trim().parse().map_err(|_| "must be an IP address and a port such as 127.0.0.1:8080".into())
    }
}
impl Setting for IpAddr {
    fn parse(text: &str) -> Result<Self, String> {
        text.trim().parse().map_err(|_| format!("{text:?} is not an IP address"))
    }
}
impl Setting for Url {
    fn parse(text: &str) -> Result<Self, String> {
        Self::parse(required(text)?).map_err(|e| format!("must be a URL ({e})"))
    }
}
impl Setting for usize {
    fn parse(text: &str) -> Result<Self, String> {
        text.trim().parse().map_err(|_| "must be a whole number".into())
    }
}
impl Setting for u32 {
    fn parse(text: &str) -> Result<Self, String> {
        text.trim().parse().map_err(|_| "must be a whole number".into())
    }
}
impl Setting for NonZeroUsize {
    fn parse(text: &str) -> Result<Self, String> {
        Self::new(Setting::parse(text)?).ok_or_else(|| "must be at least 1".into())
    }
}
impl Setting for Duration {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit_ms = match &text[digits.len()..] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => 0,
        };
        let length =
            digits.parse::<u64>().ok().filter(|_| unit_ms > 0).and_then(|number| number.checked_mul(unit_ms));
        length.map(Self::from_millis).ok_or_else(|| "must be a length of time such as 30s, 15m, 24h or 7d".into())
    }
}
impl Setting for Switch {
    fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "on" | "true" | "1" => Ok(Self::On),
            "off" | "false" | "0" => Ok(Self::Off),
            _ => Err("must be on or off".into()),
        }
    }
}
impl Setting for LogFormat {
    fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("must be auto, text or json".into()),
        }
    }
}
impl Setting for LogRequests {
    fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "off" | "false" => Ok(Self::Off),
            "errors" => Ok(Self::Errors),
            "all" => Ok(Self::All),
            _ => Err("must be off, errors or all".into()),
        }
    }
}
impl Setting for IpNet {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let address = text.parse::<IpAddr>().map(Self::from);
        address.or_else(|_| text.parse()).map_err(|_| format!("{text:?} is not a network such as 10.0.0.0/8"))
    }
}
impl Setting for Origin {
    fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        match url.map(|url| url.origin().ascii_serialization()) {
            Some(origin) if origin == text.trim() => Ok(Self(origin)),
            _ => Err(format!("{text:?} is not an origin such as https://app.example.com")),
        }
    }
}
impl<T: Setting> Setting for Option<T> {
    const IS_SECRET: bool = T::IS_SECRET;

    fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() { Ok(None) } else { T::parse(text).map(Some) }
    }
}
impl<T: Setting> Setting for Vec<T> {
    const IS_SECRET: bool = T::IS_SECRET;

    fn parse(text: &str) -> Result<Self, String> {
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(T::parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_read_with_its_unit() {
        let read = |text| Duration::parse(text).ok();
        assert_eq!(read("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(read(" 15m "), Some(Duration::from_mins(15)));
        assert_eq!(read("7d"), Some(Duration::from_hours(7 * 24)));
        for wrong in ["", "s", "5", "5 s", "-1s", "1.5s", "99999999999999999999s", "18446744073709551615d", "1w"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_written_is_read_or_refused(text in "\\PC*") {
            let _ = (Duration::parse(&text), Origin::parse(&text), IpNet::parse(&text), Vec::<IpNet>::parse(&text));
            let _ = (Switch::parse(&text), LogFormat::parse(&text), SocketAddr::parse(&text), file(&text));
        }

        #[test]
        fn an_origin_is_kept_only_in_the_spelling_browsers_send(text in "https?://[a-zA-Z0-9.:@/-]{1,20}") {
            if let Ok(Origin(origin)) = Origin::parse(&text) {
                assert_eq!(origin, text);
                assert!(!origin.contains('@') && !origin[8..].contains('/'), "{origin}");
            }
        }
    }
}
