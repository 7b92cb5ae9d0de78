//! Modules of tenancy do not import each other in circles. Each can be read and changed after those it uses; a circle of
//! many would be one module in many files.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

type Module = Vec<String>;

/// Two that belong together may know each other.
const MOST: usize = 2;

/// The files of a crate by the path of their module.
fn modules(folder: &Path, here: &[String], found: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder).expect("the sources").flatten() {
        let path = entry.path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let within = |name: String| here.iter().cloned().chain([name]).collect::<Module>();
        if path.is_dir() {
            modules(&path, &within(name), found);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !["testing", "tests"].contains(&&*name) {
            let text = fs::read_to_string(&path).expect("a source");
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
            let code = lines.collect::<Vec<_>>().join("\n");
            let module = if ["mod", "lib"].contains(&&*name) { here.to_vec() } else { within(name) };
            found.insert(module, code);
        }
    }
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d` and `a::c::e`.
fn spread(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((before, inner)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let inner = inner.trim_end().strip_suffix('}').unwrap_or(inner);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else {
            parts.last_mut().expect("one").push(c);
        }
    }
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| spread(&part)).map(|part| format!("{before}{part}")).collect()
}

/// The module that a path leads to, and the first name in it.
fn resolve(path: &str, here: &[String], all: &BTreeMap<Module, String>) -> Option<(Module, Option<String>)> {
    let path = path.split(" as ").next().unwrap_or_default();
    let mut names: Vec<&str> = path.split("::").map(str::trim).filter(|name| !name.is_empty()).collect();
    names.reverse();
    let is_child = |name: &str| all.contains_key(&here.iter().cloned().chain([name.to_owned()]).collect::<Module>());
    let mut at = match *names.last()? {
        "crate" => vec![],
        "self" | "super" => here.to_vec(),
        name if is_child(name) => here.to_vec(),
        _ => return None,
    };
    while let Some(first @ ("crate" | "self" | "super")) = names.last().copied() {
        if first == "super" {
            at.pop();
        }
        names.pop();
    }
    while let Some(name) = names.last() {
        let next: Module = at.iter().cloned().chain([(*name).to_owned()]).collect();
        if !all.contains_key(&next) {
            break;
        }
        at = next;
        names.pop();
    }
    Some((at, names.last().map(|name| (*name).to_owned())))
}

/// What each module imports. A name that a folder hands on is taken from where it is.
fn imports(all: &BTreeMap<Module, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let (mut handed_on, mut found) = (BTreeMap::new(), vec![]);
    for (module, code) in all {
        let mut rest = String::new();
        for statement in code.split_inclusive(';') {
            let is_public = |at: &usize| statement[..*at].lines().last().is_some_and(|line| line.starts_with("pub"));
            let handing_on = || statement.rfind(" use ").filter(is_public).map(|at| (at, true));
            let Some((start, is_handed_on)) = statement.rfind("\nuse ").map(|at| (at, false)).or_else(handing_on)
            else {
                rest.push_str(statement);
                continue;
            };
            for path in spread(statement[start + 5..].trim_end_matches(';')) {
                let Some((target, name)) = resolve(&path, module, all) else { continue };
                if let (true, Some(name)) = (is_handed_on, &name) {
                    handed_on.insert((module.clone(), name.clone()), target.clone());
                }
                if !(is_handed_on && target.starts_with(module)) {
                    found.push((module.clone(), target, name));
                }
            }
        }
        for word in ["crate::", "super::"] {
            for (at, _) in rest.match_indices(word) {
                let path: String =
                    rest[at..].chars().take_while(|c| c.is_alphanumeric() || "_:".contains(*c)).collect();
                found.extend(resolve(&path, module, all).map(|(target, name)| (module.clone(), target, name)));
            }
        }
    }
    let mut imports: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (module, target, name) in found {
        let target = name.and_then(|name| handed_on.get(&(target.clone(), name)).cloned()).unwrap_or(target);
        if target != module && !target.is_empty() {
            imports.entry(module).or_default().insert(target);
        }
    }
    imports
}

fn reached<'a>(from: &'a [String], imports: &'a BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<&'a [String]> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        let next = imports.get(module).into_iter().flatten().map(Vec::as_slice);
        open.extend(next.filter(|next| found.insert(*next)));
    }
    found
}

#[test]
fn modules_of_tenancy_import_each_other_in_no_circle() {
    let mut all = BTreeMap::new();
    modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tenancy/src"), &[], &mut all);
    let imports = imports(&all);
    assert!(all.len() > 60 && imports.values().map(BTreeSet::len).sum::<usize>() > 150, "the sources were read");
    for module in all.keys() {
        let circle: Vec<String> = reached(module, &imports)
            .into_iter()
            .filter(|other| reached(other, &imports).contains(module.as_slice()))
            .map(|module| module.join("::"))
            .collect();
        assert!(circle.len() <= MOST, "a circle of {}: {circle:#?}", circle.len());
    }
}

#[test]
fn a_tree_of_imports_is_spread_and_resolved() {
    assert_eq!(spread("a::{b, c::{d, e}}"), ["a::b", "a::c::d", "a::c::e"]);
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
    let all = BTreeMap::from(["a", "a::b", "c"].map(|path| (module(path), String::new())));
    assert_eq!(resolve("super::b::Thing", &module("a::x"), &all), Some((module("a::b"), Some("Thing".into()))));
    assert_eq!(resolve("crate::c", &module("a"), &all), Some((module("c"), None)));
    assert_eq!(resolve("b::Thing as Other", &module("a"), &all), Some((module("a::b"), Some("Thing".into()))));
    assert_eq!(resolve("kernel::Janua", &module("a"), &all), None);
}
