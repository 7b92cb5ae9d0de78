//! Deployments: an archive becomes a site.
mod api;
pub mod build;
mod caller;
mod deploy;
pub mod events;
mod files;
mod health;
mod jobs;
mod limits;
mod log;
mod model;
mod process;
mod rewrite;
mod view;

use kernel::{feature::Feature, http::Routes};
use tenancy::gone::Gone;

pub use deploy::{Begin, archive_limits, begin_at_host, complete, complete_received, fail, new as new_deployment};
pub use model::{
    Built, Commit, Deployment, DeploymentError, DeploymentId, LiveManifest, SourceKind, Status, StoredPack, Target,
};
pub use process::{CANCELED, Failure, INTERRUPTED, Received, Unpacker, Unpackers, finish, receive, receive_within};
#[cfg(test)]
pub use rewrite::RewritePacks;

/// Bytes follow by a job, once no deployment names them.
const GONE: &[Gone] = &[
    Gone::ManyOfApp(
        "DELETE FROM deployment_log WHERE (deployment_id, seq) IN
             (SELECT l.deployment_id, l.seq FROM deployment_log l JOIN deployment d ON d.id = l.deployment_id
              WHERE d.app_id = $1 LIMIT $2)",
    ),
    Gone::ManyOfApp("DELETE FROM deployment WHERE id IN (SELECT id FROM deployment WHERE app_id = $1 LIMIT $2)"),
    Gone::ManyOfApp(
        "DELETE FROM site_traffic WHERE (app_id, hour) IN
             (SELECT app_id, hour FROM site_traffic WHERE app_id = $1 LIMIT $2)",
    ),
];

pub fn feature() -> Feature {
    Feature::new(Routes::new("deployments").and(deploy::routes()).and(api::routes()))
        .own(Unpackers::default())
        .jobs(jobs::jobs())
        .declares(events::EVENTS)
        .declares(GONE)
        .declares(&[limits::DEPLOYS, limits::DEPLOYS_PER_DAY])
        .declares(limits::CHECKED)
        // The process that worked on them is gone.
        .release(|janua| {
            Box::pin(async move {
                let now = janua.clock.now();
                jobs::end_interrupted(&janua, now).await.map_err(|later| format!("deployments: {later:?}"))
            })
        })
}
