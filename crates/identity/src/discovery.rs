//! What verifiers of our tokens need to know. It says only what exists.
use std::sync::OnceLock;

use axum::{extract::State, http::HeaderMap, response::Response};
use kernel::{
    Janua,
    http::{Document, Routes},
};
use serde_json::json;
use tenancy::{apps::scopes::Scope, sessions::keys::Ring};

pub fn routes() -> Routes {
    Routes::new("discovery")
        .get("/.well-known/jwks.json", jwks, "public key set for token verification")
        .answers::<Anything>(200, "application/json")
        .answers_nothing(304)
        .for_any_origin()
        .get("/.well-known/openid-configuration", configuration, "OpenID Connect discovery document")
        .answers::<Anything>(200, "application/json")
        .answers_nothing(304)
        .for_any_origin()
        .get("/.well-known/oauth-authorization-server", authorization_server, "OAuth server metadata (RFC 8414)")
        .answers::<Anything>(200, "application/json")
        .answers_nothing(304)
        .for_any_origin()
}

type Anything = std::collections::BTreeMap<String, serde_json::Value>;

/// The metadata, put together once: it follows from the settings, which do not change while the process runs.
#[derive(Default)]
pub struct Metadata(OnceLock<Document>);

async fn jwks(State(janua): State<Janua>, headers: HeaderMap) -> Response {
    janua.own::<Ring>().key_set(&janua).answer(&headers)
}

async fn configuration(State(janua): State<Janua>, headers: HeaderMap) -> Response {
    let make = || Document::new("application/json", metadata(&janua).to_string().into_bytes());
    janua.own::<Metadata>().0.get_or_init(make).answer(&headers)
}

/// The same under the name that OAuth has for it (RFC 8414).
async fn authorization_server(state: State<Janua>, headers: HeaderMap) -> Response {
    configuration(state, headers).await
}

fn metadata(janua: &Janua) -> serde_json::Value {
    let base = janua.config.base_url();
    let mut told = json!({
        "issuer": base,
        "authorization_endpoint": format!("{base}/oauth/authorize"),
        "token_endpoint": format!("{base}/oauth/token"),
        "userinfo_endpoint": format!("{base}/oauth/userinfo"),
        "jwks_uri": format!("{base}/.well-known/jwks.json"),
        "end_session_endpoint": format!("{base}/oauth/logout"),
        "introspection_endpoint": format!("{base}/oauth/introspect"),
        "revocation_endpoint": format!("{base}/oauth/revoke"),
        "device_authorization_endpoint": format!("{base}/auth/device/code"),
        "scopes_supported": Scope::ALL.map(Scope::name),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query", "form_post"],
        "grant_types_supported": [
            "authorization_code",
            "refresh_token",
            "client_credentials",
            "urn:ietf:params:oauth:grant-type:device_code",
        ],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": true,
        "prompt_values_supported": ["none", "login", "consent", "select_account"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
        "introspection_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        "revocation_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "subject_types_supported": ["public"],
        "claims_supported": [
            "iss", "sub", "aud", "exp", "iat", "sid", "auth_time", "amr", "nonce", "at_hash", "name", "picture",
            "updated_at", "email", "email_verified",
        ],
        "claims_parameter_supported": false,
        "request_parameter_supported": false,
        "request_uri_parameter_supported": false,
        "client_id_metadata_document_supported": janua.config.of::<crate::oauth::Settings>().client_documents.is_on(),
    });
    if janua.config.of::<crate::oauth::Settings>().client_registration.is_on() {
        told["registration_endpoint"] = format!("{base}/oauth/register").into();
    }
    told
}
