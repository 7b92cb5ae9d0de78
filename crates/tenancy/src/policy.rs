//! What the operator decides for the whole installation: who may build on it, and what it is called and looks like.
use std::{fmt, fs, sync::Arc};

use kernel::{
    Janua,
    config::{Config, Setting},
    settings,
};

settings! {
    /// Who may build, and the name, logo and color of the installation.
    pub struct Policy {
        /// Who may create apps and organizations: `everyone`, `members` (people who belong to an organization or are invited
        /// to one) or `owners` (platform owners). Other people see their account and no console.
        builders: Builders = "everyone";
        /// The name of this installation on pages and in mails.
        site_name: SiteName = "Janua";
        /// Its logo on pages and in mails: a PNG, JPEG or WebP file of up to 200 kB.
        site_logo: Option<SiteLogo> = "";
        /// Its color on pages and in mails, as in #1d4ed8.
        site_color: Option<SiteColor> = "";
    }
}

/// Who may create apps and organizations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Builders {
    Everyone,
    Members,
    Owners,
}

impl Setting for Builders {
    fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "everyone" => Ok(Self::Everyone),
            "members" => Ok(Self::Members),
            "owners" => Ok(Self::Owners),
            _ => Err("must be everyone, members or owners".into()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteName(pub String);

impl Setting for SiteName {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let is_right = (1..=60).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        if is_right { Ok(Self(text.to_owned())) } else { Err("must have 1 to 60 characters".into()) }
    }
}

/// Six digits in lower case, without `#`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteColor(pub String);

impl Setting for SiteColor {
    fn parse(text: &str) -> Result<Self, String> {
        let digits = text.trim().strip_prefix('#').unwrap_or_default().to_ascii_lowercase();
        let is_right = digits.len() == 6 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if is_right { Ok(Self(digits)) } else { Err("must be a color as in #1d4ed8".into()) }
    }
}

/// A picture that was read at the start.
#[derive(Clone)]
pub struct SiteLogo {
    pub content_type: &'static str,
    pub bytes: Arc<[u8]>,
    ending: &'static str,
}

impl fmt::Debug for SiteLogo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.content_type, self.bytes.len())
    }
}

const LARGEST_LOGO: usize = 200_000;

impl Setting for SiteLogo {
    fn parse(text: &str) -> Result<Self, String> {
        let path = text.trim();
        let bytes = fs::read(path).map_err(|error| format!("cannot read {path}: {error}"))?;
        let (content_type, ending) = match bytes.as_slice() {
            [0x89, b'P', b'N', b'G', ..] => ("image/png", "png"),
            [0xff, 0xd8, 0xff, ..] => ("image/jpeg", "jpg"),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => ("image/webp", "webp"),
            _ => return Err(format!("{path} must be a PNG, JPEG or WebP picture")),
        };
        if bytes.len() > LARGEST_LOGO {
            return Err(format!("{path} must have at most {LARGEST_LOGO} bytes"));
        }
        Ok(Self { content_type, bytes: bytes.into(), ending })
    }
}

impl SiteLogo {
    /// Its name under `/assets/`.
    pub fn file_name(&self) -> String {
        format!("site-logo.{}", self.ending)
    }
}

/// The installation as pages and mails show it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Site {
    pub name: String,
    /// The path of its logo on this server.
    pub logo: Option<String>,
    /// Six digits, without `#`.
    pub color: Option<String>,
}

impl Site {
    pub fn of(janua: &Janua) -> Self {
        Self::set_in(&janua.config)
    }

    pub fn set_in(config: &Config) -> Self {
        let policy = config.of::<Policy>();
        Self {
            name: policy.site_name.0.clone(),
            logo: policy.site_logo.as_ref().map(|logo| format!("/assets/{}", logo.file_name())),
            color: policy.site_color.as_ref().map(|color| color.0.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_values_are_named() {
        assert_eq!(Builders::parse("members").unwrap(), Builders::Members);
        assert_eq!(Builders::parse("all").unwrap_err(), "must be everyone, members or owners");
        assert_eq!(SiteColor::parse("#1D4ED8").unwrap().0, "1d4ed8");
        for wrong in ["1d4ed8", "#fff", "red", "#12345g"] {
            assert!(SiteColor::parse(wrong).is_err(), "{wrong}");
        }
        assert!(SiteName::parse("").is_err() && SiteName::parse(&"x".repeat(61)).is_err());
        assert!(SiteLogo::parse("/nowhere/logo.png").unwrap_err().contains("cannot read /nowhere/logo.png"));
        let file = std::env::temp_dir().join("janua-no-logo");
        fs::write(&file, "<svg>").unwrap();
        assert!(SiteLogo::parse(file.to_str().unwrap()).unwrap_err().contains("must be a PNG, JPEG or WebP"));
        fs::write(&file, [0x89, b'P', b'N', b'G', 13]).unwrap();
        assert_eq!(SiteLogo::parse(file.to_str().unwrap()).unwrap().file_name(), "site-logo.png");
        fs::remove_file(file).unwrap();
    }
}
