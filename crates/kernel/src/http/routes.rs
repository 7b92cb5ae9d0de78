//! The route table of a feature. The router and the OpenAPI description are built from it.
use aide::{
    OperationInput, OperationOutput,
    axum::{ApiRouter, routing},
    generate::in_context,
    openapi::OpenApi,
    operation::OperationHandler,
};
use axum::{Router, handler::Handler, http::Method};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

use super::{
    input::dialect,
    origins::Sharing,
    wording::{Wording, Wordings},
};
use crate::{
    Janua,
    fault::{Code, Fault, METHOD_NOT_ALLOWED, NOT_FOUND},
};

const MIB: usize = 1024 * 1024;

/// A route table: each row is a method, a path, a handler and a phrase about it.
pub struct Routes {
    tag: &'static str,
    body_limit: usize,
    each: Option<fn(Self) -> Self>,
    router: Router<Janua>,
    rows: Vec<RouteRow>,
    described: Vec<DescribeRoute>,
    told: Vec<DescribedWebhook>,
    wordings: Wordings,
    credentials: Vec<Credential>,
}

/// A kind of credential: the name that extractors use in [`requires`](super::requires), and its OpenAPI security
/// scheme in JSON.
pub type Credential = (&'static str, &'static str);

/// Adds a route to the description. Called when the description is first read, because that takes far more time and
/// memory than serving the route.
type DescribeRoute = Box<dyn FnOnce(ApiRouter<Janua>) -> ApiRouter<Janua> + Send>;

/// The schema of a type, where and when it is described.
type DescribeType = fn() -> Value;

fn schema_of<T: JsonSchema>() -> Value {
    in_context(|ctx| ctx.schema.subschema_for::<T>().to_value())
}

/// A request that the service itself sends: a webhook.
struct DescribedWebhook {
    name: &'static str,
    tag: &'static str,
    summary: &'static str,
    schema: DescribeType,
    example: Value,
}

impl DescribedWebhook {
    fn item(&self) -> Value {
        json!({ "post": {
            "operationId": format!("told.{}", self.name), "tags": [self.tag], "summary": self.summary,
            "requestBody": { "required": true, "content": { "application/json": {
                "schema": (self.schema)(), "example": self.example,
            } } },
            "responses": { "2XX": { "description": "The delivery was accepted." } },
        } })
    }
}

/// Properties of a route that the pipeline needs before the handler runs.
#[derive(Debug, Clone)]
pub(super) struct RouteRow {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// What it is called in the description, if not as its handler.
    pub(super) name: Option<&'static str>,
    pub(super) body_limit: usize,
    /// Its body goes to the handler as it comes.
    pub(super) streams: bool,
    /// Answered under load and without a rate limit.
    pub(super) always: bool,
    /// Whether the answer may be stored for an `Idempotency-Key`.
    pub(super) is_kept: bool,
    pub(super) sharing: Sharing,
    pub(super) codes: Vec<Code>,
    pub(super) answers: Vec<Described>,
}

/// A response that the handler's return type does not show.
#[derive(Debug, Clone)]
pub(super) struct Described {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) schema: Option<DescribeType>,
}

macro_rules! verbs { ($($verb:ident, $with:ident, $method:ident;)*) => { $(
    #[must_use]
    pub fn $verb<H, I, O, T>(mut self, path: &'static str, handler: H, summary: &'static str) -> Self
    where
        H: Handler<T, Janua> + OperationHandler<I, O>,
        I: OperationInput,
        O: OperationOutput,
        T: 'static,
    {
        let tag = self.tag;
        let name = std::any::type_name::<H>().rsplit("::").next().unwrap_or_default();
        self.router = self.router.route(path, axum::routing::$verb(handler.clone()));
        self.described.push(Box::new(move |api| {
            let route = routing::$with(handler, |op| op.id(&format!("{tag}.{name}")).tag(tag).summary(summary));
            api.api_route(path, route)
        }));
        self.rows.push(RouteRow {
            method: Method::$method, path, name: None, body_limit: self.body_limit, streams: false,
            always: false, is_kept: true, sharing: Sharing::KnownOrigins, codes: vec![], answers: vec![],
        });
        match self.each {
            Some(say) => say(self),
            None => self,
        }
    }
)* } }

impl Routes {
    /// An empty table. The tag groups its routes in the description.
    pub fn new(tag: &'static str) -> Self {
        Self {
            tag,
            body_limit: MIB,
            each: None,
            router: Router::new(),
            rows: vec![],
            described: vec![],
            told: vec![],
            wordings: Wordings::default(),
            credentials: vec![],
        }
    }

    verbs! {
        get, get_with, GET; post, post_with, POST; patch, patch_with, PATCH; put, put_with, PUT;
        delete, delete_with, DELETE; options, options_with, OPTIONS;
    }

    /// Sets the longest body of the routes that follow.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_limit = bytes;
        self
    }

    /// The body of the route above goes to its handler as it comes ([`Streamed`](super::Streamed)), at most so many bytes.
    /// Nothing holds it as a whole, so an `Idempotency-Key` has no meaning here; it may take as long as bytes keep coming.
    #[must_use]
    pub fn streams(mut self, most: usize) -> Self {
        if let Some(row) = self.rows.last_mut() {
            (row.body_limit, row.streams, row.is_kept) = (most, true, false);
        }
        self
    }

    /// Says the same of every route that follows: `say` gets the table after each of them.
    #[must_use]
    pub fn each(mut self, say: fn(Self) -> Self) -> Self {
        self.each = Some(say);
        self
    }

    /// Lists the codes that the route above can answer, beside those of its extractors.
    #[must_use]
    pub fn fails(mut self, codes: &[Code]) -> Self {
        if let Some(row) = self.rows.last_mut() {
            row.codes.extend_from_slice(codes);
        }
        self
    }

    /// Names the route above in the description, where it shares its handler with another route.
    #[must_use]
    pub fn named(mut self, name: &'static str) -> Self {
        if let Some(row) = self.rows.last_mut() {
            row.name = Some(name);
        }
        self
    }

    /// The route above also answers `T` with this status and type.
    #[must_use]
    pub fn answers<T: JsonSchema>(mut self, status: u16, content_type: &'static str) -> Self {
        if let Some(row) = self.rows.last_mut() {
            row.answers.push(Described { status, content_type, schema: Some(schema_of::<T>) });
        }
        self
    }

    /// The route above also answers this status without a body.
    #[must_use]
    pub fn answers_nothing(mut self, status: u16) -> Self {
        if let Some(row) = self.rows.last_mut() {
            row.answers.push(Described { status, content_type: "", schema: None });
        }
        self
    }

    /// The route above is answered under load, too. For health probes.
    #[must_use]
    pub fn always(mut self) -> Self {
        if let Some(row) = self.rows.last_mut() {
            row.always = true;
        }
        self
    }

    /// The answer of the route above is never stored for an `Idempotency-Key`: it may show a secret, or is a page.
    #[must_use]
    pub fn unkept(mut self) -> Self {
        if let Some(row) = self.rows.last_mut() {
            row.is_kept = false;
        }
        self
    }

    /// Pages of every origin may call the route above and read its answer, without cookies (CORS). For public documents,
    /// and for routes that a browser client calls with what it holds itself.
    #[must_use]
    pub fn for_any_origin(mut self) -> Self {
        if let Some(row) = self.rows.last_mut() {
            row.sharing = Sharing::AnyOrigin;
        }
        self
    }

    /// A request the service itself makes: a webhook with the body `T`, and an example of it.
    #[must_use]
    pub fn tells<T: JsonSchema>(mut self, name: &'static str, summary: &'static str, example: &Value) -> Self {
        let (tag, example) = (self.tag, example.clone());
        self.told.push(DescribedWebhook { name, tag, summary, schema: schema_of::<T>, example });
        self
    }

    /// Errors under this path have the form of a standard, such as SCIM's.
    #[must_use]
    pub fn worded(mut self, root: &'static str, wording: &'static dyn Wording) -> Self {
        self.wordings.put(root, wording);
        self
    }

    /// Declares the credentials that routes can require.
    #[must_use]
    pub fn credentials(mut self, credentials: &[Credential]) -> Self {
        self.credentials.extend_from_slice(credentials);
        self
    }

    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.credentials.extend(other.credentials);
        self.wordings.extend(other.wordings);
        self.rows.extend(other.rows);
        self.described.extend(other.described);
        self.told.extend(other.told);
        Self { router: self.router.merge(other.router), ..self }
    }

    pub(super) fn finish(self) -> (Router<Janua>, Draft) {
        let router = self
            .router
            .fallback(|| async { Fault::from(NOT_FOUND) })
            .method_not_allowed_fallback(|| async { Fault::from(METHOD_NOT_ALLOWED) });
        (
            router,
            Draft {
                rows: self.rows,
                described: self.described,
                told: self.told,
                wordings: self.wordings,
                credentials: self.credentials,
            },
        )
    }
}

/// The routes before they are described.
pub(super) struct Draft {
    pub(super) rows: Vec<RouteRow>,
    described: Vec<DescribeRoute>,
    told: Vec<DescribedWebhook>,
    pub(super) wordings: Wordings,
    pub(super) credentials: Vec<Credential>,
}

impl Draft {
    /// Builds the description. Runs on a thread of its own, because the library keeps its state in thread-locals.
    pub(super) fn describe(self) -> (OpenApi, Vec<(RouteRow, Vec<Value>)>) {
        // It starts with an older dialect.
        in_context(|ctx| {
            let place = |settings: &mut SchemaSettings| settings.definitions_path = "/components/schemas".into();
            ctx.schema = SchemaGenerator::new(dialect().with(place));
        });
        let (mut router, mut rows) = (ApiRouter::new(), vec![]);
        for (row, describe) in self.rows.into_iter().zip(self.described) {
            router = describe(router);
            let answers = row.answers.iter().map(|answer| answer.schema.map(|schema| schema()).unwrap_or_default());
            let answers = answers.collect();
            rows.push((row, answers));
        }
        let told: Vec<_> = self.told.iter().map(|told| (told.name, told.item())).collect();
        let mut api = OpenApi::default();
        let _served_elsewhere: Router<Janua> = router.finish_api(&mut api);
        for (name, item) in told {
            if let Ok(item) = serde_json::from_value(item) {
                api.webhooks.insert(name.to_owned(), item);
            }
        }
        (api, rows)
    }
}
