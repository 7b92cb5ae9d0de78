//! Which sites may call with a browser's cookies (CORS), and which may change state with them (CSRF).
//!
//! Both ask one question, which origins are ours, so they are answered in one place and not by two layers.
use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, RwLock},
};

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};

use crate::{
    Janua,
    config::Config,
    fault::{CROSS_SITE, Result},
};

const ALLOWED_METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE");
/// The last ones belong to resumable uploads (tus).
const ALLOWED_HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, idempotency-key, range, traceparent, x-request-id, x-service-app-key, tus-resumable, upload-length, \
     upload-metadata, upload-offset, upload-checksum",
);
/// What pages of any origin may send. Without cookies a header carries no more than the page holds itself. The wildcard
/// covers everything but `authorization`; the names are for browsers that do not know the wildcard.
const ANY_HEADERS: HeaderValue =
    HeaderValue::from_static("authorization, content-type, mcp-protocol-version, x-request-id, x-service-app-key, *");
const EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static(
    "x-request-id, retry-after, ratelimit, ratelimit-policy, idempotency-replayed, etag, content-range, location, \
     tus-resumable, tus-version, upload-offset, upload-length, upload-expires",
);
const ANY_EXPOSED_HEADERS: HeaderValue =
    HeaderValue::from_static("x-request-id, retry-after, ratelimit, ratelimit-policy, etag, www-authenticate");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The cookies that identify a user; a request without them has nothing to forge.
const IDENTITY_COOKIES: [&str; 4] =
    ["__Host-service_access", "service_access", "__Host-service_refresh", "service_refresh"];

/// Whose pages may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Those of our own origins and of apps, with cookies.
    KnownOrigins,
    /// Besides, those of every other origin, without cookies.
    AnyOrigin,
}

pub(super) struct Origins {
    ours: Vec<String>,
    apps: Option<Arc<AppOrigins>>,
}

/// Origins of apps. Their pages may call; a cookie of theirs counts only where the session is the app's own, which is
/// for whoever reads the cookie to look at ([`foreign_origin`]).
#[derive(Default)]
pub struct AppOrigins(RwLock<HashSet<String>>);

impl AppOrigins {
    pub fn set(&self, origins: HashSet<String>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = origins;
    }

    fn has(&self, origin: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(origin)
    }
}

fn ours(config: &Config) -> impl Iterator<Item = String> {
    std::iter::once(config.base_url()).chain(config.allowed_origins.iter().map(|origin| origin.0.clone()))
}

/// The origin of the page this request comes from, if it is not a page of the service itself.
pub fn foreign_origin(janua: &Janua, headers: &HeaderMap) -> Option<String> {
    let origin = headers.get(header::ORIGIN).filter(|_| !is_unsaid(headers))?;
    let is_ours = ours(&janua.config).any(|ours| ours.as_bytes() == origin.as_bytes());
    (!is_ours).then(|| String::from_utf8_lossy(origin.as_bytes()).into_owned())
}

impl Origins {
    pub(super) fn of(janua: &Janua) -> Self {
        Self { ours: ours(&janua.config).collect(), apps: janua.find::<Arc<AppOrigins>>().cloned() }
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        let is_apps = |origin: &str| self.apps.as_ref().is_some_and(|apps| apps.has(origin));
        self.ours.iter().any(|ours| ours.as_bytes() == origin.as_bytes()) || origin.to_str().is_ok_and(is_apps)
    }

    /// The answer to a browser that asks before it sends.
    pub(super) fn preflight(&self, method: &Method, headers: &HeaderMap, sharing: Sharing) -> Option<Response> {
        preflighted(method, headers)?;
        let origin = headers.get(header::ORIGIN)?;
        let mut response = StatusCode::NO_CONTENT.into_response();
        let out = response.headers_mut();
        let is_known = self.allows(origin);
        if is_known || sharing == Sharing::AnyOrigin {
            out.insert(header::ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS);
            let allowed = if is_known { ALLOWED_HEADERS } else { ANY_HEADERS };
            out.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
            out.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        }
        Some(response)
    }

    /// Tells the browser whether the page may read the answer. Credentials are for known origins alone.
    pub(super) fn share(&self, origin: Option<&HeaderValue>, sharing: Sharing, out: &mut HeaderMap) {
        if let Some(origin) = origin.filter(|origin| self.allows(origin)) {
            out.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            out.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
            out.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
        } else if sharing == Sharing::AnyOrigin {
            out.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
            out.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, ANY_EXPOSED_HEADERS);
        }
    }

    /// A request that changes state with nothing but a cookie must come from a page of ours.
    pub(super) fn refuse_forgery(&self, method: &Method, headers: &HeaderMap) -> Result<()> {
        if method.is_safe() || !has_identity_cookie(headers) || bearer(headers).is_some() {
            return Ok(());
        }
        let trusted = match (headers.get(header::ORIGIN), headers.get(SEC_FETCH_SITE)) {
            (Some(_), _) if is_unsaid(headers) => true,
            (Some(origin), _) => self.allows(origin),
            (None, Some(site)) => site == "same-origin",
            (None, None) => false,
        };
        if trusted { Ok(()) } else { Err(CROSS_SITE.into()) }
    }
}

/// The method that a browser asks for before it sends; `None` for a request that is no preflight.
pub(super) fn preflighted(method: &Method, headers: &HeaderMap) -> Option<Method> {
    let asked = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD).filter(|_| method == Method::OPTIONS)?;
    headers.get(header::ORIGIN)?;
    Some(Method::from_bytes(asked.as_bytes()).unwrap_or(Method::OPTIONS))
}

/// Our own pages send no referrer, and then a browser says `null` for the origin of their forms. That it is ours it says in
/// another header, which no page can write.
fn is_unsaid(headers: &HeaderMap) -> bool {
    let says = |name: &HeaderName, value: &str| headers.get(name).is_some_and(|said| said == value);
    says(&header::ORIGIN, "null") && says(&SEC_FETCH_SITE, "same-origin")
}

pub(super) fn has_identity_cookie(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::COOKIE).iter();
    // Bytes, not text: a cookie header that is not ASCII still reaches the handler.
    lines.flat_map(|line| line.as_bytes().split(|b| *b == b';')).any(|pair| {
        let name = pair.split(|b| *b == b'=').next().unwrap_or_default().trim_ascii();
        IDENTITY_COOKIES.iter().any(|ours| ours.as_bytes() == name)
    })
}

/// The bearer token. No page can send this header to us without being asked in a preflight first.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}
