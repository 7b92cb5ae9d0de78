//! Diagrams of the documents (Mermaid) as lists: who leads to whom. They are read without a script and by screen readers.
use std::collections::HashMap;

/// One arrow of a diagram.
#[derive(Debug, PartialEq)]
pub struct Arrow {
    pub from: String,
    pub to: String,
    /// What it says; may be empty.
    pub label: String,
}

/// The arrows of a flowchart or a sequence diagram in the order of the text.
pub fn arrows(source: &str) -> Vec<Arrow> {
    let mut names = HashMap::new();
    let lines: Vec<&str> = source.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.first().is_some_and(|line| line.starts_with("sequenceDiagram")) {
        return lines.iter().filter_map(|line| message(line, &mut names)).collect();
    }
    // Names are declared where a node stands first, which may be on the right of an arrow.
    for line in &lines {
        for part in line.split("--").flat_map(|part| part.split(['&', '.'])) {
            declare(part.trim_start_matches(['>', '-', ' ']), &mut names);
        }
    }
    lines.iter().flat_map(|line| edges(line, &names)).collect()
}

/// `a->>b: text`, or `participant a as name`.
fn message(line: &str, names: &mut HashMap<String, String>) -> Option<Arrow> {
    if let Some((id, name)) = line.strip_prefix("participant ").and_then(|rest| rest.split_once(" as ")) {
        names.insert(id.trim().to_owned(), name.trim().to_owned());
        return None;
    }
    let (from, rest) = line.split_once("->>")?;
    let (to, label) = rest.split_once(':')?;
    let name = |id: &str| names.get(id.trim()).cloned().unwrap_or_else(|| id.trim().to_owned());
    Some(Arrow { from: name(from), to: name(to), label: label.trim().to_owned() })
}

/// `id["name"]` with any kind of brackets.
fn declare(part: &str, names: &mut HashMap<String, String>) {
    let part = part.trim();
    if let Some((id, rest)) = part.split_once(['[', '(', '{'])
        && let Some(name) = rest.split('"').nth(1)
    {
        names.insert(id.trim().to_owned(), name.to_owned());
    }
}

/// `a --> b`, `a & b -- "text" --> c`, `a -. "text" .-> b`, `a --- b`.
fn edges(line: &str, names: &HashMap<String, String>) -> Vec<Arrow> {
    let arrow = ["-->", ".->", "---"].iter().find_map(|arrow| line.split_once(arrow));
    let Some((left, right)) = arrow else { return vec![] };
    let (left, label) = match left.split_once(" -- ").or_else(|| left.split_once(" -. ")) {
        Some((left, label)) => (left, label.trim().trim_matches('"')),
        None => (left, ""),
    };
    let nodes = |side: &str| -> Vec<String> {
        let ids =
            side.split('&').map(|node| node.split(['[', '(', '{']).next().unwrap_or_default().trim().to_owned());
        let mut found: Vec<String> = ids.map(|id| names.get(&id).cloned().unwrap_or(id)).collect();
        found.dedup();
        found
    };
    let to = nodes(right).join(", ");
    vec![Arrow { from: nodes(left).join(", "), to, label: label.to_owned() }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(source: &str) -> Vec<String> {
        arrows(source).into_iter().map(|arrow| format!("{}|{}|{}", arrow.from, arrow.label, arrow.to)).collect()
    }

    #[test]
    fn a_flowchart_is_a_list_of_its_arrows() {
        let source = "flowchart LR\n    people([\"users (all)\"]) --> proxy[\"proxy\"]\n    proxy --> a[\"janua\"] & b[\"janua\"]\n    \
                      a -- \"member: owner\" --> org[\"organization\"]\n    a -. \"later\" .-> away[(\"standby\")]\n    a --- org\n";
        let expected = [
            "users (all)||proxy",
            "proxy||janua",
            "janua|member: owner|organization",
            "janua|later|standby",
            "janua||organization",
        ];
        assert_eq!(said(source), expected);
    }

    #[test]
    fn a_sequence_is_a_list_of_its_messages() {
        let source = "sequenceDiagram\n    participant app as your app\n    participant janua\n    app->>janua: POST /oauth/token (code)\n";
        assert_eq!(said(source), ["your app|POST /oauth/token (code)|janua"]);
    }
}
