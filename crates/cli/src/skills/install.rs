//! Installing a skill, and checking one that is installed. Nothing is written before the signature and every file are right.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Read as _,
    path::{Component, Path},
};

use flate2::read::GzDecoder;
use reqwest::Method;
use serde_json::{Value, json};
use skillfile::{LARGEST_FILE, LARGEST_PACKAGE, LARGEST_UNPACKED, SKILL_MD, is_name};

use super::{
    folder::INSTALLED,
    signed::{Manifest, digest_of},
};
use crate::{
    failure::{Failure, Result},
    output::text_at,
    resources::{body, done},
    server::{Extra, Server, body_of, encoded},
};

/// A skill has no more versions.
const MOST_VERSIONS: usize = 1000;
const UNKNOWN: &str = "unknown";

pub async fn install(server: &Server, slug: &str, version: Option<&str>, into: &Path) -> Result<()> {
    let name = slug.rsplit('.').next().unwrap_or_default();
    if !is_name(name) {
        return Err(Failure::usage(format!(
            "{slug}: a slug is a namespace, a dot and a name, such as acme.pdf-tools."
        )));
    }
    let place = into.join(name);
    if place.exists() && !place.join(INSTALLED).exists() {
        let say = format!("{} exists and was not installed by this command.", place.display());
        return Err(Failure::usage(say).hint("Move it away, or choose another folder with --into."));
    }
    let asked = body(&[("version", version.map(|version| json!(version)))]);
    let answer = server.post(&format!("/skills/{}/install", encoded(slug)), asked).await?;
    let manifest = Manifest::verify(&answer["signature"], &keys(server).await?)?;
    if manifest.slug != slug || manifest.version != text_at(&answer, "version") {
        return Err(Failure::failed("The signature is of another skill or version."));
    }
    let package = download(server, slug, &manifest.version).await?;
    if digest_of(&package) != manifest.digest {
        return Err(Failure::failed("The package is not the one that was signed."));
    }
    let files = unpack(&package, name)?;
    compare(&files, &manifest)?;
    let record =
        json!({ "slug": slug, "version": manifest.version, "server": server.url, "signature": answer["signature"] });
    write(into, name, &files, &record)?;
    let answer = json!({ "slug": slug, "version": manifest.version, "folder": place.display().to_string(),
        "digest": manifest.digest, "files": files.len() });
    let line = format!("Installed {slug} {} in {}. The signature is valid.", manifest.version, place.display());
    done(server, &answer, &line, &[]);
    Ok(())
}

async fn keys(server: &Server) -> Result<Value> {
    let asked = server.request(Method::GET, "/.well-known/skills-pubkey").send().await;
    body_of(asked.map_err(|error| server.unreachable(&error))?).await
}

async fn download(server: &Server, slug: &str, version: &str) -> Result<Vec<u8>> {
    let path = format!("/skills/{}/download?version={}", encoded(slug), encoded(version));
    let mut answer = server.send(Method::GET, &path, &Extra::default()).await?;
    if !answer.status().is_success() {
        body_of(answer).await?;
        return Err(Failure::failed("The server sent no package."));
    }
    let mut package = vec![];
    while let Some(part) =
        answer.chunk().await.map_err(|_| Failure::failed("The connection was lost before the end of the package."))?
    {
        package.extend_from_slice(&part);
        if package.len() > LARGEST_PACKAGE {
            return Err(Failure::failed("The package is larger than 5 MiB."));
        }
    }
    Ok(package)
}

/// The files of a package by their paths, without the folder that they may all be in.
fn unpack(package: &[u8], name: &str) -> Result<BTreeMap<String, Vec<u8>>> {
    let (mut files, mut total) = (BTreeMap::new(), 0);
    let mut archive = tar::Archive::new(GzDecoder::new(package));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let shown = path.display().to_string();
        if entry.header().entry_type().is_dir() {
            continue;
        }
        let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !entry.header().entry_type().is_file() || !is_inside {
            return Err(Failure::failed(format!("{shown}: not a plain file of the package.")));
        }
        let mut content = vec![];
        entry.by_ref().take(LARGEST_FILE + 1).read_to_end(&mut content)?;
        total += content.len() as u64;
        if content.len() as u64 > LARGEST_FILE || total > LARGEST_UNPACKED {
            return Err(Failure::failed(format!("{shown}: larger than a skill may be.")));
        }
        files.insert(shown, content);
    }
    if !files.contains_key(SKILL_MD) {
        let prefix = format!("{name}/");
        let inside = |(path, content): (String, Vec<u8>)| {
            path.strip_prefix(&prefix).map(|path| (path.to_owned(), content)).ok_or_else(|| path.clone())
        };
        let moved: Result<BTreeMap<_, _>, String> = files.into_iter().map(inside).collect();
        return moved.map_err(|path| Failure::failed(format!("{path}: not in the folder of the skill.")));
    }
    Ok(files)
}

/// Every file is one that was signed, and every one that was signed is there.
fn compare(files: &BTreeMap<String, Vec<u8>>, manifest: &Manifest) -> Result<()> {
    let found = differences(files.iter().map(|(path, content)| (path.clone(), digest_of(content))), manifest);
    match found.first() {
        None => Ok(()),
        Some((path, state)) => Err(Failure::failed(format!("{path}: {state}. Nothing was installed."))),
    }
}

/// What is not as it was signed: paths, and whether the file was changed, added or is missing.
fn differences(files: impl Iterator<Item = (String, String)>, manifest: &Manifest) -> Vec<(String, &'static str)> {
    let (mut found, mut seen) = (vec![], BTreeSet::new());
    for (path, digest) in files {
        match manifest.files.get(&path) {
            Some(signed) if *signed == digest => {}
            Some(_) => found.push((path.clone(), "changed")),
            None => found.push((path.clone(), "added")),
        }
        seen.insert(path);
    }
    found.extend(manifest.files.keys().filter(|path| !seen.contains(*path)).map(|path| (path.clone(), "missing")));
    found.sort();
    found
}

/// Writes the files beside the place, and moves them there when they are complete.
fn write(into: &Path, name: &str, files: &BTreeMap<String, Vec<u8>>, record: &Value) -> Result<()> {
    let (place, fresh, old) = (into.join(name), into.join(format!(".{name}.new")), into.join(format!(".{name}.old")));
    for left in [&fresh, &old] {
        if left.exists() {
            fs::remove_dir_all(left)?;
        }
    }
    for (path, content) in files {
        let to = fresh.join(path);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(to, content)?;
    }
    fs::write(fresh.join(INSTALLED), serde_json::to_string_pretty(record)?)?;
    if place.exists() {
        fs::rename(&place, &old)?;
    }
    fs::rename(&fresh, &place)?;
    if old.exists() {
        fs::remove_dir_all(old)?;
    }
    Ok(())
}

pub async fn verify(server: &Server, folder: &Path) -> Result<()> {
    let record = fs::read_to_string(folder.join(INSTALLED)).map_err(|_| {
        let say = format!("{} was not installed by `janua skills install`.", folder.display());
        Failure::usage(say)
    })?;
    let record: Value = serde_json::from_str(&record)?;
    let manifest = Manifest::verify(&record["signature"], &keys(server).await?)?;
    let mut files = vec![];
    walk(folder, "", &mut files)?;
    let found = differences(files.into_iter(), &manifest);
    let state = state(server, &manifest).await?;
    let (slug, version) = (&manifest.slug, &manifest.version);
    let changes: Vec<Value> = found.iter().map(|(path, state)| json!({ "path": path, "state": state })).collect();
    let is_good = changes.is_empty() && state != "revoked";
    let answer = json!({ "slug": slug, "version": version, "valid": is_good, "state": state, "changes": changes,
        "files": manifest.files.len() });
    if is_good {
        let files = match manifest.files.len() {
            1 => "its file is".to_owned(),
            count => format!("all {count} files are"),
        };
        let line = format!("{slug} {version}: the signature is valid, and {files} as signed.");
        done(server, &answer, &line, &[]);
        if state == "yanked" {
            server.out.note("The publisher no longer offers this version.");
        } else if state == UNKNOWN {
            server.out.note("Whether it was withdrawn is unknown: sign in as a user who may see the skill.");
        }
        return Ok(());
    }
    if server.out.json {
        server.out.json(&answer);
    }
    let mut why: Vec<String> = found.iter().map(|(path, state)| format!("  {path}: {state}")).collect();
    if state == "revoked" {
        why.insert(0, "  This version was withdrawn. Uninstall it.".into());
    }
    Err(Failure::failed(format!("{slug} {version} is not as it was signed.\n{}", why.join("\n"))))
}

/// What the server says of the version today; `unknown` for those who are not signed in or may not see the skill.
async fn state(server: &Server, manifest: &Manifest) -> Result<String> {
    let path = format!("/skills/{}/versions", encoded(&manifest.slug));
    match server.list(&path, "versions", MOST_VERSIONS).await {
        Ok(rows) => {
            let found = rows.iter().find(|row| row["version"] == manifest.version.as_str());
            Ok(found.map_or_else(|| UNKNOWN.into(), |row| text_at(row, "state")))
        }
        Err(failure) if failure.code == "revoked" => Ok("revoked".into()),
        Err(failure) if ["not_found", "unauthenticated"].contains(&failure.code.as_str()) => Ok(UNKNOWN.into()),
        Err(failure) => Err(failure),
    }
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<(String, String)>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
        if path == INSTALLED {
            continue;
        }
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), &path, found)?;
        } else {
            found.push((path, digest_of(&fs::read(entry.path())?)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn packed(files: &[(&str, &str)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(GzEncoder::new(vec![], Compression::fast()));
        for (path, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            // As a hostile server would write it: the library itself refuses such paths.
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_cksum();
            tar.append(&header, content.as_bytes()).unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn a_package_never_leaves_its_folder() {
        let paths =
            |files: &[(&str, &str)]| unpack(&packed(files), "x").map(|files| files.into_keys().collect::<Vec<_>>());
        assert_eq!(paths(&[("x/SKILL.md", "a"), ("x/b/c", "b")]).unwrap(), ["SKILL.md", "b/c"]);
        assert_eq!(paths(&[("SKILL.md", "a"), ("b", "b")]).unwrap(), ["SKILL.md", "b"]);
        for bad in ["../SKILL.md", "/etc/passwd", "x/../../y", "y/SKILL.md"] {
            assert!(paths(&[(bad, "a")]).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_difference_is_named() {
        let files =
            [("a", "1"), ("b", "2"), ("c", "3")].map(|(path, text)| (path.to_owned(), digest_of(text.as_bytes())));
        let mut manifest = Manifest {
            slug: String::new(),
            version: String::new(),
            digest: String::new(),
            files: files.clone().into(),
        };
        assert!(differences(files.clone().into_iter(), &manifest).is_empty());
        manifest.files.remove("a");
        manifest.files.insert("b".into(), "sha256:0".into());
        manifest.files.insert("d".into(), "sha256:0".into());
        let found = differences(files.into_iter(), &manifest);
        assert_eq!(found, [("a".into(), "added"), ("b".into(), "changed"), ("d".into(), "missing")]);
    }
}
