//! `janua usage`: meters of a plan, and usage by day.
use serde_json::{Value, json};

use crate::{
    failure::Result,
    server::{Server, encoded},
};

/// As many days as are shown at once.
const MOST: usize = 1000;

#[derive(clap::Args)]
pub struct Usage {
    /// Show what an app used by meter and day instead of the plan's meters
    #[arg(long)]
    meter: Option<String>,
    /// First day, such as 2026-01-31
    #[arg(long, value_name = "DATE", requires = "meter")]
    from: Option<String>,
    /// The day after the last
    #[arg(long, value_name = "DATE", requires = "meter")]
    to: Option<String>,
}

pub async fn run(server: &Server, wishes: &Usage) -> Result<()> {
    let org = server.org().await?;
    let Some(meter) = &wishes.meter else {
        let found = server.get(&format!("/usage/meters?orgId={org}")).await?;
        let rows = found["meters"].as_array().cloned().unwrap_or_default();
        server.out.answer(&found, |out| {
            out.record(&found, &[("Plan", "plan")]);
            out.line("");
            let columns = [
                ("Meter", "name"),
                ("Used", "used"),
                ("Limit", "limit|included"),
                ("Per", "period"),
                ("Resets", "resetsAt"),
            ];
            let rows: Vec<Value> = rows.into_iter().map(for_people).collect();
            out.table(&columns, &rows, "No meters.");
        });
        return Ok(());
    };
    let mut path = format!("/usage?orgId={org}&window=day&meter={}", encoded(meter));
    for (name, value) in [("from", &wishes.from), ("to", &wishes.to)] {
        if let Some(value) = value {
            path.extend(["&", name, "=", &encoded(value)]);
        }
    }
    let rows = server.list(&path, "usage", MOST).await?;
    server.out.answer(&json!({ "usage": rows }), |out| {
        let columns =
            [("Day", "from"), ("Meter", "meter"), ("Value", "value"), ("Unit", "unit"), ("Events", "events")];
        let days: Vec<Value> = rows.iter().cloned().map(by_day).collect();
        out.table(&columns, &days, "No usage in this time.");
        if rows.len() == MOST {
            out.note(&format!("The first {MOST} are shown; --from and --to narrow them."));
        }
    });
    Ok(())
}

/// A meter without a limit, or without a period, says so.
fn for_people(mut meter: Value) -> Value {
    if meter["limit"].is_null() && meter["included"].is_null() {
        meter["limit"] = json!("no limit");
    }
    if meter["period"] == "none" {
        meter["period"] = Value::Null;
    }
    meter
}

/// The window is a day of the calendar, the same in every time zone.
fn by_day(mut window: Value) -> Value {
    if let Some(day) = window["from"].as_str().and_then(|from| from.get(..10)).map(str::to_owned) {
        window["from"] = json!(day);
    }
    window
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_a_day_and_no_limit_is_said() {
        assert_eq!(by_day(json!({ "from": "2026-01-31T00:00:00.000Z" }))["from"], "2026-01-31");
        let free = for_people(json!({ "limit": null, "period": "none" }));
        assert_eq!((&free["limit"], &free["period"]), (&json!("no limit"), &Value::Null));
        let included = for_people(json!({ "included": 100, "period": "month" }));
        assert_eq!((&included["limit"], &included["period"]), (&Value::Null, &json!("month")));
        assert_eq!(for_people(json!({ "limit": 5 }))["limit"], 5);
    }
}
