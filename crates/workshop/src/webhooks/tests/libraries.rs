//! The libraries of others verify what is really sent.
use std::process::Stdio;

use tokio::{io::AsyncWriteExt as _, process::Command};

use super::*;

/// They look at the clock, and the deliveries were made in a time that stands still.
const IN_PYTHON: &str = "
import json, sys
import standardwebhooks.webhooks, stripe, svix.webhooks
given = json.load(sys.stdin)
body, headers, secret, now = given['body'], given['headers'], given['secret'], given['now']

class Then(standardwebhooks.webhooks.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(now, tz)

standardwebhooks.webhooks.datetime = Then

def of_stripe(body):
    stripe.WebhookSignature.verify_header(body, headers['webhook-signature'], secret, tolerance=None)

def of_svix(body):
    svix.webhooks.Webhook(secret).verify(body, headers)

def of_standardwebhooks(body):
    standardwebhooks.webhooks.Webhook(secret).verify(body, headers)

for name in given['libraries']:
    verify = globals()['of_' + name]
    verify(body)
    try:
        verify(body + ' ')
    except (stripe.SignatureVerificationError, svix.webhooks.WebhookVerificationError):
        continue
    except standardwebhooks.webhooks.WebhookVerificationError:
        continue
    sys.exit(f'{name} took another body')
print('verified')
";

const IN_NODE: &str = "
import { readFileSync } from 'node:fs'
import * as standardwebhooks from 'standardwebhooks'
import * as svix from 'svix'
const { body, headers, secret, now, libraries } = JSON.parse(readFileSync(0, 'utf8'))
Date.now = () => now * 1000
for (const name of libraries) {
  const webhook = new { standardwebhooks, svix }[name].Webhook(secret)
  webhook.verify(body, headers)
  let isRefused = false
  try { webhook.verify(body + ' ', headers) } catch { isRefused = true }
  if (!isRefused) throw new Error(`${name} took another body`)
}
console.log('verified')
";

fn python() -> Command {
    let python = std::env::var("TEST_PYTHON").expect("TEST_PYTHON names a Python with what scripts/setup installs");
    let mut command = Command::new(python);
    command.args(["-c", IN_PYTHON]);
    command
}

fn node() -> Command {
    let packages = std::env::var("TEST_NODE").expect("TEST_NODE: scripts/test sets it, scripts/setup installs it");
    let mut command = Command::new("node");
    // What it imports is looked for where it runs.
    command.current_dir(packages).args(["--input-type=module", "-e", IN_NODE]);
    command
}

/// What a library said when it was given a delivery and a secret as it was shown.
async fn verdict(mut command: Command, libraries: &[&str], secret: &Value, heard: &Heard) -> Result<(), String> {
    let headers: serde_json::Map<_, _> =
        heard.headers.iter().map(|(name, value)| (name.to_string(), json!(value.to_str().unwrap()))).collect();
    // Milliseconds have three digits more.
    let now = heard.header("webhook-timestamp")[..10].parse::<i64>().unwrap();
    let given = json!({
        "body": String::from_utf8(heard.raw.clone()).unwrap(), "headers": headers, "secret": secret, "now": now,
        "libraries": libraries,
    });
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = command.kill_on_drop(true).spawn().unwrap();
    let mut stdin = program.stdin.take().unwrap();
    stdin.write_all(given.to_string().as_bytes()).await.unwrap();
    drop(stdin);
    let said = program.wait_with_output().await.unwrap();
    let is_verified = String::from_utf8_lossy(&said.stdout).trim() == "verified";
    if is_verified { Ok(()) } else { Err(String::from_utf8_lossy(&said.stderr).into_owned()) }
}

async fn sent(t: &TestJanua, shop: &Shop, receiver: &Receiver) -> Heard {
    login_with(t, "ada@example.com", &shop.key).await;
    deliver(t).await;
    receiver.heard().remove(0)
}

#[tokio::test]
async fn stripes_library_verifies_a_delivery_also_while_the_secret_turns() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let made = shop.register(&t, &receiver.url, &["user.signed_in"]).await;
    let heard = sent(&t, &shop, &receiver).await;
    assert!(!heard.headers.contains_key("svix-id"), "only for whoever wants them");
    verdict(python(), &["stripe"], &made["secret"], &heard).await.unwrap();
    let turned = shop.change(&t, &made, &json!({ "rotateSecret": true })).await;
    let heard = sent(&t, &shop, &receiver).await;
    // It was made for the first secret of several.
    for secret in [&made["secret"], &turned.body["secret"]] {
        verdict(python(), &["stripe"], secret, &heard).await.unwrap();
    }
    done(t).await;
}

#[tokio::test]
async fn the_libraries_of_standard_webhooks_and_svix_verify_a_delivery_also_while_the_secret_turns() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let body = json!({ "url": receiver.url, "events": ["user.signed_in"], "standardHeaders": true });
    let made = shop.asks(t.post("/webhooks").json(&body)).await.body;
    assert!(made["standardSecret"].as_str().unwrap().starts_with("whsec_"), "{made}");
    let heard = sent(&t, &shop, &receiver).await;
    assert_eq!(heard.header("svix-id"), heard.header("webhook-id"));
    assert_eq!(
        (heard.body["deliveryId"].as_str(), heard.header("webhook-timestamp").len()),
        (Some(heard.header("webhook-id")), 10)
    );
    let libraries = ["standardwebhooks", "svix"];
    // Either spelling of the secret, since both were shown.
    for secret in [&made["standardSecret"], &made["secret"]] {
        verdict(python(), &libraries, secret, &heard).await.unwrap();
        verdict(node(), &libraries, secret, &heard).await.unwrap();
    }
    let turned = shop.change(&t, &made, &json!({ "rotateSecret": true })).await.body;
    let heard = sent(&t, &shop, &receiver).await;
    for shown in [&made, &turned] {
        for secret in [&shown["standardSecret"], &shown["secret"]] {
            verdict(python(), &libraries, secret, &heard).await.unwrap();
            verdict(node(), &libraries, secret, &heard).await.unwrap();
        }
    }
    shop.change(&t, &made, &json!({ "rotateSecret": "finalize" })).await;
    let heard = sent(&t, &shop, &receiver).await;
    assert!(verdict(python(), &libraries, &made["standardSecret"], &heard).await.is_err(), "the old one is gone");
    assert!(verdict(node(), &libraries, &made["secret"], &heard).await.is_err());
    verdict(node(), &libraries, &turned["standardSecret"], &heard).await.unwrap();
    done(t).await;
}

#[tokio::test]
async fn a_webhook_from_before_keeps_our_own_signature_beside_svixs() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let body = json!({ "url": receiver.url, "events": ["user.signed_in"], "standardHeaders": true });
    let made = shop.asks(t.post("/webhooks").json(&body)).await.body;
    t.janua.db.exec("UPDATE webhook SET is_standard = $1", db::params![false]).await.unwrap();
    // The console sends the whole form; what stays as it is changes nothing.
    shop.change(&t, &made, &json!({ "standardHeaders": true, "events": ["user.signed_in"] })).await;
    let heard = sent(&t, &shop, &receiver).await;
    verdict(python(), &["stripe"], &made["secret"], &heard).await.unwrap();
    verdict(python(), &["svix"], &made["standardSecret"], &heard).await.unwrap();
    for standard in [false, true] {
        shop.change(&t, &made, &json!({ "standardHeaders": standard })).await;
    }
    let heard = sent(&t, &shop, &receiver).await;
    verdict(node(), &["standardwebhooks"], &made["standardSecret"], &heard).await.unwrap();
    done(t).await;
}
