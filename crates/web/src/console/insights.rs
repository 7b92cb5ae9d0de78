//! Analytics of an app and of an organization: figures with the period before, charts, funnels and the most active users.
use axum::response::Response;
use kernel::http::{Path, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    apps::{APP, OfApp},
    nav::{Area, NavEntry},
};
use crate::{me::Me, page::pages};

pub const NAV: &[NavEntry] = &[
    NavEntry::new(Area::App, "", "Analytics", "chart", "/analytics").for_admins(),
    NavEntry::new(Area::Org, "", "Analytics", "chart", "/analytics").for_admins(),
    NavEntry::new(Area::Platform, "", "Observability", "activity", "/platform/observability"),
    NavEntry::new(Area::Platform, "", "Traces", "branch", "/platform/traces"),
];

pub fn routes() -> Routes {
    pages("pages")
        .get("/console/apps/{appId}/analytics", app_analytics_page, "events, users and funnels of an app")
        .get("/console/orgs/{id}/analytics", org_analytics_page, "events and users of an organization's apps")
        .get("/console/platform/observability", observability_page, "requests and background jobs of all nodes")
        .get("/console/platform/traces", trace_page, "everything that one request caused")
}

/// The ranges that a page offers, in days.
const RANGES: [i64; 4] = [7, 30, 90, 365];

/// The number of days that are shown. The API knows which day it is for the organization.
fn range(me: &Me) -> i64 {
    let asked = me.parameter("days").parse().unwrap_or(30);
    if RANGES.contains(&asked) { asked } else { 30 }
}

fn interval(days: i64) -> &'static str {
    if days > 90 { "week" } else { "day" }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AnalyticsOf {
    app_id: String,
    days: String,
    interval: &'static str,
    funnel: String,
}

async fn app_analytics_page(me: Me, Path(OfApp { app_id }): Path<OfApp>) -> Response {
    let days = range(&me);
    let funnel = Some(me.parameter("funnel")).filter(|name| !name.is_empty()).unwrap_or_else(|| "sign_up".into());
    let place = AnalyticsOf { app_id, days: days.to_string(), interval: interval(days), funnel };
    let asks = [
        APP,
        ("?overview", "/analytics/app/{appId}/overview?days={days}"),
        (
            "?series",
            "/analytics/app/{appId}/timeseries?days={days}&interval={interval}&metric=sign_ins,sign_in_failures,active_users,new_users",
        ),
        ("?funnel", "/analytics/app/{appId}/funnels?days={days}&funnel={funnel}&window=30d"),
        ("?top", "/analytics/app/{appId}/top-users?limit=10"),
    ];
    me.show_with("console/analytics.html", &place, &asks, json!({ "days": days, "ranges": RANGES })).await
}

#[derive(Deserialize, JsonSchema)]
struct OfOrg {
    id: String,
}

#[derive(Serialize)]
struct AnalyticsOfOrg {
    id: String,
    days: String,
    interval: &'static str,
}

async fn org_analytics_page(me: Me, Path(OfOrg { id }): Path<OfOrg>) -> Response {
    let days = range(&me);
    let asks = [
        ("org", "/org/{id}?limit=1"),
        ("?overview", "/analytics/org/{id}/overview?days={days}"),
        (
            "?series",
            "/analytics/org/{id}/timeseries?days={days}&interval={interval}&metric=sign_ins,sign_in_failures,active_users,new_users",
        ),
    ];
    let more = json!({ "days": days, "ranges": RANGES });
    me.show_with(
        "console/org_analytics.html",
        &AnalyticsOfOrg { id, days: days.to_string(), interval: interval(days) },
        &asks,
        more,
    )
    .await
}

#[derive(Serialize)]
struct Observed {
    window: String,
}

async fn observability_page(me: Me) -> Response {
    let asked = me.parameter("window");
    let window = if ["1h", "24h", "7d"].contains(&asked.as_str()) { asked } else { "24h".to_owned() };
    let asks = [
        ("gateway", "/observability/api-gateway?window={window}"),
        ("jobs", "/observability/functions?window={window}"),
    ];
    me.show("console/observability.html", &Observed { window }, &asks).await
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TraceOf {
    request_id: String,
}

async fn trace_page(me: Me) -> Response {
    let request_id = me.parameter("id").trim().to_owned();
    // The first answer says whether the reader may ask at all.
    let asks = [("allowed", "/observability/functions?window=1h"), ("?trace", "/observability/traces/{requestId}")];
    let asks = if request_id.is_empty() { &asks[..1] } else { &asks[..] };
    me.show("console/trace.html", &TraceOf { request_id }, asks).await
}
