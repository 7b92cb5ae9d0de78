//! `janua analytics`: users and events of an app, beside the days before.
use serde_json::{Value, json};

use crate::{
    failure::Result,
    server::{Server, encoded},
};

#[derive(clap::Args)]
pub struct Analytics {
    /// First day, such as 2026-01-31 [default: 29 days before the last]
    #[arg(long, value_name = "DATE")]
    from: Option<String>,
    /// Last day [default: today]
    #[arg(long, value_name = "DATE")]
    to: Option<String>,
}

/// The figures that are shown: their names, and where they are in the answer.
const FIGURES: &[(&str, &str)] = &[
    ("Active users on the last day", "/activeUsers/daily"),
    ("Active users in 7 days", "/activeUsers/weekly"),
    ("Active users in 30 days", "/activeUsers/monthly"),
    ("New users", "/newUsers"),
    ("Returning users", "/returningUsers"),
    ("Sign-ups", "/events/signUps"),
    ("Sign-ins", "/events/signIns"),
    ("Failed sign-ins", "/events/signInFailures"),
    ("Emails confirmed", "/events/emailVerifications"),
    ("Second factors added", "/events/mfaEnabled"),
    ("Passkeys added", "/events/passkeysAdded"),
    ("Password resets", "/events/passwordResets"),
    ("All events", "/events/total"),
];

pub async fn run(server: &Server, wishes: &Analytics) -> Result<()> {
    let mut path = format!("/analytics/app/{}/overview", server.app().await?);
    let given = [("from", &wishes.from), ("to", &wishes.to)];
    let given: Vec<String> =
        given.iter().filter_map(|(name, value)| Some(format!("{name}={}", encoded(value.as_ref()?)))).collect();
    if !given.is_empty() {
        path.extend(["?", &given.join("&")]);
    }
    let found = server.get(&path).await?;
    server.out.answer(&found, |out| {
        let fields = [("From", "from"), ("To", "to"), ("Time zone", "timeZone"), ("Users", "users")];
        out.record(&found, &fields);
        out.line("");
        let rows: Vec<Value> = FIGURES.iter().map(|(name, at)| figure(&found, name, at)).collect();
        out.table(&[("Figure", "name"), ("Now", "now"), ("Before", "before"), ("Change", "change")], &rows, "");
    });
    Ok(())
}

fn figure(found: &Value, name: &str, at: &str) -> Value {
    let number = |of: &Value| of.pointer(at).and_then(Value::as_i64).unwrap_or(0);
    let (now, before) = (number(found), number(&found["previous"]));
    // Without a figure before there is no share of it.
    let change = if before == 0 { String::new() } else { format!("{:+} %", (now - before) * 100 / before) };
    json!({ "name": name, "now": now, "before": before, "change": change })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_stands_beside_the_one_before() {
        let found = json!({ "newUsers": 3, "previous": { "newUsers": 4 } });
        let expected = json!({ "name": "New", "now": 3, "before": 4, "change": "-25 %" });
        assert_eq!(figure(&found, "New", "/newUsers"), expected);
        assert_eq!(figure(&found, "All", "/events/total")["change"], "");
    }
}
