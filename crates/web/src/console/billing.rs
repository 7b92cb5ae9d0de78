//! Billing: plan and invoices of organizations and apps, merchants, the processor's events and the report of costs.
use axum::{http::Method, response::Response};
use kernel::http::{Path, Routes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    apps::{APP, OfApp},
    nav::{Area, NavEntry},
};
use crate::{
    form::{Fields, OwnPage},
    me::{Me, Sender},
    page::{error, go, note_to, pages},
};

pub const NAV: &[NavEntry] = &[
    NavEntry::new(Area::App, "Manage", "Billing", "case", "/billing").for_admins(),
    NavEntry::new(Area::App, "Manage", "Merchants", "users", "/merchants").for_admins(),
    NavEntry::new(Area::Org, "Manage", "Billing", "case", "/billing").for_admins(),
    NavEntry::new(Area::Platform, "Manage", "Costs", "chart", "/platform/costs"),
    NavEntry::new(Area::Platform, "Manage", "Payment events", "activity", "/platform/payment-events"),
];

pub fn routes() -> Routes {
    pages("pages")
        .body_limit(64 * 1024)
        .get("/console/orgs/{id}/billing", org_billing_page, "the plan and invoices of an organization")
        .post("/console/orgs/{id}/billing/checkout", begin_org_checkout, "go to the checkout of a plan")
        .post("/console/orgs/{id}/billing/portal", begin_org_portal, "go to the customer portal")
        .get("/console/apps/{appId}/billing", app_billing_page, "the plan and invoices of an app")
        .post("/console/apps/{appId}/billing/checkout", begin_app_checkout, "go to the checkout of a plan")
        .post("/console/apps/{appId}/billing/portal", begin_app_portal, "go to the customer portal")
        .get("/console/apps/{appId}/merchants", merchants_page, "merchants of an app and their payments")
        .post("/console/apps/{appId}/merchants/begin", begin_onboarding, "create a merchant and go to the onboarding")
        .post("/console/apps/{appId}/merchants/open", open_merchant, "go to a merchant's account at the processor")
        .get("/console/platform/costs", costs_page, "revenue, costs and margin")
        .get("/console/platform/payment-events", payment_events_page, "events of the payment processor")
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct OfOrg {
    id: String,
}

async fn org_billing_page(me: Me, Path(place): Path<OfOrg>) -> Response {
    let asks = [("org", "/org/{id}?limit=1"), ("?billing", "/billing/org?orgId={id}")];
    me.show_with("console/org_billing.html", &place, &asks, json!({ "came": me.parameter("checkout") })).await
}

async fn app_billing_page(me: Me, Path(place): Path<OfApp>) -> Response {
    let asks = [APP, ("?billing", "/billing/app?appId={appId}")];
    me.show_with("console/app_billing.html", &place, &asks, json!({ "came": me.parameter("checkout") })).await
}

/// Asks for a URL and goes there: at once within this service, by a link to elsewhere.
async fn onward(me: &Me, call: &str, body: &Value, field: &str, words: &str) -> Response {
    let said = match me.ask(Method::POST, call, Some(body)).await {
        Ok(said) => said.body,
        Err(fault) => return me.keeps(error(&me.janua, &fault)),
    };
    let url = said[field].as_str().unwrap_or("/console");
    if url.starts_with(&format!("{}/", me.janua.config.base_url())) {
        return me.keeps(go(url));
    }
    let text = "You continue on the page of the payment processor.";
    me.keeps(note_to(&me.janua, words, text, ("Continue", url)))
}

fn checkout(fields: &Fields, name: &str, id: &str) -> Value {
    let (plan, interval) = fields.get("price").split_once(' ').unwrap_or((fields.get("price"), "month"));
    json!({ (name): id, "plan": plan, "interval": interval })
}

async fn begin_org_checkout(_: OwnPage, Sender(me): Sender, Path(place): Path<OfOrg>, fields: Fields) -> Response {
    let me = match me {
        Ok(me) => me,
        Err(to_sign_in) => return to_sign_in,
    };
    let body = checkout(&fields, "orgId", &place.id);
    onward(&me, "/billing/org/checkout", &body, "url", "Continue to the checkout").await
}

async fn begin_org_portal(_: OwnPage, Sender(me): Sender, Path(place): Path<OfOrg>, _fields: Fields) -> Response {
    let me = match me {
        Ok(me) => me,
        Err(to_sign_in) => return to_sign_in,
    };
    let body = json!({ "orgId": place.id });
    onward(&me, "/billing/org/portal", &body, "url", "Continue to the customer portal").await
}

async fn begin_app_checkout(_: OwnPage, Sender(me): Sender, Path(place): Path<OfApp>, fields: Fields) -> Response {
    let me = match me {
        Ok(me) => me,
        Err(to_sign_in) => return to_sign_in,
    };
    let body = checkout(&fields, "appId", &place.app_id);
    onward(&me, "/billing/app/checkout", &body, "url", "Continue to the checkout").await
}

async fn begin_app_portal(_: OwnPage, Sender(me): Sender, Path(place): Path<OfApp>, _fields: Fields) -> Response {
    let me = match me {
        Ok(me) => me,
        Err(to_sign_in) => return to_sign_in,
    };
    let body = json!({ "appId": place.app_id });
    onward(&me, "/billing/app/portal", &body, "url", "Continue to the customer portal").await
}

async fn merchants_page(me: Me, Path(place): Path<OfApp>) -> Response {
    let asks = [
        APP,
        ("?list", "/connect/onboard/accounts?appId={appId}&limit=100"),
        ("?payments", "/connect/checkout/sessions?appId={appId}&limit=50"),
    ];
    me.show("console/merchants.html", &place, &asks).await
}

async fn begin_onboarding(_: OwnPage, Sender(me): Sender, Path(place): Path<OfApp>, fields: Fields) -> Response {
    let me = match me {
        Ok(me) => me,
        Err(to_sign_in) => return to_sign_in,
    };
    let name = Some(fields.get("businessName")).filter(|name| !name.is_empty());
    let body =
        json!({ "appId": place.app_id, "country": fields.get("country").to_uppercase(), "businessName": name });
    onward(&me, "/connect/onboard/accounts", &body, "onboardingUrl", "Continue to the onboarding").await
}

async fn open_merchant(_: OwnPage, Sender(me): Sender, Path(_): Path<OfApp>, fields: Fields) -> Response {
    let me = match me {
        Ok(me) => me,
        Err(to_sign_in) => return to_sign_in,
    };
    let id: String = fields.get("accountId").chars().filter(|c| c.is_ascii_hexdigit() || *c == '-').collect();
    let body = json!({ "action": fields.get("action") });
    onward(&me, &format!("/connect/merchants/{id}"), &body, "url", "Continue to the merchant's account").await
}

async fn costs_page(me: Me) -> Response {
    let asks = [("report", "/billing/admin/cost?{query}"), ("?plans", "/billing/admin/cost?groupBy=plan")];
    me.show("console/costs.html", &Value::Null, &asks).await
}

async fn payment_events_page(me: Me) -> Response {
    me.show("console/payment_events.html", &Value::Null, &[("list", "/billing/admin/events?{query}")]).await
}
