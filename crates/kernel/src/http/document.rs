//! A fixed document: its bytes are made once and served with an `ETag`, so that a client fetches them once.
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;

use crate::crypto;

#[derive(Clone)]
pub struct Document {
    bytes: Bytes,
    etag: HeaderValue,
    content_type: &'static str,
    vary: Option<&'static str>,
}

/// Five minutes, the time verifiers may keep our keys too.
const CACHE: HeaderValue = HeaderValue::from_static("public, max-age=300");

impl Document {
    pub fn new(content_type: &'static str, bytes: Vec<u8>) -> Self {
        let etag = HeaderValue::try_from(format!("\"{}\"", &crypto::hash(&bytes)[..32]));
        Self { etag: etag.unwrap_or(HeaderValue::from_static("\"\"")), bytes: bytes.into(), content_type, vary: None }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The request headers that chose this document among others.
    #[must_use]
    pub fn varying(mut self, headers: &'static str) -> Self {
        self.vary = Some(headers);
        self
    }

    /// The document, or 304 when the client has it already.
    pub fn answer(&self, request: &HeaderMap) -> Response {
        let mut response = if self.is_known(request) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            let mut response = Body::from(self.bytes.clone()).into_response();
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
            response
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, self.etag.clone());
        headers.insert(header::CACHE_CONTROL, CACHE);
        if let Some(vary) = self.vary {
            headers.append(header::VARY, HeaderValue::from_static(vary));
        }
        response
    }

    fn is_known(&self, request: &HeaderMap) -> bool {
        let known = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        // Weak comparison (RFC 9110, 13.1.2): a proxy may have compressed the body and weakened the tag.
        known
            .flat_map(|list| list.split(','))
            .map(str::trim)
            .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag).as_bytes() == self.etag.as_bytes())
    }
}
