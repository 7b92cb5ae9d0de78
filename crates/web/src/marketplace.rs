//! The public marketplace: skills to browse, and the page of each. Both are drawn from what the API answers to the visitor,
//! signed in or not.
use axum::{
    body::{Body, to_bytes},
    extract::FromRequestParts,
    http::{HeaderValue, Method, Request, StatusCode, header, request::Parts},
    response::Response,
};
use kernel::{
    Janua,
    fault::{Fault, INTERNAL, NOT_FOUND, Result},
    http::{Client, GenContext, Operation, OperationInput, Path, Routes},
};
use minijinja::{Value as Drawn, context, value::Serde};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tenancy::enter::{Browser, Session, Within};

use crate::{
    outcome::{self, FormOutcome},
    page::{error, page, pages, parameter, shown},
};

pub fn routes() -> Routes {
    pages("pages").get("/marketplace", marketplace_page, "skills to browse and search").get(
        "/marketplace/{slug}",
        skill_page,
        "one skill: its description, versions, files, scan and signature",
    )
}

/// More than any answer of ours.
const LONGEST: usize = 16 * 1024 * 1024;

/// A visitor of a public page, signed in or not.
struct Anyone {
    janua: Janua,
    session: Option<Session>,
    parts: Parts,
}

impl FromRequestParts<Janua> for Anyone {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self, Response> {
        let who = Browser::from_request_parts(parts, janua).await.map_err(|fault| error(janua, &fault))?;
        Ok(Self { janua: janua.clone(), session: who.own(), parts: parts.clone() })
    }
}

impl OperationInput for Anyone {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        Browser::operation_input(ctx, operation);
    }
}

impl Anyone {
    /// Asks the API as the visitor.
    async fn ask(&self, to: &str) -> Result<Value> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = to.parse().map_err(|_| NOT_FOUND)?;
        *request.method_mut() = Method::GET;
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(client) = self.parts.extensions.get::<Client>() {
            request.extensions_mut().insert(*client);
        }
        if let Some(session) = &self.session {
            request.extensions_mut().insert(Within::of(session));
        }
        let response = self.janua.inside.ask(request).await?;
        let body = to_bytes(response.into_body(), LONGEST).await.map_err(|error| INTERNAL.caused_by(error))?;
        serde_json::from_slice(&body).map_err(|_| Fault::from(NOT_FOUND))
    }

    fn parameter(&self, name: &str) -> String {
        parameter(self.parts.uri.query(), name)
    }

    /// What became of the last form.
    async fn told(&self) -> Option<FormOutcome> {
        let token = self.parameter(outcome::PARAMETER);
        match &self.session {
            Some(session) if !token.is_empty() => outcome::take(&self.janua, session.account().id, &token).await,
            _ => None,
        }
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

async fn marketplace_page(visitor: Anyone) -> Response {
    let drawn = draw_list(&visitor).await;
    shown(&visitor.janua, drawn)
}

async fn draw_list(visitor: &Anyone) -> Result<Response> {
    let known = ["query", "sort", "tag", "namespace", "verified", "cursor"];
    let asked: Vec<(&str, String)> =
        known.iter().map(|name| (*name, visitor.parameter(name))).filter(|(_, value)| !value.is_empty()).collect();
    let query: Vec<String> = asked.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    let list = visitor.ask(&format!("/skills?limit=24&{}", query.join("&"))).await?;
    let others = asked.iter().filter(|(name, _)| *name != "cursor");
    let others: Vec<String> = others.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    let content = context! {
        list => Serde(list),
        query => visitor.parameter("query"),
        sort => visitor.parameter("sort"),
        tag => visitor.parameter("tag"),
        verified => visitor.parameter("verified"),
        others => others.join("&"),
        is_filtered => !others.is_empty(),
        base => visitor.janua.config.base_url(),
        is_signed_in => visitor.session.is_some(),
    };
    Ok(page(&visitor.janua, StatusCode::OK, "marketplace.html", content))
}

#[derive(Deserialize, JsonSchema)]
struct OfSkill {
    slug: String,
}

async fn skill_page(visitor: Anyone, Path(OfSkill { slug }): Path<OfSkill>) -> Response {
    let drawn = draw_skill(&visitor, &slug).await;
    shown(&visitor.janua, drawn)
}

async fn draw_skill(visitor: &Anyone, slug: &str) -> Result<Response> {
    let skill = visitor.ask(&format!("/skills/{}", encoded(slug))).await?;
    let ratings = visitor.ask(&format!("/ratings/aggregate?slug={}", encoded(slug))).await.unwrap_or_default();
    let told = visitor.told().await;
    let status = told.as_ref().map_or(StatusCode::OK, FormOutcome::status);
    // The API has made it safe: nothing of the package's own HTML is in it.
    let readme = Drawn::from_safe_string(skill["readme"].as_str().unwrap_or_default().to_owned());
    let here = format!("/marketplace/{slug}");
    let content = context! {
        skill => Serde(skill),
        ratings => Serde(ratings),
        readme,
        told => Serde(serde_json::to_value(&told).unwrap_or_default()),
        here => &here,
        path => &here,
        new => visitor.parameter("new"),
        base => visitor.janua.config.base_url(),
        is_signed_in => visitor.session.is_some(),
    };
    Ok(page(&visitor.janua, status, "skill.html", content))
}
