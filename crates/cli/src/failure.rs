//! Why a command failed, and its exit code.
use std::{io, process::ExitCode};

use serde_json::{Value, json};

use crate::profile;

pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// The exit codes are documented: scripts branch on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The command failed.
    Failed = 1,
    /// The command line is wrong or incomplete.
    Usage = 2,
    /// Not signed in, or not allowed.
    Auth = 4,
    /// A limit was reached: requests, a quota, a plan.
    Limit = 5,
}

#[derive(Debug)]
pub struct Failure {
    pub kind: Kind,
    pub code: String,
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// The server's answer, if it was one that refused.
    pub problem: Option<Box<Value>>,
}

impl Failure {
    fn new(kind: Kind, code: &str, message: impl Into<String>) -> Self {
        Self { kind, code: code.into(), message: message.into(), hint: None, problem: None }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Kind::Failed, "failed", message)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, "usage", message)
    }

    pub fn auth(message: impl Into<String>) -> Self {
        Self::new(Kind::Auth, "unauthenticated", message)
    }

    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The failure behind a refusal of the server.
    pub fn refused(status: u16, problem: Value) -> Self {
        let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
        let code = if text("code").is_empty() { format!("http_{status}") } else { text("code") };
        let limit = ["limit_reached", "quota_exceeded"];
        let kind = match status {
            401 | 403 => Kind::Auth,
            402 | 429 => Kind::Limit,
            _ if limit.contains(&code.as_str()) || code.starts_with("too_many") => Kind::Limit,
            _ => Kind::Failed,
        };
        let title = if text("title").is_empty() { format!("the server answered {status}") } else { text("title") };
        let mut message = if text("detail").is_empty() { title } else { text("detail") };
        for error in problem["errors"].as_array().into_iter().flatten() {
            let part = |name: &str| error[name].as_str().unwrap_or_default();
            for piece in ["\n  ", part("field"), ": ", part("message")] {
                message.push_str(piece);
            }
        }
        let hint = next_step(&code, profile::variable("JANUA_TOKEN").as_deref()).map(str::to_owned);
        Self { kind, code, message, hint, problem: Some(Box::new(problem)) }
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }

    pub fn to_json(&self) -> Value {
        match &self.problem {
            Some(problem) if problem.is_object() => json!({ "error": problem }),
            _ => json!({ "error": { "code": self.code, "message": self.message, "hint": self.hint } }),
        }
    }
}

/// What to do after a refusal. `token` is that of the environment.
fn next_step(code: &str, token: Option<&str>) -> Option<&'static str> {
    Some(match (code, token) {
        ("unauthenticated", None) => "Run `janua login`, or set JANUA_TOKEN.",
        // `login` refuses while the variable is set.
        ("unauthenticated", Some(token)) if token.starts_with("sk_") => {
            "JANUA_TOKEN is a secret key. It was revoked, or this command needs an access token."
        }
        ("unauthenticated", Some(_)) => "JANUA_TOKEN is invalid or has expired.",
        // On a terminal the command asks for a proof where it can; see `proof`.
        ("reauthentication_required", _) => {
            "Use the console, or set JANUA_TOKEN to an access token of a sign-in in the last ten minutes."
        }
        ("not_found", _) => "Check the ID; `janua whoami` shows the server, app and organization in use.",
        _ => return None,
    })
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::failed(format!("not JSON: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_follow_from_the_refusal() {
        let kind = |status, code: &str| Failure::refused(status, json!({ "code": code })).kind;
        assert_eq!(kind(401, "unauthenticated"), Kind::Auth);
        assert_eq!(kind(403, "forbidden"), Kind::Auth);
        assert_eq!(kind(402, "quota_exceeded"), Kind::Limit);
        assert_eq!(kind(409, "too_many_webhooks"), Kind::Limit);
        assert_eq!(kind(429, "rate_limited"), Kind::Limit);
        assert_eq!(kind(404, "not_found"), Kind::Failed);
        assert_eq!(Kind::Limit as u8, 5);
    }

    #[test]
    fn a_refusal_says_what_to_do_next() {
        let says = |code, token, words: &str| next_step(code, token).is_some_and(|hint| hint.contains(words));
        assert!(says("unauthenticated", None, "janua login"));
        assert!(says("unauthenticated", Some("ey.ey.sig"), "JANUA_TOKEN is invalid or has expired."));
        assert!(says("unauthenticated", Some("sk_live_x"), "needs an access token"));
        assert!(says("reauthentication_required", None, "in the last ten minutes"));
        assert!(says("not_found", None, "janua whoami"));
        assert_eq!(next_step("forbidden", None), None);
    }

    #[test]
    fn every_bad_field_is_named() {
        let errors =
            json!([{ "field": "name", "message": "is required" }, { "field": "slug", "message": "is taken" }]);
        let failure = Failure::refused(400, json!({ "title": "Some fields are invalid.", "errors": errors }));
        assert_eq!(failure.message, "Some fields are invalid.\n  name: is required\n  slug: is taken");
    }
}
