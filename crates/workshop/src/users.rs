//! The people who signed in through an app.
use axum::extract::State;
use kernel::{
    Janua,
    fault::Result,
    http::{Json, Listed, Page, Query, Routes, Scope},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::end_users::{EndUser, Hit, Search},
    enter::{InApp, Member},
};

pub fn routes() -> Routes {
    Routes::new("apps").get("/apps/{appId}/users", list_users, "list end-users who authenticated through the app")
}

#[derive(Deserialize, JsonSchema)]
struct Wanted {
    /// How an address or a word of a name begins; with several words (three count), each of them. Without it, who signed
    /// in last comes first; with it, what was found is in the order of the alphabet.
    #[schemars(length(max = 200))]
    search: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Users {
    users: Vec<EndUser>,
    next_cursor: Option<String>,
}

async fn list_users(
    State(janua): State<Janua>,
    caller: InApp<Member>,
    Query(Wanted { search }): Query<Wanted>,
    page: Page,
) -> Result<Json<Users>> {
    let id = caller.application.id;
    let text = search.unwrap_or_default();
    let (users, next_cursor) = match Search::read(&text) {
        None => {
            let fetch = async |below, most| EndUser::page(&janua.db, id, &below, most).await;
            let Listed { rows, next_cursor } = page.list(&janua, "users", id, fetch, EndUser::key).await?;
            (rows, next_cursor)
        }
        Some(wanted) => {
            let fetch = async |below, most| EndUser::search(&janua.db, id, &wanted, &below, most).await;
            let scope = Scope::from(id).found_by(&text);
            let Listed { rows, next_cursor } = page.list(&janua, "found", scope, fetch, Hit::key).await?;
            (rows.into_iter().map(|hit| hit.user).collect(), next_cursor)
        }
    };
    Ok(Json(Users { users, next_cursor }))
}
