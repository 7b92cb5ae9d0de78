//! The page behind the link that proves an email. A program that asks for JSON confirms with the same URL.
//!
//! In the browser that signed up, the link confirms the email, signs the person in and leads on to where they were going.
//! In any other browser a page asks first, because a mail scanner that looks at the link must not use it up, and the
//! person signs in afterwards: the link alone, good for 24 hours, opens no account.
use axum::{
    extract::State,
    http::{HeaderMap, Method, StatusCode},
    response::{IntoResponse as _, Response},
};
use identity::register::{self, Confirmed, VERIFY_EMAIL, Verified};
use kernel::{
    Janua,
    crypto::Secret,
    fault::Result,
    http::{Form, Json, Query, Routes},
};
use minijinja::context;
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    enter::{Admitted, Visitor},
    once::{self, TOKEN_SPENT},
    sessions::sign_in::Typed,
};
use url::form_urlencoded::Serializer;

use crate::{
    began::{Began, RequestedMail, only_looks},
    check_email::expired,
    form::OwnPage,
    onward::Onward,
    page::{HTML, go},
};

pub fn routes() -> Routes {
    Routes::new("auth")
        .body_limit(256 * 1024)
        .get("/auth/verify", verify_link, "verify an email-link token; a browser is asked to confirm")
        .answers::<Verified>(200, "application/json")
        .answers::<String>(200, HTML)
        .answers::<String>(410, HTML)
        .answers_nothing(303)
        .fails(&[TOKEN_SPENT])
        .post("/auth/verify", confirm_link, "the confirm button of the page behind the link")
        .unkept()
        .answers::<String>(200, HTML)
        .answers::<String>(410, HTML)
        .answers_nothing(303)
        .fails(&[TOKEN_SPENT])
}

#[derive(Deserialize, JsonSchema)]
struct Link {
    token: Typed,
}

/// A program that asks for JSON means it. The browser that signed up does, too: a scanner does not have its cookie.
async fn verify_link(
    State(janua): State<Janua>,
    Admitted(visitor): Admitted,
    method: Method,
    headers: HeaderMap,
    Query(Link { token: Typed(token) }): Query<Link>,
) -> Result<Response> {
    let accepted = headers.get("accept").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (only_looks, is_browser) = (only_looks(&method, &headers), accepted.contains("text/html"));
    if !only_looks && !is_browser {
        let confirmed = register::by_token(&janua, &visitor, &token, None).await?.ok_or(TOKEN_SPENT)?;
        return Ok(Json(confirmed.verified).into_response());
    }
    let browser = Began::read(&janua, &headers).map(|began| began.secret());
    let (onward, is_same) = Onward::of_mail(&janua, &headers, (VERIFY_EMAIL, &token), browser.as_ref()).await?;
    if is_same && !only_looks {
        return confirm(&janua, &visitor, &headers, &token, &onward).await;
    }
    if once::look(&janua.db, VERIFY_EMAIL, &token, janua.clock.now()).await?.is_none() {
        return Ok(expired(&janua, &headers, RequestedMail::Confirmation, &onward));
    }
    Ok(onward.page(&janua, StatusCode::OK, "verify.html", context! { token => token.expose() }))
}

async fn confirm_link(
    State(janua): State<Janua>,
    _: OwnPage,
    Admitted(visitor): Admitted,
    headers: HeaderMap,
    Form(Link { token: Typed(token) }): Form<Link>,
) -> Result<Response> {
    let (onward, _) = Onward::of_mail(&janua, &headers, (VERIFY_EMAIL, &token), None).await?;
    confirm(&janua, &visitor, &headers, &token, &onward).await
}

async fn confirm(
    janua: &Janua,
    visitor: &Visitor,
    headers: &HeaderMap,
    token: &Secret,
    onward: &Onward,
) -> Result<Response> {
    let browser = Began::read(janua, headers).map(|began| began.secret());
    match register::by_token(janua, visitor, token, browser.as_ref()).await? {
        Some(confirmed) => go_on(janua, onward, confirmed).await,
        None => Ok(expired(janua, headers, RequestedMail::Confirmation, onward)),
    }
}

/// On to where the person was going, or to the sign-in page on the way there, with the email filled in.
pub async fn go_on(janua: &Janua, onward: &Onward, confirmed: Confirmed) -> Result<Response> {
    match confirmed.entered {
        Some(entered) => onward.enter_or_ask(janua, entered, "").await,
        None => {
            let mut query = Serializer::new("/sign-in?done=confirmed".to_owned());
            if let Some(email) = &confirmed.verified.email {
                query.append_pair("email", email);
            }
            Ok(go(&query.append_pair("continue", &onward.to).finish()))
        }
    }
}
