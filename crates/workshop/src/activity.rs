//! The audit log of an app, and that of the whole platform.
use axum::{extract::State, response::Response};
use kernel::{
    Janua,
    fault::Result,
    http::{Page, Routes, Scope},
};
use tenancy::{
    enter::{Admin, InApp, PlatformOwner},
    events::audit::{AuditEntry, AuditLog, AuditRequest},
};

pub fn routes() -> Routes {
    Routes::new("apps")
        .get("/apps/{appId}/audit-log", app_audit_log, "the app's audit events, newest first")
        .answers::<AuditLog>(200, "application/json")
        .answers::<String>(200, "text/csv")
        .and(
            Routes::new("platform")
                .get("/admin/audit-log", platform_audit_log, "all audit events, newest first")
                .answers::<AuditLog>(200, "application/json")
                .answers::<String>(200, "text/csv"),
        )
}

async fn app_audit_log(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    request: AuditRequest,
    page: Page,
) -> Result<Response> {
    let app = caller.application.id;
    let fetch = async |filter: &_, below, most| AuditEntry::of_app(&janua.db, app, filter, &below, most).await;
    request.answer(&janua, &page, "app-audit-log", app.into(), fetch).await
}

async fn platform_audit_log(
    State(janua): State<Janua>,
    _owner: PlatformOwner,
    request: AuditRequest,
    page: Page,
) -> Result<Response> {
    let fetch = async |filter: &_, below, most| AuditEntry::of_platform(&janua.db, filter, &below, most).await;
    request.answer(&janua, &page, "platform-audit-log", Scope::platform(), fetch).await
}
