//! Agents with wallets among many, beside a thousand: lookups of wallets that are known and of others, an agent, a page of a list, a
//! challenge; and how a server with so many starts, and what it holds.
//!
//! The first agent is registered and proven by requests. The others are copies of its rows with ids and wallets of their own, a
//! hundred for each organization.
use std::{
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use rusqlite::{Connection, ToSql, params_from_iter};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    client::{self, Who, ask, text},
    figure::{Figure, Goal, Unit},
    ground::Ground,
    growth::{Cost, thousands},
    identity::login,
    machines::{Wallet, agent, proves},
    process::{Core, Server},
    rounds::{self, Rounds},
    seed::uuid,
    servers::JanuaBinary,
    sizes::{self, Asked, SERVER, get, mixed},
};

const FEW: u64 = 1_000;
/// An organization has a hundred machines at most.
const OF_ORG: u64 = 100;
/// How many different requests a question has, where it has many.
const VARIETY: u64 = 500;
const STARTS: usize = 9;
const SETTLING: Duration = Duration::from_secs(3);

// The kinds of ids.
const ORG: u16 = 11;
const AGENT: u16 = 12;

#[derive(clap::Args)]
pub struct Options {
    /// How many agents there are
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1000..))]
    agents: u64,
    /// Where the data folders are, or are created and kept [default: new ones, deleted at the end]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct Note {
    agents: u64,
    org: String,
}

/// A server with so many agents.
struct Place {
    server: Server,
    folder: PathBuf,
    note: Note,
    /// The owner's session.
    token: String,
}

pub fn measure(rounds: &Rounds, janua: &JanuaBinary, options: &Options) -> Result<Vec<Figure>> {
    let settle = |count: u64| -> Result<Place> {
        let folder = sizes::folder(rounds, options.data.as_deref(), &format!("agents-{count}"))?;
        let note = sizes::filled(&folder, |folder| fill(janua, folder, count))?;
        let server = janua.serve(&folder, SERVER)?;
        let token = text(&ask(server.address, "POST", "/auth/login", &Who::default(), &login())?, "accessToken")?;
        Ok(Place { server, folder, note, token })
    };
    let (few, many) = (settle(FEW)?, settle(options.agents)?);
    few.check().context("among few agents")?;
    many.check().context("among many agents")?;
    rustix::fs::sync();
    let count = thousands(many.note.agents);
    let say =
        |what: &str| -> &'static str { format!("{what} among {count} agents; among {}", thousands(FEW)).leak() };
    let mut figures = vec![];
    for question in QUESTIONS {
        let sides = sizes::ask_both(rounds, question.name, few.asked(question), many.asked(question))?;
        let figure = |what, pick: fn(&Cost) -> f64, goal| {
            let (scenario, unit, samples) = (question.name, Unit::Microseconds, sides.only(pick));
            Figure { scenario, what: say(what), unit, samples, goal }
        };
        figures.push(figure("p50", |cost| cost.p50_ms * 1e3, Some(Goal::RatioAtMost(1.2))));
        figures.push(figure("p99", |cost| cost.p99_ms * 1e3, None));
        figures.push(figure("processor time", |cost| cost.cpu_us, Some(Goal::RatioAtMost(1.2))));
    }
    let [few, many] = [few, many].map(|place| place.folder);
    let starts = |folder: &Path| Ok(janua.serve(folder, Core::Any)?.answered_after.as_secs_f64() * 1e3);
    let samples = rounds::alternate("start", STARTS, || starts(&few), || starts(&many))?;
    let (scenario, what) = ("agents start", say("start to first answer"));
    figures.push(Figure { scenario, what, unit: Unit::Milliseconds, samples, goal: Some(Goal::RatioAtMost(1.5)) });
    let held = |folder: &Path| {
        let server = janua.serve(folder, Core::Any)?;
        thread::sleep(SETTLING);
        server.resident_mb()
    };
    let samples = rounds::alternate("memory", 3, || held(&few), || held(&many))?;
    let (scenario, what) = ("agents memory", say("resident, idle 3 s after start"));
    figures.push(Figure { scenario, what, unit: Unit::Megabytes, samples, goal: Some(Goal::RatioAtMost(1.2)) });
    Ok(figures)
}

struct Question {
    name: &'static str,
    requests: fn(&Place) -> Vec<Vec<u8>>,
}

const QUESTIONS: &[Question] = &[
    Question { name: "known wallet", requests: |place| place.lookups(wallet) },
    Question { name: "other wallet", requests: |place| place.lookups(other_wallet) },
    Question {
        name: "an agent",
        requests: |place| {
            (1..OF_ORG).map(|number| get(&format!("/agent/{}", uuid(AGENT, number)), &place.token)).collect()
        },
    },
    Question {
        name: "list of agents",
        requests: |place| vec![get(&format!("/agent/list?orgId={}", place.note.org), &place.token)],
    },
    Question {
        name: "challenge",
        requests: |place| {
            place
                .some()
                .map(|number| {
                    let body = json!({ "wallet": wallet(number), "agentId": uuid(AGENT, number) }).to_string();
                    client::request("POST", "/agent/challenge", &Who::default(), &body, "keep-alive")
                })
                .collect()
        },
    },
];

impl Place {
    fn asked(&self, question: &Question) -> Asked<'_> {
        Asked { server: &self.server, requests: (question.requests)(self) }
    }

    fn some(&self) -> impl Iterator<Item = u64> + use<> {
        let count = self.note.agents;
        (0..VARIETY).map(move |place| 1 + mixed(place, 5) % (count - 1))
    }

    fn lookups(&self, wallet: fn(u64) -> String) -> Vec<Vec<u8>> {
        self.some().map(|number| get(&format!("/verify/agent/{}", wallet(number)), "")).collect()
    }

    /// The answers are those of the rows.
    fn check(&self) -> Result<()> {
        let address = self.server.address;
        let look = |wallet: &str| {
            let path = format!("/verify/agent/{wallet}?details=true");
            ask(address, "GET", &path, &Who::default(), &Value::Null)
        };
        for number in self.some().take(20) {
            let found = look(&wallet(number))?;
            ensure!(found["verified"] == true, "the wallet of agent {number}: {found}");
            let other = look(&other_wallet(number))?;
            ensure!(other["verified"] == false, "a wallet of no agent: {other}");
        }
        let path = format!("/agent/list?orgId={}&limit=200", self.note.org);
        let listed = ask(address, "GET", &path, &Who::with(&self.token), &Value::Null)?;
        let listed = listed["agents"].as_array().map_or(0, Vec::len) as u64;
        ensure!(listed == OF_ORG, "the organization has {listed} agents and not {OF_ORG}");
        Ok(())
    }
}

fn wallet(number: u64) -> String {
    format!("0x{:016x}{number:024x}", mixed(number, 3))
}

/// Of no agent.
fn other_wallet(number: u64) -> String {
    format!("0x{:016x}{number:024x}", mixed(number, 4))
}

fn fill(janua: &JanuaBinary, folder: &Path, count: u64) -> Result<Note> {
    let ground = Ground::lay(janua, folder, Core::Any, &[("JANUA_RATE_LIMITS", "off")])?;
    let wallet = Wallet::new(1)?;
    let first = agent(&ground, &wallet, &json!({}))?;
    proves(&ground, &wallet, &first)?;
    let org = ground.org.clone();
    // The server closes its file.
    drop(ground);
    sizes::write(folder, count, |connection| {
        let tx = connection.transaction()?;
        for number in 1..count.div_ceil(OF_ORG) {
            let (id, slug) = (uuid(ORG, number), format!("agents-{number}"));
            copy(&tx, "org", ("id", &org), &[("id", &id), ("slug", &slug)])?;
        }
        for number in 1..count {
            let (id, wallet) = (uuid(AGENT, number), self::wallet(number));
            let its_org = if number < OF_ORG { org.clone() } else { uuid(ORG, number / OF_ORG) };
            copy(&tx, "machine", ("id", &first), &[("id", &id), ("org_id", &its_org)])?;
            copy(&tx, "agent", ("machine_id", &first), &[("machine_id", &id), ("wallet", &wallet)])?;
        }
        Ok(tx.commit()?)
    })?;
    Ok(Note { agents: count, org })
}

fn columns(connection: &Connection, table: &str) -> Result<Vec<String>> {
    let mut statement = connection.prepare_cached(&format!("SELECT name FROM pragma_table_info('{table}')"))?;
    Ok(statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// A copy of a row in which some columns are others.
fn copy(
    connection: &Connection,
    table: &str,
    (key, value): (&str, &dyn ToSql),
    new: &[(&str, &dyn ToSql)],
) -> Result<()> {
    let columns = columns(connection, table)?;
    let taken = columns.iter().map(|column| {
        let place = new.iter().position(|(name, _)| name == column);
        place.map_or_else(|| column.clone(), |place| format!("?{}", place + 2))
    });
    let taken: Vec<String> = taken.collect();
    let sql = format!(
        "INSERT INTO {table} ({}) SELECT {} FROM {table} WHERE {key} = ?1",
        columns.join(", "),
        taken.join(", ")
    );
    let values = std::iter::once(value).chain(new.iter().map(|(_, value)| *value));
    let written = connection.prepare_cached(&sql)?.execute(params_from_iter(values))?;
    ensure!(written == 1, "{written} rows of {table} were copied");
    Ok(())
}
