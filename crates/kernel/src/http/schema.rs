//! Errors of a value against a JSON Schema, in our own words. The value itself is never repeated: it may be a password.
use boon::{Compiler, ErrorKind as Wrong, Format, InstanceToken, SchemaIndex, Schemas, Type, Types, ValidationError};
use serde_json::Value;

use crate::{
    email::Email,
    fault::{INTERNAL, Result},
};

/// What the library calls a schema that came from nowhere.
const NAME: &str = "schema:";
/// How a schema says that a text must not be blank.
const NOT_BLANK: &str = r"\S";
/// The same for the library, which takes the former for the commonest spaces only.
const NOT_BLANK_HERE: &str = r"\P{White_Space}";

/// A schema made ready to check values by.
pub struct Checker {
    schemas: Schemas,
    root: SchemaIndex,
}

/// A field that is wrong, by its path; in which way, for machines; and for people.
pub(super) type Finding = (String, &'static str, String);

impl Checker {
    pub fn new(mut schema: Value) -> Result<Self> {
        translate(&mut schema);
        let (mut compiler, mut schemas) = (Compiler::new(), Schemas::new());
        compiler.enable_format_assertions();
        compiler.register_format(Format { name: "email", func: is_email });
        compiler.add_resource(NAME, schema).map_err(|error| INTERNAL.caused_by(error))?;
        let root = compiler.compile(NAME, &mut schemas).map_err(|error| INTERNAL.caused_by(error))?;
        Ok(Self { schemas, root })
    }

    pub fn allows(&self, value: &Value) -> bool {
        self.schemas.validate(value, self.root).is_ok()
    }

    pub(super) fn findings(&self, value: &Value) -> Vec<Finding> {
        self.schemas.validate(value, self.root).err().map(|error| say(&error)).unwrap_or_default()
    }
}

fn translate(schema: &mut Value) {
    match schema {
        Value::Object(parts) => {
            if let Some(pattern) = parts.get_mut("pattern").filter(|pattern| *pattern == NOT_BLANK) {
                *pattern = NOT_BLANK_HERE.into();
            }
            parts.values_mut().for_each(translate);
        }
        Value::Array(parts) => parts.iter_mut().for_each(translate),
        _ => {}
    }
}

fn is_email(value: &Value) -> std::result::Result<(), Box<dyn std::error::Error>> {
    match value {
        Value::String(text) if Email::parse(text).is_none() => Err("not an address".into()),
        _ => Ok(()),
    }
}

fn say(error: &ValidationError<'_, '_>) -> Vec<Finding> {
    let field = path(error);
    let one = |code, message: String| vec![(field.clone(), code, message)];
    match &error.kind {
        Wrong::Schema { .. } | Wrong::Group | Wrong::Reference { .. } | Wrong::AllOf => {
            error.causes.iter().flat_map(say).collect()
        }
        Wrong::Required { want } => {
            let below = |name: &&str| if field.is_empty() { (*name).to_owned() } else { format!("{field}.{name}") };
            want.iter().map(|name| (below(name), "required", "is required".to_owned())).collect()
        }
        Wrong::Type { want, .. } => one("wrong_type", format!("must be of type {}", kinds(*want))),
        Wrong::MinLength { want: 1, .. } | Wrong::Pattern { want: NOT_BLANK_HERE, .. } => {
            one("too_short", "must not be empty".to_owned())
        }
        Wrong::MinLength { want, .. } => one("too_short", format!("must have at least {want} characters")),
        Wrong::MaxLength { want, .. } => one("too_long", format!("must have at most {want} characters")),
        Wrong::Minimum { want, .. } => one("too_small", format!("must be at least {want}")),
        Wrong::Maximum { want, .. } => one("too_large", format!("must be at most {want}")),
        Wrong::MinItems { want, .. } => one("too_few", format!("must have at least {want} entries")),
        Wrong::MaxItems { want, .. } => one("too_many", format!("must have at most {want} entries")),
        Wrong::UniqueItems { .. } => one("repeated", "must not repeat an entry".to_owned()),
        Wrong::Pattern { want, .. } => one("wrong_form", format!("must match {want}")),
        Wrong::Format { want: "email", .. } => one("wrong_form", "must be an email".to_owned()),
        Wrong::Format { want, .. } => one("wrong_form", format!("must be a valid {want}")),
        Wrong::Enum { want } => {
            let words: Vec<_> = want.iter().map(Value::to_string).collect();
            one("not_allowed", one_of(&words))
        }
        Wrong::Const { want } => one("not_allowed", format!("must be {want}")),
        // An optional value is "this or null"; what matters is what is wrong with it as "this".
        Wrong::AnyOf | Wrong::OneOf(None) => {
            let branches: Vec<_> = error.causes.iter().filter(|branch| !wants_null(branch)).collect();
            // Words with a description each are branches of one word.
            let words: Vec<_> = branches.iter().filter_map(|branch| constant(branch)).collect();
            if words.len() > 1 && words.len() == branches.len() {
                return one("not_allowed", one_of(&words));
            }
            branches.into_iter().flat_map(say).collect()
        }
        _ => one("invalid", "is invalid".to_owned()),
    }
}

fn path(error: &ValidationError<'_, '_>) -> String {
    let steps = error.instance_location.tokens.iter().map(|step| match step {
        InstanceToken::Prop(name) => name.to_string(),
        InstanceToken::Item(place) => place.to_string(),
    });
    steps.collect::<Vec<_>>().join(".")
}

fn one_of(words: &[String]) -> String {
    format!("must be one of [{}]", words.join(","))
}

fn constant(branch: &ValidationError<'_, '_>) -> Option<String> {
    match &branch.kind {
        Wrong::Const { want } => Some(want.to_string()),
        _ => None,
    }
}

fn wants_null(branch: &ValidationError<'_, '_>) -> bool {
    matches!(branch.kind, Wrong::Type { want, .. } if want.iter().eq([Type::Null]))
}

/// That it may be left empty comes last.
fn kinds(types: Types) -> String {
    let mut names: Vec<_> = types.iter().map(|kind| kind.to_string()).collect();
    names.sort_by_key(|name| name == "null");
    names.join(" or ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_that_is_wrong_is_found_where_it_is() {
        let schema = json!({
            "type": "object",
            "required": ["name", "place"],
            "properties": {
                "name": { "type": "string", "pattern": "\\S" },
                "place": { "$ref": "#/$defs/Place" },
                "mail": { "type": ["null", "string"], "format": "email" },
                "kind": { "oneOf": [{ "const": "one" }, { "const": "two" }] },
                "a/b": { "anyOf": [{ "$ref": "#/$defs/Place" }, { "type": "null" }] },
                "tags": { "type": "array", "maxItems": 1, "uniqueItems": true, "items": { "enum": ["x", "y"] } }
            },
            "$defs": { "Place": {
                "type": "object",
                "required": ["city", "street"],
                "properties": { "city": { "type": "string", "minLength": 2 }, "floor": { "type": "integer", "minimum": 0 } }
            } }
        });
        let checker = Checker::new(schema).unwrap();
        assert!(
            checker
                .allows(&json!({ "name": "x", "place": { "city": "Ulm", "street": "" }, "mail": null, "a/b": null }))
        );
        let wrong = json!({
            "name": " \u{3000}\u{2009}", "place": { "city": "U", "floor": -1 }, "mail": "nobody", "kind": "three",
            "a/b": { "city": 7, "street": "" }, "tags": ["x", "x", "z"]
        });
        let mut found = checker.findings(&wrong);
        found.sort();
        let said = |field: &str, code, message: &str| (field.to_owned(), code, message.to_owned());
        let expected = [
            said("a/b.city", "wrong_type", "must be of type string"),
            said("kind", "not_allowed", r#"must be one of ["one","two"]"#),
            said("mail", "wrong_form", "must be an email"),
            said("name", "too_short", "must not be empty"),
            said("place.city", "too_short", "must have at least 2 characters"),
            said("place.floor", "too_small", "must be at least 0"),
            said("place.street", "required", "is required"),
            said("tags", "repeated", "must not repeat an entry"),
            said("tags", "too_many", "must have at most 1 entries"),
            said("tags.2", "not_allowed", r#"must be one of ["x","y"]"#),
        ];
        assert_eq!(found, expected);
        let found = checker.findings(&json!({ "mail": 7 }));
        assert!(found.contains(&said("mail", "wrong_type", "must be of type string or null")), "{found:?}");
        assert!(found.contains(&said("place", "required", "is required")), "{found:?}");
    }
}
