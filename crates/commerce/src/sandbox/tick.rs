//! What happens by itself: renewals, trials that end, drafts that become invoices, retries, expiries, disputes, payouts.
use kernel::{
    Janua,
    jobs::{Job, Later},
};
use serde::{Deserialize, Serialize};

use super::{
    book::{Book, Stored},
    life, sessions,
};
use crate::payments::{Kind, Payments};

/// More than this in one run is left for the next one.
const MOST: usize = 10_000;

#[derive(Default, Serialize, Deserialize)]
pub struct Tick {}

impl Job for Tick {
    const KIND: &'static str = "sandbox.tick";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        if Payments::of(&janua).is_some_and(|driver| driver.kind == Kind::Sandbox) {
            run_due(&janua).await?;
        }
        Ok(())
    }
}

/// Does all that is due by the sandbox's clock; answers how much that was.
pub async fn run_due(janua: &Janua) -> db::Result<usize> {
    for done in 0..MOST {
        let was_due = db::transact!(janua.db, async |tx| {
            let mut book = Book::open(tx, janua).await?;
            match book.due().await? {
                Some(stored) => {
                    happen(&mut book, stored).await?;
                    Ok(true)
                }
                None => Ok(false),
            }
        })?;
        if !was_due {
            return Ok(done);
        }
    }
    Ok(MOST)
}

async fn happen(book: &mut Book<'_>, stored: Stored) -> db::Result<()> {
    let Stored { kind, parent, mut body, .. } = stored;
    match kind.as_str() {
        "subscription" => life::subscription_due(book, body).await,
        "invoice" => life::invoice_due(book, body).await,
        "session" => sessions::expire(book, body).await.map(drop),
        "charge" => life::dispute(book, &parent, body).await,
        "dispute" => life::lose_dispute(book, &parent, body).await,
        "payout" => {
            body["status"] = "paid".into();
            book.put("payout", &parent, &body, None).await?;
            book.emit("payout.paid", &body, &parent).await
        }
        _ => book.put(&kind, &parent, &body, None).await,
    }
}
