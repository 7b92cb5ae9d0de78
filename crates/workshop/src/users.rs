//! The people who signed in through an app.
use axum::extract::State;
use kernel::{
    App,
    fault::Result,
    http::{Json, Key, Page, Query, Routes},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::EndUser,
    enter::{InApp, Member},
};

pub fn routes() -> Routes {
    Routes::new("apps").get("/apps/{appId}/users", list_users, "list end-users who authenticated through the app")
}

#[derive(Deserialize, JsonSchema)]
struct Search {
    /// The start of an address, or a part of a name.
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
    State(app): State<App>,
    caller: InApp<Member>,
    Query(Search { search }): Query<Search>,
    page: Page,
) -> Result<Json<Users>> {
    let list = format!("users:{}", caller.application.id);
    let below = page.below(&app, &list)?;
    let search = search.as_deref();
    let mut users = EndUser::page(&app.db, caller.application.id, search, &below, page.fetch()).await?;
    let key = |user: &EndUser| Key { at: user.last_sign_in_at, id: user.id.to_string() };
    let next_cursor = page.cut(&app, &list, &mut users, key);
    Ok(Json(Users { users, next_cursor }))
}
