//! `janua logs`: the audit log of an app.
use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    failure::Result,
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

/// The audit log has no stream; a page a second is cheap, because each asks only for what is new.
pub async fn run(server: &Server, Logs::Tail { no_follow, kind, lines }: &Logs) -> Result<()> {
    let app = server.app().await?;
    let kind = kind.as_ref().map(|kind| format!("&type={}", encoded(kind))).unwrap_or_default();
    let path = format!("/apps/{app}/audit-log?{}", kind.trim_start_matches('&'));
    let mut shown: Vec<String> = vec![];
    let mut most = *lines as usize;
    loop {
        let mut fresh = server.list(&path, "events", most.max(1)).await?;
        // Newest first; what was shown before ends it.
        if let Some(at) = fresh.iter().position(|event| shown.contains(&text_at(event, "id"))) {
            fresh.truncate(at);
        }
        for event in fresh.iter().rev() {
            if server.out.json {
                server.out.json(event);
            } else {
                server.out.line(&log_line(server, event));
            }
        }
        if !fresh.is_empty() {
            shown = fresh.iter().map(|event| text_at(event, "id")).chain(shown).take(500).collect();
        }
        if *no_follow {
            return Ok(());
        }
        most = 100;
        tokio::time::sleep(Duration::from_secs(1)).await;
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
