//! A PostgreSQL server of a test's own, and one that stands by for it.
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use super::clock::Wound;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/postgres");

pub struct Postgres {
    folder: tempfile::TempDir,
    /// `127.0.0.1:port`
    pub address: String,
}

impl Postgres {
    pub fn start() -> Self {
        Self::of("start", None, |_| ())
    }

    /// A commit takes so long, and those that come meanwhile share it, as on a slow disk.
    pub fn on_slow_disk(commit: std::time::Duration) -> Self {
        let delay = commit.as_micros();
        let options = format!("-c fsync=on -c commit_delay={delay} -c commit_siblings=0");
        Self::of("start", None, |command| {
            command.env("POSTGRES_OPTIONS", options);
        })
    }

    /// Its time is that of the given clock.
    pub fn by(clock: &Wound) -> Self {
        Self::of("start", None, |command| clock.hold(command))
    }

    /// Follows the other one: what that one acknowledges from now on is here, too.
    pub fn standby(of: &Self) -> Self {
        let standby = Self::of("standby", Some(&of.place()), |_| ());
        of.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
        of.sql("postgres", "SELECT pg_reload_conf()");
        super::wait("the standby keeps up", || {
            let said = of.sql("postgres", "SELECT sync_state FROM pg_stat_replication");
            (said.trim() == "sync").then_some(())
        });
        standby
    }

    fn of(action: &str, other: Option<&Path>, with: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        // The server runs as another user when root starts it, and must find its way in.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).expect("a mode");
        let mut command = Command::new(SCRIPT);
        command.arg(action).arg(folder.path().join("server")).args(other);
        with(&mut command);
        let said = output(command);
        let address = said.trim().split('@').nth(1).and_then(|rest| rest.split('/').next());
        let address = address.unwrap_or_else(|| panic!("it says where it listens: {said:?}")).to_owned();
        Self { folder, address }
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("server")
    }

    /// A fresh database; the URL that leads to it.
    pub fn database(&self, name: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(name)
    }

    pub fn url(&self, name: &str) -> String {
        format!("postgres://janua@{}/{name}", self.address)
    }

    /// What a statement answers, a line for each row.
    pub fn sql(&self, database: &str, text: &str) -> String {
        let mut command = Command::new("psql");
        command.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text, &self.url(database)]);
        output(command)
    }

    /// As if its machine had lost power: nothing is said to anybody.
    pub fn kill(&self) {
        self.act("kill");
    }

    /// Ends at once, as after a crash, and can be started again at the same place.
    pub fn stop(&self) {
        self.act("stop");
    }

    pub fn again(&self) {
        self.act("again");
    }

    /// Takes over from the one it stood by for.
    pub fn promote(&self) {
        self.act("promote");
    }

    fn act(&self, action: &str) {
        let mut command = Command::new(SCRIPT);
        command.arg(action).arg(self.place());
        output(command);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ = Command::new(SCRIPT).arg("kill").arg(self.place()).output();
    }
}

fn output(mut command: Command) -> String {
    let done = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&done.stderr));
    said
}
