//! The picture of an app, for the pages on which its people sign in.
use axum::{extract::State, response::NoContent};
use kernel::{
    App,
    fault::Result,
    http::{Json, Routes},
    transact,
};
use tenancy::{
    enter::{Admin, InApp},
    events::{self, About, Event},
    uploads::{self, Offer, Subject, TOO_MANY_UPLOADS, Wish},
};

pub fn routes() -> Routes {
    Routes::new("apps")
        .post("/apps/{appId}/logo/upload-url", create_app_logo_upload, "presigned URL for the app's logo")
        .fails(&[TOO_MANY_UPLOADS])
        .delete("/apps/{appId}/logo", delete_app_logo, "show no logo any more")
}

async fn create_app_logo_upload(
    State(app): State<App>,
    caller: InApp<Admin>,
    Json(wish): Json<Wish>,
) -> Result<Json<Offer>> {
    uploads::open(&app, Subject::AppLogo(caller.application.id), caller.session.by(), &wish).await.map(Json)
}

/// Uploads that are under way come to nothing, too: whoever takes the logo away means it.
async fn delete_app_logo(State(app): State<App>, caller: InApp<Admin>) -> Result<NoContent> {
    transact!(app, async |tx| {
        let mut application = caller.hold(tx).await?;
        uploads::subject_gone(tx, &app, Subject::AppLogo(application.id)).await?;
        if application.logo_url.is_some() {
            application.set_logo(tx, None, app.clock.now()).await?;
            let event = Event::AppUpdated { fields: vec!["logoUrl"] };
            events::record(tx, &app, &caller.session.by(), About::app(&application), &event).await?;
        }
        Ok(())
    })?;
    Ok(NoContent)
}
