//! The picture of an app, for the pages on which its people sign in.
use axum::{extract::State, response::NoContent};
use db::Tx;
use kernel::{
    Janua,
    fault::Result,
    http::{Json, Routes},
    transact,
};
use tenancy::{
    apps::Application,
    enter::{Admin, InApp},
    events::{self, About},
    gone::Gone,
    uploads::{self, Offer, PicturesOf, TOO_MANY_UPLOADS, Upload, Wish},
};

use crate::events::AppUpdated;

pub fn routes() -> Routes {
    Routes::new("apps")
        .post("/apps/{appId}/logo/upload-url", create_app_logo_upload, "presigned URL for the app's logo")
        .fails(&[TOO_MANY_UPLOADS])
        .delete("/apps/{appId}/logo", delete_app_logo, "delete the app's logo")
}

/// The logos of apps, as uploads know them.
pub const LOGOS: PicturesOf =
    PicturesOf { kind: "app-logo", show: |tx, janua, upload, url| Box::pin(show(tx, janua, upload, url)) };

/// Uploads of an app that goes come to nothing, and its logo is deleted.
pub const GONE: Gone =
    Gone::App(|tx, janua, id| Box::pin(async move { uploads::subject_gone(tx, janua, &LOGOS.of(id)).await }));

async fn show(tx: &mut Tx, janua: &Janua, upload: &Upload, url: &str) -> db::Result<bool> {
    let Some(id) = upload.subject.id() else { return Ok(false) };
    let Some(mut application) = Application::hold(tx, id).await? else { return Ok(false) };
    if !uploads::may_still(tx, upload, application.org_id).await? {
        return Ok(false);
    }
    application.set_logo(tx, Some(url), janua.clock.now()).await?;
    let event = AppUpdated { fields: vec!["logoUrl"] };
    events::record(tx, janua, &upload.by, About::app(&application), &event).await?;
    Ok(true)
}

async fn create_app_logo_upload(
    State(janua): State<Janua>,
    caller: InApp<Admin>,
    Json(wish): Json<Wish>,
) -> Result<Json<Offer>> {
    uploads::open(&janua, LOGOS.of(caller.application.id), caller.session.by(), &wish).await.map(Json)
}

/// Uploads that are under way come to nothing, too: whoever takes the logo away means it.
async fn delete_app_logo(State(janua): State<Janua>, caller: InApp<Admin>) -> Result<NoContent> {
    transact!(janua, async |tx| {
        let mut application = caller.hold(tx).await?;
        uploads::subject_gone(tx, &janua, &LOGOS.of(application.id)).await?;
        if application.logo_url.is_some() {
            application.set_logo(tx, None, janua.clock.now()).await?;
            let event = AppUpdated { fields: vec!["logoUrl"] };
            caller.record(tx, &janua, &event).await?;
        }
        Ok(())
    })?;
    Ok(NoContent)
}
