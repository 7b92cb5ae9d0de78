//! Slow clients: a connection that sends no whole request, or reads nothing of its answer, for too long is closed.
//!
//! Written by hand because the ready-made time-outs (of `hyper` and of `tokio-io-timeout`) set a timer for each request
//! or write, which cost a tenth of a short answer; this is one timer for each connection, that goes off a few times
//! while its client dawdles.
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time,
};

use super::linger::Linger;

/// How often a connection is looked at before it is given up.
const LOOKS: u32 = 5;

/// What happens on one connection, as far as patience is concerned. That bytes come in is no sign of life: a client
/// may send a head byte by byte for as long as it likes.
#[derive(Default)]
pub struct Progress {
    /// Requests being worked on; how long those may take is the pipeline's affair.
    requests: AtomicUsize,
    /// Whether the client took something since the last look.
    wrote: AtomicBool,
    /// Whether a request was answered whose body had not come as a whole.
    unread: AtomicBool,
}

impl Progress {
    /// Counts as a request under way until dropped.
    pub fn working(self: &Arc<Self>) -> Working {
        self.requests.fetch_add(1, Relaxed);
        Working(self.clone())
    }

    /// Ends when nothing has happened for `patience`.
    pub async fn stalled(&self, patience: Duration) {
        let mut quiet = 0;
        while quiet < LOOKS {
            time::sleep(patience / LOOKS).await;
            let moved = self.wrote.swap(false, Relaxed) | (self.requests.load(Relaxed) > 0);
            quiet = if moved { 0 } else { quiet + 1 };
        }
    }
}

pub struct Working(Arc<Progress>);

impl Working {
    /// Notes that the answer goes out before the whole body came, so that it is the last one.
    pub fn leaves_body(&self) {
        self.0.unread.store(true, Relaxed);
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Relaxed);
    }
}

/// A stream that says when something was written, and lets a client that is still sending read its last answer.
pub struct Watched<S> {
    stream: S,
    progress: Arc<Progress>,
    linger: Option<Linger>,
}

impl<S> Watched<S> {
    pub fn new(stream: S, progress: Arc<Progress>) -> Self {
        Self { stream, progress, linger: None }
    }

    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(1..)) = written {
            self.progress.wrote.store(true, Relaxed);
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, progress, linger } = &mut *self;
        if linger.is_none() {
            ready!(Pin::new(&mut *stream).poll_shutdown(cx))?;
            if !progress.unread.load(Relaxed) {
                return Poll::Ready(Ok(()));
            }
        }
        linger.get_or_insert_with(Linger::new).poll(stream, cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    async fn is_given_up(progress: &Arc<Progress>, within: Duration) -> bool {
        time::timeout(within, progress.stalled(PATIENCE)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_nothing_is_given_up_in_time() {
        let progress = Arc::new(Progress::default());
        assert!(!is_given_up(&progress, PATIENCE * 9 / 10).await);
        assert!(is_given_up(&progress, PATIENCE).await);
    }

    #[tokio::test(start_paused = true)]
    async fn one_whose_request_is_worked_on_is_waited_for() {
        let progress = Arc::new(Progress::default());
        let working = progress.working();
        assert!(!is_given_up(&progress, 10 * PATIENCE).await);
        drop(working);
        assert!(is_given_up(&progress, PATIENCE).await);
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_reads_slowly_is_waited_for() {
        let progress = Arc::new(Progress::default());
        let reads = async {
            for _ in 0..20 {
                time::sleep(PATIENCE / 2).await;
                progress.wrote.store(true, Relaxed);
            }
        };
        tokio::select! {
            () = reads => {}
            () = progress.stalled(PATIENCE) => panic!("cut off while it was reading"),
        }
    }
}
