//! Signing in with an account elsewhere: sent there by a button, and back here.
use axum::{
    extract::{RawQuery, State},
    http::HeaderMap,
    response::Response,
};
use data_encoding::BASE64URL_NOPAD;
use identity::social::{self, Back};
use kernel::{
    Janua,
    fault::{Code, NOT_FOUND, Result},
    http::{Path, Routes},
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    enter::{Delivery, ToAdmit, Visitor, cookies},
    sessions::sign_in::Typed,
};

use crate::{
    captcha,
    form::{Fields, OwnPage},
    onward::Onward,
    page::{go, noted, pages, parameter, status_of},
    recover::to_sign_in,
};

pub fn routes() -> Routes {
    pages("pages")
        .body_limit(64 * 1024)
        .get("/sign-in/with", to_sign_in, "to the sign-in page")
        .named("leave_sign_in_with")
        .post("/sign-in/with", leave, "go to a provider, from the sign-in page")
        .get("/sign-in/{provider}", come_back, "return from a provider")
        .fails(&[NOT_FOUND])
        .and(by_post())
}

/// Sends the browser to the page, and answers none itself.
fn by_post() -> Routes {
    Routes::new("pages")
        .body_limit(64 * 1024)
        .post("/sign-in/{provider}", come_back_by_post, "return from a provider that sends a form")
        .fails(&[NOT_FOUND])
        .answers_nothing(303)
}

const TURNED_BACK: Code =
    Code::new(400, "provider_turned_back", "The provider did not sign you in. Try again or use another way.");

async fn leave(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    headers: HeaderMap,
    form: Fields,
) -> Response {
    let onward = Onward::read(&janua, &headers, form.get("continue")).await;
    let sent: Result<Response> = async {
        captcha::solved(&janua, &mut visitor, &form).await?;
        visitor.admit(&janua, None).await?;
        // Where somebody was going comes back with them: nobody but this browser can say it.
        let state = format!("{}.{}", janua.entropy.token().expose(), BASE64URL_NOPAD.encode(onward.to.as_bytes()));
        let (url, cookie) = social::begin(&janua, &visitor, form.get("provider"), None, Some(state)).await?;
        let mut response = go(&url);
        response.headers_mut().extend(cookie);
        Ok(response)
    }
    .await;
    sent.unwrap_or_else(|fault| onward.sign_in_page(&janua, status_of(&fault), "", Some(&fault)))
}

#[derive(Deserialize, JsonSchema)]
struct ByProvider {
    provider: String,
}

async fn come_back(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    headers: HeaderMap,
    Path(path): Path<ByProvider>,
    RawQuery(query): RawQuery,
) -> Response {
    let state = parameter(query.as_deref(), "state");
    let to = state.split_once('.').and_then(|(_, to)| BASE64URL_NOPAD.decode(to.as_bytes()).ok()).unwrap_or_default();
    let onward = Onward::read(&janua, &headers, &String::from_utf8_lossy(&to)).await;
    let entered = enter(&janua, &visitor, &headers, (&path.provider, &onward), query.as_deref()).await;
    // Another way to sign in is a click away, and leads where this one would have.
    entered.unwrap_or_else(|fault| {
        noted(&fault);
        onward.sign_in_page(&janua, status_of(&fault), "", Some(&fault))
    })
}

async fn enter(
    janua: &Janua,
    visitor: &Visitor,
    headers: &HeaderMap,
    (provider, onward): (&str, &Onward),
    query: Option<&str>,
) -> Result<Response> {
    captcha::weigh(janua, visitor).await?;
    let (code, state, user) = (parameter(query, "code"), parameter(query, "state"), parameter(query, "user"));
    if code.is_empty() {
        return Err(TURNED_BACK.into());
    }
    let back = Back {
        code: Typed(code.into()),
        state: Some(Typed(state.into())),
        redirect_uri: None,
        user: Some(user).filter(|user| !user.is_empty()),
    };
    let (entered, _) = social::complete(janua, visitor, headers, provider, back, Delivery::Cookie).await?;
    let mut response = onward.enter_or_ask(janua, entered, provider).await?;
    cookies::clear_social(janua, response.headers_mut());
    Ok(response)
}

/// From another site a form brings no cookies along, so it comes again as a link.
async fn come_back_by_post(
    State(janua): State<Janua>,
    Path(path): Path<ByProvider>,
    form: Fields,
) -> Result<Response> {
    let is_known = social::offered(&janua).iter().any(|offered| offered.name == path.provider);
    if !is_known {
        return Err(NOT_FOUND.into());
    }
    Ok(go(&format!("{}/sign-in/{}?{}", janua.config.base_url(), path.provider, form.query())))
}
