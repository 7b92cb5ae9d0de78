//! Rules about objects: names, metadata, types, and how each type is shown.
use std::collections::BTreeMap;

use kernel::fault::{Fault, INVALID, Result};
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use unicode_normalization::UnicodeNormalization as _;

const LONGEST_NAME: usize = 512;
const MOST_KEYS: usize = 16;
const MOST_BYTES: usize = 4 * 1024;
const LONGEST_TYPE: usize = 127;

/// Findings about several fields of one request.
#[derive(Default)]
pub struct Findings(Option<Fault>);

impl Findings {
    pub fn say(&mut self, field: &str, code: &'static str, message: impl Into<String>) {
        let fault = self.0.take().unwrap_or_else(|| INVALID.into());
        self.0 = Some(fault.and(field, code, message));
    }

    pub fn end(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

/// A name in its one normal form (NFC). It is a label and never a path.
pub fn name(text: &str, findings: &mut Findings) -> String {
    let name: String = text.nfc().collect();
    if !(1..=LONGEST_NAME).contains(&name.len()) {
        findings.say("name", "wrong_length", format!("must have 1 to {LONGEST_NAME} bytes"));
    } else if name.starts_with('/') || name.split('/').any(|part| part == ".." || part == ".") {
        findings.say("name", "wrong_form", "must not begin with / or contain . or .. between slashes");
    } else if name.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\\')) || is_bidi(&name) {
        findings.say("name", "wrong_form", "must not contain control characters or \\");
    }
    name
}

/// Characters that turn the direction of text around make `exe.gnp` look like `png.exe`.
fn is_bidi(name: &str) -> bool {
    name.chars().any(|c| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
}

/// Metadata after a change: `null` deletes a key.
pub fn merge(
    mut before: Map<String, Value>,
    change: &BTreeMap<String, Option<String>>,
    findings: &mut Findings,
) -> Value {
    for (key, value) in change {
        if key.is_empty() || key.len() > 64 {
            let shown: String = key.chars().take(20).collect();
            findings.say(&format!("metadata.{shown}"), "wrong_length", "a key has 1 to 64 bytes");
        }
        match value {
            Some(value) => before.insert(key.clone(), Value::String(value.clone())),
            None => before.remove(key),
        };
    }
    if before.len() > MOST_KEYS {
        findings.say("metadata", "too_many", format!("must have at most {MOST_KEYS} keys"));
    }
    let merged = Value::Object(before);
    if merged.to_string().len() > MOST_BYTES {
        findings.say("metadata", "too_large", format!("must have at most {MOST_BYTES} bytes"));
    }
    merged
}

/// `type/subtype` in lower case, without parameters.
pub fn content_type(text: &str, findings: &mut Findings) -> String {
    let is_token =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b));
    let essence = text.trim().to_ascii_lowercase();
    let is_type = essence.split_once('/').is_some_and(|(kind, name)| is_token(kind) && is_token(name));
    if !is_type || essence.len() > LONGEST_TYPE {
        findings.say("contentType", "wrong_form", "must be a media type without parameters, such as image/png");
    }
    essence
}

/// Whether an app's setting `storage.allowedTypes` (such as `image/*`) allows a type. Without the setting all are.
pub fn is_allowed(settings: &Value, content_type: &str) -> bool {
    let Some(allowed) = settings["storage"]["allowedTypes"].as_array() else { return true };
    allowed.iter().filter_map(Value::as_str).any(|pattern| match pattern.strip_suffix("/*") {
        Some(kind) => kind == "*" || content_type.split_once('/').is_some_and(|(this, _)| this == kind),
        None => pattern.eq_ignore_ascii_case(content_type),
    })
}

/// The families whose bytes must agree with what they claim to be.
fn family(content_type: &str) -> Option<&'static str> {
    match content_type.split_once('/')? {
        ("image", "svg+xml") => None,
        ("image", _) => Some("image"),
        ("audio" | "video", _) => Some("media"),
        ("application", "pdf") => Some("pdf"),
        _ => None,
    }
}

/// What the first bytes of a file say it is, if that contradicts the claimed type. A type of a family that the library
/// does not know cannot be contradicted; such a file is never shown inline.
pub fn contradiction(claimed: &str, first: &[u8]) -> Option<String> {
    let wanted = family(claimed)?;
    match infer::get(first) {
        Some(found) => {
            let is_same = match wanted {
                "image" => is_image_alias(claimed, found.mime_type()),
                _ => family(found.mime_type()) == Some(wanted),
            };
            (!is_same).then(|| found.mime_type().to_owned())
        }
        None => infer::is_mime_supported(claimed).then(|| "application/octet-stream".to_owned()),
    }
}

fn is_image_alias(claimed: &str, found: &str) -> bool {
    let plain = |name: &str| match name {
        "image/jpg" | "image/pjpeg" => "image/jpeg".to_owned(),
        "image/x-icon" => "image/vnd.microsoft.icon".to_owned(),
        "image/heic" | "image/heic-sequence" | "image/heif-sequence" => "image/heif".to_owned(),
        "image/apng" => "image/png".to_owned(),
        name => name.to_owned(),
    };
    plain(claimed) == plain(found)
}

/// How a type is shown to whoever opens it on our origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Showing {
    /// In the page, without any right.
    Inline,
    /// As [`Inline`](Self::Inline); browsers' viewers of this type do not work in a sandbox.
    InlineDocument,
    /// Saved to a file.
    Attachment,
}

impl Showing {
    /// Only types that cannot run anything, whose bytes were checked.
    pub fn of(content_type: &str) -> Self {
        match content_type {
            "image/png" | "image/jpeg" | "image/gif" | "image/webp" | "image/avif" | "text/plain" => Self::Inline,
            "application/pdf" => Self::InlineDocument,
            other if family(other) == Some("media") && infer::is_mime_supported(other) => Self::Inline,
            _ => Self::Attachment,
        }
    }

    pub fn policy(self) -> &'static str {
        match self {
            Self::InlineDocument => "default-src 'none'; object-src 'self'; style-src 'unsafe-inline'",
            Self::Inline | Self::Attachment => "sandbox; default-src 'none'",
        }
    }
}

/// `Content-Disposition` with a name for old and for new clients (RFC 6266).
pub fn disposition(showing: Showing, name: &str) -> String {
    const ATTRIBUTE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    let kind = if showing == Showing::Attachment { "attachment" } else { "inline" };
    // The last part: a name may look like a path, and is saved as a file.
    let file = name.rsplit('/').next().filter(|file| !file.is_empty()).unwrap_or("file");
    let plain: String =
        file.chars().map(|c| if c.is_ascii_graphic() && !"\"\\;%".contains(c) { c } else { '_' }).collect();
    format!("{kind}; filename=\"{plain}\"; filename*=UTF-8''{}", utf8_percent_encode(file, ATTRIBUTE))
}

/// A name as a part of a URL's path.
pub fn in_path(name: &str) -> String {
    const PATH: &AsciiSet = &CONTROLS
        .add(b' ')
        .add(b'"')
        .add(b'#')
        .add(b'%')
        .add(b'<')
        .add(b'>')
        .add(b'?')
        .add(b'`')
        .add(b'{')
        .add(b'}')
        .add(b'/')
        .add(b'\\')
        .add(b'^')
        .add(b'|')
        .add(b'[')
        .add(b']');
    let file = name.rsplit('/').next().filter(|file| !file.is_empty()).unwrap_or("file");
    utf8_percent_encode(file, PATH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_name(text: &str) -> bool {
        let mut findings = Findings::default();
        name(text, &mut findings);
        findings.end().is_ok()
    }

    #[test]
    fn a_name_is_a_label_and_never_a_path_out() {
        for good in
            ["a", "photo.png", "2026/11/photo.png", "Übersicht.pdf", "a..b", "...", "日本語.txt", &"x".repeat(512)]
        {
            assert!(is_name(good), "{good:?}");
        }
        for bad in [
            "",
            "/etc/passwd",
            "..",
            "a/../b",
            "a/..",
            "./a",
            "a\nb",
            "a\0",
            "a\\b",
            "gnp.\u{202e}exe",
            &"x".repeat(513),
        ] {
            assert!(!is_name(bad), "{bad:?}");
        }
        assert_eq!(name("u\u{308}", &mut Findings::default()), "ü", "one form for what looks the same");
    }

    #[test]
    fn bytes_must_agree_with_a_type_that_is_shown() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        assert_eq!(contradiction("image/png", png), None);
        assert_eq!(contradiction("image/jpeg", png), Some("image/png".into()));
        assert_eq!(contradiction("image/png", b"<html><script>"), Some("text/html".into()));
        assert_eq!(contradiction("image/png", b"plain words"), Some("application/octet-stream".into()));
        assert_eq!(contradiction("application/pdf", b"%PDF-1.7"), None);
        assert_eq!(contradiction("application/pdf", png), Some("image/png".into()));
        assert_eq!(contradiction("text/html", png), None, "what is never shown may be anything");
        assert_eq!(contradiction("image/x-unheard-of", b"plain words"), None);
        assert_eq!(Showing::of("image/x-unheard-of"), Showing::Attachment);
        for risky in
            ["text/html", "image/svg+xml", "application/xml", "text/javascript", "application/xhtml+xml", "x/y"]
        {
            assert_eq!(Showing::of(risky), Showing::Attachment, "{risky}");
        }
    }

    #[test]
    fn a_file_name_cannot_break_out_of_its_header() {
        let said = disposition(Showing::Attachment, "dir/a\"b;ü%.txt");
        assert_eq!(said, "attachment; filename=\"a_b___.txt\"; filename*=UTF-8''a%22b%3B%C3%BC%25.txt");
        assert_eq!(in_path("2026/a b?.png"), "a%20b%3F.png");
    }

    #[test]
    fn an_app_may_allow_some_types_only() {
        let settings = serde_json::json!({ "storage": { "allowedTypes": ["image/*", "application/pdf"] } });
        assert!(is_allowed(&settings, "image/png") && is_allowed(&settings, "application/pdf"));
        assert!(!is_allowed(&settings, "text/html") && !is_allowed(&settings, "imagex/png"));
        assert!(is_allowed(&serde_json::json!({}), "text/html"));
    }
}
