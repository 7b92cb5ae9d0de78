//! A wire between two programs that can be made slow or dead while they talk.
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

#[derive(Default)]
struct State {
    delay_ms: AtomicU64,
    /// Answers are swallowed, and nobody hears that the other side hung up.
    dead: AtomicBool,
    /// The same for connections that listen for notices, and for no others.
    deaf: AtomicBool,
    /// The next COMMIT arrives, and its answer does not.
    cut_at_commit: AtomicBool,
    connections: AtomicU64,
}

pub struct Wire {
    pub address: SocketAddr,
    state: Arc<State>,
}

impl Wire {
    pub fn to(other: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (state, other) = (Arc::<State>::default(), other.to_owned());
        let shared = state.clone();
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&other) else { continue };
                let _ = (near.set_nodelay(true), far.set_nodelay(true));
                let (near_too, far_too) = (near.try_clone().expect("a copy"), far.try_clone().expect("a copy"));
                let (asked, answered) = (shared.clone(), shared.clone());
                shared.connections.fetch_add(1, SeqCst);
                let listens = Arc::new(AtomicBool::new(false));
                let listens_too = listens.clone();
                thread::spawn(move || pass(near, far_too, &asked, &listens, false));
                thread::spawn(move || {
                    pass(far, near_too, &answered, &listens_too, true);
                    answered.connections.fetch_sub(1, SeqCst);
                });
            }
        });
        Self { address, state }
    }

    /// Every answer takes this much longer.
    pub fn slow(&self, by: Duration) {
        self.state.delay_ms.store(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), SeqCst);
    }

    /// Nothing comes back any more, and nobody says so.
    pub fn die(&self, dead: bool) {
        self.state.dead.store(dead, SeqCst);
    }

    /// Nothing comes back any more on connections that listen for notices, and nobody says so.
    pub fn deafen(&self, deaf: bool) {
        self.state.deaf.store(deaf, SeqCst);
    }

    /// Passes the next COMMIT on, gives the other side time for it, and then cuts that connection.
    pub fn cut_at_next_commit(&self) {
        self.state.cut_at_commit.store(true, SeqCst);
    }

    /// Whether a COMMIT is still waited for.
    pub fn waits_for_commit(&self) -> bool {
        self.state.cut_at_commit.load(SeqCst)
    }

    pub fn connections(&self) -> u64 {
        self.state.connections.load(SeqCst)
    }
}

/// PostgreSQL's answer to COMMIT takes less on this machine.
const COMMIT_TAKES: Duration = Duration::from_millis(300);

fn pass(mut from: TcpStream, mut to: TcpStream, state: &State, listens: &AtomicBool, is_answer: bool) {
    let mut bytes = [0; 16 * 1024];
    // One that was caught by the dead line stays dead.
    let mut lost = false;
    while let Ok(count) = from.read(&mut bytes) {
        if is_answer {
            thread::sleep(Duration::from_millis(state.delay_ms.load(SeqCst)));
            lost |= state.dead.load(SeqCst) || (state.deaf.load(SeqCst) && listens.load(SeqCst));
        } else if bytes[..count].windows(7).any(|word| word == b"LISTEN ") {
            listens.store(true, SeqCst);
        }
        if count == 0 {
            break;
        }
        let commits = !is_answer && bytes[..count].windows(6).any(|word| word == b"COMMIT");
        if commits && state.cut_at_commit.swap(false, SeqCst) {
            // The answer is lost with the near side; the far side stays for as long as the commit takes.
            let _ = from.shutdown(std::net::Shutdown::Both);
            let _ = to.write_all(&bytes[..count]);
            thread::sleep(COMMIT_TAKES);
            break;
        }
        if !lost && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    if !lost {
        let _ = to.shutdown(std::net::Shutdown::Both);
        let _ = from.shutdown(std::net::Shutdown::Both);
    }
}
