//! The first page of a new installation: its owner makes their account.
use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
    response::Response,
};
use identity::{first_owner, register::SignUp};
use kernel::{Janua, fault::Fault, http::Routes};
use minijinja::context;
use tenancy::{enter::ToAdmit, once::TOKEN_SPENT, sessions::sign_in::Typed};

use crate::{
    captcha,
    form::{Fields, OwnPage},
    onward::{Onward, refused},
    page::{error, note_with, page, pages, parameter, status_of},
};

pub fn routes() -> Routes {
    pages("pages")
        .body_limit(64 * 1024)
        .get(first_owner::PATH, first_owner_page, "the page behind the link that a new installation prints")
        .post(first_owner::PATH, make_first_owner, "create the first platform owner")
}

fn form(janua: &Janua, status: StatusCode, token: &str, typed: (&str, &str), fault: Option<&Fault>) -> Response {
    let (name, email) = typed;
    page(janua, status, "first_owner.html", context! { token, name, email, ..refused(fault) })
}

async fn first_owner_page(
    State(janua): State<Janua>,
    ToAdmit(visitor): ToAdmit,
    RawQuery(query): RawQuery,
) -> Response {
    let token = parameter(query.as_deref(), "token");
    let looked = async {
        captcha::weigh(&janua, &visitor).await?;
        first_owner::look(&janua, &Typed(token.clone().into())).await
    };
    match looked.await {
        Ok(()) => form(&janua, StatusCode::OK, &token, ("", ""), None),
        Err(fault) if fault.code() == TOKEN_SPENT => spent(&janua),
        Err(fault) => error(&janua, &fault),
    }
}

/// The home page says where the link is, or that there is an owner: sign in.
fn spent(janua: &Janua) -> Response {
    let mut response = note_with(
        janua,
        "Link expired",
        "This link is invalid or was used. The server prints the current one each time it starts, until the installation \
         has an owner.",
        "clock",
        ("Go to home page", "/"),
    );
    *response.status_mut() = StatusCode::GONE;
    response
}

async fn make_first_owner(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    fields: Fields,
) -> Response {
    let made = async {
        captcha::solved(&janua, &mut visitor, &fields).await?;
        let new = SignUp {
            email: fields.email()?,
            password: fields.secret("password"),
            name: fields.short("name", "Enter your name.")?,
            accept_marketing: None,
            invite_token: None,
        };
        let entered = first_owner::make(&janua, &visitor, &fields.secret("token"), &new).await?;
        Onward::to_page("/console").in_zone_of(&fields).enter_or_ask(&janua, entered, "password").await
    };
    made.await.unwrap_or_else(|fault| {
        if fault.code() == TOKEN_SPENT {
            return spent(&janua);
        }
        let typed = (fields.get("name"), fields.get("email"));
        form(&janua, status_of(&fault), fields.get("token"), typed, Some(&fault))
    })
}
