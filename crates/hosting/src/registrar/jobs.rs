//! Buying a domain, and following the purchase to its end.
use std::time::Duration;

use db::Tx;
use kernel::{
    Janua,
    clock::Timestamp,
    fault::Result,
    jobs::{self, Job, Jobs, Later},
    transact,
};
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::Application,
    events::{self, About, By},
};

use super::{
    Away, Progress, Registrar,
    api::{DomainRegistrationFailed, DomainRegistrationSucceeded},
    model::{Registration, RegistrationId, RegistrationStatus},
};
use crate::domains;

const EVERY: Duration = Duration::from_mins(1);
const BATCH: u32 = 50;
const POLL: Duration = Duration::from_secs(50);
const ACTION_POLL: Duration = Duration::from_mins(30);
const LEASE: Duration = Duration::from_mins(2);

pub fn jobs() -> Jobs {
    Jobs::new().on::<FollowRegistration>().every::<FollowRegistrations>(EVERY)
}

/// Follows every purchase whose time has come.
#[derive(Default, Serialize, Deserialize)]
struct FollowRegistrations {}

impl Job for FollowRegistrations {
    const KIND: &'static str = "registration.poll";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        for (id,) in Registration::due(&janua.db, janua.clock.now(), BATCH).await? {
            follow(&janua, id).await?;
        }
        Ok(())
    }
}

/// The same for one that was just made.
#[derive(Serialize, Deserialize)]
struct FollowRegistration {
    id: RegistrationId,
}

impl Job for FollowRegistration {
    const KIND: &'static str = "registration.follow";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        Ok(follow(&janua, self.id).await?)
    }
}

pub async fn enqueue(tx: &mut Tx, janua: &Janua, id: RegistrationId) -> db::Result<()> {
    jobs::enqueue(tx, janua, janua.clock.now(), &FollowRegistration { id }).await
}

async fn follow(janua: &Janua, id: RegistrationId) -> Result<()> {
    let now = janua.clock.now();
    let Some(purchase) = Registration::claim(&janua.db, id, now, now.plus(LEASE)).await? else { return Ok(()) };
    match step(janua, &purchase, now).await? {
        Ok(progress) => note(janua, purchase, progress).await,
        Err(away) => {
            tracing::warn!(domain = purchase.domain, error = %away, "the registrar does not answer");
            let next = now.plus(away.wait.unwrap_or(POLL));
            let message = Some("The registrar does not answer. It is asked again.".to_owned());
            let waiting = Registration { message, updated_at: now, ..purchase };
            transact!(janua, async |tx| Ok(waiting.save(tx, Some(next)).await?))?;
            Ok(())
        }
    }
}

async fn step(janua: &Janua, purchase: &Registration, now: Timestamp) -> Result<Result<Progress, Away>> {
    let registrar = janua.own::<Box<dyn Registrar>>();
    if let Some(operation) = &purchase.operation {
        return Ok(registrar.poll(purchase, operation).await);
    }
    // Written down before it is asked. Where it was asked before, its answer was lost: then it is looked for first.
    if !purchase.note_asking(&janua.db, now).await? {
        match registrar.find(&purchase.domain).await {
            Ok(None) => {}
            Ok(Some(found)) => return Ok(Ok(found)),
            Err(away) => return Ok(Err(away)),
        }
    }
    let contact = purchase.contact(janua)?;
    Ok(registrar.register(purchase, &contact).await)
}

async fn note(janua: &Janua, mut purchase: Registration, progress: Progress) -> Result<()> {
    let now = janua.clock.now();
    purchase.updated_at = now;
    let next = match progress {
        Progress::Running(operation) => {
            (purchase.status, purchase.message) = (RegistrationStatus::InProgress, None);
            purchase.operation = Some(operation);
            Some(now.plus(POLL))
        }
        Progress::ActionRequired(message) => {
            (purchase.status, purchase.message) = (RegistrationStatus::ActionRequired, Some(message));
            Some(now.plus(ACTION_POLL))
        }
        Progress::Succeeded { expires_at } => {
            (purchase.status, purchase.message) = (RegistrationStatus::Succeeded, None);
            purchase.expires_at = expires_at;
            None
        }
        Progress::Failed(message) => {
            let message = message.chars().take(500).collect();
            (purchase.status, purchase.message) = (RegistrationStatus::Failed, Some(message));
            None
        }
    };
    if next.is_none() {
        // Nobody needs to know any more who it is for.
        (purchase.is_open, purchase.contact) = (false, None);
    }
    transact!(janua, async |tx| {
        if !purchase.save(tx, next).await? {
            return Ok(());
        }
        let (by, about) = (By::default(), About::in_org(purchase.org_id));
        let domain = purchase.domain.clone();
        match purchase.status {
            RegistrationStatus::Succeeded => {
                events::record(tx, janua, &by, about, &DomainRegistrationSucceeded { domain }).await?;
                if let Some(app) = purchase.app_id
                    && let Some(application) = Application::find(&mut *tx, app).await?
                {
                    domains::onboard_registered(tx, janua, &application, &purchase.domain).await?;
                }
            }
            RegistrationStatus::Failed => {
                let message = purchase.message.clone().unwrap_or_default();
                events::record(tx, janua, &by, about, &DomainRegistrationFailed { domain, message }).await?;
            }
            _ => {}
        }
        Ok(())
    })
}
