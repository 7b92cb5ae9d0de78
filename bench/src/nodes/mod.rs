//! Nodes at one PostgreSQL server: what each act costs there (processors, round trips, commits, bytes of the log, lines of
//! the audit log), and what one and two nodes do under load, beside what the model of `bench scale` says of it.
mod acts;
mod database;
mod stage;
mod wire;

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use self::{
    acts::{Act, EVERY},
    stage::Stage,
};
use crate::{
    load,
    process::{Server, cpu_time},
    rounds::Rounds,
    scale::stored::{ActCost, Measurements, Run, spread},
    servers::JanuaBinary,
};

/// How often each load is measured; the median counts.
const ROUNDS: usize = 3;
const WARM_UP: Duration = Duration::from_millis(700);
const IDLE: Duration = Duration::from_secs(2);
/// Connections of a node's pool. Few, so that loads meet their end before the processors do: neighbours take those.
const CONNECTIONS: usize = 4;

/// A load and its clients.
struct Load {
    what: &'static str,
    delay: Duration,
    clients: usize,
    mix: &'static [(Act, usize)],
}

const SLOW: Duration = Duration::from_millis(20);
const LOADS: [Load; 4] = [
    Load { what: "changes, commits of 20 ms", delay: SLOW, clients: 16, mix: &[(Act::Change, 1)] },
    Load {
        what: "a mix that writes, commits of 20 ms",
        delay: SLOW,
        clients: 16,
        mix: &[(Act::Refresh, 8), (Act::Change, 4), (Act::Me, 4), (Act::Introspect, 4)],
    },
    Load {
        what: "one organization's quota, an event at a time, commits of 20 ms",
        delay: SLOW,
        clients: 8,
        mix: &[(Act::Event, 1)],
    },
    Load {
        what: "what daily users do, commits at once",
        delay: Duration::ZERO,
        clients: 8,
        mix: &[
            (Act::SignIn, 2),
            (Act::Refresh, 40),
            (Act::Me, 200),
            (Act::Introspect, 400),
            (Act::Change, 5),
            (Act::Batch, 2),
        ],
    },
];

pub fn measure(rounds: &Rounds, janua: &JanuaBinary, json: Option<&Path>) -> Result<()> {
    let stage = Stage::set(rounds, janua)?;
    #[expect(clippy::cast_precision_loss, reason = "few")]
    let cores = thread::available_parallelism()?.get() as f64;
    let mut measured = Measurements { cores, ..Measurements::default() };
    // One node at a time, because any node takes the jobs that an act leaves.
    let mut costs = {
        let counted = stage.serve(rounds, janua, true)?;
        EVERY.iter().map(|act| count(&stage, &counted, *act, rounds.turn)).collect::<Result<Vec<_>>>()?
    };
    let first = stage.serve(rounds, janua, false)?;
    for (act, cost) in EVERY.iter().zip(&mut costs) {
        time(&stage, &first, *act, rounds.turn, cost)?;
    }
    measured.acts = deliveries_apart(costs);
    show_costs(&measured.acts);
    measured.wire_us = micros(stage.database.round_trip()?);
    println!("\na round trip beside the processors' work: {:.0} µs", measured.wire_us);
    let nodes = [first, stage.serve(rounds, janua, false)?];
    measured.runs = runs(&stage, &nodes, rounds.turn, &measured)?;
    measured.tallied_per_second = tallies(&stage)?;
    println!("\nanalytics: {:.0} people a second are counted", measured.tallied_per_second);
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(&measured)? + "\n";
        std::fs::write(path, text).with_context(|| format!("--json {}", path.display()))?;
    }
    Ok(())
}

fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

/// To one digit after the point, so that the stored file can be read.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// A delivery is what a change in an app costs more where a webhook hears of it.
fn deliveries_apart(costs: Vec<ActCost>) -> Vec<ActCost> {
    let unheard = costs.iter().find(|cost| cost.name == Act::InApp.name()).cloned().unwrap_or_default();
    let others = costs.into_iter().filter(|cost| cost.name != unheard.name);
    others.map(|cost| if cost.name == Act::Delivery.name() { less(&cost, &unheard) } else { cost }).collect()
}

fn less(cost: &ActCost, alone: &ActCost) -> ActCost {
    let less = |of: fn(&ActCost) -> f64| rounded((of(cost) - of(alone)).max(0.0));
    ActCost {
        name: cost.name.clone(),
        node_us: less(|cost| cost.node_us),
        database_us: less(|cost| cost.database_us),
        generator_us: 0.0,
        round_trips: less(|cost| cost.round_trips),
        statements: less(|cost| cost.statements),
        transactions: less(|cost| cost.transactions),
        commits: less(|cost| cost.commits),
        wal_bytes: less(|cost| cost.wal_bytes),
        audited: less(|cost| cost.audited),
        locks_before_end: None,
    }
}

/// Counts what an act of a single client does at a node whose way to PostgreSQL leads over the wire.
fn count(stage: &Stage, node: &Server, act: Act, turn: Duration) -> Result<ActCost> {
    act.drive(stage, node, &act.ask(stage, node, 1)?, turn.max(WARM_UP), 1)?;
    let ask = act.ask(stage, node, 1)?;
    node.rest()?;
    let idle = {
        let before = stage.wire.count();
        thread::sleep(IDLE);
        stage.wire.count().since(before)
    };
    let (audited, log) = (stage.audited()?, stage.database.log_end()?);
    let before = stage.wire.count();
    let driven = act.drive(stage, node, &ask, turn, 1)?;
    let passed = stage.wire.count().since(before);
    let (bytes, commits) = stage.database.logged_since(&log)?;
    let audited = stage.audited()? - audited;
    #[expect(clippy::cast_precision_loss, reason = "no bench counts to 2^53")]
    let each = |count: u64, idle: u64| {
        rounded(
            (count as f64 - idle as f64 * driven.took.as_secs_f64() / IDLE.as_secs_f64()).max(0.0)
                / driven.acts as f64,
        )
    };
    #[expect(clippy::cast_precision_loss, reason = "no bench counts to 2^53")]
    let acts = driven.acts as f64;
    let cost = ActCost {
        name: act.name().to_owned(),
        round_trips: each(passed.round_trips, idle.round_trips),
        statements: each(passed.statements, idle.statements),
        transactions: each(passed.transactions, idle.transactions),
        commits: each(passed.writing, idle.writing),
        wal_bytes: (bytes / acts).round(),
        audited: rounded(audited / acts),
        locks_before_end: act.locks_before_end(),
        ..ActCost::default()
    };
    let notices = commits / acts - cost.commits;
    println!(
        "{}: {} acts by one client in {:.1} s; {notices:.2} commits more each, of notices and jobs",
        act.name(),
        driven.acts,
        driven.took.as_secs_f64()
    );
    Ok(cost)
}

/// The processor time of an act of several clients.
fn time(stage: &Stage, node: &Server, act: Act, turn: Duration, cost: &mut ActCost) -> Result<()> {
    act.drive(stage, node, &act.ask(stage, node, act.clients())?, WARM_UP, act.clients())?;
    let ask = act.ask(stage, node, act.clients())?;
    node.rest()?;
    let (of_node, of_database) = (cpu_time(node.pid())?, stage.database.cpu_time()?);
    let driven = act.drive(stage, node, &ask, turn, act.clients())?;
    let each = |before: Duration, after: Duration| {
        #[expect(clippy::cast_precision_loss, reason = "no bench counts to 2^53")]
        let acts = driven.acts as f64;
        rounded(after.saturating_sub(before).as_secs_f64() * 1e6 / acts)
    };
    cost.node_us = each(of_node, cpu_time(node.pid())?);
    cost.database_us = each(of_database, stage.database.cpu_time()?);
    cost.generator_us = each(Duration::ZERO, driven.generator);
    Ok(())
}

fn show_costs(acts: &[ActCost]) {
    println!("\n| act | node | PostgreSQL | round trips | statements | transactions | commits | log | audit log |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for act in acts {
        println!(
            "| {} | {:.3} ms | {:.3} ms | {:.1} | {:.1} | {:.1} | {:.2} | {:.0} B | {:.2} |",
            act.name,
            act.node_us / 1e3,
            act.database_us / 1e3,
            act.round_trips,
            act.statements,
            act.transactions,
            act.commits,
            act.wal_bytes,
            act.audited
        );
    }
}

fn runs(stage: &Stage, nodes: &[Server], turn: Duration, measured: &Measurements) -> Result<Vec<Run>> {
    let work = stage.database.commit_work()?;
    let flush = |delay: Duration| {
        stage.database.delay_commits(delay)?;
        stage.database.flush(delay, work)
    };
    let mut runs = vec![];
    println!("\n| load | nodes | rate | modelled | error | processor time of an act | modelled | error |");
    println!("|---|---|---|---|---|---|---|---|");
    for load in &LOADS {
        let flush = flush(load.delay)?;
        let mut rates: [Vec<Outcome>; 2] = [vec![], vec![]];
        for round in 0..=ROUNDS {
            for count in [1, 2] {
                let rate = under_load(stage, load, &nodes[..count], if round == 0 { WARM_UP } else { turn })?;
                // The first round warms up.
                if round > 0 {
                    rates[count - 1].push(rate);
                }
            }
        }
        for (mut rates, nodes) in rates.into_iter().zip(1..) {
            rates.sort_by(|a, b| a.rate.total_cmp(&b.rate));
            let outcome = &rates[rates.len() / 2];
            let run = Run {
                what: load.what.to_owned(),
                nodes,
                clients: load.clients,
                connections: CONNECTIONS,
                mix: load.mix.iter().map(|(act, count)| (act.name().to_owned(), *count)).collect(),
                delay_us: micros(load.delay),
                flush_us: micros(flush),
                is_processor_bound: load.delay.is_zero(),
                measured: rounded(outcome.rate),
                work_us: rounded(outcome.work * 1e6),
            };
            let modelled = measured.predict(&run);
            let work = measured.predict_work(&run);
            println!(
                "| {} | {nodes} | {:.0} /s ({:.0} to {:.0}) | {modelled:.0} /s | {:+.1} % \
                 | {:.0} µs | {work:.0} µs | {:+.1} % |",
                run.what,
                run.measured,
                rates[0].rate,
                rates[rates.len() - 1].rate,
                (modelled / run.measured - 1.0) * 100.0,
                run.work_us,
                (work / run.work_us - 1.0) * 100.0
            );
            runs.push(run);
        }
    }
    stage.database.delay_commits(Duration::ZERO)?;
    Ok(runs)
}

/// Acts a second, and seconds of the processors for each: of the nodes, of PostgreSQL and of the clients.
struct Outcome {
    rate: f64,
    work: f64,
}

/// All clients of a load at these nodes.
fn under_load(stage: &Stage, load: &Load, nodes: &[Server], turn: Duration) -> Result<Outcome> {
    let counts: Vec<usize> =
        EVERY.iter().map(|act| load.mix.iter().find(|(one, _)| one == act).map_or(0, |(_, count)| *count)).collect();
    let list: Vec<Act> = spread(&counts).into_iter().map(|place| EVERY[place]).collect();
    let clients = load.clients / nodes.len();
    let asks = nodes
        .iter()
        .enumerate()
        .map(|(place, node)| acts::mixed(stage, node, &list, place * clients..(place + 1) * clients))
        .collect::<Result<Vec<_>>>()?;
    let own = || {
        let of_nodes = nodes.iter().map(|node| cpu_time(node.pid())).sum::<Result<Duration>>()?;
        anyhow::Ok(of_nodes + stage.database.cpu_time()?)
    };
    let before = own()?;
    let heard = thread::scope(|scope| {
        let generators: Vec<_> = asks
            .iter()
            .zip(nodes)
            .map(|(ask, node)| scope.spawn(move || load::closed_loop(node.address, turn, ask, clients)))
            .collect();
        let join = |one: thread::ScopedJoinHandle<'_, Result<load::Heard>>| {
            one.join().map_err(|_| anyhow::anyhow!("a load generator failed"))?
        };
        generators.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let work = own()?.saturating_sub(before) + heard.iter().map(generator_time).sum::<Duration>();
    #[expect(clippy::cast_precision_loss, reason = "no bench counts to 2^53")]
    let (rate, acts) = (
        heard.iter().map(|heard| heard.answered as f64 / (heard.took_ms as f64 / 1e3)).sum(),
        heard.iter().map(|heard| heard.answered).sum::<u64>() as f64,
    );
    Ok(Outcome { rate, work: work.as_secs_f64() / acts })
}

/// How many people the analytics of an app count in a second, by the one transaction that counts at a time.
fn tallies(stage: &Stage) -> Result<f64> {
    const PEOPLE: u32 = 3_000;
    let database = &stage.database;
    database.sql(&format!(
        "INSERT INTO account SELECT (jsonb_populate_record(NULL::account, to_jsonb(one) || jsonb_build_object(
             'id', gen_random_uuid()::text, 'email', 'tally-' || n || '@example.com',
             'email_key', 'tally-' || n || '@example.com'))).*
         FROM (SELECT * FROM account LIMIT 1) AS one, generate_series(1, {PEOPLE}) AS n"
    ))?;
    let waiting = || database.number("SELECT COUNT(*) FROM event_tally");
    while waiting()? > 0.0 {
        thread::sleep(Duration::from_millis(200));
    }
    database.sql(&format!(
        "INSERT INTO event_tally (id, app_id, kind, method, account_id, at)
         SELECT gen_random_uuid()::text, '{}', 'seen', '', id, CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT)
         FROM account WHERE email LIKE 'tally-%'",
        stage.app
    ))?;
    // The job comes by every 20 seconds. What a full transaction counts goes at once.
    let (mut first, mut last) = (None, (Instant::now(), waiting()?));
    let started = Instant::now();
    while last.1 > 0.0 {
        anyhow::ensure!(started.elapsed() < Duration::from_mins(2), "analytics are not counted within two minutes");
        thread::sleep(Duration::from_millis(10));
        let now = (Instant::now(), waiting()?);
        if now.1 < last.1 && first.is_none() {
            first = Some(now);
        }
        last = now;
    }
    let first = first.context("analytics were counted at once")?;
    Ok((first.1 / last.0.duration_since(first.0).as_secs_f64()).round())
}

/// What the clients' processes and threads did is charged to them.
fn generator_time(heard: &load::Heard) -> Duration {
    Duration::from_micros(heard.cpu_us)
}
