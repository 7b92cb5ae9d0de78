//! All areas under load at once while faults come at random, drawn from a seed. What was acknowledged is compared with what
//! is there at the end, and a request may fail only while a fault that concerns it is under way.
//!
//! `scripts/soak` runs it for as long as wanted. The same seed draws the same faults in the same order.
use std::{
    io,
    net::SocketAddr,
    sync::{
        Mutex, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{deploys::send, one_node::Dice, support::extent};

mod check;
mod directory;
mod domains;
mod faults;
mod inbox;
mod ledger;
mod load;
mod machines;
mod names;
mod payments;
mod people;
mod sites;
mod tally;
mod world;

use faults::Windows;
use inbox::Inbox;
use ledger::Ledger;
use tally::Tally;
use world::World;

pub struct Options {
    pub seconds: u64,
    pub seed: u64,
    pub nodes: usize,
    pub postgres: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Area {
    People,
    Apps,
    Usage,
    Storage,
    Deploys,
    Sites,
    Mail,
    Agents,
    Directory,
    Skills,
    Payments,
    Domains,
    Reads,
}

/// An answer that was waited for, and how many tries before it may have had their effect without an answer.
struct Reply {
    status: u16,
    body: Vec<u8>,
    unanswered: u64,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Requests that name what they do by an ID in their body, or that may be carried out again.
fn needs_key(request: &str) -> bool {
    let may_repeat = ["POST /usage/track", "POST /machine/spend"].contains(&request) || request.ends_with("/check");
    request.starts_with("POST") && !may_repeat
}

struct Soak {
    options: Options,
    world: World,
    windows: Windows,
    ledger: Mutex<Ledger>,
    tally: Mutex<Tally>,
    inbox: Mutex<Inbox>,
    /// A recent access token of the owner.
    access: RwLock<String>,
    next: AtomicU64,
    began: Instant,
    /// The load ends.
    over: AtomicBool,
    /// All was compared.
    finished: AtomicBool,
    org: String,
    app: String,
    /// An app that nothing but a write after a fault is for.
    probe: String,
    /// An app of another organization, which claims names of the first one.
    rival: String,
    /// A secret key of the app, and a publishable one.
    secret: String,
    public: String,
    /// The webhook: its ID, its secret, and when it was created.
    hook: String,
    hook_secret: String,
    hook_since: String,
    /// A SCIM token of the organization, and a group.
    scim: String,
    group: String,
}

impl Soak {
    fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, SeqCst)
    }

    fn note<T>(&self, change: impl FnOnce(&mut Ledger) -> T) -> T {
        change(&mut self.ledger.lock().unwrap())
    }

    fn tally<T>(&self, change: impl FnOnce(&mut Tally) -> T) -> T {
        change(&mut self.tally.lock().unwrap())
    }

    /// Something that must never be.
    fn wrong(&self, what: String) {
        println!("WRONG: {what}");
        self.tally(|tally| tally.wrong.push(what));
    }

    fn bearer(&self) -> String {
        format!("\r\nAuthorization: Bearer {}", self.access.read().unwrap())
    }

    /// The header of an app's key.
    fn key(value: &str) -> String {
        format!("\r\nX-Service-App-Key: {value}")
    }

    fn send(&self, node: usize, request: &str, more: &str, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        send(self.world.nodes[node].address, &format!("{request} HTTP/1.1\r\nHost: localhost{more}"), body)
    }

    /// One counted request. None where no answer came, or one that says to come back later: wrong while no fault is under way.
    fn once(
        &self,
        area: Area,
        node: Option<usize>,
        to: SocketAddr,
        head: &str,
        body: &[u8],
    ) -> Option<(u16, Vec<u8>)> {
        self.count_request(area, node, head.lines().next().unwrap_or_default(), || send(to, head, body))
    }

    /// The same for any way of asking; `line` names the request.
    fn count_request(
        &self,
        area: Area,
        node: Option<usize>,
        line: &str,
        ask: impl FnOnce() -> io::Result<(u16, Vec<u8>)>,
    ) -> Option<(u16, Vec<u8>)> {
        let began = Instant::now();
        let answer = ask();
        let took = began.elapsed();
        let excused = self.windows.excuse(began, area, node);
        let is_good = matches!(&answer, Ok((status, _)) if !matches!(status, 502..=504));
        self.tally(|tally| tally.asked(area, excused, is_good, took));
        if is_good {
            return answer.ok();
        }
        if !excused {
            let said = answer.map(|(status, body)| format!("{status} {}", String::from_utf8_lossy(&body)));
            let said = said.unwrap_or_else(|error| error.to_string());
            self.wrong(format!("{area:?}, node {node:?}, no fault under way: {line}: {said} after {took:.1?}"));
        }
        None
    }

    /// Asks any node, again and again, until one of them answers as expected. None where none does, which is noted, and where
    /// the answer to what was done is lost.
    fn ask(
        &self,
        area: Area,
        dice: &mut Dice,
        request: &str,
        more: &str,
        body: &Value,
        good: &[u16],
    ) -> Option<Reply> {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let more = if body.is_null() { more.to_owned() } else { format!("{more}\r\nContent-Type: application/json") };
        self.ask_with(area, dice, request, &more, text.as_bytes(), good)
    }

    fn ask_with(
        &self,
        area: Area,
        dice: &mut Dice,
        request: &str,
        more: &str,
        body: &[u8],
        good: &[u16],
    ) -> Option<Reply> {
        // A repeated request with its key is carried out once.
        let key =
            if needs_key(request) { format!("\r\nIdempotency-Key: soak-{}", self.number()) } else { String::new() };
        let head = format!("{request} HTTP/1.1\r\nHost: localhost{more}{key}");
        let (began, mut unanswered) = (Instant::now(), 0);
        loop {
            let node = usize::try_from(dice.roll(self.world.nodes.len() as u64)).unwrap();
            if let Some((status, body)) = self.once(area, Some(node), self.world.nodes[node].address, &head, body) {
                let said = String::from_utf8_lossy(&body);
                if good.contains(&status) {
                    return Some(Reply { status, body, unanswered });
                }
                if status == 409 && unanswered > 0 && said.contains("idempotency_answer_lost") {
                    self.tally(|tally| *tally.answers_lost.entry(area).or_default() += 1);
                    return None;
                }
                if !(status == 409 && unanswered > 0 && said.contains("idempotency_in_progress")) {
                    let after = if unanswered > 0 {
                        format!(" after {unanswered} tries without an answer")
                    } else {
                        String::new()
                    };
                    self.wrong(format!("{area:?}, node {node}: {request}: {status} {said}{after}"));
                    return None;
                }
            }
            unanswered += 1;
            if began.elapsed() > Duration::from_mins(3) && !self.windows.paused() {
                self.wrong(format!("{area:?}: {request} is never acknowledged"));
                return None;
            }
            thread::sleep(Duration::from_millis(50 + dice.roll(150)));
        }
    }

    /// What every node must answer some time after a change. Nodes learn of it within a second; two are allowed here.
    fn everywhere(&self, area: Area, what: &str, request: &str, more: &str, body: &[u8], good: u16) {
        let changed = Instant::now();
        thread::sleep(Duration::from_secs(2));
        for (node, at) in self.world.nodes.iter().enumerate() {
            let head = format!("{request} HTTP/1.1\r\nHost: localhost{more}");
            let Some((status, body)) = self.once(area, Some(node), at.address, &head, body) else { continue };
            if status != good && !self.windows.cut_off(changed) {
                let said = String::from_utf8_lossy(&body);
                self.wrong(format!("{what}: {request} at node {node} is {status} and not {good}: {said}"));
            }
        }
    }

    fn pause(dice: &mut Dice, most: u64) {
        thread::sleep(Duration::from_millis(most / 4 + dice.roll(most)));
    }
}

/// Everything from the first account to the last mail; fails where something is lost or wrong.
fn soak(options: Options) {
    let seed = options.seed;
    println!(
        "soak: {} s, seed {seed}, {} node(s), {}",
        options.seconds,
        options.nodes,
        if options.postgres { "PostgreSQL and S3" } else { "SQLite and the data folder" }
    );
    let soak = Soak::set_up(options);
    let began = Instant::now();
    let (loaded, drained) = thread::scope(|scope| {
        scope.spawn(|| soak.watch());
        let clients: [fn(&Soak, &mut Dice); 17] = [
            Soak::renew,
            Soak::sign_up,
            Soak::sign_up,
            Soak::change_keys,
            Soak::count,
            Soak::store,
            Soak::store,
            Soak::deploy,
            Soak::write_mail,
            Soak::spend,
            Soak::provision,
            Soak::publish_skills,
            Soak::read,
            Soak::buy_plans,
            Soak::sell,
            Soak::own_domains,
            Soak::own_domains,
        ];
        let mut running: Vec<_> = (1..)
            .zip(clients)
            .map(|(number, client)| {
                let soak = &soak;
                scope.spawn(move || client(soak, &mut Dice(seed ^ number << 32)))
            })
            .collect();
        running.extend((0..soak.world.nodes.len()).map(|node| {
            let soak = &soak;
            scope.spawn(move || soak.visit(node))
        }));
        running.extend((0..soak.world.nodes.len()).map(|node| {
            let soak = &soak;
            scope.spawn(move || soak.browse(node))
        }));
        let stormed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| soak.storm()));
        soak.over.store(true, SeqCst);
        let ended: Vec<_> = running.into_iter().map(thread::ScopedJoinHandle::join).collect();
        let loaded = began.elapsed();
        let compared = stormed.and_then(|()| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                assert!(ended.iter().all(Result::is_ok), "every client goes on");
                let drained = soak.drain();
                soak.compare();
                (loaded, drained)
            }))
        });
        soak.finished.store(true, SeqCst);
        compared.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let Soak { tally, ledger, world, .. } = soak;
    let tally = tally.into_inner().unwrap();
    tally.print(seed, loaded, drained, &ledger.into_inner().unwrap());
    if !tally.is_well() {
        let folders = world.keep();
        panic!("seed {seed}: {} wrong and {} lost; logs are in {folders:?}", tally.wrong.len(), tally.lost.len());
    }
}

#[test]
fn one_node_under_random_faults_loses_nothing() {
    let seconds = extent(25, 600, "seconds of random faults") as u64;
    soak(Options { seconds, seed: 1, nodes: 1, postgres: false });
}

#[test]
fn three_nodes_under_random_faults_lose_nothing() {
    let seconds = extent(0, 600, "seconds of random faults on three nodes") as u64;
    if seconds > 0 {
        soak(Options { seconds, seed: 1, nodes: 3, postgres: true });
    }
}

#[test]
#[ignore = "scripts/soak runs it"]
fn as_wished() {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |value| value.parse().unwrap_or_else(|_| panic!("{name} is no number")))
    };
    let minutes =
        std::env::var("SOAK_MINUTES").map_or(60.0, |value| value.parse().expect("SOAK_MINUTES is a number"));
    let seconds = Duration::from_secs_f64(60.0 * minutes).as_secs();
    let postgres = std::env::var("SOAK_ENGINE").is_ok_and(|engine| engine == "postgres");
    let nodes = usize::try_from(number("SOAK_NODES", 1)).unwrap();
    soak(Options { seconds, seed: number("SOAK_SEED", 1), nodes, postgres });
}
