//! Object storage: files that browsers upload and download. They are stored in the data folder, or in an S3 bucket if
//! one is configured.
mod folder;
mod key;
mod s3;

use std::{pin::Pin, sync::Arc, time::Duration};

pub use folder::is_signed;
pub use key::Key;

use crate::{
    clock::{Clock, Timestamp},
    config::Config,
    crypto::Vault,
    fault::{Fault, INTERNAL, STORAGE_FULL, UNAVAILABLE},
};

/// Where objects are read and put under the base URL, when no other server does it.
pub const PATH: &str = "/files";

/// What a name stands for never changes, so nobody need ask twice.
pub const KEPT_FOR_GOOD: &str = "public, max-age=31536000, immutable";

/// A place for objects.
pub trait Objects: Send + Sync {
    /// Where whoever knows this address may put one object: the slot's, and no other.
    fn signed_put(&self, slot: &Slot<'_>) -> String;
    /// Nothing when it is not there; refuses one of more than `most` bytes without reading it all.
    fn read<'a>(&'a self, key: &'a Key, most: u64) -> Doing<'a, Option<Vec<u8>>>;
    /// Whole or not at all, over what was there.
    fn write<'a>(&'a self, key: &'a Key, content_type: &'a str, bytes: &'a [u8]) -> Doing<'a, ()>;
    /// What is not there is deleted already.
    fn delete<'a>(&'a self, key: &'a Key) -> Doing<'a, ()>;
    /// Where everybody may read it.
    fn public_url(&self, key: &Key) -> String;
    /// Whether what clients put comes by this server. If not, somebody has to look whether it came.
    fn is_put_here(&self) -> bool;
    /// Whether objects could be written now.
    fn check(&self) -> Doing<'_, ()>;
    /// Where objects lie, for people.
    fn describe(&self) -> String;
}

/// One object that may be put: its name, type and exact length, and until when.
#[derive(Debug)]
pub struct Slot<'a> {
    pub key: &'a Key,
    pub content_type: &'a str,
    pub length: u64,
    pub until: Timestamp,
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
}

impl From<ObjectError> for Fault {
    #[track_caller]
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Away(_) => UNAVAILABLE.caused_by(error).retry_after(Duration::from_secs(5)),
            ObjectError::Full(_) => STORAGE_FULL.caused_by(error).retry_after(Duration::from_secs(10)),
            ObjectError::TooLong => INTERNAL.caused_by(error),
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

/// Where this server itself shows an object.
fn shown_here(config: &Config) -> String {
    format!("{}{PATH}", config.base_url())
}
