//! Real sockets: odd clients, slow clients, many clients, and a server that is told to stop.
use std::{
    io::{PipeReader, Read as _, Write as _},
    net::TcpStream,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use crate::support::Server;

const HALF_A_REQUEST: &[u8] = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow";

#[test]
fn two_requests_in_one_packet_get_two_answers() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let twice =
        "GET /robots.txt HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let (_, answer) = server.send(twice.as_bytes());
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 2, "{answer}");
}

#[test]
fn what_is_no_request_is_refused_and_the_server_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let long = format!("GET /health HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "x".repeat(40_000));
    assert_eq!(server.send(long.as_bytes()).0, 431);
    let many = "X-Many: x\r\n".repeat(200);
    assert_eq!(server.send(format!("GET /health HTTP/1.1\r\nHost: x\r\n{many}\r\n").as_bytes()).0, 431);
    for junk in
        ["\r\n\r\n\r\n", "GET\r\n\r\n", "\u{16}\u{3}\u{1} not http at all\r\n\r\n", "GET /\u{0} HTTP/1.1\r\n\r\n"]
    {
        let (status, answer) = server.send(junk.as_bytes());
        assert!(matches!(status, 0 | 400), "{junk:?}: {answer}");
    }
    let both =
        "POST /health HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x";
    let (status, _) = server.send(both.as_bytes());
    assert!(matches!(status, 400 | 405), "a request with two lengths is not two requests: {status}");
    assert_eq!(server.get("/health").0, 200);
}

#[test]
fn p74_slow_clients_are_cut_off_and_disturb_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[("JANUA_CLIENT_TIMEOUT", "2s"), ("JANUA_RATE_LIMITS", "off")]);
    let mut slow: Vec<TcpStream> = (0..2000).map(|_| server.connect()).collect();
    for stream in &mut slow {
        stream.write_all(HALF_A_REQUEST).unwrap();
    }
    let waited = health_p99(&server);
    assert!(waited < Duration::from_millis(200), "a healthy client waited {waited:?}");
    let started = Instant::now();
    // A byte now and then is no sign of life.
    while started.elapsed() < Duration::from_millis(1500) {
        for stream in &mut slow {
            let _ = stream.write_all(b"x");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    for stream in &mut slow {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(started.elapsed() < Duration::from_secs(5), "they were cut off after {:?}", started.elapsed());
}

/// The longest of a hundred waits for /health but one.
fn health_p99(server: &Server) -> Duration {
    let mut waits: Vec<_> = (0..100)
        .map(|_| {
            let started = Instant::now();
            assert_eq!(server.get("/health").0, 200);
            started.elapsed()
        })
        .collect();
    waits.sort();
    waits[98]
}

/// More people than file descriptors, and more passwords than may wait: some are sent away, nobody is forgotten, and
/// whoever asks how the server is hears it at once.
#[test]
fn f20_short_of_everything_it_sheds_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 256; exec \"$0\" \"$@\"", crate::support::JANUA]).args(crate::support::SERVE);
    command.current_dir(folder.path()).env_clear().env("JANUA_RATE_LIMITS", "off").env("JANUA_PASSWORD_QUEUE", "64");
    let server = Server::of(command);
    let mut watcher = server.visit();
    let body = r#"{"email":"nobody@example.com","password":"not a password"}"#;
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let sign_in = || server.visit_patiently().ask("POST", "/auth/login", "", body).0;
        let callers: Vec<_> = (0..500).map(|_| scope.spawn(sign_in)).collect();
        let mut waits: Vec<_> = (0..100)
            .map(|_| {
                let started = Instant::now();
                assert_eq!(watcher.ask("GET", "/health", "", "").0, 200);
                std::thread::sleep(Duration::from_millis(10));
                started.elapsed()
            })
            .collect();
        waits.sort();
        assert!(waits[98] < Duration::from_millis(210), "/health took {:?}", waits[98]);
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    let count = |status| answers.iter().filter(|answer| **answer == status).count();
    assert_eq!(count(401) + count(503), 500, "{answers:?}");
    assert!(count(401) >= 64, "{answers:?}");
    assert!(count(503) > 0, "{answers:?}");

    let held: Vec<TcpStream> = (0..300).map(|_| server.connect()).collect();
    let before = cpu_ticks(&server);
    std::thread::sleep(Duration::from_secs(1));
    let spent = cpu_ticks(&server) - before;
    assert!(spent < 30, "waiting for descriptors took {spent} hundredths of a second of a processor");
    drop(held);
    assert_eq!(server.get("/health").0, 200);
}

/// A server whose log goes into a pipe that is full, and stays so until it is read.
struct Unread {
    _folder: tempfile::TempDir,
    server: Server,
    log: PipeReader,
    is_read: Arc<AtomicBool>,
}

impl Unread {
    fn start() -> Self {
        let (log, mut pipe) = std::io::pipe().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut command = crate::support::janua(folder.path(), crate::support::SERVE);
        command.env("JANUA_LOG", "debug").env("JANUA_RATE_LIMITS", "off");
        let server = Server::logging_to(command, pipe.try_clone().unwrap().into());
        let is_read = Arc::new(AtomicBool::new(false));
        let stop = is_read.clone();
        std::thread::spawn(move || while !stop.load(SeqCst) && pipe.write_all(&[b'\n'; 4096]).is_ok() {});
        // The pipe has room for 64 KiB.
        std::thread::sleep(Duration::from_millis(200));
        Self { _folder: folder, server, log, is_read }
    }

    /// Has the server write as many log lines: one for each client that speaks no HTTP.
    fn make_it_log(&self, lines: usize) {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..lines / 4 {
                        let (status, answer) = self.server.send(b"\x01 no request at all\r\n\r\n");
                        assert_eq!(status, 400, "{answer}");
                    }
                });
            }
        });
    }
}

fn dropped_lines(server: &Server) -> u64 {
    let (_, said) = server.get("/metrics");
    let line = said.lines().find_map(|line| line.strip_prefix("janua_log_lines_dropped_total "));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

#[test]
fn a_log_that_nobody_reads_holds_up_nothing() {
    let mut unread = Unread::start();
    unread.make_it_log(400);
    let server = &mut unread.server;
    let body = r#"{"email":"nobody@example.com","password":"not a password"}"#;
    assert_eq!(server.visit().ask("POST", "/auth/login", "", body).0, 401);
    assert_eq!(server.get("/health").0, 200);
    server.signal("TERM");
    let (well, took) = server.ended(Duration::from_secs(10));
    assert!(well && took < Duration::from_secs(4), "{took:?}");
}

#[test]
fn a_log_that_is_read_again_says_what_is_missing() {
    let mut unread = Unread::start();
    unread.make_it_log(9_000);
    assert!(dropped_lines(&unread.server) > 0, "that lines are lost can be seen");
    unread.is_read.store(true, SeqCst);
    let mut said = String::new();
    while !said.lines().any(|line| line.contains("log lines were dropped")) {
        let mut bytes = vec![0; 64 * 1024];
        let count = unread.log.read(&mut bytes).unwrap();
        assert!(count > 0, "the log says that it has holes");
        said.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    assert_eq!(unread.server.get("/health").0, 200);
}

#[test]
fn an_output_that_nobody_reads_holds_up_no_start() {
    let (unread, pipe) = std::io::pipe().unwrap();
    let mut filler = pipe.try_clone().unwrap();
    std::thread::spawn(move || while filler.write_all(&[b'\n'; 4096]).is_ok() {});
    // The pipe has room for 64 KiB.
    std::thread::sleep(Duration::from_millis(200));
    let folder = tempfile::tempdir().unwrap();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = crate::support::janua(folder.path(), &["serve", "--listen", &address.to_string()]);
    command.stdout(pipe.try_clone().unwrap()).stderr(pipe);
    let mut server = Server { child: command.spawn().unwrap(), address, greeting: String::new() };
    let started = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(started.elapsed() < Duration::from_secs(30), "it listens");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.get("/health").0, 200);
    server.signal("TERM");
    let (well, took) = server.ended(Duration::from_secs(10));
    assert!(well && took < Duration::from_secs(4), "{took:?}");
    drop(unread);
}

/// What the server has used of the processor, in hundredths of a second.
fn cpu_ticks(server: &Server) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.child.id())).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[test]
fn told_to_stop_it_finishes_and_takes_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &[]);
    let mut idle = server.connect();
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut first = [0; 15];
    idle.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 OK");
    server.signal("TERM");
    let (well, took) = server.ended(Duration::from_secs(5));
    assert!(well && took < Duration::from_secs(2), "an idle connection does not hold it up: {took:?}");
    assert!(TcpStream::connect(server.address).is_err());
}

#[test]
fn a_client_that_never_finishes_is_waited_for_only_so_long() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &[("JANUA_DRAIN_TIMEOUT", "500ms")]);
    let mut half = server.connect();
    half.write_all(HALF_A_REQUEST).unwrap();
    // The server must have seen the half request before it is told to stop.
    assert_eq!(server.get("/health").0, 200);
    server.signal("TERM");
    let (well, took) = server.ended(Duration::from_secs(5));
    assert!(well && took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn a_second_signal_means_now() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &[("JANUA_DRAIN_TIMEOUT", "60s")]);
    let mut half = server.connect();
    half.write_all(HALF_A_REQUEST).unwrap();
    assert_eq!(server.get("/health").0, 200);
    server.signal("TERM");
    std::thread::sleep(Duration::from_millis(200));
    server.signal("TERM");
    let (well, _) = server.ended(Duration::from_secs(2));
    assert!(!well, "and it says so");
}

#[test]
fn past_the_connection_limit_the_next_one_waits_its_turn() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[("JANUA_MAX_CONNECTIONS", "2")]);
    let held: Vec<TcpStream> = (0..2).map(|_| server.connect()).collect();
    let mut waiting = server.connect();
    waiting.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    waiting.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(waiting.read(&mut [0; 8]).is_err(), "no place yet");
    drop(held);
    waiting.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn w08_a_host_of_a_site_is_not_served_by_the_api_nor_the_api_by_the_edge() {
    let folder = tempfile::tempdir().unwrap();
    let edge = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = Server::start(folder.path(), &[("JANUA_EDGE_LISTEN", &edge.to_string())]);
    let ask = |host: &str, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        server.send(request.as_bytes()).0
    };
    for host in ["shop.localhost", "SHOP.localhost:8080", "shop.localhost.", "abcdefghijkl--shop.localhost"] {
        assert_eq!((ask(host, "/health"), ask(host, "/console")), (421, 421), "{host}");
    }
    for host in ["localhost", "127.0.0.1:1", "janua", "janua.internal.example"] {
        assert_eq!(ask(host, "/health"), 200, "{host}: by whatever name health checks use");
    }
    assert_eq!(ask("shop.localhost", "/.well-known/acme-challenge/x"), 404, "an authority may ask here, too");
    let mut stream = TcpStream::connect(edge).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 421"), "{answer}");
}
