//! What a server says of itself, and its versions in the registry.
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Fault, INVALID, Result},
    ports::outgoing,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    URL_OUTSIDE_DOMAIN, VERSION_EXISTS, manifest,
    model::{McpServer, Visibility},
};
use crate::{domains, shared::Permissions};

/// The entry of a server in the registry. Fields that are left out stay as they are.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Where clients connect to: an https URL on the domain.
    #[schemars(length(max = 2000))]
    url: Option<String>,
    #[schemars(length(min = 1, max = 100))]
    title: Option<String>,
    #[schemars(length(min = 1, max = 100))]
    description: Option<String>,
    /// Publishes this version in the registry. A published version never changes.
    #[schemars(regex(pattern = r"^[0-9A-Za-z][0-9A-Za-z.+-]{0,63}$"))]
    version: Option<String>,
    /// As in `server.json` of the MCP registry.
    #[schemars(with = "Option<Vec<serde_json::Map<String, Value>>>", length(max = 20))]
    packages: Option<Value>,
    /// As in `server.json` of the MCP registry. Default: the URL, by streamable HTTP.
    #[schemars(with = "Option<Vec<serde_json::Map<String, Value>>>", length(max = 20))]
    remotes: Option<Value>,
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    repository: Option<Value>,
    visibility: Option<Visibility>,
    #[serde(flatten)]
    permissions: Permissions,
}

const MOST_METADATA: usize = 16 * 1024;

impl Metadata {
    pub fn check(&self, now: Timestamp) -> Result<()> {
        self.permissions.check(now)?;
        let is_long =
            |value: &Option<Value>| value.as_ref().is_some_and(|value| value.to_string().len() > MOST_METADATA);
        let fields = [("packages", &self.packages), ("remotes", &self.remotes), ("repository", &self.repository)];
        if let Some((field, _)) = fields.into_iter().find(|(_, value)| is_long(value)) {
            return Err(INVALID.at(field, "too_long", "must be at most 16 kB"));
        }
        if self.version.as_deref().is_some_and(|version| !manifest::is_exact(version)) {
            return Err(INVALID.at("version", "wrong_form", "must be one version, not a range and not latest"));
        }
        manifest::check(self.packages.as_ref(), self.remotes.as_ref(), self.repository.as_ref())
    }

    /// Writes what was given; a URL outside of the domain is refused.
    pub fn apply(&self, server: &mut McpServer) -> Result<()> {
        if let Some(url) = &self.url {
            let host = outgoing::endpoint(url).ok().filter(|url| url.scheme() == "https");
            let host = host.and_then(|url| url.domain().map(str::to_owned));
            if !host.is_some_and(|host| domains::covers(&server.domain, &host)) {
                return Err(outside("url".to_owned()));
            }
            server.url = Some(url.clone());
        }
        server.title = self.title.clone().or(server.title.take());
        server.machine.description = self.description.clone().or(server.machine.description.take());
        server.packages = self.packages.clone().unwrap_or(server.packages.take());
        if let Some(remotes) = &self.remotes {
            let mut urls =
                remotes.as_array().into_iter().flatten().map(|remote| remote["url"].as_str().unwrap_or_default());
            let is_covered = |url| domains::host(url).is_some_and(|host| domains::covers(&server.domain, &host));
            if let Some(place) = urls.position(|url| !is_covered(url)) {
                return Err(outside(format!("remotes.{place}.url")));
            }
            server.remotes = remotes.clone();
        }
        server.repository = self.repository.clone().or(server.repository.take());
        server.visibility = self.visibility.unwrap_or(server.visibility);
        let Permissions { scopes, audiences, limits, expires_at } = &self.permissions;
        let (scopes, audiences, limits) = (scopes.clone(), audiences.clone(), limits.clone());
        Permissions { scopes, audiences, limits, expires_at: *expires_at }.apply(&mut server.machine);
        server.version = self.version.clone().or(server.version.take());
        if self.version.is_some() && server.machine.description.is_none() {
            return Err(INVALID.at("description", "required", "a published version needs a description"));
        }
        Ok(())
    }
}

fn outside(field: String) -> Fault {
    URL_OUTSIDE_DOMAIN.at(field, "outside_domain", "must be an https URL on the server's domain")
}

/// The server as the registry describes it (`server.json`).
fn document(server: &McpServer, version: &str) -> Value {
    let mut remotes = server.remotes.clone();
    if let (Some(url), Some(true)) = (&server.url, remotes.as_array().map(Vec::is_empty)) {
        remotes = json!([{ "type": "streamable-http", "url": url }]);
    }
    let mut document = json!({
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": server.full_name, "description": server.machine.description, "version": version,
    });
    let lists = [("packages", &server.packages), ("remotes", &remotes)];
    for (name, list) in lists.into_iter().filter(|(_, list)| list.as_array().is_some_and(|list| !list.is_empty())) {
        document[name] = list.clone();
    }
    if let Some(title) = &server.title {
        document["title"] = title.clone().into();
    }
    if let Some(repository) = &server.repository {
        document["repository"] = repository.clone();
    }
    document
}

pub async fn publish(tx: &mut db::Tx, janua: &Janua, server: &McpServer) -> Result<()> {
    let Some(version) = &server.version else { return Ok(()) };
    let document = document(server, version);
    let is_published = McpServer::publish(tx, server.machine.id, version, &document, janua.clock.now()).await?;
    if is_published { Ok(()) } else { Err(VERSION_EXISTS.into()) }
}
