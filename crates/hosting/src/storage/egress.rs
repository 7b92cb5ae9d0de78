//! Bytes that are read: counted in memory, and added to the meter every few seconds. A crash loses those few seconds.
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kernel::{Janua, transact};
use tenancy::{ids::OrgId, orgs::Org, quotas};

use super::EGRESS_BYTES;

const INTERVAL: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Egress(Mutex<HashMap<OrgId, i64>>);

impl Egress {
    pub fn count(&self, org: OrgId, bytes: u64) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(org).or_default() += bytes;
    }

    pub fn take(&self) -> HashMap<OrgId, i64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub async fn flush_regularly(janua: Janua) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        flush(&janua).await;
    }
}

pub async fn flush(janua: &Janua) {
    let egress = janua.own::<Egress>();
    for (org, bytes) in egress.take() {
        let counted: kernel::fault::Result<()> =
            transact!(janua, async |tx| Ok(quotas::spend_beyond(tx, janua, org, &EGRESS_BYTES, bytes).await?));
        // What an organization that is gone has read is counted for none.
        if counted.is_err() && !matches!(Org::find(&janua.db, org).await, Ok(None)) {
            // Counted with the next.
            egress.count(org, u64::try_from(bytes).unwrap_or_default());
        }
    }
}
