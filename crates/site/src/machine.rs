//! For machines: the figures, the description of the interface, and rules for crawlers.
use axum::{
    extract::{FromRequestParts, State},
    http::{HeaderMap, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    crypto::same,
    fault::{Fault, INTERNAL, Result, UNAUTHENTICATED},
    http::{Client, Credential, GenContext, Operation, OperationInput, Routes, bearer, may_answer, requires},
    telemetry::Exposition,
};

use crate::accept::exposition;

/// What callers of `/metrics` can present, as the description names it.
const CREDENTIALS: &[Credential] = &[(
    "metricsToken",
    r#"{ "type": "http", "scheme": "bearer", "description": "The token set as metrics_token." }"#,
)];

pub fn routes() -> Routes {
    Routes::new("machine")
        .credentials(CREDENTIALS)
        .get("/metrics", metrics, "metrics in a text exposition format")
        .answers::<String>(200, Exposition::OpenMetrics.content_type())
        .answers::<String>(200, Exposition::Prometheus.content_type())
        .get("/openapi.json", openapi_json, "this description, as JSON")
        .answers::<Anything>(200, "application/json")
        .get("/openapi.yaml", openapi_yaml, "this description, as YAML")
        .answers::<Anything>(200, "application/yaml")
        .get("/robots.txt", robots, "rules for crawlers")
        .answers::<String>(200, "text/plain; charset=utf-8")
}

/// The description does not describe itself.
type Anything = std::collections::BTreeMap<String, serde_json::Value>;

/// Somebody on this machine, or somebody with the token. A proxy on this machine is not somebody on this machine:
/// what it passes on comes from elsewhere.
struct MetricsReader;

impl FromRequestParts<Janua> for MetricsReader {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let client = Client::from_request_parts(parts, janua).await?;
        if client.address.is_loopback() && !Client::is_forwarded(&parts.headers) {
            return Ok(Self);
        }
        match (&janua.config.metrics_token, bearer(&parts.headers)) {
            (Some(token), Some(sent)) if same(token.expose().as_bytes(), sent.as_bytes()) => Ok(Self),
            _ => Err(UNAUTHENTICATED.into()),
        }
    }
}

impl OperationInput for MetricsReader {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        // From this machine nothing is asked for.
        requires(operation, &[]);
        requires(operation, &["metricsToken"]);
        may_answer(operation, &[UNAUTHENTICATED]);
    }
}

async fn metrics(State(janua): State<Janua>, _reader: MetricsReader, headers: HeaderMap) -> Result<Response> {
    janua.metrics.refresh(&janua).await;
    let exposition = exposition(&headers);
    let text = janua.metrics.render(exposition).map_err(|error| INTERNAL.caused_by(error))?;
    let said = [(header::CONTENT_TYPE, exposition.content_type()), (header::VARY, "accept")];
    Ok((said, text).into_response())
}

async fn openapi_json(State(janua): State<Janua>, headers: HeaderMap) -> Result<Response> {
    let documents = janua.description.get().ok_or(INTERNAL)?;
    Ok(documents.json.answer(&headers))
}

async fn openapi_yaml(State(janua): State<Janua>, headers: HeaderMap) -> Result<Response> {
    let documents = janua.description.get().ok_or(INTERNAL)?;
    Ok(documents.yaml().answer(&headers))
}

/// Crawlers read the public pages, and what they are drawn with.
const ROBOTS: &str = "User-agent: *\nAllow: /legal\nAllow: /status\nAllow: /reference\nAllow: /docs\nAllow: /marketplace\n\
                      Allow: /assets/\nDisallow: /\n";

async fn robots() -> ([(header::HeaderName, &'static str); 2], &'static str) {
    let headers =
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "public, max-age=300")];
    (headers, ROBOTS)
}
