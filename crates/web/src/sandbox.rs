//! The pages of the sandbox processor: a checkout, a portal and an onboarding. No money moves, and each page says so.
use axum::{
    body::{Body, to_bytes},
    extract::State,
    http::{Method, Request, StatusCode, header},
    response::Response,
};
use kernel::{
    Janua,
    fault::{INTERNAL, Result},
    http::{Path, Routes},
};
use minijinja::{Value as Content, context, value::Serde};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    form::{Fields, OwnPage},
    page::{error, go, page_onward, pages},
};

pub fn routes() -> Routes {
    pages("pages")
        .body_limit(16 * 1024)
        .get("/sandbox/checkout/{sessionId}", sandbox_checkout, "the sandbox's checkout page")
        .post("/sandbox/checkout/{sessionId}", act_on_checkout, "submit the sandbox's checkout page")
        .get("/sandbox/portal/{sessionId}", sandbox_portal, "the sandbox's customer portal")
        .post("/sandbox/portal/{sessionId}", act_on_portal, "submit the sandbox's customer portal")
        .get("/sandbox/onboard/{sessionId}", sandbox_onboarding, "the sandbox's onboarding page")
        .post("/sandbox/onboard/{sessionId}", act_on_onboarding, "submit the sandbox's onboarding page")
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SandboxPath {
    session_id: String,
}

async fn ask(janua: &Janua, method: Method, id: &str, body: Option<&Value>) -> Result<Value> {
    let id: String = id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    let request = Request::builder()
        .method(method)
        .uri(format!("/sandbox/sessions/{id}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(body.map_or_else(Body::empty, |body| Body::from(body.to_string())))
        .map_err(|cause| INTERNAL.caused_by(cause))?;
    let answer = janua.inside.ask(request).await?;
    let bytes = to_bytes(answer.into_body(), 1 << 20).await.map_err(|cause| INTERNAL.caused_by(cause))?;
    serde_json::from_slice(&bytes).map_err(|cause| INTERNAL.caused_by(cause))
}

async fn show(janua: &Janua, template: &str, id: &str, wrong: Option<String>, asks: bool) -> Response {
    let view = match ask(janua, Method::GET, id, None).await {
        Ok(view) => view,
        Err(fault) => return error(janua, &fault),
    };
    let status = if wrong.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let onward: Vec<String> =
        ["next", "back"].iter().filter_map(|name| view[*name].as_str().map(str::to_owned)).collect();
    let content = context! { view => Content::from(Serde(&view)), id, wrong, asks_confirmation => asks };
    page_onward(janua, status, template, content, onward.iter().map(String::as_str))
}

async fn act(janua: &Janua, template: &str, id: &str, fields: &Fields) -> Response {
    let some = |name: &str| Some(fields.get(name)).filter(|text| !text.is_empty());
    let body = json!({
        "action": fields.get("action"), "card": some("card"), "confirmed": fields.says("confirmed"),
        "delivery": some("delivery"),
    });
    match ask(janua, Method::POST, id, Some(&body)).await {
        Ok(view) => {
            let is_leaving = fields.get("action") == "leave";
            let to = if is_leaving { &view["back"] } else { &view["next"] };
            let stays = view["kind"] == "portal" && !is_leaving;
            match to.as_str() {
                Some(to) if !stays => go(to),
                _ => show(janua, template, id, None, false).await,
            }
        }
        Err(fault) if fault.code().name == "confirmation_required" => show(janua, template, id, None, true).await,
        Err(fault) if fault.code().status < 500 && fault.code().status != 404 => {
            show(janua, template, id, Some(fault.above_form()), false).await
        }
        Err(fault) => error(janua, &fault),
    }
}

async fn sandbox_checkout(State(janua): State<Janua>, Path(path): Path<SandboxPath>) -> Response {
    show(&janua, "sandbox_checkout.html", &path.session_id, None, false).await
}

async fn act_on_checkout(
    State(janua): State<Janua>,
    _: OwnPage,
    Path(path): Path<SandboxPath>,
    fields: Fields,
) -> Response {
    act(&janua, "sandbox_checkout.html", &path.session_id, &fields).await
}

async fn sandbox_portal(State(janua): State<Janua>, Path(path): Path<SandboxPath>) -> Response {
    show(&janua, "sandbox_portal.html", &path.session_id, None, false).await
}

async fn act_on_portal(
    State(janua): State<Janua>,
    _: OwnPage,
    Path(path): Path<SandboxPath>,
    fields: Fields,
) -> Response {
    act(&janua, "sandbox_portal.html", &path.session_id, &fields).await
}

async fn sandbox_onboarding(State(janua): State<Janua>, Path(path): Path<SandboxPath>) -> Response {
    show(&janua, "sandbox_onboard.html", &path.session_id, None, false).await
}

async fn act_on_onboarding(
    State(janua): State<Janua>,
    _: OwnPage,
    Path(path): Path<SandboxPath>,
    fields: Fields,
) -> Response {
    act(&janua, "sandbox_onboard.html", &path.session_id, &fields).await
}
