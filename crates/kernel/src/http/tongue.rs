//! How a refusal is worded. Problems (RFC 9457) are the rule; where a standard that clients are written against has its
//! own form, everything under its address speaks that, unknown paths and wrong methods too.
use schemars::{Schema, SchemaGenerator};

use crate::fault::{Fault, OAuthError, Problem, ScimError, oauth_word, scim_word};

/// Most refusals are shorter, in bytes.
const ROOM: usize = 320;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tongue {
    Problem,
    OAuth,
    Scim,
}

impl Tongue {
    pub(super) const ALL: [Self; 3] = [Self::Problem, Self::OAuth, Self::Scim];

    pub(super) fn of(path: &str) -> Self {
        let under = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        match path {
            _ if under("/oauth") => Self::OAuth,
            _ if under("/scim/v2") => Self::Scim,
            _ => Self::Problem,
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::Problem => "application/problem+json",
            Self::OAuth => "application/json",
            Self::Scim => "application/scim+json",
        }
    }

    pub(super) fn schema_name(self) -> &'static str {
        match self {
            Self::Problem => "Problem",
            Self::OAuth => "OAuthError",
            Self::Scim => "ScimError",
        }
    }

    /// The member of a refusal that clients branch on.
    pub(super) fn member(self) -> &'static str {
        match self {
            Self::Problem => "code",
            Self::OAuth => "error",
            Self::Scim => "scimType",
        }
    }

    /// What that member says for a code; nothing where it is left out.
    pub(super) fn word(self, code: &str, status: u16) -> Option<&str> {
        match self {
            Self::Problem => Some(code),
            Self::OAuth => Some(oauth_word(code, status)),
            Self::Scim => scim_word(code),
        }
    }

    pub(super) fn schema(self, generator: SchemaGenerator) -> Schema {
        match self {
            Self::Problem => generator.into_root_schema_for::<Problem<'_>>(),
            Self::OAuth => generator.into_root_schema_for::<OAuthError>(),
            Self::Scim => generator.into_root_schema_for::<ScimError>(),
        }
    }

    /// The body of a refusal.
    pub(super) fn say(self, fault: &Fault, request_id: &str) -> Vec<u8> {
        let mut body = Vec::with_capacity(ROOM);
        let said = match self {
            Self::Problem => serde_json::to_writer(&mut body, &fault.problem(request_id)),
            Self::OAuth => serde_json::to_writer(&mut body, &fault.oauth_error()),
            Self::Scim => serde_json::to_writer(&mut body, &fault.scim_error()),
        };
        if let Err(error) = said {
            tracing::error!(%error, "a refusal cannot be put into words");
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_decides_how_it_is_refused() {
        for (path, tongue) in [
            ("/oauth/token", Tongue::OAuth),
            ("/oauthx", Tongue::Problem),
            ("/scim/v2", Tongue::Scim),
            ("/scim/v2/Users/1", Tongue::Scim),
            ("/scim/v20", Tongue::Problem),
            ("/auth/oauth/google", Tongue::Problem),
        ] {
            assert_eq!(Tongue::of(path), tongue, "{path}");
        }
    }
}
