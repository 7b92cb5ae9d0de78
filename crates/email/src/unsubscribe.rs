//! Unsubscribing with one click (RFC 8058): the URL in the header works without signing in, and only a POST changes anything.
use axum::{extract::State, response::Response};
use kernel::{
    Janua,
    crypto::same,
    fault::{NOT_FOUND, Result},
    http::{Path, Raw, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::{enter::NotAdmitted, plain_page::PlainPage};

use crate::{
    queue::{Report, ReportKind, report},
    sending::{Recipient, RecipientId},
};

const MAC_LEN: usize = 32;

pub fn routes() -> Routes {
    Routes::new("email")
        .get("/email/unsubscribe/{token}", unsubscribe_page, "a button to unsubscribe")
        .answers::<String>(200, "text/html; charset=utf-8")
        .post("/email/unsubscribe/{token}", unsubscribe, "unsubscribe with one click")
        .answers::<String>(200, "text/html; charset=utf-8")
}

fn mac(janua: &Janua, id: RecipientId) -> String {
    let mut mac = janua.vault.mac("email-unsubscribe", id.to_string().as_bytes());
    mac.truncate(MAC_LEN);
    mac
}

/// The URL for one recipient of one mail.
pub fn url(janua: &Janua, id: RecipientId) -> String {
    format!("{}/email/unsubscribe/{id}.{}", janua.config.base_url(), mac(janua, id))
}

#[derive(Deserialize, JsonSchema)]
struct UnsubscribePath {
    token: String,
}

async fn find(janua: &Janua, token: &str) -> Result<Recipient> {
    let (id, given) = token.split_once('.').ok_or(NOT_FOUND)?;
    let id: RecipientId = id.parse().map_err(|_| NOT_FOUND)?;
    if !same(given.as_bytes(), mac(janua, id).as_bytes()) {
        return Err(NOT_FOUND.into());
    }
    Recipient::find(&janua.db, id).await?.ok_or_else(|| NOT_FOUND.into())
}

async fn unsubscribe_page(
    State(janua): State<Janua>,
    _: NotAdmitted,
    Path(path): Path<UnsubscribePath>,
) -> Result<Response> {
    let mail = find(&janua, &path.token).await?;
    let text = format!("Stop sending emails of this sender to {}?", mail.email);
    let page = PlainPage { title: "Unsubscribe", text, sign: "mail", button: Some("Unsubscribe") };
    Ok(page.draw(&janua))
}

async fn unsubscribe(
    State(janua): State<Janua>,
    _: NotAdmitted,
    Path(path): Path<UnsubscribePath>,
    _: Raw,
) -> Result<Response> {
    let mail = find(&janua, &path.token).await?;
    let said = Report { kind: ReportKind::Unsubscribed, detail: "unsubscribed by one click".into() };
    transact!(janua, async |tx| report(tx, &janua, &mail, &said).await)?;
    let text = format!("{} gets no more emails of this sender.", mail.email);
    Ok(PlainPage { title: "Unsubscribed", text, sign: "", button: None }.draw(&janua))
}
