//! What this server can do, for whoever asks: configuration, schemas, kinds of resources.
use axum::{extract::State, http::StatusCode, response::Response};
use kernel::{
    Janua,
    fault::{FORBIDDEN, NOT_FOUND, Result},
    http::{Path, Query, Routes},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    answer::{self, List, SCIM, Shown},
    schema::{GROUPS, SCHEMAS, USERS},
    search::MOST,
    users::ResourcePath,
};

pub fn routes() -> Routes {
    Routes::new("scim")
        .get("/scim/v2/ServiceProviderConfig", service_provider_config, "server capabilities")
        .answers::<Shown>(200, SCIM)
        .get("/scim/v2/Schemas", list_schemas, "schema definitions")
        .answers::<List>(200, SCIM)
        .fails(&[FORBIDDEN])
        .get("/scim/v2/Schemas/{id}", get_schema, "one schema definition")
        .answers::<Shown>(200, SCIM)
        .get("/scim/v2/ResourceTypes", list_resource_types, "resource type definitions")
        .answers::<List>(200, SCIM)
        .fails(&[FORBIDDEN])
        .get("/scim/v2/ResourceTypes/{id}", get_resource_type, "one resource type definition")
        .answers::<Shown>(200, SCIM)
}

async fn service_provider_config(State(janua): State<Janua>) -> Response {
    let base = janua.config.base_url();
    let yes = json!({ "supported": true });
    let no = json!({ "supported": false });
    answer::scim(
        StatusCode::OK,
        &json!({
            "schemas": ["urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"],
            "patch": yes, "sort": yes, "etag": yes, "changePassword": no,
            "bulk": { "supported": false, "maxOperations": 0, "maxPayloadSize": 0 },
            "filter": { "supported": true, "maxResults": MOST },
            "authenticationSchemes": [{
                "type": "oauthbearertoken", "name": "SCIM token", "primary": true,
                "description": "A SCIM token of the organization, created at /org/{id}/scim-tokens.",
                "specUri": "https://www.rfc-editor.org/rfc/rfc6750",
            }],
            "meta": {
                "resourceType": "ServiceProviderConfig",
                "location": format!("{base}/scim/v2/ServiceProviderConfig"),
            },
        }),
    )
}

/// The standard has no filters here (RFC 7644, 4).
#[derive(Deserialize, JsonSchema)]
struct NoFilter {
    filter: Option<String>,
}

fn all(query: &NoFilter, found: Vec<Value>) -> Result<Response> {
    if query.filter.is_some() {
        return Err(FORBIDDEN.because("This list cannot be filtered."));
    }
    let total = i64::try_from(found.len()).unwrap_or(i64::MAX);
    Ok(answer::scim(StatusCode::OK, &List::new(total, 1, found)))
}

async fn list_schemas(State(janua): State<Janua>, Query(query): Query<NoFilter>) -> Result<Response> {
    let base = janua.config.base_url();
    all(&query, SCHEMAS.iter().map(|schema| schema.json(&base)).collect())
}

async fn get_schema(
    State(janua): State<Janua>,
    Path(ResourcePath { id }): Path<ResourcePath<String>>,
) -> Result<Response> {
    let found = SCHEMAS.iter().find(|schema| schema.id.eq_ignore_ascii_case(&id)).ok_or(NOT_FOUND)?;
    Ok(answer::scim(StatusCode::OK, &found.json(&janua.config.base_url())))
}

async fn list_resource_types(State(janua): State<Janua>, Query(query): Query<NoFilter>) -> Result<Response> {
    let base = janua.config.base_url();
    all(&query, [&USERS, &GROUPS].iter().map(|kind| kind.json(&base)).collect())
}

async fn get_resource_type(
    State(janua): State<Janua>,
    Path(ResourcePath { id }): Path<ResourcePath<String>>,
) -> Result<Response> {
    let kinds = [&USERS, &GROUPS];
    let found = kinds.iter().find(|kind| kind.name.eq_ignore_ascii_case(&id)).ok_or(NOT_FOUND)?;
    Ok(answer::scim(StatusCode::OK, &found.json(&janua.config.base_url())))
}
