//! MTA-STS (RFC 8461): a domain says by a record and a file which servers take its mail, and whether they must prove it.
use std::time::Duration;

use axum::http::{HeaderMap, Method, header};
use bytes::Bytes;
use db::{Db, params, row};
use kernel::{
    Janua,
    clock::Timestamp,
    ports::{
        dns::Resolver,
        outgoing::{Call, Limits, Reach},
    },
};
use url::Url;

use crate::Settings;

const LONGEST: usize = 64 * 1024;
const FETCH: Duration = Duration::from_secs(20);
/// About a year.
const LONGEST_AGE: u64 = 31_557_600;

/// What a domain demands of those who deliver to it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "the id of a policy, not of a row; its column has the name")]
pub struct Policy {
    policy_id: String,
    mode: String,
    /// Separated by spaces.
    servers: String,
    expires_at: Timestamp,
}
row!(Policy { policy_id, mode, servers, expires_at });

impl Policy {
    pub fn is_enforced(&self) -> bool {
        self.mode == "enforce"
    }

    /// Whether a server is one of those it names. A star stands for one label.
    pub fn names(&self, server: &str) -> bool {
        self.servers.split(' ').any(|pattern| match pattern.strip_prefix("*.") {
            Some(rest) => server.split_once('.').is_some_and(|(_, above)| above == rest),
            None => pattern == server,
        })
    }

    /// Reads the file of a policy.
    fn read(text: &str, id: &str, now: Timestamp) -> Option<Self> {
        let mut fields =
            text.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name.trim(), value.trim()));
        if fields.next()? != ("version", "STSv1") {
            return None;
        }
        let (mut mode, mut age, mut servers) = (None, None, vec![]);
        for (name, value) in fields {
            match name {
                "mode" if mode.is_none() => {
                    mode = Some(value).filter(|mode| matches!(*mode, "enforce" | "testing" | "none"));
                }
                "max_age" if age.is_none() => age = value.parse::<u64>().ok().filter(|age| *age <= LONGEST_AGE),
                "mx" => servers.push(value.trim_end_matches('.').to_lowercase()),
                _ => {}
            }
        }
        let (mode, age) = (mode?, age?);
        if servers.is_empty() && mode != "none" {
            return None;
        }
        let expires_at = now.plus(Duration::from_secs(age));
        Some(Self { policy_id: id.to_owned(), mode: mode.to_owned(), servers: servers.join(" "), expires_at })
    }

    async fn find(db: &Db, domain: &str, now: Timestamp) -> db::Result<Option<Self>> {
        let sql =
            "SELECT policy_id, mode, servers, expires_at FROM email_policy WHERE domain = $1 AND expires_at > $2";
        db.opt(sql, params![domain, now]).await
    }

    async fn store(&self, db: &Db, domain: &str) -> db::Result<()> {
        let sql =
            "INSERT INTO email_policy (domain, policy_id, mode, servers, expires_at) VALUES ($1, $2, $3, $4, $5)
                   ON CONFLICT (domain) DO UPDATE SET policy_id = $2, mode = $3, servers = $4, expires_at = $5";
        db.exec(sql, params![domain, &self.policy_id, &self.mode, &self.servers, self.expires_at]).await.map(drop)
    }
}

/// The policy of a domain. One that was fetched counts for as long as it says, also while its record or its file is out of reach:
/// whoever can hide them must not get the mail.
pub async fn of(janua: &Janua, dns: &Resolver, domain: &str) -> db::Result<Option<Policy>> {
    let now = janua.clock.now();
    let known = Policy::find(&janua.db, domain, now).await?;
    let Ok(texts) = dns.texts(&format!("_mta-sts.{domain}")).await else { return Ok(known) };
    let Some(id) = id_of(&texts) else { return Ok(known) };
    if known.as_ref().is_some_and(|known| known.policy_id == id) {
        return Ok(known);
    }
    match fetch(janua, domain)
        .await
        .and_then(|text| Policy::read(&text, &id, now).ok_or_else(|| "cannot be read".into()))
    {
        Ok(policy) => {
            policy.store(&janua.db, domain).await?;
            Ok(Some(policy))
        }
        Err(why) => {
            tracing::info!(domain, why, "an MTA-STS policy cannot be had");
            Ok(known)
        }
    }
}

/// The id in the record, of which there must be one alone.
fn id_of(texts: &[String]) -> Option<String> {
    let mut records = texts.iter().filter(|text| text.starts_with("v=STSv1"));
    let (Some(record), None) = (records.next(), records.next()) else { return None };
    let id = record.split(';').find_map(|field| field.trim().strip_prefix("id="))?.trim();
    let is_good = (1..=32).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_good.then(|| id.to_owned())
}

async fn fetch(janua: &Janua, domain: &str) -> Result<String, String> {
    let mut url =
        Url::parse(&format!("https://mta-sts.{domain}/.well-known/mta-sts.txt")).map_err(|e| e.to_string())?;
    let port = u16::try_from(janua.config.of::<Settings>().email_policy_port).map_err(|e| e.to_string())?;
    url.set_port(Some(port)).map_err(|()| "no port".to_owned())?;
    let call = Call {
        method: Method::GET,
        url,
        headers: HeaderMap::new(),
        body: Bytes::new(),
        limits: Limits { time: FETCH, bytes: LONGEST },
        reach: Reach::Public,
    };
    let reply = janua.outgoing.send(call).await.map_err(|why| why.to_string())?;
    let kind = reply.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if reply.status != 200 || reply.is_cut || !kind.starts_with("text/plain") {
        return Err(format!("its server answers {} {kind}", reply.status));
    }
    String::from_utf8(reply.body.to_vec()).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_names_its_servers() {
        let text = "version: STSv1\r\nmode: enforce\r\nmx: mail.example.com\r\nmx: *.example.net\r\nmax_age: 604800\r\nother: x\r\n";
        let policy = Policy::read(text, "1", Timestamp(0)).unwrap();
        assert!(policy.is_enforced());
        assert_eq!(policy.expires_at, Timestamp(604_800_000));
        for (server, is_named) in [
            ("mail.example.com", true),
            ("a.example.net", true),
            ("a.b.example.net", false),
            ("example.net", false),
            ("evil.example.com", false),
            ("mail.example.com.evil.test", false),
        ] {
            assert_eq!(policy.names(server), is_named, "{server}");
        }
    }

    #[test]
    fn what_is_no_policy_is_not_taken_for_one() {
        for wrong in [
            "",
            "mode: enforce\nversion: STSv1\nmx: a.test\nmax_age: 1\n",
            "version: STSv2\nmode: enforce\nmx: a.test\nmax_age: 1\n",
            "version: STSv1\nmode: strict\nmx: a.test\nmax_age: 1\n",
            "version: STSv1\nmode: enforce\nmax_age: 1\n",
            "version: STSv1\nmode: enforce\nmx: a.test\n",
            "version: STSv1\nmode: enforce\nmx: a.test\nmax_age: 99999999\n",
            "<html>not found</html>",
        ] {
            assert_eq!(Policy::read(wrong, "1", Timestamp(0)), None, "{wrong}");
        }
        assert_eq!(Policy::read("version: STSv1\nmode: none\nmax_age: 1\n", "1", Timestamp(0)).unwrap().mode, "none");
    }

    #[test]
    fn a_record_has_one_id() {
        let id = |texts: &[&str]| id_of(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        assert_eq!(id(&["v=spf1 -all", "v=STSv1; id=20160831085700Z;"]), Some("20160831085700Z".into()));
        assert_eq!(id(&["v=STSv1; id=1;", "v=STSv1; id=2;"]), None);
        assert_eq!(id(&["v=STSv1; id=;"]), None);
        assert_eq!(id(&[]), None);
    }
}
