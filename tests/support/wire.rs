//! A wire between two programs that can be made slow, dead or cut while they talk.
use std::{
    collections::HashMap,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
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
    /// Every connection is closed, and so is each new one.
    cut: AtomicBool,
    /// Where new connections lead to: one place, or several, separated by commas, that take turns.
    other: Mutex<String>,
    /// Both ends of what is open, by number.
    open: Mutex<HashMap<usize, [TcpStream; 2]>>,
}

pub struct Wire {
    pub address: SocketAddr,
    state: Arc<State>,
}

impl Wire {
    pub fn to(other: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State { other: Mutex::new(other.to_owned()), ..State::default() });
        let shared = state.clone();
        thread::spawn(move || {
            for (number, near) in (0_usize..).zip(listener.incoming().map_while(Result::ok)) {
                if shared.cut.load(SeqCst) {
                    continue;
                }
                let other = shared.other.lock().expect("a place").clone();
                let places: Vec<&str> = other.split(',').collect();
                let mut turns = places.iter().cycle().skip(number % places.len()).take(places.len());
                let Some(far) = turns.find_map(|place| TcpStream::connect(place).ok()) else { continue };
                let _ = (near.set_nodelay(true), far.set_nodelay(true));
                let copy = |stream: &TcpStream| stream.try_clone().expect("a copy");
                let (near_too, far_too) = (copy(&near), copy(&far));
                shared.open.lock().expect("connections").insert(number, [copy(&near), copy(&far)]);
                if shared.cut.load(SeqCst) {
                    shared.hang_up();
                }
                let (asked, answered) = (shared.clone(), shared.clone());
                shared.connections.fetch_add(1, SeqCst);
                let listens = Arc::new(AtomicBool::new(false));
                let listens_too = listens.clone();
                thread::spawn(move || pass(near, far_too, &asked, &listens, false));
                thread::spawn(move || {
                    pass(far, near_too, &answered, &listens_too, true);
                    answered.open.lock().expect("connections").remove(&number);
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

    /// Closes every connection and each new one, as if no program listened; or lets them through again.
    pub fn cut(&self, cut: bool) {
        self.state.cut.store(cut, SeqCst);
        if cut {
            self.state.hang_up();
        }
    }

    /// New connections lead to another place.
    pub fn point(&self, other: &str) {
        other.clone_into(&mut self.state.other.lock().expect("a place"));
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

impl State {
    fn hang_up(&self) {
        for stream in self.open.lock().expect("connections").drain().flat_map(|(_, ends)| ends) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
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
