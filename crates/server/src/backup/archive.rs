//! A backup of an embedded database in one file, made while others write.
//!
//! The file is itself a SQLite database: all tables as they were at one moment, and two more, one with the objects of the
//! data folder and one that says what this is. So it is checked, opened and looked into with tools that exist.
use std::{
    fs,
    io::{self, ErrorKind, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use data_encoding::HEXLOWER;
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension as _,
    backup::{Backup, StepResult},
    params,
};

use db::migrate::{self, MigrateError};
use kernel::{clock::Timestamp, entropy::Entropy, ports::objects::Key};

/// `JanB`, in the place where SQLite lets a file say whose it is.
const MARK: i32 = 0x4a61_6e42;
/// Another layout would have another number. In the first one every object was one row.
const LAYOUT: i64 = 2;
const FIRST_LAYOUT: i64 = 1;
/// Objects may be longer than a row and than the memory, so they are stored in pieces of this length.
const PIECE: usize = 8 * 1024 * 1024;
/// How much is copied between two looks at how far it is: eight megabytes.
const PAGES: i32 = 2048;
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);
/// What clients have put and nobody has looked at yet; a restore ends these uploads.
const UNFINISHED: &str = "incoming";

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("{0} is there already; a backup never replaces one")]
    Exists(String),
    #[error("{0} is not a backup made by janua")]
    Foreign(String),
    #[error("{0} is damaged: {1}")]
    Damaged(String, String),
    #[error(transparent)]
    Schema(#[from] MigrateError),
    #[error("{0}: {1}")]
    File(String, io::Error),
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

type Result<T> = std::result::Result<T, ArchiveError>;

/// How far it is: so many of so many pages or objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Pages(u64, u64),
    Objects(u64, u64),
}

/// What a backup holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    pub made_at: Timestamp,
    pub objects: u64,
}

/// Writes everything that was committed before now into a new file, which is there whole or not at all.
///
/// A reader holds one moment of the database for as long as it reads, so that writers neither wait nor disturb.
/// `made_at` must be the present moment.
pub fn make(
    database: &Path,
    objects: Option<&Path>,
    to: &Path,
    made_at: Timestamp,
    mut told: impl FnMut(Progress),
) -> Result<Contents> {
    if to.exists() {
        return Err(ArchiveError::Exists(to.display().to_string()));
    }
    let aside = Aside::beside(to)?;
    let mut made = Connection::open(&aside.0)?;
    made.pragma_update(None, "synchronous", "OFF")?;
    {
        // Opened for writing, because whoever comes last tidies up the log; nothing is written.
        let source = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        source.busy_timeout(PATIENCE)?;
        // From its first look on this transaction sees one moment, and the copy is made within it: without it the
        // copy would begin anew whenever somebody writes.
        source.execute_batch("BEGIN; SELECT COUNT(*) FROM sqlite_schema;")?;
        copy(&source, &mut made, &mut told)?;
    }
    // One plain file, without a log beside it.
    plain(&made)?;
    made.execute_batch(
        "CREATE TABLE backup_about (name TEXT PRIMARY KEY, value BIGINT NOT NULL);
         CREATE TABLE backup_object (key TEXT PRIMARY KEY, bytes BYTEA NOT NULL);
         CREATE TABLE backup_piece (key TEXT NOT NULL, part BIGINT NOT NULL, bytes BYTEA NOT NULL,
                                    PRIMARY KEY (key, part));",
    )?;
    // After the database: what it speaks of is there, unless it was taken away meanwhile.
    let objects = match objects {
        Some(folder) => pack(&made, folder, &mut told)?,
        None => 0,
    };
    let about = "INSERT INTO backup_about (name, value) VALUES ('layout', ?1), ('made_at', ?2)";
    made.execute(about, params![LAYOUT, made_at.0])?;
    made.pragma_update(None, "application_id", MARK)?;
    check(&made, &aside.0)?;
    made.close().map_err(|(_, error)| error)?;
    aside.put_in_place(to)?;
    Ok(Contents { made_at, objects })
}

/// A backup that was found whole, and not newer than this binary.
pub struct Archive {
    connection: Connection,
    pub contents: Contents,
}

impl Archive {
    pub fn open(file: &Path) -> Result<Self> {
        let name = file.display().to_string();
        fs::metadata(file).map_err(|error| ArchiveError::File(name.clone(), error))?;
        let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mark = connection.pragma_query_value(None, "application_id", |row| row.get::<_, i32>(0));
        let mark = mark.map_err(|error| match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => ArchiveError::Foreign(name.clone()),
            _ => ArchiveError::Damaged(name.clone(), error.to_string()),
        })?;
        if mark != MARK {
            return Err(ArchiveError::Foreign(name));
        }
        check(&connection, file)?;
        migrate::is_known(&connection)?;
        let about = |what: &str| -> Result<i64> {
            let sql = "SELECT value FROM backup_about WHERE name = ?1";
            let found = connection.query_row(sql, [what], |row| row.get(0)).optional()?;
            found.ok_or_else(|| ArchiveError::Damaged(name.clone(), format!("it does not say its {what}")))
        };
        if ![FIRST_LAYOUT, LAYOUT].contains(&about("layout")?) {
            return Err(ArchiveError::Damaged(name.clone(), "it is laid out for another janua".into()));
        }
        let made_at = Timestamp(about("made_at")?);
        let sql = "SELECT COUNT(*) FROM backup_object";
        let objects: i64 = connection.query_row(sql, [], |row| row.get(0))?;
        let contents = Contents { made_at, objects: objects.unsigned_abs() };
        Ok(Self { connection, contents })
    }

    /// Writes the database to a file that must not be there.
    pub fn unpack_database(&self, to: &Path, mut told: impl FnMut(Progress)) -> Result<()> {
        create(to)?;
        let mut made = Connection::open(to)?;
        made.pragma_update(None, "synchronous", "OFF")?;
        copy(&self.connection, &mut made, &mut told)?;
        made.execute_batch("DROP TABLE backup_about; DROP TABLE backup_object; DROP TABLE IF EXISTS backup_piece;")?;
        made.pragma_update(None, "application_id", 0)?;
        if self.contents.objects > 0 {
            // Gives back the room the objects took.
            made.execute_batch("VACUUM")?;
        }
        made.close().map_err(|(_, error)| error)?;
        sync(to)
    }

    /// Writes the objects into a folder that must not be there.
    pub fn unpack_objects(&self, to: &Path, mut told: impl FnMut(Progress)) -> Result<()> {
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |error| ArchiveError::File(path, error)
        };
        make_folder(to).map_err(failed(to))?;
        let mut statement = self.connection.prepare("SELECT key, bytes FROM backup_object ORDER BY key")?;
        let mut rows = statement.query([])?;
        let mut written = 0;
        while let Some(row) = rows.next()? {
            let (key, bytes): (String, Vec<u8>) = (row.get(0)?, row.get(1)?);
            // The file came from outside: a name leads nowhere but into the folder.
            let key = Key::parse(&key).ok_or_else(|| ArchiveError::Damaged(key, "is no name of an object".into()))?;
            let path = to.join(key.as_str());
            path.parent().map_or(Ok(()), make_folder).map_err(failed(&path))?;
            self.write(&key, &path, &bytes)?;
            sync(&path)?;
            written += 1;
            told(Progress::Objects(written, self.contents.objects));
        }
        Ok(())
    }
}

impl Archive {
    /// Writes an object: its first piece, and those that follow.
    fn write(&self, key: &Key, path: &Path, first: &[u8]) -> Result<()> {
        let failed = |error| ArchiveError::File(path.display().to_string(), error);
        let mut file = fs::File::create(path).map_err(failed)?;
        file.write_all(first).map_err(failed)?;
        if first.len() < PIECE {
            return Ok(());
        }
        let sql = "SELECT bytes FROM backup_piece WHERE key = ?1 ORDER BY part";
        // The first layout has no such table, and whole objects.
        let Ok(mut statement) = self.connection.prepare(sql) else { return Ok(()) };
        let mut rows = statement.query([key.as_str()])?;
        while let Some(row) = rows.next()? {
            file.write_all(&row.get::<_, Vec<u8>>(0)?).map_err(failed)?;
        }
        Ok(())
    }
}

/// Waits until nobody has the database open any more, and leaves one file without a log beside it.
pub fn settle(database: &Path) -> Result<()> {
    let mut tries = PATIENCE.as_millis() / PAUSE.as_millis();
    loop {
        let connection = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        match plain(&connection) {
            Ok(()) => return connection.close().map_err(|(_, error)| error.into()).and_then(|()| sync(database)),
            Err(ArchiveError::Sqlite(_)) if tries > 0 => tries -= 1,
            Err(error) => return Err(error),
        }
        thread::sleep(PAUSE);
    }
}

fn plain(connection: &Connection) -> Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))?;
    Ok(())
}

fn copy(from: &Connection, to: &mut Connection, told: &mut impl FnMut(Progress)) -> Result<()> {
    let backup = Backup::new(from, to)?;
    loop {
        let step = backup.step(PAGES)?;
        let progress = backup.progress();
        let count = |pages: i32| u64::try_from(pages).unwrap_or_default();
        told(Progress::Pages(count(progress.pagecount - progress.remaining), count(progress.pagecount)));
        match step {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            _ => thread::sleep(PAUSE),
        }
    }
}

/// Reads every page and every index.
fn check(connection: &Connection, file: &Path) -> Result<()> {
    let damaged = |why: String| ArchiveError::Damaged(file.display().to_string(), why);
    let said: String = connection
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .map_err(|error| damaged(error.to_string()))?;
    if said == "ok" { Ok(()) } else { Err(damaged(said)) }
}

/// Puts every object of a folder into the file; answers how many there were.
fn pack(made: &Connection, folder: &Path, told: &mut impl FnMut(Progress)) -> Result<u64> {
    let mut keys = Vec::new();
    list(folder, folder, &mut keys).map_err(|error| ArchiveError::File(folder.display().to_string(), error))?;
    let all = keys.len() as u64;
    let mut packed = 0;
    made.execute_batch("BEGIN")?;
    for key in keys {
        let path = folder.join(key.as_str());
        match fs::File::open(&path) {
            Ok(mut file) => {
                let failed = |error| ArchiveError::File(path.display().to_string(), error);
                let mut piece = read_piece(&mut file).map_err(failed)?;
                let sql = "INSERT INTO backup_object (key, bytes) VALUES (?1, ?2)";
                packed += made.execute(sql, params![key.as_str(), piece])? as u64;
                let mut part = 1i64;
                while piece.len() == PIECE {
                    piece = read_piece(&mut file).map_err(failed)?;
                    let sql = "INSERT INTO backup_piece (key, part, bytes) VALUES (?1, ?2, ?3)";
                    made.execute(sql, params![key.as_str(), part, piece])?;
                    part += 1;
                }
                told(Progress::Objects(packed, all));
            }
            // Taken away since it was listed: nothing needs it any more.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(ArchiveError::File(path.display().to_string(), error)),
        }
    }
    made.execute_batch("COMMIT")?;
    Ok(packed)
}

/// A whole piece, or what is left of the file.
fn read_piece(file: &mut fs::File) -> io::Result<Vec<u8>> {
    let mut piece = Vec::new();
    file.take(PIECE as u64).read_to_end(&mut piece)?;
    Ok(piece)
}

fn list(root: &Path, folder: &Path, keys: &mut Vec<Key>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if path != root.join(UNFINISHED) {
                list(root, &path, keys)?;
            }
        } else {
            // What is being written has no name that is one of ours.
            keys.extend(path.strip_prefix(root).ok().and_then(|key| Key::parse(key.to_str()?)));
        }
    }
    Ok(())
}

/// A file beside the one it will become, gone unless it does.
struct Aside(PathBuf);

impl Aside {
    fn beside(to: &Path) -> Result<Self> {
        let mut name = to.as_os_str().to_owned();
        name.push(format!(".{}.partial", HEXLOWER.encode(&Entropy::system().bytes::<4>())));
        let aside = Self(name.into());
        create(&aside.0)?;
        Ok(aside)
    }

    fn put_in_place(&self, to: &Path) -> Result<()> {
        sync(&self.0)?;
        // A link fails where a file is already; a rename would replace it, but some file systems know nothing else.
        match fs::hard_link(&self.0, to) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(ArchiveError::Exists(to.display().to_string()));
            }
            Err(_) => fs::rename(&self.0, to).map_err(|error| ArchiveError::File(to.display().to_string(), error))?,
            Ok(()) => {}
        }
        sync(match to.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        })
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// For its owner alone, before anything is in it.
fn create(path: &Path) -> Result<()> {
    let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.map(drop).map_err(|error| ArchiveError::File(path.display().to_string(), error))
}

fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn sync(path: &Path) -> Result<()> {
    let synced = fs::File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|error| ArchiveError::File(path.display().to_string(), error))
}
