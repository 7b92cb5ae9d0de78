//! Storage objects as stored, and every statement on them.
use std::collections::{BTreeMap, btree_map::Entry};

use db::{Db, Read, Tx, holding, params, row};
use kernel::{clock::Timestamp, http::Key as Position, id::Id, ports::objects::Key};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::{ApplicationId, Environment},
    ids::{AccountId, OrgId},
};

pub type ObjectId = Id<StorageObject>;

macro_rules! stored_words { ($($type:ident { $($variant:ident = $word:literal),+ })+) => { $(
    impl $type {
        pub fn name(self) -> &'static str {
            match self { $(Self::$variant => $word),+ }
        }
    }
    impl From<$type> for db::Value {
        fn from(word: $type) -> Self {
            word.name().into()
        }
    }
    impl db::FromValue for $type {
        fn from_value(value: db::Value) -> Option<Self> {
            match String::from_value(value)?.as_str() { $($word => Some(Self::$variant),)+ _ => None }
        }
    }
)+ } }

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Its bytes are awaited.
    Pending,
    Ready,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Visibility {
    /// Read with a download URL only.
    #[default]
    Private,
    /// Everybody can read it at its URL.
    Public,
}
stored_words! {
    Status { Pending = "pending", Ready = "ready" }
    Visibility { Private = "private", Public = "public" }
}

#[derive(Debug, Clone)]
pub struct StorageObject {
    pub id: ObjectId,
    pub app_id: ApplicationId,
    pub org_id: OrgId,
    pub owner_id: AccountId,
    pub environment: Environment,
    pub name: String,
    pub content_type: String,
    pub size: i64,
    pub sha256: Option<String>,
    pub status: Status,
    pub visibility: Visibility,
    pub metadata: serde_json::Value,
    pub slot: Key,
    pub file: Option<Key>,
    pub file_sha256: Option<String>,
    pub ttl_ms: Option<i64>,
    pub expires_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub finalized_at: Option<Timestamp>,
    pub received: Option<i64>,
}
row!(StorageObject {
    id,
    app_id,
    org_id,
    owner_id,
    environment,
    name,
    content_type,
    size,
    sha256,
    status,
    visibility,
    metadata,
    slot,
    file,
    file_sha256,
    ttl_ms,
    expires_at,
    created_at,
    updated_at,
    finalized_at,
    received
});

/// How much of a name the index holds, in bytes.
const INDEXED: usize = 128;

/// The first bytes of a name, whole characters.
pub fn name_start(name: &str) -> Vec<u8> {
    name.as_bytes()[..name.floor_char_boundary(INDEXED)].to_vec()
}

/// Whose objects are meant: those of one user of an app, or of all of them.
#[derive(Debug, Clone, Copy)]
pub struct Shelf {
    pub app: ApplicationId,
    pub environment: Environment,
    pub owner: Option<AccountId>,
}

impl StorageObject {
    pub fn shelf(&self) -> Shelf {
        Shelf { app: self.app_id, environment: self.environment, owner: Some(self.owner_id) }
    }

    pub fn is_ready(&self) -> bool {
        self.status == Status::Ready
    }

    /// Whether it is ready and its time is up. The sweep follows.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.is_ready() && self.expires_at.is_some_and(|at| at <= now)
    }

    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        tx.send(
            "INSERT INTO storage_object (id, app_id, org_id, owner_id, environment, name, name_start, content_type, size,
                                         sha256, status, visibility, metadata, slot, ttl_ms, expires_at, created_at,
                                         updated_at, received)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $17, $18)",
            params![
                self.id,
                self.app_id,
                self.org_id,
                self.owner_id,
                self.environment,
                &self.name,
                name_start(&self.name),
                &self.content_type,
                self.size,
                self.sha256.clone(),
                self.status,
                self.visibility,
                &self.metadata,
                &self.slot,
                self.ttl_ms,
                self.expires_at,
                self.created_at,
                self.received
            ],
        )
        .await
    }

    pub async fn find(mut from: impl Read, id: ObjectId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM storage_object WHERE id = $1", params![id]).await
    }

    /// One of a shelf; another's is none.
    pub async fn find_on(from: impl Read, shelf: Shelf, id: ObjectId) -> db::Result<Option<Self>> {
        let found = Self::find(from, id).await?;
        Ok(found.filter(|object| {
            let is_owners = shelf.owner.is_none_or(|owner| owner == object.owner_id);
            object.app_id == shelf.app && is_owners && object.environment == shelf.environment
        }))
    }

    /// Locks it until the transaction ends.
    pub async fn hold(tx: &mut Tx, id: ObjectId) -> db::Result<Option<Self>> {
        tx.opt(holding!("SELECT * FROM storage_object WHERE id = $1"), params![id]).await
    }

    pub async fn find_by_slot(db: &Db, slot: &Key) -> db::Result<Option<Self>> {
        db.opt("SELECT * FROM storage_object WHERE slot = $1", params![slot]).await
    }

    /// Notes the file that was uploaded; `false` when it is pending no more.
    pub async fn set_file(tx: &mut Tx, id: ObjectId, file: &Key, sha256: &str) -> db::Result<bool> {
        let sql = "UPDATE storage_object SET file = $2, file_sha256 = $3 WHERE id = $1 AND status = 'pending'";
        Ok(tx.exec(sql, params![id, file, sha256]).await? == 1)
    }

    /// The one way to become ready. Nothing when it is pending no more, or another file was uploaded meanwhile.
    pub async fn finish(
        tx: &mut Tx,
        before: &Self,
        file: &Key,
        sha256: Option<&str>,
        now: Timestamp,
    ) -> db::Result<Option<Self>> {
        let sql = "UPDATE storage_object SET status = 'ready', file = $3, file_sha256 = NULL, sha256 = $4,
                          finalized_at = $5, updated_at = $5, expires_at = $6
                   WHERE id = $1 AND status = 'pending' AND COALESCE(file, '') = $2 RETURNING *";
        let uploaded = before.file.as_ref().map_or("", Key::as_str);
        let expires_at = before.ttl_ms.map(|ttl| Timestamp(now.0.saturating_add(ttl)));
        let done =
            tx.put(sql, params![before.id, uploaded, file, sha256.map(str::to_owned), now, expires_at]).await?;
        Ok(done.into_iter().next())
    }

    pub async fn save(&self, tx: &mut Tx) -> db::Result<()> {
        tx.send(
            "UPDATE storage_object SET name = $2, name_start = $3, metadata = $4, visibility = $5, expires_at = $6,
                                       updated_at = $7 WHERE id = $1",
            params![
                self.id,
                &self.name,
                name_start(&self.name),
                &self.metadata,
                self.visibility,
                self.expires_at,
                self.updated_at
            ],
        )
        .await
    }

    /// Deletes the row; `false` when another request did.
    pub async fn delete(&self, tx: &mut Tx) -> db::Result<bool> {
        let sql = "DELETE FROM storage_object WHERE id = $1 AND status = $2";
        Ok(tx.exec(sql, params![self.id, self.status]).await? == 1)
    }

    /// Objects whose time is up, and uploads that ended `grace` ago.
    pub async fn lapsed(db: &Db, now: Timestamp, grace: Timestamp, most: u32) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM storage_object
                   WHERE expires_at <= $1 AND (status = 'ready' OR expires_at <= $2) ORDER BY expires_at, id LIMIT $3";
        db.all(sql, params![now, grace, most]).await
    }

    /// Moves the count of bytes that arrived; `false` when it was another one.
    pub async fn advance(tx: &mut Tx, id: ObjectId, from: i64, to: i64, expires_at: Timestamp) -> db::Result<bool> {
        let sql = "UPDATE storage_object SET received = $3, expires_at = $4
                   WHERE id = $1 AND received = $2 AND status = 'pending'";
        Ok(tx.exec(sql, params![id, from, to, expires_at]).await? == 1)
    }
}

/// Lists: of a user or of an app, by time or by the start of the name, of one status or of any.
macro_rules! page {
    (newest, $whose:literal, $status:literal) => {
        concat!(
            "SELECT * FROM storage_object WHERE app_id = $1 AND environment = $2 AND ",
            $whose,
            $status,
            " AND (created_at, id) < ($4, $5) ORDER BY created_at DESC, id DESC LIMIT $6"
        )
    };
    (named, $whose:literal, $status:literal) => {
        concat!(
            "SELECT * FROM storage_object WHERE app_id = $1 AND environment = $2 AND ",
            $whose,
            $status,
            " AND (name_start, id) > ($4, $5) AND name_start >= $6 AND name_start < $7
              AND substr(name, 1, CAST(CAST($8 AS BIGINT) AS INTEGER)) = $9 ORDER BY name_start, id LIMIT $10"
        )
    };
}
macro_rules! pages {
    ($order:ident) => {
        [
            page!($order, "owner_id = $3", ""),
            page!($order, "owner_id = $3", " AND status = 'pending'"),
            page!($order, "owner_id = $3", " AND status = 'ready'"),
            page!($order, "$3 = ''", ""),
            page!($order, "$3 = ''", " AND status = 'pending'"),
            page!($order, "$3 = ''", " AND status = 'ready'"),
        ]
    };
}

fn which(shelf: Shelf, status: Option<Status>) -> usize {
    let of_status = match status {
        None => 0,
        Some(Status::Pending) => 1,
        Some(Status::Ready) => 2,
    };
    if shelf.owner.is_some() { of_status } else { 3 + of_status }
}

fn owner_text(shelf: Shelf) -> String {
    shelf.owner.map(|owner| owner.to_string()).unwrap_or_default()
}

impl StorageObject {
    /// Newest first.
    pub async fn newest(
        db: &Db,
        shelf: Shelf,
        status: Option<Status>,
        below: &Position,
        most: u32,
    ) -> db::Result<Vec<Self>> {
        const PAGES: [&str; 6] = pages!(newest);
        let params = params![shelf.app, shelf.environment, owner_text(shelf), below.at, &below.id, most];
        db.all(PAGES[which(shelf, status)], params).await
    }

    /// Those whose names begin alike, in the order of their names.
    pub async fn named(
        db: &Db,
        shelf: Shelf,
        status: Option<Status>,
        prefix: &str,
        below: &Position,
        most: u32,
    ) -> db::Result<Vec<Self>> {
        const PAGES: [&str; 6] = pages!(named);
        let (after, id) = read_position(below);
        let from = name_start(prefix);
        let mut to = from.clone();
        // No text has a byte that cannot be counted up.
        if let Some(last) = to.last_mut() {
            *last += 1;
        }
        let length = i64::try_from(prefix.chars().count()).unwrap_or(i64::MAX);
        let owner = owner_text(shelf);
        let params = params![shelf.app, shelf.environment, owner, after, id, from, to, length, prefix, most];
        db.all(PAGES[which(shelf, status)], params).await
    }

    /// Those of an app in both environments, for an export.
    pub async fn exported_of_app(db: &Db, app: ApplicationId, most: u32) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM storage_object WHERE app_id = $1 ORDER BY environment, created_at, id LIMIT $2";
        db.all(sql, params![app, most]).await
    }

    /// Those of a user in all apps, for an export.
    pub async fn exported_of_owner(db: &Db, owner: AccountId, most: u32) -> db::Result<Vec<Self>> {
        let sql =
            "SELECT * FROM storage_object WHERE owner_id = $1 ORDER BY app_id, environment, created_at, id LIMIT $2";
        db.all(sql, params![owner, most]).await
    }

    pub async fn count_of_app(db: &Db, app: ApplicationId) -> db::Result<i64> {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM storage_object WHERE app_id = $1";
        let (count,): (i64,) = db.one(sql, params![app]).await?;
        Ok(count)
    }

    pub async fn count_of_owner(db: &Db, owner: AccountId) -> db::Result<i64> {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM storage_object WHERE owner_id = $1";
        let (count,): (i64,) = db.one(sql, params![owner]).await?;
        Ok(count)
    }

    /// Where it stands in the list by time.
    pub fn position(&self) -> Position {
        Position { at: self.created_at, id: self.id.to_string() }
    }

    /// Where it stands in the list by name.
    pub fn position_by_name(&self) -> Position {
        let start = String::from_utf8(name_start(&self.name)).unwrap_or_default();
        Position { at: Timestamp(0), id: format!("{}/{start}", self.id) }
    }
}

fn read_position(position: &Position) -> (Vec<u8>, String) {
    match position.id.split_once('/') {
        Some((id, start)) => (start.as_bytes().to_vec(), id.to_owned()),
        None => (vec![], String::new()),
    }
}

/// The files in the store. A row is written before the first byte, so none is ever forgotten.
pub mod files {
    use super::{AccountId, ApplicationId, Db, Key, Timestamp, Tx, params};

    /// Whose file it is.
    #[derive(Debug, Clone, Copy)]
    pub struct Holder {
        pub app: ApplicationId,
        pub owner: AccountId,
    }

    const INSERT: &str = "INSERT INTO storage_file (key, app_id, owner_id, doomed_at) VALUES ($1, $2, $3, $4)";

    /// Announces a file, to be deleted at a moment unless it is kept.
    pub async fn announce(db: &Db, holder: Holder, key: &Key, doomed_at: Timestamp) -> db::Result<()> {
        db.exec(INSERT, params![key, holder.app, holder.owner, doomed_at]).await?;
        Ok(())
    }

    pub async fn announce_in(tx: &mut Tx, holder: Holder, key: &Key, doomed_at: Timestamp) -> db::Result<()> {
        tx.send(INSERT, params![key, holder.app, holder.owner, doomed_at]).await
    }

    /// Keeps an announced file; `false` when it is deleted already.
    pub async fn keep(tx: &mut Tx, key: &Key) -> db::Result<bool> {
        let sql = "UPDATE storage_file SET doomed_at = NULL WHERE key = $1";
        Ok(tx.exec(sql, params![key]).await? == 1)
    }

    /// Has a file deleted at a moment.
    pub async fn doom(tx: &mut Tx, key: &Key, at: Timestamp) -> db::Result<()> {
        tx.send("UPDATE storage_file SET doomed_at = $2 WHERE key = $1", params![key, at]).await
    }

    /// Has all files of a user deleted.
    pub async fn doom_of_owner(tx: &mut Tx, owner: AccountId, at: Timestamp) -> db::Result<()> {
        let sql = "UPDATE storage_file SET doomed_at = $2 WHERE owner_id = $1 AND doomed_at IS NULL";
        tx.send(sql, params![owner, at]).await
    }

    /// Has the files of an app deleted that its emptying left over.
    pub async fn doom_of_app(tx: &mut Tx, app: ApplicationId, at: Timestamp) -> db::Result<()> {
        let sql = "UPDATE storage_file SET doomed_at = $2 WHERE app_id = $1 AND doomed_at IS NULL";
        tx.send(sql, params![app, at]).await
    }

    /// Some of those whose moment has come.
    pub async fn doomed(db: &Db, now: Timestamp, most: u32) -> db::Result<Vec<Key>> {
        let sql = "SELECT key FROM storage_file WHERE doomed_at <= $1 ORDER BY doomed_at, key LIMIT $2";
        let found: Vec<(Key,)> = db.all(sql, params![now, most]).await?;
        Ok(found.into_iter().map(|(key,)| key).collect())
    }

    /// Takes a file whose bytes are to be deleted now; `false` when it was kept meanwhile.
    pub async fn is_doomed(db: &Db, key: &Key, now: Timestamp) -> db::Result<bool> {
        let sql = "SELECT key FROM storage_file WHERE key = $1 AND doomed_at <= $2";
        Ok(db.opt::<(Key,)>(sql, params![key, now]).await?.is_some())
    }

    pub async fn forget(db: &Db, key: &Key, now: Timestamp) -> db::Result<()> {
        db.exec("DELETE FROM storage_file WHERE key = $1 AND doomed_at <= $2", params![key, now]).await?;
        Ok(())
    }

    /// Whether the store should hold a file of this key.
    pub async fn is_known(db: &Db, key: &Key) -> db::Result<bool> {
        let sql = "SELECT key FROM storage_file WHERE key = $1";
        Ok(db.opt::<(Key,)>(sql, params![key]).await?.is_some())
    }
}

/// The pieces of a resumable upload.
#[derive(Debug, Clone)]
pub struct Piece {
    pub start_at: i64,
    pub length: i64,
    pub file: Key,
}
row!(Piece { start_at, length, file });

impl Piece {
    pub async fn insert(&self, tx: &mut Tx, object: ObjectId) -> db::Result<()> {
        let sql = "INSERT INTO storage_piece (object_id, start_at, length, file) VALUES ($1, $2, $3, $4)";
        tx.send(sql, params![object, self.start_at, self.length, &self.file]).await
    }

    pub async fn all(mut from: impl Read, object: ObjectId) -> db::Result<Vec<Self>> {
        from.all("SELECT * FROM storage_piece WHERE object_id = $1 ORDER BY start_at", params![object]).await
    }

    /// Has the files of those that would be deleted before a moment deleted later.
    pub async fn keep_all(tx: &mut Tx, object: ObjectId, before: Timestamp, until: Timestamp) -> db::Result<()> {
        let sql = "UPDATE storage_file SET doomed_at = $3
                   WHERE doomed_at < $2 AND key IN (SELECT file FROM storage_piece WHERE object_id = $1)";
        tx.send(sql, params![object, before, until]).await
    }

    pub async fn delete_all(tx: &mut Tx, object: ObjectId) -> db::Result<()> {
        tx.send("DELETE FROM storage_piece WHERE object_id = $1", params![object]).await
    }
}

/// What a user stores, or all users of an app.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    pub objects: i64,
    pub bytes: i64,
    pub pending: i64,
}
row!(Usage { objects, bytes, pending });

/// What a counter may reach.
#[derive(Debug, Clone, Copy)]
pub struct UsageLimit {
    pub bytes: i64,
    pub pending: i64,
}

impl Usage {
    pub async fn find(mut from: impl Read, shelf: Shelf) -> db::Result<Self> {
        let sql = "SELECT objects, bytes, pending FROM storage_usage
                   WHERE app_id = $1 AND environment = $2 AND owner_id = $3";
        let found = from.opt(sql, params![shelf.app, shelf.environment, owner_text(shelf)]).await?;
        Ok(found.unwrap_or_default())
    }

    /// Counts a new upload; `false`, and nothing counted, where it does not fit.
    pub async fn begin(tx: &mut Tx, shelf: Shelf, size: i64, limit: UsageLimit) -> db::Result<bool> {
        let counted = tx
            .exec(
                "INSERT INTO storage_usage (app_id, environment, owner_id, objects, bytes, pending)
                 SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), 1, CAST($4 AS BIGINT), 1
                 WHERE CAST($4 AS BIGINT) <= CAST($5 AS BIGINT)
                 ON CONFLICT (app_id, environment, owner_id) DO UPDATE SET
                   objects = storage_usage.objects + 1, bytes = storage_usage.bytes + $4,
                   pending = storage_usage.pending + 1
                 WHERE storage_usage.bytes + $4 <= $5 AND storage_usage.pending < $6",
                params![shelf.app, shelf.environment, owner_text(shelf), size, limit.bytes, limit.pending],
            )
            .await?;
        Ok(counted == 1)
    }

    /// Changes the counters of an object's owner and of its app.
    pub async fn change(tx: &mut Tx, shelf: Shelf, by: Self) -> db::Result<()> {
        // The app first, as when an upload begins: two at once never wait for each other.
        for owner in [String::new(), owner_text(shelf)] {
            tx.send(
                "UPDATE storage_usage SET objects = objects + $4, bytes = bytes + $5, pending = pending + $6
                 WHERE app_id = $1 AND environment = $2 AND owner_id = $3",
                params![shelf.app, shelf.environment, owner, by.objects, by.bytes, by.pending],
            )
            .await?;
        }
        Ok(())
    }
}

/// What an account, or an app, stores in one environment of an app.
pub struct Share {
    pub app_id: ApplicationId,
    pub org_id: OrgId,
    pub environment: Environment,
    pub objects: i64,
    pub bytes: i64,
    pub pending: i64,
}
row!(Share { app_id, org_id, environment, objects, bytes, pending });

/// How many objects of an account that goes are deleted at once, since each is read into memory.
const TAKEN_AT_ONCE: u32 = 1000;

/// Deletes some objects of an account; the argument locks them first.
macro_rules! take_of_owner {
    ($lock:literal) => {
        concat!(
            "DELETE FROM storage_object WHERE id IN (SELECT id FROM storage_object WHERE owner_id = $1 LIMIT $2",
            $lock,
            ") RETURNING app_id, org_id, environment, CAST(1 AS BIGINT) AS objects, size AS bytes,
                         CAST(CASE WHEN status = 'pending' THEN 1 ELSE 0 END AS BIGINT) AS pending"
        )
    };
}

impl Share {
    /// Of an account that goes, in every app. What is deleted is added up, so that an object that another request
    /// deletes at the same time is given back once.
    pub async fn take_of_owner(tx: &mut Tx, owner: AccountId) -> db::Result<Vec<Self>> {
        // The lock lets the limit count rows that are still there.
        let sql = db::Sql::two(take_of_owner!(""), take_of_owner!(" FOR UPDATE"));
        let mut shares: BTreeMap<(String, &'static str), Self> = BTreeMap::new();
        loop {
            let taken = tx.put::<Self>(sql, params![owner, TAKEN_AT_ONCE]).await?;
            if taken.is_empty() {
                break;
            }
            for one in taken {
                match shares.entry((one.app_id.to_string(), one.environment.name())) {
                    Entry::Vacant(place) => {
                        place.insert(one);
                    }
                    Entry::Occupied(mut place) => {
                        let share = place.get_mut();
                        share.objects += one.objects;
                        share.bytes += one.bytes;
                        share.pending += one.pending;
                    }
                }
            }
        }
        tx.send("DELETE FROM storage_usage WHERE owner_id = $1", params![owner.to_string()]).await?;
        Ok(shares.into_values().collect())
    }

    /// The bytes of an app that goes, in both environments.
    pub async fn of_app(tx: &mut Tx, app: ApplicationId) -> db::Result<i64> {
        let sql =
            "SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM storage_usage WHERE app_id = $1 AND owner_id = ''";
        let (bytes,): (i64,) = tx.one(sql, params![app]).await?;
        Ok(bytes)
    }
}
