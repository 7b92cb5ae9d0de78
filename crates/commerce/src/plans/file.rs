//! Reading a TOML table with every wrong key and value named by its path.
use toml::{Table, Value};

/// The findings so far.
#[derive(Default)]
pub struct Findings(pub Vec<String>);

impl Findings {
    pub fn say(&mut self, path: &str, what: impl AsRef<str>) {
        self.0.push(format!("{path}: {}", what.as_ref()));
    }
}

/// A table at its path. What is left in it when everything known was taken is unknown.
pub struct Section {
    pub path: String,
    table: Table,
    known: Vec<&'static str>,
}

impl Section {
    pub fn new(path: impl Into<String>, table: Table) -> Self {
        Self { path: path.into(), table, known: vec![] }
    }

    /// A value that is to be a table.
    pub fn of(path: String, value: Value, findings: &mut Findings) -> Option<Self> {
        match value {
            Value::Table(table) => Some(Self::new(path, table)),
            other => {
                findings.say(&path, format!("must be a table, not {}", other.type_str()));
                None
            }
        }
    }

    pub fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.table.remove(key)
    }

    /// The tables below a key, by their names.
    pub fn tables(&mut self, key: &'static str, findings: &mut Findings) -> Vec<(String, Self)> {
        let path = self.path(key);
        let Some(below) = self.take(key).and_then(|value| Self::of(path.clone(), value, findings)) else {
            return vec![];
        };
        let each = below.table.into_iter();
        each.filter_map(|(name, value)| {
            Self::of(format!("{path}.{name}"), value, findings).map(|section| (name, section))
        })
        .collect()
    }

    /// The tables of an array.
    pub fn list(&mut self, key: &'static str, findings: &mut Findings) -> Vec<Self> {
        let path = self.path(key);
        match self.take(key) {
            None => vec![],
            Some(Value::Array(values)) => {
                let each = values.into_iter().enumerate();
                each.filter_map(|(place, value)| Self::of(format!("{path}[{place}]"), value, findings)).collect()
            }
            Some(other) => {
                findings.say(&path, format!("must be written as [[{path}]], not {}", other.type_str()));
                vec![]
            }
        }
    }

    /// A value read by `read`, whose error says what it must be.
    pub fn read<T>(
        &mut self,
        key: &'static str,
        findings: &mut Findings,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.take(key)?;
        read(&value).map_err(|what| findings.say(&self.path(key), what)).ok()
    }

    /// Everything that is left, with its path. The caller reads it.
    pub fn rest(self) -> Vec<(String, String, Value)> {
        let path = self.path;
        let each = self.table.into_iter();
        each.map(|(key, value)| (format!("{path}.{key}"), key, value)).collect()
    }

    /// Names what is left as unknown.
    pub fn end(self, findings: &mut Findings) {
        for key in self.table.keys() {
            let near = self
                .known
                .iter()
                .max_by(|a, b| strsim::jaro_winkler(a, key).total_cmp(&strsim::jaro_winkler(b, key)));
            let hint = near.filter(|near| strsim::jaro_winkler(near, key) > 0.8);
            let hint = hint.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            findings.say(&self.path(key), format!("there is no such key{hint}"));
        }
    }
}

pub fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) if !text.trim().is_empty() => Ok(text.clone()),
        Value::String(_) => Err("must not be empty".into()),
        other => Err(format!("must be a text in quotes, not {}", other.type_str())),
    }
}

pub fn truth(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "must be true or false".into())
}

/// A whole number that is not negative.
pub fn amount(value: &Value) -> Result<i64, String> {
    value.as_integer().filter(|number| *number >= 0).ok_or_else(|| "must be a whole number from 0 on".into())
}

/// A whole number, or a size such as `"50 GiB"`.
pub fn size(value: &Value) -> Result<i64, String> {
    let wrong = || "must be a whole number from 0 on, or a size such as \"50 GiB\"".to_owned();
    let Value::String(text) = value else { return amount(value).map_err(|_| wrong()) };
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let unit: i64 = match text[digits.len()..].trim() {
        "B" | "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(wrong()),
    };
    digits.trim().parse::<i64>().ok().filter(|n| *n >= 0).and_then(|n| n.checked_mul(unit)).ok_or_else(wrong)
}

/// A price in minor units with up to twelve places, such as `"0.04"`.
pub fn decimal(value: &Value) -> Result<String, String> {
    let wrong = || "must be a decimal number in quotes, such as \"0.04\"".to_owned();
    let text = value.as_str().ok_or_else(wrong)?;
    let (whole, places) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |part: &str, most| (1..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    if is_number(whole, 15) && is_number(places, 12) { Ok(text.to_owned()) } else { Err(wrong()) }
}

/// A name of a meter, a plan or a property.
pub fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}
