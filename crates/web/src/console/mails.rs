//! Every mail that features declare, drawn from its sample. It is for people who write mails, so it exists in development
//! alone.
use axum::{extract::State, response::Response};
use kernel::{
    Janua,
    fault::{NOT_FOUND, Result},
    http::{Path, Routes},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenancy::messages::{
    mail::{Sample, Written, write},
    sender::Sender as MailSender,
};

use super::platform::framed;
use crate::{
    me::Sender,
    page::{error, pages},
};

pub fn routes() -> Routes {
    pages("pages")
        .get("/console/mails", mail_samples_page, "every mail, from its sample (development only)")
        .get("/console/mails/{name}", mail_sample_page, "one mail, as HTML and as text (development only)")
        .get(
            "/console/mails/{name}/body",
            mail_sample_body,
            "the body of that mail, for its frame (development only)",
        )
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct OfSample {
    name: String,
}

/// The sample as somebody reads it who came through an app, which shows all there is.
fn draw(janua: &Janua, sample: Sample) -> Result<Written> {
    let sender = MailSender::app("Tiny notes", Some("#5b3df5"));
    write(janua, &sender, Some("Europe/Zurich"), &*(sample.0)())
        .map_err(|error| kernel::fault::INTERNAL.caused_by(error))
}

fn find(janua: &Janua, name: &str) -> Result<Written> {
    let samples = janua.declared::<Sample>();
    let sample = samples.iter().find(|sample| (sample.0)().name() == name).ok_or(NOT_FOUND)?;
    draw(janua, *sample)
}

async fn mail_samples_page(State(janua): State<Janua>, Sender(me): Sender) -> Response {
    if !janua.config.has_loopback_url() {
        return error(&janua, &NOT_FOUND.into());
    }
    let me = match me {
        Ok(me) => me,
        Err(to_sign_in) => return to_sign_in,
    };
    let mut mails = vec![];
    for sample in janua.declared::<Sample>() {
        match draw(&janua, *sample) {
            Ok(written) => mails.push(json!({ "name": (sample.0)().name(), "subject": written.subject })),
            Err(fault) => return error(&janua, &fault),
        }
    }
    me.show_with("console/mails.html", &(), &[], json!({ "mails": mails })).await
}

async fn mail_sample_page(State(janua): State<Janua>, Sender(me): Sender, Path(place): Path<OfSample>) -> Response {
    if !janua.config.has_loopback_url() {
        return error(&janua, &NOT_FOUND.into());
    }
    match (me, find(&janua, &place.name)) {
        (Err(to_sign_in), _) => to_sign_in,
        (Ok(me), Ok(Written { subject, text, from, .. })) => {
            let mail = json!({ "subject": subject, "text": text, "from": from });
            me.show_with("console/mail_sample.html", &place, &[], json!({ "mail": mail })).await
        }
        (_, Err(fault)) => error(&janua, &fault),
    }
}

async fn mail_sample_body(State(janua): State<Janua>, Sender(me): Sender, Path(place): Path<OfSample>) -> Response {
    if !janua.config.has_loopback_url() {
        return error(&janua, &NOT_FOUND.into());
    }
    match (me, find(&janua, &place.name)) {
        (Err(to_sign_in), _) => to_sign_in,
        (Ok(me), Ok(written)) => me.keeps(framed(&written.html)),
        (_, Err(fault)) => error(&janua, &fault),
    }
}
