//! Reading what a provider sends: names in any case, unknown ones left out, read-only ones left alone, values of the
//! right type. What comes out has every name as the schema writes it.
use kernel::fault::{Code, Fault, Result};
use serde_json::{Map, Value, json};

use super::{
    schema::{Attribute, COMMON, Kind, Mutability, Resource, Schema},
    sql::flag,
};

pub const INVALID_VALUE: Code = Code::new(400, "invalid_value", "A value is missing or has the wrong type.");
/// Of one attribute.
const MOST_VALUES: usize = 50;
/// In characters.
const LONGEST_TEXT: usize = 8192;

fn wrong(name: &str, what: &str) -> Fault {
    INVALID_VALUE.because(format!("{name} {what}."))
}

/// A whole resource.
pub fn read(resource: &Resource, sent: &Map<String, Value>) -> Result<Map<String, Value>> {
    let mut kept = Map::new();
    for (name, value) in sent {
        if let Some(extension) = resource.extensions.iter().find(|schema| schema.id.eq_ignore_ascii_case(name)) {
            let Some(fields) = value.as_object() else { continue };
            let inner = read_extension(extension, fields)?;
            if !inner.is_empty() {
                kept.insert(extension.id.to_owned(), Value::Object(inner));
            }
            continue;
        }
        // Some providers write the attributes of a schema in full.
        let short = resource.schemas().find_map(|schema| {
            let rest = name.get(schema.id.len()..)?.strip_prefix(':')?;
            name.get(..schema.id.len())?.eq_ignore_ascii_case(schema.id).then_some((schema, rest))
        });
        if let Some((schema, rest)) = short.filter(|(schema, _)| schema.id != resource.core.id) {
            let one = Map::from_iter([(rest.to_owned(), value.clone())]);
            let inner = read_extension(schema, &one)?;
            let place = kept.entry(schema.id).or_insert_with(|| json!({}));
            if let Value::Object(fields) = place {
                fields.extend(inner);
            }
            continue;
        }
        let name = short.map_or(name.as_str(), |(_, rest)| rest);
        let external = COMMON.iter().find(|common| common.name == "externalId");
        let external = external.filter(|common| common.name.eq_ignore_ascii_case(name));
        let Some(attribute) = resource.core.attribute(name).or(external) else { continue };
        if let Some(value) = value_of(attribute, value)? {
            kept.insert(attribute.name.to_owned(), value);
        }
    }
    Ok(kept)
}

pub fn read_extension(schema: &'static Schema, sent: &Map<String, Value>) -> Result<Map<String, Value>> {
    fields_of(schema.attributes, sent)
}

fn fields_of(attributes: &'static [Attribute], sent: &Map<String, Value>) -> Result<Map<String, Value>> {
    let mut kept = Map::new();
    for (name, value) in sent {
        let Some(attribute) = attributes.iter().find(|attribute| attribute.name.eq_ignore_ascii_case(name)) else {
            continue;
        };
        if let Some(value) = value_of(attribute, value)? {
            kept.insert(attribute.name.to_owned(), value);
        }
    }
    Ok(kept)
}

/// The value as it is kept; none for what is empty, or not the provider's to set.
pub fn value_of(attribute: &'static Attribute, sent: &Value) -> Result<Option<Value>> {
    if matches!(attribute.mutability, Mutability::ReadOnly | Mutability::WriteOnly) || sent.is_null() {
        return Ok(None);
    }
    if !attribute.is_multiple {
        // A list of one is as good as that one.
        let sent = sent.as_array().filter(|list| list.len() == 1).and_then(|list| list.first()).unwrap_or(sent);
        return single(attribute, sent);
    }
    let list = match sent {
        Value::Array(list) => list.clone(),
        one => vec![one.clone()],
    };
    if list.len() > MOST_VALUES && attribute.name != "members" {
        return Err(wrong(attribute.name, "has too many values"));
    }
    let kept: Vec<Value> = list.iter().filter_map(|one| single(attribute, one).transpose()).collect::<Result<_>>()?;
    Ok((!kept.is_empty()).then(|| one_primary(kept)).map(Value::Array))
}

fn single(attribute: &'static Attribute, sent: &Value) -> Result<Option<Value>> {
    Ok(match (attribute.kind, sent) {
        (_, Value::Null) => None,
        (Kind::Complex, Value::Object(fields)) => {
            let kept = fields_of(attribute.parts, fields)?;
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        // A manager, an address or a member by its value alone.
        (Kind::Complex, Value::String(text)) if attribute.part("value").is_some() => {
            (!text.is_empty()).then(|| json!({ "value": text }))
        }
        (Kind::Complex, _) => return Err(wrong(attribute.name, "must be an object")),
        (Kind::Flag, value) => {
            Some(Value::Bool(flag(value).ok_or_else(|| wrong(attribute.name, "must be true or false"))?))
        }
        (_, Value::String(text)) => {
            if text.chars().count() > LONGEST_TEXT || text.contains('\0') {
                return Err(wrong(attribute.name, "is too long or holds what no text may"));
            }
            Some(Value::String(text.clone()))
        }
        (_, Value::Number(number)) => Some(Value::String(number.to_string())),
        _ => return Err(wrong(attribute.name, "must be text")),
    })
}

/// At most one value is the primary one: the last that says so.
pub fn one_primary(mut list: Vec<Value>) -> Vec<Value> {
    let last = list.iter().rposition(|one| one["primary"] == true);
    for (number, one) in list.iter_mut().enumerate() {
        if one["primary"] == true && Some(number) != last {
            one["primary"] = Value::Bool(false);
        }
    }
    list
}
