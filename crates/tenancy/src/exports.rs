//! What features add to the export of an app's data and of a user's. Each declares it beside its own tables.
use std::pin::Pin;

use kernel::{Janua, fault::Result};
use serde_json::{Map, Value};

use crate::ids::{AccountId, ApplicationId};

/// Answers what an export lists under a name.
pub type Listing<T> = for<'a> fn(&'a Janua, T) -> Pin<Box<dyn Future<Output = Result<Value>> + Send + 'a>>;

/// What a feature declares, with [`Feature::declares`](kernel::feature::Feature::declares): a name and a listing.
#[derive(Clone, Copy)]
pub enum Export {
    App(&'static str, Listing<ApplicationId>),
    Account(&'static str, Listing<AccountId>),
}

pub async fn of_app(janua: &Janua, id: ApplicationId) -> Result<Map<String, Value>> {
    let mut listed = Map::new();
    for export in janua.declared::<Export>() {
        if let Export::App(name, listing) = export {
            listed.insert((*name).to_owned(), listing(janua, id).await?);
        }
    }
    Ok(listed)
}

pub async fn of_account(janua: &Janua, id: AccountId) -> Result<Map<String, Value>> {
    let mut listed = Map::new();
    for export in janua.declared::<Export>() {
        if let Export::Account(name, listing) = export {
            listed.insert((*name).to_owned(), listing(janua, id).await?);
        }
    }
    Ok(listed)
}
