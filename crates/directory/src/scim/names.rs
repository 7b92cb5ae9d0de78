//! From a name on the wire to an attribute: in any case, with or without its schema before it.
use super::schema::{Attribute, COMMON, Resource, Schema};

/// An attribute of a resource, or a part of one.
#[derive(Clone, Copy)]
pub struct Named {
    /// The extension it belongs to; none for the resource's own and what all have.
    pub extension: Option<&'static Schema>,
    pub attribute: &'static Attribute,
    pub part: Option<&'static Attribute>,
}

/// What a name can stand for.
pub enum Meaning {
    Attribute(Named),
    /// All of an extension.
    Extension(&'static Schema),
}

impl Named {
    /// What is compared: the part, or the attribute itself.
    pub fn leaf(&self) -> &'static Attribute {
        self.part.unwrap_or(self.attribute)
    }

    /// Under which its values are kept.
    pub fn path(&self) -> String {
        let mut path = self.extension.map(|schema| format!("{}:", schema.id)).unwrap_or_default();
        path.push_str(self.attribute.name);
        if let Some(part) = self.part {
            path.push('.');
            path.push_str(part.name);
        }
        path.to_lowercase()
    }

    /// A complex attribute that is compared as a whole means its `value`.
    #[must_use]
    pub fn compared(self) -> Self {
        let part = self.part.or_else(|| self.attribute.part("value"));
        Self { part, ..self }
    }
}

pub fn find(resource: &Resource, name: &str) -> Option<Meaning> {
    let lower = name.to_ascii_lowercase();
    for schema in resource.schemas() {
        let id = schema.id.to_ascii_lowercase();
        let Some(rest) = lower.strip_prefix(&id) else { continue };
        let extension = (schema.id != resource.core.id).then_some(schema);
        return match (rest.strip_prefix(':'), extension) {
            (Some(rest), _) => dotted(schema, extension, rest),
            (None, Some(extension)) if rest.is_empty() => Some(Meaning::Extension(extension)),
            _ => None,
        };
    }
    dotted(resource.core, None, &lower)
}

/// As [`find`], where only an attribute will do.
pub fn attribute(resource: &Resource, name: &str) -> Option<Named> {
    match find(resource, name)? {
        Meaning::Attribute(named) => Some(named),
        Meaning::Extension(_) => None,
    }
}

fn dotted(schema: &'static Schema, extension: Option<&'static Schema>, name: &str) -> Option<Meaning> {
    let (first, part) = name.split_once('.').map_or((name, None), |(first, part)| (first, Some(part)));
    let common = || COMMON.iter().find(|common| common.name.eq_ignore_ascii_case(first));
    let attribute = schema.attribute(first).or_else(|| common().filter(|_| extension.is_none()))?;
    let part = match part {
        Some(part) => Some(attribute.part(part)?),
        None => None,
    };
    Some(Meaning::Attribute(Named { extension, attribute, part }))
}
