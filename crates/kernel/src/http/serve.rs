//! The listening socket: accepts, cuts off whoever is too slow, and drains when told to stop.
use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, Request, Version, header::CONNECTION},
};
use futures_util::FutureExt as _;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time,
};

use super::{
    Door,
    patience::{Progress, Watched},
};

const LONGEST_HEADERS: u32 = 32 * 1024;
const HTTP2_STREAMS: u32 = 128;

/// Serves until `stop`, then finishes what is under way, at most for the configured time. Answers how many
/// connections had to be cut off.
///
/// With a `leave_delay` it goes on for so long after it was told, and says so: at /health, and by closing each connection
/// with its next answer. Whoever sends requests here then goes elsewhere without losing one.
pub async fn serve(listener: TcpListener, door: Door, stop: impl Future<Output = ()>) -> usize {
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
        let progress = Arc::new(Progress::default());
        let service = {
            let (door, progress) = (door.clone(), progress.clone());
            service_fn(move |request: Request<Incoming>| {
                let working = progress.working();
                let leaving = door.janua().leaving.is_so() && request.version() < Version::HTTP_2;
                door.clone().handle(peer, request.map(Body::new)).map(move |mut response| {
                    drop(working);
                    if leaving {
                        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    }
                    Ok::<_, Infallible>(response)
                })
            })
        };
        let stream = TokioIo::new(Watched::new(stream, progress.clone()));
        let connection = graceful.watch(builder.serve_connection(stream, service).into_owned());
        let connections = door.janua().metrics.connections.clone();
        connections.inc();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                },
                () = progress.stalled(config.client_timeout) => tracing::debug!(%peer, "a slow client was cut off"),
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

type Accepted = (TcpStream, std::net::SocketAddr, tokio::sync::OwnedSemaphorePermit);

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
