//! How a page is drawn and sent.
use askama::Template;
use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use kernel::{
    App, crypto,
    fault::{Fault, Result},
};
use tenancy::scopes::{Scope, Scopes};
use url::Url;

pub const HTML: &str = "text/html; charset=utf-8";
pub const STYLE: &str = include_str!("../templates/style.css");

/// A page whose forms go to us, and from us on to `onward`: browsers look at the whole way.
pub fn page(status: StatusCode, page: &impl Template, onward: Option<&str>) -> Response {
    let html = page.render().unwrap_or_default();
    let onward = onward.and_then(source_of).unwrap_or_default();
    let policy = format!(
        "default-src 'none'; style-src {}; form-action 'self' {onward}; base-uri 'none'; frame-ancestors 'none'",
        crypto::csp_source(STYLE)
    );
    let mut response = (status, html).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(HTML));
    if let Ok(policy) = HeaderValue::try_from(policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// How a policy names where an address leads: its origin, or the scheme of a native app.
fn source_of(address: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    let is_web = matches!(url.scheme(), "http" | "https");
    Some(if is_web { url.origin().ascii_serialization() } else { format!("{}:", url.scheme()) })
}

/// Always 303: whatever was sent to us is not sent on.
pub fn go(to: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    match HeaderValue::try_from(to) {
        Ok(to) => {
            response.headers_mut().insert(header::LOCATION, to);
            response
        }
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    title: String,
    detail: Option<String>,
    style: &'static str,
}

/// What cannot be answered anywhere else is said here, in words.
pub fn shown(result: Result<Response>) -> Response {
    result.unwrap_or_else(|fault| error(&fault))
}

pub fn error(fault: &Fault) -> Response {
    let status = StatusCode::from_u16(fault.code().status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Some((cause, place)) = fault.cause() {
        tracing::error!(code = fault.code().name, cause, %place, "a page could not be shown");
    }
    let problem = fault.problem("");
    page(status, &ErrorPage { title: problem.title, detail: problem.detail, style: STYLE }, None)
}

/// What is wrong, in one line above a form.
pub fn said(fault: &Fault) -> String {
    let problem = fault.problem("");
    problem.detail.map_or(problem.title.clone(), |detail| format!("{} {detail}", problem.title))
}

/// What a client gets to know and do, in a person's words.
pub fn wishes(scopes: &Scopes) -> Vec<&'static str> {
    let in_words = scopes.iter().filter_map(|scope| match scope {
        Scope::OpenId => None,
        Scope::Profile => Some("See your name, your picture and your organization"),
        Scope::Email => Some("See your email address"),
        Scope::OfflineAccess => Some("Stay signed in while you are away"),
    });
    std::iter::once("Know that it is you").chain(in_words).collect()
}

/// A place of ours to go on to, and nowhere else.
pub fn local(app: &App, to: &str) -> Option<String> {
    let base = Url::parse(&app.config.base_url()).ok()?;
    let url = base.join(to).ok().filter(|url| url.origin() == base.origin() && to.starts_with('/'))?;
    // As it is read, not as it was written: a browser reads two slashes as another host.
    let path = &url[url::Position::BeforePath..];
    (!path.starts_with("//")).then(|| path.to_owned())
}
