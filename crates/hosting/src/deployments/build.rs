//! Building a site from the files of an archive: contents that the app has already are named again, new ones go into packs.
use std::{
    collections::{BTreeSet, HashMap},
    io::Read,
};

use aws_lc_rs::digest;
use kernel::{
    archive::{FileSink, Refusal, RefusalKind, names, while_reading},
    entropy::Entropy,
    ports::objects::Key,
};

use crate::edge::{
    headers,
    manifest::{LARGEST_PIECE, Piece, Sha256, StoredFile, StoredManifest},
    redirects,
};

/// One write and one fsync for so many bytes. Bounds what a deployment holds in memory, too.
pub const LARGEST_PACK: usize = 4 << 20;
/// How much of `_redirects` and `_headers` is read.
const LONGEST_RULES: usize = 1 << 20;
const MOST_WARNINGS: usize = 100;
/// The folder of the object store.
const FOLDER: &str = "sites";

/// A full pack on its way to the store.
#[derive(Debug)]
pub struct NewPack {
    pub object: String,
    pub bytes: Vec<u8>,
}

/// Where a content lies that the app has already.
#[derive(Debug, Default)]
pub struct KnownPieces(HashMap<Sha256, (String, u64, u32)>);

impl KnownPieces {
    pub fn add(&mut self, stored: &StoredManifest) {
        for piece in stored.pieces() {
            if let Some(pack) = stored.packs.get(piece.pack as usize) {
                self.0.entry(piece.hash).or_insert_with(|| (pack.clone(), piece.at, piece.size));
            }
        }
    }
}

/// Takes contents and says where each lies.
pub struct Packer<Put> {
    known: KnownPieces,
    packs: Vec<String>,
    numbers: HashMap<String, u32>,
    current: Option<NewPack>,
    entropy: Entropy,
    send: Put,
    pub new_bytes: u64,
}

impl<Put: FnMut(NewPack) -> Result<(), Refusal>> Packer<Put> {
    /// `send` stores a pack, and waits while others are stored.
    pub fn new(known: KnownPieces, entropy: Entropy, send: Put) -> Self {
        Self { known, packs: vec![], numbers: HashMap::new(), current: None, entropy, send, new_bytes: 0 }
    }

    fn number(&mut self, pack: &str) -> u32 {
        if let Some(number) = self.numbers.get(pack) {
            return *number;
        }
        let number = u32::try_from(self.packs.len()).unwrap_or(u32::MAX);
        self.packs.push(pack.to_owned());
        self.numbers.insert(pack.to_owned(), number);
        number
    }

    /// Keeps the numbers of packs that a manifest names already.
    pub fn name_packs(&mut self, packs: &[String]) {
        for pack in packs {
            self.number(pack);
        }
    }

    pub fn add(&mut self, bytes: &[u8]) -> Result<Piece, Refusal> {
        let hash = Sha256::of(bytes);
        let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if let Some((pack, at, size)) = self.known.0.get(&hash).cloned() {
            return Ok(Piece { hash, pack: self.number(&pack), at, size });
        }
        if self.current.as_ref().is_some_and(|pack| pack.bytes.len() + bytes.len() > LARGEST_PACK) {
            self.flush()?;
        }
        let entropy = &self.entropy;
        let pack = self
            .current
            .get_or_insert_with(|| NewPack { object: pack_key(entropy), bytes: Vec::with_capacity(bytes.len()) });
        let (object, at) = (pack.object.clone(), pack.bytes.len() as u64);
        pack.bytes.extend_from_slice(bytes);
        self.new_bytes += bytes.len() as u64;
        self.known.0.insert(hash, (object.clone(), at, size));
        Ok(Piece { hash, pack: self.number(&object), at, size })
    }

    fn flush(&mut self) -> Result<(), Refusal> {
        match self.current.take() {
            Some(pack) => (self.send)(pack),
            None => Ok(()),
        }
    }

    /// Stores the last pack and answers all that were named.
    pub fn finish(mut self) -> Result<(Vec<String>, u64), Refusal> {
        self.flush()?;
        Ok((self.packs, self.new_bytes))
    }
}

/// A site in the making.
pub struct SiteBuilder<Put> {
    packer: Packer<Put>,
    files: Vec<StoredFile>,
    /// `_redirects` and `_headers`, wherever they lie: the root is known at the end.
    rules: HashMap<String, String>,
    left_out: u64,
    pub warnings: Vec<String>,
    buffer: Vec<u8>,
}

/// A site whose bytes are stored.
#[derive(Debug)]
pub struct BuiltSite {
    pub stored: StoredManifest,
    pub new_bytes: u64,
    pub warnings: Vec<String>,
    /// The folder of the archive that became the root.
    pub root: Option<String>,
}

impl<Put: FnMut(NewPack) -> Result<(), Refusal>> SiteBuilder<Put> {
    pub fn new(packer: Packer<Put>) -> Self {
        Self { packer, files: vec![], rules: HashMap::new(), left_out: 0, warnings: vec![], buffer: vec![] }
    }

    fn warn(&mut self, warning: String) {
        match self.warnings.len() {
            0..MOST_WARNINGS => self.warnings.push(warning),
            MOST_WARNINGS => self.warnings.push("Further warnings are left out.".into()),
            _ => {}
        }
    }

    pub fn finish(mut self) -> Result<BuiltSite, Refusal> {
        if self.left_out > 10 {
            self.warn(format!("{} files whose names begin with a dot are left out.", self.left_out));
        }
        let root = self.find_root();
        if let Some(root) = &root {
            let inside = format!("{root}/");
            let before = self.files.len();
            self.files.retain(|file| file.path.starts_with(&inside));
            for file in &mut self.files {
                file.path.drain(..inside.len());
            }
            if before > self.files.len() {
                let outside = before - self.files.len();
                self.warn(format!("{outside} files outside of the folder {root} are left out."));
            }
        }
        let rules = |name: &str| match &root {
            Some(root) => format!("{root}/{name}"),
            None => name.to_owned(),
        };
        let parsed_redirects =
            self.rules.get(&rules("_redirects")).map(|text| redirects::parse(text)).unwrap_or_default();
        let parsed_headers = self.rules.get(&rules("_headers")).map(|text| headers::parse(text)).unwrap_or_default();
        for warning in parsed_redirects.warnings.into_iter().chain(parsed_headers.warnings) {
            self.warn(warning);
        }
        self.files.retain(|file| file.path != "_redirects" && file.path != "_headers");
        if !self.files.iter().any(|file| file.path == "index.html") {
            self.warn("There is no index.html: the site's first page is not found.".into());
        }
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        let (packs, new_bytes) = self.packer.finish()?;
        let stored = StoredManifest {
            packs,
            files: self.files,
            redirects: parsed_redirects.rules,
            headers: parsed_headers.rules,
        };
        Ok(BuiltSite { stored: stored.without_unused_packs(), new_bytes, warnings: self.warnings, root })
    }

    /// The only folder with an `index.html`, if the root has none.
    fn find_root(&self) -> Option<String> {
        if self.files.iter().any(|file| file.path == "index.html") {
            return None;
        }
        let folders = self.files.iter().filter_map(|file| file.path.strip_suffix("/index.html"));
        let folders: BTreeSet<&str> = folders.filter(|folder| !folder.contains('/')).collect();
        match folders.len() {
            1 => folders.first().map(|folder| (*folder).to_owned()),
            _ => None,
        }
    }
}

impl<Put: FnMut(NewPack) -> Result<(), Refusal>> FileSink for SiteBuilder<Put> {
    fn file(&mut self, path: &str, content: &mut dyn Read) -> Result<(), Refusal> {
        let mut whole = digest::Context::new(&digest::SHA256);
        let (mut pieces, mut size, mut text) = (vec![], 0_u64, vec![]);
        let name = path.rsplit('/').next().unwrap_or(path);
        let is_rules = matches!(name, "_redirects" | "_headers");
        let mut buffer = std::mem::take(&mut self.buffer);
        loop {
            buffer.clear();
            let read = (&mut *content).take(LARGEST_PIECE as u64).read_to_end(&mut buffer);
            let read = read.map_err(|error| while_reading(path, &error))?;
            if read == 0 {
                break;
            }
            size += read as u64;
            if is_rules && text.len() < LONGEST_RULES {
                text.extend_from_slice(&buffer);
            }
            pieces.push(self.packer.add(&buffer)?);
            if read < LARGEST_PIECE && pieces.len() == 1 {
                break;
            }
            whole.update(&buffer);
        }
        self.buffer = buffer;
        let hash = match &pieces[..] {
            [only] if size < LARGEST_PIECE as u64 => only.hash,
            [] => Sha256::of(b""),
            _ => {
                let mut hash = [0; 32];
                hash.copy_from_slice(whole.finish().as_ref());
                Sha256(hash)
            }
        };
        if is_rules {
            match String::from_utf8(text) {
                Ok(text) => _ = self.rules.insert(path.to_owned(), text),
                Err(_) => self.warn(format!("{path} is not UTF-8 and is ignored.")),
            }
        }
        self.files.push(StoredFile { path: path.to_owned(), hash, size, pieces, gzip: None, br: None });
        Ok(())
    }

    /// Dotfiles are never served.
    fn leaves_out(&self, path: &str) -> bool {
        names::is_hidden(path)
    }

    fn left_out(&mut self, path: &str) {
        self.left_out += 1;
        if self.left_out <= 10 {
            self.warn(format!("{path} is left out: files whose names begin with a dot are never served."));
        }
    }
}

/// The document of a manifest and its hash.
pub fn document(stored: &StoredManifest) -> Result<(Vec<u8>, Sha256), Refusal> {
    let document =
        serde_json::to_vec(stored).map_err(|error| Refusal::new(RefusalKind::Broken, None, error.to_string()))?;
    let hash = Sha256::of(&document);
    Ok((document, hash))
}

/// A new name for a pack.
pub fn pack_key(entropy: &Entropy) -> String {
    Key::new(FOLDER, "pack", entropy).to_string()
}

/// A new name for a manifest.
pub fn manifest_key(entropy: &Entropy) -> Key {
    Key::new(FOLDER, "json", entropy)
}

/// Reads what is stored of a manifest, if it is what its hash says.
pub fn read_document(hash: Sha256, document: &[u8]) -> Option<StoredManifest> {
    if Sha256::of(document) == hash { serde_json::from_slice(document).ok() } else { None }
}
