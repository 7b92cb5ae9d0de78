//! Somebody who listens to webhooks, and writes down what comes.
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A request, and when it came, in seconds.
#[derive(Clone)]
pub struct Came {
    pub signature: String,
    pub body: Vec<u8>,
    pub at: u64,
}

#[derive(Clone)]
pub struct Receiver {
    pub url: String,
    came: Arc<Mutex<Vec<Came>>>,
}

impl Receiver {
    /// It takes its time with each fifth.
    pub fn start(pause: Duration) -> Self {
        Self::slow(5, pause)
    }

    /// It takes its time with one of so many.
    pub fn slow(one_of: usize, pause: Duration) -> Self {
        Self::on("127.0.0.1:0", one_of, pause)
    }

    /// At an address that webhooks know already.
    pub fn at(address: &str) -> Self {
        Self::on(address, 1, Duration::ZERO)
    }

    fn on(address: &str, one_of: usize, pause: Duration) -> Self {
        let listener = TcpListener::bind(address).expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let receiver = Self { url, came: Arc::default() };
        let shared = receiver.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let receiver = shared.clone();
                thread::spawn(move || receiver.serve(stream, one_of, pause));
            }
        });
        receiver
    }

    pub fn all(&self) -> MutexGuard<'_, Vec<Came>> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: TcpStream, one_of: usize, pause: Duration) {
        let mut reader = BufReader::new(stream);
        loop {
            let (mut length, mut signature) = (0, String::new());
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                let line = line.trim_end();
                match line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value)) {
                    Some((name, value)) if name == "content-length" => length = value.parse().expect("a length"),
                    Some((name, value)) if name == "webhook-signature" => value.clone_into(&mut signature),
                    _ => {}
                }
                if line.is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() {
                return;
            }
            let count = {
                let mut all = self.all();
                all.push(Came { signature, body, at: now() });
                all.len()
            };
            if count.is_multiple_of(one_of) {
                thread::sleep(pause);
            }
            if reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_err() {
                return;
            }
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
