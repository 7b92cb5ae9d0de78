//! How things are shown: in SCIM's own media type, with a version, and as much of them as was asked for.
use axum::{
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use kernel::{
    fault::{Code, Result},
    http::Json,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    names::{self, Meaning, Named},
    schema::Resource,
};

pub const SCIM: &str = "application/scim+json";
pub const PRECONDITION_FAILED: Code =
    Code::new(412, "precondition_failed", "The resource has changed since the given version.");

/// A SCIM resource, as its schema describes it.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Shown {
    pub schemas: Vec<String>,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A page of results.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct List {
    schemas: [&'static str; 1],
    total_results: i64,
    start_index: i64,
    items_per_page: usize,
    #[serde(rename = "Resources")]
    #[schemars(with = "Vec<Shown>")]
    resources: Vec<Value>,
}

impl List {
    pub fn new(total_results: i64, start_index: i64, resources: Vec<Value>) -> Self {
        let schemas = ["urn:ietf:params:scim:api:messages:2.0:ListResponse"];
        Self { schemas, total_results, start_index, items_per_page: resources.len(), resources }
    }
}

pub fn scim(status: StatusCode, body: &impl Serialize) -> Response {
    let mut response = (status, Json(body)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(SCIM));
    response
}

/// One resource, with its version and its place.
pub fn resource(status: StatusCode, shown: &Value) -> Response {
    let mut response = scim(status, shown);
    let text = |value: &Value| HeaderValue::try_from(value.as_str().unwrap_or_default()).ok();
    let headers = [(header::ETAG, &shown["meta"]["version"]), (header::LOCATION, &shown["meta"]["location"])];
    for (name, value) in headers {
        response.headers_mut().extend(text(value).filter(|value| !value.is_empty()).map(|value| (name, value)));
    }
    response
}

pub fn etag(version: i64) -> String {
    format!("W/\"{version}\"")
}

fn names_version(sent: &HeaderValue, version: i64) -> bool {
    let Ok(text) = sent.to_str() else { return false };
    let strong = format!("\"{version}\"");
    text.split(',').map(str::trim).any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == strong)
}

/// Whether the caller has this version already.
pub fn is_known(headers: &HeaderMap, version: i64) -> bool {
    headers.get(header::IF_NONE_MATCH).is_some_and(|sent| names_version(sent, version))
}

/// Whoever says which version they change changes no other.
pub fn must_match(headers: &HeaderMap, version: i64) -> Result<()> {
    match headers.get(header::IF_MATCH) {
        Some(sent) if !names_version(sent, version) => Err(PRECONDITION_FAILED.into()),
        _ => Ok(()),
    }
}

/// Which attributes are wanted.
#[derive(Debug, Default, Clone)]
pub struct Shape {
    pub only: Vec<String>,
    pub without: Vec<String>,
}

impl Shape {
    pub fn of(only: Option<&str>, without: Option<&str>) -> Self {
        let list = |text: Option<&str>| -> Vec<String> {
            let names = text.unwrap_or_default().split(',').map(str::trim);
            names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        Self { only: list(only), without: list(without) }
    }

    /// Whether an attribute will be shown.
    pub fn wants(&self, name: &str) -> bool {
        let is_it = |asked: &String| {
            asked
                .rsplit(':')
                .next()
                .is_some_and(|last| last.split('.').next().is_some_and(|first| first.eq_ignore_ascii_case(name)))
        };
        if self.only.is_empty() {
            !self.without.iter().any(|a| a.eq_ignore_ascii_case(name))
        } else {
            self.only.iter().any(is_it)
        }
    }

    /// Takes away what was not asked for; what it is and its id stay.
    pub fn cut(&self, resource: &Resource, mut whole: Value) -> Value {
        if self.only.is_empty() {
            for name in &self.without {
                match names::find(resource, name) {
                    Some(Meaning::Attribute(named)) if !is_always(&named) => drop_one(&mut whole, &named),
                    Some(Meaning::Extension(schema)) => {
                        whole.as_object_mut().map(|fields| fields.remove(schema.id));
                    }
                    _ => {}
                }
            }
            return whole;
        }
        let mut kept = json!({ "schemas": whole["schemas"], "id": whole["id"] });
        for name in &self.only {
            match names::find(resource, name) {
                Some(Meaning::Attribute(named)) => keep_one(&mut kept, &whole, &named),
                Some(Meaning::Extension(schema)) if !whole[schema.id].is_null() => {
                    kept[schema.id] = whole[schema.id].clone();
                }
                _ => {}
            }
        }
        kept
    }
}

fn is_always(named: &Named) -> bool {
    named.extension.is_none() && matches!(named.attribute.name, "id" | "schemas")
}

fn drop_one(whole: &mut Value, named: &Named) {
    let home = match named.extension {
        Some(schema) => &mut whole[schema.id],
        None => whole,
    };
    let Value::Object(fields) = home else { return };
    let Some(part) = named.part else {
        fields.remove(named.attribute.name);
        return;
    };
    match fields.get_mut(named.attribute.name) {
        Some(Value::Object(one)) => _ = one.remove(part.name),
        Some(Value::Array(list)) => {
            list.iter_mut().filter_map(Value::as_object_mut).for_each(|one| _ = one.remove(part.name));
        }
        _ => {}
    }
}

fn keep_one(kept: &mut Value, whole: &Value, named: &Named) {
    let (home, place) = match named.extension {
        Some(schema) => (&whole[schema.id], &mut kept[schema.id]),
        None => (whole, kept),
    };
    let name = named.attribute.name;
    let value = &home[name];
    if value.is_null() {
        return;
    }
    let Some(part) = named.part else {
        place[name] = value.clone();
        return;
    };
    match value {
        Value::Array(list) => {
            let before = place[name].as_array().cloned().unwrap_or_default();
            let parts = list.iter().enumerate().map(|(number, one)| {
                let mut there = before.get(number).cloned().unwrap_or_else(|| json!({}));
                if !one[part.name].is_null() {
                    there[part.name] = one[part.name].clone();
                }
                there
            });
            place[name] = parts.collect();
        }
        one if !one[part.name].is_null() => place[name][part.name] = one[part.name].clone(),
        _ => {}
    }
}
