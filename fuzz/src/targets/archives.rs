//! Archives: deployments of sites and packages of skills.
use std::{
    collections::HashSet,
    io::{BufRead, Read, Write as _},
};

use flate2::{Compression, write::GzEncoder};
use hosting::{
    deployments::build::{self, KnownPieces, NewPack, Packer, SiteBuilder},
    edge::manifest::Sha256,
};
use kernel::{
    archive::{self, ArchiveLimits, FileSink, Overrides, Refusal, RefusalKind, names},
    entropy::Entropy,
};
use market::package::Package;

use super::skill;

const BLOCK: usize = 512;
const LIMITS: ArchiveLimits = ArchiveLimits {
    archive: 64 << 10,
    unpacked: 64 << 10,
    files: 40,
    file: 32 << 10,
    ratio: 200,
    ratio_from: 64 << 10,
    overrides: Overrides::Any,
};

/// An input is a gzip stream, or a tar. The checksums of a tar are put right, so that changes reach what comes after them.
fn archive_of(data: &[u8]) -> Vec<u8> {
    if data.starts_with(&[0x1f, 0x8b]) {
        return data.to_vec();
    }
    let mut tar = data.to_vec();
    for block in tar.chunks_exact_mut(BLOCK).filter(|block| block[257..].starts_with(b"ustar")) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    gzip(&tar)
}

fn gzip(tar: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(vec![], Compression::fast());
    packed.write_all(tar).expect("memory is written");
    packed.finish().expect("memory is written")
}

type Files = Vec<(String, Vec<u8>)>;

#[derive(Default)]
struct Collected(Files);

impl FileSink for Collected {
    fn file(&mut self, path: &str, content: &mut dyn Read) -> Result<(), Refusal> {
        let mut bytes = vec![];
        content.read_to_end(&mut bytes).map_err(|error| archive::while_reading(path, &error))?;
        self.0.push((path.to_owned(), bytes));
        Ok(())
    }
}

/// The same bytes, one at a time.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let end = into.len().min(1);
        self.0.read(&mut into[..end])
    }
}

impl BufRead for Slow<'_> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        Ok(&self.0[..self.0.len().min(1)])
    }

    fn consume(&mut self, amount: usize) {
        self.0 = &self.0[amount..];
    }
}

fn unpack(archive: impl BufRead, limits: &ArchiveLimits) -> Result<Files, RefusalKind> {
    let mut files = Collected::default();
    archive::unpack(archive, limits, None, &mut files).map(|()| files.0).map_err(|refusal| refusal.kind)
}

fn check_files(files: &Files) {
    let mut seen = HashSet::new();
    for (path, bytes) in files {
        assert_eq!(names::check(path.as_bytes()).as_deref(), Ok(path.as_str()), "a name has one form");
        assert!(!path.is_empty() && !path.starts_with('/') && !path.split('/').any(|part| part == ".."), "{path}");
        assert!(bytes.len() as u64 <= LIMITS.file, "{path}: {} bytes", bytes.len());
        assert!(seen.insert(names::folded(path)), "{path} is there twice");
    }
    for path in &seen {
        assert!(!path.match_indices('/').any(|(at, _)| seen.contains(&path[..at])), "{path}: below a file");
    }
    assert!(files.len() as u64 <= LIMITS.files, "{} files", files.len());
    assert!(files.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>() <= LIMITS.unpacked);
}

fn pack(files: &Files) -> Vec<u8> {
    let mut tar = tar::Builder::new(vec![]);
    for (path, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, path, bytes.as_slice()).expect("memory is written");
    }
    gzip(&tar.into_inner().expect("memory is written"))
}

/// Files have names of one form inside the archive and sizes within limits. The way the bytes arrive makes no difference, files that
/// are packed again are the same, and the site that is built of them has each byte in its place.
pub fn site_archive(data: &[u8]) -> bool {
    let archive = archive_of(data);
    let read = unpack(archive.as_slice(), &LIMITS);
    assert_eq!(unpack(Slow(&archive), &LIMITS), read, "bytes that come one at a time are the same archive");
    let mut packs: Vec<NewPack> = vec![];
    let built = {
        let packer = Packer::new(KnownPieces::default(), Entropy::seeded(1), |pack| {
            packs.push(pack);
            Ok(())
        });
        let mut site = SiteBuilder::new(packer);
        let unpacked = archive::unpack(archive.as_slice(), &LIMITS, None, &mut site);
        assert_eq!(unpacked.map_err(|refusal| refusal.kind), read.as_ref().map(drop).map_err(|kind| *kind));
        site.finish()
    };
    let Ok(files) = read else { return false };
    check_files(&files);
    assert_eq!(unpack(pack(&files).as_slice(), &LIMITS).as_ref(), Ok(&files), "packed again");

    let built = built.expect("the files are within the limits");
    assert!(built.warnings.len() <= 101, "{}", built.warnings.len());
    for file in &built.stored.files {
        assert!(!names::is_hidden(&file.path), "{} would be served", file.path);
        let path = match &built.root {
            Some(root) => format!("{root}/{}", file.path),
            None => file.path.clone(),
        };
        let (_, bytes) = files.iter().find(|(known, _)| *known == path).expect("a file of the archive");
        let stored: Vec<u8> = file
            .pieces
            .iter()
            .flat_map(|piece| {
                let object = &built.stored.packs[piece.pack as usize];
                let pack = packs.iter().find(|pack| pack.object == *object).expect("a pack that was stored");
                let at = usize::try_from(piece.at).expect("a place in memory");
                pack.bytes[at..at + piece.size as usize].to_vec()
            })
            .collect();
        assert_eq!((stored.len() as u64, Sha256::of(&stored)), (file.size, file.hash), "{}", file.path);
        assert_eq!(&stored, bytes, "{}", file.path);
    }
    let (document, hash) = build::document(&built.stored).expect("a document");
    let again = build::read_document(hash, &document).expect("the document is read");
    assert_eq!((again.redirects, again.headers), (built.stored.redirects, built.stored.headers));
    true
}

/// What each way of writing a name says of one entry.
#[derive(Default)]
struct Said {
    header: Vec<u8>,
    gnu: Option<Vec<u8>>,
    pax: Option<Vec<u8>>,
    size: u64,
}

/// A plain reader of tar, which believes no header more than another. Nothing where it is at a loss.
fn every_name(tar: &[u8]) -> Option<Vec<Said>> {
    let (mut rest, mut found, mut said) = (tar, vec![], Said::default());
    while rest.len() >= BLOCK && rest[..BLOCK].iter().any(|byte| *byte != 0) {
        let (header, after) = rest.split_at(BLOCK);
        let text = |range: std::ops::Range<usize>| {
            header[range].split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
        };
        let size = std::str::from_utf8(&header[124..136]).ok()?.trim_matches(['\0', ' ']).to_owned();
        let size = usize::from_str_radix(&size, 8).ok()?;
        let content = after.get(..size)?;
        match header[156] {
            b'L' => said.gnu = Some(content.strip_suffix(b"\0").unwrap_or(content).to_vec()),
            b'x' => {
                for line in content.split(|byte| *byte == b'\n') {
                    let Some(space) = line.iter().position(|byte| *byte == b' ') else { continue };
                    if let Some(path) = line[space + 1..].strip_prefix(b"path=") {
                        said.pax = Some(path.to_vec());
                    }
                }
            }
            b'g' => {}
            kind => {
                let (name, prefix) = (text(0..100), text(345..500));
                let is_posix = header[257..].starts_with(b"ustar\0") && !prefix.is_empty();
                said.header = if is_posix { [&prefix[..], b"/", &name[..]].concat() } else { name };
                said.size = size as u64;
                let done = std::mem::take(&mut said);
                if matches!(kind, b'0' | 0) {
                    found.push(done);
                }
            }
        }
        rest = after.get(size.next_multiple_of(BLOCK)..)?;
    }
    Some(found)
}

/// A package has a `SKILL.md` and plain names, its files lie one after the other, and no other reader sees another name.
pub fn skill_archive(data: &[u8]) -> bool {
    let archive = archive_of(data);
    let Ok(package) = Package::read(&archive) else { return false };
    skill::check(&package.skill);
    assert!(package.files.iter().any(|file| file.path == skillfile::SKILL_MD));
    let mut at: Vec<(u64, u64)> = package.files.iter().map(|file| (file.at, file.size)).collect();
    at.sort_unstable();
    let end = at.iter().try_fold(0, |end, (at, size)| (*at == end).then_some(end + size));
    assert_eq!(end, Some(package.pack.len() as u64), "every byte of the pack is of one file");
    for file in &package.files {
        assert_eq!(skillfile::wrong_path(&file.path), None, "{}", file.path);
        assert_eq!(Sha256::of(package.content(file)).hex(), file.digest, "{}", file.path);
    }
    let same: Files = package.files.iter().map(|file| (file.path.clone(), package.content(file).to_vec())).collect();
    let again = Package::read(&pack(&same)).map_err(|fault| fault.code().name).expect("packed again");
    assert_eq!(
        again.files.iter().map(|file| (&file.path, &file.digest)).collect::<Vec<_>>(),
        package.files.iter().map(|file| (&file.path, &file.digest)).collect::<Vec<_>>()
    );

    let mut tar = vec![];
    flate2::read::GzDecoder::new(archive.as_slice()).read_to_end(&mut tar).expect("it was read");
    let Some(all) = every_name(&tar) else { return true };
    let folder = |path: &str| match path.split_once('/') {
        Some((folder, rest)) if folder == package.skill.name => rest.to_owned(),
        _ => path.to_owned(),
    };
    for said in all {
        let longest = said.gnu.as_ref().or(said.pax.as_ref()).unwrap_or(&said.header);
        let path = names::check(longest).expect("a name of an accepted package");
        let known = package
            .files
            .iter()
            .any(|file| (file.path == path || file.path == folder(&path)) && file.size == said.size);
        assert!(known, "another reader sees {path} of {} bytes", said.size);
        for other in [&said.gnu, &said.pax].into_iter().flatten() {
            assert_eq!(other, longest, "another reader sees {:?}", String::from_utf8_lossy(other));
        }
        let is_cut = longest.len() > 100 && said.header.len() >= 100 && longest.starts_with(&said.header);
        assert!(said.header == *longest || is_cut, "another reader sees {:?}", String::from_utf8_lossy(&said.header));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate::Dice;

    /// Bytes that are counted as they are read.
    struct Counted<'a>(&'a [u8], &'a std::cell::Cell<usize>);

    impl Read for Counted<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.read(into)?;
            self.1.set(self.1.get() + count);
            Ok(count)
        }
    }

    #[test]
    fn a_name_of_many_megabytes_is_refused_before_it_is_in_memory() {
        let mut dice = Dice::new(1);
        let name: Vec<u8> = (0..16 << 20).map(|_| b'a' + u8::try_from(dice.below(26)).unwrap()).collect();
        let limits = ArchiveLimits { archive: 100 << 20, unpacked: 100 << 20, file: 100 << 20, ..LIMITS };
        for kind in [tar::EntryType::GNULongName, tar::EntryType::XHeader] {
            let mut tar = tar::Builder::new(vec![]);
            for (kind, content) in [(kind, &name[..]), (tar::EntryType::Regular, b"x")] {
                let mut header = tar::Header::new_gnu();
                header.set_entry_type(kind);
                header.set_size(content.len() as u64);
                header.set_cksum();
                tar.append(&header, content).unwrap();
            }
            let archive = gzip(&tar.into_inner().unwrap());
            let read = std::cell::Cell::new(0);
            let source = std::io::BufReader::new(Counted(&archive, &read));
            let refused = archive::unpack(source, &limits, None, &mut Collected::default());
            assert_eq!(refused.unwrap_err().kind, RefusalKind::Invalid);
            assert!(read.get() < 2 << 20, "{kind:?}: {} bytes were read", read.get());
        }
    }
}
