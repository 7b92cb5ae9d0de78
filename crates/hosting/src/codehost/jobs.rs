//! Work on deliveries. What a delivery leads to is read from the host, never from the delivery: an old one, or one that comes
//! twice or in another order, leads to the same.
use std::time::Duration;

use kernel::{
    Janua,
    jobs::{self, Job, Jobs, Later},
    transact,
};
use serde::{Deserialize, Serialize};
use tenancy::{
    apps::ApplicationId,
    events::{self, About, By},
};

use super::{
    again::FetchCommit,
    deploy,
    events::{CodehostDisconnected, CodehostResumed, CodehostSuspended},
    host::{CodeHost, Host, HostError},
    model::{
        Delivery, DeployedBy, Head, HeadName, Installation, InstallationId, LEASE, Link, LinkId, Outcome, OutcomeId,
        Previews, Repository, Status,
    },
    webhook,
};
use crate::deployments::DeploymentId;

pub fn jobs() -> Jobs {
    Jobs::new()
        .on::<HandleDelivery>()
        .on::<DeployHead>()
        .on::<FetchCommit>()
        .on::<Uninstall>()
        .every::<CatchUp>(Duration::from_hours(1))
}

pub fn later(error: HostError) -> Later {
    match error {
        HostError::Away { wait: Some(wait), .. } => Later::retry_after(&error, wait),
        error => Later::retry(error),
    }
}

/// What a delivery, or a user who runs it again, asks for.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandleDelivery {
    pub delivery: String,
    /// For one organization's installation alone.
    pub only: Option<InstallationId>,
    /// Whether what was deployed already is deployed again.
    pub again: bool,
}

impl Job for HandleDelivery {
    const KIND: &'static str = "handle_codehost_delivery";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(host) = CodeHost::find(&janua) else { return Ok(()) };
        let Some(delivery) = Delivery::find(&janua.db, &self.delivery).await? else { return Ok(()) };
        let mut all = Installation::all_of(&janua.db, delivery.external_id).await?;
        all.retain(|one| self.only.is_none_or(|only| only == one.id));
        match delivery.event.as_str() {
            "installation" => align_installations(&janua, host, &delivery, &all).await,
            "installation_repositories" | "repository" => align_repositories(&janua, host, &delivery, &all).await,
            _ => queue_deployments(&janua, &delivery, &all, self.again).await,
        }
    }
}

/// Notes what a delivery led to.
pub struct Led<'a> {
    pub result: &'a str,
    pub message: String,
    pub app: Option<ApplicationId>,
    pub deployment: Option<DeploymentId>,
}

impl<'a> Led<'a> {
    pub fn to(result: &'a str, message: impl Into<String>) -> Self {
        Self { result, message: message.into(), app: None, deployment: None }
    }

    pub async fn note(
        &self,
        tx: &mut db::Tx,
        janua: &Janua,
        delivery: Option<&str>,
        installation: InstallationId,
    ) -> db::Result<()> {
        let Some(delivery) = delivery else { return Ok(()) };
        let now = janua.clock.now();
        Outcome {
            id: OutcomeId::new(&janua.entropy, now),
            delivery_id: delivery.to_owned(),
            installation_id: installation,
            app_id: self.app,
            result: self.result.to_owned(),
            message: self.message.clone(),
            deployment_id: self.deployment,
            at: now,
        }
        .insert(tx)
        .await
    }
}

/// As the host says now: deleted, suspended or active.
async fn align_installations(
    janua: &Janua,
    host: &Host,
    delivery: &Delivery,
    all: &[Installation],
) -> Result<(), Later> {
    let found = host.installation(delivery.external_id).await.map_err(later)?;
    for one in all {
        transact!(janua, async |tx| {
            let Some(mut stored) = Installation::hold(tx, one.id).await? else { return Ok(()) };
            let before = stored.status;
            stored.status = match &found {
                None => Status::Disconnected,
                Some(found) if found.is_suspended => Status::Suspended,
                Some(_) => Status::Active,
            };
            if let Some(found) = &found {
                stored.account_login.clone_from(&found.account_login);
                stored.account_avatar.clone_from(&found.account_avatar);
                stored.permissions.clone_from(&found.permissions);
                stored.repository_selection.clone_from(&found.repository_selection);
            }
            stored.updated_at = janua.clock.now();
            stored.save(tx).await?;
            let (installation_id, account) = (stored.id, stored.account_login.clone());
            let (about, by) = (About::in_org(stored.org_id), By::default());
            let message = match (before, stored.status) {
                (before, now) if before == now => "Nothing changed.",
                (_, Status::Suspended) => {
                    let event = CodehostSuspended { installation_id, account };
                    events::record(tx, janua, &by, about, &event).await?;
                    "The installation is suspended: nothing is deployed."
                }
                (_, Status::Disconnected) => {
                    let event = CodehostDisconnected { installation_id, account };
                    events::record(tx, janua, &by, about, &event).await?;
                    "The app was uninstalled at the code host: nothing is deployed."
                }
                _ => {
                    let event = CodehostResumed { installation_id, account };
                    events::record(tx, janua, &by, about, &event).await?;
                    "The installation is active again."
                }
            };
            let led = Led::to(if before == stored.status { "unchanged" } else { "updated" }, message);
            Ok(led.note(tx, janua, Some(&delivery.id), stored.id).await?)
        })?;
    }
    Ok(())
}

/// Follows repositories by their numbers: new names are taken over, and what the app may no longer read is let go of.
async fn align_repositories(
    janua: &Janua,
    host: &Host,
    delivery: &Delivery,
    all: &[Installation],
) -> Result<(), Later> {
    for one in all {
        let mut changed = vec![];
        for number in &delivery.facts.repositories {
            let Some(known) = Repository::find(&janua.db, one.id, *number).await? else { continue };
            host.forget(delivery.external_id, *number);
            let found = match host.repository(janua, (delivery.external_id, *number)).await {
                Ok(found) => Some(found),
                Err(error) if error.is_gone() => None,
                Err(error) => return Err(later(error)),
            };
            changed.push((known, found));
        }
        transact!(janua, async |tx| {
            let mut messages = vec![];
            for (known, found) in &changed {
                match found {
                    Some(found) if found == known => {}
                    Some(found) => {
                        found.put(tx, one.id).await?;
                        messages.push(format!("{} is now {}.", known.full_name, found.full_name));
                    }
                    None => {
                        Repository::delete(tx, one.id, known.repository_id).await?;
                        messages.push(format!("{} can no longer be read: its links ended.", known.full_name));
                    }
                }
            }
            let led = if messages.is_empty() {
                Led::to("unchanged", "Nothing changed for this organization.")
            } else {
                Led::to("updated", messages.join(" "))
            };
            Ok(led.note(tx, janua, Some(&delivery.id), one.id).await?)
        })?;
    }
    Ok(())
}

/// A push or a pull request: each link that it concerns looks at the host.
async fn queue_deployments(
    janua: &Janua,
    delivery: &Delivery,
    all: &[Installation],
    again: bool,
) -> Result<(), Later> {
    let now = janua.clock.now();
    for one in all {
        transact!(janua, async |tx| {
            let links = Link::all_of(&mut *tx, one.id).await?;
            let mut is_concerned = false;
            for link in links.iter().filter(|link| Some(link.repository_id) == delivery.repository_id) {
                let Some(head) = head_of(delivery, link) else { continue };
                is_concerned = true;
                let job = DeployHead { link: link.id, head, delivery: Some(delivery.id.clone()), again };
                jobs::enqueue(tx, janua, now, &job).await?;
            }
            if !is_concerned
                && Repository::find(&mut *tx, one.id, delivery.repository_id.unwrap_or(-1)).await?.is_some()
            {
                let led = Led::to("ignored", "No link deploys this branch or pull request.");
                led.note(tx, janua, Some(&delivery.id), one.id).await?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// What a delivery is about for a link; nothing where its rules say so.
fn head_of(delivery: &Delivery, link: &Link) -> Option<HeadName> {
    let facts = &delivery.facts;
    if link.deployed_by == DeployedBy::Ci {
        return None;
    }
    if let Some(pull) = facts.pull {
        return (link.previews != Previews::Off).then_some(HeadName::Pull(pull));
    }
    let branch = facts.branch.clone()?;
    let is_production = link.production_branch.as_ref() == Some(&branch);
    (is_production || link.previews == Previews::Branches).then_some(HeadName::Branch(branch))
}

/// Deploys what a branch or a pull request points to now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeployHead {
    pub link: LinkId,
    pub head: HeadName,
    pub delivery: Option<String>,
    /// Whether a commit that was deployed already is deployed again.
    pub again: bool,
}

impl Job for DeployHead {
    const KIND: &'static str = "deploy_codehost_head";
    const TRIES: u32 = 5;

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(host) = CodeHost::find(&janua) else { return Ok(()) };
        let name = self.head.key();
        loop {
            let now = janua.clock.now();
            // One run at a time, or an older commit could be deployed after a newer one.
            let taken = transact!(janua, async |tx| {
                if Link::find(&mut *tx, self.link).await?.is_none() {
                    return Ok(None);
                }
                let taken = Head::take(tx, self.link, &name, now).await?;
                if taken.is_none() {
                    // The one that has it looks again; should it die, this one does.
                    let unique = format!("codehost:{}:{name}", self.link);
                    jobs::enqueue_at(tx, &janua, now, now.plus(LEASE), Some(&unique), &self).await?;
                }
                Ok(taken)
            })?;
            let Some(head) = taken else { return Ok(()) };
            let fence = head.fence;
            if let Err(later) = deploy::deploy_head(&janua, host, &self, &head).await {
                Head::drop_lease(&janua.db, self.link, &name, fence).await?;
                return Err(later);
            }
            let is_asked_again =
                transact!(janua, async |tx| Ok(Head::give_back(tx, self.link, &name, fence, now).await?))?;
            if !is_asked_again {
                return Ok(());
            }
            Head::drop_lease(&janua.db, self.link, &name, fence).await?;
        }
    }
}

/// Uninstalls the app at the code host, after the last organization disconnected it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Uninstall {
    pub installation: i64,
}

impl Job for Uninstall {
    const KIND: &'static str = "uninstall_codehost";

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(host) = CodeHost::find(&janua) else { return Ok(()) };
        if !Installation::all_of(&janua.db, self.installation).await?.is_empty() {
            // Somebody connected it again meanwhile.
            return Ok(());
        }
        host.uninstall(self.installation).await.map_err(later)
    }
}

/// Fetches what the host did not deliver: it does not try again by itself.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct CatchUp {}

/// The host keeps deliveries for three days, and we know ours for thirty.
const OLDEST: Duration = Duration::from_hours(24 * 7);
const MOST_PAGES: usize = 5;
const MOST_FETCHED: usize = 200;

impl Job for CatchUp {
    const KIND: &'static str = "catch_up_codehost";
    const TRIES: u32 = 3;

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(host) = CodeHost::find(&janua) else { return Ok(()) };
        let (mut cursor, mut missed) = (None, vec![]);
        for _ in 0..MOST_PAGES {
            let (listed, next) = host.deliveries(cursor.as_deref()).await.map_err(later)?;
            for one in listed {
                let Some(external) = one.installation else { continue };
                let id = one.guid.to_ascii_lowercase();
                // What happened before an organization connected is not its concern.
                let known = Installation::all_of(&janua.db, external).await?;
                let is_new = one.delivered_at.is_none_or(|at| janua.clock.now() < at.plus(OLDEST));
                let is_ours = is_new && known.iter().any(|of| one.delivered_at.is_none_or(|at| at >= of.created_at));
                if is_ours && Delivery::find(&janua.db, &id).await?.is_none() {
                    missed.push((id, one));
                }
            }
            cursor = next;
            if cursor.is_none() || missed.len() >= MOST_FETCHED {
                break;
            }
        }
        // Oldest first.
        for (id, one) in missed.into_iter().rev().take(MOST_FETCHED) {
            let payload = match host.delivered(one.number).await {
                Ok(payload) => payload,
                Err(error) if error.is_gone() => continue,
                Err(error) => return Err(later(error)),
            };
            webhook::accept(&janua, &id, &one.event, &payload, "catch_up").await?;
        }
        Ok(())
    }
}
