//! Everybody at the door is weighed before a handler runs: how often, how many failures, how many accounts, how much
//! like a program. The counts are in the database, so that a restart or another node forgets nothing.
use std::{
    collections::HashSet,
    sync::{Arc, LazyLock},
    time::Duration,
};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, header, request::Parts},
};
use kernel::{
    App,
    clock::Timestamp,
    crypto::Secret,
    db::{self, Db, Tx},
    fault::{Fault, RATE_LIMITED, Result},
    http::{Client, GenContext, Key, Operation, OperationInput, may_answer},
    id::Id,
    params, row,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    app::{INVALID_APP_KEY, presented as app_key},
    captcha::{CAPTCHA_REQUIRED, Captcha, PASS},
    cookies,
};
use crate::{accounts::AccountId, apps::Keyed, email::Email, events::By, sign_in::ACCOUNT_CLOSED};

/// Failures older than this do not count.
const WINDOW: Duration = Duration::from_mins(15);
/// A captcha is asked for from this many failures on one address, and nothing is tried past the second number.
const ACCOUNT_SUSPICIOUS: i64 = 5;
const ACCOUNT_LOCKED: i64 = 10;
/// The same for a network; and how many different addresses it may fail on.
const NETWORK_SUSPICIOUS: i64 = 20;
const NETWORK_LOCKED: i64 = 200;
const NETWORK_ACCOUNTS: i64 = 10;
/// From this score on a captcha is asked for.
const SUSPICIOUS: i64 = 100;

/// Somebody who is not signed in: where they come from and how they stand.
pub struct Visitor {
    pub by: By,
    pub client: Client,
    pub user_agent: String,
    /// The mark of a device on which the second factor was proven, if it has one.
    pub trusted_device: Option<Secret>,
    /// The app the visitor comes in through, if they brought its key.
    pub app: Option<Arc<Keyed>>,
    route: String,
    pass: Option<Secret>,
}

impl FromRequestParts<App> for Visitor {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let client = Client::from_request_parts(parts, app).await?;
        let keyed = app_key(app, &parts.headers).await?;
        let by = from_where(client, parts.headers.get(header::USER_AGENT));
        let by = By { app: keyed.as_ref().map(|keyed| keyed.app_id), ..by };
        let user_agent = by.user_agent.clone().unwrap_or_default();
        let route = parts.uri.path().to_owned();
        let pass = parts.headers.get(PASS).and_then(|value| value.to_str().ok()).map(|text| text.to_owned().into());
        let trusted_device = trusted_device(app, client, &parts.headers);
        Ok(Self { by, client, user_agent, trusted_device, app: keyed, route, pass })
    }
}

impl OperationInput for Visitor {
    fn operation_input(_: &mut GenContext, operation: &mut Operation) {
        may_answer(operation, &[CAPTCHA_REQUIRED, RATE_LIMITED, INVALID_APP_KEY, ACCOUNT_CLOSED]);
    }
}

pub(super) fn from_where(client: Client, user_agent: Option<&HeaderValue>) -> By {
    By { ip: Some(client.address.to_string()), user_agent: Some(readable(user_agent)), ..By::default() }
}

/// From the cookie, or from the header a proxy of ours made of it. Anybody else's header is not looked at.
fn trusted_device(app: &App, client: Client, headers: &HeaderMap) -> Option<Secret> {
    let by_proxy = || headers.get("x-service-mfa-trusted").and_then(|value| value.to_str().ok());
    let told = cookies::read_strictly(app, headers, cookies::TRUSTED);
    told.or_else(|| client.by_our_proxy.then(by_proxy).flatten().map(|text| text.to_owned().into()))
}

/// What a browser calls itself, as far as it can be shown.
fn readable(user_agent: Option<&HeaderValue>) -> String {
    let sent = user_agent.map(|value| String::from_utf8_lossy(value.as_bytes()));
    sent.unwrap_or_default().chars().filter(|c| !c.is_control()).take(400).collect()
}

/// How somebody stands with regard to one address.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    account: i64,
    network: i64,
    accounts: i64,
}

struct Counts {
    account: Option<i64>,
    network: Option<i64>,
    accounts: Option<i64>,
}
row!(Counts { account, network, accounts });

struct Counted {
    subject: String,
    detail: String,
    strikes: i64,
}
row!(Counted { subject, detail, strikes });

const ONE_LESS: &str = "UPDATE strike SET strikes = strikes - 1 WHERE subject = $1 AND detail = '' AND strikes > 0";

/// A try that counts as failed unless it is forgiven.
#[must_use]
pub struct Attempt {
    account: String,
    network: String,
    is_counted: bool,
    /// Whether, should it fail, no more are tried for a while.
    pub is_last: bool,
}

impl Attempt {
    /// The secret was right: the address is cleared, and the network is where it was before.
    pub async fn forgive(&self, tx: &mut Tx) -> db::Result<()> {
        if !self.is_counted {
            return Ok(());
        }
        // In the order in which they are counted, so that two who wait for each other's rows cannot be.
        tx.send("DELETE FROM strike WHERE subject = $1", params![&self.account]).await?;
        tx.send(ONE_LESS, params![&self.network]).await?;
        let sql = "DELETE FROM strike WHERE subject = $1 AND detail = $2";
        tx.send(sql, params![&self.network, &self.account]).await
    }

    /// The secret was right: this try alone is taken back. For where a right one is had by whoever guesses at others.
    pub async fn forgive_one(&self, tx: &mut Tx) -> db::Result<()> {
        if !self.is_counted {
            return Ok(());
        }
        tx.send(ONE_LESS, params![&self.account]).await?;
        tx.send(ONE_LESS, params![&self.network]).await
    }
}

impl Visitor {
    /// Who solved a challenge on a page brings the pass with the form.
    pub fn bring(&mut self, pass: Secret) {
        self.pass = Some(pass);
    }

    /// Lets the visitor try, asks for a proof of work, or sends them away. `email` is the address they name.
    pub async fn admit(&self, app: &App, email: Option<&Email>) -> Result<()> {
        if !app.config.rate_limits.is_on() {
            return Ok(());
        }
        let standing = self.standing(app, email).await?;
        if standing.account >= ACCOUNT_LOCKED || standing.network >= NETWORK_LOCKED {
            return Err(Fault::from(RATE_LIMITED).retry_after(WINDOW));
        }
        let (score, reasons) = self.score(standing, email);
        if score < SUSPICIOUS {
            return Ok(());
        }
        self.report(app, score, &reasons).await?;
        match &self.pass {
            Some(pass) if Captcha::accept(app, pass, &self.route).await? => Ok(()),
            _ => Err(Captcha::demand(app, &self.route)),
        }
    }

    /// As [`admit`](Self::admit), for one try at a secret. It is counted against the address, the network and the pair
    /// of both before the secret is looked at, so that many tries at once are as many tries.
    pub async fn attempt(&self, app: &App, email: &Email) -> Result<Attempt> {
        self.admit(app, Some(email)).await?;
        self.count(app, subject(app, "account", email.key())).await
    }

    /// One try at the code in a mail. A right password says nothing about it.
    pub async fn attempt_mailed_code(&self, app: &App, email: &Email) -> Result<Attempt> {
        self.admit(app, Some(email)).await?;
        self.count(app, subject(app, "mailed-code", email.key())).await
    }

    /// One try at a second factor. All doors at which a factor can be proven count together.
    pub async fn attempt_factor(&self, app: &App, account: AccountId) -> Result<Attempt> {
        self.admit(app, None).await?;
        self.count(app, subject(app, "factor", &account.to_string())).await
    }

    /// One try at the code a device shows.
    pub async fn attempt_device(&self, app: &App, account: AccountId) -> Result<Attempt> {
        self.admit(app, None).await?;
        self.count(app, subject(app, "device", &account.to_string())).await
    }

    async fn count(&self, app: &App, account: String) -> Result<Attempt> {
        let network = subject(app, "network", &self.client.network().to_string());
        let (mut is_last, is_counted) = (false, app.config.rate_limits.is_on());
        if is_counted {
            let now = app.clock.now();
            let counted: Vec<Counted> = app
                .db
                .put(
                    "INSERT INTO strike (subject, detail, strikes, last_at)
                     VALUES ($1, '', 1, $3), ($2, '', 1, $3), ($2, $1, 1, $3)
                     ON CONFLICT (subject, detail) DO UPDATE SET last_at = $3,
                       strikes = CASE WHEN strike.last_at < $4 THEN 1 ELSE strike.strikes + 1 END
                     RETURNING subject, detail, strikes",
                    params![&account, &network, now, now.minus(WINDOW)],
                )
                .await?;
            let is_over = |count: &Counted| {
                let most = if count.subject == account { ACCOUNT_LOCKED } else { NETWORK_LOCKED };
                count.detail.is_empty() && count.strikes > most
            };
            if counted.iter().any(is_over) {
                return Err(Fault::from(RATE_LIMITED).retry_after(WINDOW));
            }
            is_last = counted.iter().any(|count| count.subject == account && count.strikes == ACCOUNT_LOCKED);
        }
        Ok(Attempt { account, network, is_counted, is_last })
    }

    async fn standing(&self, app: &App, email: Option<&Email>) -> db::Result<Standing> {
        let since = app.clock.now().minus(WINDOW);
        let account = email.map(|email| subject(app, "account", email.key())).unwrap_or_default();
        let network = subject(app, "network", &self.client.network().to_string());
        let counts: Counts = app
            .db
            .one(
                "SELECT (SELECT strikes FROM strike WHERE subject = $1 AND detail = '' AND last_at >= $3) AS account,
                        (SELECT strikes FROM strike WHERE subject = $2 AND detail = '' AND last_at >= $3) AS network,
                        (SELECT CAST(COUNT(*) AS BIGINT) FROM strike
                          WHERE subject = $2 AND detail <> '' AND last_at >= $3) AS accounts",
                params![account, network, since],
            )
            .await?;
        Ok(Standing {
            account: counts.account.unwrap_or(0),
            network: counts.network.unwrap_or(0),
            accounts: counts.accounts.unwrap_or(0),
        })
    }

    /// How suspicious this is, and why.
    fn score(&self, standing: Standing, email: Option<&Email>) -> (i64, Vec<&'static str>) {
        let looks_automatic = is_program(&self.user_agent);
        let is_disposable = email.is_some_and(|email| is_disposable(email.domain()));
        let signs = [
            (standing.account >= ACCOUNT_SUSPICIOUS, 100, "many failures on one account"),
            (standing.network >= NETWORK_SUSPICIOUS, 100, "many failures from one network"),
            (standing.accounts >= NETWORK_ACCOUNTS, 100, "many accounts tried from one network"),
            (standing.network >= NETWORK_SUSPICIOUS / 2, 50, "failures from one network"),
            (looks_automatic && standing.network > 0, 30, "looks like a program"),
            (is_disposable, 50, "a disposable address"),
        ];
        let found = signs.into_iter().filter(|(is_so, ..)| *is_so);
        found.fold((0, vec![]), |(score, mut reasons), (_, weight, reason)| {
            reasons.push(reason);
            (score + weight, reasons)
        })
    }

    async fn report(&self, app: &App, score: i64, reasons: &[&str]) -> db::Result<()> {
        let now = app.clock.now();
        let reasons: Vec<String> = reasons.iter().map(|reason| (*reason).to_owned()).collect();
        app.db
            .exec(
                "INSERT INTO abuse_report (id, kind, subject, score, reasons, route, seen, first_at, last_at)
                 VALUES ($1, 'network', $2, $3, $4, $5, 1, $6, $6)
                 ON CONFLICT (kind, subject) DO UPDATE SET
                   score = CASE WHEN $3 > abuse_report.score THEN $3 ELSE abuse_report.score END,
                   reasons = $4, route = $5, seen = abuse_report.seen + 1, last_at = $6",
                params![
                    Id::<AbuseReport>::new(&app.entropy, now),
                    self.client.network().to_string(),
                    score,
                    &reasons,
                    &self.route,
                    now
                ],
            )
            .await?;
        Ok(())
    }
}

/// Addresses are counted by a keyed digest: the table tells nobody who was tried.
fn subject(app: &App, kind: &str, value: &str) -> String {
    format!("{kind}:{}", &app.vault.mac("strike", value.as_bytes())[..32])
}

/// What libraries and scanners call themselves; a person's browser does not.
fn is_program(user_agent: &str) -> bool {
    let lower = user_agent.to_lowercase();
    let names =
        ["curl", "wget", "python", "go-http", "java/", "libwww", "scrapy", "headless", "phantom", "httpclient"];
    lower.is_empty() || names.iter().any(|name| lower.contains(name))
}

/// Whether this is one of the services that give out addresses for ten minutes, or a part of one.
fn is_disposable(domain: &str) -> bool {
    // The library itself goes through its tens of thousands of names one by one, each time.
    static KNOWN: LazyLock<HashSet<&str>> = LazyLock::new(|| mailchecker::blacklist().into_iter().collect());
    let mut name = Some(domain);
    while let Some(part) = name.filter(|part| part.contains('.')) {
        if KNOWN.contains(part) {
            return true;
        }
        name = part.split_once('.').map(|(_, parent)| parent);
    }
    false
}

/// What was noticed, for the people who run the platform.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AbuseReport {
    pub id: Id<AbuseReport>,
    /// What was noticed: `network`.
    pub kind: String,
    /// The network (an IPv4 address or an IPv6 /64).
    pub subject: String,
    pub score: i64,
    pub reasons: Vec<String>,
    /// Where it was noticed last.
    pub route: String,
    /// How often.
    pub seen: i64,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
}
row!(AbuseReport { id, kind, subject, score, reasons, route, seen, first_at, last_at });

pub async fn abuse_reports(db: &Db, below: &Key, most: u32) -> db::Result<Vec<AbuseReport>> {
    db.all(
        "SELECT id, kind, subject, score, reasons, route, seen, first_at, last_at FROM abuse_report
         WHERE (last_at, id) < ($1, $2) ORDER BY last_at DESC, id DESC LIMIT $3",
        params![below.at, &below.id, most],
    )
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throwaway_addresses_are_known_and_nobody_elses() {
        for throwaway in ["mailinator.com", "yopmail.com", "inbox.mailinator.com"] {
            assert!(is_disposable(throwaway), "{throwaway}");
        }
        for honest in ["gmail.com", "example.com", "outlook.com", "com", ""] {
            assert!(!is_disposable(honest), "{honest}");
        }
    }
}
