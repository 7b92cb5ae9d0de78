//! Merchants and their payments as stored.
use db::{Db, Read, Tx, holding, params, row};
use kernel::{clock::Timestamp, http::Key, id::Id};
use tenancy::{apps::ApplicationId, events::About, orgs::OrgId};

pub type MerchantId = Id<Merchant>;
pub type PaymentId = Id<MerchantPayment>;
pub type RefundId = Id<Refund>;

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "the processor says each of them on its own")]
pub struct Merchant {
    pub id: MerchantId,
    pub app_id: ApplicationId,
    pub org_id: OrgId,
    /// The processor's id. It addresses nothing here.
    pub account: Option<String>,
    pub livemode: bool,
    pub status: String,
    pub charges_enabled: bool,
    pub payouts_enabled: bool,
    pub details_submitted: bool,
    pub requirements: serde_json::Value,
    pub country: String,
    pub email: Option<String>,
    pub business_name: Option<String>,
    pub display_name: Option<String>,
    pub default_currency: Option<String>,
    pub return_url: String,
    pub refresh_url: String,
    pub applied: i64,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}
row!(Merchant {
    id,
    app_id,
    org_id,
    account,
    livemode,
    status,
    charges_enabled,
    payouts_enabled,
    details_submitted,
    requirements,
    country,
    email,
    business_name,
    display_name,
    default_currency,
    return_url,
    refresh_url,
    applied,
    created_at,
    ended_at
});

impl Merchant {
    pub fn about(&self) -> About {
        About::application(self.app_id, self.org_id)
    }

    pub async fn find(mut from: impl Read, id: MerchantId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM merchant WHERE id = $1", params![id]).await
    }

    pub async fn hold(tx: &mut Tx, id: MerchantId) -> db::Result<Option<Self>> {
        tx.opt(holding!("SELECT * FROM merchant WHERE id = $1"), params![id]).await
    }

    pub async fn of_account(mut from: impl Read, account: &str) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM merchant WHERE account = $1", params![account]).await
    }

    pub async fn page(db: &Db, app: ApplicationId, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT * FROM merchant WHERE app_id = $1 AND (created_at, id) < ($2, $3) ORDER BY created_at DESC, id DESC LIMIT $4",
            params![app, below.at, &below.id, most],
        )
        .await
    }

    /// Those whose account was not created yet.
    pub async fn begun(db: &Db, before: Timestamp) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM merchant WHERE account IS NULL AND ended_at IS NULL AND created_at < $1 ORDER BY id LIMIT 100";
        db.all(sql, params![before]).await
    }

    /// Those who are not set up, the latest first.
    pub async fn unsettled(db: &Db, livemode: bool) -> db::Result<Vec<MerchantId>> {
        let sql = "SELECT id FROM merchant WHERE ended_at IS NULL AND status <> 'enabled' AND account IS NOT NULL
                     AND livemode = $1 ORDER BY created_at DESC, id DESC LIMIT 200";
        Ok(db.all::<(MerchantId,)>(sql, params![livemode]).await?.into_iter().map(|(id,)| id).collect())
    }

    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "INSERT INTO merchant (id, app_id, org_id, livemode, status, charges_enabled, payouts_enabled, details_submitted,
                                   requirements, country, email, business_name, display_name, return_url, refresh_url, reads,
                                   applied, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $6, $6, $7, $8, $9, $10, $11, $12, $13, 0, 0, $14, $14)",
            params![
                self.id,
                self.app_id,
                self.org_id,
                self.livemode,
                &self.status,
                false,
                &self.requirements,
                &self.country,
                self.email.clone(),
                self.business_name.clone(),
                self.display_name.clone(),
                &self.return_url,
                &self.refresh_url,
                self.created_at
            ],
        )
        .await
        .map(drop)
    }

    pub async fn save(&self, tx: &mut Tx, now: Timestamp) -> db::Result<()> {
        tx.exec(
            "UPDATE merchant SET account = $2, status = $3, charges_enabled = $4, payouts_enabled = $5, details_submitted = $6,
               requirements = $7, email = $8, business_name = $9, display_name = $10, default_currency = $11, applied = $12,
               updated_at = $13, ended_at = $14 WHERE id = $1",
            params![
                self.id,
                self.account.clone(),
                &self.status,
                self.charges_enabled,
                self.payouts_enabled,
                self.details_submitted,
                &self.requirements,
                self.email.clone(),
                self.business_name.clone(),
                self.display_name.clone(),
                self.default_currency.clone(),
                self.applied,
                now,
                self.ended_at
            ],
        )
        .await
        .map(drop)
    }

    pub async fn begin_read(db: &Db, id: MerchantId) -> db::Result<i64> {
        let sql = "UPDATE merchant SET reads = reads + 1 WHERE id = $1 RETURNING reads";
        Ok(db.put::<(i64,)>(sql, params![id]).await?.first().map_or(0, |(number,)| *number))
    }

    /// Whether payments or refunds are under way.
    pub async fn is_busy(tx: &mut Tx, id: MerchantId) -> db::Result<bool> {
        let sql = "SELECT id FROM merchant_payment WHERE merchant_id = $1 AND (status IN ('creating', 'open')
                     OR id IN (SELECT payment_id FROM merchant_refund WHERE state = 'wanted')) LIMIT 1";
        Ok(tx.opt::<(String,)>(sql, params![id]).await?.is_some())
    }

    /// The app is deleted: its merchants cannot be paid through it any more.
    pub async fn end_all(tx: &mut Tx, app: ApplicationId, now: Timestamp) -> db::Result<()> {
        let sql = "UPDATE merchant SET status = 'disconnected', email = NULL, ended_at = $2, updated_at = $2
                   WHERE app_id = $1 AND ended_at IS NULL";
        tx.exec(sql, params![app, now]).await.map(drop)
    }

    pub async fn note_payout(
        tx: &mut Tx,
        id: MerchantId,
        payout: &str,
        (amount, currency, status): (i64, &str, &str),
        now: Timestamp,
    ) -> db::Result<()> {
        let sql = "INSERT INTO merchant_payout (processor_id, merchant_id, amount, currency, status, created_at)
                   VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (processor_id) DO UPDATE SET status = $5";
        tx.exec(sql, params![payout, id, amount, currency, status, now]).await.map(drop)
    }

    pub async fn payouts(db: &Db, id: MerchantId) -> db::Result<Vec<Payout>> {
        let sql = "SELECT amount, currency, status, created_at FROM merchant_payout WHERE merchant_id = $1
                   ORDER BY created_at DESC, processor_id DESC LIMIT 20";
        db.all(sql, params![id]).await
    }
}

/// Money on the way to a merchant's bank.
pub struct Payout {
    pub amount: i64,
    pub currency: String,
    pub status: String,
    pub created_at: Timestamp,
}
row!(Payout { amount, currency, status, created_at });

/// A payment to a merchant, with its checkout.
#[derive(Debug, Clone)]
pub struct MerchantPayment {
    pub id: PaymentId,
    pub merchant_id: MerchantId,
    pub app_id: ApplicationId,
    pub request_key: Option<String>,
    /// direct or destination
    pub charge_type: String,
    pub items: serde_json::Value,
    pub amount: i64,
    pub fee: i64,
    pub currency: String,
    pub reference: Option<String>,
    pub metadata: serde_json::Value,
    pub customer_email: Option<String>,
    /// `creating`, `open`, `paid`, `partially_refunded`, `refunded`, `disputed`, `expired` or `failed`
    pub status: String,
    pub refunded: i64,
    pub fee_refunded: i64,
    pub lost: i64,
    pub processor_fee: i64,
    pub processor_id: Option<String>,
    pub payment_intent: Option<String>,
    pub url: Option<String>,
    pub success_url: String,
    pub cancel_url: String,
    pub expires_at: Option<Timestamp>,
    pub livemode: bool,
    pub applied: i64,
    pub created_at: Timestamp,
    pub paid_at: Option<Timestamp>,
}
row!(MerchantPayment {
    id,
    merchant_id,
    app_id,
    request_key,
    charge_type,
    items,
    amount,
    fee,
    currency,
    reference,
    metadata,
    customer_email,
    status,
    refunded,
    fee_refunded,
    lost,
    processor_fee,
    processor_id,
    payment_intent,
    url,
    success_url,
    cancel_url,
    expires_at,
    livemode,
    applied,
    created_at,
    paid_at
});

impl MerchantPayment {
    pub async fn find(mut from: impl Read, id: PaymentId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM merchant_payment WHERE id = $1", params![id]).await
    }

    pub async fn hold(tx: &mut Tx, id: PaymentId) -> db::Result<Option<Self>> {
        tx.opt(holding!("SELECT * FROM merchant_payment WHERE id = $1"), params![id]).await
    }

    pub async fn of_processor(mut from: impl Read, id: &str) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM merchant_payment WHERE processor_id = $1", params![id]).await
    }

    pub async fn of_intent(mut from: impl Read, id: &str) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM merchant_payment WHERE payment_intent = $1", params![id]).await
    }

    pub async fn of_request(mut from: impl Read, app: ApplicationId, key: &str) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM merchant_payment WHERE app_id = $1 AND request_key = $2", params![app, key]).await
    }

    /// Those of an app, or of one merchant of it, newest first.
    pub async fn page(
        db: &Db,
        app: ApplicationId,
        merchant: Option<MerchantId>,
        status: &str,
        below: &Key,
        most: u32,
    ) -> db::Result<Vec<Self>> {
        let merchant = merchant.map(|id| id.to_string()).unwrap_or_default();
        db.all(
            "SELECT * FROM merchant_payment WHERE app_id = $1 AND ($2 = '' OR merchant_id = $2) AND ($3 = '' OR status = $3)
               AND (created_at, id) < ($4, $5) ORDER BY created_at DESC, id DESC LIMIT $6",
            params![app, merchant, status, below.at, &below.id, most],
        )
        .await
    }

    pub async fn begun(db: &Db, before: Timestamp) -> db::Result<Vec<Self>> {
        let sql =
            "SELECT * FROM merchant_payment WHERE status = 'creating' AND created_at < $1 ORDER BY id LIMIT 100";
        db.all(sql, params![before]).await
    }

    /// Those that can be paid, oldest first: they expire within a day.
    pub async fn open(db: &Db, livemode: bool) -> db::Result<Vec<PaymentId>> {
        let sql = "SELECT id FROM merchant_payment WHERE status = 'open' AND livemode = $1 ORDER BY created_at, id LIMIT 500";
        Ok(db.all::<(PaymentId,)>(sql, params![livemode]).await?.into_iter().map(|(id,)| id).collect())
    }

    /// Writes a new one; `false` when the request was made before.
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<bool> {
        let inserted = tx
            .exec(
                "INSERT INTO merchant_payment (id, merchant_id, app_id, request_key, charge_type, items, amount, fee, currency,
                                               reference, metadata, customer_email, status, refunded, fee_refunded, lost,
                                               processor_fee, success_url, cancel_url, livemode, reads, applied, created_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 'creating', 0, 0, 0, 0, $13, $14, $15, 0, 0, $16)
                 ON CONFLICT DO NOTHING",
                params![
                    self.id,
                    self.merchant_id,
                    self.app_id,
                    self.request_key.clone(),
                    &self.charge_type,
                    &self.items,
                    self.amount,
                    self.fee,
                    &self.currency,
                    self.reference.clone(),
                    &self.metadata,
                    self.customer_email.clone(),
                    &self.success_url,
                    &self.cancel_url,
                    self.livemode,
                    self.created_at
                ],
            )
            .await?;
        Ok(inserted == 1)
    }

    pub async fn save(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "UPDATE merchant_payment SET status = $2, refunded = $3, fee_refunded = $4, lost = $5, processor_fee = $6,
               processor_id = $7, payment_intent = $8, url = $9, expires_at = $10, applied = $11, paid_at = $12 WHERE id = $1",
            params![
                self.id,
                &self.status,
                self.refunded,
                self.fee_refunded,
                self.lost,
                self.processor_fee,
                self.processor_id.clone(),
                self.payment_intent.clone(),
                self.url.clone(),
                self.expires_at,
                self.applied,
                self.paid_at
            ],
        )
        .await
        .map(drop)
    }

    pub async fn begin_read(db: &Db, id: PaymentId) -> db::Result<i64> {
        let sql = "UPDATE merchant_payment SET reads = reads + 1 WHERE id = $1 RETURNING reads";
        Ok(db.put::<(i64,)>(sql, params![id]).await?.first().map_or(0, |(number,)| *number))
    }
}

/// What goes back of a payment.
#[derive(Debug, Clone)]
pub struct Refund {
    pub id: RefundId,
    pub payment_id: PaymentId,
    pub request_key: String,
    pub amount: i64,
    /// Whether the operator's fee goes back in proportion: 1 or 0.
    pub fee: i64,
    pub reason: Option<String>,
    pub state: String,
    pub created_at: Timestamp,
}
row!(Refund { id, payment_id, request_key, amount, fee, reason, state, created_at });

impl Refund {
    pub async fn of_request(tx: &mut Tx, payment: PaymentId, key: &str) -> db::Result<Option<Self>> {
        tx.opt("SELECT * FROM merchant_refund WHERE payment_id = $1 AND request_key = $2", params![payment, key])
            .await
    }

    /// What is wanted and not yet part of what the processor says.
    pub async fn wanted(tx: &mut Tx, payment: PaymentId) -> db::Result<i64> {
        let sql = "SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM merchant_refund WHERE payment_id = $1 AND state = 'wanted'";
        let (sum,): (i64,) = tx.one(sql, params![payment]).await?;
        Ok(sum)
    }

    pub async fn begun(db: &Db, before: Timestamp) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM merchant_refund WHERE state = 'wanted' AND created_at < $1 ORDER BY created_at, id LIMIT 100";
        db.all(sql, params![before]).await
    }

    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        let sql = "INSERT INTO merchant_refund (id, payment_id, request_key, amount, fee, reason, state, created_at)
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
        let params = params![
            self.id,
            self.payment_id,
            &self.request_key,
            self.amount,
            self.fee,
            self.reason.clone(),
            &self.state,
            self.created_at
        ];
        tx.exec(sql, params).await.map(drop)
    }

    pub async fn end(tx: &mut Tx, id: RefundId, state: &'static str, processor_id: Option<&str>) -> db::Result<()> {
        let sql = "UPDATE merchant_refund SET state = $2, processor_id = $3 WHERE id = $1";
        tx.exec(sql, params![id, state, processor_id]).await.map(drop)
    }
}
