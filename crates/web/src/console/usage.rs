//! Usage and plans: what an app and an organization use, what the plan includes, and the plan of each organization.
use axum::response::Response;
use kernel::http::{Path, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    apps::{APP, OfApp},
    nav::{Area, NavEntry},
};
use crate::{me::Me, page::pages};

pub const NAV: &[NavEntry] = &[
    NavEntry::new(Area::App, "", "Usage", "chart", "/usage").for_admins(),
    NavEntry::new(Area::Org, "", "Usage", "chart", "/usage").for_admins(),
    NavEntry::new(Area::Platform, "", "Plans", "sliders", "/platform/plans"),
];

pub fn routes() -> Routes {
    pages("pages")
        .get("/console/apps/{appId}/usage", app_usage_page, "what an app uses")
        .get("/console/orgs/{id}/usage", org_usage_page, "what an organization uses, and its limits")
        .get("/console/platform/plans", plans_page, "plans, and the plan of each organization")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UsageOf {
    app_id: String,
    meter: String,
    customer: String,
    cursor: String,
}

async fn app_usage_page(me: Me, Path(OfApp { app_id }): Path<OfApp>) -> Response {
    let [meter, customer, cursor] =
        ["meter", "customer", "after"].map(|name| Some(me.parameter(name)).filter(|value| !value.is_empty()));
    let meters = match me.get("/usage/meters?appId={appId}", &json!({ "appId": app_id })).await {
        Ok(said) => said.body,
        // Members may see the app, and not what it uses.
        Err(_) => return me.show("console/usage.html", &json!({ "appId": app_id }), &[APP]).await,
    };
    let tracked = meters["meters"].as_array().into_iter().flatten().filter(|meter| meter["source"] == "tracked");
    let names: Vec<&str> = tracked.filter_map(|meter| meter["name"].as_str()).collect();
    let meter = meter.filter(|meter| names.contains(&meter.as_str()));
    let meter = meter.or_else(|| names.first().map(|name| (*name).to_owned())).unwrap_or_default();
    let groups = groups(&me, &app_id, &meters, &meter, customer.as_deref()).await;
    let mut asks = vec![APP];
    if !meter.is_empty() {
        asks.push(("?days", "/usage?appId={appId}&meter={meter}&window=day&limit=200&customer={customer}"));
        asks.push(("?customers", "/usage?appId={appId}&meter={meter}&groupBy=customer&limit=20"));
        asks.push((
            "?list",
            "/usage?appId={appId}&meter={meter}&groupBy=event&limit=20&customer={customer}&cursor={cursor}",
        ));
    }
    let asks: Vec<(&str, String)> = asks
        .into_iter()
        .map(|(name, pattern)| {
            let mut pattern = pattern.to_owned();
            for (field, value) in [("customer", &customer), ("cursor", &cursor)] {
                if value.as_deref().is_none_or(str::is_empty) {
                    pattern = pattern.replace(&format!("&{field}={{{field}}}"), "");
                }
            }
            (name, pattern)
        })
        .collect();
    let asks: Vec<(&str, &str)> = asks.iter().map(|(name, pattern)| (*name, pattern.as_str())).collect();
    let (customer, cursor) = (customer.unwrap_or_default(), cursor.unwrap_or_default());
    let place = UsageOf { app_id, meter, customer, cursor };
    me.show_with("console/usage.html", &place, &asks, json!({ "meters": meters, "groups": groups })).await
}

/// The month's totals of a meter by each property that it keeps apart.
async fn groups(me: &Me, app: &str, meters: &Value, meter: &str, customer: Option<&str>) -> Vec<Value> {
    let found = meters["meters"].as_array().into_iter().flatten().find(|one| one["name"] == meter);
    let properties = found.and_then(|meter| meter["groupBy"].as_array()).into_iter().flatten();
    let mut groups = vec![];
    for property in properties {
        let mut pattern = "/usage?appId={appId}&meter={meter}&groupBy={property}&limit=20".to_owned();
        if customer.is_some() {
            pattern.push_str("&customer={customer}");
        }
        let place = json!({ "appId": app, "meter": meter, "property": property, "customer": customer });
        if let Ok(answer) = me.get(&pattern, &place).await {
            groups.push(json!({ "property": property, "rows": answer.body["usage"] }));
        }
    }
    groups
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct OfOrg {
    id: String,
}

async fn org_usage_page(me: Me, Path(place): Path<OfOrg>) -> Response {
    let asks = [("org", "/org/{id}?limit=1"), ("?meters", "/usage/meters?orgId={id}")];
    me.show("console/org_usage.html", &place, &asks).await
}

async fn plans_page(me: Me) -> Response {
    let asks = [("plans", "/admin/plans"), ("list", "/admin/plans/orgs?{query}")];
    me.show("console/plans.html", &Value::Null, &asks).await
}
