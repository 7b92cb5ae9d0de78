//! End users of an app: the list, and a search that is fast among a million.
//!
//! The words of a user's name and email, as far as the app may know them, are stored beside the user. A search is
//! then a range of words, in their order, so that it costs what a page costs.
use std::collections::BTreeSet;

use data_encoding::HEXLOWER;
use db::{Composed, Db, FromRow, Read, Row, Tx, params, row};
use kernel::{Janua, clock::Timestamp, fault::Result, http::Key, transact};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    apps::scopes::{Scope, Scopes},
    ids::{AccountId, ApplicationId},
};

/// A name may have hundreds of words; the words after these are not searched.
const MOST_WORDS: usize = 12;
/// How much of a word counts, in characters.
const WORD_LENGTH: usize = 64;
/// How many words of a search count.
const TERMS: usize = 3;

/// An end user of an app.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndUser {
    pub id: AccountId,
    pub email: Option<String>,
    pub name: String,
    pub avatar_url: Option<String>,
    pub email_verified: bool,
    pub first_sign_in_at: Timestamp,
    pub last_sign_in_at: Timestamp,
    /// Since when the person is blocked from the app.
    pub blocked_at: Option<Timestamp>,
}
row!(EndUser { id, email, name, avatar_url, email_verified, first_sign_in_at, last_sign_in_at, blocked_at });

/// A user that a search found, and the word that matched.
#[derive(Debug)]
pub struct Hit {
    pub user: EndUser,
    word: Vec<u8>,
    /// The term that found it, by number.
    term: usize,
}

impl FromRow for Hit {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Ok(Self { word: row.get("word")?, user: EndUser::from_row(row)?, term: 0 })
    }
}

/// The columns of end users that an app may know. `$column` is one more column of the result, `$inner` its name
/// inside, and `$from` the rest of the statement.
macro_rules! known {
    ($column:literal, $inner:literal, $from:literal) => {
        concat!(
            "SELECT id, first_sign_in_at, last_sign_in_at, blocked_at",
            $column,
            ",      CASE WHEN tells_email THEN email END AS email, tells_email AND email_verified AS email_verified,
                    CASE WHEN tells_name THEN name ELSE '' END AS name,
                    CASE WHEN tells_name THEN avatar_url END AS avatar_url
             FROM (SELECT account.id, account.email, account.name, account.avatar_url, account.email_verified,
                          app_user.first_sign_in_at, app_user.last_sign_in_at, app_user.app_id, app_user.account_id,
                          app_user.blocked_at,
                          app_user.scopes IS NULL OR app_user.scopes LIKE '%email%' AS tells_email,
                          app_user.scopes IS NULL OR app_user.scopes LIKE '%profile%' AS tells_name",
            $inner,
            " ",
            $from
        )
    };
}

impl EndUser {
    /// Lists end users, the latest sign-in first.
    pub async fn page(db: &Db, application: ApplicationId, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            known!(
                "",
                "",
                "FROM app_user JOIN account ON account.id = app_user.account_id) AS known
                 WHERE app_id = $1 AND (last_sign_in_at, account_id) < ($2, $3)
                 ORDER BY last_sign_in_at DESC, account_id DESC LIMIT $4"
            ),
            params![application, below.at, &below.id, most],
        )
        .await
    }

    /// End users for whom each term begins a word, in the order of the words that one of the terms found.
    pub async fn search(
        db: &Db,
        application: ApplicationId,
        search: &Search,
        below: &Key,
        most: u32,
    ) -> db::Result<Vec<Hit>> {
        let after = match Found::read(below) {
            Some(after) => after,
            None => search.start(db, application).await?,
        };
        let [first, second, third] = search.led_by(after.term);
        // Each once only, by the first of their words that begin so.
        let mut hits: Vec<Hit> = db
            .all(
                known!(
                    ", word",
                    ", hit.word",
                    "FROM app_user_word AS hit
                       JOIN app_user ON app_user.app_id = hit.app_id AND app_user.account_id = hit.account_id
                       JOIN account ON account.id = hit.account_id
                       WHERE hit.app_id = $1 AND (hit.word, hit.account_id) > ($2, $3) AND hit.word < $5
                         AND ($11 OR EXISTS (SELECT 1 FROM app_user_word AS other
                                             WHERE other.app_id = $1 AND other.account_id = hit.account_id
                                               AND other.word >= $6 AND other.word < $7))
                         AND ($12 OR EXISTS (SELECT 1 FROM app_user_word AS other
                                             WHERE other.app_id = $1 AND other.account_id = hit.account_id
                                               AND other.word >= $8 AND other.word < $9))
                         AND NOT EXISTS (SELECT 1 FROM app_user_word AS earlier
                                         WHERE earlier.app_id = $1 AND earlier.account_id = hit.account_id
                                           AND earlier.word >= $4 AND earlier.word < hit.word)) AS known
                 ORDER BY word, account_id LIMIT $10"
                ),
                params![
                    application,
                    after.word,
                    &after.account,
                    first.from,
                    first.to,
                    second.from,
                    second.to,
                    third.from,
                    third.to,
                    most,
                    search.0.len() < 2,
                    search.0.len() < 3
                ],
            )
            .await?;
        for hit in &mut hits {
            hit.term = after.term;
        }
        Ok(hits)
    }

    /// One of them.
    pub async fn find(
        mut from: impl Read,
        application: ApplicationId,
        account: AccountId,
    ) -> db::Result<Option<Self>> {
        let sql = known!(
            "",
            "",
            "FROM app_user JOIN account ON account.id = app_user.account_id
               WHERE app_user.app_id = $1 AND app_user.account_id = $2) AS known"
        );
        from.opt(sql, params![application, account]).await
    }

    /// Those of some accounts, in no order: of one page of another list.
    pub async fn find_all(db: &Db, application: ApplicationId, accounts: &[AccountId]) -> db::Result<Vec<Self>> {
        if accounts.is_empty() {
            return Ok(vec![]);
        }
        let mut question = Composed::new(known!(
            "",
            "",
            "FROM app_user JOIN account ON account.id = app_user.account_id WHERE app_user.app_id = "
        ));
        question.value(application).sql(" AND app_user.account_id IN (").values(accounts.iter().copied());
        question.sql(")) AS known");
        db.find(question).await
    }

    /// Blocks a user from the app, or unblocks them; `false` when nothing changed. A transaction that begins a
    /// session locks the account, as the caller does, so a session begins after this and is refused, or before it and
    /// is ended.
    pub async fn set_blocked(
        tx: &mut Tx,
        application: ApplicationId,
        account: AccountId,
        since: Option<Timestamp>,
    ) -> db::Result<bool> {
        let sql = "UPDATE app_user SET blocked_at = $3
                   WHERE app_id = $1 AND account_id = $2 AND (blocked_at IS NULL) = $4";
        Ok(tx.exec(sql, params![application, account, since, since.is_some()]).await? == 1)
    }

    /// Where they stand in the list by time.
    pub fn key(&self) -> Key {
        Key { at: self.last_sign_in_at, id: self.id.to_string() }
    }
}

impl Hit {
    /// Where they stand among what was found.
    pub fn key(&self) -> Key {
        place(self.term, &self.word, self.user.id)
    }
}

/// Where an account stands among what a term found.
pub(crate) fn place(term: usize, word: &[u8], account: AccountId) -> Key {
    Key { at: Timestamp(0), id: format!("{term} {} {account}", HEXLOWER.encode(word)) }
}

/// The words that begin alike.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Range {
    pub(crate) from: Vec<u8>,
    /// The first that does not.
    pub(crate) to: Vec<u8>,
}

impl Range {
    fn of(term: &str) -> Self {
        let from = folded(term);
        let mut to = from.clone();
        // No text has a byte that cannot be counted up.
        if let Some(last) = to.last_mut() {
            *last += 1;
        }
        Self { from, to }
    }

    fn everything() -> Self {
        Self { from: vec![], to: vec![0xff] }
    }
}

/// The terms of a search, at least one.
pub struct Search(pub(crate) Vec<Range>);

/// From so many on, words are not counted.
pub(crate) const MANY: u32 = 2000;

impl Search {
    /// Nothing when no term is left of it.
    pub fn read(text: &str) -> Option<Self> {
        let terms: Vec<Range> = text.split_whitespace().take(TERMS).map(Range::of).collect();
        (!terms.is_empty()).then_some(Self(terms))
    }

    /// All terms, this one first, and all words in place of those that are missing.
    pub(crate) fn led_by(&self, term: usize) -> [Range; TERMS] {
        let mut terms = self.0.clone();
        terms.resize(TERMS, Range::everything());
        terms.swap(0, term.min(TERMS - 1));
        std::array::from_fn(|place| terms[place].clone())
    }

    /// The first page: led by the term that the fewest words begin with.
    async fn start(&self, db: &Db, application: ApplicationId) -> db::Result<Found> {
        let (mut rarest, mut least) = (0, i64::MAX);
        for (number, range) in self.0.iter().enumerate().filter(|_| self.0.len() > 1) {
            let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM (
                         SELECT account_id FROM app_user_word WHERE app_id = $1 AND word >= $2 AND word < $3 LIMIT $4
                       ) AS some_words";
            let (count,): (i64,) =
                db.one(sql, params![application, range.from.clone(), range.to.clone(), MANY]).await?;
            if count < least {
                (rarest, least) = (number, count);
            }
        }
        Ok(Found { term: rarest, word: self.0[rarest].from.clone(), account: String::new() })
    }
}

/// A place among what was found.
#[derive(Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) term: usize,
    pub(crate) word: Vec<u8>,
    pub(crate) account: String,
}

impl Found {
    /// Nothing at the start of the list.
    pub(crate) fn read(key: &Key) -> Option<Self> {
        let mut parts = key.id.split(' ');
        let (term, word) = (parts.next()?.parse().ok()?, parts.next()?);
        Some(Self { term, word: HEXLOWER.decode(word.as_bytes()).ok()?, account: parts.next()?.to_owned() })
    }
}

/// Words are compared in lower case, as bytes.
fn folded(word: &str) -> Vec<u8> {
    word.to_lowercase().chars().take(WORD_LENGTH).collect::<String>().into_bytes()
}

/// The search words of a user: those of the name, with their parts (`smith-jones`, `smith`, `jones`), and the email.
pub fn words(name: Option<&str>, email_key: Option<&str>) -> BTreeSet<Vec<u8>> {
    let names = name.into_iter().flat_map(str::split_whitespace);
    let parts = names.flat_map(|word| std::iter::once(word).chain(word.split(|c: char| !c.is_alphanumeric())));
    let of_name = parts.filter(|word| !word.is_empty()).take(MOST_WORDS);
    of_name.chain(email_key).map(folded).collect()
}

struct SearchedFields {
    name: String,
    email_key: Option<String>,
    scopes: Option<Scopes>,
}
row!(SearchedFields { name, email_key, scopes });

/// Stores the search words of a user in an app, if they are missing.
pub(crate) async fn note(tx: &mut Tx, application: ApplicationId, account: AccountId) -> db::Result<()> {
    let sql = "SELECT account.name, account.email_key, app_user.scopes
               FROM app_user JOIN account ON account.id = app_user.account_id
               WHERE app_user.app_id = $1 AND app_user.account_id = $2";
    let Some(known) = tx.opt::<SearchedFields>(sql, params![application, account]).await? else { return Ok(()) };
    let tells = |scope| known.scopes.as_ref().is_none_or(|scopes| scopes.has(scope));
    let name = Some(known.name.as_str()).filter(|_| tells(Scope::Profile));
    let words = words(name, known.email_key.as_deref().filter(|_| tells(Scope::Email)));
    let sql = "SELECT word FROM app_user_word WHERE app_id = $1 AND account_id = $2";
    let there: Vec<(Vec<u8>,)> = tx.all(sql, params![application, account]).await?;
    let there: BTreeSet<Vec<u8>> = there.into_iter().map(|(word,)| word).collect();
    for gone in there.difference(&words) {
        let sql = "DELETE FROM app_user_word WHERE app_id = $1 AND account_id = $2 AND word = $3";
        tx.send(sql, params![application, account, gone.clone()]).await?;
    }
    for new in words.difference(&there) {
        let sql = "INSERT INTO app_user_word (app_id, account_id, word) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        tx.send(sql, params![application, account, new.clone()]).await?;
    }
    let sql = "UPDATE app_user SET has_words = TRUE WHERE app_id = $1 AND account_id = $2 AND NOT has_words";
    tx.send(sql, params![application, account]).await
}

/// Whether a person has signed in to an app and is not blocked.
pub async fn may_enter(mut from: impl Read, application: ApplicationId, account: AccountId) -> db::Result<bool> {
    let sql = "SELECT account_id FROM app_user WHERE app_id = $1 AND account_id = $2 AND blocked_at IS NULL";
    Ok(from.opt::<(String,)>(sql, params![application, account]).await?.is_some())
}

/// Whether an app has blocked a person.
pub async fn is_blocked(mut from: impl Read, application: ApplicationId, account: AccountId) -> db::Result<bool> {
    let sql = "SELECT account_id FROM app_user WHERE app_id = $1 AND account_id = $2 AND blocked_at IS NOT NULL";
    Ok(from.opt::<(String,)>(sql, params![application, account]).await?.is_some())
}

/// Renews the search words of a user with a new name, in every app they signed in to.
pub(crate) async fn renamed(tx: &mut Tx, account: AccountId) -> db::Result<()> {
    let sql = "SELECT app_id FROM app_user WHERE account_id = $1 ORDER BY app_id";
    let apps: Vec<(ApplicationId,)> = tx.all(sql, params![account]).await?;
    for (application,) in apps {
        note(tx, application, account).await?;
    }
    Ok(())
}

/// So many in one transaction.
const BATCH: u32 = 200;

struct Wordless {
    app_id: ApplicationId,
    account_id: AccountId,
}
row!(Wordless { app_id, account_id });

/// Stores the search words of users without them: those from before there were words, or from a node of an older
/// version.
pub(crate) async fn note_wordless(janua: &Janua) -> Result<()> {
    loop {
        let sql = "SELECT app_id, account_id FROM app_user WHERE NOT has_words ORDER BY app_id, account_id LIMIT $1";
        let wordless: Vec<Wordless> = janua.db.all(sql, params![BATCH]).await?;
        if wordless.is_empty() {
            return Ok(());
        }
        transact!(janua, async |tx| {
            for one in &wordless {
                note(tx, one.app_id, one.account_id).await?;
            }
            Ok(())
        })?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_found_by_the_words_of_their_names_and_by_their_address() {
        let found = |name: Option<&str>, email: Option<&str>| -> Vec<String> {
            words(name, email).into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
        };
        assert_eq!(found(Some("Ada  Lovelace"), Some("ada@example.com")), ["ada", "ada@example.com", "lovelace"]);
        assert_eq!(found(Some("Zoë Smith-Jones"), None), ["jones", "smith", "smith-jones", "zoë"]);
        assert_eq!(found(None, None), [""; 0], "an app that may know nothing finds nobody");
        assert_eq!(found(Some(&"a b c d ".repeat(100)), None).len(), 4);
        let long = "x".repeat(1000);
        assert_eq!(found(Some(&long), None)[0].len(), WORD_LENGTH);
    }

    #[test]
    fn a_search_is_a_range_of_words_for_each_term() {
        let search = Search::read(" Li JONATHAN ").unwrap();
        let li = Range { from: b"li".to_vec(), to: b"lj".to_vec() };
        let jonathan = Range { from: b"jonathan".to_vec(), to: b"jonathao".to_vec() };
        assert_eq!(search.led_by(0), [li.clone(), jonathan.clone(), Range::everything()]);
        assert_eq!(search.led_by(1), [jonathan, li, Range::everything()]);
        assert!(Search::read("  ").is_none());
        let long = Search::read(&"é".repeat(200)).unwrap();
        assert!("é".repeat(WORD_LENGTH).into_bytes() < long.0[0].to, "as much of it as is kept of a word");
        assert_eq!(Search::read("a b c d e").unwrap().0.len(), TERMS);
    }

    #[test]
    fn a_page_goes_on_where_the_last_one_ended() {
        assert_eq!(Found::read(&Key::newest()), None, "the first page");
        let next = Found::read(&Key { at: Timestamp(0), id: "1 616461 0198".into() }).unwrap();
        assert_eq!(next, Found { term: 1, word: b"ada".to_vec(), account: "0198".into() });
    }
}
