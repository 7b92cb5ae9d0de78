//! A package: a gzip-compressed tar with `SKILL.md` in it. It is taken whole or refused whole.
use std::io::Read;

use data_encoding::HEXLOWER;
use kernel::{
    archive::{self, ArchiveLimits, FileSink, Overrides, Refusal, RefusalKind, while_reading},
    crypto,
    fault::{Code, Fault, TOO_LARGE},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use skillfile::LARGEST_PACKAGE;
use skillfile::{LARGEST_FILE, LARGEST_UNPACKED, MOST_FILES, SKILL_MD, SkillFile, Wrong, wrong_path};

pub const INVALID_PACKAGE: Code = Code::new(
    400,
    "invalid_package",
    "The package must be a gzip-compressed tar of plain files with SKILL.md in it. Nothing was published.",
);
pub const INVALID_SKILL: Code =
    Code::new(400, "invalid_skill", "SKILL.md is invalid. Correct the fields, then publish again.");

const LIMITS: ArchiveLimits = ArchiveLimits {
    archive: LARGEST_PACKAGE as u64,
    unpacked: LARGEST_UNPACKED,
    files: MOST_FILES,
    file: LARGEST_FILE,
    ratio: 100,
    ratio_from: 1 << 20,
    overrides: Overrides::Agreeing,
};

/// A file of a package, and where it begins in the pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedFile {
    pub path: String,
    /// SHA-256 in hexadecimal.
    pub digest: String,
    pub size: u64,
    pub at: u64,
}

/// A file as it is shown.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FileView {
    pub path: String,
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    pub size: u64,
}

impl PackedFile {
    pub fn view(&self) -> FileView {
        FileView { path: self.path.clone(), digest: format!("sha256:{}", self.digest), size: self.size }
    }
}

/// A package that was read.
pub struct Package {
    /// SHA-256 of the bytes as they were sent, in hexadecimal.
    pub digest: String,
    /// In the order of their paths.
    pub files: Vec<PackedFile>,
    /// All files, one after the other.
    pub pack: Vec<u8>,
    pub skill: SkillFile,
}

impl Package {
    /// Reads the bytes of a package. Takes a while, so not on a thread that serves.
    pub fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let mut files = Files::default();
        archive::unpack(bytes, &LIMITS, None, &mut files).map_err(|refusal| refused(&refusal))?;
        let Files { mut files, pack } = files;
        let folder = root(&files)?;
        if let Some(folder) = &folder {
            for file in &mut files {
                file.path.drain(..=folder.len());
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let found = files.iter().find(|file| file.path == SKILL_MD).map(|file| content(&pack, file));
        let skill = skillfile::read(found.unwrap_or_default()).map_err(invalid)?;
        if folder.as_ref().is_some_and(|folder| *folder != skill.name) {
            let say = "must be the name of the folder in the package";
            return Err(invalid(vec![("name".into(), "other_folder", say.into())]));
        }
        Ok(Self { digest: crypto::hash(bytes), files, pack, skill })
    }

    pub fn content(&self, file: &PackedFile) -> &[u8] {
        content(&self.pack, file)
    }
}

fn content<'a>(pack: &'a [u8], file: &PackedFile) -> &'a [u8] {
    let range = usize::try_from(file.at).ok().zip(usize::try_from(file.at + file.size).ok());
    range.and_then(|(from, to)| pack.get(from..to)).unwrap_or_default()
}

/// An error that names every field of `SKILL.md` that is wrong.
pub fn invalid(wrong: Vec<Wrong>) -> Fault {
    wrong
        .into_iter()
        .fold(Fault::from(INVALID_SKILL), |fault, (field, code, message)| fault.and(field, code, message))
}

fn refused(refusal: &Refusal) -> Fault {
    let code = if refusal.kind == RefusalKind::ArchiveTooLarge { TOO_LARGE } else { INVALID_PACKAGE };
    let sentence = match &refusal.path {
        Some(path) => format!("{path}: {}", refusal.reason),
        None => refusal.reason.clone(),
    };
    code.because(sentence).with_extra("path", &refusal.path).with_extra("reason", &refusal.reason)
}

/// The only folder at the top, where `SKILL.md` lies in it and not at the top itself.
fn root(files: &[PackedFile]) -> Result<Option<String>, Fault> {
    if files.iter().any(|file| file.path == SKILL_MD) {
        return Ok(None);
    }
    let first = files.first().and_then(|file| file.path.split_once('/')).map(|(folder, _)| folder.to_owned());
    let inside = first.filter(|folder| {
        let is_inside =
            |file: &PackedFile| file.path.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'));
        files.iter().all(is_inside) && files.iter().any(|file| file.path == format!("{folder}/{SKILL_MD}"))
    });
    let missing = || {
        let say = "SKILL.md is missing. It must lie at the top, or in the only folder of the package.";
        INVALID_PACKAGE.because(say).with_extra("reason", &say)
    };
    inside.map(Some).ok_or_else(missing)
}

#[derive(Default)]
struct Files {
    files: Vec<PackedFile>,
    pack: Vec<u8>,
}

impl FileSink for Files {
    fn file(&mut self, path: &str, content: &mut dyn Read) -> Result<(), Refusal> {
        let refuse = |reason: &str| Refusal::new(RefusalKind::Invalid, Some(path), reason);
        if let Some(reason) = wrong_path(path) {
            return Err(refuse(reason));
        }
        let at = self.pack.len();
        content.read_to_end(&mut self.pack).map_err(|error| while_reading(path, &error))?;
        let bytes = &self.pack[at..];
        let digest = HEXLOWER.encode(&crypto::digest(bytes));
        self.files.push(PackedFile { path: path.to_owned(), digest, size: bytes.len() as u64, at: at as u64 });
        Ok(())
    }
}
