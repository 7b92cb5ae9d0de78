//! A skill as a folder on this machine: creating one, checking it, and packing it.
use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use skillfile::{LARGEST_FILE, LARGEST_PACKAGE, LARGEST_UNPACKED, MOST_FILES, SKILL_MD, is_name, wrong_path};

use crate::{
    deploy,
    failure::{Failure, Result},
};

/// The file that says where an installed skill came from. It is none of its files.
pub const INSTALLED: &str = ".janua-skill.json";

/// Creates the folder and its `SKILL.md`; answers the file.
pub fn create(folder: &Path, name: &str, description: Option<&str>) -> Result<PathBuf> {
    if !is_name(name) {
        let say = "must be 1 to 64 lower-case letters and digits, with single hyphens between them";
        return Err(Failure::usage(format!("{name}: the name {say}.")));
    }
    let file = folder.join(SKILL_MD);
    if file.exists() {
        return Err(Failure::usage(format!("{} exists already.", file.display())));
    }
    let description = description.unwrap_or("Says what the skill does. Use it when the user asks for that.");
    // A text in double quotes is JSON and YAML alike.
    let text = format!(
        "---\nname: {name}\ndescription: {}\nlicense: Apache-2.0\nmetadata:\n  version: \"0.1.0\"\n---\n\n\
         # {name}\n\nTell the agent what to do, step by step. Put long texts into `references/` and programs into `scripts/`, and\n\
         say here when to read or run them.\n",
        json!(description)
    );
    if let Err(wrong) = skillfile::read(text.as_bytes()) {
        let named: Vec<String> = wrong.iter().map(|(field, _, message)| format!("{field}: {message}")).collect();
        return Err(Failure::usage(named.join("\n")));
    }
    fs::create_dir_all(folder)?;
    fs::write(&file, text)?;
    Ok(file)
}

/// A folder that was read. With errors it cannot be published.
pub struct Checked {
    pub name: String,
    pub version: Option<String>,
    pub archive: Vec<u8>,
    pub files: usize,
    /// Field, code and sentence of everything that is wrong.
    pub errors: Vec<skillfile::Wrong>,
}

impl Checked {
    pub fn to_json(&self) -> Value {
        json!({ "valid": true, "name": self.name, "version": self.version, "files": self.files, "size": self.archive.len() })
    }

    /// Everything that is wrong, in the form of the server's own refusal.
    pub fn into_failure(self) -> Failure {
        let errors: Vec<Value> = self
            .errors
            .into_iter()
            .map(|(field, code, message)| json!({ "field": field, "code": code, "message": message }))
            .collect();
        let title = "The skill is invalid. Correct it, then try again.";
        Failure::refused(400, json!({ "code": "invalid_skill", "title": title, "errors": errors }))
    }
}

/// Reads a folder by the rules of the server.
pub fn check(folder: &Path) -> Result<Checked> {
    let packed = deploy::pack(folder)?;
    let mut errors = vec![];
    let mut wrong = |field: &str, code: &'static str, message: &str| {
        errors.push((field.to_owned(), code, message.to_owned()));
    };
    let mut total = 0;
    for (path, size) in &packed.paths {
        if let Some(reason) = wrong_path(path) {
            wrong(path, "invalid_path", reason);
        }
        if *size > LARGEST_FILE {
            wrong(path, "too_large", "must have at most 2 MiB");
        }
        total += size;
    }
    if packed.archive.len() > LARGEST_PACKAGE || total > LARGEST_UNPACKED {
        wrong("package", "too_large", "must have at most 5 MiB compressed and 20 MiB unpacked");
    }
    if packed.files as u64 > MOST_FILES {
        wrong("package", "too_many_files", "must have at most 1,000 files");
    }
    let (mut name, mut version) = (String::new(), None);
    match fs::read(folder.join(SKILL_MD)) {
        Ok(text) => match skillfile::read(&text) {
            Ok(skill) => (name, version) = (skill.name, skill.version),
            Err(found) => errors.extend(found),
        },
        Err(_) => wrong(SKILL_MD, "required", "is missing: a skill is a folder with this file in it"),
    }
    let place = folder.canonicalize()?;
    let is_other = |place: &str| !name.is_empty() && place != name;
    if place.file_name().and_then(|place| place.to_str()).is_some_and(is_other) {
        errors.push(("name".into(), "other_folder", "must be the name of the folder".into()));
    }
    Ok(Checked { name, version, archive: packed.archive, files: packed.files, errors })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_skill_is_valid_and_everything_wrong_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("pdf-tools");
        create(&place, "pdf-tools", Some("Reads \"PDF\" files: all of them.")).unwrap();
        let checked = check(&place).unwrap();
        assert!(checked.errors.is_empty(), "{:?}", checked.errors);
        assert_eq!(
            (checked.name.as_str(), checked.version.as_deref(), checked.files),
            ("pdf-tools", Some("0.1.0"), 1)
        );
        assert!(create(&place, "pdf-tools", None).is_err(), "nothing is overwritten");
        assert!(create(&folder.path().join("x"), "PDF tools", None).is_err());

        fs::write(place.join("bild ä.txt"), "x").unwrap();
        fs::write(place.join("large.bin"), vec![0; 3 << 20]).unwrap();
        fs::write(place.join(SKILL_MD), "---\nname: other\ndescription: x\n---\n").unwrap();
        let codes: Vec<&str> = check(&place).unwrap().errors.iter().map(|(_, code, _)| *code).collect();
        assert_eq!(codes, ["invalid_path", "too_large", "other_folder"]);
        fs::remove_file(place.join(SKILL_MD)).unwrap();
        assert!(
            check(&place).unwrap().errors.iter().any(|(field, code, _)| field == SKILL_MD && *code == "required")
        );
    }
}
