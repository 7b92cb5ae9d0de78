//! Well-known files: whom to tell about a hole (RFC 9116), and where an address signs in (RFC 7033).
use std::time::Duration;

use axum::{
    extract::State,
    http::{HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use kernel::{
    Janua,
    fault::{NOT_FOUND, Result},
    http::{Json, Query, Routes},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

pub fn routes() -> Routes {
    Routes::new("discovery")
        .get("/.well-known/security.txt", security_txt, "security contact (RFC 9116)")
        .answers::<String>(200, "text/plain; charset=utf-8")
        .get("/.well-known/webfinger", webfinger, "WebFinger lookup (RFC 7033)")
        .answers::<Descriptor>(200, "application/jrd+json")
        .fails(&[NOT_FOUND])
        .get("/.well-known/change-password", change_password, "redirect to the page that changes the password")
        .answers_nothing(303)
        .get("/.well-known/passkey-endpoints", passkey_endpoints, "where passkeys are created and managed")
}

/// Half of the year that RFC 9116 advises at most, so that a cached copy is never out of date.
const CONTACT_IS_GOOD_FOR: Duration = Duration::from_hours(180 * 24);
const ISSUER: &str = "http://openid.net/specs/connect/1.0/issuer";

async fn security_txt(State(janua): State<Janua>) -> impl IntoResponse + kernel::http::OperationOutput {
    // Whole days: everybody who asks today gets the same file.
    let expires = janua.clock.now().plus(CONTACT_IS_GOOD_FOR).day().start();
    let contact = janua.config.of::<crate::Operator>().security_contact();
    let base = janua.config.base_url();
    let text = format!(
        "Contact: {contact}\nExpires: {expires}\nPreferred-Languages: en\nCanonical: {base}/.well-known/security.txt\n"
    );
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text)
}

/// Password managers open this page for a person whose password should be replaced (W3C, "A Well-Known URL for Changing
/// Passwords").
async fn change_password(State(janua): State<Janua>) -> Response {
    let to = format!("{}/account/security#password-section", janua.config.base_url());
    (StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response()
}

/// Where passkeys are looked after (W3C, "A Well-Known URL for Relying Party Passkey Endpoints"). Empty where there are
/// none: they need a host name.
#[derive(Serialize, JsonSchema)]
struct PasskeyEndpoints {
    #[serde(skip_serializing_if = "Option::is_none")]
    enroll: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    manage: Option<String>,
}

async fn passkey_endpoints(State(janua): State<Janua>) -> Json<PasskeyEndpoints> {
    let base = janua.config.base_url();
    let has_passkeys = Url::parse(&base).is_ok_and(|url| url.domain().is_some());
    let page = has_passkeys.then(|| format!("{base}/account/security#passkeys"));
    Json(PasskeyEndpoints { enroll: page.clone(), manage: page })
}

#[derive(Deserialize, JsonSchema)]
struct Lookup {
    /// The resource as a URI: `acct:ada@example.com` or a URL of this service.
    #[schemars(length(max = 1024), regex(pattern = r"^[A-Za-z][A-Za-z0-9+.-]*:.+"))]
    resource: String,
    /// Returns only links of these relations; can be repeated.
    #[schemars(length(max = 16))]
    #[serde(default)]
    rel: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Descriptor {
    subject: String,
    links: Vec<Link>,
}

#[derive(Serialize, JsonSchema)]
struct Link {
    rel: &'static str,
    href: String,
}

/// Every address at our host signs in here. Whether it has an account is nobody's business, so all are answered alike.
async fn webfinger(State(janua): State<Janua>, Query(lookup): Query<Lookup>) -> Result<Response> {
    let host = host_of(&lookup.resource).ok_or(NOT_FOUND)?;
    let base = janua.config.base_url();
    let ours = host_of(&base).unwrap_or_default();
    // An account has no port: acct:ada@localhost is ours at localhost:8080 too.
    if host != ours && ours.split(':').next() != Some(&host) {
        return Err(NOT_FOUND.into());
    }
    let wanted = lookup.rel.is_empty() || lookup.rel.iter().any(|rel| rel == ISSUER);
    let links = if wanted { vec![Link { rel: ISSUER, href: base }] } else { vec![] };
    let found = Json(Descriptor { subject: lookup.resource, links });
    // Pages of any origin may look this up; it says nothing about who asks.
    let headers: [(HeaderName, &str); 2] =
        [(header::CONTENT_TYPE, "application/jrd+json"), (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*")];
    let mut response = found.into_response();
    for (name, value) in headers {
        response.headers_mut().insert(name, axum::http::HeaderValue::from_static(value));
    }
    Ok(response)
}

/// The host (with its port, where one is named) that a resource belongs to.
fn host_of(resource: &str) -> Option<String> {
    let (scheme, rest) = resource.split_once(':')?;
    let authority = match scheme.to_ascii_lowercase().as_str() {
        "acct" => rest.rsplit_once('@').filter(|(user, _)| !user.is_empty())?.1,
        "http" | "https" => rest.strip_prefix("//")?.split(['/', '?', '#']).next()?,
        _ => return None,
    };
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    (!host.is_empty() && host.chars().all(is_host)).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::host_of;

    #[test]
    fn the_host_of_a_resource_is_found_or_the_resource_refused() {
        for (resource, host) in [
            ("acct:ada@example.com", "example.com"),
            ("acct:a@b@Example.COM", "example.com"),
            ("https://example.com/x?y", "example.com"),
            ("http://localhost:8080", "localhost:8080"),
        ] {
            assert_eq!(host_of(resource).as_deref(), Some(host), "{resource}");
        }
        for wrong in
            ["", "ada", "acct:ada", "acct:@example.com", "mailto:a@b", "https:example.com", "acct:a@ex ample"]
        {
            assert_eq!(host_of(wrong), None, "{wrong:?}");
        }
    }
}
