//! What people and programs see: tables, records, JSON, questions.
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use console::Term;
use serde_json::Value;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::{
    failure::{Failure, Result},
    server::now,
};

/// A column of a table: its title, and where its value lies in a row (`user.email`).
pub type Column = (&'static str, &'static str);

#[derive(Clone, Copy)]
pub struct Output {
    pub json: bool,
    /// Whether questions can be asked: standard input and standard error are a terminal.
    pub asks: bool,
    color: bool,
    width: Option<usize>,
}

impl Output {
    pub fn new(json: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let width = || terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
        Self {
            json,
            asks: io::stdin().is_terminal() && io::stderr().is_terminal(),
            color: terminal && !plain,
            width: terminal.then(width),
        }
    }

    /// Whether a progress bar has a place.
    pub fn draws(&self) -> bool {
        !self.json && io::stderr().is_terminal()
    }

    pub fn is_terminal(&self) -> bool {
        self.width.is_some()
    }

    fn styled(&self, code: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub fn dim(&self, text: &str) -> String {
        self.styled("2", text)
    }

    pub fn bold(&self, text: &str) -> String {
        self.styled("1", text)
    }

    pub fn green(&self, text: &str) -> String {
        self.styled("32", text)
    }

    pub fn red(&self, text: &str) -> String {
        self.styled("31", text)
    }

    /// The answer as JSON, or as `plain` says for people.
    pub fn answer(&self, value: &Value, plain: impl FnOnce(&Self)) {
        if self.json { self.json(value) } else { plain(self) }
    }

    pub fn json(&self, value: &Value) {
        let text =
            if self.is_terminal() { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
        line(&text.unwrap_or_default());
    }

    #[expect(clippy::unused_self, reason = "called like the other methods that print")]
    pub fn line(&self, text: &str) {
        line(text);
    }

    /// Something for people beside the answer; nothing with `--json`.
    pub fn note(&self, text: &str) {
        if !self.json {
            error_line(text);
        }
    }

    /// Rows under titles. On a terminal a row is a line: empty columns are left out, wide ones give way, and the last ones
    /// are left out where that is not enough.
    pub fn table(&self, columns: &[Column], rows: &[Value], empty: &str) {
        if rows.is_empty() {
            line(empty);
            return;
        }
        // On a terminal how long ago is enough, and short.
        let cell = |row: &Value, path: &str| {
            let raw = self.width.and_then(|_| path.split('.').fold(row, |value, name| &value[name]).as_str());
            raw.and_then(|text| ago(text, now())).unwrap_or_else(|| text_at(row, path))
        };
        let mut columns = columns.to_vec();
        if self.width.is_some() {
            columns.retain(|(_, path)| rows.iter().any(|row| !cell(row, path).is_empty()));
        }
        let cells: Vec<Vec<String>> =
            rows.iter().map(|row| columns.iter().map(|(_, path)| cell(row, path)).collect()).collect();
        let mut widths: Vec<usize> = columns.iter().map(|(title, _)| title.width()).collect();
        for row in &cells {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        if let Some(width) = self.width {
            widths = fit(&widths, width, &columns);
        }
        let titles: Vec<String> = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
        line(&self.dim(&laid_out(&titles, &widths)));
        for row in &cells {
            line(&laid_out(row, &widths));
        }
    }

    /// The rest of a line on a terminal, of which so many columns are taken.
    pub fn cut(&self, text: &str, taken: usize) -> String {
        self.width.map_or_else(|| text.to_owned(), |width| shortened(text, width.saturating_sub(taken).max(8)))
    }

    /// The fields of one thing, a line each.
    pub fn record(&self, value: &Value, fields: &[Column]) {
        for text in record_lines(value, fields, |title| self.dim(title)) {
            line(&text);
        }
    }

    /// Asks before something is deleted.
    pub fn confirm(&self, yes: bool, question: &str) -> Result<()> {
        if yes {
            return Ok(());
        }
        if !self.asks {
            return Err(Failure::usage(format!("{question} Confirm with --yes.")));
        }
        let answer = ask(&format!("{question} [y/N] "))?;
        if matches!(answer.to_lowercase().as_str(), "y" | "yes") {
            Ok(())
        } else {
            Err(Failure::failed("Cancelled."))
        }
    }

    /// One of several, chosen by number; without a terminal the flag is named instead.
    pub fn choose(&self, what: &str, flag: &str, names: &[String]) -> Result<usize> {
        if !self.asks {
            let listed = names.iter().flat_map(|name| ["\n  ", name.as_ref()]).collect::<String>();
            return Err(Failure::usage(format!("Several {what}s. Choose one with {flag}:{listed}")));
        }
        for (number, name) in names.iter().enumerate() {
            error_line(&format!("  {}  {name}", number + 1));
        }
        let answer = ask(&format!("Which {what}? [1-{}] ", names.len()))?;
        let chosen = answer.parse::<usize>().ok().filter(|number| (1..=names.len()).contains(number));
        chosen.map(|number| number - 1).ok_or_else(|| Failure::usage(format!("Choose a {what} with {flag}.")))
    }
}

pub fn ask(question: &str) -> Result<String> {
    let mut stderr = io::stderr();
    stderr.write_all(question.as_bytes())?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim().to_owned())
}

/// Asks for something that is not shown while it is typed, on a terminal.
pub fn ask_hidden(question: &str) -> Result<String> {
    let terminal = Term::stderr();
    terminal.write_str(question)?;
    // A password may begin or end with a space.
    Ok(terminal.read_secure_line()?)
}

/// Writes a line to standard output. A closed pipe is no failure.
pub fn line(text: &str) {
    let _ = io::stdout().write_all(format!("{text}\n").as_bytes());
}

pub fn error_line(text: &str) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// The value at a path such as `user.email`, as text. Several paths stand one for the other: `domain|hostname`.
pub fn text_at(value: &Value, path: &str) -> String {
    let found = path.split('|').map(|path| path.split('.').fold(value, |value, name| &value[name]));
    let found = found.into_iter().find(|value| !value.is_null());
    found.map(text_of).unwrap_or_default()
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => time(text).unwrap_or_else(|| shown(text)),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        Value::Number(number) => number.to_string(),
        Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join(", "),
        Value::Object(_) => value.to_string(),
    }
}

/// A moment for people, in their time zone.
fn time(text: &str) -> Option<String> {
    if text.len() < 20 || !text.ends_with('Z') {
        return None;
    }
    let moment: jiff::Timestamp = text.parse().ok()?;
    Some(moment.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string())
}

/// How long ago a moment was, or how long it is until then.
fn ago(text: &str, now: i64) -> Option<String> {
    if text.len() < 20 || !text.ends_with('Z') {
        return None;
    }
    let seconds = now.saturating_sub(text.parse::<jiff::Timestamp>().ok()?.as_second());
    let (count, unit) = match seconds.unsigned_abs() {
        0..60 => return Some("now".into()),
        length @ 60..3600 => (length / 60, "m"),
        length @ 3600..172_800 => (length / 3600, "h"),
        length => (length / 86_400, "d"),
    };
    Some(if seconds > 0 { format!("{count}{unit} ago") } else { format!("in {count}{unit}") })
}

/// Names are chosen by others: nothing in them steers the terminal.
pub fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The widths of as many columns as fit. Wide columns give way first, then the last ones are left out.
fn fit(widths: &[usize], width: usize, columns: &[Column]) -> Vec<usize> {
    const WIDE: usize = 20;
    let is_fit = |widths: &[usize]| widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1) <= width;
    for count in (1..=widths.len()).rev() {
        let mut kept = widths[..count].to_vec();
        while !is_fit(&kept) {
            let gives_way = |at: &usize| kept[*at] > WIDE && !is_copied(columns[*at]);
            let Some(widest) = (0..count).filter(gives_way).max_by_key(|at| kept[*at]) else { break };
            kept[widest] -= 1;
        }
        if is_fit(&kept) {
            return kept;
        }
    }
    widths.iter().copied().take(1).collect()
}

/// IDs, slugs and keys are copied into other commands: they stay whole.
fn is_copied((title, path): Column) -> bool {
    ["ID", "Slug", "Key"].contains(&title) || path.ends_with("Id")
}

/// Fields without a value are left out, and take no room.
fn record_lines(value: &Value, fields: &[Column], styled: impl Fn(&str) -> String) -> Vec<String> {
    let texts = fields.iter().map(|(title, path)| (*title, text_at(value, path)));
    let there: Vec<(&str, String)> = texts.filter(|(_, text)| !text.is_empty()).collect();
    let width = there.iter().map(|(title, _)| title.width()).max().unwrap_or(0);
    let padded = |title: &str| format!("{}{}", styled(title), " ".repeat(width - title.width()));
    there.iter().map(|(title, text)| format!("{}  {text}", padded(title))).collect()
}

fn laid_out(cells: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let cell = shortened(cell, *width);
        text.push_str(&cell);
        if at + 1 < widths.len() {
            text.push_str(&" ".repeat(width - cell.width() + 2));
        }
    }
    text.trim_end().to_owned()
}

fn shortened(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        if kept.width() + c.width().unwrap_or(0) + 1 > width {
            break;
        }
        kept.push(c);
    }
    kept + "…"
}

/// Bytes for people.
pub fn bytes(count: u64) -> String {
    indicatif::HumanBytes(count).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_found_by_their_path() {
        let row = json!({ "user": { "email": "ada@example.com" }, "on": true, "tags": ["a", "b"], "none": null });
        assert_eq!(text_at(&row, "user.email"), "ada@example.com");
        assert_eq!(text_at(&row, "on"), "yes");
        assert_eq!(text_at(&row, "tags"), "a, b");
        assert_eq!(text_at(&row, "none|tags"), "a, b");
        assert_eq!(text_at(&row, "nowhere.at.all"), "");
    }

    #[test]
    fn moments_are_short_in_tables() {
        let at = |seconds: i64| ago("2026-01-31T10:00:00.000Z", 1_769_853_600 + seconds);
        let texts = [at(5), at(300), at(7200), at(400_000), at(-300)].map(Option::unwrap);
        assert_eq!(texts, ["now", "5m ago", "2h ago", "4d ago", "in 5m"]);
        assert_eq!(ago("Shop", 0), None);
    }

    #[test]
    fn a_record_has_no_room_for_what_is_absent() {
        let fields: &[Column] = &[("ID", "id"), ("Name", "name"), ("Verification", "state")];
        let lines = record_lines(&json!({ "id": 7, "name": "Shop", "state": null }), fields, str::to_owned);
        assert_eq!(lines, ["ID    7", "Name  Shop"]);
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(text_at(&json!({ "name": "\u{1b}[2Jx\n" }), "name"), "\u{fffd}[2Jx\u{fffd}");
    }

    #[test]
    fn wide_columns_give_way_then_the_last_ones_and_ids_stay_whole() {
        const COLUMNS: &[Column] = &[("ID", "id"), ("Name", "name"), ("Role", "role"), ("Slug", "slug")];
        assert_eq!(fit(&[36, 40, 10], 80, &COLUMNS[..3]), [36, 30, 10]);
        assert_eq!(fit(&[36, 12, 10], 80, &COLUMNS[..3]), [36, 12, 10]);
        // A name of 20 characters is still told apart; below that the last column goes, and the name grows again.
        assert_eq!(fit(&[36, 40, 21], 80, &COLUMNS[..3]), [36, 20, 20]);
        assert_eq!(fit(&[36, 40, 10, 30], 80, COLUMNS), [36, 30, 10]);
        assert_eq!(fit(&[36, 8, 8, 25], 80, COLUMNS), [36, 8, 8], "a slug is shown whole or not at all");
        assert_eq!(fit(&[36, 40], 20, COLUMNS), [36], "the ID goes over the edge rather than being cut");
        assert_eq!(shortened("Größenwahn", 6), "Größe…");
        let cells = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(laid_out(&cells, &[3, 3, 3]), "a    b    c");
        assert_eq!(laid_out(&cells, &[3, 3]), "a    b");
    }
}
