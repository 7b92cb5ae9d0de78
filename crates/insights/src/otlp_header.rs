//! One header of the requests to a collector, as the setting `otlp_headers` writes it.
use axum::http::{HeaderName, HeaderValue};
use kernel::config::Setting;

/// A header that may hold a secret: it is never shown.
#[derive(Clone)]
pub struct OtlpHeader {
    pub name: HeaderName,
    pub value: HeaderValue,
}

impl std::fmt::Debug for OtlpHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}=…", self.name)
    }
}

impl Setting for OtlpHeader {
    const IS_SECRET: bool = true;

    /// The errors show a name, and never what may be a value.
    fn parse(text: &str) -> Result<Self, String> {
        let Some((name, value)) = text.split_once('=') else {
            return Err("must be headers such as api-key=secret,tenant=acme; a part has no =".into());
        };
        let name = HeaderName::try_from(name.trim()).map_err(
            |_| "must be headers such as api-key=secret,tenant=acme; a part has no valid name before its =",
        )?;
        let value = value.trim();
        if value.is_empty() {
            return Err(format!("has no value for the header {name}"));
        }
        let mut value = HeaderValue::try_from(value)
            .map_err(|_| format!("has a value for {name} with characters that a header cannot have"))?;
        value.set_sensitive(true);
        Ok(Self { name, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_no_header_is_an_error_which_shows_no_value() {
        let read = Vec::<OtlpHeader>::parse;
        let headers = read("api-key = hush , tenant=a=b,").unwrap();
        let pairs: Vec<_> = headers.iter().map(|one| (one.name.as_str(), one.value.to_str().unwrap())).collect();
        assert_eq!(pairs, [("api-key", "hush"), ("tenant", "a=b")]);
        assert_eq!(format!("{headers:?}"), "[api-key=…, tenant=…]");
        assert!(read("").unwrap().is_empty());
        for (wrong, word) in [
            ("hush", "no ="),
            ("tenant=acme,hush", "no ="),
            ("=hush", "no valid name"),
            ("api key=hush", "no valid name"),
            ("api-key:hush=", "no valid name"),
            ("api-key=", "no value for the header api-key"),
            ("api-key=hu\u{7}sh", "api-key with characters"),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(word) && !error.contains("hu"), "{wrong:?}: {error}");
        }
    }
}
