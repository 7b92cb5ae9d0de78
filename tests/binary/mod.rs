//! The binary as its users meet it: started, asked over real sockets, stopped.
#![allow(dead_code, clippy::expect_used, reason = "each test program uses its part, and fails when it must")]
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

pub const JANUA: &str = env!("CARGO_BIN_EXE_janua");

/// The binary in an environment with no settings but those given.
pub fn janua(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(JANUA);
    command.args(arguments).current_dir(folder).env_clear().env("RUST_BACKTRACE", "0");
    command
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
}

impl Server {
    /// On a port the system chooses, with the given settings besides.
    pub fn start(folder: &Path, settings: &[(&str, &str)]) -> Self {
        let mut command = janua(folder, &["serve", "--listen", "127.0.0.1:0"]);
        command.envs(settings.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split_whitespace().next());
        let address = address.and_then(|text| text.parse().ok());
        Self { address: address.unwrap_or_else(|| panic!("it says where it listens: {line:?}")), child }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
        stream
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
