//! The client that makes the requests: HTTP/1.1, over TLS or not, on connections that stay open for a while.
//!
//! Of `hyper` itself and not of `hyper-util`'s client or of `reqwest`, which others of our parts use. Those give every
//! connection a task of its own, with which each request is exchanged over channels. Here whoever asks moves the
//! connection along himself, and a webhook's delivery takes a good part less.
use std::{
    error::Error,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::http::{Request, Uri, response::Parts};
use bytes::{Bytes, BytesMut};
use futures_util::{
    FutureExt as _,
    future::{BoxFuture, poll_fn},
};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::legacy::connect::{HttpConnector, dns::Name},
    rt::TokioIo,
};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::CertificateDer};
use tokio::net::TcpStream;
use tower::Service;

use super::{Guard, NoReply, idle::Idle};

const MOST_HEADERS: usize = 100;
/// How long a connection that is no longer wanted may take to say so.
const FAREWELL: Duration = Duration::from_secs(1);

pub(super) type Failure = Box<dyn Error + Send + Sync>;

pub(super) struct Client {
    connector: HttpsConnector<HttpConnector<Checked>>,
    idle: Arc<Idle>,
}

impl Client {
    /// Trusts the system's authorities and these.
    pub fn make(guard: Arc<Guard>, authorities: &[CertificateDer<'static>]) -> Result<Self, rustls::Error> {
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
        Ok(Self { connector, idle: Arc::default() })
    }

    /// Sends a request to an origin (`https://example.com:8443`), and reads at most so many bytes of the answer's body;
    /// answers whether there was more of it, too. If it is not waited for, the connection is closed.
    pub async fn exchange(
        &self,
        origin: &str,
        mut request: Request<Full<Bytes>>,
        most: usize,
    ) -> Result<(Parts, Bytes, bool), Failure> {
        loop {
            let kept = self.idle.take(origin);
            let is_kept = kept.is_some();
            let mut line = match kept {
                Some(line) => line,
                None => Line::connect(&self.connector, origin.parse()?).await?,
            };
            match line.ask(request, most).await {
                Ok((parts, body, is_cut)) => {
                    if !is_cut && line.is_ready() {
                        self.idle.keep(origin, line);
                    }
                    return Ok((parts, body, is_cut));
                }
                // It was closed before anything was sent: once more, over another one.
                Err((_, Some(unsent))) if is_kept => request = unsent,
                Err((error, _)) => return Err(error.into()),
            }
        }
    }
}

/// A connection, while it lasts, and the end at which it is asked.
pub(super) struct Line {
    sender: http1::SendRequest<Full<Bytes>>,
    connection: Option<Pin<Box<Connection>>>,
}

type Connection = http1::Connection<MaybeHttpsStream<TokioIo<TcpStream>>, Full<Bytes>>;

/// The failure, and the request when nothing of it was sent.
type Unanswered = (hyper::Error, Option<Request<Full<Bytes>>>);

impl Line {
    async fn connect(connector: &HttpsConnector<HttpConnector<Checked>>, origin: Uri) -> Result<Self, Failure> {
        let stream = connector.clone().call(origin).await?;
        let (sender, connection) = http1::Builder::new().max_headers(MOST_HEADERS).handshake(stream).await?;
        Ok(Self { sender, connection: Some(Box::pin(connection)) })
    }

    async fn ask(&mut self, request: Request<Full<Bytes>>, most: usize) -> Result<(Parts, Bytes, bool), Unanswered> {
        let answer = self.sender.try_send_request(request);
        let answer = along(&mut self.connection, answer).await;
        let (parts, mut rest) = answer
            .map_err(|mut failed| {
                let unsent = failed.take_message();
                (failed.into_error(), unsent)
            })?
            .into_parts();
        let mut body = BytesMut::new();
        while let Some(frame) = along(&mut self.connection, rest.frame()).await {
            let Ok(chunk) = frame.map_err(|error| (error, None))?.into_data() else { continue };
            let room = most - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                return Ok((parts, body.freeze(), true));
            }
        }
        Ok((parts, body.freeze(), false))
    }

    /// Whether another request may follow: the other side has neither closed nor said anything unasked.
    pub fn is_ready(&mut self) -> bool {
        move_along(&mut self.connection, &mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Closes it as the other side would like it: over TLS it is told first.
    pub fn leave(self) {
        drop(self.sender);
        if let Some(connection) = self.connection {
            tokio::spawn(tokio::time::timeout(FAREWELL, connection));
        }
    }
}

/// Waits for something that a connection brings, and moves the connection along meanwhile.
async fn along<T>(connection: &mut Option<Pin<Box<Connection>>>, wanted: impl Future<Output = T>) -> T {
    let mut wanted = pin!(wanted);
    poll_fn(|cx| {
        move_along(connection, cx);
        wanted.as_mut().poll(cx)
    })
    .await
}

/// The request that waits for an answer gets the outcome.
fn move_along(connection: &mut Option<Pin<Box<Connection>>>, cx: &mut Context<'_>) {
    if connection.as_mut().is_some_and(|lasting| lasting.poll_unpin(cx).is_ready()) {
        *connection = None;
    }
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
