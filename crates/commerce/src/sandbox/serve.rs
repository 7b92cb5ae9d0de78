//! The requests that the sandbox understands: those that our driver makes.
use db::{params, row};
use kernel::clock::Timestamp;
use serde_json::{Value, json};

use super::{
    accounts,
    book::{Book, Refusal, Served, list},
    life, sessions,
};
use crate::payments::wire::{Verb, Wire};

/// The parameters of a request by name.
pub struct Params<'a>(&'a [(String, String)]);

impl<'a> Params<'a> {
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.parse().ok()
    }

    /// `metadata[name]` as an object.
    pub fn metadata(&self, root: &str) -> Value {
        let prefix = format!("{root}[");
        let fields = self.0.iter().filter_map(|(key, value)| {
            let name = key.strip_prefix(&prefix)?.strip_suffix(']')?;
            Some((name.to_owned(), Value::from(value.as_str())))
        });
        Value::Object(fields.collect())
    }
}

pub async fn serve(book: &mut Book<'_>, request: &Wire) -> Served {
    let params = Params(&request.params);
    let account = request.account.as_deref().unwrap_or_default();
    if !account.is_empty() && book.get("account", account).await?.is_none() {
        return Ok(Err(Refusal::new("account_invalid", "There is no such account.")));
    }
    let path: Vec<&str> = request.path.trim_start_matches("/v1/").split('/').collect();
    match (request.verb, &path[..]) {
        (Verb::Post, ["customers"]) => {
            let customer = json!({ "id": book.id("cus"), "object": "customer", "name": params.get("name"),
                                   "email": params.get("email"), "metadata": params.metadata("metadata"), "livemode": false });
            book.put("customer", "", &customer, None).await?;
            Ok(Ok(customer))
        }
        (Verb::Post, ["prices"]) => create_price(book, &params).await,
        (Verb::Get, [kind @ ("prices" | "charges" | "refunds" | "disputes" | "payouts"), id]) => {
            let kind = kind.trim_end_matches('s');
            let found = book.find(kind, id).await?.filter(|found| found.parent == account || kind == "price");
            Ok(found.map(|found| found.body).ok_or_else(|| Refusal::missing(kind)))
        }
        (Verb::Post, ["checkout", "sessions"]) => sessions::create(book, &params, account).await,
        (Verb::Get, ["checkout", "sessions", id]) => {
            let found = book.find("session", id).await?.filter(|found| found.parent == account);
            Ok(found.map(|found| found.body).ok_or_else(|| Refusal::missing("checkout session")))
        }
        (Verb::Post, ["checkout", "sessions", id, "expire"]) => {
            match book.find("session", id).await?.filter(|found| found.parent == account) {
                Some(found) if found.body["status"] == "open" => sessions::expire(book, found.body).await.map(Ok),
                Some(_) => Ok(Err(Refusal::new("session_not_open", "Only an open session can expire."))),
                None => Ok(Err(Refusal::missing("checkout session"))),
            }
        }
        (Verb::Post, ["billing_portal", "sessions"]) => sessions::portal(book, &params).await,
        (Verb::Get, ["subscriptions", id]) => {
            Ok(book.get("subscription", id).await?.ok_or_else(|| Refusal::missing("subscription")))
        }
        (Verb::Post, ["subscriptions", id]) => change_subscription(book, id, &params).await,
        (Verb::Delete, ["subscriptions", id]) => match book.get("subscription", id).await? {
            Some(subscription) if subscription["status"] == "canceled" => Ok(Ok(subscription)),
            Some(subscription) => life::cancel(book, subscription).await.map(Ok),
            None => Ok(Err(Refusal::missing("subscription"))),
        },
        (Verb::Post, ["invoices", "create_preview"]) => preview(book, &params).await,
        (Verb::Get, ["invoices", id]) => {
            Ok(book.get("invoice", id).await?.ok_or_else(|| Refusal::missing("invoice")))
        }
        (Verb::Post, ["invoiceitems"]) => add_item(book, &params).await,
        (Verb::Get, ["invoiceitems"]) => {
            let items = book.of_parent("invoiceitem", params.get("invoice").unwrap_or_default()).await?;
            Ok(Ok(list("/v1/invoiceitems", items, false)))
        }
        (Verb::Get, ["payment_intents", id]) => {
            Ok(life::payment(book, account, id).await?.ok_or_else(|| Refusal::missing("payment intent")))
        }
        (Verb::Post, ["refunds"]) => refund(book, &params, account).await,
        (Verb::Get, ["refunds"]) => {
            let intent = params.get("payment_intent").unwrap_or_default();
            let mut found = book.of_parent("refund", account).await?;
            found.retain(|refund| refund["payment_intent"] == intent);
            Ok(Ok(list("/v1/refunds", found, false)))
        }
        (Verb::Get, ["events"]) => events(book, &params).await,
        (verb, ["accounts" | "account_links", ..]) => accounts::serve(book, verb, &path, &params).await,
        _ => Ok(Err(Refusal { status: 404, code: "url_invalid", message: format!("Unknown path {}", request.path) })),
    }
}

async fn create_price(book: &mut Book<'_>, params: &Params<'_>) -> Served {
    let (Some(amount), Some(currency), Some(interval)) =
        (params.number("unit_amount"), params.get("currency"), params.get("recurring[interval]"))
    else {
        return Ok(Err(Refusal::new("parameter_missing", "A price needs unit_amount, currency and an interval.")));
    };
    let price = json!({ "id": book.id("price"), "object": "price", "unit_amount": amount, "currency": currency,
                        "recurring": { "interval": interval, "interval_count": 1 }, "product": book.id("prod"),
                        "nickname": params.get("product_data[name]"), "active": true, "livemode": false, "type": "recurring" });
    book.put("price", "", &price, None).await?;
    Ok(Ok(price))
}

async fn change_subscription(book: &mut Book<'_>, id: &str, params: &Params<'_>) -> Served {
    let Some(mut subscription) = book.get("subscription", id).await? else {
        return Ok(Err(Refusal::missing("subscription")));
    };
    if matches!(subscription["status"].as_str(), Some("canceled" | "incomplete_expired")) {
        return Ok(Err(Refusal::new("resource_missing", "A subscription that ended cannot be changed.")));
    }
    if let Some(cancels) = params.get("cancel_at_period_end") {
        let cancels = cancels == "true";
        subscription["cancel_at_period_end"] = cancels.into();
        let end = subscription["items"]["data"][0]["current_period_end"].clone();
        subscription["cancel_at"] = if cancels { end } else { Value::Null };
        life::save(book, &subscription).await?;
        book.emit("customer.subscription.updated", &subscription, "").await?;
    }
    if params.get("trial_end") == Some("now") && subscription["status"] == "trialing" {
        return life::end_trial(book, subscription).await.map(Ok);
    }
    match params.get("items[0][price]") {
        Some(price) => {
            let Some(price) = book.get("price", price).await? else { return Ok(Err(Refusal::missing("price"))) };
            let quantity = params.number("items[0][quantity]").unwrap_or(1);
            let prorates = params.get("proration_behavior") != Some("none");
            life::change(book, subscription, price, quantity, prorates).await
        }
        None => Ok(Ok(subscription)),
    }
}

async fn preview(book: &mut Book<'_>, params: &Params<'_>) -> Served {
    let id = params.get("subscription").unwrap_or_default();
    let Some(subscription) = book.get("subscription", id).await? else {
        return Ok(Err(Refusal::missing("subscription")));
    };
    let price = params.get("subscription_details[items][0][price]").unwrap_or_default();
    let Some(price) = book.get("price", price).await? else { return Ok(Err(Refusal::missing("price"))) };
    let quantity = params.number("subscription_details[items][0][quantity]").unwrap_or(1);
    let prorates = params.get("subscription_details[proration_behavior]") != Some("none");
    let proration = life::prorate(&subscription, &price, quantity, book.seconds(), prorates);
    Ok(Ok(json!({ "object": "invoice", "currency": subscription["currency"], "total": proration.amount,
                  "amount_due": proration.amount.max(0), "lines": list("/v1/invoices/upcoming", proration.lines, false) })))
}

async fn add_item(book: &mut Book<'_>, params: &Params<'_>) -> Served {
    let id = params.get("invoice").unwrap_or_default();
    let Some(invoice) = book.get("invoice", id).await? else { return Ok(Err(Refusal::missing("invoice"))) };
    if invoice["status"] != "draft" {
        return Ok(Err(Refusal::new("invoice_not_editable", "A finalized invoice takes no further lines.")));
    }
    let (amount, metadata) = (params.number("amount").unwrap_or_default(), params.metadata("metadata"));
    let description = params.get("description").unwrap_or_default();
    let item = json!({ "id": book.id("ii"), "object": "invoiceitem", "amount": amount, "invoice": id,
                       "customer": invoice["customer"], "currency": invoice["currency"], "description": description,
                       "metadata": metadata, "livemode": false });
    book.put("invoiceitem", id, &item, None).await?;
    let period =
        (invoice["period_start"].as_i64().unwrap_or_default(), invoice["period_end"].as_i64().unwrap_or_default());
    life::add_line(book, invoice, life::line(amount, 1, description, period, &metadata)).await?;
    Ok(Ok(item))
}

async fn refund(book: &mut Book<'_>, params: &Params<'_>, account: &str) -> Served {
    let id = params.get("payment_intent").unwrap_or_default();
    let Some(intent) = life::payment(book, account, id).await? else {
        return Ok(Err(Refusal::missing("payment intent")));
    };
    let mut charge = intent["latest_charge"].clone();
    let number = |object: &Value, name: &str| object[name].as_i64().unwrap_or_default();
    let left = number(&charge, "amount") - number(&charge, "amount_refunded");
    let amount = params.number("amount").unwrap_or(left);
    if amount <= 0 || amount > left {
        return Ok(Err(Refusal::new(
            "charge_already_refunded",
            "The amount is more than what is left of the charge.",
        )));
    }
    charge["amount_refunded"] = (number(&charge, "amount_refunded") + amount).into();
    charge["refunded"] = (amount == left).into();
    if params.get("refund_application_fee") == Some("true") && charge["application_fee"].is_object() {
        // In proportion to all that went back, so that the parts add up to the whole.
        let share = i128::from(number(&charge["application_fee"], "amount"))
            * i128::from(number(&charge, "amount_refunded"))
            / i128::from(number(&charge, "amount").max(1));
        charge["application_fee"]["amount_refunded"] = i64::try_from(share).unwrap_or_default().into();
    }
    let sql = "UPDATE sandbox_object SET body = $2 WHERE id = $1";
    book.tx.exec(sql, params![charge["id"].as_str().unwrap_or_default(), &charge]).await?;
    let refund = json!({ "id": book.id("re"), "object": "refund", "amount": amount, "status": "succeeded",
                         "charge": charge["id"], "payment_intent": id, "currency": charge["currency"],
                         "metadata": params.metadata("metadata") });
    book.put("refund", account, &refund, None).await?;
    book.emit("refund.created", &refund, account).await?;
    book.emit("charge.refunded", &charge, account).await?;
    Ok(Ok(refund))
}

struct Listed {
    body: Value,
    created_at: Timestamp,
}
row!(Listed { body, created_at });

/// The platform's own events, newest first.
async fn events(book: &mut Book<'_>, params: &Params<'_>) -> Served {
    let since = Timestamp(params.number("created[gte]").unwrap_or_default() * 1000);
    let most = params.number("limit").unwrap_or(10).clamp(1, 100);
    let (mut below, mut id) = (Timestamp(i64::MAX), "~".to_owned());
    if let Some(after) = params.get("starting_after") {
        let sql = "SELECT body, created_at FROM sandbox_event WHERE id = $1";
        if let Some(found) = book.tx.opt::<Listed>(sql, params![after]).await? {
            (below, id) = (found.created_at, after.to_owned());
        }
    }
    let sql = "SELECT body, created_at FROM sandbox_event WHERE account = '' AND created_at >= $1
                 AND (created_at, id) < ($2, $3) ORDER BY created_at DESC, id DESC LIMIT $4";
    let mut found: Vec<Listed> = book.tx.all(sql, params![since, below, &id, most + 1]).await?;
    let has_more = i64::try_from(found.len()).unwrap_or_default() > most;
    found.truncate(usize::try_from(most).unwrap_or(100));
    Ok(Ok(list("/v1/events", found.into_iter().map(|event| event.body).collect(), has_more)))
}
