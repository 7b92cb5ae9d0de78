//! The client that makes the requests: HTTP/1.1, over TLS or not, on connections that stay open for a while.
//!
//! Of `hyper-util` and not of `reqwest`, which others of our parts use: it has nothing here to follow, to decode or to
//! remember, and without that a webhook's delivery takes a good part less.
use std::{
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{
        self,
        connect::{HttpConnector, dns::Name},
    },
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::CertificateDer};
use tower::Service;

use super::{Guard, NoReply};

/// Shorter than receivers keep an idle connection, so that none is closed under a request; many close after five.
const IDLE: Duration = Duration::from_secs(4);
/// Many webhooks may lead to one host, and each event then goes there as often.
const IDLE_PER_HOST: usize = 128;
const MOST_HEADERS: usize = 100;

pub(super) type Client = legacy::Client<HttpsConnector<HttpConnector<Checked>>, Full<Bytes>>;

/// Trusts the system's authorities and these.
pub(super) fn make(guard: Arc<Guard>, authorities: &[CertificateDer<'static>]) -> Result<Client, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots.add_parsable_certificates(authorities.iter().cloned());
    let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = HttpConnector::new_with_resolver(Checked(guard));
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
    Ok(legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(IDLE_PER_HOST)
        .http1_max_headers(MOST_HEADERS)
        .build(connector))
}

/// The client asks when it connects, and connects to what it hears: so this is the check that counts.
#[derive(Clone)]
pub(super) struct Checked(Arc<Guard>);

impl Service<Name> for Checked {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = NoReply;
    type Future = BoxFuture<'static, Result<Self::Response, NoReply>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NoReply>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let guard = self.0.clone();
        Box::pin(async move {
            let addresses = guard.resolve(name.as_str()).await?;
            // The client knows the port.
            let sockets: Vec<_> = addresses.into_iter().map(|address| SocketAddr::new(address, 0)).collect();
            Ok(sockets.into_iter())
        })
    }
}
