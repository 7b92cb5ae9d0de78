//! What happened in an organization.
use axum::extract::State;
use kernel::{
    App,
    fault::Result,
    http::{Json, Key, Page, Routes},
};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{
    audit::AuditEntry,
    enter::{Admin, InOrg},
};

pub fn routes() -> Routes {
    Routes::new("org").get("/org/{id}/audit-log", org_audit_log, "the organization's audit events, newest first")
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OrgAuditLog {
    events: Vec<AuditEntry>,
    next_cursor: Option<String>,
}

async fn org_audit_log(State(app): State<App>, caller: InOrg<Admin>, page: Page) -> Result<Json<OrgAuditLog>> {
    let list = format!("org-audit-log:{}", caller.org().id);
    let below = page.below(&app, &list)?;
    let mut events = AuditEntry::of_org(&app.db, caller.org().id, &below, page.fetch()).await?;
    let next_cursor = page.cut(&app, &list, &mut events, |event| Key { at: event.at, id: event.id.clone() });
    Ok(Json(OrgAuditLog { events, next_cursor }))
}
