//! Objects through both drivers: a folder, and an S3-compatible server in this process that checks signatures.
use std::{os::unix::fs::PermissionsExt as _, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{TryStreamExt as _, stream};
use kernel::{
    clock::{Clock, Timestamp},
    config::Config,
    crypto::{MasterKey, Vault, digest},
    entropy::Entropy,
    fault::{Fault, MALFORMED},
    ports::objects::{
        Content, Key, New, ObjectError, Objects, Sha256, Slot, Source, Stored, View, checked, from_config, is_signed,
    },
    testing::S3Server,
};
use reqwest::Client;

const PNG: &str = "image/png";

fn vault() -> Vault {
    Vault::new(MasterKey::parse(&"11".repeat(32).into()).unwrap())
}

fn key() -> Key {
    Key::new("pictures", "png", &Entropy::system())
}

fn objects(config: &Config) -> Arc<dyn Objects> {
    from_config(config, &vault(), &Clock::System).unwrap()
}

fn in_folder(folder: &Path) -> Config {
    Config {
        data_dir: folder.to_owned(),
        base_url: Some("https://id.example".parse().unwrap()),
        ..Config::for_tests()
    }
}

/// Both drivers keep the same promises.
async fn keeps_objects(objects: &dyn Objects) {
    let key = key();
    objects.check().await.unwrap();
    assert!(objects.read(&key, 10).await.unwrap().is_none(), "nothing is there yet");
    objects.delete(&key).await.unwrap();
    objects.write(&key, PNG, b"first").await.unwrap();
    objects.write(&key, PNG, b"second").await.unwrap();
    assert_eq!(objects.read(&key, 6).await.unwrap().unwrap(), b"second");
    assert!(matches!(objects.read(&key, 5).await, Err(ObjectError::TooLong)), "one byte more than asked for");
    objects.delete(&key).await.unwrap();
    assert!(objects.read(&key, 6).await.unwrap().is_none());
    streams(objects).await;
    copies(objects).await;
    lists(objects).await;
}

fn sha256(bytes: &[u8]) -> Sha256 {
    Sha256(digest(bytes))
}

/// Bytes in pieces of odd lengths; with an end that never comes, if so told.
fn source(bytes: &[u8], breaks_off: bool) -> Source<'_> {
    let end = breaks_off.then(|| Err(Fault::from(MALFORMED)));
    let pieces = bytes.chunks(77_777).map(|piece| Ok(Bytes::copy_from_slice(piece)));
    Box::pin(stream::iter(pieces.chain(end)))
}

async fn collect(content: Content) -> std::io::Result<Vec<u8>> {
    Ok(content.bytes.try_collect::<Vec<_>>().await?.concat())
}

/// Long objects come and go in pieces, whole or not at all.
async fn streams(objects: &dyn Objects) {
    // Longer than two parts of S3, and no multiple of anything.
    let bytes: Vec<u8> = (0..17_000_003u32).map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
    let (key, total) = (key(), bytes.len() as u64);
    let new = |length, sha256| New { length, sha256, ..New::at(&key, PNG) };
    for (what, new, breaks_off) in [
        ("another length", new(Some(total + 1), None), false),
        ("another digest", new(None, Some(sha256(b"other"))), false),
        ("broken off", new(Some(total), None), true),
    ] {
        let error = objects.put(new, source(&bytes, breaks_off)).await.unwrap_err();
        assert!(matches!(error, ObjectError::Unlike(_) | ObjectError::Source(_)), "{what}: {error}");
        assert_eq!(objects.head(&key).await.unwrap(), None, "{what}: nothing is kept");
    }
    let short = New { length: Some(3), ..New::at(&key, PNG) };
    assert!(matches!(objects.put(short, source(b"four", false)).await, Err(ObjectError::Unlike("length"))));
    assert_eq!(objects.head(&key).await.unwrap(), None);

    let stored = objects.put(new(Some(total), Some(sha256(&bytes))), source(&bytes, false)).await.unwrap();
    assert_eq!(stored, Stored { length: total, sha256: sha256(&bytes) });
    assert_eq!(objects.head(&key).await.unwrap(), Some(total));
    let all = objects.get(&key, None).await.unwrap().unwrap();
    assert_eq!(all.total, total);
    assert!(collect(all).await.unwrap() == bytes, "the same bytes");
    for range in [0..1, 5..300_000, total - 7..total, 8_388_607..8_388_609] {
        let part = objects.get(&key, Some(range.clone())).await.unwrap().unwrap();
        assert_eq!(part.total, total);
        let place = |at| usize::try_from(at).unwrap();
        let expected = &bytes[place(range.start)..place(range.end)];
        assert!(collect(part).await.unwrap() == expected, "{range:?}");
    }
    let checked_with = async |sha256| {
        collect(checked(objects.get(&key, None).await.unwrap().unwrap(), sha256)).await.map(|bytes| bytes.len())
    };
    assert_eq!(checked_with(sha256(&bytes)).await.unwrap() as u64, total);
    assert!(checked_with(sha256(b"other")).await.is_err(), "what is damaged never comes to its end");
    objects.delete(&key).await.unwrap();

    objects.put(New::at(&key, PNG), source(b"", false)).await.unwrap();
    assert_eq!(objects.read(&key, 0).await.unwrap().unwrap(), b"", "an empty one is an object too");
    objects.delete(&key).await.unwrap();
}

async fn copies(objects: &dyn Objects) {
    let (from, to) = (key(), Key::spread("copies", &Entropy::system()));
    assert!(!objects.copy(&from, &to).await.unwrap(), "nothing to copy");
    objects.write(&from, PNG, b"first").await.unwrap();
    assert!(objects.copy(&from, &to).await.unwrap());
    objects.write(&from, PNG, b"second").await.unwrap();
    assert_eq!(objects.read(&to, 9).await.unwrap().unwrap(), b"first", "what is copied does not change");
    objects.delete(&from).await.unwrap();
    assert_eq!(objects.read(&to, 9).await.unwrap().unwrap(), b"first", "nor end with what it was copied from");
    objects.delete(&to).await.unwrap();
}

async fn lists(objects: &dyn Objects) {
    assert_eq!(objects.list("listed", None).await.unwrap(), []);
    let mut keys: Vec<_> = (0..5).map(|_| Key::spread("listed", &Entropy::system())).collect();
    keys.push(Key::new("listed", "", &Entropy::system()));
    keys.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    for key in &keys {
        objects.write(key, PNG, b"bytes").await.unwrap();
    }
    let listed = objects.list("listed", None).await.unwrap();
    assert_eq!(listed.iter().map(|object| object.key.clone()).collect::<Vec<_>>(), keys);
    assert!(listed.iter().all(|object| object.length == 5 && object.changed_at.0 > 1_700_000_000_000));
    let rest = objects.list("listed", Some(&keys[2])).await.unwrap();
    assert_eq!(rest.into_iter().map(|object| object.key).collect::<Vec<_>>(), keys[3..]);
    let all = objects.list("", None).await.unwrap();
    assert!(keys.iter().all(|key| all.iter().any(|object| object.key == *key)), "the folder without a name has all");
    for key in &keys {
        objects.delete(key).await.unwrap();
    }
}

#[tokio::test]
async fn a_folder_keeps_objects_whole_and_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let objects = objects(&in_folder(folder.path()));
    keeps_objects(&*objects).await;
    let key = key();
    objects.write(&key, PNG, b"bytes").await.unwrap();
    let pictures = folder.path().join("objects/pictures");
    let names: Vec<_> = std::fs::read_dir(&pictures).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1, "nothing is left beside it: {names:?}");
    let aside = std::fs::read_dir(folder.path().join("objects/.aside")).unwrap().count();
    assert_eq!(aside, 0, "and nothing half written");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&pictures), 0o700);
    assert_eq!(mode(&folder.path().join("objects").join(key.as_str())), 0o600);
    assert_eq!(objects.public_url(&key), format!("https://id.example/files/{key}"));
    assert!(objects.is_put_here());
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_out_of_reach_and_says_no_path() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("objects"), "in the way").unwrap();
    let error = objects(&in_folder(folder.path())).write(&key(), PNG, b"bytes").await.unwrap_err();
    assert!(matches!(&error, ObjectError::Away(why) if !why.contains("objects/")), "{error}");
}

#[test]
fn an_address_in_the_folder_is_for_one_object_of_one_type_and_length_until_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let (here, other) = (key(), key());
    let slot = |key, content_type, length, until| {
        let sha256 = None;
        Slot { key, content_type, length, sha256, until: Timestamp(until) }
    };
    let url = objects(&in_folder(folder.path())).signed_put(&slot(&here, PNG, 5, 1_000));
    let (address, query) = url.split_once('?').unwrap();
    assert_eq!(address, format!("https://id.example/files/{here}"));
    assert!(query.starts_with("type=image%2Fpng&length=5&expires=1000&signature="), "{query}");
    let signature = query.rsplit_once('=').unwrap().1;
    assert!(is_signed(&vault(), &slot(&here, PNG, 5, 1_000), signature));
    for (what, wrong) in [
        ("key", slot(&other, PNG, 5, 1_000)),
        ("type", slot(&here, "text/html", 5, 1_000)),
        ("length", slot(&here, PNG, 6, 1_000)),
        ("moment", slot(&here, PNG, 5, 1_001)),
        ("digest", Slot { sha256: Some(sha256(b"bytes")), ..slot(&here, PNG, 5, 1_000) }),
    ] {
        assert!(!is_signed(&vault(), &wrong, signature), "another {what}");
    }
    let another = Vault::new(MasterKey::parse(&"22".repeat(32).into()).unwrap());
    assert!(!is_signed(&another, &slot(&here, PNG, 5, 1_000), signature), "another server's key");
    assert!(!is_signed(&vault(), &slot(&here, PNG, 5, 1_000), ""), "no signature");
}

#[tokio::test]
async fn a_bucket_keeps_objects() {
    let server = S3Server::start().await;
    let objects = objects(&server.config());
    keeps_objects(&*objects).await;
    let key = key();
    objects.write(&key, PNG, b"bytes").await.unwrap();
    assert_eq!(std::fs::read(server.file(key.as_str())).unwrap(), b"bytes");
    assert!(!objects.is_put_here());
    assert!(objects.public_url(&key).ends_with(&format!("/files/{key}")), "read through us by default");
    let config = Config { s3_public_url: Some("https://cdn.example/x/".parse().unwrap()), ..server.config() };
    assert_eq!(self::objects(&config).public_url(&key), format!("https://cdn.example/x/{key}"));
}

#[tokio::test]
async fn an_address_in_the_bucket_is_for_one_object_of_one_type_and_length_until_one_moment() {
    let server = S3Server::start().await;
    let now = Clock::System.now();
    let put = async |url: &str, content_type: &str, body: &'static str| {
        let request = Client::new().put(url).header("content-type", content_type).body(body);
        request.send().await.unwrap().status().as_u16()
    };
    let signed = |clock: Timestamp, key: &Key| {
        let objects = from_config(&server.config(), &vault(), &Clock::manual(clock)).unwrap();
        let until = clock.plus(Duration::from_mins(10));
        objects.signed_put(&Slot { key, content_type: PNG, length: 5, sha256: None, until })
    };
    let key = key();
    let url = signed(now, &key);
    for (what, content_type, body) in
        [("another type", "text/html", "bytes"), ("too long", PNG, "bytes!"), ("too short", PNG, "byte")]
    {
        assert_eq!(put(&url, content_type, body).await, 403, "{what}");
    }
    let other = url.replace(key.as_str(), self::key().as_str());
    assert_eq!(put(&other, PNG, "bytes").await, 403, "another object");
    assert_eq!(put(&signed(now.minus(Duration::from_mins(11)), &key), PNG, "bytes").await, 403, "run out");
    assert!(!server.file(key.as_str()).exists(), "none of them left anything");
    assert_eq!(put(&url, PNG, "bytes").await, 200);
    assert_eq!(std::fs::read(server.file(key.as_str())).unwrap(), b"bytes");
    assert_eq!(Client::new().get(&url).send().await.unwrap().status(), 403, "an address to put is none to read");
}

#[tokio::test]
async fn an_address_to_read_in_the_bucket_shows_one_object_one_way_until_one_moment() {
    let server = S3Server::start().await;
    let now = Clock::System.now();
    let (key, other) = (key(), key());
    objects(&server.config()).write(&key, PNG, b"bytes").await.unwrap();
    objects(&server.config()).write(&other, PNG, b"other").await.unwrap();
    let signed = |clock: Timestamp| {
        let objects = from_config(&server.config(), &vault(), &Clock::manual(clock)).unwrap();
        let (content_type, disposition) = ("text/plain", "attachment; filename=\"a b.txt\"");
        let until = clock.plus(Duration::from_mins(15));
        objects.signed_get(&View { key: &key, content_type, disposition, until }).unwrap()
    };
    let url = signed(now);
    let answer = Client::new().get(&url).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "text/plain");
    assert_eq!(answer.headers()["content-disposition"], "attachment; filename=\"a b.txt\"");
    assert_eq!(answer.text().await.unwrap(), "bytes");
    for (what, wrong) in [
        ("another object", url.replace(key.as_str(), other.as_str())),
        ("another type", url.replace("text%2Fplain", "text%2Fhtml")),
        ("run out", signed(now.minus(Duration::from_mins(16)))),
    ] {
        assert_eq!(Client::new().get(&wrong).send().await.unwrap().status(), 403, "{what}");
    }
    let folder = tempfile::tempdir().unwrap();
    let view = View { key: &key, content_type: PNG, disposition: "inline", until: now };
    assert_eq!(objects(&in_folder(folder.path())).signed_get(&view), None, "a folder is read through us");
}

#[tokio::test]
async fn a_bucket_out_of_reach_is_told_without_secrets_and_a_wrong_key_opens_none() {
    let server = S3Server::start().await;
    let away = Config { s3_url: Some("http://127.0.0.1:9".parse().unwrap()), ..server.config() };
    let wrong = Config { s3_secret_key: Some("guess".to_owned().into()), ..server.config() };
    for config in [away, wrong] {
        let objects = objects(&config);
        let errors = [
            objects.read(&key(), 5).await.map(|_| ()).unwrap_err(),
            objects.write(&key(), PNG, b"bytes").await.unwrap_err(),
            objects.delete(&key()).await.unwrap_err(),
            objects.check().await.unwrap_err(),
        ];
        for error in errors {
            let said = error.to_string();
            assert!(matches!(error, ObjectError::Away(_)), "{said}");
            assert!(!said.contains("X-Amz") && !said.contains("AKID"), "{said}");
        }
    }
}

#[test]
fn half_a_configuration_names_what_is_missing() {
    let url = || Some("https://s3.example".parse().unwrap());
    let key = || Some("k".to_owned().into());
    let bare = Config::for_tests;
    for (config, named) in [
        (Config { s3_url: url(), ..bare() }, "s3_bucket, s3_access_key, s3_secret_key"),
        (Config { s3_url: url(), s3_bucket: "b".into(), s3_access_key: key(), ..bare() }, "s3_secret_key"),
        (Config { s3_bucket: "b".into(), ..bare() }, "s3_bucket"),
        (Config { s3_secret_key: key(), ..bare() }, "s3_secret_key"),
        (
            Config {
                s3_url: Some("ftp://s3.example".parse().unwrap()),
                s3_bucket: "b".into(),
                s3_access_key: key(),
                s3_secret_key: key(),
                ..bare()
            },
            "s3_url",
        ),
    ] {
        let said = from_config(&config, &vault(), &Clock::System).err().unwrap();
        assert!(said.contains(named), "{said}");
    }
}
