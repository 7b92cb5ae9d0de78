//! The pages in a real browser: Chromium, driven by a published library, against the running binary.
use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use serde_json::json;

use crate::support::{
    Server,
    people::{self, ask, well},
};

fn peer(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/peers").join(name)
}

/// A published OpenID provider, for signing in with one.
struct Provider {
    child: Child,
    url: String,
    /// Kept open: who writes into a closed pipe ends.
    _out: BufReader<ChildStdout>,
}

impl Provider {
    fn start(node: &str, port: u16) -> Self {
        let mut command = Command::new("node");
        command.arg(peer("oidc.mjs")).arg(format!("http://localhost:{port}")).env("TEST_NODE", node);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("node runs");
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        let mut url = String::new();
        out.read_line(&mut url).expect("its address");
        Self { child, url: url.trim().to_owned(), _out: out }
    }

    /// The setting under which it stands in for another one.
    fn endpoints(&self, name: &str) -> String {
        let parts = [("authorize", "/auth"), ("token", "/token"), ("jwks", "/jwks"), ("issuer", "")];
        parts.map(|(part, path)| format!("{name}.{part}={}{path}", self.url)).join(",")
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn people_find_their_way() {
    let node = std::env::var("TEST_NODE").expect("TEST_NODE: scripts/test sets it, scripts/setup installs it");
    let folder = tempfile::tempdir().unwrap();
    // The provider must know where people come back to, and the server where it is: so the port is chosen first.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
    let provider = Provider::start(&node, port);
    let listen = format!("127.0.0.1:{port}");
    let mut command = crate::support::janua(folder.path(), &["serve", "--listen", &listen]);
    command
        .envs([("JANUA_WEBHOOK_ALLOW_NETS", "127.0.0.0/8"), ("WEBHOOK_ALLOW_HTTP", "1")])
        .envs([("JANUA_GOOGLE_CLIENT_ID", "google"), ("JANUA_GOOGLE_CLIENT_SECRET", "google-secret")])
        .env("JANUA_PROVIDER_ENDPOINTS", provider.endpoints("google"));
    let server = Server::of(command);
    // The page of an installation without an owner names these words.
    assert!(server.greeting.contains("Create the owner's account at"), "{}", server.greeting);
    let link = server.greeting.split("/first-owner?token=").nth(1).expect("the link for the first owner").trim();
    let mut command = Command::new("node");
    command
        .arg(peer("browser.mjs"))
        .arg(format!("http://localhost:{port}"))
        .arg(folder.path().join("data/outbox"))
        .arg(link)
        .arg(&provider.url)
        .env("TEST_NODE", &node);
    // `scripts/pictures` wants to see them.
    if let Ok(pictures) = std::env::var("TEST_PICTURES") {
        command.arg(pictures);
    }
    let output = command.output().expect("node runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim_end().ends_with("done"), "{said}\n{wrong}");
}

#[test]
fn w10_w11_a_built_site_is_deployed_and_kept_apart_from_the_console() {
    let node = std::env::var("TEST_NODE").expect("TEST_NODE: scripts/test sets it, scripts/setup installs it");
    let folder = tempfile::tempdir().unwrap();
    let edge = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let server = Server::start(folder.path(), &[("JANUA_EDGE_LISTEN", &edge.to_string())]);
    let owner = people::owner(&server, &[folder.path()], "ada@example.com");
    well(ask(&server, "PATCH", &format!("/apps/{}", owner.app), &owner.access, &json!({ "slug": "built-shop" })));
    let mut command = Command::new("node");
    command
        .arg(peer("built-site.mjs"))
        .arg(format!("http://localhost:{}", server.address.port()))
        .arg(format!("http://built-shop.localhost:{}", edge.port()))
        .args([&owner.app, &owner.access, "ada@example.com", people::PASSWORD])
        .env("TEST_NODE", &node);
    if let Ok(pictures) = std::env::var("TEST_PICTURES") {
        command.arg(pictures);
    }
    let output = command.output().expect("node runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim_end().ends_with("done"), "{said}\n{wrong}");
}

/// What the walks of people do not open: each page of the console, the account and the platform, with something on it.
#[test]
fn every_page_is_right_html_and_fits_a_phone_and_axe_finds_nothing() {
    let node = std::env::var("TEST_NODE").expect("TEST_NODE: scripts/test sets it, scripts/setup installs it");
    let (folder, email) = (tempfile::tempdir().unwrap(), "ada@example.com");
    let settings = [("JANUA_PLATFORM_OWNERS", email), ("JANUA_RATE_LIMITS", "off"), ("JANUA_PAYMENTS", "sandbox")];
    let server = Server::start(folder.path(), &[&settings[..], &[("JANUA_EDGE_LISTEN", "127.0.0.1:0")]].concat());
    people::owner(&server, &[folder.path()], email);
    let mut command = Command::new("node");
    command.arg(peer("every-page.mjs")).arg(format!("http://localhost:{}", server.address.port()));
    let output = command.args([email, people::PASSWORD]).env("TEST_NODE", &node).output().expect("node runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim_end().ends_with("done"), "{said}\n{wrong}");
}
