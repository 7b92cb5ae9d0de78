//! Organizations: their people, invitations, identity provider, metadata and what happened.
use axum::response::Response;
use kernel::http::{Path, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::nav::{Area::Org, NavEntry};
use crate::{me::Me, page::pages};

pub const NAV: &[NavEntry] = &[
    NavEntry::new(Org, "", "Members", "users", "/members"),
    NavEntry::new(Org, "", "SCIM", "refresh", "/scim").for_admins(),
    NavEntry::new(Org, "", "Activity", "activity", "/activity").for_admins(),
    NavEntry::new(Org, "Manage", "Settings", "sliders", ""),
];

pub fn routes() -> Routes {
    pages("pages")
        .get("/console/orgs/{id}", org_page, "an organization and its settings")
        .get("/console/orgs/{id}/members", members_page, "its people and invitations")
        .get("/console/orgs/{id}/scim", scim_page, "its identity provider")
        .get("/console/orgs/{id}/activity", org_activity_page, "what happened in it")
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct OfOrg {
    id: String,
}

const ORG: (&str, &str) = ("org", "/org/{id}?limit=1");

async fn org_page(me: Me, Path(place): Path<OfOrg>) -> Response {
    me.show("console/org.html", &place, &[ORG, ("metadata", "/orgs/{id}/metadata")]).await
}

async fn members_page(me: Me, Path(place): Path<OfOrg>) -> Response {
    let asks = [ORG, ("list", "/org/{id}/members?{query}"), ("?invites", "/org/{id}/invites?limit=200")];
    me.show("console/members.html", &place, &asks).await
}

async fn scim_page(me: Me, Path(place): Path<OfOrg>) -> Response {
    let asks = [ORG, ("?tokens", "/org/{id}/scim-tokens"), ("?groups", "/org/{id}/scim-groups")];
    me.show("console/scim.html", &place, &asks).await
}

async fn org_activity_page(me: Me, Path(place): Path<OfOrg>) -> Response {
    let asks = [ORG, ("?list", "/org/{id}/audit-log?{query}"), ("?members", "/org/{id}/members?limit=200")];
    me.show("console/org_activity.html", &place, &asks).await
}
