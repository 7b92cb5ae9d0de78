//! `janua api`: any request.
use reqwest::{
    Method,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde_json::{Map, Value, json};

use crate::{
    failure::{Failure, Result},
    resources::input,
    server::{Extra, Server},
};

#[derive(clap::Args)]
pub struct Api {
    /// GET, POST, PUT, PATCH or DELETE
    method: String,
    /// A path such as /auth/me, with a query if it has one
    path: String,
    /// A field of the JSON body: NAME=TEXT, or NAME:=JSON; may be repeated
    #[arg(long = "field", short = 'f', value_name = "NAME=VALUE")]
    fields: Vec<String>,
    /// The whole body: JSON, @file, or - for the standard input
    #[arg(long, short = 'd', conflicts_with = "fields")]
    data: Option<String>,
    /// A header; may be repeated
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Print the status and the headers of the answer, too
    #[arg(long, short = 'i')]
    include: bool,
}

/// Any route of the API. The answer is printed as it came, refusals too.
pub async fn run(server: &Server, wishes: &Api) -> Result<()> {
    let method = Method::from_bytes(wishes.method.to_uppercase().as_bytes())
        .map_err(|_| Failure::usage(format!("{}: not a method", wishes.method)))?;
    if !wishes.path.starts_with('/') {
        return Err(Failure::usage(format!("{}: a path begins with /", wishes.path)));
    }
    let body = match (&wishes.data, wishes.fields.is_empty()) {
        (Some(data), _) => Some(input(data)?.into_bytes()),
        (None, true) => None,
        (None, false) => Some(fields(&wishes.fields)?.to_string().into_bytes()),
    };
    let mut headers = HeaderMap::new();
    for line in &wishes.headers {
        let wrong = || Failure::usage(format!("--header {line}: must be NAME: VALUE"));
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong())?;
        headers.append(name, HeaderValue::from_str(value.trim()).map_err(|_| wrong())?);
    }
    let extra = Extra { body, content_type: "application/json", headers };
    let answer = server.send(method, &wishes.path, &extra).await?;
    let status = answer.status();
    if wishes.include {
        server.out.line(&format!("HTTP {status}"));
        for (name, value) in answer.headers() {
            server.out.line(&format!("{name}: {}", value.to_str().unwrap_or_default()));
        }
        server.out.line("");
    }
    let text = answer.text().await.map_err(|_| Failure::failed("The connection was lost before the answer."))?;
    match serde_json::from_str::<Value>(&text) {
        Ok(value) => server.out.json(&value),
        Err(_) if text.is_empty() => {}
        Err(_) => server.out.line(text.trim_end_matches('\n')),
    }
    if status.is_client_error() || status.is_server_error() {
        let problem = serde_json::from_str(&text).unwrap_or_default();
        return Err(Failure::refused(status.as_u16(), problem));
    }
    Ok(())
}

fn fields(pairs: &[String]) -> Result<Value> {
    let mut object = Map::new();
    for pair in pairs {
        let wrong = || Failure::usage(format!("--field {pair}: must be NAME=TEXT or NAME:=JSON"));
        let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
        let (name, value) = match name.strip_suffix(':') {
            Some(name) => (name, serde_json::from_str(value).map_err(|_| wrong())?),
            None => (name, json!(value)),
        };
        object.insert(name.to_owned(), value);
    }
    Ok(Value::Object(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_text_or_json() {
        let given = ["name=Shop", "count:=2", "note=a=b"].map(str::to_owned);
        assert_eq!(fields(&given).unwrap(), json!({ "name": "Shop", "count": 2, "note": "a=b" }));
        assert!(fields(&["x:=oops".to_owned()]).is_err());
        assert!(fields(&["x".to_owned()]).is_err());
    }
}
