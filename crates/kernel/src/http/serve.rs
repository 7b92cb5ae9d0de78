//! The listening socket: accepts, closes slow connections, and drains when told to stop.
use std::{convert::Infallible, future::ready, io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, Request, Version, header::CONNECTION},
    response::Response,
};
use futures_util::{FutureExt as _, future::Either};
use hyper::{
    body::{Body as _, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time,
};
use tokio_rustls::server::TlsStream;

use super::{
    Door,
    patience::{Progress, Watched},
};

const LONGEST_HEADERS: u32 = 32 * 1024;
const HTTP2_STREAMS: u32 = 128;

/// Makes a connection a secure one. None for one that ends with its handshake.
pub type Handshake = Arc<dyn Fn(TcpStream) -> Shaking + Send + Sync>;

/// A handshake under way.
pub type Shaking = Pin<Box<dyn Future<Output = io::Result<Option<TlsStream<TcpStream>>>> + Send>>;

/// Answers a request before the pipeline does, such as with a redirect to https.
pub type Intercept = Arc<dyn Fn(&Request<Incoming>) -> Intercepted + Send + Sync>;

/// What an interceptor makes of a request.
pub enum Intercepted {
    /// Nothing: the pipeline answers.
    No,
    Answer(Response),
    /// It has to look; without an answer the pipeline has one.
    Later(Pin<Box<dyn Future<Output = Option<Response>> + Send>>),
}

/// What a listener does beside serving.
#[derive(Clone, Default)]
pub struct Listening {
    pub handshake: Option<Handshake>,
    pub intercept: Option<Intercept>,
}

/// Serves until `stop`, then finishes what is under way, at most for the configured time. Answers how many
/// connections had to be cut off.
///
/// With a `leave_delay` it goes on for so long after it was told, and says so: at /health, and by closing each connection
/// with its next answer. A load balancer that sends requests here then goes elsewhere without losing one.
pub async fn serve(listener: TcpListener, door: Door, stop: impl Future<Output = ()>) -> usize {
    serve_with(listener, door, stop, Listening::default()).await
}

/// As [`serve`], over TLS or with an interceptor.
pub async fn serve_with(
    listener: TcpListener,
    door: Door,
    stop: impl Future<Output = ()>,
    listening: Listening,
) -> usize {
    let config = door.janua().config.clone();
    let places = Arc::new(Semaphore::new(config.max_connections));
    let builder = Arc::new(protocols(config.client_timeout));
    let graceful = GracefulShutdown::new();
    let leave = async {
        stop.await;
        door.janua().leaving.begin();
        time::sleep(config.leave_delay).await;
    };
    let mut leave = std::pin::pin!(leave);
    loop {
        let accepted = tokio::select! {
            () = &mut leave => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let Some((stream, peer, place)) = accepted else { continue };
        let connection =
            Connection { peer, door: door.clone(), builder: builder.clone(), intercept: listening.intercept.clone() };
        let (watcher, handshake) = (graceful.watcher(), listening.handshake.clone());
        let connections = door.janua().metrics.connections.clone();
        connections.inc();
        tokio::spawn(async move {
            match handshake {
                None => connection.converse(stream, watcher).await,
                Some(handshake) => match handshake(stream).await {
                    Ok(Some(stream)) => connection.converse(stream, watcher).await,
                    Ok(None) => {}
                    Err(error) => tracing::debug!(%error, %peer, "a TLS handshake failed"),
                },
            }
            connections.dec();
            drop(place);
        });
    }
    drop(listener);
    let open = graceful.count();
    tracing::info!(open, "stopping: no new connections, finishing running requests");
    match time::timeout(config.drain_timeout, graceful.shutdown()).await {
        Ok(()) => 0,
        Err(_) => config.max_connections - places.available_permits(),
    }
}

/// One connection, before it is served.
struct Connection {
    peer: SocketAddr,
    door: Door,
    builder: Arc<auto::Builder<TokioExecutor>>,
    intercept: Option<Intercept>,
}

impl Connection {
    async fn converse(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, watcher: Watcher) {
        let Self { peer, door, builder, intercept } = self;
        let (progress, patience) = (Arc::new(Progress::default()), door.janua().config.client_timeout);
        let service = {
            let progress = progress.clone();
            service_fn(move |request: Request<Incoming>| {
                let working = progress.working();
                let leaving = door.janua().leaving.is_so() && request.version() < Version::HTTP_2;
                let answered = intercept.as_ref().map_or(Intercepted::No, |intercept| intercept(&request));
                let has_body = !request.body().is_end_stream();
                let door = door.clone();
                let answer = match answered {
                    Intercepted::No => Either::Left(Either::Left(
                        door.handle(peer, request.map(Body::new)).map(|answer| (answer, false)),
                    )),
                    Intercepted::Answer(response) => Either::Left(Either::Right(ready((response, has_body)))),
                    Intercepted::Later(look) => Either::Right(Box::pin(async move {
                        match look.await {
                            Some(response) => (response, has_body),
                            None => (door.handle(peer, request.map(Body::new)).await, false),
                        }
                    })),
                };
                answer.map(move |(mut response, is_unread)| {
                    // The door closes the connection where the rest of a body was not read.
                    if is_unread || response.headers().contains_key(CONNECTION) {
                        working.leaves_body();
                    }
                    drop(working);
                    if leaving {
                        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    }
                    Ok::<_, Infallible>(response)
                })
            })
        };
        let stream = TokioIo::new(Watched::new(stream, progress.clone()));
        let connection = watcher.watch(builder.serve_connection(stream, service).into_owned());
        tokio::select! {
            biased;
            ended = connection => if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended early");
            },
            () = progress.stalled(patience) => tracing::debug!(%peer, "a slow client was cut off"),
        }
    }
}

type Accepted = (TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit);

/// Waits for a place first: past the limit new connections stay in the system's queue.
async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> Option<Accepted> {
    let place = places.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => {
            let _ = stream.set_nodelay(true);
            Some((stream, peer, place))
        }
        Err(error) => {
            // Out of file descriptors, mostly: asking again at once would only spin.
            tracing::warn!(%error, "cannot accept a connection");
            time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

fn protocols(patience: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        // Slow ones are found by [`Progress`], which needs no timer for each request. At most 100 headers are read,
        // which is what it takes unless told otherwise; told, it would allocate for each request.
        .header_read_timeout(None)
        .max_buf_size(LONGEST_HEADERS as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(patience)
        .keep_alive_timeout(patience)
        .max_concurrent_streams(HTTP2_STREAMS)
        .max_header_list_size(LONGEST_HEADERS);
    builder
}
