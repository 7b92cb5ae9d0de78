//! The registry API (`/v0.1`) as clients of the MCP registry read it: of all public servers, and of one organization's own
//! behind a key in the base URL, because those clients cannot authenticate.
mod keys;
mod model;

use axum::{
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Fault, NOT_FOUND, Result},
    http::{Json, Path, Query, Routes, Wording},
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenancy::orgs::OrgId;
use url::Url;

pub use self::keys::{AFTER_RESTORE, EVENTS};
use self::model::{Entry, Filter};
use crate::domains;

pub fn routes() -> Routes {
    Routes::new("registry")
        .get("/v0.1/servers", list_servers, "the registry: verified public MCP servers")
        .for_any_origin()
        .get("/v0.1/servers/{name}/versions", server_versions, "the registry: all versions of a server")
        .for_any_origin()
        .get("/v0.1/servers/{name}/versions/{version}", server_version, "the registry: one version, or latest")
        .for_any_origin()
        .get("/registry/{key}/v0.1/servers", list_own_servers, "the registry of an organization, by its key")
        .answers::<ServerList>(200, "application/json")
        .for_any_origin()
        .get("/registry/{key}/v0.1/servers/{name}/versions", own_server_versions, "all versions of a server in it")
        .answers::<ServerList>(200, "application/json")
        .for_any_origin()
        .get(
            "/registry/{key}/v0.1/servers/{name}/versions/{version}",
            own_server_version,
            "one version of a server in it, or latest",
        )
        .answers::<ServerEntry>(200, "application/json")
        .for_any_origin()
        .worded("/v0.1", &Words)
        .worded("/registry", &Words)
        .and(keys::routes())
}

/// Errors as the registry words them.
struct Words;

#[derive(Debug, Clone, Serialize, JsonSchema)]
struct RegistryError<'a> {
    /// The code of the error.
    error: &'a str,
    message: String,
}

impl Wording for Words {
    fn content_type(&self) -> &'static str {
        "application/json"
    }

    fn schema_name(&self) -> &'static str {
        "RegistryError"
    }

    fn schema(&self, generator: SchemaGenerator) -> Schema {
        generator.into_root_schema_for::<RegistryError<'_>>()
    }

    fn member(&self) -> &'static str {
        "error"
    }

    fn word<'a>(&self, code: &'a str, _: u16) -> Option<&'a str> {
        Some(code)
    }

    fn write(&self, fault: &Fault, _: &str, body: &mut Vec<u8>) -> serde_json::Result<()> {
        serde_json::to_writer(body, &RegistryError { error: fault.code().name, message: fault.whole_sentence() })
    }
}

#[derive(Deserialize, JsonSchema)]
struct RegistryQuery {
    /// Part of a server's name.
    #[schemars(length(max = 200))]
    search: Option<String>,
    /// Only versions that were published since this moment.
    updated_since: Option<Timestamp>,
    /// `latest`, or an exact version.
    #[schemars(length(max = 64))]
    version: Option<String>,
    /// Accepted for compatibility: deleted servers are not listed.
    #[serde(rename = "include_deleted")]
    _include_deleted: Option<bool>,
    #[schemars(range(min = 1, max = 100), extend("default" = 30))]
    limit: Option<u32>,
    /// `metadata.nextCursor` of the page before.
    #[schemars(length(max = 300))]
    cursor: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct ServerList {
    servers: Vec<ServerEntry>,
    metadata: ListMetadata,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    count: usize,
}

#[derive(Serialize, JsonSchema)]
struct ServerEntry {
    /// As in `server.json` of the MCP registry.
    #[schemars(with = "serde_json::Map<String, Value>")]
    server: Value,
    #[serde(rename = "_meta")]
    #[schemars(with = "serde_json::Map<String, Value>")]
    meta: Value,
}

impl ServerEntry {
    fn of(janua: &Janua, entry: Entry) -> Self {
        let base = Url::parse(&janua.config.base_url()).ok();
        let host = base.as_ref().and_then(Url::domain).unwrap_or("localhost");
        let ours = format!("{}/janua", domains::reversed(host));
        let meta = json!({
            "io.modelcontextprotocol.registry/official": {
                "status": "active", "statusChangedAt": entry.published_at, "publishedAt": entry.published_at,
                "updatedAt": entry.published_at,
                "isLatest": entry.is_latest,
            },
            (ours): {
                "verified": true, "method": entry.method, "verifiedAt": entry.verified_at, "org": entry.org_name,
            },
        });
        Self { server: entry.document, meta }
    }
}

async fn list(janua: &Janua, org: Option<OrgId>, query: RegistryQuery) -> Result<ServerList> {
    const DEFAULT: u32 = 30;
    let most = query.limit.unwrap_or(DEFAULT);
    let (name, version) = query.cursor.as_deref().and_then(|cursor| cursor.split_once('@')).unwrap_or_default();
    let wanted = query.version.unwrap_or_default();
    let filter = Filter {
        org,
        search: query.search.unwrap_or_default().to_lowercase(),
        since: query.updated_since.unwrap_or(Timestamp(0)),
        is_latest: wanted == "latest",
        version: Some(wanted).filter(|wanted| wanted != "latest").unwrap_or_default(),
        after: (name.to_owned(), version.to_owned()),
    };
    let mut found = Entry::page(&janua.db, &filter, janua.clock.now(), most + 1).await?;
    let has_more = found.len() > most as usize;
    found.truncate(most as usize);
    let last = found.last().filter(|_| has_more);
    let next_cursor = last.map(|entry| format!("{}@{}", entry.full_name, entry.version));
    let servers: Vec<_> =
        found.into_iter().filter(Entry::is_proven).map(|entry| ServerEntry::of(janua, entry)).collect();
    let metadata = ListMetadata { next_cursor, count: servers.len() };
    Ok(ServerList { servers, metadata })
}

async fn versions(janua: &Janua, org: Option<OrgId>, name: &str) -> Result<ServerList> {
    let found = Entry::of_server(&janua.db, org, name, janua.clock.now()).await?;
    if found.is_empty() {
        return Err(NOT_FOUND.into());
    }
    let servers: Vec<_> = found.into_iter().map(|entry| ServerEntry::of(janua, entry)).collect();
    let metadata = ListMetadata { next_cursor: None, count: servers.len() };
    Ok(ServerList { servers, metadata })
}

async fn version(janua: &Janua, org: Option<OrgId>, name: &str, version: &str) -> Result<ServerEntry> {
    let found = Entry::of_server(&janua.db, org, name, janua.clock.now()).await?;
    let is_meant = |entry: &Entry| if version == "latest" { entry.is_latest } else { entry.version == version };
    Ok(ServerEntry::of(janua, found.into_iter().find(is_meant).ok_or(NOT_FOUND)?))
}

#[derive(Deserialize, JsonSchema)]
struct ServerPath {
    name: String,
}

#[derive(Deserialize, JsonSchema)]
struct VersionPath {
    name: String,
    version: String,
}

#[derive(Deserialize, JsonSchema)]
struct KeyPath {
    key: String,
}

async fn list_servers(State(janua): State<Janua>, Query(query): Query<RegistryQuery>) -> Result<Json<ServerList>> {
    list(&janua, None, query).await.map(Json)
}

async fn server_versions(State(janua): State<Janua>, Path(path): Path<ServerPath>) -> Result<Json<ServerList>> {
    versions(&janua, None, &path.name).await.map(Json)
}

async fn server_version(State(janua): State<Janua>, Path(path): Path<VersionPath>) -> Result<Json<ServerEntry>> {
    version(&janua, None, &path.name, &path.version).await.map(Json)
}

/// The answer of a private registry: nothing keeps it, and no link tells its URL.
fn private<T: Serialize>(body: &T) -> Response {
    let headers = [
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
    ];
    (headers, serde_json::to_vec(body).unwrap_or_default()).into_response()
}

async fn list_own_servers(
    State(janua): State<Janua>,
    Path(KeyPath { key }): Path<KeyPath>,
    Query(query): Query<RegistryQuery>,
) -> Result<Response> {
    let org = keys::org_of(&janua, &key).await?;
    Ok(private(&list(&janua, Some(org), query).await?))
}

async fn own_server_versions(
    State(janua): State<Janua>,
    Path(KeyPath { key }): Path<KeyPath>,
    Path(path): Path<ServerPath>,
) -> Result<Response> {
    let org = keys::org_of(&janua, &key).await?;
    Ok(private(&versions(&janua, Some(org), &path.name).await?))
}

async fn own_server_version(
    State(janua): State<Janua>,
    Path(KeyPath { key }): Path<KeyPath>,
    Path(path): Path<VersionPath>,
) -> Result<Response> {
    let org = keys::org_of(&janua, &key).await?;
    Ok(private(&version(&janua, Some(org), &path.name, &path.version).await?))
}
