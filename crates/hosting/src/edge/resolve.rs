//! Which file of a deployment a path leads to. Paths are looked up in the manifest and nowhere else.
use percent_encoding::percent_decode_str;

use super::{
    manifest::{Manifest, ServedFile},
    redirects::encode_path,
};

/// What a path leads to.
#[derive(Debug)]
pub enum Resolved<'a> {
    File(Found<'a>),
    /// `Location`.
    Redirect {
        status: u16,
        to: String,
    },
    /// The path is not in the deployment.
    Missing,
}

#[derive(Debug)]
pub struct Found<'a> {
    /// The path that `_headers` is compared with: that of the request.
    pub file: &'a ServedFile,
    pub status: u16,
    /// A page that stands in for another one must not be kept.
    pub is_fallback: bool,
}

impl<'a> Found<'a> {
    fn with(file: &'a ServedFile, status: u16) -> Self {
        Self { file, status, is_fallback: status != 200 }
    }
}

/// The path of a request, percent-decoded once and without its leading slash; none unless it is its own normal form.
pub fn decode(path: &str) -> Option<String> {
    let path = path.strip_prefix('/')?;
    let plain = if path.contains('%') {
        let decoded = percent_decode_str(path).decode_utf8().ok()?;
        // An encoded slash would make another path of it.
        if decoded.matches('/').count() != path.matches('/').count() {
            return None;
        }
        decoded.into_owned()
    } else {
        path.to_owned()
    };
    if plain.contains('\\') || plain.chars().any(char::is_control) {
        return None;
    }
    let mut segments = plain.split('/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        if segment == "." || segment == ".." || segment.is_empty() && !is_last {
            return None;
        }
    }
    Some(plain)
}

/// Looks a path up: forced redirects, the file, clean URLs, folders, redirects.
pub fn resolve<'a>(manifest: &'a Manifest, path: &str, query: Option<&str>) -> Resolved<'a> {
    if let Some(led) = manifest.redirects.find(path, query, true) {
        return follow(manifest, led.status, led.to);
    }
    if let Some(found) = find_file(manifest, path, query) {
        return found;
    }
    match manifest.redirects.find(path, query, false) {
        Some(led) => follow(manifest, led.status, led.to),
        None => Resolved::Missing,
    }
}

fn find_file<'a>(manifest: &'a Manifest, path: &str, query: Option<&str>) -> Option<Resolved<'a>> {
    let ok = |file: &'a ServedFile| Some(Resolved::File(Found::with(file, 200)));
    let Some(folder) = path.strip_suffix('/').or(path.is_empty().then_some("")) else {
        return manifest.get(path).and_then(ok).or_else(|| {
            if let Some(file) = manifest.get(&format!("{path}.html")) {
                return ok(file);
            }
            let (index, _) = manifest.get_key_value(&format!("{path}/index.html"))?;
            let folder = index.strip_suffix("index.html")?;
            Some(moved(folder, query))
        });
    };
    let index = if folder.is_empty() { "index.html".to_owned() } else { format!("{folder}/index.html") };
    manifest.get(&index).and_then(ok).or_else(|| {
        let (page, _) = manifest.get_key_value(&format!("{folder}.html"))?;
        Some(moved(page.strip_suffix(".html")?, query))
    })
}

/// `path` is one of the manifest's, so nothing that was sent is sent back.
fn moved<'a>(path: &str, query: Option<&str>) -> Resolved<'a> {
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    Resolved::Redirect { status: 308, to: format!("/{}{query}", encode_path(path)) }
}

fn follow(manifest: &Manifest, status: u16, to: String) -> Resolved<'_> {
    if !matches!(status, 200 | 404) {
        return Resolved::Redirect { status, to };
    }
    // A rule that leads to a file leads there once; no rule is looked at again.
    let candidates = [
        to.clone(),
        format!("{to}.html"),
        format!("{}/index.html", to.trim_end_matches('/')),
        format!("{to}index.html"),
    ];
    match candidates.iter().find_map(|path| manifest.get(path)) {
        Some(file) => Resolved::File(Found { file, status, is_fallback: true }),
        None => Resolved::Missing,
    }
}

/// Whether a missing path may be answered with the page of a client-side router: a person went there with a browser.
pub fn is_navigation(path: &str, accept: Option<&str>) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    !last.contains('.') && accept.is_some_and(|accept| accept.contains("text/html"))
}

/// The page of a client-side router.
pub fn spa(manifest: &Manifest) -> Option<Found<'_>> {
    manifest.get("index.html").map(|file| Found { file, status: 200, is_fallback: true })
}

/// The `404.html` of the nearest folder.
pub fn not_found_page<'a>(manifest: &'a Manifest, path: &str) -> Option<Found<'a>> {
    let mut folder = path;
    while let Some((above, _)) = folder.rsplit_once('/') {
        folder = above;
        if let Some(file) = manifest.get(&format!("{folder}/404.html")) {
            return Some(Found::with(file, 404));
        }
    }
    manifest.get("404.html").map(|file| Found::with(file, 404))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::{
        manifest::{Sha256, StoredFile, StoredManifest},
        redirects,
    };

    fn site(paths: &[&str], rules: &str) -> Manifest {
        let files = paths.iter().map(|path| StoredFile {
            path: (*path).into(),
            hash: Sha256::of(path.as_bytes()),
            size: 0,
            pieces: vec![],
            gzip: None,
            br: None,
        });
        let redirects = redirects::parse(rules).rules;
        Manifest::new(
            Sha256([0; 32]),
            StoredManifest { files: files.collect(), redirects, ..StoredManifest::default() },
        )
    }

    fn shows(manifest: &Manifest, path: &str) -> String {
        let Some(path) = decode(path) else { return "refused".into() };
        match resolve(manifest, &path, None) {
            Resolved::File(found) => format!("{} {}", found.status, found.file.plain.etag.to_str().unwrap()),
            Resolved::Redirect { status, to } => format!("{status} {to}"),
            Resolved::Missing => "missing".into(),
        }
    }

    fn file(path: &str) -> String {
        format!("200 \"{}\"", &Sha256::of(path.as_bytes()).hex()[..32])
    }

    #[test]
    fn paths_lead_to_files_clean_urls_and_folders() {
        let site = site(&["index.html", "about.html", "docs/index.html", "b\u{fc}cher.html", "a b/index.html"], "");
        for (path, shown) in [
            ("/", file("index.html")),
            ("/index.html", file("index.html")),
            ("/about", file("about.html")),
            ("/about.html", file("about.html")),
            ("/about/", "308 /about".into()),
            ("/docs", "308 /docs/".into()),
            ("/docs/", file("docs/index.html")),
            ("/b%C3%BCcher", file("b\u{fc}cher.html")),
            ("/a%20b", "308 /a%20b/".into()),
            ("/none", "missing".into()),
        ] {
            assert_eq!(shows(&site, path), shown, "{path}");
        }
    }

    #[test]
    fn w07_odd_paths_are_refused() {
        for path in [
            "/%2e%2e/",
            "/..%2f",
            "//evil.test/..",
            "//evil.test/",
            "/\\evil.test",
            "/%5cevil.test",
            "/a%00.html",
            "/a/./b",
            "/a/../b",
            "/a//b",
            "/%ff",
            "/a%0ab",
            "*",
            "",
        ] {
            assert_eq!(decode(path), None, "{path}");
        }
        assert_eq!(decode("/%252e%252e/").as_deref(), Some("%2e%2e/"), "decoded once");
    }

    #[test]
    fn files_win_over_redirects_unless_forced() {
        let site = site(
            &["index.html", "a.html", "b.html", "err.html"],
            "/a /x 302\n/b /x 302!\n/app/* /index.html 200\n/gone /err.html 404",
        );
        assert_eq!(shows(&site, "/a"), file("a.html"));
        assert_eq!(shows(&site, "/b"), "302 /x");
        assert_eq!(shows(&site, "/app/deep/link"), file("index.html"));
        assert!(shows(&site, "/gone").starts_with("404 "));
    }

    #[test]
    fn the_nearest_page_for_what_is_missing() {
        let site = site(&["404.html", "docs/404.html"], "");
        let page = |path| not_found_page(&site, path).unwrap().file.plain.etag.clone();
        assert_eq!(page("docs/a/b"), page("docs/x"));
        assert_ne!(page("docs/x"), page("x"));
        assert!(is_navigation("app/users", Some("text/html,*/*")));
        assert!(!is_navigation("app/chunk.js", Some("text/html")) && !is_navigation("app", Some("*/*")));
    }
}
