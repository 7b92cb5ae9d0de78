//! Mail against a real SMTP server, and into the outbox.
use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use kernel::{
    config::Config,
    ports::{
        SendError,
        mail::{Mail, from_config},
        smtp::{Patience, Smtp},
    },
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

/// A published SMTP server that keeps what it receives in a mail folder. A file says at which step it refuses, and with
/// which words: `rcpt 550 no such user`, `message cut`, `message hang`.
const PROGRAM: &str = "
import asyncio, pathlib, sys
from aiosmtpd.handlers import Mailbox
from aiosmtpd.smtp import SMTP, AuthResult

home = pathlib.Path(sys.argv[1])

def note(word):
    with home.joinpath('log').open('a') as log:
        log.write(word + '\\n')

def words(step):
    file = home.joinpath('mood')
    at, _, said = (file.read_text() if file.exists() else '').partition(' ')
    return said if at == step else None

async def mood(server, step):
    said = words(step)
    if said == 'hang':
        await asyncio.sleep(600)
    if said == 'cut':
        server.transport.abort()
    return said

class Handler(Mailbox):
    async def handle_MAIL(self, server, session, envelope, address, options):
        said = await mood(server, 'mail')
        if said is None:
            envelope.mail_from = address
        return said or '250 OK'
    async def handle_RCPT(self, server, session, envelope, address, options):
        said = await mood(server, 'rcpt')
        if said is None:
            envelope.rcpt_tos.append(address)
        return said or '250 OK'
    async def handle_DATA(self, server, session, envelope):
        return await mood(server, 'message') or await super().handle_DATA(server, session, envelope)
    async def handle_EHLO(self, server, session, envelope, hostname, responses):
        session.host_name = hostname
        said = await mood(server, 'ehlo')
        return [said] if said else responses

class Server(SMTP):
    async def push(self, status):
        text = status if isinstance(status, str) else status.decode()
        if text.startswith('220 '):
            note('connected')
            text = await mood(self, 'greeting') or text
        await super().push(text)

def sign_in(server, session, envelope, mechanism, data):
    note('signed in')
    said = words('auth')
    return AuthResult(success=said is None, handled=False, message=said)

async def serve():
    loop = asyncio.get_running_loop()
    handler = Handler(str(home / 'mail'))
    make = lambda: Server(handler, loop=loop, authenticator=sign_in, auth_require_tls=False)
    server = await loop.create_server(make, '127.0.0.1', int(sys.argv[2]))
    await server.serve_forever()

asyncio.run(serve())
";

struct SmtpServer {
    child: Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl SmtpServer {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = tempfile::tempdir().unwrap();
        let child = Self::spawn(folder.path(), port);
        Self { child, folder, port }
    }

    fn spawn(folder: &Path, port: u16) -> Child {
        let python =
            std::env::var("TEST_PYTHON").expect("TEST_PYTHON: scripts/test sets it, scripts/setup installs it");
        let mut command = Command::new(python);
        command.args(["-W", "ignore", "-c", PROGRAM]).arg(folder).arg(port.to_string()).stderr(Stdio::null());
        let child = command.spawn().expect("the SMTP server starts");
        let listens = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        assert!(listens, "the SMTP server does not listen");
        child
    }

    fn restart(&mut self) {
        self.stop();
        self.child = Self::spawn(self.folder.path(), self.port);
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn mood(&self, mood: &str) {
        fs::write(self.folder.path().join("mood"), mood).unwrap();
    }

    /// How often something was noted.
    fn noted(&self, word: &str) -> usize {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().filter(|line| *line == word).count()
    }

    fn received(&self) -> Vec<String> {
        let files = fs::read_dir(self.folder.path().join("mail/new")).unwrap();
        files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect()
    }

    /// A driver that signs in and has little patience.
    fn driver(&self) -> Smtp {
        let patience = Patience {
            connect: Duration::from_secs(10),
            command: Duration::from_secs(5),
            message: Duration::from_millis(800),
        };
        Smtp::from_url(&format!("smtp://user:password@127.0.0.1:{}", self.port), patience).unwrap()
    }
}

impl Drop for SmtpServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn smtp(port: u16) -> Config {
    Config { smtp_url: Some(format!("smtp://127.0.0.1:{port}").into()), ..Config::for_tests() }
}

#[tokio::test]
async fn a_real_server_receives_the_mail_whole() {
    let server = SmtpServer::start();
    let mail = from_config(&smtp(server.port)).unwrap();
    mail.check().await.unwrap();
    mail.send("id", &message()).await.unwrap();
    let received = server.received();
    assert_eq!(received.len(), 1);
    let text = &received[0];
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
    assert!(matches!(mail.send("id", &message()).await, Err(SendError::Away(_))));
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
    assert!(kept.contains("To: ") && kept.ends_with("starts with a dot\n"), "{kept}");
    assert!(!kept.contains('\r'), "the lines of a text file, for tools such as grep");
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

/// What is to be made of an answer, and the words that are kept of it.
async fn outcome(driver: &Smtp) -> (&'static str, String) {
    match driver.send("id", &message()).await {
        Ok(()) => ("sent", String::new()),
        Err(SendError::Away(words)) => ("away", words),
        Err(SendError::Broken(words)) => ("broken", words),
        Err(SendError::Later(words)) => ("later", words),
        Err(SendError::Never(words)) => ("never", words),
    }
}

#[tokio::test]
async fn a_refusal_is_final_only_when_it_is_about_the_mail() {
    let server = SmtpServer::start();
    for (mood, meant) in [
        ("greeting 554 no service here", "away"),
        ("greeting 421 too many of you", "away"),
        ("greeting cut", "away"),
        ("ehlo 502 not with you", "away"),
        ("auth 535 5.7.8 wrong password", "away"),
        ("auth 454 4.7.0 try later", "away"),
        ("mail 550 5.7.1 not from this sender", "away"),
        ("mail 451 not now", "away"),
        ("rcpt 451 4.7.1 greylisted", "later"),
        ("rcpt 550 5.1.1 no such user", "never"),
        ("rcpt 530 5.7.0 sign in first", "away"),
        ("rcpt cut", "broken"),
        ("message 451 not now", "later"),
        ("message 552 5.3.4 too large", "never"),
        ("message 421 shutting down", "away"),
        ("message cut", "broken"),
        ("message hang", "broken"),
    ] {
        server.mood(mood);
        let (is, words) = outcome(&server.driver()).await;
        assert_eq!(is, meant, "{mood}: {words}");
        let said = mood.split_once(' ').unwrap().1;
        if said.starts_with(char::is_numeric) {
            assert_eq!(words, said, "the server's own words");
        }
    }
    server.mood("");
    assert_eq!(outcome(&server.driver()).await.0, "sent");
    assert_eq!(server.received().len(), 1, "nothing refused arrived");
}

/// The system holds a small piece back until what came before is confirmed, which takes 40 ms: no part of a mail may be one.
#[tokio::test]
async fn a_mail_does_not_wait_for_its_own_end() {
    let server = SmtpServer::start();
    let driver = server.driver();
    let mut least = Duration::MAX;
    for _ in 0..40 {
        let began = tokio::time::Instant::now();
        assert_eq!(outcome(&driver).await.0, "sent");
        least = if server.received().len() > 20 { least.min(began.elapsed()) } else { least };
    }
    assert!(least < Duration::from_millis(35), "{least:?}");
}

#[tokio::test]
async fn many_mails_need_one_connection_and_one_sign_in() {
    let mut server = SmtpServer::start();
    let driver = server.driver();
    assert_eq!(outcome(&driver).await.0, "sent");
    let connected = server.noted("connected");
    for _ in 1..20 {
        assert_eq!(outcome(&driver).await.0, "sent");
    }
    assert_eq!((server.noted("connected"), server.noted("signed in")), (connected, 1));
    // What the server closed meanwhile costs nothing: the next mail goes over a new connection.
    server.restart();
    assert_eq!(outcome(&driver).await, ("sent", String::new()));
    assert_eq!(server.noted("signed in"), 2);
    // A connection that says no to the next sender may have served long enough.
    server.mood("mail 451 too many mails on one connection");
    assert_eq!(outcome(&driver).await.0, "away", "a new one says so too");
    assert_eq!(server.noted("signed in"), 3);
    server.mood("rcpt 550 no such user");
    assert_eq!(outcome(&driver).await.0, "never");
    server.mood("");
    assert_eq!(outcome(&driver).await.0, "sent", "a refusal does not spoil what comes after it");
    assert_eq!(server.received().len(), 22);
}

#[tokio::test]
async fn a_server_that_hangs_is_left_in_time() {
    let server = SmtpServer::start();
    let driver = server.driver();
    assert_eq!(outcome(&driver).await.0, "sent");
    server.mood("message hang");
    let began = tokio::time::Instant::now();
    assert_eq!(outcome(&driver).await, ("broken", "the server did not answer in time".into()));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    server.mood("");
    assert_eq!(outcome(&driver).await.0, "sent", "the connection that hangs is not used again");
}
