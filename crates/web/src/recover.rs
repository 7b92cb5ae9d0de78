//! What mails lead to: signing in by a link, and choosing another password.
use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
    response::Response,
};
use identity::{magic_link, password};
use kernel::{
    Janua,
    fault::{Fault, Result},
    http::Routes,
};
use minijinja::{Value, context};
use tenancy::{
    enter::{Delivery, ToAdmit},
    once::TOKEN_SPENT,
};

use crate::{
    captcha,
    form::{Fields, OwnPage},
    page::{by_field, error, note_of, note_to, page, pages, parameter, status_of},
    sign_in::Onward,
};

pub fn routes() -> Routes {
    pages("pages")
        .body_limit(64 * 1024)
        .get("/forgot-password", forgot_page, "the page for who forgot their password")
        .post("/forgot-password", forgot, "what that page sends")
        .get("/auth/reset-password", reset_page, "the page behind the link to choose another password")
        .post("/reset-password", reset, "what that page sends")
        .post("/sign-in/link", send_link, "mail a sign-in link, from the sign-in page")
        .get("/auth/magic-link/verify", follow_page, "the page behind a sign-in link, with a button")
        .post("/sign-in/follow", follow, "what that page sends")
}

/// What every form of these shows when something is wrong.
fn refused(fault: Option<&Fault>) -> Value {
    let errors = fault.map(by_field).unwrap_or_default();
    context! { wrong => fault.map(Fault::above_form), errors, challenge => fault.and_then(captcha::challenge) }
}

fn forgot_form(janua: &Janua, status: StatusCode, onward: &Onward, email: &str, fault: Option<&Fault>) -> Response {
    let content = context! { email, onward => &onward.to, brand => onward.brand(janua).as_ref(), ..refused(fault) };
    page(janua, status, "forgot.html", content)
}

async fn forgot_page(State(janua): State<Janua>, RawQuery(query): RawQuery) -> Response {
    let onward = Onward::read(&janua, &parameter(query.as_deref(), "continue")).await;
    forgot_form(&janua, StatusCode::OK, &onward, "", None)
}

async fn forgot(State(janua): State<Janua>, _: OwnPage, ToAdmit(mut visitor): ToAdmit, fields: Fields) -> Response {
    let onward = Onward::read(&janua, fields.get("continue")).await;
    visitor.destination = onward.app();
    let asked: Result<()> = async {
        captcha::solved(&janua, &mut visitor, &fields).await?;
        password::forget(&janua, &visitor, &fields.email()?).await.map(drop)
    }
    .await;
    match asked {
        Ok(()) => on_its_way(&janua, &onward),
        Err(fault) => forgot_form(&janua, status_of(&fault), &onward, fields.get("email"), Some(&fault)),
    }
}

/// The same whether or not there is an account.
fn on_its_way(janua: &Janua, onward: &Onward) -> Response {
    note_of(
        janua,
        onward.brand(janua).as_ref(),
        "Check your email",
        "If this email has an account, we sent it a link. The link expires soon.",
    )
}

fn reset_form(janua: &Janua, status: StatusCode, token: &str, fault: Option<&Fault>) -> Response {
    page(janua, status, "reset.html", context! { token, ..refused(fault) })
}

async fn reset_page(State(janua): State<Janua>, RawQuery(query): RawQuery) -> Response {
    reset_form(&janua, StatusCode::OK, &parameter(query.as_deref(), "token"), None)
}

async fn reset(State(janua): State<Janua>, _: OwnPage, ToAdmit(mut visitor): ToAdmit, fields: Fields) -> Response {
    let done: Result<()> = async {
        captcha::solved(&janua, &mut visitor, &fields).await?;
        password::reset(&janua, &visitor, &fields.secret("token"), &fields.secret("password")).await
    }
    .await;
    match done {
        Ok(()) => note_to(
            &janua,
            "Password saved",
            "You were signed out everywhere. Sign in with the new password.",
            ("Sign in", "/sign-in"),
        ),
        Err(fault) if fault.code() == TOKEN_SPENT => error(&janua, &fault),
        Err(fault) => reset_form(&janua, status_of(&fault), fields.get("token"), Some(&fault)),
    }
}

async fn send_link(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    fields: Fields,
) -> Response {
    let onward = Onward::read(&janua, fields.get("continue")).await;
    visitor.destination = onward.app();
    let asked: Result<()> = async {
        captcha::solved(&janua, &mut visitor, &fields).await?;
        magic_link::ask(&janua, &visitor, &fields.email()?).await.map(drop)
    }
    .await;
    match asked {
        Ok(()) => on_its_way(&janua, &onward),
        Err(fault) => onward.sign_in_page(&janua, status_of(&fault), fields.get("email"), Some(&fault)),
    }
}

fn follow_form(janua: &Janua, status: StatusCode, token: &str, fault: Option<&Fault>) -> Response {
    page(janua, status, "follow.html", context! { token, ..refused(fault) })
}

/// A mail scanner that looks at the link must not use it up, so there is a button.
async fn follow_page(State(janua): State<Janua>, RawQuery(query): RawQuery) -> Response {
    follow_form(&janua, StatusCode::OK, &parameter(query.as_deref(), "token"), None)
}

async fn follow(State(janua): State<Janua>, _: OwnPage, ToAdmit(mut visitor): ToAdmit, fields: Fields) -> Response {
    let entered = async {
        captcha::solved(&janua, &mut visitor, &fields).await?;
        magic_link::follow(&janua, &visitor, &fields.secret("token"), Delivery::Cookie).await
    }
    .await;
    match entered.and_then(|entered| Onward::nowhere().enter_or_ask(&janua, entered)) {
        Ok(response) => response,
        Err(fault) if fault.code() == TOKEN_SPENT => error(&janua, &fault),
        Err(fault) => follow_form(&janua, status_of(&fault), fields.get("token"), Some(&fault)),
    }
}
