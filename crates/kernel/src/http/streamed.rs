//! Bodies that a handler reads as they come: files. They may be long and take long, so what is limited is how long
//! nothing comes, and how many there are at once.
use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use aide::{OperationInput, generate::GenContext, openapi::Operation};
use axum::{
    body::{Body, HttpBody},
    extract::{FromRequest, Request},
};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use tokio::time::timeout;

use super::{
    bodies::ByNetwork,
    input::{Raw, SLOW_BODY},
};
use crate::{
    Janua,
    fault::{Fault, MALFORMED, OVERLOADED, Result, TOO_LARGE},
    ports::objects::Source,
};

/// How long nothing may come.
const IDLE: Duration = Duration::from_secs(15);
/// How long one may take in all.
pub(super) const LONGEST_STREAM: Duration = Duration::from_mins(15);
/// How many there may be at once, and of one network.
const MOST: usize = 512;
const SHARE: usize = MOST / 2;

/// The body of a request to a route that [`streams`](super::Routes::streams).
pub struct Streamed {
    body: Body,
    most: u64,
}

/// How long a body may be; the door knows.
#[derive(Clone, Copy)]
struct Longest(u64);

impl Streamed {
    /// How long it says it is.
    pub fn announced(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// Its bytes. They end with an error when they stop coming, are too many, or the client goes away.
    pub fn into_source<'a>(self) -> Source<'a> {
        Box::pin(stream::try_unfold((self.body, 0u64), move |(mut body, length)| async move {
            loop {
                let frame = match timeout(IDLE, body.frame()).await {
                    Ok(Some(frame)) => frame.map_err(|_| MALFORMED.because("The body ended early."))?,
                    Ok(None) => return Ok(None),
                    Err(_) => return Err(SLOW_BODY.into()),
                };
                let Ok(piece) = frame.into_data() else { continue };
                let length = length + piece.len() as u64;
                if length > self.most {
                    return Err(Fault::from(TOO_LARGE));
                }
                if !piece.is_empty() {
                    return Ok(Some((piece, (body, length))));
                }
            }
        }))
    }
}

impl FromRequest<Janua> for Streamed {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &Janua) -> Result<Self> {
        // A request from within has none: its body came through the door with another request.
        let most = request.extensions().get::<Longest>().map_or(u64::MAX, |longest| longest.0);
        Ok(Self { body: request.into_body(), most })
    }
}

impl OperationInput for Streamed {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Raw::operation_input(ctx, operation);
    }
}

/// The streams that are open.
pub(super) struct Streams(Arc<Open>);

struct Open {
    all: AtomicUsize,
    by_network: ByNetwork,
}

pub(super) struct StreamPlace {
    open: Arc<Open>,
    network: usize,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self(Arc::new(Open { all: AtomicUsize::new(0), by_network: ByNetwork::new() }))
    }

    /// A place, the request as the handler gets it, and its body for whoever has to know what became of it.
    pub(super) fn begin(
        &self,
        network: std::net::IpAddr,
        request: Request,
        most: u64,
    ) -> Result<(StreamPlace, Request, Body), (Fault, Body)> {
        let network = self.0.by_network.of(network);
        if self.0.all.fetch_add(1, Relaxed) >= MOST || !self.0.by_network.add(network, 1, SHARE) {
            self.0.all.fetch_sub(1, Relaxed);
            let refusal = Fault::from(OVERLOADED).retry_after(Duration::from_secs(5));
            return Err((refusal, request.into_body()));
        }
        let place = StreamPlace { open: self.0.clone(), network };
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(Longest(most));
        let body = Shared(Arc::new(Mutex::new(body)));
        Ok((place, Request::from_parts(parts, Body::new(body.clone())), Body::new(body)))
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.open.all.fetch_sub(1, Relaxed);
        self.open.by_network.take_off(self.network, 1);
    }
}

/// One body in two hands: the handler's, and the door's, which looks after what the handler left of it.
#[derive(Clone)]
struct Shared(Arc<Mutex<Body>>);

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut body = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Pin::new(&mut *body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_sends_slowly_is_waited_for_and_who_stops_is_not() {
        let slow = stream::unfold(0, async |sent| {
            tokio::time::sleep(if sent < 20 { IDLE * 9 / 10 } else { IDLE * 2 }).await;
            Some((Ok::<_, axum::Error>(Bytes::from_static(b"x")), sent + 1))
        });
        let streamed = Streamed { body: Body::from_stream(slow), most: 100 };
        let came: Vec<_> = streamed.into_source().collect().await;
        assert_eq!(came.len(), 21);
        assert!(came[..20].iter().all(Result::is_ok));
        assert_eq!(came[20].as_ref().unwrap_err().code(), SLOW_BODY);
    }

    #[test]
    fn one_network_takes_half_of_the_places_at_most() {
        let streams = Streams::new();
        let begin = |network: [u8; 4]| streams.begin(network.into(), Request::new(Body::empty()), 1).ok();
        let mut places: Vec<_> = (0..SHARE).map(|_| begin([10, 0, 0, 1]).unwrap()).collect();
        assert!(begin([10, 0, 0, 1]).is_none());
        places.pop();
        assert!(begin([10, 0, 0, 1]).is_some(), "one that ends makes room");
        let others: Vec<_> = (0..=255).filter_map(|i| begin([10, 0, 1, i])).collect();
        assert!(others.len() + places.len() <= MOST);
        assert!(begin([10, 0, 2, 0]).is_none() || others.len() + places.len() < MOST);
    }
}
