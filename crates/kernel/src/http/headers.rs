//! The headers every answer carries, and the request's id.
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::{
    clock::Timestamp,
    entropy::Entropy,
    telemetry::{About, SpanContext, SpanPlace},
};

const NOTHING_IS_LOADED: &str = "default-src 'none'; frame-ancestors 'none'";
const HTTPS_FOR_A_YEAR: &str = "max-age=31536000; includeSubDomains";
const VARIES: HeaderValue = HeaderValue::from_static("origin");
/// Room for these and for what most handlers say, so that no answer has to make room.
const PLACES: usize = 12;
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The request with a well-formed inbound ID, or a new one, and with its place in the caller's trace, or in a new one.
pub(super) fn about(headers: &HeaderMap, entropy: &Entropy, now: Timestamp) -> Arc<About> {
    let inbound = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let own = entropy.uuid(now);
    let id = match inbound {
        Some(id) if is_well_formed(id) => id.into(),
        _ => (&*own.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer())).into(),
    };
    About::request(id, SpanPlace::below(caller_span(headers), own))
}

/// The span of the caller. Two headers are none, as the standard says.
fn caller_span(headers: &HeaderMap) -> Option<SpanContext> {
    let mut all = headers.get_all(TRACEPARENT).iter();
    let (first, None) = (all.next()?, all.next()) else { return None };
    SpanContext::parse(first.to_str().ok()?)
}

fn is_well_formed(id: &str) -> bool {
    (8..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// What every answer says unless its handler said otherwise: nothing is framed, sniffed, cached or told to other sites.
pub(super) struct Defaults(HeaderMap);

impl Defaults {
    pub(super) fn new(is_https: bool) -> Self {
        let mut headers = HeaderMap::with_capacity(PLACES);
        // Said always: a cache must not hand a page the copy that was made for somebody without an origin.
        headers.insert(header::VARY, VARIES);
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(NOTHING_IS_LOADED));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        if is_https {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static(HTTPS_FOR_A_YEAR));
        }
        Self(headers)
    }

    /// Copied whole and overwritten by the handler's own: adding them one by one takes several times as long.
    pub(super) fn under(&self, own: &mut HeaderMap) {
        let varies = own.contains_key(header::VARY);
        let own_headers = std::mem::replace(own, self.0.clone());
        own.extend(own_headers);
        if varies {
            own.append(header::VARY, VARIES);
        }
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

    #[test]
    fn a_handler_has_the_last_word_and_keeps_every_cookie() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
        headers.append(header::SET_COOKIE, HeaderValue::from_static("a=1"));
        headers.append(header::SET_COOKIE, HeaderValue::from_static("b=2"));
        Defaults::new(true).under(&mut headers);
        let all = |name| headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(all(header::CACHE_CONTROL), ["public"]);
        assert_eq!(all(header::SET_COOKIE), ["a=1", "b=2"]);
        assert_eq!(all(header::X_FRAME_OPTIONS), ["DENY"]);
        assert_eq!(all(header::STRICT_TRANSPORT_SECURITY), [HTTPS_FOR_A_YEAR]);
    }
}
