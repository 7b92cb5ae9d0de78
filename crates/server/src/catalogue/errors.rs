//! docs/errors.md lists every code that an operation can answer. Status, code and meaning come from the description; what
//! to do about it is written by hand, in the last column.
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use kernel::testing::TestJanua;
use serde_json::Value;

use crate::start::features;

const HEAD: &str = "| status | code | meaning | what to do |\n|---|---|---|---|\n";
const RENEW: &str = "UPDATE=1 cargo test -p server --bin janua catalogue::errors";

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md")
}

/// Every code with its status, and what it says.
fn codes(document: &Value) -> BTreeMap<(String, String), String> {
    let problems = document["x-problems"].as_object().into_iter().flatten();
    let rows = problems.map(|(code, problem)| {
        let says = problem["title"].as_str().unwrap_or_default();
        ((problem["status"].to_string(), code.clone()), says.to_owned())
    });
    rows.collect()
}

/// The table with each code in it. What stands in its last column stays.
fn renewed(text: &str, codes: &BTreeMap<(String, String), String>) -> String {
    let (before, table) = text.split_once(HEAD).expect("the head of the table");
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect();
    let after: Vec<_> = table.lines().skip(rows.len()).collect();
    let advice = |status: &str, code: &str| {
        let code = format!("`{code}`");
        let row = rows.iter().find(|row| row[..2] == [status, &code]).or(rows.iter().find(|row| row[1] == code));
        row.and_then(|row| row.get(3)).copied().unwrap_or_default()
    };
    let mut out = format!("{before}{HEAD}");
    for ((status, code), says) in codes {
        let row = format!("| {status} | `{code}` | {says} | {} |\n", advice(status, code));
        out.push_str(&row);
    }
    out.push_str(&after.join("\n"));
    out.push('\n');
    out
}

#[tokio::test]
async fn every_code_is_listed_with_what_to_do_about_it() {
    let t = TestJanua::start(features).await;
    let codes = codes(&t.janua.description.get().expect("the description is there").value());
    let text = fs::read_to_string(file()).expect("docs/errors.md");
    let wanted = renewed(&text, &codes);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(file(), &wanted).expect("docs/errors.md is written");
    } else {
        assert!(wanted == text, "docs/errors.md is not up to date. Run: {RENEW}");
    }
    let silent: Vec<_> = wanted.lines().filter(|line| line.starts_with("| ") && line.ends_with("|  |")).collect();
    assert!(silent.is_empty(), "say in the last column of docs/errors.md what to do about {silent:#?}");
    t.finish().await;
}

#[test]
fn a_renewed_table_keeps_its_advice_and_the_text_around_it() {
    let text = format!(
        "# Errors\n\n{HEAD}| 400 | `gone` | x | y |\n| 409 | `taken` | old words | choose another |\n\nMore.\n"
    );
    let entry = |status: &str, code: &str, says: &str| ((status.to_owned(), code.to_owned()), says.to_owned());
    let codes = [entry("404", "new", "New."), entry("409", "taken", "It is taken.")].into_iter().collect();
    let rows = "| 404 | `new` | New. |  |\n| 409 | `taken` | It is taken. | choose another |\n";
    assert_eq!(renewed(&text, &codes), format!("# Errors\n\n{HEAD}{rows}\nMore.\n"));
}
