//! The libraries of others verify what is really sent.
use tokio::process::Command;

use super::*;

/// They look at the clock, and the deliveries were made in a time that stands still.
const PROGRAM: &str = "
import json, sys
import standardwebhooks.webhooks, stripe, svix.webhooks
given = json.load(sys.stdin)
body, now = given['body'], given['now']

class Then(standardwebhooks.webhooks.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(now, tz)

standardwebhooks.webhooks.datetime = Then
verifier = svix.webhooks.Webhook(given['standardSecret'])

def of_stripe(body):
    stripe.WebhookSignature.verify_header(body, given['signature'], given['secret'], tolerance=None)

def of_svix(body):
    verifier.verify(body, given['headers'])

for verify in [of_stripe, of_svix]:
    verify(body)
    try:
        verify(body + ' ')
    except (stripe.SignatureVerificationError, svix.webhooks.WebhookVerificationError):
        continue
    sys.exit(f'{verify.__name__} took another body')
print('both verify')
";

async fn verify(secret: &Value, standard_secret: &Value, heard: &Heard) {
    use tokio::io::AsyncWriteExt as _;
    let header = |name: &str| heard.header(name).to_owned();
    let given = json!({
        "body": String::from_utf8(heard.raw.clone()).unwrap(), "signature": header("webhook-signature"),
        "secret": secret, "standardSecret": standard_secret,
        "headers": { "svix-id": header("svix-id"), "svix-timestamp": header("svix-timestamp"),
                     "svix-signature": header("svix-signature") },
        "now": header("svix-timestamp").parse::<i64>().unwrap(),
    });
    let python = std::env::var("TEST_PYTHON").expect("TEST_PYTHON names a Python with what scripts/setup installs");
    let mut command = Command::new(python);
    command.args(["-c", PROGRAM]).stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut program = command.kill_on_drop(true).spawn().unwrap();
    let mut stdin = program.stdin.take().unwrap();
    stdin.write_all(given.to_string().as_bytes()).await.unwrap();
    drop(stdin);
    let said = program.wait_with_output().await.unwrap();
    assert_eq!(
        String::from_utf8_lossy(&said.stdout).trim(),
        "both verify",
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
}

#[tokio::test]
async fn stripes_and_svixs_libraries_verify_a_delivery_also_while_the_secret_turns() {
    let t = start().await;
    let (shop, receiver) = (Shop::open(&t).await, Receiver::start().await);
    let body = json!({ "url": receiver.url, "events": ["user.signed_in"], "standardHeaders": true });
    let made = shop.asks(t.post("/webhooks").json(&body)).await;
    assert!(made.body["standardSecret"].as_str().unwrap().starts_with("whsec_"), "{}", made.text);
    login_with(&t, "ada@example.com", &shop.key).await;
    deliver(&t).await;
    let heard = receiver.heard().remove(0);
    assert_eq!(heard.header("svix-id"), heard.header("webhook-id"));
    verify(&made.body["secret"], &made.body["standardSecret"], &heard).await;
    let turned = shop.change(&t, &made.body, &json!({ "rotateSecret": true })).await;
    login_with(&t, "ada@example.com", &shop.key).await;
    deliver(&t).await;
    let heard = receiver.heard().remove(0);
    verify(&made.body["secret"], &made.body["standardSecret"], &heard).await;
    verify(&turned.body["secret"], &turned.body["standardSecret"], &heard).await;
    done(t).await;
}
