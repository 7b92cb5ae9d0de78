//! From a commit to a deployment: the archive of the commit, of which one folder is the site. Nothing is built here.
use futures_util::{StreamExt as _, stream};
use kernel::{
    Janua,
    fault::{Code, NOT_FOUND, Result},
    jobs::Later,
    transact,
};
use tenancy::{
    apps::Application,
    events::{self, About, By},
    orgs::Org,
};

use super::{
    api::is_vouched_for,
    host::{Host, Pull, Tip, UNAVAILABLE},
    jobs::{DeployHead, Led, later},
    model::{Head, HeadName, Installation, Link, LinkId, Previews, Repository, Status},
    report::{self, State},
};
use crate::{
    deployments::{
        Begin, Commit, Deployment, DeploymentId, Failure, INTERRUPTED, SourceKind, Status as DeploymentStatus,
        Target, Unpacker, Unpackers, begin_at_host, complete_received, events::DeploymentExpired, fail,
        receive_within,
    },
    edge::site,
};

/// The head that a deployment was taken from was taken by another run meanwhile.
const OVERTAKEN: Code = Code::new(409, "overtaken", "A newer run deploys this branch.");
pub const FETCH_FAILED: Code =
    Code::new(409, "codehost_fetch_failed", "The code host did not send the files of this commit.");

/// A link with all that stands behind it.
pub struct Place {
    pub link: Link,
    pub installation: Installation,
    pub repository: Repository,
    pub app: Application,
    /// The numbers of installation and repository at the host.
    pub at: (i64, i64),
}

/// What a head points to, and where that goes.
struct Wanted {
    tip: Tip,
    branch: String,
    target: Target,
    pull: Option<i64>,
}

enum Seen {
    Wanted(Box<Wanted>),
    /// The branch is gone, or the pull request closed.
    Over(&'static str),
    Ignored(&'static str),
}

/// Looks at the host and does what is to be done. An error is tried again.
pub async fn deploy_head(janua: &Janua, host: &Host, job: &DeployHead, head: &Head) -> Result<(), Later> {
    let Some(place) = place_of(janua, job.link).await? else { return Ok(()) };
    let repository = match check_access(janua, host, &place).await? {
        Ok(repository) => repository,
        Err(message) => return note(janua, job, &place, Led::to("failed", message)).await,
    };
    let place = Place { repository, ..place };
    let wanted = match look(janua, host, job, &place).await? {
        Seen::Wanted(wanted) => *wanted,
        Seen::Ignored(message) => return note(janua, job, &place, Led::to("ignored", message)).await,
        Seen::Over(message) => return end(janua, job, &place, head, message).await,
    };
    if let Some(known) = deployed_before(janua, job, head, &wanted.tip.sha).await? {
        report::tell(janua, host, job, &place, head, &known).await?;
        let message = match known.status {
            DeploymentStatus::Ready => "This commit is deployed already.",
            DeploymentStatus::Canceled => "The deployment of this commit was canceled.",
            _ => "The deployment of this commit failed.",
        };
        let led = Led { deployment: Some(known.id), ..Led::to("unchanged", message) };
        return note(janua, job, &place, led).await;
    }
    let by = By { app: Some(place.app.id), ..By::default() };
    // Before it begins: one that waits says nothing of itself, and would count as interrupted.
    let unpacker = Unpackers::wait(janua).await?;
    let begun = begin(janua, &by, job, head, &place, &wanted).await;
    let (deployment, limits) = match begun {
        Ok(begun) => (begun.deployment, begun.limits),
        Err(fault) if fault.code().name == OVERTAKEN.name => return Ok(()),
        Err(fault) if fault.code().status >= 500 => return Err(fault.into()),
        Err(fault) => {
            let message = fault.whole_sentence();
            let state = State::Refused(&message);
            report::tell_state(janua, host, job, &place, head, (&wanted.tip.sha, wanted.pull), &state).await?;
            return note(janua, job, &place, Led::to("failed", message)).await;
        }
    };
    // Nobody waits for this one.
    let pending = (wanted.tip.sha.as_str(), wanted.pull);
    let _ = report::tell_state(janua, host, job, &place, head, pending, &State::Pending).await;
    let done = fetch(janua, host, &by, &place, &deployment, (limits, unpacker), &wanted.tip.sha).await;
    let is_worth_another_try = match &done {
        Ok(()) => false,
        Err(failure) => {
            fail(janua, &by, &deployment, failure).await;
            failure.fault.code().status >= 500
        }
    };
    let ended = Deployment::find(&janua.db, deployment.id).await?;
    let Some(ended) = ended else { return Ok(()) };
    report::tell(janua, host, job, &place, head, &ended).await?;
    let led = match &ended.error {
        None if ended.target == Target::Production => Led::to("deployed", "Deployed to production."),
        None => Led::to("deployed", "Deployed as a preview."),
        Some(error) => Led::to("failed", format!("{}: {}", error.code, error.message)),
    };
    note(janua, job, &place, Led { deployment: Some(ended.id), ..led }).await?;
    match (done, is_worth_another_try) {
        (Err(failure), true) => Err(failure.fault.into()),
        _ => Ok(()),
    }
}

async fn note(janua: &Janua, job: &DeployHead, place: &Place, led: Led<'_>) -> Result<(), Later> {
    let led = Led { app: Some(place.app.id), ..led };
    let installation = place.installation.id;
    transact!(janua, async |tx| Ok(led.note(tx, janua, job.delivery.as_deref(), installation).await?))?;
    Ok(())
}

/// Nothing when the link, or something behind it, is gone.
pub async fn place_of(janua: &Janua, link: LinkId) -> Result<Option<Place>, Later> {
    let Some(link) = Link::find(&janua.db, link).await? else { return Ok(None) };
    let installation = Installation::find(&janua.db, link.installation_id).await?;
    let repository = Repository::find(&janua.db, link.installation_id, link.repository_id).await?;
    let app = Application::find(&janua.db, link.app_id).await?;
    let (Some(installation), Some(repository), Some(app)) = (installation, repository, app) else { return Ok(None) };
    let Some(external) = installation.external_id else { return Ok(None) };
    let at = (external, link.repository_id);
    Ok(Some(Place { link, installation, repository, app, at }))
}

/// Whether the installation may still read the repository, and is still vouched for: asked anew for each deployment.
pub async fn check_access(
    janua: &Janua,
    host: &Host,
    place: &Place,
) -> Result<std::result::Result<Repository, String>, Later> {
    let installation = &place.installation;
    match installation.status {
        Status::Active => {}
        Status::Suspended => return Ok(Err("The installation is suspended.".into())),
        _ => return Ok(Err("The installation is not connected.".into())),
    }
    if installation.org_id != place.app.org_id {
        return Ok(Err("The app belongs to another organization now.".into()));
    }
    if !is_vouched_for(&janua.db, installation).await? {
        let message = "The user who connected the installation left the organization. Connect it again.";
        return Ok(Err(message.into()));
    }
    host.forget(place.at.0, place.at.1);
    let found = match host.repository(janua, place.at).await {
        Ok(found) => found,
        Err(error) if error.is_gone() => {
            return Ok(Err(format!("The installation can no longer read {}.", place.repository.full_name)));
        }
        Err(error) => return Err(later(error)),
    };
    if found != place.repository {
        transact!(janua, async |tx| Ok(found.put(tx, installation.id).await?))?;
    }
    Ok(Ok(found))
}

async fn look(janua: &Janua, host: &Host, job: &DeployHead, place: &Place) -> Result<Seen, Later> {
    let link = &place.link;
    let (branch, pull) = match &job.head {
        HeadName::Branch(branch) => (branch.clone(), None),
        HeadName::Pull(number) => {
            let Some(pull) = host.pull(janua, place.at, *number).await.map_err(later)? else {
                return Ok(Seen::Over("The pull request is gone."));
            };
            return Ok(look_at_pull(link, *number, pull));
        }
    };
    let is_production = link.production_branch.as_ref() == Some(&branch);
    if !is_production && link.previews != Previews::Branches {
        return Ok(Seen::Ignored("No link deploys this branch."));
    }
    let Some(tip) = host.branch(janua, place.at, &branch).await.map_err(later)? else {
        return Ok(Seen::Over("The branch is gone."));
    };
    let target = if is_production { Target::Production } else { Target::Preview };
    Ok(Seen::Wanted(Box::new(Wanted { tip, branch, target, pull })))
}

/// A pull request is never production, whatever its branch is called: a fork has branches of the same names.
fn look_at_pull(link: &Link, number: i64, pull: Pull) -> Seen {
    if !pull.is_open {
        return Seen::Over("The pull request is closed.");
    }
    if link.previews == Previews::Off {
        return Seen::Ignored("Previews are off.");
    }
    if pull.head_repository != Some(link.repository_id) && !link.forks {
        return Seen::Ignored("The pull request comes from a fork, and forks get no previews here.");
    }
    let Pull { branch, tip, .. } = pull;
    Seen::Wanted(Box::new(Wanted { tip, branch, target: Target::Preview, pull: Some(number) }))
}

/// The deployment of this commit, if it need not be deployed again.
async fn deployed_before(
    janua: &Janua,
    job: &DeployHead,
    head: &Head,
    sha: &str,
) -> Result<Option<Deployment>, Later> {
    if job.again || head.sha.as_deref() != Some(sha) {
        return Ok(None);
    }
    let Some(id) = head.deployment_id else { return Ok(None) };
    let known = Deployment::find(&janua.db, id).await?;
    // What failed on our side of the wire, or because nobody was there to finish it, is tried again.
    let is_settled = |known: &Deployment| match (known.status, &known.error) {
        (DeploymentStatus::Ready, _) => known.expired_at.is_none(),
        (DeploymentStatus::Canceled, _) => true,
        (DeploymentStatus::Failed, Some(error)) => {
            ![UNAVAILABLE.name, INTERRUPTED.name, "internal", "unavailable", "storage_full"]
                .contains(&error.code.as_str())
        }
        _ => false,
    };
    Ok(known.filter(is_settled))
}

/// Writes the row, with what the head now points to.
async fn begin(
    janua: &Janua,
    by: &By,
    job: &DeployHead,
    head: &Head,
    place: &Place,
    wanted: &Wanted,
) -> Result<Begin> {
    let now = janua.clock.now();
    let commit = Commit {
        sha: Some(wanted.tip.sha.clone()),
        branch: Some(wanted.branch.clone()),
        message: wanted.tip.message.as_ref().map(|text| text.chars().take(500).collect()),
        author: wanted.tip.author.clone(),
        url: wanted.tip.url.clone(),
    };
    let draft = |new: Deployment| Deployment {
        source: SourceKind::Codehost,
        target: wanted.target,
        installation_id: Some(place.installation.id.to_string()),
        repository: Some(place.repository.full_name.clone()),
        commit: Some(commit.clone()),
        ..new
    };
    transact!(janua, async |tx| {
        // In the same order as everybody: the organization, then the app.
        Org::hold(tx, place.app.org_id).await?;
        let app = Application::hold(tx, place.app.id).await?.ok_or(NOT_FOUND)?;
        if Link::find(&mut *tx, job.link).await?.is_none() {
            return Err(OVERTAKEN.into());
        }
        let begun = begin_at_host(tx, janua, by, &app, draft).await?;
        let told = (wanted.tip.sha.as_str(), begun.deployment.id, wanted.pull);
        if !Head::note(tx, job.link, &job.head.key(), head.fence, told, now).await? {
            return Err(OVERTAKEN.into());
        }
        Ok(begun)
    })
}

/// Takes the site out of the archive of a commit, and completes its deployment.
pub async fn fetch(
    janua: &Janua,
    host: &Host,
    by: &By,
    place: &Place,
    deployment: &Deployment,
    (limits, unpacker): (kernel::archive::ArchiveLimits, Unpacker),
    sha: &str,
) -> Result<(), Failure> {
    let archive = match host.archive(janua, place.at, sha).await {
        Ok(archive) => archive,
        Err(error) if error.is_gone() => return Err(FETCH_FAILED.caused_by(error).into()),
        Err(error) => return Err(UNAVAILABLE.caused_by(error).into()),
    };
    let chunks = stream::unfold(archive, |mut archive| async move {
        match archive.chunk().await {
            Ok(Some(chunk)) => Some((Ok(chunk), archive)),
            Ok(None) => None,
            Err(error) => Some((Err(UNAVAILABLE.caused_by(error.without_url())), archive)),
        }
    });
    let (ids, folder) = ((deployment.app_id, deployment.id), place.link.output_directory.clone());
    let received = receive_within(janua, ids, limits, Some(folder), unpacker, chunks.boxed()).await?;
    complete_received(janua, by, deployment, received, None).await
}

/// A branch or a pull request that is over: its preview goes.
async fn end(janua: &Janua, job: &DeployHead, place: &Place, head: &Head, message: &str) -> Result<(), Later> {
    let (now, name) = (janua.clock.now(), job.head.key());
    let expired: Option<DeploymentId> = transact!(janua, async |tx| {
        let Some(id) = head.deployment_id else { return Ok(None) };
        Head::forget(tx, job.link, &name).await?;
        let Some(deployment) = Deployment::find(&mut *tx, id).await? else { return Ok(None) };
        // What is live stays, also when its branch is gone.
        if deployment.target != Target::Preview || deployment.status != DeploymentStatus::Ready {
            return Ok(None);
        }
        if !Deployment::expire(tx, id, now).await? {
            return Ok(None);
        }
        let event = DeploymentExpired { deployment_id: id, number: deployment.number };
        let about = About::application(deployment.app_id, deployment.org_id);
        events::record(tx, janua, &By::default(), about, &event).await?;
        site::changed(tx, deployment.app_id).await?;
        Ok(Some(id))
    })?;
    let led = match expired {
        Some(id) => Led { deployment: Some(id), ..Led::to("expired", format!("{message} Its preview was deleted.")) },
        None => Led::to("ignored", message),
    };
    note(janua, job, place, led).await
}
