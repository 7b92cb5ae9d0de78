//! Log lines: readable on a terminal, JSON otherwise, and one line each for any content.
//!
//! Written by hand instead of taking the library's formatters, because those print a newline that came in with a
//! request as a newline, and a log that can be forged is no log.
use std::{
    fmt::{self, Write as _},
    io::IsTerminal as _,
};

use serde_json::{Map, Value};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    EnvFilter,
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use super::{ABOUT, queue::Queue};
use crate::{
    clock::Clock,
    config::{Config, LogFormat},
};

/// Libraries that call an error what is a visitor's mistake; whoever calls them says what matters.
const QUIET: &str = "webauthn_rs_core=off";

/// Sends log lines to standard error from now on; the error names the wrong setting.
pub fn init(config: &Config) -> Result<(), String> {
    let directives = format!("{QUIET},{}", config.log);
    let filter = EnvFilter::try_new(directives).map_err(|e| format!("log: {e}"))?;
    let terminal = std::io::stderr().is_terminal();
    let lines = match config.log_format {
        LogFormat::Json => Lines::Json,
        LogFormat::Auto if !terminal => Lines::Json,
        LogFormat::Auto | LogFormat::Text => Lines::Text,
    };
    let say_missing: fn(u64) -> String = match lines {
        Lines::Json => |count| Lines::Json.missing(count),
        Lines::Text => |count| Lines::Text.missing(count),
    };
    let queue = Queue::to_stderr(say_missing).map_err(|e| format!("cannot write log lines: {e}"))?;
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || queue.clone());
    // A second start in one process (tests) keeps the first subscriber.
    let _ = tracing::subscriber::set_global_default(subscriber.event_format(lines).finish());
    std::panic::set_hook(Box::new(|panic| {
        let said = panic.payload_as_str().unwrap_or("something that is not text");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "panicked: {said}");
    }));
    Ok(())
}

/// How a line looks.
#[derive(Debug, Clone, Copy)]
pub enum Lines {
    Text,
    Json,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let Fields(mut fields) = fields;
        let message = fields.remove("message").unwrap_or_default();
        if let Ok(about) = ABOUT.try_with(std::sync::Arc::clone) {
            fields.insert("about".into(), about.name().to_string().into());
        }
        let meta = event.metadata();
        self.write(&mut out, *meta.level(), meta.target(), message, fields)
    }
}

impl Lines {
    /// The line that stands for those that were dropped.
    fn missing(self, count: u64) -> String {
        let mut line = String::new();
        let fields = [("dropped".to_owned(), count.into())].into_iter().collect();
        let message = format!("{count} log lines were dropped because the log was not read in time");
        // A text takes everything.
        let _ = self.write(&mut line, Level::WARN, module_path!(), message.into(), fields);
        line
    }

    fn write(
        self,
        out: &mut impl fmt::Write,
        level: Level,
        target: &str,
        message: Value,
        mut fields: Map<String, Value>,
    ) -> fmt::Result {
        let at = Clock::System.now();
        match self {
            Self::Json => {
                let head = [
                    ("at", at.to_string().into()),
                    ("level", level.as_str().into()),
                    ("target", target.into()),
                    ("message", message),
                ];
                // Fields cannot replace what the line itself says.
                fields.extend(head.map(|(name, value)| (name.to_owned(), value)));
                // JSON lets some control characters through that a terminal obeys; inside its strings they can be escaped.
                for c in Value::Object(fields).to_string().chars() {
                    if moves_or_hides(c) { write!(out, "\\u{:04x}", u32::from(c))? } else { out.write_char(c)? }
                }
                writeln!(out)
            }
            Self::Text => {
                let text = message.as_str().unwrap_or_default();
                write!(out, "{at} {level:>5} {}", visible(text))?;
                for (name, value) in &fields {
                    match value {
                        Value::String(text) if plain(text) => write!(out, " {name}={text}")?,
                        Value::String(text) => write!(out, " {name}=\"{}\"", visible(text).replace('"', "\\\""))?,
                        value => write!(out, " {name}={value}")?,
                    }
                }
                writeln!(out)
            }
        }
    }
}

fn plain(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| !c.is_control() && !matches!(c, ' ' | '"' | '=' | '\u{2028}' | '\u{2029}'))
}

/// Control characters, line separators, and what turns the direction of the text around.
fn moves_or_hides(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with everything that moves a cursor, breaks a line or colours a terminal written out.
fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            let _ = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(lines: Lines, text: &str) -> String {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).event_format(lines).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(name = text, shown = %text, debugged = ?text, count = 3, "{text}");
        });
        let bytes = sink.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    const NASTY: &str = "Eve\nERROR forged \u{1b}[31mred\u{1b}[0m \",\"admin\":true\r\u{2028}";

    proptest::proptest! {
        #[test]
        fn a_line_is_one_line_whatever_comes_in(text in "\\PC*|(\\PC|[\u{0}-\u{1f}\u{7f}-\u{9f}\u{2028}\u{2029}])*") {
            for lines in [Lines::Text, Lines::Json] {
                let out = logged(lines, &text);
                let body = out.strip_suffix('\n').expect("it ends its line");
                assert!(!body.contains(moves_or_hides), "{out:?}");
            }
            let line: Value = serde_json::from_str(&logged(Lines::Json, &text)).unwrap();
            assert_eq!(line["name"], text);
        }
    }

    #[test]
    fn nothing_colours_the_terminal_or_forges_a_line() {
        let out = logged(Lines::Text, NASTY);
        assert!(!out.contains(['\u{1b}', '\r', '\u{2028}']) && out.matches('\n').count() == 1, "{out:?}");
    }

    #[test]
    fn a_json_line_is_json_and_keeps_the_text_as_it_was() {
        let line: Value = serde_json::from_str(&logged(Lines::Json, NASTY)).unwrap();
        assert_eq!(
            (line["level"].as_str(), line["count"].as_i64(), &line["admin"]),
            (Some("WARN"), Some(3), &Value::Null)
        );
        assert!(line["name"].as_str().unwrap().starts_with("Eve\nERROR"));
    }
}
