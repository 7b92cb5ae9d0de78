//! `janua trace`: what one request led to.
use serde_json::{Value, json};

use crate::{
    failure::Result,
    output::text_at,
    server::{Server, encoded},
};

#[derive(clap::Args)]
pub struct Trace {
    /// The header X-Request-Id of an answer, or the ID on an error page
    request_id: String,
}

pub async fn run(server: &Server, wishes: &Trace) -> Result<()> {
    let trace = server.get(&format!("/observability/traces/{}", encoded(&wishes.request_id))).await?;
    let steps: Vec<Value> = trace["steps"].as_array().into_iter().flatten().map(row).collect();
    server.out.answer(&trace, |out| {
        let fields = [("Request", "requestId"), ("Trace", "traceId"), ("Milliseconds", "durationMs")];
        out.record(&trace, &fields);
        out.line("");
        let columns = [
            ("After", "after"),
            ("Step", "kind"),
            ("Name", "name"),
            ("State", "state"),
            ("Status", "statusCode"),
            ("Took", "took"),
            ("Details", "details"),
        ];
        out.table(&columns, &steps, "No steps.");
    });
    Ok(())
}

/// A step with lengths of time for people.
fn row(step: &Value) -> Value {
    let length = |name: &str| step[name].as_i64().map(|count| format!("{count} ms"));
    let details = step["details"].as_object().into_iter().flatten();
    let details: Vec<String> =
        details.map(|(name, value)| format!("{name}={}", text_at(&json!({ "v": value }), "v"))).collect();
    let mut row = step.clone();
    row["after"] = json!(length("offsetMs"));
    row["took"] = json!(length("tookMs"));
    row["details"] = json!(details.join(" "));
    row
}
