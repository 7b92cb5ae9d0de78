//! Two data folders, one with few rows and one with many, that answer the same requests in turn; and how such a folder is
//! filled: once, straight into the SQLite file, and kept for the next run where the caller wants that.
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use rusqlite::Connection;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    client::{self, Who},
    ground::database,
    growth::{Cost, cost},
    load::{self, Ask},
    process::{Core, Server, cpu_time},
    rounds::{self, ROUNDS, Rounds, SHORT_ROUNDS, Sides},
};

pub const SERVER: Core = Core::Only(0);
pub const GENERATOR: Core = Core::Only(1);
pub const DAY: i64 = 24 * 3600 * 1000;
/// How long one side is asked before the other has its turn.
const SLICE: Duration = Duration::from_millis(100);
const WARM_UP: Duration = Duration::from_millis(500);
/// What a folder holds. It is written last, so that a folder without it is not whole.
const NOTE: &str = "seeded.json";
/// References are checked in folders of up to so many rows of the main kind. More would take minutes.
const CHECKED: u64 = 10_000;

/// A server, and the requests that it is asked in a circle.
pub struct Asked<'a> {
    pub server: &'a Server,
    pub requests: Vec<Vec<u8>>,
}

/// Asks both servers in turn, one request at a time. The median and the processor time are by request.
pub fn ask_both(rounds: &Rounds, name: &str, few: Asked<'_>, many: Asked<'_>) -> Result<Sides<Cost>> {
    let turn = rounds.turn.as_millis() * ROUNDS as u128 / SHORT_ROUNDS as u128;
    let slices = usize::try_from(turn / SLICE.as_millis())?.max(1);
    let sides = [few, many].map(|side| (side.server, Ask::Many(side.requests)));
    for (server, ask) in &sides {
        load::timed(server.address, WARM_UP, GENERATOR, ask, 1)?;
    }
    let bar = rounds::bar(name, SHORT_ROUNDS * slices);
    let mut costs = [vec![], vec![]];
    for _ in 0..SHORT_ROUNDS {
        let mut heard = [(vec![], Duration::ZERO), (vec![], Duration::ZERO)];
        for _ in 0..slices {
            for ((server, ask), (micros, cpu)) in sides.iter().zip(&mut heard) {
                let before = cpu_time(server.pid())?;
                micros.extend(load::timed(server.address, SLICE, GENERATOR, ask, 1)?.micros);
                *cpu += cpu_time(server.pid())?.saturating_sub(before);
                bar.inc(1);
            }
        }
        for ((mut micros, cpu), costs) in heard.into_iter().zip(&mut costs) {
            costs.push(cost(&mut micros, cpu));
        }
    }
    bar.finish_and_clear();
    let [limit, ours] = costs;
    Ok(Sides { limit, ours })
}

/// A request that keeps its connection.
pub fn get(path: &str, token: &str) -> Vec<u8> {
    client::request("GET", path, &Who::with(token), "", "keep-alive")
}

/// The note of a folder, which is filled if it has none yet.
pub fn filled<T>(folder: &Path, fill: impl FnOnce(&Path) -> Result<T>) -> Result<T>
where
    T: Serialize + DeserializeOwned,
{
    let note = folder.join(NOTE);
    if note.exists() {
        return Ok(serde_json::from_slice(&fs::read(note)?)?);
    }
    fs::create_dir_all(folder)?;
    ensure!(fs::read_dir(folder)?.next().is_none(), "{} is not empty, and was not filled by this", folder.display());
    let made = fill(folder)?;
    fs::write(note, serde_json::to_vec_pretty(&made)?)?;
    Ok(made)
}

/// The folder of a size: under `--data`, or a new one that goes with the bench.
pub fn folder(rounds: &Rounds, data: Option<&Path>, name: &str) -> Result<PathBuf> {
    data.map_or_else(|| rounds.folder(), |data| Ok(data.to_owned())).map(|root| root.join(name))
}

/// Writes into the database of a folder that no server has open. A crash leaves a folder without a note.
pub fn write(folder: &Path, rows: u64, fill: impl FnOnce(&mut Connection) -> Result<()>) -> Result<()> {
    let mut connection = Connection::open(database(folder))?;
    for (name, value) in
        [("journal_mode", "OFF"), ("synchronous", "OFF"), ("foreign_keys", "OFF"), ("cache_size", "-1500000")]
    {
        connection.pragma_update(None, name, value)?;
    }
    fill(&mut connection)?;
    if rows <= CHECKED {
        let mut dangling = connection.prepare("PRAGMA foreign_key_check")?;
        ensure!(!dangling.exists([])?, "a row refers to one that is not there");
    }
    // As the server expects it.
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(())
}

/// The time now, in milliseconds.
pub fn now() -> Result<i64> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(i64::try_from(since.as_millis())?)
}

/// The bits of numbers, mixed: neighbours have nothing in common, and a number gives the same each time.
pub fn mixed(number: u64, salt: u64) -> u64 {
    let mut bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits = (bits ^ bits >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^ bits >> 32
}

/// One of the numbers below `most`.
pub fn pick(number: u64, salt: u64, most: u64) -> u64 {
    mixed(number, salt) % most
}
