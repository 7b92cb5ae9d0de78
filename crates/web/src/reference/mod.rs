//! The API reference: an index, and a page for each group of routes. Its only source is the OpenAPI description, so
//! each page is rendered once and cached.
mod call;
mod example;
mod operation;
mod schema;
mod who;

use std::{collections::BTreeMap, sync::OnceLock};

use axum::{
    extract::State,
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    fault::{INTERNAL, NOT_FOUND, Result},
    http::{Document, Documents, Path, Routes},
};
use minijinja::{Value as Drawn, context, value::Serde};
use operation::{Group, Reader};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tenancy::policy::Site;

use crate::{
    look::Look,
    page::{HTML, guard, pages, shown},
};

pub fn routes() -> Routes {
    pages("pages")
        .get("/reference", reference_index, "the reference: all operations")
        .answers_nothing(304)
        .get("/reference/{tag}", reference_page, "the reference: one group of operations")
        .answers_nothing(304)
}

/// The name of the page that lists all others.
const INDEX: &str = "";

/// The pages by the names of their groups; what could not be drawn is nothing.
#[derive(Default)]
pub struct RenderedPages(OnceLock<BTreeMap<String, Option<Document>>>);

#[derive(Deserialize, JsonSchema)]
struct OneGroup {
    #[schemars(length(max = 64))]
    tag: String,
}

async fn reference_index(State(janua): State<Janua>, headers: HeaderMap) -> Response {
    shown(&janua, answer(&janua, INDEX, &headers))
}

async fn reference_page(State(janua): State<Janua>, Path(path): Path<OneGroup>, headers: HeaderMap) -> Response {
    shown(&janua, answer(&janua, &path.tag, &headers))
}

fn answer(janua: &Janua, name: &str, headers: &HeaderMap) -> Result<Response> {
    // Who develops sees a change of a template at once.
    let fresh = cfg!(debug_assertions).then(|| draw_all(janua, Some(name)));
    let pages = match &fresh {
        Some(pages) => pages,
        None => janua.own::<RenderedPages>().0.get_or_init(|| draw_all(janua, None)),
    };
    let page = pages.get(name).ok_or(NOT_FOUND)?.as_ref().ok_or(INTERNAL)?;
    Ok(guard(page.answer(headers).into_response(), ""))
}

/// Draws all pages, or the one that is asked for.
fn draw_all(janua: &Janua, only: Option<&str>) -> BTreeMap<String, Option<Document>> {
    let Some(document) = janua.description.get().map(Documents::value) else { return BTreeMap::new() };
    let reader = Reader::new(&document);
    let groups = reader.groups();
    let is_wanted = |name: &str| only.is_none_or(|only| only == name);
    let mut pages = BTreeMap::new();
    if is_wanted(INDEX) {
        let content = context! {
            groups => Serde(&groups),
            everywhere => Serde(reader.everywhere()),
            info => Serde(&document["info"]),
            base => janua.config.base_url(),
        };
        pages.insert(INDEX.to_owned(), draw(janua, "reference.html", content));
    }
    for Group { name, .. } in groups.iter().filter(|group| is_wanted(&group.name)) {
        let content = context! {
            name,
            groups => Serde(&groups),
            operations => Serde(reader.operations(name)),
            told => Serde(reader.told(name)),
        };
        pages.insert(name.clone(), draw(janua, "reference_group.html", content));
    }
    pages
}

fn draw(janua: &Janua, template: &str, content: Drawn) -> Option<Document> {
    let content = context! { site => Serde(Site::of(janua)), ..content };
    let html = janua.own::<Look>().draw(template, content).ok()?;
    Some(Document::new(HTML, html.into_bytes()))
}

/// What stands there as text; nothing when there is none.
fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
