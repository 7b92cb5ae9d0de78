//! Signing in: the password, then the second factor where there is one, then on to wherever somebody was going.
use axum::{
    extract::{RawQuery, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use identity::{factors::gate, password};
use kernel::{Janua, fault::Code, http::Routes};
use tenancy::{
    enter::{Delivery, ToAdmit},
    once::TOKEN_SPENT,
};

use crate::{
    captcha,
    form::{Fields, OwnPage},
    onward::{Asked, Onward},
    page::{error, pages, parameter, status_of},
};

pub fn routes() -> Routes {
    pages("pages")
        .body_limit(64 * 1024)
        .get("/sign-in", sign_in_page, "the page to sign in at")
        .post("/sign-in", sign_in, "what the sign-in page sends")
        .post("/sign-in/factor", prove_factor, "what the page of the second factor sends")
}

async fn sign_in_page(State(janua): State<Janua>, headers: HeaderMap, RawQuery(query): RawQuery) -> Response {
    let onward = Onward::asked(&janua, &headers, query.as_deref()).await;
    let done = match parameter(query.as_deref(), "done").as_str() {
        "confirmed" => "Email confirmed. Sign in to continue.",
        _ => "",
    };
    let email = parameter(query.as_deref(), "email");
    onward.sign_in_page_after(&janua, StatusCode::OK, &email, None, done)
}

async fn sign_in(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    headers: HeaderMap,
    form: Fields,
) -> Response {
    let onward = Onward::read(&janua, &headers, form.get("continue")).await.in_zone_of(&form);
    let entered = async {
        captcha::solved(&janua, &mut visitor, &form).await?;
        let (email, typed) = (form.email()?, form.secret("password"));
        let entered = password::sign_in(&janua, &visitor, &email, &typed, Delivery::Cookie).await?;
        onward.enter_or_ask(&janua, entered, "password").await
    }
    .await;
    entered.unwrap_or_else(|fault| onward.sign_in_page(&janua, status_of(&fault), form.get("email"), Some(&fault)))
}

async fn prove_factor(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    headers: HeaderMap,
    form: Fields,
) -> Response {
    let onward = Onward::read(&janua, &headers, form.get("continue")).await.in_zone_of(&form);
    let entered = async {
        captcha::solved(&janua, &mut visitor, &form).await?;
        let (ticket, code) = (form.secret("ticket"), form.secret("code"));
        let person = gate::pass(&janua, &visitor, &ticket, &code, None, form.says("trust")).await?;
        onward.enter(&janua, &person, form.get("method")).await
    }
    .await;
    entered.unwrap_or_else(|fault| match fault.code() {
        // The ticket is gone: from the beginning.
        TOKEN_SPENT => onward.sign_in_page(&janua, status_of(&fault), "", Some(&TOO_LATE.into())),
        code if code.status >= 500 => error(&janua, &fault),
        _ => {
            let hint: String = form.get("hint").chars().take(300).collect();
            let asked = Asked { hint: &hint, ticket: form.get("ticket"), method: form.get("method") };
            onward.factor_page(&janua, status_of(&fault), asked, Some(&fault))
        }
    })
}

const TOO_LATE: Code = Code::new(410, "too_late", "The code expired or was wrong too often. Sign in again.");
