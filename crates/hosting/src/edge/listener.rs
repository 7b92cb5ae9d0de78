//! The edge's own socket: no routes of the API, no sessions, its own budget of connections.
use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::http::{HeaderValue, Request, Version, header};
use hyper::{
    body::{Body as _, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use kernel::{
    Janua,
    config::{Config, Section as _},
    http::{Progress, Watched},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time,
};

use super::{
    Edge,
    respond::{Connection, respond},
    settings::Settings,
};

const LONGEST_HEADERS: u32 = 16 * 1024;
const HTTP2_STREAMS: u32 = 128;

/// What became of the edge at the start.
#[derive(Debug)]
pub enum Bound {
    Listening(TcpListener),
    /// The settings switch it off.
    Off,
    /// The port of the defaults is taken. An installation that was never told where to listen starts without the edge.
    Taken(SocketAddr),
}

/// Binds the edge's port before anything else is touched.
pub async fn bind(config: &Config) -> Result<Bound, String> {
    let Some(address) = config.of::<Settings>().edge_listen else { return Ok(Bound::Off) };
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(Bound::Listening(listener)),
        Err(error)
            if error.kind() == std::io::ErrorKind::AddrInUse && Settings::defaults().edge_listen == Some(address) =>
        {
            Ok(Bound::Taken(address))
        }
        Err(error) => Err(format!("edge_listen: cannot listen on {address}: {error}")),
    }
}

/// Serves sites until `stop`, then finishes what is under way, at most for the configured time.
pub async fn serve(listener: TcpListener, janua: Janua, stop: impl Future<Output = ()>) {
    let server = Server::new(janua);
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = server.accept(&listener) => accepted,
        };
        let Some((stream, peer, place)) = accepted else { continue };
        let connection = Connection { sni: None, peer: Some(peer.ip()) };
        server.spawn(stream, peer, connection, place);
    }
    drop(listener);
    server.finish().await;
}

/// The connections of the edge. Plain and TLS listeners share its places.
pub struct Server {
    janua: Janua,
    edge: Arc<Edge>,
    places: Arc<Semaphore>,
    builder: auto::Builder<TokioExecutor>,
    graceful: GracefulShutdown,
    patience: Duration,
}

impl Server {
    pub fn new(janua: Janua) -> Self {
        let edge = janua.own::<Arc<Edge>>().clone();
        let places = Arc::new(Semaphore::new(janua.config.of::<Settings>().edge_max_connections));
        let patience = janua.config.client_timeout;
        Self { janua, edge, places, builder: protocols(patience), graceful: GracefulShutdown::new(), patience }
    }

    /// Waits for a place first: past the limit new connections stay in the system's queue.
    pub async fn accept(&self, listener: &TcpListener) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        let place = self.places.clone().acquire_owned().await.ok()?;
        match listener.accept().await {
            Ok((stream, peer)) => {
                let _ = stream.set_nodelay(true);
                Some((stream, peer, place))
            }
            Err(error) => {
                tracing::warn!(%error, "the edge cannot accept a connection");
                time::sleep(Duration::from_millis(100)).await;
                None
            }
        }
    }

    /// Serves one connection, which may have passed a TLS handshake. It holds its place until it ends.
    pub fn spawn<S>(&self, stream: S, peer: SocketAddr, connection: Connection, place: OwnedSemaphorePermit)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let progress = Arc::new(Progress::default());
        let service = {
            let (janua, edge, progress) = (self.janua.clone(), self.edge.clone(), progress.clone());
            service_fn(move |request: Request<Incoming>| {
                let (janua, edge, connection) = (janua.clone(), edge.clone(), connection.clone());
                let working = progress.working();
                // Sites take no bodies.
                if !request.body().is_end_stream() {
                    working.leaves_body();
                }
                let request = request.map(drop);
                async move {
                    let mut response = respond(&janua, &edge, &connection, &request).await;
                    drop(working);
                    if janua.leaving.is_so() && request.version() < Version::HTTP_2 {
                        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                    }
                    Ok::<_, Infallible>(response)
                }
            })
        };
        let stream = TokioIo::new(Watched::new(stream, progress.clone()));
        let served = self.graceful.watch(self.builder.serve_connection(stream, service).into_owned());
        let patience = self.patience;
        tokio::spawn(async move {
            tokio::select! {
                biased;
                ended = served => if let Err(error) = ended {
                    tracing::debug!(%error, "a connection to the edge ended early");
                },
                () = progress.stalled(patience) => tracing::debug!(%peer, "a slow client of the edge was cut off"),
            }
            drop(place);
        });
    }

    pub async fn finish(self) {
        let _ = time::timeout(self.janua.config.drain_timeout, self.graceful.shutdown()).await;
    }
}

fn protocols(patience: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Slow clients are found by `Progress`, which needs no timer for each request.
    builder.http1().header_read_timeout(None).max_buf_size(LONGEST_HEADERS as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(patience)
        .keep_alive_timeout(patience)
        .max_concurrent_streams(HTTP2_STREAMS)
        .max_header_list_size(LONGEST_HEADERS);
    builder
}
