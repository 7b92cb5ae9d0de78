//! What happens to deployments, for the audit log and webhooks.
use super::model::{DeploymentId, Target};
use crate::edge::site::SiteId;

tenancy::events! {
    /// A deployment began.
    DeploymentCreated { deployment_id: DeploymentId, number: i64, target: Target } = "DEPLOYMENT_CREATED";
    /// A deployment went live in production.
    DeploymentActivated { deployment_id: DeploymentId, number: i64, previous: Option<DeploymentId> } = "DEPLOYMENT_ACTIVATED";
    /// A deployment failed.
    DeploymentFailed { deployment_id: DeploymentId, number: i64, code: String } = "DEPLOYMENT_FAILED";
    /// A deployment was canceled.
    DeploymentCanceled { deployment_id: DeploymentId, number: i64 } = "DEPLOYMENT_CANCELED";
    /// The files of an old deployment were deleted.
    DeploymentExpired { deployment_id: DeploymentId, number: i64 } = "DEPLOYMENT_EXPIRED";
    /// A site was set up for an app.
    DistributionProvisioned { distribution_id: SiteId, provider: String } = "DISTRIBUTION_PROVISIONED";
    /// The settings of a site were changed.
    DistributionUpdated { distribution_id: SiteId, fields: Vec<String> } = "DISTRIBUTION_UPDATED";
    /// A site was switched off.
    DistributionDisabled { distribution_id: SiteId } = "DISTRIBUTION_DISABLED";
}
