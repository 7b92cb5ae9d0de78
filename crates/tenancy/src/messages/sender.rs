//! Whose mail it is for its reader: the app they came through, or the installation.
use db::Read;
use kernel::Janua;

use super::one_line;
use crate::{
    apps::{Application, ApplicationId},
    color::Color,
    policy::Site,
};

/// How much of an app's name is shown in a mail.
const LONGEST_NAME: usize = 40;
const OWN_COLOR: &str = "#0b6b6f";

/// The name, the mark and the color at the head of a mail.
#[derive(Debug, Clone)]
pub struct Sender {
    pub name: String,
    /// The app's, where there is one; the mail says that the installation sends it for the app.
    pub is_app: bool,
    pub color: Color,
    /// The URL of the logo. Readers whose mail program loads no pictures see the name beside it.
    pub logo: Option<String>,
}

/// The name of the installation.
pub fn installation_name(janua: &Janua) -> String {
    Site::of(janua).name
}

impl Sender {
    pub fn installation(janua: &Janua) -> Self {
        let Site { name, color, logo } = Site::of(janua);
        let color = color.and_then(|digits| Color::parse(&format!("#{digits}"))).unwrap_or_else(own_color);
        let logo = logo.map(|path| format!("{}{path}", janua.config.base_url()));
        Self { name, is_app: false, color, logo }
    }

    /// The app with this id, or the installation where there is none.
    pub async fn find(from: impl Read, janua: &Janua, app: Option<ApplicationId>) -> db::Result<Self> {
        let Some(id) = app else { return Ok(Self::installation(janua)) };
        let app = Application::find(from, id).await?;
        Ok(app.map_or_else(
            || Self::installation(janua),
            |app| Self { logo: app.logo_url, ..Self::app(&app.name, app.primary_color.as_deref()) },
        ))
    }

    /// An app whose name is more than invisible or special characters. The developer chose the name, and any email
    /// may be the recipient: it stays short and cannot become a link.
    pub fn app(name: &str, color: Option<&str>) -> Self {
        let color = color.and_then(Color::parse).unwrap_or_else(own_color);
        Self { name: plain_name(name), is_app: true, color, logo: None }
    }

    /// Two letters for the mark.
    pub(super) fn initials(&self) -> String {
        let words = self.name.split_whitespace();
        let letters = words.filter_map(|word| word.chars().find(|c| c.is_alphanumeric()));
        letters.take(2).flat_map(char::to_uppercase).collect()
    }
}

fn own_color() -> Color {
    Color::parse(OWN_COLOR).unwrap_or(Color::NIGHT)
}

fn plain_name(name: &str) -> String {
    let kept = one_line(name).replace(['.', '/', '@', ':', '<', '>', '"'], " ");
    let words: Vec<&str> = kept.split_whitespace().collect();
    let name = words.join(" ");
    if name.is_empty() { "An app".to_owned() } else { name.chars().take(LONGEST_NAME).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_app_is_short_and_no_link() {
        for (given, shown) in [
            ("Tiny notes", "Tiny notes"),
            ("You won! https://www.evil.example/claim", "You won! https www evil example claim"),
            ("evil.example", "evil example"),
            ("a@b.c\r\nBcc: d@e.f", "a b c Bcc d e f"),
            ("\u{202e}Tiny\u{200b} notes", "Tiny notes"),
            ("\u{200b}", "An app"),
        ] {
            assert_eq!(Sender::app(given, None).name, shown);
        }
        assert_eq!(Sender::app(&"x".repeat(200), None).name.len(), LONGEST_NAME);
        assert_eq!(Sender::app("tiny notes of Ada", None).initials(), "TN");
        assert_eq!(Sender::app("notes", Some("#1d4ed8")).color.to_string(), "#1d4ed8");
        assert_eq!(Sender::app("notes", Some("red;}")).color.to_string(), OWN_COLOR, "what is no color");
    }
}
