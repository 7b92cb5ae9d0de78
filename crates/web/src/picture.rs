//! The forms that upload a picture of a person, an app or an organization. The script sends the file by itself; without it, the
//! form does.
use axum::response::Response;
use futures_util::StreamExt as _;
use kernel::{
    fault::{INVALID, Result},
    http::Routes,
};
use serde_json::json;
use tenancy::uploads::{self, LARGEST};

use crate::{
    act::with_outcome,
    form::OwnPage,
    me::{Me, Sender},
    multipart::{FileForm, StreamedForm},
    outcome::FormOutcome,
    page::{error, go, local, noted, pages},
};

/// The name of the form on its page.
const FORM: &str = "picture";
const KINDS: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "image/gif"];

pub fn routes() -> Routes {
    pages("pages")
        .post("/act/picture", upload_picture, "upload a picture that a form sends")
        .streams(LARGEST + 64 * 1024)
}

async fn upload_picture(_: OwnPage, Sender(me): Sender, form: StreamedForm) -> Response {
    let me = match me {
        Ok(me) => me,
        Err(to_sign_in) => return to_sign_in,
    };
    let form = match read(&me, form).await {
        Ok(form) => form,
        Err(fault) => return error(&me.janua, &fault),
    };
    let Some(back) = local(&me.janua, form.field("back")) else {
        return error(&me.janua, &INVALID.at("back", "wrong_form", "must be a page of ours"));
    };
    let outcome = match upload(&me, form).await {
        Ok(()) => FormOutcome::noted(FORM, "picture_saved"),
        Err(fault) => {
            noted(&fault);
            FormOutcome::refused(FORM, &fault)
        }
    };
    let to = with_outcome(&me, &back, &outcome).await;
    me.keeps(go(&to))
}

async fn read(me: &Me, StreamedForm { kind, announced, bytes }: StreamedForm) -> Result<FileForm> {
    let announced = announced.or_else(|| me.header("content-length").parse().ok());
    let total = announced.ok_or_else(|| INVALID.because("The form does not say how long it is."))?;
    FileForm::read(&kind, total, bytes).await
}

/// The same two steps as a program's: the interface is asked for a place for the file, as this person, and takes it there.
async fn upload(me: &Me, mut form: FileForm) -> Result<()> {
    if form.file_name.is_empty() {
        return Err(INVALID.because("Choose a picture first."));
    }
    if !KINDS.contains(&form.content_type.as_str()) {
        return Err(INVALID.because("Choose a PNG, JPEG, WebP or GIF picture."));
    }
    if form.length == 0 || form.length > LARGEST as u64 {
        return Err(INVALID.because("Choose a picture of at most 5 MB."));
    }
    let wrong = || INVALID.at("to", "wrong_form", "must be a place for a picture");
    let to = local(&me.janua, form.field("to")).filter(|to| to.ends_with("/upload-url")).ok_or_else(wrong)?;
    let mut bytes = Vec::with_capacity(usize::try_from(form.length).unwrap_or_default());
    while let Some(piece) = form.bytes.next().await {
        bytes.extend_from_slice(&piece?);
    }
    let wish = json!({ "contentType": form.content_type, "size": bytes.len() });
    let offer = me.ask(axum::http::Method::POST, &to, Some(&wish)).await?;
    uploads::receive(&me.janua, offer.body["uploadUrl"].as_str().unwrap_or_default(), bytes).await
}
