//! `GET /billing/admin/cost`: revenue, costs and margin of each organization, for platform admins.
mod figures;

use std::collections::{BTreeMap, BTreeSet};

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{BAD_CURSOR, INVALID, Result},
    feature::Feature,
    http::{Json, Key, Listed, Page, Query, Routes, Scope},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    enter::PlatformAdmin,
    orgs::{Org, OrgId},
};

use self::figures::{Figures, Of, plan_of};
use crate::{payments::money::Exact, usage::Accept};

pub fn feature() -> Feature {
    Feature::new(
        Routes::new("billing")
            .get("/billing/admin/cost", cost_report, "per-customer cost and margin report")
            .fails(&[BAD_CURSOR])
            .answers::<CostReport>(200, "application/json")
            .answers::<String>(200, "text/csv"),
    )
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
enum GroupBy {
    #[default]
    Org,
    App,
    Plan,
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
enum Sort {
    #[default]
    Margin,
    Cost,
    Revenue,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CostQuery {
    /// Left out: this month until now.
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    group_by: Option<GroupBy>,
    #[schemars(length(min = 3, max = 3))]
    currency: Option<String>,
    /// The smallest margin first, the largest cost first, or the largest revenue first.
    sort: Option<Sort>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RevenueView {
    subscriptions: i64,
    overage: i64,
    merchant_fees: i64,
    refunds: i64,
    disputes: i64,
    total: Exact,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CostView {
    metered: Exact,
    events: Exact,
    processor_fees: i64,
    fixed_share: Exact,
    total: Exact,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LineView {
    meter: String,
    quantity: i64,
    unit_cost: String,
    amount: Exact,
}

/// Amounts are minor units of `currency`; decimals are texts.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CostRow {
    org_id: Option<String>,
    org_name: Option<String>,
    app_id: Option<String>,
    plan: String,
    currency: String,
    revenue: RevenueView,
    cost: CostView,
    margin: Exact,
    /// Of the revenue; null without revenue.
    margin_percent: Option<Exact>,
    lines: Vec<LineView>,
    /// Meters that were used and have no cost in the plans file.
    unpriced: Vec<String>,
    #[serde(skip)]
    place: usize,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CostReport {
    from: Timestamp,
    to: Timestamp,
    rows: Vec<CostRow>,
    /// One for each currency: they are never added.
    totals: Vec<CostRow>,
    as_of: Timestamp,
    next_cursor: Option<String>,
}

fn row(of: &Of, plan: &str, figures: &Figures, place: usize) -> CostRow {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let percent = figures.margin().basis_points_of(figures.revenue());
    CostRow {
        org_id: some(&of.org),
        org_name: None,
        app_id: some(&of.app),
        plan: plan.to_owned(),
        currency: of.currency.clone(),
        revenue: RevenueView {
            subscriptions: figures.subscriptions,
            overage: figures.overage,
            merchant_fees: figures.merchant_fees,
            refunds: figures.refunds,
            disputes: figures.disputes,
            total: figures.revenue(),
        },
        cost: CostView {
            metered: figures.metered,
            events: figures.events,
            processor_fees: figures.processor_fees,
            fixed_share: figures.fixed,
            total: figures.cost(),
        },
        margin: figures.margin(),
        margin_percent: percent.map(|points| Exact::whole(points).share(1, 100)),
        lines: figures
            .lines
            .iter()
            .map(|(meter, quantity, unit_cost, amount)| LineView {
                meter: meter.clone(),
                quantity: *quantity,
                unit_cost: unit_cost.clone(),
                amount: *amount,
            })
            .collect(),
        unpriced: figures.unpriced.iter().cloned().collect(),
        place,
    }
}

async fn cost_report(
    State(janua): State<Janua>,
    _admin: PlatformAdmin,
    Query(query): Query<CostQuery>,
    accept: Accept,
    page: Page,
) -> Result<Response> {
    let now = match crate::payments::Payments::of(&janua) {
        Some(driver) => driver.now(&janua).await?,
        None => janua.clock.now(),
    };
    let from = query.from.unwrap_or_else(|| now.month().0);
    let to = query.to.unwrap_or(Timestamp(now.0 + 1));
    if from >= to || to.0 - from.0 > 800 * Timestamp::DAY_MS {
        return Err(INVALID.at("to", "range", "must be after from, and at most 800 days"));
    }
    let (group_by, sort) = (query.group_by.unwrap_or_default(), query.sort.unwrap_or_default());
    let plans = figures::plans_of(&janua.db).await?;
    let mut book = figures::collect(&janua, from, to, group_by == GroupBy::App).await?;
    if let Some(currency) = &query.currency {
        book.retain(|of, _| of.currency == *currency);
    }
    let mut totals: BTreeMap<String, Figures> = BTreeMap::new();
    for (of, figures) in &book {
        totals.entry(of.currency.clone()).or_default().add(figures);
    }
    let mut rows: Vec<(Of, String, Figures)> = if group_by == GroupBy::Plan {
        let mut by_plan: BTreeMap<(String, String), Figures> = BTreeMap::new();
        for (of, figures) in &book {
            by_plan.entry((plan_of(&plans, &of.org).to_owned(), of.currency.clone())).or_default().add(figures);
        }
        let of = |currency| Of { org: String::new(), app: String::new(), currency };
        by_plan.into_iter().map(|((plan, currency), figures)| (of(currency), plan, figures)).collect()
    } else {
        book.into_iter().map(|(of, figures)| (of.clone(), plan_of(&plans, &of.org).to_owned(), figures)).collect()
    };
    rows.sort_by_cached_key(|(of, plan, figures)| {
        let by = match sort {
            Sort::Margin => figures.margin(),
            Sort::Cost => Exact::default().less(figures.cost()),
            Sort::Revenue => Exact::default().less(figures.revenue()),
        };
        (by, of.clone(), plan.clone())
    });
    let fetch = async |below: Key, most: u32| {
        let first = if below == Key::newest() { 0 } else { below.id.parse::<usize>().map_or(0, |place| place + 1) };
        let each = rows.iter().enumerate().skip(first).take(most as usize);
        Ok::<_, kernel::fault::Fault>(
            each.map(|(place, (of, plan, figures))| row(of, plan, figures, place)).collect::<Vec<_>>(),
        )
    };
    let key = |row: &CostRow| Key { at: Timestamp(0), id: row.place.to_string() };
    let scope = Scope::platform().found_by(&format!("{from} {to} {group_by:?} {sort:?} {:?}", query.currency));
    let Listed { rows: mut shown, next_cursor } = page.list(&janua, "cost", scope, fetch, key).await?;
    let org_of = |row: &CostRow| row.org_id.as_deref().and_then(|id| id.parse::<OrgId>().ok());
    let orgs: BTreeSet<OrgId> = shown.iter().filter_map(org_of).collect();
    let names = Org::names(&janua.db, &orgs.into_iter().collect::<Vec<_>>()).await?;
    for row in &mut shown {
        row.org_name = org_of(row).and_then(|id| names.get(&id).cloned());
    }
    let of = |currency: String| Of { org: String::new(), app: String::new(), currency };
    let totals = totals.into_iter().map(|(currency, figures)| row(&of(currency), "", &figures, 0)).collect();
    let report = CostReport { from, to, rows: shown, totals, as_of: now, next_cursor };
    Ok(if accept.csv { csv(&report) } else { Json(report).into_response() })
}

fn csv(report: &CostReport) -> Response {
    // A text that a spreadsheet would take for a formula begins with a quote.
    let quoted = |text: Option<&str>| {
        let text = text.unwrap_or_default();
        let guard = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
        format!("\"{guard}{}\"", text.replace('"', "\"\""))
    };
    let mut lines = vec![
        "orgId,orgName,appId,plan,currency,subscriptions,overage,merchantFees,refunds,disputes,revenue,metered,events,\
         processorFees,fixedShare,cost,margin,marginPercent,unpriced"
            .to_owned(),
    ];
    for row in &report.rows {
        lines.push(format!(
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            row.org_id.as_deref().unwrap_or_default(),
            quoted(row.org_name.as_deref()),
            row.app_id.as_deref().unwrap_or_default(),
            row.plan,
            row.currency,
            row.revenue.subscriptions,
            row.revenue.overage,
            row.revenue.merchant_fees,
            row.revenue.refunds,
            row.revenue.disputes,
            row.revenue.total,
            row.cost.metered,
            row.cost.events,
            row.cost.processor_fees,
            row.cost.fixed_share,
            row.cost.total,
            row.margin,
            row.margin_percent.map(|percent| percent.to_string()).unwrap_or_default(),
            quoted(Some(&row.unpriced.join(" "))),
        ));
    }
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"));
    if let Some(cursor) = report.next_cursor.as_deref().and_then(|cursor| cursor.parse().ok()) {
        headers.insert("x-next-cursor", cursor);
    }
    (headers, lines.join("\r\n") + "\r\n").into_response()
}
