//! For the people who run the platform.
use axum::extract::State;
use kernel::{
    App,
    fault::Result,
    http::{Json, Key, Page, Routes},
};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::enter::{AbuseReport, PlatformOwner, abuse_reports};

pub fn routes() -> Routes {
    Routes::new("platform").get("/admin/abuse-reports", list_abuse_reports, "abuse reports, newest first")
}

const LIST: &str = "abuse-reports";

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Reports {
    reports: Vec<AbuseReport>,
    next_cursor: Option<String>,
}

async fn list_abuse_reports(State(app): State<App>, _owner: PlatformOwner, page: Page) -> Result<Json<Reports>> {
    let below = page.below(&app, LIST)?;
    let mut reports = abuse_reports(&app.db, &below, page.fetch()).await?;
    let next_cursor =
        page.cut(&app, LIST, &mut reports, |report| Key { at: report.last_at, id: report.id.to_string() });
    Ok(Json(Reports { reports, next_cursor }))
}
