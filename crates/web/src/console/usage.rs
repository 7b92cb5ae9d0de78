//! Usage and plans: what an app and an organization use, what the plan includes, and the plan of each organization.
use std::time::Duration;

use axum::response::Response;
use kernel::{
    clock::Timestamp,
    http::{Path, Routes},
};
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
        .get("/console/apps/{appId}/usage", app_usage_page, "usage of an app")
        .get("/console/orgs/{id}/usage", org_usage_page, "usage and limits of an organization")
        .get("/console/platform/plans", plans_page, "plans, and the plan of each organization")
}

/// How many months back can be chosen: single events are kept for 400 days.
const MONTHS: usize = 13;
/// A meter keeps a hundred values of a property apart, and the rest together.
const GROUPS: u32 = 200;

/// What the page is about.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UsageOf {
    app_id: String,
    meter: String,
    customer: String,
    /// Where the list of events goes on, and that of customers.
    cursor: String,
    customers_after: String,
    /// A month that ended, such as `2026-01`; empty for the present one.
    month: String,
    from: String,
    to: String,
}

impl UsageOf {
    /// A report of the meter, with what it is narrowed to.
    fn report(&self, more: &str) -> String {
        let mut pattern = format!("/usage?appId={{appId}}&meter={{meter}}{more}");
        if !self.month.is_empty() {
            pattern.push_str("&from={from}&to={to}");
        }
        if !self.customer.is_empty() {
            pattern.push_str("&customer={customer}");
        }
        pattern
    }
}

/// A month that can be chosen.
#[derive(Serialize)]
struct Month {
    name: String,
    label: String,
    #[serde(skip)]
    start: Timestamp,
    #[serde(skip)]
    end: Timestamp,
}

/// The present month and those before it.
fn months(now: Timestamp) -> Vec<Month> {
    const NAMES: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let mut months: Vec<Month> = vec![];
    let mut moment = now;
    while months.len() < MONTHS {
        let (start, end) = moment.month();
        let name: String = start.to_string().chars().take(7).collect();
        let (year, number) = name.split_once('-').unwrap_or_default();
        let number = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let label = number.and_then(|number| NAMES.get(number)).copied().unwrap_or_default();
        months.push(Month { label: format!("{label} {year}"), name, start, end });
        moment = start.minus(Duration::from_millis(1));
    }
    months
}

async fn app_usage_page(me: Me, Path(OfApp { app_id }): Path<OfApp>) -> Response {
    let [meter, customer, cursor, customers_after, month] =
        ["meter", "customer", "after", "customersAfter", "month"].map(|name| me.parameter(name));
    let meters = match me.get("/usage/meters?appId={appId}", &json!({ "appId": app_id })).await {
        Ok(said) => said.body,
        // Members may see the app, and not what it uses.
        Err(_) => return me.show("console/usage.html", &json!({ "appId": app_id }), &[APP]).await,
    };
    let tracked = meters["meters"].as_array().into_iter().flatten().filter(|meter| meter["source"] == "tracked");
    let names: Vec<&str> = tracked.filter_map(|meter| meter["name"].as_str()).collect();
    let meter = names.iter().find(|name| **name == meter).or(names.first()).copied().unwrap_or_default().to_owned();
    let months = months(me.janua.clock.now());
    let chosen = months.iter().skip(1).find(|known| known.name == month);
    let (from, to) = chosen.map(|month| (month.start.to_string(), month.end.to_string())).unwrap_or_default();
    let month = chosen.map(|month| month.name.clone()).unwrap_or_default();
    let place = UsageOf { app_id, meter, customer, cursor, customers_after, month, from, to };
    let groups = groups(&me, &place, &meters).await;
    let mut asks = vec![("app", APP.1.to_owned())];
    if !place.meter.is_empty() {
        asks.push(("?days", place.report("&window=day&limit=200")));
        if place.customer.is_empty() {
            let after = if place.customers_after.is_empty() { "" } else { "&cursor={customersAfter}" };
            asks.push(("?customers", place.report(&format!("&groupBy=customer&limit=20{after}"))));
        }
        let after = if place.cursor.is_empty() { "" } else { "&cursor={cursor}" };
        asks.push(("?list", place.report(&format!("&groupBy=event&limit=20{after}"))));
    }
    let asks: Vec<(&str, &str)> = asks.iter().map(|(name, pattern)| (*name, pattern.as_str())).collect();
    let more = json!({ "meters": meters, "groups": groups, "months": months });
    me.show_with("console/usage.html", &place, &asks, more).await
}

/// The month's totals of a meter by each property that it keeps apart: all values, so that the largest is among them.
async fn groups(me: &Me, place: &UsageOf, meters: &Value) -> Vec<Value> {
    let found = meters["meters"].as_array().into_iter().flatten().find(|one| one["name"] == place.meter);
    let properties = found.and_then(|meter| meter["groupBy"].as_array()).into_iter().flatten();
    let mut groups = vec![];
    for property in properties {
        let pattern = place.report(&format!("&groupBy={{property}}&limit={GROUPS}"));
        let mut of = json!(place);
        of["property"] = property.clone();
        if let Ok(answer) = me.get(&pattern, &of).await {
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
