//! The keys a provider signs with, fetched when they are needed and remembered for a while.
use std::time::Duration;

use jsonwebtoken::jwk::Jwk;
use kernel::{clock::Timestamp, fault::Result};
use serde_json::Value;
use tokio::sync::Mutex;
use url::Url;

use super::wire::{Broken, Wire};

/// Keys are asked for again after this long.
const KEPT: Duration = Duration::from_hours(1);
/// A key nobody knows may be a new one, or made up: this often it is worth a question.
const PATIENCE: Duration = Duration::from_mins(1);
/// After a failure nobody is asked for this long, so that those who wait do not wait one after another.
const PAUSE: Duration = Duration::from_secs(5);

pub struct KeySet {
    url: Url,
    known: Mutex<ProviderKeys>,
}

#[derive(Default)]
struct ProviderKeys {
    keys: Vec<Jwk>,
    fetched_at: Option<Timestamp>,
    failed_at: Option<Timestamp>,
}

impl KeySet {
    pub fn at(url: Url) -> Self {
        Self { url, known: Mutex::default() }
    }

    /// The key of this name; `None` when the provider has no such key.
    pub async fn find(&self, wire: &Wire, id: &str, now: Timestamp) -> Result<Option<Jwk>, Broken> {
        let mut known = self.known.lock().await;
        let age = known.fetched_at.map(|at| now.since(at));
        let found = known.get(id);
        let must_ask = match age {
            None => true,
            Some(age) => age >= KEPT || (found.is_none() && age >= PATIENCE),
        };
        if !must_ask {
            return Ok(found);
        }
        if known.failed_at.is_some_and(|at| now.since(at) < PAUSE) {
            return Err(Broken("the keys could not be had a moment ago".into()));
        }
        match wire.document(&self.url, None).await {
            Ok(document) => {
                *known = ProviderKeys { keys: read(&document), fetched_at: Some(now), failed_at: None };
                Ok(known.get(id))
            }
            Err(broken) => {
                known.failed_at = Some(now);
                Err(broken)
            }
        }
    }
}

impl ProviderKeys {
    fn get(&self, id: &str) -> Option<Jwk> {
        self.keys.iter().find(|key| key.common.key_id.as_deref() == Some(id)).cloned()
    }
}

/// Each key for itself: one of a kind we do not know takes nothing from the others.
fn read(document: &Value) -> Vec<Jwk> {
    let keys = document["keys"].as_array().into_iter().flatten();
    keys.filter_map(|key| serde_json::from_value(key.clone()).ok()).collect()
}
