//! Wallets, name servers and people of the tests.
use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use data_encoding::HEXLOWER;
pub use identity::testing::{PASSWORD, Person, login, mail_to, signed_in};
use k256::ecdsa::SigningKey;
use kernel::feature::Feature;
pub use kernel::{
    config::Config,
    testing::{Answer, TestJanua, join_all},
};
pub use serde_json::{Value, json};
use sha3::{Digest as _, Keccak256};
use tokio::net::UdpSocket;

pub fn feature(config: &Config) -> Feature {
    identity::testing::feature(config)
        .and(directory::feature(config))
        .and(workshop::feature(config))
        .and(crate::feature(config))
}

/// With metered usage.
pub fn with_usage(config: &Config) -> Feature {
    feature(config).and(commerce::feature(config))
}

pub async fn start() -> TestJanua {
    TestJanua::start(feature).await
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}")).to_owned()
}

/// A wallet of an EVM chain.
pub struct EvmWallet(SigningKey);

impl EvmWallet {
    pub fn new(seed: u8) -> Self {
        Self(SigningKey::from_slice(&[seed; 32]).expect("a key"))
    }

    pub fn address(&self) -> String {
        let point = self.0.verifying_key().to_sec1_point(false);
        format!("0x{}", HEXLOWER.encode(&Keccak256::digest(&point.as_bytes()[1..])[12..]))
    }

    /// 65 bytes: r, s, v.
    pub fn sign_bytes(&self, text: &str) -> Vec<u8> {
        let whole = format!("\x19Ethereum Signed Message:\n{}{text}", text.len());
        let (signature, id) = self.0.sign_prehash_recoverable(&Keccak256::digest(whole.as_bytes()));
        [signature.to_bytes().to_vec(), vec![27 + id.to_byte()]].concat()
    }

    pub fn sign(&self, text: &str) -> String {
        format!("0x{}", HEXLOWER.encode(&self.sign_bytes(text)))
    }
}

pub async fn register(t: &TestJanua, person: &Person, wallet: &str, more: Value) -> Answer {
    let mut body = json!({ "name": "Bot", "wallet": wallet });
    more.as_object().into_iter().flatten().for_each(|(name, value)| body[name] = value.clone());
    person.asks(t.post("/agent/register").json(&body)).await
}

pub async fn challenge(t: &TestJanua, body: Value) -> Value {
    let answer = t.post("/agent/challenge").json(&body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body
}

pub async fn redeem(t: &TestJanua, challenge: &Value, signature: &str) -> Answer {
    t.post("/agent/token").json(&json!({ "challenge": challenge["challenge"], "signature": signature })).await
}

/// A challenge, signed and redeemed.
pub async fn agent_token(t: &TestJanua, wallet: &EvmWallet, agent: &str) -> Answer {
    let asked = challenge(t, json!({ "wallet": wallet.address(), "agentId": agent })).await;
    redeem(t, &asked, &wallet.sign(asked["message"].as_str().unwrap())).await
}

/// An agent that has a token.
pub async fn live_agent(t: &TestJanua, person: &Person, wallet: &EvmWallet, more: Value) -> (String, String) {
    let made = register(t, person, &wallet.address(), more).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let id = text(&made.body["agent"]["id"]);
    let token = agent_token(t, wallet, &id).await;
    assert_eq!(token.status, 200, "{}", token.text);
    (id, text(&token.body["accessToken"]))
}

pub async fn me(t: &TestJanua, token: &str) -> Answer {
    t.get("/machine/me").header("authorization", &format!("Bearer {token}")).await
}

pub struct Framework {
    pub id: String,
    pub secret: String,
    pub kill_switch: String,
}

pub async fn framework(t: &TestJanua, person: &Person, more: Value) -> Framework {
    let mut body = json!({ "name": "Helper", "framework": "langgraph" });
    more.as_object().into_iter().flatten().for_each(|(name, value)| body[name] = value.clone());
    let made = person.asks(t.post("/framework-agent/register").json(&body)).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let [id, secret, kill_switch] =
        ["clientId", "clientSecret", "killSwitchToken"].map(|name| text(&made.body[name]));
    Framework { id, secret, kill_switch }
}

/// `POST /oauth/token` with a form.
pub async fn oauth(t: &TestJanua, path: &str, fields: &[(&str, &str)]) -> Answer {
    let mut body = url::form_urlencoded::Serializer::new(String::new());
    body.extend_pairs(fields);
    t.post(path).header("content-type", "application/x-www-form-urlencoded").body(body.finish()).await
}

/// A token of a framework agent, by its secret.
pub async fn framework_token(t: &TestJanua, agent: &Framework) -> String {
    let fields = [("grant_type", "client_credentials"), ("client_id", &agent.id), ("client_secret", &agent.secret)];
    let answer = oauth(t, "/oauth/token", &fields).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    text(&answer.body["access_token"])
}

/// An app of a person with a secret key.
pub async fn app_key(t: &TestJanua, person: &Person) -> String {
    let app = person.asks(t.post("/apps").json(&json!({ "name": "Shop" }))).await;
    let path = format!("/apps/{}/keys", text(&app.body["id"]));
    let made = person.asks(t.post(&path).json(&json!({ "type": "secret", "environment": "live" }))).await;
    text(&made.body["value"])
}

/// Whether a token is active for the app of a key.
pub async fn is_active(t: &TestJanua, key: &str, token: &str) -> bool {
    let ask = t.post("/oauth/introspect").header("x-service-app-key", key).json(&json!({ "token": token }));
    let answer = ask.await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["active"] == true
}

pub async fn suspend(t: &TestJanua, person: &Person, path: &str) -> Answer {
    person.asks(t.post(path).json(&json!({}))).await
}

/// A site in the test that hands out files over https, on a loopback address of its own.
pub struct Site {
    folder: tempfile::TempDir,
    server: Child,
    pub address: [u8; 4],
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Site {
    /// Nothing where this process may not listen on port 443.
    pub async fn start(domain: &str, address: [u8; 4]) -> Option<Self> {
        let host = Ipv4Addr::from(address).to_string();
        drop(std::net::TcpListener::bind((host.as_str(), 443)).ok()?);
        let folder = tempfile::tempdir().expect("a folder");
        let openssl = |args: String| {
            let mut command = Command::new("openssl");
            command.current_dir(folder.path()).args(args.split(' ')).stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(Stdio::null()).spawn().expect("openssl")
        };
        let made = openssl(format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -days 2 \
             -subj /CN=site -addext subjectAltName=DNS:{domain} -addext basicConstraints=critical,CA:FALSE"
        ));
        assert!({ made }.wait().expect("openssl").success());
        let server = openssl(format!("s_server -accept {host}:443 -cert cert.pem -key key.pem -HTTP"));
        while tokio::net::TcpStream::connect((host.as_str(), 443)).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        Some(Self { folder, server, address })
    }

    pub fn authority(&self) -> std::path::PathBuf {
        self.folder.path().join("cert.pem")
    }

    /// Puts a file there; the server sends it as it is, with its head.
    pub fn put(&self, path: &str, text: &str) {
        let file = self.folder.path().join(path);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(file, format!("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n{text}")).expect("a file");
    }
}

/// A name server in the test: it answers TXT and A questions from tables.
#[derive(Clone)]
pub struct NameServer {
    pub address: SocketAddr,
    zone: Arc<Mutex<HashMap<String, Vec<String>>>>,
    hosts: Arc<Mutex<HashMap<String, [u8; 4]>>>,
    is_broken: Arc<Mutex<bool>>,
}

impl NameServer {
    pub async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
        let address = socket.local_addr().expect("an address");
        let server = Self { address, zone: Arc::default(), hosts: Arc::default(), is_broken: Arc::default() };
        let answers = server.clone();
        tokio::spawn(async move {
            let mut question = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut question).await {
                let _ = socket.send_to(&answers.answer(&question[..length]), from).await;
            }
        });
        server
    }

    pub fn set(&self, name: &str, texts: &[&str]) {
        let texts = texts.iter().map(ToString::to_string).collect();
        self.zone.lock().expect("whole").insert(name.to_owned(), texts);
    }

    pub fn place(&self, name: &str, address: [u8; 4]) {
        self.hosts.lock().expect("whole").insert(name.to_owned(), address);
    }

    /// It fails on every question from now on, or no longer.
    pub fn fail(&self, is_broken: bool) {
        *self.is_broken.lock().expect("whole") = is_broken;
    }

    fn answer(&self, question: &[u8]) -> Vec<u8> {
        let (mut at, mut labels) = (12, vec![]);
        while question[at] != 0 {
            let length = usize::from(question[at]);
            labels.push(String::from_utf8_lossy(&question[at + 1..=at + length]).to_lowercase());
            at += length + 1;
        }
        let end = at + 5;
        let is_txt = question[at + 1..at + 3] == [0, 16];
        let is_address = question[at + 1..at + 3] == [0, 1];
        let host = self.hosts.lock().expect("whole").get(&labels.join(".")).copied().filter(|_| is_address);
        let found = self.zone.lock().expect("whole").get(&labels.join(".")).cloned().unwrap_or_default();
        let texts = if is_txt { found } else { vec![] };
        let code: u8 = if *self.is_broken.lock().expect("whole") { 2 } else { 0 };
        let count = u8::try_from(texts.len() + usize::from(host.is_some())).expect("few");
        let mut answer = [&question[..2], &[0x85, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0]].concat();
        answer.extend_from_slice(&question[12..end]);
        if let Some(host) = host {
            answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
            answer.extend_from_slice(&host);
        }
        for text in texts {
            let parts: Vec<u8> = text
                .as_bytes()
                .chunks(200)
                .flat_map(|part| [&[u8::try_from(part.len()).expect("short")][..], part].concat())
                .collect();
            let length = u16::try_from(parts.len()).expect("short").to_be_bytes();
            answer.extend_from_slice(&[0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 1, length[0], length[1]]);
            answer.extend_from_slice(&parts);
        }
        answer
    }
}
