//! Patterns of paths in `_redirects` and `_headers`: literal segments, `:name` for one segment, `*` at the end for the rest.
//! They are compared segment by segment, so no pattern takes more than one walk over the path.
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    segments: Vec<Segment>,
    /// What begins and ends the last segments, where the pattern ends with `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    splat: Option<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Segment {
    Literal(String),
    Name(String),
}

/// The parts of a path that `:name` and `*` stood for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Captured<'a> {
    names: Vec<(&'a str, &'a str)>,
    splat: Option<&'a str>,
}

impl Captured<'_> {
    pub fn get(&self, name: &str) -> Option<&str> {
        match name {
            "splat" => self.splat,
            name => self.names.iter().find(|(known, _)| *known == name).map(|(_, value)| *value),
        }
    }
}

impl Pattern {
    /// The error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let path = text.strip_prefix('/').ok_or("A path must begin with /.")?;
        if path.contains('?') || path.contains('#') {
            return Err("Queries and fragments cannot be matched.");
        }
        let (path, splat) = match path.split_once('*') {
            None => (path, None),
            Some((before, after)) => {
                if after.contains(['*', '/']) {
                    return Err("* is allowed once, in the last segment.");
                }
                let (folders, start) = before.rsplit_once('/').unwrap_or(("", before));
                (folders, Some((start.to_owned(), after.to_owned())))
            }
        };
        let segments = path.split('/').filter(|segment| !segment.is_empty()).map(|segment| {
            match segment.strip_prefix(':').filter(|name| is_name(name)) {
                Some(name) => Segment::Name(name.to_owned()),
                None => Segment::Literal(segment.to_owned()),
            }
        });
        Ok(Self { segments: segments.collect(), splat })
    }

    /// The path, where the pattern is just one.
    pub fn literal(&self) -> Option<String> {
        if self.splat.is_some() {
            return None;
        }
        let parts = self.segments.iter().map(|segment| match segment {
            Segment::Literal(text) => Some(text.as_str()),
            Segment::Name(_) => None,
        });
        Some(parts.collect::<Option<Vec<_>>>()?.join("/"))
    }

    /// `path` has no leading slash; a trailing one makes no difference.
    pub fn matches<'a>(&'a self, path: &'a str) -> Option<Captured<'a>> {
        let mut rest = path.strip_suffix('/').unwrap_or(path);
        let mut captured = Captured::default();
        for segment in &self.segments {
            let (first, after) = rest.split_once('/').unwrap_or((rest, ""));
            match segment {
                Segment::Literal(text) if text == first => {}
                Segment::Name(name) if !first.is_empty() => captured.names.push((name, first)),
                _ => return None,
            }
            rest = after;
        }
        match &self.splat {
            None => rest.is_empty().then_some(captured),
            Some((start, end)) => {
                let middle = rest.strip_prefix(start.as_str())?.strip_suffix(end.as_str())?;
                Some(Captured { splat: Some(middle), ..captured })
            }
        }
    }
}

/// Names of placeholders: letters, digits and underscores.
pub fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_by_segments() {
        for (pattern, path, found) in [
            ("/a", "a", true),
            ("/a", "a/", true),
            ("/a/", "a", true),
            ("/a", "a/b", false),
            ("/", "", true),
            ("/*", "", true),
            ("/*", "a/b", true),
            ("/a/*", "a", true),
            ("/a/*", "ab", false),
            ("/*.js", "a/b.js", true),
            ("/*.js", "a/b.css", false),
            ("/a/:id/c", "a/1/c", true),
            ("/a/:id/c", "a//c", false),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap().matches(path).is_some(), found, "{pattern} {path}");
        }
        let pattern = Pattern::parse("/news/:year/*").unwrap();
        let captured = pattern.matches("news/2026/may/1").unwrap();
        assert_eq!((captured.get("year"), captured.get("splat")), (Some("2026"), Some("may/1")));
        for bad in ["a", "https://x/", "/a*b*", "/*/a", "/a?x=1"] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Pattern::parse("/a/b").unwrap().literal().as_deref(), Some("a/b"));
        assert_eq!(Pattern::parse("/a/:b").unwrap().literal(), None);
    }
}
