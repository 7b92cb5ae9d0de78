//! Small records of metadata that callers store with an organization or user, changed key by key.
use kernel::fault::{Fault, INVALID, Result};
use serde_json::{Map, Value};

const MOST_KEYS: usize = 50;
const LONGEST_KEY: usize = 100;
const MOST_BYTES: usize = 8 * 1024;

pub type Record = Map<String, Value>;

/// Reads a stored record.
pub fn of(stored: &Value) -> Record {
    stored.as_object().cloned().unwrap_or_default()
}

/// The record with the changes in it, `null` taking a key away; refuses one that would be too much, and says what of
/// it. `name` is what the record is called.
pub fn merge(name: &str, mut record: Record, change: &Record) -> Result<Record> {
    let is_wrong = |key: &&String| key.is_empty() || key.chars().count() > LONGEST_KEY;
    let wrong: Vec<&String> = change.keys().filter(is_wrong).collect();
    if !wrong.is_empty() {
        let say = format!("a key has 1 to {LONGEST_KEY} characters");
        return Err(wrong.into_iter().fold(Fault::from(INVALID), |fault, key| {
            let shown: String = key.chars().take(20).collect();
            fault.and(format!("{name}.{shown}"), "wrong_form", say.clone())
        }));
    }
    for (key, value) in change {
        match value {
            Value::Null => record.remove(key),
            value => record.insert(key.clone(), value.clone()),
        };
    }
    if record.len() > MOST_KEYS {
        let say = format!("would hold {} keys; the most is {MOST_KEYS}", record.len());
        return Err(INVALID.at(name, "too_many", say));
    }
    let bytes = Value::Object(record.clone()).to_string().len();
    if bytes > MOST_BYTES {
        return Err(INVALID.at(name, "too_large", format!("would take {bytes} bytes; the most is {MOST_BYTES}")));
    }
    Ok(record)
}
