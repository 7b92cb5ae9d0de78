//! Faults drawn from a seed, and when each of them was under way.
use std::{
    fmt,
    sync::{Mutex, atomic::Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use super::{Area, Soak};
use crate::one_node::Dice;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A node is killed and started again.
    Kill(usize),
    /// A node is asked to end, ends and is started again.
    Restart(usize),
    /// The database ends as after a crash, and comes back.
    Stop,
    /// The primary of the database dies, and the standby takes over.
    FailOver,
    Store,
    Mail,
    Receiver,
    /// The name server is silent.
    Names,
    /// The certificate authority.
    Authority,
    /// The machine ran something else for a while. It is not drawn.
    Pause,
}

impl Fault {
    /// Whether a request may fail under it. Without a mail server, a receiver or a certificate
    /// authority something comes later, and no request fails.
    fn excuses(self, area: Area, node: Option<usize>) -> bool {
        match self {
            Self::Kill(dead) | Self::Restart(dead) => node == Some(dead),
            Self::Stop | Self::FailOver | Self::Pause => true,
            Self::Store => matches!(area, Area::Storage | Area::Deploys | Area::Sites | Area::Skills),
            Self::Names => area == Area::Domains,
            Self::Mail | Self::Receiver | Self::Authority => false,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Kill(_) => "node killed",
            Self::Restart(_) => "node restarted",
            Self::Stop => "database stopped",
            Self::FailOver => "database failed over",
            Self::Store => "object store away",
            Self::Mail => "mail server away",
            Self::Receiver => "receiver away",
            Self::Names => "name server silent",
            Self::Authority => "certificate authority away",
            Self::Pause => "machine busy with other work",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(node) | Self::Restart(node) => write!(out, "{} ({node})", self.name()),
            _ => write!(out, "{}", self.name()),
        }
    }
}

/// One fault from its cause to the moment when all is well again.
struct Window {
    fault: Fault,
    to: Option<Instant>,
}

#[derive(Default)]
pub struct Windows(Mutex<Vec<Window>>);

impl Windows {
    pub fn open(&self, fault: Fault) -> usize {
        let mut all = self.0.lock().unwrap();
        all.push(Window { fault, to: None });
        all.len() - 1
    }

    pub fn close(&self, number: usize) {
        self.0.lock().unwrap()[number].to = Some(Instant::now());
    }

    fn add(&self, fault: Fault, to: Instant) {
        self.0.lock().unwrap().push(Window { fault, to: Some(to) });
    }

    /// Whether a fault under way since `began` excuses a request that has failed now.
    pub fn excuse(&self, began: Instant, area: Area, node: Option<usize>) -> bool {
        let all = self.0.lock().unwrap();
        let mut meanwhile = all.iter().filter(|window| window.to.is_none_or(|to| to >= began));
        meanwhile.any(|window| window.fault.excuses(area, node))
    }

    /// Whether the machine has other work.
    pub fn paused(&self) -> bool {
        let (all, now) = (self.0.lock().unwrap(), Instant::now());
        all.iter().any(|window| window.fault == Fault::Pause && window.to.is_some_and(|to| to >= now))
    }

    /// Whether the database was away, or nothing ran: nodes may then know less than they should.
    pub fn cut_off(&self, began: Instant) -> bool {
        let all = self.0.lock().unwrap();
        let mut meanwhile = all.iter().filter(|window| window.to.is_none_or(|to| to >= began));
        meanwhile.any(|window| matches!(window.fault, Fault::Stop | Fault::FailOver | Fault::Pause))
    }
}

/// What happens at one turn, how long it lasts, and how long nothing happens before it.
pub struct Turn {
    pub calm: Duration,
    pub away: Duration,
    /// One after the other.
    pub faults: Vec<Fault>,
    /// Away at the same time.
    pub beside: Option<Fault>,
}

impl fmt::Display for Turn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.faults.iter().map(ToString::to_string).collect();
        write!(out, "after {:.1?} for {:.1?}: {}", self.calm, self.away, names.join(", then "))?;
        self.beside.map_or(Ok(()), |fault| write!(out, "; beside it {fault}"))
    }
}

impl Turn {
    pub fn draw(dice: &mut Dice, nodes: usize, postgres: bool) -> Self {
        let millis = |dice: &mut Dice, from: u64, to: u64| Duration::from_millis(from + dice.roll(to - from));
        let (calm, mut away) = (millis(dice, 2000, 6000), millis(dice, 500, 6000));
        let node = usize::try_from(dice.roll(nodes as u64)).unwrap();
        let faults = match dice.roll(if postgres { 11 } else { 8 }) {
            0 | 1 => vec![Fault::Kill(node)],
            2 => (0..nodes).map(|turn| Fault::Restart((node + turn) % nodes)).collect(),
            3 => vec![Fault::Restart(node)],
            4 => vec![Fault::Mail],
            5 => vec![Fault::Receiver],
            6 => vec![Fault::Names],
            7 => vec![Fault::Authority],
            8 => vec![Fault::Store],
            9 => vec![Fault::Stop],
            _ => vec![Fault::FailOver],
        };
        let beside = match dice.roll(9) {
            0 => Some(Fault::Mail),
            1 => Some(Fault::Receiver),
            2 => Some(Fault::Names),
            3 => Some(Fault::Authority),
            4 if postgres => Some(Fault::Store),
            _ => None,
        };
        let beside = beside.filter(|beside| !faults.contains(beside));
        // Three attempts within three seconds are all that a delivery gets.
        if faults.contains(&Fault::Receiver) || beside == Some(Fault::Receiver) {
            away = away.min(Duration::from_millis(1500));
        }
        Self { calm, away, faults, beside }
    }
}

/// How many times slower than at its best the machine may be before failures say nothing.
const STARVED: u32 = 10;

impl Soak {
    /// Turn after turn until the time is over.
    pub fn storm(&self) {
        let mut dice = Dice(self.options.seed);
        let began = Instant::now();
        loop {
            let turn = Turn::draw(&mut dice, self.options.nodes, self.options.postgres);
            if began.elapsed() + turn.calm + turn.away > Duration::from_secs(self.options.seconds) {
                return;
            }
            thread::sleep(turn.calm);
            println!("{:>5.0?}s {turn}", began.elapsed().as_secs());
            thread::scope(|scope| {
                if let Some(fault) = turn.beside {
                    scope.spawn(move || self.cause(fault, turn.away));
                }
                for fault in &turn.faults {
                    self.cause(*fault, turn.away);
                }
            });
        }
    }

    /// Causes a fault, ends it, and waits until all that it concerned is well again.
    fn cause(&self, fault: Fault, away: Duration) {
        let (world, number) = (&self.world, self.windows.open(fault));
        let cut = |wire: &crate::support::wire::Wire| {
            wire.cut(true);
            thread::sleep(away);
            wire.cut(false);
        };
        match fault {
            Fault::Kill(node) => {
                world.kill(node);
                thread::sleep(away / 2);
                self.begin(node);
            }
            Fault::Restart(node) => {
                if !world.end(node) {
                    self.wrong(format!("node {node} did not end well after SIGTERM"));
                }
                self.begin(node);
            }
            Fault::Stop => world.database.as_ref().unwrap().stop(away),
            Fault::FailOver => world.database.as_ref().unwrap().fail_over(away / 4),
            Fault::Store => cut(&world.store.as_ref().unwrap().wire),
            Fault::Mail => cut(&world.mail),
            Fault::Receiver => cut(&world.hooks),
            Fault::Names => world.names.hush(away),
            Fault::Authority => cut(&world.names.wire),
            Fault::Pause => {}
        }
        let ended = Instant::now();
        let nodes = match fault {
            Fault::Kill(node) | Fault::Restart(node) => node..node + 1,
            Fault::Stop | Fault::FailOver => 0..world.nodes.len(),
            _ => 0..0,
        };
        for node in nodes {
            self.until_well(node, fault);
        }
        let took = ended.elapsed();
        self.windows.close(number);
        self.tally(|tally| tally.recovered(fault, took));
        if fault == Fault::FailOver {
            world.database.as_ref().unwrap().follow();
        }
    }

    /// A node that does not start is wrong, and tried again.
    fn begin(&self, node: usize) {
        for _ in 0..5 {
            match self.world.begin(node) {
                Ok(()) => return,
                // A start that finds the database too slow ends, whatever made it slow.
                Err(said) if self.windows.paused() => {
                    println!("node {node} does not start on a busy machine: {said}");
                }
                Err(said) => self.wrong(format!("node {node} does not start: {said}")),
            }
            thread::sleep(Duration::from_secs(1));
        }
        panic!("node {node} does not start");
    }

    /// Ready, and writing.
    fn until_well(&self, node: usize, fault: Fault) {
        let began = Instant::now();
        loop {
            let said = self.send(node, "GET /health", "", b"").map(|(status, _)| status);
            let change = r#"{"name":"Probe"}"#;
            if matches!(said, Ok(200)) {
                let more = format!("{}\r\nContent-Type: application/json", self.bearer());
                let path = format!("PATCH /apps/{}", self.probe);
                if matches!(self.send(node, &path, &more, change.as_bytes()), Ok((200, _))) {
                    return;
                }
            }
            if began.elapsed() > Duration::from_mins(1) && !self.windows.paused() {
                return self.wrong(format!("node {node} is not well a minute after {fault}"));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Notices when this process, and likely all others, ran slowly or not at all for a while, because the machine has other
    /// work. Requests then fail without a fault of theirs. What is timed is always the same work.
    pub fn watch(&self) {
        let mut quickest = Duration::MAX;
        while !self.finished.load(SeqCst) {
            let began = Instant::now();
            thread::sleep(Duration::from_millis(50));
            let (slept, mut dice) = (began.elapsed(), Dice(0));
            let work: u64 = (0..50_000).map(|_| dice.roll(2)).sum();
            let took = began.elapsed().saturating_sub(slept);
            quickest = quickest.min(took);
            let stopped = self.world.has_stopped_node();
            if stopped
                || slept > Duration::from_secs(1)
                || took > quickest * STARVED + Duration::from_millis(work / 1000)
            {
                self.windows.add(Fault::Pause, Instant::now() + Duration::from_secs(5));
                self.tally(|tally| tally.recovered(Fault::Pause, began.elapsed()));
            }
        }
    }
}
