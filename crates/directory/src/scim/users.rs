//! `/scim/v2/Users`.
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, NoContent, Response},
};
use kernel::{
    Janua,
    fault::{NOT_FOUND, Result},
    http::{Json, Path, Query, Routes},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use tenancy::{
    enter::ScimToken,
    orgs::{LAST_OWNER, OrgId, people::PersonId},
    quotas::QUOTA_EXCEEDED,
};

use super::{
    answer::{self, List, PRECONDITION_FAILED, SCIM, Shape, Shown, is_known},
    document::{self, INVALID_VALUE},
    filter::INVALID_FILTER,
    patch::{self, INVALID_PATH, MUTABILITY, NO_TARGET, Patch},
    provision::{self, UNIQUENESS},
    schema::USERS,
    search::{self, Asked},
    user::{self, Read},
};

pub fn routes() -> Routes {
    Routes::new("scim")
        .get("/scim/v2/Users", list_users, "list users (filter supported)")
        .answers::<List>(200, SCIM)
        .fails(&[INVALID_FILTER])
        .post("/scim/v2/Users", create_user, "provision a user")
        .answers::<Shown>(201, SCIM)
        .fails(&[INVALID_VALUE, UNIQUENESS, LAST_OWNER, NOT_FOUND, QUOTA_EXCEEDED])
        .post("/scim/v2/Users/.search", search_users, "search users with a request body")
        .answers::<List>(200, SCIM)
        .fails(&[INVALID_FILTER])
        .get("/scim/v2/Users/{id}", get_user, "get a user")
        .answers::<Shown>(200, SCIM)
        .answers_nothing(304)
        .patch("/scim/v2/Users/{id}", patch_user, "partial update with SCIM patch operations")
        .answers::<Shown>(200, SCIM)
        .fails(&[INVALID_VALUE, INVALID_PATH, NO_TARGET, MUTABILITY, UNIQUENESS, LAST_OWNER, PRECONDITION_FAILED])
        .fails(&[QUOTA_EXCEEDED])
        .put("/scim/v2/Users/{id}", replace_user, "full replace")
        .answers::<Shown>(200, SCIM)
        .fails(&[INVALID_VALUE, UNIQUENESS, LAST_OWNER, PRECONDITION_FAILED, QUOTA_EXCEEDED])
        .delete("/scim/v2/Users/{id}", delete_user, "deprovision (sets active to false)")
        .fails(&[LAST_OWNER, PRECONDITION_FAILED])
}

#[derive(Deserialize, JsonSchema)]
pub struct ResourcePath<T> {
    pub id: T,
}

/// Which attributes of one resource are wanted.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wanted {
    /// Names with commas between them.
    attributes: Option<String>,
    /// Names with commas between them.
    excluded_attributes: Option<String>,
}

impl Wanted {
    pub fn shape(&self) -> Shape {
        Shape::of(self.attributes.as_deref(), self.excluded_attributes.as_deref())
    }
}

/// A resource as a provider sends it.
#[derive(Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Sent(pub Map<String, Value>);

async fn list_users(
    State(janua): State<Janua>,
    caller: ScimToken,
    Query(query): Query<search::Query>,
) -> Result<Response> {
    listed(&janua, caller.org, &query.asked()?).await
}

async fn search_users(
    State(janua): State<Janua>,
    caller: ScimToken,
    Json(request): Json<search::Request>,
) -> Result<Response> {
    listed(&janua, caller.org, &request.asked()?).await
}

async fn listed(janua: &Janua, org: OrgId, asked: &Asked) -> Result<Response> {
    let (total, found) = user::page(janua, org, asked).await?;
    let shown = found.iter().map(|seen| asked.shape.cut(&USERS, seen.show(janua))).collect();
    Ok(answer::scim(StatusCode::OK, &List::new(total, asked.start, shown)))
}

async fn show(janua: &Janua, org: OrgId, id: PersonId, status: StatusCode, shape: &Shape) -> Result<Response> {
    let seen = user::one(janua, org, id).await?.ok_or(NOT_FOUND)?;
    let whole = seen.show(janua);
    let mut response = answer::resource(status, &whole);
    if !shape.only.is_empty() || !shape.without.is_empty() {
        let (parts, _) = response.into_parts();
        let cut = answer::scim(status, &shape.cut(&USERS, whole));
        response = Response::from_parts(parts, cut.into_body());
        response.headers_mut().remove(axum::http::header::CONTENT_LENGTH);
    }
    Ok(response)
}

async fn create_user(
    State(janua): State<Janua>,
    caller: ScimToken,
    Query(wanted): Query<Wanted>,
    Json(Sent(sent)): Json<Sent>,
) -> Result<Response> {
    let read = Read::of(document::read(&USERS, &sent)?)?;
    let id = provision::create(&janua, &caller, &read).await?;
    show(&janua, caller.org, id, StatusCode::CREATED, &wanted.shape()).await
}

async fn get_user(
    State(janua): State<Janua>,
    caller: ScimToken,
    Path(ResourcePath { id }): Path<ResourcePath<PersonId>>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Result<Response> {
    let seen = user::one(&janua, caller.org, id).await?.ok_or(NOT_FOUND)?;
    if is_known(&headers, seen.person.version) {
        return Ok(StatusCode::NOT_MODIFIED.into_response());
    }
    show(&janua, caller.org, id, StatusCode::OK, &wanted.shape()).await
}

async fn patch_user(
    State(janua): State<Janua>,
    caller: ScimToken,
    Path(ResourcePath { id }): Path<ResourcePath<PersonId>>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
    Json(patch): Json<Patch>,
) -> Result<Response> {
    provision::update(&janua, &caller, id, &headers, |person| {
        let mut document = user::document(person);
        patch::apply(&USERS, &mut document, &patch)?;
        Read::of(document)
    })
    .await?;
    show(&janua, caller.org, id, StatusCode::OK, &wanted.shape()).await
}

async fn replace_user(
    State(janua): State<Janua>,
    caller: ScimToken,
    Path(ResourcePath { id }): Path<ResourcePath<PersonId>>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
    Json(Sent(sent)): Json<Sent>,
) -> Result<Response> {
    let document = document::read(&USERS, &sent)?;
    provision::update(&janua, &caller, id, &headers, |_| Read::of(document.clone())).await?;
    show(&janua, caller.org, id, StatusCode::OK, &wanted.shape()).await
}

async fn delete_user(
    State(janua): State<Janua>,
    caller: ScimToken,
    Path(ResourcePath { id }): Path<ResourcePath<PersonId>>,
    headers: HeaderMap,
) -> Result<NoContent> {
    provision::remove(&janua, &caller, id, &headers).await?;
    Ok(NoContent)
}
