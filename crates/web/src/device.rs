//! Letting a device in: the code is typed, what asks is shown, and the person says yes or no.
use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
    response::Response,
};
use identity::device::approve::{self, Asking};
use kernel::{Janua, http::Routes};
use minijinja::context;
use tenancy::enter::{Browser, Session, ToAdmit};
use url::form_urlencoded::Serializer;

use crate::{
    brand::Brand,
    form::{Fields, OwnPage},
    page::{address, go, note, page, pages, parameter, status_of, wishes},
};

pub fn routes() -> Routes {
    pages("pages")
        .body_limit(64 * 1024)
        .get("/device", device_page, "the page to type a device's code at")
        .post("/device", look_at_device, "what that page sends: shows what asks")
        .post("/device/decide", decide_on_device, "let the device in or send it away")
}

fn to_sign_in(janua: &Janua, user_code: &str) -> Response {
    let back = Serializer::new("/device?".to_owned()).append_pair("user_code", user_code).finish();
    go(&address(janua, "/sign-in", "continue", &back))
}

fn form(janua: &Janua, status: StatusCode, user_code: &str, wrong: Option<String>) -> Response {
    page(janua, status, "device.html", context! { user_code, wrong })
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
    ToAdmit(visitor): ToAdmit,
    Browser(who): Browser,
    fields: Fields,
) -> Response {
    let code = fields.get("user_code");
    let Some(session) = who else { return to_sign_in(&janua, code) };
    match approve::look(&janua, &visitor, &session, code).await {
        Ok(asking) => {
            let brand = Brand::of_app(&janua, asking.app_id).await;
            shown(&janua, &session, &asking, brand.as_ref(), code)
        }
        Err(fault) => form(&janua, status_of(&fault), code, Some(fault.above_form())),
    }
}

fn shown(janua: &Janua, session: &Session, asking: &Asking, brand: Option<&Brand>, user_code: &str) -> Response {
    let content = context! {
        user_code,
        brand,
        app => &asking.app_name,
        device => &asking.device,
        ip => &asking.ip,
        at => asking.created_at.to_string(),
        wishes => asking.scopes.as_ref().map(wishes).unwrap_or_default(),
        asks_code => !session.passed_gate(),
    };
    page(janua, StatusCode::OK, "device_decide.html", content)
}

async fn decide_on_device(
    State(janua): State<Janua>,
    _: OwnPage,
    ToAdmit(visitor): ToAdmit,
    Browser(who): Browser,
    fields: Fields,
) -> Response {
    let user_code = fields.get("user_code");
    let Some(session) = who else { return to_sign_in(&janua, user_code) };
    let approved = fields.get("decision") == "allow";
    let code = fields.says("code").then(|| fields.secret("code"));
    match approve::decide(&janua, &visitor, &session, user_code, approved, code).await {
        Ok(asking) => {
            let gone_on = format!("{} continues by itself. You can close this page.", asking.device);
            if approved {
                note(&janua, "Device connected", &gone_on)
            } else {
                note(&janua, "Device denied", "It gets no access. You can close this page.")
            }
        }
        Err(fault) => form(&janua, status_of(&fault), user_code, Some(fault.above_form())),
    }
}
