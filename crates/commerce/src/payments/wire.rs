//! Requests to the processor in its own form. Both drivers speak it: Stripe over HTTPS, the sandbox inside of the process.
use std::{pin::Pin, time::Duration};

use kernel::{
    Janua,
    fault::{Code, Fault},
    jobs::Later,
};
use serde_json::Value;

pub const REFUSED: Code = Code::new(502, "processor_refused", "The payment processor refused the request.");
pub const AWAY: Code =
    Code::new(503, "processor_unavailable", "The payment processor does not answer. Try again shortly.");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
    Delete,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Wire {
    pub verb: Verb,
    pub path: String,
    /// Names as the processor writes them: `items[0][price]`.
    pub params: Vec<(String, String)>,
    /// A request that is repeated with the same key takes effect once.
    pub key: Option<String>,
    /// The merchant's account in whose name it is made.
    pub account: Option<String>,
}

impl Wire {
    pub fn new(verb: Verb, path: impl Into<String>) -> Self {
        Self { verb, path: path.into(), params: vec![], key: None, account: None }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Verb::Get, path)
    }

    pub fn post(path: impl Into<String>, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..Self::new(Verb::Post, path) }
    }

    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "callers give texts, numbers and ids alike")]
    pub fn with(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.params.push((name.into(), value.to_string()));
        self
    }

    #[must_use]
    pub fn with_some(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    #[must_use]
    pub fn for_account(mut self, account: Option<&str>) -> Self {
        self.account = account.map(str::to_owned);
        self
    }
}

/// Why there is no answer to go on with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// Out of reach, busy or broken: whether it took effect is not known. The same request may be repeated.
    #[error("the processor is away: {cause}")]
    Away { cause: String, after: Option<Duration> },
    #[error("the processor refuses: {code}: {message}")]
    Refused { code: String, message: String },
    #[error("the processor does not know it")]
    Missing,
}

impl NoAnswer {
    #[expect(clippy::needless_pass_by_value, reason = "callers give texts, numbers and ids alike")]
    pub fn away(cause: impl ToString) -> Self {
        Self::Away { cause: cause.to_string(), after: None }
    }

    pub fn refused(code: &str, message: impl Into<String>) -> Self {
        Self::Refused { code: code.to_owned(), message: message.into() }
    }
}

impl From<NoAnswer> for Fault {
    fn from(why: NoAnswer) -> Self {
        match &why {
            NoAnswer::Away { after, .. } => AWAY.caused_by(&why).retry_after(after.unwrap_or(Duration::from_secs(5))),
            NoAnswer::Refused { message, .. } => REFUSED.because(message.clone()),
            NoAnswer::Missing => REFUSED.because("The processor does not know this any more."),
        }
    }
}

impl From<NoAnswer> for Later {
    fn from(why: NoAnswer) -> Self {
        match &why {
            NoAnswer::Away { after: Some(after), .. } => Self::retry_after(&why, *after),
            _ => Self::retry(&why),
        }
    }
}

pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Value, NoAnswer>> + Send + 'a>>;

/// A way to the processor.
pub trait Transport: Send + Sync {
    fn call<'a>(&'a self, janua: &'a Janua, request: Wire) -> Answering<'a>;
}
