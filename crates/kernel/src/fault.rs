//! Errors that a request can answer: a code, a status and a sentence. The cause and its place in the source go to the
//! log only.
//!
//! A handler returns a [`Fault`]; the request pipeline turns it into an RFC 9457 problem with the request's id in it.
use std::{fmt, panic::Location, sync::Arc, time::Duration};

use axum::{
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Serialize;

/// A kind of error that a client can act on. Features declare theirs as constants beside their handlers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    pub status: u16,
    /// Stable and documented. Clients branch on it.
    pub name: &'static str,
    /// One sentence for the user, the same every time.
    pub says: &'static str,
}

impl Code {
    pub const fn new(status: u16, name: &'static str, says: &'static str) -> Self {
        Self { status, name, says }
    }

    /// An error about one field of the input.
    #[track_caller]
    pub fn at(self, field: impl Into<String>, code: &'static str, message: impl Into<String>) -> Fault {
        Fault::from(self).and(field, code, message)
    }

    /// An error with a sentence about this case.
    #[track_caller]
    pub fn because(self, detail: impl Into<String>) -> Fault {
        let mut fault = Fault::from(self);
        fault.0.detail = Some(detail.into());
        fault
    }

    /// An error with a cause for the log. Clients do not see the cause.
    #[track_caller]
    pub fn caused_by(self, cause: impl fmt::Display) -> Fault {
        let mut fault = Fault::from(self);
        fault.0.cause = Some(cause.to_string());
        fault
    }
}

pub const INVALID: Code = Code::new(400, "invalid", "Some fields are invalid.");
pub const MALFORMED: Code = Code::new(400, "malformed", "The request body cannot be read.");
pub const BAD_CURSOR: Code = Code::new(400, "bad_cursor", "The cursor does not belong to this list.");
pub const UNAUTHENTICATED: Code = Code::new(401, "unauthenticated", "Sign in first.");
pub const FORBIDDEN: Code = Code::new(403, "forbidden", "You do not have permission to do this.");
pub const CROSS_SITE: Code = Code::new(403, "cross_site", "Requests from this origin are not allowed.");
pub const NOT_FOUND: Code = Code::new(404, "not_found", "Not found.");
pub const METHOD_NOT_ALLOWED: Code = Code::new(405, "method_not_allowed", "This URL does not support the method.");
pub const CONFLICT: Code = Code::new(409, "conflict", "The request conflicts with the current state.");
pub const IDEMPOTENCY_MISMATCH: Code =
    Code::new(409, "idempotency_mismatch", "This Idempotency-Key was used with another request.");
pub const IDEMPOTENCY_IN_PROGRESS: Code =
    Code::new(409, "idempotency_in_progress", "The first request with this Idempotency-Key is still in progress.");
pub const IDEMPOTENCY_ANSWER_LOST: Code = Code::new(
    409,
    "idempotency_answer_lost",
    "The first request with this Idempotency-Key was carried out, but its answer was not stored.",
);
pub const TOO_LARGE: Code = Code::new(413, "too_large", "The request body is too large.");
pub const NOT_JSON: Code = Code::new(415, "unsupported_media_type", "The request body must be application/json.");
pub const RATE_LIMITED: Code = Code::new(429, "rate_limited", "Too many requests. Wait, then try again.");
pub const INTERNAL: Code = Code::new(500, "internal", "An internal error occurred.");
pub const OVERLOADED: Code = Code::new(503, "overloaded", "The server is busy. Try again shortly.");
pub const TIMED_OUT: Code = Code::new(503, "timed_out", "The request took too long and was stopped.");
pub const UNAVAILABLE: Code =
    Code::new(503, "unavailable", "The database or another part of the server is unavailable. Try again shortly.");
pub const IDEMPOTENCY_KEY_REQUIRED: Code = Code::new(
    400,
    "idempotency_key_required",
    "Send an Idempotency-Key header, so that a repeated request is carried out once.",
);
pub const STORAGE_FULL: Code = Code::new(507, "storage_full", "The server's disk is full.");

/// The codes any route may answer; features add their own to their routes.
pub const COMMON: &[Code] = &[
    INVALID,
    MALFORMED,
    BAD_CURSOR,
    UNAUTHENTICATED,
    FORBIDDEN,
    CROSS_SITE,
    NOT_FOUND,
    METHOD_NOT_ALLOWED,
    CONFLICT,
    IDEMPOTENCY_MISMATCH,
    IDEMPOTENCY_IN_PROGRESS,
    IDEMPOTENCY_ANSWER_LOST,
    TOO_LARGE,
    NOT_JSON,
    RATE_LIMITED,
    INTERNAL,
    OVERLOADED,
    TIMED_OUT,
    UNAVAILABLE,
    STORAGE_FULL,
];

pub type Result<T, E = Fault> = std::result::Result<T, E>;

/// The error of one request.
#[derive(Debug)]
pub struct Fault(Box<Inner>);

#[derive(Debug)]
struct Inner {
    code: Code,
    detail: Option<String>,
    fields: Vec<FieldError>,
    headers: Vec<(HeaderName, HeaderValue)>,
    extra: serde_json::Map<String, serde_json::Value>,
    /// The transaction lost against another one. A retry may succeed.
    is_conflict: bool,
    cause: Option<String>,
    born: &'static Location<'static>,
}

impl Fault {
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Adds another wrong field, so that all are reported together.
    #[must_use]
    pub fn and(mut self, field: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        self.0.fields.push(FieldError { field: field.into(), code: code.into(), message: message.into() });
        self
    }

    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// Adds a member to the problem that the client needs to continue, such as a challenge.
    #[must_use]
    pub fn with_extra(mut self, name: &str, value: &impl Serialize) -> Self {
        self.0.extra.insert(name.to_owned(), serde_json::to_value(value).unwrap_or_default());
        self
    }

    /// A member added by [`with_extra`](Self::with_extra).
    pub fn extra(&self, name: &str) -> Option<&serde_json::Value> {
        self.0.extra.get(name)
    }

    /// Sets `Retry-After`, in whole seconds, rounded up.
    #[must_use]
    pub fn retry_after(self, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        self.with_header(header::RETRY_AFTER, seconds.max(1).into())
    }

    /// Marks the error as lost against another transaction, so that it is retried.
    #[must_use]
    pub(crate) fn marked_conflict(mut self) -> Self {
        self.0.is_conflict = true;
        self
    }

    pub(crate) fn is_conflict(&self) -> bool {
        self.0.is_conflict
    }

    /// The cause and where it was created, for the log.
    pub fn cause(&self) -> Option<(&str, &'static Location<'static>)> {
        self.0.cause.as_deref().map(|cause| (cause, self.0.born))
    }

    pub fn problem<'a>(&'a self, request_id: &'a str) -> Problem<'a> {
        let inner = &*self.0;
        Problem {
            kind: format!("/openapi.json#/x-problems/{}", inner.code.name),
            title: inner.code.says,
            status: inner.code.status,
            detail: inner.detail.as_deref(),
            code: inner.code.name,
            request_id,
            errors: &inner.fields,
            extra: &inner.extra,
        }
    }

    /// The response without a body. The pipeline adds the body in the form that the route's standard wants.
    pub(crate) fn head(&self) -> Response {
        let status = StatusCode::from_u16(self.0.code.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = status.into_response();
        for (name, value) in &self.0.headers {
            response.headers_mut().insert(name, value.clone());
        }
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().entry(header::WWW_AUTHENTICATE).or_insert(HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl Fault {
    /// The code's sentence, followed by the detail of this case.
    pub fn whole_sentence(&self) -> String {
        self.sentence(|wrong| format!("{} {}", wrong.field, wrong.message), ".")
    }

    /// The same in one line above a form, which names the fields itself.
    pub fn above_form(&self) -> String {
        self.sentence(|wrong| wrong.message.clone(), "")
    }

    fn sentence(&self, of_field: impl Fn(&FieldError) -> String, end: &str) -> String {
        let inner = &*self.0;
        let fields = inner.fields.iter().map(of_field).collect::<Vec<_>>().join("; ");
        let more = inner.detail.clone().or_else(|| (!fields.is_empty()).then(|| fields + end));
        format!("{} {}", inner.code.says, more.unwrap_or_default()).trim().to_owned()
    }
}

impl From<Code> for Fault {
    #[track_caller]
    fn from(code: Code) -> Self {
        let born = Location::caller();
        Self(Box::new(Inner {
            code,
            detail: None,
            fields: vec![],
            headers: vec![],
            extra: serde_json::Map::new(),
            is_conflict: false,
            cause: None,
            born,
        }))
    }
}

/// RFC 9457: how every refusal looks on the wire.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem<'a> {
    /// Points at this code's entry in the description of the interface.
    #[serde(rename = "type")]
    pub kind: String,
    /// The meaning of the code in one sentence.
    pub title: &'a str,
    /// The HTTP status again.
    pub status: u16,
    /// More about this case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<&'a str>,
    /// Stable; branch on this.
    pub code: &'a str,
    /// Quote this when you ask for help.
    pub request_id: &'a str,
    /// Every field that is wrong.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub errors: &'a [FieldError],
    /// Further members, such as the `challenge` of `captcha_required`.
    #[serde(flatten)]
    pub extra: &'a serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FieldError {
    pub field: String,
    pub code: String,
    pub message: String,
}

/// A handler's fault travels to the pipeline inside the response; the body is made there, once, in the right form.
#[derive(Clone)]
pub(crate) struct Carried(pub(crate) Arc<Fault>);

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut response = self.head();
        response.extensions_mut().insert(Carried(Arc::new(self)));
        response
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.name, self.0.code.says)
    }
}
