//! What happened in an organization.
use axum::extract::State;
use kernel::{
    Janua,
    fault::Result,
    http::{Json, Listed, Page, Routes},
};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{
    enter::{Admin, InOrg},
    events::audit::AuditEntry,
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

async fn org_audit_log(State(janua): State<Janua>, caller: InOrg<Admin>, page: Page) -> Result<Json<OrgAuditLog>> {
    let org = caller.org().id;
    let fetch = async |below, most| AuditEntry::of_org(&janua.db, org, &below, most).await;
    let Listed { rows, next_cursor } = page.list(&janua, "org-audit-log", org, fetch, AuditEntry::key).await?;
    Ok(Json(OrgAuditLog { events: rows, next_cursor }))
}
