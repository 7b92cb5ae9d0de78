//! How an app looks on the pages where its people sign in: its name, its logo, its colour. Only an app that somebody here
//! answers for has a look. What every such page keeps is how it is laid out and the line that says whose page it is.
use axum::{http::HeaderMap, response::Response};
use identity::oauth::clients::{Client, shown_name};
use kernel::{
    Janua,
    fault::{NOT_FOUND, Result},
    http::{Document, Path, Routes},
};
use minijinja::{Value, value::Serde};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::{Application, ApplicationId},
    color::Color,
};
use url::{Position, Url};

pub fn routes() -> Routes {
    Routes::new("pages")
        .get("/assets/brand/{name}", brand_stylesheet, "the colour of an app, as a stylesheet")
        .answers::<String>(200, "text/css")
        .answers_nothing(304)
        .fails(&[NOT_FOUND])
}

/// What templates draw of an app.
#[derive(Serialize)]
pub struct Brand {
    name: String,
    /// The name of a picture of ours.
    logo: Option<String>,
    /// Six digits, which name a stylesheet.
    color: Option<String>,
    /// Where this page really is.
    host: String,
}

impl Brand {
    /// Nothing for a client that only describes itself: it could say that it is anybody.
    pub fn of(janua: &Janua, client: &Client) -> Option<Self> {
        let owned = client.app.as_ref()?;
        Self::new(janua, &client.name, owned.logo_url.as_deref(), owned.primary_color.as_deref())
    }

    /// A page without its look is better than no page.
    pub async fn of_app(janua: &Janua, id: Option<ApplicationId>) -> Option<Self> {
        let Application { name, logo_url, primary_color, .. } = Application::find(&janua.db, id?).await.ok()??;
        Self::new(janua, &name, logo_url.as_deref(), primary_color.as_deref())
    }

    fn new(janua: &Janua, name: &str, logo_url: Option<&str>, color: Option<&str>) -> Option<Self> {
        let logo = logo_url.and_then(picture);
        let color = color.and_then(Color::parse).map(Color::digits);
        if logo.is_none() && color.is_none() {
            return None;
        }
        let base = Url::parse(&janua.config.base_url()).ok()?;
        let host = base[Position::BeforeHost..Position::AfterPort].to_owned();
        Some(Self { name: shown_name(name), logo, color, host })
    }
}

impl From<&Brand> for Value {
    fn from(brand: &Brand) -> Self {
        Self::from(Serde(brand))
    }
}

/// Pictures come by this server, wherever they lie: pages load nothing from anywhere else.
fn picture(url: &str) -> Option<String> {
    let (_, name) = url.rsplit_once('/')?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    (!name.is_empty() && name.chars().all(is_plain)).then(|| name.to_owned())
}

#[derive(Deserialize, JsonSchema)]
struct OneStylesheet {
    name: String,
}

/// It follows from the colour alone, and says nothing about whose it is.
async fn brand_stylesheet(Path(path): Path<OneStylesheet>, headers: HeaderMap) -> Result<Response> {
    let color = path.name.strip_suffix(".css").and_then(Color::read).ok_or(NOT_FOUND)?;
    Ok(Document::new("text/css", stylesheet(color).into_bytes()).answer(&headers))
}

/// The color itself on buttons, with text that can be read on it; close to it, and readable, where it is the text.
fn stylesheet(color: Color) -> String {
    let (on, light, dark) = (color.ink(), color.readable_on(Color::PAPER), color.readable_on(Color::NIGHT));
    // Away from the text: under the pointer the contrast grows.
    let away = on.ink();
    let tones = "--accent-soft:color-mix(in srgb,var(--accent) 12%,var(--surface));\
                 --accent-line:color-mix(in srgb,var(--accent) 40%,var(--surface))";
    format!(
        ":root{{--primary:{color};--on-primary:{on};--primary-hover:color-mix(in srgb,{color} 88%,{away});\
         --accent:{light};{tones}}}\n\
         @media (prefers-color-scheme:dark){{:root{{--accent:{dark}}}}}\n\
         .btn-primary{{border-color:var(--accent)}}\n"
    )
}
