//! `janua logs`: the audit log of an app.
use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    failure::{Failure, Kind, Result},
    output::text_at,
    server::{Server, encoded},
};

#[derive(clap::Subcommand)]
pub enum Logs {
    /// Show the newest entries of the app's audit log, and new ones as they come
    Tail {
        /// Show what is there and stop
        #[arg(long)]
        no_follow: bool,
        /// Only entries of this type, such as `SIGNED_IN`
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// How many earlier entries are shown first
        #[arg(long, short = 'n', default_value_t = 20)]
        lines: u32,
    },
}

/// Between two tries while the server cannot be asked.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Entries that are remembered as shown: more than a page has, for entries that come late.
const REMEMBERED: usize = 2000;

/// The audit log has no stream; a page a second is cheap, because each asks only for what is new.
pub async fn run(server: &Server, Logs::Tail { no_follow, kind, lines }: &Logs) -> Result<()> {
    let app = server.app().await?;
    let kind = kind.as_ref().map(|kind| format!("&type={}", encoded(kind))).unwrap_or_default();
    let path = format!("/apps/{app}/audit-log?{}", kind.trim_start_matches('&'));
    let first = server.list(&path, "events", (*lines as usize).max(1)).await?;
    show(server, first.iter().rev());
    let mut shown: Vec<String> = first.iter().map(id).collect();
    let mut pause = SECOND;
    if *no_follow {
        return Ok(());
    }
    loop {
        tokio::time::sleep(pause).await;
        match fresh(server, &path, &shown).await {
            Ok(fresh) => {
                show(server, fresh.iter().rev());
                shown.splice(..0, fresh.iter().map(id));
                shown.truncate(REMEMBERED.max(fresh.len()));
                pause = SECOND;
            }
            Err(failure) if is_passing(&failure) => {
                server.out.note(&format!("{} Trying again.", failure.message));
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Err(failure) => return Err(failure),
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// What was not shown, newest first: page by page, down to what was. Of an empty log everything is new.
async fn fresh(server: &Server, path: &str, shown: &[String]) -> Result<Vec<Value>> {
    let mut most = 100;
    loop {
        let mut found = server.list(path, "events", most).await?;
        if let Some(at) = found.iter().position(|event| shown.contains(&id(event))) {
            found.truncate(at);
            return Ok(found);
        }
        if found.len() < most {
            return Ok(found);
        }
        most *= 2;
    }
}

/// A server that restarts or limits requests will answer later.
fn is_passing(failure: &Failure) -> bool {
    let status = failure.problem.as_deref().map(|problem| problem["status"].as_u64());
    match status {
        Some(status) => status.is_none_or(|status| status == 429 || status >= 500),
        // Without an answer.
        None => failure.kind == Kind::Failed,
    }
}

fn id(event: &Value) -> String {
    text_at(event, "id")
}

fn show<'e>(server: &Server, events: impl Iterator<Item = &'e Value>) {
    for event in events {
        if server.out.json {
            server.out.json(event);
        } else {
            server.out.line(&log_line(server, event));
        }
    }
}

fn log_line(server: &Server, event: &Value) -> String {
    let actor = text_at(event, "actorName|actor");
    // Most of what happens to an app or a user has them as its target.
    let is_known = |target: &str| target == text_at(event, "appId") || target == text_at(event, "actor");
    let target = Some(text_at(event, "target")).filter(|target| !is_known(target)).unwrap_or_default();
    let details = event["details"].as_object().filter(|details| !details.is_empty());
    let details = details.map(|details| {
        let pairs = details.iter().map(|(name, value)| format!("{name}={}", text_at(&json!({ "v": value }), "v")));
        pairs.collect::<Vec<_>>().join(" ")
    });
    let parts = [actor, target, text_at(event, "ip"), details.unwrap_or_default()];
    let rest: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let kind = server.out.bold(&format!("{:<24}", text_at(event, "type")));
    // The time, the type and the gaps take 44 columns.
    format!("{}  {kind}  {}", server.out.dim(&text_at(event, "at")), server.out.cut(&rest.join("  "), 44))
}
