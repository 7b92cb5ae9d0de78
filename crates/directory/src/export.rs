//! Everything the platform holds on an organization, in one document and without secrets.
use axum::extract::State;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::Result,
    http::{Json, Key, Routes},
    transact,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use tenancy::{
    apps::{Application, ApplicationId, StoredAppKey},
    enter::{Admin, InOrg},
    events::audit::{AuditEntry, AuditFilter},
    exports,
    orgs::{OrgView, invites::Invite, members::OrgMember},
    records::{self, Record},
};

use crate::events::OrgExported;

pub fn routes() -> Routes {
    Routes::new("org").get("/org/{id}/export", export_org, "data export of the org")
}

/// How much of each is in an export at the most; the lists have it all, page by page.
const MOST: u32 = 10_000;

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OrgExport {
    exported_at: Timestamp,
    org: OrgView,
    metadata: Record,
    members: Vec<OrgMember>,
    invites: Vec<Invite>,
    apps: Vec<ExportedApp>,
    audit_events: Vec<AuditEntry>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ExportedApp {
    id: ApplicationId,
    name: String,
    slug: String,
    redirect_uris: Vec<String>,
    allowed_origins: Vec<String>,
    keys: Vec<StoredAppKey>,
    created_at: Timestamp,
    /// What other features store for the app.
    #[serde(flatten)]
    more: Map<String, Value>,
}

async fn export_org(State(janua): State<Janua>, caller: InOrg<Admin>) -> Result<Json<OrgExport>> {
    let org = caller.org();
    let applications = transact!(janua, async |tx| {
        caller.record(tx, &janua, &OrgExported).await?;
        Ok(Application::all_of(tx, org.id).await?)
    })?;
    let newest = Key::newest();
    let mut keys = StoredAppKey::of_org(&janua.db, org.id).await?;
    let mut apps = vec![];
    for Application { id, name, slug, redirect_uris, allowed_origins, created_at, .. } in applications {
        let keys = keys.remove(&id).unwrap_or_default();
        let more = exports::of_app(&janua, id).await?;
        apps.push(ExportedApp { id, name, slug, redirect_uris, allowed_origins, keys, created_at, more });
    }
    Ok(Json(OrgExport {
        exported_at: janua.clock.now(),
        org: OrgView::of(&caller.membership),
        metadata: records::of(&org.metadata),
        members: OrgMember::page(&janua.db, org.id, &newest, MOST).await?,
        invites: Invite::page(&janua.db, org.id, &newest, MOST).await?,
        apps,
        audit_events: AuditEntry::of_org(&janua.db, org.id, &AuditFilter::default(), &newest, MOST).await?,
    }))
}
