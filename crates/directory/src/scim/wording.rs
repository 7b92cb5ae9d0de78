//! How refusals look where SCIM's standard says how (RFC 7644, 3.12).
use kernel::{fault::Fault, http::Wording};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ScimError {
    schemas: [&'static str; 1],
    /// The HTTP status again, as text.
    status: String,
    /// One of the standard's words, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    scim_type: Option<&'static str>,
    detail: String,
}

pub struct Scim;

impl Wording for Scim {
    fn content_type(&self) -> &'static str {
        "application/scim+json"
    }

    fn schema_name(&self) -> &'static str {
        "ScimError"
    }

    fn schema(&self, generator: SchemaGenerator) -> Schema {
        generator.into_root_schema_for::<ScimError>()
    }

    fn member(&self) -> &'static str {
        "scimType"
    }

    fn word<'a>(&self, code: &'a str, _: u16) -> Option<&'a str> {
        word(code)
    }

    fn write(&self, fault: &Fault, _: &str, body: &mut Vec<u8>) -> serde_json::Result<()> {
        let code = fault.code();
        let error = ScimError {
            schemas: ["urn:ietf:params:scim:api:messages:2.0:Error"],
            status: code.status.to_string(),
            scim_type: word(code.name),
            detail: fault.whole_sentence(),
        };
        serde_json::to_writer(body, &error)
    }
}

/// The standard's word for a code, where it has one.
fn word(code: &str) -> Option<&'static str> {
    match code {
        "invalid_filter" => Some("invalidFilter"),
        "invalid_path" => Some("invalidPath"),
        "invalid_value" => Some("invalidValue"),
        "no_target" => Some("noTarget"),
        "mutability" => Some("mutability"),
        "uniqueness" => Some("uniqueness"),
        "invalid" | "malformed" => Some("invalidSyntax"),
        _ => None,
    }
}
