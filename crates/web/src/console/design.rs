//! Every part that pages are made of, on one page. It is for people who write pages, so it exists in development alone.
use axum::{extract::State, response::Response};
use kernel::{Janua, fault::NOT_FOUND, http::Routes};

use crate::{
    me::Sender,
    page::{error, pages},
};

pub fn routes() -> Routes {
    pages("pages").get("/console/design", design_page, "every part of the pages (development only)")
}

async fn design_page(State(janua): State<Janua>, Sender(me): Sender) -> Response {
    if !janua.config.has_loopback_url() {
        return error(&janua, &NOT_FOUND.into());
    }
    match me {
        Ok(me) => me.show("console/design.html", &(), &[]).await,
        Err(to_sign_in) => to_sign_in,
    }
}
