//! `janua`: one binary that serves, and looks after what it serves.
mod admin;
mod backup;
mod billing;
#[cfg(test)]
mod catalogue;
mod dev;
mod doctor;
mod jobs;
mod keys;
mod mail;
mod org_plan;
mod serve;
mod start;
mod transfer;
mod update;

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use kernel::config::{Config, Effective};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Identity and application platform: accounts, sign-in, organizations, apps and webhooks in one program.
///
/// Without settings it stores everything in ./data (an embedded SQLite database, keys, an outbox for mails) and listens
/// on 127.0.0.1:8080. Settings come from janua.toml, JANUA_* variables and flags; flags override variables, variables
/// override the file. `janua config` lists all settings.
#[derive(Parser)]
#[command(name = "janua", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    settings: Settings,
}

const EXAMPLES: &str = "Examples:
  janua serve                                   run a server on this machine
  janua serve --listen 0.0.0.0:8080 --base-url https://id.example.com
  JANUA_DATABASE_URL=postgres://janua@db/janua janua serve
  janua doctor                                  find problems and how to fix them
  janua backup /backup/janua-monday.backup      write a backup while the server runs
  janua config --effective                      print the settings in effect";

#[derive(clap::Args)]
struct Settings {
    /// Settings file [default: janua.toml, if it exists]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// IP address and port to listen on, such as 127.0.0.1:8080
    #[arg(long, global = true, value_name = "ADDRESS")]
    listen: Option<String>,
    /// URL at which users reach the service
    #[arg(long, global = true, value_name = "URL")]
    base_url: Option<String>,
    /// Folder of the embedded database, the keys and the outbox
    #[arg(long, global = true, value_name = "FOLDER")]
    data_dir: Option<String>,
    /// Database: sqlite:PATH or postgres://…
    #[arg(long, global = true, value_name = "URL")]
    database_url: Option<String>,
    /// Any setting
    #[arg(long, global = true, value_name = "NAME=VALUE")]
    set: Vec<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server
    Serve,
    /// Run a development server in a temporary folder, with people, an app, a mailbox and a clock that can be moved
    Dev(dev::Dev),
    /// Apply database migrations without serving
    Migrate,
    /// Check the installation and say how to fix problems
    Doctor,
    /// Write a backup into one file; the server may be running
    Backup {
        /// A file that does not exist yet
        file: PathBuf,
    },
    /// Restore a backup into a data folder without a database
    Restore {
        file: PathBuf,
        #[command(flatten)]
        wishes: backup::Wishes,
    },
    /// Revoke sessions and secrets after the database was restored by other means
    AfterRestore(backup::Wishes),
    /// Move everything to another database (SQLite, PostgreSQL), or all files to another place (data folder, S3)
    Move(transfer::Wishes),
    /// List all settings with their defaults, or the values in effect
    Config {
        /// Print the values in effect and their sources; secrets only as set or not set
        #[arg(long)]
        effective: bool,
        /// Print JSON
        #[arg(long, requires = "effective")]
        json: bool,
    },
    /// Say whether there is a newer version, by the setting `update_url`; it installs nothing
    Update(update::Update),
    /// Rotate the keys that sign access tokens
    #[command(subcommand)]
    Keys(keys::Command),
    /// Rescue and administration: make an owner, reset a person's factors, disable an account, set a plan
    #[command(subcommand)]
    Admin(admin::Command),
    /// Test whether mail is delivered
    #[command(subcommand)]
    Mail(mail::Command),
    /// Manage failed jobs
    #[command(subcommand)]
    Jobs(jobs::Command),
    /// Prices and subscriptions at the payment processor
    #[command(subcommand)]
    Billing(billing::Command),
    /// The built-in test processor
    #[command(subcommand)]
    Sandbox(billing::SandboxCommand),
}

impl Settings {
    fn load(&self) -> Result<Config> {
        self.load_with_sources().map(|(config, _)| config)
    }

    fn load_with_sources(&self) -> Result<(Config, Vec<Effective>)> {
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
        let flags = self.flags()?;
        Ok(Config::load_with_sources(file.as_deref(), variables(), flags, &start::sections())?)
    }

    /// The settings among the flags.
    fn flags(&self) -> Result<Vec<(String, String)>> {
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
        Ok(flags)
    }
}

/// The environment. What is not text cannot be a setting of ours, and some variables belong to commands for developers.
fn variables() -> impl Iterator<Item = (String, String)> {
    let texts =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    texts.filter(|(name, _)| !cli::VARIABLES.contains(&name.as_str()))
}

fn main() -> ExitCode {
    // Commands for developers come first: they need nothing of the server.
    let arguments: Vec<String> = std::env::args_os().skip(1).filter_map(|word| word.into_string().ok()).collect();
    if cli::is_ours(&arguments) {
        return cli::run(Cli::command);
    }
    kernel::pages::keep_small();
    let help = format!("Commands for developers (they talk to a server):\n{}\n{EXAMPLES}", cli::summary());
    let cli = Cli::command().after_help(help).try_get_matches().and_then(|found| Cli::from_arg_matches(&found));
    let cli = cli.unwrap_or_else(|error| error.exit());
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
    if let Command::Config { effective, json } = cli.command {
        if effective {
            list_effective(&cli.settings.load_with_sources()?.1, json)?;
        } else {
            list_settings();
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::Dev(dev) = &cli.command {
        return run_dev(dev, &cli.settings);
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
            Command::Update(wishes) => update::run(&config, &wishes).await,
            Command::Move(wishes) => Box::pin(transfer::run(config, wishes)).await,
            Command::Keys(command) => keys::run(config, command).await,
            Command::Admin(command) => Box::pin(admin::run(config, command)).await,
            Command::Jobs(command) => jobs::run(&config, command).await,
            Command::Mail(command) => Box::pin(mail::run(config, command)).await,
            Command::Billing(command) => Box::pin(billing::run(config, command)).await,
            Command::Sandbox(command) => Box::pin(billing::run_sandbox(config, command)).await,
            Command::Config { .. } | Command::Dev(_) => Ok(ExitCode::SUCCESS),
        }
    })
}

/// A development server takes its settings from the flags alone.
fn run_dev(dev: &dev::Dev, settings: &Settings) -> Result<ExitCode> {
    if !dev.serves() {
        return dev.tell();
    }
    let mut flags = settings.flags()?;
    if !flags.iter().any(|(name, _)| name == "log") {
        flags.push(("log".into(), "warn".into()));
    }
    let config = Config::load(None, [], flags.clone(), &start::sections())?;
    kernel::telemetry::init(&config).map_err(anyhow::Error::msg)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(Box::pin(dev.serve(&flags)))
}

fn list_settings() {
    for row in Config::reference(&start::sections()) {
        let about = row.about.trim().replace("\n ", "\n  ");
        let default = if row.default.is_empty() { "(empty)" } else { row.default };
        say(&format!("{} = {default}\n  {}\n  {about}\n", row.name, row.variable()), Out::Plain);
    }
}

fn list_effective(settings: &[Effective], as_json: bool) -> Result<()> {
    if as_json {
        say(&serde_json::to_string_pretty(settings)?, Out::Plain);
    } else {
        let lines: Vec<String> = settings.iter().map(ToString::to_string).collect();
        say(&lines.join("\n"), Out::Plain);
    }
    Ok(())
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
