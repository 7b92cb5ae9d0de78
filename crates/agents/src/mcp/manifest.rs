//! What `server.json` of the MCP registry asks of packages, remotes and the repository. Clients install from it, so nothing
//! is published that they could not read.
use kernel::fault::{Fault, INVALID, Result};
use serde_json::Value;
use url::Url;

type Wrong = Vec<(String, &'static str, &'static str)>;

/// Refuses with every field that is wrong.
pub fn check(packages: Option<&Value>, remotes: Option<&Value>, repository: Option<&Value>) -> Result<()> {
    let wrong = wrong_fields(packages, remotes, repository);
    if wrong.is_empty() {
        return Ok(());
    }
    let all = wrong.into_iter();
    Err(all.fold(Fault::from(INVALID), |fault, (field, code, message)| fault.and(field, code, message)))
}

fn wrong_fields(packages: Option<&Value>, remotes: Option<&Value>, repository: Option<&Value>) -> Wrong {
    let mut wrong = Wrong::new();
    for (i, package) in entries(packages).enumerate() {
        check_package(package, &format!("packages.{i}"), &mut wrong);
    }
    for (i, remote) in entries(remotes).enumerate() {
        check_transport(remote, &format!("remotes.{i}"), false, &mut wrong);
    }
    if let Some(repository) = repository {
        let is_web = text(repository, "url").is_some_and(is_web_url);
        if !is_web {
            wrong.push(("repository.url".into(), "wrong_form", "must be an https URL"));
        }
        if text(repository, "source").is_none() {
            wrong.push(("repository.source".into(), "required", "must name the host, such as github"));
        }
        for name in ["id", "subfolder"] {
            if repository.get(name).is_some_and(|value| !value.is_string()) {
                wrong.push((format!("repository.{name}"), "wrong_form", "must be text"));
            }
        }
    }
    wrong
}

fn entries(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    list.and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty())
}

fn is_web_url(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| url.scheme() == "https" && url.host().is_some())
}

/// An address with variables in braces, as packages and remotes have it.
fn is_address(text: &str) -> bool {
    let is_plain = text.starts_with("https://") || text.starts_with("http://");
    let is_variable = text.strip_prefix('{').is_some_and(|rest| {
        let name = rest.split('}').next().unwrap_or_default();
        rest.contains('}')
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    });
    (is_plain || is_variable) && !text.chars().any(char::is_whitespace)
}

/// A version is one version: neither `latest` nor a range.
pub fn is_exact(version: &str) -> bool {
    let is_range = version.starts_with(['^', '~', '>', '<', '=', '*'])
        || version.split('.').any(|part| matches!(part, "x" | "X" | "*"))
        || version.contains([' ', '|']);
    !version.is_empty() && version != "latest" && !is_range
}

fn check_package(package: &Value, field: &str, wrong: &mut Wrong) {
    if text(package, "registryType").is_none() {
        wrong.push((format!("{field}.registryType"), "required", "must be such as npm, pypi or oci"));
    }
    if text(package, "identifier").is_none() {
        wrong.push((format!("{field}.identifier"), "required", "must be the name of the package"));
    }
    if package.get("version").is_some_and(|version| !version.as_str().is_some_and(is_exact)) {
        wrong.push((format!("{field}.version"), "wrong_form", "must be one version, not a range and not latest"));
    }
    let is_digest = |text: &str| text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if package.get("fileSha256").is_some_and(|digest| !digest.as_str().is_some_and(is_digest)) {
        wrong.push((format!("{field}.fileSha256"), "wrong_form", "must be 64 hexadecimal digits in lower case"));
    }
    let base = package.get("registryBaseUrl");
    if base.is_some_and(|url| !url.as_str().is_some_and(is_web_url)) {
        wrong.push((format!("{field}.registryBaseUrl"), "wrong_form", "must be an https URL"));
    }
    match package.get("transport") {
        Some(transport) => check_transport(transport, &format!("{field}.transport"), true, wrong),
        None => wrong.push((format!("{field}.transport"), "required", "must say how the package is spoken to")),
    }
    for list in ["runtimeArguments", "packageArguments"] {
        for (i, argument) in entries(package.get(list)).enumerate() {
            let is_good = match text(argument, "type") {
                Some("positional") => argument.get("value").or(argument.get("valueHint")).is_some(),
                Some("named") => text(argument, "name").is_some(),
                _ => false,
            };
            if !is_good {
                let message = "must be positional with a value or valueHint, or named with a name";
                wrong.push((format!("{field}.{list}.{i}"), "wrong_form", message));
            }
        }
    }
    named(package.get("environmentVariables"), &format!("{field}.environmentVariables"), wrong);
}

fn named(list: Option<&Value>, field: &str, wrong: &mut Wrong) {
    for (i, one) in entries(list).enumerate() {
        if text(one, "name").is_none() {
            wrong.push((format!("{field}.{i}.name"), "required", "is required"));
        }
    }
}

fn check_transport(transport: &Value, field: &str, is_local: bool, wrong: &mut Wrong) {
    match text(transport, "type") {
        Some("stdio") if is_local => return,
        Some("streamable-http" | "sse") => {}
        _ => {
            let message =
                if is_local { "must be stdio, streamable-http or sse" } else { "must be streamable-http or sse" };
            wrong.push((format!("{field}.type"), "wrong_form", message));
            return;
        }
    }
    if !text(transport, "url").is_some_and(is_address) {
        wrong.push((format!("{field}.url"), "wrong_form", "must be a URL"));
    }
    named(transport.get("headers"), &format!("{field}.headers"), wrong);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_version_is_no_range() {
        for version in ["1.0.0", "2.1.0-alpha", "2026.11.18", "v3", "1.0.0+build"] {
            assert!(is_exact(version), "{version}");
        }
        for range in ["^1.2.3", "~1.2.3", ">=1.2.3", "1.x", "1.*", "latest", "*", "1 || 2", ""] {
            assert!(!is_exact(range), "{range}");
        }
    }

    #[test]
    fn every_wrong_field_is_named() {
        let packages = json!([
            { "registryType": "npm", "identifier": "a", "version": "1.0.0", "transport": { "type": "stdio" },
              "packageArguments": [{ "type": "positional", "valueHint": "file" }, { "type": "named", "name": "--x" }],
              "environmentVariables": [{ "name": "KEY" }] },
            { "identifier": "", "version": "latest", "fileSha256": "AB", "registryBaseUrl": "ftp://x",
              "transport": { "type": "carrier-pigeon" }, "runtimeArguments": [{ "type": "named" }],
              "environmentVariables": [{}] },
        ]);
        let remotes = json!([{ "type": "sse", "url": "{base}/sse" }, { "type": "stdio" },
                             { "type": "sse", "url": "x y", "headers": [{}] }]);
        let repository = json!({ "url": "javascript:x", "id": 7 });
        let wrong = wrong_fields(Some(&packages), Some(&remotes), Some(&repository));
        let fields: Vec<_> = wrong.iter().map(|(field, ..)| field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "packages.1.registryType",
                "packages.1.identifier",
                "packages.1.version",
                "packages.1.fileSha256",
                "packages.1.registryBaseUrl",
                "packages.1.transport.type",
                "packages.1.runtimeArguments.0",
                "packages.1.environmentVariables.0.name",
                "remotes.1.type",
                "remotes.2.url",
                "remotes.2.headers.0.name",
                "repository.url",
                "repository.source",
                "repository.id",
            ]
        );
        assert!(check(None, None, Some(&json!({ "url": "https://github.com/a/b", "source": "github" }))).is_ok());
    }
}
