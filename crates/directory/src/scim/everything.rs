//! `/scim/v2/.search`: users first, then groups, as one list.
use axum::{extract::State, http::StatusCode, response::Response};
use kernel::{
    Janua,
    fault::Result,
    http::{Json, Routes},
};
use tenancy::enter::ScimToken;

use super::{
    answer::{self, List, SCIM},
    filter::INVALID_FILTER,
    group,
    schema::{GROUPS, USERS},
    search::{Asked, Request},
    user,
};

pub fn routes() -> Routes {
    Routes::new("scim")
        .post("/scim/v2/.search", search_everything, "search users and groups")
        .answers::<List>(200, SCIM)
        .fails(&[INVALID_FILTER])
}

async fn search_everything(
    State(janua): State<Janua>,
    caller: ScimToken,
    Json(request): Json<Request>,
) -> Result<Response> {
    let asked = request.asked()?;
    let is_unknown = |fault: &kernel::fault::Fault| fault.code().name == INVALID_FILTER.name;
    // An attribute that only one kind has finds nothing among the other.
    let (users, found, is_of_users) = match user::page(&janua, caller.org, &asked).await {
        Err(fault) if is_unknown(&fault) => (0, vec![], false),
        found => found.map(|(total, found)| (total, found, true))?,
    };
    let mut shown: Vec<_> = found.iter().map(|seen| asked.shape.cut(&USERS, seen.show(&janua))).collect();
    let taken = i64::try_from(shown.len()).unwrap_or(i64::MAX);
    let start = asked.start;
    let rest = Asked { start: (asked.start - users).max(1), count: asked.count - taken, ..asked };
    let (groups, found) = match group::page(&janua.db, caller.org, &rest).await {
        Err(fault) if is_unknown(&fault) && is_of_users => (0, vec![]),
        found => found?,
    };
    let found = group::show(&janua, caller.org, &found, &rest.shape).await?;
    shown.extend(found.into_iter().map(|group| rest.shape.cut(&GROUPS, group)));
    Ok(answer::scim(StatusCode::OK, &List::new(users + groups, start, shown)))
}
