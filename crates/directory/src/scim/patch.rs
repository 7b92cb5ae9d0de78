//! PATCH (RFC 7644, 3.5.2): add, replace and remove, on attributes, their parts, and values chosen by a filter. Providers
//! write the words in any case, leave the path out, or put it into the value; all of that is understood.
use kernel::fault::{Code, Result};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    document::{self, INVALID_VALUE, one_primary, value_of},
    filter::{Filter, Op, Target},
    names::{self, Meaning, Named},
    schema::{self, Attribute, Mutability, Resource},
    sql::flag,
};

pub const INVALID_PATH: Code = Code::new(400, "invalid_path", "The path of an operation does not exist.");
pub const NO_TARGET: Code = Code::new(400, "no_target", "The path of an operation matches no value.");
pub const MUTABILITY: Code = Code::new(400, "mutability", "The attribute is read-only.");

#[derive(Deserialize, JsonSchema)]
pub struct Patch {
    #[serde(rename = "Operations")]
    #[schemars(length(min = 1, max = 1000))]
    pub operations: Vec<Operation>,
}

#[derive(Deserialize, JsonSchema)]
pub struct Operation {
    /// add, replace or remove, in any case.
    #[schemars(length(max = 20))]
    pub op: String,
    #[schemars(length(max = 4096))]
    pub path: Option<String>,
    #[serde(default)]
    pub value: Value,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Add,
    Replace,
    Remove,
}

/// Applies every operation, or says why not.
pub fn apply(resource: &Resource, document: &mut Map<String, Value>, patch: &Patch) -> Result<()> {
    for operation in &patch.operations {
        let verb = match operation.op.to_ascii_lowercase().as_str() {
            "add" => Verb::Add,
            "replace" => Verb::Replace,
            "remove" => Verb::Remove,
            _ => return Err(kernel::fault::INVALID.because("An operation must be add, replace or remove.")),
        };
        match operation.path.as_deref().filter(|path| !path.is_empty()) {
            Some(path) => at(resource, document, verb, path, &operation.value)?,
            None if verb == Verb::Remove => return Err(NO_TARGET.because("A remove operation needs a path.")),
            None => {
                let fields = operation.value.as_object();
                let fields =
                    fields.ok_or_else(|| INVALID_VALUE.because("Without a path the value must be an object."))?;
                without_path(resource, document, verb, fields)?;
            }
        }
    }
    Ok(())
}

/// Each member is an attribute, or, as some providers have it, a path.
fn without_path(
    resource: &Resource,
    document: &mut Map<String, Value>,
    verb: Verb,
    fields: &Map<String, Value>,
) -> Result<()> {
    for (name, value) in fields {
        if let Some(Meaning::Extension(schema)) = names::find(resource, name) {
            if let Some(fields) = value.as_object() {
                for (name, value) in fields {
                    at(resource, document, verb, &format!("{}:{name}", schema.id), value)?;
                }
            }
            continue;
        }
        let target = Target::parse(name);
        let known = target.ok().and_then(|target| names::attribute(resource, &target.name));
        // What nobody knows, and what is not theirs, is left alone, as in any other body.
        if known.is_some_and(|named| named.attribute.is_writable()) {
            at(resource, document, verb, name, value)?;
        }
    }
    Ok(())
}

fn at(resource: &Resource, document: &mut Map<String, Value>, verb: Verb, path: &str, value: &Value) -> Result<()> {
    let target = Target::parse(path).map_err(|fault| INVALID_PATH.caused_by(fault))?;
    let lost = || INVALID_PATH.because(format!("There is no {path}."));
    let named = match names::find(resource, &target.name).ok_or_else(lost)? {
        Meaning::Extension(schema) => return extension(document, verb, schema, value),
        Meaning::Attribute(named) => named,
    };
    let part = match &target.part {
        Some(part) => Some(named.attribute.part(part).ok_or_else(lost)?),
        None => named.part,
    };
    let named = Named { part, ..named };
    let leaf = named.leaf();
    let is_fixed = |attribute: &Attribute| attribute.mutability == Mutability::ReadOnly;
    if is_fixed(named.attribute) || is_fixed(leaf) {
        return Err(MUTABILITY.because(format!("{path} is read-only.")));
    }
    if verb == Verb::Remove && named.part.is_none() && leaf.is_required && target.which.is_none() {
        return Err(MUTABILITY.because(format!("{path} is required.")));
    }
    let home = match named.extension {
        Some(schema) => match document.entry(schema.id).or_insert_with(|| json!({})) {
            Value::Object(fields) => fields,
            _ => return Err(lost()),
        },
        None => document,
    };
    let outcome = match (&target.which, named.attribute.is_multiple) {
        (Some(_), false) => Err(lost()),
        (Some(which), true) => chosen(home, verb, named, which, value),
        (None, true) => many(home, verb, named, value),
        (None, false) => one(home, verb, named, value),
    };
    if let Some(schema) = named.extension
        && document.get(schema.id).and_then(Value::as_object).is_some_and(Map::is_empty)
    {
        document.remove(schema.id);
    }
    outcome
}

fn extension(
    document: &mut Map<String, Value>,
    verb: Verb,
    schema: &'static schema::Schema,
    value: &Value,
) -> Result<()> {
    if verb == Verb::Remove {
        document.remove(schema.id);
        return Ok(());
    }
    let fields = value.as_object().ok_or_else(|| INVALID_VALUE.because("An extension must be an object."))?;
    let new = document::read_extension(schema, fields)?;
    match document.entry(schema.id).or_insert_with(|| json!({})) {
        Value::Object(there) if verb == Verb::Add => there.extend(new),
        there => *there = Value::Object(new),
    }
    Ok(())
}

/// An attribute with one value, or a part of it.
fn one(home: &mut Map<String, Value>, verb: Verb, named: Named, value: &Value) -> Result<()> {
    let name = named.attribute.name;
    let Some(part) = named.part else {
        return match (verb, value_of(named.attribute, value)?) {
            (Verb::Remove, _) | (_, None) => {
                // Nothing in the place of what must be there is no value.
                if named.attribute.is_required {
                    return Err(INVALID_VALUE.because(format!("{name} is required.")));
                }
                home.remove(name);
                Ok(())
            }
            (_, Some(Value::Object(new))) => {
                // Only the parts that are named change.
                match home.entry(name).or_insert_with(|| json!({})) {
                    Value::Object(there) => there.extend(new),
                    there => *there = Value::Object(new),
                }
                Ok(())
            }
            (_, Some(new)) => {
                home.insert(name.to_owned(), new);
                Ok(())
            }
        };
    };
    let there = home.entry(name).or_insert_with(|| json!({}));
    set_part(there, verb, part, value)?;
    if there.as_object().is_some_and(Map::is_empty) {
        home.remove(name);
    }
    Ok(())
}

fn set_part(there: &mut Value, verb: Verb, part: &'static Attribute, value: &Value) -> Result<()> {
    let Value::Object(fields) = there else { return Err(NO_TARGET.into()) };
    match value_of(part, value)?.filter(|_| verb != Verb::Remove) {
        Some(new) => _ = fields.insert(part.name.to_owned(), new),
        None => _ = fields.remove(part.name),
    }
    Ok(())
}

/// An attribute with many values: all of them, or a part of each.
fn many(home: &mut Map<String, Value>, verb: Verb, named: Named, value: &Value) -> Result<()> {
    let name = named.attribute.name;
    if let Some(part) = named.part {
        let mut list = list_of(home, name);
        if list.is_empty() && verb != Verb::Remove {
            list.push(json!({}));
        }
        for one in &mut list {
            set_part(one, verb, part, value)?;
        }
        put_list(home, name, list);
        return Ok(());
    }
    let new = value_of(named.attribute, value)?;
    let new = new.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
    let list = match verb {
        Verb::Replace => new,
        // Some providers name what they remove in the value.
        Verb::Remove if !new.is_empty() => {
            let is_named = |one: &Value| new.iter().any(|new| new["value"] == one["value"]);
            list_of(home, name).into_iter().filter(|one| !is_named(one)).collect()
        }
        Verb::Remove => vec![],
        Verb::Add => merged(list_of(home, name), new),
    };
    put_list(home, name, list);
    Ok(())
}

/// What is there already is not there twice; of two primary ones the new one is.
fn merged(mut list: Vec<Value>, new: Vec<Value>) -> Vec<Value> {
    for one in new {
        let same = |there: &Value| {
            there == &one
                || (one["value"].is_string() && there["value"] == one["value"] && there["type"] == one["type"])
        };
        match list.iter().position(same) {
            Some(place) => list[place] = one,
            None => list.push(one),
        }
    }
    list
}

/// The values that a filter chooses, or a part of each.
fn chosen(home: &mut Map<String, Value>, verb: Verb, named: Named, which: &Filter, value: &Value) -> Result<()> {
    let name = named.attribute.name;
    let mut list = list_of(home, name);
    let mut hits = vec![];
    for one in &list {
        hits.push(holds(named.attribute, which, one)?);
    }
    if !hits.contains(&true) {
        // Some providers replace what is not there yet, and mean: let there be one like this.
        let Some(mut made) = template(named.attribute, which).filter(|_| verb != Verb::Remove) else {
            return if verb == Verb::Remove { Ok(()) } else { Err(NO_TARGET.into()) };
        };
        change(&mut made, verb, named, value)?;
        list.push(made);
        put_list(home, name, list);
        return Ok(());
    }
    let mut kept = vec![];
    for (mut one, is_hit) in list.into_iter().zip(hits) {
        if is_hit && verb == Verb::Remove && named.part.is_none() {
            continue;
        }
        if is_hit {
            change(&mut one, verb, named, value)?;
        }
        kept.push(one);
    }
    put_list(home, name, kept);
    Ok(())
}

fn change(one: &mut Value, verb: Verb, named: Named, value: &Value) -> Result<()> {
    if let Some(part) = named.part {
        return set_part(one, verb, part, value);
    }
    let new = value_of(named.attribute, &json!([value]))?;
    let new = new.as_ref().and_then(|list| list.get(0)).and_then(Value::as_object);
    let new = new.ok_or_else(|| INVALID_VALUE.because(format!("{} is missing.", named.attribute.name)))?;
    if let Value::Object(fields) = one {
        fields.extend(new.clone());
    }
    Ok(())
}

/// What `type eq "work"` describes.
fn template(attribute: &'static Attribute, which: &Filter) -> Option<Value> {
    let terms = match which {
        Filter::And(terms) => terms.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut made = Map::new();
    for term in terms {
        let Filter::Compare(part, Op::Eq, value) = term else { return None };
        let part = attribute.part(part)?;
        made.insert(part.name.to_owned(), value_of(part, value).ok().flatten()?);
    }
    Some(Value::Object(made))
}

/// Whether a filter holds of one value.
fn holds(attribute: &'static Attribute, which: &Filter, one: &Value) -> Result<bool> {
    let part = |name: &str| {
        attribute
            .part(name)
            .ok_or_else(|| INVALID_PATH.because(format!("{name} is not a sub-attribute of {}.", attribute.name)))
    };
    Ok(match which {
        Filter::And(terms) => {
            terms.iter().map(|term| holds(attribute, term, one)).collect::<Result<Vec<_>>>()?.iter().all(|hit| *hit)
        }
        Filter::Or(terms) => {
            terms.iter().map(|term| holds(attribute, term, one)).collect::<Result<Vec<_>>>()?.contains(&true)
        }
        Filter::Not(inner) => !holds(attribute, inner, one)?,
        Filter::Present(name) => {
            let there = &one[part(name)?.name];
            !there.is_null() && there != ""
        }
        Filter::Compare(name, op, value) => compares(part(name)?, *op, &one[part(name)?.name], value),
        Filter::One(..) => return Err(INVALID_PATH.into()),
    })
}

fn compares(part: &Attribute, op: Op, there: &Value, value: &Value) -> bool {
    let text = |value: &Value| match (flag(value), value) {
        (Some(flag), _) if part.kind == schema::Kind::Flag => Some(flag.to_string()),
        (_, Value::String(text)) if part.is_exact => Some(text.clone()),
        (_, Value::String(text)) => Some(text.to_lowercase()),
        (_, Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let (there, value) = (text(there), text(value));
    if op == Op::Ne {
        return there != value;
    }
    match (there, value) {
        (None, None) => op == Op::Eq,
        (Some(there), Some(value)) => match op {
            Op::Eq => there == value,
            Op::Ne => there != value,
            Op::Co => there.contains(&value),
            Op::Sw => there.starts_with(&value),
            Op::Ew => there.ends_with(&value),
            Op::Gt => there > value,
            Op::Ge => there >= value,
            Op::Lt => there < value,
            Op::Le => there <= value,
        },
        _ => false,
    }
}

fn list_of(home: &Map<String, Value>, name: &str) -> Vec<Value> {
    home.get(name).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn put_list(home: &mut Map<String, Value>, name: &str, list: Vec<Value>) {
    let list: Vec<Value> = list.into_iter().filter(|one| one.as_object().is_none_or(|one| !one.is_empty())).collect();
    if list.is_empty() {
        home.remove(name);
    } else {
        home.insert(name.to_owned(), Value::Array(one_primary(list)));
    }
}
