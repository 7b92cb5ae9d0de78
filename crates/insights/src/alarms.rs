//! The alarm about requests that fail.
use std::time::Duration;

use kernel::telemetry::{Alarm, Symptom};

use crate::observability::requests_since;

/// The minutes that count.
const WINDOW: Duration = Duration::from_mins(5);
/// A few failures among a few requests are no incident.
const LEAST_FAILURES: u64 = 10;
/// The share of answers with a status of 500 or more that is one, in percent.
const SHARE: u64 = 5;

/// The rate of errors, over all nodes.
pub const ERRORS: Alarm = Alarm {
    key: "errors",
    check: |janua| {
        Box::pin(async move {
            let counts = requests_since(&janua.db, janua.clock.now().minus(WINDOW)).await?;
            let (failed, all) = (counts.classes[3], counts.requests());
            let is_bad = failed >= LEAST_FAILURES && failed.saturating_mul(100) >= all.saturating_mul(SHARE);
            Ok(is_bad.then(|| Symptom {
                title: "Some requests fail",
                message: "Some requests are answered with an error. Most of them succeed when they are sent again.",
                finding: format!("Of {all} requests in five minutes {failed} failed with a status of 500 or more."),
                advice: "Observability names the routes, and the log has the cause of each failure.",
                is_major: true,
            }))
        })
    },
};
