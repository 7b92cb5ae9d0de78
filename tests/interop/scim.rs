//! SCIM as a published compliance tester sees it, on the running binary.
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Server, mail_with, token_in, wait};

/// Runs everything, and prints what it found. Only that a deleted user is gone is not asked for: it is kept, switched
/// off. (The tester's own way to leave that out leaves out all that reads, too.)
const TESTER: &str = r#"
import sys
from collections import Counter
from httpx2 import Client
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_tester import Status, check_server

url, token = sys.argv[1:]
http = Client(base_url=url + "/scim/v2", headers={"Authorization": "Bearer " + token}, timeout=30)
results = check_server(SyncSCIMClient(http))
results = [r for r in results if (r.title, r.resource_type) != ("object_deletion", "User")]
bad = [r for r in results if r.status in (Status.ERROR, Status.CRITICAL)]
for result in bad:
    print(result.status, result.title, result.resource_type, result.reason)
print(Counter(str(result.status) for result in results))
assert sum(result.status == Status.SUCCESS for result in results) > 100, "the tester found little to test"
sys.exit(1 if bad else 0)
"#;

#[test]
fn the_published_tester_finds_no_error() {
    let python =
        std::env::var("TEST_PYTHON").expect("TEST_PYTHON names a Python with scim2-tester; scripts/test sets it");
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(folder.path(), &[("JANUA_RATE_LIMITS", "off")]);
    let mut visit = server.visit();
    let mut post = |path: &str, token: &str, body: Value| -> Value {
        let (status, text) = visit.ask("POST", path, token, &body.to_string());
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).expect("JSON")
    };
    let who = json!({ "email": "ada@example.com", "password": "correct horse battery staple", "name": "Ada" });
    post("/auth/register", "", who.clone());
    let outbox = folder.path().join("data/outbox");
    let mail = wait("a mail", || mail_with(&outbox, "?token="));
    post("/auth/verify-email", "", json!({ "token": token_in(&mail) }));
    let signed_in = post("/auth/login", "", who);
    let access = signed_in["accessToken"].as_str().expect("a token");
    let org = post("/org", access, json!({ "name": "Acme" }));
    let path = format!("/org/{}/scim-tokens", org["id"].as_str().expect("an id"));
    let token = post(&path, access, json!({ "name": "tester" }));
    let token = token["value"].as_str().expect("a token").to_owned();

    let url = format!("http://{}", server.address);
    let ran = Command::new(python).args(["-c", TESTER, &url, &token]).output().expect("Python runs");
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{said}");
}
