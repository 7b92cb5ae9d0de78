//! The logo of an organization.
use axum::extract::State;
use db::Tx;
use kernel::{
    Janua,
    fault::Result,
    http::{Json, Routes},
};
use tenancy::{
    enter::{Admin, InOrg},
    events::{self, About},
    gone::Gone,
    orgs::Org,
    uploads::{self, Offer, PicturesOf, TOO_MANY_UPLOADS, Upload, Wish},
};

use crate::events::OrgUpdated;

pub fn routes() -> Routes {
    Routes::new("org")
        .post("/org/{id}/logo/upload-url", create_logo_upload, "presigned URL for logo upload")
        .fails(&[TOO_MANY_UPLOADS])
}

/// The logos of organizations, as uploads know them.
pub const LOGOS: PicturesOf =
    PicturesOf { kind: "logo", show: |tx, janua, upload, url| Box::pin(show(tx, janua, upload, url)) };

/// Uploads of an organization that goes come to nothing, and its logo is deleted.
pub const GONE: Gone =
    Gone::Org(|tx, janua, id| Box::pin(async move { uploads::subject_gone(tx, janua, &LOGOS.of(id)).await }));

async fn show(tx: &mut Tx, janua: &Janua, upload: &Upload, url: &str) -> db::Result<bool> {
    let Some(org) = upload.subject.id() else { return Ok(false) };
    if !uploads::may_still(tx, upload, org).await? || !Org::set_logo(tx, org, url, janua.clock.now()).await? {
        return Ok(false);
    }
    let event = OrgUpdated { fields: vec!["logoUrl"] };
    events::record(tx, janua, &upload.by, About::in_org(org), &event).await?;
    Ok(true)
}

async fn create_logo_upload(
    State(janua): State<Janua>,
    caller: InOrg<Admin>,
    Json(wish): Json<Wish>,
) -> Result<Json<Offer>> {
    uploads::open(&janua, LOGOS.of(caller.org().id), caller.session.by(), &wish).await.map(Json)
}

#[cfg(test)]
mod tests;
