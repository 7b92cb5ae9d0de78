//! The code that the console and docs/webhooks.md show verifies what is really sent, in every language.
use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, UNIX_EPOCH},
};

use super::*;

#[path = "../../../../../docs/samples/webhooks/rust.rs"]
mod in_rust;

/// What a receiver would hand to the code, and whether the delivery is genuine.
struct Case {
    what: &'static str,
    header: String,
    body: Vec<u8>,
    secret: String,
    now: u64,
    is_genuine: bool,
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn sample(name: &str) -> PathBuf {
    docs().join("samples/webhooks").join(name).canonicalize().unwrap()
}

fn secret(shown: &Value) -> String {
    shown["secret"].as_str().unwrap().to_owned()
}

async fn sent(t: &TestJanua, shop: &Shop, webhook: &Value, receiver: &Receiver) -> (String, Vec<u8>, u64) {
    shop.rehearse(t, webhook).await;
    deliver(t).await;
    let heard = receiver.heard().remove(0);
    let header = heard.header("webhook-signature").to_owned();
    let at = header.trim_start_matches("t=").split(',').next().unwrap().parse().unwrap();
    (header, heard.raw, at)
}

/// Real deliveries: before, during and after a rotation.
async fn cases() -> Vec<Case> {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let made = shop.register(&t, &receiver.url, &["user.signed_in"]).await;
    let before = sent(&t, &shop, &made, &receiver).await;
    let turned = shop.change(&t, &made, &json!({ "rotateSecret": true })).await.body;
    let during = sent(&t, &shop, &made, &receiver).await;
    assert_eq!(during.0.matches("v1=").count(), 2, "{}", during.0);
    shop.change(&t, &made, &json!({ "rotateSecret": "finalize" })).await;
    let after = sent(&t, &shop, &made, &receiver).await;
    done(t).await;
    let (old, new) = (secret(&made), secret(&turned));
    let case = |what, (header, body, at): &(String, Vec<u8>, u64), secret: &str, later: i64, is_genuine| Case {
        what,
        header: header.clone(),
        body: body.clone(),
        secret: secret.to_owned(),
        now: at.saturating_add_signed(later),
        is_genuine,
    };
    let forged = (format!("t={},v1={}", before.2, "0".repeat(64)), before.1.clone(), before.2);
    let altered = (before.0.clone(), [&before.1[..], b" "].concat(), before.2);
    let moved = (before.0.replace(&before.2.to_string(), &(before.2 + 1).to_string()), before.1.clone(), before.2);
    vec![
        case("a delivery", &before, &old, 0, true),
        case("within five minutes", &before, &old, 299, true),
        case("an old timestamp", &before, &old, 301, false),
        case("a timestamp of the future", &before, &old, -301, false),
        case("another secret", &before, &new, 0, false),
        case("a wrong signature", &forged, &old, 0, false),
        case("another body", &altered, &old, 0, false),
        case("another timestamp", &moved, &old, 0, false),
        case("no signature", &(format!("t={}", before.2), before.1.clone(), before.2), &old, 0, false),
        case("no header", &(String::new(), before.1.clone(), before.2), &old, 0, false),
        case("the old secret during a rotation", &during, &old, 0, true),
        case("the new secret during a rotation", &during, &new, 0, true),
        case("an old timestamp during a rotation", &during, &new, 301, false),
        case("the old secret after a rotation", &after, &old, 0, false),
        case("the new secret after a rotation", &after, &new, 0, true),
    ]
}

fn check(language: &str, cases: &[Case], said: &[bool]) {
    assert_eq!(cases.len(), said.len(), "{language}");
    for (case, said) in cases.iter().zip(said) {
        assert_eq!(case.is_genuine, *said, "{language}: {}", case.what);
    }
}

/// All cases for one program, which answers with a list.
fn ask(language: &str, mut command: Command, cases: &[Case]) {
    let given: Vec<_> = cases
        .iter()
        .map(|case| {
            let body = String::from_utf8(case.body.clone()).unwrap();
            json!({ "header": case.header, "body": body, "secret": case.secret, "now": case.now })
        })
        .collect();
    let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    program.stdin.take().unwrap().write_all(json!(given).to_string().as_bytes()).unwrap();
    let Output { stdout, stderr, .. } = program.wait_with_output().unwrap();
    let said: Vec<bool> = serde_json::from_slice(&stdout).unwrap_or_else(|_| {
        panic!("{language}: {}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr))
    });
    check(language, cases, &said);
}

const IN_NODE: &str = "
import { readFileSync } from 'node:fs'
const { verifyWebhook } = await import(process.argv[1])
const given = JSON.parse(readFileSync(0, 'utf8'))
console.log(JSON.stringify(given.map((one) => verifyWebhook(one.header, Buffer.from(one.body), one.secret, one.now))))
";

const IN_PYTHON: &str = "
import json, runpy, sys
verify = runpy.run_path(sys.argv[1])['verify_webhook']
given = json.load(sys.stdin)
print(json.dumps([verify(one['header'], one['body'].encode(), one['secret'], one['now']) for one in given]))
";

const IN_GO: &str = "
package main

import (
	\"encoding/json\"
	\"os\"
	\"time\"
)

func main() {
	var given []struct {
		Header, Body, Secret string
		Now                  int64
	}
	json.NewDecoder(os.Stdin).Decode(&given)
	said := []bool{}
	for _, one := range given {
		said = append(said, Verify(one.Header, []byte(one.Body), one.Secret, time.Unix(one.Now, 0)))
	}
	json.NewEncoder(os.Stdout).Encode(said)
}
";

#[tokio::test]
async fn the_samples_verify_both_signatures_and_refuse_forged_and_old_ones() {
    let cases = cases().await;
    let rust: Vec<_> = cases
        .iter()
        .map(|case| {
            let now = UNIX_EPOCH + Duration::from_secs(case.now);
            in_rust::is_genuine(&case.header, &case.body, &case.secret, now)
        })
        .collect();
    check("Rust", &cases, &rust);

    let mut node = Command::new("node");
    node.args(["--input-type=module", "-e", IN_NODE]).arg(sample("node.mjs"));
    ask("Node", node, &cases);

    let python = std::env::var("TEST_PYTHON").expect("TEST_PYTHON names a Python with what scripts/setup installs");
    let mut python = Command::new(python);
    python.args(["-c", IN_PYTHON]).arg(sample("python.py"));
    ask("Python", python, &cases);

    let folder = tempfile::tempdir().unwrap();
    let in_shell = |case: &Case| {
        std::fs::write(folder.path().join("body.json"), &case.body).unwrap();
        let mut shell = Command::new("bash");
        shell.arg(sample("curl.sh")).current_dir(folder.path());
        shell.env("HEADER", &case.header).env("SECRET", &case.secret).env("NOW", case.now.to_string());
        let Output { status, stdout, .. } = shell.output().unwrap();
        assert_eq!(status.success(), stdout == b"genuine\n", "{}: the words say what the status says", case.what);
        status.success()
    };
    check("curl", &cases, &cases.iter().map(in_shell).collect::<Vec<_>>());

    let code = std::fs::read_to_string(sample("go.go")).unwrap().replace("package webhook", "package main");
    for (name, text) in [("go.mod", "module sample\n\ngo 1.18\n"), ("main.go", IN_GO), ("webhook.go", &code)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    // Installed by scripts/setup.
    let mut go = Command::new("go");
    go.args(["run", "."]).current_dir(folder.path());
    ask("Go", go, &cases);
}

#[test]
fn the_document_shows_the_samples_as_they_are() {
    let page = std::fs::read_to_string(docs().join("webhooks.md")).unwrap();
    for (language, name) in
        [("js", "node.mjs"), ("python", "python.py"), ("go", "go.go"), ("rust", "rust.rs"), ("sh", "curl.sh")]
    {
        let code = std::fs::read_to_string(sample(name)).unwrap();
        assert!(page.contains(&format!("```{language}\n{code}```")), "docs/webhooks.md differs from {name}");
    }
}
