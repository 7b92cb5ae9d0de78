//! What must survive: a writer that is killed at any moment, a disk that fills up, a disk that fails to keep.
//!
//! A program of its own: it starts itself again as the victim, which writes through the database door and says on its
//! standard output what was acknowledged. `FAULT_CYCLES=300` kills it more often than the default.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test program"
)]
#[path = "binary/mod.rs"]
mod binary;

use std::{
    collections::HashSet,
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use db::{Db, Durability, Error, migrate::Migration, params};

const WRITERS: u32 = 16;
const SCHEMA: &[Migration] = &[Migration {
    number: 1,
    name: "victim",
    sql: "CREATE TABLE entry (id TEXT PRIMARY KEY, bytes BYTEA); CREATE TABLE twin (id TEXT PRIMARY KEY);",
}];

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[1..] {
        ["write", path] => return runtime.block_on(write_until_killed(path)),
        ["fill", path] => return runtime.block_on(fill_the_disk(path)),
        ["fail", path] => return runtime.block_on(write_until_refused(path)),
        _ => {}
    }
    // Told to run other tests only (`cargo test some_name`): these have no such names.
    if arguments.iter().skip(1).any(|argument| !argument.starts_with('-')) {
        return;
    }
    let cases: [(&str, fn()); 3] = [
        ("every acknowledged row survives kill -9", kill),
        ("a full disk refuses writes, serves reads and heals", full_disk),
        ("after a failed fsync nothing is acknowledged any more", failed_fsync),
    ];
    for (name, case) in cases {
        let started = Instant::now();
        case();
        println!("test {name} ... ok ({:.1?})", started.elapsed());
    }
    println!("{} passed, 0 failed", cases.len());
}

async fn open(path: &str) -> Db {
    let db = Db::open(&format!("sqlite:{path}"), 1, Durability::Full).await.unwrap();
    db.migrate_to(SCHEMA, 0).await.unwrap();
    db
}

/// Sixteen writers, each entry with its twin in one transaction; what is acknowledged is said.
async fn write_until_killed(path: &str) {
    let db = open(path).await;
    let run = std::process::id();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let db = db.clone();
            tokio::spawn(async move {
                for i in 0.. {
                    let id = format!("{run}-{writer}-{i}");
                    let written = if writer % 2 == 0 {
                        db::transact!(db, async |tx| {
                            tx.exec("INSERT INTO entry (id) VALUES ($1)", params![&id]).await?;
                            tx.exec("INSERT INTO twin (id) VALUES ($1)", params![&id]).await?;
                            Ok(())
                        })
                    } else {
                        db.exec("INSERT INTO entry (id) VALUES ($1)", params![&id]).await.map(|_| ())
                    };
                    if written.is_ok() {
                        let mut out = std::io::stdout().lock();
                        let _ = writeln!(out, "{id}").and_then(|()| out.flush());
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        let _ = writer.await;
    }
}

fn victim(mode: &str, path: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([mode, path.to_str().unwrap()]).stdout(Stdio::piped());
    command
}

fn kill() {
    let cycles: u64 = env::var("FAULT_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("victim.db");
    let mut acknowledged = HashSet::new();
    for cycle in 0..cycles {
        let mut child = victim("write", &path).spawn().unwrap();
        // Spread over start-up, migration and full speed.
        std::thread::sleep(Duration::from_millis(5 + cycle * 37 % 200));
        acknowledged.extend(end(&mut child));
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (entries, twins) = runtime.block_on(async {
        let db = open(path.to_str().unwrap()).await;
        (all(&db, "SELECT id FROM entry").await, all(&db, "SELECT id FROM twin").await)
    });
    let lost: Vec<_> = acknowledged.difference(&entries).collect();
    assert!(lost.is_empty(), "{} of {} acknowledged rows are lost", lost.len(), acknowledged.len());
    let is_paired = |id: &&String| id.split('-').nth(1).unwrap().parse::<u32>().unwrap().is_multiple_of(2);
    let paired: HashSet<_> = entries.iter().filter(is_paired).cloned().collect();
    assert_eq!(paired, twins, "a transaction is there whole or not at all");
    assert!(acknowledged.len() > usize::try_from(cycles).unwrap() * 10, "only {} were written", acknowledged.len());
    println!("     {} acknowledged rows, {cycles} kills, none lost", acknowledged.len());
}

async fn all(db: &Db, sql: &'static str) -> HashSet<String> {
    let rows: Vec<(String,)> = db.all(sql, params![]).await.unwrap();
    rows.into_iter().map(|(id,)| id).collect()
}

/// Kills it, and answers every whole line it had said.
fn end(child: &mut Child) -> Vec<String> {
    child.kill().unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut said).unwrap();
    child.wait().unwrap();
    let whole = said.rfind('\n').map_or("", |end| &said[..end]);
    whole.lines().map(str::to_owned).collect()
}

/// In a file system of its own of eight megabytes, which only a mount namespace can give without being root.
fn full_disk() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let script = "mount -t tmpfs -o size=8m tmpfs \"$1\" && exec \"$0\" fill \"$1/victim.db\"";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--map-root-user", "sh", "-c", script])
        .arg(env::current_exe().unwrap())
        .arg(folder.path());
    assert!(command.status().expect("unshare (util-linux) is there").success());
}

async fn fill_the_disk(path: &str) {
    let ballast = Path::new(path).with_file_name("ballast");
    fs::write(&ballast, vec![1; 4 * 1024 * 1024]).unwrap();
    let db = open(path).await;
    let insert = "INSERT INTO entry (id, bytes) VALUES ($1, $2)";
    let mut kept = 0_u32;
    let error = loop {
        let started = Instant::now();
        match db.exec(insert, params![kept.to_string(), vec![7_u8; 50_000]]).await {
            Ok(_) => kept += 1,
            Err(error) => {
                assert!(started.elapsed() < Duration::from_secs(1), "refused at once");
                break error;
            }
        }
    };
    assert!(matches!(error, Error::Full), "{error:?}");
    assert!(kept > 10);
    let count = || async {
        let (rows,): (i64,) = db.one("SELECT CAST(COUNT(*) AS BIGINT) AS n FROM entry", params![]).await.unwrap();
        u32::try_from(rows).unwrap()
    };
    assert_eq!(count().await, kept, "reads go on, and every acknowledged row is there");
    fs::remove_file(&ballast).unwrap();
    db.exec(insert, params!["after", vec![7_u8; 50_000]]).await.expect("it heals without a restart");
    assert_eq!(count().await, kept + 1);
}

/// The kernel may drop what it could not write and call the next fsync a success: nothing may be acknowledged then.
fn failed_fsync() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("victim.db");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync"]);
    command.args(["-e", "inject=fdatasync,fsync:error=EIO:when=40"]);
    command.arg(env::current_exe().unwrap()).args(["fail", path.to_str().unwrap()]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("strace is there");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let acknowledged: HashSet<String> = lines.by_ref().take_while(|line| line != "refused").collect();
    assert!(child.wait().unwrap().success(), "the victim saw what it should");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let entries = runtime.block_on(async { all(&open(path.to_str().unwrap()).await, "SELECT id FROM entry").await });
    assert!(acknowledged.is_subset(&entries), "what was acknowledged before is there after a restart");
    assert!(!acknowledged.is_empty());
}

async fn write_until_refused(path: &str) {
    let db = open(path).await;
    let add = "INSERT INTO entry (id) VALUES ($1)";
    for i in 0..10_000 {
        match db.exec(add, params![i.to_string()]).await {
            Ok(_) => println!("{i}"),
            Err(_) => break,
        }
    }
    println!("refused");
    for i in 0..10 {
        let again = db.exec(add, params![format!("again-{i}")]).await;
        assert!(matches!(again, Err(Error::ReadOnly(_))), "{again:?}");
    }
    assert!(db.ping(Duration::from_secs(1)).await.is_err(), "and health learns of it");
    assert!(!all(&db, "SELECT id FROM entry").await.is_empty(), "reads go on");
}
