//! Pages with a sentence and perhaps a button, for features that have no pages of their own. The feature with the pages
//! declares how they look.
use axum::response::{IntoResponse as _, Response};
use kernel::Janua;

/// A page with little to say.
pub struct PlainPage {
    pub title: &'static str,
    pub text: String,
    /// The icon above the title; without one, the check of success.
    pub sign: &'static str,
    /// The words of a button that posts an empty form to the page's own URL. Without it, a link leads to the home page.
    pub button: Option<&'static str>,
}

/// Draws a [`PlainPage`].
#[derive(Clone)]
pub struct DrawsPlainPages(pub fn(&Janua, &PlainPage) -> Response);

impl PlainPage {
    /// As the other pages look; as plain text in a program without pages.
    pub fn draw(&self, janua: &Janua) -> Response {
        match janua.declared::<DrawsPlainPages>().first() {
            Some(DrawsPlainPages(draw)) => draw(janua, self),
            None => format!("{}. {}", self.title, self.text).into_response(),
        }
    }
}
