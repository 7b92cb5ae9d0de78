//! Asking once: for what has to be there before anything is measured.
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

/// Asks as somebody, or as nobody when the token is empty, perhaps through an app; the answer must be a success.
pub fn ask(address: SocketAddr, method: &str, path: &str, who: &Who<'_>, body: &Value) -> Result<Value> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = send(address, &request(method, path, who, &body, "close"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.starts_with("HTTP/1.1 2"), "{method} {path}: {answer}");
    Ok(if body.is_empty() { Value::Null } else { serde_json::from_str(body)? })
}

/// Who asks.
#[derive(Default, Clone, Copy)]
pub struct Who<'a> {
    pub token: &'a str,
    pub app_key: &'a str,
}

impl<'a> Who<'a> {
    pub fn with(token: &'a str) -> Self {
        Self { token, app_key: "" }
    }

    pub fn through(app_key: &'a str) -> Self {
        Self { token: "", app_key }
    }
}

/// A request as it goes over the wire.
pub fn request(method: &str, path: &str, who: &Who<'_>, body: &str, connection: &str) -> Vec<u8> {
    let line = |is_there, name: &str, value: &str| {
        if is_there { format!("{name}: {value}\r\n") } else { String::new() }
    };
    let bearer = line(!who.token.is_empty(), "authorization", &format!("Bearer {}", who.token));
    let key = line(!who.app_key.is_empty(), "x-service-app-key", who.app_key);
    let kind = line(!body.is_empty(), "content-type", "application/json");
    let head = format!("{method} {path} HTTP/1.1\r\nhost: bench\r\nconnection: {connection}\r\n");
    format!("{head}{bearer}{key}{kind}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Sends a request that closes its connection, and answers all that came back.
pub fn send(address: SocketAddr, request: &[u8]) -> Result<String> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("nobody answers at {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    let mut answer = vec![];
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The text under a name in an answer.
pub fn text(answer: &Value, name: &str) -> Result<String> {
    answer[name].as_str().map(str::to_owned).with_context(|| format!("no {name} in {answer}"))
}
