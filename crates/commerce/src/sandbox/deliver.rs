//! Delivers events: signed, to the real route, again and again until it answers 200.
use std::time::Duration;

use axum::{
    body::Body,
    http::{Method, Request, StatusCode},
};
use db::{params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    jobs::{Job, Later},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::book::Book;
use crate::payments::{Source, sandbox_secret, signature};

/// How long a draft waits for further lines after the event about it was taken.
const DRAFT: Duration = Duration::from_hours(1);

#[derive(Serialize, Deserialize)]
pub struct Deliver {
    pub id: String,
}

struct Sent {
    account: String,
    body: Value,
}
row!(Sent { account, body });

impl Job for Deliver {
    const KIND: &'static str = "sandbox.deliver";
    const TRIES: u32 = 16;

    fn backoff(tries: u32) -> Duration {
        let minutes = [1, 5, 30, 120, 300, 600];
        Duration::from_mins(minutes.get(tries.saturating_sub(1) as usize).copied().unwrap_or(720))
    }

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let sql = "SELECT account, body FROM sandbox_event WHERE id = $1";
        let Some(event) = janua.db.opt::<Sent>(sql, params![&self.id]).await? else { return Ok(()) };
        let is_connect = !event.account.is_empty();
        let (source, path) = if is_connect {
            (Source::Connect, "/connect/webhook/payments")
        } else {
            (Source::Billing, "/billing/webhook")
        };
        let body = event.body.to_string();
        let signed = signature::sign(&sandbox_secret(&janua, source), janua.clock.now(), body.as_bytes());
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header("content-type", "application/json")
            .header("processor-signature", signed)
            .body(Body::from(body))
            .map_err(Later::give_up)?;
        let answer = janua.inside.ask(request).await.map_err(Later::retry)?;
        if answer.status() != StatusCode::OK {
            return Err(Later::retry(format!("the webhook answered {}", answer.status())));
        }
        let is_draft = event.body["type"] == "invoice.created";
        let invoice = event.body["data"]["object"]["id"].as_str().unwrap_or_default().to_owned();
        db::transact!(janua.db, async |tx| {
            let mut book = Book::open(tx, &janua).await?;
            let now: Timestamp = book.now;
            let sql = "UPDATE sandbox_event SET delivered_at = $2 WHERE id = $1 AND delivered_at IS NULL";
            book.tx.exec(sql, params![&self.id, now]).await?;
            if is_draft
                && let Some(invoice) = book.find("invoice", &invoice).await?
                && invoice.body["status"] == "draft"
            {
                book.put("invoice", &invoice.parent, &invoice.body, Some(now.plus(DRAFT))).await?;
            }
            Ok(())
        })?;
        Ok(())
    }
}
