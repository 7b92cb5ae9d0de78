//! What waits to be done, for the people who run the platform.
use axum::extract::State;
use db::{Db, params};
use kernel::{
    App,
    fault::Result,
    http::{Json, Routes},
    jobs,
};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::enter::PlatformOwner;

pub fn routes() -> Routes {
    Routes::new("platform").get("/admin/queues", list_queues, "how much waits to be done")
}

/// Counting stops at 10,000: past that the number says enough.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Queues {
    jobs: i64,
    /// Jobs that were given up; `janua jobs dead` lists them.
    dead_jobs: i64,
    mails: i64,
    /// What the mail server said last about a mail that still waits.
    mail_error: Option<String>,
    /// Events that no webhook was given yet.
    events: i64,
    /// Attempts at webhooks, due now or later.
    deliveries: i64,
}

async fn count(db: &Db, sql: &'static str) -> db::Result<i64> {
    db.one::<(i64,)>(sql, params![]).await.map(|(n,)| n)
}

async fn list_queues(State(app): State<App>, _owner: PlatformOwner) -> Result<Json<Queues>> {
    let (jobs, dead_jobs) = jobs::figures(&app.db).await?;
    let mails = "SELECT CAST(COUNT(*) AS BIGINT) AS n FROM (SELECT 1 FROM mail WHERE died_at IS NULL LIMIT 10000) w";
    let mail_error = "SELECT last_error FROM mail WHERE died_at IS NULL AND last_error IS NOT NULL
                      ORDER BY next_at DESC, id LIMIT 1";
    let events = "SELECT CAST(COUNT(*) AS BIGINT) AS n
                  FROM (SELECT 1 FROM app_event WHERE waits_since IS NOT NULL LIMIT 10000) w";
    let deliveries = "SELECT CAST(COUNT(*) AS BIGINT) AS n
                      FROM (SELECT 1 FROM webhook_delivery WHERE ready_at IS NOT NULL LIMIT 10000) w";
    Ok(Json(Queues {
        jobs,
        dead_jobs,
        mails: count(&app.db, mails).await?,
        mail_error: app.db.opt::<(String,)>(mail_error, params![]).await?.map(|(said,)| said),
        events: count(&app.db, events).await?,
        deliveries: count(&app.db, deliveries).await?,
    }))
}
