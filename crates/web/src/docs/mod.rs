//! The documents as a site: `docs/` of the repository, built into the binary. Pages and index are made when they are first
//! asked for and are the same for every reader.
mod diagram;
mod list;
mod pictures;
mod render;
mod search;

use std::{collections::BTreeMap, sync::OnceLock};

use axum::{
    extract::{RawQuery, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use kernel::{
    Janua,
    fault::{INTERNAL, NOT_FOUND, Result},
    http::{Document, Path, Routes},
};
use list::{Entry, SECTIONS};
use minijinja::{Value as Drawn, context, value::Serde};
use schemars::JsonSchema;
use search::Index;
use serde::Deserialize;
use tenancy::policy::Site;

use crate::{
    look::Look,
    page::{HTML, guard, page, pages, parameter, refused_on_a_page, shown},
};

pub fn routes() -> Routes {
    let routes = pages("pages")
        .get("/docs", docs_index, "the documents: guides and reference")
        .answers_nothing(304)
        .get("/docs/search", docs_search, "search in the documents")
        .get("/docs/{page}", docs_page, "one document; with .md at its end, as Markdown")
        .answers::<String>(200, MARKDOWN)
        .answers_nothing(304);
    let pictures = Routes::new("pages").get("/docs/pictures/{name}", docs_picture, "a picture of a document");
    let pictures = refused_on_a_page(pictures.answers::<String>(200, pictures::PNG).answers_nothing(304));
    routes.and(pictures)
}

const MARKDOWN: &str = "text/markdown; charset=utf-8";

/// The longest text that is searched for, in characters.
const LONGEST_QUERY: usize = 100;

/// The pages by their names, and the index of words. What could not be drawn is nothing.
#[derive(Default)]
pub struct Documentation {
    pages: OnceLock<BTreeMap<&'static str, Option<Document>>>,
    index: OnceLock<Index>,
}

#[derive(Deserialize, JsonSchema)]
struct OnePage {
    #[schemars(length(max = 64))]
    page: String,
}

#[derive(Deserialize, JsonSchema)]
struct OnePicture {
    #[schemars(length(max = 100))]
    name: String,
}

async fn docs_index(State(janua): State<Janua>, headers: HeaderMap) -> Response {
    shown(&janua, answer(&janua, INDEX, &headers))
}

async fn docs_page(State(janua): State<Janua>, Path(path): Path<OnePage>, headers: HeaderMap) -> Response {
    if let Some(entry) = path.page.strip_suffix(".md").and_then(list::find) {
        return Document::new(MARKDOWN, entry.markdown.as_bytes().to_vec()).answer(&headers);
    }
    match list::find(&path.page) {
        Some(entry) => shown(&janua, answer(&janua, entry.page, &headers)),
        None => {
            let content = context! { sections => Serde(SECTIONS), here => "", page => &path.page };
            page(&janua, StatusCode::NOT_FOUND, "docs_missing.html", content)
        }
    }
}

async fn docs_search(State(janua): State<Janua>, RawQuery(query): RawQuery) -> Response {
    let q: String = parameter(query.as_deref(), "q").chars().take(LONGEST_QUERY).collect();
    let hits = match q.trim() {
        "" => vec![],
        q => janua.own::<Documentation>().index.get_or_init(Index::build).find(q),
    };
    let content = context! { sections => Serde(SECTIONS), here => "", q, hits => Serde(hits) };
    page(&janua, StatusCode::OK, "docs_search.html", content)
}

async fn docs_picture(State(janua): State<Janua>, Path(path): Path<OnePicture>, headers: HeaderMap) -> Response {
    shown(&janua, pictures::picture(&path.name).map(|picture| picture.answer(&headers)).ok_or(NOT_FOUND.into()))
}

/// The name of the page that lists all others.
const INDEX: &str = "";

fn answer(janua: &Janua, name: &'static str, headers: &HeaderMap) -> Result<Response> {
    // Who develops sees a change of a template at once.
    let fresh = cfg!(debug_assertions).then(|| draw_all(janua, Some(name)));
    let pages = match &fresh {
        Some(pages) => pages,
        None => janua.own::<Documentation>().pages.get_or_init(|| draw_all(janua, None)),
    };
    let page = pages.get(name).ok_or(NOT_FOUND)?.as_ref().ok_or(INTERNAL)?;
    Ok(guard(page.answer(headers).into_response(), ""))
}

/// Draws all pages, or the one that is asked for.
fn draw_all(janua: &Janua, only: Option<&str>) -> BTreeMap<&'static str, Option<Document>> {
    let is_wanted = |name: &str| only.is_none_or(|only| only == name);
    let (mut pages, base) = (BTreeMap::new(), janua.config.base_url());
    if is_wanted(INDEX) {
        pages.insert(
            INDEX,
            draw(janua, "docs.html", context! { sections => Serde(SECTIONS), here => "", base => &base }),
        );
    }
    let copy = janua.own::<Look>().draw("parts/copy_icon.html", context! {}).unwrap_or_default();
    let entries: Vec<&Entry> = list::all().collect();
    for (at, entry) in entries.iter().enumerate().filter(|(_, entry)| is_wanted(entry.page)) {
        let rendered = render::render(entry, copy.trim());
        let content = context! {
            sections => Serde(SECTIONS),
            here => entry.page,
            about => entry.about,
            base => &base,
            title => rendered.title,
            headings => Serde(&rendered.headings),
            // The renderer lets no HTML of the text through.
            content => Drawn::from_safe_string(rendered.html),
            before => Serde(at.checked_sub(1).map(|at| entries[at])),
            after => Serde(entries.get(at + 1)),
        };
        pages.insert(entry.page, draw(janua, "docs_page.html", content));
    }
    pages
}

fn draw(janua: &Janua, template: &str, content: Drawn) -> Option<Document> {
    let content = context! { site => Serde(Site::of(janua)), ..content };
    let html = janua.own::<Look>().draw(template, content).ok()?;
    Some(Document::new(HTML, html.into_bytes()))
}

#[cfg(test)]
mod tests;
