//! Mail of apps: signed, durable and in the log, against a bare loop that signs the same and keeps its connections; and how soon
//! the platform's own mail goes out while very much of the apps' waits.
use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use aws_lc_rs::{
    encoding::{AsDer as _, Pkcs8V1Der},
    rsa::{KeyPair, KeySize},
};
use lettre::{
    address::Envelope,
    transport::smtp::{client::AsyncSmtpConnection, extension::ClientId},
};
use mail_auth::{
    common::{
        crypto::{RsaKey, Sha256},
        headers::HeaderWriter as _,
    },
    dkim::{Canonicalization, DkimSigner, Done},
};
use rusqlite::Connection;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::{runtime, task::JoinSet};

use crate::{
    client::{Who, ask},
    figure::{Figure, Goal, Unit},
    ground::{Ground, database},
    process::{self, Core},
    rounds::{self, Rounds, SHORT_ROUNDS, Side, Sides, Tally},
    servers::JanuaBinary,
};

const SERVER: Core = Core::Only(0);
const GENERATOR: Core = Core::Only(1);
/// As many as the server opens for the mail of apps.
const CONNECTIONS: usize = 4;
const BATCH: u64 = 100;
/// A build that is not optimised is here to be tried, not measured.
const WAITING: u64 = if cfg!(debug_assertions) { 300 } else { 100_000 };
const TIMED: usize = if cfg!(debug_assertions) { 3 } else { 10 };
const HOST: &str = "mail.bench.test";
const PATIENCE: Duration = Duration::from_mins(5);

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let mut figures = vec![rate(rounds, janua)?];
    figures.push(latency(rounds, janua)?);
    Ok(figures)
}

/// A server whose app may send from a domain, and the mail server behind it.
struct Post {
    ground: Ground,
    sink: Sink,
}

impl Post {
    fn open(rounds: &Rounds, janua: &JanuaBinary, delay: Duration) -> Result<Self> {
        let folder = rounds.folder()?;
        let off = [("JANUA_RATE_LIMITS", "off"), ("JANUA_EMAIL_PER_SECOND", "1000000")];
        let ground = Ground::lay(janua, &folder, SERVER, &off)?;
        let path = format!("/apps/{}/email/domains", ground.app);
        ground.asks("POST", &path, &json!({ "hostname": HOST }))?;
        // Nobody serves the records of a domain of a bench.
        let connection = Connection::open(database(&folder))?;
        connection.busy_timeout(PATIENCE)?;
        connection.execute("UPDATE email_key SET is_seen = 1", [])?;
        connection.execute("UPDATE email_domain SET status = 'verified', next_check_at = NULL", [])?;
        let (app, secret) = (ground.app.clone(), ground.secret.clone());
        let (token, org, in_app) = (ground.token.clone(), ground.org.clone(), ground.in_app.clone());
        drop(ground);
        let sink = Sink::start(delay)?;
        let url = format!("smtp://{}", sink.address);
        let server = janua.serve_with(&folder, SERVER, &[off[0], off[1], ("JANUA_SMTP_URL", &url)])?;
        Ok(Self { ground: Ground { server, token, org, app, secret, in_app }, sink })
    }

    /// Hands in a hundred mails of four kilobytes.
    fn hand_in(&self, number: u64) -> Result<()> {
        let mails: Vec<_> = (0..BATCH)
            .map(|n| json!({ "to": format!("r{number}x{n}@d{}.test", n % 8), "subject": "Receipt", "text": "x".repeat(4096) }))
            .collect();
        let path = format!("/apps/{}/email/batch", self.ground.app);
        let who = Who::through(&self.ground.secret);
        ask(self.ground.address(), "POST", &path, &who, &json!({ "messages": mails })).map(drop)
    }
}

fn rate(rounds: &Rounds, janua: &JanuaBinary) -> Result<Figure> {
    let post = Post::open(rounds, janua, Duration::ZERO)?;
    let bare_sink = Sink::start(Duration::ZERO)?;
    let mut number = 0;
    let ours = || -> Result<Side<'_>> {
        let post = &post;
        number += 1_000_000;
        let mut next = number;
        Ok(Box::new(move |slice| {
            let (before, began) = (post.sink.of_apps.load(Relaxed), Instant::now());
            let mut handed = 0;
            while began.elapsed() < slice {
                next += 1;
                post.hand_in(next)?;
                handed += BATCH;
            }
            Sink::until(&post.sink.of_apps, before + handed)?;
            Ok(Tally::done(handed, began.elapsed()))
        }))
    };
    let limit = || -> Result<Side<'_>> {
        let address = bare_sink.address;
        Ok(Box::new(move |slice| {
            let began = Instant::now();
            let sent = process::on(SERVER, || bare(address, slice))?;
            Ok(Tally::done(sent, began.elapsed()))
        }))
    };
    let sides = rounds::interleave("mail", rounds.turn, limit, ours)?;
    let what = "mails of 4 KiB handed in, signed, sent and in the log; a bare loop that signs and sends the same";
    let samples = sides.only(|rate| rate.per_second);
    Ok(Figure { scenario: "mail", what, unit: Unit::PerSecond, samples, goal: Some(Goal::Ratio(0.6)) })
}

/// Signs with RSA 2048 and sends, over connections that stay open.
fn bare(address: SocketAddr, slice: Duration) -> Result<u64> {
    let pair = KeyPair::generate(KeySize::Rsa2048)?;
    let private: Pkcs8V1Der<'_> = pair.as_der()?;
    let signer = Arc::new(signer(private.as_ref())?);
    let mail = format!(
        "From: no-reply@{HOST}\r\nTo: r@d.test\r\nSubject: Receipt\r\nMessage-ID: <1@{HOST}>\r\n\
         Date: Wed, 18 Nov 2026 05:00:00 +0000\r\nMIME-Version: 1.0\r\n\r\n{}\r\n",
        "x".repeat(4096)
            .as_bytes()
            .chunks(70)
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect::<Vec<_>>()
            .join("\r\n")
    );
    let envelope = Envelope::new(Some(format!("no-reply@{HOST}").parse()?), vec!["r@d.test".parse()?])?;
    runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let until = Instant::now() + slice;
        let mut tasks = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let (signer, mail, envelope) = (signer.clone(), mail.clone(), envelope.clone());
            tasks.spawn(async move {
                let hello = ClientId::default();
                let mut line =
                    AsyncSmtpConnection::connect_tokio1(address, Some(PATIENCE), &hello, None, None).await?;
                let mut sent = 0_u64;
                while Instant::now() < until {
                    let mut signed = vec![];
                    let signature = signer.sign(mail.as_bytes()).map_err(|error| anyhow::anyhow!("{error}"))?;
                    signature.write_header(&mut signed);
                    signed.extend(mail.as_bytes());
                    line.send(&envelope, &signed).await?;
                    sent += 1;
                }
                anyhow::Ok(sent)
            });
        }
        let mut sent = 0;
        while let Some(task) = tasks.join_next().await {
            sent += task??;
        }
        Ok(sent)
    })
}

fn signer(private: &[u8]) -> Result<DkimSigner<RsaKey<Sha256>, Done>> {
    let der = PrivateKeyDer::Pkcs8(private.to_vec().into());
    let key = RsaKey::<Sha256>::from_key_der(der).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(DkimSigner::from_key(key)
        .domain(HOST)
        .selector("a")
        .headers(["From", "To", "Subject", "Date", "Message-ID"])
        .header_canonicalization(Canonicalization::Relaxed)
        .body_canonicalization(Canonicalization::Relaxed))
}

/// From signing up to the arrival of the mail about it: with very many mails of an app that wait, and with none. The mail server
/// takes its time over those of apps, so that they go on waiting.
fn latency(rounds: &Rounds, janua: &JanuaBinary) -> Result<Figure> {
    let empty = Post::open(rounds, janua, Duration::ZERO)?;
    let full = Post::open(rounds, janua, Duration::from_millis(200))?;
    for number in 0..WAITING / BATCH {
        full.hand_in(number)?;
    }
    let mut samples = Sides { limit: vec![], ours: vec![] };
    for round in 0..SHORT_ROUNDS {
        samples.limit.push(wait_for_mail(&empty, round)?);
        samples.ours.push(wait_for_mail(&full, round)?);
    }
    let what = "a sign-up's mail, p50, with 100,000 mails of apps waiting; with none";
    Ok(Figure { scenario: "mail", what, unit: Unit::Milliseconds, samples, goal: Some(Goal::RatioAtMost(2.0)) })
}

fn wait_for_mail(post: &Post, round: usize) -> Result<f64> {
    let mut waits = vec![];
    for turn in 0..TIMED {
        let before = post.sink.own.load(Relaxed);
        let body = json!({ "email": format!("u{round}x{turn}@bench.test"), "password": "correct horse battery staple", "name": "Bench" });
        let began = Instant::now();
        ask(post.ground.address(), "POST", "/auth/register", &Who::default(), &body)?;
        Sink::until(&post.sink.own, before + 1)?;
        waits.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    waits.sort_by(f64::total_cmp);
    Ok(waits[waits.len() / 2])
}

/// Takes every mail and counts it: those of apps, and the platform's own.
struct Sink {
    address: SocketAddr,
    of_apps: Arc<AtomicU64>,
    own: Arc<AtomicU64>,
}

impl Sink {
    fn start(delay: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (of_apps, own) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let sink = Self { address: listener.local_addr()?, of_apps: of_apps.clone(), own: own.clone() };
        thread::spawn(move || {
            process::stay_on(GENERATOR)?;
            for stream in listener.incoming().flatten() {
                let (of_apps, own) = (of_apps.clone(), own.clone());
                thread::spawn(move || talk(stream, &of_apps, &own, delay));
            }
            anyhow::Ok(())
        });
        Ok(sink)
    }

    fn until(count: &AtomicU64, wanted: u64) -> Result<()> {
        let began = Instant::now();
        while count.load(Relaxed) < wanted {
            ensure!(began.elapsed() < PATIENCE, "mails do not come: {} of {wanted}", count.load(Relaxed));
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}

fn talk(stream: TcpStream, of_apps: &AtomicU64, own: &AtomicU64, delay: Duration) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let say = |reader: &mut BufReader<TcpStream>, words: &str| {
        reader.get_mut().write_all(format!("{words}\r\n").as_bytes())
    };
    say(&mut reader, "220 sink")?;
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        match line.get(..4).map(str::to_ascii_uppercase).as_deref() {
            Some("EHLO") => say(&mut reader, "250-sink\r\n250-8BITMIME\r\n250 SMTPUTF8")?,
            Some("QUIT") => {
                say(&mut reader, "221 bye")?;
                return Ok(());
            }
            Some("DATA") => {
                say(&mut reader, "354 go on")?;
                let mut is_of_app = false;
                loop {
                    line.clear();
                    reader.read_line(&mut line)?;
                    is_of_app |= line.starts_with("X-Janua-Ref:") || line.starts_with("DKIM-Signature:");
                    if line == ".\r\n" {
                        break;
                    }
                }
                if is_of_app {
                    thread::sleep(delay);
                }
                say(&mut reader, "250 2.0.0 Ok: queued as 4F2A1B3C9D")?;
                if is_of_app { of_apps } else { own }.fetch_add(1, Relaxed);
            }
            _ => say(&mut reader, "250 ok")?,
        }
    }
}
