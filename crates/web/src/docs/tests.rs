//! The list, and where links lead.
use std::{collections::BTreeSet, fs, path::Path};

use super::{list, render::target};

/// Documents for those who change Janua: they are read beside the source.
const NOT_SHOWN: [&str; 4] = ["cases", "features", "sql", "words"];

#[test]
fn every_document_is_shown_or_left_out_on_purpose() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<String> = files.filter_map(|name| name.strip_suffix(".md").map(str::to_owned)).collect();
    let shown = list::all().filter(|entry| entry.file.starts_with("docs/")).map(|entry| entry.page.to_owned());
    let known: BTreeSet<String> = shown.chain(NOT_SHOWN.map(str::to_owned)).collect();
    assert_eq!(files, known, "add a document to the list, or to those that are not shown");
    let pages: BTreeSet<&str> = list::all().map(|entry| entry.page).collect();
    assert_eq!(pages.len(), list::all().count(), "each has a page of its own");
    assert!(!pages.contains("search") && !pages.contains("pictures"), "these are pages already");
}

#[test]
fn a_link_leads_to_the_page_of_its_file() {
    for (url, file, expected) in [
        ("users.md", "docs/oauth.md", Some("/docs/users")),
        ("operate.md#webhooks", "docs/oauth.md", Some("/docs/operate#webhooks")),
        ("../SECURITY.md", "docs/oauth.md", Some("/docs/security")),
        ("docs/oauth.md", "SECURITY.md", Some("/docs/oauth")),
        ("pictures/sign-in-light-wide.png", "docs/pages.md", Some("/docs/pictures/sign-in-light-wide.png")),
        ("#events", "docs/webhooks.md", Some("#events")),
        ("https://tus.io", "docs/storage.md", Some("https://tus.io")),
        ("/reference", "docs/storage.md", Some("/reference")),
        ("sql.md", "docs/operate.md", None),
        ("samples/webhooks", "docs/webhooks.md", None),
        ("../../../etc/passwd", "docs/webhooks.md", None),
        ("javascript:alert(1)", "docs/webhooks.md", None),
    ] {
        assert_eq!(target(url, file).as_deref(), expected, "{url} in {file}");
    }
}
