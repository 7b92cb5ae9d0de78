//! What waits to be done, for the people who run the platform.
use axum::extract::State;
use kernel::{
    Janua,
    fault::Result,
    http::{Json, Routes},
    jobs,
};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{enter::PlatformOwner, events::outbox, messages::mail};

use crate::webhooks;

pub fn routes() -> Routes {
    Routes::new("platform").get("/admin/queues", list_queues, "queue sizes")
}

/// Queue sizes, counted up to 10,000.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Queues {
    jobs: i64,
    /// Failed jobs; `janua jobs dead` lists them.
    dead_jobs: i64,
    mails: i64,
    /// The last error of the mail server about a queued mail.
    mail_error: Option<String>,
    /// Events without deliveries yet.
    events: i64,
    /// Attempts at webhooks, due now or later.
    deliveries: i64,
}

async fn list_queues(State(janua): State<Janua>, _owner: PlatformOwner) -> Result<Json<Queues>> {
    let (jobs, dead_jobs) = jobs::figures(&janua.db).await?;
    let (mails, mail_error) = mail::waiting(&janua.db).await?;
    let (deliveries, _) = webhooks::queued(&janua.db).await?;
    Ok(Json(Queues {
        jobs,
        dead_jobs,
        mails,
        mail_error,
        events: outbox::count_waiting(&janua.db).await?,
        deliveries,
    }))
}
