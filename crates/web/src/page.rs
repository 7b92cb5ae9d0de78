//! How a page is sent: what browsers may do with it, and what is said when something is wrong.
use std::collections::BTreeMap;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use data_encoding::BASE64;
use kernel::{
    Janua, crypto,
    fault::{Fault, Result},
    http::Routes,
    telemetry::about,
};
use minijinja::{Value, context, value::Serde};
use tenancy::{
    apps::scopes::{Scope, Scopes},
    plain_page::PlainPage,
    policy::Site,
};
use url::{Position, Url};

use crate::{look::Look, words};

pub const HTML: &str = "text/html; charset=utf-8";

/// A page whose forms stay here.
pub fn page(janua: &Janua, status: StatusCode, name: &str, content: Value) -> Response {
    page_onward(janua, status, name, content, [])
}

/// A page whose forms go to us, and from us on to `onward`: browsers look at the whole way.
pub fn page_onward<'a>(
    janua: &Janua,
    status: StatusCode,
    name: &str,
    content: Value,
    onward: impl IntoIterator<Item = &'a str>,
) -> Response {
    let content = context! { site => Value::from(Serde(Site::of(janua))), ..content };
    let (status, html) = match janua.own::<Look>().draw(name, content) {
        Ok(html) => (status, html),
        Err(sorry) => (StatusCode::INTERNAL_SERVER_ERROR, sorry),
    };
    let onward = onward.into_iter().filter_map(source_of).collect::<Vec<_>>().join(" ");
    let mut response = (status, html).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(HTML));
    guard(response, &onward)
}

/// What browsers may do with a page: load what is ours, send forms to us and to `onward`, and frame nothing.
pub fn guard(mut response: Response, onward: &str) -> Response {
    let policy = format!(
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; frame-src 'self'; \
         form-action 'self' {onward}; base-uri 'none'; frame-ancestors 'none'"
    );
    if let Ok(policy) = HeaderValue::try_from(policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// How a policy names where an address leads: its origin, or the scheme of a native app.
fn source_of(address: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    let is_web = matches!(url.scheme(), "http" | "https");
    let source = if is_web { url.origin().ascii_serialization() } else { format!("{}:", url.scheme()) };
    // Nothing that means something in a policy.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".:/[]+-_".contains(c);
    source.chars().all(is_plain).then_some(source)
}

/// Submits the only form of its page.
const SUBMIT: &str = "document.forms[0].submit()";

/// A page that posts an answer to a client as soon as it is there, or by a button where scripts are off. It loads, runs
/// and reaches nothing else.
pub fn form_post(janua: &Janua, to: &str, fields: &[(String, String)]) -> Response {
    let fields: Vec<_> = fields.iter().map(|(name, value)| context! { name, value }).collect();
    let content = context! { to, fields, script => SUBMIT };
    let mut response = page(janua, StatusCode::OK, "form_post.html", content);
    let hash = BASE64.encode(&crypto::digest(SUBMIT.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'self'; script-src 'sha256-{hash}'; form-action {}; base-uri 'none'; \
         frame-ancestors 'none'",
        source_of(to).unwrap_or_else(|| "'none'".into())
    );
    if let Ok(policy) = HeaderValue::try_from(policy) {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    // Without any referrer a browser calls the origin of the form `null`, which frameworks take for an attack.
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("origin"));
    response
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

/// A few words and a way on: the words of a button and the page it leads to.
pub fn note_to(janua: &Janua, title: &str, text: &str, next: (&str, &str)) -> Response {
    note_with(janua, title, text, "", next)
}

/// The same with an icon in place of the check of success.
pub fn note_with(janua: &Janua, title: &str, text: &str, sign: &str, next: (&str, &str)) -> Response {
    let next = vec![next.0.to_owned(), next.1.to_owned()];
    page(janua, StatusCode::OK, "note.html", context! { title, text, sign, next })
}

/// A page of a feature that has none of its own.
pub fn plain_page(janua: &Janua, shown: &PlainPage) -> Response {
    let PlainPage { title, text, sign, button } = shown;
    page(janua, StatusCode::OK, "plain.html", context! { title => *title, text, sign => *sign, words => *button })
}

/// What cannot be answered anywhere else is said here, in words.
pub fn shown(janua: &Janua, result: Result<Response>) -> Response {
    result.unwrap_or_else(|fault| error(janua, &fault))
}

/// What has a cause is for those who run the service to read, wherever a page says it.
pub fn noted(fault: &Fault) {
    if let Some((cause, place)) = fault.cause() {
        tracing::error!(code = fault.code().name, cause, %place, "a page could not be shown");
    }
}

pub fn error(janua: &Janua, fault: &Fault) -> Response {
    noted(fault);
    error_page(janua, fault, &request_id())
}

/// The same for a person who runs the platform and can follow the request.
pub fn error_for_owner(janua: &Janua, fault: &Fault) -> Response {
    noted(fault);
    drawn_error(janua, fault, &request_id(), true)
}

/// The ID of the present request.
pub fn request_id() -> String {
    about().map(|about| about.name().to_string()).unwrap_or_default()
}

/// What is wrong, a way on, and the id by which it stands in the log.
pub fn error_page(janua: &Janua, fault: &Fault, request_id: &str) -> Response {
    drawn_error(janua, fault, request_id, false)
}

fn drawn_error(janua: &Janua, fault: &Fault, request_id: &str, is_owner: bool) -> Response {
    let problem = fault.problem("");
    let (status, title, detail) = (fault.code().status, problem.title, problem.detail);
    page(janua, status_of(fault), "error.html", context! { status, title, detail, request_id, is_owner })
}

pub fn status_of(fault: &Fault) -> StatusCode {
    StatusCode::from_u16(fault.code().status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// What is wrong with each field, for the form to say beside it. An entry of a list counts for the whole list.
pub fn by_field(fault: &Fault) -> BTreeMap<String, String> {
    let problem = fault.problem("");
    let wrong = problem.errors.iter().rev();
    wrong.map(|wrong| at_control(wrong.field.split('[').next().unwrap_or_default(), &wrong.message)).collect()
}

/// A list is one control with a value a line: what is wrong with one of them says which.
fn at_control(field: &str, message: &str) -> (String, String) {
    let parts: Vec<_> = field.split('.').collect();
    let found = parts.iter().enumerate().find_map(|(at, part)| part.parse::<usize>().ok().map(|line| (at, line)));
    match found {
        Some((at, line)) => {
            let said = [&parts[at + 1..], &[message]].concat().join(" ");
            (parts[..at].join("."), format!("Line {}: {said}", line + 1))
        }
        None => (field.to_owned(), words::sentence(field, message)),
    }
}

/// A table of pages: each of its routes answers a page, also when it is refused, or sends the browser elsewhere.
pub fn pages(tag: &'static str) -> Routes {
    Routes::new(tag).each(drawn)
}

fn drawn(routes: Routes) -> Routes {
    refused_on_a_page(routes.answers::<String>(200, HTML))
}

/// The statuses of refusals that pages show.
pub const REFUSED: [u16; 9] = [400, 401, 403, 404, 409, 410, 429, 500, 503];

/// The route above answers something else than a page, and is refused on one.
pub fn refused_on_a_page(routes: Routes) -> Routes {
    let routes = REFUSED.into_iter().fold(routes, |routes, status| routes.answers::<String>(status, HTML));
    routes.answers_nothing(303).unkept()
}

/// What a client gets to know and do, in a person's words.
pub fn wishes(scopes: &Scopes) -> Vec<&'static str> {
    let in_words = scopes.iter().filter_map(|scope| match scope {
        Scope::OpenId => None,
        Scope::Profile => Some("See your name, picture and organization"),
        Scope::Email => Some("See your email"),
        Scope::OfflineAccess => Some("Stay signed in while you are away"),
    });
    std::iter::once("Know who you are").chain(in_words).collect()
}

/// A place of ours to go on to, and nowhere else.
pub fn local(janua: &Janua, to: &str) -> Option<String> {
    let base = Url::parse(&janua.config.base_url()).ok()?;
    let url = base.join(to).ok().filter(|url| url.origin() == base.origin() && to.starts_with('/'))?;
    // As it is read, not as it was written: a browser reads two slashes as another host.
    let path = &url[Position::BeforePath..];
    (!path.starts_with("//")).then(|| path.to_owned())
}

/// A page of ours, with one parameter.
pub fn address(janua: &Janua, path: &str, field: &str, value: &str) -> String {
    let query = url::form_urlencoded::Serializer::new(String::new()).append_pair(field, value).finish();
    format!("{}{path}?{query}", janua.config.base_url())
}

/// A parameter of the address.
pub fn parameter(query: Option<&str>, name: &str) -> String {
    let mut pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
}
