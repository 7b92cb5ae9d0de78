//! The console: what developers build with, and what those see who run the platform. Every page is drawn from the answers
//! of the interface to the person who looks at it, and every form is one request to it.
mod apps;
mod design;
mod orgs;
mod platform;
mod start;
mod webhooks;

use kernel::http::Routes;

pub fn routes() -> Routes {
    Routes::new("pages")
        .and(start::routes())
        .and(orgs::routes())
        .and(apps::routes())
        .and(webhooks::routes())
        .and(platform::routes())
        .and(design::routes())
}
