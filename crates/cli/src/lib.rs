//! The commands of `janua` for developers: they sign in to a server and use its API, and load nothing of the server.
mod auth;
mod deploy;
mod failure;
mod output;
mod profile;
mod proof;
mod resources;
mod seed;
mod server;
mod skills;
mod sse;
mod webhooks;

use std::process::ExitCode;

pub use seed::{MAIL_DOMAIN, PEOPLE, seed};

use clap::{CommandFactory as _, Parser};

use crate::{
    failure::{Failure, Result},
    output::error_line,
    server::Server,
};

/// Variables that belong to these commands. A server that is started beside them must not take them for its settings.
pub const VARIABLES: &[&str] = &["JANUA_TOKEN", "JANUA_URL", "JANUA_PROFILE", "JANUA_APP", "JANUA_CONFIG_HOME"];

/// Developer commands of Janua
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage, 4 not signed in or not allowed, 5 a limit was reached.
#[derive(Parser)]
#[command(name = "janua", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    options: Options,
}

/// What every command takes.
#[derive(clap::Args, Clone, Default)]
pub struct Options {
    /// Print JSON
    #[arg(long, global = true, help_heading = "Common options")]
    json: bool,
    /// The profile to use [default: the folder's, or "default"]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Common options")]
    profile: Option<String>,
    /// The server [default: the profile's]
    #[arg(long, global = true, value_name = "URL", help_heading = "Common options")]
    url: Option<String>,
    /// The app: ID, slug or name
    #[arg(long, global = true, value_name = "APP", help_heading = "Common options")]
    app: Option<String>,
    /// The organization: ID, slug or name
    #[arg(long, global = true, value_name = "ORG", help_heading = "Common options")]
    org: Option<String>,
    /// Do not ask before something is deleted
    #[arg(long, short, global = true, help_heading = "Common options")]
    yes: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Sign in to a server with your browser
    Login(auth::Login),
    /// End the session of a profile
    Logout,
    /// Show the signed-in user and the server
    Whoami,
    /// Use a profile, an app and an organization in this folder
    Use(auth::Use),
    /// Apps of your organizations
    #[command(subcommand)]
    Apps(resources::apps::Apps),
    /// API keys of an app
    #[command(subcommand, after_help = "`janua keys rotate` rotates the keys of a server that sign access tokens.")]
    Keys(resources::keys::Keys),
    /// Your organizations
    #[command(subcommand)]
    Orgs(resources::orgs::Orgs),
    /// Members of an organization
    #[command(subcommand)]
    Members(resources::members::Members),
    /// End users of an app
    #[command(subcommand)]
    Users(resources::users::Users),
    /// Deploy a folder of static files
    Deploy(deploy::Deploy),
    /// Deployments, their logs, and the way back
    #[command(subcommand)]
    Deployments(deploy::Deployments),
    /// Objects of an app: list, download, upload and delete them
    #[command(subcommand)]
    Storage(resources::storage::Storage),
    /// Domains of an app
    #[command(subcommand)]
    Domains(resources::domains::Domains),
    /// Webhooks: receive events here, send examples, look at deliveries
    #[command(subcommand)]
    Webhooks(webhooks::Webhooks),
    /// What an organization has used
    Usage(resources::usage::Usage),
    /// Email that an app sends
    #[command(subcommand)]
    Email(resources::email::Email),
    /// Agents: programs with an identity of their own
    #[command(subcommand)]
    Agents(resources::agents::Agents),
    /// MCP servers
    #[command(subcommand)]
    Mcp(resources::mcp::Mcp),
    /// Skills for agents: create, publish, install and check them
    #[command(subcommand)]
    Skills(skills::Skills),
    /// Users and events of an app
    Analytics(resources::analytics::Analytics),
    /// The audit log of an app
    #[command(subcommand)]
    Logs(resources::logs::Logs),
    /// What one request led to, for platform admins
    Trace(resources::trace::Trace),
    /// Any request to the API
    Api(resources::api::Api),
    /// Print the OpenAPI description of the server
    Openapi,
    /// Print completions for a shell
    Completions { shell: clap_complete::Shell },
}

/// The names and summaries of all commands, for the help of the binary.
pub fn summary() -> String {
    let command = Cli::command();
    let width = command.get_subcommands().map(|one| one.get_name().len()).max().unwrap_or(0);
    let lines = command.get_subcommands().filter(|one| one.get_name() != "help").map(|one| {
        let about = one.get_about().map(ToString::to_string).unwrap_or_default();
        format!("  {:<width$}  {about}\n", one.get_name())
    });
    lines.collect()
}

/// Whether these arguments (without the program's name) are a command of this crate. `keys rotate` is the server's.
pub fn is_ours(arguments: &[String]) -> bool {
    let command = Cli::command();
    // The value of an option in front of the command is no command.
    let takes_value = |word: &str| ["--profile", "--url", "--app", "--org"].contains(&word);
    let mut before = "";
    let mut words = arguments.iter().filter(|word| {
        let is_value = takes_value(before);
        before = word.as_str();
        !is_value && !word.starts_with('-')
    });
    let Some(first) = words.next() else { return false };
    let is_known = command.get_subcommands().any(|one| one.get_name() == first);
    is_known && !(first == "keys" && words.next().is_some_and(|second| second == "rotate"))
}

/// Completions for both kinds of commands: those given, and ours.
pub fn completions(shell: clap_complete::Shell, mut all: clap::Command) {
    for one in Cli::command().get_subcommands() {
        if all.find_subcommand(one.get_name()).is_none() {
            all = all.subcommand(one.clone());
        }
    }
    // It panics where it cannot write, as when `head` has read enough.
    let mut script: Vec<u8> = vec![];
    clap_complete::generate(shell, &mut all, "janua", &mut script);
    output::line(String::from_utf8_lossy(&script).trim_end_matches('\n'));
}

/// Runs the command of the process's arguments. `server` has the other commands of the binary, for completions.
pub fn run(server: impl FnOnce() -> clap::Command) -> ExitCode {
    let Cli { command, options } = Cli::parse();
    if let Command::Completions { shell } = command {
        completions(shell, server());
        return ExitCode::SUCCESS;
    }
    let json = options.json;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            error_line(&format!("janua: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(carry_out(command, options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if json {
                error_line(&failure.to_json().to_string());
            } else {
                error_line(&format!("janua: {}", failure.message));
                if let Some(hint) = &failure.hint {
                    error_line(hint);
                }
            }
            failure.exit_code()
        }
    }
}

async fn carry_out(command: Command, options: Options) -> Result<()> {
    let server = Server::open(options)?;
    match command {
        Command::Login(wishes) => auth::login(&server, &wishes).await,
        Command::Logout => auth::logout(&server).await,
        Command::Whoami => auth::whoami(&server).await,
        Command::Use(wishes) => auth::use_profile(&server, &wishes).await,
        Command::Apps(command) => resources::apps::run(&server, &command).await,
        Command::Keys(command) => resources::keys::run(&server, &command).await,
        Command::Orgs(command) => resources::orgs::run(&server, &command).await,
        Command::Members(command) => resources::members::run(&server, &command).await,
        Command::Users(command) => resources::users::run(&server, &command).await,
        Command::Deploy(wishes) => deploy::deploy(&server, &wishes).await,
        Command::Deployments(command) => deploy::deployments(&server, &command).await,
        Command::Storage(command) => resources::storage::run(&server, &command).await,
        Command::Domains(command) => resources::domains::run(&server, &command).await,
        Command::Webhooks(command) => webhooks::webhooks(&server, command).await,
        Command::Usage(wishes) => resources::usage::run(&server, &wishes).await,
        Command::Email(command) => resources::email::run(&server, &command).await,
        Command::Agents(command) => resources::agents::run(&server, &command).await,
        Command::Mcp(command) => resources::mcp::run(&server, &command).await,
        Command::Skills(command) => skills::run(&server, &command).await,
        Command::Analytics(wishes) => resources::analytics::run(&server, &wishes).await,
        Command::Trace(wishes) => resources::trace::run(&server, &wishes).await,
        Command::Logs(command) => resources::logs::run(&server, &command).await,
        Command::Api(wishes) => resources::api::run(&server, &wishes).await,
        Command::Openapi => openapi(&server).await,
        Command::Completions { .. } => Err(Failure::failed("completions need no server")),
    }
}

async fn openapi(server: &Server) -> Result<()> {
    let asked = server.request(reqwest::Method::GET, "/openapi.json");
    let answer = asked.send().await.map_err(|error| server.unreachable(&error))?;
    server.out.json(&server::body_of(answer).await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_are_told_apart_from_those_of_the_server() {
        let is_ours = |line: &str| is_ours(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert!(is_ours("whoami") && is_ours("--json apps list") && is_ours("keys list") && is_ours("keys --help"));
        assert!(is_ours("--app shop keys list") && is_ours("--url=https://x whoami"));
        assert!(!is_ours("serve") && !is_ours("keys rotate") && !is_ours("--version") && !is_ours(""));
        assert!(!is_ours("admin whoami") && !is_ours("--listen 127.0.0.1:0 serve"));
    }
}
