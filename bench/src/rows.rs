//! What a request writes: a change with its line in the audit log, against the same two statements by raw SQLite, 32 of
//! them a commit; and signing up through to the account and the mail, against one raw hash and as many raw inserts.
use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use rusqlite::{Connection, OpenFlags, params};
use serde_json::json;

use crate::{
    entry::{self, BODY, INSERT, KIND},
    figure::Figure,
    ground::{Ground, database},
    identity::{PASSWORD, both_ways, raw_hash, side},
    load::{self, Ask},
    process::{Core, Server},
    rounds::{self, Rounds, Side, Tally},
    servers::JanuaBinary,
};

const SERVER: Core = Core::Only(0);
const GENERATOR: Core = Core::Only(1);
/// As many as ask at once, hence as many as can share a commit.
const UNITS_PER_COMMIT: usize = load::CONNECTIONS;
/// Somebody who signs up leaves a job, an account, a secret, a line in the log and a mail.
const ROWS_OF_A_SIGN_UP: usize = 5;
const PATIENCE: Duration = Duration::from_mins(2);

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let mut figures = audited(rounds, janua)?;
    figures.extend(sign_up(rounds, janua)?);
    Ok(figures)
}

fn audited(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let ground = Ground::lay(janua, &rounds.folder()?, SERVER, &[("JANUA_RATE_LIMITS", "off")])?;
    let ask = Ask::again(ground.profile_change());
    // The limit has the same tables with the same indexes, in a folder of its own.
    let other = rounds.folder()?;
    drop(Ground::lay(janua, &other, SERVER, &[("JANUA_RATE_LIMITS", "off")])?);
    let limit = || raw_changes(&database(&other));
    let ours = || side(ground.server.pid(), |slice| load::asleep(ground.address(), slice, GENERATOR, &ask));
    let sides = rounds::interleave("audited", rounds.turn, limit, ours)?;
    let what = "PATCH /user/profile by processor time; same rows raw, 32 a commit";
    Ok(both_ways("audited", what, &sides, None))
}

/// One change of an account and one line in the audit log, again and again.
fn raw_changes(path: &Path) -> Result<Side<'static>> {
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let account: String = connection.query_row("SELECT id FROM account LIMIT 1", [], |row| row.get(0))?;
    let mut last: i64 = connection.query_row("SELECT COUNT(*) FROM audit_event", [], |row| row.get(0))?;
    Ok(Box::new(move |slice| {
        Tally::here(SERVER, || {
            let (first, until) = (last, Instant::now() + slice);
            while Instant::now() < until {
                let tx = connection.transaction()?;
                {
                    let mut change = tx.prepare_cached(
                        "UPDATE account SET name = ?2, bio = NULL, accepts_marketing = 0, updated_at = ?3 WHERE id = ?1",
                    )?;
                    let mut note = tx.prepare_cached(
                        "INSERT INTO audit_event (id, type, account_id, actor, ip, at, details)
                         VALUES (?1, 'PROFILE_UPDATED', ?2, ?2, '127.0.0.1', ?3, '{\"fields\":[\"name\"]}')",
                    )?;
                    for _ in 0..UNITS_PER_COMMIT {
                        last += 1;
                        change.execute(params![account, "Bench", last])?;
                        note.execute(params![entry::id(last), account, last])?;
                    }
                }
                tx.commit()?;
            }
            Ok(last.abs_diff(first))
        })
    }))
}

/// How many sign-ups are prepared for a round: more than fit into it.
const NEWCOMERS: usize = 4_000;

fn sign_up(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let folder = rounds.folder()?;
    let server = janua.serve(&folder, SERVER)?;
    let hash = raw_hash()?;
    let mut round = 0;
    let ours = || -> Result<Side<'_>> {
        round += 1;
        let mut slice_of_round = 0;
        let (server, folder) = (&server, &folder);
        Ok(Box::new(move |slice| {
            slice_of_round += 1;
            let newcomer = |number| {
                let email = format!("new-{round}-{slice_of_round}-{number}@example.com");
                let body = json!({ "email": email, "password": PASSWORD, "name": "Bench" }).to_string();
                load::request("POST", "/auth/register", "", &body, "keep-alive")
            };
            let ask = Ask::Many((0..NEWCOMERS).map(newcomer).collect());
            Tally::of(server.pid(), || settled(server, folder, slice, &ask))
        }))
    };
    let limit = || {
        let path = tempfile::tempdir_in(rounds.folder()?)?.keep().join("raw.db");
        let mut connection = entry::raw(&path)?;
        let (mut last, hash) = (0, &hash);
        let side: Side<'_> = Box::new(move |slice| {
            Tally::here(SERVER, || {
                let (mut count, until) = (0, Instant::now() + slice);
                while Instant::now() < until {
                    let tx = connection.transaction()?;
                    for _ in 0..UNITS_PER_COMMIT {
                        hash()?;
                        for _ in 0..ROWS_OF_A_SIGN_UP {
                            last += 1;
                            tx.prepare_cached(INSERT)?.execute((entry::id(last), KIND, BODY, last))?;
                        }
                        count += 1;
                    }
                    tx.commit()?;
                }
                Ok(count)
            })
        });
        Ok(side)
    };
    let sides = rounds::interleave("sign-up", rounds.turn, limit, ours)?;
    let what = "sign-up to the mail by processor time; raw argon2id, five raw inserts";
    Ok(both_ways("sign-up", what, &sides, None))
}

/// Lets people sign up for a while, and waits until each of them has an account.
fn settled(server: &Server, folder: &Path, slice: Duration, ask: &Ask) -> Result<u64> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database(folder), flags)?;
    let count = |sql: &str| -> Result<i64> { Ok(connection.query_row(sql, [], |row| row.get(0))?) };
    let before = count("SELECT COUNT(*) FROM account")?;
    let answered = load::asleep(server.address, slice, GENERATOR, ask)?;
    let (started, expected) = (Instant::now(), before + i64::try_from(answered)?);
    while count("SELECT COUNT(*) FROM account")? < expected || count("SELECT COUNT(*) FROM mail")? > 0 {
        ensure!(started.elapsed() < PATIENCE, "those who signed up get no account, or no mail");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(answered)
}
