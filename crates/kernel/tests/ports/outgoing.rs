//! Requests to addresses that somebody else chose, to real sockets on this machine.
use std::{
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::http::{HeaderMap, Method};
use kernel::{
    config::Config,
    ports::{
        dns::Resolver,
        outgoing::{Allowed, Call, Limits, NoReply, Outgoing, Reach, Reply},
    },
};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    sync::{Notify, mpsc},
};

/// A server that says the same to everybody, byte for byte, and counts who came.
struct Server {
    url: String,
    connections: Arc<AtomicUsize>,
}

async fn server(says: impl Into<Vec<u8>>) -> Server {
    let (says, connections) = (says.into(), Arc::new(AtomicUsize::new(0)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let counted = connections.clone();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, SeqCst);
            let says = says.clone();
            tokio::spawn(async move {
                let mut heard = [0; 4096];
                while socket.read(&mut heard).await.is_ok_and(|read| read > 0) {
                    if socket.write_all(&says).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Server { url, connections }
}

fn allowing(networks: &[&str], plain_http: bool) -> Outgoing {
    let networks = networks.iter().map(|net| net.parse().unwrap()).collect();
    // A name server that does not answer: nothing in here needs one.
    let resolver = Resolver::new(&["127.0.0.1:1".parse().unwrap()]);
    Outgoing::new(resolver, Allowed { networks, plain_http, ..Allowed::default() })
}

async fn get(way: &Outgoing, url: &str) -> Result<Reply, NoReply> {
    get_within(way, url, Reach::Public).await
}

async fn get_within(way: &Outgoing, url: &str, reach: Reach) -> Result<Reply, NoReply> {
    let limits = Limits { time: Duration::from_millis(800), bytes: 1000 };
    let (url, headers) = (url.parse().unwrap(), HeaderMap::new());
    way.send(Call { method: Method::GET, url, headers, body: "hello".into(), limits, reach }).await
}

#[tokio::test]
async fn a_local_server_reaches_receivers_on_its_machine_and_nothing_else_inside() {
    let receiver = server("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let port = receiver.url.trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    let resolver = || Resolver::new(&["127.0.0.1:1".parse().unwrap()]);
    let local = Outgoing::new(resolver(), Allowed { loopback: true, ..Allowed::default() });
    let public = Outgoing::new(resolver(), Allowed::default());
    for host in ["127.0.0.1", "localhost", "hooks.localhost"] {
        let url = format!("http://{host}:{port}/");
        let reply = get_within(&local, &url, Reach::Receiver).await.unwrap_or_else(|why| panic!("{url}: {why}"));
        assert_eq!(reply.status.as_u16(), 200, "{url}");
        assert!(get_within(&local, &url, Reach::Public).await.unwrap_err().is_refusal(), "{url}: not for others");
        assert!(get_within(&public, &url, Reach::Receiver).await.unwrap_err().is_refusal(), "{url}: a public server");
    }
    let before = receiver.connections.load(SeqCst);
    for host in ["10.0.0.1", "192.168.0.1", "169.254.169.254", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "[fe80::1]"] {
        for scheme in ["http", "https"] {
            let refused = get_within(&local, &format!("{scheme}://{host}:{port}/"), Reach::Receiver).await;
            assert!(refused.unwrap_err().is_refusal(), "{scheme}://{host}");
        }
    }
    let plain = get_within(&local, "http://93.184.215.14/", Reach::Receiver).await.unwrap_err();
    assert_eq!(plain, NoReply::NotHttps, "http only on this machine");
    assert_eq!(receiver.connections.load(SeqCst), before);
}

#[tokio::test]
async fn an_answer_comes_back_cut_to_its_limit_and_the_connection_is_kept() {
    let way = allowing(&["127.0.0.0/8"], true);
    let short = server("HTTP/1.1 201 Created\r\nx-said: yes\r\ncontent-length: 5\r\n\r\nthere").await;
    for _ in 0..3 {
        let reply = get(&way, &short.url).await.unwrap();
        assert_eq!((reply.status.as_u16(), &reply.body[..], reply.is_cut), (201, &b"there"[..], false));
        assert_eq!(reply.headers["x-said"], "yes");
    }
    assert_eq!(short.connections.load(SeqCst), 1, "one connection for all");
    let long = format!("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n{}", "x".repeat(100_000));
    let reply = get(&way, &server(long).await.url).await.unwrap();
    assert_eq!((reply.body.len(), reply.is_cut), (1000, true), "a gigabyte is not waited for");
}

/// A server that takes one connection after the other, hands over what it hears, and hangs up when it is told to.
async fn one_by_one() -> (String, mpsc::UnboundedReceiver<ReceivedRequest>, Arc<Notify>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (tell, told) = mpsc::unbounded_channel();
    let hang_up = Arc::new(Notify::new());
    let is_to_hang_up = hang_up.clone();
    tokio::spawn(async move {
        for connection in 0.. {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut heard = vec![0; 4096];
            loop {
                let read = tokio::select! {
                    read = socket.read(&mut heard) => read.unwrap_or(0),
                    () = is_to_hang_up.notified() => 0,
                };
                let text = String::from_utf8_lossy(&heard[..read]).into_owned();
                if read == 0 {
                    drop(socket);
                    tell.send(ReceivedRequest { connection, text }).unwrap();
                    break;
                }
                tell.send(ReceivedRequest { connection, text }).unwrap();
                socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            }
        }
    });
    (url, told, hang_up)
}

/// What came over which connection; nothing at all when it was closed.
#[derive(Debug, PartialEq, Eq)]
struct ReceivedRequest {
    connection: usize,
    text: String,
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_is_not_asked_again() {
    let way = allowing(&["127.0.0.0/8"], true);
    let (url, mut told, hang_up) = one_by_one().await;
    for connection in 0..3 {
        let reply = get(&way, &format!("{url}a/b%20c?d=e#f")).await.unwrap();
        assert_eq!(&reply.body[..], b"ok");
        let ReceivedRequest { connection: over, text } = told.recv().await.unwrap();
        assert_eq!(over, connection);
        assert!(text.starts_with("GET /a/b%20c?d=e HTTP/1.1\r\n") && text.ends_with("\r\n\r\nhello"), "{text}");
        let host = format!("\r\nhost: {}\r\n", url.trim_start_matches("http://").trim_end_matches('/'));
        assert!(text.contains(&host) && text.contains("\r\ncontent-length: 5\r\n"), "{text}");
        hang_up.notify_one();
        assert_eq!(told.recv().await.unwrap(), ReceivedRequest { connection, text: String::new() });
    }
}

#[tokio::test]
async fn a_connection_nobody_uses_is_closed_after_a_while() {
    let way = allowing(&["127.0.0.0/8"], true);
    let (url, mut told, _) = one_by_one().await;
    for _ in 0..2 {
        get(&way, &url).await.unwrap();
        assert_eq!(told.recv().await.unwrap().connection, 0);
    }
    // Time goes on to whatever is waited for next.
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let closed = tokio::time::timeout(Duration::from_mins(1), told.recv()).await.expect("it is closed");
    assert_eq!(closed.unwrap(), ReceivedRequest { connection: 0, text: String::new() });
    assert!((3..=9).contains(&began.elapsed().as_secs()), "after {:?}", began.elapsed());
    tokio::time::resume();
    get(&way, &url).await.unwrap();
    assert_eq!(told.recv().await.unwrap().connection, 1);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let way = allowing(&["127.0.0.0/8"], true);
    let inside = server("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    for status in [301, 302, 303, 307, 308] {
        let says = format!("HTTP/1.1 {status} Moved\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", inside.url);
        assert_eq!(get(&way, &server(says).await.url).await.unwrap().status.as_u16(), status);
    }
    assert_eq!(inside.connections.load(SeqCst), 0);
}

#[tokio::test]
async fn nothing_inside_is_reached_in_any_spelling() {
    let inside = server("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let port = inside.url.trim_end_matches('/').rsplit(':').next().unwrap();
    let way = allowing(&[], true);
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.0.0.1.",
        "１２７.０.０.１",
        "127。0。0。1",
        "%31%32%37.0.0.1",
        "0.0.0.0",
        "0",
        "[::]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fc00::1]",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.0.1",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
    ] {
        for scheme in ["http", "https"] {
            let refused = get(&way, &format!("{scheme}://{host}:{port}/")).await.unwrap_err();
            assert!(matches!(refused, NoReply::Inside(_)), "{scheme}://{host}: {refused:?}");
            assert!(refused.is_refusal() && !refused.to_string().contains("127"), "{refused}");
        }
    }
    assert_eq!(inside.connections.load(SeqCst), 0);
}

#[tokio::test]
async fn only_https_goes_out_and_no_password_with_it() {
    let inside = server("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let strict = allowing(&["127.0.0.0/8"], false);
    assert_eq!(get(&strict, &inside.url).await.unwrap_err(), NoReply::NotHttps);
    let way = allowing(&["127.0.0.0/8"], true);
    for url in ["file:///etc/passwd", "ftp://127.0.0.1/", "data:text/plain,x", "gopher://127.0.0.1/", "unix:/x"] {
        assert_eq!(get(&way, url).await.unwrap_err(), NoReply::NotHttps, "{url}");
    }
    for user in ["ada@", "ada:hush@", ":hush@"] {
        let url = inside.url.replace("://", &format!("://{user}"));
        assert_eq!(get(&way, &url).await.unwrap_err(), NoReply::Credentials);
    }
    assert_eq!(inside.connections.load(SeqCst), 0);
    assert_eq!(get(&way, "https://somewhere.example/").await.unwrap_err(), NoReply::TooSlow, "no name server");
}

#[tokio::test]
async fn whoever_is_slow_is_left_after_the_whole_time() {
    let way = allowing(&["127.0.0.0/8"], true);
    for says in ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"] {
        let slow = server(says).await;
        assert_eq!(get(&way, &slow.url).await.unwrap_err(), NoReply::TooSlow, "{says:?}");
    }
    let odd = server("what?\r\n\r\n").await;
    assert!(matches!(get(&way, &odd.url).await.unwrap_err(), NoReply::Broken(_)));
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert!(matches!(get(&way, &format!("http://{nobody}/")).await.unwrap_err(), NoReply::Broken(_)));
    let plain = server("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let spoken = get(&way, &plain.url.replace("http:", "https:")).await.unwrap_err();
    assert!(matches!(spoken, NoReply::Broken(_)), "{spoken:?}: it does not speak TLS");
}

/// Ends with the test, also with one that fails.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A real TLS server with a certificate of its own making; answers the certificate and the port.
fn tls_server(folder: &std::path::Path) -> (Running, Vec<u8>, u16) {
    let run = |args: &str| {
        let mut command = Command::new("openssl");
        command.current_dir(folder).args(args.split(' ')).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).spawn().unwrap()
    };
    let made = run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -days 2 \
                    -subj /CN=receiver -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE")
    .wait();
    assert!(made.unwrap().success());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = Running(run(&format!("s_server -accept 127.0.0.1:{port} -cert cert.pem -key key.pem -www")));
    (server, std::fs::read(folder.join("cert.pem")).unwrap(), port)
}

#[tokio::test]
async fn a_certificate_must_be_of_an_authority_that_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, pem, port) = tls_server(folder.path());
    while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let url = format!("https://127.0.0.1:{port}/");
    let stranger = get(&allowing(&["127.0.0.0/8"], false), &url).await.unwrap_err();
    assert!(matches!(&stranger, NoReply::Broken(why) if why.contains("certificate")), "{stranger:?}");
    let authorities = vec![CertificateDer::from_pem_slice(&pem).unwrap()];
    let allowed =
        Allowed { networks: vec!["127.0.0.1".parse::<std::net::IpAddr>().unwrap().into()], ..Allowed::default() };
    let way = Outgoing::new(Resolver::new(&[]), Allowed { authorities, ..allowed });
    let reply = get(&way, &url).await.unwrap();
    assert_eq!(reply.status.as_u16(), 200);
}

#[test]
fn a_file_of_authorities_that_holds_none_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("authorities.pem");
    let garbage = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    for content in ["", "no certificate", garbage] {
        std::fs::write(&file, content).unwrap();
        let setting = ("JANUA_OUTGOING_CA".to_owned(), file.display().to_string());
        let config = Config::load(None, [setting], [], &[]).unwrap();
        let said = Outgoing::from_config(&config, &[]).err().unwrap();
        assert!(said.starts_with("outgoing_ca: ") && said.contains("authorities.pem"), "{said}");
    }
}
