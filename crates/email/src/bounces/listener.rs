//! A small SMTP server that takes bounces and nothing else: only mail to a return path that this installation made, of
//! limited size, from a limited number of connections. It relays nothing.
use std::{sync::Arc, time::Duration};

use kernel::{Janua, fault::Result, transact};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

use super::{dsn, recipient_of};
use crate::{
    Settings,
    queue::report,
    sending::{Recipient, RecipientId, content::own_host},
};

const MOST_CONNECTIONS: usize = 20;
const LARGEST: usize = 256 * 1024;
const LONGEST_LINE: u64 = 2048;
/// How long a client may be silent, and how long a conversation may take.
const SILENCE: Duration = Duration::from_mins(1);
const CONVERSATION: Duration = Duration::from_mins(5);
const MOST_COMMANDS: usize = 100;

/// Listens for as long as the node runs, if the settings say so.
pub async fn run(janua: Janua) {
    let Some(place) = janua.config.of::<Settings>().bounce_listen else { return };
    let listener = match TcpListener::bind(place).await {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, %place, "cannot listen for bounces (setting bounce_listen)"),
    };
    tracing::info!(%place, "listening for bounces");
    serve(janua, listener).await;
}

pub async fn serve(janua: Janua, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let janua = janua.clone();
                tokio::spawn(async move {
                    let _ = timeout(CONVERSATION, talk(&janua, stream)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection for bounces");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

struct Conversation {
    stream: BufReader<TcpStream>,
}

impl Conversation {
    async fn say(&mut self, words: &str) -> std::io::Result<()> {
        self.stream.get_mut().write_all(format!("{words}\r\n").as_bytes()).await
    }

    /// One line with its end; nothing when the client left, was silent or does not stop.
    async fn line(&mut self) -> Option<Vec<u8>> {
        let mut line = vec![];
        let mut limited = (&mut self.stream).take(LONGEST_LINE);
        let read = timeout(SILENCE, limited.read_until(b'\n', &mut line)).await.ok()?.ok()?;
        (read > 0 && line.ends_with(b"\n")).then_some(line)
    }
}

async fn talk(janua: &Janua, stream: TcpStream) -> std::io::Result<()> {
    let mut client = Conversation { stream: BufReader::new(stream) };
    let host = own_host(janua);
    client.say(&format!("220 {host} ESMTP bounces only")).await?;
    let (mut has_sender, mut recipient) = (false, None);
    for _ in 0..MOST_COMMANDS {
        let Some(line) = client.line().await else { return Ok(()) };
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        let verb = line.split_whitespace().next().unwrap_or_default().to_ascii_uppercase();
        match verb.as_str() {
            "EHLO" => client.say(&format!("250-{host}\r\n250-SIZE {LARGEST}\r\n250 8BITMIME")).await?,
            "HELO" => client.say(&format!("250 {host}")).await?,
            "MAIL" => {
                (has_sender, recipient) = (true, None);
                client.say("250 2.1.0 OK").await?;
            }
            "RCPT" if !has_sender => client.say("503 5.5.1 MAIL first").await?,
            "RCPT" if recipient.is_some() => client.say("452 4.5.3 one recipient at a time").await?,
            "RCPT" => match path_of(&line).and_then(|email| recipient_of(janua, email)) {
                Some(id) => {
                    recipient = Some(id);
                    client.say("250 2.1.5 OK").await?;
                }
                None => client.say("550 5.1.1 no such recipient here").await?,
            },
            "DATA" => match recipient.take() {
                None => client.say("503 5.5.1 RCPT first").await?,
                Some(id) => {
                    client.say("354 end with <CRLF>.<CRLF>").await?;
                    has_sender = false;
                    match data(&mut client).await {
                        Read::Mail(raw) => {
                            let said = match note(janua, id, &raw).await {
                                Ok(()) => "250 2.0.0 OK",
                                Err(_) => "451 4.3.0 try again later",
                            };
                            client.say(said).await?;
                        }
                        Read::TooLarge => client.say("552 5.3.4 too large").await?,
                        Read::Over => return Ok(()),
                    }
                }
            },
            "RSET" => {
                (has_sender, recipient) = (false, None);
                client.say("250 2.0.0 OK").await?;
            }
            "NOOP" => client.say("250 2.0.0 OK").await?,
            "QUIT" => return client.say("221 2.0.0 bye").await,
            _ => client.say("502 5.5.2 not implemented").await?,
        }
    }
    client.say("421 4.7.0 too many commands").await
}

/// The email in `RCPT TO:<…>`.
fn path_of(line: &str) -> Option<&str> {
    let start = line.find('<')? + 1;
    let end = start + line[start..].find('>')?;
    Some(&line[start..end])
}

enum Read {
    Mail(Vec<u8>),
    TooLarge,
    Over,
}

/// Everything up to the line with a dot alone, and nothing that only looks like it.
async fn data(client: &mut Conversation) -> Read {
    let (mut raw, mut is_too_large, mut is_after_end) = (vec![], false, true);
    loop {
        let Some(line) = client.line().await else { return Read::Over };
        if is_after_end && line == b".\r\n" {
            return if is_too_large { Read::TooLarge } else { Read::Mail(raw) };
        }
        is_after_end = line.ends_with(b"\r\n");
        let line = line.strip_prefix(b".").unwrap_or(&line);
        if raw.len() + line.len() > LARGEST {
            is_too_large = true;
            raw.clear();
        }
        if !is_too_large {
            raw.extend_from_slice(line);
        }
    }
}

async fn note(janua: &Janua, id: RecipientId, raw: &[u8]) -> Result<()> {
    let Some(said) = dsn::read(raw) else { return Ok(()) };
    let Some(mail) = Recipient::find(&janua.db, id).await? else { return Ok(()) };
    transact!(janua, async |tx| report(tx, janua, &mail, &said).await)
}
