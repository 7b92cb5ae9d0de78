//! Reading a gzip-compressed tar as it arrives: sites and packages of skills. It is taken whole or refused whole, and a
//! refusal names the entry. Nothing is ever unpacked to the disk.
pub mod names;

use std::{
    cell::Cell,
    collections::HashSet,
    io::{self, BufRead, Read},
};

use flate2::bufread::GzDecoder;
use tar::EntryType;

/// What one archive may have.
#[derive(Debug, Clone, Copy)]
pub struct ArchiveLimits {
    pub archive: u64,
    pub unpacked: u64,
    pub files: u64,
    pub file: u64,
    /// How many times its size it may unpack to, looked at from so many unpacked bytes on.
    pub ratio: u64,
    pub ratio_from: u64,
    pub overrides: Overrides,
}

/// Whether a long name or a PAX header may say another name or size than the header of its entry. Readers differ in which they
/// believe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overrides {
    Any,
    /// Only a name that was too long for the header.
    Agreeing,
}

/// Why an archive is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub kind: RefusalKind,
    /// The entry it is about.
    pub path: Option<String>,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    Invalid,
    Ratio,
    ArchiveTooLarge,
    UnpackedTooLarge,
    TooManyFiles,
    FileTooLarge,
    /// The client stopped sending, or the server could not go on reading.
    Broken,
}

impl Refusal {
    pub fn new(kind: RefusalKind, path: Option<&str>, reason: impl Into<String>) -> Self {
        Self { kind, path: path.map(str::to_owned), reason: reason.into() }
    }

    fn invalid(path: Option<&str>, reason: impl Into<String>) -> Self {
        Self::new(RefusalKind::Invalid, path, reason)
    }
}

/// Takes the files of an archive, in its order.
pub trait FileSink {
    /// Reads the file to its end.
    fn file(&mut self, path: &str, content: &mut dyn Read) -> Result<(), Refusal>;
    /// Whether a file is left out.
    fn leaves_out(&self, _path: &str) -> bool {
        false
    }
    /// A file was left out.
    fn left_out(&mut self, _path: &str) {}
}

/// How much padding may follow the end of the archive. GNU tar pads to 10 KiB, others to more.
const MOST_PADDING: u64 = 1 << 20;
/// How much may stand before the content of an entry: its headers, long names and PAX headers, which are held in memory.
const LONGEST_HEADERS: u64 = 1 << 20;
const BLOCK: u64 = 512;
/// How a gzip stream begins.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// How many entries the archive of a commit may have, the folder of the site or not.
const MOST_OF_REPOSITORY: u64 = 500_000;

/// Reads a whole archive into `sink`. Of the archive of a commit it is one folder, and what lies outside of it is passed over,
/// whatever it is.
pub fn unpack(
    archive: impl BufRead,
    limits: &ArchiveLimits,
    within: Option<&str>,
    sink: &mut dyn FileSink,
) -> Result<(), Refusal> {
    let mut archive = Counted { inner: archive, read: 0, most: limits.archive };
    let first = archive.fill_buf().map_err(|error| broken(None, &error))?;
    if first.is_empty() || !GZIP.starts_with(&first[..first.len().min(GZIP.len())]) {
        return Err(Refusal::invalid(None, "The body is not gzip."));
    }
    let left = Cell::new(u64::MAX);
    let source = GzDecoder::new(archive);
    let mut guarded = Guarded { source, unpacked: 0, ratio: limits.ratio, from: limits.ratio_from, left: &left };
    read_entries(&mut guarded, limits, within, sink)?;
    read_end(&mut guarded)
}

/// The name of an entry inside a folder of a repository. The archive of a commit has everything below one folder of its own.
fn inside<'a>(raw: &'a [u8], folder: &str) -> Option<&'a [u8]> {
    let below = raw.iter().position(|b| *b == b'/').map(|at| &raw[at + 1..])?;
    let rest = if folder.is_empty() { below } else { below.strip_prefix(folder.as_bytes())?.strip_prefix(b"/")? };
    (!rest.is_empty()).then_some(rest)
}

fn read_entries<R: BufRead>(
    guarded: &mut Guarded<'_, Counted<R>>,
    limits: &ArchiveLimits,
    within: Option<&str>,
    sink: &mut dyn FileSink,
) -> Result<(), Refusal> {
    let left = guarded.left;
    let mut archive = tar::Archive::new(guarded);
    let (mut seen, mut unpacked, mut files, mut entries_seen) = (HashSet::new(), 0_u64, 0_u64, 0_u64);
    let mut before: Option<String> = None;
    let mut entries = archive.entries().map_err(|error| broken(None, &error))?;
    // What is still to be passed over of the entry before.
    let mut unread = 0;
    loop {
        left.set(LONGEST_HEADERS.saturating_add(unread));
        let Some(entry) = entries.next() else { break };
        // The name of an entry whose header cannot be read is not known; the one before it says where to look.
        let mut entry = entry.map_err(|error| broken(before.as_deref(), &error))?;
        left.set(u64::MAX);
        unread = entry.size();
        entries_seen += 1;
        let most =
            if within.is_some() { MOST_OF_REPOSITORY } else { limits.files.saturating_mul(4).saturating_add(1000) };
        if entries_seen > most {
            return Err(Refusal::new(RefusalKind::TooManyFiles, None, format!("More than {} files.", limits.files)));
        }
        let mut raw = entry.path_bytes().into_owned();
        if let Some(folder) = within {
            match inside(&raw, folder) {
                Some(rest) => raw = rest.to_vec(),
                None => continue,
            }
        }
        let shown = || String::from_utf8_lossy(&raw).chars().take(200).collect::<String>();
        match entry.header().entry_type() {
            EntryType::XGlobalHeader => continue,
            EntryType::Regular | EntryType::Directory => {}
            other => return Err(Refusal::invalid(Some(&shown()), describe_type(other))),
        }
        let is_folder = entry.header().entry_type() == EntryType::Directory;
        let path = names::check(&raw).map_err(|reason| Refusal::invalid(Some(&shown()), reason))?;
        if let Some(reason) =
            wrong_extension(&mut entry, limits.overrides).map_err(|error| broken(Some(&path), &error))?
        {
            return Err(Refusal::invalid(Some(&path), reason));
        }
        before = Some(path.clone());
        if is_folder {
            continue;
        }
        if path.is_empty() || raw.ends_with(b"/") {
            return Err(Refusal::invalid(Some(&shown()), "A file has the name of a folder."));
        }
        let size = entry.size();
        if size > limits.file {
            let reason = format!("The file has {size} bytes, and {} are allowed.", limits.file);
            return Err(Refusal::new(RefusalKind::FileTooLarge, Some(&path), reason));
        }
        unpacked += size;
        if unpacked > limits.unpacked {
            let reason = format!("The files have more than {} bytes together.", limits.unpacked);
            return Err(Refusal::new(RefusalKind::UnpackedTooLarge, Some(&path), reason));
        }
        files += 1;
        if files > limits.files {
            let reason = format!("More than {} files.", limits.files);
            return Err(Refusal::new(RefusalKind::TooManyFiles, Some(&path), reason));
        }
        if !seen.insert(names::folded(&path)) {
            return Err(Refusal::invalid(
                Some(&path),
                "The file is there twice (names that differ by case count as one).",
            ));
        }
        if sink.leaves_out(&path) {
            sink.left_out(&path);
            continue;
        }
        let mut content = WholeFile { left: size, entry: &mut entry };
        sink.file(&path, &mut content)?;
        unread = 0;
    }
    left.set(u64::MAX);
    if let Some(folder) = within.filter(|_| files == 0) {
        return Err(Refusal::invalid(Some(folder), "The commit has no files in this folder. Nothing is built here."));
    }
    refuse_files_as_folders(&seen)
}

/// `a` and `a/b` cannot both be files.
fn refuse_files_as_folders(seen: &HashSet<String>) -> Result<(), Refusal> {
    for path in seen {
        for (at, _) in path.match_indices('/') {
            if seen.contains(&path[..at]) {
                return Err(Refusal::invalid(Some(path), "A file has the name of a folder."));
            }
        }
    }
    Ok(())
}

/// What is wrong with the long name and the PAX headers of an entry.
fn wrong_extension<R: Read>(entry: &mut tar::Entry<'_, R>, overrides: Overrides) -> io::Result<Option<&'static str>> {
    /// The room for a name in a header; a longer one is cut there.
    const NAME: usize = 100;
    let header_size = entry.header().entry_size()?;
    let in_header = entry.header().path_bytes().into_owned();
    let name = entry.path_bytes().into_owned();
    let is_cut = name.len() > NAME && name.starts_with(&in_header) && in_header.len() >= NAME;
    if overrides == Overrides::Agreeing && name != in_header && !is_cut {
        return Ok(Some("A long name or a PAX header says another name than the entry."));
    }
    let Some(extensions) = entry.pax_extensions()? else { return Ok(None) };
    for extension in extensions {
        let extension = extension?;
        let (key, value) = (extension.key_bytes(), extension.value_bytes());
        if key.starts_with(b"GNU.sparse") {
            return Ok(Some("Sparse files are not allowed."));
        }
        if overrides == Overrides::Any {
            continue;
        }
        if key == b"path" && value != name {
            return Ok(Some("A PAX header says another name than the entry."));
        }
        if key == b"size" && value != header_size.to_string().as_bytes() {
            return Ok(Some("A PAX header says another size than the entry."));
        }
    }
    Ok(None)
}

fn describe_type(kind: EntryType) -> &'static str {
    match kind {
        EntryType::Symlink => "Symbolic links are not allowed.",
        EntryType::Link => "Hard links are not allowed.",
        EntryType::Char | EntryType::Block => "Devices are not allowed.",
        EntryType::Fifo => "Named pipes are not allowed.",
        EntryType::GNUSparse => "Sparse files are not allowed.",
        _ => "Only files and folders are allowed; the entry has another type.",
    }
}

/// After the last entry: two blocks of zeros, padding, the end of the gzip stream, and nothing else.
fn read_end<R: BufRead>(guarded: &mut Guarded<'_, Counted<R>>) -> Result<(), Refusal> {
    let (mut rest, mut buffer) = (0_u64, [0_u8; 8192]);
    loop {
        let read = guarded.read(&mut buffer).map_err(|error| broken(None, &error))?;
        if read == 0 {
            break;
        }
        rest += read as u64;
        if buffer[..read].iter().any(|byte| *byte != 0) || rest > MOST_PADDING {
            return Err(Refusal::invalid(None, "There is data after the end of the archive."));
        }
    }
    // One of the two blocks was read together with the entries.
    if rest < BLOCK {
        return Err(Refusal::invalid(None, "The archive is cut off: its end is missing."));
    }
    let after = guarded.source.get_mut().fill_buf().map_err(|error| broken(None, &error))?;
    if after.is_empty() {
        Ok(())
    } else {
        Err(Refusal::invalid(None, "There is data after the end of the gzip stream."))
    }
}

/// Errors of our own travel through readers of libraries as `io::Error`.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.reason)]
struct Carried(Refusal);

fn carried(refusal: Refusal) -> io::Error {
    io::Error::other(Carried(refusal))
}

fn broken(path: Option<&str>, error: &io::Error) -> Refusal {
    let mut inner: Option<&(dyn std::error::Error + 'static)> = error.get_ref().map(|inner| inner as _);
    while let Some(found) = inner {
        if let Some(Carried(refusal)) = found.downcast_ref() {
            return Refusal { path: refusal.path.clone().or_else(|| path.map(str::to_owned)), ..refusal.clone() };
        }
        inner = match found.downcast_ref::<io::Error>() {
            Some(wrapped) => wrapped.get_ref().map(|inner| inner as _),
            None => found.source(),
        };
    }
    let reason = match error.kind() {
        io::ErrorKind::UnexpectedEof => "The archive is cut off.".to_owned(),
        _ => format!("The archive cannot be read: {error}."),
    };
    Refusal::invalid(path, reason)
}

/// An error that ends the reading of an archive from inside its source.
pub fn source_failed(reason: impl Into<String>) -> io::Error {
    carried(Refusal::new(RefusalKind::Broken, None, reason))
}

/// The compressed bytes, counted.
struct Counted<R> {
    inner: R,
    read: u64,
    most: u64,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let found = self.fill_buf()?;
        let count = found.len().min(into.len());
        into[..count].copy_from_slice(&found[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let found = self.inner.fill_buf()?;
        if self.read + found.len() as u64 > self.most {
            let reason = format!("The archive has more than {} bytes.", self.most);
            return Err(carried(Refusal::new(RefusalKind::ArchiveTooLarge, None, reason)));
        }
        Ok(found)
    }

    fn consume(&mut self, count: usize) {
        self.read += count as u64;
        self.inner.consume(count);
    }
}

/// The unpacked bytes, watched for a bomb.
struct Guarded<'a, R> {
    source: GzDecoder<R>,
    unpacked: u64,
    ratio: u64,
    from: u64,
    /// How much may be read until the content of the next entry begins.
    left: &'a Cell<u64>,
}

impl<R: BufRead> Read for Guarded<'_, Counted<R>> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(into)?;
        self.unpacked += count as u64;
        let Some(left) = self.left.get().checked_sub(count as u64) else {
            return Err(carried(Refusal::invalid(None, "The name or the PAX header of an entry is too long.")));
        };
        self.left.set(left);
        if self.unpacked > self.from && self.unpacked / self.ratio > self.source.get_ref().read {
            let reason = format!("The archive unpacks to more than {} times its size.", self.ratio);
            return Err(carried(Refusal::new(RefusalKind::Ratio, None, reason)));
        }
        Ok(count)
    }
}

/// An entry that ends early is an error instead of a shorter file.
struct WholeFile<'a, 'b, R: Read> {
    left: u64,
    entry: &'a mut tar::Entry<'b, R>,
}

impl<R: Read> Read for WholeFile<'_, '_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.entry.read(into)?;
        if count == 0 && self.left > 0 && !into.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left = self.left.saturating_sub(count as u64);
        Ok(count)
    }
}

/// What went wrong while a file was read, with its name.
pub fn while_reading(path: &str, error: &io::Error) -> Refusal {
    broken(Some(path), error)
}
