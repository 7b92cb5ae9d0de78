//! The manifest of a deployment: every file by its path, and where its bytes are. It is stored as one immutable document
//! beside the packs, so a deployment needs no row per file, and serving one needs no file system.
use std::collections::HashMap;

use axum::http::HeaderValue;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    headers::{HeaderRule, Headers},
    redirects::{Redirect, Redirects},
};

/// Files are cut into pieces of this size. A piece is what is read, checked and kept in memory as one.
pub const LARGEST_PIECE: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256(pub [u8; 32]);

impl Sha256 {
    pub fn hex(&self) -> String {
        HEXLOWER.encode(&self.0)
    }

    pub fn parse(text: &str) -> Option<Self> {
        HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok().map(Self)
    }

    pub fn of(bytes: &[u8]) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
        let mut hash = [0; 32];
        hash.copy_from_slice(digest.as_ref());
        Self(hash)
    }
}

impl Serialize for Sha256 {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.hex())
    }
}

impl<'de> Deserialize<'de> for Sha256 {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("must be a SHA-256"))
    }
}

/// The document as it is stored.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StoredManifest {
    /// The keys of the objects that hold the bytes.
    pub packs: Vec<String>,
    /// In the order of their paths.
    pub files: Vec<StoredFile>,
    #[serde(default)]
    pub redirects: Vec<Redirect>,
    #[serde(default)]
    pub headers: Vec<HeaderRule>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredFile {
    pub path: String,
    pub hash: Sha256,
    pub size: u64,
    pub pieces: Vec<Piece>,
    /// The same compressed, once the job has done it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gzip: Option<StoredForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub br: Option<StoredForm>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredForm {
    pub size: u64,
    pub pieces: Vec<Piece>,
}

/// Part of a file: at most [`LARGEST_PIECE`] bytes of a pack, known by their hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    pub hash: Sha256,
    /// Which of the manifest's packs.
    pub pack: u32,
    pub at: u64,
    pub size: u32,
}

impl StoredManifest {
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.files.iter().flat_map(|file| {
            let forms = [&file.gzip, &file.br].into_iter().flatten().flat_map(|form| &form.pieces);
            file.pieces.iter().chain(forms)
        })
    }

    /// Leaves out packs that no piece is in.
    #[must_use]
    pub fn without_unused_packs(mut self) -> Self {
        let mut used = vec![false; self.packs.len()];
        for piece in self.pieces() {
            if let Some(pack) = used.get_mut(piece.pack as usize) {
                *pack = true;
            }
        }
        let mut numbers = vec![0_u32; self.packs.len()];
        let mut next = 0;
        for (number, is_used) in numbers.iter_mut().zip(&used) {
            *number = next;
            next += u32::from(*is_used);
        }
        let mut at = 0;
        self.packs.retain(|_| {
            at += 1;
            used[at - 1]
        });
        for file in &mut self.files {
            let forms = [&mut file.gzip, &mut file.br].into_iter().flatten().flat_map(|form| &mut form.pieces);
            for piece in file.pieces.iter_mut().chain(forms) {
                piece.pack = numbers[piece.pack as usize];
            }
        }
        self
    }
}

/// A manifest as it is served from.
#[derive(Debug)]
pub struct Manifest {
    pub hash: Sha256,
    pub packs: Vec<String>,
    files: HashMap<Box<str>, ServedFile>,
    pub redirects: Redirects,
    pub headers: Headers,
    /// Roughly what it takes in memory.
    pub weight: u64,
}

/// A file with the headers that never change.
#[derive(Debug)]
pub struct ServedFile {
    pub plain: Form,
    pub gzip: Option<Form>,
    pub br: Option<Form>,
    pub content_type: HeaderValue,
    pub is_html: bool,
    /// Whether its name has a hash of its content in it, so that it may be kept for a year.
    pub is_hashed: bool,
}

/// One form of a file: plain, or compressed.
#[derive(Debug)]
pub struct Form {
    pub size: u64,
    pub etag: HeaderValue,
    pub pieces: Box<[Piece]>,
}

impl ServedFile {
    fn of(file: StoredFile) -> Self {
        let hash = file.hash.hex();
        // Half of the hash is enough to tell two contents apart, and shorter on the wire.
        let etag = |suffix: &str| {
            HeaderValue::try_from(format!("\"{}{suffix}\"", &hash[..32])).unwrap_or(HeaderValue::from_static("\"\""))
        };
        let form = |form: Option<StoredForm>, suffix: &str| {
            form.map(|form| Form { size: form.size, etag: etag(suffix), pieces: form.pieces.into() })
        };
        let kind = content_type(&file.path);
        Self {
            gzip: form(file.gzip, "-gzip"),
            br: form(file.br, "-br"),
            plain: Form { size: file.size, etag: etag(""), pieces: file.pieces.into() },
            is_html: kind.starts_with("text/html"),
            is_hashed: is_hashed(&file.path) && !kind.starts_with("text/html"),
            content_type: HeaderValue::try_from(kind).unwrap_or(HeaderValue::from_static("application/octet-stream")),
        }
    }
}

impl Manifest {
    pub fn new(hash: Sha256, stored: StoredManifest) -> Self {
        let mut weight = 256;
        let mut files = HashMap::with_capacity(stored.files.len());
        for file in stored.files {
            let forms = [&file.gzip, &file.br].into_iter().flatten().map(|form| form.pieces.len()).sum::<usize>();
            weight += 400 + file.path.len() + (file.pieces.len() + forms) * 56;
            files.insert(file.path.clone().into_boxed_str(), ServedFile::of(file));
        }
        weight += stored.redirects.len() * 200;
        Self {
            hash,
            packs: stored.packs,
            files,
            redirects: Redirects::new(stored.redirects),
            headers: Headers::new(stored.headers),
            weight: weight as u64,
        }
    }

    pub fn parse(hash: Sha256, document: &[u8]) -> Option<Self> {
        (Sha256::of(document) == hash)
            .then(|| serde_json::from_slice(document).ok())
            .flatten()
            .map(|stored| Self::new(hash, stored))
    }

    pub fn get(&self, path: &str) -> Option<&ServedFile> {
        self.files.get(path)
    }

    pub fn get_key_value(&self, path: &str) -> Option<(&str, &ServedFile)> {
        self.files.get_key_value(path).map(|(path, file)| (&**path, file))
    }
}

/// By the extension; text is UTF-8.
pub fn content_type(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let known = match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("webmanifest") => Some("application/manifest+json"),
        Some("js" | "mjs") => Some("text/javascript"),
        Some("map") => Some("application/json"),
        Some("wasm") => Some("application/wasm"),
        Some("avif") => Some("image/avif"),
        Some("ico") => Some("image/x-icon"),
        None if path == ".well-known/apple-app-site-association" => Some("application/json"),
        _ => None,
    };
    let kind = known.or_else(|| mime_guess::from_path(name).first_raw()).unwrap_or("application/octet-stream");
    let is_text = kind.starts_with("text/") || matches!(kind, "application/json" | "application/manifest+json");
    if is_text { format!("{kind}; charset=utf-8") } else { kind.to_owned() }
}

/// Whether it pays to compress a file of this name.
pub fn is_compressible(path: &str) -> bool {
    let kind = content_type(path);
    kind.starts_with("text/")
        || ["json", "xml", "javascript", "wasm", "svg", "x-icon", "opentype", "font/ttf", "manifest"]
            .iter()
            .any(|word| kind.contains(word))
}

/// Names that build tools give: a folder of theirs, or a hash of the content at the end.
fn is_hashed(path: &str) -> bool {
    if path.starts_with("_next/static/") || path.starts_with("_astro/") {
        return true;
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let Some((stem, _)) = name.split_once('.').and_then(|_| name.rsplit_once('.')) else { return false };
    let tail = stem.rsplit(['.', '-', '_']).next().unwrap_or_default();
    let has_digit = tail.bytes().any(|byte| byte.is_ascii_digit());
    if tail.len() >= 8 && tail.len() < stem.len() && has_digit && tail.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return true;
    }
    // Vite and others: eight letters of base64 after a hyphen, which may be hyphens themselves. A word is no hash.
    let is_hash = |hash: &[u8]| {
        hash.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && hash.iter().any(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
            && hash.iter().any(u8::is_ascii_alphabetic)
    };
    let bytes = stem.as_bytes();
    path.starts_with("assets/")
        && bytes.len() > 9
        && matches!(bytes[bytes.len() - 9], b'-' | b'.')
        && is_hash(&bytes[bytes.len() - 8..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashed_names_are_told_from_words() {
        for hashed in [
            "_next/static/chunks/main.js",
            "_astro/index.css",
            "assets/index-DiwrgTda.js",
            "assets/index-B_x-9Aaz.css",
            "js/app.3f9ac21b.js",
            "static/main-0a1b2c3d4e5f.css",
        ] {
            assert!(is_hashed(hashed), "{hashed}");
        }
        for plain in [
            "assets/logo.png",
            "assets/main-homepage.css",
            "assets/jquery-3.7.1.js",
            "index.html",
            "feedbeef.js",
            "a/javascript.js",
            "deadbeef",
        ] {
            assert!(!is_hashed(plain), "{plain}");
        }
    }

    #[test]
    fn types_follow_from_extensions() {
        for (path, kind) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a/b.js", "text/javascript; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.json", "application/json; charset=utf-8"),
            ("a.svg", "image/svg+xml"),
            ("a.woff2", "font/woff2"),
            ("LICENSE", "application/octet-stream"),
            ("x.wasm", "application/wasm"),
        ] {
            assert_eq!(content_type(path), kind);
        }
        assert!(is_compressible("a.svg") && is_compressible("a.js") && !is_compressible("a.png"));
    }

    #[test]
    fn unused_packs_are_left_out() {
        let piece = |pack| Piece { hash: Sha256([0; 32]), pack, at: 0, size: 1 };
        let file = |path: &str, pack| StoredFile {
            path: path.into(),
            hash: Sha256([0; 32]),
            size: 1,
            pieces: vec![piece(pack)],
            gzip: None,
            br: None,
        };
        let packs = vec!["a/0".into(), "a/1".into(), "a/2".into()];
        let stored = StoredManifest { packs, files: vec![file("x", 2), file("y", 0)], ..StoredManifest::default() };
        let stored = stored.without_unused_packs();
        assert_eq!(stored.packs, ["a/0", "a/2"]);
        assert_eq!(stored.files.iter().map(|file| file.pieces[0].pack).collect::<Vec<_>>(), [1, 0]);
    }
}
