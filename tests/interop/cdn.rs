//! A distribution at another provider: CloudFront's calls, against a published stand-in for it (moto).
use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{Server, mail_with, token_in, wait};

const PASSWORD: &str = "correct horse battery staple";
/// A gzip-compressed tar with one page.
const ARCHIVE: &str = "H4sIAAAAAAACA8vMS0mt0Msoyc1hoBkwAAIzExMwDQToNBCYIrFB4ubmxqYMCgYMdAClxSWJRUArGUYmyEjNyclnGAWjYBSMglEw0gAAQ55vdQAIAAA=";

struct Moto {
    child: Child,
    port: u16,
}

impl Moto {
    fn start() -> Self {
        let python =
            std::env::var("TEST_PYTHON").expect("TEST_PYTHON: scripts/test sets it, scripts/setup installs it");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let program: PathBuf = Path::new(&python).with_file_name("moto_server");
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("moto runs");
        wait("moto", || TcpStream::connect(("127.0.0.1", port)).ok());
        Self { child, port }
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
        // Moto tells services apart by the credential's scope.
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: cloudfront.amazonaws.com\r\nConnection: close\r\nAuthorization: AWS4-HMAC-SHA256 \
             Credential=AKID/20260101/us-east-1/cloudfront/aws4_request, SignedHeaders=host, Signature=0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let (status, said) = server.visit().ask(method, path, token, &text);
    assert!((200..300).contains(&status), "{method} {path}: {status} {said}");
    (status, serde_json::from_str(&said).unwrap_or_default())
}

fn deploy(server: &Server, app: &str, token: &str) {
    let archive = data_encoding::BASE64.decode(ARCHIVE.as_bytes()).expect("an archive");
    let head = format!(
        "POST /apps/{app}/deploy HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
         Content-Type: application/gzip\r\nContent-Length: {}\r\n\r\n",
        archive.len()
    );
    let (status, said) = server.send(&[head.as_bytes(), &archive].concat());
    assert_eq!(status, 200, "{said}");
}

#[test]
fn an_external_distribution_is_created_and_forgets_the_production_before() {
    let moto = Moto::start();
    let folder = tempfile::tempdir().unwrap();
    let endpoint = format!("http://127.0.0.1:{}", moto.port);
    let settings = [
        ("JANUA_CDN_ENDPOINT", endpoint.as_str()),
        ("JANUA_CDN_ACCESS_KEY", "AKIDEXAMPLE"),
        ("JANUA_CDN_SECRET_KEY", "hush"),
        ("JANUA_EDGE_LISTEN", "127.0.0.1:0"),
    ];
    let server = Server::start(folder.path(), &settings);
    ask(
        &server,
        "POST",
        "/auth/register",
        "",
        &json!({ "email": "ada@example.com", "password": PASSWORD, "name": "Ada" }),
    );
    let outbox = folder.path().join("data/outbox");
    let mail = wait("the mail", || mail_with(&outbox, "ada@example.com").filter(|mail| mail.contains("?token=")));
    ask(&server, "POST", "/auth/verify-email", "", &json!({ "token": token_in(&mail) }));
    let login = json!({ "email": "ada@example.com", "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    let token = ask(&server, "POST", "/auth/login", "", &login).1["accessToken"].as_str().unwrap().to_owned();
    let app = ask(&server, "POST", "/apps", &token, &json!({ "name": "Shop", "slug": "shop" })).1;
    let app = app["id"].as_str().unwrap().to_owned();
    deploy(&server, &app, &token);
    let path = format!("/apps/{app}/cdn");
    let (status, made) = ask(&server, "POST", &path, &token, &json!({ "provider": "external" }));
    assert_eq!((status, &made["status"]), (202, &json!("provisioning")), "{made}");
    let host = wait("the distribution", || {
        let site = ask(&server, "GET", &path, &token, &Value::Null).1;
        site["hostname"].as_str().filter(|host| host.ends_with("cloudfront.net")).map(str::to_owned)
    });
    let all = moto.get("/2020-05-31/distribution");
    assert!(all.contains(&host) && all.contains("shop.localhost"), "{all}");
    let id = all.split("<Id>").nth(1).and_then(|rest| rest.split("</Id>").next()).expect("an id").to_owned();
    deploy(&server, &app, &token);
    wait("the invalidation", || {
        let list = moto.get(&format!("/2020-05-31/distribution/{id}/invalidation"));
        list.contains("<InvalidationSummary>").then_some(())
    });
}
