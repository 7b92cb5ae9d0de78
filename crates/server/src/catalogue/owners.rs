//! Each table has one owner, the crate that `migrations/owners.txt` names. Other crates ask the owner's functions or declare
//! what they need (`Chore`, `Gone`, `AfterRestore`); `shared-tables.txt` lists the exceptions.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use db::migrate::ALL;

use super::lines;

const OWNERS: &str = include_str!("../../../../migrations/owners.txt");
const SHARED: &str = include_str!("shared-tables.txt");
/// The words of SQL that stand before the name of a table.
const BEFORE_A_TABLE: [&str; 5] = ["FROM", "JOIN", "INTO", "UPDATE", "TABLE"];
/// Folders and files of tests. What tests read and write is not looked at.
const TESTS: [&str; 5] = ["tests", "tests.rs", "testing", "testing.rs", "catalogue"];
const TESTS_IN_A_FILE: &str = "#[cfg(test)]\nmod tests {";

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every table with its owner.
fn owners() -> BTreeMap<&'static str, &'static str> {
    lines(OWNERS).map(|line| line.split_once(' ').unwrap_or_else(|| panic!("not a row: {line}"))).collect()
}

/// Every crate and table of `shared-tables.txt`. The rest of a line is the reason.
fn shared() -> BTreeSet<(String, String)> {
    let rows = lines(SHARED).map(|line| {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        assert!(words.len() > 4, "say why: {line}");
        (words[0].clone(), words[1].clone())
    });
    rows.collect()
}

/// The words of a text, each with whether only white space stands between it and the word before it.
fn words(text: &str) -> Vec<(&str, bool)> {
    let (mut words, mut rest) = (vec![], text);
    while let Some(start) = rest.find(|c: char| c.is_alphanumeric() || c == '_') {
        let (gap, word) = rest.split_at(start);
        let end = word.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(word.len());
        words.push((&word[..end], gap.trim().is_empty()));
        rest = &word[end..];
    }
    words
}

/// The tables that the statements in a text name.
fn named<'a>(text: &'a str, tables: &BTreeSet<String>) -> BTreeSet<&'a str> {
    let words = words(text);
    let pairs = words.windows(2).filter(|pair| BEFORE_A_TABLE.contains(&pair[0].0) && pair[1].1);
    pairs.map(|pair| pair[1].0).filter(|word| tables.contains(*word)).collect()
}

/// A source file without its comments and its own tests.
fn product(text: &str) -> String {
    let text = text.split(TESTS_IN_A_FILE).next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The tables of all migrations, as they are called now.
fn tables() -> BTreeSet<String> {
    let mut tables = BTreeSet::from(["schema_migration".to_owned()]);
    for migration in ALL {
        let words: Vec<_> = words(migration.sql).into_iter().map(|(word, _)| word).collect();
        for at in 0..words.len() {
            match &words[at..] {
                ["CREATE", "TABLE", table, ..] => _ = tables.insert((*table).to_owned()),
                ["DROP", "TABLE", table, ..] => _ = tables.remove(*table),
                ["ALTER", "TABLE", old, "RENAME", "TO", new, ..] => {
                    tables.remove(*old);
                    tables.insert((*new).to_owned());
                }
                _ => {}
            }
        }
    }
    tables
}

/// Every crate and table that its statements name, with one of the files.
fn used(tables: &BTreeSet<String>) -> BTreeMap<(String, String), PathBuf> {
    let mut used = BTreeMap::new();
    for entry in fs::read_dir(crates()).expect("the crates") {
        let entry = entry.expect("a crate");
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut folders = vec![entry.path().join("src")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("a file").path();
                if path.file_name().is_some_and(|name| TESTS.iter().any(|test| name == *test)) {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = product(&fs::read_to_string(&path).expect("a text"));
                    let tables = named(&text, tables).into_iter().map(str::to_owned);
                    used.extend(tables.map(|table| ((name.clone(), table), path.clone())));
                }
            }
        }
    }
    used
}

#[test]
fn every_table_has_an_owner() {
    let (tables, owners) = (tables(), owners());
    let without: Vec<_> = tables.iter().filter(|table| !owners.contains_key(table.as_str())).collect();
    assert!(without.is_empty(), "say in migrations/owners.txt which crate owns {without:?}");
    let unknown: Vec<_> = owners.keys().filter(|table| !tables.contains(**table)).collect();
    assert!(unknown.is_empty(), "migrations/owners.txt names tables that are not there: {unknown:?}");
    let no_crate: Vec<_> = owners.values().filter(|owner| !crates().join(owner).is_dir()).collect();
    assert!(no_crate.is_empty(), "migrations/owners.txt names crates that are not there: {no_crate:?}");
}

#[test]
fn only_its_owner_names_a_table_in_statements() {
    let (owners, shared, used) = (owners(), shared(), used(&tables()));
    let silent: Vec<_> =
        owners.iter().filter(|(table, owner)| !used.contains_key(&((**owner).into(), (**table).into()))).collect();
    assert!(silent.is_empty(), "these owners have no statement on their table: {silent:?}");
    // A table without an owner is what the test above is about.
    let is_foreign = |user: &str, table: &str| owners.get(table).is_some_and(|owner| *owner != user);
    let foreign: BTreeMap<_, _> = used.into_iter().filter(|((user, table), _)| is_foreign(user, table)).collect();
    let new: Vec<_> = foreign.iter().filter(|(use_, _)| !shared.contains(*use_)).collect();
    assert!(
        new.is_empty(),
        "ask a function of the owner, or give the reason in catalogue/shared-tables.txt: {new:#?}"
    );
    let old: Vec<_> = shared.iter().filter(|use_| !foreign.contains_key(*use_)).collect();
    assert!(old.is_empty(), "these lines of catalogue/shared-tables.txt are not needed any more: {old:?}");
}

#[test]
fn statements_are_found_and_tests_and_comments_are_not() {
    let tables = ["app", "org", "job"].map(str::to_owned).into();
    let source = "/// FROM job\nlet sql = \"SELECT * FROM app\n    JOIN org ON TRUE\"; from(app); let FROM = \"job\";\n\
                  #[cfg(test)]\nmod tests { \"DELETE FROM job\" }";
    assert_eq!(named(&product(source), &tables), ["app", "org"].into());
}
