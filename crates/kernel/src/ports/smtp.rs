//! The SMTP driver: one conversation for each mail, on connections that stay open for the next one.
//!
//! It speaks command by command, because what a refusal means depends on where it comes. A server that does not greet,
//! does not know our password or does not take our sender says nothing about the mail, which waits until that is mended.
//! Only an answer to the recipient or to the message is about the mail itself.
use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lettre::{
    address::Envelope,
    transport::smtp::{
        Error, SMTP_PORT, SUBMISSION_PORT, SUBMISSIONS_PORT,
        authentication::{Credentials, DEFAULT_MECHANISMS},
        client::{AsyncSmtpConnection, Certificate, Tls, TlsParameters},
        commands::{Data, Mail as MailFrom, Rcpt},
        extension::{ClientId, Extension, MailBodyParameter, MailParameter},
    },
};
use percent_encoding::percent_decode_str;
use tokio::time::{self, Instant, timeout};
use url::Url;

use super::{Delivering, SendError, Sending, mail::Mail};

/// How long each part of a conversation may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Connecting, greeting, encrypting and signing in, all together.
    pub connect: Duration,
    pub command: Duration,
    /// For the message and the answer to it, beside the time that its bytes take: servers look at what is in it first.
    pub message: Duration,
}

/// A slow connection: giving up in the middle means sending everything again.
const BYTES_A_SECOND: usize = 16 * 1024;

impl Patience {
    pub const DEFAULT: Self =
        Self { connect: Duration::from_secs(15), command: Duration::from_secs(15), message: Duration::from_secs(30) };

    fn of_message(self, bytes: usize) -> Duration {
        self.message + Duration::from_secs((bytes / BYTES_A_SECOND) as u64)
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Well below the five minutes for which servers must wait for a command (RFC 5321, 4.5.3.2.7).
const IDLE: Duration = Duration::from_secs(30);
const MOST_IDLE: usize = 4;
/// Servers that distribute connections over several machines get the chance to.
const MOST_MAILS: u32 = 100;
/// How much of a server's answer is kept.
const MOST_WORDS: usize = 300;

pub struct Smtp {
    host: String,
    port: u16,
    tls: Tls,
    /// Whether a mail goes in the clear where encrypting fails.
    falls_back: bool,
    hello: ClientId,
    credentials: Option<Credentials>,
    patience: Patience,
    idle: Arc<Idle>,
}

impl Smtp {
    /// `smtp://user:password@host:port/hello-name?tls=required`; the error says what is wrong with it.
    pub fn from_url(address: &str, patience: Patience) -> Result<Self, String> {
        let url = Url::parse(address).map_err(|e| e.to_string())?;
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or("there is no host in it")?.to_owned();
        let mode = url.query_pairs().find(|(name, _)| name == "tls").map(|(_, mode)| mode.into_owned());
        let parameters = || TlsParameters::new(host.clone()).map_err(|e| e.to_string());
        let (tls, port) = match (url.scheme(), mode.as_deref()) {
            ("smtp", None) => (Tls::None, SMTP_PORT),
            ("smtp", Some("required")) => (Tls::Required(parameters()?), SUBMISSION_PORT),
            ("smtp", Some("opportunistic")) => (Tls::Opportunistic(parameters()?), SUBMISSION_PORT),
            ("smtps", _) => (Tls::Wrapper(parameters()?), SUBMISSIONS_PORT),
            ("smtp", Some(_)) => return Err("tls must be required or opportunistic".into()),
            (scheme, _) => return Err(format!("must start with smtp:// or smtps://, not {scheme}:")),
        };
        let decode = |text: &str| {
            percent_decode_str(text).decode_utf8().map(std::borrow::Cow::into_owned).map_err(|e| e.to_string())
        };
        let credentials = match url.password() {
            Some(password) => Some(Credentials::new(decode(url.username())?, decode(password)?)),
            None => None,
        };
        let hello = match url.path().trim_matches('/') {
            "" => ClientId::default(),
            name => ClientId::Domain(name.to_owned()),
        };
        let port = url.port().unwrap_or(port);
        Ok(Self { host, port, tls, falls_back: false, hello, credentials, patience, idle: Arc::default() })
    }

    /// The server of a recipient, at an IP address that was looked up and checked before.
    pub fn to_exchange(at: SocketAddr, hello: &str, security: &Security, patience: Patience) -> Result<Self, String> {
        let wrong = |error: Error| error.to_string();
        let tls = match security {
            Security::IfOffered => {
                // Anybody between could leave the offer out, so who holds the key is not asked for either: RFC 7435.
                let any = TlsParameters::builder(at.ip().to_string());
                let any = any.dangerous_accept_invalid_certs(true).dangerous_accept_invalid_hostnames(true);
                Tls::Opportunistic(any.build().map_err(wrong)?)
            }
            Security::Verified { name, authorities } => {
                let mut parameters = TlsParameters::builder(name.clone());
                for authority in authorities {
                    parameters =
                        parameters.add_root_certificate(Certificate::from_der(authority.clone()).map_err(wrong)?);
                }
                Tls::Required(parameters.build().map_err(wrong)?)
            }
        };
        Ok(Self {
            host: at.ip().to_string(),
            port: at.port(),
            tls,
            falls_back: *security == Security::IfOffered,
            hello: ClientId::Domain(hello.to_owned()),
            credentials: None,
            patience,
            idle: Arc::default(),
        })
    }

    async fn hand_over(&self, envelope: &Envelope, bytes: &[u8]) -> Result<String, Failure> {
        if let Some(mut line) = self.idle.take() {
            match line.deliver(envelope, bytes, self.patience).await {
                Ok(answer) => {
                    self.idle.keep(line);
                    return Ok(answer);
                }
                // The connection was closed meanwhile, or has served long enough. Nothing was given over it.
                Err(Failure { step: Step::Sender, .. }) => {}
                Err(failure) => return Err(failure),
            }
        }
        let mut line = Line { connection: self.connect().await?, mails: 0 };
        match line.deliver(envelope, bytes, self.patience).await {
            Ok(answer) => {
                self.idle.keep(line);
                Ok(answer)
            }
            Err(failure) => Err(failure),
        }
    }

    /// A connection that takes mails.
    async fn connect(&self) -> Result<AsyncSmtpConnection, Failure> {
        let opened = timeout(self.patience.connect, self.open()).await;
        opened.map_or(Err(Failure::silent(Step::Connection)), |opened| {
            opened.map_err(|error| Failure::new(Step::Connection, &error))
        })
    }

    async fn open(&self) -> Result<AsyncSmtpConnection, Error> {
        let wrapper = match &self.tls {
            Tls::Wrapper(parameters) => Some(parameters.clone()),
            _ => None,
        };
        let server = (self.host.trim_matches(['[', ']']), self.port);
        let mut connection =
            AsyncSmtpConnection::connect_tokio1(server, Some(self.patience.connect), &self.hello, wrapper, None)
                .await?;
        match &self.tls {
            Tls::Opportunistic(parameters) if self.falls_back && connection.can_starttls() => {
                if let Err(error) = connection.starttls(parameters.clone(), &self.hello).await {
                    tracing::debug!(%error, host = self.host, "a mail server offers encryption that fails");
                    connection = AsyncSmtpConnection::connect_tokio1(
                        server,
                        Some(self.patience.connect),
                        &self.hello,
                        None,
                        None,
                    )
                    .await?;
                }
            }
            Tls::Required(parameters) => connection.starttls(parameters.clone(), &self.hello).await?,
            Tls::Opportunistic(parameters) if connection.can_starttls() => {
                connection.starttls(parameters.clone(), &self.hello).await?;
            }
            _ => {}
        }
        if let Some(credentials) = &self.credentials {
            connection.auth(DEFAULT_MECHANISMS, credentials).await?;
        }
        Ok(connection)
    }
}

/// How a recipient's server is talked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Security {
    /// Encrypted if the server offers that, with any certificate; otherwise in the clear.
    IfOffered,
    /// Encrypted, with a certificate for this name. `authorities` are trusted beside the system's, in DER.
    Verified { name: String, authorities: Vec<Vec<u8>> },
}

impl Mail for Smtp {
    fn deliver<'a>(&'a self, _id: &'a str, envelope: &'a Envelope, bytes: &'a [u8]) -> Delivering<'a> {
        Box::pin(async move { self.hand_over(envelope, bytes).await.map_err(Failure::meaning) })
    }

    fn check(&self) -> Sending<'_> {
        Box::pin(async move {
            let connection = self.connect().await.map_err(Failure::meaning)?;
            Line { connection, mails: 0 }.leave();
            Ok(())
        })
    }

    fn describe(&self) -> String {
        format!("the SMTP server {}", self.host)
    }
}

/// An open connection that is used by one sender alone.
struct Line {
    connection: AsyncSmtpConnection,
    mails: u32,
}

impl Line {
    async fn deliver(&mut self, envelope: &Envelope, bytes: &[u8], patience: Patience) -> Result<String, Failure> {
        let mut parameters = vec![];
        let is_foreign = envelope.from().into_iter().chain(envelope.to()).any(|email| !email.to_string().is_ascii());
        for (is_needed, extension, parameter) in [
            (is_foreign, Extension::SmtpUtfEight, MailParameter::SmtpUtfEight),
            (!bytes.is_ascii(), Extension::EightBitMime, MailParameter::Body(MailBodyParameter::EightBitMime)),
        ] {
            if is_needed && !self.connection.server_info().supports_feature(extension) {
                let words = format!("the server does not offer {extension}, which this mail needs");
                return Err(Failure { step: Step::Recipient, code: None, words, is_unsupported: true });
            }
            if is_needed {
                parameters.push(parameter);
            }
        }
        let sender = MailFrom::new(envelope.from().cloned(), parameters);
        self.step(Step::Sender, patience.command, async |line| line.command(sender).await).await?;
        for recipient in envelope.to() {
            let recipient = Rcpt::new(recipient.clone(), vec![]);
            self.step(Step::Recipient, patience.command, async |line| line.command(recipient).await).await?;
        }
        self.step(Step::Message, patience.command, async |line| line.command(Data).await).await?;
        let send = async |line: &mut AsyncSmtpConnection| match str::from_utf8(bytes) {
            Ok(text) => line.command(WholeMail(text)).await,
            Err(_) => line.message(bytes).await,
        };
        let said = self.step(Step::Message, patience.of_message(bytes.len()), send).await?;
        self.mails += 1;
        Ok(one_line(&format!("{} {}", said.code(), said.message().collect::<Vec<_>>().join(" "))))
    }

    async fn step<T>(
        &mut self,
        step: Step,
        patience: Duration,
        work: impl AsyncFnOnce(&mut AsyncSmtpConnection) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        match timeout(patience, work(&mut self.connection)).await {
            Ok(answer) => answer.map_err(|error| Failure::new(step, &error)),
            Err(_) => Err(Failure::silent(step)),
        }
    }

    /// Closes it as the server would like it, and waits for nothing.
    fn leave(mut self) {
        tokio::spawn(async move {
            let _ = timeout(Duration::from_secs(5), self.connection.quit()).await;
        });
    }
}

/// A mail with the mark of its end, as one piece. The library writes the mark by itself, and the system holds that small piece
/// back until the server has confirmed the rest, for which most servers take 40 ms.
struct WholeMail<'a>(&'a str);

impl fmt::Display for WholeMail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A line that begins with a dot has one more on its way (RFC 5321, 4.5.2).
        let start = if self.0.starts_with('.') { "." } else { "" };
        write!(f, "{start}{}\r\n.\r\n", self.0.replace("\r\n.", "\r\n.."))
    }
}

/// How far a conversation had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Connecting, the greeting, EHLO, STARTTLS, AUTH.
    Connection,
    Sender,
    Recipient,
    /// DATA, and what is said at the end of the message.
    Message,
}

struct Failure {
    step: Step,
    /// What the server answered; none when it did not, or nothing that could be read.
    code: Option<u16>,
    /// The server's own, or what happened instead.
    words: String,
    is_unsupported: bool,
}

impl Failure {
    fn new(step: Step, error: &Error) -> Self {
        let code = error.status().map(u16::from);
        let said = std::error::Error::source(error).map(ToString::to_string);
        let words = match (code, said) {
            (Some(code), Some(said)) => format!("{code} {said}"),
            _ => error.to_string(),
        };
        Self { step, code, words: one_line(&words), is_unsupported: false }
    }

    fn silent(step: Step) -> Self {
        Self { step, code: None, words: "the server did not answer in time".into(), is_unsupported: false }
    }

    /// What it means for the mail.
    fn meaning(self) -> SendError {
        let Self { step, code, words, is_unsupported } = self;
        let about_mail = matches!(step, Step::Recipient | Step::Message);
        match code {
            // The server goes away (421), has lost the thread (503) or wants us to sign in (530, 535, 538).
            Some(421 | 503 | 530 | 535 | 538) => SendError::Away(words),
            Some(code) if about_mail && code >= 500 => SendError::Never(words),
            Some(_) if about_mail => SendError::Later(words),
            None if is_unsupported => SendError::Later(words),
            None if about_mail => SendError::Broken(words),
            _ => SendError::Away(words),
        }
    }
}

/// Any text of the server, fit for a log and a table.
fn one_line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(MOST_WORDS).collect()
}

/// Connections that wait for the next mail, the one used last at the end.
#[derive(Default)]
struct Idle(Mutex<Lines>);

#[derive(Default)]
struct Lines {
    lines: Vec<(Instant, Line)>,
    /// Whether a task closes what was kept long enough.
    is_swept: bool,
}

impl Idle {
    /// The server may have closed it in this moment.
    fn take(&self) -> Option<Line> {
        let (since, line) = self.lock().lines.pop()?;
        if since.elapsed() < IDLE {
            return Some(line);
        }
        line.leave();
        None
    }

    fn keep(self: &Arc<Self>, line: Line) {
        let mut kept = self.lock();
        if kept.lines.len() >= MOST_IDLE || line.mails >= MOST_MAILS {
            return line.leave();
        }
        kept.lines.push((Instant::now(), line));
        if !kept.is_swept {
            kept.is_swept = true;
            tokio::spawn(self.clone().sweep());
        }
    }

    /// Goes on for as long as there are any.
    async fn sweep(self: Arc<Self>) {
        loop {
            time::sleep(IDLE).await;
            let mut kept = self.lock();
            let old = kept.lines.iter().take_while(|(since, _)| since.elapsed() >= IDLE).count();
            for (_, line) in kept.lines.drain(..old) {
                line.leave();
            }
            kept.is_swept = !kept.lines.is_empty();
            if !kept.is_swept {
                return;
            }
        }
    }

    /// Nothing can fail while it is held.
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(step: Step, code: Option<u16>) -> &'static str {
        match (Failure { step, code, words: String::new(), is_unsupported: false }).meaning() {
            SendError::Away(_) => "away",
            SendError::Broken(_) => "broken",
            SendError::Later(_) => "later",
            SendError::Never(_) => "never",
        }
    }

    #[test]
    fn a_large_message_has_the_time_that_a_slow_line_takes() {
        let patience = Patience::default();
        assert_eq!(patience.of_message(10_000), Duration::from_secs(30));
        assert_eq!(patience.of_message(14 << 20), Duration::from_secs(30 + 896));
    }

    #[test]
    fn lines_that_begin_with_a_dot_arrive_with_it() {
        for (mail, sent) in [
            ("a: b\r\n\r\nc", "a: b\r\n\r\nc\r\n.\r\n"),
            (".\r\n.\r\n..\r\na.\r\n", "..\r\n..\r\n...\r\na.\r\n\r\n.\r\n"),
        ] {
            assert_eq!(WholeMail(mail).to_string(), sent);
        }
    }

    #[test]
    fn only_an_answer_about_the_mail_is_final() {
        for code in [None, Some(421), Some(451), Some(530), Some(535), Some(550), Some(554)] {
            for step in [Step::Connection, Step::Sender] {
                assert_eq!(meaning(step, code), "away", "{step:?} {code:?}");
            }
        }
        for step in [Step::Recipient, Step::Message] {
            for (code, means) in [
                (None, "broken"),
                (Some(421), "away"),
                (Some(450), "later"),
                (Some(452), "later"),
                (Some(503), "away"),
                (Some(530), "away"),
                (Some(550), "never"),
                (Some(554), "never"),
            ] {
                assert_eq!(meaning(step, code), means, "{step:?} {code:?}");
            }
        }
    }

    #[test]
    fn what_a_server_says_is_kept_on_one_short_line() {
        assert_eq!(one_line("550 no\r\n  such \u{1b}[31muser"), "550 no such [31muser");
        assert_eq!(one_line(&"x".repeat(5000)).len(), MOST_WORDS);
    }

    #[test]
    fn an_address_says_how_to_talk() {
        let smtp = |url: &str| Smtp::from_url(url, Patience::default());
        let plain = smtp("smtp://user%40x:p%3Aw@127.0.0.1/mx.example.com").unwrap();
        assert_eq!((plain.host.as_str(), plain.port), ("127.0.0.1", 25));
        assert_eq!(plain.credentials, Some(Credentials::new("user@x".into(), "p:w".into())));
        assert_eq!(plain.hello, ClientId::Domain("mx.example.com".into()));
        assert_eq!(smtp("smtp://mail.example?tls=required").unwrap().port, 587);
        assert_eq!(smtp("smtps://mail.example").unwrap().port, 465);
        for wrong in ["gopher://x", "smtp://mail.example?tls=maybe", "smtp:", "mail.example"] {
            assert!(smtp(wrong).is_err(), "{wrong}");
        }
    }
}
