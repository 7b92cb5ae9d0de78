//! `janua move`: everything from SQLite to PostgreSQL and back, or nothing; and every object to a bucket and back.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use bench::{
    JanuaBinary,
    seed::{self, User, Wish},
};
use kernel::testing::S3Server;
use rusqlite::{Connection, params_from_iter, types::Value as Stored};
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

/// The columns of a table: name, type, whether it may be null, and what it refers to.
struct Column {
    name: String,
    kind: String,
    may_be_null: bool,
    refers_to: Option<(String, String)>,
}

fn columns(connection: &Connection, table: &str) -> Vec<Column> {
    let sql = format!(
        "SELECT c.name, c.type, c.\"notnull\" = 0 AND c.pk = 0, f.\"table\", f.\"to\"
         FROM pragma_table_info('{table}') c
         LEFT JOIN pragma_foreign_key_list('{table}') f ON f.\"from\" = c.name GROUP BY c.name"
    );
    let mut statement = connection.prepare(&sql).unwrap();
    let column = |row: &rusqlite::Row<'_>| {
        let (table, column): (Option<String>, Option<String>) = (row.get(3)?, row.get(4)?);
        let (name, kind, may_be_null) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(Column { name, kind, may_be_null, refers_to: table.zip(column) })
    };
    statement.query_map([], column).unwrap().map(Result::unwrap).collect()
}

const ROWS: i64 = 3;

/// What the `row`th made-up row of a table has in a column: values that engines write differently, each only once.
fn made_up(connection: &Connection, table: &str, column: &Column, row: i64) -> Stored {
    if row == 1 && column.may_be_null {
        return Stored::Null;
    }
    if let Some((parent, name)) = &column.refers_to {
        let there = columns(connection, parent);
        return made_up(connection, parent, there.iter().find(|column| column.name == *name).unwrap(), row);
    }
    match column.kind.as_str() {
        "TEXT" => Stored::Text(format!("{table}.{} {row}: ü \u{1f980} ' \" \\ \r\n\t{{}}", column.name)),
        "BIGINT" => Stored::Integer([i64::MAX, i64::MIN, 1 << 53 | 1][usize::try_from(row).unwrap()]),
        "BOOLEAN" => Stored::Integer(row % 2),
        "BYTEA" => Stored::Blob(vec![0, 255, b'\\', u8::try_from(row).unwrap(), 0]),
        other => panic!("{table}.{}: how is a {other} moved?", column.name),
    }
}

/// Rows in every table. Those of the product hold what a version happens to write; these, whatever a column can.
fn fill_every_table(path: &Path) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch("PRAGMA foreign_keys = OFF; BEGIN").unwrap();
    for table in everything(path).into_keys() {
        let columns = columns(&connection, &table);
        let names: Vec<_> = columns.iter().map(|column| format!("\"{}\"", column.name)).collect();
        let places = vec!["?"; columns.len()].join(", ");
        let sql = format!("INSERT INTO {table} ({}) VALUES ({places})", names.join(", "));
        for row in 0..ROWS {
            let values = columns.iter().map(|column| made_up(&connection, &table, column, row));
            connection.execute(&sql, params_from_iter(values)).unwrap_or_else(|error| panic!("{table}: {error}"));
        }
    }
    connection.execute_batch("COMMIT").unwrap();
    let broken =
        connection.query_row("SELECT COUNT(*) FROM pragma_foreign_key_check()", [], |row| row.get::<_, i64>(0));
    assert_eq!(broken.unwrap(), 0, "the made-up rows fit each other");
}

#[test]
fn every_table_moves_to_postgresql_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let (done, said) = run(janua(folder.path(), &["migrate"]));
    assert!(done, "{said}");
    let (here, back) = (folder.path().join("data/janua.db"), folder.path().join("back.db"));
    fill_every_table(&here);
    let before = everything(&here);
    let empty: Vec<_> = before.iter().filter(|(_, rows)| rows.len() < 3).map(|(table, _)| table).collect();
    assert!(empty.is_empty() && before.len() > 140, "{empty:?} would be compared empty");
    let postgres = postgres();
    let there = postgres.database("every_table");
    let (done, said) = run(janua(folder.path(), &["move", "--to", &there]));
    assert!(done, "{said}");
    for (table, rows) in &before {
        let count = postgres.sql("every_table", &format!("SELECT COUNT(*) FROM \"{table}\""));
        assert_eq!(count.trim(), rows.len().to_string(), "{table}");
    }
    let target = format!("sqlite:{}", back.display());
    let (done, said) = run(janua(folder.path(), &["move", "--from", &there, "--to", &target]));
    assert!(done, "{said}");
    let after = everything(&back);
    for (table, rows) in &before {
        assert_eq!(after.get(table), Some(rows), "{table}");
    }
    assert_eq!((after.len(), everything(&here)), (before.len(), before));
}

/// Each object with its bytes.
fn objects(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(inside) = folders.pop() {
        for entry in fs::read_dir(inside).into_iter().flatten().map(Result::unwrap) {
            let name = entry.path().strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if name.split('/').all(|part| !part.starts_with('.')) {
                found.insert(name, fs::read(entry.path()).unwrap());
            }
        }
    }
    found
}

#[test]
fn objects_move_to_a_bucket_and_back() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bucket = runtime.block_on(S3Server::start());
    let settings = bucket.config();
    let secret = |key: &Option<kernel::crypto::Secret>| key.as_ref().unwrap().expose().to_owned();
    let (access_key, secret_key) = (secret(&settings.s3_access_key), secret(&settings.s3_secret_key));
    let s3 = [
        ("JANUA_S3_URL", bucket.url.as_str()),
        ("JANUA_S3_BUCKET", settings.s3_bucket.as_str()),
        ("JANUA_S3_ACCESS_KEY", access_key.as_str()),
        ("JANUA_S3_SECRET_KEY", secret_key.as_str()),
    ];
    let installation = || {
        let folder = tempfile::tempdir().unwrap();
        let (done, said) = run(janua(folder.path(), &["migrate"]));
        assert!(done, "{said}");
        folder
    };
    let folder = installation();
    let moves = |folder: &Path, to: &str| {
        let mut command: Command = janua(folder, &["move", "--objects", to]);
        command.envs(s3);
        run(command)
    };
    // More than one list names, one that goes in parts, an empty one, a picture.
    let data = folder.path().join("data/objects");
    let write = |name: String, length: usize| {
        let path = data.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let seed = path.as_os_str().len() + length;
        let bytes: Vec<u8> = (0..length).map(|at| u8::try_from((at * 31 + at / 251 + seed) % 256).unwrap()).collect();
        fs::write(path, bytes).unwrap();
    };
    (0..1100).for_each(|n| write(format!("o/{:02x}/{n:030x}", n % 256), n));
    write("sites/0123456789abcdef0123456789abcdef.pack".into(), 20 * 1024 * 1024 + 7);
    write("skills/0123456789abcdef0123456789abcdef.tgz".into(), 0);
    write("pictures/0123456789abcdef0123456789abcdef.png".into(), 500);
    let before = objects(&data);
    assert_eq!(before.len(), 1103);

    let (done, said) = moves(folder.path(), "folder");
    assert!(done && said.contains("0 objects"), "an empty bucket has nothing: {said}");
    // What others keep in the bucket stays there, and stays there alone.
    fs::write(bucket.file("README.TXT"), "not ours").unwrap();
    let (done, said) = moves(folder.path(), "bucket");
    assert!(done && said.contains("1103 objects") && said.contains("0 were there already"), "{said}");
    let mut there = objects(&bucket.file(""));
    there.retain(|name, _| before.contains_key(name));
    assert!(there == before, "byte for byte");
    assert!(objects(&data) == before, "the folder is as it was");

    // Broken off: what is there is compared, and the rest is sent.
    for name in before.keys().take(10) {
        fs::remove_file(bucket.file(name)).unwrap();
    }
    let (done, said) = moves(folder.path(), "bucket");
    assert!(done && said.contains("10 objects") && said.contains("1093 were there already"), "{said}");
    // A damaged one of the same length is found, and named.
    let damaged = "pictures/0123456789abcdef0123456789abcdef.png";
    let mut bytes = before[damaged].clone();
    bytes[7] ^= 1;
    fs::write(bucket.file(damaged), &bytes).unwrap();
    let (done, said) = moves(folder.path(), "bucket");
    assert!(!done && said.contains(damaged) && said.contains("other bytes"), "{said}");
    fs::remove_file(bucket.file(damaged)).unwrap();
    let (done, said) = moves(folder.path(), "bucket");
    assert!(done && said.contains("1 object"), "{said}");

    // The server takes the bucket for its own.
    let server = Server::start(folder.path(), &s3);
    let (status, answer) = server.get(&format!("/files/{damaged}"));
    assert!(status == 200 && answer.contains("image/png"), "{answer}");
    drop(server);

    let back = installation();
    let (done, said) = moves(back.path(), "folder");
    assert!(done && said.contains("1103 objects"), "{said}");
    assert!(objects(&back.path().join("data/objects")) == before, "and back, byte for byte");
    let (done, said) = run(janua(back.path(), &["move", "--objects", "bucket"]));
    assert!(!done && said.contains("s3_url"), "{said}");
}
