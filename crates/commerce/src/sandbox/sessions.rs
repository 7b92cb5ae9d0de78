//! Checkout and portal sessions, and what people do on their pages.
use std::time::Duration;

use serde_json::{Value, json};

use super::{
    book::{Book, Refusal, Served},
    cards::Card,
    life::{self, Charge, Start},
    serve::Params,
};

const OPEN: Duration = Duration::from_hours(24);
const PORTAL: Duration = Duration::from_mins(5);

pub async fn create(book: &mut Book<'_>, params: &Params<'_>, account: &str) -> Served {
    let id = book.id("cs");
    let (Some(success), Some(cancel)) = (params.get("success_url"), params.get("cancel_url")) else {
        return Ok(Err(Refusal::new("parameter_missing", "A session needs success_url and cancel_url.")));
    };
    let mut session = json!({
        "id": id, "object": "checkout.session", "mode": params.get("mode"), "status": "open", "payment_status": "unpaid",
        "customer": params.get("customer"), "subscription": null, "payment_intent": null, "livemode": false,
        "client_reference_id": params.get("client_reference_id"), "success_url": success, "cancel_url": cancel,
        "url": format!("{}/sandbox/checkout/{id}", book.janua.config.base_url()), "created": book.seconds(),
        "expires_at": book.now.plus(OPEN).0 / 1000, "metadata": {}, "customer_email": params.get("customer_email"),
    });
    if params.get("mode") == Some("subscription") {
        let (Some(customer), Some(price)) = (params.get("customer"), params.get("line_items[0][price]")) else {
            return Ok(Err(Refusal::new("parameter_missing", "A subscription needs a customer and a price.")));
        };
        if book.get("customer", customer).await?.is_none() {
            return Ok(Err(Refusal::missing("customer")));
        }
        let Some(price) = book.get("price", price).await? else { return Ok(Err(Refusal::missing("price"))) };
        let quantity = params.number("line_items[0][quantity]").unwrap_or(1);
        session["currency"] = price["currency"].clone();
        session["amount_total"] = life::total(&price, quantity).into();
        session["_quantity"] = quantity.into();
        session["_trial_days"] = params.number("subscription_data[trial_period_days]").unwrap_or_default().into();
        session["_metadata"] = params.metadata("subscription_data[metadata]");
        session["_items"] = json!([{ "name": price["nickname"], "amount": price["unit_amount"], "quantity": quantity,
                                     "interval": price["recurring"]["interval"] }]);
        session["_price"] = price;
    } else {
        let (mut items, mut total) = (vec![], 0_i64);
        for place in 0.. {
            let of = |name: &str| params.get(&format!("line_items[{place}]{name}"));
            let Some(amount) = of("[price_data][unit_amount]").and_then(|text| text.parse::<i64>().ok()) else {
                break;
            };
            let quantity = of("[quantity]").and_then(|text| text.parse::<i64>().ok()).unwrap_or(1);
            total = total.saturating_add(amount.saturating_mul(quantity));
            items.push(
                json!({ "name": of("[price_data][product_data][name]"), "amount": amount, "quantity": quantity }),
            );
        }
        session["currency"] = json!(params.get("line_items[0][price_data][currency]"));
        session["amount_total"] = total.into();
        session["_items"] = items.into();
        session["_fee"] = params.number("payment_intent_data[application_fee_amount]").unwrap_or_default().into();
    }
    book.put("session", account, &session, Some(book.now.plus(OPEN))).await?;
    Ok(Ok(session))
}

pub async fn expire(book: &mut Book<'_>, mut session: Value) -> db::Result<Value> {
    let id = session["id"].as_str().unwrap_or_default().to_owned();
    let account = book.find("session", &id).await?.map(|found| found.parent).unwrap_or_default();
    if session["status"] == "open" {
        session["status"] = "expired".into();
        session["url"] = Value::Null;
        book.put("session", &account, &session, None).await?;
        book.emit("checkout.session.expired", &session, &account).await?;
    }
    Ok(session)
}

/// Pays an open session with a test card.
pub async fn pay(
    book: &mut Book<'_>,
    mut session: Value,
    account: &str,
    card: Card,
) -> db::Result<Result<Value, Refusal>> {
    if let Some((code, message)) = card.refusal(false) {
        return Ok(Err(Refusal::new(code, message)));
    }
    if session["mode"] == "subscription" {
        let started = life::start(
            book,
            Start {
                customer: session["customer"].as_str().unwrap_or_default(),
                price: session["_price"].clone(),
                quantity: session["_quantity"].as_i64().unwrap_or(1),
                trial_days: session["_trial_days"].as_i64().unwrap_or_default(),
                card,
                metadata: session["_metadata"].clone(),
            },
        );
        let subscription = started.await?;
        session["subscription"] = subscription["id"].clone();
        session["payment_status"] =
            if subscription["status"] == "trialing" { "no_payment_required" } else { "paid" }.into();
    } else {
        let new = Charge {
            amount: session["amount_total"].as_i64().unwrap_or_default(),
            currency: session["currency"].as_str().unwrap_or_default(),
            card,
            account,
            fee: session["_fee"].as_i64().unwrap_or_default(),
        };
        session["payment_intent"] = life::charge(book, new).await?.into();
        session["payment_status"] = "paid".into();
    }
    session["status"] = "complete".into();
    session["url"] = Value::Null;
    book.put("session", account, &session, None).await?;
    book.emit("checkout.session.completed", &session, account).await?;
    Ok(Ok(session))
}

pub async fn portal(book: &mut Book<'_>, params: &Params<'_>) -> Served {
    let customer = params.get("customer").unwrap_or_default();
    if book.get("customer", customer).await?.is_none() {
        return Ok(Err(Refusal::missing("customer")));
    }
    let id = book.id("bps");
    let portal = json!({ "id": id, "object": "billing_portal.session", "customer": customer, "livemode": false,
                         "url": format!("{}/sandbox/portal/{id}", book.janua.config.base_url()),
                         "return_url": params.get("return_url"), "_expires_at": book.now.plus(PORTAL).0 / 1000 });
    book.put("portal", customer, &portal, None).await?;
    Ok(Ok(portal))
}
