//! Metered usage: events that apps track, and what they add up to.
mod access;
mod check;
mod count;
mod meters;
mod model;
mod pace;
mod read;
mod track;
mod windows;

use std::time::Duration;

use kernel::{fault::Code, feature::Feature, http::Routes, jobs::Chore, telemetry::Traced};
use tenancy::gone::Gone;

pub use self::access::Accept;
pub use self::model::{QUARTER, event_costs, forget_old_ids, total_of, totals_of_all};
use self::pace::Pace;
pub use tenancy::enter::SECRET_KEY_REQUIRED;

pub const UNKNOWN_METER: Code = Code::new(400, "unknown_meter", "There is no meter of this name.");
pub const ORG_REQUIRED: Code =
    Code::new(400, "org_required", "The session acts for no organization. Name one with orgId or appId.");

tenancy::events! {
    /// A usage event was corrected.
    UsageCorrected { meter: String, event_id: String, from: i64, to: i64 } = "USAGE_CORRECTED";
}

/// How long single events are kept; totals stay.
const EVENTS_KEPT: Duration = Duration::from_hours(24 * 400);

const CHORES: &[Chore] = &[
    Chore::sweep(
        "usage_event",
        "DELETE FROM usage_event WHERE id IN
             (SELECT id FROM usage_event WHERE received_at < $1 ORDER BY received_at LIMIT $2)",
        EVENTS_KEPT,
    ),
    Chore::run("usage_seen", |janua| Box::pin(async move { Ok(forget_old_ids(&janua).await?) })),
];

const GONE: &[Gone] = &[
    Gone::ManyOfApp("DELETE FROM usage_event WHERE id IN (SELECT id FROM usage_event WHERE app_id = $1 LIMIT $2)"),
    Gone::ManyOfApp(
        "DELETE FROM usage_unique WHERE (app_id, environment, meter, span, property, customer, choice, slot, digest) IN
             (SELECT app_id, environment, meter, span, property, customer, choice, slot, digest FROM usage_unique
              WHERE app_id = $1 LIMIT $2)",
    ),
    Gone::ManyOfApp(
        "DELETE FROM usage_total WHERE (app_id, environment, meter, span, property, customer, choice, slot) IN
             (SELECT app_id, environment, meter, span, property, customer, choice, slot FROM usage_total
              WHERE app_id = $1 LIMIT $2)",
    ),
];

/// The usage that a request counted.
const TRACED: Traced = Traced(|janua, request| Box::pin(async move { model::of_request(&janua.db, &request).await }));

pub fn feature() -> Feature {
    let routes = Routes::new("usage").and(track::routes()).and(read::routes()).and(meters::routes());
    Feature::new(routes).own(Pace::default()).declares(EVENTS).declares(CHORES).declares(GONE).declares(&[TRACED])
}
