//! How refusals look where OAuth's standards say how (RFC 6749, 5.2).
use kernel::{fault::Fault, http::Wording};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct OAuthError<'a> {
    /// One of the standard's words where it has one, else the code.
    error: &'a str,
    error_description: String,
}

pub struct OAuth;

impl Wording for OAuth {
    fn content_type(&self) -> &'static str {
        "application/json"
    }

    fn schema_name(&self) -> &'static str {
        "OAuthError"
    }

    fn schema(&self, generator: SchemaGenerator) -> Schema {
        generator.into_root_schema_for::<OAuthError<'_>>()
    }

    fn member(&self) -> &'static str {
        "error"
    }

    fn word<'a>(&self, code: &'a str, status: u16) -> Option<&'a str> {
        Some(word(code, status))
    }

    fn write(&self, fault: &Fault, _: &str, body: &mut Vec<u8>) -> serde_json::Result<()> {
        let error = word(fault.code().name, fault.code().status);
        // The standard allows no quotes and nothing outside ASCII in it.
        let plain = |c: &char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
        let error_description = fault.whole_sentence().chars().filter(plain).collect();
        serde_json::to_writer(body, &OAuthError { error, error_description })
    }

    /// A token endpoint's answer is not for a client that sends the same request again.
    fn keeps_answers(&self) -> bool {
        false
    }
}

/// The standard's word for a code, where it has one, else the code.
fn word(code: &str, status: u16) -> &str {
    match (code, status) {
        ("invalid" | "malformed" | "unsupported_media_type", _) => "invalid_request",
        ("unauthenticated", _) => "invalid_token",
        ("invalid_app_key", _) => "invalid_client",
        (_, 503) => "temporarily_unavailable",
        (_, 500..) => "server_error",
        (name, _) => name,
    }
}
