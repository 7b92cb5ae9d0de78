//! Extractors for input. A body or a query is checked against the schema that the description shows, so the
//! documented rules are the enforced ones. All wrong fields are reported together.
use std::{
    any::TypeId,
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock, PoisonError, RwLock},
};

use aide::{
    OperationInput, OperationOutput,
    generate::GenContext,
    openapi::{MediaType, Operation, RequestBody, Response as ApiResponse, SchemaObject},
    operation::{ParamLocation, add_parameters, parameters_from_schema, set_body},
};
use axum::{
    body::{Body, HttpBody as _},
    extract::{FromRequest, FromRequestParts, RawPathParams, Request},
    http::{HeaderMap, HeaderValue, header, request::Parts},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::{
    Serialize,
    de::{DeserializeOwned, value::MapDeserializer},
};
use serde_json::{Value, map::Entry};

use super::{
    describe::may_answer,
    schema::{Checker, Finding},
};
use crate::{
    Janua,
    fault::{Code, Fault, INTERNAL, INVALID, MALFORMED, NOT_FOUND, NOT_JSON, Result, TOO_LARGE},
};

pub(super) const SLOW_BODY: Code = Code::new(408, "slow_body", "The request body did not arrive in time.");
const FORM: &str = "application/x-www-form-urlencoded";
const NOT_FORM: Code = Code::new(415, "unsupported_media_type", "The request body must be a form.");
const NOTHING: [(&str, &str); 0] = [];

/// A JSON body, of a request or a response.
pub struct Json<T>(pub T);

/// The parameters of the path. A malformed one is answered with 404, like one that does not exist.
pub struct Path<T>(pub T);

/// The parameters of the query.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned + JsonSchema + 'static> FromRequest<Janua> for Json<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &Janua) -> Result<Self> {
        let (parts, body) = request.into_parts();
        if !is_json(&parts.headers) {
            return Err(NOT_JSON.into());
        }
        let bytes = read(body).await?;
        let value = serde_json::from_slice(&bytes).map_err(|e| MALFORMED.because(format!("Not JSON: {e}.")))?;
        check(value).map(Self)
    }
}

/// The fields of a page's form.
pub struct Form<T>(pub T);

impl<T: DeserializeOwned + JsonSchema + 'static> FromRequest<Janua> for Form<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &Janua) -> Result<Self> {
        let (parts, body) = request.into_parts();
        if !is_form(&parts.headers) {
            return Err(NOT_FORM.into());
        }
        typed::<T>(pairs(&read(body).await?)?).map(Self)
    }
}

impl<T: JsonSchema> OperationInput for Form<T> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        let content = [(FORM.to_owned(), media::<T>(ctx))].into_iter().collect();
        set_body(ctx, operation, RequestBody { required: true, content, ..Default::default() });
        may_answer(operation, &[INVALID, MALFORMED, NOT_FORM, TOO_LARGE, SLOW_BODY]);
    }
}

/// The fields of a form in their order, unchecked. For handlers that check them by rules of their own.
pub struct FormPairs(pub Vec<(String, String)>);

impl FromRequest<Janua> for FormPairs {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &Janua) -> Result<Self> {
        let (parts, body) = request.into_parts();
        if !is_form(&parts.headers) {
            return Err(NOT_FORM.into());
        }
        pairs(&read(body).await?).map(Self)
    }
}

impl OperationInput for FormPairs {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Form::<BTreeMap<String, String>>::operation_input(ctx, operation);
    }
}

/// More fields than any form has.
const MOST_FIELDS: usize = 500;
/// More values than anything has that fits into a body; each of them could be wrong in its own way.
const MOST_VALUES: usize = 100_000;
/// How many wrong fields are reported at most.
const MOST_NAMED: usize = 100;

fn pairs(form: &[u8]) -> Result<Vec<(String, String)>> {
    if form.split(|byte| *byte == b'&').nth(MOST_FIELDS).is_some() {
        return Err(MALFORMED.because("Too many fields."));
    }
    serde_urlencoded::from_bytes(form).map_err(|_| MALFORMED.because("Not a form."))
}

/// A form or a JSON body. OAuth clients send forms, other callers JSON.
pub struct FormOrJson<T>(pub T);

impl<T: DeserializeOwned + JsonSchema + 'static> FromRequest<Janua> for FormOrJson<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, janua: &Janua) -> Result<Self> {
        // A missing body counts as an empty one.
        if request.body().is_end_stream() && !request.headers().contains_key(header::CONTENT_TYPE) {
            return typed::<T>(vec![]).map(Self);
        }
        if is_form(request.headers()) {
            let mut fields = pairs(&read(request.into_body()).await?)?;
            // A parameter without a value counts as omitted (RFC 6749, 3.1 and 3.2).
            fields.retain(|(_, value)| !value.is_empty());
            return typed::<T>(fields).map(Self);
        }
        Json::from_request(request, janua).await.map(|Json(body)| Self(body))
    }
}

impl<T: JsonSchema> OperationInput for FormOrJson<T> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        let kinds = [FORM, "application/json"];
        let content = kinds.into_iter().map(|kind| (kind.to_owned(), media::<T>(ctx))).collect();
        let whole = SchemaGenerator::new(dialect()).into_root_schema_for::<T>();
        let required = whole.get("required").and_then(Value::as_array).is_some_and(|fields| !fields.is_empty());
        set_body(ctx, operation, RequestBody { required, content, ..Default::default() });
        may_answer(operation, &[INVALID, MALFORMED, NOT_JSON, TOO_LARGE, SLOW_BODY]);
    }
}

/// The bytes of a body. The handler checks what they are.
pub struct Raw(pub Bytes);

impl FromRequest<Janua> for Raw {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &Janua) -> Result<Self> {
        read(request.into_body()).await.map(Self)
    }
}

impl OperationInput for Raw {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        let json_schema = schemars::json_schema!({ "type": "string", "format": "binary" });
        let schema = Some(SchemaObject { json_schema, example: None, external_docs: None });
        let media = MediaType { schema, ..Default::default() };
        let content = [("application/octet-stream".to_owned(), media)].into_iter().collect();
        set_body(ctx, operation, RequestBody { required: true, content, ..Default::default() });
        may_answer(operation, &[MALFORMED, TOO_LARGE, SLOW_BODY]);
    }
}

/// A JSON body that may be missing.
pub struct MaybeJson<T>(pub Option<T>);

impl<T: DeserializeOwned + JsonSchema + 'static> FromRequest<Janua> for MaybeJson<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, janua: &Janua) -> Result<Self> {
        if request.body().is_end_stream() {
            return Ok(Self(None));
        }
        let Json(value) = Json::from_request(request, janua).await?;
        Ok(Self(Some(value)))
    }
}

impl<T: JsonSchema> OperationInput for MaybeJson<T> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        let content = [("application/json".to_owned(), media::<T>(ctx))].into_iter().collect();
        set_body(ctx, operation, RequestBody { required: false, content, ..Default::default() });
        may_answer(operation, &[INVALID, MALFORMED, NOT_JSON, TOO_LARGE, SLOW_BODY]);
    }
}

impl<T: DeserializeOwned + JsonSchema + 'static> FromRequestParts<Janua> for Query<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &Janua) -> Result<Self> {
        let sent = parts.uri.query().unwrap_or_default();
        // Nothing sent and nothing asked for is the common case, and needs no schema.
        if sent.is_empty()
            && let Ok(nothing) =
                T::deserialize(MapDeserializer::<_, serde::de::value::Error>::new(NOTHING.into_iter()))
        {
            return Ok(Self(nothing));
        }
        let pairs: Vec<(String, String)> =
            serde_urlencoded::from_str(sent).map_err(|_| INVALID.because("The query is not well-formed."))?;
        typed::<T>(pairs).map(Self)
    }
}

/// Names and texts as the type its schema describes.
fn typed<T: DeserializeOwned + JsonSchema + 'static>(pairs: Vec<(String, String)>) -> Result<T> {
    let schema = schema::<T>()?;
    let mut fields = serde_json::Map::new();
    for (name, text) in pairs {
        let value = schema.typed(&name, text);
        match fields.entry(name) {
            Entry::Vacant(place) if schema.is(place.key(), "array") => {
                _ = place.insert(Value::Array(vec![value]));
            }
            Entry::Vacant(place) => _ = place.insert(value),
            Entry::Occupied(mut place) => match place.get_mut() {
                Value::Array(list) => list.push(value),
                _ => return Err(INVALID.at(place.key().clone(), "repeated", "must be given once")),
            },
        }
    }
    check(Value::Object(fields))
}

impl<T: DeserializeOwned + Send> FromRequestParts<Janua> for Path<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let raw = RawPathParams::from_request_parts(parts, janua).await.map_err(|_| NOT_FOUND)?;
        let fields = raw.iter().map(|(name, text)| (name.to_owned(), Value::from(text))).collect();
        serde_json::from_value(Value::Object(fields)).map(Self).map_err(|_| NOT_FOUND.into())
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(bytes) => {
                let mut response = Response::new(Body::from(bytes));
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(header::CONTENT_TYPE, json);
                response
            }
            Err(error) => INTERNAL.caused_by(error).into_response(),
        }
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    sent.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(FORM)
}

fn is_json(headers: &HeaderMap) -> bool {
    let sent = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = sent.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// The whole body, as the pipeline has read it within its limits of length and time.
async fn read(body: Body) -> Result<Bytes> {
    body.collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .map_err(|_| MALFORMED.because("The body ended early."))
}

/// The compiled schema of a type.
struct Ready {
    document: Value,
    checker: Checker,
}

impl Ready {
    fn is(&self, name: &str, kind: &str) -> bool {
        let wanted = &self.document["properties"][name]["type"];
        wanted == kind || wanted.as_array().is_some_and(|kinds| kinds.contains(&kind.into()))
    }

    /// A query parameter as the type its schema asks for; what does not fit stays text and is refused as such.
    fn typed(&self, name: &str, text: String) -> Value {
        let read = if self.is(name, "integer") {
            text.parse::<i64>().ok().map(Value::from)
        } else if self.is(name, "boolean") {
            text.parse::<bool>().ok().map(Value::from)
        } else {
            None
        };
        read.unwrap_or_else(|| Value::from(text))
    }
}

/// The dialect of OpenAPI 3.1, for what is published and for what is enforced alike.
pub(super) fn dialect() -> SchemaSettings {
    SchemaSettings::draft2020_12()
}

fn schema<T: JsonSchema + 'static>() -> Result<Arc<Ready>> {
    static KNOWN: LazyLock<RwLock<HashMap<TypeId, Arc<Ready>>>> = LazyLock::new(RwLock::default);
    if let Some(ready) = KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(&TypeId::of::<T>()) {
        return Ok(ready.clone());
    }
    let document = SchemaGenerator::new(dialect()).into_root_schema_for::<T>().to_value();
    let checker = Checker::new(document.clone())?;
    let ready = Arc::new(Ready { document, checker });
    KNOWN.write().unwrap_or_else(PoisonError::into_inner).insert(TypeId::of::<T>(), ready.clone());
    Ok(ready)
}

fn check<T: DeserializeOwned + JsonSchema + 'static>(value: Value) -> Result<T> {
    if count(&value) > MOST_VALUES {
        return Err(MALFORMED.because("Too many values."));
    }
    let ready = schema::<T>()?;
    let mut found = ready.checker.findings(&value);
    nul_fields(&value, "", &mut found);
    if found.is_empty() {
        // The type's own deserialization may refuse what the schema allows. Its message may repeat the value, so it
        // goes to the log only.
        return serde_json::from_value(value).map_err(|error| INVALID.caused_by(error));
    }
    found.sort();
    found.dedup();
    found.truncate(MOST_NAMED);
    Err(found.into_iter().fold(Fault::from(INVALID), |fault, (field, code, message)| fault.and(field, code, message)))
}

fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(count).sum::<usize>(),
        _ => 1,
    }
}

/// No column can store a NUL, so no input may contain one.
fn nul_fields(value: &Value, path: &str, found: &mut Vec<Finding>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::String(text) if text.contains('\0') => {
            found.push((path.to_owned(), "wrong_form", "must not contain NUL characters".to_owned()));
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                nul_fields(item, &below(&place.to_string()), found);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                nul_fields(field, &below(name), found);
            }
        }
        _ => {}
    }
}

impl<T: JsonSchema> OperationInput for Json<T> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        let content = [("application/json".to_owned(), media::<T>(ctx))].into_iter().collect();
        set_body(ctx, operation, RequestBody { required: true, content, ..Default::default() });
        may_answer(operation, &[INVALID, MALFORMED, NOT_JSON, TOO_LARGE, SLOW_BODY]);
    }
}

fn media<T: JsonSchema>(ctx: &mut GenContext) -> MediaType {
    let json_schema = ctx.schema.subschema_for::<T>();
    MediaType { schema: Some(SchemaObject { json_schema, example: None, external_docs: None }), ..Default::default() }
}

impl<T: JsonSchema> OperationOutput for Json<T> {
    type Inner = T;

    fn operation_response(ctx: &mut GenContext, _: &mut Operation) -> Option<ApiResponse> {
        let content = [("application/json".to_owned(), media::<T>(ctx))].into_iter().collect();
        Some(ApiResponse { description: "OK".into(), content, ..Default::default() })
    }

    fn inferred_responses(ctx: &mut GenContext, operation: &mut Operation) -> Vec<(Option<u16>, ApiResponse)> {
        Self::operation_response(ctx, operation).map(|response| (Some(200), response)).into_iter().collect()
    }
}

impl<T: JsonSchema> OperationInput for Path<T> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        parameters::<T>(ctx, operation, ParamLocation::Path);
        may_answer(operation, &[NOT_FOUND]);
    }
}

impl<T: JsonSchema> OperationInput for Query<T> {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        parameters::<T>(ctx, operation, ParamLocation::Query);
        may_answer(operation, &[INVALID]);
    }
}

pub(super) fn parameters<T: JsonSchema>(ctx: &mut GenContext, operation: &mut Operation, place: ParamLocation) {
    let schema = ctx.schema.subschema_for::<T>();
    let resolved = ctx.resolve_schema(&schema).clone();
    let found = parameters_from_schema(ctx, resolved, place);
    add_parameters(ctx, operation, found);
}

/// An extractor names the headers that it reads, as the fields of a type.
pub fn reads_headers<T: JsonSchema>(ctx: &mut GenContext, operation: &mut Operation) {
    parameters::<T>(ctx, operation, ParamLocation::Header);
}

/// Nothing to describe: the description lists the codes that a route can answer.
impl OperationOutput for Fault {
    type Inner = crate::fault::Problem<'static>;
}
impl OperationInput for Janua {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, serde::Deserialize, JsonSchema)]
    struct Names {
        names: Vec<String>,
    }

    #[test]
    fn an_answer_does_not_grow_with_what_is_wrong() {
        let wrong = |many: usize| {
            let fault = check::<Names>(json!({ "names": vec![7; many] })).unwrap_err();
            (fault.code(), fault.problem("").errors.len())
        };
        assert_eq!([wrong(3), wrong(1_000)], [(INVALID, 3), (INVALID, MOST_NAMED)]);
        assert_eq!(wrong(MOST_VALUES), (MALFORMED, 0));
        let many = json!({ "names": vec!["x"; MOST_VALUES - 2] });
        assert_eq!(check::<Names>(many).unwrap().names.len(), MOST_VALUES - 2);
    }
}
