//! A wire between a node and PostgreSQL that counts what passes: round trips, statements and transactions.
use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use anyhow::Result;

/// What passed since the wire was laid. The connection on which a node sends and receives notices does not count: it works
/// by the clock, and not for an act.
#[derive(Default)]
struct Passed {
    round_trips: AtomicU64,
    statements: AtomicU64,
    transactions: AtomicU64,
    writing: AtomicU64,
}

#[derive(Clone, Copy, Default, Debug)]
pub struct Count {
    pub round_trips: u64,
    pub statements: u64,
    pub transactions: u64,
    /// Transactions in which a statement changed a row.
    pub writing: u64,
}

impl Count {
    pub fn since(self, before: Self) -> Self {
        Self {
            round_trips: self.round_trips - before.round_trips,
            statements: self.statements - before.statements,
            transactions: self.transactions - before.transactions,
            writing: self.writing - before.writing,
        }
    }
}

pub struct Wire {
    pub address: SocketAddr,
    passed: Arc<Passed>,
}

impl Wire {
    /// Lays a wire to PostgreSQL at this port. It lasts as long as the process.
    pub fn lay(port: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, passed) = (listener.local_addr()?, Arc::new(Passed::default()));
        let shared = passed.clone();
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                // What cannot be set up shows as a connection that is closed.
                let _ = connect(near, far, &shared);
            }
        });
        Ok(Self { address, passed })
    }

    pub fn count(&self) -> Count {
        Count {
            round_trips: self.passed.round_trips.load(SeqCst),
            statements: self.passed.statements.load(SeqCst),
            transactions: self.passed.transactions.load(SeqCst),
            writing: self.passed.writing.load(SeqCst),
        }
    }
}

/// What both directions of a connection know of each other.
#[derive(Default)]
struct Connection {
    /// The server has answered since the node last asked.
    is_answered: AtomicBool,
    is_for_notices: AtomicBool,
}

fn connect(near: TcpStream, far: TcpStream, passed: &Arc<Passed>) -> Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let connection = Arc::new(Connection::default());
    let (mut from_node, mut to_server) = (near.try_clone()?, far.try_clone()?);
    let (asking, counted) = (connection.clone(), passed.clone());
    thread::spawn(move || {
        pass(&mut from_node, &mut to_server, |bytes| {
            if bytes.windows(7).any(|word| word == b"LISTEN ") {
                asking.is_for_notices.store(true, SeqCst);
            }
            if asking.is_answered.swap(false, SeqCst) && !asking.is_for_notices.load(SeqCst) {
                counted.round_trips.fetch_add(1, SeqCst);
            }
        });
    });
    let (mut from_server, mut to_node, passed) = (far, near, passed.clone());
    thread::spawn(move || {
        let mut answers = Answers::default();
        pass(&mut from_server, &mut to_node, |bytes| {
            let heard = answers.read(bytes);
            if heard.is_ready {
                connection.is_answered.store(true, SeqCst);
            }
            if !connection.is_for_notices.load(SeqCst) {
                passed.statements.fetch_add(heard.statements, SeqCst);
                passed.transactions.fetch_add(heard.transactions, SeqCst);
                passed.writing.fetch_add(heard.writing, SeqCst);
            }
        });
    });
    Ok(())
}

/// Looks at what comes before it is passed on, so that it is counted before anybody acts on it.
fn pass(from: &mut TcpStream, to: &mut TcpStream, mut look: impl FnMut(&[u8])) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count) = from.read(&mut bytes) {
        if count == 0 {
            break;
        }
        look(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// Reads messages of the server: a letter, a length that counts itself, and as many bytes.
#[derive(Default)]
struct Answers {
    rest: Vec<u8>,
    is_writing: bool,
    is_in_transaction: bool,
}

#[derive(Default, Debug, PartialEq, Eq)]
struct Heard {
    statements: u64,
    transactions: u64,
    writing: u64,
    is_ready: bool,
}

impl Answers {
    fn read(&mut self, bytes: &[u8]) -> Heard {
        self.rest.extend_from_slice(bytes);
        let (mut heard, mut at) = (Heard::default(), 0);
        while let Some(head) = self.rest.get(at..at + 5) {
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let Some(body) = self.rest.get(at + 5..at + 1 + length) else { break };
            match head[0] {
                // CommandComplete, with what was done and to how many rows.
                b'C' => {
                    let text = String::from_utf8_lossy(body);
                    let done = text.trim_end_matches('\0');
                    let is_control = ["BEGIN", "COMMIT", "ROLLBACK", "LISTEN"].contains(&done);
                    heard.statements += u64::from(!is_control);
                    let has_changed = !done.ends_with(" 0");
                    let writes = ["INSERT", "UPDATE", "DELETE"].iter().any(|verb| done.starts_with(verb));
                    self.is_writing |= writes && has_changed;
                    self.is_in_transaction |= !is_control || done == "COMMIT";
                }
                // ReadyForQuery: idle, hence a transaction has ended.
                b'Z' => {
                    heard.is_ready = true;
                    if body == b"I" && std::mem::take(&mut self.is_in_transaction) {
                        heard.transactions += 1;
                        heard.writing += u64::from(std::mem::take(&mut self.is_writing));
                    }
                }
                _ => {}
            }
            at += 1 + length;
        }
        self.rest.drain(..at);
        heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(letter: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[letter][..], &length.to_be_bytes(), body].concat()
    }

    #[test]
    fn transactions_are_counted_by_what_the_server_answers() {
        let all = [
            message(b'C', b"SELECT 1\0"),
            message(b'Z', b"I"),
            message(b'C', b"BEGIN\0"),
            message(b'Z', b"T"),
            message(b'C', b"INSERT 0 1\0"),
            message(b'Z', b"T"),
            message(b'C', b"COMMIT\0"),
            message(b'Z', b"I"),
            message(b'C', b"UPDATE 0\0"),
            message(b'Z', b"I"),
        ]
        .concat();
        let expected = Heard { statements: 3, transactions: 3, writing: 1, is_ready: true };
        assert_eq!(Answers::default().read(&all), expected);
        // However it is cut into pieces.
        let (mut answers, mut sum) = (Answers::default(), Heard::default());
        for byte in all {
            let heard = answers.read(&[byte]);
            sum.statements += heard.statements;
            sum.transactions += heard.transactions;
            sum.writing += heard.writing;
            sum.is_ready |= heard.is_ready;
        }
        assert_eq!(sum, expected);
    }
}
