//! `janua domains`.
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    failure::Result,
    output::Column,
    resources::{body, done, some},
    server::{Server, encoded},
};

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

pub async fn run(server: &Server, command: &Domains) -> Result<()> {
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
            server.out.note(&format!("\nCreate these records, then run `janua domains check {domain}`."));
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
