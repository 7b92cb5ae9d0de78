//! The page behind the link that proves an email. A program that asks for JSON confirms with the same URL.
use axum::{
    extract::State,
    http::{HeaderMap, Method, StatusCode},
    response::{IntoResponse as _, Response},
};
use identity::register::{self, Verified};
use kernel::{
    Janua,
    fault::Result,
    http::{Form, Json, Query, Routes},
};
use minijinja::context;
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{enter::Admitted, once::TOKEN_SPENT, sessions::sign_in::Typed};

use crate::page::{HTML, page};

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(256 * 1024)
        .get("/auth/verify", verify_link, "verify an email-link token; a browser is asked to confirm")
        .answers::<Verified>(200, "application/json")
        .answers::<String>(200, HTML)
        .fails(&[TOKEN_SPENT])
        .post("/auth/verify", confirm_link, "the confirm button of the page behind the link")
        .unkept()
        .answers::<String>(200, HTML)
        .answers::<String>(410, HTML)
        .fails(&[TOKEN_SPENT])
}

#[derive(Deserialize, JsonSchema)]
struct Link {
    token: Typed,
}

/// A mail scanner that looks at the link must not use it up: a HEAD, a prefetch or a browser gets a page with a button;
/// a program that asks for JSON means it.
async fn verify_link(
    State(janua): State<Janua>,
    Admitted(visitor): Admitted,
    method: Method,
    headers: HeaderMap,
    Query(link): Query<Link>,
) -> Result<Response> {
    let text =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_lowercase();
    let only_looks = method == Method::HEAD
        || ["purpose", "sec-purpose", "x-purpose", "x-moz"].iter().any(|name| text(name).contains("prefetch"));
    if only_looks || text("accept").contains("text/html") {
        let content = context! { state => "ask", token => link.token.0.expose() };
        return Ok(page(&janua, StatusCode::OK, "verify.html", content));
    }
    let verified = register::by_token(&janua, &visitor, &link.token.0).await?.ok_or(TOKEN_SPENT)?;
    Ok(Json(verified).into_response())
}

async fn confirm_link(
    State(janua): State<Janua>,
    Admitted(visitor): Admitted,
    Form(link): Form<Link>,
) -> Result<Response> {
    let (status, state) = match register::by_token(&janua, &visitor, &link.token.0).await? {
        Some(_) => (StatusCode::OK, "done"),
        None => (StatusCode::GONE, "spent"),
    };
    Ok(page(&janua, status, "verify.html", context! { state, token => "" }))
}
