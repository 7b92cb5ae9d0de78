//! `janua usage`: meters of a plan, and usage by day.
use crate::{
    failure::Result,
    resources::{Most, list},
    server::{Server, encoded},
};

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
    let columns = [("From", "from"), ("Meter", "meter"), ("Value", "value"), ("Unit", "unit"), ("Events", "events")];
    list(server, &path, "usage", &Most { limit: 1000 }, &columns, "No usage in this time.").await
}
