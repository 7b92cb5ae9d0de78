//! Profiles (a server, a user and their tokens), the profile that a folder uses, and the file that stores them.
use std::{
    collections::BTreeMap,
    fs,
    io::{ErrorKind, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    failure::{Failure, Result},
    output::shown,
};

pub const DEFAULT: &str = "default";

/// A server, and a session there.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    pub url: String,
    pub email: Option<String>,
    pub access_token: String,
    pub refresh_token: Option<String>,
    /// Seconds since 1970.
    pub expires_at: i64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Credentials {
    #[serde(default)]
    pub profiles: BTreeMap<String, Profile>,
}

/// The folder with the credentials.
pub fn home() -> Result<PathBuf> {
    if let Some(set) = variable("JANUA_CONFIG_HOME") {
        return Ok(set.into());
    }
    if let Some(set) = variable("XDG_CONFIG_HOME") {
        return Ok(PathBuf::from(set).join("janua"));
    }
    let home = variable("HOME").ok_or_else(|| Failure::usage("Set HOME or JANUA_CONFIG_HOME."))?;
    Ok(PathBuf::from(home).join(".config/janua"))
}

/// An environment variable that is set and not empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The file of credentials, locked against other commands. Held while a token is refreshed: of two commands that find it
/// expired, one refreshes and the other takes what that one got.
pub struct Locked {
    folder: PathBuf,
    pub credentials: Credentials,
    _lock: fs::File,
}

impl Locked {
    pub fn open() -> Result<Self> {
        let folder = home()?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let path = folder.join("credentials.lock");
        let lock = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        lock.lock()?;
        Ok(Self { credentials: read_in(&folder)?, folder, _lock: lock })
    }

    /// Writes the file anew and puts it in the place of the old one: a reader sees either.
    pub fn save(&self) -> Result<()> {
        let path = self.folder.join("credentials.json");
        let new = self.folder.join(".credentials.new");
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
        file.write_all(serde_json::to_string_pretty(&self.credentials)?.as_bytes())?;
        file.sync_all()?;
        Ok(fs::rename(new, path)?)
    }
}

/// Nothing where there is no place for them, as in CI.
pub fn read() -> Result<Credentials> {
    home().map_or_else(|_| Ok(Credentials::default()), |folder| read_in(&folder))
}

fn read_in(folder: &Path) -> Result<Credentials> {
    let path = folder.join("credentials.json");
    match fs::read_to_string(&path) {
        Ok(text) => serde_json::from_str(&text)
            .map_err(|_| Failure::failed(format!("{} is damaged. Delete it and run `janua login`.", path.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Credentials::default()),
        Err(error) => Err(Failure::failed(format!("cannot read {}: {error}", path.display()))),
    }
}

/// What a folder chose: `.janua/project.toml`, here or above.
#[derive(Debug, Default, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Project {
    pub profile: Option<String>,
    pub app: Option<String>,
    pub org: Option<String>,
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

impl Project {
    pub fn find(from: &Path) -> Result<Self> {
        for folder in from.ancestors() {
            let file = folder.join(".janua/project.toml");
            match fs::read_to_string(&file) {
                Ok(text) => {
                    let project: Self = toml::from_str(&text)
                        .map_err(|error| Failure::usage(format!("{}: {}", file.display(), error.message())))?;
                    return Ok(Self { file: Some(file), ..project });
                }
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) => return Err(Failure::failed(format!("cannot read {}: {error}", file.display()))),
            }
        }
        Ok(Self::default())
    }

    /// Writes it into a folder; it may be committed, since it has no secret. What the app and the organization were called
    /// by stands beside their IDs.
    pub fn save(&self, folder: &Path, app: Option<&str>, org: Option<&str>) -> Result<PathBuf> {
        let folder = folder.join(".janua");
        fs::create_dir_all(&folder)?;
        let mut text = String::from("# What `janua` uses in this folder. No secrets: it may be committed.\n");
        for (name, value, called) in
            [("profile", &self.profile, None), ("app", &self.app, app), ("org", &self.org, org)]
        {
            if let Some(value) = value {
                let quoted = serde_json::to_string(value)?;
                text.extend([name, " = ", &quoted]);
                if let Some(called) = called.filter(|called| *called != value.as_str()) {
                    text.extend(["  # ", &shown(called)]);
                }
                text.push('\n');
            }
        }
        let file = folder.join("project.toml");
        fs::write(&file, text)?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_folder_decides() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        assert_eq!(Project::find(&inner).unwrap(), Project::default());
        let work = Project { profile: Some("work".into()), app: Some("shop \"1\"".into()), ..Project::default() };
        let file = work.save(folder.path(), Some("Shop\n1"), None).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("app = \"shop \\\"1\\\"\"  # Shop\u{fffd}1\n"), "{text}");
        assert_eq!(Project::find(&inner).unwrap(), Project { file: Some(file), ..work });
        let near = Project { profile: Some("home".into()), ..Project::default() };
        near.save(&folder.path().join("a"), None, None).unwrap();
        assert_eq!(Project::find(&inner).unwrap().profile.as_deref(), Some("home"));
    }
}
