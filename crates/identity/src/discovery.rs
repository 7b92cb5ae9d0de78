//! What verifiers of our tokens need to know. It says only what exists.
use axum::{
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use kernel::{
    App,
    http::{Json, Routes},
};
use serde_json::json;
use tenancy::keys::Ring;

pub fn routes() -> Routes {
    Routes::new("discovery")
        .get("/.well-known/jwks.json", jwks, "public key set for token verification")
        .answers::<Anything>(200, "application/json")
        .get("/.well-known/openid-configuration", configuration, "OpenID Connect discovery document")
        .answers::<Anything>(200, "application/json")
}

type Anything = std::collections::BTreeMap<String, serde_json::Value>;

/// Verifiers may keep the key set for five minutes.
fn cached(body: impl serde::Serialize) -> Response {
    let mut response = Json(body).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    response
}

async fn jwks(State(app): State<App>) -> Response {
    cached(app.own::<Ring>().jwks(&app))
}

async fn configuration(State(app): State<App>) -> Response {
    let base = app.config.base_url();
    cached(json!({
        "issuer": base,
        "jwks_uri": format!("{base}/.well-known/jwks.json"),
        "token_endpoint": format!("{base}/oauth/token"),
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
        "grant_types_supported":
            ["refresh_token", "client_credentials", "urn:ietf:params:oauth:grant-type:device_code"],
        "device_authorization_endpoint": format!("{base}/auth/device/code"),
        "userinfo_endpoint": format!("{base}/oauth/userinfo"),
        "introspection_endpoint": format!("{base}/oauth/introspect"),
        "introspection_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        "revocation_endpoint": format!("{base}/oauth/revoke"),
        "revocation_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "subject_types_supported": ["public"],
        "claims_supported": ["iss", "sub", "sid", "jti", "iat", "exp", "email", "orgId", "orgSlug", "role", "aud", "appId"],
    }))
}
