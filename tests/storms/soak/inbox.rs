//! The mails that the mail server has received.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

pub struct Inbox {
    folder: PathBuf,
    read: BTreeSet<PathBuf>,
    /// By Message-ID without its host: how often it came.
    pub times: BTreeMap<String, usize>,
    /// By Message-ID: the subject.
    pub subjects: BTreeMap<String, String>,
    /// By recipient: the code in the newest mail.
    codes: BTreeMap<String, String>,
}

impl Inbox {
    pub fn at(folder: PathBuf) -> Self {
        Self {
            folder,
            read: BTreeSet::new(),
            times: BTreeMap::new(),
            subjects: BTreeMap::new(),
            codes: BTreeMap::new(),
        }
    }

    /// Reads what came since.
    pub fn refresh(&mut self) {
        for file in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if self.read.contains(&file.path()) {
                continue;
            }
            let Ok(mail) = fs::read_to_string(file.path()) else { continue };
            self.read.insert(file.path());
            let header = |name: &str| mail.lines().find_map(|line| line.strip_prefix(name));
            let id = header("Message-ID: <").and_then(|id| id.split('@').next()).unwrap_or_default().to_owned();
            *self.times.entry(id.clone()).or_default() += 1;
            self.subjects.insert(id, header("Subject: ").unwrap_or_default().to_owned());
            if let (Some(to), Some(code)) = (header("To: "), header("Code: ")) {
                self.codes.insert(to.trim().to_owned(), code.trim().to_owned());
            }
        }
    }

    /// Of the mails that were read.
    pub fn has_code(&self, email: &str) -> bool {
        self.codes.contains_key(email)
    }

    pub fn code(&mut self, email: &str) -> Option<String> {
        self.refresh();
        self.codes.get(email).cloned()
    }
}
