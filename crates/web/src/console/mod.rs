//! The console for developers and platform owners. Every page renders answers of the API to the signed-in user, and
//! every form is one API request.
mod apps;
mod billing;
mod code;
mod deployments;
mod design;
mod email;
mod insights;
mod machines;
mod mails;
pub mod nav;
mod orgs;
mod platform;
mod quick_start;
mod samples;
mod search;
mod skills;
mod start;
mod storage;
mod usage;
mod webhooks;

use kernel::http::Routes;

use nav::NavEntry;

/// The navigation: what each module declares, in the order of this list.
const NAV: &[&[NavEntry]] = &[
    crate::account::NAV,
    orgs::NAV,
    quick_start::NAV,
    apps::NAV,
    deployments::NAV,
    webhooks::NAV,
    email::NAV,
    storage::NAV,
    platform::NAV,
    insights::NAV,
    usage::NAV,
    billing::NAV,
    machines::NAV,
    skills::NAV,
    code::NAV,
];

pub fn routes() -> Routes {
    Routes::new("pages")
        .and(start::routes())
        .and(orgs::routes())
        .and(apps::routes())
        .and(insights::routes())
        .and(deployments::routes())
        .and(webhooks::routes())
        .and(email::routes())
        .and(storage::routes())
        .and(usage::routes())
        .and(billing::routes())
        .and(machines::routes())
        .and(skills::routes())
        .and(code::routes())
        .and(platform::routes())
        .and(search::routes())
        .and(design::routes())
        .and(quick_start::routes())
        .and(mails::routes())
}
