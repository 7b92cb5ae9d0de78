//! What we ask of the processor, a function for each request.
use kernel::{Janua, clock::Timestamp};
use serde_json::Value;

use super::{
    Driver, NoAnswer, Wire,
    read::{Account, CheckoutSession, Dispute, Invoice, Payment, Subscription, text},
    wire::Verb,
};

type Answer<T> = Result<T, NoAnswer>;

/// A checkout for a plan.
pub struct NewCheckout<'a> {
    pub customer: &'a str,
    pub price: &'a str,
    pub quantity: i64,
    pub trial_days: i64,
    pub success_url: &'a str,
    pub cancel_url: &'a str,
    /// Our id of it.
    pub reference: String,
}

/// A change of a subscription's price or seats.
pub struct Change<'a> {
    pub item: &'a str,
    pub price: &'a str,
    pub quantity: i64,
    /// Whether what is left of the period is settled now.
    pub prorates: bool,
}

/// One thing that a merchant sells.
pub struct Item {
    pub name: String,
    pub amount: i64,
    pub quantity: i64,
}

/// A payment to a merchant.
pub struct NewPayment<'a> {
    pub account: &'a str,
    pub is_direct: bool,
    pub items: &'a [Item],
    pub currency: &'a str,
    pub fee: i64,
    pub success_url: &'a str,
    pub cancel_url: &'a str,
    pub email: Option<&'a str>,
    pub reference: String,
}

/// What is sent back of a payment.
pub struct NewRefund<'a> {
    pub account: Option<&'a str>,
    pub payment_intent: &'a str,
    pub amount: i64,
    pub refunds_fee: bool,
    pub is_destination: bool,
}

impl Driver {
    async fn call(&self, janua: &Janua, request: Wire) -> Answer<Value> {
        self.transport.call(janua, request).await
    }

    pub async fn create_customer(&self, janua: &Janua, key: &str, name: &str, email: Option<&str>) -> Answer<String> {
        let request = Wire::post("/v1/customers", key).with("name", name).with_some("email", email);
        let made = self.call(janua, request.with("metadata[janua]", key)).await?;
        text(&made, "/id").ok_or_else(|| NoAnswer::away("its customer has no id"))
    }

    pub async fn create_price(
        &self,
        janua: &Janua,
        key: &str,
        title: &str,
        price: &crate::plans::Price,
    ) -> Answer<String> {
        let request = Wire::post("/v1/prices", key)
            .with("currency", &price.currency)
            .with("unit_amount", price.amount)
            .with("recurring[interval]", &price.interval)
            .with("product_data[name]", title);
        let made = self.call(janua, request).await?;
        text(&made, "/id").ok_or_else(|| NoAnswer::away("its price has no id"))
    }

    /// Amount, currency and interval of a price.
    pub async fn price(&self, janua: &Janua, id: &str) -> Answer<(i64, String, String)> {
        let found = self.call(janua, Wire::get(format!("/v1/prices/{id}"))).await?;
        let amount = found["unit_amount"].as_i64().unwrap_or(-1);
        let of = |pointer| text(&found, pointer).unwrap_or_default();
        Ok((amount, of("/currency"), of("/recurring/interval")))
    }

    pub async fn create_checkout(&self, janua: &Janua, key: &str, new: &NewCheckout<'_>) -> Answer<CheckoutSession> {
        let request = Wire::post("/v1/checkout/sessions", key)
            .with("mode", "subscription")
            .with("customer", new.customer)
            .with("client_reference_id", &new.reference)
            .with("line_items[0][price]", new.price)
            .with("line_items[0][quantity]", new.quantity)
            .with("success_url", new.success_url)
            .with("cancel_url", new.cancel_url)
            .with("subscription_data[metadata][janua]", &new.reference)
            .with_some("subscription_data[trial_period_days]", (new.trial_days > 0).then_some(new.trial_days));
        CheckoutSession::read(&self.call(janua, request).await?)
    }

    pub async fn checkout(&self, janua: &Janua, account: Option<&str>, id: &str) -> Answer<CheckoutSession> {
        let request = Wire::get(format!("/v1/checkout/sessions/{id}")).for_account(account);
        CheckoutSession::read(&self.call(janua, request).await?)
    }

    pub async fn expire_checkout(&self, janua: &Janua, key: &str, account: Option<&str>, id: &str) -> Answer<()> {
        let request = Wire::post(format!("/v1/checkout/sessions/{id}/expire"), key).for_account(account);
        self.call(janua, request).await.map(drop)
    }

    pub async fn create_portal(&self, janua: &Janua, key: &str, customer: &str, return_url: &str) -> Answer<String> {
        let request = Wire::post("/v1/billing_portal/sessions", key);
        let made = self.call(janua, request.with("customer", customer).with("return_url", return_url)).await?;
        text(&made, "/url").ok_or_else(|| NoAnswer::away("its portal has no URL"))
    }

    pub async fn subscription(&self, janua: &Janua, id: &str) -> Answer<Subscription> {
        let request = Wire::get(format!("/v1/subscriptions/{id}")).with("expand[0]", "default_payment_method");
        Subscription::read(&self.call(janua, request).await?)
    }

    pub async fn change(&self, janua: &Janua, key: &str, id: &str, change: &Change<'_>) -> Answer<Subscription> {
        let request = Wire::post(format!("/v1/subscriptions/{id}"), key)
            .with("items[0][id]", change.item)
            .with("items[0][price]", change.price)
            .with("items[0][quantity]", change.quantity)
            .with("proration_behavior", if change.prorates { "always_invoice" } else { "none" });
        Subscription::read(&self.call(janua, request).await?)
    }

    /// What a change would cost now, and in which currency.
    pub async fn preview(&self, janua: &Janua, id: &str, change: &Change<'_>) -> Answer<(i64, String)> {
        let request = Wire::new(Verb::Post, "/v1/invoices/create_preview")
            .with("subscription", id)
            .with("subscription_details[items][0][id]", change.item)
            .with("subscription_details[items][0][price]", change.price)
            .with("subscription_details[items][0][quantity]", change.quantity)
            .with(
                "subscription_details[proration_behavior]",
                if change.prorates { "always_invoice" } else { "none" },
            );
        let made = self.call(janua, request).await?;
        Ok((made["amount_due"].as_i64().unwrap_or_default(), text(&made, "/currency").unwrap_or_default()))
    }

    pub async fn cancel_at_period_end(
        &self,
        janua: &Janua,
        key: &str,
        id: &str,
        cancels: bool,
    ) -> Answer<Subscription> {
        let request = Wire::post(format!("/v1/subscriptions/{id}"), key).with("cancel_at_period_end", cancels);
        Subscription::read(&self.call(janua, request).await?)
    }

    pub async fn end_trial(&self, janua: &Janua, key: &str, id: &str) -> Answer<Subscription> {
        let request = Wire::post(format!("/v1/subscriptions/{id}"), key).with("trial_end", "now");
        Subscription::read(&self.call(janua, request).await?)
    }

    pub async fn cancel_now(&self, janua: &Janua, id: &str) -> Answer<Subscription> {
        Subscription::read(&self.call(janua, Wire::new(Verb::Delete, format!("/v1/subscriptions/{id}"))).await?)
    }

    pub async fn invoice(&self, janua: &Janua, id: &str) -> Answer<Invoice> {
        let request = Wire::get(format!("/v1/invoices/{id}")).with("expand[0]", "payments");
        Invoice::read(&self.call(janua, request).await?)
    }

    /// The items of an invoice that are ours, by the id they have here.
    pub async fn invoice_items(&self, janua: &Janua, invoice: &str) -> Answer<Vec<(String, String)>> {
        let request = Wire::get("/v1/invoiceitems").with("invoice", invoice).with("limit", 100);
        let found = self.call(janua, request).await?;
        let items = found["data"].as_array().into_iter().flatten();
        Ok(items.filter_map(|item| Some((text(item, "/metadata/janua_item")?, text(item, "/id")?))).collect())
    }

    pub async fn add_invoice_item(
        &self,
        janua: &Janua,
        key: &str,
        customer: &str,
        item: &crate::invoices::Item,
    ) -> Answer<String> {
        let request = Wire::post("/v1/invoiceitems", key)
            .with("customer", customer)
            .with("invoice", &item.invoice)
            .with("amount", item.amount)
            .with("currency", &item.currency)
            .with("description", &item.label)
            .with("metadata[janua_item]", item.key());
        let made = self.call(janua, request).await?;
        text(&made, "/id").ok_or_else(|| NoAnswer::away("its item has no id"))
    }

    pub async fn payment(&self, janua: &Janua, account: Option<&str>, id: &str) -> Answer<Payment> {
        let request = Wire::get(format!("/v1/payment_intents/{id}"))
            .with("expand[0]", "latest_charge.balance_transaction")
            .with("expand[1]", "latest_charge.application_fee")
            .for_account(account);
        Payment::read(&self.call(janua, request).await?)
    }

    /// Sends money back, once for each key. Whoever does not know how an earlier request ended looks first: keys are forgotten after
    /// a day.
    pub async fn refund(&self, janua: &Janua, key: &str, new: &NewRefund<'_>) -> Answer<String> {
        let there = Wire::get("/v1/refunds").with("payment_intent", new.payment_intent).with("limit", 100);
        let there = self.call(janua, there.for_account(new.account)).await?;
        let mut all = there["data"].as_array().into_iter().flatten();
        if let Some(id) = all.find(|one| one["metadata"]["janua"] == key).and_then(|one| text(one, "/id")) {
            return Ok(id);
        }
        let mut request = Wire::post("/v1/refunds", key)
            .with("payment_intent", new.payment_intent)
            .with("amount", new.amount)
            .with("metadata[janua]", key)
            .for_account(new.account);
        if new.refunds_fee {
            request = request.with("refund_application_fee", true);
        }
        if new.is_destination {
            request = request.with("reverse_transfer", true);
        }
        let made = self.call(janua, request).await?;
        text(&made, "/id").ok_or_else(|| NoAnswer::away("its refund has no id"))
    }

    /// The payment that a charge or a refund belongs to.
    pub async fn payment_of(
        &self,
        janua: &Janua,
        account: Option<&str>,
        kind: &str,
        id: &str,
    ) -> Answer<Option<String>> {
        let path = match kind {
            "refund" => format!("/v1/refunds/{id}"),
            _ => format!("/v1/charges/{id}"),
        };
        Ok(text(&self.call(janua, Wire::get(path).for_account(account)).await?, "/payment_intent"))
    }

    pub async fn dispute(&self, janua: &Janua, account: Option<&str>, id: &str) -> Answer<Dispute> {
        Dispute::read(&self.call(janua, Wire::get(format!("/v1/disputes/{id}")).for_account(account)).await?)
    }

    pub async fn create_account(
        &self,
        janua: &Janua,
        key: &str,
        country: &str,
        email: Option<&str>,
        name: Option<&str>,
    ) -> Answer<Account> {
        let request = Wire::post("/v1/accounts", key)
            .with("country", country)
            .with("controller[fees][payer]", "account")
            .with("controller[losses][payments]", "stripe")
            .with("controller[stripe_dashboard][type]", "full")
            .with("controller[requirement_collection]", "stripe")
            .with("capabilities[card_payments][requested]", true)
            .with("capabilities[transfers][requested]", true)
            .with_some("email", email)
            .with_some("business_profile[name]", name);
        Account::read(&self.call(janua, request).await?)
    }

    pub async fn account(&self, janua: &Janua, id: &str) -> Answer<Account> {
        Account::read(&self.call(janua, Wire::get(format!("/v1/accounts/{id}"))).await?)
    }

    pub async fn account_link(
        &self,
        janua: &Janua,
        key: &str,
        account: &str,
        refresh: &str,
        back: &str,
    ) -> Answer<(String, Timestamp)> {
        let request = Wire::post("/v1/account_links", key)
            .with("account", account)
            .with("refresh_url", refresh)
            .with("return_url", back)
            .with("type", "account_onboarding");
        let made = self.call(janua, request).await?;
        let expires = made["expires_at"].as_i64().unwrap_or_default();
        let url = text(&made, "/url").ok_or_else(|| NoAnswer::away("its link has no URL"))?;
        Ok((url, Timestamp(expires * 1000)))
    }

    pub async fn login_link(&self, janua: &Janua, key: &str, account: &str) -> Answer<String> {
        let made = self.call(janua, Wire::post(format!("/v1/accounts/{account}/login_links"), key)).await?;
        text(&made, "/url").ok_or_else(|| NoAnswer::away("its link has no URL"))
    }

    pub async fn payout(&self, janua: &Janua, account: &str, id: &str) -> Answer<(i64, String, String)> {
        let found = self.call(janua, Wire::get(format!("/v1/payouts/{id}")).for_account(Some(account))).await?;
        let of = |pointer| text(&found, pointer).unwrap_or_default();
        Ok((found["amount"].as_i64().unwrap_or_default(), of("/currency"), of("/status")))
    }

    pub async fn create_payment(&self, janua: &Janua, key: &str, new: &NewPayment<'_>) -> Answer<CheckoutSession> {
        let mut request = Wire::post("/v1/checkout/sessions", key)
            .with("mode", "payment")
            .with("client_reference_id", &new.reference)
            .with("success_url", new.success_url)
            .with("cancel_url", new.cancel_url)
            .with_some("customer_email", new.email);
        for (place, item) in new.items.iter().enumerate() {
            request = request
                .with(format!("line_items[{place}][price_data][currency]"), new.currency)
                .with(format!("line_items[{place}][price_data][unit_amount]"), item.amount)
                .with(format!("line_items[{place}][price_data][product_data][name]"), &item.name)
                .with(format!("line_items[{place}][quantity]"), item.quantity);
        }
        if new.fee > 0 {
            request = request.with("payment_intent_data[application_fee_amount]", new.fee);
        }
        request = if new.is_direct {
            request.for_account(Some(new.account))
        } else {
            request.with("payment_intent_data[transfer_data][destination]", new.account)
        };
        CheckoutSession::read(&self.call(janua, request).await?)
    }

    /// Events since a moment, newest first, a page at a time.
    pub async fn events(&self, janua: &Janua, since: Timestamp, after: Option<&str>) -> Answer<(Vec<Value>, bool)> {
        let request = Wire::get("/v1/events")
            .with("created[gte]", since.0.div_euclid(1000))
            .with("limit", 100)
            .with_some("starting_after", after);
        let found = self.call(janua, request).await?;
        let events = found["data"].as_array().cloned().unwrap_or_default();
        Ok((events, found["has_more"] == true))
    }
}
