//! Archives that are refused, each with the name of what is wrong (W01 to W04).
use std::{io::Write as _, process::Command};

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

/// In a process of its own, where nothing else takes memory and processor time.
#[test]
fn w03_bombs_are_refused_before_they_go_off() {
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args(["--ignored", "--exact", "tests::archives::w03_bombs_alone", "--nocapture"]);
    let output = alone.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// What a refusal may cost. Processor time, because a busy machine takes its time; for a hundred thousand entries an
/// unoptimized program needs more.
const MOST_SECONDS: f64 = 2.0;
const MOST_SECONDS_OF_ENTRIES: f64 = if cfg!(debug_assertions) { 4.0 } else { 2.0 };
const MOST_MEMORY: u64 = 64 << 20;
const MOST_DISK: i64 = 64 << 20;

#[tokio::test]
#[ignore = "run by w03_bombs_are_refused_before_they_go_off in a process of its own"]
async fn w03_bombs_alone() {
    let t = start().await;
    let ada = Owner::of(&t, "ada@example.com", "shop").await;
    ada.deployed(&t, &[("index.html", "old")]).await;

    // Ten megabytes that unpack to ten gigabytes.
    let mut header = tar::Header::new_ustar();
    header.set_path("zeros").unwrap();
    header.set_size(400 << 20);
    header.set_cksum();
    let zeros = zeros(header.as_bytes(), 10 << 20);
    let cost = Cost::begin();
    refused(&t, &ada, "zeros", zeros, "compression_ratio", None).await;
    cost.end("zeros", MOST_SECONDS);

    let mut header = tar::Header::new_ustar();
    header.set_path("huge").unwrap();
    header.set_size(30 << 30);
    header.set_cksum();
    let huge = gzip(&[header.as_bytes().to_vec(), vec![1; 1024]].concat());
    let cost = Cost::begin();
    refused(&t, &ada, "a header of 30 GB", huge, "file_too_large", Some("huge")).await;
    cost.end("a header of 30 GB", MOST_SECONDS);

    let mut many = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
    for n in 0..100_010 {
        many.write_all(&entry(format!("f{n}-{}", n * 7919 % 99_991).as_bytes(), b'0', b"")).unwrap();
    }
    let many = many.finish().unwrap();
    let cost = Cost::begin();
    refused(&t, &ada, "empty files", many, "too_many_files", None).await;
    cost.end("empty files", MOST_SECONDS_OF_ENTRIES);

    let sql = "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM pack";
    let (stored,): (i64,) = t.janua.db.one(sql, vec![]).await.unwrap();
    assert!(stored < MOST_DISK, "{stored} bytes were stored");
    t.run_jobs().await;
    t.finish().await;
}

/// A gzip stream of so many bytes: what is given, and then a thousand times its own length in zeros. Its end is missing,
/// which is not reached.
fn zeros(head: &[u8], length: usize) -> Vec<u8> {
    let mut deflate = flate2::Compress::new(flate2::Compression::best(), false);
    let mut block = |plain: &[u8]| {
        let mut packed = Vec::with_capacity(1 << 16);
        deflate.compress_vec(plain, &mut packed, flate2::FlushCompress::Full).unwrap();
        packed
    };
    let mut stream = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    stream.extend(block(head));
    // After a full flush each block stands for itself.
    let zeros = block(&vec![0; 1 << 20]);
    assert!(zeros.len() < 1200, "{}", zeros.len());
    while stream.len() < length {
        stream.extend_from_slice(&zeros);
    }
    stream
}

/// What the process took since a moment. Linux says it; elsewhere nothing is measured.
struct Cost {
    seconds: f64,
    memory: u64,
}

impl Cost {
    fn begin() -> Self {
        // From here on the peak is that of what follows.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Self { seconds: seconds(), memory: memory("VmRSS:") }
    }

    fn end(self, what: &str, most: f64) {
        let (took, grew) = (seconds() - self.seconds, memory("VmHWM:").saturating_sub(self.memory));
        println!("{what}: {took:.2} s, {} kB", grew / 1024);
        assert!(took < most, "{what}: {took} s of processor time");
        assert!(grew < MOST_MEMORY, "{what}: {grew} bytes more");
    }
}

/// Processor time, in hundredths as Linux tells them.
fn seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<f64> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .map(|field| field.parse().unwrap_or_default())
        .collect();
    fields.get(11..13).map_or(0.0, |both| both.iter().sum::<f64>() / 100.0)
}

fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or_default() * 1024
}
