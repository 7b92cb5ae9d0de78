//! Fetches a commit again whose files did not come: `POST /deployments/{id}/redeploy` of a deployment that failed for that
//! reason or was canceled. The head of the branch may have moved on; the commit stays the same.
use db::Tx;
use kernel::{
    Janua,
    fault::Result,
    jobs::{self, Job, Later},
};
use serde::{Deserialize, Serialize};
use tenancy::{apps::Application, events::By};

use super::{
    deploy::{FETCH_FAILED, check_access, fetch, place_of},
    host::{CodeHost, UNAVAILABLE},
    model::{DeployedBy, InstallationId, Link, LinkId, Repository},
    report,
};
use crate::deployments::{
    CANCELED, Deployment, DeploymentId, Failure, INTERRUPTED, SourceKind, Status, Target, Unpackers, archive_limits,
    begin_at_host, fail,
};

/// Whether a deployment ended before its files were here.
pub fn was_not_fetched(deployment: &Deployment) -> bool {
    let codes = [FETCH_FAILED.name, UNAVAILABLE.name, INTERRUPTED.name, CANCELED.name];
    deployment.source == SourceKind::Codehost
        && matches!(deployment.status, Status::Failed | Status::Canceled)
        && deployment.error.as_ref().is_some_and(|error| codes.contains(&error.code.as_str()))
}

/// Begins a new deployment of the same commit, and queues its fetch. Nothing when no link deploys pushes of the repository to
/// the app any more. The caller holds the app.
pub async fn begin_again(
    tx: &mut Tx,
    janua: &Janua,
    by: &By,
    app: &Application,
    earlier: &Deployment,
    target: Option<Target>,
) -> Result<Option<DeploymentId>> {
    CodeHost::host(janua)?;
    let Some(link) = link_of(tx, earlier).await? else { return Ok(None) };
    let draft = |new: Deployment| Deployment {
        source: SourceKind::Codehost,
        account_id: by.actor,
        redeploy_of: Some(earlier.id),
        // A preview stays one: it may be the commit of a stranger's fork.
        target: target.unwrap_or(earlier.target),
        installation_id: earlier.installation_id.clone(),
        repository: earlier.repository.clone(),
        commit: earlier.commit.clone(),
        ..new
    };
    let deployment = begin_at_host(tx, janua, by, app, draft).await?.deployment;
    let job = FetchCommit { deployment: deployment.id, link };
    jobs::enqueue(tx, janua, janua.clock.now(), &job).await?;
    Ok(Some(deployment.id))
}

/// The link that a deployment came by.
async fn link_of(tx: &mut Tx, of: &Deployment) -> Result<Option<LinkId>> {
    let Some(installation) = of.installation_id.as_deref().and_then(|id| id.parse::<InstallationId>().ok()) else {
        return Ok(None);
    };
    let repositories = Repository::all_of(&mut *tx, installation).await?;
    let named = repositories.iter().find(|one| Some(&one.full_name) == of.repository.as_ref());
    let Some(named) = named else { return Ok(None) };
    let links = Link::all_of(&mut *tx, installation).await?;
    let is_it = |link: &&Link| {
        (link.app_id, link.repository_id, link.deployed_by) == (of.app_id, named.repository_id, DeployedBy::Push)
    };
    Ok(links.iter().find(is_it).map(|link| link.id))
}

/// Fetches the commit of a deployment that was begun. It is tried once: the user sees how it ends, and can ask again.
#[derive(Debug, Serialize, Deserialize)]
pub struct FetchCommit {
    pub deployment: DeploymentId,
    pub link: LinkId,
}

impl Job for FetchCommit {
    const KIND: &'static str = "fetch_codehost_commit";
    const TRIES: u32 = 1;

    async fn run(self, janua: Janua) -> Result<(), Later> {
        let Some(host) = CodeHost::find(&janua) else { return Ok(()) };
        let Some(deployment) = Deployment::find(&janua.db, self.deployment).await? else { return Ok(()) };
        let Some(place) = place_of(&janua, self.link).await? else { return Ok(()) };
        let unpacker = Unpackers::wait(&janua).await?;
        // It may have waited for so long that it counts as interrupted, or it was canceled.
        if !Deployment::note_alive(&janua.db, deployment.id, janua.clock.now()).await? {
            return Ok(());
        }
        let by = By { app: Some(place.app.id), ..By::default() };
        let sha = deployment.commit.as_ref().and_then(|commit| commit.sha.clone()).unwrap_or_default();
        let done = match check_access(&janua, host, &place).await {
            Ok(Ok(_)) => {
                let limits = archive_limits(&janua, place.app.org_id).await?;
                fetch(&janua, host, &by, &place, &deployment, (limits, unpacker), &sha).await
            }
            Ok(Err(message)) => Err(Failure::of_fault(FETCH_FAILED.because(message))),
            Err(_) => Err(UNAVAILABLE.into()),
        };
        if let Err(failure) = &done {
            fail(&janua, &by, &deployment, failure).await;
        }
        let Some(ended) = Deployment::find(&janua.db, deployment.id).await? else { return Ok(()) };
        // Whoever asked for it sees how it ended; the host may still be away.
        let _ = report::tell_commit(&janua, host, &place, &ended).await;
        Ok(())
    }
}
