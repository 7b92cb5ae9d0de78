//! Files on the disk: written aside and renamed into place, read piece by piece.
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _},
    ops::Range,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;

use crate::{
    clock::Timestamp,
    ports::objects::{Hasher, Key, LISTED, Listed, Stored},
};

/// Where files lie while they are written. No key begins with a dot.
const ASIDE: &str = ".aside";
/// Nobody writes this long on one file.
const ABANDONED: Duration = Duration::from_hours(2);
/// How much is read at a time.
const PIECE: u64 = 256 * 1024;

/// A file that is being written. It goes away unless it is put in place.
pub struct Aside {
    path: PathBuf,
    root: PathBuf,
    to: PathBuf,
    file: File,
    hash: Hasher,
    is_placed: bool,
}

impl Aside {
    pub fn create(root: &Path, to: PathBuf) -> io::Result<Self> {
        let (path, file) = open_aside(root)?;
        Ok(Self { path, root: root.to_owned(), to, file, hash: Hasher::new(), is_placed: false })
    }

    pub fn write(mut self, pieces: Vec<Bytes>) -> io::Result<Self> {
        for piece in pieces {
            self.hash.update(&piece);
            self.file.write_all(&piece)?;
        }
        Ok(self)
    }

    /// What was written so far.
    pub fn stored(&self) -> Stored {
        Stored { length: self.hash.length, sha256: self.hash.so_far() }
    }

    /// Whole, or not at all: nobody ever reads half an object, and a crash leaves none.
    pub fn put_in_place(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        let folder = make_folder_of(&self.root, &self.to)?;
        fs::rename(&self.path, &self.to)?;
        self.is_placed = true;
        sync(&folder)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A new file under a name that no other process has, either.
fn open_aside(root: &Path) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let folder = make_folder(root, &root.join(ASIDE))?;
    loop {
        let path = folder.join(format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed)));
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            file => return file.map(|file| (path, file)),
        }
    }
}

fn make_folder_of(root: &Path, file: &Path) -> io::Result<PathBuf> {
    make_folder(root, file.parent().unwrap_or(root))
}

/// A folder below the root; a new one is durable before anything lies in it.
fn make_folder(root: &Path, folder: &Path) -> io::Result<PathBuf> {
    if !folder.is_dir() {
        if let Some(above) = folder.parent().filter(|_| folder != root) {
            make_folder(root, above)?;
        }
        let is_root = folder == root;
        match DirBuilder::new().recursive(is_root).mode(0o700).create(folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => folder.parent().map_or(Ok(()), sync)?,
        }
    }
    Ok(folder.to_owned())
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The same bytes under another name. An object is never written to, only replaced, so one file with two names will do.
pub fn copy(root: &Path, from: &Path, to: PathBuf) -> io::Result<bool> {
    let mut aside = Aside::create(root, to)?;
    fs::remove_file(&aside.path)?;
    match fs::hard_link(from, &aside.path) {
        Err(error) if error.kind() == ErrorKind::NotFound && !from.exists() => return Ok(false),
        // Some file systems know no second names.
        Err(_) => {
            fs::copy(from, &aside.path)?;
        }
        Ok(()) => {}
    }
    aside.file = File::open(&aside.path)?;
    aside.put_in_place().map(|()| true)
}

/// Nothing where there is no such file.
pub fn found<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// A file that is being read.
pub struct Reading {
    file: File,
    left: u64,
    piece: Bytes,
}

impl Reading {
    /// How long the file is, and its first piece; nothing where there is no such file.
    pub fn open(path: &Path, range: Option<Range<u64>>) -> io::Result<Option<(u64, Self)>> {
        let Some(mut file) = found(File::open(path))? else { return Ok(None) };
        let total = file.metadata()?.len();
        let range = range.unwrap_or(0..total);
        if range.start > 0 {
            file.seek(SeekFrom::Start(range.start))?;
        }
        let reading = Self { file, left: range.end.min(total).saturating_sub(range.start), piece: Bytes::new() };
        Ok(Some((total, reading.go_on()?)))
    }

    pub fn has_piece(&self) -> bool {
        !self.piece.is_empty()
    }

    pub fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Reads the next piece, if there is one.
    pub fn go_on(mut self) -> io::Result<Self> {
        let length = self.left.min(PIECE);
        let mut piece = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        (&mut self.file).take(length).read_to_end(&mut piece)?;
        if (piece.len() as u64) < length {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the file is shorter than it was"));
        }
        self.left -= length;
        self.piece = piece.into();
        Ok(self)
    }

    pub fn take_piece(mut self) -> Option<(Bytes, Self)> {
        self.has_piece().then(|| (std::mem::take(&mut self.piece), self))
    }
}

/// In the order of their names, some at a time.
pub fn list(root: &Path, folder: &str, after: Option<&Key>) -> io::Result<Vec<Listed>> {
    let mut listed = vec![];
    walk(root, folder, after.map_or("", Key::as_str), &mut listed)?;
    Ok(listed)
}

fn walk(root: &Path, name: &str, after: &str, listed: &mut Vec<Listed>) -> io::Result<()> {
    let Some(entries) = found(fs::read_dir(root.join(name)))? else { return Ok(()) };
    let above = if name.is_empty() { String::new() } else { format!("{name}/") };
    let mut inside = vec![];
    for entry in entries {
        let entry = entry?;
        let Ok(file_name) = entry.file_name().into_string() else { continue };
        let is_folder = entry.file_type()?.is_dir();
        // What lies in a folder sorts behind its name and a slash.
        let path = format!("{above}{file_name}{}", if is_folder { "/" } else { "" });
        if path.as_str() > after || (is_folder && after.starts_with(&path)) {
            inside.push(path);
        }
    }
    inside.sort_unstable();
    for path in inside {
        if listed.len() >= LISTED {
            break;
        }
        if let Some(folder) = path.strip_suffix('/') {
            walk(root, folder, after, listed)?;
        } else if let Some(key) = Key::parse(&path)
            && let Some(about) = found(fs::metadata(root.join(&path)))?
        {
            let age = about.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            let changed_at = Timestamp(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
            listed.push(Listed { key, length: about.len(), changed_at });
        }
    }
    Ok(())
}

/// Removes what a process that died was writing.
pub fn clear_up(root: &Path) {
    let Ok(entries) = fs::read_dir(root.join(ASIDE)) else { return };
    for entry in entries.flatten() {
        let changed = entry.metadata().and_then(|about| about.modified()).ok();
        if changed.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > ABANDONED) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
