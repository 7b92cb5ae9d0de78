//! A published SMTP server and a published name server.
use std::{
    fs,
    net::{TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Keeps what it receives, to the byte. A file says at which step it refuses, and with which words: `rcpt 550 no such
/// user`, `message cut`, `message hang`, `message slow`. `message keep-then-cut` keeps a mail and does not say so.
const PROGRAM: &str = "
import asyncio, pathlib, ssl, sys
from aiosmtpd.smtp import SMTP, AuthResult

home = pathlib.Path(sys.argv[1])

def words(step):
    file = home.joinpath('mood')
    at, _, said = (file.read_text() if file.exists() else '').partition(' ')
    return said if at == step else None

async def mood(server, step):
    said = words(step)
    if said == 'hang':
        await asyncio.sleep(600)
    if said == 'cut':
        server.transport.abort()
    return said

count = 0

def keep(envelope):
    global count
    count += 1
    home.joinpath('mail', f'{count:06}').write_bytes(envelope.content)

class Handler:
    async def handle_MAIL(self, server, session, envelope, address, options):
        # A connection from before the mood: a server that refuses connections has closed it.
        if any(words(step) for step in ('greeting', 'ehlo', 'auth')):
            server.transport.abort()
        said = await mood(server, 'mail')
        if said is None:
            envelope.mail_from = address
        return said or '250 OK'
    async def handle_RCPT(self, server, session, envelope, address, options):
        said = await mood(server, 'rcpt')
        if said is None:
            envelope.rcpt_tos.append(address)
        with home.joinpath('rcpt').open('a') as log:
            log.write(f'{envelope.mail_from} {address}\\n')
        return said or '250 OK'
    async def handle_DATA(self, server, session, envelope):
        with home.joinpath('tls').open('a') as log:
            log.write('yes\\n' if session.ssl else 'no\\n')
        if words('message') == 'keep-then-cut':
            keep(envelope)
            server.transport.abort()
            return '250 OK'
        if words('message') == 'slow':
            await asyncio.sleep(2)
            keep(envelope)
            return '250 OK'
        said = await mood(server, 'message')
        if said is None:
            keep(envelope)
        return said or '250 2.0.0 Ok: queued as 4F2A1B3C9D'
    async def handle_EHLO(self, server, session, envelope, hostname, responses):
        session.host_name = hostname
        with home.joinpath('hello').open('a') as log:
            log.write(f'{hostname}\\n')
        said = await mood(server, 'ehlo')
        return [said] if said else responses

class Server(SMTP):
    async def push(self, status):
        text = status if isinstance(status, str) else status.decode()
        if text.startswith('220 '):
            text = await mood(self, 'greeting') or text
        await super().push(text)
    async def smtp_DATA(self, arg):
        said = await mood(self, 'data')
        if said:
            await self.push(said)
        else:
            await super().smtp_DATA(arg)
    async def smtp_STARTTLS(self, arg):
        said = await mood(self, 'starttls')
        if said:
            await self.push(said)
        else:
            await super().smtp_STARTTLS(arg)

def sign_in(server, session, envelope, mechanism, data):
    said = words('auth')
    return AuthResult(success=said is None, handled=False, message=said)

def keys():
    if len(sys.argv) < 6:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if sys.argv[4] == 'broken':
        # No certificate at all: every handshake fails.
        return context
    context.load_cert_chain(sys.argv[4], sys.argv[5])
    return context

async def serve():
    loop = asyncio.get_running_loop()
    home.joinpath('mail').mkdir()
    handler = Handler()
    make = lambda: Server(handler, loop=loop, authenticator=sign_in, auth_require_tls=False,
        tls_context=keys())
    server = await loop.create_server(make, sys.argv[3], int(sys.argv[2]))
    await server.serve_forever()

asyncio.run(serve())
";

pub fn python() -> String {
    std::env::var("TEST_PYTHON").expect("TEST_PYTHON: scripts/test sets it, scripts/setup installs it")
}

pub struct SmtpServer {
    child: Child,
    folder: tempfile::TempDir,
    pub port: u16,
}

impl SmtpServer {
    pub fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self::start_at("127.0.0.1", port, None)
    }

    /// With a certificate and its key it offers encryption.
    pub fn start_at(address: &str, port: u16, keys: Option<&(PathBuf, PathBuf)>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(python());
        command.args(["-W", "ignore", "-c", PROGRAM]).arg(folder.path()).arg(port.to_string()).arg(address);
        command.stderr(Stdio::null());
        if let Some((certificate, key)) = keys {
            command.arg(certificate).arg(key);
        }
        let child = command.spawn().expect("the SMTP server starts");
        let listens = (0..3000).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            TcpStream::connect((address, port)).is_ok()
        });
        assert!(listens, "the SMTP server does not listen");
        Self { child, folder, port }
    }

    pub fn url(&self) -> String {
        format!("smtp://user:password@127.0.0.1:{}", self.port)
    }

    pub fn mood(&self, mood: &str) {
        fs::write(self.folder.path().join("mood"), mood).unwrap();
    }

    pub fn received(&self) -> Vec<String> {
        let mut files: Vec<_> = fs::read_dir(self.folder.path().join("mail")).unwrap().flatten().collect();
        files.sort_by_key(fs::DirEntry::file_name);
        files.into_iter().map(|file| fs::read_to_string(file.path()).unwrap()).collect()
    }

    /// Whether each message came encrypted.
    pub fn encrypted(&self) -> Vec<bool> {
        let log = fs::read_to_string(self.folder.path().join("tls")).unwrap_or_default();
        log.lines().map(|line| line == "yes").collect()
    }

    /// The names that clients gave themselves.
    pub fn hellos(&self) -> String {
        fs::read_to_string(self.folder.path().join("hello")).unwrap_or_default()
    }

    /// Sender and recipient of each envelope.
    pub fn envelopes(&self) -> Vec<String> {
        let log = fs::read_to_string(self.folder.path().join("rcpt")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}

impl Drop for SmtpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An authority, and certificates of it that all have one key.
pub struct Certificates(tempfile::TempDir);

impl Certificates {
    /// One for each of the hosts, and one for the server of policies.
    pub fn make(hosts: &[&str], policy: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let openssl = |args: &str| {
            let mut command = Command::new("openssl");
            command.current_dir(folder.path()).args(args.split(' ')).stdin(Stdio::null());
            let output = command.output().expect("openssl");
            assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
        };
        let curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        openssl(&format!("req -x509 {curve} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"));
        openssl("ecparam -name prime256v1 -genkey -noout -out ec.key");
        openssl("pkcs8 -topk8 -nocrypt -in ec.key -out key.pem");
        for (host, file) in hosts.iter().map(|host| (*host, *host)).chain([(policy, "policy")]) {
            fs::write(folder.path().join("names"), format!("subjectAltName=DNS:{host}")).unwrap();
            openssl(&format!("req -new -key key.pem -out {file}.csr -subj /CN={file}"));
            openssl(&format!(
                "x509 -req -in {file}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {file}.pem -days 2 -extfile names"
            ));
        }
        Self(folder)
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    pub fn of(&self, host: &str) -> PathBuf {
        self.folder().join(format!("{host}.pem"))
    }

    pub fn key(&self) -> PathBuf {
        self.folder().join("key.pem")
    }
}

/// A name server for `example.test`.
pub struct NameServer {
    process: Child,
    pub port: u16,
    folder: tempfile::TempDir,
}

impl NameServer {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = loop {
            let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if TcpListener::bind(("127.0.0.1", port)).is_ok() {
                break port;
            }
        };
        let home = folder.path().display().to_string();
        let config = format!(
            "server:\n  rundir: {home}\n  listen: 127.0.0.1@{port}\ndatabase:\n  storage: {home}\nlog:\n  \
             - target: stderr\n    any: warning\nzone:\n  - domain: example.test\n    storage: {home}\n    \
             file: example.test.zone\n    zonefile-load: whole\n"
        );
        fs::write(folder.path().join("knot.conf"), config).unwrap();
        let mut server = Self { process: Self::spawn(folder.path(), &[]), port, folder };
        server.answers().await;
        server
    }

    fn spawn(folder: &Path, records: &[String]) -> Child {
        let start = "@ 1 IN SOA ns hostmaster 1 1 1 1 1\n@ 1 IN NS ns\nns 1 IN A 127.0.0.1\n";
        fs::write(folder.join("example.test.zone"), format!("{start}{}\n", records.join("\n"))).unwrap();
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("knotd");
        command.env("PATH", path).arg("-c").arg(folder.join("knot.conf")).stdin(Stdio::null());
        command.spawn().expect("knotd is installed by scripts/setup")
    }

    /// The zone with these lines in it, and no others, from now on.
    pub async fn say(&mut self, records: &[String]) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.process = Self::spawn(self.folder.path(), records);
        self.answers().await;
    }

    /// Nobody answers from now on.
    pub fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    async fn answers(&mut self) {
        let resolver = kernel::ports::dns::Resolver::new(&[([127, 0, 0, 1], self.port).into()]);
        let there = async {
            while resolver.texts("example.test").await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), there).await.expect("the name server answers");
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The lines of a zone file for the records that an answer asks for.
pub fn zone_lines(records: &serde_json::Value) -> Vec<String> {
    let line = |record: &serde_json::Value| {
        let text = |field: &str| record[field].as_str().unwrap_or_default().to_owned();
        let quoted: Vec<String> = text("value")
            .as_bytes()
            .chunks(200)
            .map(|piece| format!("\"{}\"", String::from_utf8_lossy(piece)))
            .collect();
        match text("type").as_str() {
            "TXT" => format!("{}. 1 IN TXT {}", text("name"), quoted.join(" ")),
            _ => format!("{}. 1 IN CNAME {}.", text("name"), text("value")),
        }
    };
    records.as_array().unwrap().iter().map(line).collect()
}
