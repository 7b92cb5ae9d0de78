//! Words for what templates show: names for people, lengths of time, records.
use data_encoding::BASE64;
use kernel::clock::Timestamp;
use minijinja::{Environment, Error, ErrorKind, Value};
use tenancy::sessions::device_name;

use crate::charts::count;

pub fn add_to(environment: &mut Environment<'_>) {
    environment.add_filter("words", words);
    environment.add_filter("meter", meter);
    environment.add_filter("left", left);
    environment.add_filter("in_zone", in_zone);
    environment.add_filter("day", day);
    environment.add_filter("spaced", spaced);
    environment.add_filter("bytes", bytes);
    environment.add_filter("amount", amount);
    environment.add_filter("method", method);
    environment.add_filter("device", |user_agent: &str| device_name(user_agent));
    environment
        .add_filter("as_picture", |svg: &str| format!("data:image/svg+xml;base64,{}", BASE64.encode(svg.as_bytes())));
    environment.add_filter("pretty", |value: Value| record(&value, true));
    environment.add_filter("compact", |value: Value| record(&value, false));
}

/// `1536` as `1.5 KiB`.
fn bytes(number: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut size, mut unit) = (number, 0);
    while size >= 1024.0 && unit + 1 < units.len() {
        size /= 1024.0;
        unit += 1;
    }
    let places = usize::from(unit > 0 && size < 100.0);
    format!("{size:.places$} {}", units[unit])
}

/// A number of a meter's units: bytes as `1.5 KiB`, anything else as `1,536`.
fn amount(number: f64, unit: &str) -> String {
    if unit == "bytes" { bytes(number) } else { count(number) }
}

/// How somebody signed in, as sessions and events have it: `pwd` as `password`. Other texts stay as they are.
fn method(code: &str) -> String {
    let said = match code {
        "pwd" => "password",
        "mail" => "email link or code",
        "otp" => "authenticator app",
        "sms" => "text message",
        "recovery" => "recovery code",
        "mfa" => "second factor",
        "trusted" => "trusted device",
        "device" => "approved on another device",
        "social" => "provider",
        other => other,
    };
    said.to_owned()
}

/// `SIGN_IN_FAILED` as `Sign-in failed`, `MFA_ENABLED` as `MFA enabled`, `ORG_CREATED` as `Organization created`.
fn words(name: &str) -> String {
    let lower = name.replace(['_', '.'], " ").to_lowercase().replace("sign in", "sign-in");
    let (first, rest) = lower.split_once(' ').unwrap_or((&lower, ""));
    let mut letters = first.chars();
    let first = match first {
        "mfa" | "scim" | "api" | "mcp" => first.to_uppercase(),
        "org" => "Organization".to_owned(),
        _ => letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default(),
    };
    if rest.is_empty() { first } else { format!("{first} {rest}") }
}

/// What a meter counts: `api_calls` as `API calls`.
fn meter(name: &str) -> String {
    if name == "mau" { "Monthly active users".to_owned() } else { words(name) }
}

/// `2026-11-17T14:05:00.000Z` as `2026-11-17 15:05` in the reader's time zone or, where none is known, as `2026-11-17 14:05 UTC`.
fn in_zone(moment: &str, zone: Option<String>) -> String {
    let at = serde_json::from_value::<Timestamp>(moment.into()).ok();
    let local = at.zip(zone).and_then(|(at, zone)| at.short_at(&zone));
    local.unwrap_or_else(|| format!("{} UTC", moment.chars().take(16).collect::<String>().replace('T', " ")))
}

/// `2026-11-07` as `Nov 7`.
fn day(date: &str) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut parts = date.split('-').skip(1).map(|part| part.parse::<usize>().unwrap_or_default());
    let (month, day) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let name = month.checked_sub(1).and_then(|at| MONTHS.get(at)).copied().unwrap_or_default();
    format!("{name} {day}")
}

/// `deviceName` as `device name`.
fn spaced(name: &str) -> String {
    let letters = name.chars().map(|letter| match letter {
        'A'..='Z' => format!(" {}", letter.to_ascii_lowercase()),
        other => other.to_string(),
    });
    letters.collect()
}

/// How long it is until then, in the two largest units.
fn left(until: &str, now: &str) -> Result<String, Error> {
    let read = |text: &str| {
        let wrong = |_| Error::new(ErrorKind::InvalidOperation, format!("{text} is no moment"));
        serde_json::from_value::<Timestamp>(text.into()).map_err(wrong)
    };
    let minutes = read(until)?.since(read(now)?).as_secs().div_ceil(60);
    let units = [(minutes / 1440, "day"), (minutes / 60 % 24, "hour"), (minutes % 60, "minute")];
    let named = units.into_iter().filter(|(count, _)| *count > 0).take(2);
    let named = named.map(|(count, unit)| format!("{count} {unit}{}", if count == 1 { "" } else { "s" }));
    Ok(named.collect::<Vec<_>>().join(" "))
}

/// What the API says about a field, as a sentence for a person. A pattern becomes an example.
pub fn sentence(field: &str, message: &str) -> String {
    let name = field.rsplit('.').next().unwrap_or_default();
    if message.starts_with("must match ") {
        let example = match name {
            "primaryColor" => "Use a hex color such as #1d4ed8.",
            "slug" => "Use lowercase letters, digits and hyphens, for example my-shop.",
            "phone" => "Enter the number with its country code, for example +41446681800.",
            "domain" => "Enter a domain such as app.example.com.",
            _ => "Check the format.",
        };
        return example.to_owned();
    }
    let said = match message {
        "is required" | "must not be empty" => "Fill in this field",
        "must be an email address" => "Enter a valid email",
        "must be a domain such as app.example.com" => "Enter a domain such as app.example.com",
        other => other,
    };
    let mut letters = said.chars();
    let said: String = letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default();
    if said.ends_with(['.', '?', '!']) { said } else { format!("{said}.") }
}

fn record(value: &Value, is_pretty: bool) -> Result<String, Error> {
    let text = if is_pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    text.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_field_is_a_sentence() {
        let cases = [
            ("branding.primaryColor", "must match ^#[0-9a-f]{6}$", "Use a hex color such as #1d4ed8."),
            ("other", "must match ^x$", "Check the format."),
            ("name", "must not be empty", "Fill in this field."),
            ("name", "must have at most 200 characters", "Must have at most 200 characters."),
            ("email", "Enter a valid email.", "Enter a valid email."),
        ];
        for (field, message, expected) in cases {
            assert_eq!(sentence(field, message), expected);
        }
    }

    #[test]
    fn names_and_lengths_of_time_are_in_words() {
        assert_eq!(words("MFA_ENABLED"), "MFA enabled");
        assert_eq!(words("SIGN_IN_FAILED"), "Sign-in failed");
        assert_eq!(
            ["pwd", "otp", "mfa", "github"].map(method),
            ["password", "authenticator app", "second factor", "github"]
        );
        assert_eq!(amount(5_368_709_120.0, "bytes"), "5.0 GiB");
        assert_eq!(amount(1_536.0, "calls"), "1,536");
        assert_eq!(words("MCP_REGISTERED"), "MCP registered");
        assert_eq!(words("ORG_CREATED"), "Organization created");
        assert_eq!(words(""), "");
        assert_eq!((day("2026-11-07").as_str(), spaced("deviceName").as_str()), ("Nov 7", "device name"));
        let moment = "2026-11-17T14:05:00.000Z";
        assert_eq!(in_zone(moment, Some("Europe/Zurich".into())), "2026-11-17 15:05");
        assert_eq!(in_zone(moment, None), "2026-11-17 14:05 UTC");
        let left = |until| left(until, "2026-01-31T10:00:00.000Z").expect("moments");
        assert_eq!(left("2026-02-07T10:00:00.000Z"), "7 days");
        assert_eq!(left("2026-02-01T11:30:00.000Z"), "1 day 1 hour");
        assert_eq!(left("2026-01-31T10:00:30.000Z"), "1 minute", "rounded up: nobody has no time left");
    }
}
