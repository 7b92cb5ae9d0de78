//! `janua dev`: a server for the tests of other programs, in a temporary folder, with people, an app and a clock in hand.
//!
//! The clock is moved over a socket in that folder. `janua serve` has no such socket.
mod provider;

use std::{
    borrow::Cow,
    fs,
    io::{BufRead as _, BufReader, ErrorKind, Write as _},
    os::unix::{
        fs::{DirBuilderExt as _, PermissionsExt as _},
        net::UnixStream,
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use kernel::{
    clock::{Clock, Timestamp},
    config::Config,
};
use mail_parser::{Message, MessageParser};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _},
    net::UnixListener,
    sync::{mpsc, oneshot},
    time::{Instant, interval},
};

use crate::{
    Out, say,
    serve::{self, Started},
    start,
};

#[derive(clap::Args)]
pub struct Dev {
    #[command(subcommand)]
    act: Option<Act>,
    /// The folder of the development server [default: a temporary one, noted in .janua/dev]
    #[arg(long, global = true, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// The folder is deleted in the end: a reset goes on in the temporary one
    #[arg(long, hide = true, requires = "folder")]
    temporary: bool,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Act {
    /// Show the clock, or move it forward: +30d, +90m, or a moment such as 2026-12-31T23:59:00Z
    Clock { to: Option<String> },
    /// Show the mails that were sent, newest last
    Mail {
        /// Only mails to this email
        #[arg(long)]
        to: Option<String>,
        /// Print the text of the newest one; with --json all of it
        #[arg(long)]
        last: bool,
    },
    /// Delete everything and start over with the first people
    Reset,
}

impl Dev {
    /// Whether it is the server itself; the others talk to it.
    pub fn serves(&self) -> bool {
        self.act.is_none()
    }

    /// A command to a server that runs.
    pub fn tell(&self) -> Result<ExitCode> {
        let folder = self.running_folder()?;
        match &self.act {
            Some(Act::Clock { to }) => {
                let answer = ask(&folder, &format!("clock {}", to.as_deref().unwrap_or_default()))?;
                let ended =
                    if answer["sessionsEnded"] == true { "\nAll sessions have ended: sign in again." } else { "" };
                self.print(&answer, || text(&answer, "now") + ended);
            }
            Some(Act::Reset) => {
                let mut answer = ask(&folder, "reset")?;
                let is_ready = answer["reset"] == true && wait_for(&folder.join(SEEDED));
                answer["ready"] = json!(is_ready);
                let late = if is_ready { "" } else { " The server is not ready yet: see its terminal." };
                self.print(&answer, || format!("Started over.{late}"));
            }
            Some(Act::Mail { to, last }) => {
                let mut mails = mails(&folder.join("data/outbox"))?;
                mails.retain(|mail| to.as_ref().is_none_or(|to| text(mail, "to").contains(to.as_str())));
                if *last {
                    let Some(mail) = mails.last() else { bail!("no mails yet") };
                    self.print(mail, || readable(mail));
                } else {
                    let line = |mail: &Value| {
                        let clue = format!("{} {}", text(mail, "code"), text(mail, "link"));
                        let line = format!("{}  {}\n    {}", text(mail, "to"), text(mail, "subject"), clue.trim());
                        line.trim_end().to_owned()
                    };
                    let lines: Vec<String> = mails.iter().map(line).collect();
                    let none = "No mails yet.".to_owned();
                    self.print(&json!({ "mails": mails }), || if lines.is_empty() { none } else { lines.join("\n") });
                }
            }
            None => {}
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, answer: &Value, plain: impl FnOnce() -> String) {
        say(&if self.json { answer.to_string() } else { plain() }, Out::Plain);
    }

    /// The folder of the server that runs: the one given, or the one noted here or above.
    fn running_folder(&self) -> Result<PathBuf> {
        if let Some(folder) = &self.folder {
            return Ok(folder.clone());
        }
        let here = std::env::current_dir()?;
        let noted = here.ancestors().find_map(|folder| fs::read_to_string(folder.join(NOTE)).ok());
        let noted = noted.context("no development server was started here. Run `janua dev`, or give --folder")?;
        Ok(PathBuf::from(noted.trim()))
    }

    /// Serves until it is told to stop.
    pub async fn serve(&self, flags: &[(String, String)]) -> Result<ExitCode> {
        let (folder, is_temporary) = match &self.folder {
            Some(folder) => {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                (folder.canonicalize()?, self.temporary)
            }
            None => (new_folder(&std::env::temp_dir().canonicalize()?)?, true),
        };
        let note = std::env::current_dir()?.join(NOTE);
        fs::create_dir_all(note.parent().context("a folder")?)?;
        fs::write(&note, folder.display().to_string())?;
        let ended = self.serve_in(&folder, is_temporary, flags).await;
        let _ = fs::remove_file(&note);
        if is_temporary {
            let _ = fs::remove_dir_all(&folder);
        } else {
            let _ = fs::remove_file(folder.join(SOCKET));
        }
        ended
    }

    async fn serve_in(&self, folder: &Path, is_temporary: bool, flags: &[(String, String)]) -> Result<ExitCode> {
        let socket = folder.join(SOCKET);
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("cannot listen on {}", socket.display()))?;
        let clock = Arc::new(AtomicI64::new(Clock::System.now().0));
        tokio::spawn(tick(clock.clone()));
        let (orders, mut ordered) = mpsc::channel(8);
        let (stop, stopped) = oneshot::channel::<()>();
        let (started, has_started) = oneshot::channel();
        let provider = if provider::is_wanted(flags) { provider::start(clock.clone()).await? } else { vec![] };
        let config = config(folder, provider, flags)?;
        let idle_life = config.of::<tenancy::Settings>().session_idle_life;
        tokio::spawn(hear(listener, clock.clone(), idle_life, orders));
        let beside = serve::Beside { clock: Clock::Manual(clock), started, stopped };
        let mut serving = Box::pin(serve::run_beside(config, Some(beside)));
        let seeded = tokio::select! {
            ended = &mut serving => return ended,
            seeded = seed(folder, has_started) => seeded?,
        };
        self.print(&seeded, || greeting(folder, &seeded));
        let order: Option<Order> = tokio::select! {
            ended = &mut serving => return ended,
            order = ordered.recv() => order,
        };
        let _ = stop.send(());
        serving.await?;
        let Some(Order { done, told }) = order else { return Ok(ExitCode::SUCCESS) };
        clear(&folder.join("data")).await?;
        let _ = done.send(());
        let _ = told.await;
        Err(self.again(folder, is_temporary, flags, text(&seeded, "url").trim_start_matches("http://")))
    }

    /// The same program from the start, at the same address, in place of this one: whatever of the old database is still
    /// being closed ends with it. Comes back only if that fails.
    fn again(&self, folder: &Path, is_temporary: bool, flags: &[(String, String)], address: &str) -> anyhow::Error {
        let program = match std::env::current_exe() {
            Ok(program) => program,
            Err(error) => return error.into(),
        };
        let mut command = std::process::Command::new(program);
        command.args(["dev", "--listen", address]);
        for (name, value) in flags.iter().filter(|(name, _)| name != "listen") {
            command.args(["--set", &format!("{name}={value}")]);
        }
        if self.json {
            command.arg("--json");
        }
        command.arg("--folder").arg(folder);
        if is_temporary {
            command.arg("--temporary");
        }
        command.exec().into()
    }
}

/// A folder that did not exist, under a name that other users cannot foresee, and closed to them: it gets keys, and is
/// deleted in the end.
fn new_folder(place: &Path) -> Result<PathBuf> {
    let only_me = fs::Permissions::from_mode(0o700);
    let new = tempfile::Builder::new().prefix("janua-dev-").permissions(only_me).tempdir_in(place);
    Ok(new.with_context(|| format!("cannot create a folder in {}", place.display()))?.keep())
}

/// The first people, once the server is there. A folder that was used before has them.
async fn seed(folder: &Path, started: oneshot::Receiver<Started>) -> Result<Value> {
    let Started { url, janua } = started.await.context("the server did not start")?;
    email::take_for_proven(&janua, cli::MAIL_DOMAIN);
    // The server is not kept from ending.
    drop(janua);
    let file = folder.join(SEEDED);
    if let Ok(text) = fs::read_to_string(&file) {
        let mut before: Value = serde_json::from_str(&text)?;
        before["url"] = json!(url);
        return Ok(before);
    }
    let outbox = folder.join("data/outbox");
    let code = async |email: &str| {
        for _ in 0..400 {
            let mails = mails(&outbox).unwrap_or_default();
            let found =
                mails.iter().rev().find(|mail| text(mail, "to").contains(email)).map(|mail| text(mail, "code"));
            if let Some(code) = found.filter(|code| !code.is_empty()) {
                return Some(code);
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        None
    };
    let seeded = cli::seed(&url, OWNER, &folder.join("config"), code).await.map_err(|wrong| anyhow!(wrong))?;
    fs::write(file, seeded.to_string())?;
    Ok(seeded)
}

/// Deletes a folder in which the server that just stopped may still be closing files.
async fn clear(folder: &Path) -> Result<()> {
    const TRIES: u32 = 100;
    for left in (0..TRIES).rev() {
        match fs::remove_dir_all(folder) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if left == 0 => {
                return Err(error).with_context(|| format!("cannot delete {}", folder.display()));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    Ok(())
}

/// Where the folder is noted for later commands.
const NOTE: &str = ".janua/dev";
const SOCKET: &str = "dev.sock";
/// What the first people are, written when all of them are there and the owner is signed in.
const SEEDED: &str = "data/dev.json";
const OWNER: &str = "owner@example.com";

fn config(folder: &Path, provider: Vec<(String, String)>, flags: &[(String, String)]) -> Result<Config> {
    let data = folder.join("data").display().to_string();
    let mut settings: Vec<(String, String)> = vec![
        ("data_dir".into(), data),
        ("platform_owners".into(), OWNER.into()),
        ("webhook_allow_nets".into(), "127.0.0.0/8,::1/128".into()),
        ("webhook_allow_http".into(), "on".into()),
    ];
    settings.extend(provider);
    settings.extend(flags.iter().filter(|(name, _)| name != "data_dir").cloned());
    Ok(Config::load(None, [], settings, &start::sections())?)
}

fn greeting(folder: &Path, seeded: &Value) -> String {
    let people: Vec<String> = seeded["people"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|person| format!("  {:<20} {}", text(person, "email"), text(person, "about")))
        .collect();
    format!(
        "A development server is at {}\n\nPeople (password: {})\n{}\n\nApp {}  {}\n  secret key       {}\n  publishable key  \
         {}\n  sending domain   {}\n\nFor `janua` in another terminal:\n  export JANUA_CONFIG_HOME={}\n\n  \
         janua dev clock +30d    move the clock\n  janua dev mail          read the mails\n  \
         janua dev reset         start over\n\nCtrl-C ends it and deletes {}",
        text(seeded, "url"),
        text(seeded, "password"),
        people.join("\n"),
        text(&seeded["app"], "name"),
        text(&seeded["app"], "id"),
        text(seeded, "secretKey"),
        text(seeded, "publishableKey"),
        text(seeded, "mailDomain"),
        folder.join("config").display(),
        folder.display(),
    )
}

/// Lets the clock go on as fast as time does.
async fn tick(clock: Arc<AtomicI64>) {
    let (mut ticks, mut before) = (interval(Duration::from_millis(5)), Instant::now());
    loop {
        ticks.tick().await;
        let passed = before.elapsed().as_millis();
        if let Ok(passed @ 1..) = i64::try_from(passed) {
            clock.fetch_add(passed, Relaxed);
            before += Duration::from_millis(passed.unsigned_abs());
        }
    }
}

/// To start over: says when everything is deleted, and hears when that was passed on.
struct Order {
    done: oneshot::Sender<()>,
    told: oneshot::Receiver<()>,
}

/// One order a connection: a line in, a line of JSON out.
async fn hear(listener: UnixListener, clock: Arc<AtomicI64>, idle_life: Duration, orders: mpsc::Sender<Order>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (clock, orders) = (clock.clone(), orders.clone());
        tokio::spawn(async move {
            let (read, mut write) = stream.into_split();
            let mut line = String::new();
            if tokio::io::BufReader::new(read).read_line(&mut line).await.is_err() {
                return;
            }
            let (tell, told) = oneshot::channel();
            let answer = match line.trim().split_once(' ').unwrap_or((line.trim(), "")) {
                ("clock", to) => {
                    let before = Timestamp(clock.load(Relaxed));
                    match moved(&clock, to.trim()) {
                        // The clock moved at once, so no session was used in between.
                        Ok(now) => json!({ "now": now, "sessionsEnded": now.since(before) >= idle_life }),
                        Err(wrong) => json!({ "error": wrong.to_string() }),
                    }
                }
                ("reset", _) => {
                    let (done, is_done) = oneshot::channel();
                    let sent = orders.send(Order { done, told }).await.is_ok();
                    json!({ "reset": sent && is_done.await.is_ok() })
                }
                _ => json!({ "error": "unknown order" }),
            };
            let _ = write.write_all(format!("{answer}\n").as_bytes()).await;
            let _ = tell.send(());
        });
    }
}

/// Moves the clock forward. Back it does not go: what was written has its time.
fn moved(clock: &AtomicI64, to: &str) -> Result<Timestamp> {
    let now = clock.load(Relaxed);
    let then = match to.strip_prefix('+') {
        None if to.is_empty() => now,
        Some(length) => now.saturating_add(millis(length)?),
        None => {
            serde_json::from_value::<Timestamp>(json!(to))
                .map_err(|_| anyhow!("{to}: must be +30d, +90m or a moment such as 2026-12-31T23:59:00Z"))?
                .0
        }
    };
    if then < now {
        bail!("the clock goes forward only; it is {}", Timestamp(now));
    }
    clock.fetch_add(then - now, Relaxed);
    Ok(Timestamp(then))
}

fn millis(text: &str) -> Result<i64> {
    let wrong = || anyhow!("+{text}: must be a length of time such as +30d, +12h, +90m or +10s");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let unit = match unit {
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => Timestamp::DAY_MS,
        _ => return Err(wrong()),
    };
    number.parse::<u32>().ok().and_then(|number| i64::from(number).checked_mul(unit)).ok_or_else(wrong)
}

/// Waits for a file, up to ten seconds.
fn wait_for(file: &Path) -> bool {
    const TRIES: u32 = 200;
    for _ in 0..TRIES {
        if file.exists() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

fn ask(folder: &Path, order: &str) -> Result<Value> {
    let socket = folder.join(SOCKET);
    let mut stream = UnixStream::connect(&socket)
        .with_context(|| format!("no development server listens on {}. Run `janua dev`", socket.display()))?;
    stream.write_all(format!("{order}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let answer: Value = serde_json::from_str(&line).context("the server ended")?;
    match answer["error"].as_str() {
        Some(wrong) => bail!("{wrong}"),
        None => Ok(answer),
    }
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

/// A mail for people: its text alone.
fn readable(mail: &Value) -> String {
    let whole = text(mail, "text");
    let parsed = MessageParser::new().parse(whole.as_bytes());
    let body = parsed.as_ref().and_then(|parsed| parsed.body_text(0));
    let body = body.map_or_else(|| whole.clone(), Cow::into_owned).replace("\r\n", "\n");
    let subject = parsed.as_ref().and_then(Message::subject).unwrap_or_default();
    format!("To: {}\nSubject: {subject}\n\n{}", text(mail, "to"), body.trim_end())
}

/// The mails in an outbox, oldest first. Their text lies there as it is.
fn mails(outbox: &Path) -> Result<Vec<Value>> {
    let mut files: Vec<PathBuf> = match fs::read_dir(outbox) {
        Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => vec![],
        Err(error) => return Err(error.into()),
    };
    files.retain(|file| file.extension().is_some_and(|extension| extension == "eml"));
    let time = |file: &PathBuf| fs::metadata(file).and_then(|meta| meta.modified()).ok();
    files.sort_by_key(|file| (time(file), file.clone()));
    let mut mails = vec![];
    for file in files {
        let Ok(whole) = fs::read_to_string(&file) else { continue };
        let whole = whole.replace("\r\n", "\n");
        let header = |name: &str| {
            let line = whole.lines().take_while(|line| !line.is_empty()).find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        let words = || whole.split(|c: char| c.is_whitespace() || matches!(c, '<' | '>' | '"'));
        let link = words().find(|word| word.starts_with("http") && word.contains('?')).unwrap_or_default();
        let code = whole.lines().find_map(|line| line.strip_prefix("Code: ")).unwrap_or_default();
        mails.push(json!({
            "to": header("To:"), "subject": header("Subject:"), "link": link, "code": code.trim(), "text": whole,
            "file": file,
        }));
    }
    Ok(mails)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_mail_is_shown_without_its_html() {
        let whole = "To: ada@example.com\nSubject: =?utf-8?B?R3LDvMOfZQ==?=\nMIME-Version: 1.0\n\
                     Content-Type: multipart/alternative; boundary=\"b\"\n\n--b\n\
                     Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\n\
                     Code: 123456=20\nSch=C3=B6n.\n--b\n\
                     Content-Type: text/html; charset=utf-8\nContent-Transfer-Encoding: base64\n\nPGI+eDwvYj4=\n--b--\n";
        let shown = readable(&json!({ "to": "ada@example.com", "subject": "", "text": whole }));
        assert_eq!(shown, "To: ada@example.com\nSubject: Grüße\n\nCode: 123456 \nSchön.");
    }

    #[test]
    fn the_clock_goes_forward_only() {
        let clock = AtomicI64::new(1_769_853_600_000);
        assert_eq!(moved(&clock, "+30d").unwrap(), Timestamp(1_769_853_600_000 + 30 * Timestamp::DAY_MS));
        assert_eq!(moved(&clock, "2026-12-31T23:59:00Z").unwrap().to_string(), "2026-12-31T23:59:00.000Z");
        assert!(moved(&clock, "2026-01-01T00:00:00Z").is_err());
        for wrong in ["+", "+d", "+3y", "tomorrow", "+-1d"] {
            assert!(moved(&clock, wrong).is_err(), "{wrong}");
        }
        assert_eq!(moved(&clock, "").unwrap().to_string(), "2026-12-31T23:59:00.000Z");
    }
}
