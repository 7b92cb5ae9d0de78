//! Publishers and packages.
pub use std::{io::Write as _, time::Duration};

pub use axum::http::Method;
pub use db::params;
pub use identity::testing::{PASSWORD, Person, login, mail_to, signed_in};
pub use kernel::{
    config::Config,
    testing::{Answer, TestJanua},
};
pub use serde_json::{Value, json};

pub fn feature(config: &Config) -> kernel::feature::Feature {
    identity::testing::feature(config)
        .and(directory::feature(config))
        .and(workshop::feature(config))
        .and(agents::feature(config))
        .and(crate::feature(config))
}

/// With a platform owner.
pub async fn start() -> TestJanua {
    let config = Config::for_tests()
        .with(|tenancy: &mut tenancy::Settings| tenancy.platform_owners = vec!["root@example.com".into()]);
    TestJanua::start_with(config, feature).await
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A tar of files.
pub fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(vec![]);
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, path, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

pub fn packed(files: &[(&str, &[u8])]) -> Vec<u8> {
    gzip(&tar_of(files))
}

pub fn skill_md(name: &str, version: &str, description: &str, body: &str) -> String {
    format!(
        "---\nname: {name}\ndescription: {description}\nlicense: MIT\nmetadata:\n  version: \"{version}\"\n  tags: pdf, files\n---\n\n{body}\n"
    )
}

/// A package with a name, a version and a body.
pub fn skill(name: &str, version: &str, body: &str) -> Vec<u8> {
    let text = skill_md(name, version, "Reads and writes PDF files.", body);
    packed(&[("SKILL.md", text.as_bytes()), ("references/forms.md", b"# Forms\n")])
}

/// An organization of a person's own, with a slug.
pub async fn org(t: &TestJanua, person: &Person, slug: &str) -> String {
    let made = person.asks(t.post("/org").json(&json!({ "name": slug, "slug": slug }))).await;
    assert_eq!(made.status, 200, "{}", made.text);
    made.body["id"].as_str().unwrap().to_owned()
}

pub async fn publish(t: &TestJanua, person: &Person, query: &str, package: Vec<u8>) -> Answer {
    send(t, person, &format!("/skills{query}"), package).await
}

pub async fn send(t: &TestJanua, person: &Person, path: &str, package: Vec<u8>) -> Answer {
    person.asks(t.post(path)).header("content-type", "application/gzip").body(package).await
}

/// Ada with the organization acme, and the skill `acme.pdf-tools` in version 1.0.0.
pub async fn published(t: &TestJanua) -> Person {
    let ada = signed_in(t, "ada@example.com").await;
    org(t, &ada, "acme").await;
    let made = publish(t, &ada, "?namespace=acme", skill("pdf-tools", "1.0.0", "# PDF")).await;
    assert_eq!(made.status, 200, "{}", made.text);
    ada
}

pub async fn count(t: &TestJanua, sql: &'static str) -> i64 {
    let (count,): (i64,) = t.janua.db.one(sql, params![]).await.unwrap();
    count
}

/// Objects in the store.
pub fn objects(t: &TestJanua) -> usize {
    fn files(folder: &std::path::Path) -> usize {
        let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
        entries.flatten().map(|entry| if entry.path().is_dir() { files(&entry.path()) } else { 1 }).sum()
    }
    files(&t.folder.path().join("objects"))
}
