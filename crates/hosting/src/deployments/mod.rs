//! Deployments: an archive becomes a site.
mod api;
pub mod archive;
mod build;
mod deploy;
pub mod events;
mod files;
mod health;
mod jobs;
mod limits;
mod log;
mod model;
pub mod names;
mod process;
mod view;

use kernel::{feature::Feature, http::Routes};

pub use deploy::{complete, fail, new as new_deployment};
pub use model::{
    Built, Commit, Deployment, DeploymentError, DeploymentId, LiveManifest, SourceKind, Status, StoredPack, Target,
};
pub use process::{Failure, Received, finish, receive};

pub fn feature() -> Feature {
    Feature::new(Routes::new("deployments").and(deploy::routes()).and(api::routes()))
        .jobs(jobs::jobs())
        .declares(events::EVENTS)
        .declares(&[limits::DEPLOYS, limits::DEPLOYS_PER_DAY])
        // The process that worked on them is gone.
        .release(|janua| {
            Box::pin(async move {
                let now = janua.clock.now();
                jobs::end_interrupted(&janua, now).await.map_err(|later| format!("deployments: {later:?}"))
            })
        })
}
