//! Clients of others at a listening server: curl, boto3 and tus-js-client.
use std::{path::PathBuf, process::Output};

use axum::http::Method;
use identity::testing::Person;
use kernel::{config::Config, crypto::hash, http::serve, testing::S3Server};
use serde_json::{Value, json};
use tokio::{net::TcpListener, process::Command, sync::oneshot};

use super::{Shop, text};

const ACCESS_KEY: &str = "AKIDTEST";

/// A shop whose URLs lead to a socket.
struct Served {
    shop: Shop,
    url: String,
    stop: oneshot::Sender<()>,
    running: tokio::task::JoinHandle<usize>,
    folder: tempfile::TempDir,
}

impl Served {
    async fn start(config: Config, bucket: Option<S3Server>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let config = Config { base_url: Some(url.parse().unwrap()), ..config };
        let shop = Shop::with(config, bucket).await;
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(serve(listener, shop.t.door(), async {
            let _ = stopped.await;
        }));
        Self { shop, url, stop, running, folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    async fn finish(self) {
        self.stop.send(()).unwrap();
        self.running.await.unwrap();
        self.shop.finish().await;
    }
}

async fn run(program: &str, arguments: &[&str]) -> Output {
    let node = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/node");
    let node = std::env::var("TEST_NODE").unwrap_or_else(|_| node.to_owned());
    let ran = Command::new(program).args(arguments).env("TEST_NODE", node).output().await;
    ran.unwrap_or_else(|error| panic!("{program}: {error}; scripts/setup installs it"))
}

fn printed(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn long(length: usize) -> Vec<u8> {
    (0..length).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_uploads_and_reads_a_part() {
    let served = Served::start(Config::for_tests(), None).await;
    let bytes = long(3_000_001);
    let file = served.file("long.bin", &bytes);
    let body = json!({ "name": "long.bin", "contentType": "application/x-thing", "size": bytes.len() });
    let offer = served.shop.presign(&body).await.body;
    let put = async |url: &str, content_type: &str| {
        let header = format!("content-type: {content_type}");
        let arguments =
            ["-sS", "-o", "/dev/null", "-w", "%{http_code}", "-T", file.to_str().unwrap(), "-H", &header, url];
        printed(&run("curl", &arguments).await)
    };
    let url = text(&offer["uploadUrl"]);
    assert_eq!(put(&url, "text/html").await, "403");
    assert_eq!(put(&url, "application/x-thing").await, "204");
    let done = served.shop.finalize(&text(&offer["objectId"]), &json!({ "sha256": hash(&bytes) })).await;
    assert_eq!(done.status, 200, "{}", done.text);
    let url = text(&done.body["downloadUrl"]);
    let part = run("curl", &["-sS", "-r", "1000000-1000099", &url]).await;
    assert_eq!(part.stdout, &bytes[1_000_000..1_000_100]);
    let whole = run("curl", &["-sS", &url]).await;
    assert!(whole.stdout == bytes);
    served.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boto3_finds_in_the_bucket_what_was_put_at_a_presigned_url() {
    let bucket = S3Server::start().await;
    let server = bucket.url.clone();
    let served = Served::start(bucket.config(), Some(bucket)).await;
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/venv/bin/python");
    let python = std::env::var("TEST_PYTHON").unwrap_or_else(|_| python.to_owned());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/peers/buckets.py");
    let secret = kernel::testing::SECRET_KEY;
    let ask = async |arguments: &[&str]| {
        let all = [&[script, &server, "janua", ACCESS_KEY, secret], arguments].concat();
        printed(&run(&python, &all).await)
    };
    let file = served.file("words.txt", b"words");
    let offer = served.shop.presign(&super::new("words.txt", 5)).await.body;
    let url = text(&offer["uploadUrl"]);
    assert_eq!(ask(&["put", &url, "text/plain", file.to_str().unwrap()]).await, "200");
    let done = served.shop.finalize(&text(&offer["objectId"]), &json!({})).await;
    assert_eq!(done.status, 200, "{}", done.text);
    let key = file_of(&served, &done.body).await;
    assert_eq!(ask(&["get", &key]).await, format!("5 text/plain {}", hash(b"words")));

    // In parts, through this server.
    let bytes = long(20_000_003);
    let path = format!("/apps/{}/storage?name=long.bin", served.shop.app);
    let put = served.shop.admin.asks(served.shop.t.post(&path)).header("content-type", "application/x-thing");
    let made = put.header("content-length", &bytes.len().to_string()).body(bytes.clone()).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let key = file_of(&served, &made.body).await;
    assert_eq!(ask(&["get", &key]).await, format!("20000003 application/x-thing {}", hash(&bytes)));
    served.finish().await;
}

async fn file_of(served: &Served, object: &Value) -> String {
    let sql = "SELECT file FROM storage_object WHERE id = $1";
    let (file,): (String,) = served.shop.t.janua.db.one(sql, db::params![text(&object["id"])]).await.unwrap();
    file
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tus_js_client_breaks_off_and_goes_on() {
    let served = Served::start(Config::for_tests(), None).await;
    let bytes = long(5_000_001);
    let file = served.file("words.bin", &bytes);
    let Person { access, .. } = &served.shop.user;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/peers/tus.mjs");
    let endpoint = format!("{}/storage/uploads", served.url);
    let url = printed(&run("node", &[script, &endpoint, access, &served.shop.key, file.to_str().unwrap()]).await);
    let id = url.rsplit('/').next().unwrap();
    let object = served.shop.ask(Method::GET, &format!("/storage/objects/{id}")).await.body;
    assert_eq!((&object["status"], &object["sha256"]), (&json!("ready"), &json!(hash(&bytes))), "{object}");
    assert_eq!((&object["name"], &object["metadata"]), (&json!("words.bin"), &json!({ "album": "strangers" })));
    served.finish().await;
}
