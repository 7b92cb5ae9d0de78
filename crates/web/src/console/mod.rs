//! The console for developers and platform owners. Every page renders answers of the API to the signed-in user, and
//! every form is one API request.
mod apps;
mod design;
mod orgs;
mod platform;
mod start;
mod usage;
mod webhooks;

use kernel::http::Routes;

pub fn routes() -> Routes {
    Routes::new("pages")
        .and(start::routes())
        .and(orgs::routes())
        .and(apps::routes())
        .and(webhooks::routes())
        .and(usage::routes())
        .and(platform::routes())
        .and(design::routes())
}
