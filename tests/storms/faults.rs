//! What must survive: a writer that is killed at any moment, a disk that fills up, a disk that fails to keep.
//!
//! Each test starts this program again as its [`victim`], which writes through the database door and says on its standard
//! output what was acknowledged.
use std::{
    collections::HashSet,
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use db::{Db, Durability, Error, migrate::Migration, params};

use crate::support::extent;

const WRITERS: u32 = 16;
const SCHEMA: &[Migration] = &[Migration {
    number: 1,
    name: "victim",
    sql: "CREATE TABLE entry (id TEXT PRIMARY KEY, bytes BYTEA); CREATE TABLE twin (id TEXT PRIMARY KEY);",
}];

/// What the victim is to do, and on which database.
const VICTIM: &str = "FAULT_VICTIM";
const DATABASE: &str = "FAULT_DATABASE";
/// Before each id that was acknowledged. The test harness writes to the same standard output.
const ACKNOWLEDGED: &str = "acknowledged ";

#[test]
#[ignore = "the other tests of this file start it as a process of its own"]
fn victim() {
    let (task, path) = (env::var(VICTIM).unwrap(), env::var(DATABASE).unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    println!(); // Ends the line that the harness has begun.
    match task.as_str() {
        "write" => runtime.block_on(write_until_killed(&path)),
        "fill" => runtime.block_on(fill_the_disk(&path)),
        "fail" => runtime.block_on(write_until_refused(&path)),
        _ => panic!("{VICTIM}={task}"),
    }
}

fn acknowledge(id: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{ACKNOWLEDGED}{id}").and_then(|()| out.flush());
}

/// `command` becomes the victim or starts it: this program follows as its last arguments.
fn as_victim(mut command: Command, task: &str, path: &Path) -> Command {
    command.arg(env::current_exe().unwrap()).args(["--exact", "faults::victim", "--ignored", "--nocapture"]);
    command.env(VICTIM, task).env(DATABASE, path).stdout(Stdio::piped());
    command
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
                        acknowledge(&id);
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        let _ = writer.await;
    }
}

#[test]
fn f01_every_acknowledged_row_survives_a_kill() {
    let cycles = extent(40, 300, "kills") as u64;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("victim.db");
    let mut acknowledged = HashSet::new();
    for cycle in 0..cycles {
        let mut child = as_victim(Command::new("env"), "write", &path).spawn().unwrap();
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

fn acknowledged(line: &str) -> Option<String> {
    line.strip_prefix(ACKNOWLEDGED).map(str::to_owned)
}

/// Kills it, and answers every whole line it had said.
fn end(child: &mut Child) -> Vec<String> {
    child.kill().unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut said).unwrap();
    child.wait().unwrap();
    let whole = said.rfind('\n').map_or("", |end| &said[..end]);
    whole.lines().filter_map(acknowledged).collect()
}

/// In a file system of its own of eight megabytes, which only a mount namespace can give without being root.
#[test]
fn f05_a_full_disk_refuses_writes_serves_reads_and_heals() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let script = "mount -t tmpfs -o size=8m tmpfs \"$FAULT_FOLDER\" && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", script]).env("FAULT_FOLDER", folder.path());
    let output = as_victim(command, "fill", &folder.path().join("victim.db")).output();
    let output = output.expect("unshare (util-linux) is there");
    let passed = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && passed, "{output:?}");
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
#[test]
fn f09_after_a_failed_fsync_nothing_is_acknowledged_any_more() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("victim.db");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync"]);
    command.args(["-e", "inject=fdatasync,fsync:error=EIO:when=40"]);
    let mut child = as_victim(command, "fail", &path).spawn().expect("strace is there");
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let acknowledged: HashSet<String> = lines.filter_map(|line| acknowledged(&line)).collect();
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
            Ok(_) => acknowledge(&i.to_string()),
            Err(_) => break,
        }
    }
    for i in 0..10 {
        let again = db.exec(add, params![format!("again-{i}")]).await;
        assert!(matches!(again, Err(Error::ReadOnly(_))), "{again:?}");
    }
    assert!(db.ping(Duration::from_secs(1)).await.is_err(), "and health learns of it");
    assert!(!all(&db, "SELECT id FROM entry").await.is_empty(), "reads go on");
}
