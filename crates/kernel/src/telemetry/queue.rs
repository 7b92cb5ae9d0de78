//! The way of log lines out of the process: a bounded queue and a thread of its own, so that a slow or missing reader
//! of the log delays no request. Lines that find the queue full are dropped and counted.
use std::{
    io::{self, Write},
    sync::{
        Arc, LazyLock, OnceLock,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Relaxed},
        },
    },
    thread,
    time::Duration,
};

use crossbeam_channel::{Receiver, Sender, bounded};
use prometheus_client::metrics::counter::Counter;

/// What may wait to be written, whichever is reached first.
const MOST_LINES: usize = 8 * 1024;
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// How long to wait for an output that takes nothing right now.
const PAUSE: Duration = Duration::from_millis(20);

static QUEUE: OnceLock<Queue> = OnceLock::new();
static DROPPED: LazyLock<Counter> = LazyLock::new(Counter::default);

/// How many lines were dropped since the start.
pub(super) fn dropped() -> Counter {
    DROPPED.clone()
}

/// Waits until everything logged so far is written, but not for longer than this.
pub fn flush(within: Duration) {
    if let Some(queue) = QUEUE.get() {
        queue.flush(within);
    }
}

/// Writes a text for a person to standard error, behind the log lines that wait; never for longer than this. The error
/// hands the text back where there is no log yet.
pub fn say(text: &str, within: Duration) -> Result<(), &str> {
    let queue = QUEUE.get().ok_or(text)?;
    queue.push(text.as_bytes());
    queue.flush(within);
    Ok(())
}

/// What a line looks like that says how many are missing.
type SayMissing = fn(u64) -> String;

#[derive(Clone)]
pub(super) struct Queue(Arc<Shared>);

struct Shared {
    entries: Sender<Entry>,
    /// How much waits.
    bytes: AtomicUsize,
    /// Dropped, and not yet said.
    missing: AtomicU64,
}

enum Entry {
    Line(Box<[u8]>),
    /// Heard once everything before it is written.
    Flush(Sender<()>),
}

impl Queue {
    /// The one queue to standard error. Past the library's own handle to it, whose lock would otherwise be held for as long
    /// as nobody reads.
    pub(super) fn to_stderr(say_missing: SayMissing) -> io::Result<Self> {
        use std::os::fd::AsFd as _;
        if let Some(queue) = QUEUE.get() {
            return Ok(queue.clone());
        }
        let stderr = std::fs::File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let queue = Self::start(stderr, say_missing)?;
        Ok(QUEUE.get_or_init(|| queue).clone())
    }

    fn start(out: impl Write + Send + 'static, say_missing: SayMissing) -> io::Result<Self> {
        let (entries, waiting) = bounded(MOST_LINES);
        let shared = Arc::new(Shared { entries, bytes: AtomicUsize::new(0), missing: AtomicU64::new(0) });
        let own = shared.clone();
        thread::Builder::new().name("log".into()).spawn(move || own.write(&waiting, out, say_missing))?;
        Ok(Self(shared))
    }

    fn push(&self, line: &[u8]) {
        let shared = &*self.0;
        let waiting = shared.bytes.fetch_add(line.len(), AcqRel);
        let fits = waiting + line.len() <= MOST_BYTES;
        if !fits || shared.entries.try_send(Entry::Line(line.into())).is_err() {
            shared.bytes.fetch_sub(line.len(), AcqRel);
            shared.missing.fetch_add(1, Relaxed);
            DROPPED.inc();
        }
    }

    fn flush(&self, within: Duration) {
        let (done, is_done) = bounded(1);
        // Half of the time to get a place in the queue, and half to get through it.
        if self.0.entries.send_timeout(Entry::Flush(done), within / 2).is_ok() {
            let _ = is_done.recv_timeout(within / 2);
        }
    }
}

/// Takes one whole line a call, which is how the formatter calls it.
impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn write(&self, waiting: &Receiver<Entry>, mut out: impl Write, say_missing: SayMissing) {
        for entry in waiting {
            match entry {
                Entry::Line(line) => {
                    if write_all(&mut out, &line).is_err() {
                        DROPPED.inc();
                    }
                    self.bytes.fetch_sub(line.len(), AcqRel);
                }
                // Whoever asked may have stopped waiting.
                Entry::Flush(done) => drop(out.flush().and(done.try_send(()).map_err(io::Error::other))),
            }
            let missing = self.missing.swap(0, Relaxed);
            if missing > 0 {
                let _ = write_all(&mut out, say_missing(missing).as_bytes());
            }
        }
    }
}

/// All of it, also where the output was told not to block by whoever shares it.
fn write_all(out: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Takes nothing until the door is opened.
    #[derive(Clone, Default)]
    struct Out {
        taken: Arc<Mutex<Vec<u8>>>,
        closed: Arc<Mutex<()>>,
    }
    impl Write for Out {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _open = self.closed.lock().unwrap();
            // In pieces, as a pipe may.
            let count = bytes.len().min(5);
            self.taken.lock().unwrap().extend_from_slice(&bytes[..count]);
            Ok(count)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn missing(count: u64) -> String {
        format!("{count} missing\n")
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn lines_come_out_whole_and_in_order() {
        let out = Out::default();
        let mut queue = Queue::start(out.clone(), missing).unwrap();
        for i in 0..100 {
            queue.write_all(format!("line {i}\n").as_bytes()).unwrap();
        }
        Queue::flush(&queue, LONG);
        let expected = (0..100).map(|i| format!("line {i}")).collect::<Vec<_>>().join("\n") + "\n";
        assert_eq!(String::from_utf8(out.taken.lock().unwrap().clone()).unwrap(), expected);
    }

    #[test]
    fn what_nobody_takes_is_dropped_counted_and_said_later() {
        let out = Out::default();
        let queue = Queue::start(out.clone(), missing).unwrap();
        let closed = out.closed.lock().unwrap();
        let line = [b'x'; 1024];
        for _ in 0..20_000 {
            queue.push(&line);
        }
        assert!(queue.0.bytes.load(Relaxed) <= MOST_BYTES, "bounded in bytes");
        for _ in 0..20_000 {
            queue.push(b"");
        }
        assert!(queue.0.entries.len() <= MOST_LINES, "and in number");
        Queue::flush(&queue, Duration::from_millis(20));
        drop(closed);
        Queue::flush(&queue, LONG);
        Queue::flush(&queue, LONG);
        let said = String::from_utf8(out.taken.lock().unwrap().clone()).unwrap();
        let missing = said.split('x').find_map(|text| text.strip_suffix(" missing\n")).unwrap();
        let missing: usize = missing.parse().unwrap();
        let kept = said.matches(&"x".repeat(1024)).count();
        assert!(missing >= 20_000 - kept, "{missing} missing, {kept} kept");
    }
}
