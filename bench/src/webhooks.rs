//! Webhooks: events accepted and delivered against a bare client that posts the same bodies; what one delivery costs,
//! and how soon it begins, with one webhook and with thousands; and what receivers that hang do to a healthy one.
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{
    figure::{Figure, Goal, Unit},
    identity::{login, register},
    load::{self, Ask},
    poster,
    process::{self, Core, Server, cpu_time},
    rounds::{self, Rounds, SHORT_ROUNDS, Side, Sides, Tally},
    servers::JanuaBinary,
};

const SERVER: Core = Core::Only(0);
const GENERATOR: Core = Core::Only(1);
const SETTINGS: [(&str, &str); 4] = [
    ("JANUA_RATE_LIMITS", "off"),
    ("JANUA_WEBHOOK_ALLOW_NETS", "127.0.0.0/8"),
    ("WEBHOOK_ALLOW_HTTP", "1"),
    ("JANUA_WEBHOOKS_PER_HOST", "10000"),
];
/// How many webhooks are many: with the one that is timed beside them ten thousand, which is the most an app may have. A
/// build that is not optimised is here to be tried, not measured.
const MANY: usize = if cfg!(debug_assertions) { 300 } else { 9_999 };
const HANGING: usize = 60;
/// As many as the server has under way to one webhook.
const AT_ONCE: usize = 16;
/// How many single deliveries are timed in a round.
const TIMED: usize = 100;
const PATIENCE: Duration = Duration::from_mins(5);

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let one = Place::heard(rounds, janua)?;
    let mut figures = rate(rounds, &one)?;
    let many = Place::settle(rounds, janua)?;
    for _ in 0..MANY {
        many.listen(&many.receiver.url(), "user.signed_in")?;
    }
    figures.push(cost(&one, &many)?);
    let heard = Receiver::start()?;
    many.listen(&heard.url(), "audit.*")?;
    let (mut alone, mut among_many) = (vec![], vec![]);
    for _ in 0..SHORT_ROUNDS {
        alone.push(p95(&one, &one.receiver)?);
        among_many.push(p95(&many, &heard)?);
    }
    let hanging = TcpListener::bind("127.0.0.1:0")?;
    for _ in 0..HANGING {
        one.listen(&format!("http://{}/", hanging.local_addr()?), "audit.*")?;
    }
    let beside = (0..SHORT_ROUNDS).map(|_| p95(&one, &one.receiver)).collect::<Result<Vec<_>>>()?;
    let wait = |what, ours, goal| {
        let samples = Sides { limit: alone.clone(), ours };
        Figure { scenario: "webhooks", what, unit: Unit::Milliseconds, samples, goal: Some(goal) }
    };
    figures.push(wait("start of a delivery, p95, with many webhooks; with one", among_many, Goal::RatioAtMost(1.2)));
    figures.push(wait("the same beside 60 that hang; alone", beside, Goal::Below(2000.0)));
    Ok(figures)
}

/// A server with somebody in an app of theirs, and a receiver.
pub struct Place {
    pub server: Server,
    receiver: Receiver,
    app: String,
    key: String,
    token: String,
    in_app: String,
}

impl Place {
    /// Whatever happens in the app, the receiver hears of it.
    pub fn heard(rounds: &Rounds, janua: &JanuaBinary) -> Result<Self> {
        let place = Self::settle(rounds, janua)?;
        place.listen(&place.receiver.url(), "audit.*")?;
        Ok(place)
    }

    fn settle(rounds: &Rounds, janua: &JanuaBinary) -> Result<Self> {
        let folder = rounds.folder()?;
        let server = janua.serve_with(&folder, SERVER, &SETTINGS)?;
        register(&server, &folder)?;
        let text = |value: &Value| value.as_str().map(str::to_owned).context("an answer of another form");
        let token = text(&ask(server.address, "POST", "/auth/login", "", "", &login())?["accessToken"])?;
        let app = text(&ask(server.address, "POST", "/apps", &token, "", &json!({ "name": "Bench" }))?["id"])?;
        let wanted = json!({ "type": "publishable", "environment": "live" });
        let key = text(&ask(server.address, "POST", &format!("/apps/{app}/keys"), &token, "", &wanted)?["value"])?;
        let in_app = text(&ask(server.address, "POST", "/auth/login", "", &key, &login())?["accessToken"])?;
        Ok(Self { server, receiver: Receiver::start()?, app, key, token, in_app })
    }

    fn listen(&self, url: &str, event: &str) -> Result<()> {
        let path = format!("/apps/{}/webhooks", self.app);
        let body = json!({ "url": url, "events": [event] });
        ask(self.server.address, "POST", &path, &self.token, "", &body).map(drop)
    }

    /// What is done again and again: each time it is one event for the audit log of the app.
    pub fn act(&self) -> Vec<u8> {
        load::request("PATCH", "/user/profile", &self.in_app, r#"{"name":"Bench"}"#, "keep-alive")
    }

    /// Waits until this many deliveries have come.
    fn until(&self, count: u64) -> Result<()> {
        let started = Instant::now();
        while self.receiver.count.load(Relaxed) < count {
            ensure!(started.elapsed() < PATIENCE, "deliveries do not come");
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Waits until the server has nothing to do any more: what has arrived is not written down yet, and would cost whoever
    /// is measured next.
    fn until_idle(&self) -> Result<()> {
        let (started, mut before) = (Instant::now(), None);
        while before != Some(cpu_time(self.server.pid())?) {
            ensure!(started.elapsed() < PATIENCE, "the server does not come to rest");
            before = Some(cpu_time(self.server.pid())?);
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

fn ask(address: SocketAddr, method: &str, path: &str, token: &str, key: &str, body: &Value) -> Result<Value> {
    let request = load::request(method, path, token, &body.to_string(), "close");
    let request = String::from_utf8(request)?;
    let key = if key.is_empty() { String::new() } else { format!("x-service-app-key: {key}\r\n") };
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(request.replacen("\r\n\r\n", &format!("\r\n{key}\r\n"), 1).as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    Ok(serde_json::from_str(body)?)
}

/// Events accepted and delivered in a second, from the first request to the last delivery, beside a bare client that posts
/// one after the other, and beside one that has as many under way as the server.
fn rate(rounds: &Rounds, place: &Place) -> Result<Vec<Figure>> {
    ask(place.server.address, "PATCH", "/user/profile", &place.in_app, "", &json!({ "name": "Bench" }))?;
    place.until(1)?;
    let same = place.receiver.last.lock().map_err(|_| anyhow::anyhow!("the receiver failed"))?.clone();
    let accept_and_deliver = |turn| {
        let before = place.receiver.count.load(Relaxed);
        let heard = load::heard_asleep(place.server.address, turn, GENERATOR, &Ask::again(place.act()))?;
        place.until(before + heard.answered)?;
        Ok(Tally::done(heard.answered, heard.ago()))
    };
    let figure = |what, at_once, goal| {
        let post = |turn| Ok(Tally::done(poster::post(place.receiver.address, turn, SERVER, at_once, &same)?, turn));
        let (bare, ours) = (|| Ok::<Side<'_>, _>(Box::new(post)), || Ok::<Side<'_>, _>(Box::new(accept_and_deliver)));
        let sides = rounds::interleave("webhooks", rounds.turn, bare, ours)?;
        let samples = sides.only(|rate| rate.per_second);
        anyhow::Ok(Figure { scenario: "webhooks", what, unit: Unit::PerSecond, samples, goal })
    };
    Ok(vec![
        figure("events accepted and delivered; a bare client posts the same", 1, Some(Goal::Ratio(0.3)))?,
        figure("the same; the bare client has 16 under way", AT_ONCE, None)?,
    ])
}

/// Processor time of one delivery, from the request to the record of how it ended: of many events to one webhook, and of
/// one event to many.
fn cost(one: &Place, many: &Place) -> Result<Figure> {
    let mut samples = Sides { limit: vec![], ours: vec![] };
    for _ in 0..SHORT_ROUNDS {
        let (before, cpu) = (one.receiver.count.load(Relaxed), cpu_time(one.server.pid())?);
        let sent = load::asleep(one.server.address, Duration::from_secs(1), GENERATOR, &Ask::again(one.act()))?;
        one.until(before + sent)?;
        one.until_idle()?;
        samples.limit.push(millis_each(cpu_time(one.server.pid())?.saturating_sub(cpu), sent));
        let (before, cpu) = (many.receiver.count.load(Relaxed), cpu_time(many.server.pid())?);
        ask(many.server.address, "POST", "/auth/login", "", &many.key, &login())?;
        many.until(before + MANY as u64)?;
        many.until_idle()?;
        samples.ours.push(millis_each(cpu_time(many.server.pid())?.saturating_sub(cpu), MANY as u64));
    }
    let what = "processor time of a delivery, one event to many; to one";
    Ok(Figure { scenario: "webhooks", what, unit: Unit::Milliseconds, samples, goal: Some(Goal::RatioAtMost(1.15)) })
}

/// How long it takes from asking for something to hearing of it, one after the other. It waits awake, and hence where the
/// server is not.
fn p95(place: &Place, receiver: &Receiver) -> Result<f64> {
    place.until_idle()?;
    let mut waits = vec![];
    process::on(GENERATOR, || {
        for _ in 0..TIMED {
            let (before, started) = (receiver.count.load(Relaxed), Instant::now());
            ask(place.server.address, "PATCH", "/user/profile", &place.in_app, "", &json!({ "name": "Bench" }))?;
            while receiver.count.load(Relaxed) == before {
                ensure!(started.elapsed() < PATIENCE, "a delivery does not come");
                thread::yield_now();
            }
            waits.push(started.elapsed());
        }
        Ok(())
    })?;
    waits.sort();
    Ok(waits[TIMED * 95 / 100].as_secs_f64() * 1000.0)
}

fn per_second(count: u64, took: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "no bench counts to 2^53")]
    let count = count as f64;
    count / took.as_secs_f64()
}

fn millis_each(cpu: Duration, count: u64) -> f64 {
    1000.0 / per_second(count, cpu)
}

/// Counts what comes and says that it is well; threads, since it knows only few senders.
pub struct Receiver {
    address: SocketAddr,
    pub count: Arc<AtomicU64>,
    /// The last request as it came over the wire.
    last: Arc<Mutex<Vec<u8>>>,
}

impl Receiver {
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (count, last) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::default()));
        let receiver = Self { address: listener.local_addr()?, count: count.clone(), last: last.clone() };
        thread::spawn(move || {
            process::stay_on(GENERATOR)?;
            for stream in listener.incoming().flatten() {
                let (count, last) = (count.clone(), last.clone());
                thread::spawn(move || serve(stream, &count, &last));
            }
            anyhow::Ok(())
        });
        Ok(receiver)
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

fn serve(stream: TcpStream, count: &AtomicU64, last: &Mutex<Vec<u8>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut request, mut length) = (vec![], 0);
        loop {
            let start = request.len();
            if reader.read_until(b'\n', &mut request).unwrap_or(0) == 0 {
                return;
            }
            let line = String::from_utf8_lossy(&request[start..]).to_lowercase();
            if let Some(said) = line.strip_prefix("content-length:") {
                length = said.trim().parse().unwrap_or(0);
            }
            if line == "\r\n" {
                break;
            }
        }
        let head = request.len();
        request.resize(head + length, 0);
        if reader.read_exact(&mut request[head..]).is_err() {
            return;
        }
        if let Ok(mut last) = last.try_lock() {
            *last = request;
        }
        count.fetch_add(1, Relaxed);
        if reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}
