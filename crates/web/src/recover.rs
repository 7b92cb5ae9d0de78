//! What mails lead to: signing in by a link, and choosing another password.
use axum::{
    extract::{RawQuery, State},
    http::{HeaderMap, Method, StatusCode},
    response::Response,
};
use identity::{
    magic_link::{self, MAGIC_LINK},
    password::{self, RESET_PASSWORD},
    people::ACCOUNT_INVITE,
};
use kernel::{
    Janua,
    crypto::Secret,
    fault::{Fault, Result},
    http::Routes,
};
use minijinja::context;
use tenancy::{
    enter::{Delivery, ToAdmit, Visitor},
    once::{self, TOKEN_SPENT},
    sessions::sign_in::Typed,
};

use crate::{
    began::{Began, RequestedMail, only_looks},
    captcha,
    check_email::{expired, request, wait},
    form::{Fields, OwnPage},
    onward::{Onward, refused},
    page::{go, pages, parameter, shown, status_of},
};

pub fn routes() -> Routes {
    pages("pages")
        .body_limit(64 * 1024)
        .get("/forgot-password", forgot_page, "the page to request a password reset link")
        .post("/forgot-password", forgot, "mail a link to choose another password")
        .get("/auth/reset-password", reset_page, "the page behind the link to choose another password")
        .get("/reset-password", to_forgot, "leads to the page to request a password reset link")
        .post("/reset-password", reset, "submit another password")
        .get("/sign-in/link", to_sign_in, "leads to the sign-in page")
        .named("leave_sign_in_link")
        .post("/sign-in/link", send_link, "mail a sign-in link, from the sign-in page")
        .get("/auth/magic-link/verify", follow_page, "the page behind a sign-in link, with a button")
        .get("/sign-in/follow", to_sign_in, "leads to the sign-in page")
        .named("leave_sign_in_follow")
        .post("/sign-in/follow", follow, "sign in with a sign-in link")
}

/// The URL to which a form of the sign-in pages is sent was opened by itself.
pub async fn to_sign_in() -> Response {
    go("/sign-in")
}

async fn to_forgot() -> Response {
    go("/forgot-password")
}

fn forgot_form(janua: &Janua, status: StatusCode, onward: &Onward, email: &str, fault: Option<&Fault>) -> Response {
    onward.page(janua, status, "forgot.html", context! { email, ..refused(fault) })
}

async fn forgot_page(State(janua): State<Janua>, headers: HeaderMap, RawQuery(query): RawQuery) -> Response {
    let onward = Onward::asked(&janua, &headers, query.as_deref()).await;
    forgot_form(&janua, StatusCode::OK, &onward, "", None)
}

/// Requests a mail for what was typed into a form.
async fn ask(
    janua: &Janua,
    visitor: &mut Visitor,
    headers: &HeaderMap,
    fields: &Fields,
    (mail, onward): (RequestedMail, &Onward),
) -> Result<Response> {
    captcha::solved(janua, visitor, fields).await?;
    let email = fields.email()?;
    let began = Began::new(janua, headers, email.as_str(), mail);
    request(janua, visitor, &email, &began, onward).await?;
    Ok(wait(janua, &began, onward, false))
}

async fn forgot(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    headers: HeaderMap,
    fields: Fields,
) -> Response {
    let onward = Onward::read(&janua, &headers, fields.get("continue")).await;
    let asked = ask(&janua, &mut visitor, &headers, &fields, (RequestedMail::NewPassword, &onward)).await;
    asked.unwrap_or_else(|fault| forgot_form(&janua, status_of(&fault), &onward, fields.get("email"), Some(&fault)))
}

async fn send_link(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    headers: HeaderMap,
    fields: Fields,
) -> Response {
    let onward = Onward::read(&janua, &headers, fields.get("continue")).await;
    let asked = ask(&janua, &mut visitor, &headers, &fields, (RequestedMail::SignInLink, &onward)).await;
    asked.unwrap_or_else(|fault| onward.sign_in_page(&janua, status_of(&fault), fields.get("email"), Some(&fault)))
}

fn reset_form(janua: &Janua, status: StatusCode, onward: &Onward, token: &str, fault: Option<&Fault>) -> Response {
    onward.page(janua, status, "reset.html", context! { token, ..refused(fault) })
}

/// Two mails lead to this page: of a forgotten password, and of an account that a platform owner created or reset.
async fn is_open(janua: &Janua, token: &Secret) -> Result<bool> {
    for purpose in [RESET_PASSWORD, ACCOUNT_INVITE] {
        if once::look(&janua.db, purpose, token, janua.clock.now()).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn reset_page(State(janua): State<Janua>, headers: HeaderMap, RawQuery(query): RawQuery) -> Response {
    let token = Secret::from(parameter(query.as_deref(), "token"));
    let shown_page = async {
        let (onward, _) = Onward::of_mail(&janua, &headers, (RESET_PASSWORD, &token), None).await?;
        if !is_open(&janua, &token).await? {
            return Ok(expired(&janua, &headers, RequestedMail::NewPassword, &onward));
        }
        Ok(reset_form(&janua, StatusCode::OK, &onward, token.expose(), None))
    };
    shown(&janua, shown_page.await)
}

async fn reset(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    headers: HeaderMap,
    fields: Fields,
) -> Response {
    let token = fields.secret("token");
    let read = Onward::of_mail(&janua, &headers, (RESET_PASSWORD, &token.0), None).await;
    let onward = read.map_or_else(|_| Onward::nowhere(), |(onward, _)| onward).in_zone_of(&fields);
    let done: Result<Response> = async {
        captcha::solved(&janua, &mut visitor, &fields).await?;
        let new = fields.secret("password");
        let entered = password::reset(&janua, &visitor, &token, &new, Some(Delivery::Cookie)).await?;
        onward.enter_or_ask(&janua, entered.ok_or(TOKEN_SPENT)?, "password").await
    }
    .await;
    match done {
        Ok(response) => response,
        Err(fault) if fault.code() == TOKEN_SPENT => expired(&janua, &headers, RequestedMail::NewPassword, &onward),
        Err(fault) => reset_form(&janua, status_of(&fault), &onward, fields.get("token"), Some(&fault)),
    }
}

fn follow_form(janua: &Janua, status: StatusCode, onward: &Onward, token: &str, fault: Option<&Fault>) -> Response {
    onward.page(janua, status, "follow.html", context! { token, ..refused(fault) })
}

/// A mail scanner that looks at the link must not use it up, so there is a button; it also says where the link leads, to
/// a person who requested it elsewhere. The browser in which it was requested goes straight on.
async fn follow_page(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    method: Method,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let token = Secret::from(parameter(query.as_deref(), "token"));
    let browser = Began::read(&janua, &headers).map(|began| began.secret());
    let followed = async {
        let (onward, is_same) = Onward::of_mail(&janua, &headers, (MAGIC_LINK, &token), browser.as_ref()).await?;
        let may_enter = captcha::admits(&janua, &visitor).await?;
        if is_same && may_enter && !only_looks(&method, &headers) {
            return Ok(enter(&janua, &visitor, &headers, &onward, &token).await);
        }
        if once::look(&janua.db, MAGIC_LINK, &token, janua.clock.now()).await?.is_none() {
            return Ok(expired(&janua, &headers, RequestedMail::SignInLink, &onward));
        }
        Ok(follow_form(&janua, StatusCode::OK, &onward, token.expose(), None))
    };
    shown(&janua, followed.await)
}

async fn follow(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    headers: HeaderMap,
    fields: Fields,
) -> Response {
    let token = Secret::from(fields.get("token").to_owned());
    let followed = async {
        let (onward, _) = Onward::of_mail(&janua, &headers, (MAGIC_LINK, &token), None).await?;
        let onward = onward.in_zone_of(&fields);
        Ok(match captcha::solved(&janua, &mut visitor, &fields).await {
            Ok(()) => enter(&janua, &visitor, &headers, &onward, &token).await,
            Err(fault) => follow_form(&janua, status_of(&fault), &onward, token.expose(), Some(&fault)),
        })
    };
    shown(&janua, followed.await)
}

async fn enter(janua: &Janua, visitor: &Visitor, headers: &HeaderMap, onward: &Onward, token: &Secret) -> Response {
    let entered: Result<Response> = async {
        let entered = magic_link::follow(janua, visitor, &Typed(token.clone()), Delivery::Cookie).await?;
        onward.enter_or_ask(janua, entered, "link").await
    }
    .await;
    match entered {
        Ok(response) => response,
        Err(fault) if fault.code() == TOKEN_SPENT => expired(janua, headers, RequestedMail::SignInLink, onward),
        Err(fault) => follow_form(janua, status_of(&fault), onward, token.expose(), Some(&fault)),
    }
}
