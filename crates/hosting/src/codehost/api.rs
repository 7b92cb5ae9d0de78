//! The routes of installations, and their deliveries.
use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, NoContent, Response},
};
use kernel::{
    Janua,
    clock::Timestamp,
    fault::{Code, FORBIDDEN, Fault, INVALID, NOT_FOUND, Result},
    http::{Json, Listed, Page, Path, Query, Routes, Scope},
    jobs, transact,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenancy::{
    accounts::AccountId,
    apps::{Application, ApplicationId},
    enter::{Admin, InOrg, Member, Session},
    orgs::{Membership, OrgId},
};

use super::{
    events::{CodehostDisconnected, CodehostUpdated},
    host::{CodeHost, NOT_CONFIGURED},
    jobs::{DeployHead, HandleDelivery, Uninstall},
    model::{
        Delivery, DeployedBy, HeadName, Installation, InstallationId, Link, LinkId, Outcome, Previews, Repository,
        Status,
    },
    webhook::{Received, Reception},
};
use crate::{deployments::DeploymentId, words::words};

const UNKNOWN_REPOSITORY: Code = Code::new(
    400,
    "unknown_repository",
    "The installation has no such repository, or the user who connected it may not push to it. Connect again to renew it.",
);
const PRODUCTION_TAKEN: Code = Code::new(
    409,
    "production_link_taken",
    "Another repository or branch deploys to production of this app. Remove that link first.",
);

pub fn routes() -> Routes {
    Routes::new("codehost")
        .get("/codehost/installations", list_installations, "list the user's installations")
        .get("/codehost/installations/{id}", show_installation, "get one installation")
        .fails(&[NOT_CONFIGURED])
        .patch("/codehost/installations/{id}", change_installation, "update installation settings")
        .fails(&[NOT_CONFIGURED, UNKNOWN_REPOSITORY, PRODUCTION_TAKEN, FORBIDDEN])
        .delete("/codehost/installations/{id}", disconnect, "disconnect an installation")
        .fails(&[NOT_CONFIGURED, FORBIDDEN])
        .get(
            "/codehost/installations/{id}/deliveries",
            list_deliveries,
            "deliveries of the code host and their outcomes",
        )
        .post("/codehost/installations/{id}/deliveries/{deliveryId}/run", run_again, "handle a delivery again")
        .answers::<Received>(202, "application/json")
        .fails(&[NOT_CONFIGURED, FORBIDDEN])
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AccountView {
    login: String,
    /// `User` or `Organization`.
    #[serde(rename = "type")]
    kind: String,
    avatar_url: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RepositoryView {
    /// The code host's number of it.
    id: i64,
    full_name: String,
    private: bool,
    default_branch: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LinkView {
    repository_id: i64,
    repository: String,
    app_id: ApplicationId,
    /// Pushes to it go live. Null: previews only.
    production_branch: Option<String>,
    /// The folder of the repository that is the site. Empty: the whole repository.
    output_directory: String,
    previews: Previews,
    /// Whether pull requests from forks get previews, too.
    forks: bool,
    deployed_by: DeployedBy,
}

words! {
    /// Why an installation is suspended.
    pub enum SuspendedReason {
        /// The code host suspended it.
        Host = "host",
        /// The user who connected it left the organization. Another one connects it again.
        MemberLeft = "member_left",
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SettingsView {
    /// Whether commits get a status.
    commit_statuses: bool,
    /// Whether pull requests get a comment with the preview.
    pull_request_comments: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Installation")]
pub struct InstallationView {
    id: InstallationId,
    org_id: OrgId,
    provider: &'static str,
    external_id: Option<i64>,
    account: AccountView,
    status: Status,
    suspended_reason: Option<SuspendedReason>,
    /// `all` or `selected`.
    repository_selection: String,
    #[schemars(with = "serde_json::Map<String, Value>")]
    permissions: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    repositories: Option<Vec<RepositoryView>>,
    links: Vec<LinkView>,
    settings: SettingsView,
    /// Whether disconnecting it uninstalls the app at the code host, too.
    may_uninstall: bool,
    connected_by: Option<AccountId>,
    last_delivery_at: Option<Timestamp>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

/// Whether the user who connected an installation still belongs to its organization.
pub async fn is_vouched_for(from: impl db::Read, installation: &Installation) -> db::Result<bool> {
    match installation.connected_by {
        Some(account) => Ok(Membership::of(from, installation.org_id, account).await?.is_some()),
        None => Ok(false),
    }
}

impl InstallationView {
    async fn of(janua: &Janua, stored: Installation, is_whole: bool) -> Result<Self> {
        let repositories = Repository::all_of(&janua.db, stored.id).await?;
        let name = |id: i64| repositories.iter().find(|one| one.repository_id == id).map(|one| one.full_name.clone());
        let links = Link::all_of(&janua.db, stored.id).await?.into_iter().map(|link| LinkView {
            repository_id: link.repository_id,
            repository: name(link.repository_id).unwrap_or_default(),
            app_id: link.app_id,
            production_branch: link.production_branch,
            output_directory: link.output_directory,
            previews: link.previews,
            forks: link.forks,
            deployed_by: link.deployed_by,
        });
        let links = links.collect();
        let has_left = stored.status == Status::Active && !is_vouched_for(&janua.db, &stored).await?;
        let suspended_reason = match stored.status {
            Status::Suspended => Some(SuspendedReason::Host),
            _ if has_left => Some(SuspendedReason::MemberLeft),
            _ => None,
        };
        let shown = repositories.into_iter().map(|one| RepositoryView {
            id: one.repository_id,
            full_name: one.full_name,
            private: one.is_private,
            default_branch: one.default_branch,
        });
        Ok(Self {
            id: stored.id,
            org_id: stored.org_id,
            provider: "github",
            external_id: stored.external_id,
            account: AccountView {
                login: stored.account_login,
                kind: stored.account_type,
                avatar_url: stored.account_avatar,
            },
            status: if has_left { Status::Suspended } else { stored.status },
            suspended_reason,
            repository_selection: stored.repository_selection,
            permissions: stored.permissions,
            repositories: is_whole.then(|| shown.collect()),
            links,
            settings: SettingsView {
                commit_statuses: stored.commit_statuses,
                pull_request_comments: stored.pull_request_comments,
            },
            may_uninstall: stored.may_uninstall,
            connected_by: stored.connected_by,
            last_delivery_at: stored.last_delivery_at,
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        })
    }

    pub async fn find(janua: &Janua, id: InstallationId) -> Result<Self> {
        Self::of(janua, Installation::find(&janua.db, id).await?.ok_or(NOT_FOUND)?, true).await
    }
}

#[derive(Serialize, JsonSchema)]
pub struct InstallationAnswer {
    pub installation: InstallationView,
}

impl InstallationAnswer {
    async fn of(janua: &Janua, id: InstallationId) -> Result<Json<Self>> {
        Ok(Json(Self { installation: InstallationView::find(janua, id).await? }))
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "a list is named after what it lists")]
struct Installations {
    installations: Vec<InstallationView>,
    /// Whether a code host is connected to this server.
    configured: bool,
    next_cursor: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ListQuery {
    /// Only those of this organization.
    org_id: Option<OrgId>,
}

async fn list_installations(
    State(janua): State<Janua>,
    session: Session,
    Query(query): Query<ListQuery>,
    page: Page,
) -> Result<Json<Installations>> {
    let account = session.account().id;
    let fetch = async |below, most| Installation::page(&janua.db, account, query.org_id, &below, most).await;
    let filter = query.org_id.map(|org| org.to_string()).unwrap_or_default();
    let scope = Scope::from(account).found_by(&filter);
    let Listed { rows, next_cursor } =
        page.list(&janua, "codehost-installations", scope, fetch, Installation::key).await?;
    let mut installations = vec![];
    for row in rows {
        installations.push(InstallationView::of(&janua, row, false).await?);
    }
    Ok(Json(Installations { installations, configured: CodeHost::find(&janua).is_some(), next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
struct InstallationPath {
    id: InstallationId,
}

async fn reach<R: tenancy::enter::Least>(
    janua: &Janua,
    session: Session,
    id: InstallationId,
) -> Result<(Installation, InOrg<R>)> {
    let installation = Installation::find(&janua.db, id).await?.ok_or(NOT_FOUND)?;
    let caller = InOrg::reach(janua, session, installation.org_id).await?;
    Ok((installation, caller))
}

async fn show_installation(
    State(janua): State<Janua>,
    session: Session,
    Path(InstallationPath { id }): Path<InstallationPath>,
) -> Result<Json<InstallationAnswer>> {
    reach::<Member>(&janua, session, id).await?;
    CodeHost::host(&janua)?;
    InstallationAnswer::of(&janua, id).await
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NewLink {
    repository_id: i64,
    app_id: ApplicationId,
    #[schemars(length(min = 1, max = 255))]
    production_branch: Option<String>,
    /// Default: `out`.
    #[schemars(length(max = 200))]
    output_directory: Option<String>,
    /// Default: `pull_requests`.
    previews: Option<Previews>,
    #[serde(default)]
    forks: bool,
    /// Default: `push`.
    deployed_by: Option<DeployedBy>,
}

/// Fields that are left out stay as they are.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct InstallationChange {
    /// All links, in place of those there are.
    #[schemars(length(max = 100))]
    links: Option<Vec<NewLink>>,
    settings: Option<SettingsChange>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SettingsChange {
    commit_statuses: Option<bool>,
    pull_request_comments: Option<bool>,
}

/// What git lets a branch be called, as far as it matters here.
fn is_branch(name: &str) -> bool {
    let is_odd = |c: char| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c);
    !name.is_empty()
        && !name.chars().any(is_odd)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.contains("//")
        && !name.starts_with(['/', '-'])
        && !name.ends_with(['/', '.'])
}

/// A folder of a repository, without slashes at its ends. Empty: the root.
fn folder(text: &str) -> Option<String> {
    let inner = text.trim().trim_start_matches("./").trim_matches('/');
    if inner.is_empty() || inner == "." {
        return Some(String::new());
    }
    let is_good = |part: &str| !part.is_empty() && part != "." && part != "..";
    let is_plain = !inner.chars().any(|c| c.is_control() || c == '\\');
    (is_plain && inner.split('/').all(is_good)).then(|| inner.to_owned())
}

impl InstallationChange {
    /// Every field that is wrong.
    fn check(&self) -> Result<()> {
        let mut wrong = vec![];
        for (i, link) in self.links.iter().flatten().enumerate() {
            if link.production_branch.as_deref().is_some_and(|name| !is_branch(name)) {
                wrong.push((format!("links.{i}.productionBranch"), "must be the name of a branch"));
            }
            if link.output_directory.as_deref().is_some_and(|text| folder(text).is_none()) {
                wrong.push((format!("links.{i}.outputDirectory"), "must be a folder of the repository, such as out"));
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let all = wrong.into_iter();
        Err(all.fold(Fault::from(INVALID), |fault, (field, message)| fault.and(field, "wrong_form", message)))
    }
}

async fn change_installation(
    State(janua): State<Janua>,
    session: Session,
    Path(InstallationPath { id }): Path<InstallationPath>,
    Json(change): Json<InstallationChange>,
) -> Result<Json<InstallationAnswer>> {
    let (_, caller) = reach::<Admin>(&janua, session, id).await?;
    CodeHost::host(&janua)?;
    change.check()?;
    let now = janua.clock.now();
    transact!(janua, async |tx| {
        let org = caller.hold(tx).await?.org.id;
        let mut installation = Installation::hold(tx, id).await?.filter(|one| one.org_id == org).ok_or(NOT_FOUND)?;
        let mut fields = vec![];
        if let Some(settings) = &change.settings {
            installation.commit_statuses = settings.commit_statuses.unwrap_or(installation.commit_statuses);
            installation.pull_request_comments =
                settings.pull_request_comments.unwrap_or(installation.pull_request_comments);
            fields.push("settings".to_owned());
        }
        if let Some(links) = &change.links {
            set_links(tx, &janua, &installation, links).await?;
            fields.push("links".to_owned());
        }
        installation.updated_at = now;
        installation.save(tx).await?;
        let event = CodehostUpdated { installation_id: id, fields };
        Ok(caller.record(tx, &janua, &event).await?)
    })?;
    InstallationAnswer::of(&janua, id).await
}

/// Replaces the links. What is new, or has another branch or folder, is deployed at once.
async fn set_links(tx: &mut db::Tx, janua: &Janua, of: &Installation, wanted: &[NewLink]) -> Result<()> {
    let (before, now) = (Link::all_of(&mut *tx, of.id).await?, janua.clock.now());
    let same = |link: &Link, new: &NewLink| (link.repository_id, link.app_id) == (new.repository_id, new.app_id);
    for old in before.iter().filter(|old| !wanted.iter().any(|new| same(old, new))) {
        Link::delete(tx, old.id).await?;
    }
    for (i, new) in wanted.iter().enumerate() {
        if wanted[..i].iter().any(|other| (other.repository_id, other.app_id) == (new.repository_id, new.app_id)) {
            return Err(INVALID.at(
                format!("links.{i}"),
                "repeated",
                "there is another link of this repository and app",
            ));
        }
        if Repository::find(&mut *tx, of.id, new.repository_id).await?.is_none() {
            let field = format!("links.{i}.repositoryId");
            return Err(UNKNOWN_REPOSITORY.at(field, "unknown", "is no repository of this installation"));
        }
        let app = Application::find(&mut *tx, new.app_id).await?.filter(|app| app.org_id == of.org_id);
        let app = app.ok_or(NOT_FOUND)?;
        let old = before.iter().find(|old| same(old, new));
        let link = Link {
            id: old.map_or_else(|| LinkId::new(&janua.entropy, now), |old| old.id),
            installation_id: of.id,
            repository_id: new.repository_id,
            app_id: app.id,
            production_branch: new.production_branch.clone(),
            output_directory: new
                .output_directory
                .as_deref()
                .map_or_else(|| Some("out".into()), folder)
                .unwrap_or_default(),
            previews: new.previews.unwrap_or(Previews::PullRequests),
            forks: new.forks,
            deployed_by: new.deployed_by.unwrap_or(DeployedBy::Push),
            created_at: old.map_or(now, |old| old.created_at),
        };
        match link.put(tx).await {
            Err(error) if error.is_unique("codehost_link_app_id_key") => return Err(PRODUCTION_TAKEN.into()),
            put => put?,
        }
        let is_as_before = old.is_some_and(|old| {
            old.production_branch == link.production_branch
                && old.output_directory == link.output_directory
                && old.deployed_by == link.deployed_by
        });
        if let Some(branch) =
            link.production_branch.clone().filter(|_| !is_as_before && link.deployed_by == DeployedBy::Push)
        {
            let job = DeployHead { link: link.id, head: HeadName::Branch(branch), delivery: None, again: true };
            jobs::enqueue(tx, janua, now, &job).await?;
        }
    }
    Ok(())
}

#[derive(Deserialize, JsonSchema)]
struct DisconnectQuery {
    /// `true` leaves the app installed at the code host.
    #[serde(default)]
    keep: bool,
}

async fn disconnect(
    State(janua): State<Janua>,
    session: Session,
    Path(InstallationPath { id }): Path<InstallationPath>,
    Query(query): Query<DisconnectQuery>,
) -> Result<NoContent> {
    let (_, caller) = reach::<Admin>(&janua, session, id).await?;
    CodeHost::host(&janua)?;
    transact!(janua, async |tx| {
        let org = caller.hold(tx).await?.org.id;
        let installation = Installation::hold(tx, id).await?.filter(|one| one.org_id == org).ok_or(NOT_FOUND)?;
        Installation::delete(tx, id).await?;
        let event = CodehostDisconnected { installation_id: id, account: installation.account_login.clone() };
        caller.record(tx, &janua, &event).await?;
        // Other organizations may use the same installation, and not everybody who may deploy may uninstall.
        if let Some(external) = installation.external_id
            && installation.may_uninstall
            && !query.keep
            && Installation::all_of(&mut *tx, external).await?.is_empty()
        {
            jobs::enqueue(tx, &janua, janua.clock.now(), &Uninstall { installation: external }).await?;
        }
        Ok(())
    })?;
    Ok(NoContent)
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OutcomeView {
    at: Timestamp,
    /// `deployed`, `failed`, `unchanged`, `ignored`, `expired` or `updated`.
    result: String,
    message: String,
    app_id: Option<ApplicationId>,
    deployment_id: Option<DeploymentId>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DeliveryView {
    id: String,
    event: String,
    action: Option<String>,
    repository_id: Option<i64>,
    repository: Option<String>,
    branch: Option<String>,
    pull_request: Option<i64>,
    commit: Option<String>,
    sender: Option<String>,
    /// `webhook`, or `catch_up` for one that the code host did not deliver and that was fetched.
    via: String,
    received_at: Timestamp,
    /// The outcomes, newest first. Empty: it is being worked on.
    outcomes: Vec<OutcomeView>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Deliveries {
    deliveries: Vec<DeliveryView>,
    next_cursor: Option<String>,
}

async fn list_deliveries(
    State(janua): State<Janua>,
    session: Session,
    Path(InstallationPath { id }): Path<InstallationPath>,
    page: Page,
) -> Result<Json<Deliveries>> {
    let (installation, _) = reach::<Member>(&janua, session, id).await?;
    let fetch = async |below, most| Delivery::page(&janua.db, &installation, &below, most).await;
    let scope = Scope::from(id);
    let Listed { rows, next_cursor } = page.list(&janua, "codehost-deliveries", scope, fetch, Delivery::key).await?;
    let mut deliveries = vec![];
    for row in rows {
        let outcomes = Outcome::all_of(&janua.db, id, &row.id).await?.into_iter().map(|one| OutcomeView {
            at: one.at,
            result: one.result,
            message: one.message,
            app_id: one.app_id,
            deployment_id: one.deployment_id,
        });
        let outcomes = outcomes.collect();
        deliveries.push(DeliveryView {
            id: row.id,
            event: row.event,
            action: row.action,
            repository_id: row.repository_id,
            repository: row.facts.repository,
            branch: row.facts.branch,
            pull_request: row.facts.pull,
            commit: row.facts.sha,
            sender: row.facts.sender,
            via: row.via,
            received_at: row.received_at,
            outcomes,
        });
    }
    Ok(Json(Deliveries { deliveries, next_cursor }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DeliveryPath {
    id: InstallationId,
    #[schemars(length(max = 64))]
    delivery_id: String,
}

async fn run_again(
    State(janua): State<Janua>,
    session: Session,
    Path(DeliveryPath { id, delivery_id }): Path<DeliveryPath>,
) -> Result<Response> {
    let (installation, caller) = reach::<Admin>(&janua, session, id).await?;
    let delivery = Delivery::find(&janua.db, &delivery_id).await?.ok_or(NOT_FOUND)?;
    let is_visible = match delivery.repository_id {
        Some(repository) => Repository::find(&janua.db, id, repository).await?.is_some(),
        None => true,
    };
    if installation.external_id != Some(delivery.external_id) || !is_visible {
        return Err(NOT_FOUND.into());
    }
    CodeHost::host(&janua)?;
    transact!(janua, async |tx| {
        caller.hold(tx).await?;
        let job = HandleDelivery { delivery: delivery.id.clone(), only: Some(id), again: true };
        Ok(jobs::enqueue(tx, &janua, janua.clock.now(), &job).await?)
    })?;
    let received = Received { delivery_id: delivery.id, outcome: Reception::Queued };
    Ok((StatusCode::ACCEPTED, Json(received)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_lies_inside_of_the_repository() {
        for (text, meant) in [("out", "out"), ("./dist/", "dist"), ("/a/b/", "a/b"), (".", ""), ("", ""), ("/", "")] {
            assert_eq!(folder(text).as_deref(), Some(meant), "{text}");
        }
        for odd in ["..", "a/../b", "a//b", "a\\b", "a/./b", "a\nb"] {
            assert_eq!(folder(odd), None, "{odd}");
        }
    }

    #[test]
    fn branches_are_what_git_calls_so() {
        for name in ["main", "feature/x", "release-1.0", "é"] {
            assert!(is_branch(name), "{name}");
        }
        for odd in ["", "a b", "a..b", "a:b", "/a", "a/", "-a", "a~1", "a\nb", "a@{1}", "pull:1"] {
            assert!(!is_branch(odd), "{odd}");
        }
    }
}
