//! Requests for a site that reach the listener of the API: refused, so that no page of a site is ever of the API's origin.
use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    http::{Request, StatusCode},
    response::{IntoResponse as _, Response},
};
use hyper::body::Incoming;
use kernel::{
    Janua,
    http::{Intercept, Intercepted},
};
use tokio::time::timeout;

use super::{
    Edge, EdgeUrl,
    hosts::Looked,
    respond::{console_host, host_of},
};
use crate::certificates::CHALLENGE_PATH;

/// How long a request waits until it is known whether its host is that of a site. Without the database it is served.
const PATIENCE: Duration = Duration::from_millis(250);

/// Refuses requests for hosts of sites, after what `first` answers. Checks of a certificate authority are let through.
pub fn refuse_sites(janua: &Janua, first: Option<Intercept>) -> Intercept {
    let (janua, console, edge) = (janua.clone(), console_host(janua), EdgeUrl::of(&janua.config).domain);
    Arc::new(move |request: &Request<Incoming>| {
        if let Some(first) = &first {
            let answered = first(request);
            if !matches!(answered, Intercepted::No) {
                return answered;
            }
        }
        // What is no host is the pipeline's to refuse.
        let Ok(host) = host_of(request) else { return Intercepted::No };
        if host == console || request.uri().path().starts_with(CHALLENGE_PATH) {
            return Intercepted::No;
        }
        match at_a_glance(&edge, &host) {
            Some(true) => Intercepted::Answer(refusal()),
            Some(false) => Intercepted::No,
            None => {
                let (janua, host) = (janua.clone(), host.into_owned());
                Intercepted::Later(Box::pin(async move { is_attached(&janua, &host).await.then(refusal) }))
            }
        }
    })
}

/// Whether a host is that of a site; none where that must be looked up. Addresses and names inside a network never are.
fn at_a_glance(edge: &str, host: &str) -> Option<bool> {
    if host.strip_suffix(edge).is_some_and(|label| label.ends_with('.')) {
        return Some(true);
    }
    (!host.contains('.') || host.parse::<IpAddr>().is_ok()).then_some(false)
}

async fn is_attached(janua: &Janua, host: &str) -> bool {
    let edge = janua.own::<Arc<Edge>>();
    matches!(timeout(PATIENCE, edge.hosts.look_up(janua, host)).await, Ok(Looked::Found(_)))
}

fn refusal() -> Response {
    (StatusCode::MISDIRECTED_REQUEST, "This host is not served here.\n").into_response()
}

#[cfg(test)]
mod tests {
    use db::params;
    use kernel::testing::TestJanua;

    use super::*;
    use crate::tests::{Owner, feature};

    #[tokio::test]
    async fn w08_hosts_of_sites_are_known_at_the_api() {
        let t = TestJanua::start(feature).await;
        for (host, is_site) in [
            ("shop.localhost", Some(true)),
            ("a.b.localhost", Some(true)),
            ("localhost", Some(false)),
            ("127.0.0.1", Some(false)),
            ("janua", Some(false)),
            ("shop.example.test", None),
        ] {
            assert_eq!(at_a_glance("localhost", host), is_site, "{host}");
        }
        let ada = Owner::of(&t, "ada@example.com", "shop").await;
        ada.deployed(&t, &[("index.html", "x")]).await;
        assert!(!is_attached(&t.janua, "shop.example.test").await);
        db::transact!(t.janua.db, async |tx| {
            let app = ada.app.parse().expect("an id");
            super::super::site::attach_host(tx, &t.janua, "shop.example.test", app, None).await
        })
        .unwrap();
        assert!(is_attached(&t.janua, "shop.example.test").await, "as soon as it is attached");
        t.janua.db.exec("DELETE FROM job", params![]).await.unwrap();
        t.finish().await;
    }
}
