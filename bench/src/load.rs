//! The load generator: connections that stay open and ask again as soon as they have the answer.
//!
//! Written here because it must cost little and be the same everywhere: it reads of an answer the status and the
//! length, and runs on one thread, in a process that can be given a core of its own.
use std::{
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime,
    task::JoinSet,
};

use crate::process::{self, Core};

pub const CONNECTIONS: usize = 32;
const LONGEST_ANSWER: usize = 256 * 1024;

#[derive(clap::Args)]
pub struct Options {
    address: SocketAddr,
    milliseconds: u64,
    /// What is asked: a request as it goes over the wire, or a file of refresh tokens, one for each connection
    file: PathBuf,
    /// The file holds refresh tokens, and each answer the next one
    #[arg(long)]
    chain: bool,
    /// What every answer begins with: 2 for a success, 4 for a refusal
    #[arg(long, default_value_t = '2')]
    expect: char,
    /// Never sleep: the core is the generator's alone, and waking it is not charged to the slower server
    #[arg(long)]
    awake: bool,
}

/// What the connections ask.
pub enum Ask {
    /// The same request each time.
    Again(Vec<u8>),
    /// The same, to be refused each time.
    Refused(Vec<u8>),
    /// A refresh token for each connection; each answer holds the next one.
    Chain(Vec<String>),
}

impl Ask {
    pub fn again(request: Vec<u8>) -> Self {
        Self::Again(request)
    }

    pub fn chain(tokens: Vec<String>) -> Self {
        Self::Chain(tokens)
    }
}

/// A request as it goes over the wire.
pub fn request(method: &str, path: &str, token: &str, body: &str, connection: &str) -> Vec<u8> {
    let bearer = if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: bench\r\nconnection: {connection}\r\n{bearer}{kind}");
    format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// GET /health, as often as the server can.
pub fn against(address: SocketAddr, length: Duration, core: Core) -> Result<u64> {
    with(address, length, core, &Ask::again(request("GET", "/health", "", "", "keep-alive")))
}

/// Runs the generator on a core; answers how many requests were answered.
pub fn with(address: SocketAddr, length: Duration, core: Core, ask: &Ask) -> Result<u64> {
    let file = tempfile::NamedTempFile::new()?;
    let (content, option) = match ask {
        Ask::Again(request) => (request.clone(), None),
        Ask::Refused(request) => (request.clone(), Some("--expect=4")),
        Ask::Chain(tokens) => (tokens.join("\n").into_bytes(), Some("--chain")),
    };
    std::fs::write(file.path(), content)?;
    let mut command = process::command(std::env::current_exe()?, core);
    command.args(["load", &address.to_string(), &length.as_millis().to_string()]).arg(file.path()).args(option);
    if matches!(core, Core::Only(_)) {
        command.arg("--awake");
    }
    let generator = command.output()?;
    ensure!(generator.status.success(), "the load generator: {}", String::from_utf8_lossy(&generator.stderr));
    Ok(String::from_utf8(generator.stdout)?.trim().parse()?)
}

/// The generator itself: prints how many requests were answered.
pub fn run(options: &Options) -> Result<()> {
    let content = std::fs::read(&options.file)?;
    let answered: u64 =
        runtime::Builder::new_current_thread().enable_io().event_interval(1).build()?.block_on(async {
            if options.awake {
                tokio::spawn(async {
                    loop {
                        tokio::task::yield_now().await;
                    }
                });
            }
            let until = Instant::now() + Duration::from_millis(options.milliseconds);
            let mut connections = JoinSet::new();
            if options.chain {
                for token in String::from_utf8(content)?.lines() {
                    connections.spawn(converse(
                        options.address,
                        until,
                        options.expect,
                        Next::Token(token.to_owned()),
                    ));
                }
            } else {
                for _ in 0..CONNECTIONS {
                    connections.spawn(converse(options.address, until, options.expect, Next::Same(content.clone())));
                }
            }
            let mut answered = 0;
            while let Some(connection) = connections.join_next().await {
                answered += connection??;
            }
            anyhow::Ok(answered)
        })?;
    println!("{answered}");
    Ok(())
}

/// What a connection asks next.
enum Next {
    Same(Vec<u8>),
    Token(String),
}

impl Next {
    fn request(&self) -> Vec<u8> {
        match self {
            Self::Same(request) => request.clone(),
            Self::Token(token) => {
                let body = serde_json::json!({ "refreshToken": token }).to_string();
                request("POST", "/auth/refresh", "", &body, "keep-alive")
            }
        }
    }

    fn heard(&mut self, answer: &[u8]) -> Result<()> {
        if let Self::Token(token) = self {
            const NAME: &str = "\"refreshToken\":\"";
            let text = std::str::from_utf8(answer)?;
            let start = text.find(NAME).context("no refresh token")? + NAME.len();
            let end = text[start..].find('"').context("no end of the token")?;
            text[start..start + end].clone_into(token);
        }
        Ok(())
    }
}

async fn converse(address: SocketAddr, until: Instant, expect: char, mut next: Next) -> Result<u64> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; LONGEST_ANSWER];
    let mut answered = 0;
    while Instant::now() < until {
        stream.write_all(&next.request()).await?;
        let mut filled = 0;
        while !is_whole(&buffer[..filled], expect)? {
            let read = stream.read(&mut buffer[filled..]).await?;
            ensure!(read > 0, "the server hung up, or its answer is too long");
            filled += read;
        }
        next.heard(&buffer[..filled])?;
        answered += 1;
    }
    Ok(answered)
}

/// Whether all of an answer has arrived. An answer of another kind ends the measurement.
fn is_whole(received: &[u8], expect: char) -> Result<bool> {
    const END_OF_HEAD: &[u8] = b"\r\n\r\n";
    let Some(end) = received.windows(END_OF_HEAD.len()).position(|bytes| bytes == END_OF_HEAD) else {
        return Ok(false);
    };
    let head = std::str::from_utf8(&received[..end])?;
    if !head.strip_prefix("HTTP/1.1 ").is_some_and(|status| status.starts_with(expect)) {
        bail!("not as expected: {head}");
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).context("no content-length")?;
    Ok(received.len() >= end + END_OF_HEAD.len() + length.parse::<usize>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is_as_long_as_it_says() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine";
        assert!(is_whole(answer, '2').unwrap());
        for cut in [0, 10, answer.len() - 4, answer.len() - 1] {
            assert!(!is_whole(&answer[..cut], '2').unwrap(), "{cut} bytes are not enough");
        }
        let refusal = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";
        assert!(is_whole(refusal, '2').is_err());
        assert!(is_whole(refusal, '4').unwrap());
    }
}
