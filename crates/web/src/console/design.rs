//! Every part that pages are made of, on one page. It is for people who write pages, so it exists in development alone.
use axum::{extract::State, response::Response};
use kernel::{Janua, fault::NOT_FOUND, http::Routes};
use url::{Host, Url};

use crate::{
    me::Sender,
    page::{error, pages},
};

pub fn routes() -> Routes {
    pages("pages").get("/console/design", design_page, "every part of the pages (development only)")
}

async fn design_page(State(janua): State<Janua>, Sender(me): Sender) -> Response {
    if !is_development(&janua) {
        return error(&janua, &NOT_FOUND.into());
    }
    match me {
        Ok(me) => me.show("console/design.html", &(), &[]).await,
        Err(to_sign_in) => to_sign_in,
    }
}

/// Whether the base URL is on this very machine.
fn is_development(janua: &Janua) -> bool {
    Url::parse(&janua.config.base_url()).is_ok_and(|url| match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    })
}
