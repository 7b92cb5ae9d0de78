//! Where the server's time goes during a scenario, as text: `perf` looks at the process a thousand times a second while
//! the generator asks.
use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    client::{self, Who, ask, text},
    ground::Ground,
    identity::{login, refused},
    load::{self, Ask},
    process::{Core, Server},
    rounds::Rounds,
    servers::JanuaBinary,
    webhooks::Place,
};

const SERVER: Core = Core::Only(0);
const GENERATOR: Core = Core::Only(1);

#[derive(clap::Args)]
pub struct Options {
    /// What is asked meanwhile
    scenario: Scenario,
    /// Where the profile goes [default: the terminal]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Show who called whom, too
    #[arg(long)]
    calls: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Scenario {
    Health,
    SignIn,
    /// A sign-in by who asks too often
    Refused,
    Refresh,
    Me,
    Introspect,
    /// A change with its line in the audit log
    Audited,
    /// The same with a webhook that hears of it
    Webhooks,
}

/// A server with something to ask it.
struct Stage {
    server: Server,
    ask: Ask,
}

impl Stage {
    fn set(rounds: &Rounds, janua: &JanuaBinary, scenario: Scenario) -> Result<Self> {
        let ground = || Ground::lay(janua, &rounds.folder()?, SERVER, &[("JANUA_RATE_LIMITS", "off")]);
        let stage = |ground: Ground, request| Self { server: ground.server, ask: Ask::again(request) };
        let get = |path: &str| {
            let ground = ground()?;
            let request = client::request("GET", path, &Who::with(&ground.token), "", "keep-alive");
            anyhow::Ok(stage(ground, request))
        };
        Ok(match scenario {
            Scenario::Health => get("/health")?,
            Scenario::Me => get("/auth/me")?,
            Scenario::SignIn => stage(
                ground()?,
                client::request("POST", "/auth/login", &Who::default(), &login().to_string(), "keep-alive"),
            ),
            Scenario::Refused => {
                let (server, ask) = refused(rounds, janua)?;
                Self { server, ask }
            }
            Scenario::Refresh => {
                let ground = ground()?;
                let address = ground.address();
                let token =
                    |_| text(&ask(address, "POST", "/auth/login", &Who::default(), &login())?, "refreshToken");
                let tokens = (0..load::CONNECTIONS).map(token).collect::<Result<_>>()?;
                Self { server: ground.server, ask: Ask::chain(tokens) }
            }
            Scenario::Introspect => {
                let ground = ground()?;
                let request = ground.introspection("keep-alive");
                stage(ground, request)
            }
            Scenario::Audited => {
                let ground = ground()?;
                let request = ground.profile_change();
                stage(ground, request)
            }
            Scenario::Webhooks => {
                let place = Place::heard(rounds, janua)?;
                Self { ask: Ask::again(place.act()), server: place.server }
            }
        })
    }
}

pub fn take(rounds: &Rounds, janua: &JanuaBinary, options: &Options) -> Result<()> {
    let stage = Stage::set(rounds, janua, options.scenario)?;
    let data = rounds.folder()?.join("perf.data");
    let seconds = rounds.turn.as_secs();
    // It ends when the sleep does.
    let mut perf = Command::new("perf");
    perf.args(["record", "--freq", "997", "--quiet", "--output"]).arg(&data);
    if options.calls {
        perf.args(["--call-graph", "dwarf,16384"]);
    }
    perf.args(["--pid", &stage.server.pid().to_string(), "--", "sleep", &seconds.to_string()]);
    let mut perf = perf.stdin(Stdio::null()).spawn().context("perf is not installed (package linux-perf)")?;
    let asked = load::with(stage.server.address, rounds.turn, GENERATOR, &stage.ask);
    ensure!(perf.wait()?.success(), "perf failed; /proc/sys/kernel/perf_event_paranoid may forbid it");
    let mut report = Command::new("perf");
    report.args(["report", "--stdio", "--percent-limit", "0.3", "--sort", "dso,symbol", "--input"]).arg(&data);
    let how = if options.calls { ["--children", "--call-graph=caller,0.5"] } else { ["--no-children", "-gnone"] };
    let report = report.args(how).stdin(Stdio::null()).output()?;
    ensure!(report.status.success(), "perf report: {}", String::from_utf8_lossy(&report.stderr));
    let answered = asked?;
    let mut text = format!("{answered} requests in {seconds} s\n\n");
    // perf has remarks of its own, and fills its lines up with spaces and empty columns.
    for line in String::from_utf8_lossy(&report.stdout).lines().filter(|line| !line.starts_with('#')) {
        text += line.trim_end_matches([' ', '-']);
        text.push('\n');
    }
    match &options.out {
        Some(path) => std::fs::write(path, text).with_context(|| format!("--out {}", path.display()))?,
        None => println!("{text}"),
    }
    Ok(())
}
