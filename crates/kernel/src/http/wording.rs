//! How a refusal is worded. Problems (RFC 9457) are the rule. A standard that clients are written against may have its own
//! form; then everything under its path is refused in that form, unknown paths and wrong methods too.
use schemars::{Schema, SchemaGenerator};

use crate::fault::{Fault, Problem};

/// Most refusals are shorter, in bytes.
const ROOM: usize = 320;

/// The form of refusals under a path; a feature says so with [`Routes::worded`](super::Routes::worded).
pub trait Wording: Sync {
    fn content_type(&self) -> &'static str;
    /// The name of [`schema`](Self::schema) in the description; ends in `Error` by custom.
    fn schema_name(&self) -> &'static str;
    fn schema(&self, generator: SchemaGenerator) -> Schema;
    /// The member of a refusal that clients branch on.
    fn member(&self) -> &'static str;
    /// What that member says for a code; nothing where it is left out.
    fn word<'a>(&self, code: &'a str, status: u16) -> Option<&'a str>;
    /// The body of a refusal.
    fn write(&self, fault: &Fault, request_id: &str, body: &mut Vec<u8>) -> serde_json::Result<()>;
    /// Whether answers may be kept for a client that sends the same request again.
    fn keeps_answers(&self) -> bool {
        true
    }
}

struct Problems;

impl Wording for Problems {
    fn content_type(&self) -> &'static str {
        "application/problem+json"
    }

    fn schema_name(&self) -> &'static str {
        "Problem"
    }

    fn schema(&self, generator: SchemaGenerator) -> Schema {
        generator.into_root_schema_for::<Problem<'_>>()
    }

    fn member(&self) -> &'static str {
        "code"
    }

    fn word<'a>(&self, code: &'a str, _: u16) -> Option<&'a str> {
        Some(code)
    }

    fn write(&self, fault: &Fault, request_id: &str, body: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(body, &fault.problem(request_id))
    }
}

pub(super) static PROBLEMS: &dyn Wording = &Problems;

/// Which wording counts under which path.
#[derive(Clone, Default)]
pub(super) struct Wordings(Vec<(&'static str, &'static dyn Wording)>);

impl Wordings {
    pub(super) fn put(&mut self, root: &'static str, wording: &'static dyn Wording) {
        self.0.push((root, wording));
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(super) fn of(&self, path: &str) -> &'static dyn Wording {
        let is_under =
            |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.0.iter().find(|(root, _)| is_under(root)).map_or(PROBLEMS, |(_, wording)| *wording)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &'static dyn Wording> {
        [PROBLEMS].into_iter().chain(self.0.iter().map(|(_, wording)| *wording))
    }
}

pub(super) fn body(wording: &dyn Wording, fault: &Fault, request_id: &str) -> Vec<u8> {
    let mut body = Vec::with_capacity(ROOM);
    if let Err(error) = wording.write(fault, request_id, &mut body) {
        tracing::error!(%error, "cannot format an error");
    }
    body
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A form with a member that only some codes have.
    pub(crate) struct Letters;

    impl Wording for Letters {
        fn content_type(&self) -> &'static str {
            "application/letters+json"
        }
        fn schema_name(&self) -> &'static str {
            "LetterError"
        }
        fn schema(&self, generator: SchemaGenerator) -> Schema {
            generator.into_root_schema_for::<String>()
        }
        fn member(&self) -> &'static str {
            "letter"
        }
        fn word<'a>(&self, code: &'a str, _: u16) -> Option<&'a str> {
            match code {
                "invalid" | "malformed" => Some("x"),
                "conflict" => None,
                code => Some(code),
            }
        }
        fn write(&self, _: &Fault, _: &str, _: &mut Vec<u8>) -> serde_json::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_path_decides_how_it_is_refused() {
        let mut wordings = Wordings::default();
        wordings.put("/letters", &Letters);
        for (path, name) in [
            ("/letters", "LetterError"),
            ("/letters/1", "LetterError"),
            ("/lettersx", "Problem"),
            ("/auth/letters", "Problem"),
        ] {
            assert_eq!(wordings.of(path).schema_name(), name, "{path}");
        }
    }
}
