//! The operator's legal documents: templates filled from the settings, rendered once at start, in the version for the
//! reader's jurisdiction.
mod render;

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};
use kernel::{
    Janua,
    fault::{Code, Result},
    http::{Json, Query, Routes},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use render::Library;
use render::{Form, Jurisdiction, Kind, PAGE_POLICY};

pub fn routes() -> Routes {
    let document = |routes: Routes| {
        routes
            .answers::<DocumentView>(200, "application/json")
            .answers::<String>(200, "text/html; charset=utf-8")
            .answers::<String>(200, "text/markdown; charset=utf-8")
            .fails(&[NO_SUCH_JURISDICTION])
    };
    let routes = Routes::new("legal").get("/legal", index, "index of legal documents");
    let routes = document(routes.get("/legal/terms", terms, "terms of service"));
    let routes = document(routes.get("/legal/privacy", privacy, "privacy policy"));
    let routes = document(routes.get("/legal/cookie-policy", cookie_policy, "cookie policy (en, eu, uk)"));
    document(routes.get("/legal/dpa", dpa, "data processing addendum (en)"))
}

const NO_SUCH_JURISDICTION: Code =
    Code::new(404, "no_such_jurisdiction", "This document does not exist for that jurisdiction.");

#[derive(Deserialize, JsonSchema)]
struct Wanted {
    /// `en`, `eu`, `uk` or `us`. Left out: chosen by `Accept-Language`.
    #[schemars(length(min = 1, max = 32))]
    jurisdiction: Option<String>,
}

/// One legal document. A browser gets it as a page, `Accept: text/markdown` as text.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DocumentView {
    document: &'static str,
    title: &'static str,
    jurisdiction: &'static str,
    /// The day this version is in force from.
    version: &'static str,
    /// The SHA-256 of the Markdown text, in hexadecimal.
    sha256: String,
    /// Markdown.
    content: String,
}

#[derive(Serialize, JsonSchema)]
struct Index {
    documents: Vec<IndexEntry>,
}

#[derive(Clone, Serialize, JsonSchema)]
struct IndexEntry {
    document: &'static str,
    title: &'static str,
    version: &'static str,
    url: String,
    jurisdictions: Vec<IndexVersion>,
}

#[derive(Clone, Serialize, JsonSchema)]
struct IndexVersion {
    jurisdiction: &'static str,
    sha256: String,
    url: String,
}

async fn index(State(janua): State<Janua>) -> Json<Index> {
    Json(Index { documents: janua.own::<Library>().index.clone() })
}

async fn terms(State(janua): State<Janua>, Query(wanted): Query<Wanted>, headers: HeaderMap) -> Result<Response> {
    answer(&janua, Kind::Terms, &wanted, &headers)
}

async fn privacy(State(janua): State<Janua>, Query(wanted): Query<Wanted>, headers: HeaderMap) -> Result<Response> {
    answer(&janua, Kind::Privacy, &wanted, &headers)
}

async fn cookie_policy(
    State(janua): State<Janua>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Result<Response> {
    answer(&janua, Kind::CookiePolicy, &wanted, &headers)
}

async fn dpa(State(janua): State<Janua>, Query(wanted): Query<Wanted>, headers: HeaderMap) -> Result<Response> {
    answer(&janua, Kind::Dpa, &wanted, &headers)
}

fn answer(janua: &Janua, kind: Kind, wanted: &Wanted, headers: &HeaderMap) -> Result<Response> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let jurisdiction = match &wanted.jurisdiction {
        // Who names one gets that one or is told that there is none.
        Some(named) => Jurisdiction::named(named).filter(|j| kind.exists_for(*j)).ok_or(NO_SUCH_JURISDICTION)?,
        None => Jurisdiction::of_reader(text(header::ACCEPT_LANGUAGE), |j| kind.exists_for(j)),
    };
    let form = Form::wanted(text(header::ACCEPT));
    let mut response = janua.own::<Library>().get(kind, jurisdiction, form)?.answer(headers);
    if form == Form::Html {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    }
    Ok(response)
}
