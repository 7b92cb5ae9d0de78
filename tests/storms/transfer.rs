//! `janua move`: everything from SQLite to PostgreSQL and back, or nothing.
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use bench::{
    JanuaBinary,
    seed::{self, User, Wish},
};
use rusqlite::{Connection, types::Value as Stored};
use serde_json::{Value, json};

use crate::{
    nodes::postgres,
    support::{Server, janua, run},
};

const USERS: u64 = 300;
const PASSWORD: &str = "correct horse battery staple";

/// Each table with its rows, columns in the order of their names.
fn everything(path: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let connection = Connection::open(path).unwrap();
    let names = |sql: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let tables = names("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'");
    let mut found = BTreeMap::new();
    for table in tables.into_iter().filter(|table| table != "schema_migration") {
        let columns = names(&format!("SELECT name FROM pragma_table_info('{table}') ORDER BY name"));
        let mut statement = connection.prepare(&format!("SELECT {} FROM \"{table}\"", columns.join(", "))).unwrap();
        let row = |row: &rusqlite::Row<'_>| {
            let values = (0..columns.len()).map(|place| row.get::<_, Stored>(place).unwrap());
            Ok(format!("{:?}", values.collect::<Vec<_>>()))
        };
        let rows: Vec<String> = statement.query_map([], row).unwrap().map(Result::unwrap).collect();
        let distinct: BTreeSet<String> = rows.iter().cloned().collect();
        assert_eq!(distinct.len(), rows.len(), "{table} has the same row twice");
        found.insert(table, distinct);
    }
    found
}

#[test]
fn everything_moves_to_postgresql_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let binary = JanuaBinary::at_or_built(Some(env!("CARGO_BIN_EXE_janua").into())).unwrap();
    let data = folder.path().join("data");
    seed::fill(&binary, &data, &Wish { users: USERS, orgs: 30, webhooks: 30, events: 3 }).unwrap();
    let (here, back) = (data.join("janua.db"), folder.path().join("back.db"));
    let postgres = postgres();
    let there = postgres.database("moved");
    let moves = |more: &[&str]| run(janua(folder.path(), &[&["move"], more].concat()));

    // Text that PostgreSQL cannot hold: nothing arrives, and it says where it lies.
    let connection = Connection::open(&here).unwrap();
    connection.execute("UPDATE org SET name = 'a' || char(0) WHERE id = (SELECT MIN(id) FROM org)", []).unwrap();
    let (done, said) = moves(&["--to", &there]);
    assert!(!done && said.contains("table org"), "{said}");
    assert_eq!(postgres.sql("moved", "SELECT COUNT(*) FROM account").trim(), "0", "nothing arrived");
    connection.execute("UPDATE org SET name = 'Acme' WHERE id = (SELECT MIN(id) FROM org)", []).unwrap();
    drop(connection);

    let before = everything(&here);
    assert_eq!(before["account"].len() as u64, USERS + 1);
    let (done, said) = moves(&["--to", &there]);
    assert!(done && said.contains("read back and compared"), "{said}");
    let (done, said) = moves(&["--to", &there]);
    assert!(!done && said.contains("has 301 users already"), "{said}");
    let (done, said) = moves(&["--from", &there, "--to", &format!("sqlite:{}", back.display())]);
    assert!(done, "{said}");
    assert_eq!(everything(&here), before, "the source is as it was");
    let after = everything(&back);
    for (table, rows) in &before {
        assert_eq!(after.get(table), Some(rows), "{table}");
    }
    assert_eq!(after.len(), before.len());
    let references = "SELECT COUNT(*) FROM pg_constraint WHERE contype = 'f' AND NOT convalidated";
    assert_eq!(postgres.sql("moved", references).trim(), "0");

    // And the server takes it for its own.
    let server = Server::start(folder.path(), &[("JANUA_RATE_LIMITS", "off"), ("JANUA_DATABASE_URL", &there)]);
    let login = json!({ "email": User(7).email(), "password": PASSWORD, "options": { "tokenDelivery": "body" } });
    let (status, entered) = server.visit().ask("POST", "/auth/login", "", &login.to_string());
    assert_eq!(status, 200, "{entered}");
    let entered: Value = serde_json::from_str(&entered).unwrap();
    let (status, me) = server.visit().ask("GET", "/auth/me", entered["accessToken"].as_str().unwrap(), "");
    assert!(status == 200 && me.contains(&User(7).name()), "{me}");
    let other = folder.path().join("other.db");
    let (done, said) = moves(&["--to", &format!("sqlite:{}", other.display()), "--from", &there]);
    assert!(!done && said.contains("stop all nodes"), "{said}");
}
