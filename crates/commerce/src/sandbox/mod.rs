//! The built-in processor: no money moves. It keeps its own objects in the processor's form, renews, retries and expires by the
//! clock, and sends signed events to the real webhook routes.
mod accounts;
mod book;
mod cards;
mod deliver;
mod life;
mod pages;
mod serve;
mod sessions;
mod tick;

use std::time::Duration;

use kernel::{
    Janua,
    clock::Timestamp,
    crypto,
    feature::Feature,
    installation,
    jobs::{Chore, Jobs},
};
use serde_json::{Value, json};

use self::book::{Book, Refusal};
use crate::payments::{
    NoAnswer, Transport,
    wire::{Answering, Verb, Wire},
};

pub use self::tick::run_due;

/// The fact that says how far the sandbox's clock is ahead of ours, in milliseconds.
const OFFSET: &str = "sandbox_clock_offset";

pub fn feature() -> Feature {
    Feature::new(pages::routes())
        .jobs(Jobs::new().on::<deliver::Deliver>().every::<tick::Tick>(Duration::from_mins(1)))
        .declares(&[Chore::sweep(
            "sandbox_reply",
            "DELETE FROM sandbox_reply WHERE request_key IN
                 (SELECT request_key FROM sandbox_reply WHERE created_at < $1 ORDER BY created_at LIMIT $2)",
            Duration::from_hours(24),
        )])
}

/// The sandbox's time: ours, and what it was moved ahead by.
pub async fn now(janua: &Janua) -> db::Result<Timestamp> {
    let ahead = installation::read(&janua.db, OFFSET).await?.and_then(|text| text.parse::<i64>().ok());
    Ok(Timestamp(janua.clock.now().0 + ahead.unwrap_or_default()))
}

/// Moves the sandbox's clock ahead and does what is due by then.
pub async fn advance(janua: &Janua, by: Duration) -> db::Result<usize> {
    db::transact!(janua.db, async |tx| {
        installation::write_once(tx, OFFSET, "0").await?;
        installation::lock(tx, OFFSET).await?;
        let ahead = installation::read(&mut *tx, OFFSET).await?.and_then(|text| text.parse::<i64>().ok());
        let ahead = ahead.unwrap_or_default() + i64::try_from(by.as_millis()).unwrap_or_default();
        installation::write(tx, OFFSET, &ahead.to_string()).await
    })?;
    run_due(janua).await
}

/// The way to the sandbox: straight into its tables.
pub struct Sandbox;

impl Transport for Sandbox {
    fn call<'a>(&'a self, janua: &'a Janua, request: Wire) -> Answering<'a> {
        Box::pin(async move {
            let (status, body) = db::aside(serve_once(janua, &request)).await.map_err(NoAnswer::away)?;
            let word = |name: &str| body["error"][name].as_str().unwrap_or_default().to_owned();
            match status {
                200 => Ok(body),
                404 => Err(NoAnswer::Missing),
                _ => Err(NoAnswer::Refused { code: word("code"), message: word("message") }),
            }
        })
    }
}

/// One request in a transaction of its own.
pub async fn serve_once(janua: &Janua, request: &Wire) -> db::Result<(u16, Value)> {
    db::transact!(janua.db, async |tx| {
        let mut book = Book::open(tx, janua).await?;
        answer(&mut book, request).await
    })
}

/// The answer to a request, or the one that was given to its key before.
async fn answer(book: &mut Book<'_>, request: &Wire) -> db::Result<(u16, Value)> {
    let Some(key) = request.key.as_deref().filter(|_| request.verb == Verb::Post) else {
        return serve(book, request).await;
    };
    let digest = crypto::hash(format!("{} {:?} {:?}", request.path, request.params, request.account).as_bytes());
    if let Some(reply) = book.reply(key).await? {
        return Ok(if reply.digest == digest {
            (u16::try_from(reply.status).unwrap_or(500), reply.body)
        } else {
            failed(400, "idempotency_error", "This key was used with other parameters.")
        });
    }
    let (status, body) = serve(book, request).await?;
    book.keep_reply(key, &digest, status, &body).await?;
    Ok((status, body))
}

async fn serve(book: &mut Book<'_>, request: &Wire) -> db::Result<(u16, Value)> {
    Ok(match serve::serve(book, request).await? {
        Ok(object) => (200, book::shown(&object)),
        Err(Refusal { status, code, message }) => failed(status, code, &message),
    })
}

fn failed(status: u16, code: &str, message: &str) -> (u16, Value) {
    (status, json!({ "error": { "type": "invalid_request_error", "code": code, "message": message } }))
}
