//! Stored objects of an app, for features that send them on. The feature that keeps them declares how they are read.
use std::pin::Pin;

use kernel::{Janua, fault::Result};

use crate::ids::ApplicationId;

/// An object as a whole, in memory.
pub struct LentObject {
    pub name: String,
    pub content_type: String,
    pub bytes: Vec<u8>,
}

/// The outcome of a request for an object.
pub enum Lent {
    Object(LentObject),
    /// It is not there, not finished, or of another app.
    Unknown,
    TooLarge,
}

/// Which object of which app, and of how many bytes at the most.
pub struct Wanted<'a> {
    pub app: ApplicationId,
    pub id: &'a str,
    pub most: u64,
}

type Lending = for<'a> fn(&'a Janua, Wanted<'a>) -> Pin<Box<dyn Future<Output = Result<Lent>> + Send + 'a>>;

/// What a feature declares, with [`Feature::declares`](kernel::feature::Feature::declares).
#[derive(Clone, Copy)]
pub struct LendsObjects(pub Lending);

/// Reads an object of an app. Callers have checked that the sender may read the app's stored objects.
pub async fn object(janua: &Janua, wanted: Wanted<'_>) -> Result<Lent> {
    match janua.declared::<LendsObjects>().first() {
        Some(LendsObjects(lending)) => lending(janua, wanted).await,
        None => Ok(Lent::Unknown),
    }
}
