//! The headers every answer carries, and the request's id.
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::{clock::Timestamp, entropy::Entropy};

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A well-formed inbound id, or a new one.
pub(super) fn request_id(headers: &HeaderMap, entropy: &Entropy, now: Timestamp) -> Arc<str> {
    let inbound = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    match inbound {
        Some(id) if is_well_formed(id) => id.into(),
        _ => {
            let mut buffer = uuid::Uuid::encode_buffer();
            (&*entropy.uuid(now).hyphenated().encode_lower(&mut buffer)).into()
        }
    }
}

fn is_well_formed(id: &str) -> bool {
    (8..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Nothing is framed, sniffed, cached or told to other sites unless a handler said otherwise.
pub(super) fn secure(headers: &mut HeaderMap, is_https: bool) {
    const DEFAULTS: [(HeaderName, HeaderValue); 5] = [
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    ];
    const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000; includeSubDomains");
    headers.reserve(DEFAULTS.len() + 3);
    for (name, value) in DEFAULTS {
        headers.entry(name).or_insert(value);
    }
    if is_https {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HSTS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inbound_id_is_kept_only_when_it_can_do_no_harm() {
        for good in ["0198c6a2-7d1e-7000-8000-000000000000", "abcDEF.123_-"] {
            assert!(is_well_formed(good), "{good}");
        }
        for bad in ["", "short", "with space", "new\nline..", "<script>..", &"x".repeat(129)] {
            assert!(!is_well_formed(bad), "{bad:?}");
        }
    }
}
