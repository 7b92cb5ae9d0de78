//! A whole life with an account, over real sockets: a real SMTP server, a crash in between, keys that turn over.
use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use serde_json::{Value, json};

use crate::support::{Server, janua, mail_with, run, token_in, wait};

const PASSWORD: &str = "correct horse battery staple";

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
        let mut command = Command::new(python);
        command.args(["-m", "aiosmtpd", "-n", "-l", &format!("127.0.0.1:{port}"), "-c", "aiosmtpd.handlers.Mailbox"]);
        let child = command.arg(folder).stderr(Stdio::null()).spawn().expect("the SMTP server starts");
        let server = Self { child, port };
        wait("the SMTP server listens", || TcpStream::connect(("127.0.0.1", port)).ok());
        server
    }
}

impl Drop for SmtpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn call(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    let bearer = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{kind}{bearer}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = server.connect();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok());
    (status, body.unwrap_or_default())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_life_with_an_account_survives_a_crash_and_a_rotation() {
    let folder = tempfile::tempdir().unwrap();
    let mailbox = folder.path().join("mail");
    let smtp = SmtpServer::start(&mailbox);
    let url = format!("smtp://127.0.0.1:{}", smtp.port);
    // The address is part of every token, so it must outlive the port.
    let settings = [("JANUA_SMTP_URL", url.as_str()), ("JANUA_BASE_URL", "http://localhost:9")];
    let mut server = Server::start(folder.path(), &settings);

    let body = json!({ "email": "ada@example.com", "password": PASSWORD, "name": "Ada" });
    assert_eq!(call(&server, "POST", "/auth/register", "", &body).0, 200);
    let mail = wait("the mail arrives", || mail_with(&mailbox.join("new"), "Confirm your email"));
    assert!(mail.contains("X-RcptTo: ada@example.com"), "{mail}");
    let (status, _) = call(&server, "GET", &format!("/auth/verify?token={}", token_in(&mail)), "", &Value::Null);
    assert_eq!(status, 200);
    let login = json!({ "email": "ada@example.com", "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    let (status, person) = call(&server, "POST", "/auth/login", "", &login);
    assert_eq!(status, 200, "{person}");
    let access = text(&person["accessToken"]);
    assert_eq!(call(&server, "GET", "/auth/me", &access, &Value::Null).0, 200);

    server.signal("KILL");
    server.child.wait().unwrap();
    let server = Server::start(folder.path(), &settings);
    assert_eq!(call(&server, "GET", "/auth/me", &access, &Value::Null).0, 200, "a crash signs nobody out");
    let refresh = json!({ "refreshToken": person["refreshToken"] });
    let (status, turned) = call(&server, "POST", "/auth/refresh", "", &refresh);
    assert_eq!(status, 200, "{turned}");

    let mut rotate = janua(folder.path(), &["keys", "rotate"]);
    rotate.envs(settings);
    let (rotated, said) = run(rotate);
    assert!(rotated, "{said}");
    assert_eq!(
        call(&server, "GET", "/auth/me", &text(&turned["accessToken"]), &Value::Null).0,
        200,
        "beside a server"
    );
    let (status, _) = call(&server, "POST", "/auth/logout", &text(&turned["accessToken"]), &Value::Null);
    assert_eq!(status, 204);
    assert_eq!(call(&server, "GET", "/auth/me", &access, &Value::Null).0, 401);
}

/// Every acknowledged sign-up has its account and mail, whatever moment the server dies at (F01).
#[test]
fn what_was_acknowledged_before_a_kill_is_done_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let outbox = folder.path().join("data/outbox");
    let mut acknowledged = Vec::new();
    for cycle in 0..8_u64 {
        let mut server = Server::start(folder.path(), &[("JANUA_RATE_LIMITS", "off")]);
        let (address, pid) = (server.address, server.child.id());
        // Some time after the first ones were acknowledged, however long that takes: in the midst of another.
        let (acknowledges, told) = mpsc::channel();
        let killer = std::thread::spawn(move || {
            told.iter().take(2).for_each(drop);
            std::thread::sleep(Duration::from_millis(cycle * 97 % 500));
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        });
        for i in 0.. {
            let email = format!("person-{cycle}-{i}@example.com");
            let body = json!({ "email": email, "password": PASSWORD, "name": "P" }).to_string();
            let head =
                "POST /auth/register HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n";
            let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
            let Ok(mut stream) = TcpStream::connect(address) else { break };
            let mut answer = String::new();
            let sent = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
            if sent.is_ok() && answer.starts_with("HTTP/1.1 200") {
                acknowledged.push(email);
                let _ = acknowledges.send(());
            }
        }
        drop(acknowledges);
        killer.join().unwrap();
        server.child.wait().unwrap();
    }
    assert!(acknowledged.len() >= 16, "only {} were acknowledged", acknowledged.len());
    let server = Server::start(folder.path(), &[("JANUA_RATE_LIMITS", "off")]);
    for email in &acknowledged {
        let mail = wait(&format!("the mail to {email}"), || mail_with(&outbox, &format!("To: {email}")));
        let (status, _) = call(&server, "POST", "/auth/verify-email", "", &json!({ "token": token_in(&mail) }));
        assert!(matches!(status, 200 | 410), "{email}: {status}");
    }
}

/// What people and scripts do with a file of the outbox: read it, and cut the link out of it.
#[test]
fn a_mail_in_the_outbox_is_read_by_people_and_by_grep() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let outbox = folder.path().join("data/outbox");
    let email = "ada@example.com";
    let body = json!({ "email": email, "password": PASSWORD, "name": "Zoë" });
    assert_eq!(call(&server, "POST", "/auth/register", "", &body).0, 200);
    let first = wait("the mail", || mail_with(&outbox, "Confirm your email"));
    assert!(!first.contains('\r'), "the lines of a text file");
    let grep = || {
        let mut command = Command::new("sh");
        command.args(["-c", "grep -oh 'http[^ ]*token=[^ ]*' data/outbox/*.eml"]).current_dir(folder.path());
        let found = command.output().unwrap();
        String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let links = grep();
    assert_eq!(links.len(), 1, "one for a mail: {links:?}");
    let path = links[0].strip_prefix(&format!("http://localhost:{}", server.address.port())).unwrap();
    assert!(path.starts_with("/auth/verify?token="), "{path}");
    assert_eq!(server.get(path).0, 200, "a program confirms the email by the link itself");
    // A name that is more than ASCII changes nothing.
    assert_eq!(call(&server, "POST", "/auth/forgot-password", "", &json!({ "email": email })).0, 200);
    let second = wait("the mail", || mail_with(&outbox, "Choose a new password"));
    assert!(second.contains("Hello Zoë,"), "{second}");
    let links = grep();
    let reset = links.iter().find(|link| link.contains("/auth/reset-password?token=")).unwrap();
    let token = reset.split("token=").nth(1).unwrap();
    let body = json!({ "token": token, "password": "staple battery horse correct" });
    let (status, said) = call(&server, "POST", "/auth/reset-password", "", &body);
    assert!(status < 300, "{status} {said}");
}

#[test]
fn a_test_mail_from_the_shell_says_what_the_server_answered() {
    let folder = tempfile::tempdir().unwrap();
    let (went, said) = run(janua(folder.path(), &["mail", "test", "postmaster@example.com"]));
    assert!(went && said.contains("The email was written to the folder") && said.contains("smtp_url"), "{said}");
    let mail = mail_with(&folder.path().join("data/outbox"), "To: postmaster@example.com").unwrap();
    assert!(mail.contains("Subject: Test email from Janua"), "{mail}");
    let (went, said) = run(janua(folder.path(), &["mail", "test", "nobody"]));
    assert!(!went && said.contains("nobody is not an email"), "{said}");

    let mailbox = tempfile::tempdir().unwrap();
    let smtp = SmtpServer::start(&mailbox.path().join("mail"));
    let test = |port: u16| {
        let mut command = janua(folder.path(), &["mail", "test", "postmaster@example.com"]);
        command.env("JANUA_SMTP_URL", format!("smtp://127.0.0.1:{port}"));
        run(command)
    };
    let (went, said) = test(smtp.port);
    assert!(went && said.contains("The email was accepted by"), "{said}");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (went, said) = test(nobody);
    assert!(!went && said.contains("The mail server cannot be used"), "{said}");
}
