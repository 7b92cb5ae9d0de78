//! How an operation is called: on the command line, and by the form that tries it.
use serde_json::{Value, json};

use super::{
    operation::{Body, Reader},
    schema::list,
    text,
    who::headers,
};

impl<'a> Reader<'a> {
    pub(super) fn curl(&self, method: &str, path: &str, operation: &'a Value, body: Option<&Body>) -> String {
        let base = text(&self.document["servers"][0], "url");
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        for parameter in list(operation, "parameters") {
            if parameter["in"] == "query" && parameter["required"] == true {
                let name = text(parameter, "name");
                query.append_pair(name, &plain(&self.schemas.example_of(name, &parameter["schema"])));
            }
        }
        let (query, path) = (query.finish(), placeholders(path));
        let address = if query.is_empty() { format!("{base}{path}") } else { format!("{base}{path}?{query}") };
        let mut lines = vec![format!("curl -X {} {}", method.to_uppercase(), quoted(&address))];
        lines.extend(headers(operation).into_iter().map(|(name, value)| format!("-H \"{name}: {value}\"")));
        if let Some(body) = body {
            lines.push(format!("-H {}", quoted(&format!("Content-Type: {}", body.kind))));
            lines.push(match body.kind.as_str() {
                "application/octet-stream" => "--data-binary @file".to_owned(),
                _ => format!("-d {}", quoted(&body.example)),
            });
        }
        lines.join(" \\\n  ")
    }

    /// What the script makes a form of.
    pub(super) fn attempt(&self, method: &str, path: &str, operation: &'a Value, body: Option<&Body>) -> Value {
        let fields = list(operation, "parameters").iter().map(|parameter| {
            let name = text(parameter, "name");
            // An id that is made up leads nowhere; a value that may be left out is left out.
            let is_known = parameter["required"] == true && parameter["in"] != "path";
            let example = self.schemas.example_of(name, &parameter["schema"]);
            json!({
                "name": name, "in": parameter["in"], "required": parameter["required"] == true,
                "value": if is_known { plain(&example) } else { String::new() },
            })
        });
        // Whoever is signed in here is known by their cookies.
        let by_header = headers(operation).into_iter().filter(|(_, value)| *value != "Bearer $TOKEN");
        let by_header = by_header.map(|(name, value)| {
            let (start, _) = value.split_once('$').unwrap_or_default();
            json!({ "name": name, "in": "header", "required": false, "value": "", "hint": format!("{start}…") })
        });
        json!({
            "method": method.to_uppercase(),
            "path": path,
            "fields": fields.chain(by_header).collect::<Vec<_>>(),
            "body": body.filter(|body| body.kind != "application/octet-stream")
                .map(|body| json!({ "type": body.kind, "text": body.example })),
        })
    }
}

/// As it stands in an address or a form.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.first().map(plain).unwrap_or_default(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// `/apps/APP_ID` for `/apps/{appId}`, because programs for the command line read braces in their own way.
fn placeholders(path: &str) -> String {
    let mut out = String::new();
    let mut is_name = false;
    for c in path.chars() {
        match c {
            '{' | '}' => is_name = c == '{',
            c if is_name && c.is_uppercase() => out.extend(['_', c]),
            c if is_name => out.extend(c.to_uppercase()),
            c => out.push(c),
        }
    }
    out
}

/// For a shell, which takes it to the letter.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
