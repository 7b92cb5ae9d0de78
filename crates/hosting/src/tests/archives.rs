//! Archives that are refused, each with the name of what is wrong (W01 to W04).
use std::time::Instant;

use super::*;

async fn refused(t: &TestJanua, ada: &Owner, what: &str, archive: Vec<u8>, code: &str, path: Option<&str>) {
    let answer = ada.deploys(t, "", archive).await;
    let status = if code.starts_with("too_many") || code.ends_with("too_large") { 413 } else { 400 };
    assert_eq!(answer.refusal(), (status, code), "{what}: {}", answer.text);
    assert!(answer.body["deploymentId"].is_string(), "{what}");
    if let Some(path) = path {
        assert_eq!(answer.body["path"], path, "{what}: {}", answer.text);
    }
    assert!(!answer.body["reason"].as_str().unwrap_or_default().is_empty(), "{what}: {}", answer.text);
    assert_eq!(shows(t, "shop.localhost", "/").await, (200, "old".into()), "{what}: the site before is served");
}

#[tokio::test]
async fn w01_w02_w04_every_bad_archive_is_refused_as_a_whole_and_names_its_entry() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    ada.deployed(&t, &[("index.html", "old")]).await;
    let good = entry(b"index.html", b'0', b"new");
    let with = |bad: Vec<u8>| gzip(&[good.clone(), bad, end()].concat());
    for name in ["../x", "a/../../x", "/etc/x", "C:\\x", "a\\..\\x", "a\nb"] {
        refused(&t, &ada, name, with(entry(name.as_bytes(), b'0', b"x")), "invalid_archive", Some(name)).await;
    }
    let deep = "a/".repeat(40) + "x";
    refused(&t, &ada, "deep", with(entry(deep.as_bytes(), b'0', b"x")), "invalid_archive", None).await;
    refused(&t, &ada, "not UTF-8", with(entry(b"a\xff", b'0', b"x")), "invalid_archive", None).await;
    let mut long = tar::Builder::new(vec![]);
    let mut header = tar::Header::new_gnu();
    header.set_size(1);
    long.append_data(&mut header, "n".repeat(600), &b"x"[..]).unwrap();
    refused(&t, &ada, "a name of 600 bytes", gzip(&long.into_inner().unwrap()), "invalid_archive", None).await;
    for (kind, what) in [
        (b'1', "hard link"),
        (b'2', "symbolic link"),
        (b'3', "character device"),
        (b'4', "block device"),
        (b'6', "FIFO"),
        (b'S', "sparse"),
        (b'V', "volume header"),
        (b'Z', "unknown type"),
    ] {
        refused(&t, &ada, what, with(entry(b"bad", kind, b"")), "invalid_archive", None).await;
    }
    for (a, b) in [("a.txt", "a.txt"), ("A.txt", "a.txt"), ("b\u{fc}.txt", "bu\u{308}.txt")] {
        let twice = [entry(a.as_bytes(), b'0', b"1"), entry(b.as_bytes(), b'0', b"2"), end()].concat();
        refused(&t, &ada, "the same name twice", gzip(&twice), "invalid_archive", Some(b)).await;
    }
    let both = [entry(b"a", b'0', b"1"), entry(b"a/b", b'0', b"2"), end()].concat();
    refused(&t, &ada, "a file and a folder of one name", gzip(&both), "invalid_archive", None).await;

    let whole = gzip(&[good.clone(), end()].concat());
    refused(&t, &ada, "cut off", whole[..whole.len() - 9].to_vec(), "invalid_archive", None).await;
    let mut flipped = whole.clone();
    let middle = flipped.len() - 6;
    flipped[middle] ^= 1;
    refused(&t, &ada, "a flipped bit", flipped, "invalid_archive", None).await;
    refused(&t, &ada, "a second archive", [whole.clone(), whole.clone()].concat(), "invalid_archive", None).await;
    refused(&t, &ada, "data behind it", [whole, b"x".to_vec()].concat(), "invalid_archive", None).await;
    refused(&t, &ada, "no end", gzip(&good), "invalid_archive", None).await;
    refused(&t, &ada, "data after the end", gzip(&[good.clone(), end(), good].concat()), "invalid_archive", None)
        .await;
    refused(&t, &ada, "no gzip", b"plain".to_vec(), "invalid_archive", None).await;
    refused(&t, &ada, "nothing", vec![], "invalid_archive", None).await;
    t.run_jobs().await;
    t.finish().await;
}

#[tokio::test]
async fn w03_bombs_are_refused_before_they_go_off() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    ada.deployed(&t, &[("index.html", "old")]).await;
    let begun = clock();
    // 64 MiB of zeros are 64 kB compressed.
    let zeros = gzip(&[entry(b"zeros", b'0', &vec![0; 64 << 20]), end()].concat());
    refused(&t, &ada, "zeros", zeros, "compression_ratio", None).await;
    let mut header = tar::Header::new_ustar();
    header.set_path("huge").unwrap();
    header.set_size(30 << 30);
    header.set_cksum();
    let huge = [header.as_bytes().to_vec(), vec![1; 1024]].concat();
    refused(&t, &ada, "a header of 30 GB", gzip(&huge), "file_too_large", Some("huge")).await;
    let mut many = vec![];
    for n in 0..100_010 {
        many.extend(entry(format!("f{n}-{}", n * 7919 % 99_991).as_bytes(), b'0', b""));
    }
    refused(&t, &ada, "empty files", gzip(&many), "too_many_files", None).await;
    assert!(begun.elapsed().as_secs() < 60, "in time");
    t.run_jobs().await;
    t.finish().await;
}

#[expect(clippy::disallowed_methods, reason = "how long it took")]
fn clock() -> Instant {
    Instant::now()
}
