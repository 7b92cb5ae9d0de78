//! `_headers`: a path pattern, and indented lines with the headers of the answers it matches.
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use serde::{Deserialize, Serialize};

use super::pattern::Pattern;

const MOST_RULES: usize = 100;
const MOST_HEADERS: usize = 64;
const LONGEST_LINE: usize = 2000;

/// Headers that belong to the connection or to the server, and cookies, which would reach neighbouring sites.
const NEVER: &[HeaderName] = &[
    header::SET_COOKIE,
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::CONTENT_RANGE,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::UPGRADE,
    header::TRAILER,
    header::TE,
    header::LOCATION,
    header::SERVER,
    header::DATE,
    header::ALT_SVC,
    header::ETAG,
    header::VARY,
    header::ACCEPT_RANGES,
    header::X_CONTENT_TYPE_OPTIONS,
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderRule {
    pub pattern: Pattern,
    pub headers: Vec<(String, String)>,
}

#[derive(Debug, Default)]
pub struct ParsedHeaders {
    pub rules: Vec<HeaderRule>,
    pub warnings: Vec<String>,
}

pub fn parse(text: &str) -> ParsedHeaders {
    let mut parsed = ParsedHeaders::default();
    let mut is_open = false;
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        if let Err(reason) = parse_line(&mut parsed.rules, &mut is_open, line) {
            parsed.warnings.push(format!("_headers line {number}: {reason}"));
        }
        if parsed.warnings.len() > MOST_RULES {
            parsed.warnings.push(format!("_headers: reading stopped at line {number}."));
            break;
        }
    }
    parsed.rules.retain(|rule| !rule.headers.is_empty());
    parsed
}

fn parse_line(rules: &mut Vec<HeaderRule>, is_open: &mut bool, line: &str) -> Result<(), String> {
    if line.len() > LONGEST_LINE {
        return Err("The line is longer than 2,000 bytes.".into());
    }
    if !line.starts_with([' ', '\t']) {
        *is_open = false;
        if rules.len() == MOST_RULES {
            return Err(format!("More than {MOST_RULES} rules; left out."));
        }
        let pattern = Pattern::parse(line.trim())?;
        rules.push(HeaderRule { pattern, headers: vec![] });
        *is_open = true;
        return Ok(());
    }
    let rule = rules.last_mut().filter(|_| *is_open).ok_or("There is no path above this header.")?;
    let (name, value) = line.trim().split_once(':').ok_or("A header is written as Name: value.")?;
    let name = HeaderName::try_from(name.trim()).map_err(|_| "The name of the header is not valid.")?;
    let value = value.trim();
    HeaderValue::try_from(value).map_err(|_| "The value of the header is not valid.")?;
    if NEVER.contains(&name) {
        return Err(format!("{name} cannot be set by a site."));
    }
    // Browsers read what follows a comma as another type, and believe the last one.
    if name == header::CONTENT_TYPE && value.contains(',') {
        return Err("Content-Type must be one type.".into());
    }
    if name == header::CONTENT_TYPE && may_run(value) {
        return Err("Content-Type cannot make a file HTML, XML, SVG or a script.".into());
    }
    if rule.headers.len() == MOST_HEADERS {
        return Err(format!("More than {MOST_HEADERS} headers for one path; left out."));
    }
    rule.headers.push((name.to_string(), value.to_owned()));
    Ok(())
}

/// Types that a browser runs or sniffs.
fn may_run(value: &str) -> bool {
    let kind = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    ["html", "xml", "svg", "javascript", "ecmascript"].iter().any(|word| kind.contains(word))
}

/// Whether a header says how long an answer may be kept. Some networks believe one of their own first
/// (`CDN-Cache-Control`, RFC 9213; `Surrogate-Control`).
fn is_cache_rule(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.ends_with("cache-control") || matches!(name, "expires" | "pragma" | "surrogate-control")
}

/// Removes what a site says of keeping its answers, where they are not for everybody.
pub fn forget_cache_rules(headers: &mut HeaderMap) {
    let rules: Vec<HeaderName> = headers.keys().filter(|name| is_cache_rule(name)).cloned().collect();
    for name in rules {
        headers.remove(name);
    }
}

/// The rules as they are applied.
#[derive(Debug, Default)]
pub struct Headers {
    rules: Vec<(Pattern, Vec<(HeaderName, HeaderValue)>)>,
}

impl Headers {
    pub fn new(rules: Vec<HeaderRule>) -> Self {
        let rules = rules.into_iter().map(|rule| {
            let headers = rule.headers.into_iter().filter_map(|(name, value)| {
                Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
            });
            (rule.pattern, headers.collect())
        });
        Self { rules: rules.collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Headers of all rules that match; values of one name are joined, and replace what the server would say.
    pub fn apply(&self, path: &str, to: &mut HeaderMap, may_cache: bool) {
        let mut given: Vec<&HeaderName> = vec![];
        for (pattern, headers) in &self.rules {
            if pattern.matches(path).is_none() {
                continue;
            }
            for (name, value) in headers {
                if !may_cache && is_cache_rule(name) {
                    continue;
                }
                let joined = to.get(name).filter(|_| given.contains(&name)).and_then(|known| {
                    HeaderValue::from_bytes(&[known.as_bytes(), b", ", value.as_bytes()].concat()).ok()
                });
                to.insert(name, joined.unwrap_or_else(|| value.clone()));
                given.push(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_matching_paths_are_joined() {
        let parsed = parse(
            "/*\n  X-Frame-Options: DENY\n  Link: </a>\n# remark\n/app/*\n  Link: </b>\n  Cache-Control: max-age=5\n",
        );
        assert_eq!(parsed.warnings, Vec::<String>::new());
        let headers = Headers::new(parsed.rules);
        let mut map =
            [(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))].into_iter().collect::<HeaderMap>();
        headers.apply("app/x", &mut map, true);
        assert_eq!(map["link"], "</a>, </b>");
        assert_eq!(map["x-frame-options"], "DENY");
        assert_eq!(map["cache-control"], "max-age=5");
        let mut map =
            [(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))].into_iter().collect::<HeaderMap>();
        headers.apply("app/x", &mut map, false);
        assert_eq!(map["cache-control"], "no-cache");
    }

    #[test]
    fn a_site_cannot_set_what_is_not_its_own() {
        let text = "/*\n Set-Cookie: a=b\n Content-Length: 5\n Location: /x\n Content-Type: text/html\n Content-Type: text/plain;,text/html\n Alt-Svc: h3\n bad\n b\u{e4}d: x\n X: \u{1}\nhttps://x/*\n  A: b\n";
        let parsed = parse(text);
        assert!(parsed.rules.is_empty(), "{:?}", parsed.rules);
        assert_eq!(parsed.warnings.len(), 11, "{:?}", parsed.warnings);
    }
}
