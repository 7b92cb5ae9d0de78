//! `SKILL.md` of a skill, and the limits of a package. The server that publishes a skill and the command that checks one
//! beforehand read it by the same rules.
//!
//! The front matter is YAML between two lines of `---`. It is read as the Agent Skills specification says, and refused where
//! two readers could see two different texts.
use granit_parser::{Event, Parser, ScalarStyle, StructureStyle};
use serde_json::{Map, Value};

/// The file that makes a folder a skill.
pub const SKILL_MD: &str = "SKILL.md";

/// Limits of a package: bytes of the archive, of all files and of one file, how many files, and how deep they lie.
pub const LARGEST_PACKAGE: usize = 5 << 20;
pub const LARGEST_UNPACKED: u64 = 20 << 20;
pub const LARGEST_FILE: u64 = 2 << 20;
pub const MOST_FILES: u64 = 1000;
pub const DEEPEST_FOLDER: usize = 8;

const LONGEST_NAME: usize = 64;
const LONGEST_PATH: usize = 200;

/// Lower-case letters and digits, with single hyphens between them.
pub fn is_name(name: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    name.len() <= LONGEST_NAME && name.split('-').all(is_part)
}

/// What is wrong with the path of a file in a package.
pub fn wrong_path(path: &str) -> Option<&'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._ @+-/".contains(c);
    if path.len() > LONGEST_PATH || !path.chars().all(is_plain) {
        Some("The name must be at most 200 letters, digits, spaces and . _ @ + - characters.")
    } else if path.split('/').count() > DEEPEST_FOLDER + 1 {
        Some("The name is more than 8 folders deep.")
    } else {
        None
    }
}

/// The fields that the specification allows.
const FIELDS: [&str; 6] = ["allowed-tools", "compatibility", "description", "license", "metadata", "name"];
const LONGEST_DESCRIPTION: usize = 1024;
const LONGEST_COMPATIBILITY: usize = 500;
const LONGEST_TEXT: usize = 1024;
/// More than any front matter needs.
const LONGEST: usize = 64 * 1024;
const DEEPEST: usize = 8;
const MOST_NODES: usize = 2000;

/// A field that is wrong: its name, a code and a sentence.
pub type Wrong = (String, &'static str, String);

/// What `SKILL.md` says.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillFile {
    pub name: String,
    pub description: String,
    pub license: Option<String>,
    pub version: Option<String>,
    pub tags: Vec<String>,
    pub allowed_tools: Vec<String>,
    /// The front matter as JSON. Every scalar is a text.
    pub frontmatter: Value,
    /// The Markdown after it.
    pub body: String,
}

fn wrong(field: &str, code: &'static str, message: impl Into<String>) -> Wrong {
    (field.to_owned(), code, message.into())
}

/// Reads the bytes of `SKILL.md`, or says everything that is wrong with it.
pub fn read(bytes: &[u8]) -> Result<SkillFile, Vec<Wrong>> {
    let only = |code, message: &str| vec![wrong("SKILL.md", code, message)];
    let text = std::str::from_utf8(bytes).map_err(|_| only("not_utf8", "must be UTF-8"))?;
    if text.starts_with('\u{feff}') {
        return Err(only("byte_order_mark", "must not begin with a byte order mark"));
    }
    if text.contains('\0') {
        return Err(only("control_character", "must not have NUL characters"));
    }
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (yaml, body) = split(&text).map_err(|(code, message)| only(code, message))?;
    let fields = parse(yaml).map_err(|message| only("invalid_yaml", &message))?;
    check(fields, body)
}

/// The YAML and the text after it.
fn split(text: &str) -> Result<(&str, &str), (&'static str, &'static str)> {
    const AMBIGUOUS: (&str, &str) = (
        "ambiguous_frontmatter",
        "the front matter must have `---` on its first and its last line, and nowhere else",
    );
    let Some(rest) = text.strip_prefix("---") else {
        return Err(("no_frontmatter", "must begin with front matter (a line of ---)"));
    };
    let (first, rest) = rest.split_once('\n').ok_or(("no_end", "the front matter must end with a line of ---"))?;
    if !first.trim().is_empty() {
        return Err(AMBIGUOUS);
    }
    // Readers that cut at any `---` must find the same end.
    let at = rest.find("---").ok_or(("no_end", "the front matter must end with a line of ---"))?;
    let is_line_start = at == 0 || rest.as_bytes()[at - 1] == b'\n';
    let (line, body) = rest[at + 3..].split_once('\n').unwrap_or((&rest[at + 3..], ""));
    if !is_line_start || !line.trim().is_empty() {
        return Err(AMBIGUOUS);
    }
    let yaml = &rest[..at];
    if yaml.len() > LONGEST {
        return Err(("too_long", "the front matter must be at most 64 kB"));
    }
    Ok((yaml, body.trim()))
}

type Fields = Vec<(String, Value)>;

/// A mapping or a list that is not complete.
enum Open {
    Map { fields: Map<String, Value>, key: Option<String> },
    List(Vec<Value>),
}

/// Reads one mapping in block style. Anchors, aliases, tags, flow style and repeated keys are refused.
fn parse(yaml: &str) -> Result<Fields, String> {
    let (mut open, mut whole, mut nodes) = (Vec::<Open>::new(), None, 0);
    for event in Parser::new_from_str(yaml) {
        let (event, span) = event.map_err(|error| format!("must be YAML: {error}"))?;
        nodes += 1;
        if nodes > MOST_NODES || open.len() > DEEPEST {
            return Err("has too many values".into());
        }
        let done = match event {
            Event::Scalar(text, style, anchor, tag) => {
                refuse_extras(anchor, tag.is_some())?;
                let is_key = matches!(open.last(), Some(Open::Map { key: None, .. }));
                if is_key && matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) {
                    return Err("must have plain keys".into());
                }
                // The parser writes a missing value as `~`.
                let is_empty = span.start.index() == span.end.index();
                Value::String(if is_empty { String::new() } else { text.into_owned() })
            }
            Event::MappingStart(style, anchor, tag) => {
                refuse_extras(anchor, tag.is_some())?;
                refuse_flow(style)?;
                open.push(Open::Map { fields: Map::new(), key: None });
                continue;
            }
            Event::SequenceStart(style, anchor, tag) => {
                refuse_extras(anchor, tag.is_some())?;
                refuse_flow(style)?;
                open.push(Open::List(vec![]));
                continue;
            }
            Event::MappingEnd | Event::SequenceEnd => match open.pop() {
                Some(Open::Map { fields, .. }) => Value::Object(fields),
                Some(Open::List(items)) => Value::Array(items),
                None => return Err("must be YAML".into()),
            },
            Event::Alias(_) | Event::UnresolvedAlias(_) | Event::Anchor(..) => {
                return Err("must not use anchors and aliases".into());
            }
            Event::DocumentStart(true, _) => return Err("must be one document".into()),
            _ => continue,
        };
        match open.last_mut() {
            None if whole.is_none() => whole = Some(done),
            None => return Err("must be one document".into()),
            Some(Open::List(items)) => items.push(done),
            Some(Open::Map { fields, key }) => match key.take() {
                None => match done {
                    Value::String(name) if fields.contains_key(&name) => return Err(format!("has {name} twice")),
                    Value::String(name) => *key = Some(name),
                    _ => return Err("must have plain keys".into()),
                },
                Some(name) => _ = fields.insert(name, done),
            },
        }
    }
    match whole {
        Some(Value::Object(fields)) => Ok(fields.into_iter().collect()),
        _ => Err("the front matter must be a list of fields".into()),
    }
}

fn refuse_extras(anchor: usize, has_tag: bool) -> Result<(), String> {
    match (anchor, has_tag) {
        (0, false) => Ok(()),
        (0, true) => Err("must not use tags (!)".into()),
        _ => Err("must not use anchors and aliases".into()),
    }
}

fn refuse_flow(style: StructureStyle) -> Result<(), String> {
    match style {
        StructureStyle::Block => Ok(()),
        StructureStyle::Flow => Err("must not use flow style ([] and {})".into()),
    }
}

fn check(fields: Fields, body: &str) -> Result<SkillFile, Vec<Wrong>> {
    let mut errors = vec![];
    for (name, _) in fields.iter().filter(|(name, _)| !FIELDS.contains(&name.as_str())) {
        let shown: String = name.chars().take(100).collect();
        errors.push(wrong(
            &shown,
            "unknown_field",
            format!("is no field of SKILL.md; allowed are {}", FIELDS.join(", ")),
        ));
    }
    let find = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
    let name = required(&mut errors, find("name"), "name");
    if name.as_ref().is_some_and(|name| !is_name(name)) {
        let say = "must be 1 to 64 lower-case letters and digits, with single hyphens between them";
        errors.push(wrong("name", "wrong_form", say));
    }
    let description = required(&mut errors, find("description"), "description");
    too_long(&mut errors, description.as_deref(), "description", LONGEST_DESCRIPTION);
    let compatibility = optional(&mut errors, find("compatibility"), "compatibility");
    too_long(&mut errors, compatibility.as_deref(), "compatibility", LONGEST_COMPATIBILITY);
    let license = optional(&mut errors, find("license"), "license");
    too_long(&mut errors, license.as_deref(), "license", LONGEST_TEXT);
    let allowed_tools = tools(find("allowed-tools"));
    if allowed_tools.is_none() {
        errors.push(wrong("allowed-tools", "wrong_type", "must be a text or a list of texts"));
    }
    let metadata = |wanted: &str| find("metadata").and_then(|map| map[wanted].as_str()).map(str::trim);
    let version = metadata("version").filter(|version| !version.is_empty()).map(str::to_owned);
    let tags = tags(&mut errors, find("metadata").map(|map| &map["tags"]));
    match (name, description, allowed_tools, errors.is_empty()) {
        (Some(name), Some(description), Some(allowed_tools), true) => Ok(SkillFile {
            name,
            description: description.trim().to_owned(),
            license: license.filter(|license| !license.trim().is_empty()),
            version,
            tags,
            allowed_tools,
            frontmatter: Value::Object(fields.into_iter().collect()),
            body: body.to_owned(),
        }),
        _ => Err(errors),
    }
}

fn required(errors: &mut Vec<Wrong>, value: Option<&Value>, field: &str) -> Option<String> {
    match value {
        Some(Value::String(text)) if !text.trim().is_empty() => Some(text.clone()),
        Some(Value::String(_)) | None => {
            errors.push(wrong(field, "required", "is missing"));
            None
        }
        Some(_) => {
            errors.push(wrong(field, "wrong_type", "must be a text"));
            None
        }
    }
}

fn optional(errors: &mut Vec<Wrong>, value: Option<&Value>, field: &str) -> Option<String> {
    match value {
        Some(Value::String(text)) => Some(text.clone()),
        Some(_) => {
            errors.push(wrong(field, "wrong_type", "must be a text"));
            None
        }
        None => None,
    }
}

fn too_long(errors: &mut Vec<Wrong>, text: Option<&str>, field: &str, most: usize) {
    if text.is_some_and(|text| text.chars().count() > most) {
        errors.push(wrong(field, "too_long", format!("must be at most {most} characters")));
    }
}

/// The tools, one by one; nothing when they are no texts.
fn tools(value: Option<&Value>) -> Option<Vec<String>> {
    match value {
        None => Some(vec![]),
        Some(Value::String(text)) => {
            Some(text.split([' ', ',', '\n']).filter(|t| !t.is_empty()).map(str::to_owned).collect())
        }
        Some(Value::Array(items)) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    }
}

const MOST_TAGS: usize = 10;

/// `metadata.tags`: words with commas or spaces between them, or a list.
fn tags(errors: &mut Vec<Wrong>, value: Option<&Value>) -> Vec<String> {
    let given: Vec<String> = match value {
        Some(Value::String(text)) => text.split([',', ' ', '\n']).map(str::to_owned).collect(),
        Some(Value::Array(items)) => items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect(),
        _ => vec![],
    };
    let mut tags: Vec<String> =
        given.iter().map(|tag| tag.trim().to_lowercase()).filter(|tag| !tag.is_empty()).collect();
    tags.sort();
    tags.dedup();
    if tags.len() > MOST_TAGS || tags.iter().any(|tag| tag.len() > 32 || !is_name(tag)) {
        let say = "must be at most 10 words of lower-case letters, digits and hyphens, 32 characters each";
        errors.push(wrong("metadata.tags", "wrong_form", say));
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(text: &str) -> Vec<&'static str> {
        read(text.as_bytes()).err().into_iter().flatten().map(|(_, code, _)| code).collect()
    }

    #[test]
    fn a_skill_file_says_what_it_is() {
        let text = "---\r\nname: pdf-tools\r\ndescription: |\r\n  Reads: files.\r\nlicense: MIT\r\nallowed-tools: Read Bash(git:*)\r\nmetadata:\r\n  version: 1.0\r\n  tags: PDF, files\r\n---\r\n\r\n# Hello\r\n";
        let file = read(text.as_bytes()).unwrap();
        assert_eq!((file.name.as_str(), file.description.as_str()), ("pdf-tools", "Reads: files."));
        assert_eq!(file.version.as_deref(), Some("1.0"), "a number stays as it was written");
        assert_eq!(
            (file.tags, file.allowed_tools),
            (vec!["files".into(), "pdf".into()], vec!["Read".into(), "Bash(git:*)".into()])
        );
        assert_eq!(file.body, "# Hello");
    }

    #[test]
    fn m20_everything_wrong_is_named() {
        let long = format!(
            "---\nname: {}\ndescription: {}\ncompatibility: {}\n---\n",
            "a".repeat(65),
            "b".repeat(1025),
            "c".repeat(501)
        );
        assert_eq!(codes(&long), ["wrong_form", "too_long", "too_long"]);
        assert_eq!(
            codes("---\nversion: 1\nother: 2\n---\n"),
            ["unknown_field", "unknown_field", "required", "required"]
        );
        assert_eq!(codes("---\nname:\n  - a\ndescription: b\n---\n"), ["wrong_type"]);
    }

    #[test]
    fn m20_what_two_readers_see_differently_is_refused() {
        for (text, code) in [
            ("---\nname: a\ndescription: a --- b\n---\n", "ambiguous_frontmatter"),
            ("---name: a\ndescription: b\n---\n", "ambiguous_frontmatter"),
            ("---\nname: a\ndescription: b\n----\n", "ambiguous_frontmatter"),
            ("\u{feff}---\nname: a\ndescription: b\n---\n", "byte_order_mark"),
            ("---\nname: a\ndescription: b\n", "no_end"),
            ("name: a\n", "no_frontmatter"),
            ("---\nname: a\nname: b\ndescription: b\n---\n", "invalid_yaml"),
            ("---\nname: &x a\ndescription: *x\n---\n", "invalid_yaml"),
            ("---\n{name: a, description: b}\n---\n", "invalid_yaml"),
            ("---\nname: a\ndescription: !!str b\n---\n", "invalid_yaml"),
            ("---\n---\n", "invalid_yaml"),
            ("---\n- a\n---\n", "invalid_yaml"),
        ] {
            assert_eq!(codes(text), [code], "{text:?}");
        }
        assert_eq!(codes("---\nname: \u{440}df\ndescription: b\n---\n"), ["wrong_form"], "a Cyrillic letter");
    }
}
