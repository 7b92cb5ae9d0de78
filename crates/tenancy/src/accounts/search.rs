//! Finding accounts: newest first, or by how the words of a name or the email begin, among a million as among ten.
use db::{Db, FromRow, Row, Tx, params, row};
use kernel::{Janua, clock::Timestamp, fault::Result, http::Key, transact};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    apps::end_users::{Found, MANY, Search, place, words},
    ids::{AccountId, OrgId},
};

/// Whether an account can be signed in to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccountState {
    Active,
    /// The email is not confirmed.
    Unverified,
    Disabled,
}

impl AccountState {
    fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Unverified => "unverified",
            Self::Disabled => "disabled",
        }
    }
}

/// An account in a list.
#[derive(Debug)]
pub struct AccountLine {
    pub id: AccountId,
    pub email: Option<String>,
    pub email_key: Option<String>,
    pub name: String,
    pub avatar_url: Option<String>,
    pub email_verified: bool,
    pub auth_provider: String,
    pub runs_platform: bool,
    pub disabled_at: Option<Timestamp>,
    pub created_at: Timestamp,
    /// As far as sessions are kept.
    pub last_sign_in_at: Option<Timestamp>,
    pub has_second_factor: bool,
    /// Where it stands in the list.
    at: Timestamp,
    word: Option<Vec<u8>>,
    term: usize,
}

impl FromRow for AccountLine {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            email: row.get("email")?,
            email_key: row.get("email_key")?,
            name: row.get("name")?,
            avatar_url: row.get("avatar_url")?,
            email_verified: row.get("email_verified")?,
            auth_provider: row.get("auth_provider")?,
            runs_platform: row.get("runs_platform")?,
            disabled_at: row.get("disabled_at")?,
            created_at: row.get("created_at")?,
            last_sign_in_at: row.get("last_sign_in_at")?,
            has_second_factor: row.get("has_second_factor")?,
            at: row.get("at")?,
            word: row.get("word")?,
            term: 0,
        })
    }
}

/// Which accounts are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    pub state: Option<AccountState>,
    pub org: Option<OrgId>,
}

/// The columns of a line: `$at` is where it stands in its list, `$word` the word it was found by.
macro_rules! line {
    ($at:literal, $word:literal, $from:literal) => {
        concat!(
            "SELECT account.id, account.email, account.email_key, account.name, account.avatar_url,
                    account.email_verified, account.auth_provider, account.runs_platform, account.disabled_at,
                    account.created_at,
                    (SELECT MAX(created_at) FROM session WHERE account_id = account.id) AS last_sign_in_at,
                    (EXISTS (SELECT 1 FROM totp_factor WHERE account_id = account.id AND enabled_at IS NOT NULL)
                     OR EXISTS (SELECT 1 FROM sms_factor WHERE account_id = account.id)
                     OR EXISTS (SELECT 1 FROM passkey WHERE account_id = account.id)) AS has_second_factor, ",
            $at,
            " AS at, ",
            $word,
            " AS word ",
            $from
        )
    };
}

impl AccountLine {
    /// Newest first. Within an organization, who joined last comes first.
    pub async fn page(db: &Db, wanted: Wanted, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        let state = wanted.state.map_or("", AccountState::name);
        if let Some(org) = wanted.org {
            let sql = line!(
                "org_member.joined_at",
                "CAST(NULL AS BYTEA)",
                "FROM org_member JOIN account ON account.id = org_member.account_id
                 WHERE org_member.org_id = $5 AND (org_member.joined_at, org_member.account_id) < ($1, $2)
                   AND ($3 = '' OR $3 = CASE WHEN account.disabled_at IS NOT NULL THEN 'disabled'
                                             WHEN NOT account.email_verified THEN 'unverified' ELSE 'active' END)
                 ORDER BY org_member.joined_at DESC, org_member.account_id DESC LIMIT $4"
            );
            return db.all(sql, params![below.at, &below.id, state, most, org]).await;
        }
        // The rare states have an index each.
        let sql = match wanted.state {
            Some(AccountState::Disabled) => line!(
                "account.created_at",
                "CAST(NULL AS BYTEA)",
                "FROM account WHERE (account.created_at, account.id) < ($1, $2) AND account.disabled_at IS NOT NULL
                 ORDER BY account.created_at DESC, account.id DESC LIMIT $3"
            ),
            Some(AccountState::Unverified) => line!(
                "account.created_at",
                "CAST(NULL AS BYTEA)",
                "FROM account WHERE (account.created_at, account.id) < ($1, $2) AND NOT account.email_verified
                   AND account.disabled_at IS NULL
                 ORDER BY account.created_at DESC, account.id DESC LIMIT $3"
            ),
            Some(AccountState::Active) => line!(
                "account.created_at",
                "CAST(NULL AS BYTEA)",
                "FROM account WHERE (account.created_at, account.id) < ($1, $2) AND account.email_verified
                   AND account.disabled_at IS NULL
                 ORDER BY account.created_at DESC, account.id DESC LIMIT $3"
            ),
            None => line!(
                "account.created_at",
                "CAST(NULL AS BYTEA)",
                "FROM account WHERE (account.created_at, account.id) < ($1, $2)
                 ORDER BY account.created_at DESC, account.id DESC LIMIT $3"
            ),
        };
        db.all(sql, params![below.at, &below.id, most]).await
    }

    /// Accounts for which each term begins a word, in the order of the words that the rarest of the terms found.
    pub async fn search(db: &Db, search: &Search, wanted: Wanted, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        let after = match Found::read(below) {
            Some(after) => after,
            None => start(db, search).await?,
        };
        let [first, second, third] = search.led_by(after.term);
        let sql = line!(
            "account.created_at",
            "hit.word",
            "FROM account_word AS hit JOIN account ON account.id = hit.account_id
             WHERE (hit.word, hit.account_id) > ($1, $2) AND hit.word < $5
               AND ($3 = '' OR $3 = CASE WHEN account.disabled_at IS NOT NULL THEN 'disabled'
                                         WHEN NOT account.email_verified THEN 'unverified' ELSE 'active' END)
               AND ($11 OR EXISTS (SELECT 1 FROM account_word AS other WHERE other.account_id = hit.account_id
                                     AND other.word >= $7 AND other.word < $8))
               AND ($12 OR EXISTS (SELECT 1 FROM account_word AS other WHERE other.account_id = hit.account_id
                                     AND other.word >= $9 AND other.word < $10))
               AND NOT EXISTS (SELECT 1 FROM account_word AS earlier WHERE earlier.account_id = hit.account_id
                                 AND earlier.word >= $4 AND earlier.word < hit.word)
               AND ($13 = '' OR EXISTS (SELECT 1 FROM org_member
                                        WHERE org_member.org_id = $13 AND org_member.account_id = hit.account_id))
             ORDER BY hit.word, hit.account_id LIMIT $6"
        );
        let params = params![
            after.word,
            &after.account,
            wanted.state.map_or("", AccountState::name),
            first.from,
            first.to,
            most,
            second.from,
            second.to,
            third.from,
            third.to,
            search.0.len() < 2,
            search.0.len() < 3,
            wanted.org.map(|org| org.to_string()).unwrap_or_default()
        ];
        let mut found: Vec<Self> = db.all(sql, params).await?;
        for line in &mut found {
            line.term = after.term;
        }
        Ok(found)
    }

    pub fn state(&self) -> AccountState {
        match (self.disabled_at, self.email_verified) {
            (Some(_), _) => AccountState::Disabled,
            (None, true) => AccountState::Active,
            (None, false) => AccountState::Unverified,
        }
    }

    /// Where it stands in its list.
    pub fn key(&self) -> Key {
        match &self.word {
            Some(word) => place(self.term, word, self.id),
            None => Key { at: self.at, id: self.id.to_string() },
        }
    }
}

/// The first page: led by the term that the fewest words begin with.
async fn start(db: &Db, search: &Search) -> db::Result<Found> {
    let (mut rarest, mut least) = (0, i64::MAX);
    for (number, range) in search.0.iter().enumerate().filter(|_| search.0.len() > 1) {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM (
                     SELECT account_id FROM account_word WHERE word >= $1 AND word < $2 LIMIT $3
                   ) AS some_words";
        let (count,): (i64,) = db.one(sql, params![range.from.clone(), range.to.clone(), MANY]).await?;
        if count < least {
            (rarest, least) = (number, count);
        }
    }
    Ok(Found { term: rarest, word: search.0[rarest].from.clone(), account: String::new() })
}

struct SearchedFields {
    name: String,
    email_key: Option<String>,
}
row!(SearchedFields { name, email_key });

/// Writes what an account is found by.
pub(crate) async fn note(tx: &mut Tx, account: AccountId) -> db::Result<()> {
    let sql = "SELECT name, email_key FROM account WHERE id = $1";
    let Some(known) = tx.opt::<SearchedFields>(sql, params![account]).await? else { return Ok(()) };
    let words = words(Some(&known.name), known.email_key.as_deref());
    tx.send("DELETE FROM account_word WHERE account_id = $1", params![account]).await?;
    for word in words {
        let sql = "INSERT INTO account_word (word, account_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        tx.send(sql, params![word, account]).await?;
    }
    tx.send("UPDATE account SET has_words = TRUE WHERE id = $1 AND NOT has_words", params![account]).await
}

/// So many in one transaction.
const BATCH: u32 = 200;

/// Goes through the accounts from before words were written, or by a node that does not know of them.
pub(crate) async fn note_wordless(janua: &Janua) -> Result<()> {
    loop {
        let sql = "SELECT id FROM account WHERE NOT has_words ORDER BY id LIMIT $1";
        let wordless: Vec<(AccountId,)> = janua.db.all(sql, params![BATCH]).await?;
        if wordless.is_empty() {
            return Ok(());
        }
        transact!(janua, async |tx| {
            for (account,) in &wordless {
                note(tx, *account).await?;
            }
            Ok(())
        })?;
    }
}
