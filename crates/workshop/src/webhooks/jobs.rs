//! What is done later and bit by bit, because it may be much.
use std::time::Duration;

use db::Reach;
use kernel::{
    Janua,
    clock::Timestamp,
    jobs::{self, Job, Jobs, Later},
};
use serde::{Deserialize, Serialize};
use tenancy::events::outbox;

use super::{
    deliveries::Delivery,
    model::{Webhook, WebhookId},
    names::heard_as,
};

/// How long records and events are kept.
pub const KEPT: Duration = Duration::from_hours(30 * 24);
const BIT: u32 = 500;
/// Past this many bits a job makes room for others and comes back.
const BITS: u32 = 20;

pub fn jobs() -> Jobs {
    Jobs::new().on::<Cancel>().on::<Clear>().on::<Recover>().every::<Tidy>(Duration::from_mins(10))
}

/// Takes what waits for a webhook that was switched off out of the queue.
#[derive(Serialize, Deserialize)]
pub struct Cancel {
    pub webhook: WebhookId,
    /// What came later was asked for after it was switched on again.
    pub until: Timestamp,
}

impl Job for Cancel {
    const KIND: &'static str = "webhooks.cancel";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        for _ in 0..BITS {
            if Delivery::cancel(&janua.db, self.webhook, self.until, BIT).await? < u64::from(BIT) {
                return Ok(());
            }
        }
        Ok(db::transact!(janua.db, async |tx| jobs::enqueue(tx, &janua, janua.clock.now(), &self).await)?)
    }
}

/// Removes what is left of a webhook that was deleted.
#[derive(Serialize, Deserialize)]
pub struct Clear {
    pub webhook: WebhookId,
}

impl Job for Clear {
    const KIND: &'static str = "webhooks.clear";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        for _ in 0..BITS {
            if Delivery::sweep_of(&janua.db, self.webhook, BIT).await? < u64::from(BIT) {
                return Ok(());
            }
        }
        Ok(db::transact!(janua.db, async |tx| jobs::enqueue(tx, &janua, janua.clock.now(), &self).await)?)
    }
}

/// Puts everything that happened since a moment and did not arrive into the queue.
#[derive(Serialize, Deserialize)]
pub struct Recover {
    pub app: tenancy::apps::ApplicationId,
    pub webhook: WebhookId,
    pub since: Timestamp,
    /// How far it got: the moment and the id of an event.
    pub after: (Timestamp, String),
}

impl Job for Recover {
    const KIND: &'static str = "webhooks.recover";

    async fn run(mut self, janua: Janua) -> Result<(), Later> {
        let after = (self.after.0, self.after.1.as_str());
        let events = outbox::since(&janua.db, self.app, self.since, after, BIT).await?;
        let now = janua.clock.now();
        if let Some(last) = events.last() {
            self.after = (last.at, last.id.to_string());
        }
        let is_last = events.len() < BIT as usize;
        Ok(db::transact!(janua.db, async |tx| {
            // Switched off or deleted in the meantime.
            let found = Webhook::hold(tx, self.app, self.webhook).await?;
            let Some(webhook) = found.filter(|webhook| webhook.is_active) else { return Ok(()) };
            for event in &events {
                let names = |value: &String| heard_as(value, event.webhook.as_deref(), &event.kind);
                for name in webhook.events.iter().flat_map(names) {
                    Delivery::recover(tx, &janua, webhook.id, event.id, &name, now).await?;
                }
            }
            Webhook::wake(tx, webhook.id, now).await?;
            tx.notify(Reach::ThisNode, outbox::TOPIC, "").await?;
            if is_last { Ok(()) } else { jobs::enqueue(tx, &janua, now, &self).await }
        })?)
    }
}

/// Throws away what was kept long enough, and secrets whose time is over.
#[derive(Default, Serialize, Deserialize)]
pub struct Tidy {}

impl Job for Tidy {
    const KIND: &'static str = "webhooks.tidy";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let now = janua.clock.now();
        Webhook::retire_secrets(&janua.db, now).await?;
        super::listen::tidy(&janua).await?;
        let before = now.minus(KEPT);
        for _ in 0..BITS {
            if Delivery::sweep(&janua.db, before, BIT).await? < u64::from(BIT) {
                break;
            }
        }
        for _ in 0..BITS {
            if outbox::sweep(&janua.db, before, BIT).await? < u64::from(BIT) {
                break;
            }
        }
        Ok(())
    }
}
