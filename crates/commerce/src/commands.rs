//! What the command line does with payments.
use std::time::Duration;

use db::{Db, migrate};
use kernel::{Janua, config::Config};

use crate::{
    billing::{jobs, prices, webhook::StoredEvent},
    payments::{Driver, Kind, Payments},
    sandbox,
};

/// A plans file to start from.
pub const SAMPLE_PLANS: &str = include_str!("sample_plans.toml");

const NONE: &str = "no payment processor is configured; see the setting payments";

fn driver(janua: &Janua) -> Result<&Driver, String> {
    Payments::of(janua).ok_or_else(|| NONE.to_owned())
}

/// Creates the prices of the plans file at the processor, and compares those that are there.
pub async fn sync(janua: &Janua) -> Result<Vec<String>, String> {
    prices::sync(janua, driver(janua)?).await.map_err(|fault| fault.whole_sentence())
}

/// Pulls lost events and compares every subscription with the processor; a line for each difference.
pub async fn reconcile(janua: &Janua, is_dry: bool) -> Result<Vec<String>, String> {
    let driver = driver(janua)?;
    let mut lines = vec![];
    if !is_dry {
        let pulled = jobs::pull(janua, driver).await.map_err(|later| format!("{later:?}"))?;
        lines.push(format!("{pulled} events that were not received"));
    }
    lines.extend(jobs::reconcile(janua, driver, is_dry).await.map_err(|later| format!("{later:?}"))?);
    Ok(lines)
}

/// Moves the sandbox's clock ahead; answers what happened in words.
pub async fn advance_sandbox(janua: &Janua, by: Duration) -> Result<String, String> {
    if driver(janua)?.kind != Kind::Sandbox {
        return Err("the payment processor is not the sandbox".into());
    }
    let done = sandbox::advance(janua, by).await.map_err(|error| error.to_string())?;
    let now = sandbox::now(janua).await.map_err(|error| error.to_string())?;
    Ok(format!("{done} things happened; in the sandbox it is {now}. A running server delivers the events"))
}

/// How payments stand, for `janua doctor`: what is worth a thought, or fine.
pub async fn state(config: &Config, db: &Db) -> Result<Standing, String> {
    let payments = Payments::from_config(config);
    if let Some(wrong) = payments.wrong() {
        return Err(wrong.to_owned());
    }
    let Some(driver) = payments.driver() else { return Ok(Standing { is_odd: false, says: "off".into() }) };
    // Before the first start, or after an update, the table may be missing; what to do then is said about the schema.
    let last = if migrate::is_current(db).await {
        StoredEvent::last(db).await.map_err(|error| error.to_string())?
    } else {
        None
    };
    let last =
        last.map_or_else(|| "no event was received yet".to_owned(), |at| format!("the last event came at {at}"));
    let mode = if driver.livemode { "live" } else { "test: no money moves" };
    let is_odd = !driver.livemode && !config.has_loopback_url();
    Ok(Standing { is_odd, says: format!("{}, {mode}; {last}", driver.kind.name()) })
}

pub struct Standing {
    pub is_odd: bool,
    pub says: String,
}
