//! Webhooks: events of an app are sent to the endpoint URLs that its developers registered, signed, and retried on
//! failure.
//!
//! An event is written by the transaction that causes it (`tenancy::events::outbox`). `fan_out` creates a delivery for every
//! subscribed webhook. `dispatch` claims the webhooks that have deliveries, each under a lease, and runs a `lane` for
//! each, so that a slow endpoint delays no other. A lane takes deliveries from its `queue`, makes an `attempt` for
//! each, and stores the results.
mod again;
mod api;
mod attempt;
mod changes;
mod dashboard;
mod deliveries;
mod dispatch;
mod events;
mod fan_out;
mod jobs;
mod lane;
mod listen;
mod mails;
mod model;
mod names;
mod payload;
mod queue;
mod retry;
mod rules;
mod settings;
mod sign;

use std::{sync::Arc, time::Duration};

use kernel::{
    config::Config,
    feature::Feature,
    http::Routes,
    telemetry::{Alarm, Attempts, Figure, Measure, Symptom, Traced},
};
use tenancy::{
    apps::Application,
    events::outbox,
    gone::Gone,
    quotas::{self, Meter, Period},
};

use self::{changes::Changes, listen::Streams};
pub(crate) use deliveries::{DeliveryId, queued};
pub use dispatch::deliver_due;
pub use settings::Settings;

pub fn feature(config: &Config) -> Feature {
    let routes = Routes::new("webhooks")
        .and(api::routes())
        .and(again::routes())
        .and(dashboard::routes())
        .and(listen::routes());
    Feature::new(payload::describe(routes))
        .own(Pace { attempt: Duration::from_secs(10) })
        .own(Arc::new(Changes::default()))
        .own(Arc::new(Streams::default()))
        .jobs(jobs::jobs())
        .start(|janua| {
            Box::pin(async move {
                let changes = janua.own::<Arc<Changes>>().clone();
                janua.db.on_notice(move |notice| changes.hear(notice));
                Ok(())
            })
        })
        .declares(events::EVENTS)
        .declares(mails::MAILS)
        .declares(&[MEASURE])
        .declares(&[ATTEMPTS])
        .declares(&[TRACED])
        .declares(&[LATE])
        .declares(&[WEBHOOKS])
        .declares(&[GONE])
        .declares(&[config.of::<Settings>().permit()])
        .release(|janua| {
            Box::pin(async move { model::release_all(&janua.db).await.map_err(|error| error.to_string()) })
        })
        .task("webhooks.dispatch", |janua| Box::pin(dispatch::run(janua)))
}

/// The webhooks of an organization's apps.
const WEBHOOKS: Meter = Meter::platform("webhooks", "webhooks", Period::Gauge);

/// The webhooks of an app that is deleted are counted no more.
const GONE: Gone = Gone::App(|tx, _, id| {
    Box::pin(async move {
        let Some(app) = Application::find(&mut *tx, id).await? else { return Ok(()) };
        let webhooks = model::Webhook::count_endpoints(tx, id).await?;
        quotas::give_back(tx, app.org_id, &WEBHOOKS, webhooks).await
    })
});

/// The figures of the queue for `/metrics`, counted up to 10,000.
const MEASURE: Measure = Measure(|janua| {
    Box::pin(async move {
        let (deliveries, due_since) = queued(&janua.db).await?;
        let age = due_since.map_or(0.0, |at| janua.clock.now().since(at).as_secs_f64());
        let events = outbox::count_waiting(&janua.db).await?;
        Ok(vec![
            Figure::count(
                "webhook_deliveries_queued",
                "Deliveries that will be attempted, now or later.",
                deliveries,
            ),
            Figure::new("webhook_oldest_due_seconds", "How long the oldest due delivery has been due.", age),
            Figure::count("webhook_events_waiting", "Events that no delivery was created for yet.", events),
        ])
    })
});

/// The deliveries of a request.
const TRACED: Traced =
    Traced(|janua, request| Box::pin(async move { deliveries::of_request(&janua.db, &request).await }));

/// Deliveries are late when their turn does not come, not when a receiver fails: that only moves the next turn.
const LATE: Alarm = Alarm {
    key: "webhooks",
    check: |janua| {
        Box::pin(async move {
            let now = janua.clock.now();
            // Of those that no node has in hand.
            let next = model::Held::next(&janua.db, now).await?;
            let Some(late) = next.map(|at| now.since(at)).filter(|late| *late > LATE_AFTER) else { return Ok(None) };
            let (waiting, _) = queued(&janua.db).await?;
            Ok(Some(Symptom {
                title: "Webhooks are delayed",
                message: "Webhook deliveries take longer than usual. Nothing is lost.",
                finding: format!(
                    "The oldest delivery has been due for {} minutes; {waiting} deliveries wait.",
                    late.as_secs() / 60
                ),
                advice: "See whether the nodes are up and what their logs say about deliveries.",
                is_major: false,
            }))
        })
    },
};
const LATE_AFTER: Duration = Duration::from_mins(10);

/// Attempts to deliver: `retried` is tried again, `failed` is given up.
const ATTEMPTS: Attempts = Attempts {
    name: "webhook_attempts",
    help: "Attempts to deliver to a webhook, by outcome",
    outcomes: &["delivered", "retried", "failed"],
};

/// How long one attempt may take; tests have less patience.
pub struct Pace {
    pub attempt: Duration,
}

#[cfg(test)]
mod tests;
