//! Where tokens of a machine may count, and with which scopes.
use kernel::{Janua, fault::Result, ports::outgoing};
use url::Url;

use super::{INVALID_SCOPE, INVALID_TARGET, Machine};
use crate::{apps::redirects, sessions::audience::Audience};

/// The scopes and audiences that a caller requests for a token.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Default: all scopes of the machine.
    pub scopes: Option<Vec<String>>,
    /// Default: the service itself.
    pub resource: Option<String>,
}

/// The scopes and audiences of a new token.
#[derive(Debug, Clone)]
pub struct Granted {
    pub scopes: Vec<String>,
    pub audience: Audience,
}

impl Granted {
    pub fn scope(&self) -> String {
        self.scopes.join(" ")
    }
}

/// A URL that tokens can be for: exactly as it is written, with https, or on this machine.
pub fn resource(text: &str) -> Option<Url> {
    let url = outgoing::endpoint(text).ok()?;
    (url.scheme() == "https" || redirects::is_loopback(&url)).then_some(url)
}

/// Whether a URL is `above` or lies below it: the same scheme, host and port, and a path that goes on at a slash.
pub fn lies_under(url: &Url, above: &Url) -> bool {
    let is_same_place = url.origin() == above.origin() && url.origin().is_tuple();
    let prefix = above.path().strip_suffix('/').unwrap_or(above.path());
    let rest = url.path().strip_prefix(prefix);
    is_same_place && above.query().is_none() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Checks the audience of a token against those of the machine.
pub fn audience(janua: &Janua, machine: &Machine, wanted: Option<&str>) -> Result<Audience> {
    let base = janua.config.base_url();
    let Some(wanted) = wanted.filter(|wanted| *wanted != base) else { return Ok(Audience::one(base)) };
    let url = resource(wanted).ok_or(INVALID_TARGET)?;
    let is_allowed = machine.audiences.iter().filter_map(|text| resource(text)).any(|above| lies_under(&url, &above));
    if is_allowed { Ok(Audience::one(wanted.to_owned())) } else { Err(INVALID_TARGET.into()) }
}

/// Checks scopes against those of the machine: more than it has is refused.
pub fn scopes(machine: &Machine, wanted: Option<&[String]>) -> Result<Vec<String>> {
    let Some(wanted) = wanted else { return Ok(machine.scopes.clone()) };
    let mut granted: Vec<String> = vec![];
    for scope in wanted {
        if !machine.scopes.contains(scope) {
            return Err(INVALID_SCOPE.because("The machine does not have this scope."));
        }
        if !granted.contains(scope) {
            granted.push(scope.clone());
        }
    }
    Ok(granted)
}

pub fn grant(janua: &Janua, machine: &Machine, wanted: &Wanted) -> Result<Granted> {
    let audience = audience(janua, machine, wanted.resource.as_deref())?;
    Ok(Granted { scopes: scopes(machine, wanted.scopes.as_deref())?, audience })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m11_a_resource_lies_under_an_audience_at_a_slash_and_on_the_same_host() {
        let under = |url: &str, above: &str| match (resource(url), resource(above)) {
            (Some(url), Some(above)) => lies_under(&url, &above),
            _ => false,
        };
        for (url, above) in [
            ("https://a.example/", "https://a.example"),
            ("https://a.example/mcp", "https://a.example"),
            ("https://a.example/mcp", "https://a.example/mcp"),
            ("https://a.example/mcp/tools", "https://a.example/mcp"),
            ("https://a.example/mcp/tools", "https://a.example/mcp/"),
            ("http://127.0.0.1:9000/mcp", "http://127.0.0.1:9000"),
        ] {
            assert!(under(url, above), "{url} {above}");
        }
        for (url, above) in [
            ("https://a.example.evil/", "https://a.example"),
            ("https://a.example/../x", "https://a.example/x"),
            ("https://a.example:8443/", "https://a.example"),
            ("http://a.example/", "https://a.example"),
            ("https://a.example/mcpx", "https://a.example/mcp"),
            ("https://a.example/", "https://a.example/mcp"),
            ("https://user@a.example/", "https://a.example"),
            ("https://a.example/#x", "https://a.example"),
            ("http://127.0.0.1:9001/mcp", "http://127.0.0.1:9000"),
            ("not a url", "https://a.example"),
        ] {
            assert!(!under(url, above), "{url} {above}");
        }
    }
}
