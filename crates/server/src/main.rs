//! `janua`: one binary that serves, and looks after what it serves.
mod backup;
#[cfg(test)]
mod catalogue;
mod doctor;
mod jobs;
mod keys;
mod org_plan;
mod serve;
mod start;

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use kernel::config::Config;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The identity and application platform that fits on a laptop and grows from there.
///
/// Without any settings it keeps everything in ./data (an embedded SQLite database, its keys, an outbox for mails)
/// and listens on 127.0.0.1:8080. Settings come from janua.toml, from JANUA_* variables and from flags, the later
/// ones winning; `janua config` lists them all.
#[derive(Parser)]
#[command(name = "janua", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  janua serve                                   a whole service on this machine
  janua serve --listen 0.0.0.0:8080 --base-url https://id.example.com
  JANUA_DATABASE_URL=postgres://janua@db/janua janua serve
  janua doctor                                  what is wrong, and how to mend it
  janua backup /backup/janua-monday.backup      everything in one file, while it runs")]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    settings: Settings,
}

#[derive(clap::Args)]
struct Settings {
    /// The settings file [default: janua.toml, if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen, such as 127.0.0.1:8080
    #[arg(long, global = true, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The address people reach the service at
    #[arg(long, global = true, value_name = "URL")]
    base_url: Option<String>,
    /// Where the embedded database, the keys and the outbox live
    #[arg(long, global = true, value_name = "FOLDER")]
    data_dir: Option<String>,
    /// sqlite:PATH or postgres://…
    #[arg(long, global = true, value_name = "URL")]
    database_url: Option<String>,
    /// Any other setting
    #[arg(long, global = true, value_name = "NAME=VALUE")]
    set: Vec<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the service
    Serve,
    /// Bring the database up to this version, without serving
    Migrate,
    /// Check the installation and say how to mend what is wrong
    Doctor,
    /// Write everything into one file, while the server runs
    Backup {
        /// A file that is not there yet
        file: PathBuf,
    },
    /// Bring back what a backup holds, into a data folder without a database
    Restore {
        file: PathBuf,
        #[command(flatten)]
        wishes: backup::Wishes,
    },
    /// End what must not come back to life, after a database was put back by other means
    AfterRestore(backup::Wishes),
    /// List every setting with its default and what it does
    Config,
    /// Turn over the keys that sign access tokens
    #[command(subcommand)]
    Keys(keys::Command),
    /// Look at the jobs that were given up
    #[command(subcommand)]
    Jobs(jobs::Command),
    /// Look after what the installation serves
    #[command(subcommand)]
    Admin(org_plan::Command),
}

impl Settings {
    fn load(&self) -> Result<Config> {
        let file = match &self.config {
            Some(path) => {
                Some(std::fs::read_to_string(path).with_context(|| format!("--config {}", path.display()))?)
            }
            None => match std::fs::read_to_string("janua.toml") {
                Ok(text) => Some(text),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error).context("janua.toml"),
            },
        };
        let named = [
            ("listen", &self.listen),
            ("base_url", &self.base_url),
            ("data_dir", &self.data_dir),
            ("database_url", &self.database_url),
        ];
        let mut flags: Vec<(String, String)> =
            named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?))).collect();
        for pair in &self.set {
            let (name, value) = pair.split_once('=').with_context(|| format!("--set {pair}: must be NAME=VALUE"))?;
            flags.push((name.to_owned(), value.to_owned()));
        }
        Ok(Config::load(file.as_deref(), variables(), flags, &start::sections())?)
    }
}

/// The environment. What is not text cannot be a setting of ours.
fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

fn main() -> ExitCode {
    kernel::pages::keep_small();
    let cli = Cli::parse();
    let code = run(cli).unwrap_or_else(|error| {
        say(&format!("janua: {error:#}"), Out::Error);
        ExitCode::FAILURE
    });
    kernel::telemetry::flush(LAST_LINES);
    code
}

/// How long the end waits for the last log lines to be taken.
const LAST_LINES: Duration = Duration::from_millis(500);

fn run(cli: Cli) -> Result<ExitCode> {
    if matches!(cli.command, Command::Config) {
        list_settings();
        return Ok(ExitCode::SUCCESS);
    }
    let config = cli.settings.load()?;
    kernel::telemetry::init(&config).map_err(anyhow::Error::msg)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match cli.command {
            // It holds all settings and is large; the others would make room for it on the stack.
            Command::Serve => Box::pin(serve::run(config)).await,
            Command::Migrate => serve::migrate(config).await,
            Command::Doctor => Ok(doctor::run(&config).await),
            Command::Backup { file } => backup::backup(config, file).await,
            Command::Restore { file, wishes } => Box::pin(backup::restore(config, file, &wishes)).await,
            Command::AfterRestore(wishes) => Box::pin(backup::after_restore(config, &wishes)).await,
            Command::Keys(command) => keys::run(config, command).await,
            Command::Jobs(command) => jobs::run(&config, command).await,
            Command::Admin(command) => Box::pin(org_plan::run(config, command)).await,
            Command::Config => Ok(ExitCode::SUCCESS),
        }
    })
}

fn list_settings() {
    for row in Config::reference(&start::sections()) {
        let about = row.about.trim().replace("\n ", "\n  ");
        let default = if row.default.is_empty() { "(empty)" } else { row.default };
        say(&format!("{} = {default}\n  {}\n  {about}\n", row.name, row.variable()), Out::Plain);
    }
}

/// Where a line for a person goes.
#[derive(Clone, Copy)]
enum Out {
    Plain,
    Error,
}

fn say(line: &str, out: Out) {
    let text = format!("{line}\n");
    // In one piece; and that nobody reads it any more is no reason to stop.
    let _ = match out {
        Out::Plain => io::stdout().write_all(text.as_bytes()),
        // Where log lines go, which nobody may be reading.
        Out::Error => {
            kernel::telemetry::say(&text, LAST_LINES).or_else(|text| io::stderr().write_all(text.as_bytes()))
        }
    };
}
