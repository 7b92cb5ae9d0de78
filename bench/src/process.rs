//! Child processes: on which core they run, when they answer, what they use. They end with the value that stands for
//! them.
use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::{
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

const POLL_EVERY: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(10);
/// Linux tells processor time to programs in hundredths of a second, whatever it counts in itself.
const TICK: Duration = Duration::from_millis(10);

/// Which core a process may run on: the first, the second, … of those this one may use.
#[derive(Clone, Copy)]
pub enum Core {
    Any,
    Only(usize),
}

/// Starts a program on a core: a process inherits where its parent may run.
pub fn spawn(command: &mut Command, core: Core) -> Result<Child> {
    on(core, || Ok(command.spawn()?))
}

/// Works on a core for a while.
pub fn on<T>(core: Core, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = sched_getaffinity(None)?;
    stay_on(core)?;
    let outcome = work();
    sched_setaffinity(None, &before)?;
    outcome
}

/// From now on this thread, and those it starts, run there.
pub fn stay_on(core: Core) -> Result<()> {
    let Core::Only(number) = core else { return Ok(()) };
    let before = sched_getaffinity(None)?;
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| before.is_set(*cpu)).collect();
    let mut only = CpuSet::new();
    only.set(allowed[number % allowed.len()]);
    Ok(sched_setaffinity(None, &only)?)
}

/// Lets this process, and those it starts, open so many files; as many as the system allows, if that is less.
pub fn allow_files(wanted: u64) -> u64 {
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let current = now.current.unwrap_or(u64::MAX);
    if current < most {
        // What cannot be raised shows as it is.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: now.maximum });
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// A server that answers; killed when dropped.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    /// What it said to the first request for /health, head and body.
    pub health: String,
    /// From the start of the process to that answer.
    pub answered_after: Duration,
}

impl Server {
    /// Starts it and waits until it answers. What it says on the way goes to `log`.
    pub fn start(mut command: Command, core: Core, address: SocketAddr, log: &Path) -> Result<Self> {
        let file = File::create(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let started = Instant::now();
        let child =
            spawn(&mut command, core).with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let mut server = Self { child, address, health: String::new(), answered_after: Duration::ZERO };
        loop {
            if let Some(health) = ask(address) {
                server.answered_after = started.elapsed();
                server.health = health;
                return Ok(server);
            }
            if server.child.try_wait()?.is_some() || started.elapsed() > PATIENCE {
                bail!("{} does not answer: {}", command.get_program().display(), fs::read_to_string(log)?);
            }
            thread::sleep(POLL_EVERY);
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has nothing to do: jobs of what came before would count for what comes after.
    pub fn rest(&self) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < Duration::from_mins(1) {
            let before = cpu_time(self.pid())?;
            thread::sleep(Duration::from_millis(500));
            if cpu_time(self.pid())?.saturating_sub(before) < Duration::from_millis(30) {
                break;
            }
        }
        Ok(())
    }

    /// Resident memory in megabytes (of a million bytes).
    pub fn resident_mb(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS in /proc")?;
        let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib * 1024.0 / 1e6)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The time the processor has spent on all threads of a process, in its own code and in the system for it.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the program's name, which may hold anything, a closing bracket too.
    let (_, after_name) = stat.rsplit_once(')').context("/proc/PID/stat has another form")?;
    let mut utime_and_stime = after_name.split_whitespace().skip(11);
    let mut next = || anyhow::Ok(utime_and_stime.next().context("/proc/PID/stat is short")?.parse::<u32>()?);
    Ok(TICK * (next()? + next()?))
}

/// The same of a process with one thread, to the nanosecond.
pub fn exact_cpu_time(pid: u32) -> Result<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    Ok(Duration::from_nanos(text.split_whitespace().next().context("an empty schedstat")?.parse()?))
}

/// The same of a process and of those it started that have ended.
pub fn cpu_time_with_ended(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, after_name) = stat.rsplit_once(')').context("/proc/PID/stat has another form")?;
    let ticks = after_name.split_whitespace().skip(11).take(4).map(str::parse::<u32>);
    Ok(TICK * ticks.sum::<Result<u32, _>>()?)
}

/// What the processors have done for the processes that this one has started and that have ended.
pub fn children_cpu_time() -> Result<Duration> {
    let own = std::process::id();
    Ok(cpu_time_with_ended(own)?.saturating_sub(cpu_time(own)?))
}

/// The processes that a process has started.
pub fn children_of(parent: u32) -> Result<Vec<u32>> {
    let pids = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(')').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
        after_name.split_whitespace().nth(1) == Some(&*parent.to_string())
    };
    Ok(pids.filter(is_child).collect())
}

/// An address nobody listens on at the moment.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// A 200 from /health, whole, or nothing yet.
fn ask(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200 ").then_some(answer)
}
