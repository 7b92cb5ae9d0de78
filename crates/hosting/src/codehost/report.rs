//! What the code host is told: a status at the commit, and one comment at a pull request that is kept up to date.
use kernel::{Janua, jobs::Later};
use serde_json::json;

use super::{
    deploy::Place,
    host::{Host, HostError},
    jobs::{DeployHead, later},
    model::{Head, Link},
};
use crate::{
    deployments::{Deployment, Status, Target},
    edge::EdgeUrl,
};

/// How a deployment stands, for the host.
pub enum State<'a> {
    Pending,
    Ready {
        url: &'a str,
    },
    Failed {
        message: &'a str,
        deployment: &'a Deployment,
    },
    /// It did not begin.
    Refused(&'a str),
}

impl<'a> State<'a> {
    fn of(deployment: &'a Deployment, url: &'a str) -> Self {
        let message = deployment.error.as_ref().map(|error| error.message.as_str()).unwrap_or_default();
        match deployment.status {
            Status::Ready => Self::Ready { url },
            Status::Failed | Status::Canceled => Self::Failed { message, deployment },
            Status::Queued | Status::Processing => Self::Pending,
        }
    }
}

/// Tells how a deployment ended.
pub async fn tell(
    janua: &Janua,
    host: &Host,
    job: &DeployHead,
    place: &Place,
    head: &Head,
    deployment: &Deployment,
) -> Result<(), Later> {
    let url = url_of(janua, place, deployment);
    let (sha, state) = (sha_of(deployment), State::of(deployment, &url));
    let pull = match job.head {
        super::model::HeadName::Pull(number) => Some(number),
        super::model::HeadName::Branch(_) => None,
    };
    tell_state(janua, host, job, place, head, (sha, pull), &state).await
}

/// Tells how a deployment of one commit ended, at the commit alone.
pub async fn tell_commit(janua: &Janua, host: &Host, place: &Place, deployment: &Deployment) -> Result<(), Later> {
    let url = url_of(janua, place, deployment);
    tell_status(janua, host, place, sha_of(deployment), &State::of(deployment, &url)).await
}

fn url_of(janua: &Janua, place: &Place, deployment: &Deployment) -> String {
    let edge = EdgeUrl::of(&janua.config);
    match deployment.target {
        Target::Production => edge.url(&place.app.slug),
        Target::Preview => edge.url(&format!("{}--{}", deployment.label, place.app.slug)),
    }
}

fn sha_of(deployment: &Deployment) -> &str {
    deployment.commit.as_ref().and_then(|commit| commit.sha.as_deref()).unwrap_or_default()
}

/// A host that says no (the app lacks a permission, the commit is gone) is left alone; one that is away is asked again.
fn settle(outcome: Result<(), HostError>) -> Result<(), Later> {
    match outcome {
        Err(error @ HostError::Refused { .. }) => {
            tracing::info!(%error, "the code host does not take a report");
            Ok(())
        }
        Err(error) => Err(later(error)),
        Ok(()) => Ok(()),
    }
}

async fn tell_status(janua: &Janua, host: &Host, place: &Place, sha: &str, state: &State<'_>) -> Result<(), Later> {
    if place.installation.commit_statuses {
        let status = status(janua, place, state).await?;
        settle(host.set_status(janua, place.at, sha, &status).await)?;
    }
    Ok(())
}

pub async fn tell_state(
    janua: &Janua,
    host: &Host,
    job: &DeployHead,
    place: &Place,
    head: &Head,
    (sha, pull): (&str, Option<i64>),
    state: &State<'_>,
) -> Result<(), Later> {
    tell_status(janua, host, place, sha, state).await?;
    if let Some(pull) = pull.filter(|_| place.installation.pull_request_comments) {
        let mark = format!("<!-- janua:{} -->", place.link.id);
        let body = comment(&mark, place, sha, state);
        match host.comment(janua, place.at, pull, (head.comment_id, &mark), &body).await {
            Ok(id) if head.comment_id != Some(id) => {
                Head::note_comment(&janua.db, job.link, &job.head.key(), id).await?;
            }
            outcome => settle(outcome.map(drop))?,
        }
    }
    Ok(())
}

async fn status(janua: &Janua, place: &Place, state: &State<'_>) -> Result<serde_json::Value, Later> {
    // Several apps of one repository have a status each.
    let links = Link::all_of(&janua.db, place.installation.id).await?;
    let is_only = links.iter().filter(|link| link.repository_id == place.link.repository_id).count() < 2;
    let context = if is_only { "janua/deploy".to_owned() } else { format!("janua/deploy ({})", place.app.slug) };
    let page = |deployment: &Deployment| {
        format!("{}/console/apps/{}/deployments/{}", janua.config.base_url(), place.app.id, deployment.id)
    };
    let (state, target, description) = match state {
        State::Pending => ("pending", None, "Deploying".to_owned()),
        State::Ready { url } => ("success", Some((*url).to_owned()), "Deployed".to_owned()),
        State::Failed { message, deployment } => ("failure", Some(page(deployment)), (*message).to_owned()),
        State::Refused(message) => ("failure", None, (*message).to_owned()),
    };
    let description: String = description.chars().take(140).collect();
    let mut status = json!({ "state": state, "context": context, "description": description });
    if let Some(target) = target {
        status["target_url"] = target.into();
    }
    Ok(status)
}

fn comment(mark: &str, place: &Place, sha: &str, state: &State<'_>) -> String {
    let name = place.app.name.replace(['|', '<', '>', '`', '\n', '\r', '[', ']'], " ");
    let short = sha.get(..7).unwrap_or(sha);
    let line = match state {
        State::Pending => format!("The preview of **{name}** at {short} is being deployed."),
        State::Ready { url } => format!("The preview of **{name}** at {short} is ready: {url}"),
        State::Failed { message, .. } | State::Refused(message) => {
            let message = message.replace(['<', '>', '`', '\n', '\r'], " ");
            format!("The preview of **{name}** at {short} failed: {message}")
        }
    };
    format!("{mark}\n{line}\n")
}
