//! Abuse protection. Every visitor is rated before a handler runs, by requests, failures, number of accounts, and
//! signs of a script. The counts are in the database, so that they survive a restart and hold on all nodes.
use std::{collections::HashSet, sync::LazyLock, time::Duration};

use db::{Tx, params, row};
use kernel::{
    Janua,
    crypto::Secret,
    fault::{Fault, RATE_LIMITED, Result},
    http::NETWORKS_OF_A_SITE,
};

use super::{abuse_reports, captcha::Captcha, visitor::Visitor};
use crate::{accounts::factors, email::Email, ids::AccountId, sessions::StoredSession};

/// Failures older than this do not count.
const WINDOW: Duration = Duration::from_mins(15);
/// Wrong passwords for one account from one network. From the first number on a captcha is required; after the
/// second, tries are refused. A trusted device has a count of its own, up to the second number.
const PAIR_SUSPICIOUS: i64 = 5;
const PAIR_LOCKED: i64 = 10;
/// Wrong passwords for one account from all networks. From here on a network that the user never signed in from needs
/// a captcha, which grows harder. No number of them locks the account.
const ACCOUNT_SUSPICIOUS: i64 = 5;
/// Wrong passwords for one account after which the user gets a warning by mail.
const ACCOUNT_TOLD: i64 = 10;
/// Numbers of wrong passwords for one account at which the captcha becomes twice as hard.
const HARDER: [i64; 4] = [10, 20, 50, 100];
/// Wrong codes for one account from one network. Further tries are refused until the window ends.
const PAIR_CODES: i64 = 10;
/// Wrong codes for one account in a day (UTC): from all unknown networks together, and from each network that the
/// user signed in from. So an attacker elsewhere cannot use up the user's own tries.
const STRANGERS_CODES: i64 = 20;
const KNOWN_CODES: i64 = 50;
const DAY_MS: i64 = 86_400_000;
/// Failures of one network over all accounts; and how many different accounts it may fail on.
const NETWORK_SUSPICIOUS: i64 = 20;
const NETWORK_LOCKED: i64 = 200;
const NETWORK_ACCOUNTS: i64 = 10;
/// From this score on a captcha is required.
const SUSPICIOUS: i64 = 100;

/// The failure counts of a network for one account. Failures of the /48 around it count one sixteenth.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Failures for the account from this network.
    pair: i64,
    /// Failures for the account from everywhere; of codes, those of the day that count together with this one.
    account: i64,
    /// Failures of the network for any account.
    network: i64,
    /// How many accounts the network failed on.
    accounts: i64,
}

impl Standing {
    /// Adds the failures of the /48.
    fn within(self, site: Self) -> Self {
        let share = |figure: i64| figure / i64::from(NETWORKS_OF_A_SITE);
        Self {
            pair: self.pair.max(share(site.pair)),
            account: self.account,
            network: self.network.max(share(site.network)),
            accounts: self.accounts.max(share(site.accounts)),
        }
    }
}

struct Counts {
    pair: Option<i64>,
    account: Option<i64>,
    network: Option<i64>,
    accounts: Option<i64>,
}
row!(Counts { pair, account, network, accounts });

struct Counted {
    subject: String,
    detail: String,
    strikes: i64,
}
row!(Counted { subject, detail, strikes });

const ONE_LESS: &str = "UPDATE strike SET strikes = strikes - 1 WHERE subject = $1 AND detail = $2 AND strikes > 0";

/// Counts one failure: for the account, the network, the pair of both. Counts of a day are kept for the whole day.
const COUNT: &str = "INSERT INTO strike (subject, detail, strikes, last_at)
    VALUES ($1, $5, 1, $3), ($2, '', 1, $3), ($2, $1, 1, $3)
    ON CONFLICT (subject, detail) DO UPDATE SET last_at = $3,
      strikes = CASE WHEN strike.last_at < $4 AND strike.detail NOT LIKE 'day:%' THEN 1 ELSE strike.strikes + 1 END
    RETURNING subject, detail, strikes";
/// The same, and for the /48 around the network.
const COUNT_WITH_SITE: &str = "INSERT INTO strike (subject, detail, strikes, last_at)
    VALUES ($1, $5, 1, $3), ($2, '', 1, $3), ($2, $1, 1, $3), ($6, '', 1, $3), ($6, $1, 1, $3)
    ON CONFLICT (subject, detail) DO UPDATE SET last_at = $3,
      strikes = CASE WHEN strike.last_at < $4 AND strike.detail NOT LIKE 'day:%' THEN 1 ELSE strike.strikes + 1 END
    RETURNING subject, detail, strikes";

/// A try that counts as failed unless it is forgiven.
#[must_use]
pub struct Attempt {
    against: Against,
    /// Whether the user gets a warning if this try fails.
    pub is_last: bool,
}

/// The subject that a try counts against.
enum Against {
    Nothing,
    /// A trusted device.
    Device(String),
    /// An account and the network the try came from, with the /48 around it.
    Account {
        account: String,
        /// The key of the account's count: empty for passwords, the day for codes.
        detail: String,
        networks: Vec<String>,
    },
}

impl Attempt {
    /// The secret was right: resets the counts of this network. Failures from elsewhere stay counted; otherwise an
    /// attacker would get more tries with every sign-in of the user.
    pub async fn forgive(&self, tx: &mut Tx) -> db::Result<()> {
        match &self.against {
            Against::Nothing => Ok(()),
            Against::Device(device) => tx.send("DELETE FROM strike WHERE subject = $1", params![device]).await,
            Against::Account { account, networks, .. } => {
                self.forgive_one(tx).await?;
                let network = networks.first().map(String::as_str).unwrap_or_default();
                tx.send("DELETE FROM strike WHERE subject = $1 AND detail = $2", params![network, account]).await
            }
        }
    }

    /// The secret was right: takes back this try alone. For secrets that an attacker can have a right one of while
    /// guessing others.
    pub async fn forgive_one(&self, tx: &mut Tx) -> db::Result<()> {
        match &self.against {
            Against::Nothing => Ok(()),
            Against::Device(device) => tx.send(ONE_LESS, params![device, ""]).await,
            Against::Account { account, detail, networks } => {
                // Same lock order as `count`, to avoid deadlocks.
                tx.send(ONE_LESS, params![account, detail]).await?;
                for network in networks {
                    tx.send(ONE_LESS, params![network, ""]).await?;
                    tx.send(ONE_LESS, params![network, account]).await?;
                }
                Ok(())
            }
        }
    }
}

impl Visitor {
    /// Admits the visitor, or requires a captcha if the network is suspicious. `email` is the one in the request.
    /// Wrong passwords for it do not count here: they must not block password recovery or sign-in links.
    pub async fn admit(&self, janua: &Janua, email: Option<&Email>) -> Result<()> {
        if !janua.config.rate_limits.is_on() {
            return Ok(());
        }
        let standing = self.standing(janua, "", "").await?;
        let standing = standing.within(self.standing_of_site(janua, "").await?);
        self.weigh(janua, standing, email, 0).await.map(drop)
    }

    /// Requires a captcha if the visitor is suspicious or a level is given; answers whether a captcha was solved.
    async fn weigh(&self, janua: &Janua, standing: Standing, email: Option<&Email>, level: u32) -> Result<bool> {
        let (score, mut reasons) = self.score(standing, email);
        if score < SUSPICIOUS && level == 0 {
            return Ok(false);
        }
        if level > 0 {
            reasons.push("many failures on one account");
        }
        abuse_reports::report(janua, self, score.max(SUSPICIOUS), &reasons).await?;
        let level = level.max(1);
        match &self.pass {
            Some(pass) if Captcha::accept(janua, pass, &self.route, level).await? => Ok(true),
            _ => Err(Captcha::demand(janua, &self.route, level)),
        }
    }

    /// One try at a password. It is counted before the password is checked, so that concurrent tries all count: for
    /// the network, the account, and the pair of both. Only the pair or the network can be blocked. An attacker with
    /// many networks gets harder and harder captchas, while the user can sign in from known networks.
    pub async fn attempt(&self, janua: &Janua, email: &Email) -> Result<Attempt> {
        if !janua.config.rate_limits.is_on() {
            return Ok(Attempt { against: Against::Nothing, is_last: false });
        }
        if let Some(mark) = &self.trusted_device
            && factors::is_trusted_by(janua, email, mark, self).await?
        {
            return self.attempt_on_device(janua, email, mark).await;
        }
        let account = subject(janua, "account", email.key());
        let standing = self.standing(janua, &account, "").await?;
        let standing = match self.standing_of_site(janua, &account).await? {
            site if site == Standing::default() => standing,
            // Failures of the same /48 do not count for a network that the user signed in from.
            _ if StoredSession::knows_network(&janua.db, email.key(), self.client.network()).await? => standing,
            site => standing.within(site),
        };
        if standing.pair >= PAIR_LOCKED || standing.network >= NETWORK_LOCKED {
            return Err(Fault::from(RATE_LIMITED).retry_after(WINDOW));
        }
        let level = self.level(janua, email, standing.account).await?;
        let has_worked = self.weigh(janua, standing, Some(email), level).await?;
        let counted = self.count(janua, &account, "").await?;
        if counted.pair > PAIR_LOCKED || counted.network > NETWORK_LOCKED {
            return Err(Fault::from(RATE_LIMITED).retry_after(WINDOW));
        }
        // Concurrent tries all saw the old counts, so check again.
        if !has_worked {
            let level = self.level(janua, email, counted.account - 1).await?;
            if counted.pair > PAIR_SUSPICIOUS || level > 0 {
                return Err(Captcha::demand(janua, &self.route, level));
            }
        }
        let is_last = counted.pair == PAIR_LOCKED || counted.account == ACCOUNT_TOLD;
        let against = Against::Account { account, detail: String::new(), networks: self.networks(janua) };
        Ok(Attempt { against, is_last })
    }

    /// The level of the captcha that failures from other networks cause; none for a network that the user signed in
    /// from.
    async fn level(&self, janua: &Janua, email: &Email, failures: i64) -> Result<u32> {
        if failures < ACCOUNT_SUSPICIOUS
            || StoredSession::knows_network(&janua.db, email.key(), self.client.network()).await?
        {
            return Ok(0);
        }
        let harder = HARDER.iter().filter(|from| failures >= **from).count();
        Ok(1 + u32::try_from(harder).unwrap_or_default())
    }

    /// A trusted device is not affected by failures elsewhere, and has as many tries as a network.
    async fn attempt_on_device(&self, janua: &Janua, email: &Email, mark: &Secret) -> Result<Attempt> {
        let device = subject(janua, "trusted", &format!("{}\n{}", email.key(), mark.expose()));
        let now = janua.clock.now();
        let counted: Vec<Counted> = janua
            .db
            .put(
                "INSERT INTO strike (subject, detail, strikes, last_at) VALUES ($1, '', 1, $2)
                 ON CONFLICT (subject, detail) DO UPDATE SET last_at = $2,
                   strikes = CASE WHEN strike.last_at < $3 THEN 1 ELSE strike.strikes + 1 END
                 RETURNING subject, detail, strikes",
                params![&device, now, now.minus(WINDOW)],
            )
            .await?;
        let strikes = counted.first().map_or(0, |counted| counted.strikes);
        if strikes > PAIR_LOCKED {
            return Err(Fault::from(RATE_LIMITED).retry_after(WINDOW));
        }
        Ok(Attempt { against: Against::Device(device), is_last: strikes == PAIR_LOCKED })
    }

    /// One try at the code in a mail. A right password does not reset its count.
    pub async fn attempt_mailed_code(&self, janua: &Janua, email: &Email) -> Result<Attempt> {
        self.admit(janua, Some(email)).await?;
        let is_known = StoredSession::knows_network(&janua.db, email.key(), self.client.network()).await?;
        self.attempt_code(janua, subject(janua, "mailed-code", email.key()), is_known).await
    }

    /// One try at a second factor. All routes that check a factor share the count.
    pub async fn attempt_factor(&self, janua: &Janua, account: AccountId) -> Result<Attempt> {
        self.admit(janua, None).await?;
        let is_known = StoredSession::knows_network_of(&janua.db, account, self.client.network()).await?;
        self.attempt_code(janua, subject(janua, "factor", &account.to_string()), is_known).await
    }

    /// One try at the code a device shows.
    pub async fn attempt_device(&self, janua: &Janua, account: AccountId) -> Result<Attempt> {
        self.admit(janua, None).await?;
        let is_known = StoredSession::knows_network_of(&janua.db, account, self.client.network()).await?;
        self.attempt_code(janua, subject(janua, "device", &account.to_string()), is_known).await
    }

    /// A code is short, so the total number of tries is bounded. Codes are checked only after another proof, except
    /// for the code in a mail, which also has a link. A blocked try is not counted, because it would prolong the
    /// block.
    async fn attempt_code(&self, janua: &Janua, account: String, is_known: bool) -> Result<Attempt> {
        if !janua.config.rate_limits.is_on() {
            return Ok(Attempt { against: Against::Nothing, is_last: false });
        }
        let (day, day_left) =
            (janua.clock.now().0.div_euclid(DAY_MS), DAY_MS - janua.clock.now().0.rem_euclid(DAY_MS));
        let (detail, of_day) = if is_known {
            (format!("day:{day}:{}", self.network(janua)), KNOWN_CODES)
        } else {
            (format!("day:{day}"), STRANGERS_CODES)
        };
        let mut standing = self.standing(janua, &account, &detail).await?;
        if !is_known {
            standing = standing.within(self.standing_of_site(janua, &account).await?);
        }
        if standing.account >= of_day {
            let wait = Duration::from_millis(u64::try_from(day_left).unwrap_or_default());
            return Err(Fault::from(RATE_LIMITED).retry_after(wait));
        }
        if standing.pair >= PAIR_CODES || standing.network >= NETWORK_LOCKED {
            return Err(Fault::from(RATE_LIMITED).retry_after(WINDOW));
        }
        let counted = self.count(janua, &account, &detail).await?;
        let against = Against::Account { account, detail, networks: self.networks(janua) };
        let attempt = Attempt { against, is_last: false };
        // Concurrent tries all saw the old counts, so check again. A refused try is taken back.
        if counted.account > of_day || counted.pair > PAIR_CODES || counted.network > NETWORK_LOCKED {
            db::aside(async { db::transact!(janua.db, async |tx| attempt.forgive_one(tx).await) }).await?;
            return Err(Fault::from(RATE_LIMITED).retry_after(WINDOW));
        }
        Ok(attempt)
    }

    fn network(&self, janua: &Janua) -> String {
        subject(janua, "network", &self.client.network().to_string())
    }

    fn site(&self, janua: &Janua) -> Option<String> {
        self.client.site().map(|site| subject(janua, "site", &site.to_string()))
    }

    /// The networks that a try counts for, the smallest first.
    fn networks(&self, janua: &Janua) -> Vec<String> {
        std::iter::once(self.network(janua)).chain(self.site(janua)).collect()
    }

    /// Counts one failure, and answers how many there are now.
    async fn count(&self, janua: &Janua, account: &str, detail: &str) -> Result<Standing> {
        let (now, network) = (janua.clock.now(), self.network(janua));
        let since = now.minus(WINDOW);
        let counted: Vec<Counted> = match self.site(janua) {
            None => janua.db.put(COUNT, params![account, &network, now, since, detail]).await?,
            Some(site) => {
                janua.db.put(COUNT_WITH_SITE, params![account, &network, now, since, detail, &site]).await?
            }
        };
        let of = |subject: &str, detail: &str| {
            let found = counted.iter().find(|counted| counted.subject == subject && counted.detail == detail);
            found.map_or(0, |counted| counted.strikes)
        };
        let (pair, network) = (of(&network, account), of(&network, ""));
        Ok(Standing { pair, account: of(account, detail), network, accounts: 0 })
    }

    async fn standing(&self, janua: &Janua, account: &str, detail: &str) -> db::Result<Standing> {
        Self::standing_in(janua, account, detail, &self.network(janua)).await
    }

    /// The counts of the /48; none for IPv4.
    async fn standing_of_site(&self, janua: &Janua, account: &str) -> db::Result<Standing> {
        match self.site(janua) {
            Some(site) => Self::standing_in(janua, account, "", &site).await,
            None => Ok(Standing::default()),
        }
    }

    async fn standing_in(janua: &Janua, account: &str, detail: &str, network: &str) -> db::Result<Standing> {
        let since = janua.clock.now().minus(WINDOW);
        let counts: Counts = janua
            .db
            .one(
                "SELECT (SELECT strikes FROM strike WHERE subject = $1 AND detail = $4
                          AND (last_at >= $3 OR detail LIKE 'day:%')) AS account,
                        (SELECT strikes FROM strike WHERE subject = $2 AND detail = '' AND last_at >= $3) AS network,
                        (SELECT strikes FROM strike WHERE subject = $2 AND detail = $1 AND detail <> ''
                          AND last_at >= $3) AS pair,
                        (SELECT CAST(COUNT(*) AS BIGINT) FROM strike
                          WHERE subject = $2 AND detail <> '' AND strikes > 0 AND last_at >= $3) AS accounts",
                params![account, network, since, detail],
            )
            .await?;
        Ok(Standing {
            pair: counts.pair.unwrap_or(0),
            account: counts.account.unwrap_or(0),
            network: counts.network.unwrap_or(0),
            accounts: counts.accounts.unwrap_or(0),
        })
    }

    /// The score of the request, and the reasons.
    fn score(&self, standing: Standing, email: Option<&Email>) -> (i64, Vec<&'static str>) {
        let looks_automatic = is_program(&self.user_agent);
        let is_disposable = email.is_some_and(|email| is_disposable(email.domain()));
        let signs = [
            (standing.pair >= PAIR_SUSPICIOUS, 100, "many failures on one account"),
            (standing.network >= NETWORK_SUSPICIOUS, 100, "many failures from one network"),
            (standing.accounts >= NETWORK_ACCOUNTS, 100, "many accounts tried from one network"),
            (standing.network >= NETWORK_SUSPICIOUS / 2, 50, "failures from one network"),
            (looks_automatic && standing.network > 0, 30, "looks like a program"),
            (is_disposable, 50, "a disposable email"),
        ];
        let found = signs.into_iter().filter(|(is_so, ..)| *is_so);
        found.fold((0, vec![]), |(score, mut reasons), (_, weight, reason)| {
            reasons.push(reason);
            (score + weight, reasons)
        })
    }
}

/// Emails are stored as keyed hashes, so that the table does not reveal them.
fn subject(janua: &Janua, kind: &str, value: &str) -> String {
    format!("{kind}:{}", &janua.vault.mac("strike", value.as_bytes())[..32])
}

/// User agents of libraries and scanners.
fn is_program(user_agent: &str) -> bool {
    let lower = user_agent.to_lowercase();
    let names =
        ["curl", "wget", "python", "go-http", "java/", "libwww", "scrapy", "headless", "phantom", "httpclient"];
    lower.is_empty() || names.iter().any(|name| lower.contains(name))
}

/// Whether this is the domain of a disposable email service, or below one.
fn is_disposable(domain: &str) -> bool {
    // The library searches its tens of thousands of names linearly.
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
