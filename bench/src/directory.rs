//! A directory that has grown: asking for one user by name, and for a page of a hundred, among 100,000 users, against the
//! same among 1,000.
use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result};
use rusqlite::{Connection, params};
use serde_json::json;

use crate::{
    figure::{Figure, Goal, Unit},
    identity,
    load::{self, Ask},
    process::{Core, Server},
    rounds::{self, Rounds, Side, Tally},
    servers::JanuaBinary,
};

const SERVER: Core = Core::Only(0);
const GENERATOR: Core = Core::Only(1);
const WARM_UP: Duration = Duration::from_millis(500);
const FEW: i64 = 1_000;
const MANY: i64 = 100_000;
/// Growth of a fifth at the most.
const GOAL: Goal = Goal::Ratio(0.83);

pub fn measure(rounds: &Rounds, janua: &JanuaBinary) -> Result<Vec<Figure>> {
    let (few, few_token) = grown(&rounds.folder()?, janua, FEW)?;
    let (many, many_token) = grown(&rounds.folder()?, janua, MANY)?;
    let pages = [
        (
            "scim-one",
            "filter by userName among 100,000; among 1,000",
            "/scim/v2/Users?filter=userName%20eq%20%22user-777%22",
        ),
        ("scim-page", "page of 100 among 100,000; among 1,000", "/scim/v2/Users?startIndex=801&count=100"),
    ];
    let mut figures = vec![];
    for (scenario, what, path) in pages {
        let ask = |token: &str| Ask::again(load::request("GET", path, token, "", "keep-alive"));
        let (of_few, of_many) = (ask(&few_token), ask(&many_token));
        for (server, ask) in [(&few, &of_few), (&many, &of_many)] {
            load::with(server.address, WARM_UP, GENERATOR, ask)?;
        }
        let limit = || side(&few, &of_few);
        let ours = || side(&many, &of_many);
        let sides = rounds::interleave(scenario, rounds.turn, limit, ours)?;
        let samples = sides.only(|rate| rate.per_cpu_second);
        figures.push(Figure { scenario, what, unit: Unit::PerCpuSecond, samples, goal: Some(GOAL) });
    }
    Ok(figures)
}

#[expect(clippy::unnecessary_wraps, reason = "sides may fail to be made")]
fn side<'a>(server: &'a Server, ask: &'a Ask) -> Result<Side<'a>> {
    Ok(Box::new(move |slice| Tally::of(server.pid(), || load::with(server.address, slice, GENERATOR, ask))))
}

/// A server with an organization of so many users, and a token for it.
fn grown(folder: &Path, janua: &JanuaBinary, users: i64) -> Result<(Server, String)> {
    let server = janua.serve(folder, SERVER)?;
    identity::register(&server, folder)?;
    let signed_in = identity::post(server.address, "/auth/login", &identity::login())?;
    let access = signed_in["accessToken"].as_str().context("no access token")?;
    let org = identity::post_as(server.address, access, "/org", &json!({ "name": "Bench" }))?;
    let org = org["id"].as_str().context("no id")?.to_owned();
    let token =
        identity::post_as(server.address, access, &format!("/org/{org}/scim-tokens"), &json!({ "name": "bench" }))?;
    let token = token["value"].as_str().context("no token")?.to_owned();
    drop(server);
    fill(folder, &org, users)?;
    Ok((janua.serve(folder, SERVER)?, token))
}

/// Straight into the database, as provisioning each of them would have left it.
fn fill(folder: &Path, org: &str, users: i64) -> Result<()> {
    let file = std::fs::read_dir(folder)?.filter_map(Result::ok).map(|entry| entry.path());
    let mut files = file.filter(|path| path.extension().is_some_and(|end| end == "db"));
    let file = files.next().context("no database")?;
    let mut connection = Connection::open(file)?;
    let tx = connection.transaction()?;
    {
        let mut person = tx.prepare(
            "INSERT INTO person (org_id, id, place, source, active, is_home, comes_back, user_name, user_name_key,
                                 external_id, email, email_key, attributes, version, created_at, updated_at)
             VALUES (?1, ?2, ?3, 'scim', 1, 0, 0, ?4, ?4, ?4, ?5, ?5, ?6, 1, 0, 0)",
        )?;
        let mut value = tx.prepare(
            "INSERT INTO person_value (org_id, person_id, path, item, value, folded) VALUES (?1, ?2, ?3, 0, ?4, ?4)",
        )?;
        for number in 1..users {
            let (id, name) = (format!("0198c6a2-7d1e-7000-8000-{number:012x}"), format!("user-{number}"));
            let email = format!("{name}@example.com");
            let attributes = json!({
                "displayName": name, "name": { "givenName": "User", "familyName": number.to_string() },
                "emails": [{ "value": email, "type": "work", "primary": true }],
            });
            person.execute(params![org, id, number + 1, name, email, attributes.to_string()])?;
            for (path, text) in [("displayname", &name), ("emails.value", &email)] {
                value.execute(params![org, id, path, text])?;
            }
        }
        tx.execute("UPDATE org SET people = ?2 WHERE id = ?1", params![org, users])?;
    }
    tx.commit()?;
    Ok(())
}
