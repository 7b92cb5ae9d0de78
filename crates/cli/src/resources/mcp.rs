//! `janua mcp`: MCP servers.
use std::{fs, path::PathBuf};

use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::{
    failure::{Failure, Result},
    output::{Column, text_at},
    resources::{LOGS, Most, body, chosen_org, list, some},
    server::{Server, encoded},
};

#[derive(clap::Subcommand)]
pub enum Mcp {
    /// List MCP servers
    List {
        #[command(flatten)]
        most: Most,
    },
    /// Register an MCP server; shows how to prove its domain
    Register {
        /// The last part of its name in the registry, such as weather
        name: String,
        /// The domain it belongs to
        #[arg(long)]
        domain: String,
        /// Where it is reached
        #[arg(long = "server-url", value_name = "URL")]
        server_url: Option<String>,
        /// Its name, for people
        #[arg(long)]
        title: Option<String>,
        /// What it does
        #[arg(long)]
        description: Option<String>,
        /// The version to publish, such as 1.0.0
        #[arg(long = "server-version", value_name = "VERSION")]
        server_version: Option<String>,
    },
    /// Look for the proof of the domain now
    Verify {
        /// The ID of the server
        id: String,
        /// dns, http, mcpv1 or app; by default all are tried
        #[arg(long)]
        method: Option<String>,
        /// The signature of the proof, with the method mcpv1
        #[arg(long)]
        signature: Option<String>,
    },
    /// Publish a server.json: a new version of a registered server
    Publish {
        /// The ID of the server
        id: String,
        /// A file in the format of the official registry
        #[arg(long, default_value = "server.json", value_name = "FILE")]
        file: PathBuf,
    },
    /// Revoke the credentials of an MCP server
    Revoke {
        /// The ID of the server
        id: String,
        /// The reason, for its log
        #[arg(long)]
        reason: Option<String>,
    },
    /// Show what happened with an MCP server
    Logs {
        /// The ID of the server
        id: String,
        #[command(flatten)]
        most: Most,
    },
}

pub async fn run(server: &Server, command: &Mcp) -> Result<()> {
    const SERVER: &[Column] = &[
        ("ID", "id"),
        ("Name", "fullName"),
        ("Domain", "domain"),
        ("Verification", "verification"),
        ("Version", "version"),
        ("URL", "url"),
        ("Credentials", "tokenStatus"),
    ];
    let show = |answer: &Value| server.out.answer(answer, |out| out.record(&answer["server"], SERVER));
    match command {
        Mcp::List { most } => {
            let org = chosen_org(server).await?.map(|id| format!("?orgId={}", text_at(&json!({ "id": id }), "id")));
            let columns =
                [("ID", "id"), ("Name", "fullName"), ("Verification", "verification"), ("Version", "version")];
            return list(
                server,
                &format!("/mcp/list{}", org.unwrap_or_default()),
                "servers",
                most,
                &columns,
                "No MCP servers yet. Register one with `janua mcp register NAME --domain DOMAIN`.",
            )
            .await;
        }
        Mcp::Register { name, domain, server_url, title, description, server_version } => {
            let new = body(&[
                ("name", Some(json!(name))),
                ("domain", Some(json!(domain))),
                ("url", some(server_url.as_ref())),
                ("title", some(title.as_ref())),
                ("description", some(description.as_ref())),
                ("version", some(server_version.as_ref())),
                ("orgId", chosen_org(server).await?),
            ]);
            let made = server.post("/mcp/register", new).await?;
            server.out.answer(&made, |out| {
                out.line(&format!("{} Registered {}.", out.green("✓"), text_at(&made, "server.fullName")));
                out.record(
                    &made,
                    &[
                        ("ID", "server.id"),
                        ("Client ID", "clientId"),
                        ("Secret", "clientSecret"),
                        ("TXT record", "server.proof.dns.name"),
                        ("TXT value", "server.proof.dns.value"),
                    ],
                );
                out.note(&format!(
                    "\nThe secret is shown only now. Create the record, then run\n  janua mcp verify {}",
                    text_at(&made, "server.id")
                ));
            });
        }
        Mcp::Verify { id, method, signature } => {
            let asked = body(&[
                ("id", Some(json!(id))),
                ("method", some(method.as_ref())),
                ("signature", some(signature.as_ref())),
            ]);
            show(&server.post("/mcp/verify", asked).await?);
        }
        Mcp::Publish { id, file } => {
            let text =
                fs::read_to_string(file).map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
            let described: Value = serde_json::from_str(&text)?;
            let names = ["title", "description", "version", "packages", "remotes", "repository"];
            let given = names.into_iter().filter(|name| !described[*name].is_null());
            let change: Map<String, Value> = given.map(|name| (name.to_owned(), described[name].clone())).collect();
            let path = format!("/mcp/{}", encoded(id));
            show(&server.ask(Method::PATCH, &path, Some(Value::Object(change))).await?);
        }
        Mcp::Revoke { id, reason } => {
            server.out.confirm(server.options.yes, &format!("Revoke the credentials of {id}?"))?;
            let path = format!("/mcp/{}/revoke", encoded(id));
            show(&server.post(&path, body(&[("reason", some(reason.as_ref()))])).await?);
        }
        Mcp::Logs { id, most } => {
            return list(server, &format!("/mcp/{}/logs", encoded(id)), "logs", most, LOGS, "Nothing yet.").await;
        }
    }
    Ok(())
}
