//! Paging of lists: newest first, with a signed cursor.
use aide::{OperationInput, generate::GenContext, openapi::Operation, operation::ParamLocation};
use axum::{extract::FromRequestParts, http::request::Parts};
use data_encoding::BASE64URL_NOPAD;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    describe::may_answer,
    input::{Query, parameters},
};
use crate::{
    Janua,
    clock::Timestamp,
    crypto::same,
    fault::{BAD_CURSOR, Fault, INVALID, Result},
    id::Id,
};

const DEFAULT_LIMIT: u32 = 50;
/// Long enough that the digest cannot be guessed.
const MAC_LEN: usize = 32;

#[derive(Deserialize, JsonSchema)]
struct PageQuery {
    /// How many entries to answer.
    #[schemars(range(min = 1, max = 200), extend("default" = 50))]
    limit: Option<u32>,
    /// `nextCursor` of the page before.
    #[schemars(length(min = 1, max = 512))]
    cursor: Option<String>,
}

/// The `limit` and `cursor` of a list.
pub struct Page {
    limit: u32,
    cursor: Option<String>,
}

/// The position of an entry in a list: its moment, then its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub at: Timestamp,
    pub id: String,
}

impl Key {
    /// The position before all entries, where the first page starts.
    pub fn newest() -> Self {
        Self { at: Timestamp(i64::MAX), id: "~".into() }
    }

    /// The position after all entries.
    pub fn oldest() -> Self {
        Self { at: Timestamp(i64::MIN), id: String::new() }
    }
}

/// Whose list it is. A cursor counts in the list it came from and nowhere else, so that the cursor of one tenant is refused
/// in the list of another.
pub struct Scope(Option<String>);

impl Scope {
    /// For a list of which the platform has only one.
    pub fn platform() -> Self {
        Self(None)
    }

    /// For the part of a list that was searched for. A cursor counts for the same search alone.
    #[must_use]
    pub fn found_by(self, search: &str) -> Self {
        Self(Some(format!("{}:{search}", self.0.unwrap_or_default())))
    }

    /// The name under which cursors are signed.
    fn sign_as(&self, list: &str) -> String {
        self.0.as_ref().map_or_else(|| list.to_owned(), |of| format!("{list}:{of}"))
    }
}

impl<Kind> From<Id<Kind>> for Scope {
    fn from(of: Id<Kind>) -> Self {
        Self(Some(of.to_string()))
    }
}

/// The rows of one page, and the cursor of the next one.
pub struct Listed<T> {
    pub rows: Vec<T>,
    pub next_cursor: Option<String>,
}

impl Page {
    /// Reads one page of the list `name` of `scope`: an organization, an app, a person, or the platform. `fetch` answers the
    /// rows below a key, newest first, and no more than it is asked for; `key` tells where a row stands.
    pub async fn list<T, E: Into<Fault>>(
        &self,
        janua: &Janua,
        name: &'static str,
        scope: impl Into<Scope>,
        fetch: impl AsyncFnOnce(Key, u32) -> Result<Vec<T>, E>,
        key: impl Fn(&T) -> Key,
    ) -> Result<Listed<T>> {
        let list = scope.into().sign_as(name);
        // One more than is shown tells whether there is a next page.
        let mut rows = fetch(self.below(janua, &list)?, self.limit + 1).await.map_err(Into::into)?;
        let next_cursor = self.cut(janua, &list, &mut rows, key);
        Ok(Listed { rows, next_cursor })
    }

    /// The key this page starts below. A cursor of another list is refused.
    fn below(&self, janua: &Janua, list: &str) -> Result<Key> {
        let Some(cursor) = &self.cursor else { return Ok(Key::newest()) };
        let read = || {
            let text = String::from_utf8(BASE64URL_NOPAD.decode(cursor.as_bytes()).ok()?).ok()?;
            let (mac, rest) = text.split_at_checked(MAC_LEN)?;
            let (at, id) = rest.split_once('.')?;
            let key = Key { at: Timestamp(at.parse().ok()?), id: id.to_owned() };
            same(mac.as_bytes(), sign(janua, list, &key).as_bytes()).then_some(key)
        };
        read().ok_or_else(|| BAD_CURSOR.into())
    }

    /// Cuts the rows to the page and makes the cursor for the next one.
    fn cut<T>(&self, janua: &Janua, list: &str, rows: &mut Vec<T>, key: impl Fn(&T) -> Key) -> Option<String> {
        let limit = self.limit as usize;
        if rows.len() <= limit {
            return None;
        }
        rows.truncate(limit);
        rows.last().map(key).map(|key| {
            let text = format!("{}{}.{}", sign(janua, list, &key), key.at.0, key.id);
            BASE64URL_NOPAD.encode(text.as_bytes())
        })
    }
}

fn sign(janua: &Janua, list: &str, key: &Key) -> String {
    let mut mac = janua.vault.mac("cursor", format!("{list}\n{}\n{}", key.at.0, key.id).as_bytes());
    mac.truncate(MAC_LEN);
    mac
}

impl FromRequestParts<Janua> for Page {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, janua: &Janua) -> Result<Self> {
        let Query(PageQuery { limit, cursor }) = Query::from_request_parts(parts, janua).await?;
        Ok(Self { limit: limit.unwrap_or(DEFAULT_LIMIT), cursor })
    }
}

impl OperationInput for Page {
    fn operation_input(ctx: &mut GenContext, operation: &mut Operation) {
        parameters::<PageQuery>(ctx, operation, ParamLocation::Query);
        may_answer(operation, &[INVALID, BAD_CURSOR]);
    }
}
