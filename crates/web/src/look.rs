//! How pages are drawn: templates, stylesheets and the little script there is, all inside the binary. While developing
//! they are read from the source each time, so that a change shows without a rebuild.
use axum::{extract::State, http::HeaderMap, response::Response};
use kernel::{
    Janua,
    fault::{NOT_FOUND, Result},
    http::{Document, Path, Routes},
};
use minijinja::{AutoEscape, Environment, HtmlEscape, UndefinedBehavior, Value};
use rust_embed::RustEmbed;
use schemars::JsonSchema;
use serde::Deserialize;
use tenancy::policy::Policy;

use crate::{charts, words};

#[derive(RustEmbed)]
#[folder = "templates/"]
struct Templates;

#[derive(RustEmbed)]
#[folder = "assets/"]
struct Assets;

/// The templates, read once; or, while developing, each time.
pub struct Look(Option<Environment<'static>>);

impl Default for Look {
    fn default() -> Self {
        Self((!cfg!(debug_assertions)).then(environment))
    }
}

impl Look {
    /// What cannot be drawn is said in plain words, and in the log: even the page for errors may be broken.
    pub fn draw(&self, name: &str, content: Value) -> Result<String, String> {
        let fresh;
        let environment = match &self.0 {
            Some(environment) => environment,
            None => {
                fresh = environment();
                &fresh
            }
        };
        let drawn = environment.get_template(name).and_then(|template| template.render(content));
        drawn.map_err(|error| {
            tracing::error!(%error, name, "a page cannot be drawn");
            // Who develops sees what is wrong where it is wrong.
            let why =
                if cfg!(debug_assertions) { HtmlEscape(&format!("{error:#}")).to_string() } else { String::new() };
            format!("<!doctype html><html lang=\"en\"><title>Sorry</title><p>An internal error occurred.<pre>{why}")
        })
    }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    // A name that is not there is a mistake in a template, not an empty place on a page.
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    words::add_to(&mut environment);
    charts::add_to(&mut environment);
    crate::money::add_to(&mut environment);
    environment.set_loader(|name| {
        let file = Templates::get(name);
        Ok(file.map(|file| String::from_utf8_lossy(&file.data).into_owned()))
    });
    environment
}

pub fn routes() -> Routes {
    Routes::new("pages")
        .get("/assets/{name}", asset, "a stylesheet, script or font of the pages")
        .answers::<String>(200, "text/css")
        .answers::<String>(200, "text/javascript")
        .answers::<String>(200, "image/svg+xml")
        .answers::<String>(200, "image/png")
        .answers::<String>(200, "image/jpeg")
        .answers::<String>(200, "image/webp")
        .answers_nothing(304)
        .fails(&[NOT_FOUND])
        .get("/favicon.ico", favicon, "the icon of the site")
        .answers::<String>(200, ICON)
        .answers_nothing(304)
        .fails(&[NOT_FOUND])
}

const ICON: &str = "image/x-icon";

#[derive(Deserialize, JsonSchema)]
struct OneAsset {
    name: String,
}

async fn asset(State(janua): State<Janua>, Path(path): Path<OneAsset>, headers: HeaderMap) -> Result<Response> {
    if let Some(logo) = janua.config.of::<Policy>().site_logo.as_ref().filter(|logo| logo.file_name() == path.name) {
        return Ok(Document::new(logo.content_type, logo.bytes.to_vec()).answer(&headers));
    }
    let file = Assets::get(&path.name).ok_or(NOT_FOUND)?;
    let kind = match path.name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("ico") => ICON,
        _ => "image/svg+xml",
    };
    Ok(Document::new(kind, file.data.into_owned()).answer(&headers))
}

async fn favicon(headers: HeaderMap) -> Result<Response> {
    let file = Assets::get("favicon.ico").ok_or(NOT_FOUND)?;
    Ok(Document::new(ICON, file.data.into_owned()).answer(&headers))
}
