//! `deploy`: a folder becomes a site; and what was deployed before.
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    failure::{Failure, Result},
    output::{Column, bytes, text_at},
    resources::Most,
    server::{Extra, Server, encoded},
};

#[derive(clap::Args)]
pub struct Deploy {
    /// The folder with the built files
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Leave production as it is; the deployment has a URL of its own
    #[arg(long)]
    preview: bool,
    /// Shown beside the deployment; taken from git if the folder is in a repository
    #[arg(long)]
    branch: Option<String>,
    #[arg(long)]
    commit: Option<String>,
    #[arg(long)]
    message: Option<String>,
}

/// What the server takes at most. The subject of a commit may be longer.
const LONGEST_MESSAGE: usize = 500;

const DEPLOYMENT: &[Column] = &[
    ("Deployment", "id"),
    ("Number", "number"),
    ("Status", "status"),
    ("Target", "target"),
    ("URL", "url"),
    ("Preview", "previewUrl"),
    ("Warnings", "warnings"),
];

pub async fn deploy(server: &Server, wishes: &Deploy) -> Result<()> {
    let app = server.app().await?;
    let packed = pack(&wishes.folder)?;
    if packed.files == 0 {
        return Err(Failure::usage(format!("{} has no files to deploy.", wishes.folder.display())));
    }
    let size = packed.archive.len() as u64;
    let noun = if packed.files == 1 { "file" } else { "files" };
    server.out.note(&format!("{} {noun}, {} in the archive", packed.files, bytes(size)));
    let bar = progress(server, size);
    let mut query = vec![];
    if wishes.preview {
        query.push("target=preview".to_owned());
    }
    let git = |arguments: &[&str]| git(&wishes.folder, arguments);
    let branch = wishes.branch.clone().or_else(|| git(&["rev-parse", "--abbrev-ref", "HEAD"]));
    let commit = wishes.commit.clone().or_else(|| git(&["rev-parse", "HEAD"]));
    let message = wishes.message.clone().or_else(|| git(&["log", "-1", "--format=%s"]));
    let message = message.map(|message| message.chars().take(LONGEST_MESSAGE).collect());
    for (name, value) in [("branch", branch), ("commit", commit), ("message", message)] {
        if let Some(value) = value {
            query.push(format!("{name}={}", encoded(&value)));
        }
    }
    let path = format!("/apps/{app}/deploy?{}", query.join("&"));
    let extra = Extra { body: Some(packed.archive), content_type: "application/gzip", ..Extra::default() };
    if !server.is_signed_in() {
        return Err(Failure::auth(format!("Not signed in at {}.", server.url)).hint(server.how_to_sign_in()));
    }
    let sent = server.send(Method::POST, &path, &extra).await;
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let deployed = crate::server::body_of(sent?).await?;
    server.out.answer(&deployed, |out| {
        let (number, target) = (text_at(&deployed, "number"), text_at(&deployed, "target"));
        let live = if deployed["active"] == true { "is live" } else { "is ready" };
        out.line(&format!("{} Deployment {number} ({target}) {live}.", out.green("✓")));
        let fields: [Column; 3] = [("URL", "url"), ("Preview", "previewUrl"), ("ID", "id")];
        // Production still shows what was live before.
        out.record(&deployed, if deployed["active"] == true { &fields[..] } else { &fields[1..] });
        for warning in deployed["warnings"].as_array().into_iter().flatten() {
            out.note(&format!("warning: {}", warning.as_str().unwrap_or_default()));
        }
    });
    match deployed["error"].as_object() {
        Some(_) => Err(Failure::failed(text_at(&deployed, "error.message"))),
        None => Ok(()),
    }
}

/// Turns while the archive is on its way.
fn progress(server: &Server, size: u64) -> Option<ProgressBar> {
    if !server.out.draws() {
        return None;
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.set_message(format!("Uploading {}", bytes(size)));
    bar.enable_steady_tick(Duration::from_millis(100));
    Some(bar)
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = std::process::Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty() && text != "HEAD").then_some(text)
}

#[derive(Debug)]
pub struct Packed {
    pub archive: Vec<u8>,
    pub files: usize,
    /// The files' paths and sizes.
    pub paths: Vec<(String, u64)>,
}

/// The folder as a gzip-compressed tar, the same for the same files: sorted, without owners and times.
pub fn pack(folder: &Path) -> Result<Packed> {
    let what = fs::metadata(folder).map_err(|error| Failure::usage(format!("{}: {error}", folder.display())))?;
    if !what.is_dir() {
        return Err(Failure::usage(format!("{} is not a folder.", folder.display())));
    }
    let mut found = vec![];
    walk(&folder.canonicalize()?, folder, "", &mut found)?;
    found.sort();
    let mut tar = tar::Builder::new(GzEncoder::new(vec![], Compression::default()));
    let mut paths = vec![];
    for (name, path) in &found {
        let content = fs::read(path).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_entry_type(tar::EntryType::Regular);
        tar.append_data(&mut header, name, content.as_slice())?;
        paths.push((name.clone(), content.len() as u64));
    }
    let mut archive = tar.into_inner()?;
    archive.flush()?;
    Ok(Packed { archive: archive.finish()?, files: found.len(), paths })
}

/// Files whose names begin with a dot stay here (`.env`, `.git`), but for `.well-known`.
/// A link must not bring them back, nor a file from outside of `root`: links come with the sources, and the machine that
/// deploys has secrets in files, such as `/proc/self/environ`.
fn walk(root: &Path, folder: &Path, prefix: &str, found: &mut Vec<(String, PathBuf)>) -> Result<()> {
    let entries = fs::read_dir(folder).map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))?;
    for entry in entries {
        let entry = entry?;
        let raw = entry.file_name();
        let shown = entry.path();
        let name =
            raw.to_str().ok_or_else(|| Failure::failed(format!("{}: the name is not UTF-8", shown.display())))?;
        if stays_here(prefix.is_empty(), name) {
            continue;
        }
        let inside = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(root, &shown, &inside, found)?;
        } else if kind.is_file() {
            found.push((inside, shown));
        } else if kind.is_symlink() {
            let refused = |why: &str| Failure::failed(format!("{}: {why}", shown.display()));
            let target = shown.canonicalize().map_err(|_| refused("a broken link"))?;
            let Ok(within) = target.strip_prefix(root) else {
                return Err(refused("a link to a file outside of the folder. Copy the file into the folder."));
            };
            let mut parts = within.components().map(|part| part.as_os_str().to_string_lossy());
            if parts.next().is_some_and(|first| stays_here(true, &first))
                || parts.any(|part| stays_here(false, &part))
            {
                return Err(refused("a link to a file that is not deployed"));
            }
            if !fs::metadata(&target)?.is_file() {
                return Err(refused("links to folders are not deployed"));
            }
            found.push((inside, target));
        }
    }
    Ok(())
}

fn stays_here(is_top: bool, name: &str) -> bool {
    let is_hidden = name.starts_with('.') && !(is_top && name == ".well-known");
    is_hidden || (is_top && name == "node_modules")
}

#[derive(clap::Subcommand)]
pub enum Deployments {
    /// List deployments of an app, newest first
    List {
        #[command(flatten)]
        most: Most,
    },
    /// Show a deployment
    Show { id: String },
    /// Show the log of a deployment; the newest one by default
    Logs {
        id: Option<String>,
        /// Go on until the deployment has ended
        #[arg(long, short)]
        follow: bool,
    },
    /// Make an earlier deployment live again; by default the one before the live one
    Rollback {
        id: Option<String>,
        #[arg(long)]
        reason: Option<String>,
    },
}

pub async fn deployments(server: &Server, command: &Deployments) -> Result<()> {
    match command {
        Deployments::List { most } => {
            let app = server.app().await?;
            let rows = server.list(&format!("/deployments?appId={app}"), "deployments", most.limit as usize).await?;
            server.out.answer(&json!({ "deployments": rows }), |out| {
                let columns = [
                    ("ID", "id"),
                    ("No.", "number"),
                    ("Status", "status"),
                    ("Target", "target"),
                    ("Live", "active"),
                    ("Commit", "commit.message|commit.sha"),
                    ("Created", "createdAt"),
                ];
                out.table(&columns, &rows, "No deployments yet. `janua deploy DIR` makes the first.");
            });
        }
        Deployments::Show { id } => {
            let one = server.get(&format!("/deployments/{}", encoded(id))).await?;
            server.out.answer(&one, |out| out.record(&one, DEPLOYMENT));
        }
        Deployments::Logs { id, follow } => {
            let id = match id {
                Some(id) => id.clone(),
                None => newest(server).await?,
            };
            log(server, &id, *follow).await?;
        }
        Deployments::Rollback { id, reason } => {
            let id = match id {
                Some(id) => id.clone(),
                None => before_live(server).await?,
            };
            let body = reason.as_ref().map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
            let earlier = server.get(&format!("/deployments/{}", encoded(&id))).await?;
            let made = server.post(&format!("/deployments/{}/redeploy", encoded(&id)), body).await?;
            server.out.answer(&made, |out| {
                out.line(&format!(
                    "{} Deployment {} is live, with the files of deployment {}.",
                    out.green("✓"),
                    text_at(&made, "number"),
                    text_at(&earlier, "number")
                ));
                out.record(&made, &[("URL", "url"), ("ID", "id")]);
            });
        }
    }
    Ok(())
}

async fn newest(server: &Server) -> Result<String> {
    let app = server.app().await?;
    let rows = server.list(&format!("/deployments?appId={app}"), "deployments", 1).await?;
    rows.first().map(|one| text_at(one, "id")).ok_or_else(|| Failure::failed("No deployments yet."))
}

/// The newest finished production deployment that is older than the live one.
async fn before_live(server: &Server) -> Result<String> {
    let app = server.app().await?;
    let rows = server.list(&format!("/deployments?appId={app}&target=production"), "deployments", 100).await?;
    let live = rows.iter().find(|one| one["active"] == true).and_then(|one| one["number"].as_i64());
    let live = live.ok_or_else(|| Failure::failed("No deployment is live. Name one: `janua deployments list`."))?;
    let is_it = |one: &&Value| one["status"] == "ready" && one["number"].as_i64().is_some_and(|number| number < live);
    let found = rows.iter().find(is_it).map(|one| text_at(one, "id"));
    found.ok_or_else(|| Failure::failed("There is no deployment before the live one."))
}

async fn log(server: &Server, id: &str, follow: bool) -> Result<()> {
    let (mut after, mut lines) = (0_i64, vec![]);
    loop {
        let page = server.get(&format!("/deployments/{}/logs?after={after}", encoded(id))).await?;
        for line in page["logs"].as_array().into_iter().flatten() {
            after = line["seq"].as_i64().unwrap_or(after);
            if server.out.json && !follow {
                lines.push(line.clone());
            } else if server.out.json {
                server.out.json(line);
            } else {
                let path = line["path"].as_str().map(|path| format!(" ({path})")).unwrap_or_default();
                let level = match text_at(line, "level").as_str() {
                    "error" => server.out.red("error"),
                    level => format!("{level:<5}"),
                };
                let (at, said) = (server.out.dim(&text_at(line, "at")), text_at(line, "message"));
                server.out.line(&format!("{at}  {level}  {said}{path}"));
            }
        }
        let has_more = page["nextCursor"].is_number();
        if !has_more && (!follow || page["complete"] == true) {
            break;
        }
        if !has_more {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
    if server.out.json && !follow {
        server.out.json(&json!({ "logs": lines }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn hidden_files_stay_here_and_the_archive_is_the_same_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at(".git")).unwrap();
        fs::create_dir_all(at(".well-known")).unwrap();
        fs::create_dir_all(at("css/.cache")).unwrap();
        for name in [".env", ".git/HEAD", "index.html", "css/a.css", "css/.cache/x", ".well-known/security.txt"] {
            fs::write(at(name), name).unwrap();
        }
        let packed = pack(folder.path()).unwrap();
        let mut plain = vec![];
        flate2::read::GzDecoder::new(packed.archive.as_slice()).read_to_end(&mut plain).unwrap();
        let mut archive = tar::Archive::new(plain.as_slice());
        let names: Vec<String> =
            archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect();
        assert_eq!(names, [".well-known/security.txt", "css/a.css", "index.html"]);
        assert_eq!(packed.files, 3);
        assert_eq!(pack(folder.path()).unwrap().archive, packed.archive);
        assert!(pack(&at("index.html")).is_err());
    }

    #[test]
    fn a_link_brings_no_file_from_outside_and_none_that_stays_here() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("dist");
        fs::create_dir_all(folder.join(".git")).unwrap();
        fs::create_dir_all(folder.join("css")).unwrap();
        for (name, content) in [("../secret", "token"), (".git/config", "token"), ("css/a.css", "a")] {
            fs::write(folder.join(name), content).unwrap();
        }
        let link = folder.join("link.txt");
        for target in ["/proc/self/environ", "../secret", "css/../../secret", ".git/config", "css", "nothing"] {
            std::os::unix::fs::symlink(target, &link).unwrap();
            let refused = pack(&folder).unwrap_err();
            assert!(refused.message.contains("link.txt"), "{target}: the entry is named: {}", refused.message);
            fs::remove_file(&link).unwrap();
        }
        std::os::unix::fs::symlink("css/a.css", &link).unwrap();
        let packed = pack(&folder).unwrap();
        assert_eq!(packed.paths, [("css/a.css".to_owned(), 1), ("link.txt".to_owned(), 1)]);
        // The folder itself may be reached by a link.
        std::os::unix::fs::symlink("dist", place.path().join("latest")).unwrap();
        assert_eq!(pack(&place.path().join("latest")).unwrap().archive, packed.archive);
    }
}
