//! The load generator: connections that stay open and ask again as soon as they have the answer.
//!
//! Written here because it must cost little and be the same everywhere: it reads of an answer the status and the
//! length, and runs on one thread, in a process that can be given a core of its own.
use std::{
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime,
    task::JoinSet,
};

use crate::{
    client::{self, Who},
    process::{self, Core},
};

pub const CONNECTIONS: usize = 32;
const LONGEST_ANSWER: usize = 512 * 1024;

#[derive(clap::Args)]
pub struct Options {
    address: SocketAddr,
    milliseconds: u64,
    /// What is asked: a list of requests as they go over the wire, or of refresh tokens, one for each connection
    file: PathBuf,
    /// How many ask at once
    #[arg(long, default_value_t = CONNECTIONS)]
    connections: usize,
    /// The file holds refresh tokens, and each answer the next one
    #[arg(long)]
    chain: bool,
    /// The key of the app that the refresh tokens belong to
    #[arg(long, default_value = "")]
    app_key: String,
    /// What every answer's status begins with: 2 for a success, 4 for a refusal
    #[arg(long, default_value_t = '2')]
    expect: char,
    /// A list of refresh tokens, one for each connection: an empty request among the others refreshes
    #[arg(long)]
    tokens: Option<PathBuf>,
    /// Never sleep: the core is the generator's alone, and waking it is not charged to the slower server
    #[arg(long)]
    awake: bool,
    /// Tell how long each answer took, too
    #[arg(long)]
    times: bool,
}

/// What the connections ask.
#[derive(Clone)]
pub enum Ask {
    /// The same request each time.
    Again(Vec<u8>),
    /// The same, to be refused each time.
    Refused(Vec<u8>),
    /// The same, to be told each time that nothing has changed.
    Unchanged(Vec<u8>),
    /// These, one after the other, whichever connection is free.
    Many(Vec<Vec<u8>>),
    /// A refresh token for each connection; each answer holds the next one. Sessions of an app need one of its keys.
    Chain { tokens: Vec<String>, app_key: String },
    /// Requests one after the other, as of `Many`; where one is empty, the connection refreshes its own session.
    Mixed { requests: Vec<Vec<u8>>, tokens: Vec<String>, app_key: String },
}

impl Ask {
    pub fn again(request: Vec<u8>) -> Self {
        Self::Again(request)
    }

    pub fn chain(tokens: Vec<String>) -> Self {
        Self::chain_through(tokens, String::new())
    }

    pub fn chain_through(tokens: Vec<String>, app_key: String) -> Self {
        Self::Chain { tokens, app_key }
    }
}

/// What came of it.
#[derive(Default, Serialize, Deserialize)]
pub struct Heard {
    pub answered: u64,
    /// When the first question was asked, in microseconds since 1970: a process takes a while to start.
    began_at: u64,
    /// From the first question to the last answer, which may come after the time is up.
    pub took_ms: u64,
    /// Processor time of the generator, in microseconds.
    pub cpu_us: u64,
    /// How long each answer took, in microseconds, where that was asked for.
    pub micros: Vec<u32>,
}

impl Heard {
    /// How long ago it began.
    pub fn ago(&self) -> Duration {
        Duration::from_micros(since_1970().saturating_sub(self.began_at))
    }
}

fn since_1970() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
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
    Ok(generate(address, length, core, ask, CONNECTIONS, Asking::default())?.answered)
}

/// The same with a generator that sleeps while it waits: where its core has other work to do, too, and where the limit is
/// measured without a generator. Two processors may be one core, which would be slower for ours alone.
pub fn asleep(address: SocketAddr, length: Duration, core: Core, ask: &Ask) -> Result<u64> {
    Ok(heard_asleep(address, length, core, ask)?.answered)
}

/// The same, and when it began.
pub fn heard_asleep(address: SocketAddr, length: Duration, core: Core, ask: &Ask) -> Result<Heard> {
    generate(address, length, core, ask, CONNECTIONS, Asking { sleeps: true, ..Asking::default() })
}

/// The same with so many connections, and how long each answer took.
pub fn timed(address: SocketAddr, length: Duration, core: Core, ask: &Ask, connections: usize) -> Result<Heard> {
    generate(address, length, core, ask, connections, Asking { times: true, ..Asking::default() })
}

/// The same with so many connections, by a generator that sleeps while it waits.
pub fn closed_loop(address: SocketAddr, length: Duration, ask: &Ask, connections: usize) -> Result<Heard> {
    generate(address, length, Core::Any, ask, connections, Asking { sleeps: true, ..Asking::default() })
}

#[derive(Clone, Copy, Default)]
struct Asking {
    times: bool,
    sleeps: bool,
}

fn generate(
    address: SocketAddr,
    length: Duration,
    core: Core,
    ask: &Ask,
    connections: usize,
    asking: Asking,
) -> Result<Heard> {
    let file = tempfile::NamedTempFile::new()?;
    let text = |request: &Vec<u8>| String::from_utf8_lossy(request).into_owned();
    let (content, option) = match ask {
        Ask::Again(request) => (vec![text(request)], None),
        Ask::Refused(request) => (vec![text(request)], Some("--expect=4")),
        Ask::Unchanged(request) => (vec![text(request)], Some("--expect=3")),
        Ask::Many(requests) | Ask::Mixed { requests, .. } => (requests.iter().map(text).collect(), None),
        Ask::Chain { tokens, .. } => (tokens.clone(), Some("--chain")),
    };
    std::fs::write(file.path(), serde_json::to_vec(&content)?)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["load", &address.to_string(), &length.as_millis().to_string()]).arg(file.path()).args(option);
    if let Ask::Chain { app_key, .. } | Ask::Mixed { app_key, .. } = ask {
        command.args(["--app-key", app_key]);
    }
    let tokens_file = tempfile::NamedTempFile::new()?;
    if let Ask::Mixed { tokens, .. } = ask {
        ensure!(tokens.len() >= connections, "each connection refreshes a session of its own");
        std::fs::write(tokens_file.path(), serde_json::to_vec(tokens)?)?;
        command.arg("--tokens").arg(tokens_file.path());
    }
    command.args(["--connections", &connections.to_string()]);
    if matches!(core, Core::Only(_)) && !asking.sleeps {
        command.arg("--awake");
    }
    if asking.times {
        command.arg("--times");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let generator = process::spawn(&mut command, core)?.wait_with_output()?;
    ensure!(generator.status.success(), "the load generator: {}", String::from_utf8_lossy(&generator.stderr));
    Ok(serde_json::from_slice(&generator.stdout)?)
}

/// The generator itself: prints what it heard.
pub fn run(options: &Options) -> Result<()> {
    let content: Vec<String> = serde_json::from_slice(&std::fs::read(&options.file)?)?;
    ensure!(!content.is_empty(), "nothing to ask");
    let heard = runtime::Builder::new_current_thread().enable_io().event_interval(1).build()?.block_on(async {
        if options.awake {
            tokio::spawn(async {
                loop {
                    tokio::task::yield_now().await;
                }
            });
        }
        let (began_at, started) = (since_1970(), Instant::now());
        let until = started + Duration::from_millis(options.milliseconds);
        let mut connections = JoinSet::new();
        let converse = |next| converse(options.address, until, options.expect, options.times, next);
        if options.chain {
            for token in content {
                connections.spawn(converse(Next::Token { token, app_key: options.app_key.clone() }));
            }
        } else {
            let list = Arc::new(List { requests: content, next: AtomicUsize::new(0) });
            let mut tokens = match &options.tokens {
                Some(file) => serde_json::from_slice(&std::fs::read(file)?)?,
                None => vec![],
            }
            .into_iter();
            for _ in 0..options.connections {
                let token = tokens.next();
                let next = match token {
                    None => Next::Of(list.clone()),
                    Some(token) => Next::Mixed(Mixed {
                        list: list.clone(),
                        token,
                        app_key: options.app_key.clone(),
                        is_refresh: false,
                    }),
                };
                connections.spawn(converse(next));
            }
        }
        let mut heard = Heard { began_at, ..Heard::default() };
        while let Some(connection) = connections.join_next().await {
            let one = connection??;
            heard.answered += one.answered;
            heard.micros.extend(one.micros);
        }
        heard.took_ms = u64::try_from(started.elapsed().as_millis())?;
        heard.cpu_us = u64::try_from(process::exact_cpu_time(std::process::id())?.as_micros())?;
        anyhow::Ok(heard)
    })?;
    println!("{}", serde_json::to_string(&heard)?);
    Ok(())
}

struct List {
    requests: Vec<String>,
    next: AtomicUsize,
}

impl List {
    fn take(&self) -> &str {
        &self.requests[self.next.fetch_add(1, Relaxed) % self.requests.len()]
    }
}

/// Requests of a list, some of which refresh a session of the connection's own.
struct Mixed {
    list: Arc<List>,
    token: String,
    app_key: String,
    is_refresh: bool,
}

/// What a connection asks next.
enum Next {
    Of(Arc<List>),
    Token { token: String, app_key: String },
    Mixed(Mixed),
}

fn refresh(token: &str, app_key: &str) -> Vec<u8> {
    let body = serde_json::json!({ "refreshToken": token }).to_string();
    client::request("POST", "/auth/refresh", &Who::through(app_key), &body, "keep-alive")
}

impl Next {
    async fn write(&mut self, stream: &mut TcpStream) -> Result<()> {
        match self {
            Self::Of(list) => stream.write_all(list.take().as_bytes()).await?,
            Self::Token { token, app_key } => stream.write_all(&refresh(token, app_key)).await?,
            Self::Mixed(mixed) => {
                let request = mixed.list.take();
                mixed.is_refresh = request.is_empty();
                if mixed.is_refresh {
                    stream.write_all(&refresh(&mixed.token, &mixed.app_key)).await?;
                } else {
                    stream.write_all(request.as_bytes()).await?;
                }
            }
        }
        Ok(())
    }

    fn heard(&mut self, answer: &[u8]) -> Result<()> {
        let token = match self {
            Self::Token { token, .. } | Self::Mixed(Mixed { token, is_refresh: true, .. }) => Some(token),
            _ => None,
        };
        if let Some(token) = token {
            const NAME: &str = "\"refreshToken\":\"";
            let text = std::str::from_utf8(answer)?;
            let start = text.find(NAME).context("no refresh token")? + NAME.len();
            let end = text[start..].find('"').context("no end of the token")?;
            text[start..start + end].clone_into(token);
        }
        Ok(())
    }
}

async fn converse(address: SocketAddr, until: Instant, expect: char, times: bool, mut next: Next) -> Result<Heard> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; LONGEST_ANSWER];
    let mut heard = Heard::default();
    let mut now = Instant::now();
    while now < until {
        let asked = now;
        next.write(&mut stream).await?;
        let mut filled = 0;
        while !is_whole(&buffer[..filled], expect)? {
            let read = stream.read(&mut buffer[filled..]).await?;
            ensure!(read > 0, "the server hung up, or its answer is too long");
            filled += read;
        }
        next.heard(&buffer[..filled])?;
        heard.answered += 1;
        now = Instant::now();
        if times {
            heard.micros.push(u32::try_from(now.duration_since(asked).as_micros()).unwrap_or(u32::MAX));
        }
    }
    Ok(heard)
}

/// Whether all of an answer has arrived. An answer of another kind ends the measurement.
pub fn is_whole(received: &[u8], expect: char) -> Result<bool> {
    const END_OF_HEAD: &[u8] = b"\r\n\r\n";
    let Some(end) = received.windows(END_OF_HEAD.len()).position(|bytes| bytes == END_OF_HEAD) else {
        return Ok(false);
    };
    let head = std::str::from_utf8(&received[..end])?;
    if !head.strip_prefix("HTTP/1.1 ").is_some_and(|status| status.starts_with(expect)) {
        bail!("not as expected: {}", String::from_utf8_lossy(received));
    }
    let body = &received[end + END_OF_HEAD.len()..];
    if let Some(length) = header(head, "content-length") {
        return Ok(body.len() >= length.parse::<usize>()?);
    }
    if header(head, "transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        return Ok(body == b"0\r\n\r\n" || body.ends_with(b"\r\n0\r\n\r\n"));
    }
    // Statuses that have no body need not say so.
    ensure!(head.starts_with("HTTP/1.1 204 ") || head.starts_with("HTTP/1.1 304 "), "no length: {head}");
    Ok(true)
}

/// The value of a header. Ours are written in lower case, which is looked for first.
fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found == name || found.eq_ignore_ascii_case(name)).then_some(value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_when_its_body_is_as_long_as_it_says() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine";
        assert!(is_whole(answer, '2').unwrap());
        for cut in [0, 10, answer.len() - 4, answer.len() - 1] {
            assert!(!is_whole(&answer[..cut], '2').unwrap(), "{cut} bytes are not enough");
        }
        let refusal = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";
        assert!(is_whole(refusal, '2').is_err());
        assert!(is_whole(refusal, '4').unwrap());
    }

    #[test]
    fn an_answer_in_chunks_ends_with_an_empty_one() {
        let answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n";
        assert!(is_whole(answer, '2').unwrap());
        for cut in [answer.len() - 1, answer.len() - 5, answer.len() - 9] {
            assert!(!is_whole(&answer[..cut], '2').unwrap(), "{cut}");
        }
        assert!(is_whole(b"HTTP/1.1 204 No Content\r\n\r\n", '2').unwrap());
        assert!(is_whole(b"HTTP/1.1 200 OK\r\n\r\n", '2').is_err(), "nobody knows where it ends");
    }
}
