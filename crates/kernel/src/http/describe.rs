//! The OpenAPI 3.1 description: what the handlers' types say, with every refusal spelled out.
use std::{
    collections::{BTreeMap, BTreeSet},
    panic::resume_unwind,
    sync::{Mutex, OnceLock, PoisonError},
    thread,
};

use aide::openapi::{OpenApi, Operation};
use axum::http::Method;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::{
    document::Document,
    input::dialect,
    routes::{Credential, Draft, RouteRow},
    shared::{Codes, Shared, forget_unused, say_defaults},
    wording::{Wording, Wordings},
};
use crate::fault::{
    COMMON, CROSS_SITE, Code, IDEMPOTENCY_ANSWER_LOST, IDEMPOTENCY_IN_PROGRESS, IDEMPOTENCY_MISMATCH, INTERNAL,
    INVALID, OVERLOADED, RATE_LIMITED, STORAGE_FULL, TIMED_OUT, UNAVAILABLE,
};

/// Where extractors leave the codes they can answer, until the description is put together.
const CODES: &str = "x-codes";

/// What any route can answer, whatever it does.
const EVERYWHERE: &[Code] = &[INTERNAL, OVERLOADED, TIMED_OUT, UNAVAILABLE, STORAGE_FULL];

/// An extractor says which codes it can answer.
pub fn may_answer(operation: &mut Operation, codes: &[Code]) {
    let list = operation.extensions.entry(CODES.into()).or_insert_with(|| json!([]));
    if let Value::Array(list) = list {
        list.extend(codes.iter().map(|code| json!({ "status": code.status, "name": code.name, "says": code.says })));
    }
}

/// An extractor says what a caller must present; several schemes together mean all of them.
pub fn requires(operation: &mut Operation, schemes: &[&str]) {
    operation.security.push(schemes.iter().map(|scheme| ((*scheme).to_owned(), vec![])).collect());
}

/// The description as it is served. It may never be requested, so it is built by the first request.
#[derive(Default)]
pub struct Description {
    draft: Mutex<Option<Manuscript>>,
    documents: OnceLock<Documents>,
}

/// What the description is made of.
struct Manuscript {
    draft: Draft,
    version: String,
    base_url: String,
}

/// The description in its two forms. As a value it is ten times as large, so callers that want one parse it.
pub struct Documents {
    pub json: Document,
    yaml: OnceLock<Document>,
    /// What webhooks are told of: the event's name, and what it says.
    pub told: Vec<(String, String)>,
}

impl Documents {
    pub fn value(&self) -> Value {
        serde_json::from_slice(self.json.bytes()).unwrap_or_default()
    }

    /// Built by the first request.
    pub fn yaml(&self) -> &Document {
        let text = || serde_saphyr::to_string(&self.value()).unwrap_or_default();
        self.yaml.get_or_init(|| Document::new("application/yaml", text().into_bytes()))
    }
}

impl Description {
    pub(super) fn set(&self, draft: Draft, version: &str, base_url: String) {
        let manuscript = Manuscript { draft, version: version.to_owned(), base_url };
        *self.draft.lock().unwrap_or_else(PoisonError::into_inner) = Some(manuscript);
    }

    /// Empty while the server is being put together, and where two routes contradict each other, which the log then says.
    pub fn get(&self) -> Option<&Documents> {
        if let Some(documents) = self.documents.get() {
            return Some(documents);
        }
        // Held meanwhile, so that whoever else asks waits for the same.
        let mut draft = self.draft.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(manuscript) = draft.take() {
            match manuscript.write() {
                Ok(documents) => return Some(self.documents.get_or_init(|| documents)),
                Err(error) => tracing::error!(error, "cannot build the OpenAPI description"),
            }
        }
        self.documents.get()
    }
}

impl Manuscript {
    /// On a thread that ends, because it takes far more memory than what comes out of it: what a thread took goes back as
    /// a whole, while on one that lives on the result would lie scattered over all of it. Where no thread can be had, here.
    fn write(self) -> Result<Documents, String> {
        let mut manuscript = Some(self);
        let on_a_thread = thread::scope(|scope| {
            let spawned = thread::Builder::new().spawn_scoped(scope, || manuscript.take().map(Self::written));
            spawned.ok()?.join().unwrap_or_else(|panic| resume_unwind(panic))
        });
        on_a_thread.or_else(|| manuscript.map(Self::written)).unwrap_or_else(|| Err("there is nothing to say".into()))
    }

    fn written(self) -> Result<Documents, String> {
        let Self { draft, version, base_url } = self;
        let (wordings, credentials) = (draft.wordings.clone(), draft.credentials.clone());
        let (api, rows) = draft.describe();
        let about = About { base_url: &base_url, version: &version, wordings: &wordings, credentials: &credentials };
        let value = describe(&about, &api, &rows).map_err(|e| e.to_string())?;
        let json = serde_json::to_vec(&value).map_err(|e| e.to_string())?;
        let told = value["webhooks"].as_object().into_iter().flatten();
        let summary = |item: &Value| item["post"]["summary"].as_str().unwrap_or_default().to_owned();
        let told = told.map(|(name, item)| (name.clone(), summary(item))).collect();
        Ok(Documents { json: Document::new("application/json", json), yaml: OnceLock::new(), told })
    }
}

/// What the description needs to know beside the routes.
struct About<'a> {
    base_url: &'a str,
    version: &'a str,
    wordings: &'a Wordings,
    credentials: &'a [Credential],
}

fn describe(about: &About<'_>, api: &OpenApi, rows: &[(RouteRow, Vec<Value>)]) -> serde_json::Result<Value> {
    let About { base_url, version, wordings, credentials } = about;
    let mut document = serde_json::to_value(api)?;
    document["openapi"] = json!("3.1.0");
    document["info"] = json!({
        "title": "Janua",
        "version": version,
        "summary": "Identity and application platform",
        "description": "Every refusal is an RFC 9457 problem; branch on its `code`. The responses of an operation list the codes it can answer, `x-problems` lists them all. Where a standard says how refusals look, they look so.",
        "license": { "name": "Apache 2.0", "identifier": "Apache-2.0" },
    });
    document["servers"] = json!([{ "url": base_url }]);
    let whole = |settings: &mut SchemaSettings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    };
    for wording in wordings.all() {
        let generator = dialect().with(whole).for_serialize().into_generator();
        document["components"]["schemas"][wording.schema_name()] = wording.schema(generator).to_value();
    }
    document["components"]["headers"] = json!({
        "X-Request-Id": {
            "description": "Names this request in the logs; a well-formed inbound one is kept.",
            "schema": { "type": "string" },
        },
        "Location": { "description": "The URL to go on to.", "schema": { "type": "string", "format": "uri-reference" } },
    });
    let mut shared = Shared::default();
    for (status, description) in [("414", "The URL is too long."), ("431", "The headers are too large.")] {
        shared.responses.insert(format!("Refused{status}"), json!({ "description": description }));
    }

    let common = COMMON.iter().map(|code| (code.name.to_owned(), (code.status, code.says.to_owned())));
    let mut known: BTreeMap<String, (u16, String)> = common.collect();
    let (mut tags, mut schemes) = (BTreeSet::new(), BTreeSet::new());
    let mut names = BTreeSet::new();
    for (row, schemas) in rows {
        let operation = &mut document["paths"][row.path][row.method.as_str().to_lowercase()];
        tags.extend(operation["tags"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
        if let Some(name) = row.name {
            operation["operationId"] = json!(format!("{}.{name}", operation["tags"][0].as_str().unwrap_or_default()));
        }
        let name = operation["operationId"].as_str().unwrap_or_default().to_owned();
        if !names.insert(name.clone()) {
            return Err(serde::ser::Error::custom(format!("two operations are called {name}")));
        }
        for (answer, schema) in row.answers.iter().zip(schemas) {
            let described = &mut operation["responses"][answer.status.to_string()];
            if described["description"].is_null() && answer.status < 400 {
                described["description"] = json!(usual_words(answer.status));
            }
            if answer.content_type.is_empty() {
                continue;
            }
            // Without its parameters, which generators do not look up.
            let kind = answer.content_type.split(';').next().unwrap_or_default();
            described["content"][kind] = json!({ "schema": schema });
        }
        for requirement in operation["security"].as_array().into_iter().flatten() {
            schemes.extend(requirement.as_object().into_iter().flat_map(Map::keys).cloned());
        }
        let codes = codes_of(operation, row);
        for (status, names) in &codes {
            known.extend(names.iter().map(|(name, says)| (name.clone(), (*status, says.clone()))));
        }
        spell_out(operation, &codes, wordings.of(row.path), &mut shared);
        // Looked for and not indexed: an index that is not there would be added as a null, which OpenAPI does not allow.
        for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
            leave_out_the_obvious(parameter);
        }
        // An operation that asks for nothing says so: to some readers no word at all means that everything is asked for.
        if operation["security"].is_null() {
            operation["security"] = json!([]);
        }
    }
    for told in document["webhooks"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        told["post"]["security"] = json!([]);
    }
    if let Some(schemas) = document["components"]["schemas"].as_object_mut() {
        schemas.values_mut().for_each(say_defaults);
        schemas.extend(shared.schemas);
    }
    document["components"]["responses"] = Value::Object(shared.responses);
    forget_unused(&mut document);
    if let Some(unknown) = schemes.iter().find(|scheme| !credentials.iter().any(|(name, _)| name == scheme)) {
        return Err(serde::ser::Error::custom(format!("no feature describes the credential {unknown}")));
    }
    for (name, scheme) in *credentials {
        if schemes.contains(*name) {
            document["components"]["securitySchemes"][*name] = serde_json::from_str(scheme)?;
        }
    }
    document["tags"] = tags.into_iter().map(|tag| json!({ "name": tag })).collect();
    document["x-problems"] = known
        .into_iter()
        .map(|(name, (status, says))| (name, json!({ "status": status, "title": says })))
        .collect::<Map<_, _>>()
        .into();
    Ok(document)
}

/// A style that a parameter of its place has anyway need not be said, nor its description a second time in its schema.
fn leave_out_the_obvious(parameter: &mut Value) {
    let usual = match parameter["in"].as_str() {
        Some("path" | "header") => "simple",
        _ => "form",
    };
    if let Some(fields) = parameter.as_object_mut()
        && fields.get("style").is_some_and(|style| style == usual)
    {
        fields.remove("style");
    }
    let said = parameter.get("description").cloned();
    if let Some(schema) = parameter.get_mut("schema").and_then(Value::as_object_mut)
        && said.is_some()
        && schema.get("description") == said.as_ref()
    {
        schema.remove("description");
    }
}

/// Every code this operation can answer: its inputs', its own, and everybody's.
fn codes_of(operation: &mut Value, row: &RouteRow) -> BTreeMap<u16, Codes> {
    let mut codes: BTreeMap<u16, Codes> = BTreeMap::new();
    let mut put = |status: u16, name: &str, says: &str| {
        codes.entry(status).or_default().insert(name.to_owned(), says.to_owned());
    };
    if let Some(left) = operation.as_object_mut().and_then(|fields| fields.remove(CODES)) {
        for code in left.as_array().into_iter().flatten() {
            let status = code["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(500);
            put(status, code["name"].as_str().unwrap_or_default(), code["says"].as_str().unwrap_or_default());
        }
    }
    let limited: &[Code] = if row.always { &[] } else { &[RATE_LIMITED] };
    let changing: &[Code] = if row.method.is_safe() { &[] } else { &[CROSS_SITE] };
    let creating: &[Code] = if row.method == Method::POST {
        &[INVALID, IDEMPOTENCY_MISMATCH, IDEMPOTENCY_IN_PROGRESS, IDEMPOTENCY_ANSWER_LOST]
    } else {
        &[]
    };
    for code in EVERYWHERE.iter().chain(limited).chain(changing).chain(creating).chain(&row.codes) {
        put(code.status, code.name, code.says);
    }
    codes
}

/// What an answer is about that says nothing else.
fn usual_words(status: u16) -> &'static str {
    match status {
        304 => "The copy that the client has is still good.",
        300..400 => "Go on to `Location`.",
        _ => "OK",
    }
}

fn spell_out(operation: &mut Value, codes: &BTreeMap<u16, Codes>, wording: &dyn Wording, shared: &mut Shared) {
    let request_id = json!({ "$ref": "#/components/headers/X-Request-Id" });
    let Some(answers) = operation["responses"].as_object_mut() else { return };
    for status in codes.keys() {
        answers.entry(status.to_string()).or_insert_with(|| json!({}));
    }
    for (status, answer) in answers.iter_mut() {
        let number: u16 = status.parse().unwrap_or_default();
        answer["headers"]["X-Request-Id"] = request_id.clone();
        if (300..400).contains(&number) && number != 304 {
            answer["headers"]["Location"] = json!({ "$ref": "#/components/headers/Location" });
        }
        if let Some(codes) = codes.get(&number) {
            // A route that answers its own body with this status (health, say) says both.
            *answer = shared.refuse(answer.take(), wording, number, codes);
        } else if number >= 400 {
            if answer["description"].is_null() {
                answer["description"] = json!("A page that says what is wrong.");
            }
            *answer = shared.share_page(status, answer.take());
        } else if answer["content"].as_object().is_none_or(|kinds| kinds.keys().all(|kind| kind == "text/html")) {
            // A page, or nothing but the status: the same for many.
            *answer = shared.share(format!("Answered{status}"), answer.take());
        }
    }
    // Said by the HTTP layer itself, before any route is known, so without a body.
    for status in ["414", "431"] {
        answers.insert(status.into(), json!({ "$ref": format!("#/components/responses/Refused{status}") }));
    }
}
