//! Words for what templates show: names for people, lengths of time, records.
use data_encoding::BASE64;
use kernel::clock::Timestamp;
use minijinja::{Environment, Error, ErrorKind, Value};

pub fn add_to(environment: &mut Environment<'_>) {
    environment.add_filter("words", words);
    environment.add_filter("left", left);
    environment
        .add_filter("as_picture", |svg: &str| format!("data:image/svg+xml;base64,{}", BASE64.encode(svg.as_bytes())));
    environment.add_filter("pretty", |value: Value| record(&value, true));
    environment.add_filter("compact", |value: Value| record(&value, false));
}

/// `SIGNED_IN` as `Signed in`.
fn words(name: &str) -> String {
    let lower = name.replace(['_', '.'], " ").to_lowercase();
    let mut letters = lower.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
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

fn record(value: &Value, is_pretty: bool) -> Result<String, Error> {
    let text = if is_pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
    text.map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_lengths_of_time_are_in_words() {
        assert_eq!(words("MFA_ENABLED"), "Mfa enabled");
        assert_eq!(words(""), "");
        let left = |until| left(until, "2026-01-31T10:00:00.000Z").expect("moments");
        assert_eq!(left("2026-02-07T10:00:00.000Z"), "7 days");
        assert_eq!(left("2026-02-01T11:30:00.000Z"), "1 day 1 hour");
        assert_eq!(left("2026-01-31T10:00:30.000Z"), "1 minute", "rounded up: nobody has no time left");
    }
}
