//! Deployments as they are shown.
use kernel::{Janua, clock::Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use tenancy::{
    accounts::AccountId,
    apps::{AppKeyId, ApplicationId},
    orgs::OrgId,
};

use super::model::{Commit, Deployment, DeploymentError, DeploymentId, SourceKind, Status, Target};
use crate::edge::EdgeUrl;

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceView {
    #[serde(rename = "type")]
    pub kind: SourceKind,
    /// The user who deployed.
    pub account_id: Option<AccountId>,
    /// The secret key that deployed.
    pub key_id: Option<AppKeyId>,
    pub installation_id: Option<String>,
    pub repository: Option<String>,
    /// The deployment whose files these are.
    pub redeploy_of: Option<DeploymentId>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Deployment")]
pub struct DeploymentView {
    pub id: DeploymentId,
    pub app_id: ApplicationId,
    pub org_id: OrgId,
    /// Counts the deployments of the app.
    pub number: i64,
    pub status: Status,
    pub target: Target,
    /// Whether production serves it.
    pub active: bool,
    /// The URL of production.
    pub url: String,
    /// Where this deployment is served, as long as it is kept.
    pub preview_url: String,
    pub source: SourceView,
    pub commit: Option<Commit>,
    pub files: i64,
    pub bytes: i64,
    /// Bytes that the app did not have before.
    pub new_bytes: i64,
    pub archive_sha256: Option<String>,
    pub warnings: Vec<String>,
    pub error: Option<DeploymentError>,
    pub created_at: Timestamp,
    pub started_at: Timestamp,
    pub ready_at: Option<Timestamp>,
    pub activated_at: Option<Timestamp>,
    pub deactivated_at: Option<Timestamp>,
    /// When its files are, or were, deleted.
    pub expires_at: Option<Timestamp>,
    pub duration_ms: Option<i64>,
}

impl DeploymentView {
    pub fn of(janua: &Janua, deployment: Deployment, slug: &str, active: Option<DeploymentId>) -> Self {
        let edge = EdgeUrl::of(&janua.config);
        let ended = deployment.ready_at.or(deployment.failed_at);
        Self {
            active: active == Some(deployment.id),
            url: edge.url(slug),
            preview_url: edge.url(&format!("{}--{slug}", deployment.label)),
            source: SourceView {
                kind: deployment.source,
                account_id: deployment.account_id,
                key_id: deployment.key_id,
                installation_id: deployment.installation_id,
                repository: deployment.repository,
                redeploy_of: deployment.redeploy_of,
            },
            duration_ms: ended.map(|ended| ended.0 - deployment.created_at.0),
            started_at: deployment.created_at,
            id: deployment.id,
            app_id: deployment.app_id,
            org_id: deployment.org_id,
            number: deployment.number,
            status: deployment.status,
            target: deployment.target,
            commit: deployment.commit,
            files: deployment.files,
            bytes: deployment.bytes,
            new_bytes: deployment.new_bytes,
            archive_sha256: deployment.archive_sha256,
            warnings: deployment.warnings,
            error: deployment.error,
            created_at: deployment.created_at,
            ready_at: deployment.ready_at,
            activated_at: deployment.activated_at,
            deactivated_at: deployment.deactivated_at,
            expires_at: deployment.expires_at,
        }
    }
}
