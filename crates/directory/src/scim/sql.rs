//! From a filter to a question for the database. Every piece of SQL stands here as text; the caller's words become
//! values ([`Composed`] takes nothing else), and there are no patterns in which `%` or `_` would mean something.
//!
//! Every condition is true or false, never unknown, so that `not` is what it says: an attribute that is not there is not
//! equal to anything.
use db::{Composed, Value};
use kernel::{clock::Timestamp, fault::Result};
use serde_json::Value as Json;

use super::{
    filter::{Filter, INVALID_FILTER, Op},
    names::{self, Named},
    schema::{Kind, Mutability, Resource, USER},
};

/// Where an attribute can be asked for.
enum Place {
    /// A column, or something that stands for one: as text, compared as it is.
    Column(&'static str),
    /// In lower case already.
    Folded(&'static str),
    Flag(&'static str),
    Moment(&'static str),
    /// The condition on the value goes between the two; the column is what it is on.
    Exists(&'static str, &'static str, &'static str),
    /// Among the values of a person, under this path.
    Value(String),
}

const IN_GROUP: &str = "EXISTS (SELECT 1 FROM person_group_member AS seat
  JOIN person_group AS room ON room.org_id = seat.org_id AND room.id = seat.group_id
  WHERE seat.org_id = person.org_id AND seat.person_id = person.id AND ";
const HAS_MEMBER: &str = "EXISTS (SELECT 1 FROM (
    SELECT seat.org_id, seat.group_id, seat.person_id FROM person_group_member AS seat
    UNION ALL SELECT person.org_id, person.role, person.id FROM person) AS seat
  WHERE seat.org_id = found.org_id AND seat.group_id = found.id AND ";

/// The schemas of a user: the core one always, the extension while the user has a value of it.
const HAS_SCHEMA: &str = "EXISTS (SELECT 1 FROM (
    SELECT 'urn:ietf:params:scim:schemas:core:2.0:User' AS id, '' AS prefix
    UNION ALL SELECT 'urn:ietf:params:scim:schemas:extension:enterprise:2.0:User',
      'urn:ietf:params:scim:schemas:extension:enterprise:2.0:user:') AS listed
  WHERE (listed.prefix = '' OR EXISTS (SELECT 1 FROM person_value AS one WHERE one.org_id = person.org_id
    AND one.person_id = person.id AND SUBSTR(one.path, 1, LENGTH(listed.prefix)) = listed.prefix)) AND ";

fn place(resource: &Resource, named: &Named) -> Option<Place> {
    let name = (named.attribute.name, named.part.map(|part| part.name).unwrap_or_default());
    let is_user = resource.core.id == USER;
    if named.extension.is_some() {
        return Some(Place::Value(named.path()));
    }
    Some(match (is_user, name) {
        _ if named.leaf().mutability == Mutability::WriteOnly => return None,
        (true, ("id", _)) => Place::Column("person.id"),
        (true, ("userName", _)) => Place::Folded("person.user_name_key"),
        (true, ("externalId", _)) => Place::Column("person.external_id"),
        (true, ("active", _)) => Place::Flag("person.active"),
        (true, ("meta", "created")) => Place::Moment("person.created_at"),
        (true, ("meta", "lastModified")) => Place::Moment("person.updated_at"),
        (true, ("meta", "resourceType")) => Place::Column("'User'"),
        (true, ("roles", "value")) => Place::Column("person.role"),
        (true, ("groups", "value")) => Place::Exists(IN_GROUP, "seat.group_id", ")"),
        (true, ("groups", "display")) => Place::Exists(IN_GROUP, "room.display_name_key", ")"),
        (true, ("schemas", _)) => Place::Exists(HAS_SCHEMA, "listed.id", ")"),
        (true, ("meta" | "groups" | "roles", _)) => return None,
        (true, _) => Place::Value(named.path()),
        (false, ("id", _)) => Place::Column("found.id"),
        (false, ("displayName", _)) => Place::Folded("found.display_name_key"),
        (false, ("externalId", _)) => Place::Column("found.external_id"),
        (false, ("meta", "created")) => Place::Moment("found.created_at"),
        (false, ("meta", "lastModified")) => Place::Moment("found.updated_at"),
        (false, ("meta", "resourceType")) => Place::Column("'Group'"),
        (false, ("schemas", _)) => Place::Column("'urn:ietf:params:scim:schemas:core:2.0:Group'"),
        (false, ("members", "value")) => Place::Exists(HAS_MEMBER, "seat.person_id", ")"),
        (false, _) => return None,
    })
}

/// Writes the condition that a filter is.
pub fn condition(question: &mut Composed, resource: &Resource, filter: &Filter) -> Result<()> {
    match filter {
        Filter::And(terms) => joined(question, terms, " AND ", |q, term| condition(q, resource, term)),
        Filter::Or(terms) => joined(question, terms, " OR ", |q, term| condition(q, resource, term)),
        Filter::Not(inner) => {
            question.sql("NOT (");
            condition(question, resource, inner)?;
            question.sql(")");
            Ok(())
        }
        Filter::Present(name) => present(question, resource, &known(resource, name)?),
        Filter::Compare(name, op, value) => compare(question, resource, known(resource, name)?, *op, value),
        Filter::One(name, inner) => {
            let named = known(resource, name)?;
            if named.part.is_some() || !named.attribute.is_multiple || named.attribute.parts.is_empty() {
                return Err(INVALID_FILTER.because(format!("{name} is not multi-valued.")));
            }
            let Some(Place::Value(_)) = place(resource, &named.compared()) else {
                // Read-only lists have one part that is looked at.
                return one_of_few(question, resource, named, inner);
            };
            // Any value of the attribute that has any part at all, and of which the rest holds.
            question
                .sql("EXISTS (SELECT 1 FROM person_value AS one WHERE one.org_id = person.org_id AND ")
                .sql("one.person_id = person.id AND SUBSTR(one.path, 1, LENGTH(CAST(");
            let path = format!("{}.", named.path());
            question.value(path.as_str()).sql(" AS TEXT))) = ").value(path).sql(" AND (");
            of_one(question, named, inner)?;
            question.sql("))");
            Ok(())
        }
    }
}

/// Whether a filter can hold of few only: those with one name or id.
pub fn names_one(resource: &Resource, filter: &Filter) -> bool {
    match filter {
        Filter::And(terms) => terms.iter().any(|term| names_one(resource, term)),
        Filter::Compare(name, Op::Eq, Json::String(_)) => names::attribute(resource, name)
            .is_some_and(|named| matches!(named.attribute.name, "userName" | "externalId" | "id")),
        _ => false,
    }
}

/// A condition on the parts of one value, which `one` is a row of.
fn of_one(question: &mut Composed, whole: Named, filter: &Filter) -> Result<()> {
    match filter {
        Filter::And(terms) => joined(question, terms, " AND ", |q, term| of_one(q, whole, term)),
        Filter::Or(terms) => joined(question, terms, " OR ", |q, term| of_one(q, whole, term)),
        Filter::Not(inner) => {
            question.sql("NOT (");
            of_one(question, whole, inner)?;
            question.sql(")");
            Ok(())
        }
        Filter::Present(part) => {
            let named = part_of(whole, part)?;
            sibling(question, named);
            question.sql(" AND part.value <> '')");
            Ok(())
        }
        Filter::Compare(part, op, value) => {
            let named = part_of(whole, part)?;
            let (op, is_not) = if *op == Op::Ne { (Op::Eq, true) } else { (*op, false) };
            question.sql(if is_not { "NOT (" } else { "(" });
            if value.is_null() {
                question.sql("NOT ");
                sibling(question, named);
                question.sql(" AND part.value <> ''");
            } else {
                sibling(question, named);
                question.sql(" AND ");
                of_text(
                    question,
                    if named.leaf().is_exact { "part.value" } else { "part.folded" },
                    named,
                    op,
                    value,
                )?;
            }
            question.sql("))");
            Ok(())
        }
        Filter::One(name, _) => {
            Err(INVALID_FILTER.because(format!("{name} cannot be nested in another value filter.")))
        }
    }
}

fn sibling(question: &mut Composed, named: Named) {
    question
        .sql("EXISTS (SELECT 1 FROM person_value AS part WHERE part.org_id = one.org_id AND ")
        .sql("part.person_id = one.person_id AND part.item = one.item AND part.path = ")
        .value(named.path());
}

fn part_of(whole: Named, name: &str) -> Result<Named> {
    let part = whole.attribute.part(name);
    let part = part.ok_or_else(|| {
        INVALID_FILTER.because(format!("{name} is not a sub-attribute of {}.", whole.attribute.name))
    })?;
    Ok(Named { part: Some(part), ..whole })
}

/// `groups[value eq "…"]`: as if the part had been named with the whole.
fn one_of_few(question: &mut Composed, resource: &Resource, whole: Named, filter: &Filter) -> Result<()> {
    match filter {
        Filter::Compare(part, op, value) => compare(question, resource, part_of(whole, part)?, *op, value),
        Filter::Present(part) => present(question, resource, &part_of(whole, part)?),
        _ => Err(INVALID_FILTER.because(format!("Filter {} by one of its sub-attributes.", whole.attribute.name))),
    }
}

fn known(resource: &Resource, name: &str) -> Result<Named> {
    names::attribute(resource, name).ok_or_else(|| INVALID_FILTER.because(format!("There is no attribute {name}.")))
}

fn not_asked_for(named: &Named) -> kernel::fault::Fault {
    INVALID_FILTER.because(format!("{} cannot be used in a filter.", named.path()))
}

fn joined(
    question: &mut Composed,
    terms: &[Filter],
    word: &'static str,
    mut write: impl FnMut(&mut Composed, &Filter) -> Result<()>,
) -> Result<()> {
    for (number, term) in terms.iter().enumerate() {
        question.sql(if number == 0 { "(" } else { word });
        write(question, term)?;
    }
    question.sql(")");
    Ok(())
}

/// An empty text counts as no value (RFC 7644, 3.4.2.2: `pr` wants a value that is neither null nor empty).
fn present(question: &mut Composed, resource: &Resource, named: &Named) -> Result<()> {
    // Any part of a complex attribute will do.
    if named.part.is_none() && !named.attribute.parts.is_empty() {
        if let Some(Place::Value(path)) = place(resource, named) {
            let path = format!("{path}.");
            question
                .sql("EXISTS (SELECT 1 FROM person_value AS one WHERE one.org_id = person.org_id AND ")
                .sql("one.person_id = person.id AND SUBSTR(one.path, 1, LENGTH(CAST(")
                .value(path.as_str())
                .sql(" AS TEXT))) = ")
                .value(path)
                .sql(" AND one.value <> '')");
            return Ok(());
        }
        if named.attribute.name == "meta" {
            question.sql("1 = 1");
            return Ok(());
        }
    }
    match place(resource, &named.compared()).ok_or_else(|| not_asked_for(named))? {
        Place::Column(column) | Place::Folded(column) => {
            question.sql("(").sql(column).sql(" IS NOT NULL AND ").sql(column).sql(" <> '')")
        }
        Place::Flag(_) | Place::Moment(_) => question.sql("1 = 1"),
        Place::Exists(before, _, after) => question.sql(before).sql("1 = 1").sql(after),
        Place::Value(path) => any_value(question, path).sql(" AND one.value <> '')"),
    };
    Ok(())
}

fn any_value(question: &mut Composed, path: String) -> &mut Composed {
    question
        .sql("EXISTS (SELECT 1 FROM person_value AS one WHERE one.org_id = person.org_id AND ")
        .sql("one.person_id = person.id AND one.path = ")
        .value(path)
}

fn compare(question: &mut Composed, resource: &Resource, named: Named, op: Op, value: &Json) -> Result<()> {
    let named = named.compared();
    // Not equal is whatever is not equal, also what is not there.
    if op == Op::Ne {
        question.sql("NOT (");
        compare(question, resource, named, Op::Eq, value)?;
        question.sql(")");
        return Ok(());
    }
    if value.is_null() {
        if op != Op::Eq {
            return Err(INVALID_FILTER.because("null can be compared with eq and ne only."));
        }
        question.sql("NOT (");
        present(question, resource, &named)?;
        question.sql(")");
        return Ok(());
    }
    match place(resource, &named).ok_or_else(|| not_asked_for(&named))? {
        Place::Column(column) | Place::Folded(column) => {
            question.sql("(").sql(column).sql(" IS NOT NULL AND ");
            of_text(question, column, named, op, value)?;
            question.sql(")");
        }
        Place::Flag(column) => {
            let Some(flag) = flag(value).filter(|_| op == Op::Eq) else {
                return Err(INVALID_FILTER.because(format!("{} must be compared with true or false.", named.path())));
            };
            question.sql(column).sql(" = ").value(flag);
        }
        Place::Moment(column) => {
            let moment = moment(value);
            let (Some(moment), Some(sign)) = (moment, sign(op)) else {
                return Err(
                    INVALID_FILTER.because(format!("{} must be compared with a date and time.", named.path()))
                );
            };
            question.sql(column).sql(sign).value(moment);
        }
        Place::Exists(before, column, after) => {
            question.sql(before);
            of_text(question, column, named, op, value)?;
            question.sql(after);
        }
        Place::Value(path) => {
            any_value(question, path).sql(" AND ");
            of_text(question, if named.leaf().is_exact { "one.value" } else { "one.folded" }, named, op, value)?;
            question.sql(")");
        }
    }
    Ok(())
}

/// `true`, and `"True"` as some providers write it.
pub fn flag(value: &Json) -> Option<bool> {
    match value {
        Json::Bool(flag) => Some(*flag),
        Json::String(text) if text.eq_ignore_ascii_case("true") => Some(true),
        Json::String(text) if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

fn moment(value: &Json) -> Option<Timestamp> {
    serde_json::from_value(value.clone()).ok()
}

fn sign(op: Op) -> Option<&'static str> {
    Some(match op {
        Op::Eq => " = ",
        Op::Gt => " > ",
        Op::Ge => " >= ",
        Op::Lt => " < ",
        Op::Le => " <= ",
        Op::Ne | Op::Co | Op::Sw | Op::Ew => return None,
    })
}

/// A comparison of texts, in which no character means anything but itself.
fn of_text(question: &mut Composed, column: &'static str, named: Named, op: Op, value: &Json) -> Result<()> {
    let leaf = named.leaf();
    let text = match (leaf.kind, value) {
        (Kind::Flag, value) => flag(value).filter(|_| op == Op::Eq).map(|flag| flag.to_string()),
        (_, Json::String(text)) if leaf.is_exact => Some(text.clone()),
        (_, Json::String(text)) => Some(text.to_lowercase()),
        (_, Json::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let Some(text) = text.filter(|text| !text.contains('\0')) else {
        return Err(INVALID_FILTER.because(format!("{} cannot be compared with a value of this type.", named.path())));
    };
    let text = Value::from(text);
    match op {
        Op::Co => {
            if text == Value::from("") {
                question.sql("1 = 1");
                return Ok(());
            }
            question.sql("REPLACE(").sql(column).sql(", CAST(").value(text).sql(" AS TEXT), '') <> ").sql(column);
        }
        Op::Sw => {
            question.sql("SUBSTR(").sql(column).sql(", 1, LENGTH(CAST(").value(text.clone());
            question.sql(" AS TEXT))) = ").value(text);
        }
        Op::Ew => {
            question.sql("(LENGTH(").sql(column).sql(") >= LENGTH(CAST(").value(text.clone());
            question.sql(" AS TEXT)) AND SUBSTR(").sql(column).sql(", LENGTH(").sql(column).sql(") - LENGTH(CAST(");
            question.value(text.clone()).sql(" AS TEXT)) + 1) = ").value(text).sql(")");
        }
        _ => {
            question.sql(column).sql(sign(op).unwrap_or(" = ")).value(text);
        }
    }
    Ok(())
}

/// What a list is sorted by. Resources without a value come last in ascending order and first in descending order
/// (RFC 7644, 3.4.2.3).
pub fn order(question: &mut Composed, resource: &Resource, by: &str, is_descending: bool) -> Result<()> {
    let named = known(resource, by)?.compared();
    let way = if is_descending { " DESC" } else { "" };
    question.sql(" ORDER BY ");
    match place(resource, &named).ok_or_else(|| not_asked_for(&named))? {
        // The same for every resource, and PostgreSQL refuses to sort by a constant.
        Place::Column(column) if column.starts_with('\'') => return Ok(()),
        Place::Column(column) | Place::Folded(column) => {
            question.sql("CASE WHEN ").sql(TEXT).sql(column).sql(OR_EMPTY).sql(IS_EMPTY).sql(way).sql(", ");
            question.sql(TEXT).sql(column).sql(OR_EMPTY).sql(way);
        }
        Place::Flag(column) | Place::Moment(column) => {
            question.sql(column).sql(way);
        }
        Place::Exists(..) => return Err(not_asked_for(&named)),
        Place::Value(path) => {
            const FIRST: &str = "(SELECT one.folded FROM person_value AS one WHERE one.org_id = person.org_id
                                  AND one.person_id = person.id AND one.path = ";
            const OF_ALL: &str = " ORDER BY one.item LIMIT 1)";
            question.sql("CASE WHEN ").sql(TEXT).sql(FIRST).value(path.as_str()).sql(OF_ALL).sql(OR_EMPTY);
            question.sql(IS_EMPTY).sql(way).sql(", ");
            question.sql(TEXT).sql(FIRST).value(path).sql(OF_ALL).sql(OR_EMPTY).sql(way);
        }
    }
    question.sql(", ");
    Ok(())
}

/// Around a text that may be missing: the engines disagree about where nulls belong, so none is left to sort by.
const TEXT: &str = "COALESCE(";
const OR_EMPTY: &str = ", '')";
const IS_EMPTY: &str = " = '' THEN 1 ELSE 0 END";
