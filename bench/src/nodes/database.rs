//! A PostgreSQL server that is thrown away afterwards, what it has done, and what its processes cost.
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use crate::process;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/postgres");

const COMMIT: &str = "INSERT INTO bench_commit VALUES (1);\n";

/// Where the system keeps files in memory. What neighbours write to a disk would be measured along with commits.
const MEMORY: &str = "/dev/shm";

pub struct Database {
    folder: PathBuf,
    _memory: Option<tempfile::TempDir>,
    pub port: u16,
    /// The first of its processes, which started the others.
    first: u32,
}

impl Database {
    /// Starts a server in memory, if there is such a place: commits then take as long as they are made to. Otherwise they
    /// take as long as the disk.
    pub fn start(folder: &Path) -> Result<Self> {
        let memory = tempfile::Builder::new().prefix("bench-").tempdir_in(MEMORY).ok();
        let folder = memory.as_ref().map_or(folder, |memory| memory.path());
        // The server runs as another user when root starts it, and must find its way in.
        for place in folder.ancestors().take(2).filter(|place| *place != Path::new(MEMORY)) {
            fs::set_permissions(place, fs::Permissions::from_mode(0o711))?;
        }
        let folder = folder.join("postgres");
        let options = "-c fsync=on -c synchronous_commit=on -c commit_siblings=0 -c shared_buffers=256MB \
                       -c max_wal_size=1GB -c checkpoint_timeout=1h";
        output(Command::new(SCRIPT).arg("start").arg(&folder).env("POSTGRES_OPTIONS", options))?;
        let port = fs::read_to_string(folder.join("port"))?.trim().parse()?;
        let pid_file = fs::read_to_string(folder.join("data/postmaster.pid"))?;
        let first = pid_file.lines().next().context("an empty pid file")?.parse()?;
        let database = Self { folder, _memory: memory, port, first };
        database.sql("CREATE EXTENSION pg_walinspect")?;
        database.sql("CREATE TABLE bench_commit (n INT NOT NULL)")?;
        Ok(database)
    }

    pub fn url_at(port: u16) -> String {
        format!("postgres://janua@127.0.0.1:{port}/postgres")
    }

    pub fn url(&self) -> String {
        Self::url_at(self.port)
    }

    /// What a statement answers, a line for each row.
    pub fn sql(&self, text: &str) -> Result<String> {
        output(Command::new("psql").args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text, &self.url()]))
    }

    pub fn number(&self, text: &str) -> Result<f64> {
        let said = self.sql(text)?;
        said.trim().parse().with_context(|| format!("{text}: {said}"))
    }

    /// From now on a commit waits so long for others before it goes to the disk.
    pub fn delay_commits(&self, by: Duration) -> Result<()> {
        self.sql(&format!("ALTER SYSTEM SET commit_delay = {}", by.as_micros()))?;
        self.sql("SELECT pg_reload_conf()")?;
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    }

    /// How long a statement of a single client takes on average, and how much of that the processors work.
    fn alone(&self, script: &str, seconds: u64) -> Result<(Duration, Duration)> {
        let file = self.folder.with_extension("sql");
        fs::write(&file, script)?;
        let mut command = Command::new(Self::programs()?.join("pgbench"));
        command.args(["-n", "-M", "prepared", "-c", "1", "-T", &seconds.to_string()]).arg("-f").arg(&file);
        let before = self.cpu_time()? + process::children_cpu_time()?;
        let said = output(command.arg(self.url()))?;
        let work = (self.cpu_time()? + process::children_cpu_time()?).saturating_sub(before);
        let find = |name: &str| {
            let line = said.lines().find(|line| line.starts_with(name)).context("pgbench says something else")?;
            let word = line.split_whitespace().find_map(|word| word.split('/').next()?.parse::<f64>().ok());
            word.context("pgbench says no number")
        };
        let count = find("number of transactions actually processed")?;
        let latency = find("latency average")?;
        Ok((Duration::from_secs_f64(latency / 1e3), work.div_f64(count)))
    }

    /// What the processors do for a commit of a single row.
    pub fn commit_work(&self) -> Result<Duration> {
        Ok(self.alone(COMMIT, 1)?.1)
    }

    /// What a commit takes beside the delay it was given and the processors' work.
    pub fn flush(&self, delay: Duration, work: Duration) -> Result<Duration> {
        Ok(self.alone(COMMIT, 1)?.0.saturating_sub(delay).saturating_sub(work))
    }

    /// What a round trip takes beside the processors' work.
    pub fn round_trip(&self) -> Result<Duration> {
        let (took, work) = self.alone("SELECT 1;\n", 1)?;
        Ok(took.saturating_sub(work))
    }

    fn programs() -> Result<PathBuf> {
        Ok(output(Command::new("pg_config").arg("--bindir"))?.trim().into())
    }

    /// Where the write-ahead log ends.
    pub fn log_end(&self) -> Result<String> {
        Ok(self.sql("SELECT pg_current_wal_insert_lsn()")?.trim().to_owned())
    }

    /// Bytes of the write-ahead log since then, without images of whole pages, and how many commits are in it.
    pub fn logged_since(&self, start: &str) -> Result<(f64, f64)> {
        if self.sql(&format!("SELECT pg_current_wal_flush_lsn() > '{start}'"))?.trim() == "f" {
            return Ok((0.0, 0.0));
        }
        let from = format!("FROM pg_get_wal_stats('{start}', pg_current_wal_flush_lsn(), true)");
        let bytes = self.number(&format!("SELECT COALESCE(SUM(record_size), 0) {from}"))?;
        let commits = self.number(&format!(
            "SELECT COALESCE(SUM(count), 0) {from} WHERE \"resource_manager/record_type\" = 'Transaction/COMMIT'"
        ))?;
        Ok((bytes, commits))
    }

    /// What the processors have done for all its processes, those that ended included.
    pub fn cpu_time(&self) -> Result<Duration> {
        let mut sum = process::cpu_time_with_ended(self.first)?;
        for pid in process::children_of(self.first)? {
            // It may have ended meanwhile, and counts with those that ended.
            sum += process::exact_cpu_time(pid).unwrap_or_default();
        }
        Ok(sum)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = Command::new(SCRIPT).arg("kill").arg(&self.folder).output();
    }
}

fn output(command: &mut Command) -> Result<String> {
    let started = Instant::now();
    let done = command.output().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    let (said, complaint) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    ensure!(done.status.success(), "{command:?} failed after {:?}: {said}{complaint}", started.elapsed());
    Ok(said.into_owned())
}
