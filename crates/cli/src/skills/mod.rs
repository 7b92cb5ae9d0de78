//! `janua skills`: skills for agents, from the first file to an installed folder that is checked.
mod folder;
mod install;
mod signed;

use std::path::{Path, PathBuf};

use folder::Checked;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    failure::{Failure, Result},
    output::{Column, bytes, text_at},
    resources::{body, done, some},
    server::{Extra, Server, body_of, encoded},
};

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Visibility {
    /// Listed for everybody
    Public,
    /// Found by its slug alone
    Unlisted,
    /// For members of the organization
    Org,
}

#[derive(clap::Subcommand)]
pub enum Skills {
    /// Create a folder with a SKILL.md to start from
    Init {
        /// Lower-case letters, digits and hyphens; the folder has the same name
        name: String,
        /// What the skill does, and when an agent should use it
        #[arg(long)]
        description: Option<String>,
    },
    /// Check a folder by the rules of the server, without a server. The scan runs when it is published
    Validate {
        #[arg(default_value = ".")]
        folder: PathBuf,
    },
    /// Publish a folder: a new skill, or a new version of one
    Publish {
        #[arg(default_value = ".")]
        folder: PathBuf,
        /// The slug of an organization, or a proven domain such as com.example [default: the organization of --org]
        #[arg(long)]
        namespace: Option<String>,
        /// A semantic version [default: metadata.version of SKILL.md]
        #[arg(id = "skill_version", long = "skill-version", value_name = "VERSION")]
        version: Option<String>,
        #[arg(long, value_enum, default_value = "public")]
        visibility: Visibility,
    },
    /// Install a skill: download it, check its signature and unpack it
    Install {
        /// Such as acme.pdf-tools
        slug: String,
        /// [default: the latest]
        #[arg(id = "skill_version", long = "skill-version", value_name = "VERSION")]
        version: Option<String>,
        /// The folder that the skill's own folder is created in
        #[arg(long, value_name = "FOLDER", default_value = "skills")]
        into: PathBuf,
    },
    /// Check an installed skill: its signature, every file, and whether it was withdrawn
    Verify {
        /// The folder of the skill
        #[arg(default_value = ".")]
        folder: PathBuf,
    },
    /// Stop offering a version. Users who name it still get it
    Yank {
        slug: String,
        #[arg(id = "skill_version", value_name = "VERSION")]
        version: String,
        #[arg(long)]
        reason: Option<String>,
        /// Offer the version again
        #[arg(long, conflicts_with = "reason")]
        undo: bool,
    },
}

pub async fn run(server: &Server, command: &Skills) -> Result<()> {
    match command {
        Skills::Init { name, description } => init(server, name, description.as_deref()),
        Skills::Validate { folder } => validate(server, folder),
        Skills::Publish { folder, namespace, version, visibility } => {
            publish(server, folder, namespace.as_deref(), version.as_deref(), *visibility).await
        }
        Skills::Install { slug, version, into } => install::install(server, slug, version.as_deref(), into).await,
        Skills::Verify { folder } => install::verify(server, folder).await,
        Skills::Yank { slug, version, reason, undo } => {
            let path = format!("/skills/{}/versions/{}", encoded(slug), encoded(version));
            let change = body(&[("yanked", Some(json!(!undo))), ("reason", some(reason.as_ref()))]);
            let answer = server.ask(Method::PATCH, &path, Some(change)).await?;
            let act = if *undo { "is offered again" } else { "is no longer offered" };
            done(server, &answer, &format!("{slug} {version} {act}."), &[]);
            Ok(())
        }
    }
}

fn init(server: &Server, name: &str, description: Option<&str>) -> Result<()> {
    let file = folder::create(Path::new(name), name, description)?;
    let answer = json!({ "name": name, "file": file.display().to_string() });
    done(server, &answer, &format!("Created {}.", file.display()), &[]);
    server.out.note(&format!("Edit it, then run `janua skills validate {name}`."));
    Ok(())
}

fn validate(server: &Server, folder: &Path) -> Result<()> {
    let checked = folder::check(folder)?;
    if !checked.errors.is_empty() {
        return Err(checked.into_failure());
    }
    let answer = checked.to_json();
    let line = format!("{} can be published.", text_at(&answer, "name"));
    done(server, &answer, &line, &[("Version", "version"), ("Files", "files"), ("Bytes", "size")]);
    Ok(())
}

const PUBLISHED: &[Column] = &[("Slug", "slug"), ("Version", "version"), ("State", "state"), ("Digest", "digest")];

async fn publish(
    server: &Server,
    folder: &Path,
    namespace: Option<&str>,
    version: Option<&str>,
    visibility: Visibility,
) -> Result<()> {
    let checked = folder::check(folder)?;
    if !checked.errors.is_empty() {
        return Err(checked.into_failure());
    }
    let Checked { name, archive, files, .. } = checked;
    let namespace = match namespace {
        Some(namespace) => namespace.to_owned(),
        None => text_at(&server.get(&format!("/org/{}", server.org().await?)).await?, "slug"),
    };
    let slug = format!("{namespace}.{name}");
    let is_known = is_there(server, &slug).await?;
    let noun = if files == 1 { "file" } else { "files" };
    server.out.note(&format!("{files} {noun}, {} in the package", bytes(archive.len() as u64)));
    let mut query: Vec<String> = version.map(|version| format!("version={}", encoded(version))).into_iter().collect();
    let path = if is_known {
        format!("/skills/{}/versions", encoded(&slug))
    } else {
        let visibility = match visibility {
            Visibility::Public => "public",
            Visibility::Unlisted => "unlisted",
            Visibility::Org => "org",
        };
        query.push(format!("namespace={}&visibility={visibility}", encoded(&namespace)));
        "/skills".to_owned()
    };
    let extra = Extra { body: Some(archive), content_type: "application/gzip", ..Extra::default() };
    let sent = server.send(Method::POST, &format!("{path}?{}", query.join("&")), &extra).await?;
    let answer = body_of(sent).await.map_err(with_findings)?;
    server.out.answer(&answer, |out| {
        let mut shown = answer["version"].clone();
        shown["slug"] = json!(slug);
        let state = text_at(&shown, "state");
        let line = if state == "in_review" { "waits for a review" } else { "is published" };
        out.line(&format!("{} {slug} {} {line}.", out.green("✓"), text_at(&shown, "version")));
        out.record(&shown, PUBLISHED);
    });
    Ok(())
}

/// Whether the skill exists already, so that this is a version of it.
async fn is_there(server: &Server, slug: &str) -> Result<bool> {
    match server.get(&format!("/skills/{}", encoded(slug))).await {
        Ok(_) => Ok(true),
        // A skill without a published version is there, too; publishing a version says so.
        Err(failure) if failure.code == "not_found" => Ok(false),
        Err(failure) if ["under_review", "revoked"].contains(&failure.code.as_str()) => Ok(true),
        Err(failure) => Err(failure),
    }
}

/// What the scan found, a line each.
fn with_findings(mut failure: Failure) -> Failure {
    let findings = failure.problem.as_ref().map(|problem| problem["findings"].clone()).unwrap_or_default();
    let lines: Vec<String> = findings.as_array().into_iter().flatten().map(finding).collect();
    for line in lines {
        failure.message.push_str("\n  ");
        failure.message.push_str(&line);
    }
    failure
}

fn finding(found: &Value) -> String {
    let place = match (text_at(found, "path|file"), text_at(found, "line")) {
        (path, line) if line.is_empty() => path,
        (path, line) => format!("{path}:{line}"),
    };
    format!("{place}  {}  {}", text_at(found, "code"), text_at(found, "message|excerpt")).trim().to_owned()
}
