//! Commands that are a request each, one file a noun, and what they share.
pub mod agents;
pub mod analytics;
pub mod api;
pub mod apps;
pub mod domains;
pub mod email;
pub mod keys;
pub mod logs;
pub mod mcp;
pub mod members;
pub mod orgs;
pub mod storage;
pub mod trace;
pub mod usage;
pub mod users;

use std::{fs, io::Read as _};

use serde_json::{Map, Value, json};

use crate::{
    failure::{Failure, Result},
    output::Column,
    server::Server,
};

/// How many entries a list shows.
#[derive(clap::Args)]
pub struct Most {
    /// The maximum number of entries
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub limit: u32,
}

impl Most {
    fn count(&self) -> usize {
        self.limit as usize
    }
}

/// Shows a list under its name.
async fn list(server: &Server, path: &str, field: &str, most: &Most, columns: &[Column], empty: &str) -> Result<()> {
    let rows = server.list(path, field, most.count()).await?;
    let is_cut = rows.len() == most.count();
    server.out.answer(&json!({ field: rows }), |out| {
        out.table(columns, &rows, empty);
        if is_cut {
            out.note(&format!("The first {} are shown; --limit shows more.", rows.len()));
        }
    });
    Ok(())
}

pub fn done(server: &Server, answer: &Value, line: &str, fields: &[Column]) {
    server.out.answer(answer, |out| {
        out.line(&format!("{} {line}", out.green("✓")));
        out.record(answer, fields);
    });
}

/// Fields that were given.
pub fn body(fields: &[(&str, Option<Value>)]) -> Value {
    let given = fields.iter().filter_map(|(name, value)| Some(((*name).to_owned(), value.clone()?)));
    Value::Object(given.collect::<Map<_, _>>())
}

pub fn some(text: Option<&String>) -> Option<Value> {
    text.map(|text| json!(text))
}

fn many(texts: &[String]) -> Option<Value> {
    (!texts.is_empty()).then(|| json!(texts))
}

/// `-` is the standard input, `@file` a file, and anything else itself.
fn input(text: &str) -> Result<String> {
    if text == "-" {
        let mut read = String::new();
        std::io::stdin().read_to_string(&mut read)?;
        return Ok(read);
    }
    match text.strip_prefix('@') {
        Some(file) => fs::read_to_string(file).map_err(|error| Failure::usage(format!("{file}: {error}"))),
        None => Ok(text.to_owned()),
    }
}

/// What a machine did.
const LOGS: &[Column] = &[
    ("Time", "at"),
    ("Event", "type"),
    ("Result", "result"),
    ("Code", "code"),
    ("Audience", "audience"),
    ("IP address", "ip"),
];

/// `orgId` for who chose an organization.
async fn chosen_org(server: &Server) -> Result<Option<Value>> {
    match (&server.options.org, &server.project.org) {
        (None, None) => Ok(None),
        _ => server.org().await.map(|id| Some(json!(id))),
    }
}
