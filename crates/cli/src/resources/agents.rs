//! `janua agents`.
use reqwest::Method;
use serde_json::json;

use crate::{
    failure::{Failure, Result},
    output::{Column, text_at},
    resources::{LOGS, Most, body, chosen_org, input, list, many, some},
    server::{Server, encoded},
};

const MACHINE: &[Column] = &[
    ("ID", "id"),
    ("Name", "name"),
    ("Status", "status"),
    ("Suspended by", "suspendedBy"),
    ("Scopes", "scopes"),
    ("Last used", "lastUsedAt"),
];

#[derive(clap::Subcommand)]
pub enum Agents {
    /// List agents
    List {
        /// Framework agents instead of agents with a wallet
        #[arg(long)]
        framework: bool,
        #[command(flatten)]
        most: Most,
    },
    /// Register an agent: with --wallet, or with --framework and a secret
    #[command(group = clap::ArgGroup::new("kind").required(true).args(["wallet", "framework"]))]
    Register {
        /// Its name, for people
        name: String,
        /// An Ethereum or Solana wallet
        #[arg(long)]
        wallet: Option<String>,
        /// The framework it is built with, such as langgraph
        #[arg(long)]
        framework: Option<String>,
        /// A scope it may have; may be repeated
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
        /// A URL its tokens are for; may be repeated
        #[arg(long = "audience", value_name = "URL")]
        audiences: Vec<String>,
    },
    /// Get a token for an agent: a challenge to sign for a wallet, or a token for a framework agent's secret
    Token {
        /// The wallet of the agent: prints the text to sign
        #[arg(long, conflicts_with_all = ["client_id", "challenge"])]
        wallet: Option<String>,
        /// The challenge that was signed
        #[arg(long, requires = "signature")]
        challenge: Option<String>,
        /// The signature of the text, by the wallet
        #[arg(long, requires = "challenge")]
        signature: Option<String>,
        /// The client ID of a framework agent
        #[arg(long, requires = "client_secret")]
        client_id: Option<String>,
        /// The secret; `@file` reads a file, `-` the standard input
        #[arg(long)]
        client_secret: Option<String>,
        /// Where the token is for
        #[arg(long, value_name = "URL")]
        resource: Option<String>,
        /// A scope of the agent; may be repeated
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
    },
    /// Suspend an agent: all its tokens end at once
    Suspend {
        /// The ID of the agent
        id: String,
        /// For a framework agent
        #[arg(long)]
        framework: bool,
        /// The reason, for its log
        #[arg(long)]
        reason: Option<String>,
    },
    /// Lift a suspension
    Reactivate {
        /// The ID of the agent
        id: String,
        /// For a framework agent
        #[arg(long)]
        framework: bool,
    },
    /// Show what an agent did
    Logs {
        /// The ID of the agent
        id: String,
        /// For a framework agent
        #[arg(long)]
        framework: bool,
        #[command(flatten)]
        most: Most,
    },
}

fn agent_path(framework: bool) -> &'static str {
    if framework { "/framework-agent" } else { "/agent" }
}

pub async fn run(server: &Server, command: &Agents) -> Result<()> {
    match command {
        Agents::List { framework, most } => {
            let path = if *framework { "/framework-agent" } else { "/agent/list" };
            let org = chosen_org(server).await?.map(|id| format!("?orgId={}", text_at(&json!({ "id": id }), "id")));
            let columns = [("ID", "id"), ("Name", "name"), ("Status", "status"), ("Last used", "lastUsedAt")];
            list(
                server,
                &format!("{path}{}", org.unwrap_or_default()),
                "agents",
                most,
                &columns,
                "No agents of this kind yet. --framework lists framework agents.",
            )
            .await
        }
        Agents::Register { name, wallet, framework, scopes, audiences } => {
            let new = body(&[
                ("name", Some(json!(name))),
                ("wallet", some(wallet.as_ref())),
                ("framework", some(framework.as_ref())),
                ("scopes", many(scopes)),
                ("audiences", many(audiences)),
                ("orgId", chosen_org(server).await?),
            ]);
            let path = format!("{}/register", agent_path(framework.is_some()));
            let made = server.post(&path, new).await?;
            server.out.answer(&made, |out| {
                out.line(&format!("{} Registered {name}.", out.green("✓")));
                // The client ID of a framework agent is its ID.
                let id = if made["clientId"].is_string() { ("Client ID", "clientId") } else { ("ID", "agent.id") };
                out.record(
                    &made,
                    &[
                        id,
                        ("Status", "agent.status"),
                        ("Wallet", "agent.wallet"),
                        ("Secret", "clientSecret"),
                        ("Kill switch", "killSwitchToken"),
                    ],
                );
                if made["clientSecret"].is_string() {
                    out.note("The secret and the kill switch are shown only now.");
                }
            });
            Ok(())
        }
        Agents::Token { wallet, challenge, signature, client_id, client_secret, resource, scopes } => {
            token(server, (wallet, challenge, signature), (client_id, client_secret), resource.as_ref(), scopes).await
        }
        Agents::Suspend { id, framework, reason } => {
            let path = format!("{}/{}/suspend", agent_path(*framework), encoded(id));
            let answer = server.post(&path, body(&[("reason", some(reason.as_ref()))])).await?;
            server.out.answer(&answer, |out| out.record(&answer["agent"], MACHINE));
            Ok(())
        }
        Agents::Reactivate { id, framework } => {
            let path = format!("{}/{}/reactivate", agent_path(*framework), encoded(id));
            let answer = server.ask(Method::POST, &path, None).await?;
            server.out.answer(&answer, |out| out.record(&answer["agent"], MACHINE));
            Ok(())
        }
        Agents::Logs { id, framework, most } => {
            let path = format!("{}/{}/logs", agent_path(*framework), encoded(id));
            list(server, &path, "logs", most, LOGS, "Nothing yet.").await
        }
    }
}

async fn token(
    server: &Server,
    (wallet, challenge, signature): (&Option<String>, &Option<String>, &Option<String>),
    (client_id, client_secret): (&Option<String>, &Option<String>),
    resource: Option<&String>,
    scopes: &[String],
) -> Result<()> {
    const TOKEN: &[Column] = &[("Token", "accessToken"), ("Scope", "scope"), ("Expires in", "expiresIn")];
    if let Some(wallet) = wallet {
        let asked = body(&[("wallet", Some(json!(wallet))), ("resource", some(resource)), ("scopes", many(scopes))]);
        let answer = server.post("/agent/challenge", asked).await?;
        server.out.answer(&answer, |out| {
            out.line(answer["message"].as_str().unwrap_or_default());
            out.line("");
            out.record(&answer, &[("Challenge", "challenge")]);
            out.note(
                "\nSign the text above with the wallet, then run\n  janua agents token --challenge … --signature …",
            );
        });
        return Ok(());
    }
    let (path, asked) = match (challenge, client_id) {
        (Some(challenge), _) => {
            ("/agent/token", body(&[("challenge", Some(json!(challenge))), ("signature", some(signature.as_ref()))]))
        }
        (None, Some(id)) => {
            let secret = client_secret.as_ref().map(|secret| input(secret)).transpose()?;
            let secret = secret.map(|secret| json!(secret.trim()));
            let asked = [
                ("clientId", Some(json!(id))),
                ("clientSecret", secret),
                ("resource", some(resource)),
                ("scopes", many(scopes)),
            ];
            ("/framework-agent/token", body(&asked))
        }
        (None, None) => {
            return Err(Failure::usage(
                "Give --wallet, or --challenge and --signature, or --client-id and --client-secret.",
            ));
        }
    };
    let answer = server.post(path, asked).await?;
    server.out.answer(&answer, |out| out.record(&answer, TOKEN));
    Ok(())
}
