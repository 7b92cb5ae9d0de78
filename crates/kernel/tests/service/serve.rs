//! The listening socket with a handler that takes its time: what is under way when the server stops is finished.
use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::extract::State;
use kernel::{
    Janua,
    config::Config,
    feature::Feature,
    http::{Json, Routes, serve},
    testing::TestJanua,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{Notify, oneshot},
};

/// Handlers wait here until a test lets them go.
#[derive(Default)]
struct Gate {
    entered: Notify,
    open: Notify,
}

async fn wait(State(janua): State<Janua>) -> Json<&'static str> {
    let gate = janua.own::<Arc<Gate>>();
    gate.entered.notify_one();
    gate.open.notified().await;
    Json("done")
}

async fn count(Json(numbers): Json<Vec<u32>>) -> Json<usize> {
    Json(numbers.len())
}

fn feature(_: &Config) -> Feature {
    let routes = Routes::new("test").get("/wait", wait, "wait").post("/count", count, "count");
    Feature::new(routes).own(Arc::new(Gate::default()))
}

struct Served {
    test: TestJanua,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    running: tokio::task::JoinHandle<usize>,
}

async fn start(config: Config) -> Served {
    let test = TestJanua::start_with(config, feature).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(serve(listener, test.door(), async {
        let _ = stopped.await;
    }));
    Served { test, address, stop, running }
}

async fn ask(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    stream
}

#[tokio::test]
async fn a_request_under_way_is_finished_and_no_new_one_is_taken() {
    let served = start(Config::for_tests()).await;
    let gate = served.test.janua.own::<Arc<Gate>>().clone();
    let mut stream = ask(served.address).await;
    gate.entered.notified().await;
    served.stop.send(()).unwrap();
    while TcpStream::connect(served.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    gate.open.notify_one();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\"done\""), "{answer}");
    assert!(answer.contains("connection: close"), "and the client is told to look elsewhere: {answer}");
    assert_eq!(served.running.await.unwrap(), 0, "nobody was cut off");
    served.test.finish().await;
}

#[tokio::test]
async fn what_does_not_end_in_time_is_cut_off_and_counted() {
    let config = Config { drain_timeout: Duration::from_millis(100), ..Config::for_tests() };
    let served = start(config).await;
    let gate = served.test.janua.own::<Arc<Gate>>().clone();
    let _stream = ask(served.address).await;
    gate.entered.notified().await;
    served.stop.send(()).unwrap();
    assert_eq!(served.running.await.unwrap(), 1);
    served.test.finish().await;
}

#[tokio::test]
async fn a_client_that_goes_away_frees_its_place() {
    let served = start(Config { max_in_flight: 1, ..Config::for_tests() }).await;
    let gate = served.test.janua.own::<Arc<Gate>>().clone();
    let stream = ask(served.address).await;
    gate.entered.notified().await;
    drop(stream);
    let freed = async {
        while served.test.janua.metrics.in_flight.get() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), freed)
        .await
        .expect("nobody waits for an answer, so nobody works on it");
    served.stop.send(()).unwrap();
    served.running.await.unwrap();
    served.test.finish().await;
}

#[tokio::test]
async fn told_to_leave_it_goes_on_for_a_while_and_closes_what_it_answers() {
    let served = start(Config { leave_delay: Duration::from_millis(500), ..Config::for_tests() }).await;
    let mut before = TcpStream::connect(served.address).await.unwrap();
    let request = b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n";
    before.write_all(request).await.unwrap();
    let mut head = [0; 12];
    before.read_exact(&mut head).await.unwrap();
    served.stop.send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let after = TcpStream::connect(served.address).await.expect("it still takes connections");
    for mut stream in [before, after] {
        stream.write_all(request).await.unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.expect("and ends each with its next answer");
        assert!(said.to_lowercase().contains("connection: close"), "{said}");
    }
    assert_eq!(served.running.await.unwrap(), 0);
    assert!(TcpStream::connect(served.address).await.is_err());
    served.test.finish().await;
}

/// One answer: its head in lower case, and its body.
async fn answer(stream: &mut TcpStream) -> std::io::Result<(String, String)> {
    let mut said = Vec::new();
    let head = loop {
        let mut bytes = [0; 2048];
        match stream.read(&mut bytes).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => said.extend_from_slice(&bytes[..count]),
        }
        if let Some(end) = said.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let mut body = said.split_off(head);
    let head = String::from_utf8(said).unwrap().to_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let rest = body.len();
    body.resize(length, 0);
    stream.read_exact(&mut body[rest..]).await?;
    Ok((head, String::from_utf8(body).unwrap()))
}

#[tokio::test]
async fn who_is_refused_before_the_body_came_keeps_the_connection() {
    let served = start(Config { rate_limit_per_minute: 1_000_000, ..Config::for_tests() }).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let body = "x".repeat(2_000);
    for i in 0..2_000 {
        // Unknown, a method that is not there, and one that a page of another site sends.
        let (path, more, status) = match i % 3 {
            0 => ("/nowhere", "", 404),
            1 => ("/wait", "", 405),
            _ => ("/count", "Cookie: service_access=x\r\nOrigin: https://evil.example\r\n", 403),
        };
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{more}Content-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        // Not all of it in the packet of the head.
        tokio::task::yield_now().await;
        stream.write_all(&body.as_bytes()[..1_000]).await.unwrap();
        tokio::task::yield_now().await;
        stream.write_all(&body.as_bytes()[1_000..]).await.unwrap();
        let (head, _) = answer(&mut stream).await.unwrap_or_else(|error| panic!("request {i} was lost: {error}"));
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{i}: {head}");
        assert!(!head.contains("connection: close"), "{i}: {head}");
    }
    drop(stream);
    served.stop.send(()).unwrap();
    served.running.await.unwrap();
    served.test.finish().await;
}

#[tokio::test]
async fn where_the_rest_of_a_body_is_not_read_the_answer_says_that_it_is_the_last() {
    let served = start(Config::for_tests()).await;
    for (path, announced, sent) in [
        ("/nowhere", "Content-Length: 1000000000", 100),
        ("/nowhere", "Content-Length: 1000", 100),
        ("/nowhere", "Transfer-Encoding: chunked", 0),
        ("/count", "Content-Length: 1000000000", 100),
    ] {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{announced}\r\n\r\n{}", "x".repeat(sent));
        stream.write_all(head.as_bytes()).await.unwrap();
        let (head, _) = answer(&mut stream).await.unwrap();
        assert!(head.contains("connection: close"), "{path} {announced}: {head}");
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap_or(0), 0, "and it is");
    }
    served.stop.send(()).unwrap();
    served.running.await.unwrap();
    served.test.finish().await;
}

/// Behind a proxy a client that is refused early goes on sending for a moment; its connection must not be reset meanwhile.
#[tokio::test]
async fn who_goes_on_sending_gets_the_refusal_all_the_same() {
    let served = start(Config::for_tests()).await;
    for path in ["/count", "/nowhere"] {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.readable().await.unwrap();
        for _ in 0..20 {
            stream.write_all(&vec![b' '; 100_000]).await.expect("nobody resets it");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (head, body) = answer(&mut stream).await.unwrap();
        let code = if path == "/count" { "too_large" } else { "not_found" };
        assert!(head.contains("connection: close") && body.contains(code), "{head}{body}");
    }
    served.stop.send(()).unwrap();
    assert_eq!(served.running.await.unwrap(), 0, "and nobody has to be cut off");
    served.test.finish().await;
}

/// Who never stops sending is not listened to for long.
#[tokio::test]
async fn who_never_stops_sending_is_cut_off() {
    let served = start(Config::for_tests()).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(b"POST /count HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000000\r\n\r\n").await.unwrap();
    let sends = async { while stream.write_all(&vec![b' '; 100_000]).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(10), sends).await.expect("it is");
    served.stop.send(()).unwrap();
    served.running.await.unwrap();
    served.test.finish().await;
}

async fn from(address: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test]
async fn bodies_that_never_come_leave_everybody_else_alone() {
    let config = Config { max_in_flight: 8, rate_limit_per_minute: 1_000_000, ..Config::for_tests() };
    let served = start(config).await;
    let mut half = vec![];
    for i in 0..60 {
        let mut stream = from(["127.0.0.2", "127.0.0.3", "127.0.0.4"][i % 3], served.address).await;
        let head =
            "POST /count HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n[1,";
        stream.write_all(head.as_bytes()).await.unwrap();
        half.push(stream);
    }
    // Each was seen before the next connection is answered: they are accepted in order.
    for i in 0..20 {
        let mut stream = from("127.0.0.9", served.address).await;
        let whole =
            "POST /count HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n[1,2,3]";
        stream.write_all(whole.as_bytes()).await.unwrap();
        let (head, body) = answer(&mut stream).await.unwrap();
        assert!(head.starts_with("http/1.1 200") && body == "3", "{i}: {head}{body}");
    }
    let mut first = half.remove(0);
    first.write_all(" ".repeat(95).as_bytes()).await.unwrap();
    first.write_all(b"2]").await.unwrap();
    assert_eq!(answer(&mut first).await.unwrap().1, "2", "who comes at last is served");
    drop(half);
    served.stop.send(()).unwrap();
    served.running.await.unwrap();
    served.test.finish().await;
}
