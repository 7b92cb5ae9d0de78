//! A small simulator of nodes at one PostgreSQL server: clients that ask again at once, processors that are shared by all who
//! want them, connections of a node's pool, locked rows, and commits that share the disk as PostgreSQL's do.
use std::collections::VecDeque;

use super::stored::ActCost;

/// Where clients ask.
pub struct World<'a> {
    pub acts: &'a [ActCost],
    /// What clients ask one after the other, as places in `acts`; the list begins anew at its end.
    pub list: &'a [usize],
    pub nodes: usize,
    /// Clients of all nodes together.
    pub clients: usize,
    /// Connections of each node.
    pub connections: usize,
    /// Processors that everything shares: the nodes, PostgreSQL and the clients.
    pub cores: f64,
    /// How long the one who commits waits for others before the flush, and how long the flush takes, in seconds.
    pub delay: f64,
    pub flush: f64,
    /// What a round trip takes beside the work of the processors, in seconds.
    pub wire: f64,
}

/// Acts a second.
pub fn rate(world: &World<'_>) -> f64 {
    Simulation::new(world).run()
}

const WARM_UP: f64 = 1.0;
const MEASURED: f64 = 4.0;
const MICRO: f64 = 1e-6;
/// A node works at most this long between two statements of a transaction; hashes and signatures come before and after.
const WITHIN: f64 = 100.0 * MICRO;

/// A step of an act.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// Seconds of a processor.
    Work(f64),
    /// Seconds in which nothing is done.
    Pause(f64),
    Connect,
    Release,
    /// Locks the one row that all acts of its kind change, until the commit.
    Lock,
    Commit,
}

/// An act as it goes: transactions that only read, then those that commit; each has its round trips.
fn steps(act: &ActCost, wire: f64) -> Vec<Step> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "few, and none below zero")]
    let count = |number: f64| number.round().max(0.0) as usize;
    let trips = count(act.round_trips);
    let mut steps = vec![Step::Work(act.generator_us * MICRO)];
    if trips == 0 {
        steps.push(Step::Work(act.node_us * MICRO));
        return steps;
    }
    let transactions = count(act.transactions).clamp(1, trips);
    let commits = count(act.commits).min(transactions);
    #[expect(clippy::cast_precision_loss, reason = "few")]
    let (each, trips_of_all, database) =
        (act.node_us * MICRO / (trips + 1) as f64, trips as f64, act.database_us * MICRO / trips as f64);
    let node = each.min(WITHIN);
    steps.push(Step::Work(act.node_us * MICRO - node * trips_of_all));
    for transaction in 0..transactions {
        let is_last = transaction + 1 == transactions;
        // The last transaction has the statements; the others are single ones.
        let trips_here = if is_last { trips + 1 - transactions } else { 1 };
        steps.push(Step::Connect);
        for trip in 0..trips_here {
            steps.push(Step::Pause(wire));
            if act.locks_before_end == Some(trips_here - 1 - trip) && is_last {
                steps.push(Step::Lock);
            }
            steps.push(Step::Work(database));
            let commits_here = trip + 1 == trips_here && transactions - transaction <= commits;
            if commits_here {
                steps.push(Step::Commit);
            }
            if trip + 1 == trips_here {
                steps.push(Step::Release);
            }
            steps.push(Step::Work(node));
        }
    }
    steps
}

struct Client {
    node: usize,
    act: usize,
    step: usize,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Seconds of a processor that are left.
    Working(f64),
    Until(f64),
    /// For a connection, a row or a commit.
    Waiting,
}

/// The flush of the log, as in `XLogFlush`: one waits for others, then flushes for all who have come; those who come during the
/// flush wait for the next one.
enum Log {
    Idle,
    Gathering(f64),
    Flushing(f64),
}

struct Simulation<'a> {
    world: &'a World<'a>,
    steps: Vec<Vec<Step>>,
    clients: Vec<Client>,
    next: usize,
    now: f64,
    free: Vec<usize>,
    for_connection: Vec<VecDeque<usize>>,
    /// For each act: the holder of its row, and those who wait.
    rows: Vec<(Option<usize>, VecDeque<usize>)>,
    log: Log,
    in_flush: Vec<usize>,
    for_flush: Vec<usize>,
    chance: u64,
    done: u64,
}

impl<'a> Simulation<'a> {
    fn new(world: &'a World<'a>) -> Self {
        let mut simulation = Self {
            world,
            steps: world.acts.iter().map(|act| steps(act, world.wire)).collect(),
            clients: vec![],
            next: 0,
            now: 0.0,
            free: vec![world.connections; world.nodes],
            for_connection: vec![VecDeque::new(); world.nodes],
            rows: world.acts.iter().map(|_| (None, VecDeque::new())).collect(),
            log: Log::Idle,
            in_flush: vec![],
            for_flush: vec![],
            chance: 7,
            done: 0,
        };
        for number in 0..world.clients {
            let act = simulation.next_act();
            let state = State::Until(0.0);
            simulation.clients.push(Client { node: number % world.nodes, act, step: 0, state });
        }
        simulation
    }

    fn next_act(&mut self) -> usize {
        self.next += 1;
        self.world.list[(self.next - 1) % self.world.list.len()]
    }

    /// Between a half and three halves, so that clients do not march in step.
    fn about(&mut self, length: f64) -> f64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        #[expect(clippy::cast_precision_loss, reason = "chance")]
        let part = (self.chance >> 33) as f64 / (1_u64 << 31) as f64;
        length * (0.5 + part)
    }

    fn run(mut self) -> f64 {
        for client in 0..self.clients.len() {
            self.enter(client);
        }
        let mut counted_from = None;
        while self.now < WARM_UP + MEASURED {
            self.advance();
            if counted_from.is_none() && self.now >= WARM_UP {
                counted_from = Some((self.now, self.done));
            }
        }
        let (since, before) = counted_from.unwrap_or((0.0, 0));
        #[expect(clippy::cast_precision_loss, reason = "few")]
        let done = (self.done - before) as f64;
        done / (self.now - since)
    }

    /// To the next moment at which something ends.
    fn advance(&mut self) {
        let working = self.clients.iter().filter(|client| matches!(client.state, State::Working(_))).count();
        #[expect(clippy::cast_precision_loss, reason = "few")]
        let speed = (self.world.cores / working.max(1) as f64).min(1.0);
        let log = match self.log {
            Log::Idle => f64::INFINITY,
            Log::Gathering(until) | Log::Flushing(until) => until - self.now,
        };
        let ends = self.clients.iter().map(|client| match client.state {
            State::Working(left) => left / speed,
            State::Until(moment) => moment - self.now,
            State::Waiting => f64::INFINITY,
        });
        let wait = ends.fold(log, f64::min).max(0.0);
        self.now += wait;
        let mut over = vec![];
        for (number, client) in self.clients.iter_mut().enumerate() {
            let is_over = match &mut client.state {
                State::Working(left) => {
                    *left -= wait * speed;
                    *left <= 1e-12
                }
                State::Until(moment) => *moment <= self.now + 1e-12,
                State::Waiting => false,
            };
            if is_over {
                over.push(number);
            }
        }
        for client in over {
            self.go_on(client);
        }
        self.turn_log();
    }

    fn turn_log(&mut self) {
        match self.log {
            Log::Gathering(until) if until <= self.now + 1e-12 => {
                self.in_flush = std::mem::take(&mut self.for_flush);
                self.log = Log::Flushing(self.now + self.world.flush);
            }
            Log::Flushing(until) if until <= self.now + 1e-12 => {
                let flushed = std::mem::take(&mut self.in_flush);
                self.log = Log::Idle;
                if !self.for_flush.is_empty() {
                    self.log = Log::Gathering(self.now + self.world.delay);
                }
                for client in flushed {
                    self.unlock(client);
                    self.go_on(client);
                }
            }
            _ => {}
        }
    }

    fn unlock(&mut self, client: usize) {
        let act = self.clients[client].act;
        if self.rows[act].0 == Some(client) {
            let next = self.rows[act].1.pop_front();
            self.rows[act].0 = next;
            if let Some(next) = next {
                self.go_on(next);
            }
        }
    }

    fn go_on(&mut self, client: usize) {
        self.clients[client].step += 1;
        if self.clients[client].step == self.steps[self.clients[client].act].len() {
            self.done += 1;
            let act = self.next_act();
            (self.clients[client].act, self.clients[client].step) = (act, 0);
        }
        self.enter(client);
    }

    /// Begins a step.
    fn enter(&mut self, client: usize) {
        let Client { node, act, step, .. } = self.clients[client];
        self.clients[client].state = State::Waiting;
        match self.steps[act][step] {
            Step::Work(length) => self.clients[client].state = State::Working(self.about(length)),
            Step::Pause(length) => self.clients[client].state = State::Until(self.now + self.about(length)),
            Step::Connect if self.free[node] > 0 => {
                self.free[node] -= 1;
                self.go_on(client);
            }
            Step::Connect => self.for_connection[node].push_back(client),
            Step::Release => {
                match self.for_connection[node].pop_front() {
                    Some(next) => self.go_on(next),
                    None => self.free[node] += 1,
                }
                self.go_on(client);
            }
            Step::Lock if self.rows[act].0.is_none() => {
                self.rows[act].0 = Some(client);
                self.go_on(client);
            }
            Step::Lock => self.rows[act].1.push_back(client),
            Step::Commit => {
                self.for_flush.push(client);
                if matches!(self.log, Log::Idle) {
                    self.log = Log::Gathering(self.now + self.world.delay);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(node_us: f64, database_us: f64, round_trips: f64, commits: f64) -> ActCost {
        ActCost { node_us, database_us, round_trips, commits, transactions: commits, ..ActCost::default() }
    }

    fn world(acts: &[ActCost], clients: usize) -> World<'_> {
        World {
            acts,
            list: &[0],
            nodes: 1,
            clients,
            connections: 1_000,
            cores: 2.0,
            delay: 0.0,
            flush: 0.0,
            wire: 0.0,
        }
    }

    fn near(rate: f64, expected: f64) {
        assert!((rate / expected - 1.0).abs() < 0.03, "{rate} instead of {expected}");
    }

    #[test]
    fn busy_processors_are_the_limit_however_many_clients_ask() {
        let acts = [act(1_000.0, 0.0, 0.0, 0.0)];
        near(rate(&world(&acts, 1)), 1_000.0);
        near(rate(&world(&acts, 2)), 2_000.0);
        near(rate(&world(&acts, 50)), 2_000.0);
    }

    #[test]
    fn commits_that_come_together_share_the_disk() {
        let acts = [act(1.0, 1.0, 1.0, 1.0)];
        let slow = |clients| World { delay: 0.004, ..world(&acts, clients) };
        near(rate(&slow(1)), 250.0);
        let many = rate(&slow(20));
        assert!(many > 4_500.0, "{many}: each has its own in less than 4.4 ms");
    }

    #[test]
    fn the_pool_of_a_node_is_a_limit_that_another_node_lifts() {
        let acts = [act(1.0, 1.0, 1.0, 1.0)];
        let pool = |nodes| World { delay: 0.01, connections: 4, nodes, ..world(&acts, 64) };
        let (one, two) = (rate(&pool(1)), rate(&pool(2)));
        assert!(one < 4.0 / 0.01 * 2.1, "{one}: four connections, and a flush that may have begun");
        near(two / one, 2.0);
    }

    #[test]
    fn a_row_that_all_change_is_changed_once_a_commit_whatever_else_there_is() {
        let acts = [ActCost { locks_before_end: Some(0), ..act(1.0, 1.0, 2.0, 1.0) }];
        let hot = |nodes, clients| World { delay: 0.004, nodes, ..world(&acts, clients) };
        near(rate(&hot(1, 32)), 250.0);
        near(rate(&hot(2, 32)), 250.0);
    }

    #[test]
    fn an_act_is_made_of_its_round_trips() {
        let made = steps(&ActCost { transactions: 2.0, ..act(400.0, 300.0, 3.0, 1.0) }, 0.0);
        let count = |wanted: fn(&Step) -> bool| made.iter().filter(|step| wanted(step)).count();
        assert_eq!(count(|step| matches!(step, Step::Connect)), 2);
        assert_eq!(count(|step| matches!(step, Step::Commit)), 1);
        let work: f64 = made.iter().map(|step| if let Step::Work(length) = step { *length } else { 0.0 }).sum();
        assert!((work - 700e-6).abs() < 1e-9, "{work}");
    }
}
