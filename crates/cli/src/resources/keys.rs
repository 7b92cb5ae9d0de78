//! `janua keys`: API keys of an app.
use serde_json::json;

use crate::{
    failure::Result,
    resources::{Most, body, done, list, some},
    server::{Server, encoded},
};

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

pub async fn run(server: &Server, command: &Keys) -> Result<()> {
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
