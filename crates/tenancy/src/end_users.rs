//! The people who came in through an app: the list of them, and finding some of them among a million.
//!
//! What somebody is found by is written beside them: the words of their name and their address, as far as the app may
//! know them. A search is then a range of words, in their order, so that it costs what a page costs.
use std::collections::BTreeSet;

use data_encoding::HEXLOWER;
use kernel::{
    App,
    clock::Timestamp,
    db::{self, Db, FromRow, Row, Tx},
    fault::Fault,
    http::Key,
    jobs::{Job, Later},
    params, row, transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    accounts::AccountId,
    apps::ApplicationId,
    scopes::{Scope, Scopes},
};

/// A name may have hundreds of words; nobody is looked for by the last of them.
const MOST_WORDS: usize = 12;
/// How much of a word counts, in characters.
const WORD_LENGTH: usize = 64;
/// How many words of a search count.
const TERMS: usize = 3;

/// Somebody who came in through an app.
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
}
row!(EndUser { id, email, name, avatar_url, email_verified, first_sign_in_at, last_sign_in_at });

/// Somebody who was looked for, and the word they were found by.
#[derive(Debug)]
pub struct Hit {
    pub user: EndUser,
    word: Vec<u8>,
}

impl FromRow for Hit {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Ok(Self { word: row.get("word")?, user: EndUser::from_row(row)? })
    }
}

impl EndUser {
    /// Who signed in last comes first.
    pub async fn page(db: &Db, application: ApplicationId, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT id, first_sign_in_at, last_sign_in_at,
                    CASE WHEN tells_email THEN email END AS email, tells_email AND email_verified AS email_verified,
                    CASE WHEN tells_name THEN name ELSE '' END AS name,
                    CASE WHEN tells_name THEN avatar_url END AS avatar_url
             FROM (SELECT account.id, account.email, account.name, account.avatar_url, account.email_verified,
                          app_user.first_sign_in_at, app_user.last_sign_in_at, app_user.app_id, app_user.account_id,
                          app_user.scopes IS NULL OR app_user.scopes LIKE '%email%' AS tells_email,
                          app_user.scopes IS NULL OR app_user.scopes LIKE '%profile%' AS tells_name
                   FROM app_user JOIN account ON account.id = app_user.account_id) AS known
             WHERE app_id = $1 AND (last_sign_in_at, account_id) < ($2, $3)
             ORDER BY last_sign_in_at DESC, account_id DESC LIMIT $4",
            params![application, below.at, &below.id, most],
        )
        .await
    }

    /// Those of whom each term begins a word, by the word the longest term found.
    pub async fn search(
        db: &Db,
        application: ApplicationId,
        search: &Search,
        after: &Found,
        most: u32,
    ) -> db::Result<Vec<Hit>> {
        let [first, second, third] = &search.0;
        // Each once only, by the first of their words that begin so.
        db.all(
            "SELECT id, first_sign_in_at, last_sign_in_at, word,
                    CASE WHEN tells_email THEN email END AS email, tells_email AND email_verified AS email_verified,
                    CASE WHEN tells_name THEN name ELSE '' END AS name,
                    CASE WHEN tells_name THEN avatar_url END AS avatar_url
             FROM (SELECT account.id, account.email, account.name, account.avatar_url, account.email_verified,
                          app_user.first_sign_in_at, app_user.last_sign_in_at, hit.word, hit.account_id,
                          app_user.scopes IS NULL OR app_user.scopes LIKE '%email%' AS tells_email,
                          app_user.scopes IS NULL OR app_user.scopes LIKE '%profile%' AS tells_name
                   FROM app_user_word AS hit
                   JOIN app_user ON app_user.app_id = hit.app_id AND app_user.account_id = hit.account_id
                   JOIN account ON account.id = hit.account_id
                   WHERE hit.app_id = $1 AND (hit.word, hit.account_id) > ($2, $3) AND hit.word < $5
                     AND NOT EXISTS (SELECT 1 FROM app_user_word AS earlier
                                     WHERE earlier.app_id = $1 AND earlier.account_id = hit.account_id
                                       AND earlier.word >= $4 AND earlier.word < hit.word)
                     AND EXISTS (SELECT 1 FROM app_user_word AS other
                                 WHERE other.app_id = $1 AND other.account_id = hit.account_id
                                   AND other.word >= $6 AND other.word < $7)
                     AND EXISTS (SELECT 1 FROM app_user_word AS other
                                 WHERE other.app_id = $1 AND other.account_id = hit.account_id
                                   AND other.word >= $8 AND other.word < $9)) AS found
             ORDER BY word, account_id LIMIT $10",
            params![
                application,
                after.word.clone(),
                &after.account,
                first.0.clone(),
                first.1.clone(),
                second.0.clone(),
                second.1.clone(),
                third.0.clone(),
                third.1.clone(),
                most
            ],
        )
        .await
    }

    /// Where they stand in the list by time.
    pub fn key(&self) -> Key {
        Key { at: self.last_sign_in_at, id: self.id.to_string() }
    }
}

impl Hit {
    /// Where they stand among what was found.
    pub fn key(&self) -> Key {
        Key { at: Timestamp(0), id: format!("{} {}", HEXLOWER.encode(&self.word), self.user.id) }
    }
}

/// What is looked for: ranges of words, the longest first. A range that is not asked for is all words.
pub struct Search([(Vec<u8>, Vec<u8>); TERMS]);

impl Search {
    /// Nothing when no term is left of it.
    pub fn read(text: &str) -> Option<Self> {
        let mut terms: Vec<Vec<u8>> = text.split_whitespace().map(folded).collect();
        terms.sort_by_key(|term| std::cmp::Reverse(term.len()));
        let mut ranges = terms.into_iter().map(|term| (term.clone(), end_of(term)));
        let first = ranges.next()?;
        let mut more = || ranges.next().unwrap_or_else(|| (vec![], vec![0xff]));
        Some(Self([first, more(), more()]))
    }

    /// Where the page begins.
    pub fn from(&self, below: &Key) -> Found {
        let read = || {
            let (word, account) = below.id.split_once(' ')?;
            Some(Found { word: HEXLOWER.decode(word.as_bytes()).ok()?, account: account.to_owned() })
        };
        read().unwrap_or_else(|| Found { word: self.0[0].0.clone(), account: String::new() })
    }
}

/// A place among what was found.
pub struct Found {
    word: Vec<u8>,
    account: String,
}

/// Words are compared in lower case, as bytes.
fn folded(word: &str) -> Vec<u8> {
    word.to_lowercase().chars().take(WORD_LENGTH).collect::<String>().into_bytes()
}

/// What follows everything that begins so. No text has a byte that cannot be counted up.
fn end_of(mut prefix: Vec<u8>) -> Vec<u8> {
    if let Some(last) = prefix.last_mut() {
        *last += 1;
    }
    prefix
}

/// The words somebody is found by: those of the name, with their parts (`smith-jones`, `smith`, `jones`), and the address.
pub fn words(name: Option<&str>, email_key: Option<&str>) -> BTreeSet<Vec<u8>> {
    let names = name.into_iter().flat_map(str::split_whitespace);
    let parts = names.flat_map(|word| std::iter::once(word).chain(word.split(|c: char| !c.is_alphanumeric())));
    let of_name = parts.filter(|word| !word.is_empty()).take(MOST_WORDS);
    of_name.chain(email_key).map(folded).collect()
}

struct Known {
    name: String,
    email_key: Option<String>,
    scopes: Option<Scopes>,
}
row!(Known { name, email_key, scopes });

/// Writes what somebody is found by in an app, if it is not there already.
pub(crate) async fn note(tx: &mut Tx, application: ApplicationId, account: AccountId) -> db::Result<()> {
    let sql = "SELECT account.name, account.email_key, app_user.scopes
               FROM app_user JOIN account ON account.id = app_user.account_id
               WHERE app_user.app_id = $1 AND app_user.account_id = $2";
    let Some(known) = tx.opt::<Known>(sql, params![application, account]).await? else { return Ok(()) };
    let tells = |scope| known.scopes.as_ref().is_none_or(|scopes| scopes.has(scope));
    let name = Some(known.name.as_str()).filter(|_| tells(Scope::Profile));
    let words = words(name, known.email_key.as_deref().filter(|_| tells(Scope::Email)));
    let sql = "SELECT word FROM app_user_word WHERE app_id = $1 AND account_id = $2";
    let there: Vec<(Vec<u8>,)> = tx.all(sql, params![application, account]).await?;
    let there: BTreeSet<Vec<u8>> = there.into_iter().map(|(word,)| word).collect();
    for gone in there.difference(&words) {
        let sql = "DELETE FROM app_user_word WHERE app_id = $1 AND account_id = $2 AND word = $3";
        tx.exec(sql, params![application, account, gone.clone()]).await?;
    }
    for new in words.difference(&there) {
        let sql = "INSERT INTO app_user_word (app_id, account_id, word) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        tx.exec(sql, params![application, account, new.clone()]).await?;
    }
    let sql = "UPDATE app_user SET has_words = TRUE WHERE app_id = $1 AND account_id = $2 AND NOT has_words";
    tx.exec(sql, params![application, account]).await?;
    Ok(())
}

/// Somebody has another name now, in every app they came in through.
pub(crate) async fn renamed(tx: &mut Tx, account: AccountId) -> db::Result<()> {
    let sql = "SELECT app_id FROM app_user WHERE account_id = $1 ORDER BY app_id";
    let apps: Vec<(ApplicationId,)> = tx.all(sql, params![account]).await?;
    for (application,) in apps {
        note(tx, application, account).await?;
    }
    Ok(())
}

/// Goes through those who came before words were written, or on a node that does not know of them.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct NoteWords {}

/// So many in one transaction, and so many transactions at a time.
const BATCH: u32 = 200;
const BATCHES: u32 = 100;

struct Wordless {
    app_id: ApplicationId,
    account_id: AccountId,
}
row!(Wordless { app_id, account_id });

impl Job for NoteWords {
    const KIND: &'static str = "tenancy.note_words";

    async fn run(self, app: App) -> Result<(), Later> {
        for _ in 0..BATCHES {
            let sql =
                "SELECT app_id, account_id FROM app_user WHERE NOT has_words ORDER BY app_id, account_id LIMIT $1";
            let wordless: Vec<Wordless> = app.db.all(sql, params![BATCH]).await?;
            if wordless.is_empty() {
                break;
            }
            transact!(app.db, tx, {
                for one in &wordless {
                    note(tx, one.app_id, one.account_id).await?;
                }
                Ok::<_, Fault>(())
            })
            .map_err(Later::retry)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_found_by_the_words_of_their_names_and_by_their_address() {
        let found = |name, email| -> Vec<String> {
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
    fn a_search_is_a_range_of_words_the_longest_first() {
        let Search([first, second, third]) = Search::read(" Li JONATHAN ").unwrap();
        assert_eq!(first, (b"jonathan".to_vec(), b"jonathao".to_vec()));
        assert_eq!(second, (b"li".to_vec(), b"lj".to_vec()));
        assert_eq!(third, (vec![], vec![0xff]), "any word");
        assert!(Search::read("  ").is_none());
        let Search([long, ..]) = Search::read(&"é".repeat(200)).unwrap();
        assert!("é".repeat(WORD_LENGTH).into_bytes() < long.1);
    }

    #[test]
    fn a_page_goes_on_where_the_last_one_ended() {
        let search = Search::read("ada").unwrap();
        let start = search.from(&Key::newest());
        assert_eq!((start.word.as_slice(), start.account.as_str()), (&b"ada"[..], ""));
        let next = search.from(&Key { at: Timestamp(0), id: "616461 0198".into() });
        assert_eq!((next.word.as_slice(), next.account.as_str()), (&b"ada"[..], "0198"));
    }
}
