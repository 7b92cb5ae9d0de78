//! `bench scale`: what an installation of so many users needs, by what acts cost. It measures nothing: it computes from what
//! `bench nodes` counted, and shows first how near it comes to measured figures. docs/scale.md says which of these are
//! predictions.
mod costs;
mod queue;
mod simulate;
pub mod stored;

use clap::Args;

use self::{
    costs::{Act, BATCH, USAGE, acts},
    simulate::World,
    stored::Measurements,
};

#[derive(Args, Clone)]
pub struct Options {
    /// How many users there are; several sizes with commas
    #[arg(long, value_delimiter = ',', default_value = "1000000,10000000,1000000000")]
    users: Vec<f64>,
    /// Which part of them comes on a day
    #[arg(long, default_value_t = 0.1)]
    daily: f64,
    /// How many times the average the busiest second is
    #[arg(long, default_value_t = 4.0)]
    peak: f64,
    /// Which part of all users the largest app has
    #[arg(long, default_value_t = 0.1)]
    largest: f64,
    /// Cores of a node
    #[arg(long, default_value_t = 16)]
    cores: u32,
    /// Cores of one PostgreSQL server
    #[arg(long, default_value_t = 64)]
    database_cores: u32,
    /// Which part of the processors may be busy
    #[arg(long, default_value_t = 0.6)]
    utilisation: f64,
}

/// A figure that was measured, and what the model says of it.
struct Check {
    what: String,
    unit: &'static str,
    measured: f64,
    modelled: f64,
    /// The largest error that passes.
    allowed: f64,
}

impl Check {
    fn error(&self) -> f64 {
        self.modelled / self.measured - 1.0
    }
}

/// Loads of `bench nodes`, and figures of docs/performance.md. Which of them are predictions, docs/scale.md says.
fn checks() -> Vec<Check> {
    let stored = Measurements::stored();
    let change = costs::SQLITE_COMMIT / 32.0 + 3.0 * costs::SQLITE_ROW;
    let check = |what: &str, unit, measured, modelled| Check {
        what: what.to_owned(),
        unit,
        measured,
        modelled,
        allowed: 0.15,
    };
    let mut checks: Vec<Check> = stored
        .runs
        .iter()
        .map(|run| {
            let nodes = if run.nodes == 1 { "one node" } else { "two nodes" };
            let what = format!("{}; {nodes}", run.what);
            if run.is_processor_bound {
                // Background work and what neighbours do to the processors' caches are not modelled.
                let work = check(&what, "µs of processors an act", run.work_us, stored.predict_work(run));
                Check { allowed: 0.25, ..work }
            } else {
                check(&what, "/s", run.measured, stored.predict(run))
            }
        })
        .collect();
    checks.extend([
        check("raw SQLite: a change of three rows, 32 a commit", "/s", 78_685.0, 1.0 / change),
        check(
            "memory with 10,000 connections",
            "MB",
            229.0,
            (costs::IDLE_BYTES + 10_000.0 * costs::CONNECTION_BYTES) / 1e6,
        ),
        check("a million users on the disk", "GB", 6.0, costs::USER_BYTES * 1e6 / 1e9),
    ]);
    checks
}

/// How often a second a row is changed that every act of this name changes, at two nodes with processors to spare.
fn row_rate(name: &str) -> f64 {
    let acts: Vec<_> = Measurements::stored().act(name).cloned().into_iter().collect();
    simulate::rate(&World {
        acts: &acts,
        list: &[0],
        nodes: 2,
        clients: 32,
        connections: 16,
        cores: 64.0,
        delay: 0.0,
        flush: costs::COMMIT,
        wire: costs::NETWORK,
    })
}

/// What an installation needs.
struct Need {
    /// Acts, commits and lines of the audit log in the busiest second.
    acts: f64,
    commits: f64,
    node_cores: f64,
    nodes: f64,
    /// What 99 of 100 requests wait for a core of a node, in seconds.
    wait: f64,
    database_cores: f64,
    /// Connections of nodes that are busy.
    connections: f64,
    /// How many primaries share the writes.
    primaries: f64,
    audit_bytes_a_day: f64,
    user_bytes: f64,
    /// Usage batches a second of the largest app, which all count in one row.
    hottest_row: f64,
    /// People a second whom analytics count, on average over the day: what is late is counted later.
    counted: f64,
    /// Cores of nodes where all daily users sign in within an hour, as after a restore that ends every session.
    storm_cores: f64,
}

/// Acts a second of one user, on average, at the peak.
fn rate(options: &Options, a_day: f64) -> f64 {
    options.daily * a_day / 86_400.0 * options.peak
}

/// How long an act keeps a connection.
fn hold(act: &Act) -> f64 {
    act.database + act.round_trips * costs::NETWORK + act.commits * costs::COMMIT
}

fn need(options: &Options, users: f64) -> Need {
    let all = acts();
    let sum = |of: fn(&Act) -> f64| all.iter().map(|act| users * rate(options, act.a_day) * of(act)).sum::<f64>();
    let of = |name: &str| all.iter().find(|act| act.name == name);
    let (count, node_cores, commits) = (sum(|_| 1.0), sum(|act| act.node), sum(|act| act.commits));
    let nodes = queue::servers_for(node_cores, 1.0, f64::from(options.cores) * options.utilisation).max(2.0);
    let database_cores = sum(|act| act.database);
    let a_day = all.iter().map(|act| act.a_day * act.audited).sum::<f64>();
    let batches_a_day = of(USAGE).map_or(0.0, |act| act.a_day / BATCH);
    Need {
        acts: count,
        commits,
        node_cores,
        nodes,
        wait: queue::wait_p99(count / nodes, node_cores / count, options.cores),
        database_cores,
        connections: sum(hold),
        primaries: queue::servers_for(database_cores, 1.0, f64::from(options.database_cores) * options.utilisation),
        audit_bytes_a_day: users * options.daily * a_day * costs::AUDIT_BYTES,
        user_bytes: users * costs::USER_BYTES,
        hottest_row: options.largest * users * rate(options, batches_a_day),
        counted: users * options.daily / 86_400.0,
        storm_cores: queue::busy(users * options.daily / 3600.0, of("sign-in").map_or(0.0, |act| act.node)),
    }
}

/// A resource that cannot be had twice, and the number of users at which it is used up.
struct Wall {
    what: &'static str,
    limit: String,
    users: f64,
}

/// By the number of users at which each is met, the first one first.
fn walls(options: &Options) -> Vec<Wall> {
    let one = need(options, 1e9);
    let at = |limit: f64, used: f64| limit / used * 1e9;
    let (alone, batched) = (row_rate(USAGE), row_rate("100 usage events"));
    let primary = f64::from(options.database_cores) * options.utilisation;
    let writer = options.utilisation / (costs::SQLITE_COMMIT / 32.0 + 3.0 * costs::SQLITE_ROW);
    let node = f64::from(options.cores) * options.utilisation;
    let tallied = Measurements::stored().tallied_per_second;
    let largest_table = 10e12;
    let mut walls = vec![
        Wall {
            what: "one node's processors",
            limit: format!("{node:.1} cores busy"),
            users: at(node, one.node_cores),
        },
        Wall {
            what: "the quota row of the largest app, its events in batches of 100",
            limit: format!("{batched:.0} batches/s"),
            users: at(batched * options.utilisation, one.hottest_row),
        },
        Wall {
            what: "the same row, its events one at a time",
            limit: format!("{alone:.0} changes/s"),
            users: at(alone * options.utilisation, one.hottest_row * BATCH),
        },
        Wall {
            what: "one PostgreSQL primary",
            limit: format!("{primary:.1} cores busy"),
            users: at(primary, one.database_cores),
        },
        Wall {
            what: "the one transaction that counts analytics",
            limit: format!("{tallied:.0} people/s"),
            users: at(tallied * options.utilisation, one.counted),
        },
        Wall {
            what: "the one writer of SQLite",
            limit: format!("{writer:.0} changes/s"),
            users: at(writer, one.commits),
        },
        Wall {
            what: "the audit log of a year as one table",
            limit: "10 TB".into(),
            users: at(largest_table, one.audit_bytes_a_day * 365.0),
        },
    ];
    walls.sort_by(|a, b| a.users.total_cmp(&b.users));
    walls
}

/// A number of users as people say it.
fn people(users: f64) -> String {
    if users >= 1e9 { format!("{:.1} billion", users / 1e9) } else { format!("{:.1} million", users / 1e6) }
}

pub fn run(options: &Options) {
    println!("Measured figures and the model (docs/scale.md says which are predictions):\n");
    for check in checks() {
        let error = check.error() * 100.0;
        let note = if error.abs() < check.allowed * 100.0 { "" } else { ", more than it may be off" };
        let Check { what, unit, measured, modelled, .. } = check;
        println!("  {what}: {measured:.1} {unit} measured, {modelled:.1} modelled ({error:+.1} %{note})");
    }
    println!(
        "\nActs of a daily user ({} of all users come on a day, the peak is {} times the average):\n",
        options.daily, options.peak
    );
    for act in acts() {
        let Act { name, a_day, node, database, commits, audited, .. } = act;
        let (node, database) = (node * 1e3, database * 1e3);
        println!(
            "  {name}: {a_day} a day, {node:.3} ms of a node, {database:.3} of PostgreSQL, {commits} commits, \
             {audited} audited"
        );
    }
    for users in &options.users {
        let need = need(options, *users);
        println!("\n{} users:\n", people(*users));
        println!("  {:.0} acts/s and {:.0} commits/s at the peak", need.acts, need.commits);
        println!("  {:.1} cores of nodes busy: {:.0} nodes of {} cores", need.node_cores, need.nodes, options.cores);
        println!("  p99 of the wait for a core: {:.1} ms", need.wait * 1e3);
        println!(
            "  {:.1} cores of PostgreSQL busy: {:.0} primaries of {} cores",
            need.database_cores, need.primaries, options.database_cores
        );
        println!("  {:.0} connections to it busy", need.connections);
        println!(
            "  {:.1} GB of users, {:.1} GB of audit log a day",
            need.user_bytes / 1e9,
            need.audit_bytes_a_day / 1e9
        );
        println!("  {:.1} batches/s in the hottest row", need.hottest_row);
        println!("  {:.0} people/s counted by analytics, on average", need.counted);
        println!("  {:.0} cores where all daily users sign in within an hour", need.storm_cores);
    }
    println!("\nWalls, by the number of users at which they are met:\n");
    for wall in walls(options) {
        println!("  {}: {} ({})", people(wall.users), wall.what, wall.limit);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn options(words: &[&str]) -> Options {
        Line::parse_from([&["scale"], words].concat()).options
    }

    #[test]
    fn the_model_comes_near_what_was_measured() {
        let checks = checks();
        assert!(checks.len() >= 8 + 3, "there is no bench/nodes.json, or it cannot be read");
        for check in checks {
            assert!(check.error().abs() < check.allowed, "{}: {:+.3}", check.what, check.error());
        }
    }

    #[test]
    fn needs_grow_with_the_users_and_the_peak() {
        let plain = options(&[]);
        let (one, ten) = (need(&plain, 1e6), need(&plain, 1e7));
        assert!((ten.commits / one.commits - 10.0).abs() < 1e-9);
        assert!(ten.nodes >= one.nodes && one.nodes >= 2.0, "one node may stop at any moment");
        let calm = need(&options(&["--peak", "1"]), 1e7);
        assert!((ten.acts / calm.acts - 4.0).abs() < 1e-9);
        assert!((calm.audit_bytes_a_day - ten.audit_bytes_a_day).abs() < 1e-6, "a day has the same lines");
        assert!(ten.wait.is_finite() && ten.wait < 0.1, "{}", ten.wait);
    }

    #[test]
    fn a_wall_is_met_where_its_resource_is_used_up() {
        let options = options(&[]);
        let walls = walls(&options);
        assert!(walls.windows(2).all(|pair| pair[0].users <= pair[1].users));
        let primary = walls.iter().find(|wall| wall.what.contains("primary")).unwrap();
        assert!(need(&options, primary.users * 0.99).primaries <= 1.0);
        assert!(need(&options, primary.users * 1.01).primaries >= 2.0);
    }
}
