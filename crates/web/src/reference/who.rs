//! Who may call an operation, in words and in headers.
use serde_json::Value;

use super::{schema::list, text};

/// The ways in, each as the schemes it takes.
fn ways(operation: &Value) -> Vec<Vec<&str>> {
    let ways = list(operation, "security").iter();
    ways.map(|way| way.as_object().into_iter().flatten().map(|(scheme, _)| scheme.as_str()).collect()).collect()
}

/// Who may call, in words.
pub fn who(operation: &Value) -> String {
    let mut words: Vec<String> = vec![];
    let ways = ways(operation);
    for way in &ways {
        let presented = way.iter().filter_map(|scheme| match *scheme {
            "bearer" | "cookie" => Some("a signed-in user"),
            "appKey" => Some("an app key"),
            "refreshCookie" => Some("a refresh cookie"),
            "clientBasic" => Some("a client ID and a secret key"),
            "scimToken" => Some("a SCIM token"),
            "metricsToken" => Some("the metrics token"),
            _ => None,
        });
        let together = presented.collect::<Vec<_>>().join(" and ");
        let word = match together.as_str() {
            "" if ways.iter().any(|way| way.contains(&"metricsToken")) => "a request from this machine".to_owned(),
            "" => "public".to_owned(),
            _ => together,
        };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    let words = if words.is_empty() { "public".to_owned() } else { words.join(", or ") };
    let role = match text(operation, "x-role") {
        "" => String::new(),
        "platform-owner" => " Role: owner of the platform.".to_owned(),
        "member" => " Role: member of the organization.".to_owned(),
        role => format!(" Role: {role} of the organization or higher."),
    };
    let mut letters = words.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let app = match operation.get("x-app-session") {
        Some(Value::Bool(false)) => " A session that belongs to an app is refused.",
        _ => "",
    };
    format!("{first}{}.{role}{app}", letters.as_str())
}

/// What a program says about itself in headers, by the first way in.
pub fn headers(operation: &Value) -> Vec<(&'static str, &'static str)> {
    let ways = ways(operation);
    let Some(way) = ways.iter().find(|way| !way.is_empty()) else { return vec![] };
    let headers = way.iter().filter_map(|scheme| match *scheme {
        "bearer" => Some(("Authorization", "Bearer $TOKEN")),
        "scimToken" => Some(("Authorization", "Bearer $SCIM_TOKEN")),
        "metricsToken" => Some(("Authorization", "Bearer $METRICS_TOKEN")),
        "appKey" => Some(("X-Service-App-Key", "$APP_KEY")),
        _ => None,
    });
    headers.collect()
}
