//! Mail against a real SMTP server, and into the outbox.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use kernel::{
    config::Config,
    ports::{SendError, mail::from_config},
};
use lettre::Message;

fn message() -> Message {
    Message::builder()
        .from("Janua <no-reply@id.example.com>".parse().unwrap())
        .to("Zoë <zoe@example.com>".parse().unwrap())
        .subject("Grüße")
        .body("Hello.\r\n.a line that starts with a dot\r\n".to_owned())
        .unwrap()
}

/// A published SMTP server that keeps what it receives in a mail folder.
struct SmtpServer {
    child: Child,
    port: u16,
}

impl SmtpServer {
    fn start(folder: &Path) -> Self {
        let python =
            std::env::var("TEST_PYTHON").expect("TEST_PYTHON: scripts/test sets it, scripts/setup installs it");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(python)
            .args(["-m", "aiosmtpd", "-n", "-l", &format!("127.0.0.1:{port}")])
            .args(["-c", "aiosmtpd.handlers.Mailbox"])
            .arg(folder)
            .stderr(Stdio::null())
            .spawn()
            .expect("the SMTP server starts");
        let server = Self { child, port };
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return server;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the SMTP server does not listen");
    }
}

impl Drop for SmtpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn smtp(port: u16) -> Config {
    Config { smtp_url: Some(format!("smtp://127.0.0.1:{port}").into()), ..Config::for_tests() }
}

#[tokio::test]
async fn a_real_server_receives_the_mail_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mailbox = folder.path().join("mail");
    let server = SmtpServer::start(&mailbox);
    let mail = from_config(&smtp(server.port)).unwrap();
    mail.check().await.unwrap();
    mail.send("id", &message()).await.unwrap();
    let received: Vec<_> = fs::read_dir(mailbox.join("new")).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(received.len(), 1);
    let text = fs::read_to_string(&received[0]).unwrap();
    assert!(text.contains("\n.a line that starts with a dot"), "{text}");
    assert!(
        text.contains("X-RcptTo: zoe@example.com") && text.contains("Subject: =?utf-8?b?R3LDvMOfZQ==?="),
        "{text}"
    );
}

#[tokio::test]
async fn a_server_that_is_away_is_tried_again_later() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mail = from_config(&smtp(unused)).unwrap();
    assert!(matches!(mail.send("id", &message()).await, Err(SendError::Later(_))));
    assert!(mail.check().await.is_err());
}

#[tokio::test]
async fn without_a_server_mails_lie_in_the_outbox() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { data_dir: folder.path().to_owned(), ..Config::for_tests() };
    let mail = from_config(&config).unwrap();
    mail.check().await.unwrap();
    mail.send("one", &message()).await.unwrap();
    let kept = fs::read_to_string(folder.path().join("outbox/one.eml")).unwrap();
    assert!(kept.contains("To: ") && kept.ends_with("starts with a dot\r\n"), "{kept}");
    assert_eq!(fs::read_dir(folder.path().join("outbox")).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn a_wrong_address_is_refused_by_its_setting() {
    let refusal = |config: &Config| from_config(config).err().unwrap();
    let from = Config { mail_from: "nobody at all".into(), ..Config::for_tests() };
    assert!(refusal(&from).starts_with("mail_from:"));
    let url = Config { smtp_url: Some("http://x".to_owned().into()), ..Config::for_tests() };
    assert!(refusal(&url).starts_with("smtp_url:"));
}
