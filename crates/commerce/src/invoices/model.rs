//! Invoices and their usage lines as stored.
use db::{Db, Read, Tx, params, row};
use kernel::{clock::Timestamp, http::Key, id::Id};

use crate::{billing::model::SubjectId, usage::QUARTER};

pub type InvoiceId = Id<Invoice>;
pub type ItemId = Id<Item>;

#[derive(Debug, Clone)]
pub struct Invoice {
    pub id: InvoiceId,
    pub subject_id: SubjectId,
    pub processor_id: String,
    pub livemode: bool,
    pub number: Option<String>,
    pub status: String,
    pub plan: String,
    pub total: i64,
    pub paid: i64,
    pub refunded: i64,
    pub lost: i64,
    pub fee: i64,
    pub overage: i64,
    pub currency: String,
    pub period_start: Timestamp,
    pub period_end: Timestamp,
    pub url: Option<String>,
    pub payment_intent: Option<String>,
    pub charge: Option<String>,
    pub disputed: bool,
    pub lines: serde_json::Value,
    pub applied: i64,
    pub created_at: Timestamp,
    pub paid_at: Option<Timestamp>,
}
row!(Invoice {
    id,
    subject_id,
    processor_id,
    livemode,
    number,
    status,
    plan,
    total,
    paid,
    refunded,
    lost,
    fee,
    overage,
    currency,
    period_start,
    period_end,
    url,
    payment_intent,
    charge,
    disputed,
    lines,
    applied,
    created_at,
    paid_at
});

impl Invoice {
    pub async fn find(mut from: impl Read, id: InvoiceId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM billing_invoice WHERE id = $1", params![id]).await
    }

    pub async fn of_processor(mut from: impl Read, id: &str) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM billing_invoice WHERE processor_id = $1", params![id]).await
    }

    pub async fn of_intent(mut from: impl Read, intent: &str) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM billing_invoice WHERE payment_intent = $1", params![intent]).await
    }

    pub async fn page(db: &Db, subject: SubjectId, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT * FROM billing_invoice WHERE subject_id = $1 AND (created_at, id) < ($2, $3)
             ORDER BY created_at DESC, id DESC LIMIT $4",
            params![subject, below.at, &below.id, most],
        )
        .await
    }

    /// Writes it, in place of what was read before.
    pub async fn put(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "INSERT INTO billing_invoice (id, subject_id, processor_id, livemode, number, status, plan, total, paid, refunded,
                                          lost, fee, overage, currency, period_start, period_end, url, payment_intent, charge,
                                          disputed, lines, applied, created_at, paid_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,
                     $24)
             ON CONFLICT (processor_id) DO UPDATE SET number = $5, status = $6, total = $8, paid = $9, refunded = $10,
               lost = $11, fee = $12, overage = $13, url = $17, payment_intent = $18, charge = $19, disputed = $20, lines = $21,
               applied = $22, paid_at = $24",
            params![
                self.id,
                self.subject_id,
                &self.processor_id,
                self.livemode,
                self.number.clone(),
                &self.status,
                &self.plan,
                self.total,
                self.paid,
                self.refunded,
                self.lost,
                self.fee,
                self.overage,
                &self.currency,
                self.period_start,
                self.period_end,
                self.url.clone(),
                self.payment_intent.clone(),
                self.charge.clone(),
                self.disputed,
                &self.lines,
                self.applied,
                self.created_at,
                self.paid_at
            ],
        )
        .await
        .map(drop)
    }
}

/// Usage of one meter in one period, frozen for an invoice.
#[derive(Debug, Clone)]
pub struct Item {
    pub id: ItemId,
    pub subject_id: SubjectId,
    pub subscription: String,
    pub meter: String,
    pub period_start: Timestamp,
    pub period_end: Timestamp,
    /// 0 for the period itself; more for what came late.
    pub revision: i64,
    pub used: i64,
    pub included: i64,
    pub quantity: i64,
    pub unit_price: String,
    pub amount: i64,
    pub currency: String,
    pub label: String,
    /// The processor's id of the invoice it belongs to.
    pub invoice: String,
    pub processor_id: Option<String>,
    pub created_at: Timestamp,
}
row!(Item {
    id,
    subject_id,
    subscription,
    meter,
    period_start,
    period_end,
    revision,
    used,
    included,
    quantity,
    unit_price,
    amount,
    currency,
    label,
    invoice,
    processor_id,
    created_at
});

/// Totals are kept by quarter of an hour. A quarter belongs to the period in which it begins.
pub fn quarter_at(moment: Timestamp) -> Timestamp {
    Timestamp(-(-moment.0).div_euclid(QUARTER) * QUARTER)
}

impl Item {
    /// What it is about, the same whenever it is frozen: by this it is found at the processor after a restore.
    pub fn key(&self) -> String {
        format!("{}:{}:{}", self.meter, self.period_start.0, self.revision)
    }

    /// The range of `GET /usage` that shows the events of this line.
    pub fn usage_range(&self) -> (Timestamp, Timestamp) {
        (quarter_at(self.period_start), quarter_at(self.period_end))
    }

    pub async fn of_invoice(mut from: impl Read, invoice: &str) -> db::Result<Vec<Self>> {
        from.all("SELECT * FROM billing_item WHERE invoice = $1 ORDER BY id", params![invoice]).await
    }

    /// All that was frozen of a subscription since a moment, oldest first.
    pub async fn since(mut from: impl Read, subscription: &str, since: Timestamp) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM billing_item WHERE subscription = $1 AND period_start >= $2
                   ORDER BY meter, period_start, revision LIMIT 1000";
        from.all(sql, params![subscription, since]).await
    }

    /// Those that the processor does not have yet.
    pub async fn waiting(db: &Db, before: Timestamp) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM billing_item WHERE processor_id IS NULL AND created_at < $1 ORDER BY created_at, id LIMIT 500";
        db.all(sql, params![before]).await
    }

    /// Freezes it; `false` when it was before.
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<bool> {
        let inserted = tx
            .exec(
                "INSERT INTO billing_item (id, subject_id, subscription, meter, period_start, period_end, revision, used, included,
                                           quantity, unit_price, amount, currency, label, invoice, processor_id, created_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
                 ON CONFLICT (subscription, meter, period_start, revision) DO NOTHING",
                params![
                    self.id,
                    self.subject_id,
                    &self.subscription,
                    &self.meter,
                    self.period_start,
                    self.period_end,
                    self.revision,
                    self.used,
                    self.included,
                    self.quantity,
                    &self.unit_price,
                    self.amount,
                    &self.currency,
                    &self.label,
                    &self.invoice,
                    self.processor_id.clone(),
                    self.created_at
                ],
            )
            .await?;
        Ok(inserted == 1)
    }

    pub async fn set_added(tx: &mut Tx, id: ItemId, processor_id: &str) -> db::Result<()> {
        tx.exec("UPDATE billing_item SET processor_id = $2 WHERE id = $1", params![id, processor_id]).await.map(drop)
    }

    /// Those that missed their invoice go on the next one.
    pub async fn carry_over(tx: &mut Tx, subscription: &str, invoice: &str) -> db::Result<()> {
        let sql = "UPDATE billing_item SET invoice = $2 WHERE subscription = $1 AND processor_id IS NULL";
        tx.exec(sql, params![subscription, invoice]).await.map(drop)
    }
}
