//! Filling the templates, and choosing the version for a reader.
use std::collections::HashMap;

use kernel::{
    config::Config,
    crypto,
    fault::{INTERNAL, Result},
    http::Document,
};
use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior, Value, context};
use tenancy::policy::Site;

use super::{DocumentView, IndexEntry, IndexVersion};
use crate::accept::by_weight;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Terms,
    Privacy,
    CookiePolicy,
    Dpa,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Jurisdiction {
    En,
    Eu,
    Uk,
    Us,
}

/// What the reader's program asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Form {
    Json,
    Html,
    Markdown,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Terms, Self::Privacy, Self::CookiePolicy, Self::Dpa];

    fn name(self) -> &'static str {
        match self {
            Self::Terms => "terms",
            Self::Privacy => "privacy",
            Self::CookiePolicy => "cookie-policy",
            Self::Dpa => "dpa",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Terms => "Terms of service",
            Self::Privacy => "Privacy policy",
            Self::CookiePolicy => "Cookie policy",
            Self::Dpa => "Data processing addendum",
        }
    }

    /// The day its text was last changed. Who changes a template changes this.
    fn version(self) -> &'static str {
        match self {
            Self::Terms | Self::Privacy | Self::Dpa => "2026-11-15",
            Self::CookiePolicy => "2026-11-18",
        }
    }

    pub(super) fn exists_for(self, jurisdiction: Jurisdiction) -> bool {
        match self {
            Self::Terms | Self::Privacy => true,
            Self::CookiePolicy => jurisdiction != Jurisdiction::Us,
            Self::Dpa => jurisdiction == Jurisdiction::En,
        }
    }

    fn fill(
        self,
        templates: &Environment<'_>,
        operator: &crate::Operator,
        base_url: &str,
        jurisdiction: &str,
    ) -> Result<String, Error> {
        let operator = context! {
            name => &operator.operator_name,
            address => &operator.operator_address,
            email => &operator.operator_email,
            country => &operator.operator_country,
        };
        let content = context! { operator, base_url, version => self.version(), jurisdiction };
        templates.get_template(self.name())?.render(content)
    }
}

/// Members of the European Union and of the European Economic Area, by country code.
const EEA: [&str; 30] = [
    "at", "be", "bg", "cy", "cz", "de", "dk", "ee", "es", "fi", "fr", "gr", "hr", "hu", "ie", "is", "it", "li", "lt",
    "lu", "lv", "mt", "nl", "no", "pl", "pt", "ro", "se", "si", "sk",
];
/// Languages that, named without a country, are mostly spoken there.
const EEA_LANGUAGES: [&str; 27] = [
    "bg", "cs", "da", "de", "el", "et", "fi", "fr", "ga", "hr", "hu", "is", "it", "lt", "lv", "mt", "nb", "nl", "nn",
    "no", "pl", "ro", "sk", "sl", "sv", "ca", "eu",
];

impl Jurisdiction {
    const ALL: [Self; 4] = [Self::En, Self::Eu, Self::Uk, Self::Us];

    fn name(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::Eu => "eu",
            Self::Uk => "uk",
            Self::Us => "us",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|jurisdiction| jurisdiction.name() == name)
    }

    /// The first language the reader prefers that points to a version that exists; `en` exists always.
    pub(super) fn of_reader(accept_language: &str, exists: impl Fn(Self) -> bool) -> Self {
        by_weight(accept_language).into_iter().filter_map(Self::of_tag).find(|j| exists(*j)).unwrap_or(Self::En)
    }

    fn of_tag(tag: &str) -> Option<Self> {
        let tag = tag.to_ascii_lowercase();
        let mut parts = tag.split('-');
        let language = parts.next()?;
        let country = parts.find(|part| part.len() == 2);
        match country {
            Some("gb") => Some(Self::Uk),
            Some("us") => Some(Self::Us),
            Some(country) if EEA.contains(&country) => Some(Self::Eu),
            None if EEA_LANGUAGES.contains(&language) => Some(Self::Eu),
            _ if language == "en" => Some(Self::En),
            _ => None,
        }
    }
}

impl Form {
    const ALL: [Self; 3] = [Self::Json, Self::Html, Self::Markdown];

    /// Programs get JSON unless they ask for something else; browsers name HTML first.
    pub(super) fn wanted(accept: &str) -> Self {
        let known = by_weight(accept).into_iter().filter_map(|kind| match kind {
            "application/json" | "*/*" => Some(Self::Json),
            "text/html" => Some(Self::Html),
            "text/markdown" => Some(Self::Markdown),
            _ => None,
        });
        known.into_iter().next().unwrap_or(Self::Json)
    }
}

/// The documents by their names, in Markdown, and the page around one. Each is parsed once, and gone when all are filled.
fn templates() -> Environment<'static> {
    let mut templates = Environment::empty();
    templates.set_undefined_behavior(UndefinedBehavior::Strict);
    templates.set_auto_escape_callback(|name| if name == PAGE { AutoEscape::Html } else { AutoEscape::None });
    templates.set_loader(|name| {
        let text = match name {
            "terms" => include_str!("../../templates/legal/terms.md"),
            "privacy" => include_str!("../../templates/legal/privacy.md"),
            "cookie-policy" => include_str!("../../templates/legal/cookie-policy.md"),
            "dpa" => include_str!("../../templates/legal/dpa.md"),
            PAGE => include_str!("../../templates/legal/page.html"),
            _ => return Ok(None),
        };
        Ok(Some(text.to_owned()))
    });
    templates
}

const PAGE: &str = "page.html";

/// Lets the page have the stylesheets and the icon of this server and nothing else.
pub(super) const PAGE_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; \
                                      form-action 'none'; frame-ancestors 'none'";

/// Every document in every version and form.
pub struct Library {
    documents: HashMap<(Kind, Jurisdiction, Form), Document>,
    pub(super) index: Vec<IndexEntry>,
}

impl Library {
    /// Fills every template. A version that cannot be filled is left out and said in the log.
    pub fn render(config: &Config) -> Self {
        let (operator, mut templates) = (config.of::<crate::Operator>(), templates());
        let Site { name, logo, color } = Site::set_in(config);
        templates.add_global("site", context! { name, logo, color });
        let base_url = config.base_url();
        let mut documents = HashMap::new();
        let index = Kind::ALL.map(|kind| {
            let versions = Jurisdiction::ALL.into_iter().filter(|j| kind.exists_for(*j));
            let jurisdictions = versions.filter_map(|jurisdiction| {
                let text = kind.fill(&templates, &operator, &base_url, jurisdiction.name());
                let text =
                    text.inspect_err(|error| tracing::error!(%error, "cannot render a legal document")).ok()?;
                let sha256 = crypto::hash(text.as_bytes());
                for form in Form::ALL {
                    let made = document(&templates, kind, jurisdiction, form, &text, &sha256);
                    documents.insert((kind, jurisdiction, form), made);
                }
                let url = format!("{base_url}/legal/{}?jurisdiction={}", kind.name(), jurisdiction.name());
                Some(IndexVersion { jurisdiction: jurisdiction.name(), sha256, url })
            });
            IndexEntry {
                jurisdictions: jurisdictions.collect(),
                document: kind.name(),
                title: kind.title(),
                version: kind.version(),
                url: format!("{base_url}/legal/{}", kind.name()),
            }
        });
        Self { documents, index: index.into() }
    }

    pub(super) fn get(&self, kind: Kind, jurisdiction: Jurisdiction, form: Form) -> Result<&Document> {
        let found = self.documents.get(&(kind, jurisdiction, form));
        found.ok_or_else(|| INTERNAL.caused_by("the legal document was not rendered"))
    }
}

fn document(
    templates: &Environment<'_>,
    kind: Kind,
    jurisdiction: Jurisdiction,
    form: Form,
    text: &str,
    sha256: &str,
) -> Document {
    let made = match form {
        Form::Markdown => Document::new("text/markdown; charset=utf-8", text.into()),
        Form::Html => {
            let page = page(templates, kind, text);
            let page = page.inspect_err(|error| tracing::error!(%error, "cannot render a page of a legal document"));
            Document::new("text/html; charset=utf-8", page.unwrap_or_default().into_bytes())
        }
        Form::Json => {
            let view = DocumentView {
                document: kind.name(),
                title: kind.title(),
                jurisdiction: jurisdiction.name(),
                version: kind.version(),
                sha256: sha256.to_owned(),
                content: text.to_owned(),
            };
            Document::new("application/json", serde_json::to_vec(&view).unwrap_or_default())
        }
    };
    made.varying("accept, accept-language")
}

fn page(templates: &Environment<'_>, kind: Kind, text: &str) -> Result<String, Error> {
    let mut options = comrak::Options::default();
    options.extension.table = true;
    // The Markdown renderer lets no HTML of the text through.
    let content = Value::from_safe_string(comrak::markdown_to_html(text, &options));
    templates.get_template(PAGE)?.render(context! { title => kind.title(), content })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reader_gets_the_version_of_the_first_language_that_says_where() {
        let all = |_| true;
        for (header, expected) in [
            ("", Jurisdiction::En),
            ("en", Jurisdiction::En),
            ("en-GB,en;q=0.9", Jurisdiction::Uk),
            ("en-US", Jurisdiction::Us),
            ("de", Jurisdiction::Eu),
            ("en-IE", Jurisdiction::Eu),
            ("zh-Hans-CN, fr;q=0.5", Jurisdiction::Eu),
            ("en;q=0.1, en-gb;q=0.9", Jurisdiction::Uk),
            ("de;q=0, en-US;q=0.5", Jurisdiction::Us),
            ("ja, *;q=0.5", Jurisdiction::En),
            ("de;q=banana", Jurisdiction::En),
        ] {
            assert_eq!(Jurisdiction::of_reader(header, all), expected, "{header}");
        }
        let no_us = |j| j != Jurisdiction::Us;
        assert_eq!(Jurisdiction::of_reader("en-US,en;q=0.5", no_us), Jurisdiction::En, "falls back");
    }

    #[test]
    fn a_browser_gets_a_page_and_a_program_gets_json() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        assert_eq!(Form::wanted(browser), Form::Html);
        for program in ["", "*/*", "application/json", "image/png"] {
            assert_eq!(Form::wanted(program), Form::Json, "{program}");
        }
        assert_eq!(Form::wanted("text/markdown"), Form::Markdown);
        assert_eq!(Form::wanted("application/json;q=0.1, text/html;q=0.9"), Form::Html);
    }
}
