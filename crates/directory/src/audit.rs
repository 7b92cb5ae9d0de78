//! The audit log of an organization.
use axum::{extract::State, response::Response};
use kernel::{
    Janua,
    fault::Result,
    http::{Page, Routes},
};
use tenancy::{
    enter::{Admin, InOrg},
    events::audit::{AuditLog, AuditRequest, LogOf},
};

pub fn routes() -> Routes {
    Routes::new("org")
        .get("/org/{id}/audit-log", org_audit_log, "the organization's audit events, newest first")
        .answers::<AuditLog>(200, "application/json")
        .answers::<String>(200, "text/csv")
}

async fn org_audit_log(
    State(janua): State<Janua>,
    caller: InOrg<Admin>,
    request: AuditRequest,
    page: Page,
) -> Result<Response> {
    request.answer(&janua, &page, LogOf::Org(caller.org().id)).await
}
