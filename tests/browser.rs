//! The pages in a real browser: Chromium, driven by a published library, against the running binary.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails when it must")]
mod binary;

use std::{path::Path, process::Command};

use binary::Server;

#[test]
fn people_find_their_way() {
    let node = std::env::var("TEST_NODE").expect("TEST_NODE: scripts/test sets it, scripts/setup installs it");
    let folder = tempfile::tempdir().unwrap();
    let settings = [("JANUA_WEBHOOK_ALLOW_NETS", "127.0.0.0/8"), ("WEBHOOK_ALLOW_HTTP", "1")];
    let server = Server::start(folder.path(), &settings);
    let link = server.greeting.split("/first-owner?token=").nth(1).expect("the link for the first owner").trim();
    let mut command = Command::new("node");
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/peers/browser.mjs"))
        .arg(format!("http://localhost:{}", server.address.port()))
        .arg(folder.path().join("data/outbox"))
        .arg(link)
        .env("TEST_NODE", node);
    // `scripts/pictures` wants to see them.
    if let Ok(pictures) = std::env::var("TEST_PICTURES") {
        command.arg(pictures);
    }
    let output = command.output().expect("node runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim_end().ends_with("done"), "{said}\n{wrong}");
}
