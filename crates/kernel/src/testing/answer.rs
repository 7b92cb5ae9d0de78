//! What came back, and whether the description allows it.
use axum::{
    http::{HeaderMap, Method, StatusCode},
    response::Response,
};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::Value;

use crate::Janua;

const SCIM_ERROR: &str = "urn:ietf:params:scim:api:messages:2.0:Error";

/// What the description says of each path, and what paths have in common.
pub(super) struct Described {
    paths: matchit::Router<Value>,
    components: Value,
}

impl Described {
    pub(super) fn of(janua: &Janua) -> Self {
        let document = janua.description.get().expect("the description is there").value();
        let mut paths = matchit::Router::new();
        for (template, item) in document["paths"].as_object().into_iter().flatten() {
            paths.insert(template, item.clone()).unwrap();
        }
        Self { paths, components: document["components"].clone() }
    }

    /// What a reference leads to, or the value itself.
    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str().and_then(|path| path.strip_prefix("#/components")) {
            Some(path) => self.components.pointer(path).expect("a reference leads somewhere"),
            None => value,
        }
    }

    /// The words that a refusal of this status can have in a member, by the schema of its body.
    fn words<'a>(&'a self, answer: &'a Value, kind: &str, member: &str) -> Vec<&'a str> {
        let schema = self.resolve(&self.resolve(answer)["content"][kind]["schema"]);
        let words = schema["allOf"][1]["properties"][member]["enum"].as_array().into_iter().flatten();
        words.filter_map(Value::as_str).collect()
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub bytes: Bytes,
    pub text: String,
    /// Null when the body is not JSON.
    pub body: Value,
}

impl Answer {
    pub(super) async fn read(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_str(&text).unwrap_or_default();
        Self { status: parts.status.as_u16(), headers: parts.headers, bytes, text, body }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The status and code of a refusal; OAuth has it under another name.
    pub fn refusal(&self) -> (u16, &str) {
        let code = self.body["code"].as_str().or_else(|| self.body["error"].as_str());
        (self.status, code.unwrap_or_default())
    }

    /// The fields a refusal names.
    pub fn wrong_fields(&self) -> Vec<&str> {
        self.body["errors"].as_array().into_iter().flatten().filter_map(|error| error["field"].as_str()).collect()
    }

    /// Fails when the route may not answer this, going by its description.
    pub(super) fn must_be_described(&self, described: &Described, method: &Method, path: &str) {
        let method = if method == Method::HEAD { "get".to_owned() } else { method.as_str().to_lowercase() };
        let operation = described.paths.at(path).ok().and_then(|found| found.value.get(&method));
        let from_the_pipeline = ["not_found", "method_not_allowed", "cross_site", "rate_limited", "overloaded"];
        let (status, code) = self.refusal();
        let code_is_ours = from_the_pipeline.contains(&code) || code.starts_with("idempotency_");
        // SCIM has no place for our codes.
        let code_is_ours = code_is_ours || (self.body["schemas"][0] == SCIM_ERROR && matches!(status, 404 | 405));
        let Some(operation) = operation else {
            // To a browser the pipeline says so on a page.
            let is_page = matches!(status, 404 | 405) && self.header("content-type").starts_with("text/html");
            assert!(
                code_is_ours || is_page || status == 204,
                "{method} {path} is not described, but answered {status} {code}"
            );
            return;
        };
        let answers = &operation["responses"][status.to_string()];
        let kind = self.header("content-type");
        let is_described = match kind {
            "application/problem+json" => described.words(answers, kind, "code").contains(&code),
            "application/json" if status >= 400 && self.body["error_description"].is_string() => {
                described.words(answers, kind, "error").contains(&code)
            }
            _ => answers.is_object() || status == StatusCode::NOT_MODIFIED.as_u16(),
        };
        assert!(code_is_ours || is_described, "{method} {path} does not say {status} {code}");
    }
}
