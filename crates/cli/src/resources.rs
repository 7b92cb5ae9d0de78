//! Commands that are a request each: apps, keys, organizations, members, users, domains, usage, email, machines, logs.
use std::{fs, io::Read as _, path::PathBuf, time::Duration};

use reqwest::{
    Method,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde_json::{Map, Value, json};

use crate::{
    failure::{Failure, Result},
    output::{Column, text_at},
    server::{Extra, Server, encoded},
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

fn done(server: &Server, answer: &Value, line: &str, fields: &[Column]) {
    server.out.answer(answer, |out| {
        out.line(&format!("{} {line}", out.green("✓")));
        out.record(answer, fields);
    });
}

/// Fields that were given.
fn body(fields: &[(&str, Option<Value>)]) -> Value {
    let given = fields.iter().filter_map(|(name, value)| Some(((*name).to_owned(), value.clone()?)));
    Value::Object(given.collect::<Map<_, _>>())
}

fn some(text: Option<&String>) -> Option<Value> {
    text.map(|text| json!(text))
}

fn many(texts: &[String]) -> Option<Value> {
    (!texts.is_empty()).then(|| json!(texts))
}

const APP: &[Column] =
    &[("ID", "id"), ("Name", "name"), ("Slug", "slug"), ("Your role", "role"), ("Created", "createdAt")];

#[derive(clap::Subcommand)]
pub enum Apps {
    /// List the apps of your organizations
    List {
        #[command(flatten)]
        most: Most,
    },
    /// Create an app in the organization of --org
    Create {
        name: String,
        /// Part of the URL of its site; derived from the name by default
        #[arg(long)]
        slug: Option<String>,
        /// An exact redirect URL; may be repeated
        #[arg(long = "redirect-uri", value_name = "URL")]
        redirect_uris: Vec<String>,
        /// An origin that browsers may call from; may be repeated
        #[arg(long = "origin", value_name = "ORIGIN")]
        origins: Vec<String>,
    },
    /// Show the app of --app
    Show,
    /// Change the app of --app
    Update {
        #[arg(long)]
        name: Option<String>,
        #[arg(long)]
        slug: Option<String>,
        /// Replaces all redirect URLs; may be repeated
        #[arg(long = "redirect-uri", value_name = "URL")]
        redirect_uris: Vec<String>,
        /// Replaces all origins; may be repeated
        #[arg(long = "origin", value_name = "ORIGIN")]
        origins: Vec<String>,
    },
    /// Delete the app of --app with its users' access, keys, files and sites
    Delete,
}

pub async fn apps(server: &Server, command: &Apps) -> Result<()> {
    match command {
        Apps::List { most } => {
            let columns = [("ID", "id"), ("Name", "name"), ("Slug", "slug"), ("Your role", "role")];
            list(server, "/apps", "apps", most, &columns, "No apps yet. Create one with `janua apps create NAME`.")
                .await
        }
        Apps::Create { name, slug, redirect_uris, origins } => {
            let org = match &server.options.org {
                Some(_) => Some(json!(server.org().await?)),
                None => server.project.org.clone().map(Value::String),
            };
            let new = body(&[
                ("name", Some(json!(name))),
                ("slug", some(slug.as_ref())),
                ("orgId", org),
                ("redirectUris", many(redirect_uris)),
                ("allowedOrigins", many(origins)),
            ]);
            let made = server.post("/apps", new).await?;
            done(server, &made, &format!("Created app {}.", text_at(&made, "name")), &APP[..3]);
            Ok(())
        }
        Apps::Show => {
            let app = server.get(&format!("/apps/{}", server.app().await?)).await?;
            server.out.answer(&app, |out| {
                let more: [Column; 2] = [("Redirect URLs", "redirectUris"), ("Origins", "allowedOrigins")];
                out.record(&app, &[APP, more.as_slice()].concat());
            });
            Ok(())
        }
        Apps::Update { name, slug, redirect_uris, origins } => {
            let change = body(&[
                ("name", some(name.as_ref())),
                ("slug", some(slug.as_ref())),
                ("redirectUris", many(redirect_uris)),
                ("allowedOrigins", many(origins)),
            ]);
            if change == json!({}) {
                return Err(Failure::usage("Nothing to change. Give --name, --slug, --redirect-uri or --origin."));
            }
            let path = format!("/apps/{}", server.app().await?);
            let app = server.ask(Method::PATCH, &path, Some(change)).await?;
            done(server, &app, "Updated.", APP);
            Ok(())
        }
        Apps::Delete => {
            let id = server.app().await?;
            let app = server.get(&format!("/apps/{id}")).await?;
            let name = text_at(&app, "name");
            server.out.confirm(server.options.yes, &format!("Delete app {name} ({id}) with all its data?"))?;
            server.delete(&format!("/apps/{id}")).await?;
            done(server, &json!({ "id": id, "deleted": true }), &format!("Deleted app {name}."), &[]);
            Ok(())
        }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum KeyType {
    Publishable,
    Secret,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Environment {
    Live,
    Test,
}

#[derive(clap::Subcommand)]
pub enum Keys {
    /// List the API keys of an app
    List {
        #[command(flatten)]
        most: Most,
    },
    /// Create an API key; its value is shown once
    Create {
        #[arg(long = "type", value_enum, default_value = "secret")]
        kind: KeyType,
        #[arg(long, value_enum, default_value = "live")]
        environment: Environment,
        #[arg(long)]
        name: Option<String>,
    },
    /// Revoke an API key
    Delete { id: String },
}

pub async fn keys(server: &Server, command: &Keys) -> Result<()> {
    let path = format!("/apps/{}/keys", server.app().await?);
    match command {
        Keys::List { most } => {
            let columns = [
                ("ID", "id"),
                ("Type", "type"),
                ("For", "environment"),
                ("Begins", "prefix"),
                ("Name", "name"),
                ("Last used", "lastUsedAt"),
            ];
            list(server, &path, "keys", most, &columns, "No keys yet. Create one with `janua keys create`.").await
        }
        Keys::Create { kind, environment, name } => {
            let kind = if matches!(kind, KeyType::Secret) { "secret" } else { "publishable" };
            let environment = if matches!(environment, Environment::Live) { "live" } else { "test" };
            let new = body(&[
                ("type", Some(json!(kind))),
                ("environment", Some(json!(environment))),
                ("name", some(name.as_ref())),
            ]);
            let key = server.post(&path, new).await?;
            done(server, &key, "Created a key. Its value is shown only now:", &[("Key", "value"), ("ID", "id")]);
            Ok(())
        }
        Keys::Delete { id } => {
            server.out.confirm(server.options.yes, &format!("Revoke key {id}?"))?;
            server.delete(&format!("{path}/{}", encoded(id))).await?;
            done(server, &json!({ "id": id, "deleted": true }), "Revoked the key.", &[]);
            Ok(())
        }
    }
}

#[derive(clap::Subcommand)]
pub enum Orgs {
    /// List your organizations
    List,
    /// Create an organization
    Create {
        name: String,
        #[arg(long)]
        slug: Option<String>,
    },
    /// Show the organization of --org
    Show,
    /// Delete the organization of --org with its apps
    Delete,
}

pub async fn orgs(server: &Server, command: &Orgs) -> Result<()> {
    const ORG: &[Column] =
        &[("ID", "id"), ("Name", "name"), ("Slug", "slug"), ("Your role", "role"), ("Plan", "tier")];
    match command {
        Orgs::List => list(server, "/user/orgs", "orgs", &Most { limit: 1000 }, ORG, "No organizations yet.").await,
        Orgs::Create { name, slug } => {
            let new = body(&[("name", Some(json!(name))), ("slug", some(slug.as_ref()))]);
            let org = server.post("/org", new).await?;
            done(server, &org, &format!("Created organization {}.", text_at(&org, "name")), &ORG[..3]);
            Ok(())
        }
        Orgs::Show => {
            let org = server.get(&format!("/org/{}", server.org().await?)).await?;
            server.out.answer(&org, |out| out.record(&org, ORG));
            Ok(())
        }
        Orgs::Delete => {
            let id = server.org().await?;
            server.out.confirm(server.options.yes, &format!("Delete organization {id} with all its apps?"))?;
            server.delete(&format!("/org/{id}")).await?;
            done(server, &json!({ "id": id, "deleted": true }), "Deleted the organization.", &[]);
            Ok(())
        }
    }
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Role {
    Member,
    Admin,
    Owner,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }
}

#[derive(clap::Subcommand)]
pub enum Members {
    /// List the members of an organization
    List {
        #[command(flatten)]
        most: Most,
    },
    /// Invite a user by email
    Invite {
        email: String,
        #[arg(long, value_enum, default_value = "member")]
        role: Role,
    },
    /// List invitations that are not accepted yet
    Invites {
        #[command(flatten)]
        most: Most,
    },
    /// Change a member's role
    Role {
        #[arg(value_name = "USER_ID")]
        user: String,
        #[arg(value_enum)]
        role: Role,
    },
    /// Remove a member
    Remove {
        #[arg(value_name = "USER_ID")]
        user: String,
    },
}

pub async fn members(server: &Server, command: &Members) -> Result<()> {
    let org = format!("/org/{}", server.org().await?);
    match command {
        Members::List { most } => {
            let columns = [("ID", "userId"), ("Email", "email"), ("Name", "name"), ("Role", "role")];
            list(server, &format!("{org}/members"), "members", most, &columns, "No members.").await
        }
        Members::Invite { email, role } => {
            let new = json!({ "email": email, "role": role.name() });
            let invite = server.post(&format!("{org}/members"), new).await?;
            done(server, &invite, &format!("Invited {email} as {}.", role.name()), &[("Expires", "expiresAt")]);
            Ok(())
        }
        Members::Invites { most } => {
            let columns = [("Email", "email"), ("Role", "role"), ("Sent", "sentAt"), ("Expires", "expiresAt")];
            list(server, &format!("{org}/invites"), "invites", most, &columns, "No pending invitations.").await
        }
        Members::Role { user, role } => {
            let path = format!("{org}/members/{}", encoded(user));
            let member = server.ask(Method::PATCH, &path, Some(json!({ "role": role.name() }))).await?;
            done(server, &member, "Changed the role.", &[("Email", "email"), ("Role", "role")]);
            Ok(())
        }
        Members::Remove { user } => {
            server.out.confirm(server.options.yes, &format!("Remove member {user}?"))?;
            server.delete(&format!("{org}/members/{}", encoded(user))).await?;
            done(server, &json!({ "userId": user, "removed": true }), "Removed the member.", &[]);
            Ok(())
        }
    }
}

#[derive(clap::Subcommand)]
pub enum Users {
    /// List the end users of an app
    List {
        /// Part of an email or a name
        #[arg(long)]
        search: Option<String>,
        #[command(flatten)]
        most: Most,
    },
    /// Show an end user with sessions and activity
    Show { id: String },
    /// Block an end user from the app and end their sessions in it
    Block { id: String },
    /// Let a blocked end user sign in again
    Unblock { id: String },
    /// End the sessions of an end user in the app
    SignOut { id: String },
}

pub async fn users(server: &Server, command: &Users) -> Result<()> {
    let path = format!("/apps/{}/users", server.app().await?);
    match command {
        Users::List { search, most } => {
            let asked = search.as_ref().map(|text| format!("?search={}", encoded(text))).unwrap_or_default();
            let columns = [("ID", "id"), ("Email", "email"), ("Name", "name"), ("Last sign-in", "lastSignInAt")];
            list(
                server,
                &format!("{path}{asked}"),
                "users",
                most,
                &columns,
                "No users have signed in to this app yet.",
            )
            .await
        }
        Users::Show { id } => {
            let user = server.get(&format!("{path}/{}", encoded(id))).await?;
            server.out.answer(&user, |out| {
                out.record(
                    &user,
                    &[
                        ("ID", "id"),
                        ("Email", "email"),
                        ("Verified", "emailVerified"),
                        ("Name", "name"),
                        ("First sign-in", "firstSignInAt"),
                        ("Last sign-in", "lastSignInAt"),
                        ("Blocked", "blockedAt"),
                    ],
                );
                let rows = |name: &str| user[name].as_array().cloned().unwrap_or_default();
                out.line("");
                let columns = [("Session", "device"), ("IP address", "ip"), ("Last seen", "lastSeenAt")];
                out.table(&columns, &rows("sessions"), "No sessions.");
                out.line("");
                out.table(
                    &[("Time", "at"), ("Activity", "type"), ("IP address", "ip")],
                    &rows("activity"),
                    "No activity.",
                );
            });
            Ok(())
        }
        Users::Block { id } | Users::Unblock { id } => {
            let act = if matches!(command, Users::Block { .. }) { "block" } else { "unblock" };
            server.ask(Method::POST, &format!("{path}/{}/{act}", encoded(id)), None).await?;
            done(server, &json!({ "id": id, "blocked": act == "block" }), &format!("Done: {act}."), &[]);
            Ok(())
        }
        Users::SignOut { id } => {
            server.delete(&format!("{path}/{}/sessions", encoded(id))).await?;
            done(server, &json!({ "id": id, "signedOut": true }), "Ended the sessions in this app.", &[]);
            Ok(())
        }
    }
}

#[derive(clap::Subcommand)]
pub enum Domains {
    /// List the domains of an app
    List,
    /// Add a domain; shows the DNS records to create
    Add {
        domain: String,
        /// Redirect visitors to another domain of the app
        #[arg(long, value_name = "DOMAIN")]
        redirect_to: Option<String>,
    },
    /// Look the DNS records up now
    Check { domain: String },
    /// Remove a domain
    Remove { domain: String },
}

pub async fn domains(server: &Server, command: &Domains) -> Result<()> {
    const RECORDS: &[Column] =
        &[("Type", "type"), ("Name", "name"), ("Value", "value"), ("For", "purpose"), ("Status", "status")];
    let app = server.app().await?;
    let show = |domain: &Value| {
        server.out.answer(domain, |out| {
            out.record(domain, &[("Domain", "domain"), ("Status", "status"), ("Reason", "reason"), ("Hint", "hint")]);
            out.line("\nDNS records:");
            let records = domain["records"].as_array().cloned().unwrap_or_default();
            // Values are copied: a record is written out where a table would cut it.
            if out.is_terminal() {
                for record in &records {
                    out.line("");
                    out.record(record, RECORDS);
                }
            } else {
                out.table(RECORDS, &records, "None.");
            }
        });
    };
    let of = |domain: &str| format!("/domains/onboard/{app}/{}", encoded(domain));
    match command {
        Domains::List => {
            let found = server.get(&format!("/apps/{app}/domains")).await?;
            let rows = found["domains"].as_array().cloned().unwrap_or_default();
            server.out.answer(&found, |out| {
                let columns = [
                    ("Domain", "domain"),
                    ("Status", "status"),
                    ("Reason", "reason"),
                    ("Certificate", "certificate.status"),
                ];
                out.table(&columns, &rows, "No domains yet. Add one with `janua domains add DOMAIN`.");
            });
        }
        Domains::Add { domain, redirect_to } => {
            let new = body(&[
                ("appId", Some(json!(app))),
                ("domain", Some(json!(domain))),
                ("redirectTo", some(redirect_to.as_ref())),
            ]);
            show(&server.post("/domains/onboard", new).await?);
            server.out.note("\nCreate these records, then run `janua domains check`.");
        }
        Domains::Check { domain } => {
            show(&server.ask(Method::POST, &format!("{}/check", of(domain)), None).await?);
        }
        Domains::Remove { domain } => {
            server.out.confirm(server.options.yes, &format!("Remove {domain}?"))?;
            server.delete(&of(domain)).await?;
            done(server, &json!({ "domain": domain, "removed": true }), "Removed the domain.", &[]);
        }
    }
    Ok(())
}

#[derive(clap::Args)]
pub struct Usage {
    /// Show what an app used by meter and day instead of the plan's meters
    #[arg(long)]
    meter: Option<String>,
    /// First day, such as 2026-01-31
    #[arg(long, value_name = "DATE", requires = "meter")]
    from: Option<String>,
    /// The day after the last
    #[arg(long, value_name = "DATE", requires = "meter")]
    to: Option<String>,
}

pub async fn usage(server: &Server, wishes: &Usage) -> Result<()> {
    let org = server.org().await?;
    let Some(meter) = &wishes.meter else {
        let found = server.get(&format!("/usage/meters?orgId={org}")).await?;
        let rows = found["meters"].as_array().cloned().unwrap_or_default();
        server.out.answer(&found, |out| {
            out.record(&found, &[("Plan", "plan")]);
            out.line("");
            let columns = [
                ("Meter", "name"),
                ("Used", "used"),
                ("Limit", "limit|included"),
                ("Per", "period"),
                ("Resets", "resetsAt"),
            ];
            out.table(&columns, &rows, "No meters.");
        });
        return Ok(());
    };
    let mut path = format!("/usage?orgId={org}&window=day&meter={}", encoded(meter));
    for (name, value) in [("from", &wishes.from), ("to", &wishes.to)] {
        if let Some(value) = value {
            path.extend(["&", name, "=", &encoded(value)]);
        }
    }
    let columns = [("From", "from"), ("Meter", "meter"), ("Value", "value"), ("Unit", "unit"), ("Events", "events")];
    list(server, &path, "usage", &Most { limit: 1000 }, &columns, "No usage in this time.").await
}

#[derive(clap::Subcommand)]
pub enum Email {
    /// Send a message
    Send {
        /// A recipient; may be repeated
        #[arg(long, required = true)]
        to: Vec<String>,
        #[arg(long)]
        subject: Option<String>,
        /// The text; `-` reads it from the standard input
        #[arg(long)]
        text: Option<String>,
        /// A file with the HTML
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        #[arg(long)]
        from: Option<String>,
        /// A template of the app instead of a subject and a text
        #[arg(long)]
        template: Option<String>,
        /// A variable of the template; may be repeated
        #[arg(long = "var", value_name = "NAME=VALUE", requires = "template")]
        variables: Vec<String>,
    },
    /// List messages and what became of them
    Log {
        /// Only messages with this status, such as bounced
        #[arg(long)]
        status: Option<String>,
        #[command(flatten)]
        most: Most,
    },
    /// Show a message with its recipients and events
    Show { id: String },
}

pub async fn email(server: &Server, command: &Email) -> Result<()> {
    let path = format!("/apps/{}/email", server.app().await?);
    match command {
        Email::Send { to, subject, text, html, from, template, variables } => {
            let html = html.as_ref().map(fs::read_to_string).transpose()?;
            let text = text.as_ref().map(|text| input(text)).transpose()?;
            let template = match template {
                Some(name) => {
                    let pairs: Result<Map<String, Value>> = variables
                        .iter()
                        .map(|pair| match pair.split_once('=') {
                            Some((name, value)) => Ok((name.to_owned(), json!(value))),
                            None => Err(Failure::usage(format!("--var {pair}: must be NAME=VALUE"))),
                        })
                        .collect();
                    Some(json!({ "name": name, "variables": pairs? }))
                }
                None => None,
            };
            let message = body(&[
                ("to", Some(json!(to))),
                ("subject", some(subject.as_ref())),
                ("text", some(text.as_ref())),
                ("html", some(html.as_ref())),
                ("from", some(from.as_ref())),
                ("template", template),
            ]);
            let sent = server.post(&format!("{path}/send"), message).await?;
            done(server, &sent, "Accepted.", &[("Message", "messageId"), ("To", "to"), ("Status", "status")]);
            Ok(())
        }
        Email::Log { status, most } => {
            let asked = status.as_ref().map(|status| format!("?status={}", encoded(status))).unwrap_or_default();
            let rows = server.list(&format!("{path}/messages{asked}"), "messages", most.count()).await?;
            server.out.answer(&json!({ "messages": rows }), |out| {
                let mut rows = rows.clone();
                for row in &mut rows {
                    row["to"] = json!(
                        row["recipients"]
                            .as_array()
                            .into_iter()
                            .flatten()
                            .map(|one| text_at(one, "email"))
                            .collect::<Vec<_>>()
                    );
                }
                let columns = [
                    ("ID", "messageId"),
                    ("To", "to"),
                    ("Subject", "subject"),
                    ("Status", "status"),
                    ("Created", "createdAt"),
                ];
                out.table(&columns, &rows, "No messages yet.");
            });
            Ok(())
        }
        Email::Show { id } => {
            let message = server.get(&format!("{path}/messages/{}", encoded(id))).await?;
            server.out.answer(&message, |out| {
                out.record(
                    &message,
                    &[
                        ("ID", "messageId"),
                        ("From", "from"),
                        ("Subject", "subject"),
                        ("Status", "status"),
                        ("Created", "createdAt"),
                    ],
                );
                out.line("");
                let rows = |name: &str| message[name].as_array().cloned().unwrap_or_default();
                let columns =
                    [("Recipient", "email"), ("Status", "status"), ("Attempts", "attempts"), ("Answer", "answer")];
                out.table(&columns, &rows("recipients"), "No recipients.");
                out.line("");
                out.table(
                    &[("Time", "at"), ("Event", "kind"), ("Recipient", "email"), ("Detail", "detail")],
                    &rows("events"),
                    "No events.",
                );
            });
            Ok(())
        }
    }
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

const MACHINE: &[Column] = &[
    ("ID", "id"),
    ("Name", "name"),
    ("Status", "status"),
    ("Suspended by", "suspendedBy"),
    ("Scopes", "scopes"),
    ("Last used", "lastUsedAt"),
];
const LOGS: &[Column] = &[
    ("Time", "at"),
    ("Event", "type"),
    ("Result", "result"),
    ("Code", "code"),
    ("Audience", "audience"),
    ("IP address", "ip"),
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
    Register {
        name: String,
        /// An Ethereum or Solana wallet
        #[arg(long, conflicts_with = "framework", required_unless_present = "framework")]
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
        #[arg(long, requires = "challenge")]
        signature: Option<String>,
        #[arg(long, requires = "client_secret")]
        client_id: Option<String>,
        /// The secret; `@file` reads a file, `-` the standard input
        #[arg(long)]
        client_secret: Option<String>,
        /// Where the token is for
        #[arg(long, value_name = "URL")]
        resource: Option<String>,
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
    },
    /// Suspend an agent: all its tokens end at once
    Suspend {
        id: String,
        #[arg(long)]
        framework: bool,
        #[arg(long)]
        reason: Option<String>,
    },
    /// Lift a suspension
    Reactivate {
        id: String,
        #[arg(long)]
        framework: bool,
    },
    /// Show what an agent did
    Logs {
        id: String,
        #[arg(long)]
        framework: bool,
        #[command(flatten)]
        most: Most,
    },
}

fn agent_path(framework: bool) -> &'static str {
    if framework { "/framework-agent" } else { "/agent" }
}

/// `orgId` for who chose an organization.
async fn chosen_org(server: &Server) -> Result<Option<Value>> {
    match (&server.options.org, &server.project.org) {
        (None, None) => Ok(None),
        _ => server.org().await.map(|id| Some(json!(id))),
    }
}

pub async fn agents(server: &Server, command: &Agents) -> Result<()> {
    match command {
        Agents::List { framework, most } => {
            let path = if *framework { "/framework-agent" } else { "/agent/list" };
            let org = chosen_org(server).await?.map(|id| format!("?orgId={}", text_at(&json!({ "id": id }), "id")));
            let columns = [("ID", "id"), ("Name", "name"), ("Status", "status"), ("Last used", "lastUsedAt")];
            list(server, &format!("{path}{}", org.unwrap_or_default()), "agents", most, &columns, "No agents yet.")
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
                out.record(&made["agent"], &[("ID", "id"), ("Status", "status"), ("Wallet", "wallet")]);
                out.record(
                    &made,
                    &[("Client ID", "clientId"), ("Secret", "clientSecret"), ("Kill switch", "killSwitchToken")],
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

#[derive(clap::Subcommand)]
pub enum Mcp {
    /// List MCP servers
    List {
        #[command(flatten)]
        most: Most,
    },
    /// Register an MCP server; shows how to prove its domain
    Register {
        name: String,
        /// The domain it belongs to
        #[arg(long)]
        domain: String,
        /// Where it is reached
        #[arg(long = "server-url", value_name = "URL")]
        server_url: Option<String>,
        #[arg(long)]
        title: Option<String>,
        #[arg(long)]
        description: Option<String>,
        #[arg(long = "server-version", value_name = "VERSION")]
        server_version: Option<String>,
    },
    /// Look for the proof of the domain now
    Verify {
        id: String,
        /// dns, http, mcpv1 or app; by default all are tried
        #[arg(long)]
        method: Option<String>,
        #[arg(long)]
        signature: Option<String>,
    },
    /// Publish a server.json: a new version of a registered server
    Publish {
        id: String,
        /// A file in the format of the official registry
        #[arg(long, default_value = "server.json", value_name = "FILE")]
        file: PathBuf,
    },
    /// Revoke the credentials of an MCP server
    Revoke {
        id: String,
        #[arg(long)]
        reason: Option<String>,
    },
    /// Show what happened with an MCP server
    Logs {
        id: String,
        #[command(flatten)]
        most: Most,
    },
}

pub async fn mcp(server: &Server, command: &Mcp) -> Result<()> {
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
                "No MCP servers yet.",
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
                        ("with value", "server.proof.dns.value"),
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
pub async fn logs(server: &Server, Logs::Tail { no_follow, kind, lines }: &Logs) -> Result<()> {
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

#[derive(clap::Args)]
pub struct Api {
    /// GET, POST, PUT, PATCH or DELETE
    method: String,
    /// A path such as /auth/me, with a query if it has one
    path: String,
    /// A field of the JSON body: NAME=TEXT, or NAME:=JSON; may be repeated
    #[arg(long = "field", short = 'f', value_name = "NAME=VALUE")]
    fields: Vec<String>,
    /// The whole body: JSON, @file, or - for the standard input
    #[arg(long, short = 'd', conflicts_with = "fields")]
    data: Option<String>,
    /// A header; may be repeated
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Print the status and the headers of the answer, too
    #[arg(long, short = 'i')]
    include: bool,
}

/// Any route of the API. The answer is printed as it came, refusals too.
pub async fn api(server: &Server, wishes: &Api) -> Result<()> {
    let method = Method::from_bytes(wishes.method.to_uppercase().as_bytes())
        .map_err(|_| Failure::usage(format!("{}: not a method", wishes.method)))?;
    if !wishes.path.starts_with('/') {
        return Err(Failure::usage(format!("{}: a path begins with /", wishes.path)));
    }
    let body = match (&wishes.data, wishes.fields.is_empty()) {
        (Some(data), _) => Some(input(data)?.into_bytes()),
        (None, true) => None,
        (None, false) => Some(fields(&wishes.fields)?.to_string().into_bytes()),
    };
    let mut headers = HeaderMap::new();
    for line in &wishes.headers {
        let wrong = || Failure::usage(format!("--header {line}: must be NAME: VALUE"));
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong())?;
        headers.append(name, HeaderValue::from_str(value.trim()).map_err(|_| wrong())?);
    }
    let extra = Extra { body, content_type: "application/json", headers };
    let answer = server.send(method, &wishes.path, &extra).await?;
    let status = answer.status();
    if wishes.include {
        server.out.line(&format!("HTTP {status}"));
        for (name, value) in answer.headers() {
            server.out.line(&format!("{name}: {}", value.to_str().unwrap_or_default()));
        }
        server.out.line("");
    }
    let text = answer.text().await.map_err(|_| Failure::failed("The connection was lost before the answer."))?;
    match serde_json::from_str::<Value>(&text) {
        Ok(value) => server.out.json(&value),
        Err(_) if text.is_empty() => {}
        Err(_) => server.out.line(text.trim_end_matches('\n')),
    }
    if status.is_client_error() || status.is_server_error() {
        let problem = serde_json::from_str(&text).unwrap_or_default();
        return Err(Failure::refused(status.as_u16(), problem));
    }
    Ok(())
}

fn fields(pairs: &[String]) -> Result<Value> {
    let mut object = Map::new();
    for pair in pairs {
        let wrong = || Failure::usage(format!("--field {pair}: must be NAME=TEXT or NAME:=JSON"));
        let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
        let (name, value) = match name.strip_suffix(':') {
            Some(name) => (name, serde_json::from_str(value).map_err(|_| wrong())?),
            None => (name, json!(value)),
        };
        object.insert(name.to_owned(), value);
    }
    Ok(Value::Object(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_text_or_json() {
        let given = ["name=Shop", "count:=2", "note=a=b"].map(str::to_owned);
        assert_eq!(fields(&given).unwrap(), json!({ "name": "Shop", "count": 2, "note": "a=b" }));
        assert!(fields(&["x:=oops".to_owned()]).is_err());
        assert!(fields(&["x".to_owned()]).is_err());
    }
}
