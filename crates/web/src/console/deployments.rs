//! Deployments of an app: what is live, how it came there, and the way back.
use axum::{body::Body, http::Method, response::Response};
use futures_util::{StreamExt as _, TryStreamExt as _};
use kernel::{
    fault::{Fault, INVALID, MALFORMED, Result},
    http::{Path, Routes},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    apps::{APP, OfApp},
    nav::{Area, NavEntry},
};
use crate::{
    form::OwnPage,
    me::{Me, Sender},
    multipart::StreamedForm,
    outcome::FormOutcome,
    page::{go, noted, pages},
};

pub const NAV: &[NavEntry] = &[NavEntry::new(Area::App, "Build", "Deployments", "deploy", "/deployments")];

/// As long as the longest archive of any plan, and the form around it.
const LONGEST_FORM: usize = (500 << 20) + (64 << 10);

pub fn routes() -> Routes {
    pages("pages")
        .get("/console/apps/{appId}/deployments", deployments_page, "deployments of an app")
        .get("/console/apps/{appId}/deployments/{id}", deployment_page, "one deployment, its log and its files")
        .post("/console/apps/{appId}/deployments", upload_archive, "deploy an archive that a form sends")
        .streams(LONGEST_FORM)
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OfDeployment {
    app_id: String,
    id: String,
}

async fn deployments_page(me: Me, Path(place): Path<OfApp>) -> Response {
    let asks = [APP, ("list", "/deployments?appId={appId}&limit=20&{query}"), ("?cdn", "/apps/{appId}/cdn")];
    me.show("console/deployments.html", &place, &asks).await
}

async fn deployment_page(me: Me, Path(place): Path<OfDeployment>) -> Response {
    let asks = [
        APP,
        ("deployment", "/deployments/{id}"),
        ("log", "/deployments/{id}/logs"),
        ("?changes", "/deployments/{id}/files"),
    ];
    me.show("console/deployment.html", &place, &asks).await
}

/// A form with a file, for browsers without script. With script the archive goes to the API itself.
async fn upload_archive(
    _: OwnPage,
    Sender(me): Sender,
    Path(OfApp { app_id }): Path<OfApp>,
    form: StreamedForm,
) -> Response {
    let me = match me {
        Ok(me) => me,
        Err(to_sign_in) => return to_sign_in,
    };
    let page = format!("/console/apps/{app_id}/deployments");
    let outcome = match deploy(&me, &app_id, form).await {
        Ok(id) => return me.keeps(go(&format!("{page}/{id}"))),
        Err(fault) => {
            noted(&fault);
            FormOutcome::refused("deploy", &fault)
        }
    };
    me.keeps(go(&crate::act::with_outcome(&me, &page, &outcome).await))
}

async fn deploy(me: &Me, app: &str, StreamedForm { kind, bytes, .. }: StreamedForm) -> Result<String> {
    let boundary = multer::parse_boundary(&kind).map_err(|_| MALFORMED.because("The form cannot be read."))?;
    let bytes = bytes.map_err(|fault: Fault| std::io::Error::other(fault.to_string()));
    let mut form = multer::Multipart::new(bytes.boxed(), boundary);
    let broken = |error: multer::Error| MALFORMED.caused_by(error);
    let mut target = "production".to_owned();
    while let Some(field) = form.next_field().await.map_err(broken)? {
        match field.name() {
            Some("target") => {
                let wanted = field.text().await.map_err(broken)?;
                target = if wanted == "preview" { wanted } else { target };
            }
            Some("archive") => {
                if field.file_name().is_none_or(str::is_empty) {
                    return Err(INVALID.at("archive", "required", "Choose an archive."));
                }
                let path = format!("/apps/{app}/deploy?target={target}");
                let said = me.send(Method::POST, &path, "application/gzip", Body::from_stream(field)).await?;
                return Ok(said.body["id"].as_str().unwrap_or_default().to_owned());
            }
            _ => {}
        }
    }
    Err(INVALID.at("archive", "required", "Choose an archive."))
}
