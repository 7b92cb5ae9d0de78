//! The table of uploads, and every statement on it.
use db::{Db, FromRow, Row, Tx, params};
use kernel::{
    clock::Timestamp,
    id::Id,
    ports::objects::{Key, Slot},
};

use super::picture::PictureType;
use crate::events::By;
pub use crate::ids::UploadId;

/// Whose picture it is: a kind that a feature declares ([`PicturesOf`](super::PicturesOf)), and an id of that kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub(super) kind: String,
    pub(super) id: String,
}

impl Subject {
    pub fn id<T>(&self) -> Option<Id<T>> {
        self.id.parse().ok()
    }
}

#[derive(Debug, Clone)]
pub struct Upload {
    pub id: UploadId,
    pub subject: Subject,
    /// The key that clients write to. Only this server reads from there.
    pub incoming_key: Key,
    /// Where it is shown once it was drawn anew.
    pub picture_key: Key,
    pub content_type: PictureType,
    pub length: u32,
    pub by: By,
    pub expires_at: Timestamp,
}

impl FromRow for Upload {
    fn from_row(mut row: Row) -> db::Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            subject: Subject { kind: row.get("kind")?, id: row.get("subject_id")? },
            incoming_key: row.get("incoming_key")?,
            picture_key: row.get("picture_key")?,
            content_type: row.get("content_type")?,
            length: row.get("length")?,
            by: By {
                actor: row.get("actor_id")?,
                ip: row.get("ip")?,
                user_agent: row.get("user_agent")?,
                app: row.get("app_id")?,
                key: None,
                is_shell: false,
            },
            expires_at: row.get("expires_at")?,
        })
    }
}

impl Upload {
    /// The object that a client may write.
    pub fn slot(&self) -> Slot<'_> {
        Slot {
            key: &self.incoming_key,
            content_type: self.content_type.name(),
            length: self.length.into(),
            sha256: None,
            until: self.expires_at,
        }
    }

    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "INSERT INTO upload (id, kind, subject_id, incoming_key, picture_key, content_type, length, actor_id,
                                 app_id, ip, user_agent, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
            params![
                self.id,
                self.subject.kind.clone(),
                self.subject.id.clone(),
                &self.incoming_key,
                &self.picture_key,
                self.content_type,
                self.length,
                self.by.actor,
                self.by.app,
                self.by.ip.clone(),
                self.by.user_agent.clone(),
                self.expires_at
            ],
        )
        .await?;
        Ok(())
    }

    /// How many are open for one picture.
    pub async fn count_open(tx: &mut Tx, subject: &Subject, now: Timestamp) -> db::Result<i64> {
        let sql = "SELECT CAST(COUNT(*) AS BIGINT) FROM upload
                   WHERE kind = $1 AND subject_id = $2 AND done_at IS NULL AND expires_at > $3";
        let (open,): (i64,) = tx.one(sql, params![subject.kind.clone(), subject.id.clone(), now]).await?;
        Ok(open)
    }

    pub async fn find_open(db: &Db, id: UploadId) -> db::Result<Option<Self>> {
        db.opt("SELECT * FROM upload WHERE id = $1 AND done_at IS NULL", params![id]).await
    }

    /// Claims the single write of an upload; none when it is unknown, expired or was written already.
    pub async fn begin(db: &Db, incoming: &Key, now: Timestamp) -> db::Result<Option<Self>> {
        let sql = "UPDATE upload SET begun_at = $2
                   WHERE incoming_key = $1 AND begun_at IS NULL AND done_at IS NULL AND expires_at > $2 RETURNING *";
        Ok(db.put(sql, params![incoming, now]).await?.pop())
    }

    /// Gives the turn back: it was not the client's fault.
    pub async fn release(&self, db: &Db) -> db::Result<()> {
        let sql = "UPDATE upload SET begun_at = NULL WHERE id = $1 AND done_at IS NULL";
        db.exec(sql, params![self.id]).await?;
        Ok(())
    }

    /// Ends it; `false` when it is not open any more.
    pub async fn end(&self, tx: &mut Tx, now: Timestamp) -> db::Result<bool> {
        let sql = "UPDATE upload SET done_at = $2, ip = NULL, user_agent = NULL WHERE id = $1 AND done_at IS NULL";
        Ok(tx.exec(sql, params![self.id, now]).await? == 1)
    }

    pub async fn exists(&self, tx: &mut Tx) -> db::Result<bool> {
        Ok(tx.opt::<(String,)>("SELECT id FROM upload WHERE id = $1", params![self.id]).await?.is_some())
    }

    pub async fn delete(&self, tx: &mut Tx) -> db::Result<bool> {
        Ok(tx.exec("DELETE FROM upload WHERE id = $1 AND done_at IS NULL", params![self.id]).await? == 1)
    }

    /// Takes away what was the picture before this one.
    pub async fn take_previous(&self, tx: &mut Tx) -> db::Result<Vec<Self>> {
        let sql = "DELETE FROM upload
                   WHERE kind = $1 AND subject_id = $2 AND done_at IS NOT NULL AND id <> $3 RETURNING *";
        tx.put(sql, params![self.subject.kind.clone(), self.subject.id.clone(), self.id]).await
    }

    /// Deletes all uploads of a deleted account, organization or app.
    pub async fn take_all(tx: &mut Tx, subject: &Subject) -> db::Result<Vec<Self>> {
        let sql = "DELETE FROM upload WHERE kind = $1 AND subject_id = $2 RETURNING *";
        tx.put(sql, params![subject.kind.clone(), subject.id.clone()]).await
    }

    /// Deletes some of the uploads that were not finished in time.
    pub async fn take_stale(tx: &mut Tx, before: Timestamp) -> db::Result<Vec<Self>> {
        let sql = "DELETE FROM upload WHERE id IN
                     (SELECT id FROM upload WHERE done_at IS NULL AND expires_at < $1 ORDER BY expires_at LIMIT 500)
                   RETURNING *";
        tx.put(sql, params![before]).await
    }
}
