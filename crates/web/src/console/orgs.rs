//! Organizations: their people, invitations, identity provider, metadata and what happened.
use axum::response::Response;
use kernel::http::{Path, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::nav::{Area::Org, NavEntry};
use crate::{activity, me::Me, page::pages};

pub const NAV: &[NavEntry] = &[
    NavEntry::new(Org, "", "Overview", "overview", ""),
    NavEntry::new(Org, "", "Members", "users", "/members"),
    NavEntry::new(Org, "", "SCIM", "refresh", "/scim").for_admins(),
    NavEntry::new(Org, "", "Activity", "activity", "/activity").for_admins(),
    NavEntry::new(Org, "Manage", "Settings", "sliders", "/settings"),
];

pub fn routes() -> Routes {
    pages("pages")
        .get("/console/orgs/{id}", org_overview_page, "an organization: the figures of its apps")
        .get("/console/orgs/{id}/settings", org_settings_page, "settings of an organization")
        .get("/console/orgs/{id}/members", members_page, "members and invitations of an organization")
        .get("/console/orgs/{id}/scim", scim_page, "identity provider of an organization")
        .and(activity::with_file(pages("pages").get(
            "/console/orgs/{id}/activity",
            org_activity_page,
            "audit log of an organization",
        )))
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct OfOrg {
    id: String,
}

const ORG: (&str, &str) = ("org", "/org/{id}?limit=1");

async fn org_overview_page(me: Me, Path(place): Path<OfOrg>) -> Response {
    me.show("console/org_overview.html", &place, &[ORG, ("overview", "/org/{id}/overview")]).await
}

async fn org_settings_page(me: Me, Path(place): Path<OfOrg>) -> Response {
    me.show("console/org_settings.html", &place, &[ORG, ("metadata", "/orgs/{id}/metadata")]).await
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
    let asks = [ORG, ("?members", "/org/{id}/members?limit=200")];
    activity::show(&me, "console/org_activity.html", &place, ("?list", "/org/{id}/audit-log"), &asks).await
}
