//! The end of a connection whose client is still sending. Closed at once it would be reset, and what was answered could be
//! lost with it, above all behind a proxy (RFC 9112, 9.6). So for a while what comes is read and dropped.
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, ReadBuf},
    time::{Sleep, sleep},
};

/// How long the client has to read its answer, and how much it may send meanwhile: more than proxies pass on.
const PATIENCE: Duration = Duration::from_secs(2);
const MOST: usize = 8 * 1024 * 1024;
const PIECE: usize = 16 * 1024;

pub(super) struct Linger {
    until: Pin<Box<Sleep>>,
    left: usize,
    piece: Box<[u8]>,
}

impl Linger {
    pub(super) fn new() -> Self {
        Self { until: Box::pin(sleep(PATIENCE)), left: MOST, piece: vec![0; PIECE].into() }
    }

    /// Ready when the client is done, has had its time, or has sent too much.
    pub(super) fn poll(&mut self, mut stream: impl AsyncRead + Unpin, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.left > 0 && self.until.as_mut().poll(cx).is_pending() {
            let mut piece = ReadBuf::new(&mut self.piece);
            ready!(Pin::new(&mut stream).poll_read(cx, &mut piece))?;
            match piece.filled().len() {
                0 => break,
                length => self.left = self.left.saturating_sub(length),
            }
        }
        Poll::Ready(Ok(()))
    }
}
