//! The audit log of an app, and that of the whole platform.
use axum::{extract::State, response::Response};
use kernel::{
    Janua,
    fault::Result,
    http::{Page, Routes},
};
use tenancy::{
    enter::{Admin, InApp, PlatformOwner},
    events::audit::{AuditLog, AuditRequest, LogOf},
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
    request.answer(&janua, &page, LogOf::App(caller.application.id)).await
}

async fn platform_audit_log(
    State(janua): State<Janua>,
    _owner: PlatformOwner,
    request: AuditRequest,
    page: Page,
) -> Result<Response> {
    request.answer(&janua, &page, LogOf::Platform).await
}
