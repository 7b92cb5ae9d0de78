//! The binary as its users meet it: started, asked over real sockets, stopped.
#![allow(
    dead_code,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "each test program uses a part of this module, and its tests fail by panicking"
)]
use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

pub mod browser;
pub mod clock;
pub mod crash;
pub mod people;
pub mod postgres;
pub mod receiver;
pub mod smtp;
pub mod wire;

pub const JANUA: &str = env!("CARGO_BIN_EXE_janua");

pub const SERVE: &[&str] = &["serve", "--listen", "127.0.0.1:0"];

/// The binary in an environment with no settings but those given.
pub fn janua(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(JANUA);
    command.args(arguments).current_dir(folder).env_clear().env("RUST_BACKTRACE", "0");
    command
}

/// Raises the limit of open files of this process and of what it starts. It is never lowered: other tests of the same
/// program may need what they asked for.
pub fn allow_open_files(least: usize) {
    let limits = fs::read_to_string("/proc/self/limits").expect("limits");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("the limit of open files");
    let now: Vec<usize> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    if now.first().is_none_or(|soft| *soft >= least) {
        return;
    }
    let hard = now.get(1).map_or(least, |hard| least.max(*hard));
    let mut raise = Command::new("prlimit");
    raise.args([&format!("--pid={}", std::process::id()), &format!("--nofile={least}:{hard}")]);
    assert!(raise.status().is_ok_and(|done| done.success()), "this machine allows fewer than {least} open files");
}

pub fn run(mut command: Command) -> (bool, String) {
    let Output { status, stdout, stderr } = command.output().expect("the binary runs");
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    (status.success(), said)
}

/// A server that is killed when the test is done with it.
pub struct Server {
    pub child: Child,
    pub address: SocketAddr,
    /// What it said when it started.
    pub greeting: String,
}

impl Server {
    /// On a port the system chooses, with the given settings besides.
    pub fn start(folder: &Path, settings: &[(&str, &str)]) -> Self {
        let mut command = janua(folder, SERVE);
        command.envs(settings.iter().copied());
        Self::of(command)
    }

    /// Whatever starts the server; it must become it, and not stand beside it.
    pub fn of(command: Command) -> Self {
        Self::logging_to(command, Stdio::null())
    }

    /// The same, with its log lines sent somewhere.
    pub fn logging_to(mut command: Command, log: Stdio) -> Self {
        // Storms register webhooks by the thousand: each is a small thing that is written durably.
        command.env("JANUA_WEBHOOKS_PER_HOST", "1000000");
        command.stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().expect("the binary starts");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        output.read_line(&mut line).expect("a line");
        let greeting = format!("{line}{}", String::from_utf8_lossy(output.buffer()));
        let address = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
        let address = address.and_then(|text| text.parse().ok());
        Self { address: address.unwrap_or_else(|| panic!("it says where it listens: {line:?}")), child, greeting }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
        stream
    }

    /// A connection that stays open for many requests.
    pub fn visit(&self) -> Visit {
        Visit(BufReader::new(self.connect()))
    }

    /// As [`visit`](Self::visit), for who may have to stand in a queue.
    pub fn visit_patiently(&self) -> Visit {
        let stream = self.connect();
        stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a time limit");
        Visit(BufReader::new(stream))
    }

    /// One request on a connection of its own: status and everything that came back.
    pub fn get(&self, path: &str) -> (u16, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        self.send(request.as_bytes())
    }

    pub fn send(&self, request: &[u8]) -> (u16, String) {
        let mut stream = self.connect();
        stream.write_all(request).expect("it reads");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        (status, answer)
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits for it to end by itself; answers whether it did so well, and how long it took.
    pub fn ended(&mut self, within: Duration) -> (bool, Duration) {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return (status.success(), started.elapsed());
            }
            assert!(started.elapsed() < within, "it did not end within {within:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that stays open.
pub struct Visit(BufReader<TcpStream>);

/// What came back, and whether the other side wants no more on this connection.
pub struct Answer {
    pub status: u16,
    pub body: String,
    pub is_last: bool,
}

impl Visit {
    /// To an address where somebody may or may not be.
    pub fn try_to(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// One request and its answer: the status and the body.
    pub fn ask(&mut self, method: &str, path: &str, token: &str, body: &str) -> (u16, String) {
        let answer = self.attempt(method, path, token, body).expect("an answer");
        (answer.status, answer.body)
    }

    /// As [`ask`](Self::ask), where the other side may be gone.
    pub fn attempt(&mut self, method: &str, path: &str, token: &str, body: &str) -> io::Result<Answer> {
        self.attempt_with("", method, path, token, body)
    }

    /// As [`attempt`](Self::attempt), with an `Idempotency-Key` unless it is empty.
    pub fn attempt_with(
        &mut self,
        key: &str,
        method: &str,
        path: &str,
        token: &str,
        body: &str,
    ) -> io::Result<Answer> {
        let bearer = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
        let key = if key.is_empty() { String::new() } else { format!("Idempotency-Key: {key}\r\n") };
        let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\n{bearer}{key}{kind}Content-Length: {length}\r\n\r\n{body}"
        );
        self.0.get_mut().write_all(request.as_bytes())?;
        let (mut status, mut length, mut is_last) = (0, 0, false);
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up"));
            }
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest[..3].parse().expect("a status");
            }
            let line = line.to_lowercase();
            if let Some(said) = line.strip_prefix("content-length:") {
                length = said.trim().parse().expect("a length");
            }
            is_last |= line.trim_end() == "connection: close";
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned(), is_last })
    }
}

/// How much of a long test to run: `short`, or `long` when `TEST_STORMS=long` is set. A short run says what it leaves out, on
/// the real standard error, which the test harness does not capture.
pub fn extent(short: usize, long: usize, what: &str) -> usize {
    if let Ok(set) = std::env::var("TEST_STORMS") {
        assert_eq!(set, "long", "TEST_STORMS is either unset or \"long\"");
        return long;
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let _ = writeln!(io::stderr(), "short run of {test}: {short} {what} (TEST_STORMS=long: {long})");
    short
}

/// Waits until something is there.
pub fn wait<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(started.elapsed() < Duration::from_secs(15), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The newest mail in a folder that holds these words. Its text lies there as it is.
pub fn mail_with(folder: &Path, words: &str) -> Option<String> {
    mail_with_all(folder, &[words])
}

/// The newest mail that contains each of these.
pub fn mail_with_all(folder: &Path, words: &[&str]) -> Option<String> {
    let mut files: Vec<_> = fs::read_dir(folder).ok()?.filter_map(Result::ok).collect();
    files.sort_by_key(|file| file.metadata().and_then(|meta| meta.modified()).ok());
    let mut texts = files.iter().rev().filter_map(|file| fs::read_to_string(file.path()).ok());
    texts.find(|text| words.iter().all(|word| text.contains(word)))
}

pub fn token_in(mail: &str) -> String {
    let start = mail.find("?token=").expect("a link") + "?token=".len();
    mail[start..].chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect()
}
