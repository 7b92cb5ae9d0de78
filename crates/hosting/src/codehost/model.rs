//! Installations, repositories, links and deliveries as stored, and every statement on them.
use std::time::Duration;

use db::{Db, FromRow, Read, Row, Tx, params, row};
use kernel::{clock::Timestamp, http::Key, id::Id};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenancy::{accounts::AccountId, apps::ApplicationId, orgs::OrgId};

use crate::{
    deployments::{DeploymentId, Target},
    words::words,
};

pub type InstallationId = Id<Installation>;
pub type LinkId = Id<Link>;
pub type OutcomeId = Id<Outcome>;

words! {
    pub enum Status {
        /// An owner of the account at the code host has not approved it.
        PendingApproval = "pending_approval",
        Active = "active",
        Suspended = "suspended",
        Disconnected = "disconnected",
    }
}

words! {
    /// Branches and pull requests that get a preview.
    pub enum Previews {
        Off = "off",
        PullRequests = "pull_requests",
        Branches = "branches",
    }
}

words! {
    /// The trigger of deployments of a linked repository.
    pub enum DeployedBy {
        /// A push deploys a folder of its commit.
        Push = "push",
        /// CI builds and deploys; pushes alone deploy nothing.
        Ci = "ci",
    }
}

#[derive(Debug, Clone)]
pub struct Installation {
    pub id: InstallationId,
    pub org_id: OrgId,
    pub external_id: Option<i64>,
    pub account_login: String,
    pub account_type: String,
    pub account_avatar: Option<String>,
    pub status: Status,
    pub repository_selection: String,
    pub permissions: Value,
    pub may_uninstall: bool,
    pub commit_statuses: bool,
    pub pull_request_comments: bool,
    pub connected_by: Option<AccountId>,
    pub last_delivery_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}
row!(Installation {
    id,
    org_id,
    external_id,
    account_login,
    account_type,
    account_avatar,
    status,
    repository_selection,
    permissions,
    may_uninstall,
    commit_statuses,
    pull_request_comments,
    connected_by,
    last_delivery_at,
    created_at,
    updated_at
});

impl Installation {
    pub fn key(&self) -> Key {
        Key { at: self.created_at, id: self.id.to_string() }
    }

    pub async fn find(mut from: impl Read, id: InstallationId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM codehost_installation WHERE id = $1", params![id]).await
    }

    pub async fn hold(tx: &mut Tx, id: InstallationId) -> db::Result<Option<Self>> {
        tx.opt(db::holding!("SELECT * FROM codehost_installation WHERE id = $1"), params![id]).await
    }

    /// Those of every organization that connected the host's installation.
    pub async fn all_of(mut from: impl Read, external: i64) -> db::Result<Vec<Self>> {
        from.all(
            "SELECT * FROM codehost_installation WHERE external_id = $1 ORDER BY id LIMIT 1000",
            params![external],
        )
        .await
    }

    pub async fn of_org(tx: &mut Tx, org: OrgId, external: i64) -> db::Result<Option<Self>> {
        let sql = "SELECT * FROM codehost_installation WHERE org_id = $1 AND external_id = $2";
        tx.opt(sql, params![org, external]).await
    }

    /// Those of the caller's organizations.
    pub async fn page(
        db: &Db,
        account: AccountId,
        org: Option<OrgId>,
        below: &Key,
        most: u32,
    ) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT i.* FROM codehost_installation i
             JOIN org_member m ON m.org_id = i.org_id AND m.account_id = $1
             WHERE (i.created_at, i.id) < ($2, $3) AND ($4 = '' OR i.org_id = $4)
             ORDER BY i.created_at DESC, i.id DESC LIMIT $5",
            params![account, below.at, &below.id, org.map(|org| org.to_string()).unwrap_or_default(), most],
        )
        .await
    }

    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "INSERT INTO codehost_installation
                 (id, org_id, external_id, account_login, account_type, account_avatar, status, repository_selection,
                  permissions, may_uninstall, commit_statuses, pull_request_comments, connected_by, created_at, updated_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $14)",
            params![
                self.id,
                self.org_id,
                self.external_id,
                &self.account_login,
                &self.account_type,
                self.account_avatar.clone(),
                self.status,
                &self.repository_selection,
                &self.permissions,
                self.may_uninstall,
                self.commit_statuses,
                self.pull_request_comments,
                self.connected_by,
                self.created_at
            ],
        )
        .await?;
        Ok(())
    }

    pub async fn save(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "UPDATE codehost_installation SET account_login = $2, account_type = $3, account_avatar = $4, status = $5,
                    repository_selection = $6, permissions = $7, may_uninstall = $8, commit_statuses = $9,
                    pull_request_comments = $10, connected_by = $11, updated_at = $12
             WHERE id = $1",
            params![
                self.id,
                &self.account_login,
                &self.account_type,
                self.account_avatar.clone(),
                self.status,
                &self.repository_selection,
                &self.permissions,
                self.may_uninstall,
                self.commit_statuses,
                self.pull_request_comments,
                self.connected_by,
                self.updated_at
            ],
        )
        .await?;
        Ok(())
    }

    pub async fn note_delivery(tx: &mut Tx, external: i64, now: Timestamp) -> db::Result<()> {
        let sql = "UPDATE codehost_installation SET last_delivery_at = $2 WHERE external_id = $1";
        tx.send(sql, params![external, now]).await
    }

    pub async fn delete(tx: &mut Tx, id: InstallationId) -> db::Result<()> {
        tx.exec("DELETE FROM codehost_installation WHERE id = $1", params![id]).await.map(drop)
    }

    /// Ends a request for approval of the same user, which an installation now answers.
    pub async fn end_requests(tx: &mut Tx, org: OrgId, account: AccountId) -> db::Result<()> {
        let sql = "DELETE FROM codehost_installation
                   WHERE org_id = $1 AND connected_by = $2 AND status = 'pending_approval'";
        tx.exec(sql, params![org, account]).await.map(drop)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "the host's number, as the column is called")]
pub struct Repository {
    pub repository_id: i64,
    pub full_name: String,
    pub is_private: bool,
    pub default_branch: String,
}
row!(Repository { repository_id, full_name, is_private, default_branch });

impl Repository {
    pub async fn all_of(mut from: impl Read, installation: InstallationId) -> db::Result<Vec<Self>> {
        from.all(
            "SELECT repository_id, full_name, is_private, default_branch FROM codehost_repository
             WHERE installation_id = $1 ORDER BY repository_id LIMIT 2000",
            params![installation],
        )
        .await
    }

    pub async fn find(mut from: impl Read, installation: InstallationId, id: i64) -> db::Result<Option<Self>> {
        from.opt(
            "SELECT repository_id, full_name, is_private, default_branch FROM codehost_repository
             WHERE installation_id = $1 AND repository_id = $2",
            params![installation, id],
        )
        .await
    }

    pub async fn put(&self, tx: &mut Tx, installation: InstallationId) -> db::Result<()> {
        tx.send(
            "INSERT INTO codehost_repository (installation_id, repository_id, full_name, is_private, default_branch)
             VALUES ($1, $2, $3, $4, $5) ON CONFLICT (installation_id, repository_id)
             DO UPDATE SET full_name = $3, is_private = $4, default_branch = $5",
            params![installation, self.repository_id, &self.full_name, self.is_private, &self.default_branch],
        )
        .await
    }

    /// With its links.
    pub async fn delete(tx: &mut Tx, installation: InstallationId, id: i64) -> db::Result<bool> {
        let sql = "DELETE FROM codehost_repository WHERE installation_id = $1 AND repository_id = $2";
        Ok(tx.exec(sql, params![installation, id]).await? == 1)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub id: LinkId,
    pub installation_id: InstallationId,
    pub repository_id: i64,
    pub app_id: ApplicationId,
    pub production_branch: Option<String>,
    pub output_directory: String,
    pub previews: Previews,
    pub forks: bool,
    pub deployed_by: DeployedBy,
    pub created_at: Timestamp,
}
row!(Link {
    id,
    installation_id,
    repository_id,
    app_id,
    production_branch,
    output_directory,
    previews,
    forks,
    deployed_by,
    created_at
});

impl Link {
    pub async fn find(mut from: impl Read, id: LinkId) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM codehost_link WHERE id = $1", params![id]).await
    }

    pub async fn all_of(mut from: impl Read, installation: InstallationId) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM codehost_link WHERE installation_id = $1 ORDER BY created_at, id LIMIT 1000";
        from.all(sql, params![installation]).await
    }

    /// Those of an app to a repository, whatever installation they belong to.
    pub async fn between(db: &Db, app: ApplicationId, repository: i64) -> db::Result<Vec<Self>> {
        let sql = "SELECT * FROM codehost_link WHERE app_id = $1 AND repository_id = $2 ORDER BY id LIMIT 100";
        db.all(sql, params![app, repository]).await
    }

    pub async fn put(&self, tx: &mut Tx) -> db::Result<()> {
        tx.exec(
            "INSERT INTO codehost_link (id, installation_id, repository_id, app_id, production_branch, output_directory,
                                        previews, forks, created_at, deployed_by)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (id)
             DO UPDATE SET production_branch = $5, output_directory = $6, previews = $7, forks = $8, deployed_by = $10",
            params![
                self.id,
                self.installation_id,
                self.repository_id,
                self.app_id,
                self.production_branch.clone(),
                &self.output_directory,
                self.previews,
                self.forks,
                self.created_at,
                self.deployed_by
            ],
        )
        .await?;
        Ok(())
    }

    pub async fn delete(tx: &mut Tx, id: LinkId) -> db::Result<()> {
        tx.exec("DELETE FROM codehost_link WHERE id = $1", params![id]).await.map(drop)
    }
}

/// A branch or a pull request, as it is named here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeadName {
    Branch(String),
    Pull(i64),
}

impl HeadName {
    /// A branch cannot have this form of name of a pull request: `:` stands in none.
    pub fn key(&self) -> String {
        match self {
            Self::Branch(name) => name.clone(),
            Self::Pull(number) => format!("pull:{number}"),
        }
    }
}

/// What was deployed last of a branch or a pull request.
#[derive(Debug, Clone)]
pub struct Head {
    pub sha: Option<String>,
    pub deployment_id: Option<DeploymentId>,
    pub comment_id: Option<i64>,
    pub fence: i64,
}
row!(Head { sha, deployment_id, comment_id, fence });

/// How long one run may hold a head. Longer than a job may run.
pub const LEASE: Duration = Duration::from_mins(6);

impl Head {
    /// Takes the head for one run. While another one has it, notes that it is to look again, and answers none.
    pub async fn take(tx: &mut Tx, link: LinkId, name: &str, now: Timestamp) -> db::Result<Option<Self>> {
        tx.exec(
            "INSERT INTO codehost_head (link_id, name, busy_until, fence, is_asked_again, updated_at)
             VALUES ($1, $2, 0, 0, $3, $4) ON CONFLICT (link_id, name) DO NOTHING",
            params![link, name, false, now],
        )
        .await?;
        let taken: Vec<Self> = tx
            .put(
                "UPDATE codehost_head SET busy_until = $4, fence = fence + 1, is_asked_again = $5
                 WHERE link_id = $1 AND name = $2 AND busy_until <= $3
                 RETURNING sha, deployment_id, comment_id, fence",
                params![link, name, now, now.plus(LEASE), false],
            )
            .await?;
        if taken.is_empty() {
            let sql = "UPDATE codehost_head SET is_asked_again = $3 WHERE link_id = $1 AND name = $2";
            tx.exec(sql, params![link, name, true]).await?;
        }
        Ok(taken.into_iter().next())
    }

    /// Gives it back. Whether somebody asked for another look meanwhile: then it is kept.
    pub async fn give_back(tx: &mut Tx, link: LinkId, name: &str, fence: i64, now: Timestamp) -> db::Result<bool> {
        let given = tx
            .exec(
                "UPDATE codehost_head SET busy_until = 0 WHERE link_id = $1 AND name = $2 AND fence = $3
                   AND NOT is_asked_again",
                params![link, name, fence],
            )
            .await?;
        if given == 1 {
            return Ok(false);
        }
        let kept = tx
            .exec(
                "UPDATE codehost_head SET is_asked_again = $4, busy_until = $5
                 WHERE link_id = $1 AND name = $2 AND fence = $3",
                params![link, name, fence, false, now.plus(LEASE)],
            )
            .await?;
        Ok(kept == 1)
    }

    /// Lets go after a failure, so that the next try need not wait.
    pub async fn drop_lease(db: &Db, link: LinkId, name: &str, fence: i64) -> db::Result<()> {
        let sql = "UPDATE codehost_head SET busy_until = 0 WHERE link_id = $1 AND name = $2 AND fence = $3";
        db.exec(sql, params![link, name, fence]).await.map(drop)
    }

    /// Notes what is being deployed. `false` when another run has taken the head.
    pub async fn note(
        tx: &mut Tx,
        link: LinkId,
        name: &str,
        fence: i64,
        (sha, deployment, pull): (&str, DeploymentId, Option<i64>),
        now: Timestamp,
    ) -> db::Result<bool> {
        let sql = "UPDATE codehost_head SET sha = $4, deployment_id = $5, pull_number = COALESCE($6, pull_number),
                          updated_at = $7
                   WHERE link_id = $1 AND name = $2 AND fence = $3";
        Ok(tx.exec(sql, params![link, name, fence, sha, deployment, pull, now]).await? == 1)
    }

    pub async fn note_comment(db: &Db, link: LinkId, name: &str, comment: i64) -> db::Result<()> {
        let sql = "UPDATE codehost_head SET comment_id = $3 WHERE link_id = $1 AND name = $2";
        db.exec(sql, params![link, name, comment]).await.map(drop)
    }

    pub async fn forget(tx: &mut Tx, link: LinkId, name: &str) -> db::Result<()> {
        let sql = "UPDATE codehost_head SET sha = NULL, deployment_id = NULL WHERE link_id = $1 AND name = $2";
        tx.exec(sql, params![link, name]).await.map(drop)
    }
}

/// What counts of a delivery. Its content is not kept: what it leads to is read from the host, so that an old delivery does
/// nothing that a new one would not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    pub branch: Option<String>,
    pub pull: Option<i64>,
    pub sha: Option<String>,
    pub repositories: Vec<i64>,
    /// As the host names it; for people.
    pub repository: Option<String>,
    pub sender: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Delivery {
    pub id: String,
    pub event: String,
    pub action: Option<String>,
    pub external_id: i64,
    pub repository_id: Option<i64>,
    pub facts: Facts,
    pub via: String,
    pub received_at: Timestamp,
}

impl FromRow for Delivery {
    fn from_row(mut row: Row) -> db::Result<Self> {
        let facts: Value = row.get("facts")?;
        Ok(Self {
            id: row.get("id")?,
            event: row.get("event")?,
            action: row.get("action")?,
            external_id: row.get("external_id")?,
            repository_id: row.get("repository_id")?,
            facts: serde_json::from_value(facts).unwrap_or_default(),
            via: row.get("via")?,
            received_at: row.get("received_at")?,
        })
    }
}

impl Delivery {
    pub fn key(&self) -> Key {
        Key { at: self.received_at, id: self.id.clone() }
    }

    /// `false` when one of this id is here already.
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<bool> {
        let facts = serde_json::to_value(&self.facts).unwrap_or_default();
        let inserted = tx
            .exec(
                "INSERT INTO codehost_delivery (id, event, action, external_id, repository_id, facts, via, received_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING",
                params![
                    &self.id,
                    &self.event,
                    self.action.clone(),
                    self.external_id,
                    self.repository_id,
                    &facts,
                    &self.via,
                    self.received_at
                ],
            )
            .await?;
        Ok(inserted == 1)
    }

    pub async fn find(mut from: impl Read, id: &str) -> db::Result<Option<Self>> {
        from.opt("SELECT * FROM codehost_delivery WHERE id = $1", params![id]).await
    }

    /// What an organization may see of its installation: deliveries about its own repositories, and about none.
    pub async fn page(db: &Db, of: &Installation, below: &Key, most: u32) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT d.* FROM codehost_delivery d
             WHERE d.external_id = $1 AND d.received_at >= $2 AND (d.received_at, d.id) < ($3, $4)
               AND (d.repository_id IS NULL OR EXISTS
                    (SELECT 1 FROM codehost_repository r
                     WHERE r.installation_id = $5 AND r.repository_id = d.repository_id))
             ORDER BY d.received_at DESC, d.id DESC LIMIT $6",
            params![of.external_id.unwrap_or(-1), of.created_at, below.at, &below.id, of.id, most],
        )
        .await
    }
}

/// What a delivery led to.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub id: OutcomeId,
    pub delivery_id: String,
    pub installation_id: InstallationId,
    pub app_id: Option<ApplicationId>,
    pub result: String,
    pub message: String,
    pub deployment_id: Option<DeploymentId>,
    pub at: Timestamp,
}
row!(Outcome { id, delivery_id, installation_id, app_id, result, message, deployment_id, at });

impl Outcome {
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        let message: String = self.message.chars().take(500).collect();
        tx.send(
            "INSERT INTO codehost_outcome (id, delivery_id, installation_id, app_id, result, message, deployment_id, at)
             SELECT $1, $2, $3, $4, $5, $6, $7, $8 WHERE EXISTS (SELECT 1 FROM codehost_delivery WHERE id = $2)
               AND EXISTS (SELECT 1 FROM codehost_installation WHERE id = $3)",
            params![
                self.id,
                &self.delivery_id,
                self.installation_id,
                self.app_id,
                &self.result,
                &message,
                self.deployment_id,
                self.at
            ],
        )
        .await
    }

    pub async fn all_of(db: &Db, installation: InstallationId, delivery: &str) -> db::Result<Vec<Self>> {
        db.all(
            "SELECT * FROM codehost_outcome WHERE installation_id = $1 AND delivery_id = $2 ORDER BY at DESC, id DESC LIMIT 20",
            params![installation, delivery],
        )
        .await
    }
}

/// A token by which a CI run deploys.
#[derive(Debug, Clone)]
pub struct DeployToken {
    pub hash: String,
    pub link_id: LinkId,
    pub app_id: ApplicationId,
    pub branch: String,
    pub sha: String,
    pub target: Target,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}
row!(DeployToken { hash, link_id, app_id, branch, sha, target, created_at, expires_at });

impl DeployToken {
    pub async fn insert(&self, tx: &mut Tx) -> db::Result<()> {
        let sql = "INSERT INTO deploy_token (hash, link_id, app_id, branch, sha, target, created_at, expires_at)
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
        let (app, target) = (self.app_id, self.target);
        let params =
            params![&self.hash, self.link_id, app, &self.branch, &self.sha, target, self.created_at, self.expires_at];
        tx.exec(sql, params).await.map(drop)
    }

    /// One that counts now: its link and installation are still there and active.
    pub async fn find(mut from: impl Read, hash: &str, now: Timestamp) -> db::Result<Option<Self>> {
        from.opt(
            "SELECT t.* FROM deploy_token t JOIN codehost_link l ON l.id = t.link_id
             JOIN codehost_installation i ON i.id = l.installation_id
             WHERE t.hash = $1 AND t.expires_at > $2 AND i.status = 'active' AND l.app_id = t.app_id",
            params![hash, now],
        )
        .await
    }
}
