//! The server dies at the places where it writes or syncs, one after the other.
use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{Server, Visit, extent};

/// What the server does to the world outside.
const PLACES: &str = "write,pwrite64,writev,sendto,fsync,fdatasync,openat,rename,unlink";
/// Past so many places in a row at which it lived, it has done all it had to do.
const QUIET: usize = 3;
/// Past so many writes after the answer, what is still written belongs to other work: jobs that are due by the clock.
const AFTERWARDS: usize = 120;
const LAST: usize = 600;
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a request's work in the background is waited for.
const BACKGROUND: Duration = Duration::from_millis(300);
/// A server that wrote nothing for so long has done what its first start left to do, also on a busy machine.
const STILL: Duration = Duration::from_secs(2);
/// The same for a start on a copy, which has only those jobs to do that became due since.
const STILL_AGAIN: Duration = Duration::from_millis(200);

/// What a request did, as far as its sender knows: the answer, or nothing because the server died.
pub type Heard = Option<(u16, Value)>;

pub fn ask(server: &Server, method: &str, path: &str, token: &str, body: &Value) -> Heard {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let answer = Visit::try_to(server.address, PATIENCE).ok()?.attempt(method, path, token, &text).ok()?;
    Some((answer.status, serde_json::from_str(&answer.body).unwrap_or_default()))
}

/// A POST with an `Idempotency-Key`.
pub fn post_once(server: &Server, key: &str, path: &str, token: &str, body: &Value) -> Heard {
    let mut visit = Visit::try_to(server.address, PATIENCE).ok()?;
    let answer = visit.attempt_with(key, "POST", path, token, &body.to_string()).ok()?;
    Some((answer.status, serde_json::from_str(&answer.body).unwrap_or_default()))
}

pub fn status(heard: &Heard) -> u16 {
    heard.as_ref().map_or(0, |(status, _)| *status)
}

/// A data folder as it was before, and how the server is started on it.
pub struct Before<'a> {
    pub folder: &'a Path,
    pub settings: &'a [(&'a str, &'a str)],
    /// Where the copies go.
    pub room: PathBuf,
}

impl Before<'_> {
    /// Visits the places of one request, each in a copy of the folder; afterwards `check` looks at what is left. Answers how
    /// often the server died.
    pub fn sweep(&self, request: impl Fn(&Server) -> Heard, check: impl Fn(&Path, &Server, &Heard)) {
        self.settle();
        let step = extent(8, 1, "writes from one crash to the next");
        let (mut deaths, mut quiet, mut answered) = (0, 0, 0);
        for place in (1..LAST).step_by(step) {
            let folder = tempfile::tempdir_in(&self.room).expect("a folder");
            let copied = Command::new("cp").arg("-r").arg(self.folder.join("data")).arg(folder.path()).status();
            assert!(copied.expect("cp runs").success());
            let (heard, died) = self.die_at(place, folder.path(), &request);
            check(folder.path(), &Server::start(folder.path(), self.settings), &heard);
            deaths += usize::from(died);
            quiet = if died { 0 } else { quiet + 1 };
            answered = if heard.is_some() { answered + step } else { 0 };
            if quiet == QUIET || answered >= AFTERWARDS {
                assert!(deaths > 0, "nothing was tried");
                return;
            }
        }
        panic!("it never came to an end");
    }

    /// Lets what the first start leaves to do in the background be done, such as jobs that have never run: it would be
    /// done again in each copy, and its writes would count as places of the request.
    fn settle(&self) {
        let mut server = Server::start(self.folder, self.settings);
        be_still(self.folder, STILL);
        // Stopped in good order, it leaves no journal behind that a request would have to bring home, page by page.
        server.signal("TERM");
        assert!(server.ended(PATIENCE).0, "it stops");
    }

    /// Lets the server die at the `place`th write of one of its threads while it works on `request`. Answers what the
    /// sender heard, and whether the server died.
    fn die_at(&self, place: usize, folder: &Path, request: impl Fn(&Server) -> Heard) -> (Heard, bool) {
        let mut server = Server::start(folder, self.settings);
        be_still(folder, STILL_AGAIN);
        let mut strace = Command::new("strace");
        strace.args(["-f", "-o", "/dev/null", "-e", &format!("trace={PLACES}")]);
        strace.args(["-e", &format!("inject={PLACES}:signal=SIGKILL:when={place}")]);
        strace.args(["-p", &server.child.id().to_string()]).stderr(Stdio::piped());
        let mut strace = strace.spawn().expect("strace is there");
        let mut said = BufReader::new(strace.stderr.take().expect("what it says"));
        said.read_line(&mut String::new()).expect("it says that it is attached");
        let heard = request(&server);
        // What is left to be done in the background counts too.
        let started = Instant::now();
        let mut died = false;
        while !died && started.elapsed() < BACKGROUND {
            died = server.child.try_wait().expect("it can be waited for").is_some();
            thread::sleep(Duration::from_millis(10));
        }
        drop(server);
        let _ = strace.kill();
        let _ = strace.wait();
        (heard, died)
    }
}

/// Waits until nothing was written for so long.
fn be_still(folder: &Path, still: Duration) {
    let journal = folder.join("data/janua.db-wal");
    let written = || fs::metadata(&journal).and_then(|meta| Ok((meta.len(), meta.modified()?))).ok();
    let (mut last, mut quiet) = (written(), Instant::now());
    let started = Instant::now();
    while quiet.elapsed() < still {
        thread::sleep(Duration::from_millis(10));
        let now = written();
        if now != last {
            (last, quiet) = (now, Instant::now());
        }
        assert!(started.elapsed() < PATIENCE, "it writes without end");
    }
}
