//! `SKILL.md`.
use std::fmt::Write as _;

use serde_json::Value;
use skillfile::SkillFile;

/// What is read is written in another style, and read as the same again, whatever the ends of its lines.
pub fn skill_file(data: &[u8]) -> bool {
    let Ok(file) = skillfile::read(data) else { return false };
    check(&file);
    let written = write(&file);
    assert_eq!(skillfile::read(written.as_bytes()).as_ref(), Ok(&file), "{written}");
    let text = std::str::from_utf8(data).expect("it was read");
    for other in [text.replace("\r\n", "\n").replace('\n', "\r\n"), text.replace("\r\n", "\n").replace('\n', "\r")] {
        let read = skillfile::read(other.as_bytes()).expect("the ends of lines make no difference");
        assert_eq!(read, file, "{other:?}");
    }
    true
}

pub fn check(file: &SkillFile) {
    assert!(skillfile::is_name(&file.name), "{:?}", file.name);
    let length = file.description.chars().count();
    assert!((1..=1024).contains(&length), "{length}");
    assert!(file.tags.len() <= 10 && file.tags.iter().all(|tag| skillfile::is_name(tag)), "{:?}", file.tags);
    assert!(!file.body.contains(['\0', '\r']), "{:?}", file.body);
    let fields = file.frontmatter.as_object().expect("a list of fields");
    assert!(fields.len() <= 6, "{fields:?}");
}

/// The front matter with every text in quotes.
fn write(file: &SkillFile) -> String {
    let mut yaml = String::from("---\n");
    node(&mut yaml, &file.frontmatter, 0);
    format!("{yaml}---\n{}\n", file.body)
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            ' ' | '!' | '#'..='[' | ']'..='~' if c != '-' => quoted.push(c),
            _ => _ = write!(quoted, "\\U{:08x}", u32::from(c)),
        }
    }
    quoted.push('"');
    quoted
}

fn node(yaml: &mut String, value: &Value, depth: usize) {
    let indent = " ".repeat(depth * 2);
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let _ = writeln!(yaml, "{indent}? {}", quoted(key));
                let _ = write!(yaml, "{indent}:");
                below(yaml, value, depth);
            }
        }
        Value::Array(items) => {
            for item in items {
                let _ = write!(yaml, "{indent}-");
                below(yaml, item, depth);
            }
        }
        _ => {}
    }
}

fn below(yaml: &mut String, value: &Value, depth: usize) {
    match value {
        Value::String(text) => _ = writeln!(yaml, " {}", quoted(text)),
        other => {
            yaml.push('\n');
            node(yaml, other, depth + 1);
        }
    }
}
