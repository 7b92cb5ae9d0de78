//! A clock that can be put forward and back under a running server.
use std::{fs, io::Write as _, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use super::{SERVE, Server, janua};

/// The clock of one process, put forward or back.
pub struct Wound {
    folder: tempfile::TempDir,
}

impl Wound {
    const SHIM: &'static str = "
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long long *seconds;
__attribute__((constructor)) static void begin(void) {
  int file = open(getenv(\"CLOCK_OFFSET\"), O_RDONLY);
  seconds = mmap(0, sizeof *seconds, PROT_READ, MAP_SHARED, file, 0);
}
int clock_gettime(clockid_t id, struct timespec *now) {
  int said = syscall(SYS_clock_gettime, id, now);
  if (said == 0 && id == CLOCK_REALTIME && seconds != MAP_FAILED) now->tv_sec += *seconds;
  return said;
}
time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int said = syscall(SYS_gettimeofday, now, zone);
  if (said == 0 && seconds != MAP_FAILED) now->tv_sec += *seconds;
  return said;
}
";

    pub fn new() -> Self {
        let wound = Self { folder: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("it works") };
        // A PostgreSQL server runs as another user.
        fs::set_permissions(wound.folder.path(), fs::Permissions::from_mode(0o711)).expect("it works");
        fs::write(wound.folder.path().join("shim.c"), Self::SHIM).expect("it works");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O", "-o", "shim.so", "shim.c"]).current_dir(wound.folder.path());
        assert!(cc.status().expect("a C compiler is there").success());
        wound.by(0);
        wound
    }

    /// In place: the process has the file mapped.
    pub fn by(&self, seconds: i64) {
        let path = self.folder.path().join("offset");
        let mut file = fs::OpenOptions::new().create(true).write(true).truncate(false).open(path).expect("it works");
        file.write_all(&seconds.to_ne_bytes()).expect("it works");
    }

    pub fn start(&self, folder: &Path, settings: &[(&str, &str)]) -> Server {
        let mut command = janua(folder, SERVE);
        command.envs(settings.iter().copied());
        self.hold(&mut command);
        Server::of(command)
    }

    /// What this command starts lives by the clock.
    pub fn hold(&self, command: &mut Command) {
        command.env("LD_PRELOAD", self.folder.path().join("shim.so"));
        command.env("CLOCK_OFFSET", self.folder.path().join("offset"));
    }
}
