//! `_redirects` and `_headers` of a site.
use axum::http::{HeaderMap, HeaderValue, header, uri::PathAndQuery};
use hosting::edge::{
    headers::{self, HeaderRule, Headers},
    redirects::{self, Redirect, Redirects},
    resolve,
};
use url::Url;

use crate::texts;

const SITE: &str = "https://site.example/";

/// Rules and the target of a request. No rule leads to a host that its line does not name, every `Location` can be sent, the first
/// rule that matches counts, and stored rules are the same.
pub fn redirect_rules(data: &[u8]) -> bool {
    let Some([rules, asked]) = texts(data) else { return false };
    let parsed = redirects::parse(rules);
    assert!(parsed.rules.len() <= 2100 && parsed.warnings.len() <= 103, "{} rules", parsed.rules.len());
    let stored = serde_json::to_string(&parsed.rules).expect("rules are stored");
    let again: Vec<Redirect> = serde_json::from_str(&stored).expect("stored rules are read");
    assert_eq!(again, parsed.rules, "{stored}");
    let is_accepted = !parsed.rules.is_empty();
    let Ok(target) = format!("/{}", asked.trim().trim_start_matches('/')).parse::<PathAndQuery>() else {
        return is_accepted;
    };
    let Some(path) = resolve::decode(target.path()) else { return is_accepted };
    for only_forced in [false, true] {
        let found = Redirects::new(again.clone()).find(&path, target.query(), only_forced);
        let counts = |rule: &&Redirect| !only_forced || rule.forced;
        let first = parsed.rules.iter().filter(counts).find(|rule| rule.from.matches(&path).is_some());
        let (Some(led), Some(rule)) = (&found, first) else {
            assert!(found.is_none(), "a rule that does not match");
            continue;
        };
        assert_eq!(led.status, rule.status, "{rules}: the first rule counts");
        if matches!(led.status, 200 | 404) {
            assert!(!led.to.starts_with('/'), "{}", led.to);
            continue;
        }
        assert!(HeaderValue::try_from(&led.to).is_ok(), "{:?} cannot be sent", led.to);
        let base = Url::parse(SITE).expect("a URL");
        let host = |url: &Url| (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port());
        let to = base.join(&led.to).expect("a URL");
        let named = if rule.to.starts_with('/') {
            host(&base)
        } else {
            let end = rule.to.find("://").map_or(0, |at| at + 3);
            let end = rule.to[end..].find(['/', '?', '#']).map_or(rule.to.len(), |at| end + at);
            host(&Url::parse(&rule.to[..end]).expect("the host of the rule"))
        };
        assert_eq!(host(&to), named, "{rules}: {path} leads to {to}");
        assert!(to.username().is_empty() && to.password().is_none(), "{to}");
    }
    is_accepted
}

/// The type that a browser sees in one or more `Content-Type` headers (Fetch, "extract a MIME type"): parts between commas outside
/// of quotes, and the last that is one counts.
fn browsers_type(value: &str) -> Option<String> {
    let (mut parts, mut current, mut is_quoted, mut is_escaped) = (vec![], String::new(), false, false);
    for c in value.chars() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => {
                parts.push(std::mem::take(&mut current));
                continue;
            }
            _ => {}
        }
        current.push(c);
    }
    parts.push(current);
    let is_token = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    let mut types = parts.iter().filter_map(|part| {
        let essence = part.split(';').next()?.trim().to_ascii_lowercase();
        let (kind, rest) = essence.split_once('/')?;
        (is_token(kind) && is_token(rest)).then_some(essence)
    });
    types.rfind(|essence| essence != "*/*")
}

/// Rules and a path. No header that is not a site's is set, none makes a file a page or a script, and stored rules are the same.
pub fn header_rules(data: &[u8]) -> bool {
    let Some([rules, path]) = texts(data) else { return false };
    let parsed = headers::parse(rules);
    assert!(parsed.rules.len() <= 100 && parsed.warnings.len() <= 102, "{} rules", parsed.rules.len());
    assert!(parsed.rules.iter().all(|rule| (1..=64).contains(&rule.headers.len())));
    let stored = serde_json::to_string(&parsed.rules).expect("rules are stored");
    let again: Vec<HeaderRule> = serde_json::from_str(&stored).expect("stored rules are read");
    assert_eq!(again, parsed.rules, "{stored}");
    let is_accepted = !parsed.rules.is_empty();
    let Some(path) = resolve::decode(&format!("/{}", path.trim().trim_start_matches('/'))) else {
        return is_accepted;
    };
    let mut sent = HeaderMap::new();
    for name in [header::CONTENT_TYPE, header::ETAG, header::CONTENT_LENGTH, header::CACHE_CONTROL] {
        sent.insert(name, HeaderValue::from_static("own/own"));
    }
    Headers::new(again).apply(&path, &mut sent, false);
    for name in [header::SET_COOKIE, header::LOCATION, header::TRANSFER_ENCODING, header::CONNECTION] {
        assert!(!sent.contains_key(&name), "{name} is set: {rules}");
    }
    for name in [header::ETAG, header::CONTENT_LENGTH, header::CACHE_CONTROL] {
        assert_eq!(sent.get(&name).map(HeaderValue::as_bytes), Some(&b"own/own"[..]), "{name} is the server's");
    }
    let text = sent.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let seen = browsers_type(&text).unwrap_or_default();
    for word in ["html", "xml", "svg", "javascript", "ecmascript"] {
        assert!(!seen.contains(word), "{text}: a browser sees {seen}");
    }
    is_accepted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_no_placeholder() {
        let parsed = redirects::parse("/a https://example.com:8080/:splat\n/b https://example.com:port/x");
        assert_eq!(parsed.rules.len(), 1, "{:?}", parsed.warnings);
        let led = Redirects::new(parsed.rules).find("a", None, false).expect("a rule");
        assert_eq!(led.to, "https://example.com:8080/:splat");
    }

    #[test]
    fn a_browser_believes_the_last_type() {
        assert_eq!(browsers_type("text/plain;,text/html").as_deref(), Some("text/html"));
        assert_eq!(browsers_type("text/plain; a=\",text/html").as_deref(), Some("text/plain"));
    }
}
