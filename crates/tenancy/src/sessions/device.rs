//! Names of devices.

/// The name of a device: the browser and its system, or the name that a program sends. A stranger chose that name and
/// mails show it, so it is one plain word.
pub fn device_name(user_agent: &str) -> String {
    let known = woothee::parser::Parser::new().parse(user_agent);
    match known.filter(|found| !["UNKNOWN", "HTTP Library"].contains(&found.name)) {
        Some(found) if found.os != "UNKNOWN" => format!("{} on {}", found.name, found.os),
        Some(found) => found.name.to_owned(),
        None => {
            let program = user_agent.split(['/', ' ']).next().unwrap_or_default();
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            let is_name = !program.is_empty() && program.len() <= 40 && program.chars().all(is_plain);
            if is_name && program != "Mozilla" { program.to_owned() } else { "An app or script".into() }
        }
    }
}
