//! Signing in: the password, then the second factor where there is one, then on to wherever somebody was going.
use axum::{
    extract::{RawQuery, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use identity::{factors::gate, password};
use kernel::{
    Janua,
    crypto::Secret,
    fault::{Code, Result},
    http::Routes,
};
use tenancy::{
    accounts::factors::MFA_TICKET,
    enter::{Delivery, ToAdmit, cookies},
    once::{self, TOKEN_SPENT},
};

use crate::{
    captcha,
    form::{Fields, OwnPage},
    onward::{Asked, Onward},
    page::{error, go, pages, parameter, shown, status_of},
    waiting::WaitingSignIn,
};

pub fn routes() -> Routes {
    pages("pages")
        .body_limit(64 * 1024)
        .get("/sign-in", sign_in_page, "the sign-in page")
        .post("/sign-in", sign_in, "submit the sign-in form")
        .get("/sign-in/factor", factor_page, "the page of the second factor")
        .post("/sign-in/factor", prove_factor, "submit the second factor")
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

/// Asks the browser in which the sign-in waits, until the ticket was used or has expired.
async fn factor_page(State(janua): State<Janua>, headers: HeaderMap) -> Response {
    let Some(waiting) = WaitingSignIn::read(&janua, &headers) else { return go("/sign-in") };
    let onward = Onward::read(&janua, &headers, &waiting.to).await;
    let ticket = Secret::from(waiting.ticket.clone());
    let shown_page = async {
        if once::look(&janua.db, MFA_TICKET, &ticket, janua.clock.now()).await?.is_none() {
            let fault = TOO_LATE.into();
            return Ok(onward.sign_in_page(&janua, status_of(&fault), "", Some(&fault)));
        }
        let asked = Asked { hint: &waiting.hint, ticket: &waiting.ticket, method: &waiting.method };
        Ok(onward.factor_page(&janua, StatusCode::OK, asked, None))
    };
    shown(&janua, shown_page.await)
}

async fn prove_factor(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    headers: HeaderMap,
    form: Fields,
) -> Response {
    let onward = Onward::read(&janua, &headers, form.get("continue")).await.in_zone_of(&form);
    let entered: Result<Response> = async {
        captcha::solved(&janua, &mut visitor, &form).await?;
        let (ticket, code) = (form.secret("ticket"), form.secret("code"));
        let person = gate::pass(&janua, &visitor, &ticket, &code, None, form.says("trust")).await?;
        let mut entered = onward.enter(&janua, &person, form.get("method")).await?;
        cookies::clear_waiting(&janua, entered.headers_mut());
        Ok(entered)
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
