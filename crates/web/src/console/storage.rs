//! Storage: the objects of an app's users, and a place to upload one's own.
use axum::{body::Body, response::Response};
use kernel::{
    fault::{Fault, INVALID, Result},
    http::{Path, Routes},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::{
    apps::{APP, OfApp},
    nav::{Area, NavEntry},
};
use crate::{
    act::with_outcome,
    form::OwnPage,
    me::{Me, Sender},
    multipart::{FileForm, StreamedForm},
    notices,
    outcome::FormOutcome,
    page::{by_field, go, noted, pages, status_of},
};

pub const NAV: &[NavEntry] = &[NavEntry::new(Area::App, "Build", "Storage", "box", "/storage")];

/// As much as an object may have, and a form around it.
const LARGEST: usize = 5 * 1024 * 1024 * 1024 + 64 * 1024;

pub fn routes() -> Routes {
    pages("pages")
        .get("/console/apps/{appId}/storage", storage_page, "stored objects of an app's users")
        .post("/console/apps/{appId}/storage", upload_file, "upload a file that a form sends")
        .streams(LARGEST)
}

async fn storage_page(me: Me, Path(OfApp { app_id }): Path<OfApp>) -> Response {
    let [search, environment, cursor] = ["search", "environment", "cursor"].map(|name| me.parameter(name));
    let environment = if environment == "test" { "test" } else { "live" };
    let mut list = format!("/apps/{{appId}}/storage?environment={environment}");
    for (name, value) in [("prefix", &search), ("cursor", &cursor)] {
        if !value.is_empty() {
            list = format!("{list}&{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
        }
    }
    let more = json!({ "environment": environment });
    let place = json!({ "appId": app_id });
    me.show_with("console/storage.html", &place, &[APP, ("list", list.as_str())], more).await
}

async fn upload_file(
    _: OwnPage,
    Sender(me): Sender,
    Path(OfApp { app_id }): Path<OfApp>,
    form: StreamedForm,
) -> Response {
    let me = match me {
        Ok(me) => me,
        Err(to_sign_in) => return to_sign_in,
    };
    let outcome = match store(&me, &app_id, form).await {
        Ok(()) => FormOutcome {
            form: "upload".into(),
            notice: notices::sentence("object_uploaded", &Value::Null),
            status: 200,
            ..FormOutcome::default()
        },
        Err(fault) => {
            noted(&fault);
            FormOutcome {
                form: "upload".into(),
                wrong: Some(words(&fault)),
                status: status_of(&fault).as_u16(),
                ..FormOutcome::default()
            }
        }
    };
    let page = format!("/console/apps/{}/storage", utf8_percent_encode(&app_id, NON_ALPHANUMERIC));
    let to = with_outcome(&me, &page, &outcome).await;
    me.keeps(go(&to))
}

async fn store(me: &Me, app_id: &str, StreamedForm { kind, announced, bytes }: StreamedForm) -> Result<()> {
    let announced = announced.or_else(|| me.header("content-length").parse().ok());
    let total = announced.ok_or_else(|| INVALID.because("The form does not say how long it is."))?;
    let form = FileForm::read(&kind, total, bytes).await?;
    if form.file_name.is_empty() {
        return Err(INVALID.because("Choose a file first."));
    }
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let visibility = if form.field("visibility") == "public" { "public" } else { "private" };
    let environment = if form.field("environment") == "test" { "test" } else { "live" };
    let to = format!(
        "/apps/{}/storage?name={}&visibility={visibility}&environment={environment}",
        encoded(app_id),
        encoded(&form.file_name)
    );
    let bytes = Body::from_stream(futures_util::StreamExt::map(form.bytes, |piece| {
        piece.map_err(|fault| std::io::Error::other(fault.to_string()))
    }));
    me.send_file(&to, &form.content_type, form.length, bytes).await
}

/// What is wrong, in words; fields are named.
fn words(fault: &Fault) -> String {
    let fields: Vec<_> = by_field(fault).into_iter().map(|(field, says)| format!("{field}: {says}.")).collect();
    let problem = fault.problem("");
    if fields.is_empty() { problem.detail.unwrap_or(problem.title).to_owned() } else { fields.join(" ") }
}
