//! A mail server in a mood.
use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use super::wait;

/// A published SMTP server whose answers follow a file: `ok`, `451`, `hang`.
pub struct Moody {
    pub child: Option<Child>,
    folder: tempfile::TempDir,
    pub port: u16,
}

impl Moody {
    const HANDLER: &'static str = "
import asyncio, pathlib
from aiosmtpd.handlers import Mailbox
class Moody(Mailbox):
    async def handle_DATA(self, server, session, envelope):
        mood = pathlib.Path(self.mail_dir).parent.joinpath('mood').read_text()
        if mood == 'hang':
            await asyncio.sleep(600)
        if mood == '451':
            return '451 not now'
        return await super().handle_DATA(server, session, envelope)
";

    pub fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("it works");
        fs::write(folder.path().join("moody.py"), Self::HANDLER).expect("it works");
        let port = TcpListener::bind("127.0.0.1:0").expect("it works").local_addr().expect("it works").port();
        Self { child: None, folder, port }
    }

    pub fn mood(&self, mood: &str) {
        fs::write(self.folder.path().join("mood"), mood).expect("it works");
    }

    pub fn start(&mut self) {
        let python =
            std::env::var("TEST_PYTHON").expect("TEST_PYTHON: scripts/test sets it, scripts/setup installs it");
        let address = format!("127.0.0.1:{}", self.port);
        let mut command = Command::new(python);
        command
            .args(["-m", "aiosmtpd", "-n", "-l", &address, "-c", "moody.Moody"])
            .arg(self.folder.path().join("mail"));
        command.env("PYTHONPATH", self.folder.path()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("the SMTP server starts"));
        wait("the SMTP server listens", || TcpStream::connect(("127.0.0.1", self.port)).ok());
    }

    /// Where every mail that it received is a file.
    pub fn inbox(&self) -> PathBuf {
        self.folder.path().join("mail/new")
    }

    /// Every mail that it received.
    pub fn all(&self) -> Vec<String> {
        let files = fs::read_dir(self.inbox()).into_iter().flatten().filter_map(Result::ok);
        files.filter_map(|file| fs::read_to_string(file.path()).ok()).collect()
    }

    pub fn mails(&self, to: &str) -> usize {
        let files = fs::read_dir(self.inbox()).into_iter().flatten().filter_map(Result::ok);
        files.filter(|file| fs::read_to_string(file.path()).is_ok_and(|mail| mail.contains(to))).count()
    }
}

impl Drop for Moody {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
