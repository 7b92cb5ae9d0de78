//! Letting a device in: the code is typed, what asks is shown, and the person says yes or no.
use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
    response::Response,
};
use identity::device::approve::{self, Asking, NO_SUCH_CODE};
use kernel::{Janua, fault::Fault, http::Routes};
use minijinja::context;
use tenancy::enter::{Browser, CAPTCHA_REQUIRED, Session, ToAdmit};
use url::form_urlencoded::Serializer;

use crate::{
    brand::Brand,
    captcha,
    form::{Fields, OwnPage},
    onward::refused,
    page::{address, go, note_to, note_with, page, pages, parameter, status_of, wishes},
};

pub fn routes() -> Routes {
    pages("pages")
        .body_limit(64 * 1024)
        .get("/device", device_page, "the page to enter a device code")
        .post("/device", look_at_device, "submit a device code and show the device")
        .get("/device/decide", to_device_page, "leads to the page to enter a device code")
        .post("/device/decide", decide_on_device, "approve or deny the device")
}

fn to_sign_in(janua: &Janua, user_code: &str) -> Response {
    let back = Serializer::new("/device?".to_owned()).append_pair("user_code", user_code).finish();
    go(&address(janua, "/sign-in", "continue", &back))
}

fn form(janua: &Janua, status: StatusCode, user_code: &str, fault: Option<&Fault>) -> Response {
    page(janua, status, "device.html", context! { user_code, ..refused(fault) })
}

async fn to_device_page() -> Response {
    go("/device")
}

/// A link only fills in the code: what it leads to is shown once somebody says that they see it.
async fn device_page(State(janua): State<Janua>, Browser(who): Browser, RawQuery(query): RawQuery) -> Response {
    let code = parameter(query.as_deref(), "user_code");
    match who {
        Some(_) => form(&janua, StatusCode::OK, &code, None),
        None => to_sign_in(&janua, &code),
    }
}

async fn look_at_device(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    Browser(who): Browser,
    fields: Fields,
) -> Response {
    let code = fields.get("user_code");
    let Some(session) = who else { return to_sign_in(&janua, code) };
    let looked = async {
        captcha::solved(&janua, &mut visitor, &fields).await?;
        approve::look(&janua, &visitor, &session, code).await
    };
    match looked.await {
        Ok(asking) => question(&janua, StatusCode::OK, &session, Some(&asking), code, None).await,
        Err(fault) => form(&janua, status_of(&fault), code, Some(&fault)),
    }
}

/// Asks whether to let the device in, again where something was wrong with the answer. What asks is left out where
/// looking at it would need a proof of work of its own: the person has just seen it.
async fn question(
    janua: &Janua,
    status: StatusCode,
    session: &Session,
    asking: Option<&Asking>,
    user_code: &str,
    fault: Option<&Fault>,
) -> Response {
    let brand = match asking {
        Some(asking) => Brand::of_app(janua, asking.app_id).await,
        None => None,
    };
    let content = context! {
        user_code,
        brand => brand.as_ref(),
        app => asking.and_then(|asking| asking.app_name.as_deref()),
        device => asking.map(|asking| &asking.device),
        ip => asking.map(|asking| &asking.ip),
        at => asking.map(|asking| asking.created_at.to_string()),
        wishes => asking.and_then(|asking| asking.scopes.as_ref()).map(wishes).unwrap_or_default(),
        asks_code => !session.passed_gate(),
        ..refused(fault)
    };
    page(janua, status, "device_decide.html", content)
}

async fn decide_on_device(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(mut visitor): ToAdmit,
    Browser(who): Browser,
    fields: Fields,
) -> Response {
    let user_code = fields.get("user_code");
    let Some(session) = who else { return to_sign_in(&janua, user_code) };
    let approved = fields.get("decision") == "allow";
    let code = fields.says("code").then(|| fields.secret("code"));
    let decided = async {
        captcha::solved(&janua, &mut visitor, &fields).await?;
        approve::decide(&janua, &visitor, &session, user_code, approved, code).await
    };
    let fault = match decided.await {
        Ok(asking) if approved => {
            let text = format!("{} continues by itself. You can close this page.", asking.device);
            return note_to(&janua, "Device connected", &text, ("Open your account", "/account"));
        }
        Ok(_) => {
            let text = "It gets no access. You can close this page.";
            return note_with(&janua, "Device denied", text, "x", ("Open your account", "/account"));
        }
        Err(fault) => fault,
    };
    match fault.code() {
        NO_SUCH_CODE => form(&janua, status_of(&fault), user_code, Some(&fault)),
        CAPTCHA_REQUIRED => question(&janua, status_of(&fault), &session, None, user_code, Some(&fault)).await,
        _ => match approve::look(&janua, &visitor, &session, user_code).await {
            Ok(asking) => question(&janua, status_of(&fault), &session, Some(&asking), user_code, Some(&fault)).await,
            Err(_) => form(&janua, status_of(&fault), user_code, Some(&fault)),
        },
    }
}
