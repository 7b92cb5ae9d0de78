//! `janua orgs`.
use serde_json::json;

use crate::{
    failure::Result,
    output::{Column, text_at},
    resources::{Most, body, done, list, some},
    server::Server,
};

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

pub async fn run(server: &Server, command: &Orgs) -> Result<()> {
    const ORG: &[Column] =
        &[("ID", "id"), ("Name", "name"), ("Slug", "slug"), ("Your role", "role"), ("Plan", "tier")];
    match command {
        Orgs::List => {
            list(
                server,
                "/user/orgs",
                "orgs",
                &Most { limit: 1000 },
                ORG,
                "No organizations yet. Create one with `janua orgs create NAME`.",
            )
            .await
        }
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
            let org = server.get(&format!("/org/{id}")).await?;
            let name = text_at(&org, "name");
            server
                .out
                .confirm(server.options.yes, &format!("Delete organization {name} ({id}) with all its apps?"))?;
            server.delete(&format!("/org/{id}")).await?;
            done(server, &json!({ "id": id, "deleted": true }), &format!("Deleted organization {name}."), &[]);
            Ok(())
        }
    }
}
