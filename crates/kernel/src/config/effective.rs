//! The settings in effect and their sources, for `janua config --effective`.
use std::fmt;

use serde::Serialize;
use url::Url;

use super::{Config, section::Source};

/// A setting with its value in effect. The value of a secret is not in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Effective {
    pub name: String,
    /// `None` for a secret.
    pub value: Option<String>,
    pub is_set: bool,
    /// `default`, `file`, `variable` or `flag`.
    pub source: &'static str,
    /// The environment variable that the value comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
}

impl Effective {
    pub(super) fn new(name: &str, text: &str, source: Source, is_secret: bool) -> Self {
        let text = text.trim();
        let (source_name, variable) = match source {
            Source::Default => ("default", None),
            Source::File => ("file", None),
            Source::Variable | Source::BareVariable => ("variable", Some(source.name(name))),
            Source::Flag => ("flag", None),
        };
        let value = (!is_secret && !has_credentials(text)).then(|| text.to_owned());
        Self { name: name.to_owned(), value, is_set: !text.is_empty(), source: source_name, variable }
    }
}

/// Whether a text is a list of URLs of which one has a user name or a password.
fn has_credentials(text: &str) -> bool {
    text.split(',').any(|part| {
        // `provider_endpoints` has names before its URLs.
        let start = part.find("://").map_or(0, |end| part[..end].rfind('=').map_or(0, |equals| equals + 1));
        Url::parse(part[start..].trim()).is_ok_and(|url| !url.username().is_empty() || url.password().is_some())
    })
}

/// Fills in the values that follow from other settings where a setting is empty.
pub(super) fn derive(settings: &mut [Effective], config: &Config) {
    for setting in settings.iter_mut().filter(|setting| !setting.is_set) {
        match setting.name.as_str() {
            "base_url" => setting.value = Some(config.base_url()),
            "database_url" => setting.value = Some(config.database_url().expose().to_owned()),
            _ => {}
        }
    }
}

/// One line for a person: `name = value  (source)`.
impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = match (&self.value, self.is_set) {
            (Some(value), _) if value.is_empty() => "(empty)",
            (Some(value), _) => value,
            (None, true) => "set",
            (None, false) => "not set",
        };
        write!(f, "{} = {value}  ({}", self.name, self.source)?;
        match &self.variable {
            Some(variable) => write!(f, " {variable})"),
            None => write!(f, ")"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Listed;

    crate::settings! {
        /// Of a feature.
        pub struct Weather {
            /// A key.
            weather_key: Option<crate::crypto::Secret> = "";
            /// Where to ask.
            weather_url: Option<Url> = "";
        }
    }
    const SECTIONS: &[Listed] = &[Listed::of::<Weather>().bare(&["WEATHER_KEY"])];

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    fn effective(file: &str, variables: &[(String, String)], flags: &[(String, String)]) -> Vec<Effective> {
        Config::load_with_sources(Some(file), variables.to_vec(), flags.to_vec(), SECTIONS).unwrap().1
    }

    fn line(settings: &[Effective], name: &str) -> String {
        settings.iter().find(|setting| setting.name == name).unwrap().to_string()
    }

    #[test]
    fn every_setting_is_there_with_its_source() {
        let settings = effective(
            "workers = 3\nlog = \"warn\"",
            &[pair("JANUA_LOG", "debug"), pair("JANUA_DATA_DIR", "/srv/janua"), pair("HOME", "/root")],
            &[pair("listen", "127.0.0.1:1")],
        );
        let names: Vec<&str> = settings.iter().map(|setting| setting.name.as_str()).collect();
        let reference: Vec<&str> = Config::reference(SECTIONS).iter().map(|row| row.name).collect();
        assert_eq!(names, reference);
        assert_eq!(line(&settings, "workers"), "workers = 3  (file)");
        assert_eq!(line(&settings, "log"), "log = debug  (variable JANUA_LOG)");
        assert_eq!(line(&settings, "listen"), "listen = 127.0.0.1:1  (flag)");
        assert_eq!(line(&settings, "request_timeout"), "request_timeout = 30s  (default)");
        assert_eq!(line(&settings, "base_url"), "base_url = http://localhost:1  (default)", "it follows from listen");
        assert_eq!(line(&settings, "database_url"), "database_url = sqlite:/srv/janua/janua.db  (default)");
        assert_eq!(line(&settings, "sms_from"), "sms_from = (empty)  (default)");
    }

    #[test]
    fn a_secret_is_only_said_to_be_set() {
        let settings = effective(
            "smtp_url = \"smtps://u:hunter2@mail\"",
            &[
                pair("WEATHER_KEY", "hunter2"),
                pair("JANUA_DATABASE_URL", "postgres://u:hunter2@h/d"),
                pair("JANUA_WEATHER_URL", "https://hunter2@weather.example"),
            ],
            &[pair("metrics_token", "hunter2")],
        );
        let json = serde_json::to_string(&settings).unwrap();
        let text = settings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(!json.contains("hunter2") && !text.contains("hunter2"), "{json}\n{text}");
        assert_eq!(line(&settings, "smtp_url"), "smtp_url = set  (file)");
        let variables = [pair("WEATHER_KEY", "hunter2"), pair("JANUA_WEATHER_URL", "https://weather.example")];
        let weather = Config::load(None, variables, [], SECTIONS).unwrap().of::<Weather>();
        assert!(weather.weather_key.is_some() && weather.weather_url.is_some(), "they are settings like all others");
        assert_eq!(line(&settings, "weather_key"), "weather_key = set  (variable WEATHER_KEY)");
        assert_eq!(line(&settings, "weather_url"), "weather_url = set  (variable JANUA_WEATHER_URL)");
        assert_eq!(line(&settings, "master_key"), "master_key = not set  (default)");
    }
}
