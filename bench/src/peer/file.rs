//! The file that describes a peer. `bench/peers/` has two.
use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    pub name: String,
    /// What `${name}` stands for, unless `--set` says otherwise.
    #[serde(default)]
    pub values: BTreeMap<String, String>,
    /// Asked once each, in this order.
    #[serde(default)]
    pub prepare: Vec<Request>,
    /// Asked again and again.
    pub measure: Vec<Request>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub name: String,
    method: String,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: String,
    /// The status it must be answered with; any success when nothing is said.
    expect: Option<u16>,
    /// What is taken from the answer, and where it is there.
    #[serde(default)]
    pub take: BTreeMap<String, Taken>,
}

/// A place in an answer: `json:/accessToken` (a JSON pointer), `header:location`, `cookie:session`.
#[derive(Deserialize, Debug)]
#[serde(try_from = "String")]
pub enum Taken {
    Json(String),
    Header(String),
    Cookie(String),
}

impl TryFrom<String> for Taken {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("json", pointer)) if pointer.starts_with('/') => Ok(Self::Json(pointer.to_owned())),
            Some(("header", name)) => Ok(Self::Header(name.to_owned())),
            Some(("cookie", name)) => Ok(Self::Cookie(name.to_owned())),
            _ => Err(format!("{text}: wants json:/pointer, header:name or cookie:name")),
        }
    }
}

impl Peer {
    pub fn read(text: &str) -> Result<Self> {
        let peer: Self = toml::from_str(text)?;
        let measured = peer.measure.iter().find(|request| !request.take.is_empty());
        ensure!(measured.is_none(), "values are taken from what is prepared, not from what is measured");
        let odd = peer
            .measure
            .iter()
            .find(|request| request.expect.is_some_and(|status| !matches!(status, 200..300 | 400..500)));
        ensure!(odd.is_none(), "what is measured is a success or a refusal: a status of 2xx or 4xx");
        Ok(peer)
    }
}

impl Request {
    /// As it goes over the wire, with all values filled in.
    pub fn wire(&self, authority: &str, values: &BTreeMap<String, String>, connection: &str) -> Result<Vec<u8>> {
        let filled = |text: &str| fill(text, values).with_context(|| self.name.clone());
        let (path, body) = (filled(&self.path)?, filled(&self.body)?);
        let mut head =
            format!("{} {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: {connection}\r\n", self.method);
        for (name, value) in &self.headers {
            let value = filled(value)?;
            head.extend([name.as_str(), ": ", &value, "\r\n"]);
        }
        ensure!(head.matches("\r\n").count() == 3 + self.headers.len(), "{}: a line break in a header", self.name);
        Ok(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes())
    }

    /// Whether the answer is to be a refusal.
    pub fn is_refused(&self) -> bool {
        self.expect.is_some_and(|status| (400..500).contains(&status))
    }

    pub fn expects(&self, answer: &str) -> Result<()> {
        let status: u16 = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no answer")?;
        let is_well = self.expect.map_or_else(|| (200..300).contains(&status), |expected| status == expected);
        ensure!(is_well, "{}: not as expected: {answer}", self.name);
        Ok(())
    }
}

impl Taken {
    pub fn find(&self, answer: &str) -> Option<String> {
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let headers = |wanted: &str| {
            let wanted = wanted.to_lowercase();
            head.lines()
                .skip(1)
                .filter_map(|line| line.split_once(':'))
                .filter(move |(name, _)| name.to_lowercase() == wanted)
                .map(|(_, value)| value.trim().to_owned())
        };
        match self {
            Self::Json(pointer) => {
                // An answer in chunks has their lengths around it.
                let (start, end) = (body.find(['{', '['])?, body.rfind(['}', ']'])?);
                let json: Value = serde_json::from_str(body.get(start..=end)?).ok()?;
                json.pointer(pointer)?.as_str().map(str::to_owned)
            }
            Self::Header(name) => headers(name).next(),
            Self::Cookie(name) => headers("set-cookie").find_map(|cookie| {
                let (found, rest) = cookie.split_once('=')?;
                (found == name).then(|| rest.split(';').next().unwrap_or_default().to_owned())
            }),
        }
    }
}

/// Puts values where `${name}` stands. A name without a value is a mistake.
fn fill(text: &str, values: &BTreeMap<String, String>) -> Result<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').with_context(|| format!("no end of ${{ in {text}"))?;
        out += before;
        out += values.get(name).with_context(|| format!("nothing is known of ${{{name}}}; give it with --set"))?;
        rest = after;
    }
    Ok(out + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_can_be_read() {
        for text in [include_str!("../../peers/janua.toml"), include_str!("../../peers/keycloak.toml")] {
            let peer = Peer::read(text).unwrap();
            let known: Vec<&String> =
                peer.values.keys().chain(peer.prepare.iter().flat_map(|request| request.take.keys())).collect();
            let values = known.into_iter().map(|name| (name.clone(), "x".to_owned())).collect();
            for request in peer.prepare.iter().chain(&peer.measure) {
                request.wire("localhost:80", &values, "close").unwrap();
            }
        }
    }

    #[test]
    fn values_are_filled_in_and_unknown_ones_are_named() {
        let values = BTreeMap::from([("token".to_owned(), "abc".to_owned())]);
        assert_eq!(fill("Bearer ${token}, {\"a\": 1}", &values).unwrap(), "Bearer abc, {\"a\": 1}");
        assert!(fill("${other}", &values).unwrap_err().to_string().contains("${other}"));
        assert!(fill("${token", &values).is_err());
        let split = Peer::read(
            "name = 'x'\n[[measure]]\nname = 'm'\nmethod = 'GET'\npath = '/'\nheaders = { a = '${token}' }",
        );
        let broken = BTreeMap::from([("token".to_owned(), "a\r\nb: c".to_owned())]);
        assert!(split.unwrap().measure[0].wire("h", &broken, "close").is_err(), "one header stays one");
    }

    #[test]
    fn values_are_taken_from_answers() {
        let answer = "HTTP/1.1 200 OK\r\nLocation: /next\r\nSet-Cookie: a=1; Path=/\r\nset-cookie: b=2\r\n\r\n\
                      1a\r\n{\"data\":[{\"token\":\"abc\"}]}\r\n0\r\n\r\n";
        let find = |text: &str| Taken::try_from(text.to_owned()).unwrap().find(answer);
        assert_eq!(find("json:/data/0/token").as_deref(), Some("abc"));
        assert_eq!(find("json:/nothing"), None);
        assert_eq!(find("header:location").as_deref(), Some("/next"));
        assert_eq!((find("cookie:a").as_deref(), find("cookie:b").as_deref()), (Some("1"), Some("2")));
        assert!(Taken::try_from("xml:/a".to_owned()).is_err());
        assert!(Taken::try_from("json:a".to_owned()).is_err());
    }

    #[test]
    fn a_mistake_in_a_file_is_found() {
        for wrong in [
            "name = 'x'",
            "name = 'x'\nmeasure = []\nspeed = 1",
            "name = 'x'\n[[measure]]\nname = 'm'\nmethod = 'GET'\npath = '/'\ntake = { a = 'json:/a' }",
        ] {
            assert!(Peer::read(wrong).is_err(), "{wrong}");
        }
    }
}
