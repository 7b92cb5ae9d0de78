//! The picture of an organization.
use axum::extract::State;
use kernel::{
    App,
    fault::Result,
    http::{Json, Routes},
};
use tenancy::{
    enter::{Admin, InOrg},
    uploads::{self, Offer, Subject, TOO_MANY_UPLOADS, Wish},
};

pub fn routes() -> Routes {
    Routes::new("org")
        .post("/org/{id}/logo/upload-url", create_logo_upload, "presigned URL for logo upload")
        .fails(&[TOO_MANY_UPLOADS])
}

async fn create_logo_upload(
    State(app): State<App>,
    caller: InOrg<Admin>,
    Json(wish): Json<Wish>,
) -> Result<Json<Offer>> {
    uploads::open(&app, Subject::Logo(caller.org().id), caller.session.by(), &wish).await.map(Json)
}

#[cfg(test)]
mod tests;
