//! The listening socket with a handler that takes its time: what is under way when the server stops is finished.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::extract::State;
use kernel::{
    App,
    app::Feature,
    config::Config,
    http::{Json, Routes, serve},
    testing::TestApp,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Notify, oneshot},
};

/// Handlers wait here until a test lets them go.
#[derive(Default)]
struct Gate {
    entered: Notify,
    open: Notify,
}

async fn wait(State(app): State<App>) -> Json<&'static str> {
    let gate = app.own::<Arc<Gate>>();
    gate.entered.notify_one();
    gate.open.notified().await;
    Json("done")
}

fn feature(_: &Config) -> Feature {
    Feature::new(Routes::new("test").get("/wait", wait, "wait")).own(Arc::new(Gate::default()))
}

struct Served {
    test: TestApp,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    running: tokio::task::JoinHandle<usize>,
}

async fn start(config: Config) -> Served {
    let test = TestApp::start_with(config, feature).await;
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
    let gate = served.test.app.own::<Arc<Gate>>().clone();
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
    let gate = served.test.app.own::<Arc<Gate>>().clone();
    let _stream = ask(served.address).await;
    gate.entered.notified().await;
    served.stop.send(()).unwrap();
    assert_eq!(served.running.await.unwrap(), 1);
    served.test.finish().await;
}

#[tokio::test]
async fn a_client_that_goes_away_frees_its_place() {
    let served = start(Config { max_in_flight: 1, ..Config::for_tests() }).await;
    let gate = served.test.app.own::<Arc<Gate>>().clone();
    let stream = ask(served.address).await;
    gate.entered.notified().await;
    drop(stream);
    let freed = async {
        while served.test.app.metrics.in_flight.get() > 0 {
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
