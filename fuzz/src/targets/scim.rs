//! Filters and changes of SCIM.
use std::fmt::Write as _;

use db::Composed;
use directory::scim::{
    document,
    filter::{Filter, Op, Target},
    patch::{self, Patch},
    schema::{GROUPS, USERS},
    sql,
};
use serde_json::{Map, Value};

use crate::{parts, texts};

/// A filter that is read is written, and read as the same again; it has bounds, and becomes a query or a refusal.
pub fn scim_filter(data: &[u8]) -> bool {
    let Some([text]) = texts(data) else { return false };
    let target = Target::parse(text);
    if let Ok(target) = &target {
        let mut written = target.name.clone();
        if let Some(which) = &target.which {
            let _ = write!(written, "[{}]", write(which));
        }
        if let Some(part) = &target.part {
            let _ = write!(written, ".{part}");
        }
        // In brackets it stands one deeper than where it was read, if it was read at all.
        assert_eq!(Target::parse(&written).ok().as_ref(), Some(target), "{written}");
    }
    let Ok(filter) = Filter::parse(text) else { return target.is_ok() };
    assert!(text.len() <= 4096, "{}", text.len());
    assert!(terms(&filter) <= 60 && depth(&filter) <= 26, "{filter:?}");
    let written = write(&filter);
    if written.len() <= 4096 {
        assert_eq!(Filter::parse(&written).ok(), Some(filter.clone()), "{written}");
    }
    for resource in [&USERS, &GROUPS] {
        let mut question = Composed::new("");
        let _ = sql::condition(&mut question, resource, &filter);
        let _ = sql::names_one(resource, &filter);
    }
    true
}

fn op(op: Op) -> &'static str {
    match op {
        Op::Eq => "eq",
        Op::Ne => "ne",
        Op::Co => "co",
        Op::Sw => "sw",
        Op::Ew => "ew",
        Op::Gt => "gt",
        Op::Ge => "ge",
        Op::Lt => "lt",
        Op::Le => "le",
    }
}

fn write(filter: &Filter) -> String {
    let joined = |terms: &[Filter], word: &str| terms.iter().map(term).collect::<Vec<_>>().join(word);
    match filter {
        Filter::And(terms) => joined(terms, " and "),
        Filter::Or(terms) => joined(terms, " or "),
        Filter::Not(inner) => format!("not ({})", write(inner)),
        Filter::Present(name) => format!("{name} pr"),
        Filter::Compare(name, op, value) => format!("{name} {} {value}", self::op(*op)),
        Filter::One(name, inner) => format!("{name}[{}]", write(inner)),
    }
}

fn term(filter: &Filter) -> String {
    match filter {
        Filter::And(_) | Filter::Or(_) => format!("({})", write(filter)),
        _ => write(filter),
    }
}

fn terms(filter: &Filter) -> usize {
    match filter {
        Filter::And(terms) | Filter::Or(terms) => terms.iter().map(self::terms).sum(),
        Filter::Not(inner) | Filter::One(_, inner) => terms(inner),
        Filter::Present(_) | Filter::Compare(..) => 1,
    }
}

fn depth(filter: &Filter) -> usize {
    match filter {
        Filter::And(terms) | Filter::Or(terms) => 1 + terms.iter().map(depth).max().unwrap_or_default(),
        Filter::Not(inner) | Filter::One(_, inner) => 1 + depth(inner),
        Filter::Present(_) | Filter::Compare(..) => 1,
    }
}

/// A resource as it is sent, and a change of it. What only the server says stays as it was, and what comes out is what the reader
/// of whole resources would keep.
pub fn scim_patch(data: &[u8]) -> bool {
    let [sent, change] = parts(data);
    let Ok(sent) = serde_json::from_slice::<Map<String, Value>>(sent) else { return false };
    let Ok(change) = serde_json::from_slice::<Patch>(change) else { return false };
    let mut is_applied = false;
    for resource in [&USERS, &GROUPS] {
        let Ok(read) = document::read(resource, &sent) else { continue };
        let again = document::read(resource, &read).expect("what was read is read again");
        assert_eq!(again, read, "reading twice changes nothing");
        let mut before = read;
        before.insert("id".into(), "own".into());
        before.insert("meta".into(), serde_json::json!({ "resourceType": resource.name }));
        let mut changed = before.clone();
        if patch::apply(resource, &mut changed, &change).is_err() {
            continue;
        }
        is_applied = true;
        for fixed in ["id", "meta"] {
            assert_eq!(changed.get(fixed), before.get(fixed), "{fixed} is the server's");
        }
        let mut twice = before;
        patch::apply(resource, &mut twice, &change).expect("the same change of the same resource");
        assert_eq!(twice, changed, "a change is the same each time");
    }
    is_applied
}
