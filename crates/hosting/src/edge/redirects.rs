//! `_redirects`: a line is a path, where it leads to and a status. The order is that of the file; files of the site win,
//! unless the status ends with `!`. Nothing is fetched from elsewhere.
use std::collections::HashMap;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use url::Url;

use super::pattern::{Captured, Pattern, is_name};

const MOST_STATIC: usize = 2000;
const MOST_DYNAMIC: usize = 100;
const LONGEST_LINE: usize = 1000;

/// What is escaped in a path: everything that could end it or be read as something else.
const IN_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'%')
    .add(b'\\')
    .add(b'^')
    .add(b'|')
    .add(b'[')
    .add(b']');

/// A path as it stands in a URL.
pub fn encode_path(path: &str) -> String {
    utf8_percent_encode(path, IN_PATH).to_string()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redirect {
    pub from: Pattern,
    pub to: String,
    pub status: u16,
    /// Applies where the site has a file, too.
    pub forced: bool,
}

/// The rules of a site, and what was wrong with its lines.
#[derive(Debug, Default)]
pub struct ParsedRedirects {
    pub rules: Vec<Redirect>,
    pub warnings: Vec<String>,
}

pub fn parse(text: &str) -> ParsedRedirects {
    let mut parsed = ParsedRedirects::default();
    let (mut fixed, mut dynamic) = (0, 0);
    for (at, line) in text.lines().enumerate() {
        let line = line.split_once(" #").map_or(line, |(rule, _)| rule).trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = at + 1;
        match parse_line(line) {
            Err(reason) => parsed.warnings.push(format!("_redirects line {number}: {reason}")),
            Ok(rule) => {
                let (count, most) = match rule.from.literal() {
                    Some(_) => (&mut fixed, MOST_STATIC),
                    None => (&mut dynamic, MOST_DYNAMIC),
                };
                if *count == most {
                    let left_out =
                        format!("_redirects line {number}: more than {most} rules of this kind; left out from here.");
                    parsed.warnings.push(left_out);
                    if parsed.warnings.len() > MOST_DYNAMIC {
                        break;
                    }
                    continue;
                }
                *count += 1;
                parsed.rules.push(rule);
            }
        }
        if parsed.warnings.len() > MOST_DYNAMIC {
            parsed.warnings.push(format!("_redirects: reading stopped at line {number}."));
            break;
        }
    }
    parsed
}

fn parse_line(line: &str) -> Result<Redirect, &'static str> {
    if line.len() > LONGEST_LINE {
        return Err("The line is longer than 1,000 bytes.");
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let (from, to, status) = match words[..] {
        [from, to] => (from, to, "301"),
        [from, to, status] => (from, to, status),
        [_] => return Err("A target is missing."),
        _ => return Err("Conditions and query parameters are not supported."),
    };
    let (status, forced) = status.strip_suffix('!').map_or((status, false), |status| (status, true));
    let status: u16 = status.parse().map_err(|_| "The status must be a number.")?;
    if ![200, 301, 302, 303, 307, 308, 404].contains(&status) {
        return Err("The status must be 200, 301, 302, 303, 307, 308 or 404.");
    }
    let from = Pattern::parse(from)?;
    check_target(to, matches!(status, 200 | 404))?;
    Ok(Redirect { from, to: to.to_owned(), status, forced })
}

fn check_target(to: &str, stays_inside: bool) -> Result<(), &'static str> {
    if to.contains(['\\', '\0']) || to.chars().any(char::is_control) {
        return Err("The target has characters that are not allowed.");
    }
    if to.starts_with('/') {
        return if to.starts_with("//") { Err("The target must not begin with //.") } else { Ok(()) };
    }
    if stays_inside {
        return Err("200 and 404 must lead to a file of the site: nothing is fetched from elsewhere.");
    }
    let rest = to.strip_prefix("https://").or_else(|| to.strip_prefix("http://"));
    let rest = rest.ok_or("The target must be a path of the site or an http or https URL.")?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_host = !host.is_empty() && !host.contains(['@', '*']) && placeholders(host).next().is_none();
    if !is_host {
        return Err("The host of the target must be written out.");
    }
    Url::parse(to).map(drop).map_err(|_| "The target is not a URL.")
}

/// The `:name`s in a text. A port is none, because names begin with a letter.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.split(':')
        .skip(1)
        .map(|after| {
            let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(after.len());
            &after[..end]
        })
        .filter(|name| is_name(name))
}

/// The rules, with paths that have no placeholder found by a lookup.
#[derive(Debug, Default)]
pub struct Redirects {
    rules: Vec<Redirect>,
    by_path: HashMap<String, usize>,
    dynamic: Vec<usize>,
}

/// Where a rule leads.
#[derive(Debug, PartialEq, Eq)]
pub struct Led {
    pub status: u16,
    /// A path without its leading slash for 200 and 404, the `Location` for others.
    pub to: String,
}

impl Redirects {
    pub fn new(rules: Vec<Redirect>) -> Self {
        let mut by_path = HashMap::new();
        let mut dynamic = vec![];
        for (at, rule) in rules.iter().enumerate() {
            match rule.from.literal() {
                Some(path) => _ = by_path.entry(path).or_insert(at),
                None => dynamic.push(at),
            }
        }
        Self { rules, by_path, dynamic }
    }

    /// The first rule for a path. `path` is decoded and has no leading slash, `query` is as it was sent.
    pub fn find(&self, path: &str, query: Option<&str>, only_forced: bool) -> Option<Led> {
        let trimmed = path.strip_suffix('/').unwrap_or(path);
        let counts = |at: &usize| !only_forced || self.rules[*at].forced;
        let fixed = self.by_path.get(trimmed).copied().filter(counts);
        let mut best = fixed.map(|at| (at, Captured::default()));
        for at in self.dynamic.iter().copied().filter(counts) {
            if best.as_ref().is_some_and(|(known, _)| *known < at) {
                break;
            }
            if let Some(captured) = self.rules[at].from.matches(path) {
                best = Some((at, captured));
                break;
            }
        }
        let (at, captured) = best?;
        self.rules[at].lead(path, query, &captured)
    }
}

impl Redirect {
    fn lead(&self, path: &str, query: Option<&str>, captured: &Captured<'_>) -> Option<Led> {
        if matches!(self.status, 200 | 404) {
            let to = fill(&self.to, captured, false);
            let to = to.split(['?', '#']).next().unwrap_or_default().trim_start_matches('/').to_owned();
            return Some(Led { status: self.status, to });
        }
        let mut to = fill(&self.to, captured, true);
        if to.starts_with('/') {
            // What a placeholder stood for must not make it the URL of another host.
            to = format!("/{}", to.trim_start_matches('/'));
            if to == format!("/{}", encode_path(path)) {
                return None;
            }
        }
        if let Some(query) = query.filter(|_| !to.contains('?')) {
            let (before, fragment) = to.split_once('#').map_or((to.as_str(), None), |(a, b)| (a, Some(b)));
            to = format!("{before}?{query}{}", fragment.map(|text| format!("#{text}")).unwrap_or_default());
        }
        Some(Led { status: self.status, to })
    }
}

fn fill(to: &str, captured: &Captured<'_>, is_url: bool) -> String {
    let mut filled = String::with_capacity(to.len());
    let mut pieces = to.split(':');
    filled.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let end = piece.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(piece.len());
        match captured.get(&piece[..end]) {
            Some(value) if is_url => filled.push_str(&encode_path(value)),
            Some(value) => filled.push_str(value),
            None => {
                filled.push(':');
                filled.push_str(&piece[..end]);
            }
        }
        filled.push_str(&piece[end..]);
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(text: &str, path: &str) -> Option<(u16, String)> {
        let parsed = parse(text);
        assert!(parsed.warnings.is_empty(), "{:?}", parsed.warnings);
        Redirects::new(parsed.rules).find(path, None, false).map(|led| (led.status, led.to))
    }

    #[test]
    fn rules_lead_where_they_say_in_their_order() {
        let text = "/old /new\n/blog/:slug /posts/:slug 302\n/docs/* https://docs.example.com/:splat 308\n/* /index.html 200";
        assert_eq!(led(text, "old"), Some((301, "/new".into())));
        assert_eq!(led(text, "old/"), Some((301, "/new".into())));
        assert_eq!(led(text, "blog/a b"), Some((302, "/posts/a%20b".into())));
        assert_eq!(led(text, "docs/a/b"), Some((308, "https://docs.example.com/a/b".into())));
        assert_eq!(led(text, "anything"), Some((200, "index.html".into())));
        assert_eq!(led("/* /all 302\n/old /new", "old"), Some((302, "/all".into())), "the first wins");
        let rules = Redirects::new(parse("/a /b 301!\n/c /d").rules);
        assert_eq!(rules.find("a", Some("x=1"), true).unwrap().to, "/b?x=1");
        assert_eq!(rules.find("c", None, true), None, "files win unless it is forced");
    }

    #[test]
    fn w23_targets_elsewhere_are_refused_or_literal() {
        for bad in [
            "/a //evil.test",
            "/a javascript:alert(1)",
            "/a data:text/html,x",
            "/a http://127.0.0.1/ 200",
            "/a https://example.com/ 200",
            "/a https://:splat/x",
            "/a https://:host.example.com/",
            "/a https://x@evil.test/",
            "/a /b 999",
            "/a /b 301 Country=de",
            "/a id=:id /b",
            "/a \\\\evil.test",
            "/a",
        ] {
            let parsed = parse(bad);
            assert!(parsed.rules.is_empty() && parsed.warnings.len() == 1, "{bad}");
            assert!(parsed.warnings[0].starts_with("_redirects line 1: "), "{bad}");
        }
        assert_eq!(led("/p https://a.example:8080/x", "p"), Some((301, "https://a.example:8080/x".into())), "a port");
        assert_eq!(led("/x/* /:splat", "x//evil.test"), Some((301, "/evil.test".into())), "stays on this host");
        assert_eq!(led("/x/* /:splat", "x/%2f%2fevil"), Some((301, "/%252f%252fevil".into())));
        assert_eq!(led("/loop /loop 302", "loop"), None);
    }

    #[test]
    fn w23_a_hundred_thousand_lines_and_long_paths_take_no_time() {
        let text = "/1/:a/:b/* /x/:splat\n".repeat(100_000);
        let parsed = parse(&text);
        assert_eq!(parsed.rules.len(), MOST_DYNAMIC);
        assert!(parsed.warnings.len() <= MOST_DYNAMIC + 2);
        let path = "a/".repeat(4000);
        assert_eq!(Redirects::new(parsed.rules).find(&path, None, false), None);
    }
}
