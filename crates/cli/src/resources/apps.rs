//! `janua apps`.
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    failure::{Failure, Result},
    output::{Column, text_at},
    resources::{Most, body, done, list, many, some},
    server::Server,
};

const APP: &[Column] =
    &[("ID", "id"), ("Name", "name"), ("Slug", "slug"), ("Your role", "role"), ("Created", "createdAt")];

const URLS: &[Column] = &[("Redirect URLs", "redirectUris"), ("Origins", "allowedOrigins")];

#[derive(clap::Subcommand)]
pub enum Apps {
    /// List the apps of your organizations
    List {
        #[command(flatten)]
        most: Most,
    },
    /// Create an app in the organization of --org
    Create {
        /// Its name, which users see when they sign in
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
        /// Its new name
        #[arg(long)]
        name: Option<String>,
        /// Its new slug: the URL of its site changes
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

pub async fn run(server: &Server, command: &Apps) -> Result<()> {
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
                out.record(&app, &[APP, URLS].concat());
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
            done(server, &app, "Updated.", &[APP, URLS].concat());
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
