//! Object storage: files of any size, in the data folder, or in an S3 bucket if one is configured.
//!
//! Bytes come and go as streams, so an object is never in memory as a whole. What was acknowledged is on the disk, whole
//! and under its name; what was not has left nothing under that name.
mod folder;
mod key;
mod s3;
mod streams;

use std::{ops::Range, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::StreamExt as _;

pub use folder::is_signed;
pub use key::Key;
pub use streams::{Content, Hasher, Sha256, Source, checked, limited, once};

use crate::{
    clock::{Clock, Timestamp},
    config::Config,
    crypto::Vault,
    fault::{Fault, INTERNAL, STORAGE_FULL, UNAVAILABLE},
};

/// Where objects are read and put under the base URL, when no other server does it.
pub const PATH: &str = "/files";

/// The object of a name never changes, so caches may keep it for good.
pub const KEPT_FOR_GOOD: &str = "public, max-age=31536000, immutable";

/// A place for objects.
pub trait Objects: Send + Sync {
    /// A URL by which a client may write one object: the slot's, and no other.
    fn signed_put(&self, slot: &Slot<'_>) -> String;
    /// A URL by which a client may read one object for a while; none where only this server reads them.
    fn signed_get(&self, view: &View<'_>) -> Option<String>;
    /// Whole or not at all, over what was there; durable once it answers.
    fn put<'a>(&'a self, new: New<'a>, bytes: Source<'a>) -> Doing<'a, Stored>;
    /// Its bytes, or some of them; nothing when it is not there. A range must lie within the object.
    fn get<'a>(&'a self, key: &'a Key, range: Option<Range<u64>>) -> Doing<'a, Option<Content>>;
    /// How long it is; nothing when it is not there.
    fn head<'a>(&'a self, key: &'a Key) -> Doing<'a, Option<u64>>;
    /// The same bytes under another name, durable once it answers; `false` when there is nothing to copy.
    fn copy<'a>(&'a self, from: &'a Key, to: &'a Key) -> Doing<'a, bool>;
    /// Deletes an object. A missing one counts as deleted.
    fn delete<'a>(&'a self, key: &'a Key) -> Doing<'a, ()>;
    /// Those in a folder and below it, in the order of their names, after one of them; at most [`LISTED`] at a time,
    /// and none only at the end. The folder without a name has all.
    fn list<'a>(&'a self, folder: &'a str, after: Option<&'a Key>) -> Doing<'a, Vec<Listed>>;
    /// The public URL of an object.
    fn public_url(&self, key: &Key) -> String;
    /// Whether uploads of clients come by this server. If not, a job has to check whether they arrived.
    fn is_put_here(&self) -> bool;
    /// Whether objects could be written now.
    fn check(&self) -> Doing<'_, ()>;
    /// Where objects lie, for people.
    fn describe(&self) -> String;
}

/// How many objects a list names at most.
pub const LISTED: usize = 1000;

/// For objects that are known to be small.
impl dyn Objects + '_ {
    /// Nothing when it is not there; refuses one of more than `most` bytes without reading it all.
    pub async fn read(&self, key: &Key, most: u64) -> Result<Option<Vec<u8>>, ObjectError> {
        let Some(mut content) = self.get(key, None).await? else { return Ok(None) };
        if content.total > most {
            return Err(ObjectError::TooLong);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(content.total).unwrap_or_default());
        while let Some(piece) = content.bytes.next().await {
            bytes.extend_from_slice(&piece.map_err(|error| ObjectError::Away(error.to_string()))?);
        }
        Ok(Some(bytes))
    }

    /// Whole or not at all, over what was there.
    pub async fn write(&self, key: &Key, content_type: &str, bytes: &[u8]) -> Result<(), ObjectError> {
        let new = New { cache_control: Some(KEPT_FOR_GOOD), ..New::at(key, content_type) };
        self.put(new, once(Bytes::copy_from_slice(bytes))).await.map(|_| ())
    }
}

/// One object that may be put: its name, type, exact length and, if it is known, its digest, and until when.
#[derive(Debug, Clone, Copy)]
pub struct Slot<'a> {
    pub key: &'a Key,
    pub content_type: &'a str,
    pub length: u64,
    pub sha256: Option<Sha256>,
    pub until: Timestamp,
}

/// How one object may be read, and until when.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub key: &'a Key,
    pub content_type: &'a str,
    /// As in `Content-Disposition`.
    pub disposition: &'a str,
    pub until: Timestamp,
}

/// An object to put. It is refused, and nothing kept, when its bytes are not what is said of them.
#[derive(Debug, Clone, Copy)]
pub struct New<'a> {
    pub key: &'a Key,
    pub content_type: &'a str,
    pub length: Option<u64>,
    pub sha256: Option<Sha256>,
    /// For those who read it from a bucket without us.
    pub cache_control: Option<&'static str>,
}

impl<'a> New<'a> {
    /// Of any length and content.
    pub fn at(key: &'a Key, content_type: &'a str) -> Self {
        Self { key, content_type, length: None, sha256: None, cache_control: None }
    }

    fn must_be(&self, stored: &Stored) -> Result<(), ObjectError> {
        if self.length.is_some_and(|length| length != stored.length) {
            return Err(ObjectError::Unlike("length"));
        }
        if self.sha256.is_some_and(|sha256| sha256 != stored.sha256) {
            return Err(ObjectError::Unlike("sha256"));
        }
        Ok(())
    }
}

/// The object that a client wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    pub length: u64,
    pub sha256: Sha256,
}

/// An object in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub key: Key,
    pub length: u64,
    pub changed_at: Timestamp,
}

pub type Doing<'a, T> = Pin<Box<dyn Future<Output = Result<T, ObjectError>> + Send + 'a>>;

#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// Worth trying again: the store is out of reach or said "not now".
    #[error("the objects are out of reach: {0}")]
    Away(String),
    #[error("there is no room for objects: {0}")]
    Full(String),
    #[error("the object is longer than it may be")]
    TooLong,
    /// Not what was said of it; nothing was kept.
    #[error("the object has another {0} than was said")]
    Unlike(&'static str),
    /// The bytes did not come to their end, and nothing was kept.
    #[error("the bytes of the object ended early: {}", .0.code().name)]
    Source(Fault),
}

impl From<ObjectError> for Fault {
    #[track_caller]
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Away(_) => UNAVAILABLE.caused_by(error).retry_after(Duration::from_secs(5)),
            ObjectError::Full(_) => STORAGE_FULL.caused_by(error).retry_after(Duration::from_secs(10)),
            ObjectError::TooLong | ObjectError::Unlike(_) => INTERNAL.caused_by(error),
            ObjectError::Source(fault) => fault,
        }
    }
}

/// The driver the settings ask for; the error names the wrong setting.
pub fn from_config(config: &Config, vault: &Vault, clock: &Clock) -> Result<Arc<dyn Objects>, String> {
    match s3::S3::from_config(config, clock)? {
        Some(bucket) => Ok(Arc::new(bucket)),
        None => Ok(Arc::new(folder::Folder::new(config, vault))),
    }
}

/// Both places where objects can be: the data folder, and the bucket of the settings if they have one.
pub struct Places {
    pub folder: Arc<dyn Objects>,
    pub bucket: Option<Arc<dyn Objects>>,
}

pub fn folder_and_bucket(config: &Config, vault: &Vault, clock: &Clock) -> Result<Places, String> {
    let bucket = s3::S3::from_config(config, clock)?.map(|bucket| Arc::new(bucket) as Arc<dyn Objects>);
    Ok(Places { folder: Arc::new(folder::Folder::new(config, vault)), bucket })
}

/// Where this server itself shows an object.
fn shown_here(config: &Config) -> String {
    format!("{}{PATH}", config.base_url())
}
