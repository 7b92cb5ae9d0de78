//! `janua email`: messages of an app.
use std::{fs, path::PathBuf};

use serde_json::{Map, Value, json};

use crate::{
    failure::{Failure, Result},
    output::text_at,
    resources::{Most, body, done, input, some},
    server::{Server, encoded},
};

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

pub async fn run(server: &Server, command: &Email) -> Result<()> {
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
