//! Subjects and checkouts as stored, and every statement on them.
use std::time::Duration;

use db::{Db, Read, Tx, holding, params, row};
use kernel::{Janua, clock::Timestamp, id::Id};
use tenancy::{apps::ApplicationId, events::About, orgs::OrgId, quotas::FIRST_PLAN};

use crate::payments::Driver;

pub type SubjectId = Id<Subject>;
pub type CheckoutId = Id<Checkout>;

/// Who pays, and the last state of the subscription that was read from the processor.
#[derive(Debug, Clone)]
pub struct Subject {
    pub id: SubjectId,
    pub org_id: OrgId,
    /// Empty for the organization itself.
    pub app_id: String,
    pub processor: String,
    pub livemode: bool,
    pub payer: String,
    pub email: Option<String>,
    pub customer: Option<String>,
    pub connected_at: Option<Timestamp>,
    pub subscription: Option<String>,
    pub item: Option<String>,
    pub status: String,
    pub plan: String,
    pub price_interval: Option<String>,
    pub amount: Option<i64>,
    pub currency: Option<String>,
    pub seats: i64,
    pub per_member: bool,
    pub period_start: Option<Timestamp>,
    pub period_end: Option<Timestamp>,
    pub trial_ends_at: Option<Timestamp>,
    pub cancel_at_period_end: bool,
    pub cancel_at: Option<Timestamp>,
    pub past_due_since: Option<Timestamp>,
    pub pending_plan: Option<String>,
    pub pending_at: Option<Timestamp>,
    pub last_plan: Option<String>,
    pub last_plan_until: Option<Timestamp>,
    pub trial_used_at: Option<Timestamp>,
    pub applied: i64,
    pub read_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub deleted_at: Option<Timestamp>,
}
row!(Subject {
    id,
    org_id,
    app_id,
    processor,
    livemode,
    payer,
    email,
    customer,
    connected_at,
    subscription,
    item,
    status,
    plan,
    price_interval,
    amount,
    currency,
    seats,
    per_member,
    period_start,
    period_end,
    trial_ends_at,
    cancel_at_period_end,
    cancel_at,
    past_due_since,
    pending_plan,
    pending_at,
    last_plan,
    last_plan_until,
    trial_used_at,
    applied,
    read_at,
    created_at,
    updated_at,
    deleted_at
});

impl Subject {
    pub fn app(&self) -> Option<ApplicationId> {
        self.app_id.parse().ok()
    }

    pub fn about(&self) -> About {
        self.app().map_or_else(|| About::in_org(self.org_id), |app| About::application(app, self.org_id))
    }

    /// Whether there is a subscription that can be changed or canceled.
    pub fn is_subscribed(&self) -> bool {
        matches!(self.status.as_str(), "trialing" | "active" | "past_due" | "unpaid" | "paused")
    }

    /// Whether a subscription began whose first payment is not known to be made.
    pub fn is_incomplete(&self) -> bool {
        self.status == "incomplete"
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.status.as_str(), "canceled" | "incomplete_expired")
    }

    /// The plan that counts: the one that is paid for, or on trial, or late within the grace.
    pub fn tier(&self, grace: Duration, now: Timestamp) -> &str {
        let counts = match self.status.as_str() {
            "trialing" | "active" => true,
            "past_due" => self.past_due_since.is_none_or(|since| now < since.plus(grace)),
            _ => false,
        };
        if counts { &self.plan } else { FIRST_PLAN }
    }

    pub async fn find(mut from: impl Read, id: SubjectId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM billing_subject WHERE id = $1", params![id]).await
    }

    pub async fn of(mut from: impl Read, org: OrgId, app: &str) -> db::Result<Option<Self>> {
        let sql = "SELECT * FROM billing_subject WHERE org_id = $1 AND app_id = $2 AND deleted_at IS NULL";
        from.opt(sql, params![org, app]).await
    }

    pub async fn hold(tx: &mut Tx, id: SubjectId) -> db::Result<Option<Self>> {
        tx.opt(holding!("SELECT * FROM billing_subject WHERE id = $1"), params![id]).await
    }

    pub async fn of_subscription(mut from: impl Read, subscription: &str) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM billing_subject WHERE subscription = $1", params![subscription]).await
    }

    pub async fn of_customer(db: &Db, customer: &str) -> db::Result<Vec<Self>> {
        db.all("SELECT * FROM billing_subject WHERE customer = $1 ORDER BY id LIMIT 100", params![customer]).await
    }

    pub async fn of_app(mut from: impl Read, app: ApplicationId) -> db::Result<Option<Self>> {
        let sql = "SELECT * FROM billing_subject WHERE app_id = $1 AND deleted_at IS NULL";
        from.opt(sql, params![app.to_string()]).await
    }

    /// Those of an organization, with its apps.
    pub async fn all_of(mut from: impl Read, org: OrgId) -> db::Result<Vec<Self>> {
        let sql =
            "SELECT * FROM billing_subject WHERE org_id = $1 AND deleted_at IS NULL ORDER BY app_id LIMIT 10000";
        from.all(sql, params![org]).await
    }

    /// Those whose subscription lives, from one on.
    pub async fn living(db: &Db, after: &str, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT * FROM billing_subject WHERE status IN ('trialing', 'active', 'past_due', 'incomplete', 'unpaid', 'paused')
               AND id > $1 ORDER BY id LIMIT $2",
            params![after, most],
        )
        .await
    }

    /// The subject of an organization or an app, created when there is none. One of another processor begins anew.
    pub async fn ensure(tx: &mut Tx, janua: &Janua, driver: &Driver, org: OrgId, app: &str) -> db::Result<Self> {
        let now = janua.clock.now();
        tx.exec(
            "INSERT INTO billing_subject (id, org_id, app_id, processor, livemode, payer, status, plan, seats, per_member,
                                          cancel_at_period_end, reads, applied, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, 'own', 'none', 'free', 1, $6, $6, 0, 0, $7, $7)
             ON CONFLICT (org_id, app_id) WHERE deleted_at IS NULL DO NOTHING",
            params![SubjectId::new(&janua.entropy, now), org, app, driver.kind.name(), driver.livemode, false, now],
        )
        .await?;
        let sql = holding!("SELECT * FROM billing_subject WHERE org_id = $1 AND app_id = $2 AND deleted_at IS NULL");
        let mut subject: Self = tx.one(sql, params![org, app]).await?;
        if (subject.processor.as_str(), subject.livemode) != (driver.kind.name(), driver.livemode) {
            (subject.processor, subject.livemode) = (driver.kind.name().to_owned(), driver.livemode);
            (subject.customer, subject.subscription, subject.item) = (None, None, None);
            subject.status = "none".into();
            subject.plan = FIRST_PLAN.into();
            subject.save(tx, now).await?;
        }
        Ok(subject)
    }

    /// The number of a read that begins now. What was read is applied only if no later read was.
    pub async fn begin_read(db: &Db, id: SubjectId) -> db::Result<i64> {
        let sql = "UPDATE billing_subject SET reads = reads + 1 WHERE id = $1 RETURNING reads";
        let numbers: Vec<(i64,)> = db.put(sql, params![id]).await?;
        Ok(numbers.first().map_or(0, |(number,)| *number))
    }

    pub async fn save(&mut self, tx: &mut Tx, now: Timestamp) -> db::Result<()> {
        self.updated_at = now;
        tx.exec(
            "UPDATE billing_subject SET processor = $2, livemode = $3, payer = $4, email = $5, customer = $6,
               connected_at = $7, subscription = $8, item = $9, status = $10, plan = $11, price_interval = $12, amount = $13,
               currency = $14, seats = $15, per_member = $16, period_start = $17, period_end = $18, trial_ends_at = $19,
               cancel_at_period_end = $20, cancel_at = $21, past_due_since = $22, pending_plan = $23, pending_at = $24,
               last_plan = $25, last_plan_until = $26, trial_used_at = $27, applied = $28, read_at = $29, updated_at = $30,
               deleted_at = $31
             WHERE id = $1",
            params![
                self.id,
                &self.processor,
                self.livemode,
                &self.payer,
                self.email.clone(),
                self.customer.clone(),
                self.connected_at,
                self.subscription.clone(),
                self.item.clone(),
                &self.status,
                &self.plan,
                self.price_interval.clone(),
                self.amount,
                self.currency.clone(),
                self.seats,
                self.per_member,
                self.period_start,
                self.period_end,
                self.trial_ends_at,
                self.cancel_at_period_end,
                self.cancel_at,
                self.past_due_since,
                self.pending_plan.clone(),
                self.pending_at,
                self.last_plan.clone(),
                self.last_plan_until,
                self.trial_used_at,
                self.applied,
                self.read_at,
                self.updated_at,
                self.deleted_at
            ],
        )
        .await
        .map(drop)
    }

    /// Notes the processor's customer, unless another request did.
    pub async fn set_customer(tx: &mut Tx, id: SubjectId, customer: &str) -> db::Result<()> {
        let sql = "UPDATE billing_subject SET customer = $2 WHERE id = $1 AND customer IS NULL";
        tx.exec(sql, params![id, customer]).await.map(drop)
    }

    /// Notes that a means of payment had a trial; `false` when another subject had it.
    pub async fn note_trial(tx: &mut Tx, id: SubjectId, fingerprint: &str, now: Timestamp) -> db::Result<bool> {
        let sql = "INSERT INTO billing_trial (fingerprint, subject_id, created_at) VALUES ($1, $2, $3)
                   ON CONFLICT (fingerprint) DO NOTHING";
        tx.exec(sql, params![fingerprint, id, now]).await?;
        let sql = "SELECT subject_id FROM billing_trial WHERE fingerprint = $1";
        let (first,): (String,) = tx.one(sql, params![fingerprint]).await?;
        Ok(first == id.to_string())
    }
}

/// A checkout.
#[derive(Debug, Clone)]
pub struct Checkout {
    pub id: CheckoutId,
    pub subject_id: SubjectId,
    /// new, or change of a subscription that lives
    pub kind: String,
    pub plan: String,
    pub price_interval: String,
    pub seats: i64,
    pub trial_days: i64,
    pub price: String,
    /// creating, open, completed, expired or failed
    pub state: String,
    pub processor_id: Option<String>,
    pub url: Option<String>,
    pub success_url: String,
    pub cancel_url: String,
    pub expires_at: Option<Timestamp>,
    pub created_by: Option<String>,
    pub created_at: Timestamp,
}
row!(Checkout {
    id,
    subject_id,
    kind,
    plan,
    price_interval,
    seats,
    trial_days,
    price,
    state,
    processor_id,
    url,
    success_url,
    cancel_url,
    expires_at,
    created_by,
    created_at
});

impl Checkout {
    pub async fn find(mut from: impl Read, id: CheckoutId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM billing_checkout WHERE id = $1", params![id]).await
    }

    /// The one that is open for a subject.
    pub async fn open_of(mut from: impl Read, subject: SubjectId) -> db::Result<Option<Self>> {
        let sql = "SELECT * FROM billing_checkout WHERE subject_id = $1 AND state IN ('creating', 'open')";
        from.opt(sql, params![subject]).await
    }

    pub async fn of_processor(mut from: impl Read, id: &str) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM billing_checkout WHERE processor_id = $1", params![id]).await
    }

    /// Those that are open, oldest first.
    pub async fn open(db: &Db, state: &'static str, before: Timestamp, most: u32) -> db::Result<Vec<Self>> {
        let sql =
            "SELECT * FROM billing_checkout WHERE state IN ('creating', 'open') AND state = $1 AND created_at < $2
                   ORDER BY created_at, id LIMIT $3";
        db.all(sql, params![state, before, most]).await
    }

    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "INSERT INTO billing_checkout (id, subject_id, kind, plan, price_interval, seats, trial_days, price, state,
                                           success_url, cancel_url, created_by, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
            params![
                self.id,
                self.subject_id,
                &self.kind,
                &self.plan,
                &self.price_interval,
                self.seats,
                self.trial_days,
                &self.price,
                &self.state,
                &self.success_url,
                &self.cancel_url,
                self.created_by.clone(),
                self.created_at
            ],
        )
        .await
        .map(drop)
    }

    /// The processor has it: from now on people can pay. `false` when it was ended meanwhile.
    pub async fn set_open(
        tx: &mut Tx,
        id: CheckoutId,
        processor_id: &str,
        url: Option<&str>,
        expires_at: Option<Timestamp>,
    ) -> db::Result<bool> {
        let sql = "UPDATE billing_checkout SET state = CASE WHEN state = 'creating' THEN 'open' ELSE state END,
                     processor_id = $2, url = $3, expires_at = $4
                   WHERE id = $1 AND processor_id IS NULL";
        Ok(tx.exec(sql, params![id, processor_id, url, expires_at]).await? == 1)
    }

    /// A completed one stays so: what was paid by it is judged once.
    pub async fn end(tx: &mut Tx, id: CheckoutId, state: &'static str, now: Timestamp) -> db::Result<()> {
        let sql = "UPDATE billing_checkout SET state = $2, ended_at = $3 WHERE id = $1 AND state <> 'completed'";
        tx.exec(sql, params![id, state, now]).await.map(drop)
    }
}
