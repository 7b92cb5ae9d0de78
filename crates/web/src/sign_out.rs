//! Leaving: a client asks for it, or the person comes here by themselves.
use axum::{
    extract::{RawQuery, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use identity::oauth::logout::Request;
use kernel::{
    Janua,
    fault::{CROSS_SITE, Result},
    http::Routes,
};
use minijinja::context;
use tenancy::enter::{Browser, Session, cookies};

use crate::{
    brand::Brand,
    form::{Fields, OwnPage},
    page::{go, note_to, page_onward, pages, shown},
};

pub fn routes() -> Routes {
    pages("oauth")
        .body_limit(64 * 1024)
        .get("/oauth/logout", logout_page, "sign out for a client (RP-initiated logout)")
        .post("/oauth/logout", logout_by_post, "sign out for a client, with the parameters in a form")
        .fails(&[CROSS_SITE])
}

async fn logout_page(State(janua): State<Janua>, Browser(who): Browser, RawQuery(query): RawQuery) -> Response {
    shown(&janua, ask(&janua, who.as_ref(), &query.unwrap_or_default()).await)
}

async fn ask(janua: &Janua, who: Option<&Session>, query: &str) -> Result<Response> {
    let request = Request::read(janua, query).await?;
    if request.is_sure(who) {
        return leave(janua, who, request).await;
    }
    let client = request.client.as_ref().map(|client| client.name.as_str());
    let brand = request.client.as_ref().and_then(|client| Brand::of(janua, client));
    let content = context! { client, brand => brand.as_ref(), request => query };
    Ok(page_onward(janua, StatusCode::OK, "sign_out.html", content, request.back()))
}

/// A client's form is asked like a link; our own page's button means it.
async fn logout_by_post(
    State(janua): State<Janua>,
    Browser(who): Browser,
    headers: HeaderMap,
    form: Fields,
) -> Result<Response> {
    if !form.says("sure") {
        return Ok(go(&format!("{}/oauth/logout?{}", janua.config.base_url(), form.query())));
    }
    OwnPage::check(&janua, &headers)?;
    let request = Request::read(&janua, form.get("request")).await?;
    leave(&janua, who.as_ref(), request).await
}

async fn leave(janua: &Janua, who: Option<&Session>, request: Request) -> Result<Response> {
    let mut response = match request.leave(janua, who).await? {
        Some(back) => go(&back),
        None => note_to(janua, "You are signed out", "You can close this page.", ("Sign in again", "/sign-in")),
    };
    cookies::clear_session(janua, response.headers_mut());
    Ok(response)
}
