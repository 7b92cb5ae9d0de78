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
    fault::{Fault, RATE_LIMITED, Result},
    http::{Form, Json, Query, Routes},
};
use minijinja::context;
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{
    enter::{NOT_SOLVED, ToAdmit, Visitor},
    once::{self, TOKEN_SPENT},
    sessions::sign_in::Typed,
};
use url::form_urlencoded::Serializer;

use crate::{
    began::{Began, RequestedMail, only_looks},
    captcha,
    check_email::expired,
    form::OwnPage,
    onward::{Onward, refused},
    page::{HTML, go, status_of},
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
        .post("/auth/verify", confirm_link, "confirm an email from the page behind the link")
        .unkept()
        .answers::<String>(200, HTML)
        .answers::<String>(403, HTML)
        .answers::<String>(410, HTML)
        .answers_nothing(303)
        .fails(&[NOT_SOLVED, TOKEN_SPENT])
}

#[derive(Deserialize, JsonSchema)]
struct Link {
    token: Typed,
}

/// What the button of the page sends.
#[derive(Deserialize, JsonSchema)]
struct Button {
    token: Typed,
    /// The solution of the challenge on the page; empty until the script has found it.
    #[serde(default)]
    captcha: String,
}

fn is_browser(headers: &HeaderMap) -> bool {
    let accepted = headers.get("accept").and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.contains("text/html")
}

/// A program that asks for JSON means it. The browser that signed up does, too: a scanner does not have its cookie.
async fn verify_link(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    method: Method,
    headers: HeaderMap,
    Query(Link { token: Typed(token) }): Query<Link>,
) -> Result<Response> {
    let (only_looks, is_browser) = (only_looks(&method, &headers), is_browser(&headers));
    if !only_looks && !is_browser {
        visitor.admit(&janua, None).await?;
        let confirmed = register::by_token(&janua, &visitor, &token, None).await?.ok_or(TOKEN_SPENT)?;
        return Ok(Json(confirmed.verified).into_response());
    }
    let may_confirm = captcha::admits(&janua, &visitor).await?;
    let browser = Began::read(&janua, &headers).map(|began| began.secret());
    let (onward, is_same) = Onward::of_mail(&janua, &headers, (VERIFY_EMAIL, &token), browser.as_ref()).await?;
    if is_same && may_confirm && !only_looks {
        return confirm(&janua, &visitor, &headers, &token, &onward).await;
    }
    if once::look(&janua.db, VERIFY_EMAIL, &token, janua.clock.now()).await?.is_none() {
        return Ok(expired(&janua, &headers, RequestedMail::Confirmation, &onward));
    }
    Ok(form(&janua, &onward, &token, None))
}

fn form(janua: &Janua, onward: &Onward, token: &Secret, fault: Option<&Fault>) -> Response {
    let status = fault.map_or(StatusCode::OK, status_of);
    onward.page(janua, status, "verify.html", context! { token => token.expose(), ..refused(fault) })
}

async fn confirm_link(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    headers: HeaderMap,
    Form(Button { token: Typed(token), captcha }): Form<Button>,
) -> Result<Response> {
    let (onward, _) = Onward::of_mail(&janua, &headers, (VERIFY_EMAIL, &token), None).await?;
    if let Err(fault) = captcha::admit(&janua, &mut visitor, Some(&Secret::from(captcha))).await {
        let is_page = fault.code() != RATE_LIMITED && is_browser(&headers);
        return if is_page { Ok(form(&janua, &onward, &token, Some(&fault))) } else { Err(fault) };
    }
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
